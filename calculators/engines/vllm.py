"""vLLM: from the device's memory to blocks, tokens and concurrency, as its start-up log prints them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.engines.activations import FORWARD_REST, Profiled, profile_peak, sparse_bytes
from roofcast.calculators.engines.device import visible_term
from roofcast.calculators.engines.kv_groups import Layout, PagedRoom, Paging, arrange
from roofcast.calculators.engines.kv_specs import MLA, STATE, CacheFormats, layer_keeps
from roofcast.calculators.engines.terms import GIB, EngineMemory, EngineTerm, Served, exact, spread, together
from roofcast.calculators.engines.vllm_versions import VllmRules, rules_of
from roofcast.calculators.engines.vllm_weights import Stage, held_weights, stages_of
from roofcast.calculators.errors import UsageError
from roofcast.modelspec.formats import FORMATS, TORCH_DTYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.hwdb.accelerator import Accelerator

# A step's tokens and requests where no flag says them, by the device. Source: vLLM, engine/arg_utils.py: 70 GiB or more
# of memory, but no A100, is a large one; the server's defaults, not those of the offline class.
LARGE: Final = 70 * GIB
LARGE_STEP: Final = (8192, 1024)
SMALL_STEP: Final = (2048, 256)
V0_STEP: Final = (2048, 256)
V0_UNCHUNKED: Final = 32768  # longest request that V0 profiles whole [token]
NO_CONTEXT: Final = 2048

# What a GPU holds before the profile, which the cache does not pay: CUDA's context, and NCCL's buffers. [B]
CONTEXT: Final = {"one": 0.51 * GIB, "stages": 1.48 * GIB, "plain": 0.7 * GIB, "workspaces": 1.53 * GIB}
MLA_ALIGN: Final = 64  # tokens that a hybrid's block is a multiple of beside MLA [token]
SPARSE_BLOCK: Final = 64  # tokens of a block under an index [token]
COMPRESSED_BLOCK: Final = 256

# Memory beside PyTorch's that a profile adds, mean and standard deviation, by engine and by whether devices share layers:
# from compute capability 9.0 on, all-reduces have workspaces of their own. Source: start-up logs named in vllm_versions. [GiB]
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
}
MOST_CAPTURED: Final = 512  # batch sizes of graphs
REDUCING: Final = 9.0  # compute capability
SORTING: Final = 20.0  # bytes a logit takes where sampling sorts
GRAPH_LAYER: Final = (2.7e-4, 1.2e-4)  # estimate of CUDA graphs a layer and captured size, mean and deviation [GiB]
RESERVED_SIGMA: Final = 0.12  # standard deviation of what 0.2.5 to 0.6.3 reserve, as a share of the weights [-]
PEAK_SIGMA: Final = {"dense": 0.02, "experts": 0.03, "pictures": 0.25}  # [GiB]
V0_REST: Final = 0.01 * GIB  # of an eager forward pass [B]
PEAK_SHARE: Final = 0.01  # standard deviation of a peak as a share of it [-]


@dataclass(frozen=True, slots=True)
class Started:
    """vLLM as it is started: the question with every default filled in.

    Args:
        served: the question.
        rules: of the version.
        longest: tokens of the longest request. [token]
        tokens, rows: of the profiled step.
        width: bytes of an activation. [B]
    """

    served: Served
    rules: VllmRules
    longest: int
    tokens: int
    rows: int
    width: float

    @property
    def second_runner(self) -> bool:
        """Whether the second model runner serves the model."""
        return self.served.ready.model.spec.model_type in self.rules.second_runner


def answer(served: Served, given: Mapping[str, float]) -> EngineMemory:
    """What vLLM makes of a device's memory, term by term.

    kv = visible x utilization - weights - activation - non_torch [- cuda_graphs]; blocks = kv // page // layers of a
    group; with stages the fewest of all counts.

    Args:
        served: model, machine and flags.
        given: bytes that a log states, by the term's name; they replace what is predicted.

    Raises:
        UsageError: flags that vLLM refuses.

    Source: vLLM, v1/worker/gpu_worker.py, determine_available_memory; v1/core/kv_cache_utils.py.
    """
    rules, version, unknown = rules_of(served.flags.engine_version)
    started = start(served, rules)
    terms, layout, blocks, stage = _least(started, given)
    kv = terms[-1]
    counted = _blocks(layout, kv, blocks, given)
    tokens = tuple(printed_tokens(started, layout, n) for n in counted)
    concurrency = layout.concurrency(counted[0], started.longest)
    said = _said(started, unknown, stage) + _layout_said(layout)
    return EngineMemory(
        engine="vllm",
        version=version,
        visible=terms[0].bytes,
        budget=terms[1].bytes,
        terms=terms,
        kv=(kv.bytes, kv.low, kv.high),
        block_tokens=layout.block_tokens,
        groups=layout.shown(started.longest),
        blocks=counted[0],
        tokens=(tokens[0], min(tokens), max(tokens)),
        concurrency=concurrency,
        longest=started.longest,
        room=PagedRoom(layout, counted[0]),
        said=said,
        reason=_reason(started, terms, layout, counted[0]),
    )


def start(served: Served, rules: VllmRules) -> Started:
    """Fills in what the flags leave to vLLM.

    Raises:
        UsageError: shares and sizes that vLLM refuses.
    """
    flags, spec = served.flags, served.ready.model.spec
    longest = flags.max_model_len or spec.max_context or NO_CONTEXT
    tokens, rows = _step(served, rules, longest)
    tokens, rows = flags.max_num_batched_tokens or tokens, flags.max_num_seqs or rows
    if tokens < rows:
        raise UsageError(
            f"--max-num-batched-tokens {tokens:,} is less than --max-num-seqs {rows:,}; it must be at least that"
        )
    dtype = FORMATS[flags.dtype or served.ready.formats.activations]
    return Started(served, rules, longest, min(tokens, rows * longest), rows, dtype.bytes_per_element)


def _step(served: Served, rules: VllmRules, longest: int) -> tuple[int, int]:
    """Tokens and requests of a step by default."""
    if rules.engine == "V0":
        tokens, rows = V0_STEP
        return (max(longest, tokens) if longest <= V0_UNCHUNKED else tokens), rows
    accelerator = served.ready.deployment.accelerator
    large = visible_term(accelerator).bytes >= LARGE and accelerator.architecture != "Ampere"
    return LARGE_STEP if large else SMALL_STEP


def _least(
    started: Started, given: Mapping[str, float]
) -> tuple[tuple[EngineTerm, ...], Layout, int, Stage]:
    """Terms, layout and blocks of the stage that holds the fewest blocks."""
    spec, pp = started.served.ready.model.spec, started.served.ready.deployment.shards.pp
    drafted = len(spec.active_layers) - len(spec.layers)
    found = []
    at = 0
    for stage in stages_of(len(spec.layers), pp):
        whole = replace(stage, layers=stage.layers + drafted * stage.last)
        terms = stage_terms(started, whole, given)
        layout = stage_layout(started, at, whole)
        found.append((terms, layout, layout.blocks(terms[-1].bytes), whole))
        at += stage.layers
    return min(found, key=lambda each: each[2])


def stage_layout(started: Started, first: int, stage: Stage) -> Layout:
    """The cache of a stage's layers, laid out."""
    served, rules = started.served, started.rules
    flags, shards = served.flags, served.ready.deployment.shards
    formats = _formats(started)
    layers = served.ready.model.spec.active_layers[first : first + stage.layers]
    kept = layer_keeps(layers, formats)
    kinds = {one.kind for one in kept}
    block = flags.block_size or _block(served)
    mode = flags.mamba_cache_mode or rules.state_mode
    drafted = (flags.num_speculative_tokens or 0) * rules.drafted_blocks
    paging = Paging(
        block=block,
        align=MLA_ALIGN if MLA in kinds and STATE in kinds else block,
        batched=started.tokens * rules.in_flight,
        context_parallel=flags.decode_context_parallel_size or 1,
        state_blocks={"none": 1 + drafted, "align": 2 + drafted, "all": None}[mode],
        hybrid=not flags.disable_hybrid_kv_cache_manager and rules.engine != "V0",
    )
    del shards
    return arrange(kept, paging)


