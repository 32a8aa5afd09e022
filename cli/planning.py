"""What `plan` does: candidates, the search over a crew of workers, and the answer, whole or as far as it came."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.planning.answer import Found, Writer, numbered
from roofcast.calculators.planning.around import cheaper, doubled, easier, faster, headroom, nearest
from roofcast.calculators.planning.field import Candidate
from roofcast.calculators.planning.floor import Device, device_of, floor_of, work_of
from roofcast.calculators.planning.machines import machines_of
from roofcast.calculators.planning.rows import PlanResult
from roofcast.calculators.planning.search import Limits, Search
from roofcast.calculators.planning.tasks import Pick
from roofcast.cli.crew import crew_of
from roofcast.cli.planning_asked import AskedChoices, AskedGpus, AskedLimits
from roofcast.cli.planning_bench import Setting, bench_for, work
from roofcast.cli.planning_demands import AskedDemand, demands_of, longest_of, read_workloads
from roofcast.cli.planning_names import Names
from roofcast.cli.progress import progress_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.planning.rows import PricedGpu
    from roofcast.calculators.planning.search import Run
    from roofcast.cli.asked_deployment import AskedDeployment
    from roofcast.cli.checking import Setups
    from roofcast.cli.crew import Crew
    from roofcast.cli.progress import ShardProgress
    from roofcast.reports.document import Document

OUT_OF_TIME: Final = "the time of --budget is over"
INTERRUPTED: Final = "it was interrupted"


class OutOfTimeError(Exception):
    """The budget of time is used up."""


@dataclass(frozen=True, slots=True)
class AskedPlan:
    """The whole question, as options give it.

    Args:
        deployed: the model, flags, network and constants; its machine is not looked at.
        gpus, choices, limits: what is looked at.
        demand: the workload, or what workloads of a file have in common.
        workloads: that file; None of one workload.
        jobs, dask: who does the work.
        find: what the most is looked for of; None is the cheapest deployment.
        gpus_there: GPUs that there are then.
        brief: whether what stands around the best deployment is left out.
    """

    deployed: AskedDeployment
    gpus: AskedGpus
    choices: AskedChoices
    limits: AskedLimits
    demand: AskedDemand
    workloads: str | None = None
    jobs: int | None = None
    dask: str | None = None
    find: str | None = None
    gpus_there: int | None = None
    brief: bool = False


@dataclass(slots=True)
class Prepared:
    """A question, with all that it needs read.

    Args:
        asked: it.
        setting: what workers get.
        prices: of GPUs.
        setups: models and machines.
        limits: what a deployment may be.
        unpriced: GPUs that are left out.
        demands: workloads as they are asked.
        devices: accelerators in the numbers that the roofline needs.
    """

    asked: AskedPlan
    setting: Setting
    prices: Mapping[str, PricedGpu]
    setups: Setups
    limits: Limits
    unpriced: list[str]
    demands: tuple[AskedDemand, ...]
    devices: dict[Hashable, Device] = field(default_factory=dict)

    def names(self) -> Names:
        """How deployments are called."""
        return Names(self.setups, self.setting, self.asked.deployed, self.demands, bench_for(self.setting))

    def device(self, machine: Machine) -> Device:
        """An accelerator in the numbers that the roofline needs; made once for its formats."""
        from roofcast.calculators.roofline import roofs_of
        from roofcast.cli.session import formats

        key = machine.gpu, machine.engine, machine.weights, machine.kv
        if key not in self.devices:
            base, model = self.setting.case, self.setting.model
            accelerator = self.setting.matches[machine.gpu].accelerator
            work = self.devices.setdefault(("work", machine.weights), work_of(model, formats(machine.weights, None)[0]))  # type: ignore[arg-type]
            cache = self.setups.cache(replace(base, engine=machine.engine, kv=machine.kv))
            self.devices[key] = device_of(accelerator, roofs_of(accelerator, machine.engine), work, model, cache)  # type: ignore[arg-type]
        return self.devices[key]

    def searches(self, machines: Sequence[Machine], run: Run) -> list[Search]:
        """A search for each workload, which share what they ask."""
        peers: list[Search] = []
        for number, demand in enumerate(self.setting.demands):
            candidates = [self.candidate(machine, demand) for machine in machines if demand.sends.rate or not machine.pools]
            peers.append(Search(Pick(number), demand, candidates, self.limits, run, peers))
        return peers

    def candidate(self, machine: Machine, demand: Demand) -> Candidate:
        """A machine under a workload."""
        floor = floor_of(self.device(machine), machine, demand.shape, demand.goal)
        return Candidate(machine, self.prices[machine.gpu].price_per_gpu_hour, floor)


def prepared(asked: AskedPlan) -> Prepared:
    """Reads the model, the accelerators, prices and workloads.

    Raises:
        ModelError, UsageError, UnitError, UnknownAcceleratorError, UnknownProviderError: what is wrong with what is asked.
    """
    from roofcast.cli.checking import Setups
    from roofcast.cli.deploy import efficiency_of

    limits = Limits(asked.limits.gpus, asked.limits.cost, asked.limits.kinds)
    _ = asked.limits.seconds
    deployed, own = _flagged(asked)
    asked = replace(asked, deployed=deployed)
    constants = efficiency_of(deployed.efficiency)
    every = [asked.demand] if asked.workloads is None else read_workloads(asked.workloads, asked.demand)
    for one in every:
        if one.deadline is None:
            one.load.check()
        one.goal.goal()
    matches = asked.gpus.matches()
    prices = asked.gpus.prices(matches)
    if limits.cost < inf and all(price.price_per_gpu_hour is None for price in prices.values()):
        raise UsageError("--max-cost: no price of these GPUs is known; --gpu-price gives it")
    setups = Setups(constants, deployed.lookup.offline)
    case = base_case(deployed, asked.choices.engine)
    model = setups.model(case)
    demands = tuple(demands_of(every))
    options = tuple(_options(one, case, own) for one in every)
    longest = tuple(longest_of(demand, model.spec.max_context) for demand in demands)
    setting = Setting(case, model, matches, demands, options, constants, longest)
    for gpu, match in matches.items():
        setups.made["gpu", gpu] = match
    return Prepared(asked, setting, prices, setups, limits, asked.gpus.unpriced(matches), tuple(every))


def _flagged(asked: AskedPlan) -> tuple[AskedDeployment, dict[str, Any]]:
    """Flags of engines: without an engine the ones that limit scheduling are the service's own."""
    from roofcast.cli.simulating import without_engine

    return without_engine(asked.deployed)


