"""Fits what a server adds to its engine's steps: latency of a request, the host's work before and between steps.

Rows are runs of vLLM in a process of its own on one H200, of known flags, in closed loop (all clients send at time 0, exact
lengths) and under Poisson load, of random weights without prefix caching; mean TTFT and TPOT of each. The engine's own
constants stay as they are. Every combination of a grid is simulated; the least sum of absolute logarithms of both wins.
Scored by model: constants of one model's runs, applied to the other's.

    python benchmarks/fit_server.py --data FOLDER  # with h200/served_*.json and h200/models/
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from dataclasses import dataclass, replace
from itertools import product
from math import expm1, log
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from step_rows import ready_of

from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.terms import Served
from roofcast.calculators.expected.expectation import expectation_for
from roofcast.calculators.serving.defaults import Server
from roofcast.calculators.serving.job import Job, Load
from roofcast.calculators.serving.service import Service, service_of
from roofcast.calculators.serving.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LATENCY: Final = (4e-3, 5e-3, 6e-3, 7e-3, 8e-3, 10e-3)
PREPARE: Final = (0.0, 3e-3, 6e-3, 9e-3)
BETWEEN: Final = (0.0, 5e-4, 1e-3, 1.5e-3, 2e-3)
FEW: Final = 12  # requests below which a mean TTFT says nothing
PLAIN: Final = Server()


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what was sent, and what was measured.

    Args:
        model: its name.
        service: as it was started.
        load: what was sent.
        ttft, tpot: means; None of too few requests. [s]
    """

    model: str
    service: Service
    load: Load
    ttft: float | None
    tpot: float

    def off(self, server: Server) -> tuple[float, float | None]:
        """ln(simulated / measured) of TPOT and TTFT."""
        result, _ = simulate(replace(self.service, server=server), self.load)
        if result.tpot_seconds is None or result.ttft_seconds is None:
            raise ValueError(f"{self.model}: nothing was answered")
        first = None if self.ttft is None else log(result.ttft_seconds.mean / self.ttft)
        return log(result.tpot_seconds.mean / self.tpot), first


def runs(data: Path) -> Iterator[Run]:
    """All runs of a folder."""
    for path in sorted((data / "h200").glob("served_*.json")):
        found = json.loads(path.read_text())
        service = started(data / "h200/models" / found["model"], found["flags"])
        for one in [*found["closed"], *found["open"]]:
            ttft = one["ttft_ms"]["mean"] / 1e3 if one["n"] >= FEW else None
            yield Run(found["model"], service, sent(one), ttft, one["tpot_ms"]["mean"] / 1e3)


def started(folder: Path, flags: dict[str, Any]) -> Service:
    """vLLM on one H200 with the flags of a run."""
    ready = replace(ready_of(str(folder), "h200-sxm", "vllm", 1, None), expectation=None)
    ready = replace(ready, expectation=expectation_for(ready))
    names = ("max_model_len", "max_num_batched_tokens", "max_num_seqs", "gpu_memory_utilization")
    served = Served(ready, Flags(**{name: flags[name] for name in names}))
    service, _ = service_of(served, engine_memory("vllm", served))
    return service


def sent(one: dict[str, Any]) -> Load:
    """The requests of a run, of exact lengths."""
    if "C" in one:
        jobs = [Job(0.0, one["isl"], one["osl"])] * one["n"]
        return Load(f"{one['C']} clients", lambda: iter(jobs), one["C"])
    jobs = [Job(arrival, one["isl"], one["osl"]) for arrival in one["arrivals"]]
    return Load(f"{one['rate']} a second", lambda: iter(jobs))


def loss(every: Iterable[Run], server: Server) -> float:
    """Sum of absolute logarithms, TTFT half as much: its tail is a few requests' luck."""
    total = 0.0
    for one in every:
        tpot, ttft = one.off(server)
        total += abs(tpot) + 0.5 * abs(ttft or 0.0)
    return total


def fitted(every: Sequence[Run]) -> Server:
    """The best of the grid."""
    grid = [Server(*each) for each in product(LATENCY, PREPARE, BETWEEN)]
    return min(grid, key=lambda server: loss(every, server))


def shown(name: str, every: Sequence[Run], server: Server) -> None:
    """A line of errors."""
    pairs = [one.off(server) for one in every]
    tpot = [abs(expm1(first)) for first, _ in pairs]
    ttft = [abs(expm1(second)) for _, second in pairs if second is not None]
    print(f"{name}: {server}: TPOT median {median(tpot):.1%}, TTFT median {median(ttft):.1%} of {len(pairs)} runs")


def main() -> None:
    """Fits, and scores."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with h200/served_*.json and h200/models/")
    every = list(runs(parser.parse_args().data))
    if not every:
        sys.exit("no run is there: give a folder with h200/served_*.json")
    for model in dict.fromkeys(one.model for one in every):
        others = [one for one in every if one.model != model]
        if others:
            shown(f"fitted without {model}, of {model}", [o for o in every if o.model == model], fitted(others))
    best = fitted(every)
    shown("without any", every, PLAIN)
    shown("fitted to all", every, best)


if __name__ == "__main__":
    main()
