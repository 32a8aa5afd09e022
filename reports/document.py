"""What a command has to say, before any output format: headings, tables, remarks, and the result itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roofcast.reports.charts import Chart

GAP: Final = 2  # blanks between columns


@dataclass(frozen=True, slots=True)
class Table:
    """A table for people: text cells, the first column left-aligned, the rest as `left` says.

    Args:
        header: one name a column.
        rows: as many cells each.
        title: above it; empty for none.
        left: numbers of further columns that hold words.
        breaks: numbers of columns before which text may go on in a table below, where the whole is too wide.
        keys: leading columns that name a row; a table below has them again.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    left: frozenset[int] = frozenset({0})
    breaks: tuple[int, ...] = ()
    keys: int = 1

    @property
    def widths(self) -> list[int]:
        """Characters of each column as text."""
        headings = (max(map(len, name.split("\n"))) for name in self.header)
        cells = (max((len(row[column]) for row in self.rows), default=0) for column in range(len(self.header)))
        return list(map(max, headings, cells))

    @property
    def width(self) -> int:
        """Characters of its longest row as text, two between columns."""
        return sum(self.widths) + GAP * (len(self.header) - 1)


@dataclass(frozen=True, slots=True)
class Made:
    """How a document came to be.

    Args:
        command: the line that made it, as a shell takes it.
        version: of roofcast.
        day: as 2026-11-30.
    """

    command: str
    version: str
    day: str


@dataclass(frozen=True, slots=True)
class Key:
    """A number that stands large above everything else.

    Args:
        name: what it is.
        value: with its unit.
        note: what belongs to it: an interval, a load.
    """

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a longer document.

    Args:
        key: its name in links and files, lower case.
        title: its heading.
        lead: what it comes to, in a sentence.
        document: its lines, tables, remarks and charts.
    """

    key: str
    title: str
    lead: str
    document: Document


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
        charts: drawn where the format has pictures; the first is the one of an image file.
        sections: parts with a heading each, of a report.
        made: how it came to be, where the format tells.
        keys: the numbers that matter most, where the format has room for them.
    """

    command: str
    inputs: Mapping[str, Any]
    result: Any
    records: Sequence[Any]
    lines: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    remarks: Remarks = field(default_factory=Remarks)
    charts: tuple[Chart, ...] = ()
    sections: tuple[Section, ...] = ()
    made: Made | None = None
    keys: tuple[Key, ...] = ()


def made_words(made: Made) -> str:
    """How a document came to be, in a line.

    >>> made_words(Made("roofcast kv gpt2", "0.1.0", "2026-11-30"))
    'roofcast 0.1.0 on 2026-11-30: roofcast kv gpt2'
    """
    return f"roofcast {made.version} on {made.day}: {made.command}"


def table(
    header: Iterable[str],
    rows: Iterable[Iterable[str]],
    title: str = "",
    left: Iterable[int] = (0,),
    breaks: Iterable[int] = (),
    keys: int = 1,
) -> Table:
    r"""A table whose cells are plain, printable text: names come from outside.

    >>> table(["model"], [["a\x1b[31mb"]]).rows
    (('a?[31mb',),)
    """
    cells = tuple(tuple(plain(cell) for cell in row) for row in rows)
    return Table(tuple(header), cells, title, frozenset(left), tuple(breaks), keys)


def grouped(lines: Iterable[str]) -> list[str]:
    """Remarks with those that are alike but for the name before their colon as one, where the first of them stood.

    >>> grouped(["a: no dtype", "b: two heads", "c: no dtype", "d: no dtype", "a note"])
    ['a, c and d: no dtype', 'b: two heads', 'a note']
    """
    named: dict[tuple[bool, str], list[str]] = {}
    for line in lines:
        name, colon, said = line.partition(": ")
        named.setdefault((bool(colon), said if colon else line), []).append(name)
    return [f"{listed(names)}: {said}" if colon else said for (colon, said), names in named.items()]


def listed(names: Sequence[str]) -> str:
    """Names as a sentence lists them, each once.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    *most, last = dict.fromkeys(names)
    return f"{', '.join(most)} and {last}" if most else last


def plain(text: str) -> str:
    r"""Text without line breaks and control characters, which could forge lines or move the cursor.

    `##[` begins a command to the runners of GitHub's and Azure's workflows, wherever it stands in a line.

    >>> plain("a\nb ##[group]c")
    'a?b # #[group]c'
    """
    return "".join(character if character.isprintable() else "?" for character in text).replace("##[", "# #[")
