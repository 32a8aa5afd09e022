"""Services small enough to be worked by hand: step times that are counted in whole seconds, and loads of few requests."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final

from roofcast.calculators.serving.cluster import Cluster, Entry
from roofcast.calculators.serving.contiguous import RESERVATIONS
from roofcast.calculators.serving.job import Job, Load
from roofcast.calculators.serving.live import Live, Tally
from roofcast.calculators.serving.memory import PAGED, Blocks, Contiguous, Paging, Pool
from roofcast.calculators.serving.policies import POLICIES, PrefillFirst
from roofcast.calculators.serving.replica import Limits, Replica
from roofcast.calculators.serving.series import Series
from roofcast.calculators.serving.steps import StepTimes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roofcast.calculators.serving.memory import Memory
    from roofcast.calculators.serving.prefix import PrefixCache
    from roofcast.calculators.serving.steps import Chunk

ALWAYS: Final = 1 << 30  # decode steps
MOST_STANDING: Final = 100  # times in a row that a replica in a test does nothing


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was taken: sequences that decode, tokens they hold, new tokens of each piece, decode steps in a row."""

    rows: int
    held: float
    pieces: tuple[int, ...]
    steps: int


class Seconds(StepTimes):
    """Steps whose times are sums of binary fractions, so that no order of adding them changes a bit.

    A decode step takes `decode` + `each` a token that is held, a prompt's token `token`; a mixed step takes both.

    Args:
        decode, token, each: times. [s]
        at_once: decode steps of a `run` at most; 1 skips nothing.
    """

    __slots__ = ("at_once", "each", "one", "taken", "token")

    def __init__(self, decode: float = 1.0, token: float = 0.125, each: float = 0.0, at_once: int = ALWAYS) -> None:
        self.one, self.token, self.each, self.at_once = decode, token, each, at_once
        self.taken: list[Taken] = []

    def mixed(self, sequences: int, held: float, chunks: Sequence[Chunk], hidden: float = 0.0) -> float:  # noqa: ARG002
        """One step. [s]"""
        self.taken.append(Taken(sequences, held, tuple(new for new, _, _ in chunks), 1))
        seconds = sum(new for new, _, _ in chunks) * self.token
        return seconds + self.one + held * self.each if sequences else seconds

    def run(
        self,
        sequences: int,
        held: float,
        steps: int,
        limit: float,
        gain: float = 1.0,
        growth: float = inf,  # noqa: ARG002
    ) -> tuple[int, float]:
        """Steps one after the other, until one ends at the limit or later."""
        spent, done = 0.0, 0
        while done < min(steps, self.at_once) and (not done or spent < limit):
            spent += self.one + (held + done * sequences * gain) * self.each
            done += 1
        self.taken.append(Taken(sequences, held, (), done))
        return done, spent


@dataclass(slots=True)
class Watched:
    """Times of one request, by the order of its coming."""

    arrival: float
    queued: float
    first: float
    end: float
    output: int


class Notes(Tally):
    """A tally that keeps each request by the order of its coming, and sees one that is done twice."""

    __slots__ = ("each",)

    def __init__(self) -> None:
        super().__init__()
        self.each: dict[int, Watched] = {}

    def finish(self, live: Live, now: float) -> None:
        """A request is done."""
        assert live.order not in self.each, f"request {live.order} is done twice"
        self.each[live.order] = Watched(live.job.arrival, live.queued, live.first, now, live.output)
        super().finish(live, now)

    @property
    def ends(self) -> list[float]:
        """When each was done, by the order of coming. [s]"""
        return [self.each[order].end for order in sorted(self.each)]

    @property
    def firsts(self) -> list[float]:
        """When each had its first token. [s]"""
        return [self.each[order].first for order in sorted(self.each)]


