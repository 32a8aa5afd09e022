"""What requests cost by each provider's rules: worked by hand, from published prices."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Final

import pytest

from roofcast.calculators.api_cost import (
    CACHED,
    INPUT,
    OUTPUT,
    STORAGE,
    WRITE,
    RequestCost,
    Terms,
    bill,
    break_even_hits,
    break_even_requests,
    mix_cost,
    request_cost,
    write_price,
)
from roofcast.calculators.errors import UsageError
from roofcast.calculators.workload import Request
from roofcast.hwdb.price_files import find_prices
from roofcast.hwdb.prices import CacheRule, PriceList, UnknownPriceError

PLAIN: Final = Terms()
HOUR: Final = Terms(lifetime="1h")


@pytest.fixture(autouse=True)
def _no_files(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the project's own prices alone."""
    monkeypatch.setenv("ROOFCAST_HOME", str(tmp_path))


def listed(model: str, on: date | None = None) -> PriceList:
    """The prices of one model."""
    [found] = find_prices([model], on=on)
    return found


def tokens(cost: RequestCost) -> dict[str, float]:
    """Tokens by part."""
    return {part.name: part.tokens for part in cost.terms}


def prices(cost: RequestCost) -> dict[str, float]:
    """Prices by part. [USD/Mtoken]"""
    return {part.name: part.price for part in cost.terms}


# --- input and output


def test_a_request_without_a_prefix() -> None:
    """1,000 tokens at 5 and 100 at 25 dollars a million: 0.005 + 0.0025."""
    cost = request_cost(listed("claude-opus-5"), Request(1000, 100), PLAIN)

    assert cost.dollars == pytest.approx(0.0075)
    assert tokens(cost) == {INPUT: 1000, OUTPUT: 100}
    assert cost.notes == ()


def test_a_request_is_the_sum_of_its_parts() -> None:
    """Every part is tokens x price, and nothing else is in the sum."""
    cost = request_cost(listed("gemini-2.5-pro"), Request(9000, 100, 4096, 0.5), Terms(kept_hours=2.0))

    assert [part.name for part in cost.terms] == [INPUT, CACHED, WRITE, OUTPUT, STORAGE]
    assert cost.dollars == pytest.approx(sum(part.tokens * part.price for part in cost.terms) / 1e6)


# --- cache writes


@pytest.mark.parametrize(("terms", "write", "dollars"), [(PLAIN, 6.25, 0.085), (HOUR, 10.0, 0.115)])
def test_a_miss_writes_at_its_lifetimes_price(terms: Terms, write: float, dollars: float) -> None:
    """Of 10,000 tokens 8,000 are written at 1.25 or 2 times 5, 2,000 read at 5, and 1,000 made at 25."""
    cost = request_cost(listed("claude-opus-5"), Request(10_000, 1000, 8000, hit=0.0), terms)

    assert tokens(cost) == {INPUT: 2000, WRITE: 8000, OUTPUT: 1000}
    assert prices(cost)[WRITE] == write
    assert cost.dollars == pytest.approx(dollars)


def test_a_hit_reads_at_the_cached_price() -> None:
    """8,000 at 0.50, 2,000 at 5 and 1,000 at 25: 0.004 + 0.01 + 0.025; whatever the lifetime."""
    for terms in (PLAIN, HOUR):
        assert request_cost(listed("claude-opus-5"), Request(10_000, 1000, 8000), terms).dollars == pytest.approx(0.039)


def test_a_share_of_hits_is_the_mean_of_both() -> None:
    """At a hit rate of 0.9 a request costs 0.9 of a hit's and 0.1 of a miss's price: 0.9 x 0.039 + 0.1 x 0.085."""
    cost = request_cost(listed("claude-opus-5"), Request(10_000, 1000, 8000, hit=0.9), PLAIN)

    assert cost.dollars == pytest.approx(0.0436)
    assert tokens(cost) == pytest.approx({INPUT: 2000, CACHED: 7200, WRITE: 800, OUTPUT: 1000})


@pytest.mark.parametrize(("lifetime", "hits"), [("5m", 1), ("1h", 2)])
def test_a_write_pays_after_one_hit_or_two(lifetime: str, hits: int) -> None:
    """1.25 of input is paid back by the first hit at 0.1, 2 of input by the second: 1.25 / 4.5 and 5 / 4.5."""
    row = listed("claude-opus-5").rows[0]
    cached = [row.cache_write[lifetime] + count * (row.cached_input or 0) for count in (hits - 1, hits)]
    without = [row.input * (count + 1) for count in (hits - 1, hits)]

    assert hits - 1 < (break_even_hits(row, lifetime) or 0) <= hits
    assert cached[0] >= without[0]
    assert cached[1] < without[1]


