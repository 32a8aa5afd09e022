"""`roofcast kv`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli import options
from roofcast.cli.session import (
    Lookup,
    Output,
    attempt,
    chart_ending,
    check_output,
    explain_or,
    formats,
    load,
    load_all,
    pictured,
    present,
    present_chart,
    worst,
)

if TYPE_CHECKING:
    from roofcast.calculators.kv_curves import KvCurve
    from roofcast.reports.document import Document


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
    """KV cache and weights: one row a model.

    The chart of cache against context with --out x.png or x.svg.
    """
    explain_or(explain, models)
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.cache_format import DEFAULT, cache_format, check_engine
    from roofcast.calculators.kv import KvModel, cache_note, kv_model, table_notes
    from roofcast.calculators.kv_curves import KvCurves, kv_curve
    from roofcast.reports.kv import kv_document

    output, chart = Output(format, out, strict), _chart(out, format, models or [])
    check_output(output, models or [], chart=bool(chart))
    check_engine(engine)
    contexts = options.token_list(context)
    lookup = Lookup(revision, offline, mtp, options.encoder_count(encoder_tokens))
    weight_format, asked_kv = formats(weights, kv)
    rows: list[KvModel] = []
    remarks: list[Remarks] = []
    curves: list[KvCurve] = []

    def answer(name: str) -> None:
        model = load(name, lookup)
        kv_format, of_cache = cache_format(model, asked_kv, engine)
        row, said = kv_model(model, weights=weight_format, kv=kv_format, contexts=contexts)
        rows.append(row)
        remarks.append(said + of_cache)
        if pictured(out, format):
            curves.append(kv_curve(model, weights=weight_format, kv=kv_format))

    code = load_all(models or [], answer)
    if rows:
        followed = engine != "none" and asked_kv is None
        remarks = [cache_note(rows, f"--engine {engine}" if followed else "--kv"), *remarks, table_notes(rows)]
        cache = asked_kv.name if asked_kv else None if followed else DEFAULT
        names = ("models", "weights", "kv", "engine", "contexts")
        inputs = dict(zip(names, (list(models or []), weights, cache, engine, contexts), strict=True)) | lookup.asked
        said, drawn = sum(remarks, Remarks()), KvCurves(curves) if curves else None
        document = kv_document(rows, inputs, said, contexts=contexts, curves=drawn)
        code = worst(code, attempt(lambda: _present(document, output, chart)))
    raise typer.Exit(code)


def _chart(out: str | None, format: str | None, models: list[str]) -> str | None:
    """The ending of an image file; None where none is asked for.

    Raises:
        UsageError: more models than a chart tells apart.
    """
    from roofcast.reports.kv import MOST_CURVES, many_models

    ending = chart_ending(out, format)
    if ending and len(models) > MOST_CURVES:
        raise UsageError(f"--out {out}: {many_models(len(models))}")
    return ending


def _present(document: Document, output: Output, chart: str | None) -> None:
    """The chart with the table on stdout, or the table in a format.

    Raises:
        UnansweredError: a chart is asked for, and there is nothing to draw.
    """
    if chart is None:
        present(document, output)
    elif not document.charts:
        raise UnansweredError(
            f"--out {output.out}: no layer keeps anything of a sequence, so there is no curve to draw"
        )
    else:
        present_chart(document, output, chart)
