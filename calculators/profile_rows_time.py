"""Repeated times, as JSON has them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeRow:
    """Repeated times of the same work."""

    seconds: float
    """The median. [s]"""
    low: float
    """10th percentile. [s]"""
    high: float
    """90th percentile. [s]"""
    spread: float
    """Standard deviation. [s]"""
    repeats: int
    """How many."""