def base_case(deployed: AskedDeployment, engines: str) -> Case:
    """The deployment as far as it is the same for all machines: model, flags and network.

    Raises:
        UsageError, UnitError: a flag that one of the engines does not take, or cannot be.
    """
    from roofcast.calculators.cache_format import check_engine
    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.engines.flags import TAKES, check_flags
    from roofcast.cli.engine_flags import read_flags
    from roofcast.cli.options import link_bandwidth

    flags = read_flags(deployed.flags, {})
    for name in (part.strip().lower() for part in engines.split(",") if part.strip()):
        check_engine(name)
        if flags.given or name in TAKES:
            check_flags(name, flags)
    lookup = deployed.lookup
    return Case(
        model=deployed.model,
        revision=lookup.revision,
        encoder_tokens=lookup.encoder_tokens,
        network=link_bandwidth(deployed.machine.network),
        flags=flags,
    )


def _options(asked: AskedDemand, case: Case, own: Mapping[str, Any]) -> Any:  # noqa: ANN401 - Options
    """Scheduling and memory of a workload: as `simulate` has them by default."""
    from roofcast.cli.simulating import AskedScheduling

    load = asked.load if asked.deadline is None else replace(asked.load, rate="1")
    return replace(AskedScheduling().options(case, load.load()), **own)


@dataclass(slots=True)
class Sweep:
    """Does tasks by a crew, with a bar, within a budget of time.

    Args:
        crew: who does them.
        bar: of tasks on a terminal.
        until: when the budget is over; infinite without one. [s]
        done: tasks so far.
    """

    crew: Crew
    bar: ShardProgress | None
    until: float
    done: int = 0

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """All outcomes, in order.

        Raises:
            OutOfTimeError: the budget is over.
        """
        found: list[Any] = [None] * len(tasks)
        if not tasks:
            return found
        for number, outcome in self.crew.each(tasks):
            found[number] = outcome
            self.done += 1
            if self.bar is not None:
                self.bar.at("candidates looked at", self.done, None)
            if time.monotonic() > self.until:
                raise OutOfTimeError
        return found


