"""Verdicts of `check`: a value against a rule's own limit, and against what its baseline allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.check import WORST, Kept, Rule, judge, untold
from roofcast.calculators.check_quantities import Case
from roofcast.calculators.check_rows import Found

if TYPE_CHECKING:
    from roofcast.calculators.check_rows import RuleRow


def rule(quantity: str = "kv_bytes_per_token", limit: float | None = None, change: float | None = None) -> Rule:
    """Return a rule."""
    return Rule("r", quantity, Case(model="m"), limit, change, "f", 1)


def judged(of: Rule, value: float | None, baseline: float | None = None, quantity: str | None = None) -> RuleRow:
    """Return the row of a rule with that value and that baseline."""
    kept = None if baseline is None else Kept(quantity or of.quantity, of.about.unit, of.basis, baseline)
    return judge(of, Found(value, "reason"), kept, "`update`")


@pytest.mark.parametrize(
    ("quantity", "value", "baseline", "change", "code", "required"),
    [
        pytest.param("kv_bytes_per_token", 128, 128, 0.0, 0, 128, id="same"),
        pytest.param("kv_bytes_per_token", 129, 128, 0.0, 1, 128, id="more"),
        pytest.param("kv_bytes_per_token", 64, 128, 0.0, 0, 128, id="less"),
        pytest.param("weight_bytes", 102, 100, 0.02, 0, 102, id="just"),
        pytest.param("weight_bytes", 102.1, 100, 0.02, 1, 102, id="beyond"),
        pytest.param("sequences", 98, 100, 0.02, 0, 98, id="fewer-just"),
        pytest.param("sequences", 97, 100, 0.02, 1, 98, id="fewer"),
        pytest.param("sequences", 200, 100, 0.02, 0, 98, id="more-is-better"),
        pytest.param("sequences", 0, 0, 0.0, 0, 0, id="nothing"),
        pytest.param("tokens_per_second", 1, 100, 1.0, 0, 0, id="anything"),
    ],
)  # fmt: skip
def test_the_bad_direction_alone_counts(
    quantity: str, value: float, baseline: float, change: float, code: int, required: float
) -> None:
    """Lower is better: value <= baseline (1 + change); higher is better: value >= baseline (1 - change)."""
    row = judged(rule(quantity, change=change), value, baseline)

    assert row.code == code
    assert row.required == pytest.approx(required)


def test_improvements_are_said() -> None:
    """A value that got better passes and says so."""
    row = judged(rule(change=0.0), 64, 128)

    assert row.message == "64 B/token, -50.0 % against the baseline's 128 B/token, which is better"


def test_a_limit_and_a_baseline() -> None:
    """Both must be met; a limit that fails counts before a baseline that is not there."""
    both = rule(limit=100, change=0.0)

    assert judged(both, 90, 90).code == 0
    assert judged(both, 90, 80).code == 1
    assert judged(both, 90, 80).required == 80
    assert judged(both, 101, 101).code == 1
    assert judged(both, 101, 101).required == 100
    assert judged(both, 90).code == 3
    assert judged(both, 101).code == 1
    assert judged(both, None, 90).code == 1


def test_a_baseline_of_something_else() -> None:
    """A value of another quantity is not compared; the row says what to run."""
    row = judged(rule(change=0.0), 64, 128, quantity="weight_bytes")

    assert row.code == 3
    assert row.message == "the baseline's value of that name is of weight_bytes in B/token; run `update`"


def test_what_is_untold_never_passes() -> None:
    """Its row has no value, and the code of what kept it from one."""
    row = untold(rule(limit=3), None, 3, "why")

    assert (row.status, row.actual, row.required, row.code) == ("undetermined", None, 3, 3)
    assert WORST == (2, 1, 3, 0)
