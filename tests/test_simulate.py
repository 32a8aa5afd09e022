"""The simulator against queueing theory, against one step at a time with real step times, and what it answers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.expected.expectation import expectation_for
from roofcast.calculators.serving.job import Job, Load
from roofcast.calculators.serving.policies import POLICIES
from roofcast.calculators.serving.replica import Limits
from roofcast.calculators.serving.result import Goal
from roofcast.calculators.serving.service import Options, Service, service_of
from roofcast.calculators.serving.simulate import run, simulate
from roofcast.calculators.serving.steps import StepTimes
from tests.engine_records import asked
from tests.serving_cases import Seconds, Served, Small, drawn, looped, poisson, sent, serve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roofcast.calculators.serving.result import SimulateResult
    from roofcast.calculators.serving.simulate import Ran

#: one request at a time, of one token each: 8 tokens of a prompt take a second
SINGLE: Final = Small(limits=Limits(1, 64))


def mean(values: Iterable[float]) -> float:
    """Return the mean."""
    found = list(values)
    return sum(found) / len(found)


# --- queueing theory


@pytest.mark.parametrize("rate", [0.3, 0.6, 0.8])
def test_one_server_waits_as_m_d_1(rate: float) -> None:
    """Poisson arrivals, service of D = 1 s, load rho: the mean wait is rho D / (2 (1 - rho)) (Pollaczek-Khinchine).

    Means of batches of 1,000 requests give the standard error; four of them are allowed.
    """
    tally = serve(SINGLE, poisson(rate, 30_000, (8, 1), seed=7)).tally
    waits = list(tally.queue)
    batches = [mean(waits[at : at + 1000]) for at in range(0, len(waits), 1000)]
    found = mean(waits)
    error = sqrt(sum((one - found) ** 2 for one in batches) / (len(batches) - 1) / len(batches))

    assert found == pytest.approx(rate / (2 * (1 - rate)), abs=4 * error)
    assert error < 0.1 * found


def test_arrivals_that_are_no_closer_than_service_do_not_wait() -> None:
    """D/D/1: at rho = 1 and below."""
    for gap in (1.0, 1.25):
        tally = serve(SINGLE, sent(*[(gap * at, 8, 1) for at in range(100)])).tally
        assert max(tally.queue) == 0.0
        assert set(tally.ttft) == {1.0}


def test_arrivals_that_are_closer_wait_ever_longer() -> None:
    """D/D/1 at rho = 1.25: the n-th waits n (D - gap)."""
    tally = serve(SINGLE, sent(*[(0.75 * at, 8, 1) for at in range(100)])).tally

    assert list(tally.queue) == [0.25 * at for at in range(100)]


@pytest.mark.parametrize(("policy", "cycle"), [("prefill-first", 4 + 9), ("decode-first", 4 + 9), ("static", 4 + 9)])
@pytest.mark.parametrize("rounds", [1, 5])
def test_a_closed_loop_of_alike_goes_round(policy: str, cycle: float, rounds: int) -> None:
    """Four clients whose requests begin and end together: reading 4 x 8 tokens and 9 steps; throughput N / cycle."""
    small = Small(policy=policy, limits=Limits(4, 64))
    served = serve(small, looped(4, *[(8, 10)] * 4 * rounds))

    assert served.tally.last == rounds * cycle
    assert served.tally.done / served.tally.last == pytest.approx(4 / cycle)


LITTLE: Final = {
    "chunked": (Limits(8, 64), 0.25),
    "prefill-first": (Limits(8, 64), 0.25),
    "continuous": (Limits(8, 64), 0.25),
    "decode-first": (Limits(8, 64), 0.15),
    "static": (Limits(8, 64), 0.1),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_requests_in_the_service_are_rate_times_time(policy: str) -> None:
    """Little's law: those that run and wait in the time series, over the makespan, are rate x mean time in the service."""
    limits, rate = LITTLE[policy]
    served = serve(Small(policy=policy, limits=limits), poisson(rate, 4000, (8, 6), seed=3), Seconds(each=2.0**-8))
    tally, moments = served.tally, served.series.moments(served.tally.last)
    inside = sum((one.running + one.waiting) * width for one, width in lengths(served, moments))

    assert inside == pytest.approx(sum(tally.e2e), rel=0.01)


def lengths(served: Served, moments: Any) -> Iterator[tuple[Any, float]]:
    """Yield stretches of a time series with their lengths."""
    width = served.series.width
    for one in moments:
        yield one, min(width, served.tally.last - one.seconds)


# --- a real service


@cache
def real(**options: Any) -> Service:
    """Return Llama-3.1-8B on an H100 under vLLM."""
    served = asked("llama-3.1-8b")
    memory = engine_memory("vllm", served)
    served = replace(served, ready=replace(served.ready, expectation=expectation_for(served.ready, None)))
    return service_of(served, memory, Options(**options))[0]


