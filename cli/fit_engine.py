"""`roofcast fit` with a serving engine, and with a server's log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofcast.calculators.errors import UsageError
from roofcast.cli.engine_flags import read_flags
from roofcast.cli.machine import find_machine
from roofcast.cli.session import Output, formats, load, present

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.engines.flags import Flags
    from roofcast.calculators.engines.terms import Advice, EngineMemory, Served
    from roofcast.calculators.fit import FitResult
    from roofcast.calculators.logs import StartLog
    from roofcast.cli.fit import Asked
    from roofcast.hwdb.lookup import Match
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model

# what a log calls the options that are no flags of engines.flags
DEVICES = {
    "tp": ("tensor_parallel_size", "tp_size", "tp"),
    "pp": ("pipeline_parallel_size", "pp_size", "pp"),
    "dp": ("data_parallel_size", "dp_size", "dp"),
}
OWN_LAYOUTS = frozenset({"vllm", "sglang"})  # whose layouts of latents and index keys are modelled
CACHES = ("kv_cache_dtype", "type_k", "cache_type_k")


@dataclass(frozen=True, slots=True)
class Ask:
    """The question, with what a log says of it filled in."""

    engine: str
    flags: Flags
    settings: Mapping[str, str]
    log: StartLog | None


def fit_with_engine(asked: Asked, written: Mapping[str, object], path: str | None, output: Output) -> FitResult:
    """Answers with an engine's rules, and sets a log beside them where one is given."""
    from roofcast.calculators.engine_fit import fit_engine
    from roofcast.calculators.log_answer import log_against, version_by_tokens
    from roofcast.calculators.rules import check_rules
    from roofcast.cli.fit import of_the_machine
    from roofcast.reports.fit import fit_document

    ask = _ask(asked, written, path)
    match = find_machine(asked.gpu)
    served, loaded_remarks = _served(asked, ask, match)
    if ask.log is not None:
        served = version_by_tokens(ask.log, served)
    contexts = sorted({*(asked.contexts or ()), *(rule.context for rule in asked.rules if rule.context)}) or None
    if asked.contexts is None and contexts:
        from roofcast.calculators.engine_fit import contexts_within

        first = fit_engine(served, None)[1]
        contexts = sorted({*contexts, *contexts_within(served, first, None)})
    result, memory, said = fit_engine(served, contexts)
    result = replace(result, requirements=check_rules(asked.rules, result))
    result = replace(result, advice=_advice(served, memory, result, asked, ask.log))
    if ask.log is not None:
        result = replace(result, log=log_against(ask.log, served, memory))
    formats_used = [f for f in (served.ready.deployment.kv, served.ready.deployment.weights) if f is not None]
    said += loaded_remarks + of_the_machine(match, served.ready.model, formats_used)
    inputs = _inputs(asked, ask, match, served) | {"contexts": [row.context for row in result.contexts]}
    present(fit_document(result, inputs, said), output)
    return result


def _ask(asked: Asked, written: Mapping[str, object], path: str | None) -> Ask:
    """Engine and flags: as asked, else as a log says.

    Raises:
        UsageError: an engine that is not known, a flag that it does not have, a log that cannot be read.
    """
    from roofcast.calculators.cache_format import check_engine
    from roofcast.calculators.engines.flags import check_flags

    log = None if path is None else _read_log(path)
    engine = asked.engine or (log.engine if log else "none")
    check_engine(engine)
    if log is not None and engine == "none":
        raise UsageError(f"--engine none prints no log; --log {path} is of {log.engine}")
    check_flags(engine, read_flags(written, {}))
    settings = dict(log.settings) if log else {}
    if log is not None and log.version:
        settings["engine_version"] = log.version
    flags = read_flags(written, _own(engine, settings))
    check_flags(engine, flags)
    return Ask(engine, flags, settings, log)


def _own(engine: str, settings: Mapping[str, str]) -> dict[str, str]:
    """What a log says of flags that the engine has here."""
    from roofcast.calculators.engines.flags import TAKES
    from roofcast.modelspec.requantized import ON_LOAD

    takes = TAKES.get(engine, frozenset()) | {"engine_version"}
    own = {name: text for name, text in settings.items() if name in takes}
    if own.get("quantization") not in ON_LOAD:  # what a checkpoint is stored as is the model's to say
        own.pop("quantization", None)
    return own


def _read_log(path: str) -> StartLog:
    """Reads a log.

    Raises:
        UsageError: it cannot be opened, or says nothing of a start.
    """
    from roofcast.calculators.logs import bounded_lines, read_start_log

    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:  # noqa: PTH123 - a name as written
            return read_start_log(bounded_lines(file, path), path)
    except OSError as error:
        raise UsageError(f"--log {path}: it cannot be read ({error.strerror})") from error
    except UsageError:
        raise
    except ValueError as error:  # a name with a NUL byte
        raise UsageError(f"--log {path!r}: it cannot be read ({error})") from error