def test_a_free_write_pays_at_once() -> None:
    """Where writing costs as input does, any hit pays; where no cached input is listed, none ever does."""
    assert break_even_hits(listed("gpt-4.1").rows[0], "5m") == 0
    assert break_even_hits(listed("amazon-nova-pro").rows[0], "5m") is None


@pytest.mark.parametrize(
    ("model", "asked", "lifetime", "price"),
    [
        ("claude-opus-5", "5m", "5m", 6.25),
        ("claude-opus-5", "6m", "1h", 10.0),
        ("claude-opus-5", "1d", "1h", 10.0),
        ("gpt-6.2-sol", "5m", "30m", 2.5),
        ("gpt-6.2-sol", "1h", "12h", 5.0),
        ("gpt-4.1", "1h", None, 2.0),
    ],
)
def test_lifetimes(model: str, asked: str, lifetime: str | None, price: float) -> None:
    """A lifetime that is not listed is the next longer one, else the longest; none is input's price."""
    assert write_price(listed(model).rows[0], asked) == (lifetime, price)


def test_another_lifetime_is_said() -> None:
    """GPT-6.2 writes for 30 minutes where 5 are asked, and says so where anything is written."""
    request = Request(4000, 100, 2048, hit=0.0)
    said = "prefixes are written for 30m; nothing is listed for 5m"

    assert said in request_cost(listed("gpt-6.2-sol"), request, PLAIN).notes
    assert said not in request_cost(listed("gpt-6.2-sol"), replace(request, hit=1.0), PLAIN).notes


def test_a_lifetime_that_is_none() -> None:
    """A lifetime is a number and m, h or d."""
    with pytest.raises(UsageError, match="'soon' is no lifetime of a cache; write it as 5m or 1h"):
        request_cost(listed("claude-opus-5"), Request(1000, 1, 600, 0.5), Terms(lifetime="soon"))


# --- prefixes


@pytest.mark.parametrize(
    ("model", "prefix", "held"),
    [
        ("gpt-4.1", 1023, 0),
        ("gpt-4.1", 1024, 1024),
        ("gpt-4.1", 1151, 1024),
        ("gpt-4.1", 1152, 1152),
        ("gpt-6.2-sol", 1151, 1151),
        ("claude-opus-4-8", 1023, 0),
        ("claude-opus-4-8", 1025, 1025),
        ("claude-opus-5", 511, 0),
        ("claude-opus-5", 512, 512),
        ("claude-haiku-4-5", 4095, 0),
        ("deepseek-v4-pro", 63, 0),
        ("deepseek-v4-pro", 127, 64),
        ("gemini-2.5-pro", 2047, 0),
        ("grok-4.5", 1, 1),
    ],
)
def test_prefixes_have_a_minimum_and_steps(model: str, prefix: int, held: int) -> None:
    """A prefix below the minimum is not cached at all; above it whole steps are, and the rest is input."""
    cost = request_cost(listed(model), Request(10_000, 10, prefix), PLAIN)

    assert tokens(cost).get(CACHED, 0) == held
    assert tokens(cost)[INPUT] == 10_000 - held


def test_a_change_in_the_first_token_leaves_no_prefix() -> None:
    """A prefix counts from the first token on: where that differs it is 0, and all of the prompt is input."""
    changed = request_cost(listed("claude-opus-5"), Request(10_000, 10, prefix=0, hit=1.0), PLAIN)

    assert tokens(changed) == {INPUT: 10_000, OUTPUT: 10}
    assert changed == request_cost(listed("claude-opus-5"), Request(10_000, 10), PLAIN)


@pytest.mark.parametrize(
    ("model", "prefix", "note"),
    [
        ("gpt-4.1", 1023, "prefixes of 1,023 tokens are not cached; the least is 1,024"),
        ("gpt-4.1", 1100, "of prefixes of 1,100 tokens 1,024 are cached, in steps of 128"),
        ("amazon-nova-pro", 5000, "no price of cached input is listed; prefixes cost what input does"),
        ("grok-4.5", 5000, "the least prefix that is cached is not known, and taken as none"),
        ("claude-opus-5", 5000, "prefixes are cached where requests ask for it"),
    ],
)
def test_what_the_rules_did_is_said(model: str, prefix: int, note: str) -> None:
    """Why a prefix is not cached, or not whole, is a note of the cost."""
    assert request_cost(listed(model), Request(10_000, 10, prefix), PLAIN).notes == (note,)


def test_without_a_price_of_cached_input_nothing_is_saved() -> None:
    """Amazon lists none: 10,000 tokens at 0.80 and 10 at 3.20, with a prefix or without."""
    nova = listed("amazon-nova-pro")

    assert request_cost(nova, Request(10_000, 10, 5000), PLAIN).dollars == pytest.approx(0.008032)
    assert request_cost(nova, Request(10_000, 10), PLAIN).dollars == pytest.approx(0.008032)


