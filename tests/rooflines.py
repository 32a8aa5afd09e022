"""Small results made by hand: what a page or a chart is drawn from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roofcast.calculators.estimate import EstimateResult, Layout, Weights
from roofcast.calculators.estimate_rows import Phase, TermRow
from roofcast.calculators.levers import LeverRow, LeversResult
from roofcast.calculators.roofline_table import Roof, RooflineResult, RooflineRow

ONE = Layout(gpus=1, tp=1, pp=1, ep=1, dp=1)
FOUR = Layout(gpus=4, tp=2, pp=1, ep=1, dp=2)
STORED = Weights(16.0, ["bf16"])
BANDWIDTH = 1e12
BF16 = Roof("bf16", "bf16", 100e12, 100.0)
FP8 = Roof("fp8", "fp8", 200e12, 200.0)
INPUTS = {"model": "m", "gpu": "g", "weights": None, "kv": "bf16", "engine": "none"}


def term(name: str = "ffn", **changes: Any) -> TermRow:
    """Return a term of 2 GFLOP and 1 GB that memory bounds."""
    whole = TermRow(
        term=name,
        family="gemm",
        flops=2e9,
        bytes=1e9,
        exchanged_bytes=0.0,
        weight_bytes=1e9,
        state_bytes=0.0,
        activation_bytes=1e6,
        intensity=2.0,
        format="bf16",
        bound_seconds=1e-3,
        bound_by="memory",
        expected_seconds=None,
        calls=32.0,
        share=0.5,
        counted_by="matmul",
    )
    return replace(whole, **changes)


def link() -> TermRow:
    """Return an exchange of 3 MB."""
    return term(
        "tp.all_reduce",
        family="collective",
        flops=0.0,
        bytes=0.0,
        exchanged_bytes=3e6,
        weight_bytes=0.0,
        activation_bytes=0.0,
        intensity=None,
        format=None,
        bound_by="link",
    )


def phase(name: str = "decode", batch: int = 16, context: int = 4096, **changes: Any) -> Phase:
    """Return a row of 2 ms that fits."""
    whole = Phase(
        phase=name,
        batch=batch,
        context=context,
        fits=True,
        reason=None,
        flops=4e9,
        bytes=2e9,
        weight_bytes=1.5e9,
        state_bytes=5e8,
        activation_bytes=1e6,
        intensity=2.0,
        full_intensity=1.9,
        bound_seconds=2e-3,
        full_seconds=2.1e-3,
        overlapped_seconds=1.9e-3,
        expected_seconds=None,
        low_seconds=None,
        high_seconds=None,
        kernel_seconds=None,
        host_seconds=None,
        bound_by="memory",
        tokens_per_second=8000.0,
        expected_tokens_per_second=None,
        steps=1,
        terms=[term("attn.qkv"), term("ffn.down")],
    )
    return replace(whole, **changes)


def phase_without_room(name: str = "decode", batch: int = 64, context: int = 131072) -> Phase:
    """Return a row that does not fit."""
    return phase(
        name,
        batch,
        context,
        fits=False,
        reason="weights take 16 GB of 10 GB",
        bound_seconds=None,
        full_seconds=None,
        overlapped_seconds=None,
        tokens_per_second=None,
    )


def estimate(*phases: Phase, layout: Layout = ONE) -> EstimateResult:
    """Return the result of those rows."""
    return EstimateResult(
        model="m",
        gpu="g",
        layout=layout,
        fits=all(row.fits for row in phases),
        memory_bytes=16e9,
        memory_from="visible",
        weight_bytes=1.5e9,
        weights=STORED,
        bandwidth_bytes_per_second=BANDWIDTH,
        phases=list(phases),
        efficiency=[],
        provenance={"bandwidth": "datasheet"},
    )


def row(
    name: str = "decode", batch: int = 16, context: int = 4096, *, intensity: float = 10.0, fits: bool = True
) -> RooflineRow:
    """Return a row that lies on the lowest roof."""
    rate = min(intensity * BANDWIDTH, BF16.peak_flops_per_second)
    return RooflineRow(
        phase=name,
        batch=batch,
        context=context,
        flops=intensity * 1e9,
        bytes=1e9,
        intensity=intensity,
        bound_seconds=intensity * 1e9 / rate if fits else None,
        bound_by="memory" if intensity < BF16.ridge else "compute",
        fits=fits,
        weight_bytes=8e8,
        state_bytes=2e8,
        activation_bytes=1e8,
        full_intensity=intensity * 0.9,
        full_seconds=intensity * 1e9 / rate if fits else None,
        attention_intensity=None,
        flops_per_second=rate if fits else None,
    )


def roofline(
    *rows: RooflineRow, roofs: tuple[Roof, ...] = (BF16,), layout: Layout = ONE, model: str = "m"
) -> RooflineResult:
    """Return the result of those rows under those roofs."""
    return RooflineResult(model, "g", layout, STORED, BANDWIDTH, list(roofs), list(rows), {"bandwidth": "datasheet"})


def usual() -> tuple[RooflineRow, ...]:
    """Return prefill and decode of three batches at three contexts, some without room."""
    return tuple(
        row(
            name, batch, context, intensity=least * batch**0.7 * (4096 / context) ** power, fits=batch * context < 10**6
        )
        for name, least, power in (("prefill", 2000.0, -0.6), ("decode", 1.2, 0.2))
        for context in (4096, 32768, 131072)
        for batch in (1, 16, 64)
    )


def lever(name: str, change: str, **changes: Any) -> LeverRow:
    """Return a technique that halves the step."""
    whole = LeverRow(
        lever=name,
        change=change,
        fits=True,
        reason=None,
        weight_bytes=1e9,
        kv_bytes_per_sequence=1e8,
        ttft_seconds=0.05,
        tpot_seconds=0.005,
        tokens_per_second=3200.0,
        max_sequences=80,
        max_tokens_per_second=9000.0,
        ttft_ratio=1.0,
        tpot_ratio=0.5,
        sequences_ratio=2.0,
        says="a byte an element",
    )
    return replace(whole, **changes)


def levers(*rows: LeverRow) -> LeversResult:
    """Return the base and those rows."""
    base = lever("base", "as it is", tpot_ratio=1.0, tpot_seconds=0.01, sequences_ratio=1.0, says="")
    return LeversResult("m", "g", ONE, STORED, batch=16, context=32768, prompt=4096, rows=[base, *rows])
