"""`fit` as a document: verdict, memory term by term, sequences at each context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks
from roofcast.hwdb.units import show_percent
from roofcast.reports.data import as_data
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.fit_engine import engine_lines, engine_tables, log_notes, more_tables
from roofcast.reports.numbers import GIB, billions, count, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.fit import FitContext, FitResult

GB = 1e9
OF_ENGINE: Final = ("engine", "engine_version", "kv_tokens", "blocks", "max_concurrency")  # of every row of CSV


def fit_document(result: FitResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `fit`."""
    crossover = _crossover(result)
    served = result.engine != "none"
    lines = engine_lines(result, inputs) if served else _lines(result, inputs)
    first = engine_tables(result) if served else [_memory(result, inputs)]
    of_engine = {name: getattr(result, name) for name in OF_ENGINE if served}
    notes = (*log_notes(result.log), *((crossover,) if crossover else ()))
    return Document(
        command="fit",
        inputs=inputs,
        result=result,
        records=[
            {
                "model": result.model,
                "gpu": result.gpu,
                "gpus": result.gpus,
                "fits": result.fits,
                **of_engine,
                **as_data(row),
            }
            for row in result.contexts
        ],
        lines=tuple(map(plain, lines)),
        tables=(*first, _contexts(result), *more_tables(result)),
        remarks=remarks + Remarks(notes=notes),
    )


def _lines(result: FitResult, inputs: Mapping[str, Any]) -> list[str]:
    on = result.gpu if result.gpus == 1 else f"{result.gpus} x {result.gpu}"
    verdict = "fits" if result.fits else f"does not fit: {result.reason}"
    weights, kv = inputs["weights"] or "as stored", inputs["kv"]
    lines = [f"{result.model} on {on}: {verdict}", f"weights {weights}, KV cache {kv}, engine {inputs['engine']}"]
    if result.memory.visible_bytes:
        lines.append(
            f"memory is nominal, as sold: {result.memory.total_bytes / GB:.2f} GB; "
            f"CUDA sees {result.memory.visible_bytes / GIB:.2f} GiB ({result.memory.visible_bytes / GB:.2f} GB)"
        )
    else:
        lines.append(
            f"memory is nominal, as sold: {result.memory.total_bytes / GB:.2f} GB; what CUDA sees is not known"
        )
    return lines


def _memory(result: FitResult, inputs: Mapping[str, Any]) -> Table:
    memory = result.memory
    reserve = memory.total_bytes - memory.budget_bytes
    rows = [
        ("nominal memory", memory.total_bytes, "as sold, from the data sheet"),
        (f"- reserve {show_percent(inputs['reserve'], 1)}", reserve, "--reserve"),
        ("= budget", memory.budget_bytes, ""),
        ("- weights", memory.weight_bytes, result.provenance["weight_bytes"]),
        ("= KV cache", memory.kv_bytes, _kv_tokens(result)),
    ]
    cells = [(name, fixed(size / GB, 1), fixed(size / GIB, 2), note) for name, size, note in rows]
    per = "" if result.gpus == 1 else ", one GPU"
    return table((f"memory{per}", "GB", "GiB", "from"), cells, left=(0, 3))


def _kv_tokens(result: FitResult) -> str:
    return "no growth with tokens" if result.kv_tokens is None else f"{count(result.kv_tokens)} tokens"


def _contexts(result: FitResult) -> Table:
    each = "KV GB/\nsequence" if result.gpus == 1 else "KV GB/\nsequence,\none GPU"
    visible = result.memory.visible_bytes is not None and result.engine == "none"
    header = ["context", each, "sequences", *(["sequences\non visible\nmemory"] if visible else [])]
    header += ["prefill\nTFLOP", "attention\nshare"]
    return table(header, [_cells(row, visible=visible) for row in result.contexts], left=())


def _crossover(result: FitResult) -> str | None:
    if result.crossover_tokens is None:
        return None
    return (
        f"a prompt of {result.crossover_tokens:,} tokens spends as much on attention scores as on the "
        f"{billions(result.non_embedding_parameters)} active non-embedding parameters"
    )


def _cells(row: FitContext, *, visible: bool) -> tuple[str, ...]:
    return (
        count(row.context),
        fixed(row.kv_bytes_per_sequence / GB, 2),
        count(row.max_sequences),
        *([count(row.max_sequences_visible)] if visible else []),
        fixed(row.prefill_flops / 1e12, 1),
        show_percent(row.attention_share),
    )
