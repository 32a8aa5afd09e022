"""Laws of `plan`: replicas are what they are called, closed forms are no less than simulations, looser never costs more."""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.planning.around import front, up
from roofcast.calculators.planning.demand import Demand, Trial, shape_of
from roofcast.calculators.planning.floor import Floor, floor_of
from roofcast.calculators.planning.machines import Machine
from roofcast.calculators.planning.sends import Rated
from roofcast.calculators.planning.settling import stretched
from roofcast.calculators.planning.tasks import Pick
from roofcast.calculators.planning.trial import Count, part_of, tried
from roofcast.calculators.planning.weigh import SLACK, weigh
from roofcast.calculators.serving.arrivals import at_rate
from roofcast.calculators.serving.highest import highest
from roofcast.calculators.serving.lengths import Apart, parse_lengths
from roofcast.calculators.serving.simulate import result_of, run, simulate
from roofcast.cli.planning import prepared
from roofcast.cli.planning_bench import bench_of
from roofcast.cli.planning_run import answered, planned
from roofcast.modelspec.sharding import Shards
from roofcast.reports.data import render_json
from tests.planning_cases import (
    CHOICES,
    GPUS,
    LOAD,
    PRICES,
    asked,
    best_of,
    candidate,
    cost_of,
    goal_of,
    machine,
    plan,
    service_of,
    workload,
)
from tests.running import result

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.cli.planning import Prepared


def numbers(found: Any) -> dict[str, Any]:
    """Return what a simulation says of requests, without the name of the layout."""
    left = {"layout", "gpu"}
    return {name: getattr(found, name) for name in found.__slots__ if name not in left}


# --- replicas


