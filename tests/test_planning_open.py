"""Plans that are left early or find nothing, and questions the other way round."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.calculators.planning.demand import Trial
from roofcast.calculators.planning.machines import Machine
from roofcast.calculators.planning.tasks import Pick, Settle
from roofcast.calculators.planning.trial import Count, judged, part_of, tried
from roofcast.cli import planning, planning_run
from roofcast.cli.loading import AskedLoad
from roofcast.cli.planning_asked import AskedLimits
from roofcast.cli.planning_bench import bench_of, work
from roofcast.cli.planning_run import INTERRUPTED, OUT_OF_TIME, Answer, answered
from roofcast.cli.simulating import AskedGoal
from roofcast.modelspec.sharding import Shards
from tests.planning_cases import CHOICES, GOAL, LOAD, MODEL, asked, best_of, cost_of, plan, workload
from tests.running import roofcast

if TYPE_CHECKING:
    from roofcast.calculators.planning.rows import FoundRow

SMALL: Final[dict[str, Any]] = {"gpu": "l40s,l4", "choices": replace(CHOICES, tp="1")}
COMMAND: Final = (
    "plan", MODEL, "--gpu", "h100,l40s,l4", "--gpu-price", "h100=2.5,l40s=1,l4=0.4", "--rate", "12", "--prompt", "512",
    "--output", "64", "--ttft", "500ms", "--tpot", "50ms", "--percentile", "90", "--tp", "1,2", "--pp", "1", "--kv", "auto",
    "--policy", "colocated", "--jobs", "1", "--format", "json", "--offline",
)  # fmt: skip


# --- left early


def interrupting(monkeypatch: pytest.MonkeyPatch, tasks: int) -> list[Any]:
    """Have Ctrl-C come in place of a task, after so many; return the outcomes until then."""
    done: list[Any] = []

    def until(setting: Any, task: Any) -> Any:
        if len(done) == tasks:
            raise KeyboardInterrupt
        done.append(work(setting, task))
        return done[-1]

    monkeypatch.setattr(planning_run, "work", until)
    return done


def tasks_of(asking: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many tasks a plan takes."""
    with monkeypatch.context() as patch:
        done = interrupting(patch, 1 << 30)
        answered(asking)
    return len(done)


def test_ctrl_c_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it comes the answer is partial; what was found until then is in it, and the end of it is the whole plan."""
    asking = asked(**SMALL)
    whole = tasks_of(asking, monkeypatch)
    assert whole > 6
    costs = []
    for tasks in sorted({0, 1, whole // 2, whole - 1}):
        with monkeypatch.context() as patch:
            done = interrupting(patch, tasks)
            found = answered(asking)
        assert (found.stopped, found.result.partial) == (INTERRUPTED, True)
        assert len(found.result.workloads) == 1
        kept = [one for one in done if getattr(one, "best", None) is not None]
        assert bool(kept) <= (workload(found).best is not None)
        costs.append(cost_of(found))

    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == cost_of(answered(asking))


def test_ctrl_c_leaves_with_130_and_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is printed first."""
    interrupting(monkeypatch, 12)

    outcome = roofcast(*COMMAND)

    assert outcome.code == 130
    assert outcome.data["result"]["partial"] is True
    assert outcome.data["result"]["workloads"][0]["weighed"] > 0
    assert any("interrupted" in line for line in outcome.data["warnings"])


def test_a_budget_of_time_keeps_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """After it the search ends well, says so, and shows what it has."""
    clock = iter(range(10_000))
    monkeypatch.setattr(planning_run, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))

    found = answered(asked(limits=AskedLimits(budget="5s", top=1), **SMALL))

    assert (found.stopped, found.result.partial) == (OUT_OF_TIME, True)
    assert workload(found).weighed > 0


def test_a_budget_that_is_over_leaves_with_0() -> None:
    """It is an answer, with a warning; one that is long enough changes nothing."""
    short, long = roofcast(*COMMAND, "--budget", "1ms"), roofcast(*COMMAND, "--budget", "1h")

    assert (short.code, long.code) == (0, 0)
    assert (short.data["result"]["partial"], long.data["result"]["partial"]) == (True, False)
    assert any("budget" in line for line in short.data["warnings"])
    best = long.data["result"]["plans"][long.data["result"]["workloads"][0]["best"]]
    assert best["cost_per_hour"] == cost_of(plan())


