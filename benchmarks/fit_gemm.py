"""Fits the constants of dense matrix products to measured kernels, and says how well they do on shapes kept out.

Run with an interpreter that has roofcast and its `dev` extra: `.venv/bin/python benchmarks/fit_gemm.py --data FOLDER`.
FOLDER holds `ops/*_gemm.csv.gz`: framework, dtype, kernel_source, m, n, k, latency_ms. Nothing is random.

Rules that keep rows out: `floored` (a table whose every call pays for something that is no kernel) and `impossible`
(rows quicker than their roofline). Printed spreads in brackets are of up to 64 tokens, to 512 and above. What FP8 rows time is the quantisation of activations and the product.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from fitted import Fitted, asked_of, errors, parser_of, quantile, spread, transferred
from scipy.optimize import least_squares

from roofcast.calculators.expected.gemm import GemmConstants, gemm_seconds
from roofcast.calculators.expected.limits import Limits
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.shapes import GemmShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Outside = list[tuple["Row", float]]

TABLES: Final = {"a100_sxm": "a100-80gb-sxm", "h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm"}
ENGINES: Final = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}


@dataclass(frozen=True, slots=True)
class Format:
    """A dtype of the tables.

    Args:
        name: of the constants.
        compute: format whose peak counts.
        size: of a weight, scales of blocks included. [B]
        split: longest k that a tile walks alone. cuBLAS shares longer ones among tiles; the 4,096 was tried beside
            none, and gains 0.3 to 0.6 points of median error on bf16, loses as much on what other libraries compute.
    """

    name: str
    compute: str
    size: float
    split: float = math.inf


FORMATS: Final = {
    "bfloat16": Format("bf16", "bf16", 2.0, 4096.0),
    "fp8": Format("fp8", "fp8", 1.0),
    "fp8_block": Format("fp8_block", "fp8", 1.0 + 4.0 / 128**2),  # one fp32 scale a block of 128 x 128
    "int8_wo": Format("int8_wo", "bf16", 1.0),
    "int4_wo": Format("int4_wo", "bf16", 0.5),
    "sq": Format("int8", "int8", 1.0),
}
# accelerator, dtype, framework ("" is any) -> constants that gain on shapes kept out; every other keeps its default.
# Tiles and waves show on Ampere, and where CUTLASS multiplies in FP8 and no tiles share k: there median errors fall by
# half a point on H200 and rise by a tenth on H100, but spreads at 128 to 512 tokens fall on both.
FREE: Final = {
    ("a100-80gb-sxm", "", ""): ("t0", "ec", "em", "walk", "fill", "wave"),
    ("", "bfloat16", ""): ("t0", "ec", "em", "walk", "fill", "droop"),
    ("", "fp8", "vllm"): ("t0", "ec", "em", "walk", "passes", "row", "wave"),
    ("", "fp8", "sglang"): ("t0", "ec", "em", "walk", "passes", "wave"),
    ("", "", ""): ("t0", "ec", "em", "walk", "passes", "row"),
}
START: Final = {
    "t0": 4e-6, "ec": 0.8, "em": 0.8, "walk": 5e-10, "fill": 150.0, "droop": 0.2, "wave": 0.3, "passes": 5.0, "row": 1e-9
}  # fmt: skip
MOST: Final = {"ec": 1.0, "em": 1.0, "wave": 1.0}
SOFT: Final = 0.05  # of ln(expected / measured): beyond it a row pulls with its size, no longer its square
FLOOR: Final = 4.0  # times the quickest call of the same format on the same device
USUAL: Final = (2048, 16384)  # least and most n and k of what models have
LENDER: Final = "sglang"
NOTHING: Final = 1e-3  # of its start: a constant that the fit drives below it is 0


@dataclass(frozen=True, slots=True)
class Row:
    """A measured call, and its time. [s]"""

    shape: GemmShape
    seconds: float


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one device, framework and dtype, with the roofs that they are held against.

    Args:
        accelerator: its id.
        framework, dtype: as the file has them.
        limits: of the accelerator in that format.
        rows: that no rule keeps out.
        excluded: rule -> rows that it kept out.
        source: file.
        floor: quickest call of a table that `floored` keeps out; else 0. [s]
    """

    accelerator: str
    framework: str
    dtype: str
    limits: Limits
    rows: tuple[Row, ...]
    excluded: Mapping[str, int]
    source: str
    floor: float


# --- reading, and rules


def impossible(row: Row, limits: Limits) -> bool:
    """Whether a row is quicker than its roofline: weights that stayed in a cache, which those of a model do not."""
    shape = row.shape
    bound = max(2 * shape.m * shape.n * shape.k / limits.peak, shape.weight_bytes / limits.bandwidth)
    return row.seconds < bound


