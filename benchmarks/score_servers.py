"""Compares `simulate` with measured servers in closed loop: mean TPOT and TTFT, by engine, accelerator and model.

Points are rows of FOLDER/serving.csv: an engine with its own defaults, prompts and outputs of nominal lengths, so many clients.
None of them was used in a fit of what a server adds. Mixtures of experts are apart.

    python benchmarks/score_servers.py --data FOLDER [--every N]
"""

from __future__ import annotations

import csv
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from step_rows import ready_of

from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.terms import Served
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.expected.expectation import expectation_for
from roofcast.calculators.serving.lengths import Apart, Fixed
from roofcast.calculators.serving.loads import Sending, synthetic
from roofcast.calculators.serving.service import Service, service_of
from roofcast.calculators.serving.simulate import simulate
from roofcast.calculators.serving.stagger import staggered
from roofcast.modelspec.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINES: Final = {"trtllm": "tensorrt-llm"}
Row = dict[str, str]
Errors = tuple[float, float]


@cache
def service_for(model: str, gpu: str, engine: str, tp: int, weights: str | None) -> Service:
    """A server as it starts by default."""
    ready = replace(ready_of(model, gpu, engine, tp, weights), expectation=None)
    ready = replace(ready, expectation=expectation_for(ready))
    served = Served(ready, Flags())
    return service_of(served, engine_memory(engine, served))[0]


def errors_of(row: Row) -> Errors | None:
    """Simulated over measured, less 1, of TPOT and TTFT; None of what does not fit."""
    engine, clients = ENGINES.get(row["backend"], row["backend"]), int(row["batch_size"])
    weights = "fp8" if row["gemm_quant_mode"] in {"fp8", "fp8_block"} and "FP8" not in row["model_path"] else None
    service = service_for(row["model_path"], row["system"].replace("_", "-"), engine, int(row["tp_size"]), weights)
    lengths = Apart(Fixed(int(row["isl"])), staggered(int(row["osl"])), "")
    result, _ = simulate(service, synthetic(lengths, Sending(concurrency=clients, requests=8 * clients)))
    if result.tpot_seconds is None or result.ttft_seconds is None:
        return None
    tpot, ttft = float(row["silicon_tpot_ms"]) / 1e3, float(row["silicon_ttft_ms"]) / 1e3
    return result.tpot_seconds.mean / tpot - 1, result.ttft_seconds.mean / ttft - 1


def rows_of(path: Path) -> Iterator[Row]:
    """Points of one pool on whole GPUs of one stage, whose formats are told."""
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            plain = row["mode"] == "agg" and row["pp_size"] in {"", "1"} and row["tp_size"] and row["gemm_quant_mode"]
            if plain and row["silicon_ttft_ms"] and row["system"] in {"h100_sxm", "h200_sxm"}:
                yield row


def line(name: str, errors: list[Errors]) -> str:
    """A group's medians."""
    tpot, ttft = ([each[at] for each in errors] for at in (0, 1))
    parts = [f"{what} {median(map(abs, of)):.1%} ({median(of):+.1%})" for what, of in (("TPOT", tpot), ("TTFT", ttft))]
    return f"{name}: {len(errors)} points, median error (bias) of {', '.join(parts)}"


def main() -> None:
    """Prints medians by engine, accelerator and model, and what was not answered."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with serving.csv")
    parser.add_argument("--every", type=int, default=1, help="take every N-th point")
    asked = parser.parse_args()
    groups: defaultdict[tuple[str, ...], list[Errors]] = defaultdict(list)
    silent: defaultdict[str, int] = defaultdict(int)
    for row in list(rows_of(asked.data / "serving.csv"))[:: asked.every]:
        try:
            found = errors_of(row)
        except (ModelError, UsageError, UnansweredError) as error:
            silent[type(error).__name__] += 1
            continue
        if found is None:
            silent["does not fit"] += 1
        else:
            groups[row["backend"], row["system"], row["model_path"].split("/")[-1]].append(found)
    for name, errors in sorted(groups.items()):
        print(line(" ".join(name), errors))
    print("not answered:", dict(silent))


if __name__ == "__main__":
    main()
