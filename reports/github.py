"""What GitHub Actions shows of `check`: annotations at the lines of rules, and the summary of a step.

Names of rules, models and files come from outside. An annotation escapes them as GitHub's own toolkit does. In the
summary they can be neither HTML nor Markdown, call nobody and link nowhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roofcast.calculators import check
from roofcast.calculators.check_rows import FAILED, PASSED, UNDETERMINED
from roofcast.reports.check import (
    BADLY_PUT,
    headroom,
    moved,
    moved_locks,
    ordered,
    place,
    shown_baseline,
    shown_change,
    shown_share,
    shown_values,
    verdict,
)
from roofcast.reports.document import grouped, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from roofcast.calculators.check_rows import CheckResult, Locked, RuleRow
    from roofcast.reports.document import Document

    Column = tuple[str, str, Callable[[Any], str]]

SHOWN: Final = 10  # error annotations of a step; GitHub drops others
LONGEST_TITLE: Final = 200  # characters; GitHub takes 255
LONGEST_MESSAGE: Final = 4000  # characters; GitHub takes 64 KB
LONGEST_CELL: Final = 300  # characters of a name or message in a summary
# bytes of a summary's parts: GitHub takes 1,048,576 in all, and drops the whole of a larger one
FAILURES_ROOM: Final = 400_000
CHANGES_ROOM: Final = 150_000
PASSED_ROOM: Final = 250_000
LIST_ROOM: Final = 50_000
LEFT: Final = "---"
RIGHT: Final = "---:"
SIGNS: Final[Mapping[str, str]] = {
    FAILED: "\N{CROSS MARK}",
    UNDETERMINED: "\N{WHITE QUESTION MARK ORNAMENT}",
    PASSED: "\N{WHITE HEAVY CHECK MARK}",
}
SAYS: Final[Mapping[str, str]] = {FAILED: "failed", UNDETERMINED: "cannot be told"}
_ENTITIES: Final = str.maketrans({c: f"&#{ord(c)};" for c in "\\`*_[]{}<>|&~!\"'"}) | {
    # an element beside it keeps GitHub from reading a mention, an issue or a formula
    ord("@"): "@<wbr>",
    ord("#"): "#<wbr>",
    ord("$"): "<span>$</span>",
}
_ADDRESS: Final = re.compile(r"(?<=[:/])(?=/)|(?<=www)(?=\.)", re.IGNORECASE)  # where an address is torn


def annotation_lines(result: CheckResult) -> str:
    """Workflow commands, one a rule that does not pass; the last that GitHub shows says how many more there are."""
    rows = [row for row in ordered(result.rules) if row.status != PASSED]
    return "".join(_annotation(row, _more(len(rows), number)) for number, row in enumerate(rows, 1))


def problem_annotations(problems: Sequence[str]) -> str:
    r"""Workflow commands for what is wrong with rule files or a baseline, each `FILE:LINE: what`, or another line.

    >>> problem_annotations(["a.yaml:3: rule 'x': no limit"])
    "::error file=a.yaml,line=3,title=malformed rule::rule 'x': no limit\n"
    """
    lines = []
    for number, problem in enumerate(problems, 1):
        found = re.fullmatch(check.PROBLEM, problem, re.DOTALL)
        file, line, said = found.groups() if found else ("", "", problem)
        more = _more(len(problems), number)
        lines.append(_error(file, line, "malformed rule" if found else "nothing was checked", said + more))
    return "".join(lines)


def _more(whole: int, number: int) -> str:
    """What the last that GitHub shows says of those after it."""
    return f" (and {whole - SHOWN:,} more: see the log)" if whole > SHOWN and number == SHOWN else ""


def problem_summary(problems: Sequence[str]) -> str:
    """Markdown that says what is wrong with rule files or a baseline."""
    return f"### {SIGNS[FAILED]} nothing was checked\n\n{_listed([safe(problem) for problem in problems], FAILURES_ROOM)}\n"


def render_annotations(document: Document) -> str:
    """The annotations of a document's result."""
    return annotation_lines(document.result)


def _annotation(row: RuleRow, more: str) -> str:
    said = _cut(row.message, LONGEST_MESSAGE) + more
    says = BADLY_PUT if row.code == check.BAD else SAYS[row.status]
    return _error(row.file, str(row.line or ""), f"{says}: {row.name}", said)


def _error(file: str, line: str, title: str, said: str) -> str:
    properties = {"file": _relative(file) if file else "", "line": line, "title": _cut(title, LONGEST_TITLE)}
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::error {listed}::{_data(said)}\n"


def _relative(file: str) -> str:
    """A file as GitHub names it: from the root of the checkout, wherever this runs."""
    try:
        root, path = Path(os.environ.get("GITHUB_WORKSPACE") or os.curdir).resolve(), Path(file).resolve()
    except (OSError, ValueError):  # a name that no file has
        return file
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else file


def _data(text: str) -> str:
    """What stands after the second `::`.

    Source: escapeData of packages/core/src/command.ts of actions/toolkit. `##[` is the older form of a command, which
    the runner takes wherever it stands in a line.

    >>> _data("50 % less")
    '50 %25 less'
    """
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return plain(escaped.replace("##[", "## ["))


