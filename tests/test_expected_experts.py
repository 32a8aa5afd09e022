"""The expected time of routed experts: hand-made numbers, and laws that hold whatever the constants are."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.expected.experts import ExpertsConstants, experts_seconds
from roofcast.calculators.expected.limits import Limits
from roofcast.modelspec.shapes import ExpertsShape

CARD = Limits(peak=1e15, bandwidth=4e12, sms=132.0)
PERFECT = ExpertsConstants()
# every constant away from its default
WORN = ExpertsConstants(t0=2e-5, ec=0.5, em=0.8, tile=64.0, carry=1.0, sort=2.0, skew=4.0)
FREE = [field.name for field in fields(ExpertsConstants)]
EPSILON = 1 - 1e-9  # of rounding


@st.composite
def shapes(draw: st.DrawFn) -> ExpertsShape:
    """Any matrix of any layer, shared by up to as many devices as it has experts."""
    experts = draw(st.integers(1, 1024))
    top_k, ep = draw(st.integers(1, min(experts, 32))), draw(st.integers(1, experts))
    n, k, size = draw(st.floats(1, 65536)), draw(st.floats(1, 65536)), draw(st.floats(0.5, 4))
    return ExpertsShape(draw(st.floats(1, 131072)), top_k, experts, ep, n, k, n * k * size)


limits = st.builds(Limits, st.floats(1e12, 1e17), st.floats(1e10, 1e14), st.floats(1, 300))
shares = st.floats(0.05, 1)
constants = st.builds(
    ExpertsConstants,
    t0=st.floats(0, 1e-3), ec=shares, em=shares, tile=st.floats(0, 256), carry=st.floats(0, 50), sort=st.floats(0, 50),
    skew=st.floats(0, 20),
)  # fmt: skip


def bound(shape: ExpertsShape, card: Limits) -> float:
    """The roofline: max(2 T k n k_in / ep / peak, E (1 - (1 - k/E)^T) / ep experts / bandwidth). [s]"""
    unread: float = (1 - shape.top_k / shape.experts) ** shape.tokens
    distinct = shape.experts * (1 - unread)
    flops = 2 * shape.tokens * shape.top_k * shape.n * shape.k / shape.ep
    return max(flops / card.peak, distinct / shape.ep * shape.expert_bytes / card.bandwidth)


@given(shapes(), limits, constants)
def test_no_constants_beat_the_bound(shape: ExpertsShape, card: Limits, c: ExpertsConstants) -> None:
    """Expected >= bound, as every factor is at least 1 and every addend at least 0."""
    assert experts_seconds(shape, card, c) >= bound(shape, card) * EPSILON


@given(shapes(), limits, constants, st.floats(1, 10), st.floats(1, 10))
def test_better_hardware_is_never_slower(
    shape: ExpertsShape, card: Limits, c: ExpertsConstants, peak: float, bandwidth: float
) -> None:
    """With the constants held, time does not grow with peak or bandwidth."""
    better = Limits(card.peak * peak, card.bandwidth * bandwidth, card.sms)
    assert experts_seconds(shape, better, c) * EPSILON <= experts_seconds(shape, card, c)


@given(shapes(), limits, constants, st.floats(1, 100))
def test_more_tokens_are_never_quicker(shape: ExpertsShape, card: Limits, c: ExpertsConstants, more: float) -> None:
    """Time does not fall with tokens: they read more experts, or fill those that are read."""
    assert experts_seconds(replace(shape, tokens=shape.tokens * more), card, c) >= (
        experts_seconds(shape, card, c) * EPSILON
    )


@given(shapes(), limits, constants, st.sampled_from(FREE))
def test_a_constant_away_from_its_default_never_helps(
    shape: ExpertsShape, card: Limits, c: ExpertsConstants, name: str
) -> None:
    """The defaults are a perfect kernel and an even router, each alone."""
    ideal = replace(c, **{name: getattr(PERFECT, name)})
    assert experts_seconds(shape, card, ideal) * EPSILON <= experts_seconds(shape, card, c)


@pytest.mark.parametrize("name", FREE)
def test_every_constant_counts(name: str) -> None:
    """Bandwidth's share at few tokens, all else at many, shared by eight."""
    tokens = 16 if name == "em" else 16384
    shape = ExpertsShape(tokens, 8, 128, 8, 1536, 2048, 1536 * 2048 * 2)
    worse = replace(WORN, **{name: getattr(WORN, name) * (0.5 if name in {"ec", "em"} else 2)})

    assert experts_seconds(shape, CARD, worse) > experts_seconds(shape, CARD, WORN)


def test_a_perfect_kernel_is_the_roofline() -> None:
    """One token reads 8 experts of 6.29 MB at 4 TB/s; 16,384 do 825 GFLOP at 1 PFLOP/s."""
    one, many = (ExpertsShape(tokens, 8, 128, 1, 1536, 2048, 1536 * 2048 * 2) for tokens in (1, 16384))

    assert experts_seconds(one, CARD, PERFECT) == pytest.approx(8 * 1536 * 2048 * 2 / 4e12)
    assert experts_seconds(many, CARD, PERFECT) == pytest.approx(2 * 16384 * 8 * 1536 * 2048 / 1e15)


def test_the_busiest_of_many_devices_reads_an_expert_whole() -> None:
    """Of 64 devices that share 8 chosen experts some read one, none an eighth of one."""
    shape = ExpertsShape(1, 8, 128, 64, 1536, 2048, 1536 * 2048 * 2)

    assert experts_seconds(shape, CARD, PERFECT) == pytest.approx(1536 * 2048 * 2 / 4e12)


def test_an_uneven_router_costs_the_more_the_fewer_experts_a_device_has() -> None:
    """At 4 sqrt((ep - 1) / E): one device waits for none, 8 of 128 experts for 0.94 more, of 32 for 1.87 more."""
    skewed = ExpertsConstants(skew=4.0)

    for experts, ep, more in ((128, 1, 1.0), (128, 8, 1.93541), (32, 8, 2.87083)):
        shape = ExpertsShape(65536, 8, experts, ep, 1536, 2048, 1536 * 2048 * 2)
        even = experts_seconds(shape, CARD, PERFECT)
        assert experts_seconds(shape, CARD, skewed) / even == pytest.approx(more, rel=1e-5)


def test_tiles_cost_every_expert_that_is_read() -> None:
    """1,024 tokens fill 128 experts with 64 rows each: a tile's 64 more are as much again."""
    shape = ExpertsShape(1024, 8, 128, 1, 1536, 2048, 0.0)

    assert experts_seconds(shape, CARD, ExpertsConstants(tile=64.0)) == pytest.approx(
        2 * experts_seconds(shape, CARD, PERFECT)
    )
