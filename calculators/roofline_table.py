"""The answer of `roofline`: how much work each byte does, at every batch, context and prompt, under the device's roofs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.cache import whole
from roofcast.calculators.estimate import Layout, Weights, layout_of, provenance_of, ready_remarks, weights_of
from roofcast.calculators.phases import answer_point, check_steps
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Asked, Point

COMPARED: Final = ("bf16", "fp16", "fp8", "int8", "fp4")  # formats whose roofs are shown, used or not


@dataclass(frozen=True, slots=True)
class Roof:
    """One roof of the device: a format to multiply in."""

    format: str
    """Format of weights, or of attention."""
    computed_in: str
    """The format that the device computes it in."""
    peak_flops_per_second: float
    """Dense peak of that. [FLOP/s]"""
    ridge: float
    """Peak over bandwidth: below it memory is the limit. [FLOP/B]"""
    used: bool = True
    """Whether the steps asked multiply in it; the device's other formats are there to compare."""


@dataclass(frozen=True, slots=True)
class RooflineRow:
    """One phase at a batch and a context."""

    phase: str
    """prefill, decode or mixed."""
    batch: int
    """Sequences, over all replicas."""
    context: int
    """Tokens that each attends to; of prefill its prompt. [token]"""
    flops: float
    """On one GPU. [FLOP]"""
    bytes: float
    """Weights and KV cache or state that move on one GPU: the convention without activations. [B]"""
    intensity: float
    """FLOP a byte of weights and state. [FLOP/B]"""
    bound_seconds: float | None
    """Least time, each operation's the most of compute and memory; null of what does not fit. [s]"""
    bound_by: str
    """What bounds the terms that take most of the time: compute, memory or link."""
    fits: bool
    """Whether weights and the cache of all sequences fit at that context."""
    weight_bytes: float
    """Weights read. [B]"""
    state_bytes: float
    """KV cache and recurrent state, read and written. [B]"""
    activation_bytes: float
    """Inputs and outputs of every operation, each moved once. [B]"""
    full_intensity: float
    """FLOP a byte, activations included: the full count. [FLOP/B]"""
    full_seconds: float | None
    """Least time by the full count; null of what does not fit. [s]"""
    attention_intensity: float | None
    """FLOP a byte of attention alone; null where it moves nothing. [FLOP/B]"""
    flops_per_second: float | None
    """Arithmetic rate at the bound, the height of the chart; null of what does not fit. [FLOP/s]"""


@dataclass(frozen=True, slots=True)
class RooflineResult:
    """The result of `roofline`."""

    model: str
    """Name as asked for."""
    gpu: str
    """Id of the accelerator."""
    layout: Layout
    """How the devices share the model."""
    weights: Weights
    """How weights are stored and multiplied."""
    bandwidth_bytes_per_second: float
    """Memory bandwidth of one. [B/s]"""
    roofs: list[Roof]
    """The formats that the model multiplies in, and the device's other ones; the highest peak first."""
    rows: list[RooflineRow]
    """A row a phase, context and batch."""
    provenance: dict[str, str]
    """Where each number is from."""


def roofline_result(ready: Ready, asked: Sequence[Asked]) -> tuple[RooflineResult, Remarks]:
    """Answers `roofline`.

    Raises:
        MalformedModelError: a batch, context or chunk that cannot be.
    """
    check_steps(asked)
    points = [answer_point(ready, one) for one in asked]
    accelerator = ready.deployment.accelerator
    result = RooflineResult(
        model=ready.model.name,
        gpu=accelerator.id,
        layout=layout_of(ready),
        weights=weights_of(ready),
        bandwidth_bytes_per_second=accelerator.bandwidth,
        roofs=_roofs(ready, points),
        rows=[_row(point) for point in points],
        provenance=provenance_of(ready),
    )
    return result, ready_remarks(ready, [one.context for one in asked])


def _roofs(ready: Ready, points: Sequence[Point]) -> list[Roof]:
    """The roofs that the steps' arithmetic runs under, those of the same height once."""
    used = dict.fromkeys(op.format for point in points for op in point.work.ops if op.flops)
    roofs = ready.roofs
    made = {
        roofs.instead.get(name, name): Roof(name, roofs.instead.get(name, name), roofs.peaks[name], roofs.ridge(name))
        for name in used
    }
    return sorted((*made.values(), *_others(ready, list(made.values()))), key=lambda roof: -roof.peak_flops_per_second)


def _others(ready: Ready, used: Sequence[Roof]) -> list[Roof]:
    """Roofs of other heights that the device has for models in other formats."""
    accelerator = ready.deployment.accelerator
    heights = {roof.peak_flops_per_second for roof in used}
    own = (name for name in COMPARED if name in accelerator.peaks and accelerator.peak(name) not in heights)
    return [Roof(n, n, accelerator.peak(n), accelerator.peak(n) / accelerator.bandwidth, used=False) for n in own]


def _row(point: Point) -> RooflineRow:
    work, asked = point.work, point.asked
    return RooflineRow(
        phase=asked.phase,
        batch=asked.batch,
        context=asked.context,
        flops=whole(work.flops),
        bytes=whole(work.bytes),
        intensity=work.intensity,
        bound_seconds=point.bound,
        bound_by=work.bound_by,
        fits=point.fits,
        weight_bytes=whole(work.weight_bytes),
        state_bytes=whole(work.state_bytes),
        activation_bytes=whole(work.activation_bytes),
        full_intensity=work.full_intensity,
        full_seconds=point.full,
        attention_intensity=attention_intensity(point),
        flops_per_second=work.flops / work.bound if point.fits else None,
    )


def attention_intensity(point: Point) -> float | None:
    """FLOP a byte of scores and values alone: in decode about g = n_q / n_kv at 16 bits, 242 of absorbed MLA. [FLOP/B]

    2 n_q (d_k + d_v) T / (n_kv (d_k + d_v) b T); of MLA 2 n (2 d_c + d_rope) / ((d_c + d_rope) b).
    """
    ops = [op for op in point.work.ops if op.family in {ATTN_DECODE, ATTN_PREFILL}]
    moved = sum(op.bytes for op in ops)
    return sum(op.flops for op in ops) / moved if moved else None
