"""`roofcast fit` with a serving engine, and with a server's log."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calculators.errors import UsageError
from roofcast.cli.engine_flags import read_flags
from roofcast.cli.machine import find_machine, machine_remarks
from roofcast.cli.session import formats, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.engines.flags import Flags
    from roofcast.calculators.engines.terms import Advice, EngineMemory, Served
    from roofcast.calculators.fit import FitResult
    from roofcast.calculators.logs import StartLog
    from roofcast.cli.deploy import Machine
    from roofcast.cli.fit import Asked
    from roofcast.hwdb.lookup import Match
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested
    from roofcast.modelspec.sharding import Shards
    from roofcast.reports.document import Document

# what a log calls the options that are no flags of engines.flags
DEVICES = {
    "tp": ("tensor_parallel_size", "tp_size", "tp"),
    "pp": ("pipeline_parallel_size", "pp_size", "pp"),
    "dp": ("data_parallel_size", "dp_size", "dp"),
}
OWN_LAYOUTS = frozenset({"vllm", "sglang"})  # whose layouts of latents and index keys are modelled
CACHES = ("kv_cache_dtype", "type_k", "cache_type_k")
ROCM_DTYPES = {"float8_e4m3fnuz": "fp8", "float8_e5m2fnuz": "fp8"}  # which no config states
OF_FILES = frozenset({"llama.cpp", "ollama"})  # whose model is always a file
OF_RELEASES = frozenset({"vllm", "sglang"})  # whose versions are read alike
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Ask:
    """The question, with what a log says of it filled in."""

    engine: str
    flags: Flags
    settings: Mapping[str, str]
    log: StartLog | None


def fit_with_engine(asked: Asked, written: Mapping[str, object], path: str | None) -> Document:
    """Answers with an engine's rules, and sets a log beside them where one is given."""
    from roofcast.calculators.engine_fit import fit_engine
    from roofcast.calculators.log_answer import as_logged, log_against
    from roofcast.calculators.rules import check_rules
    from roofcast.reports.fit import fit_document

    ask = _ask(asked, written, path)
    match = find_machine(asked.gpu)
    try:
        served, loaded_remarks = _served(asked, ask, match)
    except UsageError as error:
        if ask.log is None or "the log" in str(error):
            raise
        raise UsageError(f"{error} (what is not given is as --log says)") from error
    if ask.log is not None:
        served, told = as_logged(ask.log, served)
        loaded_remarks += told
    of_rules = [rule.context for rule in asked.rules if rule.context]
    result, memory, said = fit_engine(served, asked.contexts, of_rules)
    result = replace(result, requirements=check_rules(asked.rules, result))
    result = replace(result, advice=_advice(served, memory, result, asked, ask.log))
    if ask.log is not None:
        result = replace(result, log=log_against(ask.log, served, memory))
    said += loaded_remarks + _of_device(match, served)
    inputs = _inputs(asked, ask, match, served) | {"contexts": [row.context for row in result.contexts]}
    return fit_document(result, inputs, said)


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
    settings = {} if log is None else _settings(log, engine)
    flags = read_flags(written, _own(engine, settings))
    check_flags(engine, flags)
    return Ask(engine, flags, settings, log)


def _settings(log: StartLog, engine: str) -> dict[str, str]:
    """What a log says of how its server was started, in the engine's own terms."""
    from roofcast.calculators.log_ollama import by_slot

    if log.engine == engine:
        version = log.version if log.version and _is_release(log.version, engine) else None
        return {**log.settings, **({"engine_version": version} if version else {})}
    return by_slot(log.settings) if engine == "ollama" else dict(log.settings)


def _is_release(version: str, engine: str) -> bool:
    """Whether a logged version is a release, whose rules may be known; builds from a checkout call themselves 0.1.dev."""
    from roofcast.calculators.engines.vllm_versions import parse_version

    if engine not in OF_RELEASES:
        return True
    try:
        parse_version(version)
    except UsageError:
        return False
    return not version.removeprefix("v").startswith("0.1.dev")


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

    if path == STDIN and sys.stdin is None:
        raise UsageError("--log -: standard input is closed")
    try:
        name = sys.stdin.fileno() if path == STDIN else path
        with open(name, encoding="utf-8", errors="replace", newline="\n", closefd=path != STDIN) as file:
            return read_start_log(bounded_lines(file, path), path)
    except OSError as error:
        raise UsageError(f"--log {path}: it cannot be read ({error.strerror or error})") from error
    except UsageError:
        raise
    except ValueError as error:  # a name with a NUL byte
        raise UsageError(f"--log {path!r}: it cannot be read ({error})") from error


def _served(asked: Asked, ask: Ask, match: Match) -> tuple[Served, Remarks]:
    """The model on the machine, as the engine loads it."""
    from roofcast.calculators.cache_format import cache_format
    from roofcast.calculators.deployment import Deployment
    from roofcast.calculators.engines.serving import serve

    weight_format, asked_kv = formats(asked.weights, asked.kv)
    machine = _machine(asked, ask)
    shards = machine.shards()
    loaded = _load(asked, ask)
    shards, flags = attention_within(_experts_spread(shards, asked, ask, loaded), ask, loaded)
    logged_weights, of_weights = _logged_weights(asked, ask, loaded)
    kv_format, of_cache = cache_format(loaded, asked_kv or _logged_cache(ask.settings), ask.engine)
    deployment = Deployment(match.accelerator, kv_format, weight_format or logged_weights, shards, ask.engine)
    served, said = serve(loaded, deployment, flags, kv_asked=asked_kv is not None)
    laid_out = replace(of_cache, warnings=()) if ask.engine in OWN_LAYOUTS else of_cache
    return served, laid_out + said + of_weights


