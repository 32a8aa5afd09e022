"""`roofcast plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from roofcast.cli import loading, options
from roofcast.cli.engine_flags import with_engine_flags
from roofcast.cli.session import Lookup, Output, chart_ending, check_output, explain_or, show


@with_engine_flags
def plan(
    model: options.OneModel = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME,...", help="GPUs that are looked at (default: all whose price is known)."),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="With --find: GPUs that there are (default: 1).")
    ] = None,
    max_gpus: Annotated[
        int | None, typer.Option("--max-gpus", metavar="N", help="GPUs of a deployment at most (default: 64).")
    ] = None,
    max_cost: Annotated[
        str | None, typer.Option("--max-cost", metavar="USD", help="US dollars an hour at most, such as 20.")
    ] = None,
    gpu_price: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu-price",
            metavar="USD",
            help="Rent of a GPU an hour: 2.50 for all, or h100=2.50,l4=0.70 (default: known rents, dated).",
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option("--provider", metavar="NAME", help="Whose prices count, such as runpod (default: see docs)."),
    ] = None,
    tp: Annotated[
        str | None,
        typer.Option("--tp", metavar="N,...", help="Tensor-parallel sizes (default: 1,2,4,8 as links allow)."),
    ] = None,
    pp: Annotated[
        str | None,
        typer.Option(
            "--pp", metavar="N,...", help="Pipeline stages (default: 1,2,4 where layers are shared no further)."
        ),
    ] = None,
    ep: Annotated[
        str | None,
        typer.Option("--ep", metavar="N,...", help="GPUs that share experts (default: 1, and all of a layer's)."),
    ] = None,
    network: options.Network = None,
    engine: Annotated[
        str,
        typer.Option("--engine", metavar="ENGINE,...", help="Engines whose memory and scheduling count."),
    ] = "none",
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="FORMAT,...", help="Formats of weights (default: stored,fp8)."),
    ] = None,
    kv: Annotated[
        str | None, typer.Option("--kv", metavar="FORMAT,...", help="Formats of the KV cache (default: auto,fp8).")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "--policy",
            metavar="POLICY,...",
            help="colocated (the engine's own), chunked, disaggregated, or others of simulate (default: these three).",
        ),
    ] = None,
    rate: loading.Rate = None,
    concurrency: loading.Concurrency = None,
    trace: loading.TraceFile = None,
    scale: loading.Scale = None,
    deadline: Annotated[
        str | None,
        typer.Option(
            "--deadline", metavar="TIME", help="A job of --requests N that must be done in that time, such as 8h."
        ),
    ] = None,
    requests: loading.Requests = None,
    prompt: loading.PromptLengths = None,
    output: loading.OutputLengths = None,
    lengths: loading.Lengths = None,
    burstiness: loading.Burstiness = None,
    shared_prefix: loading.SharedPrefix = None,
    prefix_groups: loading.PrefixGroups = None,
    hash_tokens: loading.HashTokens = None,
    stagger: loading.Stagger = None,
    workloads: Annotated[
        str | None,
        typer.Option(
            "--workloads", metavar="FILE", help="YAML: a list of workloads, each {name: ..., rate: ..., ttft: ...}."
        ),
    ] = None,
    seed: loading.Seed = 0,
    ttft: options.Ttft = None,
    tpot: options.Tpot = None,
    itl: options.Itl = None,
    percentile: options.Percentile = None,
    find: Annotated[
        str | None,
        typer.Option(
            "--find",
            metavar="WHAT",
            help="rate or users: the most that --gpus N of --gpu take; context: the longest prompt; gpu: the smallest GPU.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", metavar="N", help="Kinds of GPUs whose cheapest deployment is looked for (default: 3)."),
    ] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", help="Processes (default: one a core).")] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Scheduler of a Dask cluster that does the work instead."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Time to search, such as 30s; what is found until then is shown. '$20': --max-cost.",
        ),
    ] = None,
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
    """The cheapest deployments that meet a workload and its promise.

    GPUs x layouts x engines x formats x policies, pruned by a closed form, confirmed by simulation, ranked by what they
    cost; why the next cheaper one fails, how much headroom is left, and what changes at twice the load. Charts with
    --out x.png, x.svg or x.html.
    """
    explain_or(explain, model)
    from roofcast.cli.asked_deployment import AskedDeployment
    from roofcast.cli.deploy import Machine
    from roofcast.cli.planning import AskedPlan
    from roofcast.cli.planning_asked import AskedChoices, AskedGpus, AskedLimits
    from roofcast.cli.planning_demands import AskedDemand
    from roofcast.cli.planning_run import planned
    from roofcast.cli.simulating import AskedGoal

    written, chart = Output(format, out, strict), chart_ending(out, format)
    check_output(written, [name for name in (model, efficiency, trace, lengths, workloads) if name], chart=bool(chart))
    lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
    machine = Machine(None, None, None, 1, 1, 1, network, engine.split(",")[0].strip())
    asked = AskedPlan(
        AskedDeployment(model or "", machine, flags, None, None, efficiency, lookup),
        AskedGpus(gpu, tuple(gpu_price or ()), provider),
        AskedChoices(tp, pp, ep, engine, weights, kv, policy),
        AskedLimits(max_gpus, max_cost, budget, top),
        AskedDemand(
            loading.AskedLoad(
                trace, rate, scale, requests, concurrency, prompt, output, lengths, burstiness, shared_prefix,
                prefix_groups, hash_tokens, stagger, None, seed,
            ),
            AskedGoal(ttft, tpot, itl, percentile),
            deadline,
        ),
        workloads, jobs, dask, find=find, gpus_there=gpus,
    )  # fmt: skip
    document, interrupted = planned(asked)
    show(document, written, chart)
    if interrupted:
        raise KeyboardInterrupt
