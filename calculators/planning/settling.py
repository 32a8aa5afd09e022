"""The least number of replicas that keeps what is promised, and the most load that so many keep: tried step by step."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.planning.trial import Count, screened

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.trial import Verdict
    from roofcast.calculators.serving.service import Service

FEW: Final = 8  # replicas up to which one more is tried after the other
STEP: Final = 1.15  # from one number of replicas to the next that is tried beyond
PATIENCE: Final = 3  # numbers of replicas that fail, after which the most is tried


@dataclass(frozen=True, slots=True)
class Settled:
    """The least number of replicas that will do.

    Args:
        best: the verdict of that number; None where none up to the most will do.
        others: verdicts of other numbers that were tried.
    """

    best: Verdict | None
    others: tuple[Verdict, ...] = ()

    @property
    def simulations(self) -> int:
        """Runs behind it."""
        every = [*self.others, *([self.best] if self.best else [])]
        return sum(len(one.tried) for one in every)


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers of units that are looked at.

    Args:
        least: below which none will do.
        likely: to begin with.
        most: beyond which none is wanted.
    """

    least: int
    likely: int
    most: int


def settle(service: Service, demand: Demand, units: Range) -> Settled:
    """The least number of units that keeps what is promised.

    From the likely one it goes down as long as it is kept, else up, in steps that grow beyond 8, and halves between.

    Args:
        service: of one unit.
        demand: what comes.
        units: that are looked at.
    """
    tried_: dict[int, Verdict] = {}

    def keeps(count: int) -> bool:
        if count not in tried_:
            tried_[count] = screened(service, demand, Count(count), doubtful=count < units.likely)
        return bool(tried_[count].meets)

    low, high = units.least - 1, None  # one that will not do, one that does
    at = min(max(units.likely, units.least), units.most)
    while at <= units.most:
        if keeps(at):
            high = at
            break
        low = at
        if hopeless(tried_[at]) or at == units.most:
            break
        at = min(units.most, at + 1 if at < FEW else ceil(at * STEP))
        if len(tried_) == PATIENCE and not keeps(units.most):
            break
    while high is not None and high - low > 1:
        middle = high - 1 if high - low <= FEW // 2 else (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    best = None if high is None else tried_[high]
    return Settled(best, tuple(one for count, one in sorted(tried_.items()) if count != high))


def hopeless(verdict: Verdict) -> bool:
    """Whether more replicas mend nothing: requests are too long for each of them."""
    return any(one.limit == "context" for one in verdict.tried)


def settle_pools(service: Service, demand: Demand, least: tuple[int, int], most: int) -> Settled:
    """Likewise of two pools: one more of the one that is to blame, until all is kept.

    TPOT and time between tokens are the decoders' matter, TTFT the readers'; of a growing queue the busier's.

    Args:
        service: of one unit.
        demand: what comes.
        least: readers and writers to begin with.
        most: units of both together.
    """
    failed: list[Verdict] = []
    readers, writers = least
    while readers + writers <= most:
        found = screened(service, demand, Count(0, readers, writers))
        if found.meets:
            return Settled(found, tuple(failed))
        failed.append(found)
        if hopeless(found):
            break
        worst = found.tried[0]
        decode = worst.limit in {"tpot", "itl"} or (worst.limit == "rate" and worst.busy[-1] > worst.busy[0])
        more = 1 if readers + writers < FEW else ceil((STEP - 1) * (writers if decode else readers))
        more = max(1, min(more, most - readers - writers))  # the most is tried, too
        readers, writers = (readers, writers + more) if decode else (readers + more, writers)
    return Settled(None, tuple(failed))


def stretched(
    keeps: Callable[[float], bool], most: float = 64.0, exact: float = 0.1
) -> tuple[float | None, float | None]:
    """The highest factor of the load that keeps what is promised, and the lowest that does not, 10 % apart. [-]

    Both None-able: no factor from 1 on does, or even the most does.
    """
    low, high, factor = None, None, 1.0
    while high is None:
        if keeps(factor):
            low, factor = factor, factor * 1.5 if factor < most else inf
            if factor == inf:
                return low, None
        else:
            high = factor
    while low is not None and high > low * (1 + exact):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low, high
