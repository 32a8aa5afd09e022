"""Text of a strange file: bytes to text, text to JSON values, CSV rows and fields of YAML; one line where it is none."""

from __future__ import annotations

import codecs
import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from roofcast.calculators.measurement import MeasurementFileError
from roofcast.modelspec.strictjson import plain, quoted

LARGEST: Final = 256_000_000  # bytes of a file: reports that hold every request are long
LARGEST_YAML: Final = 1_000_000  # characters; YAML is slow to read
MOST_ROWS: Final = 200_000  # of a file
_END: Final = "\x1f"  # stands in no text of a table
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_UTF16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # what PowerShell's > writes


def decode(data: bytes, name: str) -> str:
    r"""Text of a file's bytes.

    Args:
        data: at most `LARGEST` bytes; one more tells that there are more.
        name: as messages name it.

    Raises:
        MeasurementFileError: too large, or no text.

    >>> decode(b"\x1f\x8b\x08", "b.json.gz")
    Traceback (most recent call last):
    roofcast.calculators.measurement.MeasurementFileError: b.json.gz: no text (byte 1 is 0x8b); it must be JSON, CSV, YAML or Markdown
    """
    where = plain(name)
    if len(data) > LARGEST:
        raise MeasurementFileError(
            f"{where}: is larger than {LARGEST // 1_000_000} MB; save it without single requests"
        )
    try:
        text = data.decode("utf-16" if data.startswith(_UTF16) else "utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is {data[error.start]:#04x}"
        raise MeasurementFileError(f"{where}: no text ({found}); it must be JSON, CSV, YAML or Markdown") from error
    if "\0" in text:
        raise MeasurementFileError(f"{where}: no text (it holds NUL); it must be JSON, CSV, YAML or Markdown")
    return text


def json_values(text: str, name: str) -> list[Any]:
    r"""JSON values one after the other: one, one a line, or what a tool appended to its last run.

    Raises:
        MeasurementFileError: it is not JSON, cut short, nested too deeply, or a key has two values.

    >>> json_values('{"a": 1}\n{"a": 2}', "f")
    [{'a': 1}, {'a': 2}]
    """
    where = plain(name)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(items)
        if len(entries) < len(items):
            _refuse_repeats(items, where)
        return entries

    decoder = json.JSONDecoder(object_pairs_hook=pairs)
    values: list[Any] = []
    place = _skip(text, 0)
    try:
        while place < len(text) and len(values) <= MOST_ROWS:
            value, place = decoder.raw_decode(text, place)
            values.append(value)
            place = _skip(text, place)
    except json.JSONDecodeError as error:
        raise MeasurementFileError(f"{where}: not JSON ({error}); was it cut short?") from error
    except RecursionError as error:
        raise MeasurementFileError(f"{where}: nested too deeply to be read") from error
    except MeasurementFileError:
        raise
    except ValueError as error:  # int() takes no more digits than sys.get_int_max_str_digits()
        raise MeasurementFileError(f"{where}: not JSON (a number in it has thousands of digits)") from error
    if len(values) > MOST_ROWS:
        raise MeasurementFileError(f"{where}: has more than {MOST_ROWS:,} values of JSON; give a part")
    return values


def _skip(text: str, place: int) -> int:
    """The next place that holds anything."""
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _refuse_repeats(items: list[tuple[str, Any]], where: str) -> None:
    seen: dict[str, Any] = {}
    for key, value in items:
        if key in seen and repr(seen[key]) != repr(value):
            raise MeasurementFileError(f"{where}: the key {quoted(key)} occurs twice; it must occur once")
        seen[key] = value


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of CSV.

    Args:
        rows: by the names of the first row; empty cells are left out.
        short: numbers of those with fewer cells than there are names, or whose last quote is open; from 1.
    """

    rows: list[dict[str, str]]
    short: list[int]


def csv_rows(text: str, name: str) -> Table:
    r"""Rows of CSV by the names of its first row.

    Raises:
        MeasurementFileError: a row has more cells than there are names, a name occurs twice, a quote runs over lines to the
            end, or there are too many rows.

    >>> csv_rows("a,b\n1,\n2\n", "f")
    Table(rows=[{'a': '1'}, {'a': '2'}], short=[2])
    """
    where, lines = plain(name), text.strip().splitlines()
    table = Table([], [])
    reader = csv.reader([*lines, _END])  # an open quote takes the end in
    try:
        names = _names(next(reader), where)
        start = reader.line_num
        for cells in reader:
            is_open = reader.line_num > len(lines) and cells != [_END]
            if is_open and start < len(lines) - 1:
                raise MeasurementFileError(f"{where}: line {start + 1} has a quote that is not closed")
            if is_open:
                cells[-1] = cells[-1].removesuffix(_END)
            if cells and cells != [_END]:
                _add(table, names, cells, where)
            if is_open and table.short[-1:] != [len(table.rows)]:
                table.short.append(len(table.rows))
            start = reader.line_num
    except csv.Error as error:
        raise MeasurementFileError(f"{where}: not CSV ({error})") from error
    return table


def _names(cells: list[str], where: str) -> list[str]:
    """Names of columns, each once."""
    names = [cell.strip() for cell in cells]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise MeasurementFileError(f"{where}: the column {quoted(twice)} occurs twice; it must occur once")
    return names


def _add(table: Table, names: list[str], cells: list[str], where: str) -> None:
    """One row more."""
    number = len(table.rows) + 1
    if len(cells) > len(names):
        raise MeasurementFileError(
            f"{where}: row {number} has more cells than the first row has names; quote cells with commas"
        )
    if number > MOST_ROWS:
        raise MeasurementFileError(f"{where}: has more than {MOST_ROWS:,} rows; give a part")
    table.rows.append({name: cell for name, cell in zip(names, cells, strict=False) if cell.strip()})
    if len(cells) < len(names):
        table.short.append(number)


def yaml_fields(text: str, name: str) -> dict[str, Any]:
    """Fields of a YAML mapping, without anchors, aliases or tags.

    Raises:
        MeasurementFileError: it is none.

    >>> yaml_fields("schema: roofcast.measurements/1", "f")
    {'schema': 'roofcast.measurements/1'}
    """
    from roofcast.hwdb.files import AcceleratorFileError, read_yaml  # noqa: PLC0415 - few files are YAML

    where = plain(name)
    if len(text) > LARGEST_YAML:
        raise MeasurementFileError(f"{where}: more than {LARGEST_YAML // 1_000_000} MB of YAML; write it as JSON")
    try:
        return read_yaml(Path("file"), text)
    except AcceleratorFileError as error:
        problem = str(error).removeprefix("file: ").partition("; it must map")[0].replace("\n", " ")
        raise MeasurementFileError(f"{where}: {problem}") from error
