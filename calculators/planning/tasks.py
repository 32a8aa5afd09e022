"""What a sweep asks of its workers: small questions, each of which can be answered anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Protocol

from roofcast.calculators.errors import UsageError
from roofcast.calculators.planning.demand import Trial
from roofcast.calculators.planning.machines import Machine  # noqa: TC001 - fields of tasks
from roofcast.calculators.planning.trial import (
    Count,
    Range,
    Settled,
    Verdict,
    judged,
    part_of,
    settle,
    settle_pools,
    stretched,
    tried,
)
from roofcast.calculators.planning.weigh import Weighed, weigh
from roofcast.calculators.serving.result import Goal  # noqa: TC001 - likewise

if TYPE_CHECKING:
    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.serving.service import Service


@dataclass(frozen=True, slots=True)
class Pick:
    """One of the workloads, as it is or otherwise.

    Args:
        number: of the workload.
        factor: of its load. [-]
        goal: in place of its promise; None is its own.
    """

    number: int
    factor: float = 1.0
    goal: Goal | None = None


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
    """Whether so many will do, by simulation."""

    machine: Machine
    pick: Pick
    count: Count


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


Task = Weigh | Settle | Judge | Stretch


class Bench(Protocol):
    """What a worker has."""

    def service(self, machine: Machine, number: int = 0) -> Service:
        """One unit of a machine for a workload, made once.

        Raises:
            UsageError: the engine, the device or the model's shape rules it out.
        """

    def demand(self, pick: Pick) -> Demand:
        """A workload, made once."""


def picked(demand: Demand, pick: Pick) -> Demand:
    """A workload as it is picked."""
    changed = demand if pick.factor == 1.0 else demand.times(pick.factor)
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
        service = bench.service(machine, pick.number)
    except UsageError as error:
        return Weighed(limit="refused", reason=str(error))
    return weigh(service, bench.demand(pick))


@perform.register
def _settle(task: Settle, bench: Bench) -> Settled:
    service, demand = bench.service(task.machine, task.pick.number), bench.demand(task.pick)
    if task.machine.pools:
        return settle_pools(service, demand, task.pools, task.units.most)
    return settle(service, demand, task.units)


@perform.register
def _judge(task: Judge, bench: Bench) -> Verdict:
    return judged(bench.service(task.machine, task.pick.number), bench.demand(task.pick), task.count)


@perform.register
def _stretch(task: Stretch, bench: Bench) -> Stretched:
    whole, wanted = bench.service(task.machine, task.pick.number), bench.demand(task.pick)
    service, demand = part_of(whole, wanted, task.count)
    limits: dict[float, str] = {}

    def keeps(factor: float) -> bool:
        found = tried(service, demand, Trial(factor, demand.seed + 1))
        limits[factor] = found.limit
        return found.keeps

    low, high = stretched(keeps)
    return Stretched(low, "" if high is None else limits[high])
