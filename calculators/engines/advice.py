"""What to change where a server does not start or holds too little: flags of the engine, each tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import prepare
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.serving import check_capability, serve
from roofcast.calculators.engines.terms import Advice
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.latent import LatentAttention

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from roofcast.calculators.engines.terms import EngineMemory, Served
    from roofcast.modelspec.sharding import Shards

MOST_UTILIZATION: Final = 0.95
MOST_TP: Final = 16
FEWER: Final = (256, 64)  # requests at once that are tried
SHORTER: Final = (8192, 2048)  # tokens of a step that are tried
NARROW: Final = "fp8"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a server is held against.

    Args:
        contexts: each must fit at least once. [token]
        context: whose requests are counted. [token]
        least: so many of them are wanted.
    """

    contexts: tuple[int, ...]
    context: int
    least: int = 1


def advice(served: Served, memory: EngineMemory, wanted: Wanted) -> list[Advice]:
    """Changes that give more than there is, best first: enough, on the fewest devices; none where all is as wanted.

    Each is one flag of the engine, tried: what it gives is computed as the answer itself is.
    """
    shorter = [_tried(change, wanted) for change in _shorter(served, memory)]
    found = [made for made in shorter if made]
    now = max(made.max_sequences for made in found) if found else _sequences(served, memory, wanted.context)
    tried = (_tried(change, wanted) for change in _changes(served, memory))
    found += [made for made in tried if made and made.max_sequences > now]
    return sorted(found, key=lambda each: _rank(each, wanted))


def _rank(made: Advice, wanted: Wanted) -> tuple[bool, bool, int, int]:
    """Best first: what starts, what is enough, the fewest devices, the most requests."""
    return not made.fits, made.max_sequences < wanted.least, made.gpus, -made.max_sequences


