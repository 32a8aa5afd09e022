"""Measured speculation beside the formulas: what a round cost, what the textbook promised, what the roofline says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import remarks
from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.draft_models import draft_model
from roofcast.calculators.drafts import (
    EAGLE,
    EAGLE3,
    MEDUSA,
    MODEL,
    MTP,
    NGRAM,
    HeadAsked,
    Shape,
    drafter_of,
    plain_name,
)
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.rounds import Speculation, textbook_cost_ratio, timed_round
from roofcast.hwdb.lookup import UnknownAcceleratorError, find_accelerator
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.sharding import Shards

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.drafts import Drafter
    from roofcast.calculators.rounds import Timed
    from roofcast.modelspec.model import Model

CONTEXT: Final = 1024  # tokens, where a measurement states no lengths
BIT_SUFFIX: Final = r"-g\d+$"  # the group of a quantised format


@dataclass(frozen=True, slots=True)
class Harness:
    """How a method drafts where a measurement does not say.

    Args:
        pattern: of the method's name.
        method: as `speculate` knows it; None of one that it cannot time.
        shape: that its published harness uses; None where the measurement must say.
        draft: the model that it drafts with; empty where the measurement must say.
        source: where the shape is from.
    """

    pattern: str
    method: str | None
    shape: Shape | None = None
    draft: str = ""
    source: str = ""


# the first row whose pattern a method's name has. Sources: Spec-Bench and what it runs, at the commits named there.
HARNESSES: Final[tuple[Harness, ...]] = (
    Harness(r"eagle.?3", EAGLE3, Shape(6, 59, 10), source="SafeAILab/EAGLE: total_token 60, depth 5, top_k 10"),
    Harness(r"eagle.?2", EAGLE, Shape(6, 59, 10), source="Spec-Bench: total_token 60, depth 5, top_k 10"),
    Harness(r"eagle", EAGLE, Shape(5, 25), source="SafeAILab/EAGLE: tree mc_sim_7b_63, 25 nodes of depth 5"),
    Harness(r"medusa", MEDUSA, Shape(4, 63), source="Spec-Bench: tree mc_sim_7b_63, 63 nodes of depth 4"),
    Harness(r"hydra", None, Shape(4, 63), source="Spec-Bench: tree mc_sim_7b_63, 63 nodes of depth 4"),
    Harness(r"pld|prompt.?lookup|n.?gram", NGRAM, Shape(10), source="Spec-Bench: num_pred_tokens 10"),
    Harness(r"\brest\b", NGRAM, Shape(16, 64), source="Spec-Bench: 64 drafted tokens, spans of 16 at most"),
    Harness(r"lookahead", NGRAM, Shape(4, 56), source="Spec-Bench: level 5, window 7, guesses 7: (N - 1) (W + G)"),
    Harness(r"sps|draft", MODEL, Shape(5), source="transformers: num_assistant_tokens 5"),
    Harness(r"mtp|nextn", MTP),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement, as a file states it; None of what it does not.

    Args:
        source: id or link.
        model, gpu: by name.
        gpus: that share the model.
        weights: format, by name.
        batch, context: sequences, and tokens of each.
        method: how was drafted.
        draft: model that drafted.
        drafted, tree: tokens behind one another, and positions of a tree.
        tokens: a round, the target's own among them. [token]
        speedup: over plain decode. [-]
    """

    source: str
    model: str
    gpu: str
    gpus: int = 1
    weights: str | None = None
    batch: int = 1
    context: int | None = None
    method: str = ""
    draft: str = ""
    drafted: int | None = None
    tree: int | None = None
    tokens: float | None = None
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """A measurement beside what was to be expected of it."""

    source: str
    """Id or link."""
    model: str
    """By name."""
    gpu: str
    """By name."""
    batch: int
    """Sequences."""
    method: str
    """As the measurement names it."""
    drafted: int | None
    """Tokens drafted behind one another; null where nothing tells. [token]"""
    positions: int | None
    """Positions verified of each sequence, its own among them; null where nothing tells. [token]"""
    shape_from: str | None
    """Where draft length and tree are from, if not from the measurement."""
    tokens_per_round: float | None
    """Measured. [token]"""
    speedup: float | None
    """Measured. [-]"""
    round_cost: float | None
    """What a round cost in decode steps: tokens a round over speed-up. [-]"""
    cost_ratio: float | None
    """c of the textbook, by sizes. [-]"""
    textbook_round_cost: float | None
    """c k + 1. [-]"""
    textbook_speedup: float | None
    """Tokens a round over that. [-]"""
    textbook_optimism: float | None
    """That over the measured speed-up, less 1. [-]"""
    draft_cost: float | None
    """Drafting by the roofline, in decode steps. [-]"""
    verify_ratio: float | None
    """Verifying by the roofline, in decode steps. [-]"""
    roofline_speedup: float | None
    """Tokens a round over both. [-]"""
    roofline_optimism: float | None
    """That over the measured speed-up, less 1. [-]"""
    unexplained: float | None
    """What of the measured round neither formula has, in decode steps: host time, sampling, kernels below the roofs. [-]"""
    reason: str | None
    """Why a part is null."""


