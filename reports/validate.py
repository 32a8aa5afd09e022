"""`validate` as a document: a summary by what the points have in common, and the worst misses with their links."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.predict import PROMPTS
from roofcast.hwdb.units import show_percent
from roofcast.reports.charts import Chart
from roofcast.reports.data import as_data
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import NOTHING, context_name, count, figures, millis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.validate import PointRow, SummaryRow, ValidateResult

SUMMARY: Final = ("by", "group", "points", "median\nerror", "90 %\nbelow", "bias")
INTERVAL: Final = ("inside\n80 %", "bound's\nerror")
WORST: Final = ("", "error", "quantity", "model", "gpu", "engine", "weights", "batch", "tokens", "measured", "bound")
EXPECTED: Final = ("expect", "low-high")
SPLIT: Final = 6  # first column of a table below, where the whole is too wide
BEATEN: Final = "beaten"
SOURCE: Final = "source"


def validate_document(result: ValidateResult, inputs: Mapping[str, Any], said: Remarks, worst: int) -> Document:
    """The page of `validate`; `worst`: how many misses it lists."""
    return Document(
        command="validate",
        inputs=inputs,
        result=result,
        records=[as_data(row) for row in result.points],
        lines=(plain(headline(result)),),
        tables=tuple(_tables(result, worst)),
        remarks=said + _notes(result),
        charts=(Chart("points", result, f"Predicted over measured: {plain(headline(result))}."),)
        if result.counted
        else (),
    )


def headline(result: ValidateResult) -> str:
    """All points in one sentence."""
    if not result.summary:
        return "no point can be predicted"
    whole = result.summary[0]
    of = "the bound's " if whole.inside_interval is None else ""
    said = (
        f"{whole.points:,} measured point{'s' if whole.points > 1 else ''}: {of}median error "
        f"{show_percent(whole.median_error, 1)}, 90 % below {show_percent(whole.p90_error, 1)}"
    )
    if whole.inside_interval is None:
        return said
    inside, bound = show_percent(whole.inside_interval, 0), show_percent(whole.bound_error, 1)
    return f"{said}; {inside} inside their 80 % interval; the bound alone is off by {bound}"


def _tables(result: ValidateResult, worst: int) -> list[Table]:
    made = []
    if result.summary:
        made.append(_summary(result))
    misses = [row for row in result.points if row.reason is None][:worst]
    if misses:
        some = f"the {len(misses)} worst misses" if len(misses) > 1 else "the worst miss"
        title = some if len(misses) < result.counted else "every point, the worst first"
        links = list(dict.fromkeys(row.source for row in misses))
        made.append(_points(misses, links, title, expected=result.error_of == "expected"))
        made.append(table(("", SOURCE), [(f"[{n}]", link) for n, link in enumerate(links, 1)], left=(0, 1)))
    if result.uncounted:
        made.append(_uncounted(result))
    return made


def _summary(result: ValidateResult) -> Table:
    """All points, and each group of those that are not all of one."""
    whole, expected = result.summary[0], result.error_of == "expected"
    header = (*SUMMARY, *(INTERVAL if expected else ()), *((BEATEN,) if whole.beaten else ()))
    cells = []
    for by, rows in groupby(result.summary, lambda row: row.by):
        some = list(rows)
        if by == "all" or len(some) > 1:
            cells += [
                (by if not number else "", *_group(row))[: len(header) - bool(whole.beaten)]
                + ((count(row.beaten),) if whole.beaten else ())
                for number, row in enumerate(some)
            ]
    title = f"{'predicted' if expected else 'bound'} against measured"
    return table(header, cells, title=title, left=(0, 1))


def _group(row: SummaryRow) -> tuple[str, ...]:
    return (
        NOTHING if row.by == "all" else _quantity(row.group) if row.by == "quantity" else row.group,
        count(row.points),
        show_percent(row.median_error, 1),
        show_percent(row.p90_error, 1),
        f"{row.bias:+.1%}",
        NOTHING if row.inside_interval is None else show_percent(row.inside_interval, 0),
        show_percent(row.bound_error, 1),
    )


def _points(rows: Sequence[PointRow], links: Sequence[str], title: str, *, expected: bool) -> Table:
    """Points, each with its number before it, by which a table below names it again."""
    header = (*WORST, *(EXPECTED if expected else ()), SOURCE)
    cells = [
        (str(number), *_point(row), *(_interval(row) if expected else ()), f"[{links.index(row.source) + 1}]")
        for number, row in enumerate(rows, 1)
    ]
    return table(header, cells, title=title, left=(2, 3, 4, 5, 6), breaks=(SPLIT,), keys=1)


def _point(row: PointRow) -> tuple[str, ...]:
    tokens = row.prompt if row.quantity in PROMPTS else row.context
    return (
        NOTHING if row.error is None else f"{row.error:+.1%}",
        _quantity(row.quantity),
        row.model or NOTHING,
        _devices(row),
        row.engine or NOTHING,
        row.weights or "as stored",
        count(row.batch) if row.batch else NOTHING,
        context_name(round(tokens)) if tokens else NOTHING,
        _value(row, row.measured),
        _value(row, row.bound),
    )


def _interval(row: PointRow) -> tuple[str, str]:
    return _value(row, row.expected), f"{_value(row, row.low)}-{_value(row, row.high)}"


def _quantity(name: str) -> str:
    return name.removesuffix("_seconds").replace("_tokens_per_second", " tok/s")


def _devices(row: PointRow) -> str:
    return (row.gpu or NOTHING) if (row.gpus or 1) == 1 else f"{row.gpus} x {row.gpu or NOTHING}"


def _value(row: PointRow, value: float | None) -> str:
    """Milliseconds, or tokens a second."""
    return millis(value) if row.quantity.endswith("_seconds") else figures(value)


def _uncounted(result: ValidateResult) -> Table:
    """Why points are not counted, with the first of each reason."""
    first = {row.reason: row for row in reversed(result.points)}
    rows = [
        (count(number), f"{first[reason].model or NOTHING} on {_devices(first[reason])}", reason)
        for reason, number in result.uncounted.items()
    ]
    return table(("points", "such as", "not counted, because"), rows, left=(1, 2))


def _notes(result: ValidateResult) -> Remarks:
    if not result.summary:
        return Remarks()
    mine = any(row.own for row in result.points)
    return remarks(
        notes=[
            f"error is {result.error_of} over measured, less 1; times are in ms, rates in tokens/s; bias is the median error with its sign",
            "tokens are those of the prompt, of decode, TPOT and rates those before a decoded one, on the mean",
            "constants of GPU and engine were fitted to measurements of that pair, which may be among these points"
            if mine
            else None,
            "beaten: points better than their bound by more than 2 %" if result.summary[0].beaten else None,
        ]
    )
