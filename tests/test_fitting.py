"""Constants fitted to measured rows: those that rows were made with come back, and no more than pay."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import pytest

from roofcast.calculators.expected.gemm import GemmConstants, gemm_seconds
from roofcast.calculators.expected.limits import Limits
from roofcast.calculators.expected.stream import StreamConstants, stream_seconds
from roofcast.modelspec.shapes import GemmShape
from roofcast.profiler.calibrate import KINDS
from roofcast.profiler.calibrate_rows import gemm_least
from roofcast.profiler.fitting import IMPOSSIBLE, Fitted, Kind, Row, fit, quantile, told

pytest.importorskip("scipy")

CARD = Limits(989.4e12, 4.8e12, 132.0)
TRUE = GemmConstants(t0=2.5e-6, ec=0.75, em=0.9, walk=2e-10)
PAIRS = [(1792, 1280), (1280, 5120), (6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (65536, 2048)]
TOKENS = (1, 4, 16, 64, 256, 2048)


def products(constants: GemmConstants, noise: float = 0.0) -> list[Row]:
    """Return rows of a card with such constants, each off by chance, the same each time."""
    dice = random.Random(9)  # noqa: S311 - no secret
    rows = []
    for n, k in PAIRS:
        for m in TOKENS:
            shape = GemmShape(m, n, k, 2.0 * n * k)
            seconds = gemm_seconds(shape, CARD, constants) * math.exp(dice.gauss(0.0, noise))
            rows.append(Row("gemm", "bf16", f"{n}x{k}", f"{m}", shape, seconds, gemm_least(shape, CARD)))
    return rows


def fitted(rows: list[Row], kind: Kind = KINDS["gemm"]) -> Fitted:
    """Return the fit of rows that are enough."""
    found = fit(rows, kind, CARD)
    assert found is not None
    return found


def test_constants_that_rows_were_made_with_come_back() -> None:
    """Without noise to a part in a hundred, and no constant that plays no part."""
    found = fitted(products(TRUE))

    assert set(found.constants) == {"t0", "ec", "em", "walk"}
    for name, value in told(TRUE).items():
        assert found.constants[name] == pytest.approx(value, rel=0.01)
    assert found.median_error < 0.002


def test_scores_are_of_rows_that_were_kept_out() -> None:
    """3 % of noise is what is seen, in errors and spread; the rows are all there with what is expected of them."""
    found = fitted(products(TRUE, noise=0.03))

    assert 0.02 < found.spread < 0.07
    assert 0.01 < found.median_error < 0.03 < found.p90_error < 0.15
    assert len(found.rows) == len(PAIRS) * len(TOKENS)
    assert all(one.kept_out != one.expected for one in found.rows)
    assert fitted(products(TRUE, noise=0.03)) == found


def test_a_wild_row_does_not_bend_the_rest() -> None:
    """One measurement that was disturbed: five times as long."""
    rows = products(TRUE)
    rows[7] = replace(rows[7], seconds=5 * rows[7].seconds)

    found = fitted(rows)

    assert found.constants["em"] == pytest.approx(TRUE.em, rel=0.03)
    assert found.constants["ec"] == pytest.approx(TRUE.ec, rel=0.03)


def test_rows_that_beat_their_roofline_are_left_out_and_counted() -> None:
    """They read from a cache; expected times stay above the bound."""
    rows = products(TRUE)
    rows[0] = replace(rows[0], seconds=0.5 * rows[0].least)

    found = fitted(rows)

    assert dict(found.excluded) == {IMPOSSIBLE: 1}
    assert len(found.rows) == len(rows) - 1
    assert all(one.expected >= one.row.least for one in found.rows)


@pytest.mark.parametrize("factor", [0.5, 1.0])
def test_shares_stay_shares(factor: float) -> None:
    """Even where a card seems quicker than its data sheet, none is above 1."""
    found = fitted([replace(row, seconds=factor * row.seconds, least=0.0) for row in products(TRUE)])

    assert 0 < found.made.ec <= 1
    assert 0 < found.made.em <= 1


def test_a_constant_that_is_nothing_is_dropped() -> None:
    """A kernel without least time: t0 is not written at all."""
    found = fitted(products(GemmConstants(ec=0.7, em=0.8)))

    assert "t0" not in found.constants
    assert found.made.t0 == 0.0


def test_too_few_rows_are_not_fitted() -> None:
    """Five rows tell nothing; so it is where all but five beat their roofline."""
    rows = products(TRUE)

    assert fit(rows[:5], KINDS["gemm"], CARD) is None
    cached = [replace(row, seconds=0.5 * row.least) for row in rows[5:]]
    assert fit([*rows[:5], *cached], KINDS["gemm"], CARD) is None


def test_one_group_is_scored_by_itself() -> None:
    """There is nothing to keep it out with."""
    found = fitted([replace(row, group="all") for row in products(TRUE)])

    assert all(one.kept_out == pytest.approx(one.expected) for one in found.rows)


@dataclass(frozen=True, slots=True)
class _Two:
    t0: float = 0.0
    ec: float = 1.0
    em: float = 1.0


def test_any_formula_is_fitted() -> None:
    """A kind is a formula, its constants and their first values."""

    def formula(size: float, limits: Limits, c: _Two) -> float:
        return stream_seconds(0.0, size, limits, StreamConstants(c.t0, c.ec, c.em))

    sizes = [2.0**n for n in range(10, 34)]
    rows = [Row("x", "any", str(size), "", size, formula(size, CARD, _Two(3e-6, 1.0, 0.6))) for size in sizes]

    found = fitted(rows, Kind(formula, _Two, ("t0", "em"), start={"t0": 1e-6, "em": 0.9}, most={"em": 1.0}))

    assert found.constants == pytest.approx({"t0": 3e-6, "em": 0.6}, rel=0.01)


def test_quantiles_are_of_sorted_values() -> None:
    """The last is the largest."""
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert quantile([1.0, 2.0], 1.0) == 2.0
