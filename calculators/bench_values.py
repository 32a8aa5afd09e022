"""Values out of a stranger's record: numbers, counts and words, or one line that names the place that is wrong."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.measurement import MeasurementFileError
from roofcast.modelspec.strictjson import short

if TYPE_CHECKING:
    from collections.abc import Mapping

LARGEST: Final = 1e15  # of any number here: tokens, or bytes of no file that anyone has
LONGEST: Final = 1000  # characters of a word
_NUMBER: Final = r"[-+]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][-+]?\d{1,3})?"
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
        raise MeasurementFileError(f"{where} is {shown(value)}; it must be a number, 0 or more")
    return found


def positive(value: object, where: str) -> float | None:
    """A number above 0; None of nothing and of 0, which tools write for what they did not measure."""
    return number(value, where) or None


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

    >>> seconds({"unit": "ms", "avg": "12"}, "avg", "f: ttft")
    0.012
    """
    value = positive(at(record, key), f"{where}: {key}")
    if value is None:
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
