"""Laws of speculation: what more acceptance, dearer drafts, longer drafts and more bandwidth must and must not do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.deployment import Deployment, Ready, prepare
from roofcast.calculators.drafts import MODEL, HeadAsked, Shape, drafter_of, given_cost, usual_method
from roofcast.calculators.errors import UsageError
from roofcast.calculators.rejection import acceptance_rate, residual
from roofcast.calculators.rounds import Acceptance, Speculation, textbook_best, timed_round
from roofcast.calculators.speculative import (
    acceptance_from_tokens,
    break_even_acceptance,
    expected_tokens,
    textbook_speedup,
    tokens_by_position,
)
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from tests.checkpoints import catalogued

RATES = st.floats(0, 1, exclude_max=True)
LENGTHS = st.integers(1, 64)
COSTS = st.floats(0, 4)
BATCHES = st.integers(1, 512)
CONTEXTS = st.integers(1, 1 << 15)
MODELS = st.sampled_from(
    ["llama-3.1-8b", "qwen2.5-1.5b", "qwen3-30b-a3b", "gemma-3-27b-it", "glm-4.5-air", "qwen3-next-80b-a3b"]
)
METHODS = st.sampled_from(["", "ngram", "medusa"])
SLACK = 1e-9


@cache
def on(name: str, gpu: str = "h200") -> Ready:
    """A model of the catalogue on a GPU that has room for any cache."""
    accelerator = find_accelerator(gpu).accelerator
    return replace(prepare(catalogued(name), Deployment(accelerator, FORMATS["bf16"])), capacity=1e18)


def asked(name: str, method: str, context: int, gpu: str = "h200") -> Speculation:
    """Speculation with a head: the usual one where none is named."""
    ready = on(name, gpu)
    return Speculation(ready, drafter_of(method or usual_method(ready), ready, HeadAsked()), context, (Shape(1),))


@given(RATES, LENGTHS)
def test_a_round_yields_between_one_and_all(acceptance: float, drafted: int) -> None:
    """1 <= E <= k + 1, and no more than an endless draft, 1 / (1 - a)."""
    tokens = expected_tokens(acceptance, drafted)

    assert 1 <= tokens <= min(drafted + 1, 1 / (1 - acceptance)) * (1 + SLACK)


@given(RATES, RATES, LENGTHS)
def test_more_acceptance_never_yields_less(one: float, other: float, drafted: int) -> None:
    """E grows with a."""
    low, high = sorted((one, other))

    assert expected_tokens(low, drafted) <= expected_tokens(high, drafted)


@given(RATES, st.integers(1, 63))
def test_longer_drafts_never_yield_less(acceptance: float, drafted: int) -> None:
    """E grows with k, by a^(k+1)."""
    more = expected_tokens(acceptance, drafted + 1) - expected_tokens(acceptance, drafted)

    assert more == pytest.approx(acceptance ** (drafted + 1), abs=1e-9)


@given(RATES, LENGTHS, COSTS, COSTS)
def test_dearer_drafts_never_speed_up_more(acceptance: float, drafted: int, one: float, other: float) -> None:
    """The speed-up falls with c, and is E where c is 0."""
    low, high = sorted((one, other))

    assert textbook_speedup(acceptance, drafted, low) >= textbook_speedup(acceptance, drafted, high)
    assert textbook_speedup(acceptance, drafted, 0) == expected_tokens(acceptance, drafted)


@given(RATES, RATES, COSTS, COSTS)
def test_best_lengths_move_one_way(one: float, other: float, cheap: float, dear: float) -> None:
    """The best k grows with a and shrinks with c."""
    low, high = (Acceptance(rate) for rate in sorted((one, other)))
    cheap, dear = sorted((cheap, dear))

    assert textbook_best(low, cheap)[0] <= textbook_best(high, cheap)[0]
    assert textbook_best(low, dear)[0] <= textbook_best(low, cheap)[0]


@given(st.floats(1, 65), LENGTHS)
def test_the_inverse_undoes_the_formula(tokens: float, drafted: int) -> None:
    """E(a(T)) = T wherever T can be; elsewhere it is refused."""
    if tokens > drafted + 1:
        with pytest.raises(UsageError):
            acceptance_from_tokens(tokens, drafted)
        return
    acceptance = acceptance_from_tokens(tokens, drafted)

    assert 0 <= acceptance <= 1
    if acceptance < 1:
        assert expected_tokens(acceptance, drafted) == pytest.approx(tokens, rel=1e-9)


@given(RATES, LENGTHS, st.integers(1, 8))
def test_powers_by_position_are_one_chance(acceptance: float, drafted: int, given_positions: int) -> None:
    """Shares a, a^2, ... give what the formula does, and go on as it does."""
    shares = [acceptance**i for i in range(1, given_positions + 1)]

    assert tokens_by_position(shares, drafted) == pytest.approx(expected_tokens(acceptance, drafted), rel=1e-9)


@given(st.floats(0.5, 70), LENGTHS)
def test_break_even_breaks_even(cost: float, drafted: int) -> None:
    """At the acceptance that a round breaks even with, it yields as many tokens as it costs steps."""
    acceptance = break_even_acceptance(cost, drafted)

    assert (acceptance is None) == (cost >= drafted + 1 and cost > 1)
    if acceptance and acceptance < 1:
        assert expected_tokens(acceptance, drafted) == pytest.approx(cost, rel=1e-9)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=12))
def test_the_rule_keeps_any_target(chances: list[tuple[float, float]]) -> None:
    """min(p, q) + (1 - a) norm(max(0, p - q)) = p, for any two distributions."""
    totals = [sum(column) for column in zip(*chances, strict=True)]
    if min(totals) <= 1e-6:
        return
    target, draft = (
        [value / total for value in column] for column, total in zip(zip(*chances, strict=True), totals, strict=True)
    )
    refused = 1 - acceptance_rate(target, draft)
    instead = residual(target, draft)

    assert [min(p, q) + refused * r for p, q, r in zip(target, draft, instead, strict=True)] == pytest.approx(
        target, abs=1e-9
    )


@given(MODELS, METHODS, BATCHES, CONTEXTS, st.integers(1, 15))
def test_verifying_is_never_cheaper_than_a_step(name: str, method: str, batch: int, context: int, drafted: int) -> None:
    """T(k+1) >= T(1), grows with k, and stays below k + 1 steps: a round of all accepted tokens never loses."""
    question = asked(name, method, context)
    one, two = (timed_round(question, Shape(k), batch) for k in (drafted, drafted + 1))
    decode, verify, more = one.decode or 0, one.verify or 0, two.verify or 0

    assert decode * (1 - SLACK) <= verify <= more * (1 + SLACK)
    assert verify <= (drafted + 1) * decode * (1 + drafted / context + SLACK)


@given(MODELS, METHODS, BATCHES, CONTEXTS, st.integers(1, 15))
def test_drafting_grows_with_its_length(name: str, method: str, batch: int, context: int, drafted: int) -> None:
    """A longer draft is never quicker to make."""
    question = asked(name, method, context)
    one, two = (timed_round(question, Shape(k), batch).draft or 0 for k in (drafted, drafted + 1))

    assert 0 <= one <= two * (1 + SLACK)


@given(MODELS, BATCHES, st.integers(1, 15), RATES)
def test_a_speed_up_is_below_what_a_round_yields(name: str, batch: int, drafted: int, acceptance: float) -> None:
    """No round is cheaper than a decode step, so that no speed-up is above E."""
    timed = timed_round(asked(name, "", 1024), Shape(drafted), batch)

    assert (timed.speedup(Acceptance(acceptance)) or 0) <= expected_tokens(acceptance, drafted) * (1 + SLACK)


@given(MODELS, BATCHES, st.integers(1, 15), st.floats(1, 8))
def test_more_bandwidth_never_slows_a_round(name: str, batch: int, drafted: int, faster: float) -> None:
    """Neither drafting nor verifying takes longer where memory is quicker."""
    question = asked(name, "", 1024)
    ready = on(name)
    accelerator = ready.deployment.accelerator.model_copy(
        update={"bandwidth": ready.deployment.accelerator.bandwidth * faster}
    )
    quick = replace(prepare(ready.model, replace(ready.deployment, accelerator=accelerator)), capacity=1e18)
    other = Speculation(quick, drafter_of(usual_method(quick), quick, HeadAsked()), 1024, (Shape(1),))
    one, two = timed_round(question, Shape(drafted), batch), timed_round(other, Shape(drafted), batch)

    assert (two.verify or 0) <= (one.verify or 0) * (1 + SLACK)
    assert (two.draft or 0) <= (one.draft or 0) * (1 + SLACK)


@given(MODELS, st.integers(1, 15), st.floats(0, 2))
def test_a_given_cost_is_the_textbooks_where_memory_bounds(name: str, drafted: int, cost: float) -> None:
    """One dense sequence: a round costs c k + 1 to the few bytes that its positions write; experts make it dearer."""
    timed = timed_round(Speculation(on(name), given_cost(cost), 512, (Shape(drafted),)), Shape(drafted), 1)

    assert (timed.cost or 0) >= (cost * drafted + 1) * (1 - SLACK)


def test_every_method_has_a_name() -> None:
    """A draft model is no head: it needs a model of its own."""
    with pytest.raises(UsageError, match="known: draft_model, mtp, eagle, eagle3, medusa, ngram"):
        drafter_of(MODEL, on("llama-3.1-8b"), HeadAsked())
