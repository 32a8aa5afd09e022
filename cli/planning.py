"""What `plan` is asked, with all that it needs read: the model, accelerators, prices and workloads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any

from roofcast.calculators.errors import UsageError
from roofcast.calculators.planning.field import Candidate
from roofcast.calculators.planning.floor import Device, Floor, device_of, floor_of, work_of
from roofcast.calculators.planning.machines import machines_of
from roofcast.calculators.planning.search import Limits, Search
from roofcast.calculators.planning.tasks import Pick
from roofcast.cli.options import size
from roofcast.cli.planning_asked import MOST_GPUS, AskedChoices, AskedGpus, AskedLimits
from roofcast.cli.planning_bench import Setting, bench_for
from roofcast.cli.planning_demands import AskedDemand, demands_of, longest_of, read_workloads
from roofcast.cli.planning_names import Names

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.planning.rows import PricedGpu
    from roofcast.calculators.planning.search import Run
    from roofcast.cli.asked_deployment import AskedDeployment
    from roofcast.cli.checking import Setups
    from roofcast.modelspec.model import Model


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
        model: the model, where it is loaded already.
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
    model: Model | None = None


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
        return Names(
            self.setups,
            self.setting,
            self.asked.deployed,
            self.demands,
            bench_for(self.setting),
            self.asked.find == "context",
        )

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
            candidates = [
                self.candidate(machine, demand) for machine in machines if demand.sends.rate or not machine.pools
            ]
            peers.append(Search(Pick(number), demand, candidates, self.limits, run, peers))
        return peers

    def candidate(self, machine: Machine, demand: Demand) -> Candidate:
        """A machine under a workload."""
        most, prompt = self.setting.model.spec.max_context, demand.shape.prompt_at
        if most is not None and prompt >= most:
            reason = f"prompts of {prompt:,} tokens come, and the model's context is {most:,}"
            floor = Floor(0.0, inf, inf, "context", reason)
        else:
            floor = floor_of(self.device(machine), machine, demand.shape, demand.goal)
        return Candidate(machine, self.prices[machine.gpu].price_per_gpu_hour, floor)

    def machines(self) -> list[Machine]:
        """All candidates.

        Raises:
            UsageError: sizes that do not divide the model, or no GPU is left.
        """
        flags = self.asked.deployed.flags
        choices = self.asked.choices.choices(self.limits.gpus, plain=not flags.get("engine_version"))
        accelerators = [match.accelerator for match in self.setting.matches.values()]
        return machines_of(self.setting.model.spec, accelerators, choices)


def prepared(asked: AskedPlan) -> Prepared:
    """Reads the model, the accelerators, prices and workloads.

    Raises:
        ModelError, UsageError, UnitError, UnknownAcceleratorError, UnknownProviderError: what is wrong with what is asked.
    """
    from roofcast.cli.checking import Setups, model_key
    from roofcast.cli.deploy import efficiency_of

    limits = Limits(asked.limits.gpus, asked.limits.cost, asked.limits.kinds)
    if asked.find is None and asked.gpus_there is not None:
        raise UsageError(
            f"--gpus {asked.gpus_there}: a plan finds the number itself; --max-gpus bounds it, --find takes --gpus"
        )
    if (size(asked.gpus_there, "--gpus") or 1) > MOST_GPUS:
        raise UsageError(f"--gpus {asked.gpus_there:,}: it must be at most {MOST_GPUS:,}")
    asked = finding(asked) if asked.find is not None else asked
    _ = asked.limits.seconds
    deployed, own = _flagged(asked)
    asked = replace(asked, deployed=deployed)
    constants = efficiency_of(deployed.efficiency)
    every = [asked.demand] if asked.workloads is None else read_workloads(asked.workloads, asked.demand)
    for one in every:
        one.check()
    matches = asked.gpus.matches()
    prices = asked.gpus.prices(matches)
    if limits.cost < inf and all(price.price_per_gpu_hour is None for price in prices.values()):
        raise UsageError("--max-cost: no price of these GPUs is known; --gpu-price gives it")
    setups = Setups(constants, deployed.lookup.offline)
    case = base_case(deployed, asked.choices.engine)
    if asked.model is not None:
        setups.made["model", *model_key(case)] = asked.model
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


def finding(asked: AskedPlan) -> AskedPlan:
    """A question the other way round, with the load that it is about: one request a second, or one client.

    Raises:
        UsageError: what means nothing beside it, or is missing.
    """
    from roofcast.calculators.planning.inverse import CONTEXT, FINDS, GPU, RATE, USERS

    find, load = asked.find, asked.demand.load
    if find not in FINDS:
        raise UsageError(f"--find {find}: known: {', '.join(FINDS)}")
    if asked.workloads is not None or asked.demand.deadline is not None:
        option = "--workloads" if asked.workloads is not None else "--deadline"
        raise UsageError(f"--find {find} and {option}: it is of one load that goes on; leave {option} out")
    if asked.gpus.gpu is None and find != GPU:
        raise UsageError(f"--find {find}: on which machine? give --gpu NAME, and --gpus N for more than one")
    given = [option for option in ("rate", "concurrency", "trace") if getattr(load, option) is not None]
    if find in {RATE, USERS} and given:
        raise UsageError(f"--find {find}: it looks for the load itself; leave --{given[0]} out")
    if find == CONTEXT and (load.prompt is not None or load.lengths is not None or load.trace is not None):
        raise UsageError("--find context: it looks for the prompt itself; leave --prompt, --lengths and --trace out")
    if find == USERS and not asked.demand.goal.goal().given:
        raise UsageError("--find users: as many as one likes, if nothing is promised; give --ttft or --tpot")
    one_client = replace(load, concurrency=1)
    usual = {RATE: replace(load, rate="1"), USERS: one_client, CONTEXT: load if given else one_client, GPU: load}
    return replace(asked, demand=replace(asked.demand, load=usual[find]))
