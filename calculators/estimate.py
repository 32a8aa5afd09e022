"""The answer of `estimate`: least times of prefill and decode, term by term."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.cache import whole
from roofcast.calculators.phases import answer_point
from roofcast.calculators.remarks import model_remarks
from roofcast.modelspec.op import COLLECTIVE, Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Asked, Point
    from roofcast.calculators.roofline import Term


@dataclass(frozen=True, slots=True)
class Layout:
    """How the devices share the model."""

    gpus: int
    """All of them."""
    tp: int
    """Devices that share every layer (tensor parallel)."""
    pp: int
    """Stages of layers (pipeline parallel)."""
    ep: int
    """Devices that share the routed experts (expert parallel)."""
    dp: int
    """Replicas, each with its own sequences (data parallel)."""


@dataclass(frozen=True, slots=True)
class TermRow:
    """One term: the same operation in all layers that do it."""

    term: str
    """Its name; --explain prints its formula."""
    family: str
    """gemm, moe, attn_prefill, attn_decode, elementwise or collective."""
    flops: float
    """On one GPU. [FLOP]"""
    bytes: float
    """Weights and state moved on one GPU; of a collective the tensor exchanged. [B]"""
    weight_bytes: float
    """Weights read. [B]"""
    state_bytes: float
    """KV cache and recurrent state, read and written. [B]"""
    activation_bytes: float
    """Inputs and outputs, each moved once. [B]"""
    intensity: float | None
    """FLOP a byte of weights and state; null without such bytes. [FLOP/B]"""
    format: str | None
    """The format it is computed in; null of a collective."""
    bound_seconds: float | None
    """Least time; null of what does not fit. [s]"""
    bound_by: str
    """compute, memory or link."""
    share: float
    """Of the step's least time. [-]"""
    counted_by: str
    """The function that counted its work."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase at a batch and a context."""

    phase: str
    """prefill, decode or mixed."""
    batch: int
    """Sequences, over all replicas."""
    context: int
    """Tokens that each attends to; of prefill its prompt. [token]"""
    fits: bool
    """Whether weights and the cache of all sequences fit at that context, in the memory that the device offers."""
    reason: str | None
    """Why not; null where they do."""
    flops: float
    """On one GPU. [FLOP]"""
    bytes: float
    """Weights and KV cache or state that move on one GPU; activations are apart. [B]"""
    weight_bytes: float
    """Weights read. [B]"""
    state_bytes: float
    """KV cache and recurrent state, read and written. [B]"""
    activation_bytes: float
    """Inputs and outputs of every operation, each moved once. [B]"""
    intensity: float
    """FLOP a byte of weights and state. [FLOP/B]"""
    full_intensity: float
    """FLOP a byte, activations included. [FLOP/B]"""
    bound_seconds: float | None
    """Least time, weights and state moved once: the bound; null of what does not fit. [s]"""
    full_seconds: float | None
    """The same were activations to go through memory too; null of what does not fit. [s]"""
    expected_seconds: float | None
    """Expected time; null until efficiencies are fitted. [s]"""
    low_seconds: float | None
    """Low end of its interval; null likewise. [s]"""
    high_seconds: float | None
    """High end of its interval; null likewise. [s]"""
    bound_by: str
    """What bounds the terms that take most of the time: compute, memory or link."""
    tokens_per_second: float | None
    """Of the whole deployment at the bound; null of what does not fit. [token/s]"""
    terms: list[TermRow]
    """The step's terms; their least times sum to bound_seconds, but for a pipeline, whose stages work at once."""


@dataclass(frozen=True, slots=True)
class EstimateResult:
    """The result of `estimate`."""

    model: str
    """Name as asked for."""
    gpu: str
    """Id of the accelerator."""
    layout: Layout
    """How the devices share the model."""
    fits: bool
    """Whether every row fits."""
    memory_bytes: float
    """Memory that one device offers. [B]"""
    memory_from: str
    """visible (to CUDA), driver or nominal."""
    weight_bytes: float
    """Weights on the fullest device. [B]"""
    bandwidth_bytes_per_second: float
    """Of its memory. [B/s]"""
    phases: list[Phase]
    """A row a phase, context and batch."""
    provenance: dict[str, str]
    """Where each number is from."""


def estimate_result(ready: Ready, asked: Sequence[Asked]) -> tuple[EstimateResult, Remarks]:
    """Answers `estimate`.

    Raises:
        MalformedModelError: a batch, context or chunk that cannot be.
    """
    rows = [_phase(ready, answer_point(ready, one)) for one in asked]
    accelerator = ready.deployment.accelerator
    result = EstimateResult(
        model=ready.model.name,
        gpu=accelerator.id,
        layout=layout_of(ready),
        fits=all(row.fits for row in rows),
        memory_bytes=ready.capacity,
        memory_from=ready.capacity_from,
        weight_bytes=whole(ready.weight_bytes),
        bandwidth_bytes_per_second=accelerator.bandwidth,
        phases=rows,
        provenance=provenance_of(ready),
    )
    return result, ready_remarks(ready, [one.context for one in asked])


def layout_of(ready: Ready) -> Layout:
    """The layout of a deployment."""
    shards = ready.deployment.shards
    return Layout(shards.devices, shards.tp, shards.pp, shards.ep, shards.dp)


