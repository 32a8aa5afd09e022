"""The expected time of a matrix product: hand-made numbers, and laws that hold whatever its constants are."""

from __future__ import annotations

from dataclasses import fields, replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.expected.gemm import SUSTAINED, GemmConstants, gemm_seconds, waste
from roofcast.calculators.expected.limits import Limits
from roofcast.modelspec.shapes import GemmShape

CARD = Limits(peak=1e15, bandwidth=4e12, sms=132.0)
PERFECT = GemmConstants()
# every constant away from its default
WORN = GemmConstants(
    t0=3e-6,
    ec=0.85,
    em=0.87,
    walk=6e-10,
    split=4096.0,
    fill=200.0,
    droop=0.2,
    wave=0.4,
    passes=5.0,
    row=2e-9,
    single=0.4,
)
FREE = sorted({field.name for field in fields(GemmConstants)} - {"split", "single"})

sizes = st.floats(1, 262144)
tokens = st.floats(1, 131072)
# 0.5 byte is int4, 4 are fp32
shapes = st.builds(lambda m, n, k, size: GemmShape(m, n, k, n * k * size), tokens, sizes, sizes, st.floats(0.5, 4))
limits = st.builds(Limits, st.floats(1e12, 1e17), st.floats(1e10, 1e14), st.floats(1, 300))
shares = st.floats(0.05, 1)
constants = st.builds(
    GemmConstants,
    t0=st.floats(0, 1e-3), ec=shares, em=shares, walk=st.floats(0, 1e-7), split=st.floats(1, 1e6) | st.just(inf),
    fill=st.floats(0, 1e4), droop=st.floats(0, 2), wave=st.floats(0, 1), passes=st.floats(0, 50), row=st.floats(0, 1e-6),
    single=st.floats(0, 1),
)  # fmt: skip
EPSILON = 1 - 1e-12  # of rounding


def bound(shape: GemmShape, card: Limits) -> float:
    """The roofline: max(2 m n k / peak, weights / bandwidth). [s]"""
    return max(2 * shape.m * shape.n * shape.k / card.peak, shape.weight_bytes / card.bandwidth)


@given(shapes, limits, constants)
def test_no_constants_beat_the_bound(shape: GemmShape, card: Limits, c: GemmConstants) -> None:
    """Expected >= bound, as every factor is at least 1 and every addend at least 0."""
    assert gemm_seconds(shape, card, c) >= bound(shape, card) * EPSILON


@given(shapes, limits, constants, st.floats(1, 10), st.floats(1, 10))
def test_better_hardware_is_never_slower(
    shape: GemmShape, card: Limits, c: GemmConstants, peak: float, bandwidth: float
) -> None:
    """With the constants held, time does not grow with peak or bandwidth."""
    better = Limits(card.peak * peak, card.bandwidth * bandwidth, card.sms)
    assert gemm_seconds(shape, better, c) * EPSILON <= gemm_seconds(shape, card, c)


@given(shapes, limits, constants, st.floats(1, 100))
def test_more_tokens_are_never_quicker(shape: GemmShape, card: Limits, c: GemmConstants, more: float) -> None:
    """Time does not fall with m, tiles and waves or not."""
    assert gemm_seconds(replace(shape, m=shape.m * more), card, c) >= gemm_seconds(shape, card, c) * EPSILON


@given(shapes, limits, constants, st.floats(1, 10), st.floats(1, 10))
def test_a_larger_matrix_is_never_quicker(
    shape: GemmShape, card: Limits, c: GemmConstants, wide: float, deep: float
) -> None:
    """Time does not fall with n or k, the weights growing along."""
    larger = GemmShape(shape.m, shape.n * wide, shape.k * deep, shape.weight_bytes * wide * deep)
    assert gemm_seconds(larger, card, c) >= gemm_seconds(shape, card, c) * EPSILON


@given(shapes, limits, constants, st.sampled_from(FREE))
def test_a_constant_away_from_its_default_never_helps(
    shape: GemmShape, card: Limits, c: GemmConstants, name: str
) -> None:
    """The defaults are a perfect kernel, each alone."""
    ideal = replace(c, **{name: getattr(PERFECT, name)})
    assert gemm_seconds(shape, card, ideal) * EPSILON <= gemm_seconds(shape, card, c)


