"""Laws of what requests cost at an API: what hits, longer prefixes, more output and mixing must and must not do."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.api_cost import CACHED, INPUT, STORAGE, WRITE, Terms, mix_cost, request_cost
from roofcast.calculators.workload import Request
from roofcast.hwdb.price_files import BUILT_IN, read_price_file
from roofcast.hwdb.prices import CacheRule, PriceList

DAY: Final = max(offer.newest for path in BUILT_IN.glob("*.yaml") for offer in read_price_file(path))
LISTS: Final = [
    prices
    for path in sorted(BUILT_IN.glob("*.yaml"))
    for offer in read_price_file(path)
    if (prices := offer.on(DAY)) is not None
]
PRICES: Final = st.sampled_from(LISTS)
SHARES: Final = st.floats(0, 1)
LIFETIMES: Final = st.sampled_from(["5m", "30m", "1h", "12h"])
TERMS: Final = st.builds(
    Terms,
    lifetime=LIFETIMES,
    peak=st.booleans(),
    kept_hours=st.none() | st.floats(0, 48),
    requests_per_hour=st.none() | st.floats(0, 1e6),
)
SLACK: Final = 1 + 1e-9


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a request whose prefix is a part of its prompt."""
    prompt = draw(st.integers(1, 1_000_000))
    return Request(
        prompt, draw(st.integers(0, 100_000)), draw(st.integers(0, prompt)), draw(SHARES), draw(st.floats(0.01, 100))
    )


@given(PRICES, requests(), TERMS)
def test_tokens_of_the_prompt_are_paid_once(prices: PriceList, request: Request, terms: Terms) -> None:
    """Input, cached input and writes are the prompt's tokens, each in one of them."""
    cost = request_cost(prices, request, terms)
    of_prompt = sum(part.tokens for part in cost.terms if part.name in {INPUT, CACHED, WRITE})

    assert of_prompt == pytest.approx(request.prompt)
    assert cost.dollars >= 0


@given(PRICES, requests(), SHARES, TERMS)
def test_more_hits_never_cost_more(prices: PriceList, request: Request, hit: float, terms: Terms) -> None:
    """A cached token costs no more than one that is written, so that the higher hit rate is no dearer."""
    low, high = sorted((request.hit, hit))
    costs = [request_cost(prices, replace(request, hit=rate), terms).dollars for rate in (low, high)]

    assert costs[1] <= costs[0] * SLACK


@given(PRICES, requests(), LIFETIMES)
def test_a_prefix_that_is_always_found_never_costs_more(prices: PriceList, request: Request, lifetime: str) -> None:
    """Without storage a prefix that every request finds is no dearer than none."""
    terms = Terms(lifetime=lifetime)
    found, none = replace(request, hit=1.0), replace(request, prefix=0)

    assert request_cost(prices, found, terms).dollars <= request_cost(prices, none, terms).dollars * SLACK


@given(PRICES, requests(), TERMS)
def test_more_output_costs_its_price(prices: PriceList, request: Request, terms: Terms) -> None:
    """Output costs the same a token however much there is of it."""
    more = request_cost(prices, replace(request, output=request.output + 1000), terms).dollars
    price = prices.row(request.prompt, peak=terms.peak).output

    assert more - request_cost(prices, request, terms).dollars == pytest.approx(price / 1000, rel=1e-6, abs=1e-12)


@given(PRICES, requests(), TERMS)
def test_a_prompt_of_a_higher_tier_never_costs_less(prices: PriceList, request: Request, terms: Terms) -> None:
    """One token more never makes a request without a prefix cheaper, across every boundary."""
    ends = [row.up_to for row in prices.rows if row.up_to is not None] or [request.prompt]
    for end in ends:
        costs = [request_cost(prices, Request(prompt, request.output), terms).dollars for prompt in (end, end + 1)]

        assert costs[0] <= costs[1] * SLACK


@given(PRICES, st.lists(requests(), min_size=1, max_size=4), TERMS)
def test_a_mix_lies_between_its_kinds(prices: PriceList, kinds: list[Request], terms: Terms) -> None:
    """A mean request costs no less than the cheapest kind and no more than the dearest, storage left out."""
    plain = replace(terms, kept_hours=None)
    each = [request_cost(prices, kind, plain).dollars for kind in kinds]

    assert min(each) / SLACK <= mix_cost(prices, kinds, plain).dollars <= max(each) * SLACK


@given(PRICES, requests(), TERMS)
def test_a_mix_of_one_is_that_one(prices: PriceList, request: Request, terms: Terms) -> None:
    """A mix of one kind costs what its request does, part by part."""
    mixed, alone = mix_cost(prices, [request], terms), request_cost(prices, request, terms)

    assert [part.name for part in mixed.terms] == [part.name for part in alone.terms]
    assert [part.dollars for part in mixed.terms] == pytest.approx([part.dollars for part in alone.terms])


@given(PRICES, requests(), TERMS)
def test_keeping_longer_never_costs_less(prices: PriceList, request: Request, terms: Terms) -> None:
    """Twice the hours cost as much or more, whoever shares them."""
    hours = terms.kept_hours or 0.0
    costs = [request_cost(prices, request, replace(terms, kept_hours=factor * hours)) for factor in (1, 2)]
    storage = [sum(part.dollars for part in cost.terms if part.name == STORAGE) for cost in costs]

    assert storage[0] <= storage[1] * SLACK


@given(st.none() | st.integers(0, 10_000), st.none() | st.integers(1, 1000), st.integers(0, 1_000_000))
def test_what_is_held_is_whole_steps_of_the_prefix(minimum: int | None, step: int | None, prefix: int) -> None:
    """A cache holds no more than the prefix, less than a step below it, and nothing of one below the minimum."""
    held = CacheRule(minimum=minimum, step=step).held(prefix)

    assert 0 <= held <= prefix
    assert held % (step or 1) == 0
    assert held == 0 if prefix < (minimum or 0) else prefix - held < (step or 1)