def provenance_of(ready: Ready) -> dict[str, str]:
    """Where the numbers of an estimate are from."""
    stored = ready.model.weight_bytes(ready.deployment.weights).provenance
    return {
        "architecture": ready.model.facts,
        "weight_bytes": str(stored),
        "bandwidth": "datasheet",
        "peak": "datasheet",
    }


def ready_remarks(ready: Ready, contexts: Sequence[int]) -> Remarks:
    """What should be said of a model on a deployment: what was assumed, what is computed in another format."""
    accelerator, model = ready.deployment.accelerator, ready.model
    used = {part.format for part, _ in ready.program.dense} | {part.format for part, _ in ready.program.routed}
    used |= {ready.program.head.format, ready.formats.attention}
    instead = ready.roofs.instead
    facts = ("bandwidth", *(f"peaks.{instead.get(name, name)}" for name in sorted(used)))
    recalled = [fact for fact in facts if not accelerator.verified(fact)]
    return model_remarks(model, ready.deployment.weights, contexts) + remarks(
        [
            f"{accelerator.id}: {', '.join(recalled)} recalled or derived, not read in a source" if recalled else None,
            *ready.fabric.assumptions,
        ],
        [_several(ready), *(_instead(accelerator.id, name, instead[name]) for name in sorted(used) if name in instead)],
        [_uneven(ready), _encoder(ready), _stages(ready)],
    )


def _several(ready: Ready) -> str | None:
    """Products that software sees as several devices."""
    accelerator = ready.deployment.accelerator
    if accelerator.devices == 1:
        return None
    return f"{accelerator.id} is {accelerator.devices} devices to software; times are those of all of it, as one"


def _instead(device: str, name: str, used: str) -> str:
    if used.startswith(name):
        return f"{device}: {name} is computed as {used}, the quicker kind that the engine's kernels use"
    return f"{device} has no {name} arithmetic: it is computed in {used}, at the peak of that; bytes are as stored"


def _uneven(ready: Ready) -> str | None:
    """How experts are taken to be chosen."""
    if not ready.program.routed:
        return None
    return f"{ready.model.name}: experts are taken as chosen evenly; real routers are uneven and read fewer at small batches"


def _encoder(ready: Ready) -> str | None:
    names = [tower.name for tower in ready.model.spec.towers]
    return f"{ready.model.name}: steps are the decoder's; its {', '.join(names)} is in no row" if names else None


def _stages(ready: Ready) -> str | None:
    stages = ready.deployment.shards.pp
    if stages == 1:
        return None
    return f"terms are of all {stages} stages; of prefill all pieces, which follow one another from stage to stage, of decode one part of the batch"


def _phase(ready: Ready, point: Point) -> Phase:
    work, asked = point.work, point.asked
    return Phase(
        phase=asked.phase,
        batch=asked.batch,
        context=asked.context,
        fits=point.fits,
        reason=point.reason or None,
        flops=whole(work.flops),
        bytes=whole(work.bytes),
        weight_bytes=whole(work.weight_bytes),
        state_bytes=whole(work.state_bytes),
        activation_bytes=whole(work.activation_bytes),
        intensity=work.intensity,
        full_intensity=work.full_intensity,
        bound_seconds=point.bound,
        full_seconds=point.full,
        expected_seconds=None,
        low_seconds=None,
        high_seconds=None,
        bound_by=work.bound_by,
        tokens_per_second=point.rate,
        terms=term_rows(ready, point),
    )


def term_rows(ready: Ready, point: Point) -> list[TermRow]:
    """The terms of a step, those of one name, format and bound together, in the order in which they run."""
    groups: defaultdict[tuple[str, str | None, str], list[Term]] = defaultdict(list)
    for term in point.work.terms:
        form = term.op.format if isinstance(term.op, Op) else None
        groups[term.op.name, form, term.bound_by].append(term)
    return [_term(ready, point, terms, form) for (_, form, _), terms in groups.items()]


def _term(ready: Ready, point: Point, terms: list[Term], form: str | None) -> TermRow:
    ops = [term.op for term in terms if isinstance(term.op, Op)]
    bound = sum(term.bound for term in terms)
    flops, weights = sum(op.flops for op in ops), sum(op.weight_bytes for op in ops)
    state = sum(op.state_read + op.state_written for op in ops)
    moved = weights + state
    exchanged = sum(term.op.payload * term.op.times for term in terms if not isinstance(term.op, Op))
    first = terms[0]
    computed = None if form is None else ready.roofs.instead.get(form, form)
    return TermRow(
        term=first.op.name,
        family=first.op.family if ops else COLLECTIVE,
        flops=whole(flops),
        bytes=whole(moved + exchanged),
        weight_bytes=whole(weights),
        state_bytes=whole(state),
        activation_bytes=whole(sum(op.activation_read + op.activation_written for op in ops)),
        intensity=flops / moved if moved else None,
        format=computed,
        bound_seconds=bound if point.fits else None,
        bound_by=first.bound_by,
        share=bound / point.work.bound if point.work.bound else 0.0,
        counted_by=first.op.by,
    )
