"""Capacity rules: a quantity, `>=`, a count, and a context where the quantity needs one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.fit import FitResult, Machine, fit
from roofcast.calculators.rules import Rule, check_rules, parse_rule
from tests.checkpoints import BF16, catalogued

H100 = Machine("h100-sxm", 1, 80e9, None, 0.1)


def llama() -> FitResult:
    """Return Llama 3.1 8B on an H100: 104 sequences of 4,096 and 426,784 tokens."""
    return fit(catalogued("llama-3.1-8b"), H100, weights=None, kv=BF16, contexts=[4096])[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sequences>=100@4k", Rule("sequences", 100, 4096)),
        (" sequences  >= 1k @ 128K ", Rule("sequences", 1024, 131072)),
        ("sequences>=1@5000", Rule("sequences", 1, 5000)),
        ("kv_tokens>=400k", Rule("kv_tokens", 400 * 1024, None)),
        ("kv_tokens>=1m", Rule("kv_tokens", 2**20, None)),
    ],
)
def test_rules_are_read(text: str, expected: Rule) -> None:
    """Counts and contexts take k and m, blanks do not matter."""
    assert parse_rule(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "sequences", "sequences>=", "sequences>=@4k", "sequences>=100", "sequences=100@4k", "sequences<=100@4k",
        "sequences>=-1@4k", "sequences>=0@4k", "sequences>=1.5@4k", "sequences>=100@", "sequences>=100@x",
        "sequences>=100@0", "Sequences>=100@4k", "kv_tokens>=4@4k", "tokens>=4", "sequences>=1@4k@8k",
        "sequences>=1@4k; kv_tokens>=1", "sequences>=99999999999999999999@4k",
    ],
)  # fmt: skip
def test_other_text_is_refused(text: str) -> None:
    """What is no rule is refused in one line that quotes it and shows one."""
    with pytest.raises(UsageError) as refused:
        parse_rule(text)

    assert repr(text) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "met"),
    [
        (Rule("sequences", 104, 4096), True),
        (Rule("sequences", 105, 4096), False),
        (Rule("kv_tokens", 426_784, None), True),
        (Rule("kv_tokens", 426_785, None), False),
    ],
)
def test_exactly_enough_is_enough(rule: Rule, met: bool) -> None:
    """A rule is met from its own number on."""
    assert (check_rules([rule], llama()) == []) is met


def test_every_rule_that_fails_has_a_line() -> None:
    """Each failed rule is a line with what was required and what there is; met ones say nothing."""
    lines = check_rules(
        [Rule("sequences", 200, 4096), Rule("sequences", 1, 4096), Rule("kv_tokens", 10**6, None)], llama()
    )

    assert len(lines) == 2
    assert "200" in lines[0]
    assert "104" in lines[0]
    assert "4,096" in lines[0]
    assert "426,784" in lines[1]


def test_no_tokens_known_is_not_enough() -> None:
    """A cache whose tokens have no total never meets a rule on them."""
    assert check_rules([Rule("kv_tokens", 1, None)], replace(llama(), kv_tokens=None)) != []
