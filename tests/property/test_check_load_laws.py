"""Laws of percentiles and goodput of a load: enough requests keep them, and looser ones are kept by no fewer."""

from __future__ import annotations

from array import array
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.check_load import Loaded, good_rate, time_at
from roofcast.calculators.serving.live import Tally

TIMES: Final = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40)
PERCENTS: Final = st.floats(0.1, 99.9)
LIMITS: Final = st.one_of(st.none(), st.floats(1e-3, 1e3))


def after(times: list[float], refused: int = 0) -> Loaded:
    """Return a service that answered so, each request in as long a time per token, in 10 s."""
    tally = Tally(ttft=array("d", times), tpot=array("d", times[::-1]), done=len(times), came=len(times) + refused)
    tally.rejected = refused
    return Loaded("", tally, 10.0)


@given(TIMES, st.integers(0, 10), PERCENTS)
def test_so_many_of_a_hundred_take_at_most_that(times: list[float], refused: int, percentile: float) -> None:
    """At the percentile enough requests were answered, and one time less would not do; else too many were refused."""
    value, every = time_at(after(times, refused), "ttft", percentile), len(times) + refused
    needed = percentile / 100 * every

    if value is None:
        assert len(times) < needed + 1e-9 * every
    else:
        assert sum(one <= value for one in times) >= needed - 1e-9 * every
        assert sum(one < value for one in times) < needed + 1e-9 * every


@given(TIMES, st.integers(0, 5), PERCENTS, PERCENTS)
def test_a_higher_percentile_is_no_shorter(times: list[float], refused: int, one: float, other: float) -> None:
    """What is never answered counts as the longest."""
    low, high = (time_at(after(times, refused), "ttft", share) for share in sorted((one, other)))

    assert high is None or (low is not None and low <= high)


@given(TIMES, LIMITS, LIMITS, LIMITS)
def test_a_looser_limit_never_has_less_goodput(
    times: list[float], ttft: float | None, tpot: float | None, other: float | None
) -> None:
    """And without limits it is all that were answered, over their time."""
    of = after(times)
    tight, loose = sorted((limit is None, limit or 0.0) for limit in (tpot, other))
    rates = [good_rate(of, ttft, None if none else limit) for none, limit in (tight, loose)]

    assert 0 <= rates[0] <= rates[1] <= len(times) / 10
    assert good_rate(of, None, None) == len(times) / 10
