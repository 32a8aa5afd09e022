"""What a command has to say, before any output format: headings, tables, remarks, and the result itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roofcast.calculators.answer import Remarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people: text cells, the first column left-aligned, the rest as `left` says.

    Args:
        header: one name a column.
        rows: as many cells each.
        title: above it; empty for none.
        left: numbers of further columns that hold words.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    left: frozenset[int] = frozenset({0})


@dataclass(frozen=True, slots=True)
class Document:
    """One answer in every form that an output format may need.

    Args:
        command: the command's name; names the JSON schema.
        inputs: what was asked, defaults filled in.
        result: the dataclass of `calculators` that JSON prints.
        records: rows for CSV: dataclasses or mappings, flattened there.
        lines: sentences above the tables.
        tables: for people.
        remarks: assumptions, warnings and notes.
    """

    command: str
    inputs: Mapping[str, Any]
    result: Any
    records: Sequence[Any]
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    remarks: Remarks = field(default_factory=Remarks)


def table(header: Iterable[str], rows: Iterable[Iterable[str]], title: str = "", left: Iterable[int] = (0,)) -> Table:
    r"""A table whose cells are plain, printable text: names come from outside.

    >>> table(["model"], [["a\x1b[31mb"]]).rows
    (('a?[31mb',),)
    """
    return Table(tuple(header), tuple(tuple(plain(cell) for cell in row) for row in rows), title, frozenset(left))


def plain(text: str) -> str:
    """Text without line breaks and control characters, which could forge lines or move the cursor."""
    return "".join(character if character.isprintable() else "?" for character in text)
