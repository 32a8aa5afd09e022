"""`kv` as a document: one row a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roofcast.calculators.kv import KvModel, KvResult
from roofcast.reports.document import Document, table
from roofcast.reports.numbers import GIB, KIB, NOTHING, billions, context_name, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.answer import Remarks


def kv_document(
    rows: Sequence[KvModel], inputs: Mapping[str, Any], remarks: Remarks, *, contexts: Sequence[int] | None
) -> Document:
    """The table of `kv`; `contexts` are those asked, None for each model's own default."""
    windows = any(row.window_bytes for row in rows)
    header = ["model", "attn", "L", "q/kv", "KiB/\ntoken"]
    header += ["window\nMiB"] if windows else []
    shown = list(dict.fromkeys(contexts)) if contexts else _common(rows)
    header += [f"GiB\n@{context_name(context)}" for context in shown]
    header += [] if contexts else ["max\nctx", "GiB\n@max"]
    header += [f"weights\nGiB\n({inputs['weights'] or 'stored'})", "params"]
    cells = [_cells(row, shown, windows=windows, own_maximum=not contexts) for row in rows]
    return Document(
        command="kv",
        inputs=inputs,
        result=KvResult(list(rows)),
        records=rows,
        tables=(table(header, cells, left=(0, 1)),),
        remarks=remarks,
    )


def _common(rows: Sequence[KvModel]) -> list[int]:
    """Contexts of the default that some model reaches below its maximum."""
    below = {int(context) for row in rows for context in row.cache_bytes if int(context) != row.max_context}
    return sorted(below)


def _cells(row: KvModel, contexts: Sequence[int], *, windows: bool, own_maximum: bool) -> list[str]:
    cells = [row.model, row.attention, str(row.layers), f"{row.query_heads}/{row.kv_heads}"]
    cells.append(fixed(row.kv_bytes_per_token / KIB, 1))
    if windows:
        cells.append(fixed(row.window_bytes / 2**20, 1) if row.window_bytes else NOTHING)
    cells += [_gib(row, context) for context in contexts]
    if own_maximum:
        cells += [_tokens(row.max_context), _gib(row, row.max_context)]
    weights = None if row.weight_bytes is None else row.weight_bytes / GIB
    return [*cells, fixed(weights, 1), billions(row.parameters)]


def _tokens(count: int | None) -> str:
    return NOTHING if count is None else context_name(count)


def _gib(row: KvModel, context: int | None) -> str:
    size = row.cache_bytes.get(str(context))
    return NOTHING if size is None else fixed(size / GIB, 2)
