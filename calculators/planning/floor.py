"""What no deployment can be below: its rooflines alone, of a workload in the mean. Microseconds a candidate."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.cache import kv_bytes_per_token
from roofcast.calculators.deployment import WHOLE, offered_memory
from roofcast.calculators.weighing import storage_of
from roofcast.modelspec.program import build_program

if TYPE_CHECKING:
    from roofcast.calculators.planning.demand import Shape
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.roofline import Roofs
    from roofcast.calculators.serving.result import Goal
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested

HALF: Final = 50.0  # percentile from which on the mean of steps is no more than what is promised
PLAIN: Final = 100.0  # milliseconds from which on no fraction is shown [ms]
TABLE: Final = 2.0  # bytes of an element of the embedding, at most [B]


@dataclass(frozen=True, slots=True)
class Work:
    """A model in formats, without a machine: what each token needs at least.

    Args:
        weights: bytes of all weights. [B]
        active: bytes of those that every step reads at least. [B]
        flops: of a token, without embedding, head and attention. [FLOP]
        formats: that its matrices are multiplied in.
    """

    weights: float
    active: float
    flops: float
    formats: frozenset[str]


def work_of(model: Model, requested: Requested | None) -> Work:
    """What a token needs at least: 2 FLOP a parameter that works on it; a step reads these parameters. [FLOP, B]

    Embedding and head are left out of both, since prompts need neither.
    """
    spec = model.spec
    total, active = float(spec.parameters), float(spec.active_parameters)
    tables = sum(spec.components[name] for name in ("embedding", "head"))
    held = model.weight_bytes(requested).value or 0.0
    program = build_program(spec, storage_of(model, requested), WHOLE)
    formats = {part.format for part, _ in program.dense} | {part.format for part, _ in program.routed}
    at_work = max(0.0, active - tables)
    return Work(held, max(0.0, held * active / total - tables * TABLE), 2.0 * at_work, frozenset(formats))


@dataclass(frozen=True, slots=True)
class Floor:
    """What cannot be less.

    Args:
        rate: requests a second of one unit at most. [1/s]
        ttft, tpot: at least. [s]
        limit: why none of any number will do; empty where one may.
        reason: the same in a sentence.
    """

    rate: float
    ttft: float
    tpot: float
    limit: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator in the numbers that matter here.

    Args:
        accelerator: of which.
        roofs: that an engine reaches for on it.
        work: of the model in the formats.
        token_bytes: of the cache. [B/token]
    """

    accelerator: Accelerator
    roofs: Roofs
    work: Work
    token_bytes: float


def device_of(accelerator: Accelerator, roofs: Roofs, work: Work, model: Model, kv: Format) -> Device:
    """The numbers of a device."""
    return Device(accelerator, roofs, work, kv_bytes_per_token(model.spec, kv))


def floor_of(device: Device, machine: Machine, shape: Shape, goal: Goal) -> Floor:
    """The most that a unit of d devices could do if they shared all work evenly and nothing else took time.

        step(B) >= max(W / (d bandwidth), B (new / steps + 1) F / (d peak)) + B context kv / (d bandwidth)
        rate <= B / (steps step(B)), B by memory: (d M - W) / (context kv), and by TPOT: (TPOT d bandwidth - W) / (context kv)

    Matrices take the greater of both times, attention to the cache takes its own.

    TPOT >= W / (tp dp bandwidth), TTFT >= F new / (d peak). [1/s, s]
    """
    work, shards = device.work, machine.shards
    peaks = [device.roofs.peaks[name] for name in work.formats if name in device.roofs.peaks]
    if not peaks:
        return Floor(0.0, inf, inf, "refused", f"{machine.gpu} states no peak of a format of its weights")
    peak, count = max(peaks), shards.devices
    band = device.roofs.bandwidth * count
    flops = work.flops or 1.0
    ttft = flops * shape.new_at / (peak * count)
    tpot = work.active / (device.roofs.bandwidth * shards.tp * shards.dp) if shape.steps else 0.0
    room = offered_memory(device.accelerator)[0] * count - work.weights
    if room <= 0:
        return Floor(0.0, ttft, tpot, "memory", _short(work.weights, machine))
    if goal.ttft_seconds is not None and ttft > goal.ttft_seconds:
        return Floor(
            0.0, ttft, tpot, "ttft", f"its roofline alone takes {in_ms(ttft)} to read a prompt of {shape.new_at:,}"
        )
    limit = goal.tpot_seconds if goal.percentile >= HALF else None
    if limit is not None and tpot > limit:
        return Floor(0.0, ttft, tpot, "tpot", f"reading its weights alone takes {in_ms(tpot)} a step")
    held = shape.context * device.token_bytes
    allowed = room / max(1.0, held)
    if limit is not None and shape.steps and held:
        allowed = min(allowed, max(0.0, limit * band - work.active) / held)
    return Floor(_rate(device, shape, count, allowed), ttft, tpot)


def _rate(device: Device, shape: Shape, count: int, allowed: float) -> float:
    """Requests a second of so many GPUs with so many sequences at once. [1/s]"""
    work, band = device.work, device.roofs.bandwidth * count
    peak = max(device.roofs.peaks[name] for name in work.formats if name in device.roofs.peaks) * count
    flops = work.flops / peak
    if not shape.steps:
        return 1.0 / (flops * shape.new) if flops else inf
    step = max(work.active / band, allowed * (shape.new / shape.steps + 1.0) * flops)
    step += allowed * shape.context * device.token_bytes / band
    return allowed / (shape.steps * step) if step else inf


def _short(held: float, machine: Machine) -> str:
    return f"weights of {held / 2**30:,.1f} GiB do not fit {machine.shards.devices} x {machine.gpu}"


def in_ms(seconds: float) -> str:
    """A time in words: three digits, and all of those before the point.

    >>> in_ms(0.0123), in_ms(12.4)
    ('12.3 ms', '12,400 ms')
    """
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= PLAIN else f"{value:.3g} ms"
