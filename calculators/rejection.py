"""Speculative sampling's acceptance rule, written to be read, and a check that it draws what the target draws."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from roofcast.calculators.errors import UsageError
from roofcast.calculators.speculative import check_drafted, expected_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

WHOLE: Final = 1e-6  # what rounding may leave a distribution's sum beside 1
LEAST_EXPECTED: Final = 5.0  # draws of a token under which chi-square is no approximation. Source: Cochran 1954
LARGEST_VOCABULARY: Final = 10_000
MOST_DRAWS: Final = 10_000_000
MOST_WORK: Final = 500_000_000  # draws x positions x tokens of the vocabulary, 50 at least: some seconds
LEAST_VOCABULARY: Final = 50
MOST_SEED: Final = (1 << 63) - 1
LEAST_P: Final = 0.001  # under which the rule is taken to fail: an exact one does in a thousandth of all seeds


class Round(NamedTuple):
    """What one round yields: drafted tokens that were accepted, in order, then the target's own."""

    tokens: tuple[int, ...]
    accepted: int


def acceptance_rate(target: Sequence[float], draft: Sequence[float]) -> float:
    """Chance that a token drawn from q is accepted: a = sum over x of min(p(x), q(x)) = 1 - TV(p, q). [-]

    Args:
        target: p, chances of every token. [-]
        draft: q, likewise, over the same vocabulary. [-]

    Source: Leviathan et al. 2023, arXiv:2211.17192, theorem 3.5.

    >>> round(acceptance_rate([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]), 12)
    0.7
    """
    return math.fsum(map(min, target, draft))


def residual(target: Sequence[float], draft: Sequence[float]) -> tuple[float, ...]:
    """What is drawn from instead of a refused token: norm(max(0, p - q)). [-]

    Where q is p nothing is refused, and p itself is given.

    Source: Leviathan et al. 2023, arXiv:2211.17192, section 2.3.

    >>> [round(chance, 6) for chance in residual([0.5, 0.3, 0.2], [0.2, 0.5, 0.3])]
    [1.0, 0.0, 0.0]
    """
    excess = [max(0.0, p - q) for p, q in zip(target, draft, strict=True)]
    total = math.fsum(excess)
    return tuple(part / total for part in excess) if total > 0 else tuple(target)


def accept(token: int, target: Sequence[float], draft: Sequence[float], random: Random) -> bool:
    """Whether a token drawn from q is kept: with the chance min(1, p / q). [-]

    Source: Leviathan et al. 2023, arXiv:2211.17192, section 2.3; Chen et al. 2023, arXiv:2302.01318, algorithm 2.
    """
    return random.random() * draft[token] < target[token]


def speculative_round(targets: Sequence[Sequence[float]], drafts: Sequence[Sequence[float]], random: Random) -> Round:
    """One round: k tokens are drafted, and kept up to the first that is refused; one of the target's own follows.

    A refused token is drawn again from norm(max(0, p - q)); behind k accepted ones the next is drawn from p. Every token
    is then distributed as p, whatever q is.

    Args:
        targets: p at each of the k+1 positions.
        drafts: q at each of the k positions.
        random: where chance is from.

    Source: Leviathan et al. 2023, arXiv:2211.17192, algorithm 1 and appendix A.1.
    """
    drafted = [draw(draft, random) for draft in drafts]
    for position, (token, draft) in enumerate(zip(drafted, drafts, strict=True)):
        if not accept(token, targets[position], draft, random):
            own = draw(residual(targets[position], draft), random)
            return Round((*drafted[:position], own), position)
    return Round((*drafted, draw(targets[len(drafts)], random)), len(drafts))


def greedy_round(drafted: Sequence[int], argmax: Sequence[int]) -> Round:
    """One round without chance: drafted tokens are kept while they are the target's argmax, which then adds its own.

    Args:
        drafted: k tokens.
        argmax: the target's likeliest token at each of the k+1 positions.

    >>> greedy_round([5, 7, 9], [5, 7, 8, 1])
    Round(tokens=(5, 7, 8), accepted=2)
    """
    pairs = zip(drafted, argmax, strict=False)
    accepted = next((n for n, (token, best) in enumerate(pairs) if token != best), len(drafted))
    return Round((*drafted[:accepted], argmax[accepted]), accepted)


