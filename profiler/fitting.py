"""Measured rows to constants: least squares of ln(expected / measured), scored on rows that are kept out of the fit."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field, fields
from itertools import combinations
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.expected.interval import Z80

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofcast.calculators.expected.limits import Limits

FOLDS: Final = 4  # of groups, each kept out once
ENOUGH: Final = 6  # rows, below which nothing is fitted
SOFT: Final = 0.05  # of ln(expected / measured): beyond it a row pulls with its size, no longer its square
WILD: Final = 0.3  # of |ln(expected / measured)|: a row that is further off counts as this in a choice of constants
ANCHOR: Final = 0.02  # pull to the first value where a constant is twice it: holds what no row tells
GAIN: Final = 0.97  # of the miss of rows kept out, which a further constant must come below
NOTHING: Final = 1e-3  # of its first value: a constant that the fit drives below it is 0
LEAST: Final = 1e-4  # of its first value, below which no constant is looked for
SHARES: Final = frozenset(("ec", "em"))  # of a roof: what divides is never 0
IMPOSSIBLE: Final = "impossible"


@dataclass(frozen=True, slots=True)
class Row:
    """A measured call, or a measured step.

    Args:
        family, format: of it.
        group: rows of one group, as of one matrix, are kept out together.
        label: what it is, in a few words.
        shape: what the family's formula takes.
        seconds: measured. [s]
        least: its bound; a row that is quicker read from a cache what a model's weights are read from memory for. [s]
    """

    family: str
    format: str
    group: str
    label: str
    shape: Any
    seconds: float
    least: float = 0.0


@dataclass(frozen=True, slots=True)
class Kind:
    """How a family is fitted.

    Args:
        formula: (shape, limits, constants) -> seconds.
        constants: what it takes, a frozen dataclass.
        free: constants that are always fitted.
        pays: of these one after the other is fitted too where that brings rows closer that are kept out.
        fixed: what is seen or assumed, and not fitted.
        start: first values, which are the units of the fit too.
        most: largest values.
    """

    formula: Callable[[Any, Any, Any], float]
    constants: type[Any]
    free: tuple[str, ...]
    pays: tuple[str, ...] = ()
    fixed: Mapping[str, float] = field(default_factory=dict)
    start: Mapping[str, float] = field(default_factory=dict)
    most: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scored:
    """A row with what is expected of it: by constants of all rows, and by those of rows of other groups. [s]"""

    row: Row
    expected: float
    kept_out: float

    @property
    def miss(self) -> float:
        """ln(expected / measured), the row kept out. [-]"""
        return math.log(self.kept_out / self.row.seconds)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants of one family and format, and how well they do.

    Args:
        family, format: of them.
        constants: those that are not as their default.
        made: the same as the formula takes them.
        rows: that were fitted.
        excluded: rule -> rows that it kept out.
        spread: standard deviation of ln(measured / expected), rows kept out. [-]
        median_error, p90_error: of |expected / measured - 1|, likewise. [-]
    """

    family: str
    format: str
    constants: Mapping[str, float]
    made: Any
    rows: tuple[Scored, ...]
    excluded: Mapping[str, int]
    spread: float
    median_error: float
    p90_error: float


def fit(rows: Sequence[Row], kind: Kind, limits: Limits | None) -> Fitted | None:
    """The constants that do best on rows, as few as pay; None where the rows are too few to tell them.

    Scored on rows kept out: those of each fold are expected with constants of all other folds. Nothing is random.
    """
    kept = [row for row in rows if row.seconds >= row.least]
    excluded = {IMPOSSIBLE: len(rows) - len(kept)} if len(kept) < len(rows) else {}
    folds = _folds(kept)
    if len(kept) < ENOUGH or len(kept) <= len(kind.free):
        return None
    names = _chosen(kept, folds, kind, limits)
    made = solved(kept, kind, names, limits)
    outside = _outside(kept, folds, kind, names, limits)
    scored = tuple(
        Scored(row, kind.formula(row.shape, limits, made), kept_out)
        for row, kept_out in zip(kept, outside, strict=True)
    )
    off = sorted(abs(math.expm1(one.miss)) for one in scored)
    return Fitted(
        family=kept[0].family,
        format=kept[0].format,
        constants=told(made),
        made=made,
        rows=scored,
        excluded=excluded,
        spread=spread([one.miss for one in scored]),
        median_error=median(off),
        p90_error=quantile(off, 0.9),
    )