def _block(served: Served) -> int:
    """Tokens of a block that kernels ask for: 64 under a sparse index, 256 of compressed attention, else 16. [token]"""
    spec = served.ready.model.spec
    mixers = [mixer for layer in spec.layer_counts for mixer in layer.mixers]
    if any(hasattr(mixer, "ratio") for mixer in mixers):
        return COMPRESSED_BLOCK
    latent = any(getattr(mixer, "kv_lora_rank", 0) and getattr(mixer, "index", None) for mixer in mixers)
    return SPARSE_BLOCK if latent else Paging().block


def _formats(started: Started) -> CacheFormats:
    """Formats of the cache and of states."""
    served = started.served
    flags, ready = served.flags, served.ready
    model = FORMATS[flags.dtype or ready.formats.activations]
    state = flags.mamba_ssm_cache_dtype or state_dtype(ready.model.config)
    return CacheFormats(
        kv=ready.deployment.kv,
        model=model,
        state=FORMATS[state] if state in FORMATS else None,
        tp=ready.deployment.shards.tp,
        drafted=flags.num_speculative_tokens or 0,
        head_scales=ready.deployment.kv.name == "int8",
    )


STATE_KEYS: Final = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")


def state_dtype(config: Mapping[str, object]) -> str | None:
    """Format of recurrent states that a config asks for, in itself or in its text model; None where it does not say.

    >>> state_dtype({"text_config": {"mamba_ssm_dtype": "float32"}})
    'fp32'
    """
    text = config.get("text_config")
    for block in (config, text if isinstance(text, dict) else {}):
        for key in STATE_KEYS:
            if block.get(key):
                return TORCH_DTYPES.get(str(block[key]))
    return None


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
    rule = f"profile of {started.tokens:,} tokens and {started.rows:,} requests' logits over {spec.vocab:,} entries"
    return spread("activation", peak, sigma, rule)


