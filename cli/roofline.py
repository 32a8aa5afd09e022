"""`roofcast roofline`."""

from __future__ import annotations

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.deploy import Machine, Points, asked_inputs, deploy, phases_of
from roofcast.cli.session import Lookup, Output, chart_ending, check_output, explain_or, show


def roofline(
    model: options.OneModel = None,
    gpu: options.Gpu = None,
    gpus: options.GpuCount = None,
    tp: options.Tp = None,
    pp: options.Pp = 1,
    ep: options.Ep = 1,
    dp: options.Dp = 1,
    network: options.Network = None,
    engine: options.AnyEngine = "none",
    phase: options.PhaseName = None,
    batch: options.StepBatches = None,
    context: options.Contexts = None,
    prompt: options.Prompts = None,
    max_num_batched_tokens: options.Budget = None,
    prefix_hit: options.PrefixHit = "0%",
    weights: options.Weights = None,
    kv: options.Kv = None,
    encoder_tokens: options.EncoderTokens = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """FLOP a byte against the device's roofs.

    A row a phase, batch and context; the chart with --out x.png or x.svg.
    """
    explain_or(explain, model)
    from roofcast.calculators.roofline_table import roofline_result
    from roofcast.reports.chart import MOST_CONTEXTS
    from roofcast.reports.roofline import roofline_document

    output, chart = Output(format, out, strict), chart_ending(out, format)
    check_output(output, [model or ""], chart=bool(chart))
    phases, points = phases_of(phase), Points(batch, context, prompt, max_num_batched_tokens, prefix_hit)
    points.check()
    lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
    made = deploy(model or "", lookup, Machine(gpu, gpus, tp, pp, ep, dp, network, engine), weights, kv)
    wanted = points.asked(phases, made.ready.model)
    if chart and (several := len({asked.context for asked in wanted})) > MOST_CONTEXTS:
        raise UsageError(f"--out {out}: a chart tells {MOST_CONTEXTS} contexts apart and not {several}; give fewer")
    result, said = roofline_result(made.ready, wanted)
    inputs = {**made.inputs, **asked_inputs(wanted), **points.inputs}
    document = roofline_document(result, inputs, said + made.remarks)
    show(document, output, chart)
