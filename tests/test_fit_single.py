"""The fit of single-stream speeds: rows that it makes up itself, whose constants it must find again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

CONSTANTS = {"t0": 1e-5, "walk": 2e-9, "em": 1 / 0.9, "cache": 1 / 0.6}


@pytest.fixture(name="fits", scope="module")
def fits_fixture() -> ModuleType:
    """The benchmark as a module; skip where scipy is not there."""
    pytest.importorskip("scipy")
    folder = Path(__file__).resolve().parent.parent / "benchmarks"
    if not (folder / "fit_single.py").is_file():
        pytest.skip("no benchmarks beside the tests")
    sys.path.insert(0, str(folder))
    try:
        import fit_single
    finally:
        sys.path.remove(str(folder))
    return fit_single


def made_row(fits: ModuleType, name: str, columns: tuple[float, ...], **changed: Any) -> Any:
    """A row that takes just what the constants say, times `slower`."""
    slower = changed.pop("slower", 1.0)
    seconds = slower * sum(x * c for x, c in zip(columns, CONSTANTS.values(), strict=True))
    where = {"engine": "one", "accelerator": "card", "kind": "gddr", "group": name} | changed
    return fits.Row(name=name, seconds=seconds, columns=columns, **where)


def many(fits: ModuleType, **changed: Any) -> list[Any]:
    """Rows of several sizes, formats and contexts on one card."""
    sizes = [(layers, width, share, cache) for layers in (22, 32, 60) for width in (2e5, 8e5) for share in (0.3, 1.0) for cache in (1e-5, 3e-3)]  # fmt: skip
    return [
        made_row(fits, f"{n} {changed}", (layers * 5.0, width, layers * width * 6e-10 * share, cache), **changed)
        for n, (layers, width, share, cache) in enumerate(sizes)
    ]


def test_constants_are_found_again(fits: ModuleType) -> None:
    """Rows without noise are met, whatever the widths pull to."""
    rows = many(fits)
    levels = fits.fitted_levels(rows, fits.form_of(fits.DECODE_ROWS))

    assert [levels.seconds(row) for row in rows] == pytest.approx([row.seconds for row in rows], rel=0.02)
    assert levels.factors(rows[0])[1] == pytest.approx(CONSTANTS["walk"], rel=0.1)


def test_one_wild_row_moves_little(fits: ModuleType) -> None:
    """A row of ten times its time is left where it is; the others are still met."""
    rows = many(fits)
    wild = made_row(fits, "wild", rows[5].columns, slower=10.0)
    levels = fits.fitted_levels([*rows, wild], fits.form_of(fits.DECODE_ROWS))

    offs = sorted(abs(levels.seconds(row) / row.seconds - 1) for row in rows)
    assert offs[len(offs) // 2] < 0.05
    assert levels.seconds(wild) < 0.3 * wild.seconds


def test_a_card_without_rows_has_those_of_its_class(fits: ModuleType) -> None:
    """Engine and class are known of others: a third card of the class is close to two alike."""
    rows = [*many(fits), *many(fits, accelerator="second")]
    levels = fits.fitted_levels(rows, fits.form_of(fits.DECODE_ROWS))
    third = made_row(fits, "third", rows[3].columns, accelerator="third")

    assert levels.seconds(third) == pytest.approx(third.seconds, rel=0.15)


def test_expected_is_never_below_the_roofs(fits: ModuleType) -> None:
    """Shares of a roof are at most 1 even where rows beat it."""
    rows = [made_row(fits, str(n), (160.0, 8e5, 5e-3 * (n + 1), 1e-4), slower=0.5) for n in range(4)]
    levels = fits.fitted_levels(rows, fits.form_of(fits.DECODE_ROWS))

    for row in rows:
        assert levels.seconds(row) >= row.columns[2] + row.columns[3]
    constants = fits.decode_constants(levels.factors(rows[0]))
    assert 0 < constants["gemm"]["em"] <= 1
    assert 0 < constants["attn_decode"]["em"] <= 1


def test_halves_and_devices_are_kept_out(fits: ModuleType) -> None:
    """What scores a row has not seen its fold: a device that is twice as slow is expected too fast, by about that."""
    rows = [*many(fits), *many(fits, accelerator="slow", slower=2.0), *many(fits, accelerator="second")]
    off = fits.kept_out(rows, fits.form_of(fits.DECODE_ROWS), lambda row: row.accelerator)
    slow = sorted(off[row.name] for row in rows if row.accelerator == "slow")

    assert slow[len(slow) // 2] == pytest.approx(-0.693, abs=0.15)


def test_a_pair_of_one_group_is_not_scored_by_halves(fits: ModuleType) -> None:
    """Its other half has nothing of it."""
    rows = [made_row(fits, str(n), (160.0, 8e5, 5e-3, 1e-4), group="same") for n in range(3)]

    assert fits.in_pair(rows) == []


def test_slope_is_that_of_the_softened_residual(fits: ModuleType) -> None:
    """Against differences, on both sides of 0 and at it."""
    import numpy as np

    at, small = np.array([-7.0, -1.0, 0.0, 0.5, 20.0]), 1e-6
    slope = (fits.soft(at + small) - fits.soft(at - small)) / (2 * small)

    assert fits.soft_slope(at) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(
    ("wording", "engine"),
    [("llama.cpp CUDA", "llama.cpp"), ("ExLlamaV2", "exllamav2"), ("ExLlama v1", None), ("TinyChat (AWQ)", None), ("MLC LLM", "mlc"), ("SGLang", None)],
)  # fmt: skip
def test_engines(fits: ModuleType, wording: str, engine: str | None) -> None:
    """Engines with operator tables, and those that nothing names, stay out."""
    rows = sys.modules[fits.Row.__module__]

    assert rows.engine_of(wording) == engine
