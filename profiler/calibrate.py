"""Calibrates a machine: measures the profiler's kernels and steps on it, and fits the constants of expected times to them."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.expected.attention import DecodeConstants, PrefillConstants, decode_seconds, prefill_seconds
from roofcast.calculators.expected.expectation import SMS
from roofcast.calculators.expected.experts import ExpertsConstants, experts_seconds
from roofcast.calculators.expected.gemm import GemmConstants, gemm_seconds
from roofcast.calculators.expected.limits import Limits
from roofcast.calculators.expected.stream import StreamConstants
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, ELEMENTWISE, GEMM, MOE
from roofcast.modelspec.step import DECODE, PREFILL
from roofcast.profiler.calibrate_grid import DEVICE, HOST
from roofcast.profiler.calibrate_rows import (
    Bench,
    Lost,
    Mixed,
    decode_tasks,
    experts_tasks,
    gemm_tasks,
    loose_tasks,
    prefill_tasks,
)
from roofcast.profiler.calibrate_steps import BESIDE, PARTS, STEP, left, loose_seconds, ops_of, step_tasks, work_of
from roofcast.profiler.errors import UnavailableError
from roofcast.profiler.fitting import ENOUGH, Fitted, Kind, Row, fit, told
from roofcast.profiler.fp8 import has_fp8
from roofcast.profiler.runtime import first_line
from roofcast.profiler.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roofcast.calculators.profiled import Machine
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.hwdb.efficiency import Efficiency
    from roofcast.profiler.calibrate_grid import Grid
    from roofcast.profiler.kernels import Kernels
    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Task, Watch
    from roofcast.profiler.timing import Budget

BY: Final = "roofcast profile calibrate"
BF16_LEAST: Final = (8, 0)  # compute capability that multiplies bf16 itself
HOSTS: Final = "host"
ANY: Final = "any"
PACKS: Final = 0.0  # flash attention has a block for each query head
TILE: Final = 128.0  # keys of its tiles; an assumption
DECODE_EC: Final = 0.5  # share of the peak in decode attention, which no row tells, since it waits for memory
_START: Final[Mapping[str, float]] = {
    "t0": 4e-6, "ec": 0.8, "em": 0.8, "walk": 5e-10, "fill": 150.0, "droop": 0.2, "wave": 0.3, "passes": 5.0, "row": 1e-9, "single": 0.5,
    "block": 3e-6, "ramp": 2e-5, "split": 3e-6, "unfilled": 0.3, "chain": 8e-9, "tile": 64.0, "carry": 1.0, "sort": 1.0,
}  # fmt: skip
_MOST: Final[Mapping[str, float]] = {
    "ec": 1.0,
    "em": 1.0,
    "wave": 1.0,
    "unfilled": 1.0,
    "droop": 1.0,
    "single": 1.0,
    "tile": 128.0,
}
_FREE: Final = ("t0", "ec", "em")
#: family -> how its kernels are fitted; routed experts count beside element-wise work, whose constants come first
KINDS: Final[Mapping[str, Kind]] = {
    GEMM: Kind(gemm_seconds, GemmConstants, _FREE, ("single", "walk", "fill", "droop", "wave"), {}, _START, _MOST),
    ATTN_DECODE: Kind(
        decode_seconds, DecodeConstants, ("t0", "em"), ("block", "ramp", "split", "unfilled"), {"ec": DECODE_EC}, _START, _MOST
    ),
    ATTN_PREFILL: Kind(
        prefill_seconds, PrefillConstants, _FREE, ("block", "chain"), {"tile": TILE, "packs": PACKS}, _START, _MOST
    ),
    ELEMENTWISE: Kind(loose_seconds, StreamConstants, ("t0", "em"), (), {}, _START, _MOST),
}  # fmt: skip
#: constants that pay where activations are quantised before a product
QUANTISED: Final = ("single", "walk", "passes", "row", "fill", "droop", "wave")


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a machine was calibrated to.

    Args:
        machine: that was measured.
        efficiency: the file's content; None where the database does not have the machine, or where nothing was fitted.
        fitted: a family and format each, its rows with what is expected of them; of steps the phase is the format.
        unfinished: what the budget or an interrupt left out, by label.
        why: `sweep.SPENT` or `sweep.INTERRUPTED`; empty where all ran.
        remarks: what the reader should know, a line each.
        problem: why there is no file, in one line.
    """

    machine: Machine
    efficiency: Efficiency | None
    fitted: tuple[Fitted, ...]
    unfinished: tuple[str, ...] = ()
    why: str = ""
    remarks: tuple[str, ...] = ()
    problem: str | None = None


