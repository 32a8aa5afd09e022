"""Replicas of a service: who gets a request, when, and what goes from one pool to another."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from roofcast.calculators.serving.memory import Paging
from roofcast.calculators.serving.replica import Limits
from tests.serving_cases import Seconds, Served, Small, looped, sent, serve

ROOMY: Final = Limits(16, 1024)
#: one that decodes at a second a step, and reads eight tokens in one
PLAIN: Final = Small(limits=ROOMY)


def counts(served: Served) -> list[int]:
    """Return the steps of each replica."""
    return [one.steps for one in served.every]


def latencies(served: Served) -> list[float]:
    """Return each request's time from its coming to its last token."""
    return [one.end - one.arrival for _, one in sorted(served.tally.each.items())]


# --- several that do the same


def test_replicas_take_turns() -> None:
    """Of four at once two each: 16 tokens are read together, 2 s."""
    served = serve(replace(PLAIN, replicas=2), sent(*[(0.0, 8, 1)] * 4))

    assert served.tally.ends == [2.0] * 4
    assert counts(served) == [1, 1]


def test_the_least_loaded_gets_it() -> None:
    """The first has a long answer; in turn the third waits for a step of it, else the second one has it."""
    load = sent((0.0, 8, 9), (0.0, 8, 1), (1.5, 8, 1))
    turns = serve(replace(PLAIN, replicas=2), load)
    least = serve(replace(PLAIN, replicas=2, routing="least-loaded"), load)

    # at 2 s the first's step ends; 8 tokens beside a decode step take 2 s
    assert turns.tally.ends[2] == 4.0
    assert least.tally.ends[2] == 2.5


def test_of_equals_the_first_gets_it() -> None:
    """Three requests for three idle replicas."""
    served = serve(replace(PLAIN, replicas=3, routing="least-loaded"), sent(*[(0.0, 8, 1)] * 3))

    assert counts(served) == [1, 1, 1]


def test_a_full_one_counts_what_it_has() -> None:
    """One place each: two run, the third waits at the first, the fourth, later, at the second, which is not done either."""
    small = replace(PLAIN, replicas=2, routing="least-loaded", limits=Limits(1, 1024))
    served = serve(small, sent((0.0, 8, 5), (0.0, 8, 9), (1.5, 8, 1), (2.5, 8, 1)))

    assert served.tally.ends == [5.0, 9.0, 6.0, 10.0]


def test_two_are_not_twice_as_fast_for_one() -> None:
    """A request runs on one of them."""
    alone, both = (serve(replace(PLAIN, replicas=n), sent((0.0, 8, 5))).tally.ends for n in (1, 2))

    assert alone == both == [5.0]


def test_a_closed_loop_of_two() -> None:
    """Four clients, twelve requests of 8 tokens and 3: each replica serves two at a time, 2 + 2 s."""
    served = serve(replace(PLAIN, replicas=2), looped(4, *[(8, 3)] * 12))

    assert sorted(served.tally.ends) == [4.0] * 4 + [8.0] * 4 + [12.0] * 4


def test_latency_is_before_the_queue() -> None:
    """A quarter second until the scheduler sees it; another one until a client of a closed loop may send the next."""
    late = replace(PLAIN, latency=0.25)

    assert latencies(serve(late, sent((1.0, 8, 2)))) == [2.25]
    assert [one.arrival for one in serve(late, looped(1, (8, 2), (8, 2))).tally.each.values()] == [0.0, 2.25]


# --- two pools


def per_token(tokens: int) -> float:
    """Four tokens a second."""
    return tokens / 4


SPLIT: Final = replace(PLAIN, writers=1, transfer=per_token)


def test_a_prompt_s_cache_goes_to_the_other_pool() -> None:
    """Read in 1 s, 2 s on the link, two steps; a second one is read meanwhile, 2 s, and goes over the link after it, 4 s."""
    served = serve(SPLIT, sent((0.0, 8, 3), (0.5, 16, 2)))

    assert served.tally.firsts == [1.0, 3.0]
    assert served.tally.ends == [5.0, 8.0]
    assert [one.peak for one in served.every] == [1, 1]