def solved(rows: Sequence[Row], kind: Kind, names: Sequence[str], limits: Limits | None) -> Any:  # noqa: ANN401 - of the family
    """The values of `names` that do best on rows: least squares of ln(expected / measured), soft beyond SOFT."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - an extra: only calibrating needs it

    def made(scaled: Iterable[float]) -> Any:  # noqa: ANN401 - of the family
        values = {name: float(x) * kind.start[name] for name, x in zip(names, scaled, strict=True)}
        return kind.constants(**{**kind.fixed, **values})

    def misses(scaled: Sequence[float]) -> list[float]:
        constants = made(scaled)
        off = [math.log(kind.formula(row.shape, limits, constants) / row.seconds) for row in rows]
        return off + [ANCHOR * (x - 1.0) for x in scaled]

    most = [kind.most.get(name, math.inf) / kind.start[name] for name in names]
    first = [min(1.0, 0.9 * top) for top in most]
    best = least_squares(misses, first, bounds=([LEAST] * len(names), most), loss="soft_l1", f_scale=SOFT, xtol=1e-6).x
    return made(x if x > NOTHING or name in SHARES else 0.0 for name, x in zip(names, best, strict=True))


def _chosen(rows: Sequence[Row], folds: Sequence[int], kind: Kind, limits: Limits | None) -> tuple[str, ...]:
    """The constants that are always fitted, and those of `pays` that bring rows closer that are kept out, best first.

    Two at a time are tried too, where none alone is worth it: one may only show beside another.
    """
    names, rest = kind.free, set(kind.pays)
    now = _miss(rows, _outside(rows, folds, kind, names, limits))

    def best(count: int) -> tuple[float, tuple[str, ...]]:
        sets = combinations(sorted(rest), count)
        return min(
            ((_miss(rows, _outside(rows, folds, kind, (*names, *more), limits)), more) for more in sets),
            default=(now, ()),
        )

    while rest:
        miss, more = next((found for count in (1, 2) if (found := best(count))[0] < GAIN**count * now), (now, ()))
        if not more:
            break
        names, now = (*names, *more), miss
        rest -= set(more)
    return names


def _miss(rows: Sequence[Row], expected: Sequence[float]) -> float:
    """Mean |ln(expected / measured)|, wild rows cut to WILD. [-]"""
    return fmean(min(WILD, abs(math.log(one / row.seconds))) for row, one in zip(rows, expected, strict=True))


def _outside(
    rows: Sequence[Row], folds: Sequence[int], kind: Kind, names: Sequence[str], limits: Limits | None
) -> list[float]:
    """What is expected of each row with constants of the folds that it is not in; of all where there is one group. [s]"""
    made = {}
    for number in sorted(set(folds)):
        others = [row for row, fold in zip(rows, folds, strict=True) if fold != number]
        made[number] = solved(others or rows, kind, names, limits)
    return [kind.formula(row.shape, limits, made[fold]) for row, fold in zip(rows, folds, strict=True)]


def _folds(rows: Sequence[Row]) -> list[int]:
    """The fold that each row is in: groups by turns, in the order of a hash of their names."""
    groups = sorted({row.group for row in rows}, key=lambda name: (zlib.crc32(name.encode()), name))
    fold = {group: number % FOLDS for number, group in enumerate(groups)}
    return [fold[row.group] for row in rows]


def told(constants: Any) -> dict[str, float]:  # noqa: ANN401 - of any family
    """What of constants is needed to make them again: all that have no default, or another value than it."""
    return {one.name: value for one in fields(constants) if (value := getattr(constants, one.name)) != one.default}


def spread(logs: Iterable[float]) -> float:
    """Standard deviation whose normal has the same 80 % interval: (q90 - q10) / 2.563. Wild rows do not widen it.

    >>> round(spread([0.1 * x for x in range(-5, 6)]), 3)
    0.312
    """
    ordered = sorted(logs)
    return (quantile(ordered, 0.9) - quantile(ordered, 0.1)) / (2 * Z80) if ordered else 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of sorted values lies."""
    return values[min(len(values) - 1, int(share * len(values)))]
