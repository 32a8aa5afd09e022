"""Fits the constants of attention to measured kernels, decode and prefill, and says how well they do on shapes kept out.

Run with an interpreter that has roofcast and its `dev` extra: `.venv/bin/python benchmarks/fit_attention.py --data FOLDER`.
FOLDER holds `ops/*_attn_decode.csv.gz` and `ops/*_attn_prefill.csv.gz`, one layer's calls. Nothing is random.

Rules that keep rows out: `impossible` (quicker than their roofline) and `aliased` (others that read the cache of such a
row, longer than the L2 cache). A format is that of the cache; where an engine was
measured with an FP8 cache under two formats of queries, the one that is not the cache's own is scored as `fp8.bf16`. Halves
are of shapes: all batches and lengths of a pair of query and KV heads are in one.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections import defaultdict
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from fitted import Fitted, asked_of, errors, parser_of, quantile, spread, transferred
from scipy.optimize import least_squares

from roofcast.calculators.expected.attention import (
    DecodeConstants,
    PrefillConstants,
    decode_seconds,
    prefill_seconds,
)
from roofcast.calculators.expected.limits import Limits
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL
from roofcast.modelspec.shapes import DecodeShape, PrefillShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Constants: TypeAlias = DecodeConstants | PrefillConstants
    Shape: TypeAlias = DecodeShape | PrefillShape
    Outside: TypeAlias = list[tuple["Row", float]]

TABLES: Final = {"a100_sxm": "a100-80gb-sxm", "h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm"}
ENGINES: Final = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
FORMATS: Final = {"bfloat16": "bf16", "fp8": "fp8"}
SIZES: Final = {"bf16": 2.0, "fp8": 1.0}
KINDS: Final[dict[str, tuple[Any, Any]]] = {
    ATTN_DECODE: (DecodeConstants, decode_seconds),
    ATTN_PREFILL: (PrefillConstants, prefill_seconds),
}
OWN: Final = ("t0", "ec", "em", "block", "ramp", "split", "unfilled")  # of decode
# first values, which are the units of the fit too
START: Final = {
    "t0": 1e-5, "ec": 0.5, "em": 0.8, "block": 3e-6, "ramp": 2e-5, "split": 3e-6, "unfilled": 0.3, "chain": 8e-9,
    "alone_t0": 1e-5, "alone_ec": 0.01, "alone_em": 0.8, "alone_block": 2e-6, "alone_ramp": 1e-5, "alone_split": 3e-6,
    "alone_unfilled": 0.5,
}  # fmt: skip
MOST: Final = {"ec": 1.0, "em": 1.0, "unfilled": 1.0}
SOFT: Final = 0.1  # of ln(expected / measured): beyond it a row pulls with its size, no longer its square
ANCHOR: Final = 0.3  # pull to the first value, as of a row 30 % off where a constant is twice it: holds what no row tells, as `ec` of decode
ENOUGH: Final = 2000  # rows of a fit; of more, evenly spaced ones
NOTHING: Final = 1e-3  # of its start: a constant that the fit drives below it is 0
USUAL_HEADS: Final = (16, 128)
USUAL_LENGTH: Final = 256


@dataclass(frozen=True, slots=True)
class Row:
    """A measured call, and its time. [s]"""

    shape: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one accelerator, engine, family and format.

    Args:
        accelerator, engine, family, format: what the constants are of.
        limits: roofs that the rows are held against.
        rows: that no rule keeps out.
        excluded: rule -> rows that it kept out.
        source: file.
    """

    accelerator: str
    engine: str
    family: str
    format: str
    limits: Limits
    rows: tuple[Row, ...]
    excluded: Mapping[str, int]
    source: str


# --- what tables show of kernels, and is not fitted


def facts(table: Table) -> dict[str, float]:
    """What a kernel seems to do, read off the same tables that are fitted, not out of its source.

    TensorRT-LLM's decode changes kernel at 1 and above 32 query heads of a KV head: there a block costs what it does for
    each query head. vLLM's on A100 grows with the context of one sequence, idle multiprocessors or not, where heads are no
    groups. TensorRT-LLM's prefill of short prompts costs a block for each query head. Tiles are 128 keys by assumption.
    """
    if table.family == ATTN_PREFILL:
        return {"tile": 128.0, "packs": 0.0 if table.engine == "tensorrt-llm" else 1.0}
    if table.engine == "tensorrt-llm":
        return {"widest": 32.0}
    if table.engine == "vllm" and table.accelerator.startswith("a100"):
        return {"alone_splits": 1.0}
    return {}


