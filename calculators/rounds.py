"""A round of speculation on a machine: how often tokens are accepted, what drafting and verifying cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import cache_on_one
from roofcast.calculators.drafts import Shape
from roofcast.calculators.errors import UsageError
from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.speculative import (
    MOST_DRAFTED,
    break_even_acceptance,
    check_acceptance,
    check_positions,
    expected_tokens,
    tokens_by_position,
)
from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.drafts import Drafter
    from roofcast.calculators.phases import Point

MOST_TREE: Final = 4096  # positions
LONGEST: Final = 32  # draft length up to which the best is looked for


@dataclass(frozen=True, slots=True)
class Acceptance:
    """How often drafted tokens are accepted.

    Args:
        rate: one chance for every position; None where each has its own. [-]
        by_position: shares of rounds that accept each position, and all before it; empty where one chance holds. [-]

    Raises:
        UsageError: chances that cannot be.
    """

    rate: float | None = None
    by_position: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.rate is None:
            check_positions(self.by_position)
        else:
            check_acceptance(self.rate)

    def tokens(self, drafted: int) -> float:
        """Tokens that a round of k drafted ones yields. [token]"""
        if self.rate is None:
            return tokens_by_position(self.by_position, drafted)
        return expected_tokens(self.rate, drafted)


def textbook_best(accepted: Acceptance, cost_ratio: float) -> tuple[int, float]:
    """The draft length whose textbook speed-up is the largest, and that: argmax over k of E(k) / (c k + 1). [token]

    Up to 32 tokens. It grows with the acceptance and shrinks with c. Where none is above 1, plain decode is the best, k = 0.

    Source: Leviathan et al. 2023, arXiv:2211.17192, section 3.5.

    >>> textbook_best(Acceptance(0.8), 0.05)[0], textbook_best(Acceptance(0.6), 0.05)[0], textbook_best(Acceptance(0.8), 0.3)[0]
    (8, 4, 3)
    """
    lengths = range(1, LONGEST + 1)
    found = max(lengths, key=lambda k: accepted.tokens(k) / (cost_ratio * k + 1))
    speedup = accepted.tokens(found) / (cost_ratio * found + 1)
    return (found, speedup) if speedup > 1 else (0, 1.0)


@dataclass(frozen=True, slots=True)
class Speculation:
    """What is asked of a target and a draft.

    Args:
        target: the deployment.
        drafter: what drafts.
        context: of every sequence. [token]
        shapes: rounds to look at.
        longest: draft up to which the best is looked for. [token]
    """

    target: Ready
    drafter: Drafter
    context: int
    shapes: tuple[Shape, ...]
    longest: int = LONGEST


@dataclass(frozen=True, slots=True)
class Timed:
    """One round of a shape at a batch, timed; what of it does not depend on acceptance.

    Args:
        shape, batch: of what.
        decode, verify, draft: least times; None of what does not fit. [s]
        bound_by: what bounds verifying.
        reason: what does not fit; empty where all does.
    """

    shape: Shape
    batch: int
    decode: float | None
    verify: float | None
    draft: float | None
    bound_by: str
    reason: str

    @property
    def cost(self) -> float | None:
        """A round in decode steps: (draft + verify) / decode. [-]"""
        if self.decode is None or self.verify is None or self.draft is None:
            return None
        return (self.draft + self.verify) / self.decode

    def speedup(self, accepted: Acceptance) -> float | None:
        """Tokens a second over those of plain decode: E(k) / ((T_draft + T_verify(k+1)) / T_decode). [-]

        None of what does not fit.
        """
        return None if self.cost is None else accepted.tokens(self.shape.drafted) / self.cost


def timed_round(asked: Speculation, shape: Shape, batch: int) -> Timed:
    """A round's least times: k draft steps, then one step of the target over k+1 positions of every sequence. [s]

    The target's step is an estimate like any other: weights and cache are read once for all positions, FLOP grow with
    them, and so do the experts that they touch. T = T_draft + T_verify(k+1), to be held against T_decode = T_verify(1).

    Source: Leviathan et al. 2023, arXiv:2211.17192, section 3; of experts, arXiv:2505.19645, section 3.
    """
    return _timed(asked, shape, _point(asked, batch, 0))


def _timed(asked: Speculation, shape: Shape, decode: Point) -> Timed:
    """A round beside its decode step, which is the same whatever is drafted."""
    batch = decode.asked.batch
    verify = _point(asked, batch, shape.positions)
    reason = _shortage(asked, shape, batch)
    plain = decode.work.bound * decode.passes
    drafter = asked.drafter
    if drafter.cost_ratio is not None:
        drafting = drafter.cost_ratio * shape.drafted * plain
    else:
        drafting = drafter.seconds(shape, batch, asked.context)
    if reason:
        return Timed(shape, batch, None, None, None, verify.work.bound_by, reason)
    return Timed(shape, batch, plain, verify.work.bound * verify.passes, drafting, verify.work.bound_by, "")


def _point(asked: Speculation, batch: int, drafted: int) -> Point:
    return answer_point(asked.target, Asked(DECODE, batch, asked.context, drafted=drafted))


def _shortage(asked: Speculation, shape: Shape, batch: int) -> str:
    """What does not fit on one device: weights + draft + both caches <= memory. [B]"""
    target, drafter, held = asked.target, asked.drafter, asked.context + shape.positions
    draft = drafter.weights(shape)
    cache = cache_on_one(target, batch, held) + drafter.cache(batch, held)
    if target.weight_bytes + draft + cache <= target.capacity:
        return ""
    return (
        f"the GPU offers {target.capacity / 1e9:.1f} GB; weights take {target.weight_bytes / 1e9:.1f} GB, the draft "
        f"{draft / 1e9:.1f} GB and the cache of {batch:,} x {held:,} tokens {cache / 1e9:.1f} GB"
    )


def timed_lengths(asked: Speculation, batch: int) -> list[Timed]:
    """Rounds of every length up to the longest; of trees those asked, whose size does not follow from their depth."""
    chain = all(shape.tree is None for shape in asked.shapes)
    shapes = tuple(map(Shape, range(1, asked.longest + 1))) if chain else asked.shapes
    decode = _point(asked, batch, 0)
    return [_timed(asked, shape, decode) for shape in shapes]


def best_round(timed: Iterable[Timed], accepted: Acceptance) -> tuple[int, float] | None:
    """The length of the largest speed-up, argmax over k of E(k) / cost(k), and that speed-up. [token], [-]

    Where no length is above 1, plain decode is the best: k = 0 and a speed-up of 1. None where none fits.
    """
    speeds = [(speedup, one.shape.drafted) for one in timed if (speedup := one.speedup(accepted)) is not None]
    if not speeds:
        return None
    speedup, drafted = max(speeds, key=lambda pair: pair[0])
    return (drafted, speedup) if speedup > 1 else (0, 1.0)


def least_acceptance(timed: Iterable[Timed]) -> float | None:
    """Acceptance above which a round of any of these lengths pays; None where none does. [-]"""
    evens = (break_even_acceptance(one.cost, one.shape.drafted) for one in timed if one.cost is not None)
    return min((even for even in evens if even is not None), default=None)


def textbook_cost_ratio(asked: Speculation) -> float:
    """c of the textbook formula: weights that a draft step reads over a decode step's, of one sequence, c = D_draft / D. [-]

    The ratio of sizes, which times are taken for where nothing is measured; a cost that is given stands for itself.
    """
    if asked.drafter.cost_ratio is not None:
        return asked.drafter.cost_ratio
    decode = answer_point(asked.target, Asked(DECODE, 1, asked.context))
    return asked.drafter.step_bytes / decode.work.weight_bytes


def shapes_of(drafted: Sequence[int], tree: int | None, width: int | None) -> tuple[Shape, ...]:
    """The rounds to look at.

    Raises:
        UsageError: a tree of fewer positions than its depth, or of more than anyone verifies.
    """
    if tree is None and width is not None:
        raise UsageError("--topk is the width of a tree; give --tree, the positions that it drafts")
    deepest = max(drafted)
    if tree is not None and not deepest <= tree <= MOST_TREE:
        raise UsageError(
            f"--tree {tree:,}: a tree of depth {deepest} drafts {deepest} to {MOST_TREE:,} positions (a chain is its least)"
        )
    if width is not None and not 1 <= width <= (tree or 1):
        raise UsageError(f"--topk {width:,}: a draft step takes 1 to {tree:,} positions, those of --tree at most")
    largest = (width or 0) + (min(drafted) - 1) * (width or 0) ** 2
    if tree is not None and width is not None and tree > largest:
        raise UsageError(
            f"--tree {tree:,}: {min(drafted)} steps of {width} positions, {width} below each, draft {largest:,} at most"
        )
    if deepest > MOST_DRAFTED:
        raise UsageError(f"k {deepest:,}: a round drafts 1 to {MOST_DRAFTED} tokens")
    return tuple(Shape(k, tree, width) for k in drafted)
