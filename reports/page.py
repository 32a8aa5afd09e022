"""One document as one web page: no script, nothing loaded, charts drawn in it. Text from outside stays text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks
from roofcast.calculators.planning.rows import PlanResult
from roofcast.reports.document import grouped, plain
from roofcast.reports.page_formulas import formulas
from roofcast.reports.theme import DARK, LIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jinja2 import Environment
    from markupsafe import Markup

    from roofcast.reports.document import Document, Section, Table
    from roofcast.reports.page_formulas import Formula
    from roofcast.reports.page_svg import Drawing
    from roofcast.reports.theme import Theme

TEMPLATE: Final = "page.html.j2"
STYLE: Final = "page.css"
NARROW: Final = 44  # characters of a table that a telephone shows whole
SHORT: Final = 20  # rows of a table that is not parted in print
BROAD: Final = 96  # characters of a table that paper has room for
LONG: Final = 28  # characters from which on a cell is broken into lines
CODE: Final = re.compile(r"(`[^`]+`|(?<![\w-])--[a-z][a-z-]*[a-z])")
# status -> whether it is good
STATUSES: Final[Mapping[str, bool]] = {"fits": True, "meets": True, "misses": False, "does not fit": False}
# what a document without a first line is named after
SUBJECTS: Final = ("model", "models", "names", "gpus", "files")


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Args:
        text: what it says.
        kind: words, long where they may be broken, or number.
        heads: whether it names its row.
    """

    text: str
    kind: str
    heads: bool = False


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of a page.

    Args:
        key: its name in the page.
        title: its caption.
        shown: whether the caption is to be seen; else it is for those who listen.
        header: of columns.
        rows: as many cells each.
        wide: whether it may have to be scrolled.
        short: whether it stays on one page in print.
        broad: whether paper is too narrow for it.
    """

    key: str
    title: str
    shown: bool
    header: tuple[Cell, ...]
    rows: tuple[tuple[Cell, ...], ...]
    wide: bool
    short: bool
    broad: bool


@dataclass(frozen=True, slots=True)
class Part:
    """A section of a page, or the body of one without sections.

    Args:
        key: its name in links.
        title: its heading; empty for none.
        lead: what it comes to.
        lines: sentences.
        drawings: charts.
        grids: tables.
        formulas: of its numbers.
        remarks: alike ones together.
    """

    key: str
    title: str
    lead: str
    lines: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    grids: tuple[Grid, ...]
    formulas: tuple[Formula, ...]
    remarks: Remarks


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked: settings with a value, and names of those that were left alone."""

    given: tuple[tuple[str, str], ...]
    left: tuple[str, ...]


def render_page(document: Document) -> str:
    """A document as one HTML file.

    Raises:
        UsageError: charts cannot be drawn, as matplotlib does not start.
    """
    from markupsafe import Markup

    environment = _environment()
    parts = list(_parts(document))
    page = environment.get_template(TEMPLATE).render(
        document=document,
        headline=_headline(document),
        status=_status(document),
        good=STATUSES,
        body=parts[0],
        sections=parts[1:],
        remarks=_grouped(_all_remarks(document)),
        asked=_asked(document.inputs),
        style=Markup(environment.get_template(STYLE).render(light=_colours(LIGHT), dark=_colours(DARK))),  # noqa: S704 - ours
        ours=Markup,
        bits=_bits,
    )
    return page.rstrip() + "\n"