def _non_torch(started: Started, weights: float) -> EngineTerm:
    """Memory beside PyTorch's: kernels, and NCCL where devices share layers; 0.2.5 to 0.6.3 count what is reserved too."""
    deployment, rules = started.served.ready.deployment, started.rules
    era = "V0" if rules.engine == "V0" else "sorting" if rules.row_bytes > SORTING else "V1"
    how = _joined(deployment.accelerator, deployment.shards.tp, deployment.shards.pp)
    mean, sigma = NON_TORCH[era, how]
    words = {"one": "one device", "stages": "stages", "plain": "devices that share layers", "workspaces": "devices that share layers"}
    kept = rules.reserved * weights * (deployment.shards.tp > 1)
    beside = f", and {kept / GIB:.1f} GiB that the allocator reserves while it loads" if kept else ""
    deviation = hypot(sigma * GIB, RESERVED_SIGMA * weights * (kept > 0))
    return spread("non_torch", mean * GIB + kept, deviation, f"kernels and NCCL, as logged on {words[how]}{beside}")


def _joined(accelerator: Accelerator, tp: int, pp: int) -> str:
    """How devices share a model: one alone, stages, with workspaces of all-reduces or without."""
    if tp > 1:
        return "workspaces" if float(accelerator.compute_capability or 0) >= REDUCING else "plain"
    return "stages" if pp > 1 else "one"


def graph_estimate(started: Started) -> EngineTerm:
    """The estimate of CUDA graphs: 0.00027 GiB a layer and captured size; none when eager, on ROCm, or by the second runner. [B]

    Source: vLLM 0.24 on an H200, 51 sizes: 0.39 GiB of 28 layers, 0.64 of 48.
    """
    served = started.served
    vendor = served.ready.deployment.accelerator.vendor
    none = served.flags.enforce_eager or vendor != "nvidia" or started.second_runner
    layers = len(served.ready.model.spec.active_layers) * (not none)
    sizes = captured_sizes(started.rows, 1 + (served.flags.num_speculative_tokens or 0))
    mean, sigma = (part * layers * sizes * GIB for part in GRAPH_LAYER)
    return spread("cuda_graphs", mean, sigma, f"estimate of CUDA graphs of {sizes} batch sizes over {layers} layers")


