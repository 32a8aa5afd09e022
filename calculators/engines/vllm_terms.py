"""Terms of vLLM's budget: from visible memory to the cache, a line each, with what is fitted of them."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.activations import CHUNK, FORWARD_REST, Profiled, profile_peak, sparse_bytes
from roofcast.calculators.engines.device import visible_term
from roofcast.calculators.engines.terms import GIB, EngineTerm, exact, spread, together
from roofcast.calculators.engines.vllm_weights import Stage, held_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.engines.vllm_start import Started
    from roofcast.hwdb.accelerator import Accelerator

# Memory beside PyTorch's that a profile adds, mean and standard deviation, by engine and by how devices share layers: on
# capability 9 and 10 all-reduces have workspaces of their own, less on 12. Source: start-up logs named in vllm_versions;
# ROCm's from Gemma 3 27B and Qwen2.5 14B on MI300X. [GiB]
NON_TORCH: Final[Mapping[tuple[str, str], tuple[float, float]]] = {
    ("V0", "one"): (0.35, 0.10),
    ("V0", "stages"): (0.30, 0.15),
    ("V0", "plain"): (0.45, 0.30),
    ("V0", "workspaces"): (0.55, 0.30),
    ("sorting", "one"): (0.13, 0.08),
    ("sorting", "stages"): (0.13, 0.10),
    ("sorting", "plain"): (0.35, 0.25),
    ("sorting", "workspaces"): (1.50, 0.70),
    ("V1", "one"): (0.25, 0.04),
    ("V1", "stages"): (0.07, 0.05),
    ("V1", "plain"): (0.30, 0.25),
    ("V1", "workspaces"): (2.09, 0.10),
    ("V1", "some"): (1.60, 0.50),
    ("ROCm", "one"): (1.10, 0.40),
    ("ROCm", "stages"): (1.10, 0.50),
    ("ROCm", "plain"): (1.70, 0.60),
}
WORDS: Final[Mapping[str, str]] = {
    "one": "one device",
    "stages": "stages",
    "plain": "devices that share layers",
    "workspaces": "devices that share layers",
    "some": "devices that share layers",
}
MOST_CAPTURED: Final = 512  # batch sizes of graphs
REDUCING: Final = {9: "workspaces", 10: "workspaces", 12: "some"}  # major compute capability -> key of NON_TORCH
SORTING: Final = 20.0  # bytes a logit takes where sampling sorts
GRAPH_LAYER: Final = (2.7e-4, 1.2e-4)  # estimate of CUDA graphs a layer and captured size, mean and deviation [GiB]
GRAPHS_LEAST: Final = 0.3  # of models with towers, draft layers or states [GiB]
RESERVED_SIGMA: Final = 0.12  # standard deviation of what 0.2.5 to 0.6.3 reserve, as a share of the weights [-]
PEAK_SIGMA: Final = {"dense": 0.02, "experts": 0.03, "pictures": 0.25}  # [GiB]
V0_REST: Final = 0.01 * GIB  # of an eager forward pass [B]
LARGE_STEP_SHARE: Final = 0.2  # likewise of steps beyond the 32,768 tokens that experts take at once [-]
UNSURE: Final = 0.25  # of the second runner in versions that no log is of [GiB]
PEAK_SHARE: Final = 0.01  # standard deviation of a peak as a share of it [-]


def stage_terms(started: Started, stage: Stage, given: Mapping[str, float]) -> tuple[EngineTerm, ...]:
    """From visible memory to the cache, a line each; the last is the cache."""
    flags, rules = started.served.flags, started.rules
    visible = _given("visible", given) or visible_term(started.served.ready.deployment.accelerator)
    share = rules.utilization if flags.gpu_memory_utilization is None else flags.gpu_memory_utilization
    rule = f"{share:g} of what it sees" + ("" if flags.gpu_memory_utilization else " (default)")
    budget = _given("budget", given) or EngineTerm(
        "budget", visible.bytes * share, visible.low * share, visible.high * share, rule, "config"
    )
    taken = [_given(term.name, given) or term for term in _taken(started, stage)]
    if flags.kv_cache_memory_bytes is not None:
        kv = exact("kv", flags.kv_cache_memory_bytes, "--kv-cache-memory-bytes, whatever else takes", "config")
    else:
        below, above = together([budget, *taken])
        left = budget.bytes - sum(term.bytes for term in taken)
        kv = EngineTerm("kv", left, left - below, left + above, "what is left of the budget", "fitted")
    return (visible, budget, *taken, _given("kv", given) or kv)


def _given(name: str, given: Mapping[str, float]) -> EngineTerm | None:
    return exact(name, given[name], "as the log says", "measured") if name in given else None


def _taken(started: Started, stage: Stage) -> list[EngineTerm]:
    """What is taken off the budget."""
    ready = started.served.ready
    held = held_weights(ready, stage)
    parts = ", ".join(f"{name} {size / GIB:.2f}" for name, size in held.parts.items())
    terms = [spread("weights", held.bytes, held.sigma, f"GiB: {parts}")]
    terms[0] = replace(terms[0], provenance=ready.model.facts)
    terms.append(_activation(started, stage))
    terms.append(_non_torch(started, held.bytes))
    graphs = graph_estimate(started)
    return [*terms, graphs] if graphs.bytes and started.rules.graphs else terms


def _activation(started: Started, stage: Stage) -> EngineTerm:
    ready, rules = started.served.ready, started.rules
    row_bytes = 4.0 if started.second_runner else rules.row_bytes
    rows = started.rows if stage.last else 0
    rest = V0_REST if rules.engine == "V0" else FORWARD_REST
    profiled = Profiled(started.tokens, rows, row_bytes, started.width, rules.shared_workspace, rest)
    peak = profile_peak(ready, profiled) + sparse_bytes(ready, started.longest)
    spec = ready.model.spec
    kinds = ["dense", *(["experts"] if spec.experts else []), *(["pictures"] if spec.towers else [])]
    sigma = sum(PEAK_SIGMA[kind] for kind in kinds) * GIB + PEAK_SHARE * peak
    sigma += LARGE_STEP_SHARE * peak * (started.tokens > CHUNK) + UNSURE * GIB * (
        started.second_runner and rules.dense_runner
    )
    rule = f"profile of {started.tokens:,} tokens and {started.rows:,} requests' logits over {spec.vocab:,} entries"
    return spread("activation", peak, sigma, rule)


def _non_torch(started: Started, weights: float) -> EngineTerm:
    """Memory beside PyTorch's: kernels, and NCCL where devices share layers; 0.2.5 to 0.6.3 count what is reserved too."""
    deployment, rules = started.served.ready.deployment, started.rules
    era = "V0" if rules.engine == "V0" else "sorting" if rules.row_bytes > SORTING else "V1"
    era = "ROCm" if deployment.accelerator.vendor == "amd" else era
    how = joined(deployment.accelerator, deployment.shards.tp, deployment.shards.pp)
    mean, sigma = NON_TORCH.get((era, how)) or NON_TORCH[era, "workspaces"]
    kept = rules.reserved * weights * (deployment.shards.tp > 1)
    beside = f", and {kept / GIB:.1f} GiB that the allocator reserves while it loads" if kept else ""
    deviation = hypot(sigma * GIB, RESERVED_SIGMA * weights * (kept > 0))
    return spread("non_torch", mean * GIB + kept, deviation, f"kernels and NCCL, as logged on {WORDS[how]}{beside}")


