"""The most requests a second that keep a promise, by trying rates."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

EXACT: Final = 0.01  # of the rate, between one that keeps the promise and one that does not
LEAST, MOST = 2.0**-12, 2.0**20  # rates that are tried [1/s]


@dataclass(frozen=True, slots=True)
class Highest:
    """What was found.

    Args:
        rate: the highest that keeps the promise; None where even the least does not. [1/s]
        beyond: the lowest found that does not, 1 % above or as asked; None where even the most does. [1/s]
    """

    rate: float | None
    beyond: float | None


def highest(keeps: Callable[[float], bool], start: float = 1.0, exact: float = EXACT) -> Highest:
    """The highest rate that keeps a promise: doubled or halved until it does on one side alone, then halved between.

    The middle is that of the logarithms, sqrt(a b), until b <= (1 + exact) a. [request/s]

    Args:
        keeps: whether a rate does; each is asked once.
        start: the first that is asked. [1/s]
        exact: share of the rate that may lie between one that keeps the promise and one that does not. [-]

    >>> found = highest(lambda rate: rate <= 5.5)
    >>> 5.5 / 1.01 < found.rate <= 5.5 < found.beyond, highest(lambda rate: False).rate, highest(lambda rate: True).beyond
    (True, None, None)
    """
    low: float | None = None
    high: float | None = None
    rate = start
    while low is None or high is None:
        if keeps(rate):
            low, rate = rate, rate * 2
        else:
            high, rate = rate, rate / 2
        if not LEAST <= rate <= MOST:
            return Highest(low, high)
    while high > low * (1 + exact):
        middle = sqrt(low * high)
        if keeps(middle):
            low = middle
        else:
            high = middle
    return Highest(low, high)
