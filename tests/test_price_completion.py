"""What is not listed: prices that an older source or a rule completes, and models that are not sold any more."""

from __future__ import annotations

from datetime import date

import pytest

from roofcast.hwdb.price_files import (
    find_prices,
)
from roofcast.hwdb.prices import CacheRule, UnknownPriceError
from tests.price_lists import only

# --- what is not listed


def test_an_older_source_completes_a_newer_one() -> None:
    """What the newest row does not list is taken from an older one with the same input and output, and said."""
    row = only("claude-sonnet-5", date(2026, 8, 5)).rows[0]

    assert (row.source.as_of, row.input, row.cached_input, row.output) == ("2026-08-05", 2, 0.2, 10)
    assert row.note.startswith("cached input, cache write: by the rule of ")


def test_a_model_that_has_ended_is_not_sold_and_still_known() -> None:
    """A vendor's list leaves it out; by its name its last prices are had, and said to be that; of a later day there are none."""
    row = only("deepseek-reasoner").rows[0]

    assert (row.input, row.cached_input, row.output) == (0.55, 0.14, 2.19)
    assert row.note.startswith("not sold any more since 2026-07-24")
    assert "deepseek-reasoner" not in {prices.model for prices in find_prices(["deepseek"])}
    assert only("deepseek-reasoner", date(2026, 7, 23)).rows[0].note == ""
    with pytest.raises(UnknownPriceError, match="its last ended on 2026-07-24"):
        only("deepseek-reasoner", date(2026, 7, 24))


def test_a_price_of_a_day_before_it_was_read_says_so() -> None:
    """Two years before the page was read, nothing is known but what stands there now."""
    assert only("claude-opus-5", date(2024, 1, 1)).rows[0].unknown_on == date(2024, 1, 1)
    assert only("deepseek-v4-pro", date(2023, 1, 1)).rows[0].unknown_on == date(2023, 1, 1)
    assert only("deepseek-chat", date(2025, 2, 8)).rows[0].unknown_on is None
    assert only("claude-opus-5").rows[0].unknown_on is None


def test_a_rule_completes_what_no_source_lists() -> None:
    """Anthropic writes at 1.25 and 2 of input and reads at 0.1 where a row lists neither, and the rule is named."""
    row = only("claude-sonnet-4-5").row(200_001)  # 6 and 22.50

    assert (row.cached_input, dict(row.cache_write)) == (0.6, {"5m": 7.5, "1h": 12.0})
    assert row.note.startswith("cached input, cache write: by the rule of https://platform.claude.com/")


def test_what_is_listed_stays() -> None:
    """A listed price wins over the rule: Fable 5.1 reads at 0.025 of input."""
    row = only("claude-fable-5.1").rows[0]

    assert (row.cached_input, dict(row.cache_write), row.note) == (0.25, {"5m": 12.5, "1h": 20.0}, "")


@pytest.mark.parametrize(
    ("model", "minimum", "step"),
    [
        ("claude-opus-5", 512, None),
        ("claude-opus-4-8", 1024, None),
        ("claude-opus-4-7", 2048, None),
        ("claude-haiku-4-5", 4096, None),
        ("gpt-4.1", 1024, 128),
        ("gpt-6.2-sol", 1024, 1),
        ("gemini-2.5-pro", 2048, None),
        ("gemini-3.8-flash", 4096, None),
        ("deepseek-v4-pro", 64, 64),
        ("mistral-medium-3.5", 64, 64),
        ("grok-4.5", None, None),
    ],
)
def test_rules_of_caches(model: str, minimum: int | None, step: int | None) -> None:
    """The least prefix and its steps are by model; a model's own rule keeps what it does not say as its vendor has it."""
    rule = only(model).caching

    assert (rule.minimum, rule.step) == (minimum, step)
    assert rule.automatic is (only(model).vendor not in {"anthropic", "mistral"})


def test_an_unknown_rule_holds_everything() -> None:
    """Without a minimum and steps a prefix counts whole."""
    assert CacheRule().held(1) == 1
