"""Whole steps of small decoders: what they take beside the sum of their kernels, each measured alone."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.expected.families import FAMILIES
from roofcast.calculators.expected.gemm import begun
from roofcast.calculators.expected.host import HostConstants, StepConstants
from roofcast.calculators.expected.interval import Z80
from roofcast.calculators.expected.stream import stream_seconds
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, ELEMENTWISE, GEMM
from roofcast.modelspec.ops import step_ops
from roofcast.modelspec.program import build_program
from roofcast.modelspec.shapes import GemmShape
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.step import DECODE, PREFILL, decode_step, prefill_step
from roofcast.modelspec.storage import uniform
from roofcast.profiler.calibrate_rows import Lost, formats_of, task
from roofcast.profiler.decoder import Decoder, Setup
from roofcast.profiler.fitting import Fitted, Kind, Row, quantile
from roofcast.profiler.timing import REST, check_written, time_work

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roofcast.calculators.expected.limits import Limits
    from roofcast.modelspec.op import Op
    from roofcast.profiler.calibrate_grid import Grid
    from roofcast.profiler.calibrate_rows import Bench
    from roofcast.profiler.sweep import Task

STEP: Final = "step"
PARTS: Final = 0.7  # of the kernels' spreads that is left in a step: rows are off apart from one another
SHARE: Final = 0.8  # of steps that an interval is to hold


@dataclass(frozen=True, slots=True)
class Work:
    """A step's kernels, as their constants expect them.

    Args:
        kernels: family -> all of its calls. [s]
        launches: family -> calls x t0. [s]
        loose: element-wise work. [s]
        calls: of all.
        spread: of the sum, each family wholly of one mind. [-]
    """

    kernels: Mapping[str, float]
    launches: Mapping[str, float]
    loose: float
    calls: float
    spread: float


@dataclass(frozen=True, slots=True)
class Beside:
    """What a step takes beside its kernels: fields of `HostConstants` and of `StepConstants`."""

    step: float = 0.0
    launch: float = 0.0
    sustained: float = 0.0
    gemm: float = 0.0
    attn_decode: float = 0.0
    attn_prefill: float = 0.0

    @property
    def host(self) -> HostConstants:
        """The host's part."""
        return HostConstants(step=self.step, launch=self.launch)

    @property
    def whole(self) -> StepConstants:
        """What kernels differ by in a step."""
        return StepConstants(self.gemm, 0.0, self.attn_decode, self.attn_prefill, self.sustained, PARTS)


@dataclass(slots=True)
class Bank:
    """The one decoder that is held at a time, since its weights are large."""

    bench: Bench
    _held: dict[int, Decoder] = field(default_factory=dict)

    def decoder(self, number: int, config: Mapping[str, Any]) -> Decoder:
        """Decoder of that number."""
        if number not in self._held:
            self._held.clear()
            self.bench.runtime.release()
            setup = Setup(self.bench.activations, self.bench.activations)
            self._held[number] = Decoder(build_spec(config), self.bench.runtime, self.bench.kernels, setup)
        return self._held[number]


def step_tasks(bench: Bench, grid: Grid) -> Iterator[Task[Sequence[Row] | Lost]]:
    """Steps of every decoder; the shapes of their rows are configs until the constants of kernels are known."""
    bank = Bank(bench)
    for number, config in enumerate(grid.decoders):
        for phase, points in ((DECODE, grid.decode), (PREFILL, grid.prefill)):
            for batch, context in points:
                label = f"{phase} of {batch:,} at {context:,}, width {config['hidden_size']:,}"
                yield task(bench, label, partial(_step, bank, number, config, (phase, batch, context), label))


def _step(bank: Bank, number: int, config: Mapping[str, Any], asked: tuple[str, int, int], label: str) -> Sequence[Row]:
    runtime, (phase, batch, context) = bank.bench.runtime, asked
    decoder = bank.decoder(number, config)
    try:
        step = decoder.decode(batch, context) if phase == DECODE else decoder.prefill(batch, context)
        step.run()
        step.poison()
        check_written(runtime, step.logits, step.run, label)
        rest, span = (0.0, 2 * bank.bench.span) if phase == DECODE else (REST, 0.0)
        seconds = time_work(runtime, step.run, graph=True, span=span, rest=rest).seconds
    finally:
        step = None  # type: ignore[assignment]  # its buffers go before the next are made
        gc.collect()  # stages point to the step that has them
    return (Row(STEP, phase, f"width {config['hidden_size']}", label, (config, asked), seconds),)


