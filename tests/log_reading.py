"""Reading logs in tests: those that were made by hand, and what they say in short."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from roofcast.calculators.log_terms import COUNTS
from roofcast.calculators.logs import read_start_log

if TYPE_CHECKING:
    from roofcast.calculators.log_terms import StartLog

LOGS: Final = Path(__file__).parent / "fixtures" / "logs"
GIB: Final = 1 << 30
MIB: Final = 1 << 20


def read(text: str) -> StartLog:
    """What a log of these lines says."""
    return read_start_log(text.splitlines(), "server.log")


def fixture(name: str) -> str:
    """A log that was made by hand."""
    return (LOGS / name).read_text(encoding="utf-8")


def said(log: StartLog, unit: float = GIB) -> dict[str, float]:
    """Terms by name: sizes in GiB to four decimals, counts as they are; cells are left out."""
    return {
        term.name: term.value if term.name in COUNTS else round(term.value / unit, 4)
        for term in log.terms
        if not term.name.endswith("cells")
    }
