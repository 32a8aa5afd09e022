"""Fits the constants of routed experts to measured fused kernels, and says how well they do on models kept out.

Run with an interpreter that has roofcast and its `dev` extra: `.venv/bin/python benchmarks/fit_experts.py --data FOLDER`.
FOLDER holds `ops/*_moe.csv.gz`: moe_dtype, kernel_source, distribution, num_tokens, sizes, latency_ms of all experts of a
layer: gate and up, the activation, and down. Nothing is random.

Constants are of `power_law_1.01`, a router between even ones and the steepest that is measured, with `skew` of one value
for all: loads are the router's, no kernel's. Scores stand for `balanced` (without skew) and `power_law_1.2` beside it.

Rules that keep rows out: `mislabelled` (a model some of whose evenly routed rows beat the bound of the sizes that are
stated), `impossible` (rows quicker than the bound of even routing), `other_kernel` (not the engine's choice for the
format: of several kernels the one with most rows, but both of block FP8 under vLLM, which takes Triton without
expert parallelism and CUTLASS with it).
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from fit_gemm import TABLES
from fitted import Fitted, asked_of, errors, parser_of, quantile, spread, transferred
from scipy.optimize import least_squares

from roofcast.calculators.expected.experts import ExpertsConstants, experts_seconds
from roofcast.calculators.expected.limits import Limits
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.shapes import ExpertsShape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FILES: Final = (("a100_sxm", "vllm"), ("h100_sxm", "vllm"), ("h200_sxm", "vllm"), ("h200_sxm", "sglang"))
# moe_dtype -> format of the constants, format whose peak counts, bytes of a weight with its scales
FORMATS: Final = {
    "bfloat16": ("bf16", "bf16", 2.0),
    "fp8_block": ("fp8", "fp8", 1.0 + 4.0 / 128**2),  # what models with experts in FP8 are published in
    "fp8": ("fp8_tensor", "fp8", 1.0),
    "int4_wo": ("int4", "bf16", 0.5 + 2.0 / 128),
    "w4a16_mxfp4": ("mxfp4", "bf16", 0.5 + 1.0 / 32),
}
BOTH: Final = frozenset((("vllm", "fp8_block"),))  # kernels that an engine chooses between by expert parallelism
MIDDLE: Final = "power_law_1.01"
EVEN: Final = "balanced"
STEEP: Final = "power_law_1.2"
SKEW: Final = {EVEN: 0.0, MIDDLE: 4.0, STEEP: 6.0}  # of the loads; one free on each table lies between 1.9 and 7.5
FREE: Final = ("t0", "ec", "em", "tile", "carry", "sort")
START: Final = {"t0": 2e-5, "ec": 0.5, "em": 0.8, "tile": 64.0, "carry": 1.0, "sort": 1.0}
MOST: Final = {"ec": 1.0, "em": 1.0, "tile": 128.0}
SOFT: Final = 0.15  # of ln(expected / measured): beyond it a row pulls with its size, no longer its square
FEW: Final = 3000  # rows that a fit reads, evenly from all of them; scores read all
USUAL: Final = 8  # devices that share a layer, at most, as models are mostly run


@dataclass(frozen=True, slots=True)
class Row:
    """A measured call as its two matrices, and its time. [s]"""

    up: ExpertsShape
    down: ExpertsShape
    distribution: str
    split: int
    kernel: str
    seconds: float

    @property
    def model(self) -> tuple[float, ...]:
        """Sizes that tell a model, however it is split."""
        up = self.up
        return up.experts, up.top_k, up.k, up.n * self.split


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one device, engine and dtype, with the roofs that they are held against."""

    accelerator: str
    engine: str
    format: str
    limits: Limits
    rows: tuple[Row, ...]
    excluded: dict[str, int]
    source: str


# --- reading, and rules


def least(row: Row, limits: Limits) -> float:
    """Least time of both matrices, routed evenly: each its roofline, of weights and FLOP alone. [s]"""
    found = 0.0
    for one in (row.up, row.down):
        unread: float = (1 - one.top_k / one.experts) ** one.tokens
        distinct = one.experts * (1 - unread) / one.ep
        flops = 2 * one.n * one.k * one.tokens * one.top_k / one.ep
        found += max(flops / limits.peak, distinct * one.expert_bytes / limits.bandwidth)
    return found


