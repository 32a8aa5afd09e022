"""Rules of `check` held against what there is: passed, failed, or undetermined."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.check_quantities import AT_LEAST, IS, QUANTITIES
from roofcast.calculators.check_rows import FAILED, PASSED, UNDETERMINED, CheckResult, RuleRow
from roofcast.hwdb.units import show_percent, show_si

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roofcast.calculators.check_quantities import Case, Quantity
    from roofcast.calculators.check_rows import Found

OK: Final = 0
NOT_MET: Final = 1
BAD: Final = 2
NOT_TOLD: Final = 3
#: exit codes of rules, the one that counts first
WORST: Final = (BAD, NOT_MET, NOT_TOLD, OK)
STATUS: Final[Mapping[int, str]] = {OK: PASSED, NOT_MET: FAILED, NOT_TOLD: UNDETERMINED, BAD: UNDETERMINED}
#: a problem of a rule file, with its place
PROBLEM: Final = r"(.*?):(\d+): (.*)"
ROUNDING: Final = 1e-9  # relative; what sums in another order may differ by
SHARES: Final = 1e-12  # of whole numbers: what a share of one may differ by
PRICED: Final = "USD/Mtoken"
RENTED: Final = "USD/h"
CENTS: Final = 100.0  # US dollars from which cents are enough


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a file, a matrix taken apart.

    Args:
        name: unique in the run.
        quantity: one of `QUANTITIES`.
        case: the deployment and what is asked of it.
        limit: that the value must keep; None without one. [the quantity's unit]
        change: share of the baseline by which it may get worse; None where no baseline counts. [-]
        file, line: where it stands.
    """

    name: str
    quantity: str
    case: Case
    limit: float | None
    change: float | None
    file: str
    line: int

    @property
    def about(self) -> Quantity:
        """What it is about."""
        return QUANTITIES[self.quantity]

    @property
    def basis(self) -> str | None:
        """Its basis, where the quantity has several."""
        return self.case.basis if self.about.timed else None

    @property
    def gpu(self) -> str | None:
        """The accelerator asked for, where the quantity is about one."""
        return self.case.gpu if "gpu" in self.about.takes else None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a baseline has of a rule.

    Args:
        quantity, unit, basis: of the value.
        value: that it had.
        file: the rule file that it is of, as it was named; None where that is not written.
    """

    quantity: str
    unit: str
    basis: str | None
    value: float | bool
    file: str | None = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    """How a rule stands."""

    code: int
    required: float | bool | None
    message: str


def malformed(problems: Sequence[str], files: Sequence[str]) -> CheckResult:
    """What there is to say of a run that checked nothing: a row a problem, `FILE:LINE: what` or another line."""
    rows = []
    for problem in problems:
        found = re.fullmatch(PROBLEM, problem, re.DOTALL)
        file, line, said = found.groups() if found else ("", "0", problem)
        rows.append(
            RuleRow(
                name="malformed",
                status=STATUS[BAD],
                actual=None,
                required=None,
                message=said,
                quantity="",
                unit="",
                sign=IS,
                basis=None,
                baseline=None,
                model=None,
                gpu=None,
                file=file or files[0],
                line=int(line),
                code=BAD,
            )
        )
    return CheckResult(rows, 0, 0, len(rows), list(files), None, updated=False)


def judge(rule: Rule, found: Found, kept: Kept | None, update: str, *, accepted: bool = False) -> RuleRow:
    """Holds a rule against what there is: its own limit first, then what the baseline allows.

    Args:
        rule: with a limit, a change that is allowed, or neither where it is about a yes.
        found: what there is.
        kept: what the baseline has of it; None where it has nothing.
        update: the command that writes the baseline, for what is said where it has nothing.
        accepted: whether what there is becomes the baseline, so that no change is refused.
    """
    verdicts = [_against_limit(rule, found)]
    if accepted and rule.change is not None and found.value is not None and found.lasting:
        verdicts.append(_Verdict(OK, found.value, _accepted(rule, found, found.value, kept)))
    elif rule.change is not None:
        verdicts.append(_against_baseline(rule, rule.change, found, kept, update))
    told = [one for one in verdicts if one is not None]
    decisive = min(told, key=lambda one: WORST.index(one.code))
    messages = dict.fromkeys(one.message for one in told if one.code == decisive.code)
    return row_of(rule, found, kept, decisive.code, decisive.required, "; ".join(messages))


def row_of(
    rule: Rule, found: Found | None, kept: Kept | None, code: int, required: float | bool | None, message: str
) -> RuleRow:
    """The row of a rule that stands so."""
    return RuleRow(
        name=rule.name,
        status=STATUS[code],
        actual=None if found is None else found.value,
        required=required,
        message=message,
        quantity=rule.quantity,
        unit=rule.about.unit,
        sign=rule.about.sign,
        basis=rule.basis,
        baseline=None if kept is None else kept.value,
        model=rule.case.model,
        gpu=rule.gpu,
        file=rule.file,
        line=rule.line,
        code=code,
    )


def untold(rule: Rule, kept: Kept | None, code: int, why: str) -> RuleRow:
    """The row of a rule that cannot be told."""
    return row_of(rule, None, kept, code, True if rule.about.sign == IS else rule.limit, why)


def _against_limit(rule: Rule, found: Found) -> _Verdict | None:
    """The rule's own limit; of yes and no that it is yes; None where the baseline alone decides and there is a value."""
    about = rule.about
    if about.sign == IS:
        met = found.value is True
        return _Verdict(OK if met else NOT_MET, required=True, message="yes" if met else f"no: {found.reason}")
    if found.value is None:
        return _Verdict(NOT_MET, rule.limit, found.reason)
    if rule.limit is None:
        return None
    met = found.lasting and within(about.sign, found.value, rule.limit)
    side = "at least" if about.sign == AT_LEAST else "at most"
    why = f" ({found.reason})" if found.reason and not met else ""
    said = f"{_shown(rule, found.value, found)}; {side} {show(rule.limit, about.unit)} is required"
    return _Verdict(OK if met else NOT_MET, rule.limit, said + why + _noted(found))