def test_decode_does_not_wait_for_prompts() -> None:
    """A prompt of 800 tokens is read elsewhere: gaps are a second, and half a one more for who comes during a step."""
    load = sent((0.0, 8, 120), (4.5, 800, 2))
    split, both = (serve(replace(PLAIN, writers=writers), load).tally for writers in (1, 0))

    assert split.gaps.most == 1.5
    assert both.gaps.most == 101.0


def test_a_single_token_never_leaves_the_first_pool() -> None:
    """Nothing goes over the link for it."""
    served = serve(SPLIT, sent((0.0, 8, 1)))

    assert served.tally.ends == [1.0]
    assert counts(served) == [1, 0]


def test_what_runs_out_of_memory_over_there_is_read_there() -> None:
    """Two of 4 and 6 tokens in 12: the second is set back, and computed again by who decodes."""
    served = serve(replace(SPLIT, tokens=12, block=1, transfer=None), sent((0.0, 4, 6), (0.0, 4, 6)))

    assert served.tally.ends == [6.0, 8.875]
    assert served.writers[0].preempted == 1
    assert served.readers[0].preempted == 0


@pytest.mark.parametrize("policy", ["chunked", "static", "decode-first"])
def test_many_caches_may_come_at_once(policy: str) -> None:
    """Three thousand that are read join together, a step later."""
    small = replace(SPLIT, policy=policy, transfer=None, limits=Limits(4000, 1 << 20))
    served = serve(small, sent(*[(0.0, 8, 2)] * 3000), Seconds(token=2.0**-10))

    assert served.writers[0].peak == 3000
    assert served.tally.done == 3000


def test_a_static_pool_pads_what_comes_to_it() -> None:
    """Two that join together are answered together, after the longer one's five steps."""
    served = serve(replace(SPLIT, policy="static", transfer=None), sent((0.0, 8, 2), (0.0, 8, 6)))

    assert served.tally.ends == [7.0, 7.0]


# --- what is refused


def test_what_is_too_long_is_cut_or_refused() -> None:
    """Of 20 tokens at most: 12 and 8; 12 and 9 are cut by one; a prompt of 20 leaves no room for a token."""
    served = serve(replace(PLAIN, longest=20), sent((0.0, 12, 8), (0.0, 12, 9), (0.0, 20, 1), (0.0, 19, 1)))
    tally = served.tally

    assert (tally.came, tally.done, tally.cut, tally.rejected) == (4, 3, 1, 1)
    assert [one.output for one in tally.each.values()] == [1, 8, 8]


def test_what_no_memory_holds_is_refused() -> None:
    """Of 16 tokens 12 and 5 fit, whose last one is not kept; 12 and 6 do not, however few run."""
    tally = serve(replace(PLAIN, tokens=16, block=4), sent((0.0, 12, 5), (0.0, 12, 6), (0.0, 16, 1))).tally

    assert (tally.done, tally.rejected) == (2, 1)


def test_clients_go_on_when_one_is_refused() -> None:
    """Those that are refused are followed at once by the next request."""
    tally = serve(replace(PLAIN, longest=20), looped(1, (8, 2), (30, 2), (30, 2), (8, 2))).tally

    assert (tally.done, tally.rejected) == (2, 2)
    assert sorted(tally.ends) == [2.0, 4.0]


def test_nothing_comes() -> None:
    """No request is an answer too."""
    for load in (sent(), looped(3)):
        tally = serve(PLAIN, load).tally
        assert (tally.came, tally.done, tally.last) == (0, 0, 0.0)


def test_peak_of_those_that_wait_is_over_all() -> None:
    """Six at once for two replicas of one place each."""
    served = serve(replace(PLAIN, replicas=2, limits=Limits(1, 64)), sent(*[(0.0, 8, 1)] * 6))

    assert served.cluster.peak_waiting == 6


def test_samples_go_to_the_other_pool_together() -> None:
    """Three sequences decode there; the prompt is read once."""
    times = Seconds()
    small = replace(SPLIT, limits=replace(ROOMY, rows=3), paging=Paging(rows=3), transfer=None)
    serve(small, sent((0.0, 8, 4)), times)

    assert [(step.rows, step.pieces) for step in times.taken] == [(0, (8,)), (3, ())]
