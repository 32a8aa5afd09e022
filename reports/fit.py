"""`fit` as a document: verdict, memory term by term, sequences at each context, and a chart of the memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks
from roofcast.hwdb.units import show_percent
from roofcast.reports.charts import Chart
from roofcast.reports.data import as_data
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.fit_engine import engine_lines, engine_tables, log_notes, more_tables
from roofcast.reports.numbers import GIB, billions, context_name, count, figures, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.fit import FitContext, FitResult

GB = 1e9
STATES: Final = frozenset({"state", "states"})  # terms of llama.cpp and SGLang
OF_ENGINE: Final = ("engine", "engine_version", "kv_tokens", "blocks", "max_concurrency")  # of every row of CSV


def fit_document(result: FitResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `fit`."""
    crossover = _crossover(result)
    served = result.engine != "none"
    lines = engine_lines(result, inputs) if served else _lines(result, inputs)
    first = engine_tables(result) if served else [_memory(result, inputs)]
    of_engine = {name: getattr(result, name) for name in OF_ENGINE if served}
    notes = (*log_notes(result.log), *((crossover,) if crossover else ()))
    drawn = one_replica(result, inputs.get("dp") or 1)
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
        charts=(Chart("memory", drawn, memory_says(drawn)),),
    )


def one_replica(result: FitResult, replicas: int) -> FitResult:
    """What one of several replicas answers, whose devices hold its sequences alone: the memory of a device is of these."""
    if replicas == 1:
        return result
    rows = [replace(row, max_sequences=row.max_sequences // replicas) for row in result.contexts]
    version = f"{result.engine_version or ''}, one of {replicas} replicas"
    return replace(result, contexts=rows, engine_version=version)


def cache_of(result: FitResult) -> float:
    """What sequences may take of one device, fixed states that an engine counts apart among it; below zero without room. [B]"""
    return result.memory.kv_bytes + _states(result)


def engine_of(result: FitResult) -> float:
    """What an engine and CUDA take of one device, without states of sequences. [B]"""
    return result.memory.overhead_bytes - _states(result)


def _states(result: FitResult) -> float:
    return sum(term.bytes for term in result.terms if term.name in STATES)


def memory_says(result: FitResult) -> str:
    """The main numbers of one device's memory, in a sentence."""
    memory = result.memory
    sizes = {
        "weights": memory.weight_bytes,
        "activations": memory.activation_bytes,
        "engine": engine_of(result),
        "KV cache": max(0.0, cache_of(result)),
    }
    parts = ", ".join(f"{name} {figures(size / GIB)} GiB" for name, size in sizes.items() if size or name == "KV cache")
    of = "" if result.gpus == 1 else f" of {result.gpus}"
    fits = "fits" if result.fits else "does not fit"
    return (
        f"Memory of one {result.gpu}{of}, {figures(memory.total_bytes / GIB)} GiB: {parts}. "
        f"{result.model} {fits}: {verdict_of(result)}."
    )


def verdict_of(result: FitResult) -> str:
    """How many sequences run at once, or what does not fit, in a few words."""
    rows, memory = result.contexts, result.memory
    if result.fits:
        ends = [rows[0], *rows[1:][-1:]]
        said = " or ".join(f"{count(row.max_sequences)} of {context_name(row.context)}" for row in ends)
        return f"{said} tokens at once"
    if cache_of(result) <= 0:
        return f"weights {figures(memory.weight_bytes / GIB)} GiB, budget {figures(memory.budget_bytes / GIB)} GiB"
    short = next(row for row in rows if row.max_sequences < 1)
    if short.kv_bytes_per_sequence <= cache_of(result):
        return result.reason or ""
    return (
        f"a sequence of {context_name(short.context)} takes {figures(short.kv_bytes_per_sequence / GIB)} GiB, "
        f"{figures(cache_of(result) / GIB)} GiB are left for the cache"
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