def test_steps_without_a_minimum() -> None:
    """A rule with steps alone caches none of a prefix shorter than one."""
    prices_ = replace(listed("gpt-4.1"), caching=CacheRule(step=64))

    cost = request_cost(prices_, Request(100, 1, 63), PLAIN)

    assert cost.notes == ("prefixes of 63 tokens are not cached; the least is 64",)


@pytest.mark.parametrize("prefix", [-1, 101])
def test_a_prefix_is_a_part_of_the_prompt(prefix: int) -> None:
    """A prefix longer than the prompt, or negative, is refused."""
    with pytest.raises(UsageError, match="is no part of a prompt of 100"):
        request_cost(listed("gpt-4.1"), Request(100, 1, prefix), PLAIN)


# --- storage


def test_storage_an_hour() -> None:
    """100,000 tokens kept for 2 hours at 4.50 a million and hour cost 0.90; 10 requests an hour share it: 0.045 each."""
    pro, request = listed("gemini-2.5-pro"), Request(101_000, 500, 100_000)
    alone = request_cost(pro, request, Terms(kept_hours=2.0))
    shared = request_cost(pro, request, Terms(kept_hours=2.0, requests_per_hour=10.0))

    assert [part.dollars for part in alone.terms if part.name == STORAGE] == pytest.approx([0.9])
    assert [part.dollars for part in shared.terms if part.name == STORAGE] == pytest.approx([0.045])
    # 100k x 0.125 + 1k x 1.25 + 500 x 10 + storage
    assert shared.dollars == pytest.approx(0.0125 + 0.00125 + 0.005 + 0.045)


def test_storage_is_for_one_request_at_least() -> None:
    """A cache that is kept for less than the time between requests is paid by one, and not by a part of one."""
    pro, request = listed("gemini-2.5-pro"), Request(101_000, 500, 100_000)

    assert request_cost(pro, request, Terms(kept_hours=0.5, requests_per_hour=1.0)) == request_cost(
        pro, request, Terms(kept_hours=0.5)
    )


def test_what_is_not_kept_costs_nothing_to_keep() -> None:
    """An implicit cache, one of a provider without storage, and a prefix that is too short have no storage."""
    for model, request, terms in (
        ("gemini-2.5-pro", Request(9000, 10, 8000), PLAIN),
        ("claude-opus-5", Request(9000, 10, 8000), Terms(kept_hours=1.0)),
        ("gemini-2.5-pro", Request(9000, 10, 2047), Terms(kept_hours=1.0)),
    ):
        assert STORAGE not in tokens(request_cost(listed(model), request, terms))


def test_requests_that_pay_for_storage() -> None:
    """4.50 / (1.25 - 0.125): from 4 requests an hour on keeping costs less than reading again."""
    pro = listed("gemini-2.5-pro")
    request = Request(100_000, 1, 100_000)
    costs = [request_cost(pro, request, Terms(kept_hours=10.0, requests_per_hour=rate)).dollars for rate in (3.9, 4.1)]
    plain = request_cost(pro, replace(request, prefix=0), PLAIN).dollars

    assert break_even_requests(pro.rows[0]) == pytest.approx(4.0)
    assert costs[0] > plain > costs[1]
    assert break_even_requests(listed("claude-opus-5").rows[0]) is None


# --- tiers and hours


@pytest.mark.parametrize(
    ("model", "prompt", "input_price", "output_price"),
    [
        ("gemini-2.5-pro", 200_000, 1.25, 10.0),
        ("gemini-2.5-pro", 200_001, 2.5, 15.0),
        ("gpt-6.2-sol", 272_000, 2.0, 10.0),
        ("gpt-6.2-sol", 272_001, 4.0, 15.0),
        ("gpt-6.2-sol", 278_528, 4.0, 15.0),  # 272k as 272 x 1,024 would still be the lower tier
        ("claude-haiku-5-5", 100_001, 0.5, 2.5),
    ],
)
def test_the_whole_request_is_of_its_prompts_tier(
    model: str, prompt: int, input_price: float, output_price: float
) -> None:
    """One token more than the boundary makes every token, of output too, cost what the higher tier does."""
    cost = request_cost(listed(model), Request(prompt, 1000), PLAIN)

    assert (prices(cost)[INPUT], prices(cost)[OUTPUT]) == (input_price, output_price)
    assert cost.dollars == pytest.approx((prompt * input_price + 1000 * output_price) / 1e6)


def test_a_cached_prefix_counts_for_the_tier() -> None:
    """A prompt above the boundary is of the higher tier however much of it is cached: 200,000 at 0.25 and not 0.125."""
    cost = request_cost(listed("gemini-2.5-pro"), Request(200_001, 0, 200_000), PLAIN)

    assert prices(cost)[CACHED] == 0.25
    assert cost.notes == ("prompts above 200,000 tokens cost more, from their first token on",)


