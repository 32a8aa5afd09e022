"""A replica by itself: what it counts while it works, whom it lets in, and how it makes room."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.live import Live, Tally
from roofcast.calculators.serving.policies import POLICIES
from roofcast.calculators.serving.prefix import BlockCache
from roofcast.calculators.serving.replica import Limits, Replica
from roofcast.calculators.serving.series import Series
from tests.serving_cases import Seconds, Small, sent, serve

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOMY = Limits(16, 1024)


def alone(small: Small, times: Seconds | None = None) -> Replica:
    """Return a replica that no cluster drives."""
    memory = small.made_memory()
    policy = POLICIES[small.policy]()
    return Replica(times or Seconds(), memory, policy, small.limits, Tally(), Series(memory.capacity))


def fed(replica: Replica, jobs: Iterable[tuple[int, int]], now: float = 0.0) -> list[Live]:
    """Let requests come; as a replica has them."""
    made = [Live(Job(now, prompt, output), output, order) for order, (prompt, output) in enumerate(jobs)]
    for live in made:
        replica.receive(live, now)
    return made


def test_a_replica_without_work_is_idle() -> None:
    """And begins when somebody comes."""
    replica = alone(Small(limits=ROOMY))
    seen = [replica.idle]

    fed(replica, [(8, 2)], now=5.0)
    seen.append(replica.idle)
    assert seen == [True, False]
    assert replica.clock == 5.0
    replica.advance(inf)
    assert (replica.clock, replica.count, replica.held) == (6.0, 1, 8.0)
    replica.advance(inf)
    assert (replica.clock, replica.idle, replica.held) == (7.0, True, 0.0)


def test_decode_goes_on_to_the_next_end_or_the_horizon() -> None:
    """Of 10 tokens nine are decoded; a horizon of 3.5 s ends the fourth step, where a place is free."""
    for sequences, clock in ((2, 5.0), (1, 10.0)):
        replica = alone(Small(limits=Limits(sequences, 64)))
        fed(replica, [(8, 10)])
        replica.advance(inf)
        replica.advance(4.5)
        assert replica.clock == clock


def test_who_may_be_looked_at_does_not_run_ahead() -> None:
    """Where others' requests are sent to whom has the fewest, a full replica stops at the horizon too."""
    replica = alone(Small(limits=Limits(1, 64, alone=False)))
    fed(replica, [(8, 10)])
    replica.advance(inf)
    replica.advance(4.5)

    assert replica.clock == 5.0


def test_the_soonest_end_is_a_bound() -> None:
    """Now where prompts wait, else the end of the shortest answer were all to decode alone."""
    replica = alone(Small(limits=ROOMY))
    fed(replica, [(8, 10), (8, 4)])
    assert replica.soonest() == 0.0
    replica.advance(inf)
    assert replica.soonest() == 2.0 + 3.0
    replica.advance(3.5)
    assert replica.soonest() == 5.0


def test_what_time_is_spent_on() -> None:
    """1 s of reading 8 tokens, 3 s of one that decodes from 8 to 11; idle between two requests."""
    served = serve(Small(limits=ROOMY, tokens=1600), sent((0.0, 8, 4), (10.0, 8, 4)))
    replica = served.one

    assert (replica.busy, replica.steps, replica.worked, replica.peak) == (8.0, 8, 8.0, 1)
    assert replica.clock == 14.0
    assert replica.states == 2 * (0 * 1 + 8.5 + 9.5 + 10.5)  # in the mean of each step
    assert replica.taken == 8.0  # a block
    assert replica.most == 1
    moments = served.series.moments(14.0)
    width = served.series.width
    assert sum(one.output_tokens_per_second for one in moments) * width == pytest.approx(8)
    assert sum(one.prompt_tokens_per_second for one in moments) * width == pytest.approx(16)


def test_states_grow_by_what_is_gained() -> None:
    """From 8 tokens to 12 in two steps of two: 9 and 11 in the mean."""
    served = serve(Small(limits=replace(ROOMY, gain=2.0)), sent((0.0, 8, 5)))

    assert served.one.states == 9 + 11


def test_gaps_of_one_that_was_set_back_are_long() -> None:
    """Two of 4 and 6 in 12 tokens: the second has its third token at 3 s, its fourth at 6.875."""
    tally = serve(Small(tokens=12, block=1, limits=ROOMY), sent((0.0, 4, 6), (0.0, 4, 6))).tally

    assert tally.gaps.count == 10
    assert tally.gaps.total == pytest.approx(5.0 + 7.875)
    assert tally.gaps.most == 3.875


