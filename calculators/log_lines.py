"""A start-up log against the prediction, as an answer holds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLine:
    """A term of a log beside its prediction."""

    term: str
    """What it is."""
    logged: float
    """Bytes of a size, else a plain number."""
    predicted: float | None = None
    """The same from model, machine and flags alone; null where nothing is predicted."""
    low: float | None = None
    """Lower end of the prediction's 80 % interval."""
    high: float | None = None
    """Upper end."""
    agrees: bool | None = None
    """Whether the log lies in the interval, give or take 2 % and its rounding; null without prediction."""
    cause: str | None = None
    """What usually causes such a difference; null where there is none."""
    line: int = 0
    """Line of the log."""
    from_log: float | None = None
    """The same by the engine's rules from what the log says before it; null where that does not tell."""
    from_log_low: float | None = None
    """The least that the log's printed digits allow."""
    from_log_high: float | None = None
    """The most."""


@dataclass(frozen=True, slots=True)
class LogAgainst:
    """A start-up log against the prediction."""

    engine: str
    """Whose log it is."""
    version: str | None
    """As the log states it; null where it does not."""
    lines: list[LogLine]
    """Its terms, in the order in which the engine comes to them."""
    first_difference: str | None
    """The first term that is not as predicted; null where all are."""
    cause: str | None
    """What usually causes that."""
    failure: str | None
    """Why the server did not start; null where the log shows no failure."""
    notes: list[str]
    """What should be known of the log."""
