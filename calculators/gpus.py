"""The answer of `gpus`: what each accelerator offers and where its ridge points are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofcast.calculators.phases import answer_point
from roofcast.calculators.roofline import COMPUTE, MEMORY, roofs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Asked, Point
    from roofcast.hwdb.accelerator import Accelerator


@dataclass(frozen=True, slots=True)
class GpuIntensity:
    """A model's work against the ridge point of one accelerator."""

    phase: str
    """prefill or decode."""
    batch: int
    """Sequences at once."""
    context: int
    """Tokens that each attends to; of prefill its prompt. [token]"""
    intensity: float
    """FLOP a byte of weights and KV cache. [FLOP/B]"""
    format: str
    """The format that most of its arithmetic asks for."""
    computed_in: str | None
    """The format that this device computes it in; null where it states no peak of any."""
    ridge: float | None
    """Ridge point of that; null likewise. [FLOP/B]"""
    bound_by: str | None
    """memory below the ridge, compute above it; null likewise."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator's row. SI units, dense peaks."""

    id: str
    """The name to give to --gpu."""
    name: str
    """Name as sold."""
    architecture: str | None
    """Generation."""
    compute_capability: str | None
    """CUDA compute capability; null elsewhere."""
    memory_bytes: float
    """As sold (nominal). [B]"""
    driver_bytes: float | None
    """What the driver reports; null where not known. [B]"""
    visible_bytes: float | None
    """What a CUDA or HIP program sees; null where not known. [B]"""
    bandwidth_bytes_per_second: float
    """Memory bandwidth. [B/s]"""
    peak_flops_per_second: dict[str, float]
    """Format -> dense peak. [FLOP/s]"""
    ridge: dict[str, float]
    """Format -> peak / bandwidth. [FLOP/B]"""
    sm_count: int | None
    """Streaming multiprocessors or their like."""
    l2_bytes: float | None
    """L2 cache. [B]"""
    shared_memory_bytes_per_sm: float | None
    """Shared memory of one SM. [B]"""
    tdp_watts: float | None
    """Thermal design power. [W]"""
    scale_up_bytes_per_second: float | None
    """Links to other accelerators, both directions together. [B/s]"""
    flags: dict[str, bool | None]
    """What it supports; null where not known."""
    sdpa_backends: list[str] | None
    """PyTorch attention backends that run; null for other vendors."""
    confidence: str | None
    """How sure the record is."""
    unverified: list[str]
    """Facts that were recalled or derived, not read in a source."""
    sources: list[dict[str, str | None]]
    """Where the facts were read."""
    intensities: list[GpuIntensity] | None = None
    """A model's work against its ridge points; null where no model is asked for."""


@dataclass(frozen=True, slots=True)
class GpusResult:
    """The result of `gpus`."""

    gpus: list[Gpu]
    """One row an accelerator."""


def gpu_row(accelerator: Accelerator) -> Gpu:
    """The row of one accelerator."""
    flags = accelerator.flags
    backends = accelerator.sdpa_backends
    return Gpu(
        id=accelerator.id,
        name=accelerator.name,
        architecture=accelerator.architecture,
        compute_capability=accelerator.compute_capability,
        memory_bytes=accelerator.memory,
        driver_bytes=accelerator.driver_memory,
        visible_bytes=accelerator.visible_memory,
        bandwidth_bytes_per_second=accelerator.bandwidth,
        peak_flops_per_second=dict(accelerator.peaks),
        ridge=accelerator.ridges(),
        sm_count=accelerator.sm_count,
        l2_bytes=accelerator.l2,
        shared_memory_bytes_per_sm=accelerator.shared_memory_per_sm,
        tdp_watts=accelerator.tdp,
        scale_up_bytes_per_second=accelerator.scale_up.bandwidth if accelerator.scale_up else None,
        flags=dict(flags),
        sdpa_backends=None if backends is None else list(backends),
        confidence=accelerator.confidence,
        unverified=[fact for fact in accelerator.stated_facts() if not accelerator.verified(fact)],
        sources=[{"title": s.title, "url": s.url, "access": s.access} for s in accelerator.sources],
    )


def gpu_rows(accelerators: Iterable[Accelerator], works: Sequence[Work] = ()) -> GpusResult:
    """The rows of several, each with a model's works against its ridge points where there are any."""
    rows = ((accelerator, gpu_row(accelerator)) for accelerator in accelerators)
    return GpusResult([replace(row, intensities=against(gpu, works)) if works else row for gpu, row in rows])


@dataclass(frozen=True, slots=True)
class Work:
    """What a model's step does, whatever the device.

    Args:
        asked: the step.
        intensity: FLOP a byte of weights and state. [FLOP/B]
        format: that most of its arithmetic asks for.
    """

    asked: Asked
    intensity: float
    format: str


def works_of(ready: Ready, asked: Iterable[Asked]) -> list[Work]:
    """The work of every step that is asked: F / D, weights and state moved once."""
    return [_work(answer_point(ready, one)) for one in asked]


def _work(point: Point) -> Work:
    flops: Counter[str] = Counter()
    for op in point.work.ops:
        flops[op.format] += round(op.flops)
    return Work(point.asked, point.work.intensity, flops.most_common(1)[0][0])


def against(accelerator: Accelerator, works: Iterable[Work]) -> list[GpuIntensity]:
    """Each work against the ridge of the format that the device computes it in: below it memory is the limit."""
    roofs, rows = roofs_of(accelerator), []
    for work in works:
        asked, known = work.asked, work.format in roofs.peaks
        ridge = roofs.ridge(work.format) if known else None
        used = roofs.instead.get(work.format, work.format) if known else None
        bound = None if ridge is None else COMPUTE if work.intensity > ridge else MEMORY
        rows.append(
            GpuIntensity(asked.phase, asked.batch, asked.context, work.intensity, work.format, used, ridge, bound)
        )
    return rows
