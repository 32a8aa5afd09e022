"""Kernels that read or copy memory and do nothing else to speak of: the fastest of several counts as the device's."""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Final

from roofcast.calculators.profiled import COPY, READ, Bandwidth
from roofcast.profiler.timing import check_written, memory_guard, time_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from roofcast.calculators.profiled import Sample
    from roofcast.profiler.runtime import Runtime

    Call = Callable[[], object]
    #: a buffer of random bf16 -> what a kernel writes of it, and the call that does
    Reader = Callable[[Runtime, Tensor], tuple[Tensor, Call]]
    #: from, to -> the call that copies
    Copier = Callable[[Runtime, Tensor, Tensor], Call]

MIB: Final = 2**20
SIZES: Final = (16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB, 4096 * MIB)
SMALL_SIZES: Final = (8 * MIB, 64 * MIB)  # of a processor
SHARE: Final = 4  # of the free memory a buffer is this part at most
CACHES: Final = 4  # sizes of the last cache that the buffers of one measurement take together
BLOCK: Final = 16 * MIB  # bytes that are drawn, then repeated, where drawing is slow
CHOICE: Final = 0.02  # seconds that one kernel is timed to choose
ROW: Final = 8192  # elements of a row, of readers that see the buffer as a matrix


def sizes(runtime: Runtime) -> tuple[int, ...]:
    """Buffers that are measured: up to 4 GiB and to a quarter of the free memory. [B]"""
    table = SIZES if runtime.on_cuda else SMALL_SIZES
    most = runtime.free_bytes() // SHARE
    return tuple(size for size in table if size <= most) or table[:1]


def copies(runtime: Runtime, size: int) -> int:
    """Buffers of a size that are visited in turn, so that the last cache holds nothing of one when its turn comes."""
    return math.ceil(CACHES * runtime.machine.l2_bytes / size) if size < CACHES * runtime.machine.l2_bytes else 1


def read_bandwidth(runtime: Runtime, size: int) -> Bandwidth:
    """Rate of reading buffers of a size. [B/s]

    Raises:
        OutOfMemoryError: they do not fit.
        WrongOutputError: no kernel's result is a number.
    """
    with memory_guard(runtime):
        buffers = [draw(runtime, size) for _ in range(copies(runtime, size))]
        calls = {}
        for name, reader in readers(runtime).items():
            made = [reader(runtime, buffer) for buffer in buffers]
            if _runs(made[0][1]):
                check_written(runtime, *made[0], f"read of {size // MIB:,} MiB by {name}")
                calls[name] = [call for _, call in made]
    name, sample = _fastest(runtime, calls)
    return Bandwidth(READ, size, size, sample, name)


def copy_bandwidth(runtime: Runtime, size: int) -> Bandwidth:
    """Rate of copying buffers of a size, bytes read and bytes written together. [B/s]

    Raises:
        OutOfMemoryError: they do not fit.
        WrongOutputError: no kernel's result is a number.
    """
    with memory_guard(runtime):
        pairs = [(draw(runtime, size), draw(runtime, size)) for _ in range(copies(runtime, 2 * size))]
        calls = {}
        for name, copier in COPIERS.items():
            made = [copier(runtime, *pair) for pair in pairs]
            if _runs(made[0]):
                check_written(runtime, pairs[0][1], made[0], f"copy of {size // MIB:,} MiB by {name}")
                calls[name] = made
    name, sample = _fastest(runtime, calls)
    return Bandwidth(COPY, size, 2 * size, sample, name)