def measured_row(measured: Measured, find: Callable[[str], Model]) -> MeasuredRow:
    """One measurement's round: tokens / speed-up is what it cost, to be held against c k + 1 and against the roofline. [-]

    Optimism is what a formula promises over the measured speed-up, less 1.

    Args:
        measured: what a file states.
        find: loads a model by its name.
    """
    harness = _harness(measured)
    shape, shape_from = _shape(measured, harness)
    ratio, timed, reason = _told(measured, harness, shape, find)
    tokens, speedup = measured.tokens, measured.speedup
    textbook = None if ratio is None or shape is None else ratio * shape.drafted + 1
    roofline = timed.cost if timed else None
    cost = _over(tokens, speedup)
    return MeasuredRow(
        source=measured.source,
        model=measured.model,
        gpu=measured.gpu,
        batch=measured.batch,
        method=measured.method,
        drafted=shape.drafted if shape else None,
        positions=shape.positions + 1 if shape else None,
        shape_from=shape_from,
        tokens_per_round=tokens,
        speedup=speedup,
        round_cost=cost,
        cost_ratio=ratio,
        textbook_round_cost=textbook,
        textbook_speedup=_over(tokens, textbook),
        textbook_optimism=_less_one(_over(cost, textbook)),
        draft_cost=_over(timed.draft, timed.decode) if timed else None,
        verify_ratio=_over(timed.verify, timed.decode) if timed else None,
        roofline_speedup=_over(tokens, roofline),
        roofline_optimism=_less_one(_over(cost, roofline)),
        unexplained=None if cost is None or roofline is None else cost - roofline,
        reason=reason,
    )


def _told(
    measured: Measured, harness: Harness | None, shape: Shape | None, find: Callable[[str], Model]
) -> tuple[float | None, Timed | None, str | None]:
    """c of the textbook, the round as the roofline times it, and why one of them or a figure measured is missing."""
    missing = [
        name for name, value in (("tokens a round", measured.tokens), ("speed-up", measured.speedup)) if not value
    ]
    unstated = f"it states no {missing[0]}" if missing else None
    try:
        asked = _speculation(measured, harness, shape, find)
        ratio, timed = textbook_cost_ratio(asked), timed_round(asked, asked.shapes[0], measured.batch)
    except (ModelError, UsageError, UnansweredError, UnknownAcceleratorError) as error:
        return None, None, str(error)
    return ratio, timed, timed.reason or unstated


@dataclass(frozen=True, slots=True)
class MeasuredSummary:
    """Measurements of one method together."""

    method: str
    """As they name it."""
    rows: int
    """That state tokens and speed-up, and can be timed."""
    round_cost: float
    """Median, in decode steps. [-]"""
    textbook_optimism: float
    """Median. [-]"""
    roofline_optimism: float
    """Median. [-]"""


def measured_remarks(measured: Sequence[Measured], rows: Sequence[MeasuredRow]) -> Remarks:
    """What rows do not state and is taken instead: lengths by method, and contexts."""
    shapes = dict.fromkeys((row.method, row.shape_from) for row in rows if row.shape_from)
    lengths = [
        f"{method}: k and positions are taken as published harnesses have them ({source})" for method, source in shapes
    ]
    unstated = sum(one.context is None for one in measured)
    contexts = [f"{unstated:,} rows state no context: {CONTEXT:,} tokens are taken"] if unstated else []
    return remarks([*lengths, *contexts])


def summaries(rows: Sequence[MeasuredRow]) -> list[MeasuredSummary]:
    """Medians by method, and of all."""
    whole = [row for row in rows if row.textbook_optimism is not None and row.roofline_optimism is not None]
    spelt = {plain_name(row.method): row.method for row in reversed(whole)}
    groups = [
        (name, [row for row in whole if plain_name(row.method) == plain]) for plain, name in reversed(spelt.items())
    ]
    return [_summary(name, some) for name, some in [*groups, ("all", whole)] if some]


def _summary(method: str, rows: Iterable[MeasuredRow]) -> MeasuredSummary:
    every = list(rows)
    return MeasuredSummary(
        method,
        len(every),
        median(row.round_cost or 0.0 for row in every),
        median(row.textbook_optimism or 0.0 for row in every),
        median(row.roofline_optimism or 0.0 for row in every),
    )


def _harness(measured: Measured) -> Harness | None:
    name = measured.method.lower()
    return next((one for one in HARNESSES if re.search(one.pattern, name)), None)


def _shape(measured: Measured, harness: Harness | None) -> tuple[Shape | None, str | None]:
    """What a round drafts: as measured, else as the method's harness does."""
    if measured.drafted is not None:
        return Shape(measured.drafted, measured.tree), None
    if harness is None or harness.shape is None:
        return None, None
    return harness.shape, harness.source


def _speculation(
    measured: Measured, harness: Harness | None, shape: Shape | None, find: Callable[[str], Model]
) -> Speculation:
    if harness is None or harness.method is None:
        raise UnansweredError(f"what {measured.method} runs is not known" if measured.method else "it names no method")
    if shape is None:
        raise UnansweredError("it does not say how many tokens a round drafts")
    target = _target(measured, find)
    drafter = _drafter(measured, harness, target, find)
    return Speculation(target, drafter, measured.context or CONTEXT, (shape,))


def _target(measured: Measured, find: Callable[[str], Model]) -> Ready:
    accelerator = find_accelerator(measured.gpu).accelerator
    name = re.sub(BIT_SUFFIX, "", measured.weights.lower()) if measured.weights else None
    weights = find_requested(name) if name else None
    return prepare(find(measured.model), Deployment(accelerator, FORMATS["fp16"], weights, Shards(measured.gpus)))


def _drafter(measured: Measured, harness: Harness, target: Ready, find: Callable[[str], Model]) -> Drafter:
    if harness.method != MODEL:
        return drafter_of(str(harness.method), target, HeadAsked())
    if not measured.draft:
        raise UnansweredError("it does not say which model drafted")
    return draft_model(target, find(measured.draft), target.deployment.weights, None)


def _over(value: float | None, of: float | None) -> float | None:
    return value / of if value is not None and of else None


def _less_one(value: float | None) -> float | None:
    return None if value is None else value - 1
