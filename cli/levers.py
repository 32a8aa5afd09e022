"""`roofcast levers`."""

from __future__ import annotations

from roofcast.cli import options
from roofcast.cli.deploy import Machine, deploy, one
from roofcast.cli.machine import find_machines, machine_remarks
from roofcast.cli.session import Lookup, Output, check_output, explain_or, present

DEFAULT_OTHERS = "h100-sxm,h200-sxm,b200"
DEFAULT_CONTEXT = 4096  # tokens
DEFAULT_BATCH = 16


def levers(
    model: options.OneModel = None,
    gpu: options.Gpu = None,
    gpus: options.GpuCount = None,
    tp: options.Tp = None,
    pp: options.Pp = 1,
    ep: options.Ep = 1,
    dp: options.Dp = 1,
    network: options.Network = None,
    engine: options.AnyEngine = "none",
    batch: options.Batch = None,
    context: options.OneContext = None,
    prompt: options.Prompt = None,
    other_gpus: options.Others = None,
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
    """What each technique would change.

    KV and weight formats, batch, tensor parallelism, attention, windows, prefix hits, other GPUs: one row each.
    """
    explain_or(explain, model)
    from roofcast.calculators.levers import levers_result
    from roofcast.calculators.variants import Base
    from roofcast.reports.levers import levers_document

    output = Output(format, out, strict)
    check_output(output, [model or ""])
    sequences, tokens = one(batch, "--batch", DEFAULT_BATCH), one(context, "--context", DEFAULT_CONTEXT)
    asked = one(prompt, "--prompt", tokens)
    matches = find_machines(other_gpus if other_gpus is not None else DEFAULT_OTHERS, "--other-gpus")
    others = list({match.accelerator.id: match.accelerator for match in matches}.values())
    lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
    made = deploy(model or "", lookup, Machine(gpu, gpus, tp, pp, ep, dp, network, engine), weights, kv)
    own = made.ready.deployment.accelerator.id
    base = Base(made.ready, sequences, tokens, asked, tuple(other for other in others if other.id != own))
    result, said = levers_result(base)
    inputs = {
        **made.inputs,
        "batch": sequences,
        "context": tokens,
        "prompt": asked,
        "other_gpus": [o.id for o in base.others],
    }
    compared = (machine_remarks(match) for match in matches if match.accelerator.id != own)
    present(levers_document(result, inputs, sum(compared, said + made.remarks)), output)
