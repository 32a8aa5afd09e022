"""`kv` as a document: one row a model, what an engine with pages reserves where that is more, and a chart of curves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks
from roofcast.calculators.kv import KvModel, KvResult
from roofcast.reports.chart import MOST_CONTEXTS
from roofcast.reports.charts import Chart
from roofcast.reports.document import Document, Table, table
from roofcast.reports.numbers import GIB, KIB, NOTHING, billions, context_name, count, figures, fixed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roofcast.calculators.kv_curves import KvCurve, KvCurves

    Column = tuple[str, Callable[[KvModel], str]]  # heading and cell

MIB: Final = 2.0**20
MOST_CURVES: Final = MOST_CONTEXTS  # as many colours


def kv_document(
    rows: Sequence[KvModel],
    inputs: Mapping[str, Any],
    remarks: Remarks,
    *,
    contexts: Sequence[int] | None,
    curves: KvCurves | None = None,
) -> Document:
    """The tables of `kv`, and its chart where there are curves.

    Where an engine with pages reserves more than a sequence needs, both stand in a table of their own.

    Args:
        rows: one a model.
        inputs: what was asked.
        remarks: to be said beside it.
        contexts: those asked; None for each model's own default.
        curves: of the same models.
    """
    more = any(row.reserved_bytes != row.cache_bytes for row in rows)
    model: list[Column] = [("model", lambda row: row.model)]
    groups = [_architecture(rows), *([] if more else _caches(rows, contexts)), _weights(inputs)]
    tables = [_table(rows, model, groups, left=(0, 1))]
    if more:
        page: Column = ("page\ntokens", lambda row: count(row.page_tokens))
        title = "cache of a sequence, and what an engine with pages reserves for it"
        tables.append(_table(rows, [*model, page], _caches(rows, contexts, reserved=True), title=title))
    return Document(
        command="kv",
        inputs=inputs,
        result=KvResult(list(rows)),
        records=rows,
        tables=tuple(tables),
        remarks=remarks + Remarks(notes=_no_chart(curves)),
        charts=_charts(curves),
    )


def _drawable(curves: KvCurves | None) -> list[KvCurve]:
    """Curves with a line to draw."""
    return [curve for curve in (curves.curves if curves else ()) if curve.keeps]


def _charts(curves: KvCurves | None) -> tuple[Chart, ...]:
    """The chart of curves; none of more models than it tells apart, or where no layer keeps anything."""
    if curves is None or not 0 < len(_drawable(curves)) <= MOST_CURVES:
        return ()
    kept = replace(curves, curves=_drawable(curves))
    return (Chart("kv", kept, curves_say(kept)),)


def _no_chart(curves: KvCurves | None) -> tuple[str, ...]:
    """Why many curves have no chart."""
    count = len(_drawable(curves))
    return (f"no chart of cache against context: {many_models(count)}",) if count > MOST_CURVES else ()


def curves_say(curves: KvCurves) -> str:
    """The main numbers of curves, in a sentence a model.

    >>> from roofcast.calculators.kv_curves import KvCurve, KvCurves
    >>> curves_say(KvCurves([KvCurve("m", "MHA", "bf16", [1024, 4096], [2**29, 2**31], 2**31, 4096, 4096)]))
    'KV cache of one sequence: m (MHA) 0.50 GiB at 1k to 2.00 GiB at 4k tokens, weights 2.00 GiB, which it reaches at 4,096.'
    """
    said = "; ".join(_curve_says(curve) for curve in curves.curves)
    memory = ""
    if curves.whole_memory:
        on = f"{curves.gpus} x {curves.gpu}" if curves.gpus > 1 else f"one {curves.gpu}"
        memory = f" Memory of {on}: {sized(curves.whole_memory)}."
    return f"KV cache of one sequence: {said}.{memory}"


def _curve_says(curve: KvCurve) -> str:
    first, last = curve.contexts[0], curve.contexts[-1]
    least, most = curve.cache_bytes[0], curve.cache_bytes[-1]
    grown = (
        f"{sized(most)} at any context"
        if least == most
        else f"{sized(least)} at {context_name(first)} to {sized(most)} at {context_name(last)} tokens"
    )
    weights = "" if curve.weight_bytes is None else f", weights {sized(curve.weight_bytes)}"
    equal = "" if curve.equal_context is None else f", which it reaches at {curve.equal_context:,}"
    return f"{curve.model} ({curve.attention}) {grown}{weights}{equal}"


def sized(size: float) -> str:
    """A size in GiB, or MiB where it is small.

    >>> sized(2**34), sized(36 * 2**20)
    ('16.0 GiB', '36.0 MiB')
    """
    return f"{figures(size / GIB)} GiB" if size >= GIB / 2 else f"{figures(size / MIB)} MiB"


def many_models(count: int) -> str:
    """Why there is no chart of many models."""
    return f"a chart tells {MOST_CURVES} models apart and not {count}; give fewer"


def _table(
    rows: Sequence[KvModel],
    first: Sequence[Column],
    groups: Sequence[Sequence[Column]],
    title: str = "",
    left: Sequence[int] = (0,),
) -> Table:
    """A table that may be broken between groups of columns."""
    columns = [*first, *(column for group in groups for column in group)]
    starts = [len(first) + sum(map(len, groups[:number])) for number in range(1, len(groups))]
    cells = [[cell(row) for _, cell in columns] for row in rows]
    return table([heading for heading, _ in columns], cells, title=title, left=left, breaks=starts)


def _architecture(rows: Sequence[KvModel]) -> list[Column]:
    """Kind and heads, and the three numbers of state as far as some model has them."""
    columns: list[Column] = [
        ("attn", lambda row: row.attention),
        ("L", lambda row: str(row.layers)),
        ("q/kv", lambda row: heads(row.query_heads, row.kv_heads)),
        ("KiB/\ntoken", lambda row: fixed(row.kv_bytes_per_token / KIB, 1)),
    ]
    if any(row.window_bytes for row in rows):
        columns.append(("window\nMiB", lambda row: _mib(row.window_bytes)))
    if any(row.state_bytes for row in rows):
        columns.append(("state\nMiB", lambda row: _mib(row.state_bytes)))
    return columns


def _weights(inputs: Mapping[str, Any]) -> list[Column]:
    return [
        (
            f"weights\nGiB\n({inputs['weights'] or 'stored'})",
            lambda row: _gib(row.weight_bytes, 1 if (row.weight_bytes or 0) >= GIB else 2),
        ),
        ("params", lambda row: billions(row.parameters)),
    ]


def _caches(rows: Sequence[KvModel], contexts: Sequence[int] | None, *, reserved: bool = False) -> list[list[Column]]:
    """The cache at each context asked, else at those of the default that some model reaches, and at its maximum."""
    below = {int(context) for row in rows for context in row.cache_bytes if int(context) != row.max_context}
    asked = dict.fromkeys(contexts) if contexts else sorted(below)
    groups = [_at(context_name(context), context, reserved=reserved) for context in asked]
    if contexts:
        return groups
    most: Column = ("max\nctx", lambda row: NOTHING if row.max_context is None else context_name(row.max_context))
    return [*groups, [most, *_at("max", None, reserved=reserved)]]


def _at(name: str, context: int | None, *, reserved: bool) -> list[Column]:
    """What a sequence keeps at a context, None at each model's maximum, and, where asked for, what is reserved for it."""

    def size(row: KvModel, sizes: Mapping[str, float]) -> str:
        return _gib(sizes.get(str(row.max_context if context is None else context)), 2)

    kept: Column = (f"GiB\n@{name}", lambda row: size(row, row.cache_bytes))
    pages: Column = (f"reserved\nGiB\n@{name}", lambda row: size(row, row.reserved_bytes))
    return [kept, pages] if reserved else [kept]


def heads(query: int | None, kv: int | None) -> str:
    """Query and KV heads, a dash where there are none.

    >>> heads(32, 8), heads(16, 0), heads(None, None)
    ('32/8', '16/-', '-')
    """
    return f"{query}/{kv or NOTHING}" if query else NOTHING


def _mib(size: float) -> str:
    return fixed(size / MIB, 1) if size else NOTHING


def _gib(size: float | None, digits: int) -> str:
    return NOTHING if size is None else fixed(size / GIB, digits)
