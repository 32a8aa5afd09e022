"""`gpus` as a document: one row an accelerator, or a page for a few; a few beside one another as a chart too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks
from roofcast.calculators.compare import EXPECTED
from roofcast.hwdb.units import show_bytes, show_si
from roofcast.reports.charts import Chart
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import GIB, NOTHING, context_name, count, figures, fixed, ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.compare import Compared, GpuCompared
    from roofcast.calculators.gpus import Gpu, GpuIntensity, GpusResult

# formats whose ridge point the overview shows; a page of one device shows all
OVERVIEW: Final = ("fp16", "bf16", "fp8", "fp4")
FEWEST, MOST = 2, 5  # devices that are compared in a chart; shapes and colours tell no more apart
PAGES: Final = 3  # devices asked by name that get a page each
NOT_VERIFIED: Final = "not verified"
OVERVIEW_NOTES: Final = Remarks(
    notes=(
        "ridge points are FLOP/byte: dense peak over bandwidth; fp16 accumulates in fp32",
        "* a figure shown was recalled or derived, not read in a source: `roofcast gpus NAME` marks which",
    )
)
RATIO_NOTE: Final = (
    "beside ridge points: below a ridge memory is the limit, above it arithmetic; the number is the model's FLOP/byte, "
    "weights and KV cache each moved once, over the ridge"
)


def gpus_document(
    result: GpusResult, inputs: Mapping[str, Any], remarks: Remarks, compared: Compared | None = None
) -> Document:
    """An overview, or a page each where few were asked by name; with `compared` their chart and its table."""
    asked = bool(inputs["names"]) or bool(inputs["local"])
    pages = asked and len(result.gpus) <= PAGES and not _points(result)
    tables = tuple(t for gpu in result.gpus for t in _page(gpu)) if pages else (_overview(result),)
    tables += _against(result, inputs)
    return Document(
        command="gpus",
        inputs=inputs,
        result=result,
        records=result.gpus,
        tables=(*([compared_table(compared)] if compared else []), *tables),
        remarks=remarks
        + (Remarks() if pages else OVERVIEW_NOTES)
        + Remarks(notes=(RATIO_NOTE,) if _points(result) else ())
        + (Remarks(notes=compared_notes(compared)) if compared else Remarks()),
        charts=(Chart("gpus", compared, compared_says(compared)),) if compared else (),
    )


def _overview(result: GpusResult) -> Table:
    header = ("id", "GB", "GB/s", "bf16\nTFLOP/s", *(f"ridge\n{name}" for name in OVERVIEW))
    rows = [
        (
            f"{gpu.id} *" if _doubted(gpu) else gpu.id,
            fixed(gpu.memory_bytes / 1e9, 0),
            fixed(gpu.bandwidth_bytes_per_second / 1e9, 0),
            _tera(gpu.peak_flops_per_second.get("bf16")),
            *(fixed(gpu.ridge.get(name), 0) for name in OVERVIEW),
        )
        for gpu in result.gpus
    ]
    return table(header, rows)


def _points(result: GpusResult) -> list[GpuIntensity]:
    """A model's steps that are held against ridge points; the same of every device."""
    return next((gpu.intensities for gpu in result.gpus if gpu.intensities), [])


def _against(result: GpusResult, inputs: Mapping[str, Any]) -> tuple[Table, ...]:
    """A model's FLOP a byte over each device's ridge point, a column a step; no table without a model."""
    points = _points(result)
    if not points:
        return ()
    steps = [
        f"{one.phase}\nb{one.batch:,} @{context_name(one.context)}\n{figures(one.intensity)} FLOP/B" for one in points
    ]
    rows = [
        (
            gpu.id,
            ", ".join(dict.fromkeys(one.computed_in or NOTHING for one in gpu.intensities)),
            ", ".join(dict.fromkeys(figures(one.ridge) for one in gpu.intensities)),
            *(
                f"{one.bound_by} {ratio(one.intensity / one.ridge)}x" if one.ridge else NOTHING
                for one in gpu.intensities
            ),
        )
        for gpu in result.gpus
        if gpu.intensities
    ]
    header = ("id", "computed\nin", "ridge\nFLOP/B", *steps)
    title = plain(f"{inputs.get('model') or 'the model'} beside ridge points")
    return (table(header, rows, title=title, left=(0, 1), breaks=range(4, len(header)), keys=3),)