def little(service: Service, tokens: int, sequences: int = 32) -> Service:
    """Return the service with less memory and fewer places."""
    block = service.pool.block
    pool = replace(service.pool, tokens=tokens, blocks=tokens // block, longest=8192)
    return replace(service, pool=pool, scheduling=replace(service.scheduling, sequences=sequences))


def mixed_load(count: int, rate: float, seed: int, concurrency: int | None = None) -> Load:
    """Return requests of 1 to 3,000 and 1 to 300 tokens."""
    random, now, jobs = drawn(seed), 0.0, []
    for _ in range(count):
        now += random.expovariate(rate)
        jobs.append(Job(now, random.randint(1, 3000), random.randint(1, 300)))
    return Load("mixed", lambda: iter(jobs), concurrency)


def one_at_a_time(self: StepTimes, *asked: Any) -> tuple[int, float]:
    """Decode one step, however many are asked for."""
    sequences, held, _, limit, *gain = asked
    return SKIPPING(self, sequences, held, 1, limit, *gain)


SKIPPING: Final = StepTimes.run


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("memory", ["paged", "oracle"])
@pytest.mark.parametrize("concurrency", [None, 20])
def test_skipping_is_exact_with_real_steps(
    policy: str, memory: str, concurrency: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request's times are those of a service that decodes step by step, with memory that runs out too."""
    service = little(real(policy=policy, kv_memory=memory), 12_000)
    load = mixed_load(120, 5.0, 1, concurrency)
    skipped = run(service, load)
    monkeypatch.setattr(StepTimes, "run", one_at_a_time)
    stepped = run(service, load)

    assert list(skipped.tally.e2e) == pytest.approx(list(stepped.tally.e2e), rel=1e-9)
    assert list(skipped.tally.ttft) == pytest.approx(list(stepped.tally.ttft), rel=1e-9)
    assert skipped.tally.preemptions == stepped.tally.preemptions
    assert skipped.every[0].steps == stepped.every[0].steps


@pytest.mark.parametrize("options", [{}, {"readers": 2, "writers": 1}, {"policy": "static"}, {"preemption": "swap"}])
def test_the_same_load_gives_the_same_answer(options: dict[str, Any]) -> None:
    """Bit for bit."""
    service, load = little(real(**options), 40_000), mixed_load(150, 8.0, 4)

    assert simulate(service, load) == simulate(service, load)


def test_little_memory_sets_requests_back() -> None:
    """The case above is no case of plenty; and all of them are answered all the same."""
    result, _ = simulate(little(real(), 12_000), mixed_load(120, 5.0, 1))

    assert result.preemptions > 10
    assert (result.requests, result.completed, result.rejected) == (120, 120, 0)
    assert result.recomputed_tokens > 0
    assert result.cache is not None
    assert result.cache.states is not None
    assert 0.9 < result.cache.peak <= 1.0
    assert result.cache.reserved is not None
    assert 0 < result.cache.states <= result.cache.reserved <= 1


# --- more of something


def saturated(service: Service, concurrency: int = 64) -> SimulateResult:
    """Return what a closed loop comes to that always has more to do."""
    return simulate(service, mixed_load(300, 1.0, 9, concurrency))[0]


def test_more_memory_is_never_slower() -> None:
    """Of a saturated closed loop, by more than 1 %: fewer are set back, and more run at once."""
    sizes = (8192, 20_000, 50_000, 200_000)
    rates = [saturated(little(real(), tokens, 64)).output_tokens_per_second or 0.0 for tokens in sizes]

    assert all(more >= less * 0.99 for less, more in pairwise(rates))
    assert rates[-1] > 1.2 * rates[0]


def test_more_places_are_never_slower_with_memory_for_all() -> None:
    """A step's time grows by less than its sequences do."""
    rates = [saturated(little(real(), 300_000, places)).output_tokens_per_second or 0.0 for places in (1, 4, 16, 64)]

    assert rates == sorted(rates)
    assert rates[-1] > 8 * rates[0]


def test_a_higher_rate_waits_longer() -> None:
    """The same requests, closer to one another: the mean of TTFT and of TPOT."""
    found = []
    for rate in (1.0, 4.0, 16.0, 64.0):
        result, _ = simulate(real(), mixed_load(300, rate, 5))
        assert result.ttft_seconds is not None
        assert result.tpot_seconds is not None
        found.append((result.ttft_seconds.mean, result.tpot_seconds.mean))

    for less, more in pairwise(found):
        assert more[0] >= less[0] * 0.99
        assert more[1] >= less[1] * 0.99


def test_bounds_are_no_slower_than_what_is_expected() -> None:
    """The same service at its roofs."""
    service = real()
    bound = replace(service, ready=replace(service.ready, expectation=None), server=type(service.server)())
    load = mixed_load(100, 4.0, 6)
    one, two = simulate(service, load)[0], simulate(bound, load)[0]

    assert one.makespan_seconds is not None
    assert two.makespan_seconds is not None
    assert two.makespan_seconds <= one.makespan_seconds
    assert two.step_spread is None
    assert one.step_spread is not None


# --- what is answered


def test_what_is_asked_of_requests_is_counted() -> None:
    """Rates over the makespan, and every pool's devices."""
    load = mixed_load(200, 6.0, 8)
    result, _ = simulate(real(readers=2, writers=3), load)
    jobs = list(load.jobs())

    assert result.makespan_seconds is not None
    assert result.output_tokens_per_second == pytest.approx(sum(job.output for job in jobs) / result.makespan_seconds)
    assert result.prompt_tokens_per_second == pytest.approx(sum(job.prompt for job in jobs) / result.makespan_seconds)
    assert result.requests_per_second == pytest.approx(200 / result.makespan_seconds)
    assert [(pool.name, pool.replicas, pool.gpus) for pool in result.pools] == [("prefill", 2, 2), ("decode", 3, 3)]
    assert all(0 < pool.busy < 1 for pool in result.pools)


def test_a_promise_is_kept_by_a_share() -> None:
    """Of TTFT the promise that 90 of 100 keep, and a tighter one that they do not."""
    load = mixed_load(200, 12.0, 10)
    plain = simulate(real(), load)[0]
    assert plain.ttft_seconds is not None
    assert plain.kept is None
    assert plain.goodput_requests_per_second == plain.requests_per_second

    loose = simulate(real(), load, Goal(ttft_seconds=plain.ttft_seconds.p90, percentile=90))[0]
    tight = simulate(real(), load, Goal(ttft_seconds=plain.ttft_seconds.p90, percentile=95))[0]
    assert loose.kept is not None
    assert tight.kept is not None
    assert (loose.kept.met, tight.kept.met) == (True, False)
    assert loose.kept.share == tight.kept.share == 0.9
    assert loose.requests_per_second is not None
    assert loose.goodput_requests_per_second == pytest.approx(0.9 * loose.requests_per_second)


def test_a_promise_of_gaps_is_of_all_gaps() -> None:
    """And of the percentile that is asked."""
    load = mixed_load(200, 12.0, 10)
    gaps = simulate(real(), load)[0].itl_seconds
    assert gaps is not None

    kept = [simulate(real(), load, Goal(itl_seconds=gaps.p99 * share))[0].kept for share in (1.001, 0.9)]
    assert [one is not None and one.met for one in kept] == [True, False]


def test_a_queue_that_grows_is_not_stable() -> None:
    """At twice the rate that the service can answer."""
    service = little(real(), 300_000, 4)
    capacity = saturated(service).requests_per_second
    assert capacity is not None

    stable = [simulate(service, mixed_load(600, capacity * share, 11))[0].stable for share in (0.4, 2.0)]
    assert stable == [True, False]


def test_steps_that_keep_a_promise_do_not_make_a_queue_that_grows_kept() -> None:
    """Steps are within any limit, whoever waits; a rate that is not answered is still none that keeps the promise."""
    service = little(real(), 300_000, 4)
    capacity = saturated(service).requests_per_second
    assert capacity is not None

    few, many = (
        simulate(service, mixed_load(600, capacity * share, 11), Goal(tpot_seconds=10.0))[0] for share in (0.4, 2.0)
    )
    assert few.kept is not None
    assert many.kept is not None
    assert (few.kept.met, few.keeps) == (True, True)
    assert (many.kept.met, many.keeps) == (True, False)
    assert not simulate(service, mixed_load(600, capacity * 0.4, 11))[0].keeps


def test_what_does_not_fit_has_no_times() -> None:
    """But a reason."""
    service = replace(real(), reason="nothing is left")
    result, _ = simulate(service, mixed_load(3, 1.0, 1))

    assert (result.fits, result.reason, result.requests) == (False, "nothing is left", 0)
    assert result.ttft_seconds is None
    assert result.series == []


def test_samples_and_drafts_run_through() -> None:
    """Four samples decode as four; drafts that are accepted make fewer steps."""
    load = mixed_load(40, 4.0, 12)
    plain, drafted, sampled = (
        run(real(**options), load) for options in ({}, {"drafted": 3, "acceptance": 0.8}, {"samples": 4})
    )

    def steps(ran: Ran) -> int:
        return sum(one.steps for one in ran.every)

    assert mean(drafted.tally.e2e) < mean(plain.tally.e2e) < mean(sampled.tally.e2e)
    assert steps(drafted) < 0.7 * steps(plain)
    assert all(one.memory.taken == pytest.approx(0) for ran in (plain, drafted, sampled) for one in ran.every)


def test_two_replicas_of_a_deployment_share_the_load() -> None:
    """Each has every other request, and the answer counts both."""
    served = asked("llama-3.1-8b", cut={"dp": 2})
    service = service_of(served, engine_memory("vllm", served))[0]
    result, _ = simulate(service, mixed_load(100, 4.0, 13))

    assert [(pool.replicas, pool.gpus) for pool in result.pools] == [(2, 2)]
    assert result.completed == 100


def test_time_has_an_end() -> None:
    """All times are finite, and in order."""
    result, _ = simulate(real(), mixed_load(100, 4.0, 14))
    assert result.e2e_seconds is not None
    assert result.queue_seconds is not None
    assert result.ttft_seconds is not None

    assert 0 <= result.queue_seconds.mean < result.ttft_seconds.mean < result.e2e_seconds.mean < inf
