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
    kv: options.Kv = "bf16",
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
    from roofcast.calculators.kv import KvModel, kv_model, table_notes
    from roofcast.reports.kv import kv_document

    output = Output(format, out, strict)
    check_output(output, models or [])
    contexts, lookup = (
        options.token_list(context),
        Lookup(revision, offline, mtp, options.encoder_count(encoder_tokens)),
    )
    weight_format, kv_format = formats(weights, kv)
    rows: list[KvModel] = []
    remarks = [Remarks(notes=(f"KV cache in {kv_format.name} (--kv)",))]

    def answer(name: str) -> None:
        model = load(name, lookup)
        row, said = kv_model(model, weights=weight_format, kv=kv_format, contexts=contexts)
        rows.append(row)
        remarks.append(said)

    code = load_all(models or [], answer)
    if rows:
        remarks.append(table_notes(rows))
        inputs = {
            "models": list(models or []),
            "weights": weights,
            "kv": kv_format.name,
            "contexts": contexts,
            **lookup.asked,
        }
        document = kv_document(rows, inputs, sum(remarks, Remarks()), contexts=contexts)
        code = worst(code, attempt(lambda: present(document, output)))
    raise typer.Exit(code)
