"""`check` as a document: the verdict, and every rule with how far it is from its limit and from its baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.check import BAD
from roofcast.calculators.check_rows import FAILED, PASSED, UNDETERMINED
from roofcast.reports.data import as_data
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import GIB, KIB, NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roofcast.calculators.check_rows import CheckResult, Locked, RuleRow

# what needs a person stands first
ORDER: Final = (FAILED, UNDETERMINED, PASSED)
# status -> the word of a table for people
BADLY_PUT: Final = "badly put"
WORDS: Final[Mapping[str, str]] = {FAILED: "failed", UNDETERMINED: "unknown", PASSED: "passed"}
DOLLARS: Final = "USD/Mtoken"
RENT: Final = "USD/h"
# unit of a value -> what it is divided by for people, and the unit they then read
UNITS: Final[Mapping[str, tuple[float, str]]] = {
    "": (1.0, ""),
    "s": (1e-3, "ms"),
    "B": (GIB, "GiB"),
    "B/token": (KIB, "KiB/token"),
    "token": (1.0, "tokens"),
    "token/s": (1.0, "tokens/s"),
    DOLLARS: (1.0, "$/Mtok"),
    RENT: (1.0, "$/h"),
}
# figures of a number, more where two that differ would read alike
FIGURES: Final = (4, 6, 9, 12, 15, 17)
FIGURES_OF_LIMIT: Final = 6  # at least: it is shown as it was written
UPPER: Final = "<="
IS: Final = "=="
HEADING: Final = ("", "rule", "actual", "required", "room", "change")
WHERE: Final = ("model", "gpu")
BREAKS: Final = frozenset((4, 5))  # columns before which a table goes on below, where the whole is too wide
MUCH: Final = 1.0  # of a share, from which no decimals are shown


def check_document(result: CheckResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `check`."""
    return Document(
        command="check",
        inputs=inputs,
        result=result,
        # a name that begins a line could be a command to a CI's runner
        records=[
            {"status": row.status, **as_data(row), "headroom": headroom(row), "change": change(row)}
            for row in result.rules
        ],
        lines=tuple(map(plain, _lines(result))),
        tables=(_table(result),) if result.rules else (),
        remarks=_notes(result) + remarks,
    )


def verdict(result: CheckResult) -> str:
    """All rules in one sentence.

    >>> from roofcast.calculators.check_rows import CheckResult
    >>> verdict(CheckResult([], 36, 3, 1, [], None, False))
    '3 of 40 rules fail, 1 cannot be told'
    >>> verdict(CheckResult([], 40, 0, 0, [], None, False)), verdict(CheckResult([], 0, 0, 1, [], None, False))
    ('all 40 rules pass', '1 of 1 rule cannot be told')
    """
    rules = result.passed + result.failed + result.undetermined
    if not rules:
        return "no rule"
    of = f"of {rules:,} rule{'s' if rules > 1 else ''}"
    if result.failed:
        also = f", {result.undetermined:,} cannot be told" if result.undetermined else ""
        return f"{result.failed:,} {of} fail{'s' if result.failed == 1 else ''}{also}"
    if result.undetermined:
        return f"{result.undetermined:,} {of} cannot be told"
    return f"all {rules:,} rules pass" if rules > 1 else "the one rule passes"


def ordered(rows: Sequence[RuleRow]) -> list[RuleRow]:
    """Rules that fail, then those that cannot be told, then the others; each as the files have them."""
    return sorted(rows, key=lambda row: ORDER.index(row.status))


def headroom(row: RuleRow) -> float | None:
    """How far a value is inside its limit, as a share of the limit; negative outside. [-]

    At least: actual / required - 1. At most: 1 - actual / required. None where the two are no numbers, or the limit
    is 0, and where no value would do, as of a queue that keeps growing.
    """
    numbers = _numbers(row.actual, row.required)
    if numbers is None or not numbers[1]:
        return None
    actual, required = numbers
    room = (required - actual if row.sign == UPPER else actual - required) / abs(required)
    return None if room > 0 and row.status == FAILED else room


def change(row: RuleRow) -> float | None:
    """How far a value is from its baseline, as a share of that: actual / baseline - 1. [-]

    None where the two are no numbers, or the baseline is 0.
    """
    numbers = _numbers(row.actual, row.baseline)
    if numbers is None or not numbers[1]:
        return None
    return (numbers[0] - numbers[1]) / abs(numbers[1])


def moved(row: RuleRow) -> bool:
    """Whether there is a baseline, and the value is another."""
    return row.baseline is not None and row.actual is not None and row.actual != row.baseline


def moved_locks(result: CheckResult) -> list[Locked]:
    """Models, accelerators and constants that are not those of the baseline file."""
    return [lock for lock in result.locks if lock.locked is not None and lock.locked != lock.found]


def place(row: RuleRow) -> str:
    """File and line of a rule; the file alone where it has no line."""
    return f"{row.file}:{row.line}" if row.line else row.file


def shown_values(row: RuleRow) -> tuple[str, str]:
    """Actual and required as people read them, the latter with its sign; figures enough to tell them apart."""
    actual, required = _apart((row.actual, row.required), row.unit, FIGURES_OF_LIMIT)
    return actual, required if row.sign == IS or row.required is None else f"{row.sign} {required}"