@cache
def _environment() -> Environment:
    """Templates that escape whatever they are given, and that fail where something is missing; compiled once."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    folder = files("roofcast.reports") / "templates"

    def source(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    return Environment(
        loader=FunctionLoader(source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def _printable(value: object) -> object:
    """What is printed without control characters and marks that turn text around; markup of ours stays as it is."""
    return value if hasattr(value, "__html__") else plain(str(value))


def _colours(theme: Theme) -> Markup:
    from markupsafe import Markup

    from roofcast.reports.page_svg import variables  # noqa: PLC0415 - likewise

    return Markup(variables(theme))  # noqa: S704 - ours


def _bits(text: str) -> list[tuple[bool, str]]:
    """A text in parts, those that are code marked: options, and what stands between backticks.

    >>> _bits("of `tp`: --gpu names one")
    [(False, 'of '), (True, 'tp'), (False, ': '), (True, '--gpu'), (False, ' names one')]
    """
    parts = CODE.split(text)
    return [(number % 2 == 1, part.strip("`") if number % 2 else part) for number, part in enumerate(parts) if part]


def _headline(document: Document) -> str:
    """The first line, or what the document is of."""
    if document.lines:
        return document.lines[0]
    subject = next((_shown(document.inputs[name]) for name in SUBJECTS if document.inputs.get(name)), "")
    return f"{document.command}: {subject}" if subject else f"roofcast {document.command}"


def _status(document: Document) -> str | None:
    """What the verdict comes to, where there is one."""
    if isinstance(document.result, PlanResult):
        return _planned(document.result)
    status = getattr(getattr(document.result, "verdict", None), "status", None)
    if status is None and isinstance(fits := getattr(document.result, "fits", None), bool):
        status = "fits" if fits else "does not fit"
        kept = getattr(document.result, "kept", None)  # what became of a promise
        if fits and isinstance(met := getattr(kept, "met", None), bool):
            status = "meets" if met else "misses"
    return status if status in STATUSES else None


def _planned(plan: PlanResult) -> str | None:
    """Whether something meets the one workload of a plan; None of several, of what is looked for, and before its end."""
    if plan.find is not None or len(plan.workloads) != 1:
        return None
    if plan.workloads[0].best is not None:
        return "meets"
    return None if plan.partial else "misses"


def _parts(document: Document) -> Iterator[Part]:
    """The document's own lines, tables and charts, then those of its sections; each formula and assumption once."""
    numbers, before, said = count(1), set[str](), Remarks()
    for section in (None, *document.sections):
        part = section.document if section else document
        own = _unsaid(part.remarks, said) if section else part.remarks
        yield Part(
            key=_key(section.key) if section else "answer",
            title=section.title if section else "",
            lead=section.lead if section else "",
            lines=part.lines if section else part.lines[1:],
            drawings=tuple(_drawings(part, numbers)),
            grids=tuple(
                _grid(table, f"table-{next(numbers)}", _caption(table, part, section)) for table in part.tables
            ),
            formulas=formulas(part, before),
            remarks=_grouped(own),
        )
        said += part.remarks


def _drawings(document: Document, numbers: Iterator[int]) -> Iterator[Drawing]:
    if document.charts:
        from roofcast.reports.page_svg import drawing  # noqa: PLC0415 - half a second that charts alone take

        yield from (drawing(chart, next(numbers)) for chart in document.charts)


def _grid(table: Table, key: str, caption: str) -> Grid:
    header = tuple(
        Cell(name, "words" if number in table.left else "number") for number, name in enumerate(table.header)
    )
    rows = tuple(tuple(_cell(text, number, table) for number, text in enumerate(row)) for row in table.rows)
    return Grid(
        key, caption, bool(table.title), header, rows, table.width > NARROW, len(rows) <= SHORT, table.width > BROAD
    )


def _cell(text: str, number: int, table: Table) -> Cell:
    words = "long" if len(text) > LONG else "words"
    return Cell(text, words if number in table.left else "number", number < table.keys and bool(text))


def _caption(table: Table, document: Document, section: Section | None) -> str:
    return table.title or (section.title if section else f"{document.command}: {table.header[0] or 'numbers'}")


def _unsaid(remarks: Remarks, said: Remarks) -> Remarks:
    """Remarks without the assumptions and notes that an earlier section has; warnings are said again."""
    return Remarks(
        tuple(line for line in remarks.assumptions if line not in said.assumptions),
        remarks.warnings,
        tuple(line for line in remarks.notes if line not in said.notes),
    )


def _all_remarks(document: Document) -> Remarks:
    return sum((section.document.remarks for section in document.sections), document.remarks)


def _grouped(remarks: Remarks) -> Remarks:
    return Remarks(*(tuple(grouped(lines)) for lines in (remarks.assumptions, remarks.warnings, remarks.notes)))


def _asked(inputs: Mapping[str, Any]) -> Asked:
    left = tuple(name.replace("_", " ") for name, value in inputs.items() if value is None or value in ((), [], {}))
    shown = ((name.replace("_", " "), _shown(value)) for name, value in inputs.items())
    return Asked(tuple((name, value) for name, value in shown if name not in left), left)


def _shown(value: object) -> str:
    """A setting as people read it.

    >>> _shown([4096, 32768]), _shown(True), _shown({"tp": 2, "engine": None}), _shown(0.1)
    ('4096, 32768', 'yes', 'tp 2, engine -', '0.1')
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_shown(item)}" for name, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _key(name: str) -> str:
    """A name for links: letters, digits and dashes.

    >>> _key("KV cache")
    'kv-cache'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "section"
