"""Numbers of `plan` by hand: rooflines, closed forms of steps in whole seconds, counts, what comes to one of many."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log, sqrt
from typing import TYPE_CHECKING, Final

import pytest

from roofcast.calculators.planning.around import front, up
from roofcast.calculators.planning.demand import MARGIN, Demand, Shape, Trial, shape_of
from roofcast.calculators.planning.field import UNPRICED
from roofcast.calculators.planning.floor import Device, Floor, Work, floor_of
from roofcast.calculators.planning.machines import Machine
from roofcast.calculators.planning.sends import Clients, Rated, Recorded, Scaled
from roofcast.calculators.planning.trial import Count, Tried, Verdict
from roofcast.calculators.planning.weigh import PART, Replica, Weighed
from roofcast.calculators.roofline import Roofs
from roofcast.calculators.serving.arrivals import parse_rate
from roofcast.calculators.serving.job import Job, Load
from roofcast.calculators.serving.lengths import Apart, Fixed
from roofcast.cli.planning import prepared
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.sharding import Shards
from tests.planning_cases import asked, candidate, goal_of, machine

if TYPE_CHECKING:
    from roofcast.calculators.planning.sends import Sends
    from roofcast.calculators.serving.service import Service

LENGTHS: Final = Apart(Fixed(100), Fixed(11), "100 in, 11 out")
SHAPE: Final = Shape(prompt=100.0, output=11.0, new=100.0, new_at=100, context=105.5, longest=111, prompt_at=100)


def rated(rate: str = "2", shape: float = 1.0, count: int | None = None) -> Rated:
    """Return requests of 100 tokens in and 11 out at a rate."""
    return Rated(LENGTHS, parse_rate(rate, shape), None, count)


def demand(
    sends: Sends | None = None, percentile: float = 90.0, ttft: float | None = None, tpot: float | None = None
) -> Demand:
    """Return a workload of such requests."""
    return Demand("chat", "chat", sends or rated(), goal_of(ttft, tpot, percentile), SHAPE)


# --- what is sent


@pytest.mark.parametrize(("text", "mean"), [("2", 2.0), ("2@0s,8@60s,2@120s", 4.5), ("1@0s,4@30s,0@40s", 70 / 48)])
def test_rate_of_a_schedule_is_its_mean(text: str, mean: float) -> None:
    """Until a fifth after its last step: (1 x 30 + 4 x 10 + 0 x 8) / 48 requests a second."""
    assert rated(text).rate == pytest.approx(mean)


@pytest.mark.parametrize(("shape", "replicas", "gamma"), [(1.0, 4, 4.0), (0.5, 8, 4.0), (inf, 3, inf)])
def test_gaps_of_one_of_many_are_sums_of_gaps(shape: float, replicas: int, gamma: float) -> None:
    """A sum of n gamma gaps has n times the shape, and comes at an n-th of the rate."""
    one = rated("12", shape).one_of(replicas)

    assert isinstance(one, Rated)
    assert one.arrivals.shape == gamma
    assert one.rate == 12 / replicas
    assert one.variance == pytest.approx(1 / gamma)


def test_schedules_keep_their_times_in_one_of_many() -> None:
    """Only rates are shared."""
    one = rated("2@0s,8@60s,2@120s").one_of(2)

    assert isinstance(one, Rated)
    assert [(step.start, step.rate) for step in one.arrivals.stretches] == [(0, 1), (60, 4), (120, 1)]


def test_requests_that_are_asked_for_are_shared_as_well() -> None:
    """A thousand over three replicas are 333 each."""
    one = rated(count=1000).one_of(3)

    assert isinstance(one, Rated)
    assert (rated(count=1000).requests(1.0, 11.0), one.requests(1.0, 11.0)) == (1000, 333)


@pytest.mark.parametrize(
    ("rate", "output", "count"), [("2", 11.0, 1000), ("100", 200.0, 6000), ("5000", 2000.0, 20000)]
)
def test_requests_are_as_many_as_come_in_ten_lives(rate: str, output: float, count: int) -> None:
    """100 a second x 10 x 200 tokens x 30 ms = 6,000; a thousand at least, and 20,000 at most."""
    assert rated(rate).requests(1.0, output) == count


def test_requests_come_until_a_schedule_ends_and_a_fifth_beyond() -> None:
    """2 x 1,000 + 8 x 1,000 + 2 x 400."""
    assert rated("2@0s,8@1000s,2@2000s").requests(1.0, 11.0) == 10_800


def test_clients_and_traces_have_no_replica_of_their_own() -> None:
    """Clients go where there is room, and a trace is what it is."""
    trace = Recorded("day.csv", (Job(0.0, 10, 2), Job(4.0, 10, 2), Job(10.0, 10, 2)), None, scale=2.0)

    assert Clients(LENGTHS, 8).one_of(2) is None
    assert trace.one_of(2) is None
    assert trace.rate == 2 / 5  # two gaps in ten seconds, twice as fast


def test_scaled_loads_are_so_many_times_the_load() -> None:
    """Rates and clients are, and clients are whole ones."""
    assert Scaled(rated("3"), 2.0).rate == 6.0
    assert Scaled(Clients(LENGTHS, 5), 0.5).clients == 2
    assert len(list(Scaled(Clients(LENGTHS, 5), 2.0).at(2.0, 0).jobs())) == 8 * 20


def test_shape_of_requests() -> None:
    """Tokens 2 to N attend to P + 1 ... P + N - 1 tokens: 105.5 in the mean of 100 in and 11 out."""
    found = shape_of(rated().at(1.0, 0, 10), 90)

    assert found == SHAPE
    assert found.steps == 10


def test_shape_leaves_out_what_a_cache_may_know() -> None:
    """Of 40 tokens two ids of 16 are known; the ninth decile of what is new is the longest prompt's."""
    jobs = [Job(0.0, 40, 1, (0, 1)), Job(1.0, 200, 3)]

    found = shape_of(Load("two", lambda: iter(jobs), None, 16), 90)

    assert (found.new, found.new_at, found.context) == ((8 + 200) / 2, 200, 201.5)


