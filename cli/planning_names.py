"""How `plan` calls deployments: their options, and the `simulate` command that tries one once more."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.planning.rows import PlanDeployment
from roofcast.calculators.planning.tasks import Pick
from roofcast.calculators.planning.trial import counted
from roofcast.cli.planning_bench import LONGEST, case_of

if TYPE_CHECKING:
    from roofcast.calculators.check_quantities import Case
    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.planning.trial import Count
    from roofcast.cli.asked_deployment import AskedDeployment
    from roofcast.cli.checking import Setups
    from roofcast.cli.planning_bench import Setting, Workbench
    from roofcast.cli.planning_demands import AskedDemand

ANOTHER: Final = 100  # of seeds: far from those of the trials


@dataclass(frozen=True, slots=True)
class Names:
    """Options of deployments.

    Args:
        setups: models and machines.
        setting: what workers have.
        deployed: the deployment as options give it.
        demands: workloads as they are asked.
        bench: that knows their services.
        sought: whether the prompt is what is looked for.
    """

    setups: Setups
    setting: Setting
    deployed: AskedDeployment
    demands: tuple[AskedDemand, ...]
    bench: Workbench
    sought: bool = False

    def deployment(self, machine: Machine, count: Count, demand: Demand, number: int) -> PlanDeployment:
        """A number of a machine, as options have it."""
        case = case_of(self.setting.case, machine, self._longest(demand, number))
        shards = machine.shards
        made = PlanDeployment(
            gpu=machine.gpu,
            count=count.total * machine.unit,
            tp=shards.tp,
            pp=shards.pp,
            ep=shards.ep,
            dp=1 if machine.pools else shards.dp * count.units,
            engine=machine.engine,
            weights=machine.weights,
            kv=self._cache(case),
            policy=self._policy(machine, number),
            prefill_replicas=count.readers or None,
            decode_replicas=count.writers or None,
            max_model_len=next((value for name in LONGEST if (value := getattr(case.flags, name)) is not None), None),
        )
        if demand.needed is not None:
            demand = demand.on(counted(self.bench.service(machine, Pick(number)), count))
        return replace(made, command=self._command(made, case, machine, demand, number))

    def _longest(self, demand: Demand, number: int) -> int | None:
        """Tokens of the longest request that an engine is started for; of a prompt that was found as long as that."""
        if not self.sought:
            return self.setting.longest[number]
        most = self.setting.model.spec.max_context
        return demand.shape.longest if most is None else min(demand.shape.longest, most)

    def _cache(self, case: Case) -> str:
        return self.setups.cache(case).name

    def _policy(self, machine: Machine, number: int) -> str:
        """The policy: as asked, else the engine's own."""
        if machine.pools:
            return "disaggregated"
        if machine.policy:
            return machine.policy
        try:
            return self.bench.service(machine, Pick(number)).scheduling.policy
        except (ValueError, LookupError):
            return "colocated"

    def _command(self, made: PlanDeployment, case: Case, machine: Machine, demand: Demand, number: int) -> str:
        """The command of `simulate` for it, with another seed."""
        parts: list[str] = ["roofcast", "simulate", self.deployed.model, "--gpu", made.gpu]
        sizes = (("--tp", made.tp), ("--pp", made.pp), ("--ep", made.ep), ("--dp", made.dp))
        for option, size in sizes:
            parts += [option, str(size)] if size > 1 else []
        for option, value in (
            ("--engine", None if made.engine == "none" else made.engine),
            ("--weights", made.weights),
            ("--kv", machine.kv),
            ("--policy", machine.policy or None),
            ("--prefill-replicas", made.prefill_replicas),
            ("--decode-replicas", made.decode_replicas),
            ("--efficiency", None if self.deployed.efficiency == "expected" else self.deployed.efficiency),
            ("--network", self.deployed.machine.network),
            ("--revision", self.deployed.lookup.revision),
            ("--encoder-tokens", self.deployed.lookup.encoder_tokens),
        ):
            parts += [] if value is None else [option, str(value)]
        parts += self._flags(case) + self._load(demand, number) + self._goal(number)
        return shlex.join(parts)

    def _flags(self, case: Case) -> list[str]:
        """The engine's flags, as the engine takes them."""
        given = {name: value for name, value in self.deployed.flags.items() if value not in {None, False}}
        for name in LONGEST:
            value = getattr(case.flags, name)
            if value is not None:
                given.setdefault(name, value)
        made: list[str] = []
        for name, value in given.items():
            option = "--" + name.replace("_", "-")
            made += [option] if value is True else [option, str(value)]
        return made

    def _load(self, demand: Demand, number: int) -> list[str]:
        """What is sent."""
        asked = self.demands[number]
        load = asked.load
        made: list[str] = []
        for one in fields(load):
            value: Any = getattr(load, one.name)
            if one.name in {"sources", "seed", "requests", "rate", "concurrency"} or value is None:
                continue
            made += ["--" + one.name.replace("_", "-"), str(value)]
        if self.sought:
            made += ["--prompt", str(round(demand.shape.prompt))]
        rate, clients = demand.sends.rate, demand.sends.clients
        if demand.needed is not None:
            made += ["--concurrency", str(getattr(demand.sends, "there", 1))]
        elif clients is not None:
            made += ["--concurrency", str(clients)]
        elif load.trace is None:
            made += ["--rate", load.rate if load.rate is not None and "@" in load.rate else f"{rate:.12g}"]
        elif load.rate is not None:
            made += ["--rate", load.rate]
        count = demand.sends.requests(1.0, demand.shape.output) or load.requests
        made += [] if count is None else ["--requests", str(count)]
        return [*made, "--seed", str(load.seed + ANOTHER)]

    def _goal(self, number: int) -> list[str]:
        goal = self.demands[number].goal
        made: list[str] = []
        for one in fields(goal):
            value = getattr(goal, one.name)
            made += [] if value is None else ["--" + one.name, f"{value:g}" if isinstance(value, float) else str(value)]
        return made
