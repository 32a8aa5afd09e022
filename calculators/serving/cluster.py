"""Replicas and the clock over all of them: who gets a request, and in which order things happen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.serving.live import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from roofcast.calculators.serving.job import Job, Load
    from roofcast.calculators.serving.live import Tally
    from roofcast.calculators.serving.replica import Replica

ROUND_ROBIN: Final = "round-robin"
LEAST_LOADED: Final = "least-loaded"


@dataclass(frozen=True, slots=True)
class Entry:
    """How requests come in.

    Args:
        longest: tokens of the longest request. [token]
        routing: how a replica is chosen, one of `ROUTES`.
        latency: from sending a request to the scheduler's seeing it, and of its tokens' way back. [s]
        transfer: of the cache of so many tokens over a reader's link to another pool, one after the other. [s]
    """

    longest: int
    routing: str = ROUND_ROBIN
    latency: float = 0.0
    transfer: Callable[[int], float] | None = None


def _in_turn(replicas: Sequence[Replica], order: int) -> Replica:
    """One after the other."""
    return replicas[order % len(replicas)]


def _least(replicas: Sequence[Replica], order: int) -> Replica:  # noqa: ARG001 - one signature for all
    """The one with the fewest requests, waiting and running; the first of several."""
    return min(replicas, key=lambda one: len(one.running) + len(one.waiting))


ROUTES: Final[Mapping[str, Callable[[Sequence[Replica], int], Replica]]] = {
    ROUND_ROBIN: _in_turn,
    LEAST_LOADED: _least,
}


class Cluster:
    """A service of one pool of replicas, or of one that reads prompts and one that decodes.

    Time goes on at the replica whose clock is the earliest, and no further than what may come to it next.

    Args:
        readers: replicas that read prompts; all of them where there is no other pool.
        writers: replicas that decode what others read; empty where each does both.
        entry: how requests come in.
        tally: where it writes who came.
    """

    __slots__ = (
        "_closed",
        "_entry",
        "_jobs",
        "_links",
        "_next",
        "_order",
        "_pending",
        "_readers",
        "_roomy",
        "_tally",
        "_ticket",
        "_writers",
        "peak_waiting",
    )

    def __init__(self, readers: Sequence[Replica], writers: Sequence[Replica], entry: Entry, tally: Tally) -> None:
        self._readers, self._writers, self._entry, self._tally = readers, writers, entry, tally
        self._order = 0
        self._jobs: Iterator[Job] = iter(())
        self._next: Job | None = None
        self._closed = False
        self._pending: list[tuple[float, int, Live | None]] = []  # what comes to a pool, by when: see `_push`
        self._ticket = 0
        self._links: dict[Replica, float] = {}  # until when a reader's link is busy [s]
        self.peak_waiting = 0
        longest = entry.longest - 1
        self._roomy = longest < 1 or (self._fits(1, longest) and self._fits(longest, 1))  # whether any request fits
        for one in (*readers, *writers):
            one.on_end(self._ended)
        if writers:
            for one in readers:
                one.on_end(partial(self._handed, one))

    def run(self, load: Load) -> None:
        """All requests of a load, to the end."""
        self._jobs, self._closed = load.jobs(), load.concurrency is not None
        if load.concurrency is not None:
            for _ in range(load.concurrency):
                self._push(self._entry.latency)
        else:
            self._next = next(self._jobs, None)
        every = [*self._readers, *self._writers]
        one = every[0] if len(every) == 1 else None
        while True:
            coming = self._coming()
            replica = self._earliest(every) if one is None or one.idle else one
            if replica is not None and replica.clock < coming:
                replica.advance(coming if one is not None else self._horizon(replica, coming))
            elif coming == inf:
                return
            else:
                self._deliver(coming)

    def _coming(self) -> float:
        """When the next request comes to a pool. [s]"""
        pending = self._pending[0][0] if self._pending else inf
        if self._next is None:
            return pending
        return min(pending, self._next.arrival + self._entry.latency)

    @staticmethod
    def _earliest(every: Sequence[Replica]) -> Replica | None:
        """Of those with work, the one whose clock is the earliest; of several the first, readers before writers."""
        working = [one for one in every if not one.idle]
        return min(working, key=lambda one: one.clock) if working else None

    def _horizon(self, replica: Replica, coming: float) -> float:
        """Until when nothing can come to a replica.

        To one that decodes, what readers have under way comes later than their clocks; in closed loop a client may send to
        any replica what follows on an answer of another.
        """
        found = coming
        if replica in self._writers:
            found = min([found, *(one.clock for one in self._readers if not one.idle)])
        if self._closed:
            others = [one for one in (*self._readers, *self._writers) if one is not replica and not one.idle]
            found = min([found, *(one.soonest() + self._entry.latency for one in others)])
        return found

    def _deliver(self, now: float) -> None:
        """The next request comes to its pool."""
        if not self._pending or self._pending[0][0] > now:
            job, self._next = self._next, next(self._jobs, None)
            self._enter(job, now)
            return
        _, _, live = heappop(self._pending)
        if live is not None:
            self._hand(self._writers, live, now)
            return
        sent = now - self._entry.latency  # by a client, again until one is accepted
        while (job := next(self._jobs, None)) is not None:
            if self._enter(job._replace(arrival=sent), now):
                return

    def _enter(self, job: Job | None, now: float) -> bool:
        """A request comes to those that read it; whether it is accepted."""
        live = None if job is None else self._accepted(job)
        if live is not None:
            self._hand(self._readers, live, now)
        return live is not None

    def _hand(self, pool: Sequence[Replica], live: Live, now: float) -> None:
        ROUTES[self._entry.routing](pool, live.order).receive(live, now)
        waiting = sum(len(one.waiting) for one in pool) if len(pool) > 1 else len(pool[0].waiting)
        self.peak_waiting = max(self.peak_waiting, waiting)

    def _push(self, now: float, live: Live | None = None) -> None:
        """Something comes then: a request whose prompt is read, or whatever a client sends next."""
        self._ticket += 1
        heappush(self._pending, (now, self._ticket, live))

    def _accepted(self, job: Job) -> Live | None:
        """A request as the server takes it: cut at its longest length; None of a prompt that leaves no room for a token."""
        tally, longest = self._tally, self._entry.longest
        if tally.came == 0:
            tally.first = job.arrival
        tally.came += 1
        tally.latest = job.arrival
        output = min(job.output, longest - job.prompt)
        if output < 1 or not (self._roomy or self._fits(job.prompt, output)):
            tally.rejected += 1
            return None
        tally.cut += output < job.output
        self._order += 1
        live = Live(job, output, self._order)
        if self._writers:
            live.last = job.prompt
        return live

    def _fits(self, prompt: int, output: int) -> bool:
        """Whether a request would fit in each pool that it passes, were it alone."""
        if not self._writers:
            return self._readers[0].memory.fits(prompt, output)
        return self._readers[0].memory.fits(prompt, 1) and self._writers[0].memory.fits(prompt, output)

    def _ended(self, live: Live, now: float) -> None:
        """A request has all its tokens."""
        self._tally.finish(live, now)
        if self._closed:
            self._push(now + self._entry.latency)

    def _handed(self, reader: Replica, live: Live, now: float) -> None:
        """A prompt is read: its cache goes to the other pool, after those that the reader's link still carries."""
        if live.made >= live.output:
            self._ended(live, now)
            return
        live.computed = live.todo
        live.last = live.job.prompt + live.output - 1
        if self._entry.transfer is not None:
            now = max(now, self._links.get(reader, 0.0)) + self._entry.transfer(live.todo)
            self._links[reader] = now
        self._push(now, live)
