"""When requests come: rates, bursts and schedules, and the loads that are made of them."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from random import Random
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.arrivals import Arrivals, Stretch, at_rate, parse_rate
from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.lengths import Apart, Fixed, Uniform
from roofcast.calculators.serving.loads import BLOCK, Sending, SharedPrefix, default_requests, synthetic, traced

COUNT = 20_000
LENGTHS = Apart(Uniform(1, 100), Fixed(8), "some in, 8 out")


def chance(seed: int) -> Random:
    """Chance that can be repeated."""
    return Random(seed)  # noqa: S311 - no secret


def times(text: str, count: int = COUNT, shape: float = 1.0, seed: int = 1) -> list[float]:
    """First times of a rate's text."""
    return list(islice(parse_rate(text, shape).times(chance(seed)), count))


def gaps(found: list[float]) -> list[float]:
    """From one to the next, the first from 0."""
    return [later - before for before, later in pairwise([0.0, *found])]


@pytest.mark.parametrize("shape", [0.25, 1.0, 4.0])
def test_gaps_have_their_mean_and_spread(shape: float) -> None:
    """At 2 a second gaps are 0.5 s in the mean, and their coefficient of variation is 1 / sqrt(shape)."""
    found = gaps(times("2", shape=shape))

    assert fmean(found) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(shape * COUNT))
    assert pstdev(found) / fmean(found) == pytest.approx(shape**-0.5, rel=0.06)


def test_poisson_counts() -> None:
    """Requests of a stretch of time have a variance like their mean: 10 of each 5 s at 2 a second."""
    found = times("2")

    counts = [0] * int(found[-1] / 5)
    for time in found:
        if time < 5 * len(counts):
            counts[int(time / 5)] += 1

    assert fmean(counts) == pytest.approx(10, abs=0.4)
    assert pstdev(counts) ** 2 == pytest.approx(10, rel=0.15)


def test_even_spacing() -> None:
    """An infinite shape is one request each 1 / rate."""
    assert times("4", 4, math.inf) == [0.25, 0.5, 0.75, 1.0]


def test_all_at_once() -> None:
    """An infinite rate is all at time 0, and is called so."""
    assert times("inf", 3) == [0.0, 0.0, 0.0]
    assert parse_rate("inf").text == "all at once"


def test_a_schedule_by_hand() -> None:
    """Evenly spaced, 1 a second to 2.5 s, none to 10 s, then 2 a second: the gap that is half over goes on at 10 s."""
    assert times("1@0s,0@2.5s,2@10s", 5, math.inf) == [1.0, 2.0, 10.25, 10.75, 11.25]


def test_a_schedule_ends() -> None:
    """A schedule that ends with 0 sends no more."""
    assert times("1@0s,0@2.5s", 5, math.inf) == [1.0, 2.0]


def test_a_schedule_keeps_its_rates() -> None:
    """2, 8 and 2 requests a second, 1,000 s each, within 5 standard deviations of a Poisson count."""
    found = times("2@0s,8@1000s,2@2000s", 40_000)

    for start, rate in ((0, 2), (1000, 8), (2000, 2)):
        count = sum(start <= time < start + 1000 for time in found)
        assert abs(count - rate * 1000) < 5 * math.sqrt(rate * 1000)


def test_a_schedule_of_one_rate_is_that_rate() -> None:
    """Cutting time into stretches of the same rate changes nothing, up to rounding."""
    assert times("3@0s,3@1s,3@2s", 50) == pytest.approx(times("3", 50))


@given(st.floats(0.01, 1000), st.floats(0.01, 100), st.integers())
def test_times_scale_with_the_rate(rate: float, factor: float, seed: int) -> None:
    """The same chance at twice the rate is the same requests in half the time."""
    slow, fast = (islice(at_rate(each).times(chance(seed)), 20) for each in (rate, rate * factor))

    assert [time / factor for time in slow] == pytest.approx(list(fast))


STRETCHES = st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 50)), min_size=1, max_size=5)


@given(STRETCHES, st.sampled_from([0.3, 1.0, 3.0, math.inf]), st.integers())
def test_times_are_in_order(steps: list[tuple[float, float]], shape: float, seed: int) -> None:
    """Times never go back, and none is in a stretch of rate 0."""
    start, stretches = 0.0, []
    for length, rate in steps:
        stretches.append(Stretch(start, rate if rate > 0.01 else 0.0))
        start += length
    found = list(islice(Arrivals(tuple(stretches), shape).times(chance(seed)), 200))

    assert all(before <= later for before, later in pairwise([0.0, *found]))
    for stretch, after in pairwise([*stretches, Stretch(math.inf, 0.0)]):
        assert stretch.rate or not any(stretch.start < time < after.start for time in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no rate"),
        ("fast", "'fast' is no rate; write it like 2 (requests a second) or 2@0s,8@60s,2@120s"),
        ("-1", "'-1' is no rate"),
        ("nan", "'nan' is no rate"),
        ("0", "0 is no rate; it must be a number of requests a second from 1e-09"),
        ("1e300", "is no rate"),
        ("1_0", "'1_0' is no rate"),
        ("2,8", "'2,8' is no rate"),
        ("2@5s", "a schedule begins at 0s"),
        ("2@0s,8", "'8' has no time; write it like 2@0s,8@60s,2@120s"),
        ("2@0s,8@60s,2@60s", "60 s does not come after 60 s"),
        ("2@0s,8@60s,2@30s", "30 s does not come after 60 s"),
        ("2@0s,8@-5s", "is no time"),
        ("2@0s,8@soon", "'soon' is no time; write it like 60s, 2m or 90"),
        ("0@0s,0@9s", "its rates are all 0"),
        ("inf@0s,1@9s", "'inf' is no rate of a schedule"),
        ("x@0s", "'x' is no rate"),
    ],
)
def test_no_rates(text: str, said: str) -> None:
    """What is no rate is refused with what would be one."""
    with pytest.raises(UsageError) as caught:
        parse_rate(text)

    assert said in str(caught.value)


