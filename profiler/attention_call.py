"""One call of attention, drawn, checked and timed: a prompt or a new token, by a backend of PyTorch or the profiler's own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.profiler.errors import OutOfMemoryError, WrongOutputError
from roofcast.profiler.kernels import Cache, Heads
from roofcast.profiler.kernels_probe_memory import copies
from roofcast.profiler.sdpa_choice import FUSED, Inputs, accepted, attend, only
from roofcast.profiler.timing import BURST, REST, check_written, glance, memory_guard, time_calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from roofcast.calculators.profiled import Sample
    from roofcast.profiler.kernels import Kernels
    from roofcast.profiler.runtime import Runtime

SHORT: Final = 2048  # tokens of a prompt up to which the limit of the device's power does not show
COPIES: Final = 3  # of keys and values of all query heads, that attention takes at most on a host
IN_GRAPH: Final = 8  # calls of it
MOST_COPIES: Final = 256
TOLERANCE: Final = 3e-2  # of a result's error to its size: bf16 weights of many keys


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Heads that are measured.

    Args:
        query, kv: how many.
        dim: width of each. [element]
        format: bf16, fp16 or fp32.
    """

    query: int
    kv: int
    dim: int
    format: str = "bf16"


@dataclass(frozen=True, slots=True)
class Timed:
    """What one call takes.

    Args:
        sample: its time.
        extra_bytes: peak of memory beside inputs and outputs; None where the device does not tell. [B]
        note: how it was made to run.
    """

    sample: Sample
    extra_bytes: int | None = None
    note: str = ""


def prefill_call(runtime: Runtime, heads: HeadShape, length: int, backend: str) -> Timed:
    """Causal attention of one prompt by one backend of PyTorch.

    Raises:
        UnavailableError: the backend does not take it, or it does not fit.
        WrongOutputError: its result is wrong.
    """
    with memory_guard(runtime):
        inputs = _drawn(runtime, heads, 1, length, length)
        taken = accepted(runtime, backend, inputs)
        with only(backend):
            _check(runtime, inputs, attend(runtime, taken), f"{backend} prefill of {length:,}")
            extra = _extra(runtime, inputs, taken)
            long = length > SHORT
            graph = not long or backend in FUSED  # a graph keeps memory of its own, of which math needs most
            calls = [lambda: attend(runtime, taken)] * _rounds(runtime, lambda: attend(runtime, taken), long=long)
            sample = time_calls(runtime, calls, graph=graph, rest=REST if long else 0.0)
            return Timed(sample, extra, _note(inputs, taken))


def _rounds(runtime: Runtime, call: Callable[[], object], *, long: bool) -> int:
    """Calls of one repeat: some, or a burst of long ones after a rest; one where no device's clock counts."""
    if not runtime.on_cuda:
        return 1
    return math.ceil(BURST / glance(runtime, call)) if long else IN_GRAPH


def decode_call(runtime: Runtime, heads: HeadShape, batch: int, context: int, backend: str) -> Timed:
    """Attention of one new token a sequence over a cache, by one backend of PyTorch.

    Raises:
        UnavailableError, WrongOutputError: as of `prefill_call`.
    """
    with memory_guard(runtime):
        every = [_drawn(runtime, heads, batch, 1, context) for _ in range(_copies(runtime, heads, batch, context))]
        first = accepted(runtime, backend, every[0])
        expanded = first is not every[0]
        taken = [first, *(one.expanded() if expanded else one for one in every[1:])]
        with only(backend):
            _check(runtime, every[0], attend(runtime, first), f"{backend} decode of {batch:,} at {context:,}")
            extra = _extra(runtime, every[0], first)
            calls = [_attending(runtime, one) for one in taken]
            return Timed(time_calls(runtime, calls, graph=True), extra, _note(every[0], first))


def split_call(runtime: Runtime, heads: HeadShape, batch: int, context: int, kernels: Kernels) -> Timed:
    """The same by the kernels of the profiler's decoder.

    Raises:
        UnavailableError, WrongOutputError: as of `prefill_call`.
    """
    torch = runtime.torch
    with memory_guard(runtime):
        every = [_drawn(runtime, heads, batch, 1, context) for _ in range(_copies(runtime, heads, batch, context))]
        places = torch.full((batch,), context - 1, dtype=torch.int32, device=runtime.device)
        shaped = Heads(heads.query, heads.kv, heads.dim, heads.dim, None, heads.dim**-0.5)
        out = every[0].query.new_empty((batch, heads.query * heads.dim))

        def deciding(inputs: Inputs) -> Callable[[], object]:
            cache = Cache(inputs.key, inputs.value)
            return lambda: kernels.decode_attention(inputs.query, places, shaped, cache, out)

        calls = [deciding(one) for one in every]
        what = f"split_kv decode of {batch:,} at {context:,}"
        check_written(runtime, out, calls[0], what)
        _check(runtime, every[0], out.view(batch, heads.query, 1, heads.dim), what)
        return Timed(time_calls(runtime, calls, graph=True), _peak(runtime, calls[0], 0))