def both_ways(engine: str, copies: int, efficiency: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is simulated of so many copies of a unit, and of a deployment with as many replicas."""
    choices = replace(CHOICES, engine=engine, weights="fp8")
    ready = prepared(asked(gpu="l4", price="1", choices=choices, efficiency=efficiency))
    one = Machine("l4", Shards(2), engine, "fp8")
    unit = bench_of(ready.setting).service(one, Pick(0))
    demand = ready.setting.demands[0]
    load = demand.sends.at(1.0, 7, 300)
    copied = simulate(replace(unit, copies=copies), load, demand.goal)[0]
    return numbers(copied), numbers(simulate(service_of(ready.setting, one, copies), load, demand.goal)[0])


@pytest.mark.parametrize("engine", ["none", "vllm"])
@pytest.mark.parametrize("copies", [2, 3, 5])
def test_copies_of_a_service_are_replicas_of_a_deployment(engine: str, copies: int) -> None:
    """A unit with so many copies answers bit for bit as a deployment with as many replicas."""
    copied, whole = both_ways(engine, copies, "bound")

    assert copied == whole


def test_copies_are_replicas_of_expected_times_too() -> None:
    """What a host does for a step is of the devices that take the step."""
    copied, whole = both_ways("vllm", 3, "expected")

    assert copied == whole


@pytest.mark.parametrize("rate", [12.0, 40.0])
def test_the_command_of_a_row_simulates_what_was_planned(rate: float) -> None:
    """With the same seed its numbers are those of the trial; it names another seed, so that it is a test of its own."""
    found = plan(rate=rate)
    row, demand = best_of(found), found.ready.setting.demands[0]
    machine_, made = found.best[0], row.deployment
    assert machine_ is not None
    words = shlex.split(made.command)
    assert words[:2] == ["roofcast", "simulate"]
    seed = int(words[words.index("--seed") + 1])
    assert seed not in {trial.seed for trial in demand.trials}
    unit = bench_of(found.ready.setting).service(machine_, Pick(0))
    own = tried(replace(unit, copies=made.dp), demand, Trial(1.0, seed), Count(made.dp))

    told = result(*words[1:], "--offline")

    assert told["ttft_seconds"]["p90"] == own.ttft
    assert told["tpot_seconds"]["p90"] == own.tpot
    assert told["output_tokens_per_second"] == own.tokens
    assert told["kept"]["met"] == own.keeps
    assert told["kept"]["share"] == own.share


@pytest.mark.parametrize("copies", [3, 6])
def test_one_of_many_that_take_turns_is_as_all_of_them(copies: int) -> None:
    """Percentiles of its requests are those of all replicas' requests, but for chance: 6 % in the mean of 8 seeds."""
    ready = prepared(asked(replace(LOAD, rate=f"{5 * copies}"), gpu="l4", price="1"))
    demand = ready.setting.demands[0]
    unit = bench_of(ready.setting).service(machine("l4", weights="fp8"), Pick(0))
    one, few = part_of(unit, demand, Count(copies))
    assert one.copies == 1
    assert few.sends.rate == pytest.approx(5.0)
    means = []
    for service, sends, count in ((one, few.sends, 600), (replace(unit, copies=copies), demand.sends, 600 * copies)):
        runs = [result_of(run(service, sends.at(1.0, seed, count)), demand.goal) for seed in range(8)]
        means.append(
            [
                sum(getattr(getattr(found, name), at) for found in runs) / len(runs)
                for name in ("ttft_seconds", "tpot_seconds", "e2e_seconds")
                for at in ("p50", "p90", "p99")
            ]
        )

    assert means[0] == pytest.approx(means[1], rel=0.06)


# --- the closed form

#: GPU, GPUs that share a layer, weights, prompts, outputs, TTFT, TPOT, percentile, replicas
CASES: Final = (
    ("h100-sxm", 1, None, "512", "64", 0.5, 0.05, 90.0, 1),
    ("h100-sxm", 2, "fp8", "lognormal:1000:0.8", "128", 0.1, 0.05, 90.0, 1),
    ("l40s", 1, None, "1000", "100", 1.0, None, 99.0, 1),
    ("l40s", 1, "fp8", "lognormal:400:0.7", "lognormal:64:0.5", 0.3, 0.02, 95.0, 1),
    ("l4", 1, "fp8", "300", "30", None, 0.05, 75.0, 1),
    ("l4", 2, None, "2000", "16", 2.0, None, 90.0, 1),
    ("l4", 1, "fp8", "512", "64", 0.5, 0.05, 90.0, 4),
    ("l40s", 2, None, "512", "64", 1.0, 0.03, 95.0, 8),
    ("l4", 2, None, "1000", "64", 0.6, None, 99.0, 8),
    ("l40s", 1, None, "1000", "32", 0.3, None, 99.0, 16),
    ("h100-sxm", 1, "fp8", "4000", "32", 0.3, None, 90.0, 8),
    ("h100-sxm", 1, None, "200", "200", 0.2, 0.015, 99.0, 2),
)


@pytest.fixture(scope="module")
def ready() -> Prepared:
    """Return three kinds of GPUs, prepared once."""
    return prepared(asked())


@pytest.mark.parametrize("case", CASES)
def test_no_simulation_does_better_than_the_closed_form(case: tuple[Any, ...], ready: Prepared) -> None:
    """The highest rate of a replica, alone or among others, is no more than the closed form with its slack; a roofline's more."""
    gpu, tp, weights, prompt, output, ttft, tpot, percentile, copies = case
    one, goal = machine(gpu, tp, weights=weights), goal_of(ttft, tpot, percentile)
    unit = bench_of(ready.setting).service(one, Pick(0))
    lengths = Apart(parse_lengths(prompt), parse_lengths(output), "")

    def demand(rate: float) -> Demand:
        sends = Rated(lengths, at_rate(rate), None, 600 * copies)
        return Demand("", "", sends, goal, shape_of(sends.at(1.0, 1, 600), percentile))

    def keeps(rate: float) -> bool:
        return tried(*part_of(unit, demand(rate * copies), Count(copies)), Trial(1.0, 1), Count(copies)).keeps

    alone = weigh(unit, demand(1.0)).rate
    found = highest(keeps, alone, 0.05).rate
    assert found is not None
    closed = weigh(unit, demand(found * copies))

    assert found <= closed.rate * SLACK
    least = floor_of(ready.device(one), one, demand(1.0).shape, goal)
    assert least.limit == ""
    assert least.rate >= closed.rate
    assert least.ttft <= closed.ttft
    assert least.tpot <= closed.tpot


@pytest.mark.parametrize("rates", [(0.5, 2.0, 8.0, 20.0, 50.0, 200.0)])
def test_replicas_of_more_load_do_no_less_each(rates: tuple[float, ...], ready: Prepared) -> None:
    """The more take turns, the more evenly requests come to each."""
    unit = bench_of(ready.setting).service(machine("l4", weights="fp8"), Pick(0))
    demand = ready.setting.demands[0]

    found = [weigh(unit, demand.times(rate / 12)).rate for rate in rates]

    assert found == sorted(found)
    assert found[0] < found[-1]


# --- looser and cheaper


def falling(costs: list[float]) -> bool:
    """Return whether none costs more than the one before it."""
    return all(other <= one + 1e-9 for one, other in pairwise(costs))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ttft", (0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)),
        ("tpot", (0.008, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.1)),
        ("percentile", (99.9, 99.0, 95.5, 95.0, 90.0, 75.0, 49.0)),
    ],
)
def test_a_looser_promise_never_costs_more(name: str, values: tuple[float, ...]) -> None:
    """Over grids of TTFT, TPOT and percentiles."""
    costs = [cost_of(plan(rate=23, **{name: value})) for value in values]

    assert falling(costs), costs
    assert costs[-1] < inf