@pytest.mark.parametrize(
    ("percentile", "first"), [(99.0, Trial(1.03, 5)), (95.0, Trial(1.03, 5, 600)), (50.0, Trial(1.03, 5, 600))]
)
def test_trials_of_a_rate(percentile: float, first: Trial) -> None:
    """One of 3 % more load, and two of another chance; of common percentiles six tenths of the requests do for the first."""
    found = replace(demand(percentile=percentile), seed=5).trials

    assert found == (first, Trial(1.0, 6), Trial(1.0, 7))
    assert first.factor == MARGIN


def test_spread_counts_standard_deviations() -> None:
    """1.2816 of them at the ninth decile; half as many of a quarter of the variance; none below the median."""
    assert demand().spread == pytest.approx(1.2816, rel=1e-4)
    assert demand(rated(shape=4.0)).spread == pytest.approx(1.2816 / 2, rel=1e-4)
    assert demand(percentile=40.0).spread == 0.0


# --- rooflines


WORK: Final = Work(weights=10e9, active=8e9, flops=16e9, formats=frozenset(("bf16",)))


def device(bandwidth: float = 1e12, peak: float = 1e14) -> Device:
    """Return an H100 of round speeds: 72 GB are left beside the weights if it offers 80 GB."""
    return Device(find_accelerator("h100").accelerator, Roofs("h100-sxm", bandwidth, {"bf16": peak}, {}), WORK, 1e5)


def test_floor_of_one_gpu() -> None:
    """8 GB at 1 TB/s are 8 ms a step; a prompt of 100 tokens 1.6 TFLOP at 100 TFLOP/s, 16 ms."""
    found = floor_of(device(), machine("h100"), SHAPE, goal_of(None, None))

    assert (found.ttft, found.tpot) == pytest.approx((0.016, 0.008))
    assert not found.limit


def test_floor_of_rate_is_memory_over_all_that_a_request_reads() -> None:
    """With TPOT of 9 ms 1 ms is left for the cache: 94.8 sequences of 105.5 tokens x 100 kB; matrices take longer.

    94.8 x (10 + 1) tokens x 16 GFLOP / 100 TFLOP/s = 166.8 ms, and 1 ms for the cache: 94.8 / 10 steps / 167.8 ms.
    """
    found = floor_of(device(), machine("h100"), SHAPE, goal_of(None, 0.009))

    held = 1e-3 * 1e12 / (105.5 * 1e5)
    assert found.rate == pytest.approx(held / (10 * (held * 11 * 16e9 / 1e14 + 1e-3)))


def test_floor_shares_work_among_gpus() -> None:
    """Two GPUs that share layers read weights in half the time; two stages do not."""
    halves = floor_of(device(), machine("h100", 2), SHAPE, goal_of(None, None))
    stages = floor_of(device(), Machine("h100", Shards(pp=2), "none"), SHAPE, goal_of(None, None))

    assert (halves.ttft, halves.tpot) == pytest.approx((0.008, 0.004))
    assert (stages.ttft, stages.tpot) == pytest.approx((0.008, 0.008))


