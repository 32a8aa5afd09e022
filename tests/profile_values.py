"""Profiles with made-up, fixed numbers, for tests of what shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.calculators.profile_making import machine_row, measured_rows, point_row, roofs_row
from roofcast.calculators.profile_rows import AttentionRow, CalibrationRow, FittedRow, ProfileResult
from roofcast.calculators.profile_rows_time import TimeRow
from roofcast.calculators.profile_work import Against, against_datasheet, compared, counted
from roofcast.calculators.profiled import (
    Bandwidth,
    DeviceProfile,
    Launch,
    Machine,
    Part,
    Product,
    Sample,
    StepProfile,
)
from roofcast.hwdb.lookup import find_accelerator
from tests.checkpoints import catalogued

H200: Final = Machine(
    name="NVIDIA H200",
    kind="cuda",
    accelerator="h200-sxm",
    memory_bytes=150_109_945_856,
    free_bytes=149_000_000_000,
    l2_bytes=62_914_560,
    sms=132,
    torch="2.11.0+cu130",
    driver="580.95",
    clock="SM 1980 MHz as the profile began, at most 1980 MHz; memory 3201 MHz",
    kernels="triton",
)
LAPTOP: Final = replace(
    H200,
    name="A CPU",
    kind="cpu",
    accelerator=None,
    sms=8,
    torch="2.13.0+cpu",
    driver=None,
    clock=None,
    kernels="torch",
)
DECODE_POINTS: Final = ((1, 1024), (16, 1024), (64, 1024), (64, 8192))
PREFILL_POINTS: Final = ((1, 128), (1, 2048), (1, 8192))
MODEL: Final = "llama-3.1-8b"
SLOWER: Final = 1.4  # times the least time by the data sheet


def sample(seconds: float) -> Sample:
    """Repeats within 2 %."""
    return Sample(seconds, 0.99 * seconds, 1.02 * seconds, 0.01 * seconds, 50)


def device(machine: Machine = H200) -> DeviceProfile:
    """Roofs: 4.4 TB/s, 780 TFLOP/s in bf16, and no fp8."""
    return DeviceProfile(
        machine,
        (
            Bandwidth("read", 2**28, 2**28, sample(2**28 / 4.0e12)),
            Bandwidth("read", 2**32, 2**32, sample(2**32 / 4.4e12)),
            Bandwidth("copy", 2**32, 2**33, sample(2**33 / 3.9e12)),
        ),
        (
            Product("bf16", 4096, 4096, 4096, sample(2 * 4096**3 / 700e12)),
            Product("bf16", 8192, 8192, 8192, sample(2 * 8192**3 / 780e12)),
            Product("fp8", 8192, 8192, 8192, None, "no fp8 product in this build of torch"),
        ),
        (Launch("eager", sample(4.2e-6)), Launch("graph", sample(1.3e-6))),
    )


def step(phase: str, batch: int, context: int, model: str = MODEL) -> StepProfile:
    """A step whose terms take 1.4 times what the data sheet allows, and 0.1 ms between them."""
    work = counted(catalogued(model).spec, "bf16")
    roofs = against_datasheet(find_accelerator("h200-sxm").accelerator, catalogued(model), "bf16", None).roofs
    asked = StepProfile(phase, batch, context, None)
    rows = compared(asked, work, Against(roofs)).rows
    parts = tuple(
        Part(row.name, row.family, 32, sample(SLOWER * (row.datasheet.bound if row.datasheet else 0.0) + 1e-5))
        for row in rows
    )
    whole = sum(part.sample.seconds for part in parts) + 1e-4
    launched = "graph" if phase == "decode" else "eager"
    return StepProfile(phase, batch, context, sample(whole), parts, launched)


def failed(phase: str, batch: int, context: int) -> StepProfile:
    """A step that did not fit."""
    return StepProfile(
        phase, batch, context, None, problem="caches of 512.0 GiB do not fit 123.4 GiB that are free on NVIDIA H200"
    )


def steps_result(
    what: str, steps: list[StepProfile], machine: Machine = H200, *, expected: bool = True
) -> ProfileResult:
    """The answer of measured steps."""
    model, found = catalogued(MODEL), device(machine)
    known = find_accelerator(machine.accelerator).accelerator if machine.accelerator else None
    against = against_datasheet(known, model, "bf16", None) if known else Against()
    against = replace(against, device=found, expectation=against.expectation if expected else None)
    work = counted(model.spec, "bf16")
    return ProfileResult(
        what=what,
        machine=machine_row(machine),
        model=MODEL,
        weights="bf16",
        device=roofs_row(found, known),
        points=[point_row(compared(one, work, against)) for one in steps],
        measurements=measured_rows(steps, machine, (MODEL, None), ("bf16", "bf16")),
    )


def device_result(machine: Machine = H200) -> ProfileResult:
    """The answer of `profile device`."""
    known = find_accelerator(machine.accelerator).accelerator if machine.accelerator else None
    return ProfileResult("device", machine_row(machine), device=roofs_row(device(machine), known))


def both_result(machine: Machine = H200) -> ProfileResult:
    """The answer of `profile compare`: prefill and decode."""
    steps = [step("prefill", *point) for point in PREFILL_POINTS] + [step("decode", *point) for point in DECODE_POINTS]
    return steps_result("compare", steps, machine, expected=False)


def attention_result() -> ProfileResult:
    """The answer of `profile attention`."""
    time = TimeRow(1.0e-3, 0.99e-3, 1.02e-3, 1e-5, 50)
    prompt = AttentionRow("prefill", "flash", "bf16", 1, 32, 8, 128, 8192, time, 5.5e14, 3.4e10, None, 2**20, None)
    rows = [
        prompt,
        replace(prompt, backend="cudnn", flops_per_second=6.4e14),
        replace(
            prompt,
            backend="math",
            time=None,
            flops_per_second=None,
            bytes_per_second=None,
            extra_bytes=None,
            problem="out of memory on NVIDIA H200",
        ),
        replace(
            prompt,
            phase="decode",
            backend="split_kv",
            length=1024,
            bytes_per_second=3.9e12,
            of_measured=0.886,
            extra_bytes=0,
        ),
    ]
    return ProfileResult(
        "attention",
        machine_row(H200),
        device=roofs_row(device(), find_accelerator("h200-sxm").accelerator),
        attention=rows,
    )


def calibration_result() -> ProfileResult:
    """The answer of `profile calibrate`."""
    fitted = [
        FittedRow("gemm", "bf16", 63, 0.021, 0.064, 0.031, {"t0": 3e-6, "ec": 0.78, "em": 0.93}),
        FittedRow("host", "decode", 12, None, None, 0.05, {"step": 2e-5}),
    ]
    calibration = CalibrationRow("h200-sxm.roofcast.yaml", replaced=False, fitted=fitted)
    return ProfileResult("calibrate", machine_row(H200), calibration=calibration)


def saved_result() -> ProfileResult:
    """What `tests/fixtures/profiles/made-up.json` holds: a prompt, and a decode step."""
    return steps_result("compare", [step("prefill", 1, 2048), step("decode", 16, 1024)], expected=False)
