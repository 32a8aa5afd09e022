"""Tables of what a machine itself reaches: bandwidth, products, launches, attention, fitted constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.hwdb.units import show_bytes, show_percent, show_si
from roofcast.reports.document import Table, table
from roofcast.reports.numbers import NOTHING, context_name, count, figures, millis

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from roofcast.calculators.profile_rows import (
        AttentionRow,
        BandwidthRow,
        CalibrationRow,
        LaunchRow,
        ProductRow,
        RoofRow,
        RoofsRow,
    )
    from roofcast.calculators.profile_rows_time import TimeRow

GIGA: Final = 1e9
TERA: Final = 1e12
MIB: Final = 2.0**20
OF_SHEET: Final = "of data\nsheet"


def percent(share: float | None) -> str:
    """A share of a roof.

    >>> percent(0.929), percent(0.0042), percent(None)
    ('93%', '0.4%', '-')
    """
    return NOTHING if share is None else show_percent(share, 0 if share >= 0.1 else 1)  # noqa: PLR2004


def per_second(rate: float | None, unit: float) -> str:
    """A rate in a unit."""
    return NOTHING if rate is None else figures(rate / unit)


def flop_unit(rates: Iterable[float | None]) -> tuple[float, str]:
    """The unit of a column of rates, by the best of them.

    >>> flop_unit([8.05e14, None])[1], flop_unit([6.65e10])[1]
    ('TFLOP/s', 'GFLOP/s')
    """
    best = max((rate for rate in rates if rate is not None), default=TERA)
    return (TERA, "TFLOP/s") if best >= TERA else (GIGA, "GFLOP/s")


def between(time: TimeRow | None) -> str:
    """10th and 90th percentile in milliseconds."""
    return NOTHING if time is None else f"{millis(time.low)}-{millis(time.high)}"


def device_tables(device: RoofsRow) -> Iterator[Table]:
    """Roofs, then all that they were read from; a data sheet's numbers where the device has one."""
    sheet = device.datasheet_bytes_per_second is not None
    unit = flop_unit(row.peak_flops_per_second for row in device.roofs)
    if device.roofs:
        yield _roofs(device.roofs, unit, sheet=sheet)
    if device.bandwidths:
        yield _bandwidths(device.bandwidths, sheet=sheet)
    done = [row for row in device.products if row.time is not None]
    if done:
        yield _products(done, unit, sheet=sheet)
    failed = [(row.format, _shape(row), row.problem or "") for row in device.products if row.problem]
    if failed:
        yield table(("format", "m x n x k", "why not"), failed, title="products that did not run", left=(0, 1, 2))
    if device.launches:
        yield _launches(device.launches)


def _roofs(rows: Sequence[RoofRow], unit: tuple[float, str], *, sheet: bool) -> Table:
    header = ["format", unit[1], "ridge\nFLOP/B"]
    header += [f"data sheet\n{unit[1]}", "of data\nsheet", "its ridge\nFLOP/B"] if sheet else []
    cells = []
    for row in rows:
        own = [row.format, per_second(row.peak_flops_per_second, unit[0]), figures(row.ridge)]
        beside = [
            per_second(row.datasheet_flops_per_second, unit[0]),
            percent(row.of_datasheet),
            figures(row.datasheet_ridge),
        ]
        cells.append([*own, *(beside if sheet else ())])
    return table(header, cells, title=f"roofs as measured{', beside the data sheet' if sheet else ''}")


def _bandwidths(rows: Sequence[BandwidthRow], *, sheet: bool) -> Table:
    """A row a size, reading and copying beside each other."""
    sizes = sorted({row.size_bytes for row in rows})
    found = {(row.how, row.size_bytes): row for row in rows}
    of = (OF_SHEET,) if sheet else ()
    header = ("buffer", "read\nms", "read\nGB/s", *of, "copy\nms", "copy\nGB/s", *of)
    cells = [
        (_size(size), *(cell for how in ("read", "copy") for cell in _moved(found.get((how, size)), sheet=sheet)))
        for size in sizes
    ]
    return table(header, cells, title="memory")


def _moved(row: BandwidthRow | None, *, sheet: bool) -> tuple[str, ...]:
    if row is None:
        return (NOTHING,) * (2 + sheet)
    of = (percent(row.of_datasheet),) if sheet else ()
    return millis(row.time.seconds), per_second(row.bytes_per_second, GIGA), *of


