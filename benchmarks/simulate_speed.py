"""How fast `simulate` is: requests a second of CPU on a trace, and how time and memory grow with the number of requests.

usage: simulate_speed.py [TRACE] [--model NAME] [--gpu NAME] [--scale X] [--dp N] [--counts N,N,...] [--runs N]

TRACE is a file as `roofcast simulate --trace` takes it; --scale and --dp make its load one that the service sustains.
Synthetic requests, log-normal like chats, come at a rate that one replica sustains; each count runs in a process of its
own, so that its peak of memory is its own. Times are CPU seconds of the simulation, the least of the runs; reading the
trace is in them. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Final

from roofcast.calculators.check_quantities import Case
from roofcast.calculators.serving.service import Service, service_of
from roofcast.calculators.serving.simulate import run
from roofcast.cli.checking import Setups
from roofcast.cli.deploy import efficiency_of
from roofcast.cli.loading import AskedLoad

COUNTS: Final = "10000,100000,1000000"
SYNTHETIC: Final = AskedLoad(rate="15", prompt="lognormal:400:0.8", output="lognormal:150:0.6")
MIB: Final = 1024.0  # KiB, as Linux counts the peak


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took: requests, CPU time [s], peak of the process's memory [MiB], whether the queue did not grow."""

    requests: int
    seconds: float
    peak: float
    waiting: int


def service(model: str, gpu: str, replicas: int) -> Service:
    """What answers requests."""
    case = Case(model=model, gpu=gpu, gpus=replicas, dp=replicas, engine="vllm")
    served, memory = Setups(efficiency_of("expected"), offline=True).served(case)
    made, _ = service_of(served, memory)
    if made.reason:
        sys.exit(made.reason)
    return made


def cost(answers: Service, load: AskedLoad, runs: int) -> Cost:
    """The least CPU time of some runs, each through caches of its own."""
    found = []
    for _ in range(runs):
        sent = load.load()
        began = time.process_time()
        ran = run(answers, sent)
        found.append((time.process_time() - began, ran))
    seconds, ran = min(found, key=lambda one: one[0])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB
    return Cost(ran.tally.came, seconds, peak, ran.peak_waiting)


def shown(name: str, one: Cost) -> str:
    """A row."""
    rate = one.requests / one.seconds if one.seconds else 0.0
    return (
        f"{name:28}{one.requests:>11,}{one.seconds:>9.2f}{rate:>13,.0f}{one.seconds / one.requests * 1e6:>9.1f}"
        f"{one.peak:>10.0f}{one.waiting:>9,}"
    )


def alone(asked: argparse.Namespace, count: int) -> None:
    """Prints the row of one count, in a process of its own."""
    command = [sys.executable, "-P", __file__, "--only", str(count), "--runs", str(asked.runs)]
    subprocess.run([*command, "--model", asked.model, "--gpu", asked.gpu], check=True)


def main() -> None:
    """Prints a row for the trace, and one for each count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--model", default="llama-3.1-8b")
    parser.add_argument("--gpu", default="h100-sxm")
    parser.add_argument("--scale", type=float, help="how many times as fast the trace comes")
    parser.add_argument("--dp", type=int, default=1, help="replicas of the trace's service")
    parser.add_argument("--counts", default=COUNTS, help="numbers of synthetic requests")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.only:
        load = AskedLoad(SYNTHETIC.trace, SYNTHETIC.rate, None, asked.only, None, SYNTHETIC.prompt, SYNTHETIC.output)
        print(shown("synthetic", cost(service(asked.model, asked.gpu, 1), load, asked.runs)))
        return
    head = f"{'load':28}{'requests':>11}{'CPU s':>9}{'requests/s':>13}{'us each':>9}{'peak MiB':>10}{'waiting':>9}"
    print(head, flush=True)
    if asked.trace:
        load = AskedLoad(trace=asked.trace, scale=asked.scale)
        answers = service(asked.model, asked.gpu, asked.dp)
        print(shown(asked.trace.rsplit("/", 1)[-1][-27:], cost(answers, load, asked.runs)), flush=True)
    for count in asked.counts.split(","):
        alone(asked, int(count))


if __name__ == "__main__":
    main()
