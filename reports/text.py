"""Text for terminals and pipes."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from roofcast.reports.document import Document, Table

UNBOUNDED = 10_000  # columns of a pipe or file: nothing is wrapped there


def render_text(document: Document, *, terminal: bool = False) -> str:
    """The document as text; `terminal` allows styles and wraps at the terminal's width."""
    from rich.console import Console  # noqa: PLC0415 - rich costs start-up time that JSON need not pay

    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=terminal,
        no_color=bool(os.environ.get("NO_COLOR")),
        width=None if terminal else UNBOUNDED,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=True,
    )
    for line in document.lines:
        console.print(line)
    for number, table in enumerate(document.tables):
        if number or document.lines:
            console.print()
        _print_table(console, table)
    for number, line in enumerate(_remark_lines(document)):
        if not number:
            console.print()
        console.print(line)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _print_table(console: Console, table: Table) -> None:
    from rich import box  # noqa: PLC0415
    from rich.table import Table as Grid  # noqa: PLC0415

    if table.title:
        console.print(table.title, style="bold")
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for number, name in enumerate(table.header):
        words = number in table.left
        grid.add_column(name, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for row in table.rows:
        grid.add_row(*row)
    console.print(grid, soft_wrap=False)


def _remark_lines(document: Document) -> Iterator[str]:
    """Notes first, then what was assumed, then warnings."""
    remarks = document.remarks
    yield from remarks.notes
    yield from (f"assumed: {line}" for line in remarks.assumptions)
    yield from (f"warning: {line}" for line in remarks.warnings)
