"""`roofcast simulate`."""

from __future__ import annotations

from typing import Annotated

import typer

from roofcast.cli import loading, options
from roofcast.cli.engine_flags import with_engine_flags
from roofcast.cli.session import Lookup, Output, chart_ending, check_output, explain_or, show
from roofcast.cli.speculation import DraftCost

#: terms that other commands explain otherwise
SIMULATED = dict.fromkeys(("ttft", "tpot", "ttft_seconds", "tpot_seconds"), "simulated_times")


@with_engine_flags
def simulate(
    model: options.OneModel = None,
    gpu: options.Gpu = None,
    gpus: options.GpuCount = None,
    tp: options.Tp = None,
    pp: options.Pp = 1,
    ep: options.Ep = 1,
    dp: options.Dp = 1,
    network: options.Network = None,
    engine: options.FitEngine = "none",
    trace: loading.TraceFile = None,
    rate: loading.Rate = None,
    scale: loading.Scale = None,
    concurrency: loading.Concurrency = None,
    requests: loading.Requests = None,
    prompt: loading.PromptLengths = None,
    output: loading.OutputLengths = None,
    lengths: loading.Lengths = None,
    burstiness: loading.Burstiness = None,
    shared_prefix: loading.SharedPrefix = None,
    prefix_groups: loading.PrefixGroups = None,
    hash_tokens: loading.HashTokens = None,
    stagger: loading.Stagger = None,
    warm_up: loading.WarmUp = None,
    seed: loading.Seed = 0,
    ttft: options.Ttft = None,
    tpot: options.Tpot = None,
    itl: options.Itl = None,
    percentile: options.Percentile = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="POLICY",
            help="static, continuous, chunked, prefill-first or decode-first (default: the engine's).",
        ),
    ] = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="ORDER", help="fifo, or prefix: longest known prefix first.")
    ] = None,
    routing: Annotated[
        str | None,
        typer.Option(
            "--routing", metavar="ROUTE", help="Among replicas: round-robin or least-loaded (default: round-robin)."
        ),
    ] = None,
    prefill_replicas: Annotated[
        int | None,
        typer.Option(
            "--prefill-replicas", metavar="N", help="Replicas that only read prompts, each of the layout given."
        ),
    ] = None,
    decode_replicas: Annotated[
        int | None, typer.Option("--decode-replicas", metavar="N", help="Replicas that only decode what they are sent.")
    ] = None,
    kv_link: Annotated[
        str | None,
        typer.Option("--kv-link", metavar="RATE", help="Between the two, one direction, such as '400 Gbit/s'."),
    ] = None,
    kv_memory: Annotated[
        str | None,
        typer.Option(
            "--kv-memory",
            metavar="KIND",
            help="paged, or contiguous up to max (the longest), pow2 or oracle (default: paged).",
        ),
    ] = None,
    preemption: Annotated[
        str | None,
        typer.Option("--preemption", metavar="HOW", help="Where memory runs out: recompute (default) or swap."),
    ] = None,
    host_link: Annotated[
        str | None, typer.Option("--host-link", metavar="RATE", help="To the host's memory, for swap, such as 50GB/s.")
    ] = None,
    prefix_cache: Annotated[
        str | None,
        typer.Option(
            "--prefix-cache",
            metavar="KIND",
            help="off, blocks (hashed) or radix (default: blocks where it is known what prompts share).",
        ),
    ] = None,
    prefix_memory: Annotated[
        str | None,
        typer.Option(
            "--prefix-memory", metavar="WHERE", help="shared with requests (default), or unlimited and beside it."
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            "--acceptance", metavar="A", help="Chance that a drafted token is accepted; with --num-speculative-tokens."
        ),
    ] = None,
    draft_cost: DraftCost = None,
    samples: Annotated[
        int | None, typer.Option("--samples", metavar="N", help="Outputs of each request, which share its prompt.")
    ] = None,
    beams: Annotated[
        int | None, typer.Option("--beams", metavar="N", help="Width of a beam search for each request.")
    ] = None,
    series: Annotated[
        str | None, typer.Option("--series", metavar="FILE.csv", help="Write what went on over time, as CSV.")
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
    """Many requests through a server: TTFT and TPOT percentiles.

    A trace, a rate or waiting clients, step by step through paging, prefix cache and a scheduling policy: percentiles,
    goodput under a promise, how full the memory is. Charts with --out x.png, x.svg or x.html.
    """
    explain_or(SIMULATED.get(explain or "", explain), model)
    from roofcast.cli.asked_deployment import AskedDeployment
    from roofcast.cli.deploy import Machine
    from roofcast.cli.simulating import AskedGoal, AskedScheduling, AskedSimulate, check_series, simulated, write_series

    written, chart = Output(format, out, strict), chart_ending(out, format)
    read = [name for name in (model, efficiency, trace, lengths) if name]
    check_output(written, read, chart=bool(chart))
    check_series(series, out, read)
    lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
    machine = Machine(gpu, gpus, tp, pp, ep, dp, network, engine or "none")
    asked = AskedSimulate(
        AskedDeployment(model or "", machine, flags, weights, kv, efficiency, lookup),
        loading.AskedLoad(
            trace, rate, scale, requests, concurrency, prompt, output, lengths, burstiness, shared_prefix, prefix_groups,
            hash_tokens, stagger, warm_up, seed,
        ),
        AskedScheduling(
            policy, order, routing, prefill_replicas, decode_replicas, kv_link, kv_memory, preemption, host_link,
            prefix_cache, prefix_memory, acceptance, draft_cost, samples, beams,
        ),
        AskedGoal(ttft, tpot, itl, percentile),
    )  # fmt: skip
    document = simulated(asked)
    write_series(document, series, written)
    show(document, written, chart)
