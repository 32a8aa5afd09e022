"""`roofcast gpus`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli import options
from roofcast.cli.deploy import Points, asked_inputs, efficiency_of, one, phases_of, with_constants
from roofcast.cli.session import (
    Lookup,
    Output,
    chart_ending,
    check_output,
    explain_or,
    formats,
    load,
    load_all,
    pictured,
    show,
)

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.compare import Compared, Refused
    from roofcast.calculators.deployment import Deployment, Ready
    from roofcast.calculators.phases import Asked
    from roofcast.cli.deploy import Efficiencies
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.model import Model

DEFAULT_CONTEXT = 4096  # tokens


def gpus(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Ids, aliases or driver names.")
    ] = None,
    local: Annotated[bool, typer.Option("--local", help="The accelerators of this machine.")] = False,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Hold a model's FLOP a byte against the ridge points."),
    ] = None,
    batch: options.StepBatches = None,
    context: options.OneContext = None,
    weights: options.Weights = None,
    kv: options.Kv = None,
    efficiency: Annotated[
        str | None,
        typer.Option(
            "--efficiency",
            metavar="NAME",
            help="Times in the picture: expected (default), bound, or a file of constants.",
        ),
    ] = None,
    encoder_tokens: options.EncoderTokens = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """Specifications and ridge points (FLOP/byte).

    With --model and --out x.png or x.svg a chart of 2 to 5 of them beside one another.
    """
    explain_or(explain)
    from roofcast.calculators.answer import remarks
    from roofcast.calculators.gpus import gpu_rows, works_of
    from roofcast.reports.gpus import gpus_document

    if local and names:
        raise UsageError(f"--local lists this machine's accelerators; leave it out to see {' '.join(names)}")
    output, chart, drawn = Output(format, out, strict), chart_ending(out, format), pictured(out, format)
    check_output(output, [name for name in (model, efficiency) if name], chart=bool(chart))
    _refuse_without_model(
        model,
        {"--batch": batch, "--context": context, "--weights": weights, "--kv": kv, "--efficiency": efficiency,
         "--encoder-tokens": encoder_tokens},
    )  # fmt: skip
    _check_picture(model, efficiency, out, chart=bool(chart), drawn=drawn)
    constants = efficiency_of(efficiency or "expected")
    tokens = one(context, "--context", DEFAULT_CONTEXT)
    found, code = _found(names or [], local=local)
    if chart and not _can_be_drawn(found.accelerators):
        raise typer.Exit(code) if code else UsageError(f"--out {out}: {_count_words(found.accelerators)}")
    if found.accelerators:
        inputs: dict[str, object] = {"names": names or [], "local": local, "notes": list(found.remarks.notes)}
        said, rows, compared = found.remarks + remarks(_recalled(found.accelerators) if strict else ()), [], None
        if model is not None:
            lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
            held = _held(model, lookup, found.accelerators, Points(batch, str(tokens)), (weights, kv))
            rows = works_of(held.first, held.asked)
            inputs, said = inputs | held.inputs, said + held.remarks
            if drawn and _can_be_drawn(found.accelerators):
                compared, of_times = _compared(held, constants)
                inputs, said = {**inputs, "efficiency": efficiency or "expected"}, said + of_times
        document = gpus_document(gpu_rows(found.accelerators, rows), inputs, said, compared)
        show(document, output, chart)
    raise typer.Exit(code)


def _refuse_without_model(model: str | None, asked: dict[str, str | None]) -> None:
    """Refuses options that say how a model is asked of where none is."""
    given = [option for option, value in asked.items() if value is not None]
    if model is None and given:
        raise UsageError(f"{given[0]} is of --model; name one, or leave it out")


def _check_picture(model: str | None, efficiency: str | None, out: str | None, *, chart: bool, drawn: bool) -> None:
    """Refuses a chart without a model, and constants of times that nothing shows."""
    if chart and model is None:
        raise UsageError(f"--out {out}: the chart compares GPUs by what a model makes of them; name one with --model")
    if efficiency is not None and not drawn:
        raise UsageError("--efficiency is of a picture's times; give --out x.png, x.svg or x.html, or leave it out")


@dataclass(frozen=True, slots=True)
class Found:
    """Accelerators, and how their names were understood."""

    accelerators: list[Accelerator]
    remarks: Remarks


def _found(names: list[str], *, local: bool) -> tuple[Found, int]:
    """The accelerators named, or this machine's, or all; and the exit code of those that cannot be."""
    from roofcast.calculators.answer import remarks
    from roofcast.hwdb.lookup import Match, all_accelerators, find_accelerator

    if not (local or names):
        listing = all_accelerators()
        return Found(list(listing.accelerators), remarks(warnings=listing.problems)), 0
    matches: list[Match] = []
    if local:
        matches += (find_accelerator(name, memory) for name, memory in _local())
        code = 0
    else:
        code = load_all(names, lambda name: matches.append(find_accelerator(name)))
    said = remarks(warnings=[match.doubt for match in matches], notes=[match.alias_note for match in matches])
    return Found([match.accelerator for match in matches], said), code


