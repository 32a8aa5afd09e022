"""Fits expected times of engines that have no operator tables to published speeds of one sequence on one accelerator.

Run with an interpreter that has roofcast and its `dev` extra: `.venv/bin/python benchmarks/fit_single.py --data FOLDER`.
FOLDER holds `speed.json`, a record a measurement; models that the catalogue lacks are looked for in `../hub`.

A decode step is t = calls t0 + walk (sum of k over products) + products / em + cache / em', each of the last two at the
bandwidth of the data sheet. It is linear in t0, walk, 1/em and 1/em', and its columns are the product's own formulas
with one constant at a time. A pair of accelerator and engine has few rows, so its four constants are sums of logarithms:
of all pairs, of the engine, of the class (vendor, else kind of memory) and the pair's own, each held near 0 by a width.
The first three are what a pair without rows has. Of prefill three shares of the peak are fitted alike: products in 16
bits, products in fewer, attention. Nothing is random. Builds are not told apart: constants are of the rows as they are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from math import exp, log, sqrt
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np
from fitted import Fitted, asked_of, parser_of
from scipy.optimize import least_squares
from single_rows import BATCH_ROWS, DECODE_ROWS, PREFILL_ROWS, SOURCE, WIDE, Form, Row, form_of, read_rows

from roofcast.calculators.expected.interval import Z80
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, GEMM, MOE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

NOISE: Final = 0.05  # of ln(measured): beyond about twice it a row pulls with its size, no longer its square


# --- the fit


@dataclass(slots=True)
class Levels:
    """Logarithms of what each level adds to a form's constants."""

    form: Form
    logs: dict[Hashable, Array] = field(default_factory=dict)

    def factors(self, row: Row) -> Array:
        """Of a row's columns: least + start exp(sum over its levels); levels without rows add nothing."""
        nothing = np.zeros(len(self.form.names))
        total = sum((self.logs.get(level, nothing) for level in row.levels), nothing)
        return np.asarray(np.array(self.form.least) + np.array(self.form.start) * np.exp(total))

    def seconds(self, row: Row) -> float:
        """Expected time. [s]"""
        return float(self.factors(row) @ np.array(row.columns)) + row.fixed


def fitted_levels(rows: Sequence[Row], form: Form) -> Levels:
    """The levels of least sum of softened squares: of ln(expected / measured) / noise, and of each logarithm / width."""
    index: dict[Hashable, int] = {}
    for row in rows:
        for level in row.levels:
            index.setdefault(level, len(index))
    order = ("all", "engine", "class", "pair")
    widths = np.array([form.widths[order.index(level[0])] for level in index])  # type: ignore[index]
    place = np.array([[index[level] for level in row.levels] for row in rows])
    columns, fixed = np.array([row.columns for row in rows]), np.array([row.fixed for row in rows])
    measured, start, least = np.log([row.seconds for row in rows]), np.array(form.start), np.array(form.least)

    def parts(x: Array) -> tuple[Array, Array, Array]:
        over = columns * start * np.exp(x.reshape(widths.shape)[place].sum(axis=1))
        total = fixed + columns @ least + over.sum(axis=1)
        return over, total, (np.log(total) - measured) / NOISE

    def residuals(x: Array) -> Array:
        return np.concatenate([soft(parts(x)[2]), (x.reshape(widths.shape) / widths).ravel()])

    def slopes(x: Array) -> Array:
        over, total, off = parts(x)
        each = over / total[:, None] / NOISE * soft_slope(off)[:, None]
        made = np.zeros((len(rows), *widths.shape))
        for level in range(len(order)):
            made[np.arange(len(rows)), place[:, level]] += each
        return np.vstack([made.reshape(len(rows), -1), np.diag(1.0 / widths.ravel())])

    solved = least_squares(residuals, np.zeros(widths.size), slopes, method="lm", xtol=1e-8, ftol=1e-10)
    return Levels(form, dict(zip(index, solved.x.reshape(widths.shape), strict=True)))