def _changes(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """Every change, and where one leaves the longest request too long, the same with a shorter one."""
    for change in CHANGES.get(served.ready.deployment.engine, ()):
        for flag, here, other in change(served, memory):
            yield flag, here, other
            made = _memory(other)
            if made is None or other.flags.max_model_len != served.flags.max_model_len:
                continue
            for more, beside, both in _shorter(other, made):
                yield f"{flag} {more}", f"{here} {beside}", both


def _memory(served: Served) -> EngineMemory | None:
    """The engine's answer; None where it refuses."""
    try:
        return engine_memory(served.ready.deployment.engine, served)
    except (UsageError, UnansweredError):
        return None


def _tried(change: Change, wanted: Wanted) -> Advice | None:
    """What a change gives; None where it cannot be made."""
    flag, here, served = change
    memory = _memory(served)
    if memory is None:
        return None
    contexts = {min(context, memory.longest) for context in (*wanted.contexts, wanted.context)}
    fits = memory.starts and all(_sequences(served, memory, context) >= 1 for context in contexts)
    counted = min(wanted.context, memory.longest)
    tokens = memory.tokens[0] if memory.tokens else None
    gpus = served.ready.deployment.shards.devices
    return Advice(flag, here, gpus, fits, tokens, _sequences(served, memory, counted), counted)


def _sequences(served: Served, memory: EngineMemory, context: int) -> int:
    if not memory.starts or context > memory.longest:
        return 0
    return memory.room.sequences(context) * served.ready.deployment.shards.dp


Change = tuple[str, str, "Served"]


def _shorter(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """The longest request that the cache holds."""
    layout, blocks = getattr(memory.room, "layout", None), memory.blocks or 0
    if layout is None or memory.starts:
        return
    fits = layout.longest_request(blocks, memory.longest)
    if fits:
        text = f"--max-model-len {fits}"
        yield text, text, replace(served, flags=replace(served.flags, max_model_len=fits))


def _narrow_cache(flag: str) -> Callable[[Served, EngineMemory], Iterator[Change]]:
    """A cache in FP8, where it is in 16 bits."""

    def change(served: Served, memory: EngineMemory) -> Iterator[Change]:
        del memory
        deployment = served.ready.deployment
        if deployment.kv.bits <= FORMATS[NARROW].bits:
            return
        other = replace(deployment, kv=FORMATS[NARROW])
        try:
            check_capability(served.ready.model, other, served.flags)
        except UsageError:
            return
        ready = replace(served.ready, deployment=other, formats=replace(served.ready.formats, kv=FORMATS[NARROW]))
        yield flag, f"--kv {NARROW}", replace(served, ready=ready)

    return change


def _utilization(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """More of the device's memory."""
    share = memory.budget / memory.visible
    if share < MOST_UTILIZATION - 0.005:
        text = f"--gpu-memory-utilization {MOST_UTILIZATION}"
        yield text, text, replace(served, flags=replace(served.flags, gpu_memory_utilization=MOST_UTILIZATION))


def _smaller_step(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """Fewer requests or tokens of a step: their logits and activations leave more for the cache."""
    del memory
    for rows in FEWER:
        if served.flags.max_num_seqs is None or rows < served.flags.max_num_seqs:
            text = f"--max-num-seqs {rows}"
            yield text, text, replace(served, flags=replace(served.flags, max_num_seqs=rows))
    for tokens in SHORTER:
        if served.flags.max_num_batched_tokens is None or tokens < served.flags.max_num_batched_tokens:
            rows = min(served.flags.max_num_seqs or FEWER[0], tokens)
            text = f"--max-num-batched-tokens {tokens} --max-num-seqs {rows}"
            flags = replace(served.flags, max_num_batched_tokens=tokens, max_num_seqs=rows)
            yield text, text, replace(served, flags=flags)


def _eager(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """No CUDA graphs, where their estimate is taken off the cache."""
    if any(term.name == "cuda_graphs" for term in memory.terms):
        yield "--enforce-eager", "--enforce-eager", replace(served, flags=replace(served.flags, enforce_eager=True))


def _wider(flag: str) -> Callable[[Served, EngineMemory], Iterator[Change]]:
    """More devices that share every layer."""

    def change(served: Served, memory: EngineMemory) -> Iterator[Change]:
        del memory
        shards = served.ready.deployment.shards
        tp = shards.tp * 2
        while tp <= MOST_TP:
            other = _cut(served, replace(shards, tp=tp))
            if other is not None:
                yield f"{flag} {tp}", f"--tp {tp}", other
            tp *= 2

    return change


def _replicas(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """Replicas in the place of devices that share layers: they hold a latent once each, and not all the same."""
    del memory
    shards = served.ready.deployment.shards
    mixers = (mixer for layer in served.ready.model.spec.layer_counts for mixer in layer.mixers)
    if shards.tp < 2 or not any(isinstance(mixer, LatentAttention) for mixer in mixers):  # noqa: PLR2004
        return
    experts = shards.tp * shards.dp if served.ready.model.spec.experts else 1
    other = _cut(served, replace(shards, tp=1, dp=shards.dp * shards.tp, ep=experts))
    if other is not None:
        text = f"--data-parallel-size {shards.dp * shards.tp} --tensor-parallel-size 1"
        here = f"--dp {shards.dp * shards.tp} --tp 1"
        beside = (" --enable-expert-parallel", f" --ep {experts}") if experts > 1 else ("", "")
        yield text + beside[0], here + beside[1], other


def _quantised(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """Plain weights quantised on load."""
    del memory
    deployment, flags = served.ready.deployment, replace(served.flags, quantization=NARROW)
    if deployment.weights is not None or served.ready.model.spec.quantization is not None:
        return
    try:
        other, _ = serve(served.ready.model, deployment, flags)
    except (UsageError, UnansweredError, ModelError):
        return
    yield f"--quantization {NARROW}", f"--quantization {NARROW}", other


def _cut(served: Served, shards: Shards) -> Served | None:
    """The model over other devices; None where they do not divide it."""
    try:
        ready = prepare(served.ready.model, replace(served.ready.deployment, shards=shards))
    except (UsageError, UnansweredError, ModelError):
        return None
    return replace(served, ready=ready)


def _static(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """More of the memory for weights and cache in SGLang."""
    del memory
    for share in (0.85, 0.9, 0.93):
        if share > (served.flags.mem_fraction_static or 0.0):
            text = f"--mem-fraction-static {share}"
            yield text, text, replace(served, flags=replace(served.flags, mem_fraction_static=share))


def _narrow_ggml(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """llama.cpp's cache in q8_0."""
    del memory
    deployment = served.ready.deployment
    narrow = FORMATS["q8_0"]
    if deployment.kv.bits > narrow.bits:
        formats = replace(served.ready.formats, kv=narrow)
        ready = replace(served.ready, deployment=replace(deployment, kv=narrow), formats=formats)
        yield "--cache-type-k q8_0 --cache-type-v q8_0", "--kv q8_0", replace(served, ready=ready)


def _fewer_cells(served: Served, memory: EngineMemory) -> Iterator[Change]:
    """A shorter context, which llama.cpp allocates whole."""
    cells = memory.longest
    while cells > 4096:  # noqa: PLR2004 - nobody serves less
        cells //= 2
        yield f"--ctx-size {cells}", f"--n-ctx {cells}", replace(served, flags=replace(served.flags, n_ctx=cells))


# engine -> changes that are tried, in this order
CHANGES: Final[Mapping[str, tuple[Callable[[Served, EngineMemory], Iterator[Change]], ...]]] = {
    "vllm": (
        _narrow_cache("--kv-cache-dtype fp8"),
        _utilization,
        _smaller_step,
        _eager,
        _quantised,
        _wider("--tensor-parallel-size"),
        _replicas,
    ),
    "sglang": (_narrow_cache("--kv-cache-dtype fp8_e5m2"), _static, _quantised, _wider("--tp-size")),
    "llama.cpp": (_fewer_cells, _narrow_ggml),
    "tensorrt-llm": (_narrow_cache("--kv_cache_dtype fp8"), _wider("--tp_size")),
    "tgi": (_wider("--num-shard"),),
    "lmdeploy": (_wider("--tp"),),
}