def joined(accelerator: Accelerator, tp: int, pp: int) -> str:
    """How devices share a model: one alone, stages, with workspaces of all-reduces or without."""
    if tp > 1:
        major = int(float(accelerator.compute_capability or 0))
        return REDUCING.get(major, "plain")
    return "stages" if pp > 1 else "one"


def graph_estimate(started: Started) -> EngineTerm:
    """The estimate of CUDA graphs: 0.00027 GiB a layer and captured size; none when eager, on ROCm, or by the second runner. [B]

    Source: vLLM 0.24 on an H200, 51 sizes: 0.39 GiB of 28 layers, 0.64 of 48.
    """
    served = started.served
    vendor = served.ready.deployment.accelerator.vendor
    none = served.flags.enforce_eager or vendor != "nvidia" or started.second_runner
    spec = served.ready.model.spec
    layers = len(spec.active_layers) * (not none)
    sizes = captured_sizes(started.rows, 1 + (served.flags.num_speculative_tokens or 0))
    mean, sigma = (part * layers * sizes * GIB for part in GRAPH_LAYER)
    rule = f"estimate of CUDA graphs of {sizes} batch sizes over {layers} layers"
    if not layers or not (spec.towers or spec.drafting or any(part.fixed for part in spec.kept)):
        return spread("cuda_graphs", mean, sigma, rule)
    least = GRAPHS_LEAST * GIB  # towers, drafts and states have graphs of their own
    return spread("cuda_graphs", max(mean, least), max(sigma, least / 2), rule)


def captured_sizes(rows: int, each: int = 1) -> int:
    """Batch sizes whose graphs are captured: 1, 2, 4, every 8th to 256 and every 16th to min(2 S, 512), of drafted rounds.

    Source: vLLM, config/vllm.py, cudagraph_capture_sizes.

    >>> captured_sizes(1024), captured_sizes(2)
    (51, 3)
    """
    most = min(2 * rows * each, MOST_CAPTURED)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)]
    return len([size for size in sizes if size <= most and size % each == 0])
