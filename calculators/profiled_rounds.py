"""What a profile holds of a round of speculation: the times of its parts, and of the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.profiled import EAGER

if TYPE_CHECKING:
    from roofcast.calculators.profiled import Sample


@dataclass(frozen=True, slots=True)
class RoundProfile:
    """One measured round of two decoders.

    Args:
        batch: sequences.
        context: tokens in the cache of each, with the first that is verified. [token]
        drafted: k. [token]
        decode: a plain decode step of the target; None where it could not run.
        draft: one decode step of the draft; None likewise.
        drafting: k of them, each fed what the one before chose; None likewise.
        verify: the target's pass over k + 1 positions; None likewise.
        round: drafting, verifying and comparing, as one; None likewise.
        launched: `graph` or `eager`.
        problem: why it could not run, in one line.
    """

    batch: int
    context: int
    drafted: int
    decode: Sample | None = None
    draft: Sample | None = None
    drafting: Sample | None = None
    verify: Sample | None = None
    round: Sample | None = None
    launched: str = EAGER
    problem: str | None = None

    @property
    def draft_ratio(self) -> float | None:
        """A draft step over a decode step of the target. [-]"""
        return over(self.draft, self.decode)

    @property
    def verify_ratio(self) -> float | None:
        """Verifying over a decode step of the target. [-]"""
        return over(self.verify, self.decode)

    @property
    def cost(self) -> float | None:
        """The whole round over a decode step of the target. [-]"""
        return over(self.round, self.decode)

    @property
    def shorter(self) -> bool:
        """Whether the whole took less than a part of it did alone, which tells of a machine that others use.

        >>> from roofcast.calculators.profiled import Sample
        >>> one, two = (Sample(seconds, seconds, seconds, 0.0, 5) for seconds in (2e-3, 3e-3))
        >>> RoundProfile(1, 1024, 4, drafting=one, verify=one, round=two).shorter
        False
        >>> RoundProfile(1, 1024, 4, drafting=one, verify=two, round=one).shorter
        True
        """
        ratios = (over(self.round, part) for part in (self.drafting, self.verify))
        return any(ratio is not None and ratio < 1 for ratio in ratios)


def over(one: Sample | None, other: Sample | None) -> float | None:
    """The median of one over that of another; None where one is not known. [-]

    >>> from roofcast.calculators.profiled import Sample
    >>> over(Sample(3e-3, 3e-3, 3e-3, 0.0, 5), Sample(2e-3, 2e-3, 2e-3, 0.0, 5))
    1.5
    """
    return None if one is None or other is None else one.seconds / other.seconds
