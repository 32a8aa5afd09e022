"""The acceptance rule: it draws what the target draws, exactly by enumeration and by chance with a test that can fail."""

from __future__ import annotations

import math
from random import Random

import pytest

from roofcast.calculators import rejection
from roofcast.calculators.errors import UsageError
from roofcast.calculators.rejection import (
    Pair,
    accept,
    acceptance_rate,
    check_rule,
    chi_square,
    chi_square_tail,
    greedy_round,
    residual,
    speculative_round,
)

P, Q = (0.5, 0.3, 0.2, 0.0), (0.2, 0.5, 0.2, 0.1)


class Fixed(Random):
    """A generator that gives what it is told."""

    def __init__(self, *values: float) -> None:
        """`values`, in order."""
        super().__init__()
        self.values = list(values)

    def random(self) -> float:
        """The next of them."""
        return self.values.pop(0)


def test_every_token_keeps_the_targets_chance() -> None:
    """q(x) min(1, p(x) / q(x)) + (1 - a) r(x) is p(x), for every token: the proof of the paper's appendix A.1."""
    refused = 1 - acceptance_rate(P, Q)
    kept = [q * min(1.0, p / q) if q else 0.0 for p, q in zip(P, Q, strict=True)]

    assert [k + refused * r for k, r in zip(kept, residual(P, Q), strict=True)] == pytest.approx(P)


def test_acceptance_is_the_overlap() -> None:
    """min(.5, .2) + min(.3, .5) + .2 + 0 = 0.7."""
    assert acceptance_rate(P, Q) == pytest.approx(0.7)


def test_what_is_drawn_instead() -> None:
    """max(0, p - q) = (.3, 0, 0, 0); of two models that agree, p itself, since nothing is refused."""
    assert residual(P, Q) == (1.0, 0.0, 0.0, 0.0)
    assert residual(P, P) == P


def test_a_token_is_kept_with_p_over_q() -> None:
    """Token 1 has p / q = 0.6: kept below, refused above; token 3, which the target never draws, is refused always."""
    assert accept(1, P, Q, Fixed(0.59))
    assert not accept(1, P, Q, Fixed(0.61))
    assert not accept(3, P, Q, Fixed(0.0))
    assert accept(0, P, Q, Fixed(0.999999))  # p > q


def test_a_round_ends_at_the_first_that_is_refused() -> None:
    """Draws 0, 1, 2; 0 is kept, 1 refused, and a token of the residual, 0, ends the round: two tokens."""
    made = speculative_round([P] * 4, [Q] * 3, Fixed(0.1, 0.3, 0.8, 0.5, 0.9, 0.5))

    assert (made.tokens, made.accepted) == ((0, 0), 1)


def test_a_round_that_is_accepted_whole_yields_one_more() -> None:
    """Two drafted tokens are kept, and the third is the target's own: 1, at 0.6 of p's sum."""
    made = speculative_round([P] * 3, [Q] * 2, Fixed(0.1, 0.8, 0.5, 0.5, 0.6))

    assert (made.tokens, made.accepted) == ((0, 2, 1), 2)


def test_the_rule_reproduces_the_target() -> None:
    """A hundred thousand tokens pass chi-square; as many straight from the draft do not."""
    made = check_rule(Pair(P, Q), drafted=4, draws=100_000, seed=7)

    assert made.reproduced
    assert made.p_value > 0.001
    assert made.without_rule_p_value < 1e-12
    assert made.measured_acceptance == pytest.approx(0.7, abs=0.01)
    assert made.measured_tokens_per_round == pytest.approx(made.tokens_per_round or 0, rel=0.01)
    assert made.degrees == 2  # three tokens can be


def test_p_values_are_spread_evenly() -> None:
    """Of an exact rule p-values of 60 seeds fall below and above one half alike (binomial, four deviations)."""
    low = sum(check_rule(Pair(P, Q), 3, 2_000, seed).p_value < 0.5 for seed in range(60))

    assert 30 - 4 * math.sqrt(15) < low < 30 + 4 * math.sqrt(15)


