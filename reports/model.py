"""`model` as a document: facts with provenance, the layer map, parameters by component."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import GIB, KIB, NOTHING, context_name, count, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.describe import Fact, LayerRun, ModelResult


def model_document(result: ModelResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `model`."""
    return Document(
        command="model",
        inputs=inputs,
        result=result,
        records=result.facts,
        lines=(plain(f"{result.model}, from {result.source}"),),
        tables=tuple(_tables(result, inputs)),
        remarks=remarks,
    )


def _tables(result: ModelResult, inputs: Mapping[str, Any]) -> list[Table]:
    facts = table(("fact", "value", "from"), [_fact(fact) for fact in result.facts], left=(0, 1, 2))
    total = sum(result.parameters_by_component.values())
    components = [
        (name.replace("_", "-"), count(n), f"{n / total:.1%}")
        for name, n in (*result.parameters_by_component.items(), ("all", total))
    ]
    tables = [
        facts,
        table(
            ("layers", "attn", "q/kv", "window", "feed-forward", "KV elements\na token", "parameters\na layer"),
            [_run(run) for run in result.layers],
            left=(0, 1, 4),
        ),
        table(("component", "parameters", "share"), components),
        table((f"KV cache ({inputs['kv']})", ""), _cache(result)),
    ]
    if result.stored_elements is not None:
        stored = [(dtype, count(n)) for dtype, n in result.stored_elements.items()]
        size = f"{(result.stored_bytes or 0) / GIB:.2f} GiB in the weight files"
        tables.append(table(("stored as", "elements"), stored, title=size))
    return tables


def _fact(fact: Fact) -> tuple[str, str, str]:
    value = fact.value
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, (int, float)):
        text = f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"
    else:
        text = value or NOTHING
    name = fact.name.replace("_", " ")
    return (name if name != "weight bytes" else "weights, bytes", text, fact.provenance or "")


def _run(run: LayerRun) -> tuple[str, ...]:
    return (
        f"{run.first}-{run.last}" if run.last > run.first else str(run.first),
        run.attention,
        f"{run.query_heads}/{run.kv_heads}",
        count(run.window),
        run.feed_forward,
        count(run.kv_elements_per_token),
        count(run.attention_parameters + run.feed_forward_parameters),
    )


def _cache(result: ModelResult) -> list[tuple[str, str]]:
    rows = [("a token", f"{fixed(result.kv_bytes_per_token / KIB, 1)} KiB")]
    if result.window_bytes:
        rows.append(("windows, once full", f"{fixed(result.window_bytes / 2**20, 1)} MiB"))
    rows += [(f"at {context_name(int(c))}", f"{fixed(size / GIB, 2)} GiB") for c, size in result.cache_bytes.items()]
    return rows
