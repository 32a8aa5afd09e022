"""What of a device the expected time of an operation looks at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """One device's roofs for one operation.

    Args:
        peak: of the format that is computed in. [FLOP/s]
        bandwidth: of its memory. [B/s]
        sms: multiprocessors; where a data sheet does not say, as many as its kin of that peak.
    """

    peak: float
    bandwidth: float
    sms: float
