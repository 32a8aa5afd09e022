"""Plans that rules of `check` ask for: a rule's fields as `plan` has them, and its answer as rules have it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks
from roofcast.calculators.check_plan import Option, Planned, named_gpus
from roofcast.calculators.check_quantities import BOUND, EXPECTED, without_constants
from roofcast.calculators.errors import UnansweredError
from roofcast.cli.asked_deployment import AskedDeployment
from roofcast.cli.check_values import in_fields
from roofcast.cli.checking import asked_load
from roofcast.cli.deploy import Machine
from roofcast.cli.engine_flags import OPTIONS
from roofcast.cli.planning import AskedPlan
from roofcast.cli.planning_asked import AUTO, STORED, AskedChoices, AskedGpus, AskedLimits
from roofcast.cli.planning_demands import AskedDemand
from roofcast.cli.session import Lookup
from roofcast.cli.simulating import AskedGoal

if TYPE_CHECKING:
    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.engines.flags import Flags
    from roofcast.calculators.planning.rows import PlanResult, PlanRow
    from roofcast.cli.checking import Setups
    from roofcast.cli.planning_run import Answer

ONE_KIND: Final = 1  # of GPUs whose cheapest deployment is looked for
OTHER_FORMATS: Final = "; --weights stored --kv auto leaves that out"  # of what `plan` says of formats
ALONE: Final = 1  # process: a gate has many small plans


def planned(setups: Setups, case: Case) -> Planned:
    """The cheapest deployment that keeps a rule's limits under its load; what it is made of is noted for locks.

    Raises:
        ModelError, UsageError, UnitError: what is wrong with what is asked.
        UnansweredError: no price of a GPU is known, or there are no constants of expected times.
    """
    from roofcast.cli.machine import machine_remarks
    from roofcast.cli.planning_run import INTERRUPTED, answered

    asked = asked_plan(setups, case)
    if asked.gpus.gpu is not None:
        matches = asked.gpus.matches()
        for match in matches.values():
            setups.said += machine_remarks(match)
        prices = asked.gpus.prices(matches)
        unpriced = [name for name, price in prices.items() if price.price_per_gpu_hour is None]
        if unpriced:
            say = (
                "gpu_price gives it" if len(matches) == 1 else "leave it out of gpu, or give it a rule and a gpu_price"
            )
            raise UnansweredError(f"no rent of {', '.join(unpriced)} is known; {say}")
    answer = answered(asked)
    if answer.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    return _planned(setups, case, answer)


def asked_plan(setups: Setups, case: Case) -> AskedPlan:
    """The question as `plan` would be asked it; formats are as stored and the engine's unless the rule has others.

    Raises:
        UnansweredError: expected times are asked, and there are no constants.
    """
    own = setups.efficiencies
    if case.basis == EXPECTED and not own.wanted:
        raise without_constants(case)
    constants = BOUND if case.basis == BOUND else EXPECTED if own.file is None else str(own.file)
    network = None if case.network is None else f"{case.network!r} B/s"
    lookup = Lookup(case.revision, setups.offline, encoder_tokens=case.encoder_tokens)
    machine = Machine(None, None, None, 1, 1, 1, network, case.engine)
    return AskedPlan(
        AskedDeployment(case.model, machine, flag_texts(case.flags), None, None, constants, lookup),
        AskedGpus(",".join(named_gpus(case.gpu)) or None, (repr(case.gpu_price),) if case.gpu_price else ()),
        AskedChoices(engine=case.engine, weights=case.weights or STORED, kv=case.kv or AUTO),
        AskedLimits(max_gpus=case.max_gpus, top=ONE_KIND),
        AskedDemand(asked_load(case), AskedGoal(_time(case.ttft), _time(case.tpot), None, case.percentile)),
        jobs=ALONE,
        brief=True,
        model=setups.model(case),
    )


def flag_texts(flags: Flags) -> dict[str, Any]:
    """Flags as options have them.

    >>> from roofcast.calculators.engines.flags import Flags
    >>> flag_texts(Flags(max_model_len=8192, kv_cache_memory_bytes=4e10, enforce_eager=True))
    {'kv_cache_memory_bytes': '40000000000.0 B', 'max_model_len': '8192', 'enforce_eager': True}
    """
    made: dict[str, Any] = {}
    for name, value in flags.given.items():
        unit = " B" if OPTIONS[name].kind == "bytes" else ""
        made[name] = value if value is True else f"{value}{unit}"
    return made


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds!r} s"


def _planned(setups: Setups, case: Case, answer: Answer) -> Planned:
    """The answer as rules have it."""
    result = answer.result
    workload, most = result.workloads[0], answer.ready.limits.gpus
    best, below, near = (_row(result, at) for at in (workload.best, workload.next_cheaper, workload.nearest))
    if best is None:
        return Planned(most, None, None, _option(near))
    _note(setups, case, answer, best)
    rent = None if case.gpu_price else rent_text(result, best.deployment.gpu)
    return Planned(most, _option(best), _option(below), None, rent)


def _row(result: PlanResult, at: int | None) -> PlanRow | None:
    return None if at is None else result.plans[at]


def _option(row: PlanRow | None) -> Option | None:
    """A deployment of the answer."""
    from roofcast.reports.plan_words import deployment_words

    if row is None:
        return None
    made = row.deployment
    called = deployment_words(made, formats=False)
    return Option(made.gpu, made.count, called, row.cost_per_hour, in_fields(row.reason or ""))


def rent_text(result: PlanResult, gpu: str) -> str:
    """A rent as locks have it: who asks it, of when, and how much."""
    price = next(one for one in result.gpus if one.gpu == gpu)
    return f"{price.source}, as of {price.as_of}, {price.price_per_gpu_hour!r} USD/h"


def _own_formats(said: Remarks) -> Remarks:
    """What is said of a plan, for a rule, which has no other formats than those that it writes."""
    return Remarks(tuple(line.removesuffix(OTHER_FORMATS) for line in said.assumptions), said.warnings, said.notes)


def _note(setups: Setups, case: Case, answer: Answer, best: PlanRow) -> None:
    """Notes what the best deployment is made of: its accelerator, its constants, and what is assumed of it."""
    from roofcast.calculators.planning.tasks import Pick
    from roofcast.cli.planning_bench import bench_for
    from roofcast.cli.planning_said import said_of

    setups.said += _own_formats(said_of(answer))
    setting, gpu = answer.ready.setting, best.deployment.gpu
    setups.made.setdefault(("gpu", gpu), setting.matches[gpu])
    machine = answer.best[0]
    if machine is not None:
        setups.made["ready", "plan", case] = bench_for(setting).service(machine, Pick(0)).ready
