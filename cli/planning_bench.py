"""What a worker of `plan` has: one unit of each machine that it is asked about, made once and kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from roofcast.calculators.deployment import cache_on_one
from roofcast.calculators.planning.tasks import perform, picked

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.planning.tasks import Pick, Task
    from roofcast.calculators.serving.service import Options, Service
    from roofcast.cli.checking import Setups
    from roofcast.cli.deploy import Efficiencies
    from roofcast.hwdb.lookup import Match
    from roofcast.modelspec.model import Model

LONGEST: Final = ("max_model_len", "session_len")  # flags that say how long requests may be, by engine
SIXTEEN: Final = 16  # bits of what is not quantised
KEPT: Final = 400  # units that a worker keeps at once


@dataclass(frozen=True, slots=True)
class Setting:
    """All that workers need to know; it goes to each of them once.

    Args:
        case: the deployment as far as it is the same for all.
        model: as it was loaded.
        matches: accelerators by id.
        demands: the workloads.
        options: of scheduling and memory, by workload.
        efficiencies: constants of expected times.
        longest: of requests that an engine is started for, by workload. [token]
        key: by which processes tell settings apart.
    """

    case: Case
    model: Model
    matches: Mapping[str, Match]
    demands: tuple[Demand, ...]
    options: tuple[Options, ...]
    efficiencies: Efficiencies
    longest: tuple[int | None, ...]
    key: str = field(default_factory=lambda: uuid4().hex)


@dataclass(slots=True)
class Workbench:
    """A worker's own.

    Args:
        setting: what is the same for all tasks.
        setups: models, machines and constants.
        services: units that were made.
        demands: workloads as they were picked.
        constants: of expected times, by device, engine and format.
    """

    setting: Setting
    setups: Setups
    services: dict[Hashable, Any] = field(default_factory=dict)
    demands: dict[Pick, Demand] = field(default_factory=dict)
    constants: dict[Hashable, Any] = field(default_factory=dict)

    def demand(self, pick: Pick) -> Demand:
        """A workload, made once."""
        found = self.demands.get(pick)
        if found is None:
            found = self.demands[pick] = picked(self.setting.demands[pick.number], pick)
        return found

    def service(self, machine: Machine, pick: Pick) -> Service:
        """One unit of a machine for a workload, made once; what workloads start alike is one."""
        wanted, longest = self.setting.options[pick.number], self._longest(pick)
        key = machine, wanted, longest
        if key not in self.services:
            if len(self.services) >= KEPT:
                self.services.pop(next(iter(self.services)))
            self.services[key] = self._told(machine, wanted, longest)[0]
        found: Service = self.services[key]
        return found

    def _longest(self, pick: Pick) -> int | None:
        """Tokens of the longest request that an engine is started for."""
        if pick.prompt is None:
            return self.setting.longest[pick.number]
        most, shape = self.setting.model.spec.max_context, self.demand(pick).shape
        return shape.longest if most is None else min(shape.longest, most)

    def told(self, machine: Machine, pick: Pick) -> tuple[Service, Remarks]:
        """One unit of a machine for a workload, and what is assumed of it."""
        return self._told(machine, self.setting.options[pick.number], self._longest(pick))

    def _told(self, machine: Machine, wanted: Options, longest: int | None) -> tuple[Service, Remarks]:
        from roofcast.calculators.engines.flags import TAKES
        from roofcast.calculators.engines.registry import engine_memory
        from roofcast.calculators.engines.terms import Served
        from roofcast.calculators.serving.service import service_of

        case = case_of(self.setting.case, machine, longest)
        ready = self._ready(case)
        memory = None
        if case.engine in TAKES:
            served = self.setups.loaded_by_engine(case)
            memory = engine_memory(case.engine, served)
        wanted = replace(wanted, policy=machine.policy or wanted.policy)
        if memory is None:
            wanted = replace(wanted, kv_tokens=self.setups.plain_tokens(case))
        if machine.pools:
            wanted = replace(wanted, readers=1, writers=1)
        service, said = service_of(Served(ready, case.flags), memory, wanted)
        return _really(service, self.setting.model), said

    def _ready(self, case: Case) -> Ready:
        """The deployment with constants of expected times; these are looked up once a device, engine and format."""
        bare = self.setups.bare(case)
        if not self.setting.efficiencies.wanted:
            return bare
        from roofcast.calculators.expected.expectation import expectation_for

        key = case.gpu, case.engine, case.weights
        found = self.constants.get(key)
        if found is None:
            found = self.constants[key] = expectation_for(bare, self.setting.efficiencies.file)
        return replace(bare, expectation=found)


def _really(service: Service, model: Model) -> Service:
    """A service that has room for a cache also where embedding and head are in 16 bits, as checkpoints keep them.

    A format that is asked counts for all parameters; where nothing is left but by that, it would not start.
    """
    deployment, pool = service.ready.deployment, service.pool
    bits = getattr(deployment.weights, "bits", None)
    if service.reason or bits is None or bits >= SIXTEEN or not pool.per:
        return service
    components = model.spec.components
    tables = (
        max(components["embedding"], components["head"])
        if deployment.shards.pp > 1
        else components["embedding"] + components["head"]
    )
    beside = tables / deployment.shards.tp * (SIXTEEN - bits) / 8
    cache = cache_on_one(service.ready, deployment.shards.dp, pool.tokens)
    if beside < cache:
        return service
    reason = (
        "it fits only with embedding and head in the format of the other weights, and checkpoints keep these in 16 bits"
    )
    return replace(service, reason=reason)


def case_of(base: Case, machine: Machine, longest: int | None) -> Case:
    """A machine as rules of `check` and `simulate` have it; the engine is started for the longest request."""
    from roofcast.calculators.engines.flags import TAKES

    flags, shards = base.flags, machine.shards
    takes = TAKES.get(machine.engine, frozenset())
    for name in LONGEST:
        if longest is not None and name in takes and getattr(flags, name) is None:
            given: dict[str, Any] = {name: longest}
            flags = replace(flags, **given)
            break
    return replace(
        base, gpu=machine.gpu, gpus=None, tp=shards.tp, pp=shards.pp, ep=shards.ep, dp=shards.dp, engine=machine.engine,
        weights=machine.weights, kv=machine.kv, flags=flags,
    )  # fmt: skip


def bench_of(setting: Setting) -> Workbench:
    """A workbench that knows the model and the accelerators, and asks nothing of the outside."""
    from roofcast.cli.checking import Setups, model_key

    setups = Setups(setting.efficiencies, offline=True)
    setups.made["model", *model_key(setting.case)] = setting.model
    for name, match in setting.matches.items():
        setups.made["gpu", name] = match
    return Workbench(setting, setups)


#: the bench of each thread, since a worker may have several
_OWN: Final = threading.local()


def bench_for(setting: Setting) -> Workbench:
    """The bench of this thread for a setting; there is one at a time."""
    bench: Workbench | None = getattr(_OWN, "bench", None)
    if bench is None or bench.setting.key != setting.key:
        bench = _OWN.bench = bench_of(setting)
    return bench


def work(setting: Setting, task: Task) -> Any:  # noqa: ANN401 - by kind of task
    """Does a task with the bench of this thread."""
    return perform(task, bench_for(setting))
