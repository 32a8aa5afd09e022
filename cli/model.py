"""`roofcast model`."""

from __future__ import annotations

from typing import Annotated

import typer

from roofcast.cli import options
from roofcast.cli.session import Lookup, Output, check_output, emit, explain_or, formats, load, present


def model(
    model: options.OneModel = None,
    context: options.Contexts = None,
    batch: options.Batches = "1,16,64",
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
    list_names: Annotated[bool, typer.Option("--list", help="Print the names of the catalogue and stop.")] = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """Architecture facts with their provenance.

    Also the layer map and the parameters by component.
    """
    if list_names:
        from roofcast.modelspec.known import known_names

        emit("\n".join(known_names()) + "\n")
        return
    explain_or(explain, model)
    from roofcast.calculators.cache_format import cache_format, check_engine
    from roofcast.calculators.describe import describe
    from roofcast.reports.model import model_document

    output = Output(format, out, strict)
    check_output(output, [model or ""])
    check_engine(engine)
    contexts, batches = options.token_list(context), options.token_list(batch, "--batch")
    lookup = Lookup(revision, offline, mtp, options.encoder_count(encoder_tokens), thorough=True)
    weight_format, asked_kv = formats(weights, kv)
    loaded = load(model or "", lookup)
    kv_format, of_cache = cache_format(loaded, asked_kv, engine)
    result, remarks = describe(
        loaded, weights=weight_format, kv=kv_format, contexts=contexts, batches=tuple(dict.fromkeys(batches or ()))
    )
    inputs = {
        "model": model,
        "weights": weights,
        "kv": kv_format.name,
        "engine": engine,
        "contexts": contexts,
        "batches": batches,
        **lookup.asked,
    }
    present(model_document(result, inputs, remarks + of_cache), output)
