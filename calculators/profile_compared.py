"""A measured step beside what it could be, as values: a term, a family, a whole step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.roofline import COMPUTE, MEMORY

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.profiled import StepProfile


@dataclass(frozen=True, slots=True)
class Least:
    """Least times under one pair of roofs, summed over operations.

    Args:
        arithmetic: of all FLOP at the peak of their format. [s]
        memory: of all bytes at the bandwidth. [s]
        bound: sum over operations of the larger of both. [s]
    """

    arithmetic: float
    memory: float
    bound: float

    @property
    def bound_by(self) -> str:
        """The roof under which the work takes longer: compute or memory."""
        return COMPUTE if self.arithmetic > self.memory else MEMORY


@dataclass(frozen=True, slots=True)
class Compared:
    """A term, a family or a whole step: its work and its times; None of what is not known.

    Args:
        name, family: of it; a family has its own name, a whole step neither family.
        calls: kernels that were measured; 0 where none was.
        flops: [FLOP]
        bytes: weights and state. [B]
        activation_bytes: inputs and outputs. [B]
        seconds: measured; may be below 0 of what is between kernels, where parts alone take longer than in the step. [s]
        bound, expected: as `estimate` has them, of a whole step with the time of the host; of one whose devices exchange over
            links that are not known, the bound without exchanges, and no expected time. [s]
        datasheet, measured: least times under the roofs of the data sheet, and as measured; likewise without exchanges.
    """

    name: str
    family: str
    calls: int
    flops: float
    bytes: float
    activation_bytes: float
    seconds: float | None
    bound: float | None
    expected: float | None
    datasheet: Least | None
    measured: Least | None

    @property
    def moved(self) -> float:
        """Bytes that count: weights and state, which must move whatever the kernels. [B]"""
        return self.bytes

    @property
    def intensity(self) -> float | None:
        """FLOP a byte that counts: F / D. [FLOP/B]"""
        return self.flops / self.moved if self.moved else None

    @property
    def bytes_per_second(self) -> float | None:
        """Achieved: bytes that count / measured time. [B/s]"""
        return self._rate(self.moved)

    @property
    def flops_per_second(self) -> float | None:
        """Achieved: F / measured time. [FLOP/s]"""
        return self._rate(self.flops)

    @property
    def datasheet_share(self) -> float | None:
        """Of the data sheet's roof: least time under it / measured time. [-]"""
        return self._share(self.datasheet, bound_of)

    @property
    def measured_share(self) -> float | None:
        """Of the measured roof: least time under it / measured time. [-]"""
        return self._share(self.measured, bound_of)

    @property
    def compute_share(self) -> float | None:
        """How near the measured peak is: sum of F / peak over the measured time, that of the data sheet where none is. [-]"""
        return self._share(self.measured or self.datasheet, arithmetic_of)

    @property
    def memory_share(self) -> float | None:
        """How near the measured bandwidth is: D / bandwidth over the measured time, that of the data sheet where none is. [-]"""
        return self._share(self.measured or self.datasheet, memory_of)

    @property
    def bound_by(self) -> str | None:
        """Which roof is near by measurement: `compute` or `memory`, the one whose share is the larger.

        >>> Compared("head", "gemm", 1, 8e9, 1e9, 0.0, 1e-3, None, None, None, Least(1e-5, 2e-4, 2e-4)).bound_by
        'memory'
        """
        compute, memory = self.compute_share, self.memory_share
        if compute is None or memory is None or not (compute or memory):
            return None
        return COMPUTE if compute > memory else MEMORY

    def _rate(self, amount: float) -> float | None:
        return amount / self.seconds if self.seconds is not None and self.seconds > 0 else None

    def _share(self, least: Least | None, of: Callable[[Least], float]) -> float | None:
        if least is None or self.seconds is None or self.seconds <= 0:
            return None
        return of(least) / self.seconds


@dataclass(frozen=True, slots=True)
class StepComparison:
    """One measured step, taken apart.

    Args:
        step: as it was measured.
        rows: a term each, in the order in which they run, and last what is between kernels where the step was measured.
        families: the same by family of operation, largest measured time first.
        whole: the step.
    """

    step: StepProfile
    rows: tuple[Compared, ...]
    families: tuple[Compared, ...]
    whole: Compared


def arithmetic_of(least: Least) -> float:
    """Least time of arithmetic. [s]"""
    return least.arithmetic


def memory_of(least: Least) -> float:
    """Least time of memory. [s]"""
    return least.memory


def bound_of(least: Least) -> float:
    """Least time under both roofs. [s]"""
    return least.bound
