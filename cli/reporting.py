"""What `report` puts together: the answers of the other commands for one deployment, each model and machine read once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli import options
from roofcast.cli.progress import progress_of
from roofcast.cli.report_measured import gathered_for, measured_part
from roofcast.cli.report_plan import plan_part
from roofcast.cli.session import keeping_models, load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.fit import FitResult
    from roofcast.calculators.phases import Asked
    from roofcast.calculators.report import Verdict
    from roofcast.calculators.workload import Workload
    from roofcast.cli.checking import Setups
    from roofcast.cli.report_asked import AskedReport
    from roofcast.cli.validating import Gathered
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.hwdb.prices import PriceList
    from roofcast.modelspec.model import Model
    from roofcast.reports.document import Document

USUAL: Final = (1, 16, 64)  # sequences at once that tables show, beside the most
LEFT: Final = "left"  # the term of `fit` for what a cache leaves


@dataclass(frozen=True, slots=True)
class Setting:
    """The deployment, and what everything else is asked with.

    Args:
        asked: the options.
        case: the deployment as rules of `check` have it.
        setups: which make models and machines once.
        ready: the deployment, with what its engine's cache holds.
        verdict: on it.
        shown: sequences at once that tables show.
        others: accelerators beside the own one.
        lists: prices of APIs.
        memory: the answer of `fit`; None where it has none.
        measured: points to hold predictions against.
        inputs: what any part repeats of it.
        left_out: why parts that could be asked for are not there.
    """

    asked: AskedReport
    case: Case
    setups: Setups
    ready: Ready
    verdict: Verdict
    shown: list[int]
    others: list[Accelerator]
    lists: tuple[PriceList, ...]
    memory: Document | None
    measured: Gathered
    inputs: dict[str, object]
    left_out: list[str] = field(default_factory=list)

    @property
    def points(self) -> list[Asked]:
        """What tables show: the prompt, and decode at the loads shown."""
        from roofcast.calculators.phases import Asked
        from roofcast.modelspec.step import DECODE, PREFILL

        case = self.case
        return [Asked(PREFILL, 1, case.prompt), *(Asked(DECODE, batch, case.context) for batch in self.shown)]


def reported(asked: AskedReport) -> Document:
    """The report.

    Raises:
        ModelError, UsageError, UnitError, UnknownAcceleratorError: what is wrong with what is asked.
    """
    from roofcast.reports.report import report_document

    made: dict[str, Document] = {}
    with keeping_models(), progress_of("report") as bar:
        if bar is not None:
            bar.start(len(PARTS))
        setting = _setting(asked.placed())
        for name, make in PARTS.items():
            if document := make(setting):
                made[name] = document
            if bar is not None:
                bar.advance()
    said = setting.setups.said + setting.setups.of_models()
    return report_document(setting.verdict, made, setting.inputs, said, setting.left_out)


def _setting(asked: AskedReport) -> Setting:
    """The deployment and the verdict on it; options are read before any model is."""
    from roofcast.calculators.report import verdict_of
    from roofcast.cli.checking import Setups
    from roofcast.cli.deploy import efficiency_of

    batches, limits, constants = asked.batches(), asked.limits(), efficiency_of(asked.deployed.efficiency)
    lists, others = asked.beside.price_lists(), asked.beside.accelerators()
    asked.beside.model_names()
    asked.beside.tariff()
    asked.requests_per_second()
    case = asked.case()
    measured = gathered_for(asked, case)
    setups = Setups(constants, asked.deployed.lookup.offline)
    case = _as_long(case, asked, setups.model(case))
    ready = setups.ready(case)
    memory = _memory(asked, case, setups, ready)
    verdict = verdict_of(ready, case.context, case.prompt, limits)
    if verdict.most and verdict.ttft.seconds is None:
        raise UsageError(
            f"--prompt {case.prompt:,}: it has no room beside --context {case.context:,}: {_why(ready, case)}"
        )
    setups.note(case, in_memory=ready.holding is not None, contexts=[case.context, case.prompt])
    shown = batches or _loads(verdict)
    own = ready.deployment.accelerator.id
    beside = list({other.id: other for other in others if other.id != own}.values())
    return Setting(
        asked, case, setups, ready, verdict, shown, beside, lists, memory, measured, _inputs(asked, case, ready)
    )


def _inputs(asked: AskedReport, case: Case, ready: Ready) -> dict[str, object]:
    """What is asked, as `inputs` repeats it."""
    limits = asked.limits()
    return {
        **asked.deployed.inputs(case, ready),
        "context": case.context,
        "prompt": case.prompt,
        "batches": asked.batches(),
        "ttft_limit_seconds": limits.ttft_seconds,
        "tpot_limit_seconds": limits.tpot_seconds,
        "requests_per_second": asked.requests_per_second(),
        "efficiency": asked.deployed.efficiency,
        "other_gpus": asked.beside.gpu_names(),
        "other_models": asked.beside.model_names(),
        "measured": list(asked.beside.measured),
    }


def _why(ready: Ready, case: Case) -> str:
    """Why the prompt has no room."""
    from roofcast.calculators.phases import Asked, shortage
    from roofcast.modelspec.step import PREFILL

    return shortage(ready, Asked(PREFILL, 1, case.prompt))


def _as_long(case: Case, asked: AskedReport, model: Model) -> Case:
    """The deployment with contexts that are not asked for cut to the model's own maximum."""
    most = model.spec.max_context
    context = case.context if asked.context or most is None else min(case.context, most)
    prompt = case.prompt if asked.prompt else context
    return replace(case, context=context, prompt=prompt)


