"""One row of a trace: what its cells say, fast where they are plain, and in words where they are wrong."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

MOST_TOKENS: Final = 1 << 30
LATEST: Final = 1e12  # s: no clock counts further
LONGEST: Final = 1e9  # s, 32 years: from a trace's first request to its last; further on a float tells no microsecond
SHOWN: Final = 40  # characters of a cell in a complaint
MILLISECONDS: Final = 1000.0  # in a second
_STAMP: Final = re.compile(
    r"(?P<minute>\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(?P<seconds>\d\d(?:\.\d{1,12})?)(?:Z|(?P<offset>[+-]\d\d:?\d\d))?",
    re.ASCII,
)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - stamps are read without a zone, and the offset taken off
_MINUTE: Final = 17  # characters of a stamp before its seconds
_MOST_SECONDS: Final = 61  # of a minute, with a leap second
_WHOLE: Final = re.compile(r"\d{1,12}(?:\.0*)?", re.ASCII)


def minute_of(minute: str, offset: str | None) -> int:
    """Seconds since 1970 of a minute; without an offset it is taken as UTC. [s]

    Raises:
        ValueError: there is no such minute.

    >>> minute_of("1970-01-02 00:00", None), minute_of("1970-01-02T01:30", "+01:30")
    (86400, 86400)
    """
    start = (datetime.fromisoformat(minute) - _EPOCH) // timedelta(seconds=1)
    if not offset:
        return start
    shift = (int(offset[1:3]) * 60 + int(offset[-2:])) * 60
    return start + shift if offset[0] == "-" else start - shift


@dataclass(slots=True)
class Stamps:
    """Dates with times as seconds from the first one's minute on, which keeps all their digits.

    Args:
        minute: the last one that was read, with its colon, since many rows have the same; empty after an offset.
        key: the same with its offset.
        start: when it begins. [s]
        first: the first stamp's minute, since 1970. [s]
    """

    minute: str = ""
    key: str = ""
    start: int = 0
    first: int | None = None

    def __call__(self, text: str) -> float:
        """Seconds since the first stamp's minute. [s]

        Raises:
            ValueError: it is no date with a time.

        >>> clock = Stamps()
        >>> clock("2023-11-16 18:17:03.9799600"), clock("2023-11-16 18:18:04.0319600+00:00")
        (3.97996, 64.03196)
        """
        if text[:_MINUTE] == self.minute:
            try:
                seconds = float(text[_MINUTE:])
            except ValueError:  # an offset
                return self._anew(text)
            if 0 <= seconds < _MOST_SECONDS:
                return self.start + seconds
        return self._anew(text)

    def _anew(self, text: str) -> float:
        """A stamp of another minute, or with an offset."""
        match = _STAMP.fullmatch(text)
        if match is None:
            raise ValueError(text)
        minute, rest, offset = match.groups()
        seconds = float(rest)
        if seconds >= _MOST_SECONDS:
            raise ValueError(text)
        key = minute + offset if offset else minute
        if key != self.key:
            start = minute_of(minute, offset)
            if self.first is None:
                self.first = start
            self.key, self.start = key, start - self.first
            self.minute = "" if offset else f"{minute}:"
        return self.start + seconds


@dataclass(frozen=True, slots=True)
class Columns:
    """How a trace calls what is read of it.

    Args:
        time: when a request comes.
        prompt: its tokens that are read.
        output: its tokens that are made.
        hashes: ids of its prompt's blocks; None where it has none.
    """

    time: str
    prompt: str
    output: str
    hashes: str | None = None

    @property
    def needed(self) -> tuple[str, str, str]:
        """Those that every row must have."""
        return self.time, self.prompt, self.output


def cells_of(line: str, where: str) -> list[str]:
    """Cells of a line with commas; quotes are read as CSV has them.

    Raises:
        UsageError: a quote that does not end.

    >>> cells_of('0.5, 1024 ,"7"', "x.csv: line 2")
    ['0.5', '1024', '7']
    """
    if '"' not in line:
        return [cell.strip() for cell in line.split(",")]
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True, strict=True))]
    except csv.Error as error:
        raise UsageError(f"{where} is no row of CSV ({error})") from error


def shown(cell: object) -> str:
    """A cell as a complaint repeats it, cut where it is long.

    >>> shown("12x"), shown(1.5), shown("9" * 100)
    ("'12x'", '1.5', "'9999999999999999999999999999999999999999'...")
    """
    if isinstance(cell, str):
        return repr(cell) if len(cell) <= SHOWN else f"{cell[:SHOWN]!r}..."
    try:
        text = str(cell)
    except ValueError:  # an integer of thousands of digits
        return "a huge number"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def tokens_of(cell: object, column: str, where: str) -> int:
    """A cell's tokens, 0 included.

    Raises:
        UsageError: it is no whole number, or none that a request can have.

    >>> tokens_of("374", "ContextTokens", "x.csv: line 2"), tokens_of("374.0", "ContextTokens", "x.csv: line 2")
    (374, 374)
    """
    if cell is None or cell == "":
        raise UsageError(f"{where}: {column} is empty; it must be a whole number of tokens")
    number = cell
    if isinstance(cell, str):
        plain = cell.strip()
        number = int(float(plain)) if _WHOLE.fullmatch(plain) else _as_number(plain)
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number != number:  # noqa: PLR0124 - NaN
        raise UsageError(f"{where}: {column} is {shown(cell)}; it must be a whole number of tokens")
    if number < 0:
        raise UsageError(f"{where}: {column} is {shown(cell)}; tokens cannot be negative")
    if number > MOST_TOKENS:
        raise UsageError(f"{where}: {column} is {shown(cell)}; a request has at most {MOST_TOKENS:,} tokens")
    if number != int(number):
        raise UsageError(f"{where}: {column} is {shown(cell)}; it must be a whole number of tokens")
    return int(number)


def _as_number(text: str) -> float | None:
    """A text's number, infinite and negative ones too; None where it is none."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def refuse_time(cell: object, column: str, where: str, *, dated: bool) -> NoReturn:
    """Says what is wrong with a time that cannot be.

    Raises:
        UsageError: always.
    """
    right = "a date with a time, such as 2023-11-16 18:15:46.6805900" if dated else "a number that is not negative"
    if cell is None or cell == "":
        raise UsageError(f"{where}: {column} is empty; it must be {right}")
    number = _as_number(cell) if isinstance(cell, str) else cell
    if not dated and isinstance(number, (int, float)) and not isinstance(number, bool):
        if number < 0:
            raise UsageError(f"{where}: {column} is {shown(cell)}; a time cannot be negative")
        if isinstance(number, int) or math.isfinite(number):
            raise UsageError(f"{where}: {column} is {shown(cell)}; no time is so late")
    raise UsageError(f"{where}: {column} is {shown(cell)}; it must be {right}")


def refuse_order(early: float, column: str, where: str) -> NoReturn:
    """Says that a request comes `early` seconds before the one above it.

    Raises:
        UsageError: always.
    """
    raise UsageError(f"{where}: {column} is {early:.6g} s before the row above; sort the rows by {column}")


def check_blocks(ids: Sequence[object], prompt: int, hash_tokens: int, column: str, where: str) -> None:
    """Refuses ids that are no whole numbers, and more than the prompt has blocks.

    Raises:
        UsageError: naming the row.
    """
    for each in ids:
        if type(each) is not int:
            raise UsageError(f"{where}: {column} has {shown(each)}; ids of blocks must be whole numbers")
    blocks = -(-prompt // hash_tokens)
    if len(ids) > blocks:
        raise UsageError(
            f"{where}: {column} has {len(ids):,} ids, but {prompt:,} tokens are {blocks:,} blocks of {hash_tokens:,}"
        )
