"""What a measured point may say: limits of times, rates and counts, and fields that must agree with one another."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from roofcast.calculators.bench_values import counted
from roofcast.calculators.measurement import QUANTITIES, SHARES, MeasurementFileError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.measurement import Measurement

#: by unit, the least and the most that anyone has measured, and far beyond
LIMITS: Final[Mapping[str, tuple[float, float]]] = {"s": (1e-9, 1e9), "token/s": (1e-6, 1e12)}
MOST_TOKENS: Final = 1e12
MOST_SEQUENCES: Final = 1e9
SLOW_TOKEN: Final = 10.0  # [s] a token; slower ones are rather milliseconds that were taken for seconds
#: quantities that may have a prompt of 0, and an output of 0
NO_PROMPT: Final = frozenset(("decode_seconds",))
NO_OUTPUT: Final = frozenset(("prefill_seconds", "ttft_seconds"))


def refuse_absurd(point: Measurement, where: str) -> None:
    """Refuses a point whose figures nobody can have measured.

    Args:
        point: as read.
        where: its place, as the message names it.

    Raises:
        MeasurementFileError: naming the field.

    >>> from roofcast.calculators.measurement import Measurement
    >>> refuse_absurd(Measurement("f", "decode_seconds", 1e-12), "f: point 1")
    Traceback (most recent call last):
    roofcast.calculators.measurement.MeasurementFileError: f: point 1: value is 1e-12; decode_seconds must be from 1e-09 to 1e+09 s
    """
    unit = QUANTITIES[point.quantity].unit
    least, most = LIMITS[unit]
    for name in ("value", "low", "high"):
        value = getattr(point, name)
        if value is not None and not least <= value <= most:
            raise MeasurementFileError(f"{where}: {name} is {value:g}; {point.quantity} must be from {least:g} to {most:g} {unit}")  # fmt: skip
    if point.spread is not None and not 0 <= point.spread <= most:
        raise MeasurementFileError(f"{where}: spread is {point.spread:g}; it must be at most {most:g} {unit}")
    if point.batch is not None and point.batch > MOST_SEQUENCES:
        raise MeasurementFileError(f"{where}: batch is {point.batch:g}; it must be at most {MOST_SEQUENCES:,.0f}")
    _refuse_lengths(point, where)


def _refuse_lengths(point: Measurement, where: str) -> None:
    """Refuses lengths that are parts of a token, none where there must be some, or more than anyone has."""
    for name, may_be_0 in (("prompt", NO_PROMPT), ("output", NO_OUTPUT)):
        tokens = getattr(point, name)
        none = tokens == 0 and point.quantity in may_be_0
        if tokens is not None and tokens < 1 and not none:
            raise MeasurementFileError(f"{where}: {name} is {tokens:g}; of {point.quantity} it must be 1 or more")
    for name in ("prompt", "output", "context", "cached"):
        tokens = getattr(point, name)
        if tokens is not None and not 0 <= tokens <= MOST_TOKENS:
            raise MeasurementFileError(f"{where}: {name} is {tokens:g}; it must be at most {MOST_TOKENS:g}")


def refuse_conflicts(point: Measurement, where: str) -> None:
    """Refuses a point whose fields contradict one another.

    Args:
        point: as read.
        where: its place, as the message names it.

    Raises:
        MeasurementFileError: naming the field.
    """
    if point.cached and (point.prompt is None or point.cached >= point.prompt):
        raise MeasurementFileError(f"{where}: cached is {point.cached:g}; it must be less than prompt")
    if not (point.low or point.value) <= point.value <= (point.high or point.value):
        raise MeasurementFileError(f"{where}: value is {point.value:g}; it must lie between low and high")
    shares = [share for name in SHARES if (share := getattr(point, name)) is not None]
    if point.gpus is not None and shares and prod(shares) != point.gpus:
        raise MeasurementFileError(f"{where}: gpus is {point.gpus}; it must be tp x pp x dp, which is {prod(shares)}")


def slow_tokens(points: Sequence[Measurement], where: str) -> tuple[str, ...]:
    """A remark of times of a token that look like milliseconds.

    >>> from roofcast.calculators.measurement import Measurement
    >>> slow_tokens([Measurement("f", "tpot_seconds", 14.0)], "f")
    ('f: 1 point has more than 10 s a token (14 s at most); is that ms?',)
    """
    slow = [point.value for point in points if point.quantity in {"decode_seconds", "tpot_seconds"} and point.value > SLOW_TOKEN]  # fmt: skip
    if not slow:
        return ()
    have = f"{counted(len(slow), 'point')} {'has' if len(slow) == 1 else 'have'}"
    return (f"{where}: {have} more than {SLOW_TOKEN:g} s a token ({max(slow):g} s at most); is that ms?",)
