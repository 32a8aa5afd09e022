"""The time that is expected of an operation of which nothing but FLOP and bytes counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofcast.calculators.expected.limits import Limits


@dataclass(frozen=True, slots=True)
class StreamConstants:
    """Constants of element-wise work, and of what has no shape.

    Args:
        t0: of a call. [s]
        ec, em: share of the peak and of the bandwidth that is reached. [-]
    """

    t0: float = 0.0
    ec: float = 1.0
    em: float = 1.0


def stream_seconds(flops: float, size: float, limits: Limits, c: StreamConstants) -> float:
    """One call: t0 + max(F / (P ec), D / (B em)). [s]

    Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009, with shares of the roofs and a launch.

    >>> from roofcast.calculators.expected.limits import Limits
    >>> one = stream_seconds(0.0, 3.35e6, Limits(989.4e12, 3.35e12, 132), StreamConstants(2e-6, 1.0, 0.5))
    >>> round(one * 1e6, 3)  # 2 us, and 1 us at half of the bandwidth
    4.0
    """
    return c.t0 + max(flops / (limits.peak * c.ec), size / (limits.bandwidth * c.em))
