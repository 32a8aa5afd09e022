"""Plans that take a second: few GPUs at round prices, few layouts, short answers; and services to try them once more."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.planning.field import Candidate
from roofcast.calculators.planning.floor import Floor
from roofcast.calculators.planning.machines import Machine
from roofcast.calculators.planning.tasks import Pick
from roofcast.calculators.serving.result import Goal
from roofcast.calculators.serving.simulate import simulate
from roofcast.cli.asked_deployment import AskedDeployment
from roofcast.cli.deploy import Machine as AskedMachine
from roofcast.cli.loading import AskedLoad
from roofcast.cli.planning import AskedPlan
from roofcast.cli.planning_asked import AskedChoices, AskedGpus, AskedLimits
from roofcast.cli.planning_bench import Setting, bench_of
from roofcast.cli.planning_demands import AskedDemand
from roofcast.cli.planning_run import Answer, answered
from roofcast.cli.session import Lookup
from roofcast.cli.simulating import AskedGoal
from roofcast.modelspec.sharding import Shards

if TYPE_CHECKING:
    from roofcast.calculators.planning.rows import PlanRow, WorkloadRow
    from roofcast.calculators.serving.result import SimulateResult
    from roofcast.calculators.serving.service import Service

MODEL: Final = "llama-3.1-8b"
GPUS: Final = "h100,l40s,l4"
PRICES: Final = "h100=2.5,l40s=1,l4=0.4"  # of each of them [USD/h]
LOAD: Final = AskedLoad(rate="12", prompt="512", output="64")
GOAL: Final = AskedGoal("500ms", "50ms", None, 90.0)
CHOICES: Final = AskedChoices(tp="1,2", pp="1", weights="stored,fp8", kv="auto", policy="colocated")


def machine(gpu: str = "l4", unit: int = 1, **more: Any) -> Machine:
    """Return a machine whose GPUs share every layer, of no engine, but for what is said."""
    return Machine(gpu, Shards(unit), "none", **more)


def candidate(price: float | None = 0.5, unit: int = 1, floor: Floor | None = None, **more: Any) -> Candidate:
    """Return a candidate at a price, of which nothing is known."""
    return Candidate(machine(unit=unit, **more), price, floor or Floor(1.0, 0.0, 0.0))


#: what is asked where nothing else is said, by the name that `asked` takes it by
USUAL: Final[dict[str, Any]] = {
    "gpu": GPUS,
    "price": PRICES,
    "choices": CHOICES,
    "limits": AskedLimits(top=1),
    "deadline": None,
    "provider": None,
    "name": MODEL,
    "efficiency": "expected",
}


def asked(load: AskedLoad = LOAD, goal: AskedGoal = GOAL, **more: Any) -> AskedPlan:
    """Return a question: a load and a promise on few GPUs, `brief`, and in this process, unless more is said.

    Args:
        load: what is sent.
        goal: what is promised.
        more: in place of `USUAL`, and fields of the question.
    """
    said = {name: more.pop(name, usual) for name, usual in USUAL.items()}
    choices = said["choices"]
    named = AskedMachine(None, None, None, 1, 1, 1, None, choices.engine.split(",")[0])
    deployed = AskedDeployment(said["name"], named, {}, None, None, said["efficiency"], Lookup(None, offline=True))
    gpus = AskedGpus(said["gpu"], () if said["price"] is None else (said["price"],), said["provider"])
    how: dict[str, Any] = {"brief": True, "jobs": 1, **more}
    return AskedPlan(deployed, gpus, choices, said["limits"], AskedDemand(load, goal, said["deadline"]), **how)


@cache
def plan(rate: float = 12, price: str = PRICES, gpu: str = GPUS, **limits: float) -> Answer:
    """Return the plan of a load, made once; limits are TTFT and TPOT in seconds, and the percentile."""
    promised = {"ttft": 0.5, "tpot": 0.05, "percentile": 90.0, **limits}
    times = [f"{promised[name] * 1e3:g}ms" for name in ("ttft", "tpot")]
    goal = AskedGoal(times[0], times[1], None, promised["percentile"])
    return answered(asked(replace(LOAD, rate=f"{rate:g}"), goal, price=price, gpu=gpu))


def best_of(answer: Answer, number: int = 0) -> PlanRow:
    """Return the cheapest deployment that keeps what is promised, of which there must be one."""
    at = answer.result.workloads[number].best
    assert at is not None, "nothing keeps what is promised"
    return answer.result.plans[at]


def cost_of(answer: Answer, number: int = 0) -> float:
    """Return what the best one costs; infinite where there is none. [USD/h]"""
    at = answer.result.workloads[number].best
    return float("inf") if at is None else (answer.result.plans[at].cost_per_hour or 0.0)


def workload(answer: Answer, number: int = 0) -> WorkloadRow:
    """Return what became of a workload."""
    return answer.result.workloads[number]


def service_of(setting: Setting, one: Machine, copies: int, number: int = 0) -> Service:
    """Return so many replicas of a machine as `simulate` makes them: of one deployment, not of copies."""
    shards = one.shards
    whole = replace(one, shards=Shards(shards.tp, shards.pp, shards.ep, shards.dp * copies))
    return bench_of(setting).service(whole, Pick(number))


def of_row(answer: Answer, row: PlanRow) -> Service:
    """Return the service that a row names, made from nothing but the row."""
    made = row.deployment
    shards = Shards(made.tp, made.pp, made.ep, made.dp)
    policy = made.policy if made.policy in {"prefill-first", "decode-first", "static", "continuous"} else ""
    kv = made.kv if made.kv == "fp8" else None
    return bench_of(answer.ready.setting).service(
        Machine(made.gpu, shards, made.engine, made.weights, kv, policy), Pick(0)
    )


def simulated(answer: Answer, row: PlanRow, seed: int, factor: float = 1.0) -> SimulateResult:
    """Return what `simulate` says of a row under its workload with a chance of its own."""
    demand = answer.ready.setting.demands[0]
    count = demand.sends.requests(factor, demand.shape.output)
    return simulate(of_row(answer, row), demand.sends.at(factor, seed, count), demand.goal)[0]


def goal_of(ttft: float | None, tpot: float | None, percentile: float = 90.0, itl: float | None = None) -> Goal:
    """Return a promise."""
    return Goal(ttft, tpot, itl, percentile)