def free(table: Table) -> tuple[str, ...]:
    """Constants that are fitted."""
    if table.family == ATTN_PREFILL:
        return ("t0", "ec", "em", "block", "chain")
    return (*OWN, *(f"alone_{name}" for name in OWN)) if facts(table) else OWN


# --- reading, and rules


def impossible(row: Row, limits: Limits) -> bool:
    """Whether a row is quicker than its roofline, for whatever reason: pages that sequences share, or a cache in L2."""
    bound: float = max(row.shape.flops / limits.peak, row.shape.state_bytes / limits.bandwidth)
    return row.seconds < bound


def aliased(rows: Iterable[Row], limits: Limits, l2: float) -> frozenset[Row]:
    """Rows whose cache cannot have come from memory, and that are not `impossible` themselves.

    Where one row of a pair of query and KV heads is impossible with a cache longer than L2, less was read than counted
    (shared pages are the guess); then no row of that pair tells of memory once its cache is longer than L2.

    >>> rows = [Row(DecodeShape(1, 1, 8, 1, 128, size, 1), seconds) for size, seconds in ((9e9, 1), (8e9, 9), (1e3, 9))]
    >>> [row.shape.state_bytes for row in aliased(rows, Limits(1e15, 1e9, 132), 1e6)]
    [8000000000.0]
    """

    def pair(row: Row) -> tuple[float, float]:
        return row.shape.query_heads, row.shape.kv_heads

    big = [row for row in rows if row.shape.state_bytes > l2]
    pairs = {pair(row) for row in big if impossible(row, limits)}
    return frozenset(row for row in big if pair(row) in pairs and not impossible(row, limits))


def shape_of(line: Mapping[str, str], family: str) -> Shape:
    """A row of a file as the formula sees it."""
    batch, heads, keys, width = (
        float(line[name]) for name in ("batch_size", "num_heads", "num_key_value_heads", "head_dim")
    )
    element = SIZES[FORMATS[line["kv_cache_dtype"]]]
    if family == ATTN_DECODE:
        context = float(line["context"])
        state = 2 * batch * context * keys * width * element
        return DecodeShape(batch, context, heads, keys, width, state, 4 * batch * context * heads * width)
    new, before = float(line["isl"]), float(line["step"])
    state = 2 * batch * (new + before) * keys * width * element
    pairs = new * before + new * (new + 1) / 2
    return PrefillShape(batch, new, before, heads, keys, width, state, 4 * batch * pairs * heads * width)


def read(data: Path, name: str, family: str) -> list[Table]:
    """The tables of one file."""
    card = find_accelerator(TABLES[name]).accelerator
    source = f"ops/{name}_{family}.csv.gz"
    groups: defaultdict[tuple[str, str, str], list[Row]] = defaultdict(list)
    with gzip.open(data / source, "rt") as lines:
        for line in csv.DictReader(lines):
            key = line["framework"], FORMATS[line["kv_cache_dtype"]], FORMATS[line["attn_dtype"]]
            groups[key].append(Row(shape_of(line, family), float(line["latency_ms"]) / 1e3))
    found = []
    for (framework, cache, queries), rows in groups.items():
        limits = Limits(card.peak(cache), card.bandwidth, float(card.sm_count or 0))
        shared = aliased(rows, limits, float(card.l2 or math.inf))
        kept = tuple(row for row in rows if not impossible(row, limits) and row not in shared)
        out = {"impossible": len(rows) - len(kept) - len(shared), "aliased": len(shared)}
        excluded = {rule: count for rule, count in out.items() if count}
        both = (framework, cache, cache) in groups
        name_ = cache if queries == cache or not both else f"{cache}.{queries}"
        found.append(Table(card.id, ENGINES[framework], family, name_, limits, kept, excluded, source))
    return found


# --- fits and scores


def constants(rows: Sequence[Row], table: Table) -> Constants:
    """The constants that do best on rows: least squares of ln(expected / measured), soft beyond SOFT."""
    make, formula = KINDS[table.family]
    names, known = free(table), facts(table)
    some = rows[:: max(1, math.ceil(len(rows) / ENOUGH))]

    def made(scaled: Iterable[float]) -> Any:
        return make(**known, **{name: float(x) * START[name] for name, x in zip(names, scaled, strict=True)})

    def misses(scaled: Sequence[float]) -> list[float]:
        c = made(scaled)
        found = [math.log(formula(row.shape, table.limits, c) / row.seconds) for row in some]
        return found + [ANCHOR * (x - 1.0) for x in scaled]

    most = [MOST.get(name.removeprefix("alone_"), math.inf) / START[name] for name in names]
    bounds = ([1e-4] * len(names), most)
    best = least_squares(
        misses, [1.0] * len(names), bounds=bounds, loss="soft_l1", f_scale=SOFT, xtol=1e-5, ftol=1e-6
    ).x
    chosen: Constants = made(x if x > NOTHING else 0.0 for x in best)
    return chosen


