"""SGLang: a static share of the memory for weights and pools; activations and CUDA graphs must fit in the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.engines.leftover import (
    assumed,
    context_term,
    nothing_left,
    portion,
    rules_of,
    too_long,
    visible_term,
    weights_term,
)
from roofcast.calculators.engines.sglang_defaults import RULES, Rules, Start, static_share
from roofcast.calculators.engines.sglang_pools import Cells, Pools, Split, fill, hold, read_cells
from roofcast.calculators.engines.terms import EngineMemory, EngineTerm, exact, together
from roofcast.calculators.engines.vllm_versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.engines.flags import Flags
    from roofcast.calculators.engines.leftover import Interval
    from roofcast.calculators.engines.terms import Served

NEWEST: Final = "0.5.10"
WINDOW_RATIO, STATE_RATIO = 0.8, 0.9  # swa_full_tokens_ratio, mamba_full_memory_ratio
SPARSE_PAGE: Final = 64  # tokens of a page of MLA beside a sparse index
BLACKWELL, BLACKWELL_PAGE = (10, 0), 64  # its kernels have pages of 64, in the newest versions
UNSTATED: Final = 2048  # tokens of the longest request of a config that does not say [token]
DRAFTING_REQUESTS: Final = 48  # max_running_requests where tokens are drafted


@dataclass(frozen=True, slots=True)
class _Setup:
    """A server about to start: what it serves, its rules, and how attention is shared."""

    served: Served
    rules: Rules
    newest: bool
    tp: int
    replicas: int
    split: Split
    share: Interval
    cells: Cells


def answer(served: Served, given: Mapping[str, float]) -> EngineMemory:
    """rest = free - weights - (1 - f) free, free = visible - context; tokens = rest // cell, in whole pages.

    f is mem_fraction_static. Recurrent states take R / (1 + R) of the rest first; window layers have r tokens for one
    of the full pool.

    Source: sgl-project/sglang, python/sglang/srt/mem_cache/kv_cache_configurator.py and pool_configurator.py.

    Args:
        served: the model on its machine, and the engine's flags.
        given: bytes that a log states and that replace the prediction: visible, free (before weights are loaded),
            weights, kv (keys and values of all pools). [B]
    """
    setup = _setup(served)
    terms = _terms(setup, given)
    rest = _rest(terms, given)
    low, pools, high = (_pools(setup, size, stated="kv" in given) for size in rest)
    kv = EngineTerm("kv", pools.kv_bytes, low.kv_bytes, high.kv_bytes, _kv_rule(pools), _provenance(terms, given))
    asked = served.flags.max_model_len
    longest = asked or served.ready.model.spec.max_context or UNSTATED
    reason = _reason(pools, terms, rest[1], asked)
    state = () if not setup.cells.state else (_state_term(setup, low, pools, high),)
    return EngineMemory(
        engine="sglang",
        version=served.flags.engine_version or NEWEST,
        visible=terms[0].bytes,
        budget=terms[2].bytes - terms[3].bytes,
        terms=(*terms, *state, kv),
        kv=(0.0, 0.0, 0.0) if reason else (kv.bytes, kv.low, kv.high),
        block_tokens=setup.split.page,
        groups=setup.cells.groups,
        blocks=0 if reason else pools.tokens // setup.split.page,
        tokens=(0, 0, 0) if reason else (pools.tokens, low.tokens, high.tokens),
        concurrency=None,
        longest=min(longest, pools.tokens or longest),
        room=fill(setup.cells, 0.0, setup.split, None) if reason else pools,
        said=_said(setup, pools, longest),
        reason=reason,
        token_bytes=setup.cells.full,
    )


def _setup(served: Served) -> _Setup:
    """What the flags and the version decide."""
    flags, ready = served.flags, served.ready
    version = parse_version(flags.engine_version) if flags.engine_version else None
    rules = rules_of(RULES, version)
    tp, replicas = _attention(served)
    drafted = flags.num_speculative_tokens or 0
    split = Split(
        window=WINDOW_RATIO if flags.swa_full_tokens_ratio is None else flags.swa_full_tokens_ratio,
        state=STATE_RATIO if flags.mamba_full_memory_ratio is None else flags.mamba_full_memory_ratio,
        page=flags.page_size or _page(served, newest=rules is RULES[-1][1]),
        slots=rules.slots,
        drafted=drafted,
    )
    share = static_share(_start(served, replicas), version)
    if flags.mem_fraction_static is not None:
        share = (portion("--mem-fraction-static", flags.mem_fraction_static, 0.0),) * 3
    cells = read_cells(ready, tp, windows=rules.windows, drafting=bool(drafted))
    return _Setup(served, rules, rules is RULES[-1][1], tp, replicas, split, share, cells)


def _start(served: Served, replicas: int) -> Start:
    """What decides the defaults that depend on the device."""
    ready, shards, flags = served.ready, served.ready.deployment.shards, served.flags
    beside = _beside(served) and replicas > 1
    return Start(
        memory=float(ready.deployment.accelerator.driver_memory or ready.capacity),
        devices=shards.tp * shards.pp * (replicas if beside else 1),
        replicas=replicas,
        chunk=flags.chunked_prefill_size,
        drafts=bool(flags.num_speculative_tokens),
        latent=_latent(served),
        tower=sum(tower.parameters for tower in ready.model.spec.towers if "vision" in tower.name),
    )


def _attention(served: Served) -> tuple[int, int]:
    """Devices that share a head's cache, and replicas of attention among the model's devices.

    SGLang counts --dp within --tp, so that tp / dp devices share attention; roofcast counts it beside --tp, as
    --tp T --dp D --ep (T D), where T do.
    """
    shards = served.ready.deployment.shards
    if not served.flags.enable_dp_attention:
        return shards.tp, 1
    return (shards.tp if _beside(served) else shards.tp // shards.dp), shards.dp


def _beside(served: Served) -> bool:
    """Whether replicas of attention are counted beside --tp, and not within it."""
    shards = served.ready.deployment.shards
    return shards.ep == shards.tp * shards.dp > 1 or shards.tp % shards.dp != 0


def _latent(served: Served) -> bool:
    """Whether attention is MLA."""
    layers = served.ready.model.spec.layer_counts
    return any(hasattr(mixer, "kv_lora_rank") for layer in layers for mixer in layer.mixers)


def _page(served: Served, *, newest: bool) -> int:
    """Tokens of a page where no flag tells: 64 of kernels that ask for it, else 1."""
    layers = served.ready.model.spec.layer_counts
    indexed = any(getattr(mixer, "index", None) for layer in layers for mixer in layer.mixers)
    text = served.ready.deployment.accelerator.compute_capability or "0"
    capability = tuple(int(part) for part in str(text).split(".") if part.isdigit())
    if indexed:
        return SPARSE_PAGE
    return BLACKWELL_PAGE if newest and capability[:1] >= BLACKWELL[:1] else 1


def _terms(setup: _Setup, given: Mapping[str, float]) -> tuple[EngineTerm, ...]:
    """visible, context, free before weights, what is kept free, and weights. [B]"""
    visible, context = visible_term(setup.served.ready, given), context_term(setup.served.ready)
    if "free" in given:
        free = exact("free", given["free"], "free before weights are loaded, as the log states it", "measured")
        context = exact("context", visible.bytes - free.bytes, "visible - free", "measured")
    else:
        less, more = together((visible, context))
        size = visible.bytes - context.bytes
        free = assumed("free", (size - more, size, size + less), "visible - context, before weights are loaded")
    low, share, high = setup.share
    kept = tuple((1 - one) * free.bytes for one in (high, share, low))
    rule = f"(1 - {share:.3f}) x free, for activations and CUDA graphs"
    reserve = (
        exact("reserve", kept[1], rule, "config")
        if low == high
        else assumed("reserve", (kept[0], kept[1], kept[2]), rule)
    )
    return visible, context, free, reserve, weights_term(setup.served.ready, given)


def _rest(terms: tuple[EngineTerm, ...], given: Mapping[str, float]) -> Interval:
    """What all pools share, free - reserve - weights; or the keys and values that a log states. [B]"""
    if "kv" in given:
        return given["kv"], given["kv"], given["kv"]
    _, _, free, reserve, weights = terms
    less, more = together((free,))
    over, under = together((reserve, weights))
    rest = free.bytes - reserve.bytes - weights.bytes
    return rest - hypot(less, under), rest, rest + hypot(more, over)


def _provenance(terms: tuple[EngineTerm, ...], given: Mapping[str, float]) -> str:
    """Where the cache's size is from: measured, or the weakest of what it follows from."""
    if "kv" in given:
        return "measured"
    every = {term.provenance for term in terms}
    return next(one for one in ("assumed", "fitted", "config", "header", "datasheet", "measured") if one in every)