@pytest.mark.parametrize("shape", [0.0, -1.0, math.nan, 1e9])
def test_no_shapes(shape: float) -> None:
    """A shape of gaps is a number above 0, or infinite."""
    with pytest.raises(UsageError, match=r"is no burstiness; it must be from 0.001"):
        parse_rate("1", shape)


@pytest.mark.parametrize("text", ["2@0,8@1m", "2@0s,8@60", "2.0@ 0s , 8 @ 60 s"])
def test_schedules_are_spelt_freely(text: str) -> None:
    """Times have units, or are seconds."""
    assert parse_rate(text).stretches == (Stretch(0.0, 2.0), Stretch(60.0, 8.0))


def test_default_numbers_of_requests() -> None:
    """8 a client, at least 100, in closed loop; 1,000 in open loop."""
    assert [default_requests(each) for each in (1, 12, 13, 1000, None)] == [100, 100, 104, 8000, 1000]


def test_the_same_seed_is_the_same_load() -> None:
    """A load is the same every time that it is read, and another one of another seed."""
    one, again, other = (
        synthetic(LENGTHS, Sending(at_rate(2.0), requests=50, seed=seed), SharedPrefix(32, 3)) for seed in (1, 1, 2)
    )

    jobs = list(one.jobs())

    assert len(jobs) == 50
    assert jobs == list(one.jobs()) == list(again.jobs())
    assert jobs != list(other.jobs())


def test_lengths_are_the_same_at_every_rate() -> None:
    """How fast requests come does not change what they are, in an open or a closed loop."""
    sendings = [Sending(at_rate(2.0), None, 50), Sending(at_rate(9.0, 0.5), None, 50), Sending(None, 4, 50)]

    found = [[job[1:] for job in synthetic(LENGTHS, sending, SharedPrefix(32, 3)).jobs()] for sending in sendings]

    assert found[0] == found[1] == found[2]


def test_shared_prefixes_by_hand() -> None:
    """40 tokens are 2 whole blocks of 16; groups have ids of their own, and short prompts are beginnings of them."""
    load = synthetic(LENGTHS, Sending(at_rate(2.0), requests=400), SharedPrefix(40, 3))

    jobs = list(load.jobs())

    assert load.hash_tokens == BLOCK == 16
    long = {job.hashes for job in jobs if job.prompt >= 40}
    assert long == {(0, 1), (2, 3), (4, 5)}
    for job in jobs:
        blocks = min(job.prompt, 40) // 16
        assert len(job.hashes) == blocks
        assert any(job.hashes == each[:blocks] for each in long)


def test_groups_come_alike() -> None:
    """Each of 4 groups has a quarter of the requests."""
    load = synthetic(Apart(Fixed(64), Fixed(1), ""), Sending(concurrency=1, requests=4000), SharedPrefix(16, 4))

    found = [job.hashes[0] for job in load.jobs()]

    assert all(abs(found.count(group) - 1000) < 5 * math.sqrt(4000 * 3 / 16) for group in range(4))


ROWS = [Job(0.0, 10, 1, (1,)), Job(3.0, 20, 2, (1, 2)), Job(4.5, 30, 3)]


def test_a_trace_as_it_is() -> None:
    """Its own times, all of its requests, its hashes."""
    load = traced("x.csv", lambda: iter(ROWS), Sending(), 512, 1.0)

    assert list(load.jobs()) == list(load.jobs()) == ROWS
    assert (load.name, load.hash_tokens, load.concurrency) == ("x.csv", 512, None)


def test_a_trace_is_scaled_and_cut() -> None:
    """1.5 times as fast: 3 s become 2 s; the first two requests only."""
    load = traced("x.csv", lambda: iter(ROWS), Sending(requests=2), 512, 1.5)

    assert list(load.jobs()) == [Job(0.0, 10, 1, (1,)), Job(2.0, 20, 2, (1, 2))]
    assert load.name == "the first 2 requests of x.csv, 1.5 times as fast"


def test_a_trace_at_a_rate() -> None:
    """Its requests in their order, at other times."""
    load = traced("x.csv", lambda: iter(ROWS), Sending(at_rate(4.0, math.inf)), 512, 1.0)

    found = list(load.jobs())

    assert [job.arrival for job in found] == [0.25, 0.5, 0.75]
    assert [job[1:] for job in found] == [job[1:] for job in ROWS]


def test_a_trace_in_closed_loop() -> None:
    """Clients that take a trace's requests in turn."""
    load = traced("x.csv", lambda: iter(ROWS), Sending(concurrency=2), None, 1.0)

    assert load.concurrency == 2
    assert [job.prompt for job in load.jobs()] == [10, 20, 30]
    assert load.name == "x.csv, closed loop of 2"
