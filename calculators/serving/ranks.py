"""The value of a rank among values in order."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Value = TypeVar("Value", bound=float)

ROUNDING: Final = 1e-9  # of a rank: 99.9 of 100 times 1,000 is 999, and not more


def quantile(ordered: Sequence[Value], share: float) -> Value:
    """The least value that so large a share is at most: the ceil(share n)-th of n in order (nearest rank).

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0, 3.0, 4.0], 0.99), quantile(range(1, 1001), 99.9 / 100)
    (2.0, 4.0, 999)
    """
    count = len(ordered)
    return ordered[min(count - 1, max(0, ceil(share * count - ROUNDING) - 1))]