def floored(quickest: Mapping[str, float]) -> frozenset[str]:
    """Frameworks whose quickest call of a format takes over FLOOR times the quickest of all on the same device.

    Such a table times what the host does beside the kernel: vLLM's block-FP8 has nothing below 55 us, where the same
    libraries take 4.5 to 5 us under SGLang and TensorRT-LLM.

    >>> sorted(floored({"vllm": 55e-6, "sglang": 4.5e-6, "trtllm": 5.2e-6}))
    ['vllm']
    """
    least = min(quickest.values())
    return frozenset(name for name, seconds in quickest.items() if seconds > FLOOR * least)


def read(data: Path, table: str) -> list[Table]:
    """The tables of one file, and rows that the rules keep out."""
    card = find_accelerator(TABLES[table]).accelerator
    source = f"ops/{table}_gemm.csv.gz"
    groups: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    with gzip.open(data / source, "rt") as lines:
        for line in csv.DictReader(lines):
            m, n, k = (float(line[name]) for name in "mnk")
            shape = GemmShape(m, n, k, n * k * FORMATS[line["dtype"]].size)
            groups[line["dtype"], line["framework"]].append(Row(shape, float(line["latency_ms"]) / 1e3))
    quickest: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for (dtype, framework), rows in groups.items():
        quickest[dtype][framework] = min(row.seconds for row in rows)
    found = []
    for (dtype, framework), rows in groups.items():
        limits = Limits(card.peak(FORMATS[dtype].compute), card.bandwidth, float(card.sm_count or 0))
        kept = tuple(row for row in rows if not impossible(row, limits))
        excluded = {"impossible": len(rows) - len(kept)} if len(kept) < len(rows) else {}
        floor = quickest[dtype][framework] if framework in floored(quickest[dtype]) else 0.0
        found.append(Table(card.id, framework, dtype, limits, kept, excluded, source, floor))
    return found


# --- fits and scores


def constants(rows: Sequence[Row], table: Table) -> GemmConstants:
    """The constants that do best on rows: least squares of ln(expected / measured), soft beyond SOFT."""
    asked = (table.accelerator, table.dtype, table.framework)
    names = next(free for key, free in FREE.items() if all(a in {"", b} for a, b in zip(key, asked, strict=True)))
    split = FORMATS[table.dtype].split

    def made(scaled: Iterable[float]) -> GemmConstants:
        return GemmConstants(
            split=split, **{name: float(x) * START[name] for name, x in zip(names, scaled, strict=True)}
        )

    def misses(scaled: Iterable[float]) -> list[float]:
        return [
            math.log(gemm_seconds(row.shape, table.limits, c) / row.seconds) for c in (made(scaled),) for row in rows
        ]

    most = [MOST.get(name, math.inf) / START[name] for name in names]
    bounds = ([1e-4] * len(names), most)
    best = least_squares(misses, [1.0] * len(names), bounds=bounds, loss="soft_l1", f_scale=SOFT, xtol=1e-6).x
    return made(x if x > NOTHING else 0.0 for x in best)


def logs(rows: Iterable[Row], limits: Limits, c: GemmConstants) -> list[float]:
    """ln(expected / measured) of rows."""
    return [math.log(gemm_seconds(row.shape, limits, c) / row.seconds) for row in rows]


def half(row: Row) -> int:
    """Which half a row is in: all m of a pair of n and k are in one, by a hash of the pair."""
    return zlib.crc32(f"{row.shape.n:.0f}x{row.shape.k:.0f}".encode()) & 1


def kept_out(table: Table) -> Outside:
    """Every row, and ln(expected / measured) with the constants of the half that it is not in."""
    halves = [[row for row in table.rows if half(row) == side] for side in (0, 1)]
    found: Outside = []
    for side in (0, 1):
        c = constants(halves[1 - side], table)
        found += list(zip(halves[side], logs(halves[side], table.limits, c), strict=True))
    return found


def fitted(table: Table) -> tuple[Fitted, Outside]:
    """Constants of a table, their score, and the rows kept out with their miss."""
    c = constants(table.rows, table)
    inside = errors(logs(table.rows, table.limits, c))
    outside = kept_out(table)
    missed = errors(x for _, x in outside)
    neutral = GemmConstants()
    given = {name: getattr(c, name) for name in GemmConstants.__slots__ if getattr(c, name) != getattr(neutral, name)}
    one = Fitted(
        table.accelerator, ENGINES[table.framework], "gemm", FORMATS[table.dtype].name, given, len(table.rows),
        spread(x for _, x in outside), median(inside), median(missed), quantile(missed, 0.9), table.excluded, (table.source,),
    )  # fmt: skip
    return one, outside


