"""Rules that a validation must meet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.validate import SummaryRow
from roofcast.calculators.validate_gate import Gate, missed, read_gate

if TYPE_CHECKING:
    from roofcast.calculators.validate import ValidateResult


def found(**changed: Any) -> ValidateResult:
    """Twenty points with a median error of 10 %, 90 % below 30 %, three quarters in their interval, two beaten."""
    given: dict[str, Any] = {
        "by": "all", "group": "all", "points": 20, "median_error": 0.1, "p90_error": 0.3, "bias": 0.0, "inside_interval": 0.75,
        "bound_error": 0.4, "beaten": 2,
    }  # fmt: skip
    return cast("ValidateResult", SimpleNamespace(summary=[SummaryRow(**given | changed)]))


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("median<=15%", ("median", 0.15)),
        (" p90 <= 12.5 % ", ("p90", 0.125)),
        ("inside>=70%", ("inside", 0.7)),
        ("beaten<=0", ("beaten", 0)),
        ("points>=20", ("points", 20)),
    ],
)
def test_rules_are_read(text: str, gate: tuple[str, float]) -> None:
    """Shares in per cent, counts as they are, blanks as people like."""
    assert read_gate(text) == Gate(text.strip(), *gate)


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "median", "median<=", "median<15%", "median>=15%", "inside<=70%", "points<=20", "bias<=1%", "median<=-1%", "MEDIAN<=15%",
     "median<=1e1%", "median<=nan%", "median<=15%%", "median<=15% p90<=20%"],
)  # fmt: skip
def test_what_is_no_rule(text: str) -> None:
    """Unknown words, the side on which a rule says nothing, and no number: refused with an example."""
    with pytest.raises(UsageError, match="write it like 'median<=15%'"):
        read_gate(text)


@pytest.mark.parametrize("text", ["median<=0.15", "inside>=70", "points>=20%", "beaten<=0%"])
def test_shares_are_in_per_cent(text: str) -> None:
    """So that 0.15 is not taken for 0.15 %."""
    with pytest.raises(UsageError, match="shares have a % and counts none"):
        read_gate(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("median<=10%", None),
        ("median<=9.9%", "median<=9.9% is not met: it is 10.0%"),
        ("p90<=30%", None),
        ("p90<=29%", "p90<=29% is not met: it is 30.0%"),
        ("inside>=75%", None),
        ("inside>=80%", "inside>=80% is not met: it is 75.0%"),
        ("beaten<=2", None),
        ("beaten<=1", "beaten<=1 is not met: it is 2"),
        ("points>=20", None),
        ("points>=21", "points>=21 is not met: it is 20"),
    ],
)
def test_limits_are_met_at_the_limit(text: str, line: str | None) -> None:
    """And missed beyond it."""
    assert missed([read_gate(text)], found()) == ([line] if line else [])


def test_every_rule_that_is_missed_is_said() -> None:
    """In the order asked."""
    rules = [read_gate(text) for text in ("points>=100", "median<=50%", "beaten<=0")]

    assert [line.split(" ")[0] for line in missed(rules, found())] == ["points>=100", "beaten<=0"]


def test_rules_about_nothing() -> None:
    """Where no point was predicted no rule is met, nor missed; without rules nothing is asked."""
    nothing = cast("ValidateResult", SimpleNamespace(summary=[]))

    assert missed([], nothing) == []
    with pytest.raises(UnansweredError, match="points>=1: no point"):
        missed([read_gate("points>=1")], nothing)


def test_bounds_have_no_interval() -> None:
    """A rule about it cannot be decided; others can."""
    bounds = found(inside_interval=None)

    assert missed([read_gate("median<=10%")], bounds) == []
    with pytest.raises(UnansweredError, match="no interval"):
        missed([read_gate("inside>=1%")], bounds)