def soft(off: Array) -> Array:
    """Off, but beyond about 2 as the root of its size: u sqrt(2 / (1 + s)), s = sqrt(1 + u^2 / 4), whose square is convex.

    >>> [round(float(x), 2) for x in soft(np.array([0.1, -4.0]))]
    [0.1, -3.14]
    """
    return np.asarray(off * np.sqrt(2.0 / (1.0 + np.sqrt(1.0 + off * off / 4.0))))


def soft_slope(off: Array) -> Array:
    """The slope of `soft`: sqrt((1 + s) / 2) / s. [-]"""
    size = np.sqrt(1.0 + off * off / 4.0)
    return np.asarray(np.sqrt((1.0 + size) / 2.0) / size)


# --- scores


def half_of(row: Row) -> int:
    """The half that a model and format are in, whatever the device."""
    return int(sha256(row.group.encode()).hexdigest(), 16) % 2


def kept_out(rows: Sequence[Row], form: Form, fold: Callable[[Row], Hashable]) -> dict[str, float]:
    """Row -> ln(expected / measured), expected by a fit of all rows of other folds."""
    found: dict[str, float] = {}
    for one in sorted({fold(row) for row in rows}, key=str):
        levels = fitted_levels([row for row in rows if fold(row) != one], form)
        found |= {row.name: log(levels.seconds(row) / row.seconds) for row in rows if fold(row) == one}
    return found


def in_pair(rows: Sequence[Row]) -> list[Row]:
    """Rows whose pair has rows in the other half too."""
    halves: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for row in rows:
        halves[row.pair].add(half_of(row))
    return [row for row in rows if len(halves[row.pair]) > 1]


def width80(logs: Sequence[float]) -> float:
    """The spread whose 80 % interval holds 80 % of these: the 80th percentile of |ln| over 1.28. [-]

    >>> round(width80([0.1, -0.2, 0.3, -0.4, 1.0]) * 1.2815515594457831, 3)
    0.4
    """
    sizes = sorted(abs(x) for x in logs)
    return sizes[max(0, -(-8 * len(sizes) // 10) - 1)] / Z80 if sizes else 0.0


def errors(logs: Sequence[float]) -> tuple[float, float]:
    """Median and 90th percentile of |expected / measured - 1|. [-]"""
    sizes = sorted(abs(exp(x) - 1.0) for x in logs)
    return median(sizes), sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))]


@dataclass(frozen=True, slots=True)
class Scored:
    """Rows of a phase, their fit, and ln(expected / measured): fitted, with half of the pair kept out, with the device.

    `batch` is what a spread grows by with ln B.
    """

    rows: list[Row]
    excluded: dict[tuple[str, str], Counter[str]]
    levels: Levels
    fitted: dict[str, float]
    halves: dict[str, float]
    devices: dict[str, float]
    batch: float = 0.0


def score(data: Path, regime: str) -> Scored:
    """Reads, fits and scores a regime."""
    form = form_of(regime)
    rows, excluded = read_rows(data, regime)
    levels = fitted_levels(rows, form)
    inside = {row.name: log(levels.seconds(row) / row.seconds) for row in rows}
    kept = {row.name for row in in_pair(rows)}
    halves = {name: off for name, off in kept_out(rows, form, half_of).items() if name in kept}
    return Scored(rows, excluded, levels, inside, halves, kept_out(rows, form, lambda row: row.accelerator))


def batched(data: Path, decode: Scored) -> float:
    """What the spread grows by with ln B: 80 % of |ln(expected / measured)| / ln B of published batches, over 1.28. [-]

    Their rows are in no fit: the constants of one sequence are asked for B at once.
    """
    rows, _ = read_rows(data, BATCH_ROWS)
    known = [row for row in rows if row.sequences > 1 and row.pair in {one.pair for one in decode.rows}]
    return width80([log(decode.levels.seconds(row) / row.seconds) / log(row.sequences) for row in known])


