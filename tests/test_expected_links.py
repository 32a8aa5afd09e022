"""The expected time of exchanges: hand-made numbers, and laws that hold whatever the constants are."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.expected.links import LinkConstants, link_seconds
from roofcast.calculators.parallel import Fabric, Level, exchange_cost
from roofcast.modelspec.op import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Exchange,
)

PERFECT = LinkConstants()
# every constant away from its default
WORN = LinkConstants(t0=3e-6, rank=2e-7, em=0.8, own=0.5, ramp=1e-5, shot=4e-6, floor=2e-6)
NODE = Fabric((Level("scale-up", 8, 450e9, 0.6e-6),))
PATTERNS = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, POINT_TO_POINT)
EPSILON = 1 - 1e-9  # of rounding


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """A scale-up domain, whose switches may sum, in a host, in a network."""
    sizes = draw(st.sampled_from(((8,), (2, 8), (8, 1 << 30), (4, 8, 1 << 30))))
    speeds, hops = st.floats(1e9, 1e12), st.floats(1e-7, 1e-5)
    return Fabric(tuple(Level(str(size), size, draw(speeds), draw(hops), draw(st.booleans())) for size in sizes))


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[Exchange, Fabric]:
    """Any exchange that the links of a fabric join."""
    fabric = draw(fabrics())
    most = min(64, fabric.levels[-1].size)
    ranks = draw(st.integers(1, most))
    stride = draw(st.integers(1, max(1, most // ranks)))
    size, times = draw(st.floats(0, 2**31)), draw(st.floats(0, 200))
    fan = draw(st.integers(1, 8))
    return Exchange("any", draw(st.sampled_from(PATTERNS)), size, ranks, stride, times, fan=fan), fabric


times = st.floats(0, 1e-3)
constants = st.builds(
    LinkConstants,
    t0=times, rank=times, em=st.floats(0.05, 1), own=st.floats(0, 3), ramp=times, shot=times, floor=times,
)  # fmt: skip


@given(exchanges(), constants)
def test_no_constants_beat_the_bound(asked: tuple[Exchange, Fabric], c: LinkConstants) -> None:
    """Expected >= bound over every kind of link, as each way pays what the bound of the same way does, and more."""
    exchange, fabric = asked
    assert link_seconds(exchange, fabric, c) >= exchange_cost(exchange, fabric).seconds * EPSILON


@given(exchanges(), constants, st.floats(1, 10))
def test_faster_links_are_never_slower(asked: tuple[Exchange, Fabric], c: LinkConstants, better: float) -> None:
    """With the constants held, time does not grow with the bandwidth of all links."""
    exchange, fabric = asked
    quick = Fabric(tuple(replace(level, bandwidth=level.bandwidth * better) for level in fabric.levels))
    assert link_seconds(exchange, quick, c) * EPSILON <= link_seconds(exchange, fabric, c)


@given(st.sampled_from(PATTERNS), st.integers(2, 8), st.floats(0, 2**31), st.floats(1, 100), constants)
def test_more_bytes_are_never_quicker(pattern: str, ranks: int, size: float, more: float, c: LinkConstants) -> None:
    """Time does not fall with the payload, though an all-reduce changes its way."""
    small, large = (Exchange("any", pattern, one, ranks, 1, 1.0) for one in (size, size * more))
    assert link_seconds(large, NODE, c) >= link_seconds(small, NODE, c) * EPSILON


@given(exchanges(), constants, st.sampled_from([field.name for field in fields(LinkConstants)]))
def test_a_constant_away_from_its_default_never_helps(
    asked: tuple[Exchange, Fabric], c: LinkConstants, name: str
) -> None:
    """The defaults are a perfect library, each alone."""
    ideal = replace(c, **{name: getattr(PERFECT, name)})
    assert link_seconds(*asked, ideal) * EPSILON <= link_seconds(*asked, c)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", [field.name for field in fields(LinkConstants)])
def test_every_constant_counts_where_it_is_meant(pattern: str, name: str) -> None:
    """The second pass counts in an all-reduce, ranks and own parts where there are more than two, all else in each."""
    large = Exchange("any", pattern, 1e8, 8, 1, 1.0)
    worse = replace(WORN, **{name: {"em": 0.4, "own": 5.0}.get(name, 2e-3)})
    idle = {
        POINT_TO_POINT: {"rank", "own", "shot"}, ALL_REDUCE: set[str](),
    }.get(pattern, {"shot"})  # fmt: skip

    assert (link_seconds(large, NODE, worse) > link_seconds(large, NODE, WORN)) is (name not in idle)


def test_a_small_all_reduce_goes_in_one_pass_and_a_large_one_in_two() -> None:
    """64 KiB to 7 others is 458,752 B in a hop; 64 MiB is 1.75 times itself in two, and the second synchronisation."""
    c = LinkConstants(shot=3e-6)
    small, large = (Exchange("tp", ALL_REDUCE, size, 8, 1, 1.0) for size in (65536, 2**26))

    assert link_seconds(small, NODE, c) == pytest.approx(0.6e-6 + 7 * 65536 / 450e9)
    assert link_seconds(large, NODE, c) == pytest.approx(1.2e-6 + 3e-6 + 1.75 * 2**26 / 450e9)


def test_a_rank_copies_its_own_part() -> None:
    """Of 8 MB gathered by two, 4 MB cross the link and 4 MB are copied, here in half the time."""
    assert link_seconds(Exchange("tp", ALL_GATHER, 8e6, 2, 1, 1.0), NODE, LinkConstants(own=0.5)) == pytest.approx(
        0.6e-6 + 1.5 * 4e6 / 450e9
    )


def test_a_floor_counts_for_each_call() -> None:
    """Sixty-four small sums that a host launches take 64 floors; those of a graph take their hops."""
    exchange = Exchange("tp", ALL_REDUCE, 0.0, 8, 1, 64.0)

    assert link_seconds(exchange, NODE, LinkConstants(floor=2e-5)) == pytest.approx(64 * 2e-5)
    assert link_seconds(exchange, NODE, PERFECT) == pytest.approx(64 * 0.6e-6)


def test_stages_pay_a_launch_for_each_link() -> None:
    """Three links of four stages: a hop, 4.5 MB at 360 GB/s and 5 us each."""
    exchange = Exchange("pp", POINT_TO_POINT, 4.5e6, 4, 1, 1.0)

    assert link_seconds(exchange, NODE, LinkConstants(t0=5e-6, em=0.8)) == pytest.approx(3 * (0.6e-6 + 12.5e-6 + 5e-6))


def test_one_rank_exchanges_nothing() -> None:
    """Alone there is nothing to wait for."""
    for pattern in PATTERNS:
        assert link_seconds(Exchange("tp", pattern, 1e6, 1, 1, 1.0), NODE, WORN) == 0.0