def planned(asked: AskedPlan) -> tuple[Document, bool]:
    """The cheapest deployments that meet workloads, and whether the search was interrupted.

    Raises:
        ModelError, UsageError, UnitError, UnknownAcceleratorError: what is wrong with what is asked.
    """
    from roofcast.cli.planning_said import said_of
    from roofcast.reports.plan import plan_document

    ready = prepared(asked)
    machines = _machines(ready)
    found, stopped = _searched(ready, lambda run: ready.searches(machines, run))
    result = _result(ready, found, partial=bool(stopped))
    best = [(number, one.search.best) for number, one in enumerate(found) if one.search.best is not None]
    said = said_of(ready, result, best, stopped)
    return plan_document(result, _inputs(ready), said), stopped == INTERRUPTED


def _machines(ready: Prepared) -> list[Machine]:
    """All candidates.

    Raises:
        UsageError: sizes that do not divide the model, or no GPU is left.
    """
    flags = ready.asked.deployed.flags
    plain = not flags.get("engine_version")
    choices = ready.asked.choices.choices(ready.limits.gpus, plain=plain)
    accelerators = [match.accelerator for match in ready.setting.matches.values()]
    return machines_of(ready.setting.model.spec, accelerators, choices)


def _searched(ready: Prepared, searches: Callable[[Run], list[Search]]) -> tuple[list[Found], str]:
    """What was found for each workload, and what stopped the search before its end; empty where nothing did."""
    asked = ready.asked
    until = inf if asked.limits.seconds is None else time.monotonic() + asked.limits.seconds
    found: list[Found] = []
    with progress_of("candidates") as bar, crew_of(work, ready.setting, jobs=asked.jobs, dask=asked.dask) as crew:
        try:
            found = [Found(search) for search in searches(Sweep(crew, bar, until).run)]
            for _ in _steps(found, brief=asked.brief):
                pass
        except KeyboardInterrupt:
            return found, INTERRUPTED
        except OutOfTimeError:
            return found, OUT_OF_TIME
    return found, ""


def _steps(found: Sequence[Found], *, brief: bool) -> Iterator[None]:
    """The work, so that what is done stays where it ends early: first every workload's best, then what is around it."""
    for one in found:
        one.search.solve()
        yield
    for one in found:
        one.below = cheaper(one.search)
        yield
        best = one.search.best
        if best is None:
            one.miss = nearest(one.search)
            one.easier = () if brief else easier(one.search)
        elif not brief:
            faster(one.search)
            one.stretched = headroom(one.search, best)
            one.twice, one.still = doubled(one.search)
        yield


def _result(ready: Prepared, found: Sequence[Found], *, partial: bool) -> PlanResult:
    """The answer."""
    writer = Writer(ready.names(), ready.prices)
    plans, workloads = numbered(writer.rows(one, number) for number, one in enumerate(found))
    return PlanResult(
        model=ready.setting.model.name,
        plans=plans,
        workloads=workloads,
        find=None,
        found=[],
        gpus=list(ready.prices.values()),
        unpriced=ready.unpriced,
        partial=partial,
    )


def _inputs(ready: Prepared) -> dict[str, object]:
    """What is asked, as `inputs` repeats it."""
    asked, deployed = ready.asked, ready.asked.deployed
    choices = asked.choices
    return {
        "model": deployed.model,
        "gpus": sorted(ready.setting.matches) if asked.gpus.gpu is not None else None,
        "gpu_price": list(asked.gpus.gpu_price) or None,
        "provider": asked.gpus.provider,
        "max_gpus": ready.limits.gpus,
        "max_cost": None if ready.limits.cost == inf else ready.limits.cost,
        "top": ready.limits.kinds,
        "budget_seconds": asked.limits.seconds,
        "tp": choices.tp,
        "pp": choices.pp,
        "ep": choices.ep,
        "engine": choices.engine,
        "weights": choices.weights,
        "kv": choices.kv,
        "policy": choices.policy,
        "network_bytes_per_second": ready.setting.case.network,
        "engine_flags": ready.setting.case.flags.given,
        "workloads": asked.workloads,
        **({} if asked.workloads else asked.demand.load.inputs),
        "deadline": asked.demand.deadline,
        "efficiency": deployed.efficiency,
        **deployed.lookup.asked,
    }