@dataclass(frozen=True, slots=True)
class Quantity:
    """One row: a number of each GPU.

    Args:
        name: of it.
        of: where it is in a row.
        shown: as people read it.
        inverted: whether less is better, as of times.
        follows: the fact of the device that it follows; empty of the fact itself.
    """

    name: Callable[[Compared], str]
    of: Callable[[GpuCompared], float | None]
    shown: Callable[[GpuCompared, float], str]
    inverted: bool = False
    follows: str = ""


def _millis(_: GpuCompared, seconds: float) -> str:
    return f"{figures(seconds * 1e3)} ms"


#: facts of devices, and below each what follows it
QUANTITIES: Final = (
    Quantity(lambda _: "memory", lambda row: row.memory_bytes, lambda _, size: f"{size / 1e9:,.0f} GB"),
    Quantity(
        lambda said: f"sequences at {context_name(said.context)}",
        lambda row: row.most_sequences,
        lambda _, most: count(int(most)),
        follows="memory",
    ),
    Quantity(
        lambda _: "bandwidth",
        lambda row: row.bandwidth_bytes_per_second,
        lambda _, rate: show_si(rate, "B/s"),
    ),
    Quantity(lambda _: "TPOT of 1", lambda row: row.tpot_one_seconds, _millis, inverted=True, follows="bandwidth"),
    Quantity(
        lambda said: f"TPOT of {said.batch:,}",
        lambda row: row.tpot_seconds,
        _millis,
        inverted=True,
        follows="bandwidth",
    ),
    Quantity(
        lambda said: f"tokens/s of {said.batch:,}",
        lambda row: row.tokens_per_second,
        lambda _, rate: figures(rate),
        follows="bandwidth",
    ),
    Quantity(
        lambda _: "peak",
        lambda row: row.peak_flops_per_second,
        lambda row, peak: f"{show_si(peak, 'FLOP/s', 3)} {row.format}",
    ),
    Quantity(
        lambda said: f"TTFT of {context_name(said.prompt)}",
        lambda row: row.ttft_seconds,
        _millis,
        inverted=True,
        follows="peak",
    ),
)


def quantities_of(compared: Compared) -> list[Quantity]:
    """The rows that there are: tokens/s and TPOT of a batch of one say the same as TPOT of 1."""
    return [one for one in QUANTITIES if compared.batch > 1 or one.of not in _OF_A_BATCH]


_OF_A_BATCH: Final = tuple(one.of for one in QUANTITIES[4:6])


def gain(quantity: Quantity, row: GpuCompared, base: GpuCompared) -> float | None:
    """How many times better a row is than the first: the ratio, of times its inverse; None where either has none. [-]"""
    value, other = quantity.of(row), quantity.of(base)
    if not value or not other:
        return None
    return other / value if quantity.inverted else value / other


def value_words(quantity: Quantity, row: GpuCompared) -> str:
    """A value in its unit, or why there is none."""
    value = quantity.of(row)
    if value is not None:
        return quantity.shown(row, value)
    return "not stated" if not quantity.follows else "cannot run" if row.most_sequences is None else "does not fit"


def compared_says(compared: Compared) -> str:
    """How the others do against the first, in a sentence each."""
    first, said = compared.rows[0], []
    for row in compared.rows[1:]:
        gains = [
            f"{ratio(made)}x {quantity.name(compared)}"
            for quantity in quantities_of(compared)
            if (made := gain(quantity, row, first)) is not None
        ]
        short = f"; {compared.model} does not fit: {row.reason}" if row.reason else ""
        said.append(f"{row.gpu} against {first.gpu}, times inverted: {', '.join(gains)}{short}.")
    more = f" {first.gpu}: {first.reason}." if first.reason else ""
    return f"{compared.model}, {compared.batch:,} at once at {context_name(compared.context)}: {' '.join(said)}{more}"