def _property(text: str) -> str:
    """A property's value: likewise, and neither ends it nor begins another.

    Source: escapeProperty, likewise.

    >>> _property("a:b,c")
    'a%3Ab%2Cc'
    """
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def render_summary(document: Document) -> str:
    """Markdown for $GITHUB_STEP_SUMMARY: verdict, what does not pass, then the rest folded away; under 1 MiB."""
    result = document.result
    rows = ordered(result.rules)
    bad, good = [row for row in rows if row.status != PASSED], [row for row in rows if row.status == PASSED]
    worst = bad[0].status if bad else PASSED
    parts = (
        f"### {SIGNS[worst]} {safe(verdict(result))}",
        _tabled(BAD, bad, FAILURES_ROOM),
        _tabled(MOVED, [row for row in rows if moved(row)], CHANGES_ROOM),
        _tabled(LOCKS, moved_locks(result), LIST_ROOM),
        _folded(f"{len(good):,} passed", _tabled(GOOD, good, PASSED_ROOM)),
        _folded("assumptions and warnings", _listed(list(_remarks(document)), LIST_ROOM)),
        _listed(list(_provenance(result)), LIST_ROOM),
    )
    return "\n\n".join(part for part in parts if part) + "\n\n"


def safe(text: str) -> str:
    """Text from outside for Markdown that GitHub renders: no HTML, no Markdown, no mention, no link.

    >>> safe("<b>*x*</b> @all")
    '&#60;b&#62;&#42;x&#42;&#60;/b&#62; @<wbr>all'
    >>> safe("http://www.a.b")
    'http:<wbr>/<wbr>/www<wbr>.a.b'
    """
    addressed = (part.translate(_ENTITIES) for part in _ADDRESS.split(plain(_cut(text, LONGEST_CELL))))
    return "<wbr>".join(addressed)


def code(text: str) -> str:
    """A name from outside, set as code, in which GitHub looks for no mention either.

    >>> code("llama-3.1-8b")
    '<code>llama-3.1-8b</code>'
    """
    return f"<code>{safe(text)}</code>"


def _locked(lock: Locked) -> str:
    """Kind and name of what a number was made from; roofcast itself is the only one of its kind."""
    return safe(lock.kind) if lock.kind == lock.name else f"{safe(lock.kind)} {code(lock.name)}"


def _optional(text: str | None) -> str:
    return code(text) if text else ""


NAMED: Final[tuple[Column, ...]] = (
    ("rule", LEFT, lambda row: code(row.name)),
    ("model", LEFT, lambda row: _optional(row.model)),
    ("gpu", LEFT, lambda row: _optional(row.gpu)),
)
HELD: Final[tuple[Column, ...]] = (
    ("actual", RIGHT, lambda row: safe(shown_values(row)[0])),
    ("required", RIGHT, lambda row: safe(shown_values(row)[1])),
    ("room", RIGHT, lambda row: shown_share(headroom(row))),
    ("change", RIGHT, lambda row: safe(shown_change(row))),
)
GOOD: Final[tuple[Column, ...]] = (*NAMED, *HELD)
BAD: Final[tuple[Column, ...]] = (
    ("", LEFT, lambda row: SIGNS[row.status]),
    *NAMED,
    *HELD,
    ("why", LEFT, lambda row: safe(row.message)),
    ("where", LEFT, lambda row: code(place(row))),
)
MOVED: Final[tuple[Column, ...]] = (
    ("moved against the baseline", LEFT, lambda row: code(row.name)),
    ("was", RIGHT, lambda row: safe(shown_baseline(row)[0])),
    ("is", RIGHT, lambda row: safe(shown_baseline(row)[1])),
    ("change", RIGHT, lambda row: safe(shown_change(row))),
)
LOCKS: Final[tuple[Column, ...]] = (
    ("made from other than the baseline", LEFT, _locked),
    ("locked", LEFT, lambda lock: _optional(lock.locked)),
    ("found", LEFT, lambda lock: code(lock.found)),
)


def _tabled(columns: Sequence[Column], rows: Sequence[RuleRow] | Sequence[Locked], room: int) -> str:
    """A Markdown table of what room there is for, and how many rows are left out; nothing without rows."""
    if not rows:
        return ""
    head = [_row(name for name, _, _ in columns), f"|{'|'.join(align for _, align, _ in columns)}|"]
    return _within(head, (_row(cell(row) for _, _, cell in columns) for row in rows), len(rows), room)


def _listed(items: Sequence[str], room: int) -> str:
    """A Markdown list of what room there is for."""
    return _within([], (f"- {item}" for item in items), len(items), room) if items else ""


def _within(lines: list[str], more: Iterator[str], count: int, room: int) -> str:
    for number, line in enumerate(more):
        room -= len(line.encode()) + 1
        if room < 0:
            return "\n".join((*lines, "", f"and {count - number:,} more"))
        lines.append(line)
    return "\n".join(lines)


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _folded(title: str, body: str) -> str:
    """A part that a click unfolds; blank lines make Markdown of what is inside."""
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def _remarks(document: Document) -> Iterator[str]:
    yield from (f"assumed: {safe(line)}" for line in grouped(document.remarks.assumptions))
    yield from (f"warning: {safe(line)}" for line in grouped(document.remarks.warnings))


def _provenance(result: CheckResult) -> Iterator[str]:
    """What the numbers were made from."""
    if result.files:
        yield f"rules: {', '.join(map(code, result.files))}"
    if result.baseline is not None:
        yield f"baseline: {code(result.baseline)}{', written by this run' if result.updated else ''}"
    if result.facts_version:
        yield f"facts: {code(result.facts_version)}"
    yield from (f"{_locked(lock)}: {code(lock.found)}" for lock in result.locks)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."
