"""`roofcast estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.calculators.errors import UsageError
from roofcast.cli import options
from roofcast.cli.deploy import Machine, Points, asked_inputs, deploy, efficiency_of, expecting, phases_of
from roofcast.cli.session import (
    Lookup,
    Output,
    chart_ending,
    check_output,
    explain_or,
    pictured,
    show,
)

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Asked
    from roofcast.calculators.sweep import Sweep


def estimate(
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
    efficiency: options.EfficiencyName = "expected",
    encoder_tokens: options.EncoderTokens = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """TTFT, TPOT and tokens/s: bound, expected, interval.

    The least time of prefill and decode, term by term, and what bounds each; and the time to expect, with constants
    fitted to measurements. The chart of decode over batches with --out x.png or x.svg.
    """
    explain_or(explain, model)
    from roofcast.calculators.estimate import estimate_result
    from roofcast.modelspec.step import DECODE
    from roofcast.reports.estimate import estimate_document

    output, chart = Output(format, out, strict), chart_ending(out, format)
    check_output(output, [model or "", efficiency], chart=bool(chart))
    constants = efficiency_of(efficiency)
    phases, points = phases_of(phase), Points(batch, context, prompt, max_num_batched_tokens, prefix_hit)
    if chart and DECODE not in phases:
        raise UsageError(f"--out {out}: the chart is of decode; leave --phase {phase} out")
    points.check()
    lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
    machine = Machine(gpu, gpus, tp, pp, ep, dp, network, engine)
    made = expecting(deploy(model or "", lookup, machine, weights, kv), constants)
    wanted = points.asked(phases, made.ready.model)
    result, said = estimate_result(made.ready, wanted)
    inputs = {**made.inputs, **asked_inputs(wanted), **points.inputs, "efficiency": efficiency}
    swept = _swept(made.ready, wanted, batch) if pictured(out, format) else None
    document = estimate_document(result, inputs, said + made.remarks, swept)
    show(document, output, chart)


def _swept(ready: Ready, wanted: list[Asked], batch: str | None) -> Sweep | None:
    """Decode at the first context over the batches asked, up to the one that is, or to the most that fit; None without decode."""
    from roofcast.calculators.phases import most_sequences
    from roofcast.calculators.sweep import sweep, sweep_batches
    from roofcast.modelspec.step import DECODE

    first = next((asked for asked in wanted if asked.phase == DECODE), None)
    if first is None:
        return None
    asked = list(dict.fromkeys(options.batch_list(batch) or []))
    if len(asked) < 2:  # noqa: PLR2004
        most = asked or [most_sequences(ready, first.context), options.MOST, *([first.budget] if first.budget else [])]
        asked = sweep_batches(min(most))
    return sweep(ready, first.context, asked)
