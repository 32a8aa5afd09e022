"""Accelerators beside one another: what each offers, and what one model makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import Ready
from roofcast.calculators.errors import UsageError
from roofcast.calculators.gpus import works_of
from roofcast.calculators.phases import Asked, answer_point, most_sequences
from roofcast.calculators.roofline import roofs_of
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.phases import Point
    from roofcast.hwdb.accelerator import Accelerator

BOUND: Final = "bound"
EXPECTED: Final = "expected"


@dataclass(frozen=True, slots=True)
class Refused:
    """Devices that cannot run the model at all.

    Args:
        accelerator: of which all are.
        reason: why not.
        gpus: how many.
    """

    accelerator: Accelerator
    reason: str
    gpus: int = 1


@dataclass(frozen=True, slots=True)
class GpuCompared:
    """One deployment's row. What it offers is of all its devices together, as sold."""

    gpu: str
    """Id of the accelerator."""
    gpus: int
    """Devices."""
    fits: bool
    """Whether weights and the cache of the batch fit at the context."""
    reason: str | None
    """Why not; null where they do."""
    memory_bytes: float
    """[B]"""
    bandwidth_bytes_per_second: float
    """[B/s]"""
    peak_flops_per_second: float | None
    """Dense, in the format that most of the model's arithmetic is computed in; null where it states none. [FLOP/s]"""
    format: str | None
    """That format; null likewise."""
    ridge: float | None
    """Peak / bandwidth; null likewise. [FLOP/B]"""
    ttft_seconds: float | None
    """Prefill of one prompt; null of what does not fit. [s]"""
    tpot_one_seconds: float | None
    """A decode step of one sequence; null likewise. [s]"""
    tpot_seconds: float | None
    """A decode step of the batch; null likewise. [s]"""
    tokens_per_second: float | None
    """Of the batch; null likewise. [token/s]"""
    most_sequences: int | None
    """That fit at the context; null of what cannot run."""
    basis: str
    """expected or bound: what the times are, the same in all rows."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Deployments of one model beside one another."""

    model: str
    """Name as asked for."""
    batch: int
    """Sequences that decode at once."""
    context: int
    """Tokens that each attends to. [token]"""
    prompt: int
    """Tokens of the prompt. [token]"""
    basis: str
    """expected or bound: what all times are."""
    rows: list[GpuCompared]
    """In the order in which they were asked for."""


def compare(readies: Sequence[Ready | Refused], batch: int, context: int, prompt: int) -> Compared:
    """Deployments of one model beside one another.

    Times are expected ones where all have their constants, else bounds of all.

    Args:
        readies: the deployments; those that cannot run the model keep what they offer, with the reason.
        batch: sequences that decode at once.
        context: tokens that each attends to. [token]
        prompt: tokens of the prompt. [token]

    Raises:
        UsageError: none of them can run it.
        MalformedModelError: a batch, context or prompt that cannot be.
    """
    able = [one for one in readies if isinstance(one, Ready)]
    if not able:
        raise UsageError("none of these GPUs can run the model: " + "; ".join(dict.fromkeys(map(_why, readies))))
    basis = EXPECTED if all(one.expectation is not None for one in able) else BOUND
    asked = Asked(PREFILL, 1, prompt), Asked(DECODE, 1, context), Asked(DECODE, batch, context)
    form = works_of(able[0], asked[:1])[0].format
    return Compared(
        model=able[0].model.name,
        batch=batch,
        context=context,
        prompt=prompt,
        basis=basis,
        rows=[_row(one, asked, basis, form) for one in readies],
    )


def _why(one: Ready | Refused) -> str:
    return one.reason if isinstance(one, Refused) else ""


def _row(one: Ready | Refused, asked: tuple[Asked, Asked, Asked], basis: str, form: str) -> GpuCompared:
    """A deployment's row."""
    answers: tuple[float | None, ...] = (None, None, None)
    if isinstance(one, Refused):
        device, count, roofs, reason = one.accelerator, one.gpus, roofs_of(one.accelerator), one.reason
        most = None
    else:
        device, count, roofs = one.deployment.accelerator, one.deployment.shards.devices, one.roofs
        points = tuple(answer_point(one, each) for each in asked)
        reason, answers = points[2].reason, tuple(_seconds(point, basis) for point in points)
        most = most_sequences(one, asked[2].context)
    peak = roofs.peaks.get(form)
    ttft, single, step = answers
    return GpuCompared(
        gpu=device.id,
        gpus=count,
        fits=not reason,
        reason=reason or None,
        memory_bytes=count * device.memory,
        bandwidth_bytes_per_second=count * device.bandwidth,
        peak_flops_per_second=None if peak is None else count * peak,
        format=None if peak is None else roofs.instead.get(form, form),
        ridge=None if peak is None else peak / device.bandwidth,
        ttft_seconds=ttft,
        tpot_one_seconds=single,
        tpot_seconds=step,
        tokens_per_second=None if step is None else asked[2].batch / step,
        most_sequences=most,
        basis=basis,
    )


def _seconds(point: Point, basis: str) -> float | None:
    return point.expected if basis == EXPECTED else point.bound
