"""No measured exchange between GPUs took less than its bound.

As in `test_measured_bound`, the measurements are in a folder beside the repository: `truth/ops/*_nccl.csv.gz`, and those
of engines' own kernels, on A100, H100 and H200.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from roofcast.calculators.parallel import exchange_cost, fabric_of
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.op import ALL_TO_ALL, Exchange

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES: Final = {"a100_sxm": "a100-80gb-sxm", "h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm"}
ROWS: Final = 5_247  # at the time of writing, for the line that says what is skipped


def ratios(folder: Path, kind: str, slower: float = 1.0) -> Iterator[tuple[str, int, float]]:
    """Yield pattern, ranks and measured over bound of every row, on links that are `slower` than they are."""
    for device, name in DEVICES.items():
        accelerator = find_accelerator(name).accelerator
        with gzip.open(folder / f"{device}_{kind}.csv.gz", "rt") as file:
            for row in csv.DictReader(file):
                pattern = {"alltoall": ALL_TO_ALL}.get(row["op_name"], row["op_name"])
                ranks, size = int(row["num_gpus"]), float(row["bytes"])
                exchange = Exchange("measured", pattern, size * slower, ranks, 1, 1.0)
                bound = exchange_cost(exchange, fabric_of(accelerator, ranks, None)).seconds
                yield pattern, ranks, float(row["latency_ms"]) * 1e-3 / bound


@pytest.fixture(name="folder", scope="module")
def folder_fixture() -> Path:
    """Return the folder of measurements; skip where it is not, with how many would have been compared."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    found = Path(os.environ.get("ROOFCAST_SHARED") or beside) / "truth" / "ops"
    if not (found / "h200_sxm_nccl.csv.gz").is_file():
        pytest.skip(f"no folder of measurements: {ROWS} exchanges not compared with their bounds")
    return found


@pytest.mark.parametrize("kind", ["nccl", "custom_allreduce"])
def test_no_exchange_beats_its_bound(folder: Path, kind: str) -> None:
    """All-reduce, all-gather, reduce-scatter and all-to-all of 2 to 8 GPUs, from a few hundred bytes to a gigabyte."""
    found = list(ratios(folder, kind))
    print(f"{len(found)} of {kind}: {dict(Counter(pattern for pattern, _, _ in found))}")

    assert min(ratio for _, _, ratio in found) >= 1
    assert len(found) >= {"nccl": 4_000, "custom_allreduce": 1_000}[kind]


def test_the_bound_is_not_far_off(folder: Path) -> None:
    """The largest tensors take less than twice the bound: were links half as quick, some would beat it."""
    assert min(ratio for _, _, ratio in ratios(folder, "nccl", slower=2.0)) < 1
