"""The roofs of a device, and the least time that an operation takes under them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.expected.expectation import Expectation
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.op import Exchange, Op

COMPUTE: Final = "compute"
MEMORY: Final = "memory"
LINK: Final = "link"
# format asked -> what a device without it computes in instead: weights are widened as they are read (Marlin and its
# kin), bf16 becomes fp16 or fp32; and where its own is slower than a wider one, as fp16 of Pascal's GeForce, that one
INSTEAD: Final[Mapping[str, tuple[str, ...]]] = {
    "fp4": ("bf16", "fp16", "tf32", "fp32"),
    "fp8": ("bf16", "fp16", "tf32", "fp32"),
    "int8": ("bf16", "fp16", "tf32", "fp32"),
    "int4": ("bf16", "fp16", "tf32", "fp32"),
    "bf16": ("fp16", "tf32", "fp32"),
    "fp16": ("bf16", "tf32", "fp32"),
    "ggml": ("fp16", "bf16", "fp32"),  # llama.cpp's types: widened, but see `_slow_halves`
    "fp32": ("tf32", "bf16", "fp16"),
    "fp64": ("fp64_tensor", "fp32", "bf16"),
}
EXACT: Final = frozenset(("fp32", "fp64"))  # computed in what is narrower only where nothing else is there
# engine -> format -> the peak that its kernels reach for where a device has it. llama.cpp has cuBLAS multiply F16, and
# what it widens to F16, with fp16 accumulation (ggml-cuda: CUBLAS_COMPUTE_16F unless forced), twice as quick on GeForce.
ENGINE_PEAKS: Final[Mapping[str, Mapping[str, str]]] = {"llama.cpp": {"fp16": "fp16_acc16", "ggml": "fp16_acc16"}}


@dataclass(frozen=True, slots=True)
class Roofs:
    """One device's limits.

    Args:
        device: its id.
        bandwidth: of its memory. [B/s]
        peaks: format asked -> dense peak, of what is computed instead where it has none. [FLOP/s]
        instead: format asked -> format computed in, where they differ.
    """

    device: str
    bandwidth: float
    peaks: Mapping[str, float]
    instead: Mapping[str, str]

    def ridge(self, number_format: str) -> float:
        """Intensity above which compute is the limit: peak / bandwidth. [FLOP/B]

        Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
        """
        return self.peaks[number_format] / self.bandwidth


def roofs_of(accelerator: Accelerator, engine: str = "none") -> Roofs:
    """The roofs that an accelerator's facts draw, and an engine's kernels reach for.

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> turing = roofs_of(find_accelerator("rtx-2080-ti").accelerator)
    >>> turing.instead["fp8"], turing.instead["bf16"], round(turing.ridge("fp8"), 1)
    ('fp16', 'fp16', 87.3)
    >>> roofs_of(find_accelerator("p40").accelerator).instead["fp16"]  # 1/64 of fp32's rate
    'fp32'
    """
    own = ENGINE_PEAKS.get(engine, {})
    known = {name: used for name in INSTEAD if (used := _computed(accelerator, name, own.get(name)))}
    return Roofs(
        device=accelerator.id,
        bandwidth=accelerator.bandwidth,
        peaks={name: accelerator.peak(used) for name, used in known.items()},
        instead={name: used for name, used in known.items() if used != name},
    )


def _computed(accelerator: Accelerator, name: str, quicker: str | None) -> str | None:
    """The format that a device computes one in: the quickest of it, those it is widened to, and an engine's own."""
    every = [n for n in (name, *INSTEAD[name], quicker) if n is not None and n in accelerator.peaks]
    if name == "ggml" and "int8" in accelerator.peaks and _slow_halves(accelerator):
        every.append("int8")
    if name in EXACT:
        return next(iter(every), None)
    return max(every, key=accelerator.peak, default=None)


def _slow_halves(accelerator: Accelerator) -> bool:
    """Whether 16 bits are no quicker than 32: there llama.cpp multiplies its types in int8 (dp4a on Pascal)."""
    halves = [accelerator.peak(name) for name in ("fp16", "bf16") if name in accelerator.peaks]
    return max(halves, default=0.0) <= accelerator.peaks.get("fp32", 0.0)


@dataclass(frozen=True, slots=True)
class Term:
    """One operation, or one exchange, with the least time it takes.

    Args:
        op: the work.
        bound: max of what compute, memory or the link need. [s]
        bound_by: compute, memory or link.
        full: the same were activations to go through memory too. [s]
        arithmetic, memory: what compute alone and memory alone would take. [s]
        moved: of an exchange, bytes that the device sends over the link that takes the longest. [B]
        expected: the time that fitted constants expect, never less than the bound; 0 where none are asked. [s]
    """

    op: Op | Exchange
    bound: float
    bound_by: str
    full: float
    arithmetic: float = 0.0
    memory: float = 0.0
    moved: float = 0.0
    expected: float = 0.0


def compute_seconds(flops: float, peak: float) -> float:
    """Least time of arithmetic: F / peak. [s]

    >>> round(compute_seconds(2e12, 989.4e12) * 1e3, 2)
    2.02
    """
    return flops / peak


def memory_seconds(size: float, bandwidth: float) -> float:
    """Least time of moving bytes through memory: D / B. [s]

    >>> round(memory_seconds(15.0e9, 4.8e12) * 1e3, 3)
    3.125
    """
    return size / bandwidth


def timed(op: Op, roofs: Roofs, expectation: Expectation | None = None, phase: str = DECODE) -> Term:
    """The least time of one operation: max(F / peak, D / bandwidth), D its weights and state. [s]

    The maximum is taken for each operation and then summed: matrices and attention of one step may stand on opposite
    sides of the ridge. `full` is the same with D all bytes, activations included; `expected` is as fitted constants have
    it, where an expectation is given.

    Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.

    >>> from roofcast.modelspec.op import Op
    >>> roofs = Roofs("h200", 4.8e12, {"bf16": 989.4e12}, {})
    >>> term = timed(Op("ffn", "gemm", 1e12, weight_bytes=1e9), roofs)
    >>> term.bound_by, round(term.bound * 1e3, 3)
    ('compute', 1.011)
    """
    arithmetic = op.flops / roofs.peaks[op.format]
    size = op.weight_bytes + op.state_read + op.state_written
    moving = size / roofs.bandwidth
    full = max(arithmetic, (size + op.activation_read + op.activation_written) / roofs.bandwidth)
    expected = expectation.seconds(op, phase) if expectation is not None else 0.0
    if moving >= arithmetic:
        return Term(op, moving, MEMORY, full, arithmetic, moving, 0.0, expected)
    return Term(op, arithmetic, COMPUTE, full, arithmetic, moving, 0.0, expected)
