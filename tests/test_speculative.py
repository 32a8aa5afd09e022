"""Speculative decoding's formulas: the paper's own tables, worked examples, and what they refuse."""

from __future__ import annotations

import math

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.rounds import Acceptance, textbook_best
from roofcast.calculators.speculative import (
    acceptance_from_tokens,
    break_even_acceptance,
    expected_tokens,
    textbook_speedup,
    tokens_by_position,
)

# Leviathan et al. 2023, arXiv:2211.17192, table 1: acceptance, draft length -> speed-up where drafting is free
FREE = ((0.6, 2, 1.96), (0.7, 3, 2.53), (0.8, 2, 2.44), (0.8, 5, 3.69), (0.9, 2, 2.71), (0.9, 10, 6.86))
# table 4, T5-XXL: draft length, acceptance, cost ratio -> expected speed-up. Two figures are printed of a and c, and two of
# twelve rows are a tenth off what they give: 1.54 for 1.6 and 1.93 for 2.0
PRICED = (
    (7, 0.75, 0.02, 3.2), (7, 0.80, 0.04, 3.3), (7, 0.82, 0.11, 2.5), (7, 0.62, 0.02, 2.3), (5, 0.68, 0.04, 2.4),
    (3, 0.71, 0.11, 2.0), (5, 0.65, 0.02, 2.4), (5, 0.73, 0.04, 2.6), (3, 0.74, 0.11, 2.0), (5, 0.53, 0.02, 1.9),
    (3, 0.55, 0.04, 1.8), (3, 0.56, 0.11, 1.6),
)  # fmt: skip


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.6, 2.3056), (0.8, 3.3616), (0.9, 4.0951)])
def test_four_drafted_tokens(acceptance: float, tokens: float) -> None:
    """1 + a + a^2 + a^3 + a^4 at a = 0.6, 0.8 and 0.9: 2.3, 3.4 and 4.1 tokens."""
    assert expected_tokens(acceptance, 4) == pytest.approx(tokens, abs=1e-12)


@pytest.mark.parametrize(("acceptance", "drafted", "speedup"), FREE)
def test_the_papers_free_drafts(acceptance: float, drafted: int, speedup: float) -> None:
    """Table 1 of the paper, whose drafts cost nothing."""
    assert round(textbook_speedup(acceptance, drafted, 0.0), 2) == speedup


@pytest.mark.parametrize(("drafted", "acceptance", "cost", "expected"), PRICED)
def test_the_papers_expectations(drafted: int, acceptance: float, cost: float, expected: float) -> None:
    """Table 4 of the paper, with the measured a and c."""
    assert textbook_speedup(acceptance, drafted, cost) == pytest.approx(expected, abs=0.085)


def test_the_closed_form_and_the_sum() -> None:
    """(1 - a^(k+1)) / (1 - a), written out."""
    assert expected_tokens(0.7, 6) == pytest.approx((1 - 0.7**7) / (1 - 0.7), rel=1e-14)


def test_near_one_nothing_cancels() -> None:
    """At a = 1 - 1e-16 the closed form is 0 / 0; the sum is k + 1."""
    assert expected_tokens(math.nextafter(1, 0), 8) == pytest.approx(9, abs=1e-12)


def test_nothing_accepted_is_the_targets_own_token() -> None:
    """a = 0 leaves one token a round."""
    assert expected_tokens(0.0, 5) == 1


def test_a_draft_that_is_too_dear() -> None:
    """c = 0.4: 2.3056 tokens for 2.6 decode steps."""
    assert textbook_speedup(0.6, 4, 0.4) == pytest.approx(2.3056 / 2.6)
    assert textbook_speedup(0.6, 4, 0.4) < 1


@pytest.mark.parametrize(
    ("acceptance", "cost", "best"), [(0.6, 0.05, 4), (0.8, 0.05, 8), (0.9, 0.05, 13), (0.8, 0.2, 4), (0.8, 0.5, 2)]
)
def test_best_lengths(acceptance: float, cost: float, best: int) -> None:
    """The best k grows with a and shrinks with c."""
    assert textbook_best(Acceptance(acceptance), cost)[0] == best


def test_the_paper_bounds_a_single_draft() -> None:
    """Corollary 3.9: with a > c some length gains, one token alone (1 + a) / (1 + c)."""
    assert textbook_speedup(0.3, 1, 0.2) == pytest.approx(1.3 / 1.2)
    assert textbook_best(Acceptance(0.3), 0.2)[1] >= 1.3 / 1.2