def test_gaps_of_one_that_was_swapped_are_long_too() -> None:
    """Its third token at 3 s, its fourth at 8.5."""
    limits = replace(ROOMY, preemption="swap", host_link=8.0, token_bytes=1.0)
    tally = serve(Small(tokens=12, block=1, limits=limits), sent((0.0, 4, 6), (0.0, 4, 6))).tally

    assert tally.gaps.count == 10
    assert tally.gaps.most == 5.5
    assert tally.gaps.total == pytest.approx(5.75 + 9.5)


def test_a_wait_for_a_prompt_is_in_the_gap() -> None:
    """Eight seconds of reading between two tokens of one that decodes, in a step of their own."""
    tally = serve(Small(policy="prefill-first", limits=ROOMY), sent((0.0, 8, 4), (1.5, 64, 1))).tally

    assert (tally.gaps.most, tally.gaps.count) == (9.0, 3)
    assert tally.gaps.total == 11.0


def test_what_is_admitted_first_is_set_back_last() -> None:
    """Three of 4 and 6 tokens in 16: the third goes first, then the second."""
    served = serve(Small(tokens=16, block=1, limits=ROOMY), sent(*[(0.0, 4, 6)] * 3))

    assert served.tally.ends == sorted(served.tally.ends)
    assert served.tally.ends[0] == 1.5 + 5
    assert served.tally.preemptions >= 2


def test_nobody_is_let_in_while_one_that_was_set_back_waits() -> None:
    """Though a fourth would fit: it would take what the third needs."""
    served = serve(Small(tokens=16, block=1, limits=ROOMY), sent(*[(0.0, 4, 6)] * 3, (3.0, 1, 1)))
    each = served.tally.each

    assert each[4].queued >= each[1].end


def test_drafts_take_tokens_of_a_step() -> None:
    """Of 16 tokens four sequences that verify three each leave four for a prompt, where decode alone leaves twelve."""
    found: dict[int, Any] = {}
    for each in (1, 3):
        times = Seconds()
        load = sent(*[(0.0, 4, 9)] * 4, (2.5, 12, 1))
        serve(Small(limits=Limits(16, 16, each=each)), load, times)
        found[each] = [step.pieces for step in times.taken if step.rows and step.pieces]

    assert found == {1: [(12,)], 3: [(4,), (4,), (4,)]}


def test_who_comes_back_takes_a_token_of_the_step() -> None:
    """Of 8 tokens a step: those whose cache came back decode in it, and leave as much less to prompts."""
    lengths = [(10, 10), (20, 8), (20, 3), (19, 7), (14, 14), (17, 13), (18, 16), (17, 10), (2, 2), (12, 16), (11, 14)]
    times, limits = Seconds(), Limits(8, 8, preemption="swap", token_bytes=1.0)
    load = sent(*[(float(at // 3), *pair) for at, pair in enumerate(lengths)])
    served = serve(Small(tokens=64, block=1, longest=60, limits=limits), load, times)

    assert served.tally.swapped > 0
    assert max(step.rows + sum(step.pieces) for step in times.taken if step.pieces) == 8


def test_a_prefix_is_looked_up_once() -> None:
    """One that is set back and comes again does not count twice."""
    small = Small(tokens=24, block=4, limits=ROOMY, cache=lambda: BlockCache(4, 4))
    load = sent(*[(0.0, 8, 12)] * 3, hashes=[(1, 2), (1, 2), (3, 4)], hash_tokens=4)
    served = serve(small, load)

    assert served.tally.preemptions > 0
    assert (served.tally.asked_tokens, served.tally.asked_ids) == (24, 6)
    assert served.tally.hit_tokens <= 8


def test_reading_goes_no_further_than_the_first_token() -> None:
    """Of a pool that reads: memory is given back, and the request is handed on."""
    handed: list[tuple[Live, float]] = []
    replica = alone(Small(limits=ROOMY))
    replica.read_alone(POLICIES["prefill-first"]())
    replica.on_end(lambda live, now: handed.append((live, now)))
    (live,) = fed(replica, [(8, 5)])
    replica.advance(inf)

    assert handed == [(live, 1.0)]
    assert replica.idle
    assert replica.memory.taken == 0