def impossible(row: Row, limits: Limits) -> bool:
    """Whether a row is quicker than its roofline: uneven routers read fewer experts than the even one of the bound."""
    return row.seconds < least(row, limits)


def mislabelled(rows: Iterable[Row], limits: Limits) -> frozenset[tuple[tuple[float, ...], str]]:
    """Models some of whose evenly routed rows beat the bound: their experts are not what the table says.

    Nemotron's have no gate, two matrices of three; DeepSeek-V3's of one table read as if half the experts were there.
    """
    return frozenset((row.model, row.kernel) for row in rows if row.distribution == EVEN and impossible(row, limits))


def chosen(rows: Sequence[Row], engine: str, dtype: str) -> frozenset[str]:
    """Kernels that an engine takes for a format: that of most rows, or both where it chooses by expert parallelism."""
    counts = Counter(row.kernel for row in rows)
    return frozenset(counts) if (engine, dtype) in BOTH else frozenset(name for name, _ in counts.most_common(1))


def row_of(line: dict[str, str]) -> Row:
    """A line as two matrices: [hidden] to twice the width, gate beside up, and the width back."""
    tokens, hidden, split = float(line["num_tokens"]), float(line["hidden_size"]), int(line["moe_tp_size"])
    width, size = float(line["inter_size"]) / split, FORMATS[line["moe_dtype"]][2]
    kind = tokens, float(line["topk"]), float(line["num_experts"]), float(line["moe_ep_size"])
    return Row(
        ExpertsShape(*kind, 2 * width, hidden, 2 * width * hidden * size),
        ExpertsShape(*kind, hidden, width, hidden * width * size),
        line["distribution"], split, line["kernel_source"], float(line["latency_ms"]) / 1e3,
    )  # fmt: skip


def read(data: Path, device: str, engine: str) -> list[Table]:
    """The tables of one file, after the rules."""
    card = find_accelerator(TABLES[device]).accelerator
    source = f"ops/{device}_{engine}_moe.csv.gz"
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    with gzip.open(data / source, "rt") as lines:
        for line in csv.DictReader(lines):
            groups[line["moe_dtype"]].append(row_of(line))
    found = []
    for dtype, rows in sorted(groups.items()):
        name, compute, _ = FORMATS[dtype]
        limits = Limits(card.peak(compute), card.bandwidth, float(card.sm_count or 0))
        kernels, wrong = chosen(rows, engine, dtype), mislabelled(rows, limits)
        mine = [row for row in rows if row.kernel in kernels]
        right = [row for row in mine if (row.model, row.kernel) not in wrong]
        kept = [row for row in right if not impossible(row, limits)]
        rules = {
            "other_kernel": len(rows) - len(mine), "mislabelled": len(mine) - len(right), "impossible": len(right) - len(kept)
        }  # fmt: skip
        excluded = {rule: count for rule, count in rules.items() if count}
        found.append(Table(card.id, engine, name, limits, tuple(kept), excluded, source))
    return found


# --- fits and scores