def draw(chances: Sequence[float], random: Random) -> int:
    """A token, each with its chance."""
    return random.choices(range(len(chances)), chances)[0]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two models' chances of the next token, over one vocabulary.

    Args:
        target: p. [-]
        draft: q. [-]

    Raises:
        UsageError: vocabularies that differ, chances that are negative or do not sum to 1.
    """

    target: tuple[float, ...]
    draft: tuple[float, ...]

    def __post_init__(self) -> None:
        check_chances(self.target, "target")
        check_chances(self.draft, "draft")
        if len(self.target) != len(self.draft):
            raise UsageError(
                f"the target has {len(self.target)} tokens and the draft {len(self.draft)}: the rule needs one vocabulary"
            )


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """What the rule drew, held against the target's distribution."""

    drafted: int
    """Tokens drafted a round. [token]"""
    draws: int
    """Tokens drawn, in rounds."""
    seed: int
    """Of the generator."""
    acceptance: float
    """Sum over tokens of min(p, q). [-]"""
    measured_acceptance: float
    """Share of first drafted tokens that were accepted. [-]"""
    tokens_per_round: float | None
    """(1 - a^(k+1)) / (1 - a); null where the two are one and every token is accepted. [token]"""
    measured_tokens_per_round: float
    """Mean of the rounds. [token]"""
    target: list[float]
    """Chance of every token as the target has it. [-]"""
    drawn: list[float]
    """Share of every token among those drawn. [-]"""
    chi_square: float
    """Sum over tokens of (drawn - expected)^2 / expected. [-]"""
    degrees: int
    """Degrees of freedom."""
    p_value: float
    """Chance of a chi-square this large or larger were the rule exact. [-]"""
    without_rule_p_value: float
    """The same of as many tokens straight from the draft. [-]"""
    reproduced: bool
    """Whether the p-value is 0.001 or more."""


def check_rule(pair: Pair, drafted: int, draws: int, seed: int) -> RuleCheck:
    """Draws tokens by the rule, and tests whether they are the target's: chi-square = sum (O - E)^2 / E, E = n p. [-]

    The first n tokens of round after round are independent draws from p where the rule is exact. Tokens straight from
    the draft are tested beside them, to show that the test tells.

    Args:
        pair: p and q, at every position alike.
        drafted: k. [token]
        draws: n, tokens.
        seed: of the generator.

    Source: Leviathan et al. 2023, arXiv:2211.17192, appendix A.1; Pearson 1900.

    Raises:
        UsageError: a length that cannot be, too few draws for the test, too many for anyone's patience.
    """
    check_drafted(drafted)
    _check_draws(pair, draws)
    _check_work(pair, drafted, draws, seed)
    random = Random(seed)  # noqa: S311 - chance that can be repeated, no secret
    targets, drafts = [pair.target] * (drafted + 1), [pair.draft] * drafted
    rounds: list[Round] = []
    stream: list[int] = []
    while len(stream) < draws:
        rounds.append(speculative_round(targets, drafts, random))
        stream += rounds[-1].tokens
    chi, degrees = chi_square(stream[:draws], pair.target)
    plain, _ = chi_square([draw(pair.draft, random) for _ in range(draws)], pair.target)
    rate, counts = acceptance_rate(pair.target, pair.draft), Counter(stream[:draws])
    return RuleCheck(
        drafted=drafted,
        draws=draws,
        seed=seed,
        acceptance=rate,
        measured_acceptance=sum(one.accepted > 0 for one in rounds) / len(rounds),
        tokens_per_round=expected_tokens(rate, drafted) if rate < 1 else None,
        measured_tokens_per_round=len(stream) / len(rounds),
        target=list(pair.target),
        drawn=[counts[token] / draws for token in range(len(pair.target))],
        chi_square=chi,
        degrees=degrees,
        p_value=chi_square_tail(chi, degrees),
        without_rule_p_value=chi_square_tail(plain, degrees),
        reproduced=chi_square_tail(chi, degrees) >= LEAST_P,
    )


