"""Reads how often a server's drafted tokens were accepted from its log: vLLM's and SGLang's lines."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import TextIO

LARGEST: Final = 1_000_000_000  # bytes of a log
LONGEST_LINE: Final = 100_000  # characters
# fields by their names, whose order differs by version. Sources: vLLM 0.11, vllm/v1/spec_decode/metrics.py (the mean counts
# the target's own token, a position's share all rounds); SGLang 0.5, scheduler metrics (accept len likewise)
VLLM_MEAN: Final = r"Mean acceptance length: (?P<mean>[0-9]{1,4}\.[0-9]{1,9}|nan)"
VLLM_POSITIONS: Final = r"Per-position acceptance rate: (?P<shares>[0-9]\.[0-9]{1,9}(?:, [0-9]\.[0-9]{1,9}){0,255})"
VLLM_DRAFTED: Final = r"Drafted: (?P<drafted>[0-9]{1,12}) tokens"
SGLANG_MEAN: Final = r"accept len: (?P<mean>[0-9]{1,4}\.[0-9]{1,9})"


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


@dataclass(slots=True)
class _Sums:
    """What lines sum to, as they are read: a log may have millions."""

    lines: int = 0
    rounds: float = 0.0
    tokens: float = 0.0
    shares: tuple[float, ...] = ()

    def add(self, line: _Line) -> None:
        self.lines += 1
        self.rounds += line.rounds
        self.tokens += line.rounds * line.mean
        before = self.shares or (0.0,) * len(line.shares)
        self.shares = tuple(sum_ + line.rounds * share for sum_, share in zip(before, line.shares, strict=True))


def read_log(path: Path) -> Logged:
    """Acceptance over a whole log: means of its lines, of vLLM's weighted with the rounds that each counts. [-]

    Raises:
        UsageError: it cannot be read, says nothing of speculation, or mixes engines or draft lengths.
    """
    first, sums = None, _Sums()
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, text in _lines(file, path):
                line = _read(text, f"--log {path}: line {number:,}")
                if line is None:
                    continue
                first = first or line
                _check_alike(first, line, f"--log {path}: line {number:,}")
                sums.add(line)
    except OSError as error:
        raise UsageError(f"--log {path}: it cannot be read ({error.strerror})") from error
    if first is None:
        raise UsageError(
            f"--log {path}: no line says 'Mean acceptance length' (vLLM) or 'accept len' (SGLang) of a server that speculates"
        )
    shares = tuple(share / sums.rounds for share in sums.shares)
    tokens = 1 + math.fsum(shares) if shares else sums.tokens / sums.rounds
    return Logged(first.engine, sums.lines, tokens, shares)


def _lines(file: TextIO, path: Path) -> Iterator[tuple[int, str]]:
    """Lines that may say something, with their numbers; what has no end is not read to it."""
    size = 0
    for number in count(1):
        text = file.readline(LONGEST_LINE)
        if not text:
            return
        size += len(text)
        if size > LARGEST:
            raise UsageError(f"--log {path}: it has more than {LARGEST // 1_000_000:,} MB; give the part with the load")
        if "\0" in text:
            raise UsageError(f"--log {path}: line {number:,} is no text")
        if "cceptance length" in text or "accept len" in text:
            yield number, text


def _read(text: str, where: str) -> _Line | None:
    """What a line says; None of one that counts no round.

    Raises:
        UsageError: figures that cannot be.
    """
    if (found := re.search(VLLM_MEAN, text)) is not None:
        shares, drafted = re.search(VLLM_POSITIONS, text), re.search(VLLM_DRAFTED, text)
        listed = tuple(map(float, shares["shares"].split(", "))) if shares else ()
        rounds = int(drafted["drafted"]) / len(listed) if drafted and listed else 1.0
        line = _Line("vLLM", float(found["mean"]), listed, rounds)
    elif (found := re.search(SGLANG_MEAN, text)) is not None:
        line = _Line("SGLang", float(found["mean"]))
    else:
        return None
    if not (math.isfinite(line.mean) and line.rounds):
        return None
    wrong = next((share for share in line.shares if share > 1), None)
    if line.mean < 1 or wrong is not None:
        raise UsageError(
            f"{where} says {line.mean:g} tokens a round{'' if wrong is None else f', and a share of {wrong:g}'}: "
            "neither can be; give another part of the log"
        )
    return line


def _check_alike(first: _Line, line: _Line, where: str) -> None:
    """Refuses means over what is not alike."""
    if first.engine != line.engine:
        raise UsageError(f"{where} is of {line.engine}, earlier ones of {first.engine}; give the log of one server")
    if len(first.shares) != len(line.shares):
        raise UsageError(
            f"{where} tells {len(line.shares)} positions, earlier ones {len(first.shares)}; give the part of one draft length"
        )
