"""`roofcast gpus`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli import options
from roofcast.cli.deploy import Points, asked_inputs, one, phases_of
from roofcast.cli.session import Lookup, Output, check_output, explain_or, formats, load, load_all, present

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Deployment, Ready
    from roofcast.calculators.gpus import Work
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
    encoder_tokens: options.EncoderTokens = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """Specifications and ridge points (FLOP/byte)."""
    explain_or(explain)
    from roofcast.calculators.answer import remarks
    from roofcast.calculators.gpus import gpu_rows
    from roofcast.reports.gpus import gpus_document

    if local and names:
        raise UsageError(f"--local lists this machine's accelerators; leave it out to see {' '.join(names)}")
    output = Output(format, out, strict)
    check_output(output, [model] if model else [])
    _refuse_without_model(
        model,
        {"--batch": batch, "--context": context, "--weights": weights, "--kv": kv, "--encoder-tokens": encoder_tokens},
    )
    tokens = one(context, "--context", DEFAULT_CONTEXT)
    found, code = _found(names or [], local=local)
    if found.accelerators:
        inputs: dict[str, object] = {"names": names or [], "local": local, "notes": list(found.remarks.notes)}
        said = found.remarks + remarks(_recalled(found.accelerators) if strict else ())
        works: list[Work] = []
        if model is not None:
            lookup = Lookup(revision, offline, encoder_tokens=options.encoder_count(encoder_tokens))
            points = Points(batch, str(tokens))
            works, asked, of_model = _works(model, lookup, found.accelerators, points, (weights, kv))
            inputs, said = inputs | asked, said + of_model
        present(gpus_document(gpu_rows(found.accelerators, works), inputs, said), output)
    raise typer.Exit(code)


def _refuse_without_model(model: str | None, asked: dict[str, str | None]) -> None:
    """Refuses options that say how a model is asked of where none is."""
    given = [option for option, value in asked.items() if value is not None]
    if model is None and given:
        raise UsageError(f"{given[0]} is of --model; name one, or leave it out")


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


def _works(
    model: str, lookup: Lookup, gpus: list[Accelerator], points: Points, asked_formats: tuple[str | None, str | None]
) -> tuple[list[Work], dict[str, object], Remarks]:
    """A model's works, how they were asked for, and what should be said of the model."""
    from roofcast.calculators.cache_format import cache_format
    from roofcast.calculators.deployment import Deployment
    from roofcast.calculators.gpus import works_of
    from roofcast.calculators.remarks import model_remarks

    weight_format, asked_kv = formats(*asked_formats)
    points.check()
    loaded = load(model, lookup)
    kv_format, of_cache = cache_format(loaded, asked_kv, "none")
    wanted = points.asked(phases_of(None), loaded)
    works = works_of(_first_that_can(loaded, [Deployment(gpu, kv_format, weight_format) for gpu in gpus]), wanted)
    inputs = {"model": model, "weights": asked_formats[0], "kv": kv_format.name, **asked_inputs(wanted), **lookup.asked}
    return works, inputs, model_remarks(loaded, weight_format, [one.context for one in wanted]) + of_cache


def _first_that_can(model: Model, deployments: list[Deployment]) -> Ready:
    """A model on the first device that states a peak for it: its work is the same on all."""
    from roofcast.calculators.deployment import prepare

    *most, last = deployments
    for deployment in most:
        with suppress(UsageError):
            return prepare(model, deployment)
    return prepare(model, last)


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