def test_a_worker_is_asked_small_questions() -> None:
    """All that a plan of three kinds of GPUs asks goes to workers as tasks that can be answered anywhere."""
    seen: list[Any] = []
    one = answered(asked(**SMALL))
    setting = one.ready.setting

    def run(tasks: Any) -> list[Any]:
        seen.extend(tasks)
        return [work(setting, task) for task in tasks]

    (search,) = one.ready.searches(one.ready.machines(), run)
    search.solve()

    assert search.best is not None
    assert search.best.machine == one.best[0]
    assert len(seen) == len(set(seen)), "a question was asked twice"
    assert any(isinstance(task, Settle) for task in seen)


# --- nothing feasible

#: why nothing will do -> load, promise, limits
MISSED: Final[dict[str, tuple[AskedLoad, AskedGoal, AskedLimits]]] = {
    "tpot": (LOAD, AskedGoal("500ms", "4ms", None, 90.0), AskedLimits(top=1, max_gpus=8)),
    "ttft": (LOAD, AskedGoal("15ms", "50ms", None, 90.0), AskedLimits(top=1, max_gpus=8)),
    "both": (LOAD, AskedGoal("15ms", "4ms", None, 90.0), AskedLimits(top=1, max_gpus=8)),
    "gpus": (replace(LOAD, rate="120"), GOAL, AskedLimits(top=1, max_gpus=2)),
    "cost": (replace(LOAD, rate="40"), GOAL, AskedLimits(top=1, max_cost="1")),
    "users": (
        AskedLoad(concurrency=160, prompt="512", output="64", requests=480),
        GOAL,
        AskedLimits(top=1, max_gpus=1),
    ),
}


def relaxed(option: str, value: str, load: AskedLoad, goal: AskedGoal, limits: AskedLimits) -> tuple[Any, ...]:
    """Return the question with options of a command in place of its own."""
    words = [option, *value.split()]
    for name, text in zip(words[::2], words[1::2], strict=True):
        field = name.lstrip("-").replace("-", "_")
        if field in {"rate", "concurrency"}:
            load = replace(load, **{field: int(text) if field == "concurrency" else text})  # type: ignore[arg-type]
        elif field in {"ttft", "tpot", "itl"}:
            goal = replace(goal, **{field: text})  # type: ignore[arg-type]
        else:
            limits = replace(limits, **{field: int(text) if field == "max_gpus" else text})  # type: ignore[arg-type]
    return load, goal, limits


@pytest.mark.parametrize("why", MISSED)
def test_nothing_feasible_says_what_would_be(why: str) -> None:
    """The nearest miss and its limit; and every thing that would make it feasible does so when it is asked."""
    load, goal, limits = MISSED[why]

    found = answered(asked(load, goal, limits=limits, brief=False, **SMALL))

    row = workload(found)
    assert row.best is None
    assert row.nearest is not None
    miss = found.result.plans[row.nearest]
    assert not miss.meets_slo
    assert miss.limit
    assert miss.reason
    assert row.relaxed, "nothing would make it feasible"
    for one in row.relaxed:
        again = relaxed(one.option, one.value, load, goal, limits)
        assert cost_of(answered(asked(again[0], again[1], limits=again[2], **SMALL))) < float("inf"), one.says
        assert one.option in one.says


# --- the other way round

ASKED: Final = AskedLoad(prompt="512", output="64", requests=300)
ONE: Final = replace(CHOICES, tp="1", weights="fp8")


def first(answer: Answer) -> FoundRow:
    """Return the best of what was found."""
    found = answer.result.found[0]
    assert found.best
    assert found.value is not None
    return found