def constants(rows: Sequence[Row], table: Table) -> ExpertsConstants:
    """The constants that do best on rows: least squares of ln(expected / measured), soft beyond SOFT."""
    some = rows[:: max(1, len(rows) // FEW)]

    def made(scaled: Iterable[float]) -> ExpertsConstants:
        given = {name: float(x) * START[name] for name, x in zip(FREE, scaled, strict=True)}
        return ExpertsConstants(**given, skew=SKEW[MIDDLE])

    def misses(scaled: Iterable[float]) -> list[float]:
        return logs(some, table.limits, made(scaled))

    most = [MOST.get(name, math.inf) / START[name] for name in FREE]
    bounds = ([1e-4 if name not in {"ec", "em"} else 0.02 for name in FREE], most)
    return made(least_squares(misses, [1.0] * len(FREE), bounds=bounds, loss="soft_l1", f_scale=SOFT, xtol=1e-5).x)


def logs(rows: Iterable[Row], limits: Limits, c: ExpertsConstants) -> list[float]:
    """ln(expected / measured) of rows."""
    return [
        math.log((experts_seconds(row.up, limits, c) + experts_seconds(row.down, limits, c)) / row.seconds)
        for row in rows
    ]


def half(row: Row, alone: bool) -> int:
    """Which half a row is in: all rows of a model are in one, by a hash of its sizes; of its splits where it is alone."""
    key = (*row.model, row.split, row.up.ep) if alone else row.model
    return zlib.crc32("x".join(f"{size:.0f}" for size in key).encode()) & 1


def routed(table: Table, distribution: str) -> list[Row]:
    """Rows of one distribution."""
    return [row for row in table.rows if row.distribution == distribution]


def kept_out(table: Table) -> list[tuple[Row, float]]:
    """Every row of the middle, and ln(expected / measured) with the constants of the half that it is not in."""
    rows = routed(table, MIDDLE)
    alone = len({half(row, alone=False) for row in rows}) == 1
    halves = [[row for row in rows if half(row, alone) == side] for side in (0, 1)]
    found = []
    for side in (0, 1):
        c = constants(halves[1 - side], table)
        found += list(zip(halves[side], logs(halves[side], table.limits, c), strict=True))
    return found


def fitted(table: Table) -> tuple[Fitted, list[tuple[Row, float]]]:
    """Constants of a table, their score, and the rows kept out with their miss."""
    rows = routed(table, MIDDLE)
    c = constants(rows, table)
    inside = logs(rows, table.limits, c)
    outside = kept_out(table)
    missed = errors(x for _, x in outside)
    given = {name: getattr(c, name) for name in (*FREE, "skew")}
    one = Fitted(
        table.accelerator, table.engine, "moe", table.format, given, len(rows), spread(x for _, x in outside),
        median(errors(inside)), median(missed), quantile(missed, 0.9), table.excluded, (table.source,),
    )  # fmt: skip
    return one, outside


def tables(data: Path) -> list[Table]:
    """All tables."""
    return [table for device, engine in FILES for table in read(data, device, engine)]


def fit(data: Path) -> list[Fitted]:
    """The constants of every accelerator, engine and format."""
    return [fitted(table)[0] for table in tables(data)]


# --- what is printed


def show(one: Fitted, outside: Sequence[tuple[Row, float]], table: Table) -> None:
    """A table's scores: in and out of the fit, of usual splits, of other routers, and of few and many tokens."""
    real = errors(x for row, x in outside if row.split * row.up.ep <= USUAL)
    others = []
    for name in (EVEN, STEEP):
        if rows := routed(table, name):
            c = ExpertsConstants(**{**one.constants, "skew": SKEW[name]})
            others.append(f"{name} {median(errors(logs(rows, table.limits, c))):.1%}")
    spreads = " ".join(
        f"{low}+:{spread(x for row, x in outside if low <= row.up.tokens < high):.2f}"
        for low, high in ((1, 32), (32, 512), (512, 4096), (4096, 1 << 30))
    )
    print(
        f"{one.accelerator:14} {one.engine:7} {one.format:10} {one.rows:5d}  in {one.median_in:5.1%}  out {one.median_out:5.1%}"
        f" p90 {one.p90_out:5.1%}  usual {median(real):5.1%} p90 {quantile(real, 0.9):5.1%}  {'  '.join(others)}"
        f"  spread {one.spread:.3f} {spreads}  {one.excluded}  "
        + " ".join(f"{name}={value:.3g}" for name, value in one.constants.items())
    )


def main() -> None:
    """Prints every score, and what each table's constants do on other accelerators and engines."""
    found = []
    for table in tables(asked_of(parser_of(__doc__), "ops").data):
        one, outside = fitted(table)
        show(one, outside, table)
        found.append((table, one))
    for table, one in found:
        for _, other in found:
            if other.format == one.format and other is not one:
                missed = logs(routed(table, MIDDLE), table.limits, ExpertsConstants(**other.constants))
                way = f"{other.accelerator} {other.engine} -> {one.accelerator} {one.engine}, {one.format}"
                print(transferred(way, missed))


if __name__ == "__main__":
    main()
