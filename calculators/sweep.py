"""Decode over the number of sequences: each limit by itself, their bound, and the time to expect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.estimate import Layout, layout_of
from roofcast.calculators.phases import Asked, answer_point, most_sequences
from roofcast.calculators.roofline import LINK
from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Point


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A decode step of so many sequences. What does not fit has no times."""

    batch: int
    """Sequences at once, over all replicas."""
    fits: bool
    """Whether weights and the cache of all fit at the context."""
    bound_seconds: float | None
    """Least time: the sum over operations of the longer of arithmetic, memory and link. [s]"""
    memory_seconds: float | None
    """Moving all weights and state, were nothing else to do: D / bandwidth. [s]"""
    compute_seconds: float | None
    """All arithmetic, were nothing else to do: the sum of F / peak of each operation's format. [s]"""
    link_seconds: float | None
    """All exchanges between devices, were nothing else to do. [s]"""
    expected_seconds: float | None
    """Expected time of kernels and host (TPOT); null too where no constants are asked. [s]"""
    low_seconds: float | None
    """Low end of its 80 % interval; null likewise. [s]"""
    high_seconds: float | None
    """High end of it; null likewise. [s]"""
    tokens_per_second: float | None
    """Of the whole deployment at the bound. [token/s]"""
    expected_tokens_per_second: float | None
    """The same at the expected time; null likewise. [token/s]"""

    @property
    def seconds(self) -> float | None:
        """Time to judge by: the expected one where there is one, else the bound. [s]"""
        return self.bound_seconds if self.expected_seconds is None else self.expected_seconds

    @property
    def rate(self) -> float | None:
        """Tokens a second in that time. [token/s]"""
        return self.tokens_per_second if self.expected_seconds is None else self.expected_tokens_per_second


@dataclass(frozen=True, slots=True)
class Sweep:
    """A deployment's decode step over the number of sequences."""

    model: str
    """Name as asked for."""
    gpu: str
    """Id of the accelerator."""
    layout: Layout
    """How the devices share the model."""
    context: int
    """Tokens that each sequence attends to. [token]"""
    points: list[SweepPoint]
    """In the order of batches."""
    tpot_limit_seconds: float | None = None
    """The most that a token may take; null where nobody says. [s]"""
    most_sequences: int = 0
    """Sequences that fit at the context."""
    reason: str | None = None
    """Why the first point that does not fit does not; null where all do."""

    @property
    def fitting(self) -> list[SweepPoint]:
        """The points that have times."""
        return [point for point in self.points if point.fits]

    @property
    def fitted(self) -> bool:
        """Whether there are expected times beside bounds."""
        return any(point.expected_seconds is not None for point in self.points)

    @property
    def within_limit(self) -> SweepPoint | None:
        """The most sequences whose step stays within the limit; None where none does, or there is no limit."""
        limit = self.tpot_limit_seconds
        if limit is None:
            return None
        inside = (point for point in self.points if point.seconds is not None and point.seconds <= limit)
        return max(inside, key=lambda point: point.batch, default=None)


def sweep(ready: Ready, context: int, batches: Sequence[int], limit: float | None = None) -> Sweep:
    """A decode step of each batch at a context, as `estimate` has it.

    Args:
        ready: the deployment; with its constants prepared, times are expected too.
        context: tokens that each sequence attends to. [token]
        batches: sequences at once.
        limit: the most that a token may take (TPOT). [s]

    Raises:
        MalformedModelError: a batch or context that cannot be.
    """
    made = [answer_point(ready, Asked(DECODE, batch, context)) for batch in sorted(set(batches))]
    return Sweep(
        model=ready.model.name,
        gpu=ready.deployment.accelerator.id,
        layout=layout_of(ready),
        context=context,
        points=[_point(one) for one in made],
        tpot_limit_seconds=limit,
        most_sequences=most_sequences(ready, context),
        reason=next((one.reason for one in made if not one.fits), None),
    )


def sweep_batches(most: int) -> list[int]:
    """Powers of two up to the most sequences that fit, and these; one where none fits.

    >>> sweep_batches(100), sweep_batches(8), sweep_batches(0)
    ([1, 2, 4, 8, 16, 32, 64, 100], [1, 2, 4, 8], [1])
    """
    top = max(1, most)
    return [*(1 << power for power in range((top - 1).bit_length())), top]


def _point(made: Point) -> SweepPoint:
    """A point, each limit by itself: a pipeline's parts take as many passes of it as of the bound."""
    terms, fits = made.work.terms, made.fits
    low, high = made.interval or (None, None)
    links = sum(term.bound for term in terms if term.bound_by == LINK)
    return SweepPoint(
        batch=made.asked.batch,
        fits=fits,
        bound_seconds=made.bound,
        memory_seconds=made.passes * sum(term.memory for term in terms) if fits else None,
        compute_seconds=made.passes * sum(term.arithmetic for term in terms) if fits else None,
        link_seconds=made.passes * links if fits else None,
        expected_seconds=made.expected,
        low_seconds=low,
        high_seconds=high,
        tokens_per_second=made.rate,
        expected_tokens_per_second=made.expected_rate,
    )