def _loads(verdict: Verdict) -> list[int]:
    """Loads that tables show: usual ones as far as they fit, the most that meet the limit, and the most."""
    top = verdict.most.batch if verdict.most else 1
    also = [load.batch for load in (verdict.met, verdict.most) if load]
    return sorted({*(batch for batch in USUAL if batch <= top), *also} or {1})


def _memory(asked: AskedReport, case: Case, setups: Setups, ready: Ready) -> Document | None:
    """As `fit`; None of layouts that need an engine's rules, where none is named."""
    from roofcast.calculators.remarks import contexts_of
    from roofcast.cli.fit import Asked, fit_answer

    if ready.holding is None:
        return None
    deployed = asked.deployed
    machine = deployed.machine
    devices = {name: getattr(machine, name) for name in ("gpus", "tp", "pp", "ep", "dp")}
    longest = setups.room(case).longest or options.MOST  # of the server's requests
    usual = (min(context, longest) for context in contexts_of(ready.model, None))
    contexts = sorted({case.context, *usual} if ready.holding.sequences(case.context) else {case.context})
    wanted = Asked(
        deployed.model,
        machine.gpu,
        devices,
        machine.engine,
        deployed.weights,
        deployed.kv,
        contexts,
        [],
        deployed.lookup,
    )
    return fit_answer(wanted, None, deployed.flags, None)


def _load(setting: Setting) -> Document:
    """As `estimate`: the prompt, and decode at the loads shown; with the sweep over all that fit."""
    from roofcast.calculators.estimate import estimate_result
    from roofcast.calculators.sweep import sweep, sweep_batches
    from roofcast.reports.estimate import estimate_document, sweep_charts

    ready = setting.ready
    result, said = estimate_result(ready, setting.points)
    document = estimate_document(result, setting.inputs, said)
    top = setting.verdict.most
    if top is None:
        return document
    batches = sorted({*(setting.asked.batches() or sweep_batches(top.batch)), *setting.shown})
    made = sweep(ready, setting.case.context, batches, setting.verdict.limits.tpot_seconds)
    return replace(document, charts=sweep_charts(made))


def _service(setting: Setting) -> Document | None:
    """As `simulate`; None where nothing fits."""
    from roofcast.cli.report_service import service_part

    return service_part(setting, _workload(setting).requests[0])


def _roofline(setting: Setting) -> Document:
    """As `roofline`, of the same points."""
    from roofcast.calculators.roofline_table import roofline_result
    from roofcast.reports.roofline import roofline_document

    result, said = roofline_result(setting.ready, setting.points)
    return roofline_document(result, setting.inputs, said)


