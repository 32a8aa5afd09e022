"""`roofcast validate`."""

from __future__ import annotations

from typing import Annotated

import typer

from roofcast.cli import options
from roofcast.cli.errors import GateError
from roofcast.cli.session import Output, chart_ending, check_output, explain_or, present, present_chart

DEFAULT_WORST = 15


def validate(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            help="Measurements: vllm bench, llama-bench, genai-perf, guidellm or roofcast.measurements files "
            "(default: the published figures that come with roofcast; '-': standard input).",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Model of the points.")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="Accelerator of the points.")] = None,
    gpus: options.GpuCount = None,
    tp: Annotated[int | None, typer.Option("--tp", metavar="N", help="Tensor-parallel size.")] = None,
    pp: options.OptionalPp = None,
    ep: options.OptionalEp = None,
    dp: options.OptionalDp = None,
    engine: Annotated[str | None, typer.Option("--engine", metavar="ENGINE", help="Engine of the points.")] = None,
    weights: options.Weights = None,
    kv: options.Kv = None,
    batch: Annotated[
        int | None, typer.Option("--batch", metavar="N", help="Sequences at once, where the file does not say.")
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="NAME,...", help="Groups: quantity, gpu, engine, class, constants, source, model."
        ),
    ] = "quantity,engine,class,gpu,constants",
    worst: Annotated[int, typer.Option("--worst", metavar="N", help="Misses that are listed.")] = DEFAULT_WORST,
    efficiency: options.EfficiencyName = "expected",
    require: Annotated[
        list[str] | None,
        typer.Option(
            "--require", metavar="RULE", help="Gate such as 'median<=15%', p90, inside>=70%; exit 1 where it fails."
        ),
    ] = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """Predicted against measured, point by point.

    Files of benchmarks, or the published figures that come with roofcast: median error, intervals, the worst misses.
    """
    explain_or(explain, "files")
    from roofcast.calculators.validate import validate_result
    from roofcast.calculators.validate_gate import missed, read_gate
    from roofcast.cli.deploy import efficiency_of
    from roofcast.cli.validating import Setups, gathered
    from roofcast.reports.validate import validate_document

    output, chart = Output(format, out, strict), chart_ending(out, format)
    check_output(output, files or [], chart=chart is not None)
    rules = [read_gate(text) for text in require or []]
    options.size(max(worst, 1), "--worst")
    given = {
        name: value
        for name, value in {
            "model": model, "gpu": gpu, "gpus": gpus, "tp": tp, "pp": pp, "ep": ep, "dp": dp,
            "engine": engine, "weights": weights, "kv": kv, "batch": batch,
        }.items()
        if value is not None
    }  # fmt: skip
    points, said = gathered(files or [], given)
    setups = Setups(efficiency_of(efficiency), offline)
    result, more = validate_result(points, setups.ready, [name for name in by.split(",") if name])
    inputs = {
        "files": files or [],
        **given,
        "by": by,
        "worst": worst,
        "efficiency": efficiency,
        "require": require or [],
    }
    document = validate_document(result, inputs, said + more, worst)
    if chart:
        present_chart(document, output, chart)
    else:
        present(document, output)
    failed = missed(rules, result)
    if failed:
        raise GateError("; ".join(failed))