def test_a_cheaper_price_never_ranks_a_gpu_worse() -> None:
    """The best costs no more, and once it is that GPU it stays so."""
    found = [plan(price=f"h100=2.5,l40s=1,l4={price}") for price in (1.0, 0.6, 0.45, 0.35, 0.26, 0.24, 0.2, 0.1)]
    costs, own = [cost_of(one) for one in found], [best_of(one).deployment.gpu == "l4" for one in found]

    assert falling(costs), costs
    assert own == sorted(own)
    assert own[-1]


@pytest.mark.parametrize(("gpu", "price"), [("l4", "0.4"), ("l40s", "1"), (GPUS, PRICES)])
def test_more_load_never_needs_fewer_gpus_or_less_money(gpu: str, price: str) -> None:
    """Over rates from 2 to 60 requests a second, on one kind of GPU and on all."""
    found = [plan(rate=rate, gpu=gpu, price=price) for rate in (2, 5, 9, 14, 20, 33, 60)]
    costs, gpus = [-cost_of(one) for one in found], [-best_of(one).deployment.count for one in found]

    assert falling(costs), costs
    assert gpu == GPUS or falling([float(count) for count in gpus]), gpus


# --- who does the work


def test_two_processes_find_the_same_document() -> None:
    """To the last letter."""
    one, other = (planned(asked(jobs=jobs, gpu="l40s,l4"))[0] for jobs in (1, 2))

    assert render_json(one) == render_json(other)


def test_workloads_of_a_file_are_planned_as_each_alone(tmp_path: Path) -> None:
    """Ten in one call have the plans of ten calls."""
    rates = (2, 4, 6, 8, 10, 12, 14, 16, 20, 24)
    path = tmp_path / "several.yaml"
    path.write_text("".join(f"- {{name: w{rate}, rate: {rate}}}\n" for rate in rates), encoding="utf-8")

    every = answered(asked(replace(LOAD, rate=None), workloads=str(path), gpu="l40s,l4"))

    assert [row.name for row in every.result.workloads] == [f"w{rate}" for rate in rates]
    for number, rate in enumerate(rates):
        alone = plan(rate=rate, gpu="l40s,l4")
        assert cost_of(every, number) == cost_of(alone)
        together, own = best_of(every, number), best_of(alone)
        assert replace(together.deployment, command="") == replace(own.deployment, command="")
        assert (together.ttft_seconds, together.tpot_seconds) == (own.ttft_seconds, own.tpot_seconds)
        assert workload(every, number).goal == workload(alone).goal


# --- small laws

POSITIVE: Final = st.floats(1e-6, 1e6)


@given(POSITIVE)
def test_up_is_no_less_and_no_more_than_a_tenth_above(value: float) -> None:
    """Two digits of the number, rounded up; of what has two digits itself."""
    found = up(value)

    assert value * (1 - 1e-8) <= found <= value * 1.1 * (1 + 1e-9)
    assert up(found) == pytest.approx(found)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_front_holds_all_that_nothing_beats(rows: list[tuple[int, int, int]]) -> None:
    """Something is on it; each that is not is beaten by one that is."""
    marks = front([(float(a), float(b), float(c)) for a, b, c in rows])
    good = [row for row, mark in zip(rows, marks, strict=True) if mark]

    assert good
    for row, mark in zip(rows, marks, strict=True):
        beaten = any(other != row and all(a <= b for a, b in zip(other, row, strict=True)) for other in good)
        assert mark != beaten


@given(st.floats(0.01, 100), st.integers(1, 8), st.floats(0.01, 1e4))
def test_below_is_the_most_that_costs_less(price: float, unit: int, rank: float) -> None:
    """One more would not."""
    one = candidate(price, unit, Floor(1.0, 0.0, 0.0))
    units = one.below(rank)

    assert units == 0 or one.rank(Count(units)) <= rank * (1 + 1e-8)
    assert one.rank(Count(units + 1)) >= rank * (1 - 1e-8)


@given(st.floats(1.0, 60.0))
def test_headroom_is_no_more_than_what_is_kept(most: float) -> None:
    """Found from both sides."""
    low, high = stretched(lambda factor: factor <= most)

    assert low is not None
    assert high is not None
    assert low <= most < high