def test_the_check_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that draws refused tokens from p itself, not from what p has beyond q, is found out."""
    monkeypatch.setattr(rejection, "residual", lambda target, _: tuple(target))

    assert not check_rule(Pair(P, Q), 4, 100_000, 7).reproduced


def test_the_same_seed_draws_the_same() -> None:
    """A check can be repeated."""
    assert check_rule(Pair(P, Q), 2, 5_000, 3) == check_rule(Pair(P, Q), 2, 5_000, 3)
    assert check_rule(Pair(P, Q), 2, 5_000, 3) != check_rule(Pair(P, Q), 2, 5_000, 4)


def test_a_draft_that_is_the_target() -> None:
    """Every token is kept: no formula of a < 1, and k + 1 tokens a round."""
    made = check_rule(Pair(P, P), 4, 10_000, 1)

    assert (made.tokens_per_round, made.measured_tokens_per_round) == (None, 5.0)
    assert made.reproduced


def test_greedy_rounds() -> None:
    """Tokens are kept while they are the argmax; the target's own follows in their place or behind the last."""
    assert greedy_round([5, 7, 9], [5, 7, 8, 1]) == ((5, 7, 8), 2)
    assert greedy_round([5, 7, 9], [5, 7, 9, 1]) == ((5, 7, 9, 1), 3)
    assert greedy_round([5], [4, 0]) == ((4,), 0)


def test_an_exact_rule_hardly_ever_fails() -> None:
    """Also where a token is all but impossible: its one draw is no proof, since it is taken together with another."""
    pair = Pair((0.49995, 0.49995, 0.0001), (0.49995, 0.49995, 0.0001))

    assert sum(not check_rule(pair, 4, 500, seed).reproduced for seed in range(300)) <= 3


def test_work_is_bounded() -> None:
    """Draws, positions and vocabulary together: seconds, not hours."""
    wide = Pair((0.0001,) * 10_000, (0.0001,) * 10_000)

    with pytest.raises(UsageError, match="take too long"):
        check_rule(wide, 256, 1_000_000, 0)


@pytest.mark.parametrize("seed", [-1, 1 << 63, 10**400])
def test_seeds_that_cannot_be(seed: int) -> None:
    """A generator's seed is 0 to 2^63 - 1."""
    with pytest.raises(UsageError, match="seed"):
        check_rule(Pair(P, Q), 4, 1000, seed)


@pytest.mark.parametrize(
    ("value", "degrees", "tail"),
    [(3.8415, 1, 0.05), (5.9915, 2, 0.05), (7.8147, 3, 0.05), (18.307, 10, 0.05), (0.0, 2, 1.0), (0.0, 3, 1.0)],
)
def test_tails(value: float, degrees: int, tail: float) -> None:
    """Chi-square's table: critical values of five per cent."""
    assert chi_square_tail(value, degrees) == pytest.approx(tail, abs=2e-5)


def test_chi_square_by_hand() -> None:
    """100 draws of a fair coin, 60 heads: (10^2 + 10^2) / 50 = 4."""
    assert chi_square([0] * 60 + [1] * 40, (0.5, 0.5)) == (4.0, 1)


def test_rare_tokens_are_taken_together() -> None:
    """Of 100 draws, tokens expected once and twice are one cell of three, with one degree of freedom less."""
    statistic, degrees = chi_square([0] * 97 + [1] * 3, (0.97, 0.01, 0.02))

    assert statistic == pytest.approx(0.0)
    assert degrees == 1


def test_a_token_that_cannot_be_is_no_rounding() -> None:
    """One draw of a token of no chance is proof enough."""
    assert chi_square([0, 1, 2], (0.5, 0.5, 0.0))[0] == math.inf
    assert chi_square_tail(math.inf, 1) == 0.0


@pytest.mark.parametrize(
    ("target", "draft", "words"),
    [
        ((0.5, 0.6, -0.1), (0.2, 0.3, 0.5), "-0.1: a probability is 0 to 1"),
        ((0.5, 0.5), (0.5, 0.6), "sum to 1.1"),
        ((0.5, 0.5), (0.2, 0.3, 0.5), "one vocabulary"),
        ((1.0,), (1.0,), "2 to 10,000"),
        ((math.nan, 0.5), (0.5, 0.5), "a probability is 0 to 1"),
    ],
)
def test_what_is_no_distribution(target: tuple[float, ...], draft: tuple[float, ...], words: str) -> None:
    """Negative chances, sums beside 1, other vocabularies: one line each."""
    with pytest.raises(UsageError, match=words):
        Pair(target, draft)


@pytest.mark.parametrize("draws", [0, 5, 10_000_001])
def test_too_few_draws_for_a_test(draws: int) -> None:
    """Chi-square needs five of a kind; ten million draws are patience enough."""
    with pytest.raises(UsageError, match="draws"):
        check_rule(Pair(P, Q), 4, draws, 0)