def draw(runtime: Runtime, size: int) -> Tensor:
    """Random bf16 numbers, standard normal; two of them are a finite fp32 too. [size / 2]"""
    torch, elements = runtime.torch, size // 2
    made: Tensor
    if runtime.on_cuda:
        made = torch.empty(elements, dtype=torch.bfloat16, device=runtime.device).normal_()
        return made
    block = torch.randn(min(BLOCK, size) // 2, device=runtime.device).to(torch.bfloat16)
    made = block.repeat(math.ceil(elements / len(block)))[:elements].contiguous()
    return made


def readers(runtime: Runtime) -> Mapping[str, Reader]:
    """Reductions that are tried; where Triton compiles also the profiler's own, on a processor the plain ones."""
    if runtime.kind == "cpu":
        return {name: READERS[name] for name in PLAIN}
    own = _own_reader() if runtime.triton else None
    return {**READERS, "triton": own} if own is not None else READERS


def _own_reader() -> Reader | None:
    """`read_buffer(buffer)` of the Triton kernels, which returns its output and the call that fills it."""
    try:
        read_buffer = import_module("roofcast.profiler.triton_probe").read_buffer
    except ImportError:
        return None
    return lambda _, buffer: read_buffer(buffer)


def _fastest(runtime: Runtime, calls: Mapping[str, Sequence[Call]]) -> tuple[str, Sample]:
    """The kernel that takes least for all its buffers, and its time a buffer."""

    def rough(name: str) -> float:
        return time_calls(runtime, calls[name], graph=True, span=CHOICE).seconds

    best = min(calls, key=rough)
    return best, time_calls(runtime, calls[best], graph=True)


def _runs(call: Call) -> bool:
    """Whether the device has the kernel at all: MPS and ROCm do not have every reduction of every type."""
    try:
        call()
    except (NotImplementedError, RuntimeError) as error:
        if "memory" in str(error):
            raise
        return False
    return True


def _sum(runtime: Runtime, buffer: Tensor) -> tuple[Tensor, Call]:
    x = buffer.view(runtime.torch.float32)
    out = x.new_empty(())
    return out, lambda: runtime.torch.sum(x, 0, out=out)


def _row_sums(runtime: Runtime, buffer: Tensor) -> tuple[Tensor, Call]:
    x = buffer.view(runtime.torch.float32).view(-1, ROW)
    out = x.new_empty(len(x))
    return out, lambda: runtime.torch.sum(x, 1, out=out)


def _half_sums(runtime: Runtime, buffer: Tensor) -> tuple[Tensor, Call]:
    x = buffer.view(-1, ROW)
    out = x.new_empty(len(x))
    return out, lambda: runtime.torch.sum(x, 1, out=out)


def _maxima(runtime: Runtime, buffer: Tensor) -> tuple[Tensor, Call]:
    x = buffer.view(runtime.torch.float32).view(-1, ROW)
    out = x.new_empty(len(x))
    return out, lambda: runtime.torch.amax(x, 1, out=out)


def _vector_product(runtime: Runtime, buffer: Tensor) -> tuple[Tensor, Call]:
    x = buffer.view(runtime.torch.float32).view(-1, ROW)
    vector, out = x[0].clone(), x.new_empty(len(x))
    return out, lambda: runtime.torch.mv(x, vector, out=out)


def _half_vector_product(runtime: Runtime, buffer: Tensor) -> tuple[Tensor, Call]:
    x = buffer.view(-1, ROW)
    vector, out = x[0].clone(), x.new_empty(len(x))
    return out, lambda: runtime.torch.mv(x, vector, out=out)


def _copied(_: Runtime, source: Tensor, target: Tensor) -> Call:
    return lambda: target.copy_(source)


def _negated(runtime: Runtime, source: Tensor, target: Tensor) -> Call:
    x, out = source.view(runtime.torch.float32), target.view(runtime.torch.float32)
    return lambda: runtime.torch.neg(x, out=out)


READERS: Final[Mapping[str, Reader]] = {
    "sum fp32": _sum,
    "row sums fp32": _row_sums,
    "row sums bf16": _half_sums,
    "row maxima fp32": _maxima,
    "matrix-vector fp32": _vector_product,
    "matrix-vector bf16": _half_vector_product,
}
PLAIN: Final = ("sum fp32", "matrix-vector fp32")
COPIERS: Final[Mapping[str, Copier]] = {"copy": _copied, "negation fp32": _negated}
