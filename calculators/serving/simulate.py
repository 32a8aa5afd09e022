"""A service under a load: every request from its coming to its last token."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf, sqrt
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.estimate import layout_of, provenance_of
from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.serving.beams import BeamBlocks
from roofcast.calculators.serving.cluster import ROUND_ROBIN, Cluster, Entry
from roofcast.calculators.serving.defaults import ALL
from roofcast.calculators.serving.live import Tally, spread
from roofcast.calculators.serving.memory import PAGED, Blocks, Contiguous, Paging
from roofcast.calculators.serving.policies import POLICIES, PrefillFirst
from roofcast.calculators.serving.prefix import BlockCache
from roofcast.calculators.serving.radix import RadixCache
from roofcast.calculators.serving.replica import Limits, Replica
from roofcast.calculators.serving.result import Cache, Goal, Kept, Pool, Prefix, SimulateResult
from roofcast.calculators.serving.series import Series
from roofcast.calculators.serving.service import OFF, transfer_seconds
from roofcast.calculators.serving.steps import StepTimes
from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roofcast.calculators.serving.job import Load
    from roofcast.calculators.serving.memory import Memory
    from roofcast.calculators.serving.prefix import PrefixCache
    from roofcast.calculators.serving.service import Service

CACHES: Final[Mapping[str, Callable[[int, int], PrefixCache]]] = {"blocks": BlockCache, "radix": RadixCache}
NO_GOAL: Final = Goal()
SHARES: Final = 1e-12  # of a share: what rounding makes of it
NULLS: Final = (
    "makespan_seconds", "ttft_seconds", "tpot_seconds", "itl_seconds", "e2e_seconds", "queue_seconds",
    "requests_per_second", "prompt_tokens_per_second", "output_tokens_per_second", "goodput_requests_per_second", "kept",
    "kv_utilisation", "cache", "prefix_hit_rate", "prefix",
)  # fmt: skip
NOUGHTS: Final = (
    "requests", "completed", "rejected", "cut", "preemptions", "recomputed_tokens", "peak_running", "peak_waiting",
)  # fmt: skip
GROWTH: Final = 0.05  # of those that come, by which those in the service may grow where it keeps up [-]
WINDOWS: Final = ((0.45, 0.55), (0.9, 1.0))  # of the time in which requests come, that are held against each other
DRAFT_CONTEXT: Final = 1024  # tokens at which a step of one sequence is taken, for what a draft costs [token]


@dataclass(frozen=True, slots=True)
class Ran:
    """A service after a load.

    Args:
        service: which.
        load: what was sent.
        tally: what is remembered of requests.
        series: what went on over time.
        readers, writers: its replicas.
        peak_waiting: most requests that waited at once.
    """

    service: Service
    load: Load
    tally: Tally
    series: Series
    readers: Sequence[Replica]
    writers: Sequence[Replica]
    peak_waiting: int

    @property
    def every(self) -> list[Replica]:
        """All replicas."""
        return [*self.readers, *self.writers]

    @property
    def makespan(self) -> float:
        """From the first arrival to the last answer. [s]"""
        return max(0.0, self.tally.last - self.tally.first)


def run(service: Service, load: Load) -> Ran:
    """Runs a load through a service; the same load and service give the same answer."""
    options = service.options
    times = times_of(service)
    tally, readers, writers = Tally(warm=load.warm), max(1, service.replicas), options.writers
    first = _memory(service, load)
    series = Series(first.capacity * (readers + writers))
    made = [_replica(service, times, first if not i else _memory(service, load), tally, series) for i in range(readers)]
    after = [_replica(service, times, _memory(service, load), tally, series) for _ in range(writers)]
    if after:
        for one in made:
            one.read_alone(PrefillFirst())
        for one in after:
            one.cache = None
    entry = Entry(
        service.pool.longest,
        options.routing,
        service.server.latency,
        transfer_seconds(service) if writers else None,
    )
    cluster = Cluster(made, after, entry, tally)
    cluster.run(load)
    return Ran(service, load, tally, series, made, after, cluster.peak_waiting)


def times_of(service: Service) -> StepTimes:
    """Times of its steps, those of earlier loads among them."""
    ready, options = service.ready, service.options
    drafted = options.drafted if options.gain > 1 else 0
    key = id(ready), service.server, drafted, options.draft_cost
    found = service.known.get(key)
    if found is None or found.ready is not ready:
        beside = drafted * options.draft_cost * StepTimes(ready).decode(1, DRAFT_CONTEXT) if drafted else 0.0
        found = service.known[key] = StepTimes(ready, drafted, beside, service.server)
    return found


def _memory(service: Service, load: Load) -> Memory:
    options, pool = service.options, service.pool
    if options.kv_memory != PAGED:
        return Contiguous(pool, options.kv_memory)
    beams = BeamBlocks(options.beams, pool.block).at if options.beams > 1 else None
    kept = service.scheduling.reserve if options.rows == 1 else ALL  # several sequences are never set back
    paging = Paging(kept.running, kept.own, kept.clip, options.samples, options.gain == 1.0, beams)
    cache = None
    if options.prefix_cache != OFF and load.hash_tokens is not None:
        cache = CACHES[options.prefix_cache](load.hash_tokens, pool.block)
    return Blocks(pool, paging, cache, apart=options.prefix_apart)


def _replica(service: Service, times: StepTimes, memory: Memory, tally: Tally, series: Series) -> Replica:
    options, scheduling = service.options, service.scheduling
    limits = Limits(
        sequences=max(1, scheduling.sequences // options.rows),
        tokens=scheduling.tokens,
        gain=options.gain,
        rows=options.rows,
        order=scheduling.order,
        preemption=options.preemption,
        host_link=options.host_link * service.ready.deployment.shards.joined,
        token_bytes=service.pool.token_bytes,
        each=1 + options.drafted if options.gain > 1 else 1,
        alone=options.routing == ROUND_ROBIN or service.replicas + options.writers == 1,
    )
    replica = Replica(times, memory, POLICIES[scheduling.policy](), limits, tally, series)
    if isinstance(memory, Blocks):
        replica.cache = memory.cache
    return replica


def simulate(service: Service, load: Load, goal: Goal = NO_GOAL) -> tuple[SimulateResult, Remarks]:
    """Answers `simulate`.

    Args:
        service: what answers.
        load: what is sent.
        goal: what is promised.

    Raises:
        UsageError: a trace with a bad row.
    """
    if service.reason:
        return nothing(service, load), Remarks()
    ran = run(service, load)
    return result_of(ran, goal), remarks(warnings=[_fewer(ran)], notes=ran.load.notes())


def _fewer(ran: Ran) -> str | None:
    """That fewer requests came than were asked for."""
    asked, came = ran.load.count, ran.tally.came
    if asked is None or came >= asked:
        return None
    return f"{came:,} of {asked:,} requests come: the rate is 0 from then on"


def nothing(service: Service, load: Load) -> SimulateResult:
    """The answer of what does not fit: no times."""
    return _result(service, load, reason=service.reason)


def result_of(ran: Ran, goal: Goal) -> SimulateResult:
    """What a run comes to."""
    tally, makespan, service = ran.tally, ran.makespan, ran.service
    done = [value for value in tally.tpot if value >= 0]
    stable = _stable(ran)
    good, kept = _kept(tally, goal, lasting=stable or ran.load.count is None)
    rate = partial(_a_second, makespan)
    cache = _cache(ran)
    prefix = _prefix(ran)
    return _result(
        service,
        ran.load,
        requests=tally.came,
        completed=tally.done,
        rejected=tally.rejected,
        cut=tally.cut,
        makespan_seconds=makespan if tally.done else None,
        ttft_seconds=spread(tally.ttft),
        tpot_seconds=spread(done),
        itl_seconds=tally.gaps.spread(),
        e2e_seconds=spread(tally.e2e),
        queue_seconds=spread(tally.queue),
        requests_per_second=rate(tally.done),
        prompt_tokens_per_second=rate(tally.prompt_tokens),
        output_tokens_per_second=rate(tally.output_tokens * service.options.samples),
        goodput_requests_per_second=rate(tally.done * good / (len(tally.ttft) or 1)),
        kept=kept,
        kv_utilisation=cache.reserved if cache else None,
        cache=cache,
        prefix_hit_rate=prefix.hit_rate if prefix else None,
        prefix=prefix,
        preemptions=tally.preemptions,
        recomputed_tokens=tally.recomputed,
        swapped_bytes=tally.swapped,
        pools=_pools(ran),
        peak_running=max(one.peak for one in ran.every),
        peak_waiting=ran.peak_waiting,
        stable=stable,
        series=ran.series.moments(tally.last),
    )


def _a_second(makespan: float, value: float) -> float | None:
    """So many over the makespan; None of a load that took no time."""
    return value / makespan if makespan else None


def _kept(tally: Tally, goal: Goal, *, lasting: bool) -> tuple[int, Kept | None]:
    """Requests that keep a promise, and what became of it; None where nothing is promised.

    A promise of TTFT is not kept by a service that does not keep up, however few requests were sent; a trace is all there is.
    """
    good = keeping(tally, goal)
    if not goal.given:
        return good, None
    noted = len(tally.ttft) + tally.rejected
    part, share = goal.percentile / 100, good / noted if noted else 0.0
    late = goal.itl_seconds is not None and tally.gaps.count and tally.gaps.quantile(part) > goal.itl_seconds
    met = share >= part - SHARES and not late and (lasting or goal.ttft_seconds is None)
    return good, Kept(goal, met, share)


def keeping(tally: Tally, goal: Goal) -> int:
    """Requests, of those whose times are noted, that keep a promise of TTFT and TPOT both; of one token any TPOT. [-]

    Goodput = these requests / makespan. [1/s]
    """
    ttft = inf if goal.ttft_seconds is None else goal.ttft_seconds
    tpot = inf if goal.tpot_seconds is None else goal.tpot_seconds
    return sum(1 for first, each in zip(tally.ttft, tally.tpot, strict=True) if first <= ttft and each <= tpot)


def _cache(ran: Ran) -> Cache | None:
    """The memory for caches, over the time in which replicas work. [-]

    Share taken = sum of (taken x time) / (capacity x time with work); where several requests share blocks, these count
    once. Tokens' states likewise: what is taken and holds none is room for tokens to come, or the rest of a last block.
    """
    pool, options = ran.service.pool, ran.service.options
    holding = ran.writers or ran.readers
    busy = sum(one.busy for one in holding)
    if not busy:
        return None
    capacity, taken = holding[0].memory.capacity, sum(one.taken for one in holding) / busy
    paged = options.kv_memory == PAGED
    tokens = taken * pool.block if paged else taken
    shared = (
        not pool.per or options.rows > 1 or any(one.cache is not None for one in holding)
    )  # states that several requests have in common
    states = None if shared else min(sum(one.states for one in holding) / busy, tokens)
    return Cache(
        kind=options.kv_memory,
        tokens=pool.tokens if pool.per else None,
        places=None if pool.per else pool.blocks,
        block_tokens=pool.block if paged and pool.per else None,
        states=None if states is None else states / pool.tokens,
        reserved=taken / capacity,
        peak=max(one.most for one in holding) / capacity,
        allocated_states=None if states is None or not tokens else states / tokens,
    )


def _prefix(ran: Ran) -> Prefix | None:
    """What prefix caches found; None without any. [-]

    Hit rate = prompt tokens found / all prompt tokens, of requests as they are first scheduled.
    """
    caches = [one.cache for one in ran.readers if one.cache is not None]
    tally = ran.tally
    if not caches:
        return None
    return Prefix(
        kind=ran.service.options.prefix_cache,
        hit_tokens=tally.hit_tokens,
        hit_rate=tally.hit_tokens / tally.asked_tokens if tally.asked_tokens else 0.0,
        block_hit_rate=tally.hit_ids / tally.asked_ids if tally.asked_ids else 0.0,
        evicted_tokens=sum(one.evicted for one in caches),
    )


def _pools(ran: Ran) -> list[Pool]:
    """Replicas by what they do."""
    names = ("prefill", "decode") if ran.writers else ("serving",)
    shards, made = ran.service.ready.deployment.shards, []
    for name, replicas in zip(names, (ran.readers, ran.writers), strict=False):
        busy, count = sum(one.busy for one in replicas), len(replicas)
        made.append(
            Pool(
                name=name,
                replicas=count,
                gpus=count * shards.devices // shards.dp,
                busy=busy / count / ran.makespan if ran.makespan else 0.0,
                running=sum(one.worked for one in replicas) / busy if busy else 0.0,
                steps=sum(one.steps for one in replicas),
                preemptions=sum(one.preempted for one in replicas),
            )
        )
    return made


def _stable(ran: Ran) -> bool:
    """Whether a service keeps up: while requests come, those in it do not grow by 5 % of those that come, nor by chance.

    Of N requests that come in a time T, 0.45 N come between its middle and its last tenth. Between the same those in the
    service grow by no more than 0.05 x 0.45 N + 2 sqrt(L), L in the end: twice what chance moves them. Closed loops keep
    up by themselves.
    """
    tally, load = ran.tally, ran.load
    span = tally.latest - tally.first
    if load.concurrency is not None or span <= 0:
        return True
    middle, end = (ran.series.within(tally.first + a * span, tally.first + b * span) for a, b in WINDOWS)
    come = tally.came * (WINDOWS[1][0] - WINDOWS[0][0])
    return end - middle <= GROWTH * come + 2 * sqrt(end)


def _result(service: Service, load: Load, reason: str = "", **found: Any) -> SimulateResult:  # noqa: ANN401 - of its fields
    """The answer, whose fields are null or nought where nothing is found."""
    ready, scheduling = service.ready, service.scheduling
    nulls = dict.fromkeys(NULLS)
    noughts = dict.fromkeys(NOUGHTS, 0)
    fixed: dict[str, Any] = {"swapped_bytes": 0.0, "pools": [], "stable": True, "series": []}
    return SimulateResult(
        model=ready.model.name,
        gpu=ready.deployment.accelerator.id,
        layout=layout_of(ready),
        engine=ready.deployment.engine,
        policy=scheduling.policy,
        max_num_seqs=scheduling.sequences,
        max_num_batched_tokens=scheduling.tokens,
        load=load.name,
        longest_request=service.pool.longest,
        fits=not reason,
        reason=reason or None,
        step_spread=step_spread_of(service) if not reason else None,
        provenance=provenance_of(ready),
        **{**nulls, **noughts, **fixed, **found},
    )


def step_spread_of(service: Service) -> float | None:
    """Standard deviation of ln(measured / expected) of a decode step of 16 sequences at 1,024 tokens."""
    ready = service.ready
    if ready.expectation is None:
        return None
    return answer_point(
        replace(ready, holding=None), Asked(DECODE, 16 * ready.deployment.shards.dp, DRAFT_CONTEXT)
    ).spread
