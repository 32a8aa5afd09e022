"""`validate` as a document: a summary by what the points have in common, and the worst misses with their links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.hwdb.units import show_percent
from roofcast.reports.data import as_data
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import NOTHING, context_name, count, figures, millis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.validate import PointRow, SummaryRow, ValidateResult

SUMMARY: Final = ("group", "points", "median\nerror", "90 %\nbelow", "bias", "inside\n80 %", "bound's\nerror", "beaten")
WORST: Final = (
    "quantity", "model", "gpu", "engine", "weights", "batch", "ctx", "measured", "bound", "expect", "low-high", "error", "source",
)  # fmt: skip
MILLI: Final = 1e3


def validate_document(result: ValidateResult, inputs: Mapping[str, Any], said: Remarks, worst: int) -> Document:
    """The page of `validate`; `worst`: how many misses it lists."""
    return Document(
        command="validate",
        inputs=inputs,
        result=result,
        records=[as_data(row) for row in result.points],
        lines=tuple(map(plain, _lines(result))),
        tables=tuple(_tables(result, worst)),
        remarks=said + _notes(result),
    )


def _lines(result: ValidateResult) -> list[str]:
    if not result.summary:
        return ["no point can be predicted"]
    whole = result.summary[0]
    said = (
        f"{whole.points:,} measured points: median error {show_percent(whole.median_error, 1)}, 90 % below "
        f"{show_percent(whole.p90_error, 1)}; {show_percent(whole.inside_interval, 0)} inside their 80 % interval; "
        f"the bound alone is off by {show_percent(whole.bound_error, 1)}"
    )
    return [said]


def _tables(result: ValidateResult, worst: int) -> list[Table]:
    made = []
    if result.summary:
        made.append(table(SUMMARY, [_group(row) for row in result.summary], title="predicted against measured"))
    misses = [row for row in result.points if row.reason is None][:worst]
    if misses:
        title = f"the {len(misses)} worst misses" if len(misses) < result.counted else "every point, the worst first"
        made.append(_points(misses, title))
    if result.uncounted:
        rows = [(reason, count(number)) for reason, number in result.uncounted.items()]
        made.append(table(("not counted, because", "points"), rows))
    return made


def _group(row: SummaryRow) -> tuple[str, ...]:
    return (
        row.group,
        count(row.points),
        show_percent(row.median_error, 1),
        show_percent(row.p90_error, 1),
        f"{row.bias:+.1%}",
        show_percent(row.inside_interval, 0),
        show_percent(row.bound_error, 1),
        count(row.beaten),
    )


def _points(rows: Sequence[PointRow], title: str) -> Table:
    cells = [
        (
            row.quantity.removesuffix("_seconds").replace("_tokens_per_second", " tok/s"),
            row.model or NOTHING,
            (row.gpu or NOTHING) if (row.gpus or 1) == 1 else f"{row.gpus} x {row.gpu}",
            row.engine or "none",
            row.weights or "as stored",
            count(row.batch) if row.batch else NOTHING,
            context_name(round(row.context)) if row.context else NOTHING,
            *(_value(row, value) for value in (row.measured, row.bound, row.expected)),
            f"{_value(row, row.low)}-{_value(row, row.high)}",
            NOTHING if row.error is None else f"{row.error:+.1%}",
            row.source,
        )
        for row in rows
    ]
    return table(WORST, cells, title=title, left=(0, 1, 2, 3, 4, 12), breaks=(7, 12), keys=2)


def _value(row: PointRow, value: float | None) -> str:
    """Milliseconds, or tokens a second."""
    return millis(value) if row.quantity.endswith("_seconds") else figures(value)


def _notes(result: ValidateResult) -> Remarks:
    return remarks(
        notes=[
            "error is expected over measured, less 1; times are in ms, rates in tokens/s; bias is the median error with its sign",
            (
                "constants of the GPU and engine: they were fitted to measurements of that pair, which may be among these points; "
                "constants of others: a prediction without any"
            )
            if any(row.own for row in result.points)
            else None,
        ]
    )