def logs(rows: Iterable[Row], table: Table, c: Constants) -> list[float]:
    """ln(expected / measured) of rows."""
    formula = KINDS[table.family][1]
    return [math.log(formula(row.shape, table.limits, c) / row.seconds) for row in rows]


def half(row: Row) -> int:
    """Which half a row is in, by a hash of its heads."""
    return zlib.crc32(f"{row.shape.query_heads:.0f}/{row.shape.kv_heads:.0f}".encode()) & 1


def kept_out(table: Table) -> Outside:
    """Every row, and ln(expected / measured) with the constants of the half that it is not in."""
    halves = [[row for row in table.rows if half(row) == side] for side in (0, 1)]
    found: Outside = []
    for side in (0, 1):
        c = constants(halves[1 - side], table)
        found += list(zip(halves[side], logs(halves[side], table, c), strict=True))
    return found


def fitted(table: Table) -> tuple[Fitted, Outside]:
    """Constants of a table, their score, and the rows kept out with their miss."""
    c = constants(table.rows, table)
    outside = kept_out(table)
    missed = errors(x for _, x in outside)
    given = {one.name: getattr(c, one.name) for one in fields(c) if getattr(c, one.name) != one.default}
    one = Fitted(
        table.accelerator, table.engine, table.family, table.format, given, len(table.rows), spread(x for _, x in outside),
        median(errors(logs(table.rows, table, c))), median(missed), quantile(missed, 0.9), table.excluded, (table.source,),
    )  # fmt: skip
    return one, outside


def fit(data: Path, seen: Callable[[Table, Fitted, Outside], None] | None = None) -> list[Fitted]:
    """The constants of every accelerator, engine and format; `seen` gets each table with its score."""
    found = []
    for name in TABLES:
        for family in KINDS:
            for table in read(data, name, family):
                one, outside = fitted(table)
                found.append(one)
                if seen:
                    seen(table, one, outside)
    return found


# --- what is printed


def usual(row: Row) -> bool:
    """Whether models have such heads, and prompts such lengths."""
    length: float = row.shape.context if isinstance(row.shape, DecodeShape) else row.shape.new
    heads: float = row.shape.query_heads
    return USUAL_HEADS[0] <= heads <= USUAL_HEADS[1] and length >= USUAL_LENGTH


def show(one: Fitted, outside: Outside) -> None:
    """A table's scores: all rows, the usual ones, and the spread of calls below and above twice t0."""
    real = errors(x for row, x in outside if usual(row))
    edge = 2 * one.constants["t0"]
    short, long = (spread(x for row, x in outside if (row.seconds > edge) is side) for side in (False, True))
    print(
        f"{one.accelerator:14} {one.engine:12} {one.family:12} {one.format:8} {one.rows:5d}  in {one.median_in:6.2%}  out "
        f"{one.median_out:6.2%} p90 {one.p90_out:6.1%}  usual {median(real):6.2%} p90 {quantile(real, 0.9):6.1%}  spread "
        f"{one.spread:.3f} ({short:.3f} {long:.3f})  "
        + " ".join(f"{name}={value:.4g}" for name, value in one.constants.items()),
        flush=True,
    )


def show_transfer(tables: Sequence[tuple[Table, Fitted]]) -> None:
    """Median error of each table with the constants of every other accelerator, same engine and format."""
    for table, one in tables:
        for _, other in tables:
            same = (other.engine, other.family, other.format) == (one.engine, one.family, one.format)
            if same and other is not one:
                missed = logs(table.rows, table, KINDS[one.family][0](**other.constants))
                way = f"{other.accelerator} -> {one.accelerator}, {one.engine} {one.family} {one.format}"
                print(transferred(way, missed))


def main() -> None:
    """Prints every score."""
    data = asked_of(parser_of(__doc__), "ops").data
    tables: list[tuple[Table, Fitted]] = []

    def seen(table: Table, one: Fitted, outside: Outside) -> None:
        tables.append((table, one))
        show(one, outside)

    fit(data, seen)
    show_transfer(tables)


if __name__ == "__main__":
    main()