def calibrate(
    runtime: Runtime, kernels: Kernels, budget: Budget, watch: Watch | None = None, grid: Grid | None = None
) -> Calibration:
    """Measures what is needed, and fits constants of every family to it.

    Args:
        runtime: the device.
        kernels: what runs on it.
        budget: after which no further measurement starts; families of too few rows are left out then.
        watch: told before each measurement.
        grid: what is measured; None is what suits the device.

    Raises:
        UnavailableError: scipy is not installed.
        WrongOutputError: a kernel left output unwritten.
    """
    need_scipy()
    asked = grid or (DEVICE if runtime.on_cuda or runtime.kind == "mps" else HOST)
    bench, narrow = _benches(runtime, kernels, asked.span)
    swept = sweep(_tasks(bench, narrow, asked), budget, watch)
    rows = [row for found in swept.done if not isinstance(found, Lost) for row in found]
    lost = tuple(found.label for found in swept.done if isinstance(found, Lost))
    fitted = fit_all(rows, bench, narrow)
    card, problem = _accelerator(runtime.machine), None
    if card is None:
        problem = (
            f"{runtime.machine.name} is not in the database, so that no file of constants can be of it; describe it in "
            f"$ROOFCAST_HOME/accelerators (README: Add your GPU) and calibrate again"
        )
    elif not fitted:
        problem = "too little was measured to fit constants to; give a larger --budget"
    made = None if card is None or not fitted else efficiency_of(card, runtime.machine, fitted)
    remarks = (*runtime.machine.remarks, *_remarks(fitted, rows, lost, asked))
    return Calibration(runtime.machine, made, fitted, swept.left, swept.why, remarks, problem)


def need_scipy() -> None:
    """Refuses to measure what could not be fitted afterwards.

    Raises:
        UnavailableError: scipy is not installed.
    """
    try:
        import scipy.optimize  # noqa: F401, PLC0415 - only calibrating asks
    except Exception as error:  # a build for another numpy fails as it likes
        what = "is not installed" if isinstance(error, ModuleNotFoundError) else f"does not load ({first_line(error)})"
        raise UnavailableError(f"fitting needs scipy, which {what}: pip install 'roofcast[profile]'") from error


# --- what is measured


def _benches(runtime: Runtime, kernels: Kernels, span: float) -> tuple[Bench, Bench | None]:
    """What 16-bit (of a CPU 32-bit) kernels are measured with, and those of FP8 weights where the device has them."""
    plain = _plain(runtime)
    formats = (plain, "fp8") if has_fp8(runtime) else (plain,)
    limits = limits_of(runtime, formats)
    bench = Bench(runtime, kernels, plain, plain, limits[plain], span)
    return bench, replace(bench, weights="fp8", limits=limits["fp8"]) if "fp8" in limits else None


def _plain(runtime: Runtime) -> str:
    """The format that models are run in where weights are not narrower."""
    if not runtime.on_cuda:
        return "fp32" if runtime.kind == "cpu" else "fp16"
    native = runtime.kind == "rocm" or runtime.torch.cuda.get_device_capability(runtime.device) >= BF16_LEAST
    return "bf16" if native else "fp16"


def _accelerator(machine: Machine) -> Accelerator | None:
    if machine.accelerator is None:
        return None
    from roofcast.hwdb.lookup import find_accelerator  # noqa: PLC0415 - reads files

    return find_accelerator(machine.accelerator).accelerator


def limits_of(runtime: Runtime, formats: Sequence[str]) -> Mapping[str, Limits]:
    """Roofs by format: of the data sheet, else as measured where the database does not have the device."""
    card = _accelerator(runtime.machine)
    if card is not None:
        from roofcast.calculators.roofline import roofs_of  # noqa: PLC0415 - as above

        roofs, sms = roofs_of(card), float(card.sm_count or SMS)
        return {name: Limits(roofs.peaks[name], roofs.bandwidth, sms) for name in formats if name in roofs.peaks}
    from roofcast.profiler.device import quick_roofs  # noqa: PLC0415 - few devices need it

    found, sms = quick_roofs(runtime, formats), float(runtime.machine.sms or SMS)
    if found.bandwidth is None or not found.peaks:
        raise UnavailableError(
            f"{runtime.machine.name}: its roofs could not be measured, and it is not in the database"
        )
    return {name: Limits(found.peaks[name], found.bandwidth, sms) for name in formats if name in found.peaks}


def _tasks(bench: Bench, narrow: Bench | None, grid: Grid) -> Iterable[Task[Sequence[Row] | Lost]]:
    """Dense models first, then what fewer have."""
    return chain(
        gemm_tasks(bench, grid),
        decode_tasks(bench, grid),
        prefill_tasks(bench, grid),
        loose_tasks(bench, grid),
        step_tasks(bench, grid),
        gemm_tasks(narrow, grid) if narrow is not None else (),
        experts_tasks(bench, grid),
    )