def shown_baseline(row: RuleRow) -> tuple[str, str]:
    """The baseline's value and the actual one, with figures enough to tell them apart."""
    return _apart((row.baseline, row.actual), row.unit, 0)


def shown_share(share: float | None) -> str:
    """A share with its sign, in per cent.

    >>> shown_share(0.0312), shown_share(-0.5), shown_share(1.0), shown_share(0.0), shown_share(None)
    ('+3.1%', '-50.0%', '+100%', '0%', '-')
    """
    if share is None:
        return NOTHING
    if not share:
        return "0%"
    return f"{share:+,.0%}" if abs(share) >= MUCH else f"{share:+.1%}"


def shown_change(row: RuleRow) -> str:
    """The change against the baseline in per cent, or what was there before."""
    share = change(row)
    if share is None and moved(row):
        return f"was {_value(row.baseline, row.unit, FIGURES[0])}"
    return shown_share(share)


def _numbers(value: float | bool | None, against: float | bool | None) -> tuple[float, float] | None:
    if value is None or against is None or isinstance(value, bool) or isinstance(against, bool):
        return None
    return float(value), float(against)


def _apart(values: tuple[float | bool | None, float | bool | None], unit: str, least: int) -> tuple[str, str]:
    """Two values with as few figures as tell them apart; of the second at least so many."""
    for figures in FIGURES:
        one, other = _value(values[0], unit, figures), _value(values[1], unit, max(figures, least))
        if one != other or values[0] == values[1]:
            break
    return one, other


def _value(value: float | bool | None, unit: str, figures: int) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    scale, name = UNITS.get(unit, (1.0, unit))
    return f"{_number(value / scale, figures)} {name}".rstrip()


def _number(value: float, figures: int) -> str:
    """A number with at most so many figures, and all of those before the point.

    >>> _number(1234567.0, 4), _number(128.0, 4), _number(61.2345, 4), _number(8.7, 4), _number(0.000123, 4)
    ('1,234,567', '128', '61.23', '8.7', '0.000123')
    """
    whole = len(f"{abs(value):.0f}") if abs(value) >= 1 else 0
    if not whole:
        return f"{value:.{figures}g}"
    text = f"{value:,.{max(figures - whole, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _lines(result: CheckResult) -> Iterator[str]:
    yield verdict(result)
    if result.files:
        yield f"rules of {', '.join(result.files)}"
    on = {part: _usual(result.rules, part) for part in WHERE if _told(result.rules, part)}
    if any(on.values()):
        alike = all(getattr(row, part) in {name, None} for row in result.rules for part, name in on.items())
        names = ", ".join(name for name in on.values() if name)
        yield f"all on {names}" if alike else f"on {names} unless a name says otherwise"
    if result.baseline is not None:
        yield f"baseline {result.baseline}{', written' if result.updated else ''}"


def _usual(rows: Sequence[RuleRow], part: str) -> str | None:
    """The model, or GPU, of most rules; None where none has any."""
    names = [name for row in rows if (name := getattr(row, part))]
    return max(dict.fromkeys(names), key=names.count, default=None)


def _told(rows: Sequence[RuleRow], part: str) -> bool:
    """Whether no column needs to say of which model, or GPU, rules are: they are of the usual one, or are named so."""
    usual = _usual(rows, part)
    return all(name in {None, usual} or name in row.name for row in rows for name in [getattr(row, part)])


def _table(result: CheckResult) -> Table:
    """A row a rule; where names and the line above tell of which model and GPU each is, no column repeats it."""
    rows = ordered(result.rules)
    parts = [part for part in WHERE if not _told(rows, part)]
    compared = any(row.baseline is not None for row in rows)
    heading = HEADING if compared else HEADING[:-1]
    cells = [
        (
            BADLY_PUT if row.code == BAD else WORDS[row.status],
            row.name,
            *shown_values(row),
            shown_share(headroom(row)),
            *((shown_change(row),) if compared else ()),
            *(getattr(row, part) or NOTHING for part in parts),
        )
        for row in rows
    ]
    first = len(heading)
    return table(
        (*heading, *parts),
        cells,
        left=(0, 1, *range(first, first + len(parts))),
        breaks=sorted((BREAKS | {first}) - {first + len(parts)}),
        keys=2,
    )


def _notes(result: CheckResult) -> Remarks:
    """Why rules do not pass, and how to read the columns."""
    why = [f"{place(row)}: {row.name}: {row.message}" for row in ordered(result.rules) if row.status != PASSED]
    room = any(headroom(row) is not None for row in result.rules)
    units = {row.unit for row in result.rules}
    return remarks(
        notes=[
            *why,
            "room: how far a value is inside its limit, as a share of it; below 0 outside" if room else None,
            "change: against the baseline" if any(row.baseline is not None for row in result.rules) else None,
            "$/Mtok: US dollars for a million tokens" if DOLLARS in units else None,
            "$/h: US dollars an hour of all GPUs" if RENT in units else None,
            f"facts: {result.facts_version}" if result.facts_version else None,
        ]
    )