def _machine(asked: Asked, ask: Ask) -> Machine:
    """Devices as asked, else as the log has them."""
    from roofcast.cli.deploy import Machine

    devices = dict(asked.devices)
    for name, spelled in DEVICES.items():
        stated = next((ask.settings[key] for key in spelled if key in ask.settings), None)
        if devices[name] is None and devices["gpus"] is None and stated and stated.isdecimal():
            devices[name] = int(stated) or None
    return Machine(
        asked.gpu,
        devices["gpus"],
        devices["tp"],
        devices["pp"] or 1,
        devices["ep"] or 1,
        devices["dp"] or 1,
        None,
        ask.engine,
    )


def _experts_spread(shards: Shards, asked: Asked, ask: Ask, model: Model) -> Shards:
    """Experts over all devices, where the log has vLLM's --enable-expert-parallel and they divide."""
    devices = shards.tp * shards.dp
    spread = asked.devices["ep"] is None and ask.settings.get("enable_expert_parallel") == "True"
    return replace(shards, ep=devices) if spread and _divides(model, devices) else shards


def _divides(model: Model, devices: int) -> bool:
    """Whether a model has experts, and devices share them evenly."""
    counts = [part.experts for part in model.spec.experts]
    return bool(counts) and all(count % devices == 0 for count in counts)


def attention_within(shards: Shards, ask: Ask, model: Model) -> tuple[Shards, Flags]:
    """SGLang counts --dp within --tp where replicas share experts: tp / dp devices for attention, all tp for experts."""
    within = ask.engine == "sglang" and ask.flags.enable_dp_attention and shards.dp > 1 and shards.tp % shards.dp == 0
    if not within or shards.ep == shards.tp * shards.dp:
        return shards, ask.flags
    attention = replace(shards, tp=shards.tp // shards.dp)
    if _divides(model, shards.tp):
        return replace(attention, ep=shards.tp), ask.flags
    return attention, replace(ask.flags, enable_dp_attention=False)


def _load(asked: Asked, ask: Ask) -> Model:
    """The model asked for, else the one that the log names.

    Raises:
        UsageError: neither names one, or the log one that is on another machine.
    """
    name, called = asked.model or ask.settings.get("model"), ask.settings.get("model_name")
    if not name:
        raise UsageError(
            f"MODEL is missing, and the log {'only calls it ' + called if called else 'names none'}; give it as in "
            "`roofcast fit llama-3.1-8b --log FILE`"
        )
    if not asked.model and _is_elsewhere(name, ask):
        raise UsageError(
            f"the log's model is {name}{f' ({called})' if called else ''}, which is not here; name the model: roofcast fit "
            "MODEL --log FILE"
        )
    return load(name, asked.lookup)


def _is_elsewhere(name: str, ask: Ask) -> bool:
    """Whether the log's model is a path, and there is none such."""
    of_files = ask.log is not None and ask.log.engine in OF_FILES
    if not (of_files or name[0] in "./~" or name.count("/") > 1 or "\\" in name):
        return False
    try:
        return not Path(name).expanduser().exists()
    except (OSError, ValueError, RuntimeError):  # a name too long, a NUL in it, no such user
        return True


def _logged_weights(asked: Asked, ask: Ask, model: Model) -> tuple[Requested | None, Remarks]:
    """The type of its weights that a log states, where none is asked and the model is no such file itself."""
    from roofcast.calculators.answer import Remarks, remarks
    from roofcast.modelspec.requested import find_requested

    name = ask.settings.get("weights")
    if name is None or asked.weights is not None or model.facts == "header":
        return None, Remarks()
    requested = find_requested(name)
    if model.weight_bytes(requested).value is None:
        return None, remarks(warnings=[f"{model.name}: the log says weights {name}, whose bytes are not known of it"])
    return requested, remarks(notes=[f"weights {name}, as the log says"])


def _logged_cache(settings: Mapping[str, str]) -> Format | None:
    """The cache's format that a log states; None where it says auto, or nothing."""
    from roofcast.modelspec.formats import FORMATS, OTHER_NAMES, TORCH_DTYPES

    text = next((settings[key] for key in CACHES if key in settings), "auto").lower()
    for name in ((TORCH_DTYPES | ROCM_DTYPES).get(text, text), OTHER_NAMES.get(text, text), text.partition("_")[0]):
        if name in FORMATS:
            return FORMATS[name]
    return None


def _weights_of_log(ask: Ask, served: Served) -> str | None:
    """The log's type of weights, where it counts."""
    name, counted = ask.settings.get("weights"), served.ready.deployment.weights
    return name if counted is not None and counted.name == name else None


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


def _of_device(match: Match, served: Served) -> Remarks:
    """What should be said of the accelerator; formats that CUDA's lack are refused or widened by the engine's rules."""
    from roofcast.cli.fit import of_the_machine

    if match.accelerator.compute_capability is not None:
        return machine_remarks(match)
    used = [f for f in (served.ready.deployment.kv, served.ready.deployment.weights) if f is not None]
    return of_the_machine(match, served.ready.model, used)


def _inputs(asked: Asked, ask: Ask, match: Match, served: Served) -> dict[str, object]:
    """The question as `inputs` repeats it."""
    from roofcast.cli.deploy import device_inputs

    return {
        "model": asked.model or ask.settings.get("model"),
        **device_inputs(match, served.ready.deployment.shards),
        "engine": ask.engine,
        "weights": asked.weights or _weights_of_log(ask, served),
        "kv": served.ready.deployment.kv.name,
        "flags": ask.flags.given,
        "log": None if ask.log is None else ask.log.engine,
        **asked.inputs,
    }