# --- what is fitted


def fit_all(rows: Sequence[Row], bench: Bench, narrow: Bench | None) -> tuple[Fitted, ...]:
    """Kernels, then steps by their constants."""
    groups: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.family, row.format].append(row)
    found: dict[tuple[str, str], Fitted] = {}
    for (family, name), some in groups.items():
        kind = _kind(family, name, found)
        limits = narrow.limits if narrow is not None and name == narrow.weights else bench.limits
        one = fit(some, kind, limits) if kind is not None else None
        if one is not None:
            found[family, name] = one
    plain = {family: one for (family, name), one in found.items() if name in {bench.weights, ANY}}
    return (*found.values(), *_fit_steps(groups, plain, bench))


def _kind(family: str, name: str, found: Mapping[tuple[str, str], Fitted]) -> Kind | None:
    """How a family is fitted; None of steps, which come later, and of experts without element-wise constants."""
    if family == GEMM and name == "fp8":
        return replace(KINDS[GEMM], pays=QUANTISED)
    if family != MOE:
        return KINDS.get(family)
    loose = found.get((ELEMENTWISE, ANY))
    if loose is None:
        return None
    formula = partial(mixed_seconds, loose.made)
    return Kind(formula, ExpertsConstants, _FREE, ("tile", "carry", "sort"), {}, _START, _MOST)


def mixed_seconds(loose: StreamConstants, shape: Mixed, limits: Limits, c: ExpertsConstants) -> float:
    """Both matrices, and the activation between them, which is counted with element-wise work. [s]"""
    both = experts_seconds(shape.up, limits, c) + experts_seconds(shape.down, limits, c)
    return both + shape.beside / (limits.bandwidth * loose.em)


def _fit_steps(
    groups: Mapping[tuple[str, str], Sequence[Row]], fitted: Mapping[str, Fitted], bench: Bench
) -> Iterable[Fitted]:
    for phase in (DECODE, PREFILL):
        made = []
        for row in groups.get((STEP, phase), ()):
            work = work_of(ops_of(bench, *row.shape), fitted, bench.limits)
            if work is not None:
                made.append(replace(row, shape=work))
        one = fit(made, BESIDE[phase], bench.limits)
        if one is not None:
            yield replace(one, spread=left(one))


# --- what is said of it


def efficiency_of(card: Accelerator, machine: Machine, fitted: Sequence[Fitted]) -> Efficiency:
    """The content of an efficiency file."""
    from roofcast.hwdb.efficiency import Efficiency  # noqa: PLC0415 - pydantic loads with it
    from roofcast.hwdb.efficiency_files import OWN  # noqa: PLC0415 - likewise

    source = f"kernels and steps of roofcast's profiler ({machine.kernels} kernels) on one {machine.name}, random data"
    document = {
        "schema": "roofcast.efficiency/1",
        "accelerator": card.id,
        "engine": OWN,
        "fits": [entry for one in fitted for entry in _entries(one)],
        "provenance": {
            "fitted": time.strftime("%Y-%m-%d"),
            "by": BY,
            "source": source[:400],
            "driver": machine.driver,
            "torch": machine.torch,
            "clock": machine.clock,
        },
    }
    return Efficiency.model_validate(document)


def _entries(one: Fitted) -> list[dict[str, Any]]:
    """A fit of the file; of steps two, for the host and for the kernels in them."""
    scores = {
        "format": one.format,
        "rows": len(one.rows),
        "median_error": min(one.median_error, 10.0),
        "p90_error": min(one.p90_error, 10.0),
        "excluded": dict(one.excluded),
    }
    wide = min(one.spread, 10.0)
    if one.family != STEP:
        return [{"family": one.family, "constants": dict(one.constants), "spread": wide, **scores}]
    whole = {**told(one.made.whole), "parts": PARTS}
    return [
        {"family": HOSTS, "constants": told(one.made.host), "spread": 0.0, **scores},
        {"family": STEP, "constants": whole, "spread": wide, **scores},
    ]


def _remarks(fitted: Sequence[Fitted], rows: Sequence[Row], lost: Sequence[str], grid: Grid) -> Iterable[str]:
    """Families that are left out, and measurements that memory was too small for."""
    wanted = [GEMM, ATTN_DECODE, ATTN_PREFILL, ELEMENTWISE, *([MOE] if grid.mixtures else []), STEP]
    there = {one.family for one in fitted}
    for family in wanted:
        if family not in there:
            count = sum(row.family == family for row in rows)
            yield (
                f"{family}: {count} rows are too few to fit (at least {ENOUGH}); its constants stay those of the nearest "
                f"built-in file"
            )
    if lost:
        yield f"{len(lost)} measurements did not fit the memory: {', '.join(lost[:3])}{' ...' if lost[3:] else ''}"
