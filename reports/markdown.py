"""Markdown for pull requests and documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.reports.document import grouped, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofcast.reports.document import Document, Table

_ESCAPED = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|#"})


def render_markdown(document: Document) -> str:
    """The document as GitHub Markdown; names from outside are escaped."""
    remarks = document.remarks
    blocks = ["\n".join(f"{_escape(line)}  " for line in document.lines).rstrip()] if document.lines else []
    for table in document.tables:
        if table.title:
            blocks.append(f"**{_escape(table.title)}**")
        blocks.append("\n".join(_rows(table)))
    notes = [
        *grouped(remarks.notes),
        *(f"assumed: {line}" for line in grouped(remarks.assumptions)),
        *(f"warning: {line}" for line in grouped(remarks.warnings)),
    ]
    if notes:
        blocks.append("\n".join(f"- {_escape(line)}" for line in notes))
    return "\n\n".join(blocks) + "\n"


def _rows(table: Table) -> Iterator[str]:
    yield _row(tuple(name.replace("\n", " ") for name in table.header))
    yield "|" + "|".join("---" if number in table.left else "---:" for number in range(len(table.header))) + "|"
    yield from map(_row, table.rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(map(_escape, cells)) + " |"


def _escape(text: str) -> str:
    return plain(text).translate(_ESCAPED)
