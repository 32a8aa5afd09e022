"""`roofcast validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from roofcast.cli import options
from roofcast.cli.errors import BAD_INPUT, GateError
from roofcast.cli.session import Output, attempt, chart_ending, check_output, explain_or, present, present_chart
from roofcast.cli.session import worst as worst_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.validate import ValidateResult
    from roofcast.calculators.validate_gate import Gate

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
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Model of the points; of published ones those of it.")
    ] = None,
    gpu: Annotated[
        str | None,
        typer.Option("--gpu", metavar="NAME", help="Accelerator of the points; of published ones those of it."),
    ] = None,
    gpus: options.GpuCount = None,
    tp: Annotated[int | None, typer.Option("--tp", metavar="N", help="Tensor-parallel size.")] = None,
    pp: options.OptionalPp = None,
    ep: options.OptionalEp = None,
    dp: options.OptionalDp = None,
    engine: Annotated[
        str | None, typer.Option("--engine", metavar="ENGINE", help="Engine of the points; likewise.")
    ] = None,
    weights: options.Weights = None,
    kv: options.Kv = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", help="Sequences at once; like all of these whatever files say."),
    ] = None,
    prompt: Annotated[int | None, typer.Option("--prompt", metavar="N", help="Tokens of a prompt.")] = None,
    output_tokens: Annotated[
        int | None, typer.Option("--output", metavar="N", help="Tokens that a request gets.")
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
    from roofcast.calculators.validate import known_groups, validate_result
    from roofcast.calculators.validate_gate import read_gate
    from roofcast.cli.deploy import efficiency_of
    from roofcast.cli.validating import Setups, asked_of, gathered, progressing
    from roofcast.reports.validate import validate_document

    output, chart = Output(format, out, strict), chart_ending(out, format)
    check_output(output, [*(files or ()), efficiency], chart=chart is not None)
    rules = [read_gate(text) for text in require or []]
    groups, efficiencies = known_groups(by), efficiency_of(efficiency)
    if worst:
        options.size(worst, "--worst")
    given = {
        name: value
        for name, value in {
            "model": model, "gpu": gpu, "gpus": gpus, "tp": tp, "pp": pp, "ep": ep, "dp": dp,
            "engine": engine, "weights": weights, "kv": kv, "batch": batch, "prompt": prompt, "output": output_tokens,
        }.items()
        if value is not None
    }  # fmt: skip
    asked_of(given)
    found = gathered(files or [], given)
    if not found.points:
        raise typer.Exit(found.code)
    setups = Setups(efficiencies, offline)
    result = validate_result(progressing(found.points), setups.ready, groups, expected=efficiencies.wanted)
    inputs = {"files": files or [], **given, "by": groups, "worst": worst}
    inputs |= {"efficiency": efficiency, "require": require or []}
    document = validate_document(result, inputs, found.remarks + setups.said, worst)
    if chart and document.charts:
        present_chart(document, output, chart)
    else:  # a chart of no point is not drawn: its text says why, as an error does below
        present(document, Output("text", None, strict) if chart else output)
    raise typer.Exit(worst_of(found.code, attempt(lambda: judge(result, rules, setups.codes))))


def judge(result: ValidateResult, rules: Sequence[Gate], codes: set[int]) -> None:
    """Holds the rules against the points.

    Raises:
        UnansweredError, UsageError: there is nothing to hold them against, and what is asked cannot be.
        GateError: what is not met.
    """
    from roofcast.calculators.errors import UnansweredError, UsageError
    from roofcast.calculators.validate_gate import missed

    if not result.counted:
        error = UsageError if codes == {BAD_INPUT} else UnansweredError
        raise error(f"no point can be predicted: {next(iter(result.uncounted))}")
    failed = missed(rules, result)
    if failed:
        raise GateError("; ".join(failed))
