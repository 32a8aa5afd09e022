"""`gpus` as a document: one row an accelerator, or a page for a few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.hwdb.units import show_bytes, show_si
from roofcast.reports.document import Document, Table, table
from roofcast.reports.numbers import GIB, NOTHING, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.gpus import Gpu, GpusResult

# formats whose ridge point the overview shows; a page of one device shows all
OVERVIEW: Final = ("fp16", "bf16", "fp8", "fp4")
PAGES: Final = 3  # devices asked by name that get a page each


def gpus_document(result: GpusResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """An overview, or a page each where few were asked by name."""
    asked = bool(inputs["names"]) or bool(inputs["local"])
    pages = asked and len(result.gpus) <= PAGES
    tables = tuple(t for gpu in result.gpus for t in _page(gpu)) if pages else (_overview(result),)
    return Document(
        command="gpus",
        inputs=inputs,
        result=result,
        records=[{name: getattr(gpu, name) for name in type(gpu).__slots__} for gpu in result.gpus],
        tables=tables,
        remarks=remarks,
    )


def _overview(result: GpusResult) -> Table:
    header = ("id", "GB", "GB/s", "bf16\nTFLOP/s", *(f"ridge\n{name}" for name in OVERVIEW), "TDP\nW")
    rows = [
        (
            gpu.id,
            fixed(gpu.memory_bytes / 1e9, 0),
            fixed(gpu.bandwidth_bytes_per_second / 1e9, 0),
            _tera(gpu.peak_flops_per_second.get("bf16")),
            *(fixed(gpu.ridge.get(name), 0) for name in OVERVIEW),
            fixed(gpu.tdp_watts, 0),
        )
        for gpu in result.gpus
    ]
    return table(header, rows)


def _page(gpu: Gpu) -> tuple[Table, ...]:
    doubted = set(gpu.unverified)
    peaks = [
        (name, _tera(peak), fixed(gpu.ridge[name], 0), "not verified" if f"peaks.{name}" in doubted else "")
        for name, peak in gpu.peak_flops_per_second.items()
    ]
    facts = [(name, text) for name, text in _facts(gpu) if text != NOTHING]
    return (
        table(("fact", "value"), facts, title=f"{gpu.id}: {gpu.name}", left=(0, 1)),
        table(("format", "TFLOP/s dense", "ridge FLOP/B", ""), peaks, left=(0, 3)),
        table(("source", "read"), [(_source(s), s["access"] or "") for s in gpu.sources], left=(0, 1)),
    )


def _facts(gpu: Gpu) -> list[tuple[str, str]]:
    yes = [name for name, flag in gpu.flags.items() if flag]
    return [
        ("memory, as sold", show_bytes(gpu.memory_bytes, "GB", 0)),
        ("memory, driver", _mib(gpu.driver_bytes)),
        ("memory, CUDA-visible", NOTHING if gpu.visible_bytes is None else f"{gpu.visible_bytes / GIB:.2f} GiB"),
        ("bandwidth", show_si(gpu.bandwidth_bytes_per_second, "B/s")),
        ("architecture", gpu.architecture or NOTHING),
        ("compute capability", gpu.compute_capability or NOTHING),
        ("SMs", NOTHING if gpu.sm_count is None else str(gpu.sm_count)),
        ("L2 cache", NOTHING if gpu.l2_bytes is None else show_bytes(gpu.l2_bytes, "MiB", 1)),
        ("shared memory an SM", _kib(gpu.shared_memory_bytes_per_sm)),
        ("links, both directions", NOTHING if gpu.scale_up_bytes_per_second is None else _gbs(gpu)),
        ("TDP", NOTHING if gpu.tdp_watts is None else f"{gpu.tdp_watts:.0f} W"),
        ("supports", ", ".join(yes) or NOTHING),
        ("SDPA backends", ", ".join(gpu.sdpa_backends or ()) or NOTHING),
        ("confidence", gpu.confidence or NOTHING),
    ]


def _gbs(gpu: Gpu) -> str:
    return show_si(gpu.scale_up_bytes_per_second or 0, "B/s")


def _mib(size: float | None) -> str:
    return NOTHING if size is None else f"{size / 2**20:,.0f} MiB"


def _kib(size: float | None) -> str:
    return NOTHING if size is None else f"{size / 1024:.0f} KiB"


def _tera(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate / 1e12:.4g}"


def _source(source: Mapping[str, str | None]) -> str:
    return " ".join(part for part in (source["title"], source["url"]) if part)
