"""`roofcast kv`."""

from __future__ import annotations

import typer

from roofcast.cli import options
from roofcast.cli.session import (
    Lookup,
    Output,
    attempt,
    check_output,
    explain_or,
    formats,
    load,
    load_all,
    present,
    worst,
)


def kv(
    models: options.Models = None,
    context: options.Contexts = None,
    weights: options.Weights = None,
    kv: options.Kv = None,
    engine: options.CacheEngine = "none",
    mtp: options.Mtp = False,
    encoder_tokens: options.EncoderTokens = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """KV cache and weights: one row a model."""
    explain_or(explain, models)
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.cache_format import DEFAULT, cache_format, check_engine
    from roofcast.calculators.kv import KvModel, cache_note, kv_model, table_notes
    from roofcast.reports.kv import kv_document

    output = Output(format, out, strict)
    check_output(output, models or [])
    check_engine(engine)
    contexts, lookup = (
        options.token_list(context),
        Lookup(revision, offline, mtp, options.encoder_count(encoder_tokens)),
    )
    weight_format, asked_kv = formats(weights, kv)
    rows: list[KvModel] = []
    remarks: list[Remarks] = []

    def answer(name: str) -> None:
        model = load(name, lookup)
        kv_format, of_cache = cache_format(model, asked_kv, engine)
        row, said = kv_model(model, weights=weight_format, kv=kv_format, contexts=contexts)
        rows.append(row)
        remarks.append(said + of_cache)

    code = load_all(models or [], answer)
    if rows:
        followed = engine != "none" and asked_kv is None
        remarks = [cache_note(rows, f"--engine {engine}" if followed else "--kv"), *remarks, table_notes(rows)]
        inputs = {
            "models": list(models or []),
            "weights": weights,
            "kv": asked_kv.name if asked_kv else None if followed else DEFAULT,
            "engine": engine,
            "contexts": contexts,
            **lookup.asked,
        }
        document = kv_document(rows, inputs, sum(remarks, Remarks()), contexts=contexts)
        code = worst(code, attempt(lambda: present(document, output)))
    raise typer.Exit(code)