def borrowed(table: Table, lenders: Mapping[str, Fitted]) -> Fitted:
    """Constants for a table that is `floored`: LENDER's, of the same format and device, who calls the same library.

    The score is of the rows that they expect to take over twice the floor: there the kernel hides what the host does.
    """
    lent = lenders[LENDER]
    c = GemmConstants(**lent.constants)
    rows = [row for row in table.rows if gemm_seconds(row.shape, table.limits, c) > 2 * table.floor]
    found = logs(rows, table.limits, c)
    missed = errors(found)
    return Fitted(
        table.accelerator, ENGINES[table.framework], "gemm", FORMATS[table.dtype].name, lent.constants, len(rows),
        spread(found), median(missed), median(missed), quantile(missed, 0.9),
        {**table.excluded, "floored": len(table.rows) - len(rows)}, (table.source,),
    )  # fmt: skip


def fit(data: Path, seen: Callable[[Table, Fitted, Outside], None] | None = None) -> list[Fitted]:
    """The constants of every accelerator, engine and format; `seen` gets each table that is fitted with its score."""
    found = []
    for name in TABLES:
        tables = read(data, name)
        lenders: defaultdict[str, dict[str, Fitted]] = defaultdict(dict)
        for table in tables:
            if not table.floor:
                one, outside = fitted(table)
                lenders[table.dtype][table.framework] = one
                found.append(one)
                if seen:
                    seen(table, one, outside)
        found += [borrowed(table, lenders[table.dtype]) for table in tables if table.floor]
    return found


# --- what is printed


def usual(row: Row) -> bool:
    """Whether models have such a matrix."""
    return all(USUAL[0] <= size <= USUAL[1] for size in (row.shape.n, row.shape.k))


def show(one: Fitted, outside: Outside) -> None:
    """A table's scores: all rows in and out of the fit, the usual ones, and the spread by tokens."""
    real = errors(x for row, x in outside if usual(row))
    few, some, many = (
        spread(x for row, x in outside if least <= row.shape.m <= most)
        for least, most in ((1, 64), (128, 512), (1024, math.inf))
    )
    print(
        f"{one.accelerator:14} {one.engine:12} {one.format:10} {one.rows:5d}  in {one.median_in:6.2%}  out {one.median_out:6.2%}"
        f" p90 {one.p90_out:6.1%}  usual {median(real):6.2%} p90 {quantile(real, 0.9):6.1%}  spread {one.spread:.3f}"
        f" ({few:.3f} {some:.3f} {many:.3f})  "
        + " ".join(f"{name}={value:.4g}" for name, value in one.constants.items())
    )


def show_transfer(found: Sequence[tuple[Table, Fitted]]) -> None:
    """Median error of each table with the constants of every other accelerator, same engine and format."""
    for table, one in found:
        for _, other in found:
            if (other.engine, other.format) == (one.engine, one.format) and other is not one:
                missed = logs(table.rows, table.limits, GemmConstants(**other.constants))
                print(transferred(f"{other.accelerator} -> {one.accelerator}, {one.engine} {one.format}", missed))


def show_micro(data: Path, found: Sequence[Fitted]) -> None:
    """The products of `h200/micro.json`, which no fit has seen: PyTorch, without quantisation of activations."""
    card = find_accelerator("h200-sxm").accelerator
    micro = json.loads((data / "h200" / "micro.json").read_text())
    for key, number_format, size in (("gemm", "bf16", 2.0), ("gemm_fp8", "fp8", 1.0)):
        limits = Limits(card.peak(number_format), card.bandwidth, float(card.sm_count or 0))
        rows = [Row(GemmShape(g["M"], g["N"], g["K"], g["N"] * g["K"] * size), g["us"] * 1e-6) for g in micro[key]]
        for one in found:
            if (one.accelerator, one.format) == (card.id, number_format):
                c = GemmConstants(**{**one.constants, "passes": 0.0, "row": 0.0})
                missed = logs(rows, limits, c)
                print(
                    f"micro.json {key}, constants of {one.engine}: {len(rows)} rows, median {median(errors(missed)):.1%}, "
                    f"p90 {quantile(errors(missed), 0.9):.1%}, bias {median(missed):+.1%}"
                )


def main() -> None:
    """Prints every score."""
    data = asked_of(parser_of(__doc__), "ops").data
    pairs: list[tuple[Table, Fitted]] = []

    def seen(table: Table, one: Fitted, outside: Outside) -> None:
        show(one, outside)
        pairs.append((table, one))

    found = fit(data, seen)
    for one in found:
        if "floored" in one.excluded:
            print(
                f"{one.accelerator} {one.engine} {one.format}, constants of {LENDER}: {one.rows} rows above the floor, "
                f"median {one.median_out:.1%}, p90 {one.p90_out:.1%}, spread {one.spread:.3f}; {one.excluded} left out"
            )
    show_transfer(pairs)
    show_micro(data, found)


if __name__ == "__main__":
    main()