@pytest.mark.parametrize(("acceptance", "drafted"), [(0.57, 2), (0.9, 10), (0.01, 1), (0.999, 200)])
def test_the_inverse(acceptance: float, drafted: int) -> None:
    """Tokens a round give back the acceptance that made them."""
    assert acceptance_from_tokens(expected_tokens(acceptance, drafted), drafted) == pytest.approx(acceptance, abs=1e-9)


def test_the_inverse_of_one_draft() -> None:
    """k = 1: 1 + a tokens, so 1.85 to 1.9 are DeepSeek-V3's 85 to 90 % of second tokens."""
    assert acceptance_from_tokens(1.85, 1) == pytest.approx(0.85)


def test_the_ends_of_the_inverse() -> None:
    """One token a round is a = 0, k + 1 are a = 1."""
    assert (acceptance_from_tokens(1, 4), acceptance_from_tokens(5, 4)) == (0.0, 1.0)


@pytest.mark.parametrize("tokens", [0.99, 5.01, 0.0, -1.0, math.nan, math.inf])
def test_tokens_that_cannot_be(tokens: float) -> None:
    """Four drafted tokens yield 1 to 5."""
    with pytest.raises(UsageError, match="yield 1 to 5"):
        acceptance_from_tokens(tokens, 4)


def test_by_position() -> None:
    """vLLM's shares of rounds: 1 + .57 + .34 + .21 + .14 + .10, and .10 x (.10 / .14) for a sixth."""
    shares = (0.57, 0.34, 0.21, 0.14, 0.10)

    assert tokens_by_position(shares, 5) == pytest.approx(2.36)
    assert tokens_by_position(shares, 2) == pytest.approx(1.91)
    assert tokens_by_position(shares, 6) == pytest.approx(2.36 + 0.1 * 0.1 / 0.14)


def test_by_position_of_equal_chances_is_the_formula() -> None:
    """Shares a, a^2, a^3 are one chance for all, and go on as it does."""
    assert tokens_by_position((0.7, 0.49, 0.343), 7) == pytest.approx(expected_tokens(0.7, 7))


def test_one_share_goes_on_at_its_rate() -> None:
    """Of one position alone the next ones are taken to be alike; after none nothing comes."""
    assert tokens_by_position((0.5,), 3) == pytest.approx(1.875)
    assert tokens_by_position((0.5, 0.0), 4) == 1.5
    assert tokens_by_position((0.0,), 4) == 1.0


@pytest.mark.parametrize(
    ("shares", "words"), [((0.5, 0.6), "cannot grow"), ((1.2,), "0 to 1"), ((-0.1,), "0 to 1"), ((), "no share")]
)
def test_shares_that_cannot_be(shares: tuple[float, ...], words: str) -> None:
    """A position is accepted only where all before it are."""
    with pytest.raises(UsageError, match=words):
        tokens_by_position(shares, 2)


def test_break_even() -> None:
    """A round of 1.2 decode steps pays where 1 + a > 1.2; one that costs k + 1 steps never does; a free one always."""
    assert break_even_acceptance(1.2, 1) == pytest.approx(0.2)
    assert break_even_acceptance(5.0, 4) is None
    assert break_even_acceptance(1.0, 4) == break_even_acceptance(0.9, 4) == 0.0


@pytest.mark.parametrize("acceptance", [-0.01, 1.0, 1.5, math.nan])
def test_acceptance_is_below_one(acceptance: float) -> None:
    """[0, 1), and no NaN."""
    with pytest.raises(UsageError, match=r"\[0, 1\)"):
        expected_tokens(acceptance, 4)


@pytest.mark.parametrize("drafted", [0, -3, 257])
def test_lengths_that_nobody_drafts(drafted: int) -> None:
    """At least one token, and no thousands."""
    with pytest.raises(UsageError, match="1 to 256"):
        expected_tokens(0.5, drafted)


@pytest.mark.parametrize("cost", [-0.1, math.nan, math.inf])
def test_costs_that_cannot_be(cost: float) -> None:
    """A time over a time is 0 or more."""
    with pytest.raises(UsageError, match="0 to 256"):
        textbook_speedup(0.5, 4, cost)
