"""What a sweep asks of its workers: small questions, each of which can be answered anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Final, Protocol

from roofcast.calculators.errors import UsageError
from roofcast.calculators.planning.demand import Trial
from roofcast.calculators.planning.machines import Machine  # noqa: TC001 - fields of tasks
from roofcast.calculators.planning.settling import Range, Settled, settle, settle_pools, stretched
from roofcast.calculators.planning.trial import Count, Tried, Verdict, hopeless_at, judged, part_of, tried
from roofcast.calculators.planning.weigh import Weighed, weigh
from roofcast.calculators.serving.highest import highest
from roofcast.calculators.serving.result import Goal  # noqa: TC001 - likewise

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.serving.service import Service


PROMPT: Final = "prompt"
LOAD: Final = "load"
WITHIN: Final = 0.02  # of what is looked for [-]


@dataclass(frozen=True, slots=True)
class Pick:
    """One of the workloads, as it is or otherwise.

    Args:
        number: of the workload.
        factor: of its load. [-]
        goal: in place of its promise; None is its own.
        prompt: tokens of all its prompts; None is as they are. [token]
    """

    number: int
    factor: float = 1.0
    goal: Goal | None = None
    prompt: int | None = None


@dataclass(frozen=True, slots=True)
class Weigh:
    """The closed form of a machine, for several workloads."""

    machine: Machine
    picks: tuple[Pick, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """The least number of replicas that will do, by simulation.

    Args:
        machine: of which.
        pick: the workload.
        units: that are looked at.
        pools: readers and writers to begin with, of pools.
    """

    machine: Machine
    pick: Pick
    units: Range
    pools: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Judge:
    """Whether so many will do, by simulation.

    Args:
        machine: of which.
        pick: the workload.
        count: how many.
        brief: whether one trial of just that load is enough.
        doubtful: whether it is likely not kept.
    """

    machine: Machine
    pick: Pick
    count: Count
    brief: bool = False
    doubtful: bool = True


@dataclass(frozen=True, slots=True)
class Stretch:
    """The highest load that so many keep, by simulation."""

    machine: Machine
    pick: Pick
    count: Count


@dataclass(frozen=True, slots=True)
class Stretched:
    """What was found.

    Args:
        factor: the highest of the load that keeps what is promised; None where not even the load does. [-]
        limit: what is hit beyond; empty where nothing is.
    """

    factor: float | None
    limit: str


@dataclass(frozen=True, slots=True)
class Most:
    """The most of something that so many keep, by simulation.

    Args:
        machine: of which.
        pick: the workload.
        count: how many.
        of: load or prompt: a factor of the load, or tokens of a prompt.
        start: to begin with, of the same.
        limit: no more than that is looked at.
        above: what another one does, below which nothing is looked for.
    """

    machine: Machine
    pick: Pick
    count: Count
    of: str
    start: float
    limit: float
    above: float = 0.0


@dataclass(frozen=True, slots=True)
class Mosted:
    """What was found.

    Args:
        value: the most; None where not even the least does.
        limit, reason: what is hit beyond; empty where nothing is up to what is looked at.
        at: the run at that; None without one.
    """

    value: float | None
    limit: str
    reason: str
    at: Tried | None


Task = Weigh | Settle | Judge | Stretch | Most


class Bench(Protocol):
    """What a worker has."""

    def service(self, machine: Machine, pick: Pick) -> Service:
        """One unit of a machine for a workload, made once.

        Raises:
            UsageError: the engine, the device or the model's shape rules it out.
        """

    def demand(self, pick: Pick) -> Demand:
        """A workload, made once."""


def picked(demand: Demand, pick: Pick) -> Demand:
    """A workload as it is picked."""
    changed = demand if pick.factor == 1.0 else demand.times(pick.factor)
    if pick.prompt is not None:
        changed = changed.with_prompt(pick.prompt)
    return changed if pick.goal is None else replace(changed, goal=pick.goal)


@singledispatch
def perform(task: Any, bench: Bench) -> Any:  # noqa: ANN401, ARG001 - by kind of task
    """Answers a task.

    Raises:
        TypeError: it is none.
    """
    msg = f"{task!r} is no task"
    raise TypeError(msg)


@perform.register
def _weigh(task: Weigh, bench: Bench) -> tuple[Weighed, ...]:
    return tuple(_weighed(task.machine, pick, bench) for pick in task.picks)


def _weighed(machine: Machine, pick: Pick, bench: Bench) -> Weighed:
    try:
        service = bench.service(machine, pick)
    except UsageError as error:
        return Weighed(limit="refused", reason=str(error))
    return weigh(service, bench.demand(pick))


@perform.register
def _settle(task: Settle, bench: Bench) -> Settled:
    service, demand = bench.service(task.machine, task.pick), bench.demand(task.pick)
    if task.machine.pools:
        return settle_pools(service, demand, task.pools, task.units.most)
    return settle(service, demand, task.units)


@perform.register
def _judge(task: Judge, bench: Bench) -> Verdict:
    demand = bench.demand(task.pick)
    trials = demand.trials[1:2] if task.brief else None
    return judged(bench.service(task.machine, task.pick), demand, task.count, trials, doubtful=task.doubtful)


@perform.register
def _stretch(task: Stretch, bench: Bench) -> Stretched:
    whole, wanted = bench.service(task.machine, task.pick), bench.demand(task.pick)
    service, demand = part_of(whole, wanted, task.count)
    limits: dict[float, str] = {}
    if demand.needed is not None:
        found = tried(service, demand, Trial(1.0, demand.seed))
        return Stretched((found.able or 0.0) / demand.needed, "rate")

    def keeps(factor: float) -> bool:
        trial = Trial(factor, demand.seed)
        found = hopeless_at((service, demand), trial, task.count) if factor > 1 else None
        found = found or tried(service, demand, trial)
        limits[factor] = found.limit
        return found.keeps

    low, high = stretched(keeps)
    return Stretched(low, "" if high is None else limits[high])


@perform.register
def _most(task: Most, bench: Bench) -> Mosted:
    """Doubled or halved from the start until it does on one side alone, then halved between, to 2 %."""
    runs: dict[float, Tried] = {}

    def keeps(value: float) -> bool:
        if value > task.limit:
            return False
        pick = replace(task.pick, **({"prompt": round(value)} if task.of == PROMPT else {"factor": value}))
        try:
            service = bench.service(task.machine, pick)
        except UsageError:
            return False
        if service.reason:
            return False
        runs[value] = one = kept_twice(
            *part_of(service, bench.demand(pick), task.count), Trial(1.0, bench.demand(pick).seed), task.count
        )
        return one.keeps

    least = task.above * (1 + WITHIN)
    if task.above and not keeps(least):
        return Mosted(None, *_said_of(runs.get(least)), None)
    found = highest(keeps, min(max(task.start, least), task.limit), WITHIN)
    if found.rate is not None and keeps_all(keeps, task, found.rate):
        return Mosted(task.limit, "", "", runs[task.limit])
    beyond = runs.get(found.beyond) if found.beyond is not None else None
    if found.rate is None:
        return Mosted(None, *_said_of(beyond or min(runs.items(), default=(0, None))[1]), None)
    return Mosted(found.rate, *_said_of(beyond), runs[found.rate])


def kept_twice(service: Service, demand: Demand, trial: Trial, count: Count) -> Tried:
    """A trial that is kept, and another chance of it; the one that fails where one does."""
    first = tried(service, demand, trial, count)
    if not first.keeps:
        return first
    second = tried(service, demand, replace(trial, seed=trial.seed + 1), count)
    return first if second.keeps else second


def keeps_all(keeps: Callable[[float], bool], task: Most, found: float) -> bool:
    """Whether the most that is looked at will do, where what was found lies right below it."""
    return found * (1 + 2 * WITHIN) >= task.limit and keeps(task.limit)


def _said_of(one: Tried | None) -> tuple[str, str]:
    """Why a run does not keep what is promised; what has no run has no room."""
    return ("memory", "it does not fit") if one is None else (one.limit, one.reason)
