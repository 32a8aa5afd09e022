"""`kv` as a document: one row a model, and what an engine with pages reserves where that is more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofcast.calculators.kv import KvModel, KvResult
from roofcast.reports.document import Document, Table, table
from roofcast.reports.numbers import GIB, KIB, NOTHING, billions, context_name, count, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.answer import Remarks

MIB = 2.0**20


def kv_document(
    rows: Sequence[KvModel], inputs: Mapping[str, Any], remarks: Remarks, *, contexts: Sequence[int] | None
) -> Document:
    """The tables of `kv`; `contexts` are those asked, None for each model's own default."""
    more = any(row.reserved_bytes != row.cache_bytes for row in rows)
    return Document(
        command="kv",
        inputs=inputs,
        result=KvResult(list(rows)),
        records=rows,
        tables=(_ideal(rows, inputs, contexts), *((_reserved(rows, contexts),) if more else ())),
        remarks=remarks,
    )


def _ideal(rows: Sequence[KvModel], inputs: Mapping[str, Any], contexts: Sequence[int] | None) -> Table:
    """Architecture, the three numbers of state, the cache at each context, weights."""
    windows, states = any(row.window_bytes for row in rows), any(row.state_bytes for row in rows)
    header = ["model", "attn", "L", "q/kv", "KiB/\ntoken"]
    header += [*(["window\nMiB"] if windows else []), *(["state\nMiB"] if states else [])]
    header += [*_context_header(rows, contexts), f"weights\nGiB\n({inputs['weights'] or 'stored'})", "params"]
    cells = []
    for row in rows:
        weights = None if row.weight_bytes is None else row.weight_bytes / GIB
        cells.append(
            [
                *(row.model, row.attention, str(row.layers), heads(row.query_heads, row.kv_heads)),
                fixed(row.kv_bytes_per_token / KIB, 1),
                *([_mib(row.window_bytes)] if windows else []),
                *([_mib(row.state_bytes)] if states else []),
                *_at_contexts(row, rows, contexts, row.cache_bytes),
                fixed(weights, 1),
                billions(row.parameters),
            ]
        )
    return table(header, cells, left=(0, 1))


def _reserved(rows: Sequence[KvModel], contexts: Sequence[int] | None) -> Table:
    """What an engine with pages sets aside for the same sequences."""
    header = ["model", "page\ntokens", *_context_header(rows, contexts)]
    cells = [
        [row.model, count(row.page_tokens), *_at_contexts(row, rows, contexts, row.reserved_bytes)] for row in rows
    ]
    return table(header, cells, title="reserved by an engine with pages")


def _context_header(rows: Sequence[KvModel], contexts: Sequence[int] | None) -> list[str]:
    shown = [f"GiB\n@{context_name(context)}" for context in _shown(rows, contexts)]
    return shown if contexts else [*shown, "max\nctx", "GiB\n@max"]


def _at_contexts(
    row: KvModel, rows: Sequence[KvModel], contexts: Sequence[int] | None, sizes: Mapping[str, float]
) -> list[str]:
    cells = [_gib(sizes, context) for context in _shown(rows, contexts)]
    own = [NOTHING if row.max_context is None else context_name(row.max_context), _gib(sizes, row.max_context)]
    return cells if contexts else [*cells, *own]


def _shown(rows: Sequence[KvModel], contexts: Sequence[int] | None) -> list[int]:
    """Contexts asked, else those of the default that some model reaches below its maximum."""
    if contexts:
        return list(dict.fromkeys(contexts))
    return sorted({int(context) for row in rows for context in row.cache_bytes if int(context) != row.max_context})


def heads(query: int | None, kv: int | None) -> str:
    """Query and KV heads, a dash where there are none.

    >>> heads(32, 8), heads(16, 0), heads(None, None)
    ('32/8', '16/-', '-')
    """
    return f"{query}/{kv or NOTHING}" if query else NOTHING


def _mib(size: float) -> str:
    return fixed(size / MIB, 1) if size else NOTHING


def _gib(sizes: Mapping[str, float], context: int | None) -> str:
    size = sizes.get(str(context))
    return NOTHING if size is None else fixed(size / GIB, 2)
