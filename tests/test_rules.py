"""Capacity rules: a quantity, `>=`, a count, and a context where the quantity needs one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.fit import FitResult, Machine, Requirement, fit
from roofcast.calculators.rules import Rule, check_rules, parse_rule
from tests.checkpoints import BF16, catalogued

H100 = Machine("h100-sxm", 1, 80e9, None, 0.1)


def llama() -> FitResult:
    """Return Llama 3.1 8B on an H100: 104 sequences of 4,096 and 426,784 tokens."""
    return fit(catalogued("llama-3.1-8b"), H100, weights=None, kv=BF16, contexts=[4096])[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sequences>=100@4k", Rule("sequences>=100@4k", "sequences", 100, 4096)),
        (" sequences  >= 1k @ 128K ", Rule("sequences  >= 1k @ 128K", "sequences", 1024, 131072)),
        ("sequences>=1@5000", Rule("sequences>=1@5000", "sequences", 1, 5000)),
        ("kv_tokens>=400k", Rule("kv_tokens>=400k", "kv_tokens", 400 * 1024, None)),
        ("kv_tokens>=1m", Rule("kv_tokens>=1m", "kv_tokens", 2**20, None)),
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
    ("text", "met"),
    [
        ("sequences>=104@4k", True),
        ("sequences>=105@4k", False),
        ("kv_tokens>=426784", True),
        ("kv_tokens>=426785", False),
    ],
)
def test_exactly_enough_is_enough(text: str, met: bool) -> None:
    """A rule is met from its own number on."""
    [checked] = check_rules([parse_rule(text)], llama())

    assert checked.passed is met


def test_every_rule_is_answered() -> None:
    """Each rule comes back as it was written, with what was required, what there is, and whether that is enough."""
    texts = ["sequences>=200@4k", "sequences>=1@4k", "kv_tokens>=1000000"]
    checked = check_rules([parse_rule(text) for text in texts], llama())

    assert checked == [
        Requirement("sequences>=200@4k", passed=False, actual=104, required=200),
        Requirement("sequences>=1@4k", passed=True, actual=104, required=1),
        Requirement("kv_tokens>=1000000", passed=False, actual=426_784, required=1_000_000),
    ]


def test_no_tokens_known_is_not_enough() -> None:
    """A cache whose tokens have no total never meets a rule on them."""
    [checked] = check_rules([parse_rule("kv_tokens>=1")], replace(llama(), kv_tokens=None))

    assert not checked.passed
