"""vLLM: from the device's memory to blocks, tokens and concurrency, as its start-up log prints them."""

from __future__ import annotations

from dataclasses import replace
from math import floor
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.engines.kv_groups import Layout, PagedRoom
from roofcast.calculators.engines.terms import GIB, EngineMemory, EngineTerm, Served
from roofcast.calculators.engines.vllm_layout import LeastRoom, laid_out, layout_said, printed_tokens, stage_layout
from roofcast.calculators.engines.vllm_start import Started, start
from roofcast.calculators.engines.vllm_terms import joined, stage_terms
from roofcast.calculators.engines.vllm_versions import rules_of
from roofcast.calculators.engines.vllm_weights import stages_of

if TYPE_CHECKING:
    from collections.abc import Mapping

# What a GPU holds before the profile, which the cache does not pay: CUDA's context, and NCCL's buffers. [B]
CONTEXT: Final = {
    "one": 0.51 * GIB,
    "stages": 1.48 * GIB,
    "plain": 0.7 * GIB,
    "some": 1.0 * GIB,
    "workspaces": 1.53 * GIB,
}


BESIDE: Final = ("activation", "non_torch", "cuda_graphs")
UNKNOWN_LAYOUT: Final = "vLLM's layout of compressed attention is not modelled: sequences are by what they keep at least, blocks and tokens null"


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
    terms, layout, blocks = _least(started, given)
    kv = terms[-1]
    made = EngineMemory(
        engine="vllm",
        version=version,
        visible=terms[0].bytes,
        budget=terms[1].bytes,
        terms=terms,
        kv=(kv.bytes, kv.low, kv.high),
        block_tokens=None,
        groups=(),
        blocks=None,
        tokens=None,
        concurrency=None,
        longest=started.longest,
        room=LeastRoom(served.ready, kv.bytes),
        said=_said(started, unknown),
        reason=_refusal(started, terms),
        most=started.rows,
    )
    if not laid_out(served.ready.model.spec):
        return replace(made, said=made.said + remarks([UNKNOWN_LAYOUT]))
    return _laid_out(made, started, layout, _blocks(layout, kv, blocks, given))


def _laid_out(made: EngineMemory, started: Started, layout: Layout, blocks: tuple[int, int, int]) -> EngineMemory:
    """The answer with its cache in blocks."""
    tokens = [printed_tokens(started, layout, n) for n in blocks]
    return replace(
        made,
        block_tokens=layout.block_tokens,
        groups=layout.shown(started.longest),
        blocks=blocks[0],
        tokens=(tokens[0], min(tokens), max(tokens)),
        concurrency=layout.concurrency(blocks[0], started.longest),
        room=PagedRoom(layout, blocks[0]),
        said=made.said + layout_said(layout),
        reason=made.reason or _too_long(started, made.kv[0], layout, blocks[0]),
        token_bytes=layout.token_bytes,
    )


def _least(started: Started, given: Mapping[str, float]) -> tuple[tuple[EngineTerm, ...], Layout, int]:
    """Terms, layout and blocks of the stage that holds the fewest blocks."""
    spec, pp = started.served.ready.model.spec, started.served.ready.deployment.shards.pp
    drafted = len(spec.active_layers) - len(spec.layers)
    found = []
    at = 0
    for stage in stages_of(len(spec.layers), pp):
        whole = replace(stage, layers=stage.layers + drafted * stage.last)
        terms = stage_terms(started, whole, given)
        layout = stage_layout(started, at, whole)
        found.append((terms, layout, layout.blocks(terms[-1].bytes)))
        at += stage.layers
    return min(found, key=lambda each: each[2])


def _blocks(layout: Layout, kv: EngineTerm, least: int, given: Mapping[str, float]) -> tuple[int, int, int]:
    """Blocks, and their interval."""
    if "blocks" in given:
        return (int(given["blocks"]),) * 3
    return least, layout.blocks(kv.low), layout.blocks(kv.high)


def _refusal(started: Started, terms: tuple[EngineTerm, ...]) -> str | None:
    """Why nothing is left for a cache, or the server does not even try; None where there is a cache."""
    by_name = {term.name: term for term in terms}
    visible, budget, weights = by_name["visible"], by_name["budget"].bytes / GIB, by_name["weights"].bytes / GIB
    deployment = started.served.ready.deployment
    free = visible.high - CONTEXT[joined(deployment.accelerator, deployment.shards.tp, deployment.shards.pp)]
    if by_name["budget"].bytes > free and started.served.flags.kv_cache_memory_bytes is None:
        return (
            f"free memory at start, {free / GIB:.1f} GiB, is less than the budget, {budget:.1f} GiB; "
            f"--gpu-memory-utilization {floor(100 * free / max(visible.bytes, 1.0)) / 100:.2f} would do"
        )
    taken = sum(by_name[name].bytes for name in ("weights", *BESIDE, "kv") if name in by_name)
    if started.served.flags.kv_cache_memory_bytes is not None and taken > free:
        return (
            f"the cache asked for, weights and the rest take {taken / GIB:.1f} GiB, {free / GIB:.1f} are free at start"
        )
    if by_name["kv"].bytes > 0:
        return None
    if weights > budget:
        return f"the weights alone take {weights:.1f} GiB, the budget is {budget:.1f} GiB"
    beside = sum(by_name[name].bytes for name in BESIDE if name in by_name) / GIB
    return (
        f"the weights take {weights:.1f} GiB and activations and the rest {beside:.1f}, the budget is {budget:.1f} GiB: "
        "nothing is left for the cache"
    )


def _too_long(started: Started, kv: float, layout: Layout, blocks: int) -> str | None:
    """Why one request of the longest length is too long; None where it fits."""
    need = layout.request_blocks(started.longest)
    if need <= blocks:
        return None
    fits = layout.longest_request(blocks, started.longest)
    return (
        f"one request of {started.longest:,} tokens needs {need * layout.block_bytes / GIB:.2f} GiB of cache, "
        f"{kv / GIB:.2f} are there; the longest that fits has {fits:,} tokens"
    )


def _said(started: Started, unknown: str | None) -> Remarks:
    """What was taken for granted of the version and the defaults."""
    flags, pp = started.served.flags, started.served.ready.deployment.shards.pp
    unbound = flags.max_model_len is None and started.served.ready.model.spec.max_context is None
    length = f"its config bounds no request; {started.longest:,} tokens are taken, --max-model-len sets it"
    defaults = [
        f"--{name} {value:,}, the server's default on this device"
        for name, value, asked in (
            ("max-num-batched-tokens", started.tokens, flags.max_num_batched_tokens),
            ("max-num-seqs", started.rows, flags.max_num_seqs),
        )
        if asked is None
    ]
    stages = f"with {pp} stages the cache is that of the fullest; the log shows the first one's" if pp > 1 else None
    return remarks([unknown, length if unbound else None, *defaults], notes=[stages])
