"""`roofcast estimate`."""

from __future__ import annotations

from roofcast.cli import options
from roofcast.cli.deploy import Machine, Points, asked_inputs, deploy, efficiency_of, expecting, phases_of
from roofcast.cli.session import Lookup, Output, check_output, explain_or, present


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
    fitted to measurements.
    """
    explain_or(explain, model)
    from roofcast.calculators.estimate import estimate_result
    from roofcast.reports.estimate import estimate_document

    output = Output(format, out, strict)
    check_output(output, [model or ""])
    constants = efficiency_of(efficiency)
    phases, points = phases_of(phase), Points(batch, context, prompt, max_num_batched_tokens, prefix_hit)
    points.check()
    lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
    machine = Machine(gpu, gpus, tp, pp, ep, dp, network, engine)
    made = expecting(deploy(model or "", lookup, machine, weights, kv), constants)
    wanted = points.asked(phases, made.ready.model)
    result, said = estimate_result(made.ready, wanted)
    inputs = {**made.inputs, **asked_inputs(wanted), **points.inputs, "efficiency": efficiency}
    present(estimate_document(result, inputs, said + made.remarks), output)
