"""Speculative decoding by its formulas: tokens a round, speed-up, best draft length, acceptance from measured rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_DRAFTED: Final = 256  # tokens of a round that anyone drafts, several times over
HALVINGS: Final = 60  # of an interval, until it is as narrow as a double


def expected_tokens(acceptance: float, drafted: int) -> float:
    """Tokens that a round yields: E = 1 + a + ... + a^k = (1 - a^(k+1)) / (1 - a). [token]

    Each of k drafted tokens is accepted with the chance a, all alike and independent, until the first is not; the target
    model adds one of its own, in its place or behind the last.

    Args:
        acceptance: a, in [0, 1). [-]
        drafted: k, 1 or more. [token]

    Source: Leviathan et al. 2023, arXiv:2211.17192, equation 1.

    Raises:
        UsageError: an acceptance or a length that cannot be.

    >>> [round(expected_tokens(a, 4), 1) for a in (0.6, 0.8, 0.9)]
    [2.3, 3.4, 4.1]
    """
    check_acceptance(acceptance)
    check_drafted(drafted)
    return _tokens(acceptance, drafted)


def textbook_speedup(acceptance: float, drafted: int, cost_ratio: float) -> float:
    """Speed-up of a round that costs k drafts and one decode step: (1 - a^(k+1)) / ((1 - a) (c k + 1)). [-]

    c is the time of one draft step over that of one decode step of the target; verifying k+1 positions is taken to cost
    what one costs, and everything else nothing.

    Args:
        acceptance: a, in [0, 1). [-]
        drafted: k, 1 or more. [token]
        cost_ratio: c, 0 or more. [-]

    Source: Leviathan et al. 2023, arXiv:2211.17192, theorem 3.8.

    Raises:
        UsageError: an acceptance, length or cost that cannot be.

    >>> round(textbook_speedup(0.8, 4, 0.05), 2), round(textbook_speedup(0.6, 4, 0.4), 2)
    (2.8, 0.89)
    """
    check_cost(cost_ratio)
    return expected_tokens(acceptance, drafted) / (cost_ratio * drafted + 1)


def acceptance_from_tokens(tokens: float, drafted: int) -> float:
    """The acceptance a at which k drafted tokens yield so many a round: the inverse of (1 - a^(k+1)) / (1 - a). [-]

    By bisection, which the sum's growth in a allows. Of rounds of one length k alone; the token that the target adds
    counts, so that 1 <= tokens <= k+1, and the two ends are a = 0 and a = 1. As measured it stands for one chance that
    all positions share: where later ones are accepted less often, a longer draft yields less than it says.

    Args:
        tokens: measured a round, the target's own among them. [token]
        drafted: k. [token]

    Source: Leviathan et al. 2023, arXiv:2211.17192, equation 1.

    Raises:
        UsageError: tokens that so many drafted ones cannot yield.

    >>> round(acceptance_from_tokens(1.89, 2), 3), acceptance_from_tokens(1, 4), acceptance_from_tokens(5, 4)
    (0.568, 0.0, 1.0)
    """
    check_drafted(drafted)
    if not 1 <= tokens <= drafted + 1:  # NaN too
        raise UsageError(
            f"{tokens:g} tokens a round: {drafted} drafted ones and the target's own yield 1 to {drafted + 1}; "
            "give the mean of rounds of that one length"
        )
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _tokens(middle, drafted) < tokens else (low, middle)
    return high if tokens > 1 else 0.0


def tokens_by_position(accepted: Sequence[float], drafted: int) -> float:
    """Tokens a round from the share of rounds that accept each position: E = 1 + sum over i <= k of r_i. [token]

    r_i is the share of rounds whose i-th drafted token is accepted, and so all before it, as vLLM logs it. Positions
    beyond those given go on at the last one's conditional rate, r_n / r_(n-1).

    Args:
        accepted: r_1, r_2, ..., none above the one before. [-]
        drafted: k. [token]

    Raises:
        UsageError: shares outside [0, 1] or that grow.

    >>> round(tokens_by_position([0.57, 0.34, 0.21, 0.14, 0.10], 5), 2)
    2.36
    """
    check_drafted(drafted)
    check_positions(accepted)
    shares = list(accepted[:drafted])
    before = accepted[-2] if len(accepted) > 1 else 1.0
    last = accepted[-1] / before if before else 0.0
    while len(shares) < drafted:
        shares.append(shares[-1] * last)
    return 1 + sum(shares)


def break_even_acceptance(round_cost: float, drafted: int) -> float | None:
    """The acceptance above which a round pays: E(a, k) = its cost in decode steps; None where none below 1 does. [-]

    Args:
        round_cost: drafting and verifying over one decode step. [-]
        drafted: k. [token]

    >>> round(break_even_acceptance(1.4, 4), 3), break_even_acceptance(5.5, 4), break_even_acceptance(0.9, 4)
    (0.287, None, 0.0)
    """
    if round_cost <= 1:
        return 0.0
    return None if round_cost >= drafted + 1 else acceptance_from_tokens(round_cost, drafted)


def check_acceptance(acceptance: float) -> None:
    """Refuses an acceptance outside [0, 1).

    Raises:
        UsageError: naming it.
    """
    if not 0 <= acceptance < 1:
        raise UsageError(f"acceptance {acceptance:g}: it must be in [0, 1), such as 0.8; at 1 a draft would never fail")


def check_drafted(drafted: int) -> None:
    """Refuses a draft of no tokens, or of more than anyone drafts.

    Raises:
        UsageError: naming it.
    """
    if not 1 <= drafted <= MOST_DRAFTED:
        raise UsageError(f"k {drafted:,}: a round drafts 1 to {MOST_DRAFTED} tokens")


def check_cost(cost_ratio: float) -> None:
    """Refuses a draft step that takes no time that can be.

    Raises:
        UsageError: naming it.
    """
    if not 0 <= cost_ratio <= MOST_DRAFTED:
        raise UsageError(
            f"draft cost {cost_ratio:g}: it must be a draft step's time over a decode step's, 0 to {MOST_DRAFTED}, such as 0.05"
        )


def check_positions(accepted: Sequence[float]) -> None:
    """Refuses shares of accepted positions that cannot be.

    Raises:
        UsageError: naming the first that cannot.
    """
    if not accepted:
        raise UsageError("acceptance by position: no share is given; write them like 0.57,0.34,0.21")
    for before, share in zip((1.0, *accepted), accepted, strict=False):
        if not 0 <= share <= 1:
            raise UsageError(f"acceptance by position {share:g}: it must be a share of all rounds, 0 to 1")
        if share > before:
            raise UsageError(
                f"acceptance by position {share:g} behind {before:g}: a position is accepted only where all before it "
                "are, so shares cannot grow"
            )


def _tokens(acceptance: float, drafted: int) -> float:
    """1 + a + ... + a^k, as a sum that stays exact near 1. [token]"""
    total = 1.0
    for _ in range(drafted):
        total = 1 + acceptance * total
    return total
