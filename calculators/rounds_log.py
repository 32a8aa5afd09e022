"""Reads how often a server's drafted tokens were accepted from its log: vLLM's and SGLang's lines."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

LARGEST: Final = 1_000_000_000  # bytes of a log
LONGEST_LINE: Final = 100_000  # characters
# fields by their names, whose order differs by version. Sources: vLLM 0.11, vllm/v1/spec_decode/metrics.py (the mean counts
# the target's own token, a position's share all rounds); SGLang 0.5, scheduler metrics (accept len likewise)
VLLM_MEAN: Final = r"Mean acceptance length: (?P<mean>\d+\.\d+|nan)"
VLLM_POSITIONS: Final = r"Per-position acceptance rate: (?P<shares>\d\.\d+(?:, \d\.\d+)*)"
VLLM_DRAFTED: Final = r"Drafted: (?P<drafted>\d+) tokens"
SGLANG_MEAN: Final = r"accept len: (?P<mean>\d+\.\d+)"


@dataclass(frozen=True, slots=True)
class Logged:
    """What a log says of acceptance, over all its lines.

    Args:
        engine: whose log it is.
        lines: that say anything.
        tokens: a round, the target's own among them: the mean. [token]
        by_position: shares of rounds that accept each position; empty of a log that does not tell. [-]
    """

    engine: str
    lines: int
    tokens: float
    by_position: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    engine: str
    mean: float
    shares: tuple[float, ...] = ()
    rounds: float = 1.0


def read_log(path: Path) -> Logged:
    """Acceptance over a whole log: means of its lines, of vLLM's weighted with the rounds that each counts. [-]

    Raises:
        UsageError: it cannot be read, says nothing of speculation, or mixes draft lengths.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"--log {path}: it has more than {LARGEST // 1_000_000:,} MB; give the part with the load")
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = [found for line in file if (found := _read(line[:LONGEST_LINE])) is not None]
    except OSError as error:
        raise UsageError(f"--log {path}: it cannot be read ({error.strerror})") from error
    if not lines:
        raise UsageError(
            f"--log {path}: no line says 'Mean acceptance length' (vLLM) or 'accept len' (SGLang) of a server that speculates"
        )
    return _together(lines, path)


def _read(line: str) -> _Line | None:
    if (found := re.search(VLLM_MEAN, line)) is not None:
        mean, shares = float(found["mean"]), re.search(VLLM_POSITIONS, line)
        listed = tuple(map(float, shares["shares"].split(", "))) if shares else ()
        drafted = re.search(VLLM_DRAFTED, line)
        rounds = int(drafted["drafted"]) / len(listed) if drafted and listed else 1.0
        return _Line("vLLM", mean, listed, rounds) if math.isfinite(mean) and rounds else None
    if (found := re.search(SGLANG_MEAN, line)) is not None:
        return _Line("SGLang", float(found["mean"]))
    return None


def _together(lines: list[_Line], path: Path) -> Logged:
    engine, lengths = lines[0].engine, sorted({len(line.shares) for line in lines})
    if len(lengths) > 1:
        said = " and ".join(map(str, lengths))
        raise UsageError(f"--log {path}: its lines have {said} positions; give the part of one draft length")
    weights = [line.rounds for line in lines]
    positions = range(lengths[0])
    shares = tuple(min(1.0, _mean((line.shares[at] for line in lines), weights)) for at in positions)
    tokens = 1 + math.fsum(shares) if shares else _mean((line.mean for line in lines), weights)
    return Logged(engine, len(lines), tokens, shares)


def _mean(values: Iterable[float], weights: list[float]) -> float:
    return math.fsum(value * weight for value, weight in zip(values, weights, strict=True)) / math.fsum(weights)
