"""The answer of `speculate`: tokens a round by the formulas, and rounds as the roofline times them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import remarks
from roofcast.calculators.drafts import GIVEN
from roofcast.calculators.estimate import Layout, Weights, layout_of, ready_remarks, weights_of
from roofcast.calculators.measured_rounds import MeasuredRow, MeasuredSummary, summaries
from roofcast.calculators.rejection import RuleCheck  # noqa: TC001 - schemas read the types
from roofcast.calculators.rounds import (
    LONGEST,
    best_round,
    least_acceptance,
    textbook_best,
    textbook_cost_ratio,
    timed_lengths,
    timed_round,
)
from roofcast.calculators.speculative import break_even_acceptance
from roofcast.modelspec.state import CACHE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.rounds import Acceptance, Speculation, Timed


@dataclass(frozen=True, slots=True)
class FormulaRow:
    """A round by the formulas alone."""

    acceptance: float | None
    """Chance that a drafted token is accepted; null where each position has its own. [-]"""
    drafted: int
    """Tokens drafted a round, k. [token]"""
    tokens_per_round: float
    """(1 - a^(k+1)) / (1 - a). [token]"""
    cost_ratio: float | None
    """Draft step over decode step, c; null where nothing tells it. [-]"""
    textbook_speedup: float | None
    """(1 - a^(k+1)) / ((1 - a) (c k + 1)); null without c. [-]"""
    best: bool
    """Whether it is above 1 and no length up to 32 has a larger one."""


@dataclass(frozen=True, slots=True)
class RoundRow:
    """A round on the machine, against plain decode."""

    batch: int
    """Sequences."""
    acceptance: float | None
    """Chance that a drafted token is accepted; null where each position has its own. [-]"""
    drafted: int
    """Tokens drafted behind one another, k. [token]"""
    positions: int
    """Positions that each sequence verifies, its own next token among them. [token]"""
    tokens_per_round: float
    """Of each sequence. [token]"""
    fits: bool
    """Whether weights, draft and caches fit."""
    reason: str | None
    """What does not; null where all does."""
    decode_seconds: float | None
    """Least time of a plain decode step; null of what does not fit. [s]"""
    draft_seconds: float | None
    """Least time of drafting. [s]"""
    verify_seconds: float | None
    """Least time of the target's step over all positions. [s]"""
    verify_ratio: float | None
    """That over a decode step: 1 while weights and cache are all that counts. [-]"""
    verify_bound_by: str | None
    """What bounds it."""
    round_cost: float | None
    """Drafting and verifying, in decode steps. [-]"""
    speedup: float | None
    """Tokens a round over its cost. [-]"""
    textbook_speedup: float | None
    """The same were verifying a decode step and a draft step c of one. [-]"""
    optimism: float | None
    """Textbook speed-up over this one, less 1. [-]"""
    tpot_seconds: float | None
    """Time a token of each sequence. [s]"""
    tokens_per_second: float | None
    """Of all sequences. [token/s]"""
    break_even_acceptance: float | None
    """Acceptance above which k drafted tokens pay; null where none does. [-]"""
    best: bool
    """Whether it is the length of the largest speed-up of those shown, and above 1."""


@dataclass(frozen=True, slots=True)
class BestRow:
    """The best length at a batch and an acceptance."""

    batch: int
    """Sequences."""
    acceptance: float | None
    """As of the rounds. [-]"""
    drafted: int
    """k of the largest speed-up, up to 32 (of a tree, of those asked); 0 where plain decode is quicker. [token]"""
    speedup: float | None
    """Of that; 1 of plain decode, null of what does not fit. [-]"""
    textbook_drafted: int
    """k that the textbook formula would choose, up to 32; 0 where it has none above 1. [token]"""
    textbook_speedup: float
    """That it would promise. [-]"""
    tpot_seconds: float | None
    """Time a token of each sequence with that length; null of what does not fit. [s]"""
    tokens_per_second: float | None
    """Of all sequences. [token/s]"""
    break_even_acceptance: float | None
    """Acceptance above which some length pays; null where none does. [-]"""


