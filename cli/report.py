"""`roofcast report`."""

from __future__ import annotations

from typing import Annotated

import typer

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.engine_flags import with_engine_flags
from roofcast.cli.session import Lookup, Output, chart_suffix, check_output, explain_or, present


@with_engine_flags
def report(
    model: options.OneModel = None,
    gpu: options.Gpu = None,
    gpus: options.GpuCount = None,
    tp: options.Tp = None,
    pp: options.Pp = 1,
    ep: options.Ep = 1,
    dp: options.Dp = 1,
    network: options.Network = None,
    engine: options.FitEngine = "none",
    context: options.OneContext = None,
    prompt: options.Prompt = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="N", help="Tokens that a request gets, for costs (default: 256).")
    ] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="N,...", help="Sequences at once (default: 1 to all that fit).")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            "--rate",
            metavar="R",
            help="Requests a second, 12.5 or 700/min, of which the cheapest deployment is looked for (default: 80 % of what "
            "this one does, where something is promised).",
        ),
    ] = None,
    ttft: options.Ttft = None,
    tpot: options.Tpot = None,
    other_gpus: Annotated[
        str | None,
        typer.Option("--other-gpus", metavar="NAME,...", help="GPUs beside it (default: h100, h200, b200), or none."),
    ] = None,
    other_models: Annotated[
        str | None,
        typer.Option(
            "--other-models",
            metavar="MODEL,...",
            help="Models whose cache stands beside (default: one each of MHA, GQA and MLA), or none.",
        ),
    ] = None,
    measured: Annotated[
        list[str] | None,
        typer.Option(
            "--measured",
            metavar="FILE",
            help="Measurements as `validate` reads them (default: published figures of the GPU); may be given again.",
        ),
    ] = None,
    gpu_price: options.GpuPrice = None,
    api: options.Apis = None,
    charts: Annotated[
        str | None, typer.Option("--charts", metavar="FOLDER", help="Write each chart into FOLDER, as PNG and SVG.")
    ] = None,
    weights: options.Weights = None,
    kv: options.Kv = None,
    efficiency: options.EfficiencyName = "expected",
    encoder_tokens: options.EncoderTokens = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
    **flags: object,
) -> None:
    """All of it on one page: --out report.html.

    The verdict, what fits, how fast at which load, the roofline, levers, costs, and how far predictions are off; with
    charts and the formula behind each number. Markdown for pull requests with --out report.md.
    """
    explain_or(explain, model)
    from roofcast.cli.asked_deployment import AskedDeployment
    from roofcast.cli.deploy import Machine
    from roofcast.cli.report_asked import AskedReport, Beside
    from roofcast.cli.report_charts import check_folder, write_charts
    from roofcast.cli.reporting import reported

    written = Output(format, out, strict)
    if format is None and chart_suffix(out):
        raise UsageError(f"--out {out}: a report has several charts; --charts FOLDER writes each as PNG and SVG")
    beside = Beside(other_gpus, other_models, tuple(measured or ()), gpu_price, api)
    read = [model or "", efficiency, *beside.measured, *beside.model_names()]
    check_output(written, read)
    folder = None if charts is None else check_folder(charts, out, read)
    lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
    machine = Machine(gpu, gpus, tp, pp, ep, dp, network, engine or "none")
    deployed = AskedDeployment(model or "", machine, flags, weights, kv, efficiency, lookup)
    asked = AskedReport(deployed, context, prompt, output, batch, ttft, tpot, beside, rate)
    document = reported(asked)
    if folder is not None:
        document = write_charts(document, folder, written)
    present(document, written)