def _attending(runtime: Runtime, inputs: Inputs) -> Callable[[], Tensor]:
    return lambda: attend(runtime, inputs)


def _cache_bytes(heads: HeadShape, batch: int, context: int) -> int:
    return 2 * batch * heads.kv * context * heads.dim * (4 if heads.format == "fp32" else 2)


def _copies(runtime: Runtime, heads: HeadShape, batch: int, context: int) -> int:
    """Caches that are visited in turn, so that the last cache before memory holds none of them."""
    return min(MOST_COPIES, copies(runtime, _cache_bytes(heads, batch, context)))


def _drawn(runtime: Runtime, heads: HeadShape, batch: int, queries: int, length: int) -> Inputs:
    """Standard normal queries, keys and values; more than one query is a prompt, which is causal."""
    # beside keys and values: themselves for every query head where groups are not known, queries, outputs, fp32 copies
    needed, free = COPIES * _cache_bytes(heads, batch, length) * max(1, heads.query // heads.kv), runtime.free_bytes()
    if not runtime.on_cuda and needed > free:  # a system would answer by ending the program
        raise OutOfMemoryError(
            f"out of memory on {runtime.machine.name}: it takes up to {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
        )
    dtype = runtime.dtype(heads.format)
    query, key, value = (
        runtime.torch.randn((batch, count, tokens, heads.dim), device=runtime.device, dtype=dtype)
        for count, tokens in ((heads.query, queries), (heads.kv, length), (heads.kv, length))
    )
    return Inputs(query, key, value, 1 / math.sqrt(heads.dim), causal=queries > 1)


def _note(inputs: Inputs, taken: Inputs) -> str:
    """How KV heads were made to fit, where they were."""
    return "" if taken is inputs else f"takes no groups: KV heads expanded to {taken.key.shape[1]} beforehand"


def _extra(runtime: Runtime, inputs: Inputs, taken: Inputs) -> int | None:
    """Peak of memory beside inputs and output, expanded keys and values counted. [B]"""
    expanded = 0 if taken is inputs else taken.key.nbytes + taken.value.nbytes
    peak = _peak(runtime, lambda: attend(runtime, taken), inputs.query.nbytes)  # the output is as large as the queries
    return None if peak is None else peak + expanded


def _peak(runtime: Runtime, call: Callable[[], object], out_bytes: int) -> int | None:
    """The most that a call has allocated at once beside its output; None where the device does not tell. [B]"""
    if not runtime.on_cuda:
        return None
    memory = runtime.torch.cuda
    runtime.synchronize()
    memory.reset_peak_memory_stats(runtime.device)
    before = memory.memory_allocated(runtime.device)
    call()
    runtime.synchronize()
    return max(0, int(memory.max_memory_allocated(runtime.device)) - int(before) - out_bytes)


def _check(runtime: Runtime, inputs: Inputs, out: Tensor, what: str) -> None:
    """Sees that all of a result are numbers, and its last query of the first sequence is what fp32 gives.

    Raises:
        WrongOutputError: they are not.
    """
    bad = int((~runtime.torch.isfinite(out)).sum())
    if bad:
        raise WrongOutputError(f"{what}: {bad:,} of {out.numel():,} outputs are no numbers; its time means nothing")
    group = inputs.group
    key, value = (one[:1].float().repeat_interleave(group, 1) for one in (inputs.key, inputs.value))  # [1, H, S, D]
    scores = inputs.query[:1, :, -1:].float() @ key.transpose(-1, -2) * inputs.scale  # [1, H, 1, S]
    wanted = scores.softmax(-1) @ value
    error = float((out[:1, :, -1:].float() - wanted).norm() / wanted.norm())
    if not error <= TOLERANCE:
        raise WrongOutputError(f"{what}: off by {error:.1%} of what fp32 gives; its time means nothing")