@pytest.mark.parametrize(
    ("ttft", "tpot", "percentile", "limit"),
    [
        (0.0159, None, 90, "ttft"),
        (0.0161, None, 90, ""),
        (None, 0.0079, 50, "tpot"),
        (None, 0.0079, 49, ""),
        (None, 0.0081, 90, ""),
    ],
)
def test_floor_rules_out_what_no_number_mends(
    ttft: float | None, tpot: float | None, percentile: float, limit: str
) -> None:
    """A time that reading alone exceeds; TPOT only where half of the requests must keep it."""
    found = floor_of(device(), machine("h100"), SHAPE, goal_of(ttft, tpot, percentile))

    assert found.limit == limit
    assert bool(found.rate) == (not limit)


def test_floor_rules_out_what_does_not_fit_or_has_no_peak() -> None:
    """100 GB on one H100; and a format that it has no peak for."""
    heavy, strange = replace(WORK, weights=100e9), replace(WORK, formats=frozenset(("int3",)))

    assert floor_of(replace(device(), work=heavy), machine("h100"), SHAPE, goal_of(None, None)).limit == "memory"
    assert floor_of(replace(device(), work=heavy), machine("h100", 2), SHAPE, goal_of(None, None)).limit == ""
    assert floor_of(replace(device(), work=strange), machine("h100"), SHAPE, goal_of(None, None)).limit == "refused"


def test_work_of_a_model_leaves_embedding_and_head_out() -> None:
    """Llama 3.1 8B: 8,030,261,248 parameters, of which 2 x 128,256 x 4,096 are tables; 2 FLOP and 2 bytes of each."""
    tables = 2 * 128_256 * 4096
    ready = prepared(asked(gpu="h100", price="1"))

    found = ready.device(machine("h100-sxm")).work

    assert found.weights == 2 * 8_030_261_248
    assert found.active == 2 * (8_030_261_248 - tables)
    assert found.flops == 2 * (8_030_261_248 - tables)


# --- the closed form


class Linear:
    """Times of steps by hand: 10 ms, 1 ms a sequence, and 0.1 ms a token of a prompt."""

    def decode(self, sequences: int, context: float) -> float:  # noqa: ARG002 - as of others
        """Return 10 ms and 1 ms a sequence. [s]"""
        return 0.010 + 0.001 * sequences

    def mixed(self, sequences: int, held: float, chunks: list[tuple[int, int, bool]], hidden: float = 0.0) -> float:  # noqa: ARG002
        """Return the same and 0.1 ms a token of prompts. [s]"""
        return self.decode(sequences, held) + 0.0001 * sum(new for new, _, _ in chunks)


@pytest.fixture
def replica() -> Replica:
    """Return a replica of which everything can be worked by hand, for requests of 100 in and 11 out."""
    from roofcast.calculators.planning.tasks import Pick
    from roofcast.cli.planning_bench import bench_of

    ready = prepared(asked(gpu="h100", price="1"))
    service: Service = bench_of(ready.setting).service(machine("h100-sxm"), Pick(0))
    return Replica(service, demand(), Linear(), reading=50.0, alone=0.020, full=0.010)  # type: ignore[arg-type]


def test_a_step_reads_prompts_as_fast_as_they_come(replica: Replica) -> None:
    """Each of 4 sequences brings 100 tokens in 10 steps: 40 a step of 10 ms a prompt: 4 ms beside 14 ms."""
    assert replica.step(4) == pytest.approx(0.014 + 0.004)
    assert replica.rate(4, replica.step) == pytest.approx(4 / (10 * 0.018))
    assert replica.decoding(4) == pytest.approx(0.014)


def test_tpot_at_a_percentile_counts_part_of_the_spread(replica: Replica) -> None:
    """0.6 x 1.2816 standard deviations of 4 others, each 10 ms over 10 steps, drawn out by 1 / (1 - 0.4 / 1.8)."""
    used = 4 * 0.010 / (10 * 0.018)

    assert replica.seen(4) == pytest.approx(0.018 + PART * 1.2816 * sqrt(4) * 0.001 / (1 - used), rel=1e-4)