@dataclass(frozen=True, slots=True)
class Held:
    """A model held against accelerators.

    Args:
        model: what is held.
        deployments: one an accelerator.
        asked: its steps.
        inputs: how it was asked for.
        remarks: what should be said of it.
    """

    model: Model
    deployments: list[Deployment]
    asked: list[Asked]
    inputs: dict[str, object]
    remarks: Remarks

    @property
    def first(self) -> Ready:
        """The model on the first device that states a peak for it: its work is the same on all."""
        from roofcast.calculators.deployment import prepare

        *most, last = self.deployments
        for deployment in most:
            with suppress(UsageError):
                return prepare(self.model, deployment)
        return prepare(self.model, last)


def _held(
    model: str, lookup: Lookup, gpus: list[Accelerator], points: Points, asked_formats: tuple[str | None, str | None]
) -> Held:
    """A model, loaded, and its steps that are asked for."""
    from roofcast.calculators.cache_format import cache_format
    from roofcast.calculators.deployment import Deployment
    from roofcast.calculators.remarks import model_remarks

    weight_format, asked_kv = formats(*asked_formats)
    points.check()
    loaded = load(model, lookup)
    kv_format, of_cache = cache_format(loaded, asked_kv, "none")
    wanted = points.asked(phases_of(None), loaded)
    inputs = {"model": model, "weights": asked_formats[0], "kv": kv_format.name, **asked_inputs(wanted), **lookup.asked}
    said = model_remarks(loaded, weight_format, [one.context for one in wanted]) + of_cache
    return Held(loaded, [Deployment(gpu, kv_format, weight_format) for gpu in gpus], wanted, inputs, said)


def _can_be_drawn(gpus: list[Accelerator]) -> bool:
    """Whether there are as many accelerators as a chart tells apart."""
    from roofcast.reports.gpus import FEWEST, MOST

    return FEWEST <= len({gpu.id for gpu in gpus}) <= MOST


def _count_words(gpus: list[Accelerator]) -> str:
    """How many a chart compares."""
    from roofcast.reports.gpus import FEWEST, MOST

    return f"the chart compares {FEWEST} to {MOST} GPUs and not {len({gpu.id for gpu in gpus})}; name them"


def _compared(held: Held, efficiencies: Efficiencies) -> tuple[Compared, Remarks]:
    """The accelerators beside one another at the largest batch asked that all have room for, else at the smallest."""
    from roofcast.calculators.compare import compare
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import most_sequences

    context, batches = held.asked[0].context, [asked.batch for asked in held.asked]
    each = {deployment.accelerator.id: deployment for deployment in held.deployments}
    rows = [_ready(held.model, deployment, efficiencies) for deployment in each.values()]
    able = [row for row in rows if isinstance(row, Ready)]
    rooms = [most for row in able if (most := most_sequences(row, context))]
    fitting = [batch for batch in batches if rooms and batch <= min(rooms)]
    compared = compare(rows, max(fitting, default=min(batches)), context, context)
    return compared, _said_of(able, context)


def _said_of(able: list[Ready], context: int) -> Remarks:
    """What should be said of all, and whose constants times are expected with."""
    from dataclasses import replace

    from roofcast.calculators.answer import Remarks, remarks
    from roofcast.calculators.estimate import constants_remarks, ready_remarks

    engines: dict[str, list[str]] = {}
    said = Remarks()
    for row in able:
        said += ready_remarks(row, [context])
        if row.expectation is not None:
            named = replace(row, deployment=replace(row.deployment, engine=row.expectation.engine))
            said += constants_remarks(named)
            engines.setdefault(row.expectation.engine, []).append(row.deployment.accelerator.id)
    return said + remarks(
        f"expected times of {', '.join(names)} are as under {engine}; --efficiency bound shows bounds instead"
        for engine, names in engines.items()
    )


def _ready(model: Model, deployment: Deployment, efficiencies: Efficiencies) -> Ready | Refused:
    """The model on one accelerator with its constants, or why it cannot run there."""
    from roofcast.calculators.compare import Refused
    from roofcast.calculators.deployment import prepare

    try:
        ready = prepare(model, deployment)
    except UsageError as error:
        return Refused(deployment.accelerator, str(error))
    return with_constants(ready, efficiencies)


def _local() -> list[tuple[str, float | None]]:
    """Devices of this machine, by driver name."""
    from roofcast.hwdb.local import local_accelerators

    devices = local_accelerators()
    if not devices:
        raise UnansweredError("this machine has no accelerator that nvidia-smi or rocm-smi reports; name one instead")
    return [(device.name, device.memory_bytes) for device in dict.fromkeys(devices)]


def _recalled(accelerators: list[Accelerator]) -> list[str]:
    """Facts that were not read in a source: what --strict refuses."""
    doubted = {a.id: [fact for fact in a.stated_facts() if not a.verified(fact)] for a in accelerators}
    return [f"{name}: {', '.join(facts)} not verified" for name, facts in doubted.items() if facts]
