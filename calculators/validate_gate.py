"""Rules that a validation must meet, such as `median<=15%`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UnansweredError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roofcast.calculators.validate import ValidateResult

_RULE: Final = r"\s*(?P<what>[a-z0-9_]+)\s*(?P<sign><=|>=)\s*(?P<value>[0-9]+(?:\.[0-9]+)?)\s*(?P<percent>%?)\s*"
#: what a rule is about -> the field of the summary, and on which side of the value it must be
KNOWN: Final[Mapping[str, tuple[str, str]]] = {
    "median": ("median_error", "<="),
    "p90": ("p90_error", "<="),
    "inside": ("inside_interval", ">="),
    "beaten": ("beaten", "<="),
    "points": ("points", ">="),
}
COUNTS: Final = frozenset(("beaten", "points"))
EXAMPLE: Final = "write it like 'median<=15%', 'p90<=40%', 'inside>=70%', 'beaten<=0' or 'points>=20'"


@dataclass(frozen=True, slots=True)
class Gate:
    """A rule.

    Args:
        text: as it was written.
        what: one of `KNOWN`.
        value: that is the limit.
    """

    text: str
    what: str
    value: float


def read_gate(text: str) -> Gate:
    """Reads a rule.

    Raises:
        UsageError: it is none.

    >>> read_gate("median<=15%")
    Gate(text='median<=15%', what='median', value=0.15)
    """
    match = re.fullmatch(_RULE, text)
    if match is None or match["what"] not in KNOWN or KNOWN[match["what"]][1] != match["sign"]:
        raise UsageError(f"--require {text!r} is no rule; {EXAMPLE}")
    if bool(match["percent"]) == (match["what"] in COUNTS):
        raise UsageError(f"--require {text!r}: shares have a % and counts none; {EXAMPLE}")
    return Gate(text.strip(), match["what"], float(match["value"]) / (100 if match["percent"] else 1))


def missed(rules: Iterable[Gate], result: ValidateResult) -> list[str]:
    """What of the rules all points together do not meet, a line each.

    Raises:
        UnansweredError: no point could be predicted, or bounds were held against the points, which have no interval.
    """
    rules = list(rules)
    if rules and not result.summary:
        raise UnansweredError(f"{'; '.join(rule.text for rule in rules)}: no point could be predicted")
    lines = []
    for rule in rules:
        field, sign = KNOWN[rule.what]
        actual = getattr(result.summary[0], field)
        if actual is None:
            raise UnansweredError(f"{rule.text}: bounds have no interval; leave --efficiency bound out")
        if not (actual <= rule.value if sign == "<=" else actual >= rule.value):
            shown = f"{actual:.0f}" if rule.what in COUNTS else f"{actual:.1%}"
            lines.append(f"{rule.text} is not met: it is {shown}")
    return lines