@pytest.mark.parametrize("name", FREE)
def test_every_constant_counts(name: str) -> None:
    """Each constant moves the time of a product in which compute and reading are both visible."""
    shape = GemmShape(512, 8192, 8192, 2**27)
    ideal = replace(WORN, **{name: getattr(PERFECT, name)})
    assert gemm_seconds(shape, CARD, WORN) > 1.0001 * gemm_seconds(shape, CARD, ideal)


def test_one_row_alone_starts_sooner() -> None:
    """Half of t0 and of the walk: 33.56 us of reading, and of 3 + 8,192 x 0.5 ns = 7.096 us the half, 3.548."""
    c = GemmConstants(t0=3e-6, walk=5e-10, single=0.5)
    assert gemm_seconds(GemmShape(1, 8192, 8192, 2**27), CARD, c) == pytest.approx(37.1106e-6, rel=1e-5)
    two = GemmShape(2, 8192, 8192, 2**27)
    assert gemm_seconds(two, CARD, c) == gemm_seconds(two, CARD, replace(c, single=0.0))


def test_bytes_beside_the_weights() -> None:
    """One token through 8,192 x 8,192 in bf16 reads 134.2 MB of weights and moves 33 kB: 33.56 us at 4 TB/s."""
    assert gemm_seconds(GemmShape(1, 8192, 8192, 2**27), CARD, PERFECT) == pytest.approx(33.5626e-6, rel=1e-5)


def test_compute_and_reading_that_take_equally_long() -> None:
    """Both 1 ms: the fourth root of 2 is 1.189 ms, between hiding one wholly and adding them."""
    shape = GemmShape(1000, 1e6, 500, 4e9 - 2 * 1000 * (500 + 1e6))
    assert gemm_seconds(shape, CARD, PERFECT) == pytest.approx(1.18921e-3, rel=1e-5)


def test_a_tile_walks_no_further_than_the_split() -> None:
    """4,096 steps of 1 ns are 4.096 us, of a k of 16,384 as of one of 4,096; of 1,024 they are 1.024 us."""
    c = GemmConstants(walk=1e-9, split=4096.0)

    def walked(k: float) -> float:
        shape = GemmShape(1, 1024, k, 2048 * k)
        return gemm_seconds(shape, CARD, c) - gemm_seconds(shape, CARD, PERFECT)

    assert walked(16384) == walked(4096) == pytest.approx(4.096e-6)
    assert walked(1024) == pytest.approx(1.024e-6)


def test_half_of_the_droop_is_there_at_half_a_millisecond() -> None:
    """Compute of 0.5 ms under a droop of 0.2 takes 0.55 ms."""
    shape = GemmShape(500, 1e5, 5000, 0)  # 5e11 FLOP: 0.5 ms; its 101 MB of activations take a twentieth
    assert gemm_seconds(shape, CARD, GemmConstants(droop=0.2)) == pytest.approx(1.1 * SUSTAINED, rel=1e-5)


@pytest.mark.parametrize(
    ("m", "n", "sms", "expected"),
    [
        (128, 256, 1, 1.0),  # one tile of the largest
        (128, 256 * 108, 108, 1.0),  # one a multiprocessor
        (128, 256 * 109, 108, 1.6514),  # one more: two waves of 128 x 256, better three of 128 x 128 at 0.9
        (1, 64, 1, 64 / 0.5),  # one row of 64
    ],
)
def test_waste(m: float, n: float, sms: float, expected: float) -> None:
    """Tiles that stand out of the matrix and waves that are not full, by hand."""
    assert waste(m, n, sms) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("n", [32.0, 256.0, 262144.0])
@pytest.mark.parametrize("m", [1.0, 131072.0])
def test_shapes_outside_of_what_is_measured_keep_to_reason(m: float, n: float) -> None:
    """Routers and heads stay within a few microseconds or three times their ideal, activations included."""
    shape = GemmShape(m, n, 4096, 2 * n * 4096)
    ideal = gemm_seconds(shape, CARD, PERFECT)
    assert gemm_seconds(shape, CARD, replace(WORN, passes=0.0, row=0.0)) < 8e-6 + 3 * ideal
