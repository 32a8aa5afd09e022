"""`roofline` as a document: the roofs, and the work that each byte does at every batch and context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.hwdb.units import show_si
from roofcast.reports.charts import Chart
from roofcast.reports.data import as_data
from roofcast.reports.deployed import on_devices, phase_title, setup_lines
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import context_name, count, figures, millis, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.roofline_table import RooflineResult, RooflineRow

GB: Final = 1e9
CONVENTION: Final = (
    "FLOP/byte counts weights and KV cache alone, each moved once; 'all' adds every operation's inputs and outputs, "
    "as if each went through memory; 'attn.' is attention by itself"
)
HEADING: Final = (
    "ctx",
    "batch",
    "FLOP",
    "GB",
    "FLOP/B",
    "FLOP/B\nall",
    "FLOP/B\nattn.",
    "bound\nms",
    "bound\nby",
    "fits",
)


def roofline_document(result: RooflineResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `roofline`."""
    phases = list(dict.fromkeys(row.phase for row in result.rows))
    rows = {phase: [row for row in result.rows if row.phase == phase] for phase in phases}
    return Document(
        command="roofline",
        inputs=inputs,
        result=result,
        records=[
            {"model": result.model, "gpu": result.gpu, "gpus": result.layout.gpus, **as_data(row)}
            for row in result.rows
        ],
        lines=tuple(map(plain, _lines(result, inputs))),
        tables=(_roofs(result), *(_rows(phase, rows[phase]) for phase in phases)),
        remarks=remarks + _notes(result),
        charts=(Chart("roofline", result, plain(_said(result))),),
    )


def _said(result: RooflineResult) -> str:
    """The chart in words: slope and roofs, and where each phase's points begin and end."""
    used = [roof for roof in result.roofs if roof.used]
    roofs = ", ".join(
        f"{roof.format} at {show_si(roof.peak_flops_per_second, 'FLOP/s')}" for roof in used or result.roofs
    )
    spans = []
    for phase in dict.fromkeys(row.phase for row in result.rows):
        at = [row.intensity for row in result.rows if row.phase == phase]
        span = figures(min(at)) if len(at) == 1 else f"{figures(min(at))} to {figures(max(at))}"
        spans.append(f"{phase} at {span} FLOP/byte")
    memory = show_si(result.bandwidth_bytes_per_second, "B/s")
    return f"Roofline of {result.gpu}: memory at {memory}, {roofs}; {result.model} in {', '.join(spans)}."


def _lines(result: RooflineResult, inputs: Mapping[str, Any]) -> list[str]:
    fitting, rows = sum(row.fits for row in result.rows), len(result.rows)
    verdict = "every row fits" if fitting == rows else f"{fitting} of {rows} rows fit"
    return [
        f"{result.model} on {on_devices(result.gpu, result.layout)}: {verdict}",
        *setup_lines(result.layout, result.weights, inputs),
    ]


def _roofs(result: RooflineResult) -> Table:
    """The device's limits: below a ridge memory is the limit, above it arithmetic."""
    rows = [
        (
            roof.format,
            roof.computed_in,
            figures(roof.peak_flops_per_second / 1e12),
            figures(roof.ridge),
            "yes" if roof.used else "no",
        )
        for roof in result.roofs
    ]
    title = f"roofs over {show_si(result.bandwidth_bytes_per_second, 'B/s')} of memory bandwidth"
    return table(("format", "computed in", "TFLOP/s", "ridge\nFLOP/B", "used"), rows, title=title, left=(0, 1, 4))


def _rows(phase: str, rows: Sequence[RooflineRow]) -> Table:
    cells = [
        (
            context_name(row.context),
            count(row.batch),
            short(row.flops),
            figures(row.bytes / GB),
            figures(row.intensity),
            figures(row.full_intensity),
            figures(row.attention_intensity),
            millis(row.bound_seconds),
            row.bound_by,
            "yes" if row.fits else "no",
        )
        for row in rows
    ]
    return table(HEADING, cells, title=phase_title(phase), left=(8, 9), breaks=(7,), keys=2)


def _notes(result: RooflineResult) -> Remarks:
    several = "FLOP and GB are those of one GPU" if result.layout.gpus > 1 else None
    bound = (
        "a bound is the sum over operations of the longer of arithmetic and memory, so a step may stay below its roof"
    )
    return remarks(notes=(CONVENTION, bound, several))
