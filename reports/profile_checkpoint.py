"""Tables of a real checkpoint's times: the first token of prompts, and steps of decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.reports.data import as_data
from roofcast.reports.document import Table, table
from roofcast.reports.numbers import GIB, billions, context_name, count, figures, fixed, millis
from roofcast.reports.profile_machine import GIGA, OF_SHEET, between, flop_unit, per_second, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.profile_rows_checkpoint import CheckpointPointRow, CheckpointRow

PREFILL: Final = "prefill"
TITLES: Final = {
    PREFILL: "TTFT: from a prompt's ids until the host has the first token",
    "decode": "decode: from token to token, as a user waits for them",
}
FAILED: Final = "did not run"
TIMES_NOTE: Final = (
    "ms is the median by the host's clock, with the 10th and 90th percentile: kernels are launched one by one, and the host reads "
    "every token; prompts are random tokens, whose text means nothing"
)
AGAIN_NOTE: Final = "again: the same steps once more, the cache taken back before: lengths that were seen"
BYTES_NOTE: Final = (
    "GB/s: weights that a step reads and the cache that it reads and writes, counted and not measured, over the median time; of "
    "decode at the middle step"
)


def checkpoint_lines(result: ProfileResult) -> Iterator[str]:
    """What was loaded, and the first times."""
    found = result.checkpoint
    if found is None:
        return
    size = f"{billions(found.parameters)} parameters, {fixed(found.weight_bytes / GIB, 2)} GiB in memory"
    yield f"transformers {found.transformers}, attention {found.attention}; {size}"


def checkpoint_tables(found: CheckpointRow) -> Iterator[Table]:
    """A table of prompts, and one of steps."""
    for phase, title in TITLES.items():
        rows = [row for row in found.points if row.phase == phase]
        if rows:
            yield _points(rows, title)


def _points(rows: Sequence[CheckpointPointRow], title: str) -> Table:
    """Times and rates; bound and expected time where the device is in the database."""
    prompts = rows[0].phase == PREFILL
    counted = any(row.bytes is not None for row in rows)
    bound = any(row.bound_seconds is not None for row in rows)
    expected = any(row.expected_seconds is not None for row in rows)
    unit = flop_unit(_flops(row) for row in rows) if prompts else (GIGA, "GB/s")
    failed = any(row.time is None for row in rows)
    again = any(row.again is not None for row in rows)
    header = ["prompt"] if prompts else ["ctx", "batch"]
    header += ["ms", "10-90 %", *(["again\nms"] if again else []), "tokens\n/s", *([unit[1]] if counted else [])]
    told = len(header)  # columns of what was measured
    header += [] if prompts or not bound else [OF_SHEET]
    header += [*(["bound\nms"] if bound else []), *(["expect\nms"] if expected else [])]
    cells = []
    for row in rows:
        rate = per_second(_flops(row) if prompts else row.bytes_per_second, unit[0])
        cells.append(
            [
                context_name(row.context),
                *([] if prompts else [count(row.batch)]),
                millis(None if row.time is None else row.time.seconds),
                between(row.time),
                *([millis(None if row.again is None else row.again.seconds)] if again else []),
                figures(row.tokens_per_second),
                *([rate] if counted else []),
                *([] if prompts or not bound else [percent(row.of_datasheet)]),
                *([millis(row.bound_seconds)] if bound else []),
                *([millis(row.expected_seconds)] if expected else []),
                *([FAILED if row.time is None else ""] if failed else []),
            ]
        )
    left, breaks = ((len(header),) if failed else ()), ((told,) if bound else ())
    keys = 1 if prompts else 2
    return table([*header, *([""] if failed else [])], cells, title=title, left=left, keys=keys, breaks=breaks)


def _flops(row: CheckpointPointRow) -> float | None:
    """Arithmetic rate. [FLOP/s]"""
    return None if row.time is None or row.flops is None else row.flops / row.time.seconds


def checkpoint_records(result: ProfileResult) -> Iterator[dict[str, Any]]:
    """Rows of CSV: a point each."""
    found = result.checkpoint
    if found is None:
        return
    named = {
        "model": result.model,
        "weights": found.dtype,
        "transformers": found.transformers,
        "attention": found.attention,
    }
    yield from ({**named, **as_data(row)} for row in found.points)


def checkpoint_notes(found: CheckpointRow) -> tuple[str | None, ...]:
    """How the numbers are meant."""
    return (
        TIMES_NOTE,
        AGAIN_NOTE if any(row.again is not None for row in found.points) else None,
        BYTES_NOTE if any(row.bytes is not None for row in found.points) else None,
    )
