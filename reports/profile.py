"""`profile` as a document: what was measured, and how far it is from the roofs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.hwdb.units import show_percent, show_si
from roofcast.reports.charts import Chart
from roofcast.reports.data import as_data
from roofcast.reports.document import Document, plain
from roofcast.reports.numbers import GIB
from roofcast.reports.profile_checkpoint import (
    checkpoint_lines,
    checkpoint_notes,
    checkpoint_records,
    checkpoint_tables,
)
from roofcast.reports.profile_exchanges import exchange_lines, exchange_notes, exchange_records, exchange_tables
from roofcast.reports.profile_machine import attention_tables, calibration_tables, device_tables
from roofcast.reports.profile_rounds import round_lines, round_notes, round_records, round_tables
from roofcast.reports.profile_steps import step_tables, verdicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from roofcast.calculators.profile_rows import MachineRow, ProfileResult, RoofsRow
    from roofcast.calculators.profile_rows_ranks import RanksRow
    from roofcast.reports.document import Table

STEPS_CHART: Final = {"profile": "Measured steps under the rooflines"}
#: command -> its chart, and what that shows
CHARTED: Final[Mapping[str, Mapping[str, str]]] = {
    "collectives": {"exchanges": "Bus bandwidth of exchanges over the size of a message"},
    **dict.fromkeys(("compare", "decode", "prefill"), STEPS_CHART),
}
TIMES_NOTE: Final = (
    "ms is the median of repeats, with the 10th and 90th percentile where there is room; data are random; a step "
    "reads its own weights and caches, buffers of single kernels rotate over more than the last cache"
)
SHARES_NOTE: Final = (
    "a share of a roof is the least time under it over the measured time; measured roofs are the best read and the best product "
    "of this machine"
)
LEAST_NOTE: Final = (
    "least time: each operation takes the longer of arithmetic at the format's peak and of weights and cache at the bandwidth, "
    "whatever else they move"
)
PARTS_NOTE: Final = (
    "families and terms are timed alone, all layers after one another; between kernels is what the whole step takes beside them, "
    "below 0 where kernels of the step overlap"
)
SHARED_NOTE: Final = (
    "bytes, FLOP, their rates and the roofs are those of one device of {tp}; times and tokens/s are of all together"
)
NEAR_NOTE: Final = "near: the roof of which the larger share is reached by measurement"
ATTENTION_NOTE: Final = (
    "TFLOP/s count the lower half of a prompt's scores; GB/s are of keys and values; extra is the peak of memory beside inputs "
    "and outputs"
)
DEVICE_NOTE: Final = "the measured memory roof is the best rate of reading; a copy reads and writes, both are counted"
CALIBRATION_NOTE: Final = (
    "errors are of measurements kept out of the fit, |expected / measured - 1|; --format json has the constants"
)


def profile_document(
    result: ProfileResult, inputs: Mapping[str, Any], said: Remarks, *, terms: bool = False
) -> Document:
    """The page of `profile`; `terms`: whether text shows every term of every step."""
    lines = tuple(map(plain, _lines(result)))
    return Document(
        command="profile",
        inputs=inputs,
        result=result,
        records=list(RECORDS.get(result.what, _points)(result)),
        lines=lines,
        tables=tuple(_tables(result, terms=terms)),
        remarks=said + _notes(result),
        charts=tuple(
            Chart(kind, result, f"{says}: {'; '.join(lines)}.") for kind, says in CHARTED.get(result.what, {}).items()
        ),
    )


def _lines(result: ProfileResult) -> Iterator[str]:
    machine = result.machine
    known = f" ({machine.accelerator})" if machine.accelerator else ""
    weights = f"{result.weights}, random weights" if result.checkpoint is None else result.weights
    model = f"{result.model} in {weights}, on " if result.model else ""
    yield f"{model}{machine.name}{known}"
    yield _software(machine)
    if result.ranks is not None:
        yield ranks_line(result.ranks)
    if result.device is not None:
        yield from _roofs(result.device)
    if result.calibration is not None:
        file = result.calibration.file
        yield f"constants written to {file}" if file else "constants are not written"
    yield from verdicts(result.points)
    yield from round_lines(result)
    yield from exchange_lines(result)
    yield from checkpoint_lines(result)


def ranks_line(ranks: RanksRow) -> str:
    """Who measured together, and over what.

    >>> from roofcast.calculators.profile_rows_ranks import RanksRow
    >>> ranks_line(RanksRow(2, "nccl", 1, "NCCL 2.28.9", "18 NVLinks between each two"))
    '2 ranks on 1 host, NCCL 2.28.9; 18 NVLinks between each two'
    """
    hosts = f"{ranks.hosts} host{'s' * (ranks.hosts > 1)}"
    return "; ".join(filter(None, (f"{ranks.size} ranks on {hosts}, {ranks.library or ranks.backend}", ranks.link)))


def _software(machine: MachineRow) -> str:
    """Memory, and what drives the device."""
    driver = f", driver {machine.driver}" if machine.driver else ""
    clock = f"; {machine.clock}" if machine.clock else ""
    units = (
        f"{machine.sms} thread{'s' * (machine.sms != 1)}"
        if machine.kind == "cpu"
        else f"{machine.sms} SMs"
        if machine.sms
        else ""
    )
    memory = f"{machine.memory_bytes / GIB:.1f} GiB of memory, {machine.free_bytes / GIB:.1f} GiB free"
    parts = (memory, units, f"torch {machine.torch}{driver}, kernels of {machine.kernels}")
    return "; ".join(filter(None, parts)) + clock


def _roofs(device: RoofsRow) -> Iterator[str]:
    """The measured roofs in one line."""
    facts = []
    if device.bandwidth_bytes_per_second is not None:
        of = _of_datasheet(device.of_datasheet)
        facts.append(f"read {show_si(device.bandwidth_bytes_per_second, 'B/s', 3)}{of}")
    facts += [
        f"{roof.format} {show_si(roof.peak_flops_per_second, 'FLOP/s', 3)}{_of_datasheet(roof.of_datasheet)}"
        for roof in device.roofs
    ]
    if facts:
        yield f"measured roofs: {', '.join(facts)}"


def _of_datasheet(share: float | None) -> str:
    return "" if share is None else f" ({show_percent(share)} of the data sheet's)"


def _tables(result: ProfileResult, *, terms: bool) -> Iterator[Table]:
    if result.what == "device" and result.device is not None:
        yield from device_tables(result.device)
    yield from step_tables(result, terms=terms)
    yield from attention_tables(result.attention)
    if result.calibration is not None:
        yield from calibration_tables(result.calibration)
    if result.speculation is not None:
        yield from round_tables(result.speculation)
    if result.collectives is not None:
        yield from exchange_tables(result.collectives)
    if result.checkpoint is not None:
        yield from checkpoint_tables(result.checkpoint)


def _points(result: ProfileResult) -> Iterator[dict[str, Any]]:
    """Rows of CSV: every step without what is in it, then its terms."""
    inner = {"families", "terms", "parts", "step"}
    for point in result.points:
        whole = {} if point.step is None else as_data(point.step)
        own = {key: value for key, value in as_data(point).items() if key not in inner}
        yield {"model": result.model, "weights": result.weights, **own, **whole}
        for term in point.terms:
            named = {"phase": point.phase, "batch": point.batch, "context": point.context}
            yield {"model": result.model, "weights": result.weights, **named, **as_data(term)}


def _device(result: ProfileResult) -> Iterator[dict[str, Any]]:
    """Rows of CSV, each with the name of its table."""
    if result.device is None:
        return
    for name in ("roofs", "bandwidths", "products", "launches"):
        yield from ({"table": name, **as_data(row)} for row in getattr(result.device, name))


def _attention(result: ProfileResult) -> Iterator[dict[str, Any]]:
    yield from map(as_data, result.attention)


def _calibration(result: ProfileResult) -> Iterator[dict[str, Any]]:
    if result.calibration is not None:
        yield from map(as_data, result.calibration.fitted)


RECORDS: Final[dict[str, Callable[[ProfileResult], Iterator[dict[str, Any]]]]] = {
    "device": _device,
    "attention": _attention,
    "calibrate": _calibration,
    "speculate": round_records,
    "collectives": exchange_records,
    "checkpoint": checkpoint_records,
}


def _notes(result: ProfileResult) -> Remarks:
    """How the numbers are meant."""
    steps, device = bool(result.points), result.what == "device"
    return remarks(
        notes=[
            TIMES_NOTE if steps or result.attention or device or result.what == "speculate" else None,
            DEVICE_NOTE if device else None,
            SHARES_NOTE if steps else None,
            LEAST_NOTE if steps else None,
            SHARED_NOTE.format(tp=result.tp) if steps and result.tp > 1 else None,
            NEAR_NOTE if steps and result.device is not None else None,
            PARTS_NOTE if any(point.parts for point in result.points) else None,
            ATTENTION_NOTE if result.attention else None,
            CALIBRATION_NOTE if result.calibration is not None else None,
            *(() if result.speculation is None else round_notes(result.speculation)),
            *(() if result.collectives is None else exchange_notes(result.collectives)),
            *(() if result.checkpoint is None else checkpoint_notes(result.checkpoint)),
        ]
    )