def compared_document(compared: Compared, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """A part of a report: accelerators beside one another, for one model."""
    return Document(
        command="gpus",
        inputs=inputs,
        result=compared,
        records=compared.rows,
        tables=(compared_table(compared),),
        remarks=remarks + Remarks(notes=compared_notes(compared)),
        charts=(Chart("gpus", compared, compared_says(compared)),),
    )


def compared_table(compared: Compared) -> Table:
    """Every quantity of the chart, a column a GPU, beside each but the first how many times as good it is."""
    first, *others = compared.rows
    header = ["", _named(first)]
    for row in others:
        header += [_named(row), "times"]
    times = "expected times" if compared.basis == EXPECTED else "bounds"
    title = plain(f"{compared.model} on each, {times}; beside each how many times as good as {_named(first)}")
    rows = [_quantity_cells(compared, one) for one in quantities_of(compared)]
    return table(header, rows, title=title, breaks=range(2, len(header), 2))


def _named(row: GpuCompared) -> str:
    return f"{row.gpus} x {row.gpu}" if row.gpus > 1 else row.gpu


def _quantity_cells(compared: Compared, one: Quantity) -> list[str]:
    first, *others = compared.rows
    cells = [f"{'  ' if one.follows else ''}{one.name(compared)}", value_words(one, first)]
    for row in others:
        made = gain(one, row, first)
        cells += [value_words(one, row), NOTHING if made is None else f"{ratio(made)}x"]
    return cells


def compared_notes(compared: Compared) -> tuple[str, ...]:
    """Why there are no times where there are none."""
    return tuple(f"{row.gpu}: {row.reason}" for row in compared.rows if row.reason)


def _doubted(gpu: Gpu) -> bool:
    """Whether a figure of the overview was not read in a source."""
    shown = {"memory", "bandwidth", *(f"peaks.{name}" for name in OVERVIEW if name in gpu.peak_flops_per_second)}
    return not shown.isdisjoint(gpu.unverified)


def _page(gpu: Gpu) -> tuple[Table, ...]:
    doubted = set(gpu.unverified)
    peaks = [
        (name, _tera(peak), fixed(gpu.ridge[name], 0), NOT_VERIFIED if f"peaks.{name}" in doubted else "")
        for name, peak in gpu.peak_flops_per_second.items()
    ]
    facts = [
        (name, text, NOT_VERIFIED if fact in doubted else "") for name, text, fact in _facts(gpu) if text != NOTHING
    ]
    lines = [line for source in gpu.sources for line in _source(source)]
    return (
        table(("fact", "value", ""), facts, title=f"{gpu.id}: {gpu.name}", left=(0, 1, 2)),
        table(("format", "TFLOP/s dense", "ridge FLOP/B", ""), peaks, left=(0, 3)),
        table(("sources",), [(line,) for line in lines]),
    )


def _facts(gpu: Gpu) -> list[tuple[str, str, str]]:
    """What a page says of a device: name, text, and the record's own name of the fact."""
    yes = [name.replace("_", " ") for name, flag in gpu.flags.items() if flag]
    backends = [name.replace("_", " ") for name in gpu.sdpa_backends or ()]
    links = gpu.scale_up_bytes_per_second
    return [
        ("memory, as sold", show_bytes(gpu.memory_bytes, "GB", 0), "memory"),
        ("memory, driver", _mib(gpu.driver_bytes), "driver_memory"),
        ("memory, CUDA-visible", _gib(gpu.visible_bytes), "visible_memory"),
        ("bandwidth", show_si(gpu.bandwidth_bytes_per_second, "B/s"), "bandwidth"),
        ("architecture", gpu.architecture or NOTHING, "architecture"),
        ("compute capability", gpu.compute_capability or NOTHING, "compute_capability"),
        ("SMs", NOTHING if gpu.sm_count is None else str(gpu.sm_count), "sm_count"),
        ("L2 cache", NOTHING if gpu.l2_bytes is None else show_bytes(gpu.l2_bytes, "MiB", 1), "l2"),
        ("shared memory an SM", _kib(gpu.shared_memory_bytes_per_sm), "shared_memory_per_sm"),
        ("links, both directions", NOTHING if links is None else show_si(links, "B/s"), "scale_up"),
        ("TDP", NOTHING if gpu.tdp_watts is None else f"{gpu.tdp_watts:.0f} W", "tdp"),
        ("supports", ", ".join(yes) or NOTHING, "flags"),
        ("SDPA backends", ", ".join(backends) or NOTHING, "flags"),
        ("confidence", gpu.confidence or NOTHING, "confidence"),
    ]


def _gib(size: float | None) -> str:
    return NOTHING if size is None else f"{size / GIB:.2f} GiB"


def _mib(size: float | None) -> str:
    return NOTHING if size is None else f"{size / 2**20:,.0f} MiB"


def _kib(size: float | None) -> str:
    return NOTHING if size is None else f"{size / 1024:.0f} KiB"


def _tera(rate: float | None) -> str:
    return NOTHING if rate is None else f"{rate / 1e12:.4g}"


def _source(source: Mapping[str, str | None]) -> list[str]:
    """Title and how far it was read, and its address on a line of its own."""
    return [f"{source['title']} ({source['access']})", *([f"  {source['url']}"] if source["url"] else [])]
