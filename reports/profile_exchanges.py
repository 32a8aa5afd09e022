"""Tables of measured exchanges between ranks: a pattern each, then what their times come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.profiled import EAGER, GRAPH
from roofcast.hwdb.units import show_percent, show_size
from roofcast.modelspec.op import POINT_TO_POINT
from roofcast.reports.data import as_data
from roofcast.reports.document import Table, table
from roofcast.reports.numbers import NOTHING, count, figures
from roofcast.reports.profile_machine import GIGA, OF_SHEET, per_second, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.profile_rows_ranks import CollectivesRow, ExchangeRow, LinkRow

MICRO: Final = (1e-6, "us")
MILLI: Final = (1e-3, "ms")
LONG: Final = 0.1  # seconds from which on a table is in milliseconds
FAILED: Final = "did not run"
NO_GROWTH: Final = "none"

BUS_NOTE: Final = (
    "bus: bytes that a rank has to send whatever the way, over the time, as nccl-tests count them: 2 (n - 1) / n of an "
    "all-reduce's payload, (n - 1) / n of all-gather, reduce-scatter and all-to-all, all of point to point; GB is 10^9 bytes"
)
PAYLOAD_NOTE: Final = "payload: what a rank starts from (all-reduce, reduce-scatter), ends up with (all-gather) or has to send, its own part with it"
EXCHANGED_NOTE: Final = (
    "times are medians, of the slowest rank; +- is half of what lies between the 10th and the 90th percentile; the same buffers "
    "again and again, so small messages stay in the last cache, as in a model they do; all-reduces are timed on zeros"
)
ENDS_NOTE: Final = "point_to_point: from the first rank to the last and back, one way of the two"
FIT_NOTE: Final = "fit: time = latency + bytes that a rank has to send / bandwidth, least squares of relative errors"
SHEET_NOTE: Final = (
    "bound: least time over the data sheet's links, of data sheet: that over the measured time, of the quicker launch"
)


def exchange_lines(result: ProfileResult) -> Iterator[str]:
    """That what was exchanged was right."""
    group, found = result.ranks, result.collectives
    if group is None or found is None:
        return
    done = [row for row in found.exchanges if row.time is not None]
    if done:
        ends = group.size > 2 and any(row.pattern == POINT_TO_POINT for row in done)  # noqa: PLR2004 - two are both ends
        where = f"every rank{' (of point to point on both ends)' if ends else ''}"
        yield f"{found.number_format}; every element of every result right on {where}, before it was timed and after"


def exchange_tables(found: CollectivesRow) -> Iterator[Table]:
    """A table a pattern, what did not run, and the fits."""
    for pattern in dict.fromkeys(row.pattern for row in found.exchanges):
        rows = [row for row in found.exchanges if row.pattern == pattern]
        if any(row.time is not None for row in rows):
            yield _pattern(pattern, rows)
    failed = [row for row in found.exchanges if row.problem]
    if failed:
        yield _failed(failed)
    if found.links:
        yield _links(found.links)


def _pattern(pattern: str, rows: Sequence[ExchangeRow]) -> Table:
    """One pattern over sizes, eager and in a graph side by side, and what the data sheet says."""
    launches = [one for one in (EAGER, GRAPH) if any(row.launched == one for row in rows)]
    longest = max(row.time.seconds for row in rows if row.time is not None)
    unit = MILLI if longest >= LONG else MICRO
    bound = any(row.bound_seconds is not None for row in rows)
    expected = any(row.expected_seconds is not None for row in rows)
    header = ["payload"]
    for launched in launches:
        header += [f"{launched}\n{unit[1]}", "+-", "bus\nGB/s"]
    header += [f"bound\n{unit[1]}"] * bound + [f"expect\n{unit[1]}"] * expected + [OF_SHEET] * bound
    cells = []
    for size in dict.fromkeys(row.payload_bytes for row in rows):
        some = {row.launched: row for row in rows if row.payload_bytes == size}
        line = [show_size(size)]
        for launched in launches:
            line += _timed(some.get(launched), unit[0])
        first = next(iter(some.values()))
        line += [_in(first.bound_seconds, unit[0])] * bound + [_in(first.expected_seconds, unit[0])] * expected
        best = max((row.of_datasheet for row in some.values() if row.of_datasheet is not None), default=None)
        cells.append([*line, *([percent(best)] * bound)])
    return table(header, cells, title=pattern)


def _timed(row: ExchangeRow | None, unit: float) -> list[str]:
    """Time, spread and bus bandwidth of one launch."""
    if row is None or row.time is None:
        return [NOTHING if row is None else FAILED, NOTHING, NOTHING]
    apart = (row.time.high - row.time.low) / 2 / row.time.seconds
    return [_in(row.time.seconds, unit), percent(apart), per_second(row.link_bytes_per_second, GIGA)]


def _in(seconds: float | None, unit: float) -> str:
    return NOTHING if seconds is None else figures(seconds / unit)


def _failed(rows: Sequence[ExchangeRow]) -> Table:
    """What did not run, each reason once for all sizes of a pattern."""
    where: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        where.setdefault((row.pattern, row.launched, row.problem or ""), []).append(show_size(row.payload_bytes))
    cells = [(pattern, launched, ", ".join(sizes), why) for (pattern, launched, why), sizes in where.items()]
    return table(("pattern", "launch", "payload", "why"), cells, title=FAILED, left=(0, 1, 2, 3))


def _links(rows: Sequence[LinkRow]) -> Table:
    """Latency and bandwidth of every pattern and launch, fitted and the best that was measured."""
    header = ("pattern", "launch", "latency\nus", "GB/s", "worst\nerror", "least\nus", "best bus\nGB/s", "sizes")
    cells = [
        (
            row.pattern,
            row.launched,
            _in(row.latency_seconds, MICRO[0]),
            NO_GROWTH if row.latency_seconds is not None and row.bytes_per_second is None else _rate(row),
            NOTHING if row.worst_error is None else show_percent(row.worst_error),
            _in(row.least_seconds, MICRO[0]),
            per_second(row.best_bytes_per_second, GIGA),
            count(row.points),
        )
        for row in rows
    ]
    return table(header, cells, title="fit of each pattern over its sizes, and the best measured", left=(0, 1))


def _rate(row: LinkRow) -> str:
    return per_second(row.bytes_per_second, GIGA)


def exchange_notes(found: CollectivesRow) -> tuple[str | None, ...]:
    """How the numbers are meant."""
    done = [row for row in found.exchanges if row.time is not None]
    return (
        EXCHANGED_NOTE if done else None,
        BUS_NOTE if done else None,
        PAYLOAD_NOTE if done else None,
        ENDS_NOTE if any(row.pattern == POINT_TO_POINT for row in done) else None,
        FIT_NOTE if any(row.latency_seconds is not None for row in found.links) else None,
        SHEET_NOTE if any(row.bound_seconds is not None for row in done) else None,
    )


def exchange_records(result: ProfileResult) -> Iterator[dict[str, Any]]:
    """Rows of CSV: every exchange, then the fits, each with the name of its table."""
    found, group = result.collectives, result.ranks
    if found is None:
        return
    named = {"ranks": None if group is None else group.size, "number_format": found.number_format}
    for name in ("exchanges", "links"):
        yield from ({"table": name, **named, **as_data(row)} for row in getattr(found, name))