def _pools(setup: _Setup, size: float, *, stated: bool) -> Pools:
    """The pools of a rest, or of keys and values that are stated, and how many requests may then run."""
    cells, split, asked = setup.cells, setup.split, _asked(setup)
    if stated:
        slots = int(size * split.state // cells.state) if cells.state else None
        pools = hold(cells, size, split, slots)
    else:
        pools = fill(cells, size, split, asked)
    running = [_running(setup, pools.tokens, asked), None if pools.slots is None else pools.slots // split.slots]
    return replace(pools, running=min((most for most in running if most is not None), default=None))


def _asked(setup: _Setup) -> int | None:
    """Requests at once that each replica was asked for: --max-running-requests, 48 where tokens are drafted."""
    flags = setup.served.flags
    asked = flags.max_running_requests or (DRAFTING_REQUESTS if flags.num_speculative_tokens else None)
    return None if asked is None else max(1, asked // setup.served.ready.deployment.shards.dp)


def _running(setup: _Setup, tokens: int, asked: int | None) -> int | None:
    """max_running_requests: as asked, else 512 tokens / longest within 2,048 and 4,096; half the tokens at most."""
    if not setup.cells.full:
        return asked
    longest = setup.served.flags.max_model_len or setup.served.ready.model.spec.max_context or UNSTATED
    most = min(4096, max(2048, int(tokens / longest * 512))) if asked is None else asked
    return min(most, tokens // 2)


def _kv_rule(pools: Pools) -> str:
    """How tokens follow from what is left."""
    windows = f" and {pools.window_tokens:,} of windows x {pools.cells.window:,.0f} B" if pools.window_tokens else ""
    return f"{pools.tokens:,} tokens x {pools.cells.full:,.0f} B{windows}"


def _state_term(setup: _Setup, low: Pools, pools: Pools, high: Pools) -> EngineTerm:
    """Slots of recurrent states. [B]"""
    ratio = setup.split.state
    share = f"{ratio:g} / (1 + {ratio:g})" if pools.cells.full else "all"
    rule = f"{share} of the rest: {pools.slots:,} slots x {pools.cells.state:,.0f} B"
    return assumed("states", (low.state_bytes, pools.state_bytes, high.state_bytes), rule)


def _reason(pools: Pools, terms: tuple[EngineTerm, ...], rest: float, asked: int | None) -> str | None:
    """Why the server does not serve what is asked; None where it does."""
    if rest <= 0 or not (pools.tokens or pools.slots) or (pools.slots is not None and pools.slots < pools.per_request):
        visible, context, _, reserve, weights = terms
        taken = (context, weights, reserve)
        text = nothing_left(taken, visible.bytes, sum(term.bytes for term in taken))
        return f"{text}; so would a higher --mem-fraction-static" if rest <= 0 else text
    if asked is None or not pools.cells.full or asked <= pools.tokens:
        return None
    return too_long(asked, pools.sequence_bytes(asked), pools.kv_bytes + pools.state_bytes, pools.tokens)


def _said(setup: _Setup, pools: Pools, longest: int) -> Remarks:
    """What is assumed, and what a reader should know."""
    flags, cells, split = setup.served.flags, setup.cells, setup.split
    share = f"--mem-fraction-static {setup.share[1]:.3f}, {setup.rules.what}, as this version's default"
    return remarks(_defaults(flags, cells, split, share), _warnings(setup, pools, longest), [
        "the log's GB of K and V are GiB; tokens and requests are of one replica of attention",
        f"at most {pools.running:,} requests run at once (max_running_requests)" if pools.running else None,
    ])  # fmt: skip


def _defaults(flags: Flags, cells: Cells, split: Split, share: str) -> list[str | None]:
    """Flags that were not given, and what was taken for them."""
    return [
        None if flags.engine_version else f"SGLang {NEWEST}: the newest whose rules are known",
        None if flags.mem_fraction_static else share,
        None if flags.page_size else f"--page-size {split.page}, the default of its kernels",
        f"--swa-full-tokens-ratio {split.window:g}, its default"
        if cells.window and flags.swa_full_tokens_ratio is None
        else None,
        f"--mamba-full-memory-ratio {split.state:g}, its default, and {split.slots} slots of states a request, states in fp32"
        if cells.state and flags.mamba_full_memory_ratio is None
        else None,
        "CUDA context and NCCL are assumed",
    ]


def _warnings(setup: _Setup, pools: Pools, longest: int) -> list[str | None]:
    """What could mislead."""
    layers = setup.served.ready.model.spec.layer_counts
    compressed = any(part.per > 1 for layer in layers for part in layer.state)
    within = setup.replicas > 1 and setup.tp < setup.served.ready.deployment.shards.tp
    devices = setup.served.ready.deployment.shards.tp
    return [
        f"requests are cut off at {pools.tokens:,} tokens, the pool, and not at {longest:,}"
        if 0 < pools.tokens < longest
        else None,
        "compressed attention has pools of its own in SGLang, which are not modelled: tokens are by what it keeps"
        if compressed
        else None,
        f"weights are as --tp {devices} splits them, but each replica holds its attention whole: --tp {setup.tp} --dp "
        f"{setup.replicas} --ep {devices} counts them so"
        if within
        else None,
    ]
