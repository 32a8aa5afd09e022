"""The answer of `levers`: what each technique changes, every row the same estimate with one thing changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import remarks
from roofcast.calculators.deployment import cache_on_one
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.estimate import Layout, Weights, layout_of, ready_remarks, weights_of
from roofcast.calculators.phases import Asked, answer_point, most_sequences, shortage
from roofcast.calculators.variants import LEVERS, Base, Change
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready

MOST_SEQUENCES: Final = 4096  # a batch beyond is not looked at


@dataclass(frozen=True, slots=True)
class LeverRow:
    """One technique."""

    lever: str
    """Kind of change: base, kv, weights, batch, tp, attention, window, prefix, speculation or gpu."""
    change: str
    """What is changed."""
    fits: bool
    """Whether weights and the cache of the batch fit."""
    reason: str | None
    """Why it cannot be or does not fit; null where it does."""
    weight_bytes: float | None
    """Weights on one GPU. [B]"""
    kv_bytes_per_sequence: float | None
    """Cache of one sequence at the context, on one GPU. [B]"""
    ttft_seconds: float | None
    """Least time of the prompt, one sequence; null of what does not fit. [s]"""
    tpot_seconds: float | None
    """Least time a token of decode at batch and context; null of what does not fit. [s]"""
    tokens_per_second: float | None
    """Of the batch at the bound; null of what does not fit. [token/s]"""
    max_sequences: int | None
    """Sequences that fit at the context."""
    max_tokens_per_second: float | None
    """Of as many sequences as fit, 4,096 at most; null where none does. [token/s]"""
    ttft_ratio: float | None
    """TTFT over the base's. [-]"""
    tpot_ratio: float | None
    """TPOT over the base's. [-]"""
    sequences_ratio: float | None
    """Sequences that fit over the base's. [-]"""
    says: str
    """What it bounds, costs or forgets."""


@dataclass(frozen=True, slots=True)
class LeversResult:
    """The result of `levers`."""

    model: str
    """Name as asked for."""
    gpu: str
    """Id of the accelerator."""
    layout: Layout
    """How the devices share the model."""
    weights: Weights
    """How weights are stored and multiplied."""
    batch: int
    """Sequences that decode."""
    context: int
    """Tokens that each attends to. [token]"""
    prompt: int
    """Tokens of the prompt. [token]"""
    rows: list[LeverRow]
    """The base first, then a row a technique."""
    usable_share: float = 1.0
    """Of a device's memory, what weights and cache may take. [-]"""


def levers_result(base: Base) -> tuple[LeversResult, Remarks]:
    """Answers `levers`: the base, and every technique that applies, each estimated anew. [s]

    Raises:
        MalformedModelError: a batch, context or prompt that cannot be.
    """
    first, _ = _row(base, Change("base", "as it is", lambda: base.ready), None)
    made = [_row(base, change, first) for lever in LEVERS for change in lever(base)]
    rows = [first, *(row for row, _ in made)]
    assumed = [f"{row.change}: {line}" for row, ready in made if ready for line in _more(ready, base.ready)]
    accelerator = base.ready.deployment.accelerator
    result = LeversResult(
        model=base.ready.model.name,
        gpu=accelerator.id,
        layout=layout_of(base.ready),
        weights=weights_of(base.ready),
        batch=base.batch,
        context=base.context,
        prompt=base.prompt,
        rows=rows,
        usable_share=base.usable,
    )
    return result, ready_remarks(base.ready, [base.context, base.prompt]) + remarks(assumed)


def _more(ready: Ready, base: Ready) -> list[str]:
    """What a changed deployment assumes beyond the base."""
    return [line for line in ready.fabric.assumptions if line not in base.fabric.assumptions]


def _row(base: Base, change: Change, first: LeverRow | None) -> tuple[LeverRow, Ready | None]:
    """One technique's row, and the deployment that it is of; None of what cannot be."""
    try:
        made = change.make()
    except (UsageError, UnansweredError, ModelError) as error:
        return _impossible(change, str(error)), None
    ready = made if base.usable == 1 else replace(made, capacity=made.capacity * base.usable)
    batch = change.batch or base.batch
    decode = answer_point(ready, Asked(DECODE, batch, base.context))
    reason = shortage(ready, Asked(DECODE, batch, base.context + change.held))
    prefill = answer_point(ready, Asked(PREFILL, 1, base.prompt, cached=change.cached))
    most = most_sequences(ready, base.context + change.held)
    ceiling = answer_point(ready, Asked(DECODE, min(most, MOST_SEQUENCES), base.context)) if most else None
    gained, at_most = (_gain(change, asked) for asked in (batch, min(most, MOST_SEQUENCES)))
    row = LeverRow(
        lever=change.lever,
        change=change.change,
        fits=not reason,
        reason=reason or None,
        weight_bytes=ready.weight_bytes,
        kv_bytes_per_sequence=cache_on_one(ready, 1, base.context),
        ttft_seconds=prefill.bound,
        tpot_seconds=None if reason else _ratio(decode.bound, gained),
        tokens_per_second=None if reason else _times(decode.rate, gained),
        max_sequences=most,
        max_tokens_per_second=_times(ceiling.rate, at_most) if ceiling else None,
        ttft_ratio=None,
        tpot_ratio=None,
        sequences_ratio=None,
        says=change.says,
    )
    return _compared(row, first or row), ready


def _gain(change: Change, batch: int) -> float:
    """Tokens of a decode step over its time, against plain decode. [-]"""
    return change.speedup(batch) if change.speedup and batch else 1.0


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _compared(row: LeverRow, first: LeverRow) -> LeverRow:
    return replace(
        row,
        ttft_ratio=_ratio(row.ttft_seconds, first.ttft_seconds),
        tpot_ratio=_ratio(row.tpot_seconds, first.tpot_seconds),
        sequences_ratio=_ratio(row.max_sequences, first.max_sequences),
    )


def _ratio(value: float | None, of: float | None) -> float | None:
    return value / of if value is not None and of else None


def _impossible(change: Change, reason: str) -> LeverRow:
    return LeverRow(
        lever=change.lever,
        change=change.change,
        fits=False,
        reason=reason,
        weight_bytes=None,
        kv_bytes_per_sequence=None,
        ttft_seconds=None,
        tpot_seconds=None,
        tokens_per_second=None,
        max_sequences=None,
        max_tokens_per_second=None,
        ttft_ratio=None,
        tpot_ratio=None,
        sequences_ratio=None,
        says=change.says,
    )
