"""JUnit XML of `check`: a test suite a rule file, a test case a rule.

It is valid under the schema of Apache Ant's JUnit report (windyroad/JUnit-Schema) and under Jenkins' junit-10.xsd
(jenkinsci/xunit-plugin), so it has what the first demands (properties, system-out, system-err, a host) and nothing
that only one of them knows. It is ASCII: other characters are references, so that no encoding of a terminal matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.check import BAD
from roofcast.calculators.check_rows import FAILED, PASSED
from roofcast.reports.check import place, shown_baseline, shown_values, verdict
from roofcast.reports.document import grouped, plain
from roofcast.reports.made import moment
from roofcast.reports.numbers import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from xml.etree.ElementTree import Element

    from roofcast.calculators.check_rows import CheckResult, RuleRow
    from roofcast.reports.document import Document

DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>'
PACKAGE: Final = "roofcast.check"
HOST: Final = "localhost"  # what is checked is no property of the machine that checks it
NO_TIME: Final = "0"  # rules share what they are computed from: none has a time of its own
LONGEST: Final = 1000  # characters of a name


def render_junit(document: Document) -> str:
    """The result of `check` as JUnit XML; what cannot be told is an error, never skipped.

    Raises:
        UsageError: SOURCE_DATE_EPOCH is no time.
    """
    from xml.etree.ElementTree import Element, indent, tostring  # noqa: PLC0415 - other formats do without

    result, when = document.result, f"{moment():%Y-%m-%dT%H:%M:%S}"
    root = Element("testsuites")
    for number, file in enumerate(_files(result)):
        rows = [row for row in result.rules if row.file == file]
        root.append(_suite(document, file, rows, {"id": str(number), "timestamp": when}))
    indent(root)
    return f"{DECLARATION}\n{tostring(root, encoding='us-ascii').decode('ascii')}\n"


def _files(result: CheckResult) -> list[str]:
    """The rule files, and whatever else has rows, as the baseline file of a lock."""
    return list(dict.fromkeys([*result.files, *(row.file for row in result.rules)]))


def _suite(document: Document, file: str, rows: Sequence[RuleRow], more: dict[str, str]) -> Element:
    from xml.etree.ElementTree import Element, SubElement  # noqa: PLC0415 - see above

    failed = sum(row.status == FAILED for row in rows)
    passed = sum(row.status == PASSED for row in rows)
    counts = {"tests": len(rows), "failures": failed, "errors": len(rows) - failed - passed, "skipped": 0}
    named = {"name": _name(file), "package": PACKAGE, "time": NO_TIME, "hostname": HOST}
    suite = Element("testsuite", {**named, **{name: str(count) for name, count in counts.items()}, **more})
    properties = SubElement(suite, "properties")
    for name, value in _properties(document.result):
        SubElement(properties, "property", name=_name(name), value=plain(value))
    suite.extend(_case(row) for row in rows)
    SubElement(suite, "system-out").text = _text([verdict(document.result), *(_line(row) for row in rows)])
    remarks = document.remarks
    SubElement(suite, "system-err").text = _text(
        [f"assumed: {line}" for line in grouped(remarks.assumptions)]
        + [f"warning: {line}" for line in grouped(remarks.warnings)]
    )
    return suite


def _properties(result: CheckResult) -> Iterator[tuple[str, str]]:
    """What the numbers were made from."""
    yield "roofcast.facts", result.facts_version
    if result.baseline is not None:
        yield "roofcast.baseline", result.baseline
    for lock in result.locks:
        yield "roofcast" if lock.kind == lock.name else f"roofcast.{lock.kind}.{lock.name}", lock.found


def _case(row: RuleRow) -> Element:
    from xml.etree.ElementTree import Element, SubElement  # noqa: PLC0415 - see above

    case = Element("testcase", name=_name(row.name), classname=_class(row.file), time=NO_TIME)
    if row.status == PASSED:
        return case
    element, kind = ("failure", row.quantity) if row.status == FAILED else ("error", _undetermined(row))
    SubElement(case, element, type=_name(kind), message=plain(row.message)).text = _text(_details(row))
    return case


def _undetermined(row: RuleRow) -> str:
    return "malformed" if row.code == BAD else "undetermined"


def _details(row: RuleRow) -> Iterator[str]:
    """What a person needs of a rule that does not pass: GitLab shows this text, and no attribute."""
    yield row.message
    yield f"at {place(row)}"
    actual, required = shown_values(row)
    before, _ = shown_baseline(row)
    values = {"actual": actual, "required": required, "baseline": before, "model": row.model, "gpu": row.gpu}
    yield from (f"{name}: {value}" for name, value in values.items() if value and value != NOTHING)


def _line(row: RuleRow) -> str:
    return f"{row.status}: {row.name}: {row.message}"


def _text(lines: Iterator[str] | Sequence[str]) -> str:
    """Lines without what XML cannot hold: control characters, halves of characters."""
    return "\n".join(map(plain, lines))


def _name(text: str) -> str:
    """A name that the schema takes: a token, so one line, no blanks around or doubled; never empty, and not endless.

    >>> _name("  two  words "), _name("")
    ('two words', '-')
    """
    name = " ".join(plain(text).split())
    return f"{name[:LONGEST]}..." if len(name) > LONGEST else name or NOTHING


def _class(file: str) -> str:
    """A rule file as a class: what CI systems group by, and split at dots.

    >>> _class("capacity/roofcast.yaml"), _class("../a.b/rules.yml"), _class("/tmp/x.yaml")
    ('capacity.roofcast', 'a_b.rules', 'tmp.x')
    """
    stem = file.rsplit(".", 1)[0] if file.endswith((".yaml", ".yml")) else file
    parts = [part.replace(".", "_") for part in stem.replace("\\", "/").split("/") if part.strip(".")]
    return _name(".".join(parts))
