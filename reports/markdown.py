"""Markdown for pull requests and documents."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING
from urllib.parse import quote

from roofcast.reports.document import grouped, made_words, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roofcast.reports.document import Document, Section, Table

_ESCAPED = str.maketrans({c: f"\\{c}" for c in "\\`*_[]<>|#&~$"})


def render_markdown(document: Document) -> str:
    """The document as GitHub Markdown; names from outside are escaped."""
    lines, remarks = list(map(_escape, document.lines)), document.remarks
    if document.sections and lines:
        lines[0] = f"**{lines[0]}**"
    blocks = ["\n".join(f"{line}  " for line in lines).rstrip()] if lines else []
    blocks += _keys(document)
    blocks += _tables(document)
    blocks += (block for section in document.sections for block in _section(section))
    said = (
        *grouped(remarks.notes),
        *(f"assumed: {line}" for line in grouped(remarks.assumptions)),
        *(f"warning: {line}" for line in grouped(remarks.warnings)),
    )
    blocks += _listed(said)
    if document.sections and document.made:
        blocks.append(f"<sub>{_escape(made_words(document.made))}</sub>")
    return "\n\n".join(blocks) + "\n"


def _keys(document: Document) -> Iterator[str]:
    """The numbers that matter most, side by side."""
    if document.keys:
        names, values, notes = zip(*((key.name, key.value, key.note) for key in document.keys), strict=True)
        yield "\n".join((_row(names), "|" + "---|" * len(names), _row(values), _row(notes)))


def _section(section: Section) -> Iterator[str]:
    """A part of a report, folded; what was assumed stands at the end of all."""
    yield f"<details><summary><b>{escape(section.title)}</b>: {escape(plain(section.lead))}</summary>"
    if section.document.lines:
        yield "\n".join(f"{_escape(line)}  " for line in section.document.lines).rstrip()
    yield from (f"![{_escape(chart.says)}]({_linked(chart.file)})" for chart in section.document.charts if chart.file)
    yield from _tables(section.document)
    yield from _listed(grouped(section.document.remarks.notes))
    yield "</details>"


def _linked(file: str) -> str:
    """A file as the target of a link.

    >>> _linked("my charts/kv.png")
    'my%20charts/kv.png'
    """
    return quote(file, safe="/.-_~")


def _tables(document: Document) -> Iterator[str]:
    for table in document.tables:
        if table.title:
            yield f"**{_escape(table.title)}**"
        yield "\n".join(_rows(table))


def _listed(lines: Sequence[str]) -> list[str]:
    return ["\n".join(f"- {_escape(line)}" for line in lines)] if lines else []


def _rows(table: Table) -> Iterator[str]:
    yield _row(tuple(name.replace("\n", " ") for name in table.header))
    yield "|" + "|".join("---" if number in table.left else "---:" for number in range(len(table.header))) + "|"
    yield from map(_row, table.rows)


def _row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(map(_escape, cells)) + " |"


def _escape(text: str) -> str:
    return plain(text).translate(_ESCAPED)
