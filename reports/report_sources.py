"""Where the numbers of a report are from: the model, the accelerator, and the constants of expected times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofcast.calculators.gpus import GpusResult
from roofcast.hwdb.units import show_percent
from roofcast.reports.document import Document, table
from roofcast.reports.gpus import gpus_document
from roofcast.reports.numbers import NOTHING, count, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.estimate import EstimateResult
    from roofcast.calculators.gpus import Gpu
    from roofcast.calculators.kv import KvResult
    from roofcast.reports.document import Table


def sources_document(gpu: Gpu, inputs: Mapping[str, Any], said: Remarks) -> Document:
    """The facts of an accelerator with their sources."""
    asked = {**inputs, "names": [gpu.id], "local": False}
    return gpus_document(GpusResult([gpu]), asked, said)


def origin_tables(estimate: EstimateResult, kv: KvResult) -> tuple[Table, ...]:
    """Where the model was read, what each kind of number rests on, and the constants with how well they are known."""
    rows = [("model", kv.models[0].source), *((name.replace("_", " "), of) for name, of in estimate.provenance.items())]
    made = (table(("number", "from"), rows, left=(0, 1)),)
    fitted = [
        (
            one.family,
            one.format,
            one.fitted_on,
            count(one.rows),
            NOTHING if one.median_error is None else show_percent(one.median_error, 1),
            fixed(one.spread, 3),
        )
        for one in estimate.efficiency
    ]
    header = ("constants of", "for", "fitted on", "measurements", "median\nerror", "spread")
    return (*made, table(header, fitted, left=(0, 1, 2))) if fitted else made
