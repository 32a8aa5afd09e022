"""`roofcast fit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli import options
from roofcast.cli.engine_flags import with_engine_flags
from roofcast.cli.errors import GateError
from roofcast.cli.machine import find_machine, machine_remarks
from roofcast.cli.session import (
    Lookup,
    Output,
    chart_ending,
    check_output,
    explain_or,
    formats,
    load,
    show,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.fit import Requirement
    from roofcast.calculators.rules import Rule
    from roofcast.hwdb.lookup import Match
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested
    from roofcast.reports.document import Document


@with_engine_flags
def fit(
    model: options.OneModel = None,
    gpu: options.Gpu = None,
    gpus: options.GpuCount = None,
    tp: options.Tp = None,
    pp: options.OptionalPp = None,
    ep: options.OptionalEp = None,
    dp: options.OptionalDp = None,
    engine: options.FitEngine = None,
    reserve: options.OptionalReserve = None,
    context: options.Contexts = None,
    weights: options.Weights = None,
    kv: options.Kv = None,
    require: options.Require = None,
    log: options.Log = None,
    mtp: options.Mtp = False,
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
    """Memory, and how many sequences fit: plainly, or as a serving engine counts it.

    The budget term by term, the most sequences at each context, prefill FLOP; with --log a server's own account beside;
    the chart of memory with --out x.png or x.svg.
    """
    explain_or(explain, model or log)
    from roofcast.calculators.rules import parse_rule

    output, chart = Output(format, out, strict), chart_ending(out, format)
    check_output(output, [name for name in (model, log) if name], chart=bool(chart))
    asked = Asked(
        model=model,
        gpu=gpu,
        devices={"gpus": gpus, "tp": tp, "pp": pp, "ep": ep, "dp": dp},
        engine=engine,
        weights=weights,
        kv=kv,
        contexts=options.token_list(context),
        rules=[parse_rule(text) for text in require or []],
        lookup=Lookup(revision, offline, mtp, options.encoder_count(encoder_tokens)),
    )
    document = fit_answer(asked, reserve, flags, log)
    show(document, output, chart)
    _leave_unless_met(document.result.requirements)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked, as it was written."""

    model: str | None
    gpu: str | None
    devices: Mapping[str, int | None]
    engine: str | None
    weights: str | None
    kv: str | None
    contexts: list[int] | None
    rules: list[Rule]
    lookup: Lookup

    @property
    def plain(self) -> bool:
        """Whether no engine's rules apply."""
        return self.engine in {None, "none"}

    @property
    def inputs(self) -> dict[str, object]:
        """What any answer repeats of it."""
        return {"require": [rule.text for rule in self.rules], **self.lookup.asked}


def fit_answer(asked: Asked, reserve: str | None, flags: Mapping[str, object], log: str | None) -> Document:
    """The answer of `fit` as a document, whose result is a `FitResult`; with an engine's rules where one is asked or logged.

    Args:
        asked: what was asked.
        reserve: share kept free, as it was written; None is 10 % without an engine.
        flags: of the engine, by name.
        log: path of a server's log.
    """
    if asked.plain and log is None:
        return _plain(asked, reserve, flags)
    from roofcast.cli.fit_engine import fit_with_engine

    if reserve is not None:
        raise UsageError(f"--reserve is of --engine none; --engine {asked.engine or 'vllm'} has a budget of its own")
    return fit_with_engine(asked, flags, log)


def _plain(asked: Asked, reserve: str | None, flags: Mapping[str, object]) -> Document:
    """The plain budget."""
    from dataclasses import replace

    from roofcast.calculators.cache_format import cache_format
    from roofcast.calculators.engines.flags import check_flags
    from roofcast.calculators.fit import Machine
    from roofcast.calculators.fit import fit as answer
    from roofcast.calculators.remarks import contexts_of
    from roofcast.calculators.rules import check_rules
    from roofcast.cli.engine_flags import read_flags
    from roofcast.reports.fit import fit_document

    check_flags("none", read_flags(flags, {}))
    kept = options.share("10%" if reserve is None else reserve)
    weight_format, asked_kv = formats(asked.weights, asked.kv)
    count, match = _count(asked.devices), find_machine(asked.gpu)
    accelerator = match.accelerator
    loaded = load(asked.model or "", asked.lookup)
    kv_format, of_cache = cache_format(loaded, asked_kv, "none")
    machine = Machine(accelerator.id, count, accelerator.memory, accelerator.visible_memory, kept)
    wanted = wanted_contexts(contexts_of(loaded, asked.contexts), asked.rules)
    result, said = answer(loaded, machine, weights=weight_format, kv=kv_format, contexts=wanted)
    said += of_cache + of_the_machine(match, loaded, [kv_format, *([weight_format] if weight_format else [])])
    inputs = {
        "model": asked.model,
        "gpu": accelerator.id,
        "gpu_note": match.alias_note,
        "gpus": count,
        "tp": count,
        "engine": "none",
        "reserve": kept,
        "weights": asked.weights,
        "kv": kv_format.name,
        "contexts": wanted,
        **asked.inputs,
    }
    return fit_document(replace(result, requirements=check_rules(asked.rules, result)), inputs, said)


def wanted_contexts(contexts: tuple[int, ...], rules: list[Rule]) -> list[int]:
    """The contexts to answer for, those of rules among them."""
    return sorted({*contexts, *(rule.context for rule in rules if rule.context)})


def _leave_unless_met(requirements: list[Requirement]) -> None:
    """Raises where a rule is not met, or where that cannot be told; a failed rule is said first."""
    failed = [f"{r.rule} is not met: there are {r.actual:,}" for r in requirements if r.passed is False]
    if failed:
        raise GateError("; ".join(failed))
    unknown = [r.rule for r in requirements if r.passed is None]
    if unknown:
        raise UnansweredError(
            f"{'; '.join(unknown)}: there is no such number; every layer has a window or a fixed state, so that the cache does "
            "not grow with tokens, or the engine's layout of it is not modelled"
        )


def of_the_machine(match: Match, model: Model, used: list[Requested]) -> Remarks:
    """What should be said of the accelerator: how its name was understood, what is doubted, what it cannot compute."""
    from roofcast.calculators.answer import remarks
    from roofcast.calculators.formats import missing_formats

    accelerator = match.accelerator
    missing = missing_formats(model, accelerator.id, dict(accelerator.flags), used)
    return machine_remarks(match) + remarks(warnings=missing)


def _count(devices: Mapping[str, int | None]) -> int:
    """GPUs that share every layer: --tp, --gpus, or one; both must agree without an engine."""
    for option, value in devices.items():
        if value is not None and value < 1:
            raise UsageError(f"--{option} {value}: it must be 1 or more")
    other = next((f"--{name} {devices[name]}" for name in ("pp", "ep", "dp") if devices[name] not in {None, 1}), None)
    if other:
        raise UsageError(f"{other}: without an engine all GPUs share every layer; --engine vllm knows it")
    gpus, tp = devices["gpus"], devices["tp"]
    if gpus is not None and tp is not None and gpus != tp:
        raise UsageError(f"--gpus {gpus} and --tp {tp} differ; without an engine all GPUs share every layer")
    return tp or gpus or 1