def test_first_token_waits_for_other_prompts(replica: Replica) -> None:
    """At 25 of 50 prompts a second: rho = 0.5, S = 20 ms: 20 ms x 0.5 / (2 x 0.5) x ln(0.5 / 0.1) beside reading."""
    alone = replica.service.server.latency + 0.020

    assert replica.first(4.0) == alone  # rho = 0.08 is less than the tenth that may wait
    assert replica.first(25.0) == pytest.approx(alone + 0.010 * log(5))
    assert replica.first(50.0) == inf


def test_first_token_waits_less_where_requests_come_by_turns(replica: Replica) -> None:
    """A quarter of the variance is a quarter of the wait; evenly spaced ones never wait."""
    alone = replica.service.server.latency + 0.020
    quarter, none = (replace(replica, demand=demand(rated(shape=shape))) for shape in (4.0, inf))

    assert quarter.first(25.0) == pytest.approx(alone + 0.010 * log(5) / 4)
    assert none.first(25.0) == alone


# --- counts and costs


def test_below_is_the_most_units_that_cost_less() -> None:
    """Of 2 GPUs at $0.50: 3 units cost $3.00, which is not less than $3.00."""
    one = candidate(0.5, 2)

    assert [one.below(rank) for rank in (0.5, 1.0, 1.01, 3.0, 3.01)] == [0, 0, 1, 2, 3]


def test_what_has_no_price_comes_last_by_its_gpus() -> None:
    """Two units of two GPUs come after any price, before three units."""
    one = candidate(None, 2)

    assert one.rank(Count(2)) == UNPRICED + 4
    assert one.below(one.rank(Count(3))) == 2
    assert candidate(1e4, 8).rank(Count(8)) < one.rank(Count(1))


def test_least_is_load_over_what_one_does() -> None:
    """By the roofline 10 / 4 are 3 units; by a closed form of 2, with 6 % of slack, 10 / 2.12 are 5."""
    ten = demand(rated("10"))
    one = candidate(floor=Floor(4.0, 0.0, 0.0))

    assert one.least(ten) == Count(3)
    one.weighed = Weighed(rate=2.0)
    assert one.least(ten) == Count(5)
    assert one.likely(ten) == 7  # 10 / (0.82 x 2) = 6.1


def test_least_of_clients_and_of_pools() -> None:
    """30 clients of 10 each, with slack, are 3 units; pools have readers and writers of their own."""
    users, pools = candidate(), candidate(pools=True)

    users.weighed, pools.weighed = Weighed(clients=10.0), Weighed(readers=4.0, writers=1.0)
    assert users.least(demand(Clients(LENGTHS, 30))) == Count(3)
    assert pools.least(demand(rated("6"))) == Count(0, 2, 6)
    assert candidate(pools=True).least(demand(rated("6"))) == Count(0, 1, 5)


def test_counts_add_up() -> None:
    """Units, or readers and writers."""
    assert (Count(3).total, Count(0, 2, 5).total) == (3, 7)


def test_up_rounds_to_two_digits() -> None:
    """Never down, and not at all where there are two digits."""
    assert [up(value) for value in (0.101, 0.12, 9.91, 123.0, 0.0)] == [0.11, 0.12, 10.0, 130.0, 0.0]


def test_front_is_what_none_beats() -> None:
    """Equal ones do not beat one another."""
    rows = [(1.0, 3.0, 3.0), (1.0, 3.0, 3.0), (2.0, 2.0, 3.0), (2.0, 3.0, 3.0), (3.0, 2.0, 3.0), (9.0, 9.0, 1.0)]

    assert front(rows) == [True, True, True, False, False, True]


def attempt(limit: str = "", factor: float = 1.0, share: float | None = 0.5, few: int | None = None) -> Tried:
    """Return a trial that kept what is promised, or hit a limit."""
    return Tried(
        Trial(factor, 0, few), not limit, limit, limit, 1.0, 1.0, 1.0, 1.0, share, 1.0, 1.0, 1.0, (1.0,)
    )  # fmt: skip


def of_trials(*tried: Tried) -> Verdict:
    """Return a verdict of trials."""
    return Verdict(Count(1), None, tried)


def test_a_verdict_shows_its_worst_trial_of_the_load() -> None:
    """A failing one before one that keeps; of several that with the least share; of few requests only if there are no others."""
    more, good, bad = attempt("", 1.03, 0.1), attempt("", share=0.95), attempt("tpot", share=0.97)

    assert of_trials(more, good, bad).shown is bad
    assert of_trials(more, attempt(few=9), good).shown is good
    assert of_trials(more).shown is more
    assert of_trials(more, good, bad).failing is bad
    assert of_trials(attempt("ttft", 1.03), good).failing is not None
    assert of_trials(more, good).failing is None