def captured_sizes(rows: int, each: int = 1) -> int:
    """Batch sizes whose graphs are captured: 1, 2, 4, every 8th to 256 and every 16th to min(2 S, 512), of drafted rounds.

    Source: vLLM, config/vllm.py, cudagraph_capture_sizes.

    >>> captured_sizes(1024), captured_sizes(2)
    (51, 3)
    """
    most = min(2 * rows * each, MOST_CAPTURED)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)]
    return len([size for size in sizes if size <= most and size % each == 0])


def _blocks(layout: Layout, kv: EngineTerm, least: int, given: Mapping[str, float]) -> tuple[int, int, int]:
    """Blocks, and their interval."""
    if "blocks" in given:
        return (int(given["blocks"]),) * 3
    return least, layout.blocks(kv.low), layout.blocks(kv.high)


def printed_tokens(started: Started, layout: Layout, blocks: int) -> int:
    """The line `GPU KV cache size`: blocks // groups x the smallest block; newer, int(concurrency x longest). [token]

    Source: vLLM, v1/core/kv_cache_utils.py; vllm-project/vllm pull request 43308.
    """
    if started.rules.counts_requests:
        return int(layout.concurrency(blocks, started.longest) * started.longest)
    return blocks // layout.groups * layout.block_tokens * layout.paging.context_parallel


def _reason(started: Started, terms: tuple[EngineTerm, ...], layout: Layout, blocks: int) -> str | None:
    """Why the server does not start; None where it does."""
    by_name = {term.name: term for term in terms}
    shards = started.served.ready.deployment.shards
    accelerator = started.served.ready.deployment.accelerator
    free = by_name["visible"].high - CONTEXT[_joined(accelerator, shards.tp, shards.pp)]
    if by_name["budget"].bytes > free and started.served.flags.kv_cache_memory_bytes is None:
        most = free / by_name["visible"].bytes
        return (
            f"free memory at start, {free / GIB:.1f} GiB, is less than the budget, {by_name['budget'].bytes / GIB:.1f} GiB; "
            f"--gpu-memory-utilization {most - 0.005:.2f} would do"
        )
    if by_name["kv"].bytes <= 0:
        weights = by_name["weights"].bytes / GIB
        alone = "the weights alone take" if by_name["weights"].bytes > by_name["budget"].bytes else "the weights take"
        return f"{alone} {weights:.1f} GiB, the budget is {by_name['budget'].bytes / GIB:.1f} GiB: nothing is left for the cache"
    need = layout.request_blocks(started.longest)
    if need > blocks:
        fits = layout.longest_request(blocks, started.longest)
        return (
            f"one request of {started.longest:,} tokens needs {need * layout.block_bytes / GIB:.2f} GiB of cache, "
            f"{by_name['kv'].bytes / GIB:.2f} are there; the longest that fits has {fits:,} tokens"
        )
    return None


def _said(started: Started, unknown: str | None, stage: Stage) -> Remarks:
    """What was taken for granted of the version and the defaults."""
    flags, pp = started.served.flags, started.served.ready.deployment.shards.pp
    defaults = [
        f"--{name} {value:,}, the server's default on this device"
        for name, value, asked in (
            ("max-num-batched-tokens", started.tokens, flags.max_num_batched_tokens),
            ("max-num-seqs", started.rows, flags.max_num_seqs),
        )
        if asked is None
    ]
    stages = f"with {pp} stages the cache is that of the fullest; the log shows the first one's" if pp > 1 else None
    del stage
    return remarks([unknown, *defaults], notes=[stages])


def _layout_said(layout: Layout) -> Remarks:
    padding = sum(one.groups * layout.size - one.layers for one in layout.sharing) if len(layout.sharing) > 1 else 0
    share = padding / (layout.groups * layout.size)
    text = f"{padding} of {layout.groups * layout.size} layer slots of the cache are padding ({share:.0%})"
    compressed = any(one.keeps.per > 1 for one in layout.sharing)
    own = "compressed attention has a layout of its own in vLLM, which is taken as pages of its parts, unpadded"
    return remarks([own if compressed else None], notes=[text if padding else None])

