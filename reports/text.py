"""Text for terminals and pipes: aligned columns, nothing wrapped or cut, so that no digit is ever lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.reports.document import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roofcast.reports.document import Document, Table

GAP: Final = "  "
RULE: Final = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"
BOLD: Final = ("\x1b[1m", "\x1b[0m")
NO_STYLE: Final = ("", "")


def render_text(document: Document, *, style: tuple[str, str] = NO_STYLE) -> str:
    """The document as text; `style` opens and closes headings, on terminals that show them."""
    blocks = [list(document.lines), *(list(_table(table, style)) for table in document.tables)]
    blocks.append(list(_remark_lines(document)))
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _table(table: Table, style: tuple[str, str]) -> Iterator[str]:
    """Title, header, a rule and the rows; columns as wide as their widest cell."""
    headings = _heading_lines(table.header)
    widths = [max(map(len, column)) for column in zip(*headings, *table.rows, strict=True)]
    if table.title:
        yield style[0] + table.title + style[1]
    for heading in headings:
        yield style[0] + _row(heading, widths, table.left) + style[1]
    yield RULE * (sum(widths) + len(GAP) * (len(widths) - 1))
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
    return GAP.join(padded).rstrip()


def _remark_lines(document: Document) -> Iterator[str]:
    """Notes first, then what was assumed, then warnings."""
    remarks = document.remarks
    yield from map(plain, remarks.notes)
    yield from (f"assumed: {plain(line)}" for line in remarks.assumptions)
    yield from (f"warning: {plain(line)}" for line in remarks.warnings)