def ops_of(bench: Bench, config: Mapping[str, Any], asked: tuple[str, int, int]) -> list[Op]:
    """The operations of a decoder's step, as `estimate` counts them."""
    phase, batch, context = asked
    program = build_program(build_spec(config), uniform(FORMATS[bench.activations]), Shards())
    make = decode_step if phase == DECODE else prefill_step
    return step_ops(program, make(batch, context), formats_of(bench))


def work_of(ops: Sequence[Op], fitted: Mapping[str, Fitted], limits: Limits) -> Work | None:
    """A step's kernels by fitted constants; None where a family of it has none."""
    if any(op.family not in fitted for op in ops):
        return None
    kernels: dict[str, float] = {}
    launches: dict[str, float] = {}
    loose = 0.0
    for op in ops:
        made, formula = fitted[op.family].made, FAMILIES[op.family].formula
        if op.family == ELEMENTWISE or formula is None:
            loose += loose_seconds(op, limits, made)
            continue
        kernels[op.family] = kernels.get(op.family, 0.0) + op.calls * formula(op.shape, limits, made)
        begins = begun(op.shape.m, made) if isinstance(op.shape, GemmShape) else 1.0
        launches[op.family] = launches.get(op.family, 0.0) + op.calls * begins * made.t0
    total = sum(kernels.values()) + loose
    off = [seconds * fitted[family].spread for family, seconds in kernels.items()]
    wide = math.hypot(*off, loose * fitted[ELEMENTWISE].spread) / total
    return Work(kernels, launches, loose, sum(op.calls for op in ops), wide)


def loose_seconds(op: Op, limits: Limits, constants: Any) -> float:  # noqa: ANN401 - StreamConstants
    """Element-wise work as `estimate` expects it: calls (t0 + D / (B em)), inputs and outputs in D. [s]"""
    size = (op.bytes + op.activation_bytes) / op.calls
    return op.calls * stream_seconds(op.flops / op.calls, size, limits, constants)


def step_seconds(work: Work, limits: Limits | None, c: Beside) -> float:
    """(1 + sustained) sum (kernels - hidden x calls x t0) + element-wise + host, as `estimate` has it. [s]"""
    del limits  # kernels are in seconds already
    whole = c.whole
    kernels = sum(seconds - whole.hidden(family) * work.launches[family] for family, seconds in work.kernels.items())
    kernels = (1.0 + c.sustained) * kernels + work.loose
    return kernels + c.host.seconds(1.0, 1.0, work.calls, kernels)


#: phase -> how what is beside kernels is fitted: a graph launches steps whole, where there is one
BESIDE: Final[Mapping[str, Kind]] = {
    phase: Kind(
        step_seconds,
        Beside,
        free,
        pays,
        start={"step": 2e-5, "launch": 1e-5, "sustained": 0.05, "gemm": 0.2, "attn_decode": 0.2, "attn_prefill": 0.2},
        most={"sustained": 0.3, "gemm": 0.9, "attn_decode": 0.9, "attn_prefill": 0.9, "launch": 1e-3},
    )
    for phase, free, pays in (
        (DECODE, ("step",), ("sustained", GEMM, ATTN_DECODE, "launch")),
        (PREFILL, ("step",), ("sustained", GEMM, ATTN_PREFILL, "launch")),
    )
}


def left(fitted: Fitted) -> float:
    """The least spread of whole steps with which 80 % of them lie in 1.28 hypot(PARTS x that of the parts, spread). [-]"""
    need = [math.sqrt(max(0.0, (one.miss / Z80) ** 2 - (PARTS * one.row.shape.spread) ** 2)) for one in fitted.rows]
    return quantile(sorted(need), SHARE)
