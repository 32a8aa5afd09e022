"""Laws of `check`: what is written is what is read, no file crashes its reader, and worse never passes where better fails."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from roofcast.calculators.check import WORST, Kept, Rule, judge, within
from roofcast.calculators.check_baseline import Baseline, Places, moved, read_baseline, render_baseline, updated
from roofcast.calculators.check_quantities import QUANTITIES, Case
from roofcast.calculators.check_rows import Found
from roofcast.cli.check_fields import FIELDS
from roofcast.cli.check_file import RuleFileError, read_rules
from roofcast.cli.check_values import tokens
from roofcast.hwdb.units import show_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.check_rows import RuleRow

NUMBERED: Final = sorted(name for name, one in QUANTITIES.items() if one.limit)
VALUES: Final = st.floats(0, 1e12, allow_nan=False).filter(lambda value: value == 0 or value > 1e-9)
NAMES: Final = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
SCALARS: Final = st.one_of(
    st.sampled_from(
        ["4k", "010", "1:30", "yes", "~", "h100", "500ms", "2%", "true", "[", "{", "&a", "*a", "!!x y", "'", "<<", "-"]
    ),
    st.integers(-5, 5000).map(str),
    NAMES,
)
ASKED: Final = sorted(name for name, one in QUANTITIES.items() if not one.limit)
BESIDE: Final = (st.sampled_from(["", "s", "B"]), st.sampled_from([None, "bound", "low"]))
FILES: Final = st.one_of(st.none(), NAMES)
KEPT: Final = st.one_of(
    st.builds(Kept, st.sampled_from(NUMBERED), *BESIDE, VALUES, FILES),
    st.builds(Kept, st.sampled_from(ASKED), *BESIDE, st.booleans(), FILES),
)
LOCKS: Final = st.dictionaries(
    st.tuples(st.sampled_from(["model", "accelerator", "constants", "roofcast"]), NAMES), NAMES
)
BASELINES: Final = st.builds(Baseline, st.dictionaries(NAMES, KEPT), LOCKS)


def held(quantity: str, value: float, limit: float | None, change: float | None, baseline: float | None) -> RuleRow:
    """Return the row of a rule that is about so much."""
    rule = Rule("r", quantity, Case(model="m"), limit, change, "f", 1)
    kept = None if baseline is None else Kept(quantity, rule.about.unit, rule.basis, baseline)
    return judge(rule, Found(value), kept, "x")


def problems(text: str) -> list[str]:
    """Return what is wrong with a file of that text; nothing of a good one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "r.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            read_rules([str(path)], "bound")
        except RuleFileError as error:
            return list(error.problems)
    return []


@given(st.sampled_from(NUMBERED), VALUES, VALUES, VALUES, st.floats(0, 1), VALUES)
def test_better_never_fares_worse(
    quantity: str, one: float, other: float, limit: float, change: float, baseline: float
) -> None:
    """Of two values the better one has no worse a verdict, by limit and baseline together."""
    pick: tuple[Callable[..., float], Callable[..., float]] = (max, min)
    better, worse = pick if QUANTITIES[quantity].sign == ">=" else pick[::-1]
    codes = [held(quantity, choose(one, other), limit, change, baseline).code for choose in (better, worse)]

    assert WORST.index(codes[0]) >= WORST.index(codes[1])


@given(st.sampled_from(NUMBERED), VALUES, st.floats(0, 1))
def test_what_is_as_it_was_passes(quantity: str, value: float, change: float) -> None:
    """The baseline's own value is within any change that is allowed, none included."""
    assert held(quantity, value, None, change, value).code == 0


@given(VALUES, VALUES)
def test_a_value_is_on_one_side_or_on_the_limit(value: float, limit: float) -> None:
    """At least and at most are both met on the limit alone."""
    at_least, at_most = within(">=", value, limit), within("<=", value, limit)

    assert at_least or at_most
    assert not (at_least and at_most) or abs(value - limit) <= 1e-8 * max(value, limit)


@given(BASELINES)
def test_baselines_are_read_as_they_were_written(baseline: Baseline) -> None:
    """read(render(b)) = b, to the last bit of every number, and nothing of it has moved."""
    again = read_baseline(render_baseline(baseline).encode(), "f")

    assert again == baseline
    assert [(one.value, type(one.value) is bool) for one in again.rules.values()] == [
        (baseline.rules[name].value, type(baseline.rules[name].value) is bool) for name in again.rules
    ]
    assert moved(baseline, again) == []
    assert render_baseline(again) == render_baseline(baseline)


@given(BASELINES, st.lists(st.tuples(NAMES, VALUES), max_size=5))
def test_an_update_holds_the_rules_and_no_others(before: Baseline, found: list[tuple[str, float]]) -> None:
    """After an update the baseline's names are those of rules that have a value."""
    rows = [judge(Rule(name, "ttft", Case(), 1.0, None, "f", 1), Found(value), None, "x") for name, value in found]

    assert updated(before, rows, {}, Places({"f": "f"}))[0].rules.keys() == {name for name, _ in found}


@given(st.integers(1, 1 << 30))
def test_tokens_are_read_as_they_are_shown(count: int) -> None:
    """tokens(show(n)) = n, with k and m and without."""
    assert tokens(show_tokens(count)) == tokens(str(count)) == count


@given(st.text(max_size=200))
def test_any_text_is_rules_or_problems(text: str) -> None:
    """No text makes the reader of rules raise anything but what is wrong, in lines of one line each."""
    assume("\r" not in text)
    found = problems(text)

    assert found
    assert all("\n" not in line for line in found)


@given(st.dictionaries(st.one_of(st.sampled_from([*FIELDS, "matrix", "exclude"]), NAMES), st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(NAMES, SCALARS, max_size=2)), max_size=6))  # fmt: skip
def test_any_fields_are_a_rule_or_problems(fields: dict[str, object]) -> None:
    """Whatever a rule's fields hold, written as YAML would: read, or refused with the line of the rule or later."""
    text = yaml.safe_dump(
        {"schema": "roofcast.check/1", "rules": [{"quantity": "weights_fit"} | fields]}, allow_unicode=True
    )
    found = problems(text)

    assert all(":" in line for line in found)
    assert len(found) == len(set(found))


@given(st.lists(st.sampled_from(["rules", ":", " ", "\n", "- ", "{", "}", "[", "]", "&a", "*a", "!!", "schema", "4k", "'", '"', "#", "~", ","]), max_size=40))  # fmt: skip
def test_any_tokens_of_yaml_are_rules_or_problems(parts: list[str]) -> None:
    """Anchors, tags, quotes and brackets in any order never crash the reader."""
    assert problems("".join(parts))
