"""What is remembered of requests: percentiles by rank, and a histogram that is half a percent off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.live import Histogram, Live, Tally, spread
from roofcast.calculators.serving.ranks import quantile
from roofcast.calculators.serving.result import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_percentiles_are_nearest_ranks() -> None:
    """Of 1 to 100 the 50th, 90th, 95th and 99th, and of 10 the last for all above 90 of 100."""
    hundred, ten = spread([float(value) for value in range(100, 0, -1)]), spread([float(value) for value in range(10)])
    assert hundred is not None
    assert ten is not None

    assert (hundred.mean, hundred.p50, hundred.p90, hundred.p95, hundred.p99, hundred.max) == (
        50.5,
        50,
        90,
        95,
        99,
        100,
    )
    assert (ten.p50, ten.p90, ten.p95, ten.p99) == (4, 8, 9, 9)
    assert (hundred.quantiles[0], hundred.quantiles[-1], len(hundred.quantiles)) == (1, 100, len(QUANTILES))


def test_of_nothing_there_is_no_spread() -> None:
    """Null, not 0."""
    assert spread([]) is None
    assert Histogram().spread() is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.0, 1.0))
def test_a_quantile_is_enough_for_its_share(values: list[float], share: float) -> None:
    """So many are at most that, and of those below it there are fewer."""
    ordered = sorted(values)
    found = quantile(ordered, share)

    assert sum(value <= found for value in ordered) >= share * len(ordered) * (1 - 1e-12)
    assert sum(value < found for value in ordered) < max(share * len(ordered), 1e-9)


@given(st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_histogram_is_half_a_percent_off(values: Sequence[float], share: float) -> None:
    """At any percentile; its mean and its most are exact."""
    histogram = Histogram()
    for value in values:
        histogram.add(value, 1)
    made = histogram.spread()
    assert made is not None

    assert histogram.quantile(share) == pytest.approx(quantile(sorted(values), share), rel=0.0051)
    assert made.mean == pytest.approx(sum(values) / len(values))
    assert made.max == max(values)
    assert made.quantiles == sorted(made.quantiles)


def test_many_alike_are_one() -> None:
    """A million of 10 ms and one of 1 s."""
    histogram = Histogram()
    histogram.add(0.01, 999_999)
    histogram.add(1.0, 1)

    assert histogram.quantile(0.99) == pytest.approx(0.01, rel=0.005)
    assert histogram.quantile(1.0) == pytest.approx(1.0, rel=0.005)
    assert len(histogram.bins) == 2


def done(output: int, *, arrival: float = 1.0, queued: float = 2.0, first: float = 4.0) -> Live:
    """Return a request that is answered."""
    live = Live(Job(arrival, 7, output), output, 1)
    live.queued, live.first = queued, first
    return live


def test_times_of_a_request() -> None:
    """It came at 1 s, was taken at 2, had its first token at 4 and its fourth at 10: 2 s a token."""
    tally = Tally()
    tally.finish(done(4), 10.0)

    assert (list(tally.queue), list(tally.ttft), list(tally.tpot), list(tally.e2e)) == ([1.0], [3.0], [2.0], [9.0])
    assert (tally.done, tally.prompt_tokens, tally.output_tokens, tally.last) == (1, 7, 4, 10.0)


def test_one_token_has_no_time_per_token() -> None:
    """Which is told apart from none."""
    tally = Tally()
    tally.finish(done(1), 4.0)

    assert list(tally.tpot) == [-1.0]
    assert list(tally.ttft) == [3.0]


def test_the_last_answer_counts() -> None:
    """Whatever the order of answers."""
    tally = Tally()
    for now in (5.0, 9.0, 7.0):
        tally.finish(done(2), now)

    assert tally.last == 9.0