def chi_square(stream: Sequence[int], target: Sequence[float]) -> tuple[float, int]:
    """Pearson's statistic of a stream of tokens, and its degrees of freedom: sum (O - E)^2 / E. [-]

    Those that are expected the least are taken together until each cell is expected five times; a token that cannot be
    makes it infinite.
    """
    counts = Counter(stream)
    if any(counts[token] for token, chance in enumerate(target) if not chance):
        return math.inf, max(1, sum(chance > 0 for chance in target) - 1)
    cells = sorted(((chance * len(stream), counts[token]) for token, chance in enumerate(target) if chance > 0))
    while len(cells) > 1 and cells[0][0] < LEAST_EXPECTED:
        (rare, seen), (next_rare, next_seen) = cells[0], cells[1]
        cells = sorted([(rare + next_rare, seen + next_seen), *cells[2:]])
    return math.fsum((seen - expected) ** 2 / expected for expected, seen in cells), max(1, len(cells) - 1)


def chi_square_tail(value: float, degrees: int) -> float:
    """Chance of a chi-square of so many degrees of freedom above a value: Q(degrees / 2, value / 2), a finite sum. [-]

    Source: Abramowitz and Stegun 1964, 26.4.4 and 26.4.5.

    >>> round(chi_square_tail(3.841, 1), 4), round(chi_square_tail(5.991, 2), 4), round(chi_square_tail(11.070, 5), 4)
    (0.05, 0.05, 0.05)
    """
    if math.isinf(value):
        return 0.0
    half = value / 2
    start = degrees % 2 / 2  # 0 of even degrees, 1/2 of odd ones
    total = math.erfc(math.sqrt(half)) if start else 0.0
    if half > 0:
        steps = (start + i for i in range(degrees // 2))
        total += math.fsum(math.exp(s * math.log(half) - half - math.lgamma(s + 1)) for s in steps)
    elif not start:
        total = 1.0
    return min(1.0, total)


def check_chances(chances: Sequence[float], whose: str) -> None:
    """Refuses what is no distribution.

    Raises:
        UsageError: naming the first chance that cannot be, or the sum.
    """
    if not 2 <= len(chances) <= LARGEST_VOCABULARY:  # noqa: PLR2004 - of one token nothing is drawn
        raise UsageError(f"the {whose}'s distribution has {len(chances)} tokens; give 2 to {LARGEST_VOCABULARY:,}")
    wrong = next((chance for chance in chances if not 0 <= chance <= 1), None)
    if wrong is not None:
        raise UsageError(f"the {whose}'s chance {wrong:g}: a probability is 0 to 1")
    total = math.fsum(chances)
    if abs(total - 1) > WHOLE:
        raise UsageError(f"the {whose}'s chances sum to {total:.6g}; they must sum to 1")


def _check_draws(pair: Pair, draws: int) -> None:
    likely = max(pair.target)
    if draws * min(likely, 1 - likely if likely < 1 else 1.0) < LEAST_EXPECTED or draws > MOST_DRAWS:
        raise UsageError(
            f"{draws:,} draws: chi-square needs two kinds of token expected {LEAST_EXPECTED:g} times or more, and "
            f"{MOST_DRAWS:,} draws are enough for anyone"
        )


def _check_work(pair: Pair, drafted: int, draws: int, seed: int) -> None:
    if draws * (drafted + 1) * max(LEAST_VOCABULARY, len(pair.target)) > MOST_WORK:
        raise UsageError(
            f"{draws:,} draws in rounds of {drafted} over {len(pair.target):,} tokens take too long; give fewer"
        )
    if not 0 <= seed <= MOST_SEED:
        raise UsageError(f"seed {str(seed)[:30]}: it must be 0 to {MOST_SEED:,}")
