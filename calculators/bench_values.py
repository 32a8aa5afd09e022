"""Values out of a stranger's record: numbers, counts and words, or one line that names the place that is wrong."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roofcast.calculators.measurement import MeasurementFileError
from roofcast.modelspec.strictjson import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LARGEST: Final = 1e15  # of any number here: tokens, or bytes of no file that anyone has
LEAST: Final = 1e-9  # of a measured one, in whatever unit; below it are residues of arithmetic
MOST_COUNTED: Final = 10**9  # requests, devices, repeats
MOST_PLACES: Final = 3  # that a remark names
LONGEST: Final = 1000  # characters of a word
_NUMBER: Final = r"[-+]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][-+]?\d{1,3})?"
Record = TypeVar("Record")
SECONDS: Final[Mapping[str, float]] = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def at(record: object, *path: str) -> Any:  # noqa: ANN401 - a file may hold anything
    """What lies under these keys; None where one of them is not there.

    >>> at({"a": {"b": 1}}, "a", "b"), at({"a": []}, "a", "b")
    (1, None)
    """
    found = record
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def first(record: object, *paths: str) -> Any:  # noqa: ANN401 - a file may hold anything
    """What lies under the first of these dotted paths that is there.

    >>> first({"args": {"model": "m"}}, "config.model", "args.model")
    'm'
    """
    return next((found for path in paths if (found := at(record, *path.split("."))) is not None), None)


def number(value: object, where: str) -> float | None:
    """A number, 0 or more; text of one counts. None of nothing.

    Args:
        value: as found.
        where: its place, as the message names it.

    Raises:
        MeasurementFileError: it is none, infinite, or below 0.

    >>> number("7.5", "f: avg"), number(None, "f: avg")
    (7.5, None)
    >>> number(-1, "f: avg")
    Traceback (most recent call last):
    roofcast.calculators.measurement.MeasurementFileError: f: avg is -1; it must be a number, 0 or more
    """
    if value is None:
        return None
    found = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        found = math.inf if value > LARGEST else float(value)
    elif isinstance(value, str) and re.fullmatch(_NUMBER, value.strip()):
        found = float(value)
    if not 0 <= found <= LARGEST:
        must = f"at most {LARGEST:g}" if found > LARGEST and value != math.inf else "a number, 0 or more"
        raise MeasurementFileError(f"{where} is {shown(value)}; it must be {must}")
    return found


def positive(value: object, where: str) -> float | None:
    """A number above 0; None of nothing and of 0, which tools write for what they did not measure.

    Raises:
        MeasurementFileError: as of `number`, or it is too small to have been measured.

    >>> positive("7.5", "f: avg"), positive(0, "f: avg")
    (7.5, None)
    >>> positive(1e-320, "f: avg")
    Traceback (most recent call last):
    roofcast.calculators.measurement.MeasurementFileError: f: avg is 1e-320; it must be at least 1e-09
    """
    found = number(value, where)
    if found and found < LEAST:
        raise MeasurementFileError(f"{where} is {shown(value)}; it must be at least {LEAST:g}")
    return found or None


def whole(value: object, where: str, least: int = 1) -> int | None:
    """A whole number. None of nothing.

    Raises:
        MeasurementFileError: it is none, or below the least.

    >>> whole("8", "f: tp")
    8
    """
    found = number(value, where) if not isinstance(value, bool) else math.nan
    if found is None:
        return None
    if not found >= least or found != int(found):
        raise MeasurementFileError(f"{where} is {shown(value)}; it must be a whole number, {least} or more")
    if found > MOST_COUNTED:
        raise MeasurementFileError(f"{where} is {shown(value)}; it must be at most {MOST_COUNTED:,}")
    return int(found)


def word(value: object, where: str) -> str | None:
    """A name, on one line. None of nothing.

    Raises:
        MeasurementFileError: it is no text, empty, too long, or cannot be printed.

    >>> word(" llama ", "f: model")
    'llama'
    """
    if value is None:
        return None
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not text.strip():
        hint = "write it in quotes" if isinstance(text, float) else "it must be a name"
        raise MeasurementFileError(f"{where} is {shown(value)}; {hint}")
    text = text.strip()
    if len(text) > LONGEST or not text.isprintable():
        raise MeasurementFileError(f"{where} is {shown(value)}; it must be one line of at most {LONGEST:,} characters")
    return text


def shown(value: object) -> str:
    """A value as an error shows it, on one line of ASCII."""
    return ascii(value) if isinstance(value, float) else short(value).encode("ascii", "backslashreplace").decode()


def seconds(record: object, key: str, where: str) -> float | None:
    """A time in the unit that stands beside it, as `{"unit": "ms", "avg": 12}`; 0 is none. [s]

    Deviations are read by it too, which may be tiny: `bench_limits` says what a time may be.

    >>> seconds({"unit": "ms", "avg": "12"}, "avg", "f: ttft")
    0.012
    """
    value = number(at(record, key), f"{where}: {key}")
    if not value:
        return None
    unit = str(at(record, "unit") or "ms").lower()
    if unit not in SECONDS:
        raise MeasurementFileError(f"{where}: unit is {shown(unit)}; known: {', '.join(SECONDS)}")
    return value * SECONDS[unit]


def day(value: object) -> str | None:
    """The day of a date as tools write it: 2025-04-24T11:58:50Z, 20250424-115850; None of anything else.

    >>> day("20250424-115850"), day("2025-04-24T11:58:50Z"), day("today")
    ('2025-04-24', '2025-04-24', None)
    """
    match = re.match(r"(20\d\d)-?([01]\d)-?([0-3]\d)(?!\d)", value) if isinstance(value, str) else None
    return f"{match[1]}-{match[2]}-{match[3]}" if match else None


def counted(number_of: int, what: str) -> str:
    """A number of things, in words.

    >>> counted(1, "test"), counted(3, "test")
    ('1 test', '3 tests')
    """
    return f"{number_of:,} {what}{'' if number_of == 1 else 's'}"


def in_places(where: str, what: str, places: Sequence[int], said: str) -> tuple[str, ...]:
    """One remark of all places that it holds for; none of no place.

    Args:
        where: the file.
        what: a place is, as `run`.
        places: their numbers; 0 is all of a file that has only one.
        said: of each of them.

    >>> in_places("f", "run", [2], "no request was completed")
    ('f: run 2: no request was completed',)
    >>> in_places("f", "run", range(1, 3001), "no request was completed")
    ('f: 3,000 runs (1, 2, 3 ...): no request was completed',)
    """
    if len(places) > 1:
        named = ", ".join(str(place) for place in places[:MOST_PLACES])
        more = " ..." if len(places) > MOST_PLACES else ""
        return (f"{where}: {counted(len(places), what)} ({named}{more}): {said}",)
    return tuple(f"{where}: {what} {place}: {said}" if place else f"{where}: {said}" for place in places)


def numbered(records: Sequence[Record]) -> list[tuple[int, Record]]:
    """Records by their number, as `in_places` takes it: from 1, and 0 for the only one of a file.

    >>> numbered(["a"]), numbered(["a", "b"])
    ([(0, 'a')], [(1, 'a'), (2, 'b')])
    """
    return list(enumerate(records, 1 if len(records) > 1 else 0))