def _against_baseline(rule: Rule, change: float, found: Found, kept: Kept | None, update: str) -> _Verdict | None:
    """What the baseline allows; None where there is no value to hold against it."""
    about = rule.about
    if found.value is None:
        return None
    if kept is None:
        return _Verdict(
            NOT_TOLD, None, f"{_shown(rule, found.value, found)}; the baseline has no value of it; run {update}"
        )
    if (kept.quantity, kept.unit, kept.basis) != (rule.quantity, about.unit, rule.basis):
        was = " ".join(filter(None, (kept.basis, kept.quantity, f"in {kept.unit}" if kept.unit else "")))
        return _Verdict(NOT_TOLD, None, f"the baseline's value of that name is of {was}; run {update}")
    allowed = kept.value * (1 - change if about.sign == AT_LEAST else 1 + change)
    met = found.lasting and within(about.sign, found.value, allowed)
    moved = change_of(kept.value, found.value)
    better = "" if not met or moved == SAME else ", which is better" if _improved(about.sign, kept, found) else ""
    said = f"{_shown(rule, found.value, found)}, {moved} the baseline's {show(kept.value, about.unit)}{better}"
    worse = "less" if about.sign == AT_LEAST else "more"
    most = f"; {show_percent(change, 0 if round(change * 100) == change * 100 else 1)} {worse} is allowed"
    return _Verdict(OK if met else NOT_MET, allowed, said + ("" if better else most) + _noted(found))


def _noted(found: Found) -> str:
    return f" ({found.note})" if found.note else ""


def _shown(rule: Rule, value: float | bool, found: Found) -> str:
    """A value, and whose it is where the rule leaves that open."""
    shown = show(value, rule.about.unit)
    return f"{found.of}: {shown}" if found.of else shown


def _accepted(rule: Rule, found: Found, value: float | bool, kept: Kept | None) -> str:
    """What is said of a value that becomes the baseline."""
    now = _shown(rule, value, found)
    if kept is None or (kept.quantity, kept.unit, kept.basis) != (rule.quantity, rule.about.unit, rule.basis):
        return f"{now}, new in the baseline"
    return f"{now}, {change_of(kept.value, value)} the former baseline's {show(kept.value, kept.unit)}"


def _improved(sign: str, kept: Kept, found: Found) -> bool:
    value = found.value or 0
    return value > kept.value if sign == AT_LEAST else value < kept.value


def within(sign: str, value: float, limit: float) -> bool:
    """Whether a value is on the right side of a limit, or on it but for rounding.

    >>> within(">=", 99.0, 100.0), within("<=", 0.5, 0.5), within("<=", 0.5 + 1e-12, 0.5)
    (False, True, True)
    >>> within("<=", 16_060_522_496, 16_060_522_490.0), within(">=", 3, 10 * (1 - 0.7))
    (False, True)
    """
    spare = (SHARES if isinstance(value, int) else ROUNDING) * max(abs(value), abs(limit))
    return value >= limit - spare if sign == AT_LEAST else value <= limit + spare


SAME: Final = "as"


def change_of(before: float, now: float) -> str:
    """How a value moved, in words that go before the value that it had.

    >>> change_of(128.0, 256.0), change_of(100, 95), change_of(3, 3), change_of(0, 3)
    ('+100.0 % against', '-5.0 % against', 'as', 'up from')
    """
    if now == before:
        return SAME
    if not before:
        return "up from" if now > before else "down from"
    share = 100 * (now / before - 1)
    return f"{share:+.1f} % against" if abs(share) >= 0.05 else f"{share:+.2g} % against"  # noqa: PLR2004 - what is shown as 0.1


def show(value: float | bool, unit: str) -> str:
    """A value with its unit, for people.

    >>> show(104, ""), show(True, ""), show(0.0123, "s"), show(131072, "B/token"), show(0.25, "USD/Mtoken")
    ('104', 'yes', '12.3 ms', '131,072 B/token', '0.25 USD/Mtoken')
    >>> show(1.584, "USD/h"), show(0.942, "USD/h"), show(2.0, "USD/h"), show(12345.678, "USD/h")
    ('$1.584 an hour', '$0.942 an hour', '$2.00 an hour', '$12,345.68 an hour')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    return SHOWN.get(unit, _number)(value, unit)


def _number(value: float, unit: str) -> str:
    shown = f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"
    return f"{shown} {unit}".rstrip()


def _four(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}"


def _rent(value: float, _: str) -> str:
    whole = value >= CENTS or abs(value - round(value, 2)) <= ROUNDING
    return f"${value:,.2f} an hour" if whole else f"${value:.4g} an hour"


#: unit -> how its values are shown
SHOWN: Final[Mapping[str, Callable[[float, str], str]]] = {"s": show_si, "B": show_si, PRICED: _four, RENTED: _rent}
