"""The section of `report` on a server under load: a table of loads, and how times are spread over requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofcast.calculators.answer import remarks
from roofcast.hwdb.units import show_percent
from roofcast.reports.charts import Chart
from roofcast.reports.document import Document, table
from roofcast.reports.numbers import NOTHING, count, figures, millis
from roofcast.reports.simulate import spread_says

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.report_service import ServiceLoad, ServiceResult
    from roofcast.calculators.serving.result import SimulateResult, Spread
    from roofcast.reports.document import Table

HEADER = (
    "load", "answered\na second", "output\ntokens/s", "TTFT\nms", "90 %\nms", "99 %\nms", "TPOT\nms", "90 %\nms", "99 %\nms",
)  # fmt: skip
GROWS = "more come than are answered: the queue keeps on growing, and times are of the first requests alone"


def service_document(
    result: ServiceResult, drawn: SimulateResult, inputs: Mapping[str, Any], said: Remarks
) -> Document:
    """Loads from light to heavy; `drawn` is what the chart shows."""
    of = (
        f"requests of {count(result.prompt)} tokens in and {count(result.output)} out, policy {result.policy}; TTFT and TPOT "
        f"in the median, and what 90 and 99 of 100 requests take at most; TTFT has the waiting in it{_sample(result)}"
    )
    notes = [
        of,
        None if all(load.stable for load in result.loads) else f"* {GROWS}",
    ]
    return Document(
        command="simulate",
        inputs=inputs,
        result=result,
        records=result.loads,
        tables=(_table(result),),
        remarks=said + remarks(notes=notes),
        charts=(Chart("spread", drawn, spread_says(drawn)),),
    )


def _sample(result: ServiceResult) -> str:
    """How many requests chance was asked for, where it was."""
    if result.most_requests_per_second is None:
        return ""
    return f"; of {count(result.loads[0].requests)} that come by chance, `roofcast simulate --rate max` takes more"


def _table(result: ServiceResult) -> Table:
    """A row a load."""
    held = any(load.share is not None for load in result.loads)
    rows = [_row(load, held=held) for load in result.loads]
    return table((*HEADER, "within\nlimits") if held else HEADER, rows)


def _row(load: ServiceLoad, *, held: bool) -> tuple[str, ...]:
    row = (
        load_words(load),
        figures(load.requests_per_second),
        figures(load.output_tokens_per_second),
        *_shares(load.ttft_seconds),
        *_shares(load.tpot_seconds),
    )
    return (*row, NOTHING if load.share is None else show_percent(load.share, 0)) if held else row


def load_words(load: ServiceLoad) -> str:
    """A load, with a star where its queue grows.

    >>> from roofcast.calculators.report_service import ServiceLoad
    >>> load_words(ServiceLoad(2.5, None, 200, 2.4, 100.0, None, None, None, stable=False))
    '2.50 requests/s*'
    >>> load_words(ServiceLoad(None, 1, 100, 2.4, 100.0, None, None, None, stable=True))
    '1 client'
    """
    if load.rate is not None:
        return f"{figures(load.rate)} requests/s{'' if load.stable else '*'}"
    return f"{count(load.clients)} client{'' if load.clients == 1 else 's'}"


def _shares(spread: Spread | None) -> tuple[str, str, str]:
    if spread is None:
        return NOTHING, NOTHING, NOTHING
    return millis(spread.p50), millis(spread.p90), millis(spread.p99)
