"""Fits the constants of exchanges between devices to measured ones, and says how well they do on sizes kept out.

Run with an interpreter that has roofcast and its `dev` extra: `.venv/bin/python benchmarks/fit_links.py --data FOLDER`.
FOLDER holds `ops/*_custom_allreduce.csv.gz` (engines' own kernels and NCCL beyond their reach, from a graph and eager)
and `ops/*_nccl.csv.gz`. No row is kept out: none is quicker than its bound. Nothing is random.

Formats are patterns: `all_reduce` is an engine's from a graph, `all_reduce_eager` launched by a host, `all_reduce_nccl`
and the others NCCL's. `point_to_point` is an all-to-all of two ranks, each of which sends half of its tensor.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from fit_gemm import TABLES
from fitted import Fitted, asked_of, errors, parser_of, quantile, spread, transferred
from scipy.optimize import least_squares

from roofcast.calculators.expected.links import LinkConstants, link_seconds
from roofcast.calculators.parallel import fabric_of
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.op import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER, Exchange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from roofcast.calculators.parallel import Fabric

RANKS: Final = 8  # of a host
EAGER: Final = "all_reduce_eager"
NCCL: Final = "all_reduce_nccl"
# kernel_source -> engine, format
KERNELS: Final = {
    "vLLM_custom_graph": ("vllm", ALL_REDUCE),
    "vLLM_custom_eager": ("vllm", EAGER),
    "SGLang_CustomAllReduce_graph": ("sglang", ALL_REDUCE),
    "SGLang_CustomAllReduce_eager": ("sglang", EAGER),
    "TRTLLM": ("tensorrt-llm", ALL_REDUCE),
}
PATTERNS: Final = {
    "all_reduce": (NCCL,),
    "all_gather": (ALL_GATHER,),
    "reduce_scatter": (REDUCE_SCATTER,),
    "alltoall": (ALL_TO_ALL, POINT_TO_POINT),
}
ENGINES: Final = ("vllm", "sglang", "tensorrt-llm")  # all call NCCL
# format -> constants that gain on sizes kept out; every other one keeps its default
FREE: Final[Mapping[str, tuple[str, ...]]] = {
    ALL_REDUCE: ("t0", "rank", "em", "own", "ramp", "shot"),
    EAGER: ("t0", "rank", "em", "own", "ramp", "floor"),
    POINT_TO_POINT: ("t0", "em", "ramp"),
    "": ("t0", "rank", "em", "own", "ramp"),
}
START: Final = {"t0": 3e-6, "rank": 3e-7, "em": 0.75, "own": 0.5, "ramp": 5e-6, "shot": 3e-6, "floor": 2e-5}
SOFT: Final = 0.1  # of ln(expected / measured): beyond it a row pulls with its size, no longer its square


@dataclass(frozen=True, slots=True)
class Row:
    """A measured exchange, and its time. [s]"""

    exchange: Exchange
    seconds: float


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one device, library and pattern, with the links that they are held against."""

    accelerator: str
    engines: tuple[str, ...]
    format: str
    fabric: Fabric
    rows: tuple[Row, ...]
    source: str


# --- reading


