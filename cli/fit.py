"""`roofcast fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli import options
from roofcast.cli.errors import GateError
from roofcast.cli.machine import find_machine, machine_remarks
from roofcast.cli.session import Lookup, Output, check_output, explain_or, formats, load, present

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.fit import Requirement
    from roofcast.hwdb.lookup import Match
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested


def fit(
    model: options.OneModel = None,
    gpu: options.Gpu = None,
    gpus: options.GpuCount = None,
    tp: options.Tp = None,
    engine: options.EngineName = "none",
    reserve: options.Reserve = "10%",
    context: options.Contexts = None,
    weights: options.Weights = None,
    kv: options.Kv = None,
    require: options.Require = None,
    mtp: options.Mtp = False,
    encoder_tokens: options.EncoderTokens = None,
    revision: options.Revision = None,
    offline: options.Offline = False,
    format: options.Format = None,
    out: options.Out = None,
    strict: options.Strict = False,
    explain: options.Explain = None,
    debug: options.Debug = False,
) -> None:
    """Memory, and how many sequences fit.

    The budget term by term, the most sequences at each context, prefill FLOP.
    """
    explain_or(explain, model)
    from dataclasses import replace

    from roofcast.calculators.cache_format import cache_format
    from roofcast.calculators.fit import Machine
    from roofcast.calculators.fit import fit as answer
    from roofcast.calculators.remarks import contexts_of
    from roofcast.calculators.rules import check_rules, parse_rule
    from roofcast.reports.fit import fit_document

    output = Output(format, out, strict)
    check_output(output, [model or ""])
    _check_engine(engine)
    kept, contexts = options.share(reserve), options.token_list(context)
    lookup = Lookup(revision, offline, mtp, options.encoder_count(encoder_tokens))
    weight_format, asked_kv = formats(weights, kv)
    rules = [parse_rule(text) for text in require or []]
    count, match = _count(gpus, tp), find_machine(gpu)
    accelerator = match.accelerator
    loaded = load(model or "", lookup)
    kv_format, of_cache = cache_format(loaded, asked_kv, engine)
    machine = Machine(accelerator.id, count, accelerator.memory, accelerator.visible_memory, kept)
    wanted = sorted({*contexts_of(loaded, contexts), *(rule.context for rule in rules if rule.context)})
    result, said = answer(loaded, machine, weights=weight_format, kv=kv_format, contexts=wanted)
    said += of_cache + _of_the_machine(match, loaded, [kv_format, *([weight_format] if weight_format else [])])
    inputs = {
        "model": model,
        **_of_gpus(match, count),
        "engine": engine,
        "reserve": kept,
        "weights": weights,
        "kv": kv_format.name,
        "contexts": wanted,
        "require": require or [],
        **lookup.asked,
    }
    result = replace(result, requirements=check_rules(rules, result))
    present(fit_document(result, inputs, said), output)
    _leave_unless_met(result.requirements)


def _of_gpus(match: Match, count: int) -> dict[str, object]:
    """What was asked of the machine, as `inputs` repeats it."""
    return {"gpu": match.accelerator.id, "gpu_note": match.alias_note, "gpus": count, "tp": count}


def _leave_unless_met(requirements: list[Requirement]) -> None:
    """Raises where a rule is not met, or where that cannot be told; a failed rule is said first."""
    failed = [f"{r.rule} is not met: there are {r.actual:,}" for r in requirements if r.passed is False]
    if failed:
        raise GateError("; ".join(failed))
    unknown = [r.rule for r in requirements if r.passed is None]
    if unknown:
        raise UnansweredError(
            f"{'; '.join(unknown)}: every layer has a window or a fixed state, the cache does not grow with tokens"
        )


def _of_the_machine(match: Match, model: Model, used: list[Requested]) -> Remarks:
    """What should be said of the accelerator: how its name was understood, what is doubted, what it cannot compute."""
    from roofcast.calculators.answer import remarks
    from roofcast.calculators.formats import missing_formats

    accelerator = match.accelerator
    missing = missing_formats(model, accelerator.id, dict(accelerator.flags), used)
    return machine_remarks(match) + remarks(warnings=missing)


def _check_engine(engine: str) -> None:
    """Refuses an engine that is not known, or whose memory rules are not modelled."""
    from roofcast.calculators.cache_format import check_engine

    check_engine(engine)
    if engine != "none":
        raise UsageError(f"--engine {engine}: its memory rules are not modelled yet; known: none")


def _count(gpus: int | None, tp: int | None) -> int:
    """GPUs that share every layer: --tp, --gpus, or one; both must agree without an engine."""
    for option, value in (("--gpus", gpus), ("--tp", tp)):
        if value is not None and value < 1:
            raise UsageError(f"{option} {value}: it must be 1 or more")
    if gpus is not None and tp is not None and gpus != tp:
        raise UsageError(f"--gpus {gpus} and --tp {tp} differ; without an engine all GPUs share every layer")
    return tp or gpus or 1