# --- what is written


def spread_of(scored: Scored, pair: tuple[str, str]) -> float:
    """Spread of a pair: of its class's rows with half of the pair kept out; of a pair of one group as without it. [-]"""
    rows = [row for row in scored.rows if row.pair == pair]
    kinds = {row.kind for row in rows}
    alone = len({row.group for row in rows}) < 2
    known = scored.devices if alone else scored.halves
    logs = [known[row.name] for row in scored.rows if row.kind in kinds and row.name in known]
    return max(NOISE, width80(logs or list(scored.halves.values())))


def decode_constants(factors: Sequence[float]) -> dict[str, dict[str, float]]:
    """Constants of each family: t0 is alike in all that is launched; walk is of dense products alone.

    >>> made = decode_constants([1e-5, 5e-10, 1.25, 2.0])
    >>> made["gemm"]["em"], made["attn_decode"]["em"], made["moe"]["t0"]
    (0.8, 0.5, 1e-05)
    """
    t0, walk, em, cache = map(float, factors)
    return {
        GEMM: {"t0": t0, "em": 1.0 / em, "walk": walk},
        MOE: {"t0": t0, "ec": 1.0, "em": 1.0 / em},
        ATTN_DECODE: {"t0": t0, "ec": 1.0, "em": 1.0 / cache},
    }


def fits_of(pair: tuple[str, str], decode: Scored, prefill: Scored) -> list[Fitted]:
    """Fits of one pair."""
    rows = [row for row in decode.rows if row.pair == pair]
    inside, outside = (
        [known[row.name] for row in rows if row.name in known] for known in (decode.fitted, decode.halves)
    )
    outside = outside or [decode.devices[row.name] for row in rows]
    medians = errors(inside)[0], *errors(outside)
    known = any(row.pair == pair for row in prefill.rows)
    prompts = spread_of(prefill, pair) if known else width80(list(prefill.devices.values()))
    excluded = dict(decode.excluded.get(pair, {}))
    return families(pair, rows, (decode, prefill), (spread_of(decode, pair), prompts), (medians, excluded))


def priors(decode: Scored, prefill: Scored) -> list[Fitted]:
    """Fits of each engine and class without any pair's own: what a device counts by that no row is of.

    Their spreads are those of rows whose device was kept out.
    """
    found: list[Fitted] = []
    for engine, kind in sorted({(row.engine, row.kind) for row in decode.rows}):
        rows = [row for row in decode.rows if row.kind == kind and row.engine == engine]
        out = [decode.devices[row.name] for row in decode.rows if row.kind == kind]
        prompts = [prefill.devices[row.name] for row in prefill.rows if row.kind == kind] or list(
            prefill.devices.values()
        )
        inside = [decode.fitted[row.name] for row in rows]
        medians = errors(inside)[0], *errors([decode.devices[row.name] for row in rows])
        nobody = [replace(row, accelerator="") for row in rows]
        wide = max(NOISE, width80(out)), max(NOISE, width80(prompts))
        found += families((kind, engine), nobody, (decode, prefill), wide, (medians, {}))
    return found


