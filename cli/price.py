"""`roofcast price`."""

from __future__ import annotations

from typing import Annotated

import typer

from roofcast.cli import options
from roofcast.cli.session import Output, check_output, explain_or, present

HELP_MIX = "Requests PROMPT:OUTPUT, 1000:100x3,100:1000 for a mix with three of the first; may be given again."


def price(
    model: options.OneModel = None,
    gpu: options.Gpu = None,
    gpus: options.GpuCount = None,
    tp: options.Tp = None,
    pp: options.Pp = 1,
    ep: options.Ep = 1,
    dp: options.Dp = 1,
    network: options.Network = None,
    engine: options.AnyEngine = "none",
    batch: options.StepBatches = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="N", help="Tokens of a prompt (default: --context, else 1k).")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", metavar="N", help="Tokens that a request gets (default: 256).")
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            "--context", metavar="N,...", help="Tokens that decode attends to (default: prompt + output / 2)."
        ),
    ] = None,
    mix: Annotated[list[str] | None, typer.Option("--mix", metavar="P:O,...", help=HELP_MIX)] = None,
    max_num_batched_tokens: options.Budget = None,
    prefix_hit: Annotated[
        str | None, typer.Option("--prefix-hit", metavar="SHARE", help="Share of each prompt that a cache holds.")
    ] = None,
    shared_prefix: Annotated[
        str | None,
        typer.Option("--shared-prefix", metavar="N", help="Tokens, from the first on, that prompts have in common."),
    ] = None,
    hit_rate: Annotated[
        str | None, typer.Option("--hit-rate", metavar="SHARE", help="Share of requests that find that prefix cached.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="R", help="Requests a second, 12.5, 700/min or 86400/day.")
    ] = None,
    ratio: Annotated[
        float | None, typer.Option("--ratio", metavar="X", help="Find the load at which output costs X times input.")
    ] = None,
    gpu_price: options.GpuPrice = None,
    gpu_cost: Annotated[
        str | None,
        typer.Option(
            "--gpu-cost", metavar="USD", help="Price of a GPU with its share of the server, instead of a rent."
        ),
    ] = None,
    years: Annotated[
        float | None,
        typer.Option("--years", metavar="N", help="Years that --gpu-cost is written off over (default: 4)."),
    ] = None,
    power_price: Annotated[
        str | None, typer.Option("--power-price", metavar="USD", help="Electricity a kWh, at TDP (default: none).")
    ] = None,
    pue: Annotated[
        float | None, typer.Option("--pue", metavar="X", help="Power of the building over the machine's (default: 1).")
    ] = None,
    utilisation: Annotated[
        str | None,
        typer.Option("--utilisation", "--utilization", metavar="SHARE", help="Share of the hours with that load."),
    ] = None,
    api: options.Apis = None,
    prices: Annotated[
        str | None, typer.Option("--prices", metavar="FILE", help="Your own file of API prices, before all others.")
    ] = None,
    date: Annotated[
        str | None,
        typer.Option("--date", metavar="DAY", help="Day whose prices count, 2026-11-15 (default: the newest)."),
    ] = None,
    hours: Annotated[
        str | None,
        typer.Option("--hours", metavar="KIND", help="peak, off-peak, or a time in UTC such as 2026-11-16T02:30."),
    ] = None,
    cache_write: Annotated[
        str | None, typer.Option("--cache-write", metavar="LIFE", help="Lifetime of what is cached, 5m or 1h.")
    ] = None,
    kept: Annotated[
        str | None,
        typer.Option(
            "--kept", metavar="TIME", help="How long a prefix is stored where storage has a price; needs --rate."
        ),
    ] = None,
    input_tokens: Annotated[
        str | None, typer.Option("--input-tokens", metavar="N", help="A day's input tokens, 608e9, priced by --api.")
    ] = None,
    output_tokens: Annotated[
        str | None, typer.Option("--output-tokens", metavar="N", help="A day's output tokens.")
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
) -> None:
    """Cost a million tokens, beside API price lists.

    What input, cached and output tokens cost at a load, the ratios that the roofline implies, and when an API is cheaper.
    Without MODEL: price lists, and what requests or a day's tokens cost by them.
    """
    explain_or(explain, "prices")
    from roofcast.cli.deploy import Machine
    from roofcast.cli.price_asked import Money, Served
    from roofcast.cli.pricing import AskedApis, AskedOwn, Day, priced
    from roofcast.reports.price import price_document

    written = Output(format, out, strict)
    check_output(written, [name for name in (model, prices, efficiency) if name])
    money = Money(gpu_price, gpu_cost, years, power_price, pue, utilisation)
    served = Served(prompt, output, context, mix, prefix_hit, shared_prefix, hit_rate)
    own = AskedOwn(
        model, Machine(gpu, gpus, tp, pp, ep, dp, network, engine), weights, kv, batch, max_num_batched_tokens,
        efficiency, encoder_tokens, revision, offline, ratio, rate,
    )  # fmt: skip
    apis = AskedApis(api, prices, date, hours, cache_write, kept)
    result, inputs, said = priced(own, served, money, apis, Day(input_tokens, output_tokens, prefix_hit, gpus))
    present(price_document(result, inputs, said), written)
