"""Text for terminals and pipes: aligned columns, no cell wrapped or cut, so that no digit is ever lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from roofcast.reports.document import GAP, Table, grouped, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roofcast.reports.document import Document, Section

COLUMNS: Final = 80  # of a terminal
LEAST_WIDTH: Final = 10  # characters below which no line is broken
RULE: Final = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
BOLD: Final = ("\x1b[1m", "\x1b[0m")
NO_STYLE: Final = ("", "")


def render_text(document: Document, *, style: tuple[str, str] = NO_STYLE, width: int | None = None) -> str:
    """The document as text.

    Args:
        document: what to write.
        style: opens and closes headings, on terminals that show them.
        width: characters of a terminal's line, at which remarks go on below; None leaves each on one line.
    """
    blocks = [
        list(document.lines),
        *_tables(document, style),
        *(block for section in document.sections for block in _section(section, style, width)),
    ]
    blocks.append([line for remark in _remark_lines(document) for line in _wrapped(remark, width)])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _section(section: Section, style: tuple[str, str], width: int | None) -> Iterator[list[str]]:
    """A part of a report: its title, what it comes to, lines, tables and notes; what was assumed stands at the end of all."""
    yield [style[0] + section.title.upper() + style[1], *_wrapped(section.lead, width)]
    yield list(section.document.lines)
    yield from _tables(section.document, style)
    yield [line for note in grouped(section.document.remarks.notes) for line in _wrapped(plain(note), width)]


def _tables(document: Document, style: tuple[str, str]) -> Iterator[list[str]]:
    yield from (list(_table(part, style)) for table in document.tables for part in fitting(table))


def fitting(table: Table) -> list[Table]:
    """A table as several that fit on a terminal, where it may be broken; each has the columns that name a row again.

    >>> from roofcast.reports.document import table
    >>> wide = table(("model", "a" * 40, "b" * 40, "c"), [], breaks=(2, 3))
    >>> [part.width for part in fitting(wide)]
    [47, 50]
    """
    if table.width <= COLUMNS or not table.breaks:
        return [table]
    parts: list[list[int]] = []
    keys = list(range(table.keys))
    for start, end in pairwise((table.keys, *table.breaks, len(table.header))):
        group = list(range(start, end))
        if parts and _only(table, [*parts[-1], *group]).width <= COLUMNS:
            parts[-1] += group
        else:
            parts.append([*keys, *group])
    first, *more = (_only(table, part) for part in parts)
    return [first, *(replace(part, title="") for part in more)]


def _only(table: Table, columns: Sequence[int]) -> Table:
    header = tuple(table.header[column] for column in columns)
    rows = tuple(tuple(row[column] for column in columns) for row in table.rows)
    left = frozenset(number for number, column in enumerate(columns) if column in table.left)
    return Table(header, rows, table.title, left)


def _table(table: Table, style: tuple[str, str]) -> Iterator[str]:
    """Title, header, a rule and the rows; columns as wide as their widest cell."""
    headings, widths = _heading_lines(table.header), table.widths
    if table.title:
        yield style[0] + table.title + style[1]
    for heading in headings:
        yield style[0] + _row(heading, widths, table.left) + style[1]
    yield RULE * table.width
    for row in table.rows:
        yield _row(row, widths, table.left)


def _heading_lines(header: Sequence[str]) -> list[tuple[str, ...]]:
    """Headings broken where they say so, each resting on the rule."""
    parts = [name.split("\n") for name in header]
    height = max(map(len, parts))
    return list(zip(*([""] * (height - len(part)) + part for part in parts), strict=True))


def _row(cells: Sequence[str], widths: Sequence[int], left: frozenset[int]) -> str:
    padded = (
        cell.ljust(width) if number in left else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return (" " * GAP).join(padded).rstrip()


def _wrapped(remark: str, width: int | None) -> list[str]:
    """A remark on lines of a terminal, broken between words; those that follow the first are set in.

    >>> _wrapped("times are bounds", 12)
    ['times are', '  bounds']
    """
    if width is None or len(remark) <= width:
        return [remark]
    return wrap(remark, max(width, LEAST_WIDTH), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _remark_lines(document: Document) -> Iterator[str]:
    """Notes first, then what was assumed, then warnings."""
    remarks = document.remarks
    yield from map(plain, grouped(remarks.notes))
    yield from (f"assumed: {plain(line)}" for line in grouped(remarks.assumptions))
    yield from (f"warning: {plain(line)}" for line in grouped(remarks.warnings))
