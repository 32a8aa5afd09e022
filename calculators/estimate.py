"""The answer of `estimate`: least times of prefill and decode, term by term."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.cache import whole
from roofcast.calculators.deployment import formats_of
from roofcast.calculators.estimate_rows import Phase, TermRow, UsedConstants
from roofcast.calculators.expected.expectation import KIND, NONE, families_by_file
from roofcast.calculators.expected.families import STEP
from roofcast.calculators.phases import answer_point, check_steps
from roofcast.calculators.remarks import model_remarks
from roofcast.modelspec.op import COLLECTIVE, Op
from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Asked, Point
    from roofcast.calculators.roofline import Term
    from roofcast.hwdb.accelerator import Accelerator

SAID: Final = {"ggml": "llama.cpp's types"}  # formats that have no name of their own


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
class Weights:
    """How the weights are stored and multiplied."""

    bits: float | None
    """Bits a parameter, scales included; null where it is not known."""
    formats: list[str]
    """The formats that matrices are multiplied in, the one of most work first."""


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
    weights: Weights
    """How they are stored and multiplied."""
    bandwidth_bytes_per_second: float
    """Of its memory. [B/s]"""
    phases: list[Phase]
    """A row a phase, context and batch."""
    efficiency: list[UsedConstants]
    """The constants of the expected times, a row a family and format; none with --efficiency bound."""
    provenance: dict[str, str]
    """Where each number is from."""


def estimate_result(ready: Ready, asked: Sequence[Asked]) -> tuple[EstimateResult, Remarks]:
    """Answers `estimate`.

    Raises:
        MalformedModelError: a batch, context or chunk that cannot be.
    """
    check_steps(asked)
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
        weights=weights_of(ready),
        bandwidth_bytes_per_second=accelerator.bandwidth,
        phases=rows,
        efficiency=used_constants(ready),
        provenance=provenance_of(ready),
    )
    return result, ready_remarks(ready, [one.context for one in asked]) + constants_remarks(ready)


def layout_of(ready: Ready) -> Layout:
    """The layout of a deployment."""
    shards = ready.deployment.shards
    return Layout(shards.devices, shards.tp, shards.pp, shards.ep, shards.dp)


def weights_of(ready: Ready) -> Weights:
    """Bits a parameter, 8 bytes / P of all that files hold, and the formats that matrices are multiplied in."""
    model, instead = ready.model, ready.roofs.instead
    whole_bytes, held = model.weight_bytes(ready.deployment.weights).value, model.parameters_in_files
    count = held or model.parameters.value
    work: Counter[str] = Counter()
    for part, times in ready.program.dense:
        work[instead.get(part.format, part.format)] += round(times * part.elements)
    for one, times in ready.program.routed:
        work[instead.get(one.format, one.format)] += round(times * one.elements * one.moe.top_k)
    return Weights(8 * whole_bytes / count if whole_bytes and count else None, [name for name, _ in work.most_common()])


def used_constants(ready: Ready) -> list[UsedConstants]:
    """The constants that expected times were made with so far, a row a family and format."""
    if ready.expectation is None:
        return []
    return [
        UsedConstants(
            family=one.family,
            format=one.format,
            fitted_on=one.file,
            distance=list(one.ways),
            constants=dict(one.fit.constants),
            spread=one.spread,
            rows=one.fit.rows,
            median_error=one.fit.median_error,
        )
        for one in ready.expectation.used
    ]


def constants_remarks(ready: Ready) -> Remarks:
    """What is assumed where constants are not of the accelerator and engine that are asked."""
    if ready.expectation is None:
        return Remarks()
    one, asked = ready.expectation, ready.deployment.engine
    others = families_by_file(choice for choice in one.used if set(choice.ways) - {KIND})
    measured = not one.files or one.choice(STEP, DECODE).constants.batch == 0
    named, kinds = f"{one.accelerator.id} under {one.engine}", ", ".join(one.unlike)
    return remarks(
        [
            f"expected times are as under {one.engine}, since no engine is named; --engine names one"
            if asked == NONE
            else None,
            *(
                f"{families} of {named} not measured: constants of {file}, with a wider interval"
                for file, families in sorted(others.items())
            ),
            f"{kinds}: attention of that kind was not measured: constants of grouped attention, with a wider interval"
            if kinds
            else None,
        ],
        []
        if measured
        else [f"expected times of {named} are fitted to one sequence at once: those of a batch are less certain"],
    )


def provenance_of(ready: Ready) -> dict[str, str]:
    """Where the numbers of an estimate are from."""
    stored = ready.model.weight_bytes(ready.deployment.weights).provenance
    fitted = {} if ready.expectation is None else {"efficiency": "fitted"}
    return {
        **fitted,
        "architecture": ready.model.facts,
        "weight_bytes": str(stored),
        "bandwidth": "datasheet",
        "peak": "datasheet",
    }


def ready_remarks(ready: Ready, contexts: Sequence[int]) -> Remarks:
    """What should be said of a model on a deployment: what was assumed, what is computed in another format."""
    accelerator, model = ready.deployment.accelerator, ready.model
    used = formats_of(ready.program, ready.formats)
    instead = ready.roofs.instead
    facts = ("bandwidth", *(f"peaks.{instead.get(name, name)}" for name in sorted(used)))
    recalled = [fact for fact in facts if not accelerator.verified(fact)]
    return model_remarks(model, ready.deployment.weights, contexts) + remarks(
        [
            f"{accelerator.id}: {', '.join(recalled)} recalled or derived, not read in a source" if recalled else None,
            *ready.fabric.assumptions,
        ],
        [
            _several(ready),
            _on_chip(ready),
            _uneven(ready),
            _beside(ready),
            *(_instead(accelerator, name, instead[name]) for name in sorted(used) if name in instead),
        ],
        [_stages(ready)],
    )


def _on_chip(ready: Ready) -> str | None:
    """Models so small that their weights may stay in a cache."""
    cache, size = ready.deployment.accelerator.l2, ready.weight_bytes
    if cache is None or size > cache:
        return None
    return (
        f"{ready.model.name}: its weights, {size / 1e6:.0f} MB, may stay in the {cache / 1e6:.0f} MB of L2 from step to step: "
        f"a step can then be quicker than its bound, which reads them from memory"
    )


def _several(ready: Ready) -> str | None:
    """Products that software sees as several devices."""
    accelerator = ready.deployment.accelerator
    if accelerator.devices == 1:
        return None
    return f"{accelerator.id} is {accelerator.devices} devices to software; times are those of all of it, as one"


def _instead(accelerator: Accelerator, name: str, used: str) -> str | None:
    """What is computed in another format than it is stored in; of llama.cpp's types only where that is unusual."""
    what, device = SAID.get(name, name), accelerator.id
    if used == "fp16_acc16":
        return f"{device}: matrices in {what} multiply with fp16 accumulation, as the engine's kernels do"
    if name == "ggml" and used == "fp16":
        return None
    if name in accelerator.peaks or name == "ggml":
        return f"{device}: matrices in {what} are computed in {used}, the quickest that it has for them"
    return f"{device} has no {name} arithmetic: it is computed in {used}, at the peak of that; bytes are as stored"


