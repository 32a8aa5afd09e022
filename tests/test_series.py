"""The time series: what is put in comes out, in stretches that grow longer and never too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.serving.series import FIRST, MOST, Series


def test_a_time_is_shared_among_the_stretches_that_it_crosses() -> None:
    """From 0.025 to 0.125 s in stretches of 0.05: a quarter, a half and a quarter of its tokens."""
    series = Series(10.0)
    series.add(0.025, 0.125, (2, 4, 5.0), 8.0, 16.0)
    first, second, third = series.moments(0.15)

    assert [one.seconds for one in (first, second, third)] == pytest.approx([0.0, 0.05, 0.1])
    assert (first.running, first.waiting, first.kv_utilisation) == pytest.approx((1.0, 2.0, 0.25))
    assert (second.running, second.waiting, second.kv_utilisation) == pytest.approx((2.0, 4.0, 0.5))
    assert second.prompt_tokens_per_second == pytest.approx(4.0 / 0.05)
    assert third.output_tokens_per_second == pytest.approx(4.0 / 0.05)


def test_the_last_stretch_ends_with_the_makespan() -> None:
    """Of a stretch of 0.05 s whose first 0.01 s is all there is the mean is over these."""
    series = Series(1.0)
    series.add(0.0, 0.01, (3, 0, 1.0), 0.0, 1.0)
    (only,) = series.moments(0.01)

    assert (only.running, only.kv_utilisation) == pytest.approx((3.0, 1.0))
    assert only.output_tokens_per_second == pytest.approx(100.0)


def test_stretches_become_twice_as_long_and_stay_few() -> None:
    """A day of them."""
    series = Series(1.0)
    for second in range(0, 86400, 60):
        series.add(second, second + 30.0, (1, 0, 0.5), 1.0, 2.0)
    moments = series.moments(86400.0)

    assert MOST / 2 < len(moments) <= MOST
    assert series.width == FIRST * 2**13  # 409.6 s, of which 211 are a day
    assert moments[3].running == pytest.approx(0.5, abs=0.05)


def test_no_time_is_nothing() -> None:
    """Nor does it make a stretch."""
    series = Series(1.0)
    series.add(3.0, 3.0, (9, 9, 1.0), 9.0, 9.0)

    assert series.moments(5.0) == []


@given(
    st.lists(st.tuples(st.floats(0.001, 50.0), st.integers(0, 9), st.integers(0, 9), st.integers(0, 99)), max_size=50)
)
def test_nothing_is_lost(times: list[tuple[float, int, int, int]]) -> None:
    """Sums over all stretches are what was put in."""
    series, now = Series(4.0), 0.0
    for seconds, running, waiting, tokens in times:
        series.add(now, now + seconds, (running, waiting, 1.0), tokens, 2 * tokens)
        now += seconds
    moments = series.moments(now)
    lengths = [min(series.width, now - one.seconds) for one in moments]

    def total(name: str) -> float:
        return sum((getattr(one, name) * length for one, length in zip(moments, lengths, strict=True)), 0.0)

    assert total("running") == pytest.approx(sum(one[0] * one[1] for one in times))
    assert total("waiting") == pytest.approx(sum(one[0] * one[2] for one in times))
    assert total("kv_utilisation") == pytest.approx(now / 4.0)
    assert total("prompt_tokens_per_second") == pytest.approx(sum(one[3] for one in times))
    assert total("output_tokens_per_second") == pytest.approx(2 * sum(one[3] for one in times))