def _size(size: int) -> str:
    return show_bytes(size, "GiB" if size >= 2**30 else "MiB", 0 if size >= MIB else 2)


def _shape(row: ProductRow) -> str:
    return f"{row.m:,} x {row.n:,} x {row.k:,}"


def _products(rows: Sequence[ProductRow], unit: tuple[float, str], *, sheet: bool) -> Table:
    header = ("format", "m", "n", "k", "ms", "10-90 %", unit[1], *((OF_SHEET,) if sheet else ()))
    cells = [
        (
            row.format,
            *(count(value) for value in (row.m, row.n, row.k)),
            millis(row.time.seconds if row.time else None),
            between(row.time),
            per_second(row.flops_per_second, unit[0]),
            *((percent(row.of_datasheet),) if sheet else ()),
        )
        for row in rows
    ]
    return table(header, cells, title="matrix products, [m, k] @ [k, n]")


def _launches(rows: Sequence[LaunchRow]) -> Table:
    cells = [
        (
            row.how,
            show_si(row.time.seconds, "s", 3),
            f"{show_si(row.time.low, 's', 3)}-{show_si(row.time.high, 's', 3)}",
        )
        for row in rows
    ]
    return table(("launch", "one kernel", "10-90 %"), cells, title="starting an empty kernel, among many")


def attention_tables(rows: Sequence[AttentionRow]) -> Iterator[Table]:
    """A table a phase, and why backends are not available."""
    for phase in dict.fromkeys(row.phase for row in rows):
        some = [row for row in rows if row.phase == phase and row.time is not None]
        if some:
            yield _calls(phase, some)
    for title, some in (
        ("not available", [row for row in rows if row.problem]),
        ("how they ran", [row for row in rows if row.note]),
    ):
        if some:
            yield _reasons(title, some, rows)


def _calls(phase: str, rows: Sequence[AttentionRow]) -> Table:
    first = rows[0]
    prompt = phase == "prefill"
    unit = flop_unit(row.flops_per_second for row in rows)
    rate = (unit[1],) if prompt else ("GB/s", "of\nmeasured")
    header = ("batch", "tokens", "backend", "ms", "10-90 %", *rate, "extra\nMiB")
    cells = [
        (
            count(row.batch),
            context_name(row.length),
            row.backend,
            millis(row.time.seconds if row.time else None),
            between(row.time),
            *(
                (per_second(row.flops_per_second, unit[0]),)
                if prompt
                else (per_second(row.bytes_per_second, GIGA), percent(row.of_measured))
            ),
            NOTHING if row.extra_bytes is None else figures(row.extra_bytes / MIB),
        )
        for row in rows
    ]
    heads = f"{first.query_heads}/{first.kv_heads} heads of {first.head_dim}, {first.format}"
    title = f"causal attention of prompts, {heads}" if prompt else f"decode over the cache, {heads}"
    return table(header, cells, title=title, left=(2,), keys=3)


def _reasons(title: str, rows: Sequence[AttentionRow], every: Sequence[AttentionRow]) -> Table:
    """What did not run, or how it did, each reason once for all the shapes that have it."""
    where: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        key = row.phase, row.backend, row.problem or row.note
        where.setdefault(key, []).append(f"{count(row.batch)} x {context_name(row.length)}")
    whole = {row.phase: {(one.batch, one.length) for one in every if one.phase == row.phase} for row in rows}
    cells = [
        (phase, backend, "all" if len(shapes) == len(whole[phase]) else ", ".join(shapes), problem)
        for (phase, backend, problem), shapes in where.items()
    ]
    return table(("phase", "backend", "batch x tokens", "why"), cells, title=title, left=(0, 1, 2, 3))


def calibration_tables(calibration: CalibrationRow) -> Iterator[Table]:
    """Residuals of every family and format."""
    header = ("family", "format", "rows", "median\nerror", "90 %\nbelow", "spread")
    cells = [
        (row.family, row.format, count(row.rows), *map(_error, (row.median_error, row.p90_error)), f"{row.spread:.3f}")
        for row in calibration.fitted
    ]
    if cells:
        yield table(header, cells, title="fitted constants", left=(0, 1))


def _error(value: float | None) -> str:
    return NOTHING if value is None else show_percent(value, 1)