def _cache(setting: Setting) -> Document:
    """As `kv`: the model, and others beside it."""
    from roofcast.calculators.cache_format import cache_format
    from roofcast.calculators.kv import cache_note, kv_model, table_notes
    from roofcast.calculators.kv_curves import KvCurves, kv_curve
    from roofcast.cli.session import Lookup, formats
    from roofcast.reports.kv import kv_document

    asked, own = setting.asked, setting.ready
    _, kv = formats(None, asked.deployed.kv)
    lookup = Lookup(None, asked.deployed.lookup.offline)
    beside = [load(name, lookup) for name in asked.beside.model_names()]
    models = [own.model, *(model for model in beside if model.name != own.model.name)]
    rows, curves, said = [], [], Remarks()
    for number, model in enumerate(models):
        weights = own.deployment.weights if number == 0 else None
        form, of_cache = cache_format(model, kv, own.deployment.engine)
        row, of_model = kv_model(model, weights=weights, kv=form, contexts=None)
        rows.append(row)
        curves.append(kv_curve(model, weights=weights, kv=form))
        said += of_model + of_cache
    shards = own.deployment.shards  # one sequence lives in one replica
    drawn = KvCurves(curves, own.capacity, own.deployment.accelerator.id, shards.devices // shards.dp)
    said = cache_note(rows, "--kv" if kv else "the engine's") + said + table_notes(rows)
    return kv_document(rows, setting.inputs, said, contexts=None, curves=drawn)


def _gpus(setting: Setting) -> Document | None:
    """The accelerator beside others; None without any."""
    from roofcast.calculators.compare import Refused, compare
    from roofcast.modelspec.errors import ModelError
    from roofcast.reports.gpus import compared_document

    case = setting.case
    if not setting.others:
        return None
    rows: list[Ready | Refused] = [setting.ready]
    for accelerator in setting.others:
        try:
            rows.append(setting.setups.ready(replace(case, gpu=accelerator.id)))
        except (UsageError, UnansweredError, ModelError) as error:
            rows.append(Refused(accelerator, str(error), setting.ready.deployment.shards.devices))
    batch = max(setting.shown)
    return compared_document(compare(rows, batch, case.context, case.prompt), setting.inputs, remarks())


def _levers(setting: Setting) -> Document:
    """As `levers`: bounds, in as much of the memory as the verdict takes."""
    from roofcast.calculators.levers import levers_result
    from roofcast.calculators.variants import Base
    from roofcast.reports.levers import levers_document

    case = setting.case
    ready = replace(setting.ready, holding=None, expectation=None)
    batch = setting.verdict.met or setting.verdict.most
    base = Base(
        ready,
        min(batch.batch if batch else 1, USUAL[1]),
        case.context,
        case.prompt,
        tuple(setting.others),
        _usable(setting),
    )
    result, said = levers_result(base)
    return levers_document(result, setting.inputs, said)


def _usable(setting: Setting) -> float:
    """Share of the memory that weights and cache may take together, as the verdict has it; all where nothing says so. [-]"""
    if setting.memory is None:
        return 1.0
    fit: FitResult = setting.memory.result
    left = sum(term.bytes for term in fit.terms if term.name == LEFT)  # beside a cache that flags size
    return (fit.memory.weight_bytes + fit.memory.kv_bytes + left) / setting.ready.capacity


def _price(setting: Setting) -> Document | None:
    """As `price`, of the loads shown, in the memory that the verdict is about; None where nothing fits."""
    from roofcast.calculators.api_cost import Terms
    from roofcast.calculators.price import Own, hourly_cost
    from roofcast.calculators.price_answer import Question, price_result
    from roofcast.reports.price import price_document

    ready = setting.ready
    if setting.verdict.most is None:
        return None
    tariff = setting.asked.beside.tariff()
    hourly = hourly_cost(tariff, ready.deployment.accelerator, ready.deployment.shards.devices)
    own = Own(ready, tuple(setting.shown), None, hourly, None)
    question = Question(own, hourly, (_workload(setting),), setting.lists, Terms())
    result, said = price_result(question)
    return price_document(result, setting.inputs, said)


def _workload(setting: Setting) -> Workload:
    """A request that ends at the context of the verdict, where no prompt is asked for; else of that prompt."""
    from roofcast.calculators.workload import Request, Workload
    from roofcast.cli.deploy import one
    from roofcast.cli.price_asked import DEFAULT_OUTPUT

    case, given = setting.case, setting.asked.prompt
    output = one(setting.asked.output, "--output", min(DEFAULT_OUTPUT, max(1, case.context // 2)))
    prompt = case.prompt if given else max(1, case.context - output)
    return Workload(f"{prompt}:{output}", (Request(prompt, output),), case.context)


def _sources(setting: Setting) -> Document:
    """As `gpus` of the accelerator: its facts, and where they were read."""
    from roofcast.calculators.gpus import gpu_row
    from roofcast.reports.report_sources import sources_document

    return sources_document(gpu_row(setting.ready.deployment.accelerator), setting.inputs, Remarks())


#: the parts in their order, each None where it does not apply
PARTS: Final[Mapping[str, Callable[[Setting], Document | None]]] = {
    "memory": lambda setting: setting.memory,
    "load": _load,
    "service": _service,
    "roofline": _roofline,
    "cache": _cache,
    "gpus": _gpus,
    "levers": _levers,
    "price": _price,
    "plan": lambda setting: plan_part(setting, _workload(setting).requests[0]),
    "measured": measured_part,
    "sources": _sources,
}