def families(
    pair: tuple[str, str],
    rows: Sequence[Row],
    scored: tuple[Scored, Scored],
    widths: tuple[float, float],
    scores: tuple[tuple[float, float, float], Mapping[str, int]],
) -> list[Fitted]:
    """Products in 16 bits and in any other format, experts, attention, and the spread of steps of decode and prefill."""
    decode, prefill = scored
    spread, prompts = widths
    medians, excluded = scores
    made = decode_constants(decode.levels.factors(rows[0]).tolist())
    shares = 1.0 / prefill.levels.factors(rows[0])  # of a pair without prompts those of its engine and class

    def fit(family: str, number_format: str, constants: Mapping[str, float], width: float = spread) -> Fitted:
        return Fitted(*pair, family, number_format, constants, len(rows), width, *medians, excluded, (SOURCE,))

    attention = {"t0": made[ATTN_DECODE]["t0"], "ec": float(shares[2]), "em": made[GEMM]["em"]}
    return [
        *(fit(GEMM, name, made[GEMM] | {"ec": float(shares[0])}) for name in WIDE),
        fit(GEMM, "any", made[GEMM] | {"ec": float(shares[1])}),
        fit(MOE, "any", made[MOE] | {"ec": float(shares[1])}),
        fit(ATTN_DECODE, "any", made[ATTN_DECODE]),
        fit(ATTN_PREFILL, "any", attention, prompts),
        fit("elementwise", "any", {"t0": 0.0, "ec": 1.0, "em": 1.0}),
        fit("host", "any", {"step": 0.0}),
        fit("step", "decode", {"parts": 0.0, "batch": decode.batch}),
        fit("step", "prefill", {"parts": 0.0}, prompts),
    ]


def fit(data: Path) -> list[Fitted]:
    """Fits every pair of an accelerator and an engine that a row of decode speaks of."""
    decode, prefill = score(data, DECODE_ROWS), score(data, PREFILL_ROWS)
    decode = replace(decode, batch=batched(data, decode))
    pairs = sorted({row.pair for row in decode.rows})
    return [one for pair in pairs for one in fits_of(pair, decode, prefill)] + priors(decode, prefill)


# --- what is printed


def inside_share(scored: Scored, known: Mapping[str, float]) -> dict[str, tuple[int, float]]:
    """Class -> rows and share of them within the 80 % interval whose width the class's other devices give."""
    found: defaultdict[str, list[bool]] = defaultdict(list)
    for row in scored.rows:
        if row.name not in known:
            continue
        kin = [o for o in scored.rows if o.name in known and o.kind == row.kind and o.accelerator != row.accelerator]
        kin = kin or [o for o in scored.rows if o.name in known and o.accelerator != row.accelerator]
        hit = abs(known[row.name]) <= Z80 * max(NOISE, width80([known[o.name] for o in kin]))
        found[row.kind].append(hit)
        found["all"].append(hit)
    return {kind: (len(hits), sum(hits) / len(hits)) for kind, hits in sorted(found.items())}


def show(title: str, scored: Scored) -> None:
    """Errors in the fit and out of it, pair by pair, and how many rows an interval holds."""
    print(f"\n{title}: {len(scored.rows)} rows; kept out: {dict(sum(scored.excluded.values(), Counter()))}")
    for name, known in (("fitted", scored.fitted), ("half out", scored.halves), ("device out", scored.devices)):
        middle, most = errors(list(known.values()))
        deviation = sqrt(sum(x * x for x in known.values()) / len(known))
        print(f"  {name:10} {len(known):4d} rows, median {middle:.1%}, p90 {most:.1%}, deviation of ln {deviation:.3f}")
    for name, known in (("half out", scored.halves), ("device out", scored.devices)):
        shares = inside_share(scored, known)
        print(f"  inside, {name}: " + ", ".join(f"{kind} {share:.0%} of {n}" for kind, (n, share) in shares.items()))
    for pair in sorted({row.pair for row in scored.rows}):
        rows = [row for row in scored.rows if row.pair == pair]
        parts = " ".join(
            f"{name}={value:.4g}"
            for name, value in zip(scored.levels.form.names, scored.levels.factors(rows[0]), strict=True)
        )
        scores = [errors([known[row.name] for row in rows])[0] for known in (scored.fitted, scored.devices)]
        print(f"  {pair[0]:18} {pair[1]:12} {len(rows):3d} rows {scores[0]:6.1%} {scores[1]:6.1%}  {parts}")


def main() -> None:
    """Fits and prints."""
    data = asked_of(parser_of(__doc__), SOURCE).data
    show("decode of one sequence", score(data, DECODE_ROWS))
    show("prefill of one prompt", score(data, PREFILL_ROWS))


if __name__ == "__main__":
    main()