@dataclass(frozen=True, slots=True)
class Draft:
    """What drafts."""

    method: str
    """draft_model, mtp, eagle, eagle3, medusa, ngram, or given where its cost is."""
    name: str
    """In words."""
    parameters: float | None
    """Of its own: heads and embeddings that it shares are not in it; of Medusa, of each head. [parameter]"""
    weight_bytes: float | None
    """Of these on one GPU; of Medusa, of each head; null where a cost alone is given. [B]"""
    step_bytes: float | None
    """Weights that one more drafted token reads on one GPU, shared ones too. [B]"""
    cost_ratio: float
    """c of the textbook: those bytes over a decode step's of one sequence, or as given. [-]"""
    vocabulary: int | None
    """Tokens that it can draw, where these are fewer than the target's. [token]"""


@dataclass(frozen=True, slots=True)
class SpeculateResult:
    """The result of `speculate`; parts that were not asked for are null or empty."""

    model: str | None
    """Name as asked for."""
    gpu: str | None
    """Id of the accelerator."""
    layout: Layout | None
    """How the devices share the model."""
    weights: Weights | None
    """How weights are stored and multiplied."""
    context: int | None
    """Tokens that each sequence attends to. [token]"""
    draft: Draft | None
    """What drafts."""
    formulas: list[FormulaRow]
    """Tokens a round and textbook speed-up."""
    rounds: list[RoundRow]
    """A row a batch, acceptance and draft length."""
    best: list[BestRow]
    """A row a batch and acceptance."""
    measured_acceptance: float | None
    """Acceptance that the measured tokens a round imply; null without any. [-]"""
    measured: list[MeasuredRow]
    """Published or own measurements beside what the formulas and the roofline say."""
    summary: list[MeasuredSummary]
    """Their medians, by method and of all."""
    rule: RuleCheck | None
    """What the acceptance rule drew; null where it was not checked."""


def draft_of(asked: Speculation) -> Draft:
    """What drafts, in numbers."""
    drafter = asked.drafter
    given = drafter.method == GIVEN
    return Draft(
        method=drafter.method,
        name=drafter.name,
        parameters=drafter.parameters,
        weight_bytes=None if given else drafter.bytes,
        step_bytes=None if given else drafter.step_bytes,
        cost_ratio=textbook_cost_ratio(asked),
        vocabulary=drafter.vocabulary,
    )


def formula_rows(accepted: Iterable[Acceptance], drafted: Sequence[int], cost: float | None) -> list[FormulaRow]:
    """Tokens a round, and the textbook's speed-up where c is known, for every acceptance and length."""
    rows = []
    for one in accepted:
        best = textbook_best(one, cost)[0] if cost is not None else None
        for k in drafted:
            tokens = one.tokens(k)
            speedup = None if cost is None else tokens / (cost * k + 1)
            rows.append(FormulaRow(one.rate, k, tokens, cost, speedup, k == best))
    return rows


def _batch_rows(
    asked: Speculation, accepted: Sequence[Acceptance], batch: int, cost: float
) -> tuple[list[RoundRow], list[BestRow]]:
    """A batch's rows, of every acceptance and length with the best marked, and its best length at each acceptance."""
    looked = timed_lengths(asked, batch)
    at_hand = {each.shape: each for each in looked}
    shown = [at_hand.get(shape) or timed_round(asked, shape, batch) for shape in asked.shapes]
    rounds: list[RoundRow] = []
    for one in accepted:
        made = [_row(each, one, cost) for each in shown]
        best = max(made, key=lambda row: row.speedup or 0.0)
        gains = best.speedup is not None and best.speedup > 1
        rounds += [replace(row, best=row is best and gains) for row in made]
    return rounds, [_best(looked, one, cost) for one in accepted]