def lines(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a file."""
    with gzip.open(path, "rt") as file:
        yield from csv.DictReader(file)


def row_of(line: Mapping[str, str], name: str) -> Row | None:
    """A row as an exchange of that format; None where it says nothing of it."""
    ranks, size, seconds = int(line["num_gpus"]), float(line["bytes"]), float(line["latency_ms"]) / 1e3
    if name == POINT_TO_POINT:
        return Row(Exchange("measured", name, size / 2, 2, 1, 1.0), seconds) if ranks == 2 else None
    pattern = ALL_REDUCE if name in {EAGER, NCCL} else name
    return Row(Exchange("measured", pattern, size, ranks, 1, 1.0), seconds)


def tables(data: Path) -> list[Table]:
    """All tables of the folder."""
    found = []
    for table, identity in TABLES.items():
        fabric = fabric_of(find_accelerator(identity).accelerator, RANKS, None)
        groups: defaultdict[tuple[tuple[str, ...], str, str], list[Row]] = defaultdict(list)
        source = f"ops/{table}_custom_allreduce.csv.gz"
        for line in lines(data / source):
            engine, name = KERNELS[line["kernel_source"]]
            groups[(engine,), name, source] += [row for row in (row_of(line, name),) if row]
        source = f"ops/{table}_nccl.csv.gz"
        for line in lines(data / source):
            for name in PATTERNS[line["op_name"]]:
                groups[ENGINES, name, source] += [row for row in (row_of(line, name),) if row]
        found += [
            Table(identity, engines, name, fabric, tuple(rows), read)
            for (engines, name, read), rows in sorted(groups.items())
        ]
    return found


# --- fits and scores


def constants(rows: Sequence[Row], table: Table) -> LinkConstants:
    """The constants that do best on rows: least squares of ln(expected / measured), soft beyond SOFT."""
    names = FREE.get(table.format, FREE[""])

    def made(scaled: Iterable[float]) -> LinkConstants:
        return LinkConstants(**{name: float(x) * START[name] for name, x in zip(names, scaled, strict=True)})

    def misses(scaled: Iterable[float]) -> list[float]:
        return logs(rows, table.fabric, made(scaled))

    least = [1e-4 if name != "em" else 0.1 for name in names]
    most = [1 / START["em"] if name == "em" else math.inf for name in names]
    return made(least_squares(misses, [1.0] * len(names), bounds=(least, most), loss="soft_l1", f_scale=SOFT).x)


def logs(rows: Iterable[Row], fabric: Fabric, c: LinkConstants) -> list[float]:
    """ln(expected / measured) of rows."""
    return [math.log(link_seconds(row.exchange, fabric, c) / row.seconds) for row in rows]


def half(row: Row) -> int:
    """Which half a row is in: every other power of two of its size, for all ranks."""
    return round(math.log2(row.exchange.payload)) & 1


def kept_out(table: Table) -> list[tuple[Row, float]]:
    """Every row, and ln(expected / measured) with the constants of the half that it is not in."""
    halves = [[row for row in table.rows if half(row) == side] for side in (0, 1)]
    found = []
    for side in (0, 1):
        c = constants(halves[1 - side], table)
        found += list(zip(halves[side], logs(halves[side], table.fabric, c), strict=True))
    return found


def fitted(table: Table) -> tuple[list[Fitted], list[tuple[Row, float]]]:
    """Constants of a table for each engine that calls the library, their score, and the rows kept out."""
    c = constants(table.rows, table)
    outside = kept_out(table)
    missed = errors(x for _, x in outside)
    given = {name: getattr(c, name) for name in FREE.get(table.format, FREE[""])}
    score = (
        spread(x for _, x in outside), median(errors(logs(table.rows, table.fabric, c))), median(missed), quantile(missed, 0.9)
    )  # fmt: skip
    found = [
        Fitted(table.accelerator, engine, "collective", table.format, given, len(table.rows), *score, source=(table.source,))
        for engine in table.engines
    ]  # fmt: skip
    return found, outside


def fit(data: Path) -> list[Fitted]:
    """The constants of every accelerator, engine and pattern."""
    return [one for table in tables(data) for one in fitted(table)[0]]


# --- what is printed


def show(one: Fitted, outside: Sequence[tuple[Row, float]]) -> None:
    """A table's scores: in and out of the fit, and of ranks and sizes apart."""
    ranks = " ".join(
        f"{n}:{median(errors(x for row, x in outside if row.exchange.ranks == n)):.1%}"
        for n in sorted({row.exchange.ranks for row, _ in outside})
    )
    small, large = (spread(x for row, x in outside if (row.exchange.payload < 2**20) is side) for side in (True, False))
    print(
        f"{one.accelerator:14} {one.engine:12} {one.format:16} {one.rows:5d}  in {one.median_in:5.1%}  out {one.median_out:5.1%}"
        f" p90 {one.p90_out:5.1%}  ranks {ranks}  spread {one.spread:.3f} under 1 MiB {small:.3f} above {large:.3f}  "
        + " ".join(f"{name}={value:.3g}" for name, value in one.constants.items())
    )


def main() -> None:
    """Prints every score, and what each table's constants do on other accelerators."""
    found = []
    for table in tables(asked_of(parser_of(__doc__), "ops").data):
        ones, outside = fitted(table)
        show(ones[0], outside)
        found.append((table, ones[0]))
    for table, one in found:
        for _, other in found:
            if (other.engine, other.format) == (one.engine, one.format) and other is not one:
                missed = logs(table.rows, table.fabric, LinkConstants(**other.constants))
                print(transferred(f"{other.accelerator} -> {one.accelerator}, {one.engine} {one.format}", missed))


if __name__ == "__main__":
    main()