def _served(asked: Asked, ask: Ask, match: Match) -> tuple[Served, Remarks]:
    """The model on the machine, as the engine loads it."""
    from roofcast.calculators.cache_format import cache_format
    from roofcast.calculators.deployment import Deployment
    from roofcast.calculators.engines.serving import serve
    from roofcast.cli.deploy import Machine

    weight_format, asked_kv = formats(asked.weights, asked.kv)
    devices = dict(asked.devices)
    for name, spelled in DEVICES.items():
        stated = next((ask.settings[key] for key in spelled if key in ask.settings), None)
        if devices[name] is None and devices["gpus"] is None and stated and stated.isdecimal():
            devices[name] = int(stated) or None
    machine = Machine(
        asked.gpu,
        devices["gpus"],
        devices["tp"],
        devices["pp"] or 1,
        devices["ep"] or 1,
        devices["dp"] or 1,
        None,
        ask.engine,
    )
    shards, flags = machine.shards(), ask.flags
    if ask.engine == "sglang" and flags.enable_dp_attention and shards.dp > 1 and shards.tp % shards.dp == 0:
        # SGLang counts --dp within --tp
        shards, flags = replace(shards, tp=shards.tp // shards.dp), replace(flags, enable_dp_attention=False)
    loaded = _load(asked, ask)
    kv_format, of_cache = cache_format(loaded, asked_kv or _logged_cache(ask.settings), ask.engine)
    deployment = Deployment(match.accelerator, kv_format, weight_format, shards, ask.engine)
    served, said = serve(loaded, deployment, flags, kv_asked=asked_kv is not None)
    laid_out = replace(of_cache, warnings=()) if ask.engine in OWN_LAYOUTS else of_cache
    return served, laid_out + said


def _load(asked: Asked, ask: Ask) -> Model:
    """The model asked for, else the one that the log names.

    Raises:
        UsageError: neither names one.
    """
    name = asked.model or ask.settings.get("model")
    if not name:
        raise UsageError(
            "MODEL is missing, and the log names none; give it as in `roofcast fit llama-3.1-8b --log FILE`"
        )
    return load(name, asked.lookup)


def _logged_cache(settings: Mapping[str, str]) -> Format | None:
    """The cache's format that a log states; None where it says auto, or nothing."""
    from roofcast.modelspec.formats import FORMATS, OTHER_NAMES

    text = next((settings[key] for key in CACHES if key in settings), "auto").lower()
    for name in (OTHER_NAMES.get(text, text), text.partition("_")[0]):
        if name in FORMATS:
            return FORMATS[name]
    return None


def _advice(
    served: Served, memory: EngineMemory, result: FitResult, asked: Asked, log: StartLog | None
) -> list[Advice]:
    """What to change, where it does not fit, a rule is not met, or a log shows that the server did not start."""
    missed = [r.rule for r in result.requirements if r.passed is False]
    if result.fits and not missed and (log is None or log.failure is None):
        return []
    from roofcast.calculators.engines.advice import Wanted, advice, advice_of_free

    needs = [(context, 1) for context in asked.contexts or ()]
    needs += [(rule.context, rule.least) for rule in asked.rules if rule.context]
    short = next((rule.context for rule in asked.rules if rule.context and rule.text in missed), None)
    unserved = (row.context for row in result.contexts if row.max_sequences < 1)
    asked_for = {context for context, _ in needs}
    counted = short or next((c for c in unserved if c in asked_for), max(asked_for, default=None))
    tokens = max((rule.least for rule in asked.rules if rule.context is None), default=0)
    wanted = Wanted(tuple(needs), counted, tokens)
    stated = {} if log is None else {term.name: term.value for term in log.terms}
    too_little = log is not None and log.failure is not None and stated.get("free", 0.0) < stated.get("budget", 0.0)
    if too_little and {"free", "visible"} <= stated.keys():
        return advice_of_free(served, wanted, stated["free"], stated["visible"])
    return advice(served, memory, wanted, stated.get("kv"))


def _inputs(asked: Asked, ask: Ask, match: Match, served: Served) -> dict[str, object]:
    """The question as `inputs` repeats it."""
    from roofcast.cli.deploy import device_inputs

    return {
        "model": asked.model or ask.settings.get("model"),
        **device_inputs(match, served.ready.deployment.shards),
        "engine": ask.engine,
        "weights": asked.weights,
        "kv": served.ready.deployment.kv.name,
        "flags": ask.flags.given,
        "log": None if ask.log is None else ask.log.engine,
        **asked.inputs,
    }