def _row(timed: Timed, one: Acceptance, cost: float) -> RoundRow:
    k, tokens = timed.shape.drafted, one.tokens(timed.shape.drafted)
    textbook = tokens / (cost * k + 1)
    total = timed.cost
    speedup = timed.speedup(one)
    tpot = None if timed.decode is None or speedup is None else timed.decode / speedup
    return RoundRow(
        batch=timed.batch,
        acceptance=one.rate,
        drafted=k,
        positions=timed.shape.positions + 1,
        tokens_per_round=tokens,
        fits=not timed.reason,
        reason=timed.reason or None,
        decode_seconds=timed.decode,
        draft_seconds=timed.draft,
        verify_seconds=timed.verify,
        verify_ratio=timed.verify / timed.decode if timed.verify is not None and timed.decode else None,
        verify_bound_by=None if timed.reason else timed.bound_by,
        round_cost=total,
        speedup=speedup,
        textbook_speedup=textbook,
        optimism=textbook / speedup - 1 if speedup else None,
        tpot_seconds=tpot,
        tokens_per_second=timed.batch / tpot if tpot else None,
        break_even_acceptance=None if total is None else break_even_acceptance(total, k),
        best=False,
    )


def _best(timed: Sequence[Timed], one: Acceptance, cost: float) -> BestRow:
    drafted, speedup = best_round(timed, one) or (0, None)
    textbook, promised = textbook_best(one, cost)
    decode = next((each.decode for each in timed if each.decode is not None), None)
    tpot = None if decode is None or speedup is None else decode / speedup
    return BestRow(
        batch=timed[0].batch,
        acceptance=one.rate,
        drafted=drafted,
        speedup=speedup,
        textbook_drafted=textbook,
        textbook_speedup=promised,
        tpot_seconds=tpot,
        tokens_per_second=timed[0].batch / tpot if tpot else None,
        break_even_acceptance=least_acceptance(timed),
    )


def continued(accepted: Iterable[Acceptance], longest: int) -> Remarks:
    """Which positions go on from those that were measured."""
    known = [len(one.by_position) for one in accepted if one.rate is None and len(one.by_position) < longest]
    text = "positions beyond the {} that are given go on at the last one's rate, r_n / r_(n-1)"
    return remarks(notes=[text.format(n) for n in known])


def _rolled_back(ready: Ready) -> str | None:
    """What a refused token costs a model that keeps a state, and is not counted."""
    if not any(part.fixed and part.format != CACHE for part, _ in ready.kept):
        return None
    return (
        f"{ready.model.name} keeps a recurrent state: where a token is refused the state before it must come back; copies a "
        f"position, their memory and their writes are not counted"
    )


EMPTY: Final = SpeculateResult(None, None, None, None, None, None, [], [], [], None, [], [], None)


def formulas_result(
    accepted: Sequence[Acceptance], drafted: Sequence[int], cost: float | None, implied: float | None = None
) -> SpeculateResult:
    """Answers without a model: tokens a round and, where c is given, the textbook's speed-up."""
    return replace(EMPTY, formulas=formula_rows(accepted, drafted, cost), measured_acceptance=implied)


def measured_result(rows: list[MeasuredRow]) -> SpeculateResult:
    """Answers for measurements."""
    return replace(EMPTY, measured=rows, summary=summaries(rows))


def rule_result(rule: RuleCheck) -> SpeculateResult:
    """Answers for the acceptance rule."""
    return replace(EMPTY, rule=rule)


def speculate_result(
    asked: Speculation, accepted: Sequence[Acceptance], batches: Sequence[int], implied: float | None = None
) -> tuple[SpeculateResult, Remarks]:
    """Answers for a model: rounds as the roofline times them, the textbook beside, and the best length of each batch.

    Raises:
        MalformedModelError: a batch or context that cannot be.
    """
    ready, draft = asked.target, draft_of(asked)
    parts = [_batch_rows(asked, accepted, batch, draft.cost_ratio) for batch in batches]
    result = replace(
        EMPTY,
        model=ready.model.name,
        gpu=ready.deployment.accelerator.id,
        layout=layout_of(ready),
        weights=weights_of(ready),
        context=asked.context,
        draft=draft,
        formulas=formula_rows(accepted, [shape.drafted for shape in asked.shapes], draft.cost_ratio),
        rounds=[row for rounds, _ in parts for row in rounds],
        best=[row for _, best in parts for row in best],
        measured_acceptance=implied,
    )
    said = remarks(asked.drafter.assumptions, notes=[*asked.drafter.notes, _rolled_back(ready)])
    said += continued(accepted, max(LONGEST, *(shape.drafted for shape in asked.shapes)))
    return result, ready_remarks(ready, [asked.context]) + said