def _uneven(ready: Ready) -> str | None:
    """How experts are taken to be chosen."""
    if not ready.program.routed:
        return None
    return f"{ready.model.name}: experts are taken as chosen evenly: weights read are an expectation; uneven routers read fewer"


def _beside(ready: Ready) -> str | None:
    """What stands beside the decoder, and layers that only images would pass."""
    spec = ready.model.spec
    names = ", ".join(tower.name for tower in spec.towers)
    skipped = sum(n for layer, n in spec.layer_counts.items() if layer.skipped)
    said = [
        *([f"times are the decoder's alone, without the work of its {names}"] if names else []),
        *(
            [f"its {skipped} layers that attend to images are passed by; --encoder-tokens N counts an image"]
            if skipped
            else []
        ),
    ]
    return f"{ready.model.name}: {'; '.join(said)}" if said else None


def _stages(ready: Ready) -> str | None:
    stages = ready.deployment.shards.pp
    if stages == 1:
        return None
    return f"terms are of all {stages} stages; of prefill all pieces, which follow one another from stage to stage, of decode one part of the batch"


def _phase(ready: Ready, point: Point) -> Phase:
    work, asked = point.work, point.asked
    low, high = point.interval or (None, None)
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
        overlapped_seconds=point.overlapped,
        expected_seconds=point.expected,
        low_seconds=low,
        high_seconds=high,
        kernel_seconds=point.kernels if point.fits else None,
        host_seconds=None if point.expected is None else point.host,
        bound_by=work.bound_by,
        tokens_per_second=point.rate,
        expected_tokens_per_second=point.expected_rate,
        steps=point.steps,
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
    first = terms[0]
    computed = None if form is None else ready.roofs.instead.get(form, form)
    return TermRow(
        term=first.op.name,
        family=first.op.family if ops else COLLECTIVE,
        flops=whole(flops),
        bytes=whole(moved),
        exchanged_bytes=whole(sum(term.moved for term in terms)),
        weight_bytes=whole(weights),
        state_bytes=whole(state),
        activation_bytes=whole(sum(op.activation_read + op.activation_written for op in ops)),
        intensity=flops / moved if moved else None,
        format=computed,
        bound_seconds=bound if point.fits else None,
        bound_by=first.bound_by,
        expected_seconds=sum(term.expected for term in terms) if point.expected is not None else None,
        calls=sum(term.op.calls for term in terms),
        share=bound / point.work.bound if point.work.bound else 0.0,
        counted_by=first.op.by,
    )
