"""Laws of the simulator: nothing is lost, nothing is taken twice, skipping events changes nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofcast.calculators.serving.job import Job, Load
from roofcast.calculators.serving.memory import PAGED, Paging
from roofcast.calculators.serving.policies import POLICIES
from roofcast.calculators.serving.prefix import BlockCache
from roofcast.calculators.serving.radix import RadixCache
from roofcast.calculators.serving.replica import FIFO, RECOMPUTE, SHARED, SWAP, Limits
from tests.serving_cases import Seconds, Served, Small, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roofcast.calculators.serving.prefix import PrefixCache
    from roofcast.calculators.serving.replica import Replica
    from roofcast.calculators.serving.steps import Chunk

EACH: Final = 2.0**-7  # of a token that is held, in a decode step [s]
IDS: Final = 8  # tokens of an id
LONGEST: Final = 48  # of a request [token]
#: policies that put whatever waits, fits and has a place into the next step
CONSERVING: Final = ("chunked", "continuous", "prefill-first")


def per_token(tokens: int) -> float:
    """A link between pools. [s]"""
    return tokens / 8


def blocks(block: int) -> Callable[[], PrefixCache]:
    """Make caches of blocks."""
    return lambda: BlockCache(IDS, block)


def radix(block: int) -> Callable[[], PrefixCache]:
    """Make caches of a tree."""
    return lambda: RadixCache(IDS, block)


@st.composite
def smalls(draw: st.DrawFn, /, **fixed: Any) -> Small:
    """A service of one replica, whose memory is little."""
    memory = draw(st.sampled_from([PAGED, PAGED, PAGED, "max", "pow2", "oracle"]))
    paged, block = memory == PAGED, draw(st.sampled_from([1, 4, 16]))
    rows = draw(st.sampled_from([1, 1, 2, 3])) if paged else 1
    gain = draw(st.sampled_from([1.0, 1.0, 1.0, 1.5, 2.0]))
    cache = draw(st.sampled_from([None, blocks(block), radix(block)])) if paged else None
    limits = Limits(
        sequences=draw(st.sampled_from([1, 2, 3, 8])),
        tokens=draw(st.sampled_from([8, 16, 64])),
        gain=gain,
        rows=rows,
        order=draw(st.sampled_from([FIFO, SHARED])),
        preemption=draw(st.sampled_from([RECOMPUTE, SWAP])),
        host_link=draw(st.sampled_from([64.0, inf])),
        token_bytes=1.0,
    )
    small = Small(
        policy=draw(st.sampled_from(sorted(POLICIES))),
        memory=memory,
        tokens=draw(st.sampled_from([48, 64, 128, 512])) * rows,
        block=block,
        longest=draw(st.sampled_from([40, LONGEST])),
        limits=limits,
        paging=Paging(reserve=draw(st.sampled_from([0.0, 0.0, 0.1, 1.0])), rows=rows, grows=gain == 1.0),
        cache=cache,
        latency=draw(st.sampled_from([0.0, 0.25])),
    )
    return replace(small, **fixed)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Few requests, in any order of sending, which share beginnings."""
    gaps = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.25, 7.0])
    jobs, now = [], 0.0
    for gap in draw(st.lists(gaps, min_size=1, max_size=12)):
        now += gap
        prompt, output = draw(st.integers(1, 30)), draw(st.integers(1, 24))
        ids = draw(st.lists(st.integers(1, 2), max_size=-(-prompt // IDS)))
        jobs.append(Job(now, prompt, output, tuple(ids)))
    return Load("drawn", lambda: iter(jobs), draw(st.sampled_from([None, None, 1, 2, 5])), IDS)


@st.composite
def spread(draw: st.DrawFn) -> Small:
    """A service of several replicas, or of two pools."""
    small: Small = draw(smalls())
    writers = draw(st.sampled_from([0, 1, 2]))
    return replace(
        small,
        replicas=draw(st.sampled_from([1, 2, 3])),
        writers=writers,
        routing=draw(st.sampled_from(["round-robin", "least-loaded"])),
        transfer=draw(st.sampled_from([None, per_token])) if writers else None,
    )


def lasting(served: Served) -> list[tuple[int, float, float, float, float]]:
    """What each request's times are."""
    each = served.tally.each
    return [(order, one.arrival, one.queued, one.first, one.end) for order, one in sorted(each.items())]


# --- events that are skipped


@given(smalls(), loads(), st.sampled_from([0.0, EACH]))
@settings(max_examples=300)
def test_skipping_changes_nothing(small: Small, load: Load, each: float) -> None:
    """Steps taken one at a time give every request the same times, to the last bit."""
    skipped = serve(small, load, Seconds(each=each))
    stepped = serve(small, load, Seconds(each=each, at_once=1))

    assert lasting(skipped) == lasting(stepped)
    assert skipped.tally.gaps.count == stepped.tally.gaps.count
    assert skipped.tally.gaps.total == pytest.approx(stepped.tally.gaps.total)
    assert skipped.one.steps == stepped.one.steps
    assert (skipped.one.busy, skipped.tally.preemptions) == (stepped.one.busy, stepped.tally.preemptions)
    if not each and small.limits.gain == 1.0:  # else means over a run weigh its steps alike
        assert skipped.one.states == pytest.approx(stepped.one.states)


@given(spread(), loads(), st.sampled_from([0.0, EACH]))
@settings(max_examples=300)
def test_nor_does_it_among_replicas(small: Small, load: Load, each: float) -> None:
    """Nor where one replica's ends decide what another gets, and when."""
    skipped = serve(small, load, Seconds(each=each))
    stepped = serve(small, load, Seconds(each=each, at_once=1))

    assert lasting(skipped) == lasting(stepped)


# --- conservation


@given(st.one_of(smalls(), spread()), loads())
@settings(max_examples=200)
def test_every_request_is_answered_or_refused(small: Small, load: Load) -> None:
    """Once, with the tokens that it asked for or as many as the server's longest length leaves; and in order of time."""
    jobs = list(load.jobs())
    served = serve(small, load, Seconds(each=EACH))
    tally = served.tally

    assert tally.came == len(jobs)
    assert tally.done + tally.rejected == len(jobs)
    taken = [job for job in jobs if job.prompt < small.longest]
    if not tally.rejected or len(taken) == tally.done:
        asked = [min(job.output, small.longest - job.prompt) for job in taken]
        assert sorted(one.output for one in tally.each.values()) == sorted(asked)
        assert tally.cut == sum(job.output > small.longest - job.prompt for job in taken)
    assert tally.output_tokens == sum(one.output for one in tally.each.values())
    for one in tally.each.values():
        assert one.arrival + small.latency <= one.queued < one.first <= one.end
    ends = [one.end for one in tally.each.values()]
    assert tally.last == max(ends, default=0.0)


@given(smalls(), loads())
@settings(max_examples=200)
def test_a_request_takes_its_own_steps_at_least(small: Small, load: Load) -> None:
    """TTFT its prompt's tokens less what was in a cache, TPOT a decode step."""
    times = Seconds(each=EACH)
    served = serve(replace(small, cache=None), load, times)
    jobs = [job for job in load.jobs() if job.prompt < small.longest]
    for (_, one), job in zip(sorted(served.tally.each.items()), jobs, strict=False):
        if len(jobs) == served.tally.done:
            assert one.first - one.arrival >= small.latency + job.prompt * times.token
        gained = small.limits.gain
        assert one.end - one.first >= (one.output - 1) / gained * times.one * (1 - 1e-9)


@given(smalls(memory=PAGED), loads())
@settings(max_examples=100)
def test_gaps_are_counted_once_each(small: Small, load: Load) -> None:
    """One before each token but the first, of each sequence, where nobody is set back and none gains a part of a token."""
    small = replace(
        small, tokens=1 << 12, limits=replace(small.limits, gain=1.0), paging=Paging(rows=small.limits.rows)
    )
    if small.policy == "static":  # computes on what is done
        return
    served = serve(small, load, Seconds(each=EACH))
    each = served.tally.each.values()

    assert served.tally.preemptions == 0
    assert served.tally.gaps.count == small.limits.rows * sum(one.output - 1 for one in each)
    assert served.tally.gaps.total == pytest.approx(small.limits.rows * sum(one.end - one.first for one in each))


@given(st.one_of(smalls(), spread()), loads())
@settings(max_examples=100)
def test_the_same_load_gives_the_same_answer(small: Small, load: Load) -> None:
    """Bit for bit."""
    one, two = serve(small, load, Seconds(each=EACH)), serve(small, load, Seconds(each=EACH))

    assert lasting(one) == lasting(two)
    assert one.tally.gaps.bins == two.tally.gaps.bins
    assert one.series.moments(one.tally.last) == two.series.moments(two.tally.last)


# --- what a step may hold


class Bounded(Seconds):
    """Times that see what is in a step.

    Args:
        small: the service.
    """

    __slots__ = ("small",)

    def __init__(self, small: Small) -> None:
        super().__init__(each=EACH)
        self.small = small

    def mixed(self, sequences: int, held: float, chunks: Sequence[Chunk], hidden: float = 0.0) -> float:
        """One step, of so many requests and tokens."""
        limits, news = self.small.limits, [new for new, _, _ in chunks]
        assert all(new > 0 for new in news)
        assert sequences // limits.rows + len(news) <= limits.sequences
        if self.small.policy in {"chunked", "prefill-first"}:
            assert sequences + sum(news) <= max(limits.tokens, sequences)
        elif self.small.policy != "static" and limits.order == FIFO:
            assert sequences + sum(news) <= limits.tokens or len(news) == 1
        if not POLICIES[self.small.policy].mixes:
            assert sequences == 0
        return super().mixed(sequences, held, chunks, hidden)

    def run(
        self, sequences: int, held: float, steps: int, limit: float, gain: float = 1.0, growth: float = inf
    ) -> tuple[int, float]:
        """Steps of so many requests."""
        assert steps > 0
        assert 0 < sequences <= self.small.limits.sequences * self.small.limits.rows
        assert held >= sequences
        return super().run(sequences, held, steps, limit, gain, growth)


@given(smalls(), loads())
@settings(max_examples=200)
def test_no_step_is_larger_than_allowed(small: Small, load: Load) -> None:
    """In requests and tokens; memory is watched by the blocks themselves."""
    serve(small, load, Bounded(small))


@dataclass(frozen=True, slots=True)
class Greedy:
    """A policy that sees whether another one leaves out somebody that could be taken along."""

    name: str

    @property
    def mixes(self) -> bool:
        """As the policy it watches."""
        return POLICIES[self.name].mixes

    @property
    def deaf(self) -> bool:
        """As the policy it watches."""
        return POLICIES[self.name].deaf

    def chunks(self, replica: Replica) -> list[tuple[object, int]]:
        """What the policy says; who waits then has no place, no token left, no memory, or was set back for want of it."""
        made = POLICIES[self.name]().chunks(replica)
        limits = replica.limits
        left = limits.tokens - sum(new for _, new in made) - (replica.count if self.mixes else 0)
        if replica.waiting and len(replica.running) < limits.sequences and left > 0:
            first = replica.waiting[0]
            whole = self.name == "continuous" and first.todo > left
            assert whole or first.made or not replica.memory.admit(first)
        return list(made)


@given(smalls(), loads(), st.sampled_from(CONSERVING))
@settings(max_examples=200)
def test_who_fits_is_taken_along(small: Small, load: Load, name: str) -> None:
    """The policies that promise it leave no one waiting who has a place, tokens and memory."""
    limits = replace(small.limits, order=FIFO)
    watched = replace(small, policy=name, limits=limits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(POLICIES, "watched", lambda: Greedy(name))
        serve(replace(watched, policy="watched"), load, Seconds(each=EACH))


@given(smalls(), loads())
@settings(max_examples=200)
def test_first_come_first_taken(small: Small, load: Load) -> None:
    """Nobody is first taken into a step before one that came earlier, unless shared prefixes go first."""
    served = serve(replace(small, limits=replace(small.limits, order=FIFO)), load, Seconds(each=EACH))
    queued = [one.queued for _, one in sorted(served.tally.each.items())]

    assert queued == sorted(queued)


@given(smalls(memory=PAGED), loads())
@settings(max_examples=100)
def test_a_full_reserve_sets_nobody_back(small: Small, load: Load) -> None:
    """Who is let in has all that it will take; but a static batch computes on what is done."""
    small = replace(small, paging=replace(small.paging, reserve=1.0), cache=None)
    served = serve(small, load, Seconds(each=EACH))

    assert served.tally.preemptions == 0 or small.policy == "static"


# --- more of something


@given(smalls(memory=PAGED, cache=None), loads(), st.sampled_from([1.5, 2.0, 4.0]))
@settings(max_examples=100)
def test_slower_steps_delay_all(small: Small, load: Load, times: float) -> None:
    """Where all times and gaps between arrivals grow alike, all answers do."""
    scaled = [job._replace(arrival=job.arrival * times) for job in load.jobs()]
    link = small.limits.host_link / times
    slow = replace(small, latency=small.latency * times, limits=replace(small.limits, host_link=link))
    one = serve(small, load, Seconds(1.0, 0.125, EACH))
    two = serve(slow, replace(load, jobs=lambda: iter(scaled)), Seconds(times, 0.125 * times, EACH * times))

    assert [end * times for end in one.tally.ends] == pytest.approx(two.tally.ends)
