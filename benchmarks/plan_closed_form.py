"""How far simulations are from the closed form of `plan`: the highest simulated rate of a replica over the closed form's.

usage: plan_closed_form.py [MODEL] [--cases N] [--seed N] [--replicas N,...] [--gpu NAME,...]

Cases are drawn: GPU, layout, engine, formats, lengths of prompts and outputs, and a promise. Each is simulated at rates up to
the highest that keeps the promise, to 3 %, for so many replicas that take turns. The closed form prunes, so that no ratio may
be above its slack; how far the others are below is what is simulated in vain. Nothing is asserted.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.planning.demand import Demand, Trial, shape_of
from roofcast.calculators.planning.sends import Rated
from roofcast.calculators.planning.tasks import Pick
from roofcast.calculators.planning.trial import Count, part_of, tried
from roofcast.calculators.planning.weigh import SLACK, weigh
from roofcast.calculators.serving.arrivals import at_rate
from roofcast.calculators.serving.highest import highest
from roofcast.calculators.serving.lengths import Apart, parse_lengths
from roofcast.calculators.serving.result import Goal
from roofcast.cli.asked_deployment import AskedDeployment
from roofcast.cli.deploy import Machine
from roofcast.cli.loading import AskedLoad
from roofcast.cli.planning import AskedPlan, prepared
from roofcast.cli.planning_asked import AskedChoices, AskedGpus, AskedLimits
from roofcast.cli.planning_bench import bench_of
from roofcast.cli.planning_demands import AskedDemand
from roofcast.cli.session import Lookup
from roofcast.cli.simulating import AskedGoal

if TYPE_CHECKING:
    from roofcast.calculators.planning.machines import Machine as Unit
    from roofcast.calculators.serving.service import Service

GPUS: Final = "h100,l40s,l4,a100-80gb-sxm,rtx-4090,mi300x"
PROMPTS: Final = ("300", "512", "2000", "lognormal:1000:0.8", "lognormal:3000:0.6", "uniform:100-900")
OUTPUTS: Final = ("30", "100", "lognormal:64:0.5", "lognormal:250:0.6", "500")
TTFTS: Final = (0.2, 0.3, 0.5, 1.0, 3.0, None)  # [s]
TPOTS: Final = (0.02, 0.03, 0.05, 0.1, None)  # [s]
PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0)
EXACT: Final = 0.03  # of the rate that is found [-]
REQUESTS: Final = 1000  # of each replica


@dataclass(frozen=True, slots=True)
class Drawn:
    """A case: a unit, what comes to it, and what is promised."""

    machine: Unit
    service: Service
    prompt: str
    output: str
    goal: Goal

    def demand(self, rate: float, replicas: int) -> Demand:
        """Requests of all replicas, so many a second of each."""
        lengths = Apart(parse_lengths(self.prompt), parse_lengths(self.output), "")
        sends = Rated(lengths, at_rate(rate * replicas), None, REQUESTS * replicas)
        return Demand("", "", sends, self.goal, shape_of(sends.at(1.0, 1, REQUESTS), self.goal.percentile))

    def ratio(self, replicas: int) -> float | None:
        """The highest rate that is simulated over the closed form's; None where not even the least keeps the promise."""
        count = Count(replicas)

        def keeps(rate: float) -> bool:
            return tried(*part_of(self.service, self.demand(rate, replicas), count), Trial(1.0, 1), count).keeps

        start = weigh(self.service, self.demand(1.0, 1)).rate
        found = highest(keeps, start, EXACT).rate
        return None if found is None else found / weigh(self.service, self.demand(found, replicas)).rate

    def __str__(self) -> str:
        """Returns the case in a line."""
        one, shards, goal = self.machine, self.machine.shards, self.goal
        formats = f"{one.weights or 'stored'}/{one.kv or 'auto'}"
        times = "/".join(
            "-" if value is None else f"{value * 1e3:.0f}" for value in (goal.ttft_seconds, goal.tpot_seconds)
        )
        return (
            f"{one.gpu:15}tp{shards.tp} pp{shards.pp} {one.engine:5}{formats:12}{self.prompt:>20}{self.output:>20}"
            f"{times:>10} ms p{goal.percentile:g}"
        )


def drawn(model: str, gpus: str, cases: int, seed: int) -> list[Drawn]:
    """Draws cases that the closed form leaves open."""
    asked = AskedPlan(
        AskedDeployment(
            model,
            Machine(None, None, None, 1, 1, 1, None, "none"),
            {},
            None,
            None,
            "expected",
            Lookup(None, offline=True),
        ),
        AskedGpus(gpus, ("1",)),
        AskedChoices(engine="none,vllm", policy="colocated"),
        AskedLimits(max_gpus=8),
        AskedDemand(AskedLoad(rate="1", prompt="lognormal:3000:0.6", output="500"), AskedGoal()),
    )
    ready = prepared(asked)
    bench, every, random = bench_of(ready.setting), ready.machines(), Random(seed)  # noqa: S311 - no secret
    found: list[Drawn] = []
    while len(found) < cases:
        machine, goal = (
            random.choice(every),
            Goal(random.choice(TTFTS), random.choice(TPOTS), None, random.choice(PERCENTILES)),
        )
        prompt, output = random.choice(PROMPTS), random.choice(OUTPUTS)
        try:
            one = Drawn(machine, bench.service(machine, Pick(0)), prompt, output, goal)
        except UsageError:
            continue
        if not weigh(one.service, one.demand(1.0, 1)).limit:
            found.append(one)
    return found


def main() -> None:
    """Prints a row a case, and the greatest and the middle ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="llama-3.1-8b")
    parser.add_argument("--cases", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--replicas", default="1,8", help="numbers of replicas")
    parser.add_argument("--gpu", default=GPUS)
    asked = parser.parse_args()
    counts = [int(text) for text in asked.replicas.split(",")]
    every: dict[int, list[float]] = {count: [] for count in counts}
    print("".join(f"{f'of {count}':>7}" for count in counts) + "  case", flush=True)
    for one in drawn(asked.model, asked.gpu, asked.cases, asked.seed):
        row = {count: one.ratio(count) for count in counts}
        print(
            "".join(f"{'none' if ratio is None else f'{ratio:.2f}':>7}" for ratio in row.values()) + f"  {one}",
            flush=True,
        )
        for count, ratio in row.items():
            every[count] += [] if ratio is None else [ratio]
    for count, ratios in every.items():
        over = sum(ratio > SLACK for ratio in ratios)
        print(
            f"of {count}: {len(ratios)} cases, greatest {max(ratios):.2f}, middle {median(ratios):.2f}, "
            f"least {min(ratios):.2f}; {over} above the slack of {SLACK:g}"
        )


if __name__ == "__main__":
    main()