@pytest.mark.parametrize(
    ("moment", "dollars"),
    [
        (datetime(2026, 11, 27, 3, 59, tzinfo=UTC), 0.00528),  # 1k x 1.32 + 1k x 3.96
        (datetime(2026, 11, 27, 4, 0, tzinfo=UTC), 0.00264),  # 1k x 0.66 + 1k x 1.98
        (datetime(2026, 11, 28, 3, 0, tzinfo=UTC), 0.00264),  # Saturday
    ],
)
def test_peak_hours_cost_twice_as_much(moment: datetime, dollars: float) -> None:
    """The same request costs twice as much within DeepSeek's peak hours, and not at their end or on Saturday."""
    pro = listed("deepseek-v4-pro")
    assert pro.hours is not None

    assert request_cost(pro, Request(1000, 1000), Terms(peak=pro.hours.holds(moment))).dollars == pytest.approx(dollars)


def test_a_prompt_beyond_every_tier() -> None:
    """A prompt that no tier is of has no cost."""
    grok = listed("grok-4")
    short = replace(grok, rows=grok.rows[:1])

    with pytest.raises(UnknownPriceError, match="grok-4 has no price of a prompt of 128,001 tokens"):
        request_cost(short, Request(128_001, 1), PLAIN)


# --- mixes


def test_a_mix_is_the_weighted_mean() -> None:
    """Three of 1,000:100 and one of 100:1,000 at 2 and 8: (3 x 0.0028 + 0.0082) / 4."""
    cost = mix_cost(listed("gpt-4.1"), (Request(1000, 100, weight=3), Request(100, 1000)), PLAIN)

    assert cost.dollars == pytest.approx(0.00415)
    assert tokens(cost) == pytest.approx({INPUT: 775, OUTPUT: 325})
    assert prices(cost) == pytest.approx({INPUT: 2, OUTPUT: 8})


def test_a_mix_over_two_tiers_has_a_mean_price() -> None:
    """Prompts of 100,000 and 300,000 tokens at 1.25 and 2.50: 400,000 cost 0.875, which is 2.1875 a million."""
    cost = mix_cost(listed("gemini-2.5-pro"), (Request(100_000, 0), Request(300_000, 0)), PLAIN)

    assert prices(cost)[INPUT] == pytest.approx(2.1875)
    assert cost.dollars == pytest.approx(0.875 / 2)


def test_parts_of_some_kinds_alone_are_means_over_all() -> None:
    """Half of the requests have 8,000 cached tokens, so that a mean request has 4,000."""
    cost = mix_cost(listed("claude-opus-5"), (Request(10_000, 10, 8000), Request(10_000, 10)), PLAIN)

    assert tokens(cost)[CACHED] == 4000


def test_storage_in_a_mix_is_shared_by_the_requests_of_its_kind() -> None:
    """Of 10 requests an hour 5 share each of two prefixes: 100,000 x 4.50 / 5 a request, and not / 10."""
    request = Request(100_000, 0, 100_000)
    cost = mix_cost(listed("gemini-2.5-pro"), (request, request), Terms(kept_hours=1.0, requests_per_hour=10.0))

    assert [part.dollars for part in cost.terms if part.name == STORAGE] == pytest.approx([0.09])


def test_notes_of_a_mix_come_once() -> None:
    """What is said of two kinds alike is said once."""
    request = Request(5000, 10, 100)

    assert mix_cost(listed("gpt-4.1"), (request, request), PLAIN).notes == (
        "prefixes of 100 tokens are not cached; the least is 1,024",
    )


def test_a_mix_of_nothing() -> None:
    """A mix without weight has no mean."""
    with pytest.raises(UsageError, match="a mix needs requests of some weight"):
        mix_cost(listed("gpt-4.1"), (), PLAIN)


# --- totals


@pytest.mark.parametrize("on", [date(2025, 2, 28), None])
def test_a_published_day(on: date | None) -> None:
    """608e9 tokens read, 56.3 % of them cached, and 168e9 made, at the prices of R1: 562 thousand dollars."""
    made = bill(listed("deepseek-reasoner", on).rows[0], 608e9, 168e9, 0.563)

    assert made.input == pytest.approx(608e3 * 0.437 * 0.55)
    assert made.cached_input == pytest.approx(608e3 * 0.563 * 0.14)
    assert made.output == pytest.approx(168e3 * 2.19)
    assert made.dollars == pytest.approx(561_975, abs=1)


def test_a_bill_without_a_price_of_cached_input() -> None:
    """Where none is listed, cached tokens cost what read ones do."""
    assert bill(listed("amazon-nova-pro").rows[0], 1e6, 0, 0.5).dollars == pytest.approx(0.8)
