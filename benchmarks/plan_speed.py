"""How fast `plan` is: CPU seconds for one workload and for ten over many GPU types, and candidates a second.

usage: plan_speed.py [MODEL] [--kinds N] [--engine ENGINE,...] [--workloads N] [--jobs N] [--whole]

Each plan runs in a process of its own, with all that it reads; times are CPU seconds of it and of its workers. GPUs are
those whose usual rent is known, the first N by name; layouts, formats and policies are the command's own. --whole adds what
stands around the best deployment: headroom, twice the load, faster ones. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roofcast.cli.asked_deployment import AskedDeployment
from roofcast.cli.deploy import Machine
from roofcast.cli.loading import AskedLoad
from roofcast.cli.planning import AskedPlan
from roofcast.cli.planning_asked import AskedChoices, AskedGpus, AskedLimits
from roofcast.cli.planning_demands import AskedDemand
from roofcast.cli.planning_run import answered
from roofcast.cli.session import Lookup
from roofcast.cli.simulating import AskedGoal
from roofcast.hwdb.rents import usual_rents

RATES: Final = (10, 2, 5, 15, 20, 30, 40, 60, 80, 100)  # of the workloads [1/s]
LOAD: Final = AskedLoad(rate="10", prompt="1k", output="256")
GOAL: Final = AskedGoal("500ms", "50ms", None, 90.0)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a plan took.

    Args:
        seconds: CPU time of all processes. [s]
        candidates: deployments without their number of replicas, of all workloads.
        weighed, simulated: of these.
    """

    seconds: float
    candidates: int
    weighed: int
    simulated: int


def cost(asked: argparse.Namespace, workloads: int) -> Cost:
    """Plans so many workloads in this process."""
    gpus = ",".join(sorted(usual_rents())[: asked.kinds])
    engine = asked.engine.split(",")[0]
    deployed = AskedDeployment(
        asked.model,
        Machine(None, None, None, 1, 1, 1, None, engine),
        {},
        None,
        None,
        "expected",
        Lookup(None, offline=True),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "workloads.yaml"
        path.write_text(
            "".join(f"- {{name: at {rate}, rate: {rate}}}\n" for rate in RATES[:workloads]), encoding="utf-8"
        )
        found = answered(
            AskedPlan(
                deployed,
                AskedGpus(gpus),
                AskedChoices(engine=asked.engine),
                AskedLimits(),
                AskedDemand(LOAD, GOAL),
                workloads=str(path) if workloads > 1 else None,
                jobs=asked.jobs,
                brief=not asked.whole,
            )
        )
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    rows = found.result.workloads
    return Cost(
        sum(one.ru_utime + one.ru_stime for one in used),
        sum(row.considered for row in rows),
        sum(row.weighed for row in rows),
        sum(row.simulated for row in rows),
    )


def apart(arguments: list[str], workloads: int) -> Cost:
    """The same in a process of its own, so that nothing is known from an earlier plan."""
    command = [sys.executable, "-P", __file__, *arguments, "--only", str(workloads)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Cost(**json.loads(told))


def main() -> None:
    """Prints a row for one workload and one for several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="llama-3.1-8b")
    parser.add_argument("--kinds", type=int, default=32, help="GPU types")
    parser.add_argument("--engine", default="none")
    parser.add_argument("--workloads", type=int, default=len(RATES), help="of the second row")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--whole", action="store_true", help="with all that stands around the best deployment")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only:
        one = cost(asked, asked.only)
        print(json.dumps({name: getattr(one, name) for name in one.__slots__}))
        return
    print(f"{'workloads':>9}{'CPU s':>9}{'to one':>8}{'candidates':>12}{'a second':>10}{'weighed':>9}{'simulated':>11}")
    first: float | None = None
    for workloads in (1, asked.workloads):
        one = apart(sys.argv[1:], workloads)
        first = first or one.seconds
        rate = one.candidates / one.seconds
        print(
            f"{workloads:>9}{one.seconds:>9.2f}{one.seconds / first:>8.2f}{one.candidates:>12,}{rate:>10,.0f}"
            f"{one.weighed:>9,}{one.simulated:>11,}",
            flush=True,
        )


if __name__ == "__main__":
    main()