def keeps(answer: Answer, row: FoundRow, value: float) -> bool:
    """Return whether a row's deployment keeps what is promised with that value, by both of the plan's own chances."""
    pick = Pick(0, prompt=round(value)) if answer.result.find == "context" else Pick(0, factor=value)
    made = row.deployment
    kv = made.kv if made.kv == "fp8" else None
    bench = bench_of(answer.ready.setting)
    service = bench.service(Machine(made.gpu, Shards(made.tp, made.pp), made.engine, made.weights, kv), pick)
    demand = bench.demand(pick)
    part, count = part_of(service, demand, Count(made.dp)), Count(made.dp)
    return all(tried(*part, Trial(1.0, demand.seed + more), count).keeps for more in (0, 1))


@pytest.mark.parametrize(("find", "gpus"), [("rate", 2), ("users", 1), ("context", 1)])
def test_the_most_is_kept_and_more_is_not(find: str, gpus: int) -> None:
    """At 97 % of it what is promised is kept, at 105 % it is not; and machines are in order of what they do."""
    load = replace(ASKED, prompt=None, rate="4") if find == "context" else ASKED

    found = answered(asked(load, GOAL, find=find, gpus_there=gpus, gpu="l40s,l4", choices=ONE))

    for row in found.result.found:
        assert row.value is not None
        assert row.deployment.count == gpus
        assert keeps(found, row, row.value)
        assert keeps(found, row, row.value * 0.97)
        assert not keeps(found, row, row.value * 1.05)
        assert row.limit in {"ttft", "tpot", "rate"}
    values = [row.value or 0.0 for row in found.result.found]
    assert values == sorted(values, reverse=True)
    assert [row.best for row in found.result.found] == [True, False]


def test_the_smallest_gpu_is_the_first_that_will_do() -> None:
    """None with less memory keeps what is promised in all trials; what it finds does."""
    found = answered(asked(replace(LOAD, rate="8"), GOAL, find="gpu", gpus_there=1))

    row, setting = first(found), found.ready.setting
    assert row.deployment.gpu == "l40s"
    bench, demand = bench_of(setting), setting.demands[0]
    for gpu, does in (("l4", False), ("l40s", True)):
        verdicts = [
            judged(bench.service(machine, Pick(0)), demand, Count(1)).meets
            for machine in found.ready.machines()
            if machine.gpu == gpu and machine.unit == 1
        ]
        assert any(verdict is True for verdict in verdicts) == does
    assert [one.value for one in found.result.found[1:]] == [None]


def test_no_gpu_is_small_enough() -> None:
    """All are shown with why they do not."""
    found = answered(asked(replace(LOAD, rate="200"), GOAL, find="gpu", gpus_there=1, gpu="l40s,l4"))

    assert [row.best for row in found.result.found] == [False, False]
    assert all(row.limit and row.reason and row.value is None for row in found.result.found)


@pytest.mark.parametrize("find", ["rate", "users"])
def test_more_gpus_never_do_less(find: str) -> None:
    """Of 1 to 4 of one kind."""
    values = [
        first(answered(asked(ASKED, GOAL, find=find, gpus_there=gpus, gpu="l4", choices=ONE))).value
        for gpus in (1, 2, 4)
    ]

    assert values == sorted(values, key=lambda value: value or 0.0)
    assert values[0] != values[-1]


def test_a_plan_of_the_most_needs_no_more_than_those_gpus() -> None:
    """At nine tenths of the rate that two L4 take two are enough."""
    most = first(answered(asked(replace(ASKED, requests=None), GOAL, find="rate", gpus_there=2, gpu="l4"))).value
    assert most is not None

    assert best_of(plan(rate=round(most * 0.9, 3), gpu="l4")).deployment.count <= 2


def test_what_workers_get_goes_to_any_process() -> None:
    """Workers that start anew, and are no copies of this process, get the setting pickled; it is the same there."""
    ready = planning.prepared(asked())
    sent = pickle.loads(pickle.dumps(ready.setting))  # noqa: S301 - made one line above

    assert sent.key == ready.setting.key
    assert {name: match.accelerator for name, match in sent.matches.items()} == {
        name: match.accelerator for name, match in ready.setting.matches.items()
    }
    assert sent.demands == ready.setting.demands