def nothing_beside(context: int) -> int:  # noqa: ARG001 - one signature for all
    """Requests whose tokens take all that they need."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A small service.

    Args:
        policy: one of `POLICIES`.
        memory: paged, max, pow2 or oracle.
        tokens: that the memory of a replica holds. [token]
        block: tokens of a block. [token]
        longest: tokens of the longest request. [token]
        limits: what a replica takes on.
        paging: how blocks are handed out.
        cache: makes a prefix cache; None without.
        replicas: that do the same, or read.
        writers: that decode what others read.
        entry: how requests come; its longest length is `longest`.
        beside: blocks that a request of so many tokens takes beside.
    """

    policy: str = "chunked"
    memory: str = PAGED
    tokens: int = 1 << 20
    block: int = 16
    longest: int = 1 << 16
    limits: Limits = field(default_factory=lambda: Limits(1 << 10, 1 << 13))
    paging: Paging = field(default_factory=Paging)
    cache: Callable[[], PrefixCache] | None = None
    replicas: int = 1
    writers: int = 0
    routing: str = "round-robin"
    latency: float = 0.0
    transfer: Callable[[int], float] | None = None
    beside: Callable[[int], int] = nothing_beside

    def pool(self) -> Pool:
        """Its memory before any request."""
        return Pool(self.tokens, self.block, self.tokens // self.block, 1, self.beside, 1.0, self.longest)

    def made_memory(self) -> Memory:
        """The memory of a replica."""
        if self.memory in RESERVATIONS:
            return Contiguous(self.pool(), self.memory)
        return Watch(self.pool(), self.paging, self.cache() if self.cache is not None else None)


class Watch(Blocks):
    """Blocks that see that no more are taken than there are."""

    __slots__ = ()

    def admit(self, live: Live) -> bool:
        """As blocks do."""
        admitted = super().admit(live)
        self.see()
        return admitted

    def grow(self, steps: int) -> None:
        """As blocks do."""
        super().grow(steps)
        self.see()

    def see(self) -> None:
        """Blocks of running requests, and with those that are kept."""
        assert -1e-6 <= self.taken <= self.capacity + 1e-6, f"{self.taken} blocks of {self.capacity}"
        if self.cache is not None:
            assert self.taken + self.cache.kept <= self.capacity + 1e-6, f"{self.cache.kept} kept beside {self.taken}"


class Ending(Replica):
    """A replica that does not stand still for ever."""

    __slots__ = ("stood",)

    def advance(self, horizon: float) -> None:
        """As a replica does."""
        before = self.clock
        super().advance(horizon)
        self.stood = getattr(self, "stood", 0) + 1 if self.clock == before else 0
        assert self.stood < MOST_STANDING, f"{len(self.waiting)} wait and {len(self.running)} run for ever"


@dataclass(frozen=True, slots=True)
class Served:
    """A small service after a load."""

    tally: Notes
    series: Series
    readers: list[Replica]
    writers: list[Replica]
    cluster: Cluster

    @property
    def one(self) -> Replica:
        """Its first replica."""
        return self.readers[0]

    @property
    def every(self) -> list[Replica]:
        """All replicas."""
        return [*self.readers, *self.writers]


def serve(small: Small, load: Load, times: StepTimes | None = None) -> Served:
    """Runs a load through a small service, and sees that it leaves nothing behind."""
    times = times if times is not None else Seconds()
    tally = Notes()
    first = small.made_memory()
    series = Series(first.capacity * (small.replicas + small.writers))

    def replica() -> Replica:
        memory, several = (
            small.made_memory(),
            small.routing == "least-loaded" and max(small.replicas, small.writers) > 1,
        )
        limits = replace(small.limits, alone=not several)
        made = Ending(times, memory, POLICIES[small.policy](), limits, tally, series)
        made.cache = memory.cache if isinstance(memory, Blocks) else None
        return made

    readers, writers = [replica() for _ in range(small.replicas)], [replica() for _ in range(small.writers)]
    if writers:
        for one in readers:
            one.read_alone(PrefillFirst())
        for one in writers:
            one.cache = None
    entry = Entry(small.longest, small.routing, small.latency, small.transfer)
    cluster = Cluster(readers, writers, entry, tally)
    cluster.run(load)
    served = Served(tally, series, readers, writers, cluster)
    leaves_nothing(served)
    return served


def leaves_nothing(served: Served) -> None:
    """All memory is given back, and nobody waits, reads or decodes."""
    for one in served.every:
        assert one.idle
        assert not one.partial
        assert (one.count, one.held) == (0, 0.0)
        assert abs(one.memory.taken) < 1e-6, f"{one.memory.taken} left of {one.memory.capacity}"
        if isinstance(one.memory, Blocks):
            assert abs(one.memory.used) < 1e-6
            if one.memory.cache is not None:
                assert one.memory.cache.held == 0


def sent(*jobs: tuple[float, int, int], hashes: Iterable[tuple[int, ...]] = (), hash_tokens: int | None = None) -> Load:
    """An open loop of requests by arrival, prompt and output."""
    shared = list(hashes) or [()] * len(jobs)
    made = [Job(*job, ids) for job, ids in zip(jobs, shared, strict=True)]
    return Load("open", lambda: iter(made), None, hash_tokens)


def looped(concurrency: int, *lengths: tuple[int, int]) -> Load:
    """A closed loop of requests by prompt and output."""
    made = [Job(0.0, *length) for length in lengths]
    return Load("closed", lambda: iter(made), concurrency)


def drawn(seed: int) -> Random:
    """Draws that are the same every time."""
    return Random(seed)  # noqa: S311 - nothing is kept secret


def poisson(rate: float, count: int, lengths: tuple[int, int], seed: int = 0) -> Load:
    """An open loop of requests of one prompt and output, whose gaps are exponential: mean 1 / rate."""
    random, now, made = drawn(seed), 0.0, []
    for _ in range(count):
        now += random.expovariate(rate)
        made.append(Job(now, *lengths))
    return Load("poisson", lambda: iter(made))
