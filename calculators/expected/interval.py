"""The interval around an expected time."""

from __future__ import annotations

from math import exp
from typing import Final

Z80: Final = 1.2815515594457831  # half of an 80 % interval, in standard deviations
WIDEST: Final = 12.0  # standard deviations of a logarithm beyond which nothing is known, and exp would overflow


def interval(expected: float, bound: float, spread: float) -> tuple[float, float]:
    """Low and high end of the 80 % interval, the low one never below the bound. [s]

    low = max(bound, expected exp(-1.28 sigma)), high = expected exp(1.28 sigma), sigma at most 12

    >>> low, high = interval(10.0, 7.0, 0.1)
    >>> round(low, 2), round(high, 2)
    (8.8, 11.37)
    """
    wide = exp(Z80 * min(spread, WIDEST))
    return max(bound, expected / wide), expected * wide
