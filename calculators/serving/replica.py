"""One replica of a service: requests that wait, that are read and that decode, and the steps that take them along."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import ceil, inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.serving.prefix import shared_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.serving.live import Live, Tally
    from roofcast.calculators.serving.memory import Memory
    from roofcast.calculators.serving.policies import Policy
    from roofcast.calculators.serving.prefix import PrefixCache
    from roofcast.calculators.serving.series import Series
    from roofcast.calculators.serving.steps import Chunk, StepTimes

GROWTH: Final = 0.01  # of steps in a row, which are noted as alike [-]
RECOMPUTE: Final = "recompute"
SWAP: Final = "swap"
FIFO: Final = "fifo"
SHARED: Final = "prefix"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a replica takes on.

    Args:
        sequences: requests at once.
        tokens: of a step. [token]
        gain: tokens that each sequence gains a decode step: more than 1 where drafts are accepted. [token]
        rows: sequences of a request.
        order: fifo, or prefix for what shares the longest prefix first.
        preemption: recompute or swap, what is done where memory runs out.
        host_link: bandwidth to the host's memory, one direction. [B/s]
        token_bytes: of a token's cache, on all devices of the replica. [B/token]
        each: tokens of a step that a sequence takes which decodes: its own, and drafted ones. [token]
        reads: whether it ends requests at their first token, as a pool of prefill does.
        alone: whether no one looks at how many requests it has, so that it may go on to its next end while it is full.
    """

    sequences: int
    tokens: int
    gain: float = 1.0
    rows: int = 1
    order: str = FIFO
    preemption: str = RECOMPUTE
    host_link: float = inf
    token_bytes: float = 0.0
    each: int = 1
    reads: bool = False
    alone: bool = True


class Replica:
    """A replica: its clock, what it has, and what it did. A policy says what goes into a step.

    Args:
        steps: times of steps.
        memory: that requests' caches take.
        policy: what goes into a step.
        limits: what it takes on.
        tally, series: where it writes what happened.
    """

    __slots__ = (
        "_ended", "_fresh", "_heap", "_last", "_mark", "_soonest", "_step", "blocked", "busy", "cache", "clock", "count", "held", "limits", "memory",
        "most", "partial", "peak", "policy", "preempted", "running", "series", "states", "steps", "taken", "tally", "ticks",
        "times", "waiting", "worked",
    )  # fmt: skip

    def __init__(
        self, times: StepTimes, memory: Memory, policy: Policy, limits: Limits, tally: Tally, series: Series
    ) -> None:
        self.times, self.memory, self.policy, self.limits = times, memory, policy, limits
        self.tally, self.series = tally, series
        self.cache: PrefixCache | None = None
        self.clock = 0.0
        self.ticks = 0  # decode steps done
        self.count = 0  # sequences that decode
        self.held = 0.0  # tokens that they hold [token]
        self._heap: list[tuple[int, int, Live]] = []  # those that decode, by when they are done
        self.partial: deque[Live] = deque()  # admitted, and not read to the end
        self.waiting: deque[Live] = deque()
        self.running: dict[Live, None] = {}  # admitted, by when
        self.blocked = False  # whether the first that waits found no memory
        self._ended: Callable[[Live, float], None] = tally.finish
        self._last = 0.0  # when the last decode step ended [s]
        self._mark: tuple[int, int, float] | None = None  # the state that it was computed in
        self._soonest = 0.0  # when a request can be done at the earliest [s]
        self._step = 0.0  # how long the last step took, of steps without a pause [s]
        self._fresh: list[Live] = []  # those that joined since then
        self.busy = self.states = self.taken = self.worked = (
            0.0  # [s], and times [s] of tokens, of memory, of sequences
        )
        self.most = 0.0  # most memory that was taken
        self.steps = self.preempted = self.peak = 0

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.running and not self.waiting

    @property
    def full(self) -> bool:
        """Whether one more that comes would have to wait in any case, until some request is done."""
        return self.blocked or len(self.running) >= self.limits.sequences

    @property
    def turn(self) -> int:
        """Whose turn it is among those that wait: the first, or who shares the longest prefix."""
        if self.limits.order != SHARED or self.cache is None or len(self.waiting) < 2:  # noqa: PLR2004 - a choice of two
            return 0
        return shared_first((live.job for live in self.waiting), self.cache)

    @property
    def decoding(self) -> int:
        """Tokens of a step that those take which decode. [token]"""
        return self.count * self.limits.each

    def soonest(self) -> float:
        """When a request can be done at the earliest: were all that decode to do nothing else. [s]"""
        if self.partial or self.waiting or not self.count:
            return self.clock
        mark = self.ticks, self.count, self.clock
        if self._mark != mark:
            _, seconds = self.times.run(self.count, self.held, self._next() - self.ticks, inf, self.limits.gain)
            self._mark, self._soonest = mark, self.clock + seconds
        return self._soonest

    def read_alone(self, policy: Policy) -> None:
        """It reads prompts, and others decode."""
        self.policy, self.limits = policy, replace(self.limits, reads=True)

    def on_end(self, ended: Callable[[Live, float], None]) -> None:
        """What is done with a request at its last token here."""
        self._ended = ended

    def receive(self, live: Live, now: float) -> None:
        """A request comes."""
        if not self.running and not self.waiting and self.clock < now:
            self.clock, self._step = now, 0.0
        if live.computed:  # from another pool
            live.since = now
        self.waiting.append(live)

    def advance(self, horizon: float) -> None:
        """One step, or decode steps in a row until a request is done, memory runs out or the horizon is reached."""
        if self.policy.mixes and self.count and not self.memory.room(1):
            self._make_room()
        chunks = self.policy.chunks(self)
        if chunks:
            self._mixed(chunks, self.count if self.policy.mixes else 0)
        elif self.count:
            heedless = self.limits.alone and (self.full or self.policy.deaf)
            self._decode(inf if heedless else horizon - self.clock)

    def admit(self) -> Live | None:
        """The next that waits, with its room in memory; None where there is none, or no room."""
        waiting = self.waiting
        while waiting and not self.full:
            at = self.turn
            live = waiting[at]
            if not self.memory.admit(live):
                self.blocked = True
                return None
            del waiting[at]
            self.running[live] = None
            self.peak = max(self.peak, len(self.running))
            self.series.wait(live.since, self.clock)
            if live.queued < 0:
                live.queued = self.clock
                if self.cache is not None:
                    self._found(live)
            if live.computed < live.todo:
                self.partial.append(live)
                return live
            if live.swapped:  # its cache comes back from the host's memory, or came from another pool
                self._copy(live.todo)
                live.swapped = False
            self._join(live)
        return None

    def _found(self, live: Live) -> None:
        """Notes what a prefix cache had of a prompt."""
        tally = self.tally
        tally.asked_tokens += live.job.prompt
        tally.asked_ids += len(live.job.hashes)
        if live.hit is not None:
            tally.hit_tokens += live.hit[0]
            tally.hit_ids += live.hit[1]

    def _mixed(self, chunks: list[tuple[Live, int]], rows: int) -> None:
        """A step of pieces of prompts, and of so many sequences that decode."""
        pieces: list[Chunk] = [(new, live.computed, live.computed + new >= live.todo) for live, new in chunks]
        start = self.clock
        seconds = self._step = self.times.mixed(rows, self.held, pieces, self._step)
        self.clock = start + seconds
        ended = sum(last for _, _, last in pieces) * self.limits.rows  # each makes its first token
        self._note((seconds, 1), sum(piece[0] for piece in pieces), rows, ended, self.memory.taken)
        if rows:
            self._gaps(start, seconds, 1)
            self.ticks += 1
            self.held += rows * self.limits.gain
            self.memory.grow(1)
            self._done()
        for live, new in chunks:
            live.computed += new
            if live.computed >= live.todo:
                self.partial.remove(live)
                self._read(live)

    def _decode(self, limit: float) -> None:
        """Decode steps in a row."""
        steps = self.memory.room(self._next() - self.ticks)
        if not steps:
            self._make_room()
            return
        count, limits = self.count, self.limits
        steps, seconds = self.times.run(count, self.held, steps, max(limit, 0.0), limits.gain, GROWTH)
        start, self._step = self.clock, seconds / steps
        self.clock = start + seconds
        taken = self.memory.taken
        self.memory.grow(steps)
        self._note((seconds, steps), 0, count * steps, 0, taken)
        self._gaps(start, seconds, steps)
        self.ticks += steps
        self.held += count * steps * limits.gain
        self._done()

    def _make_room(self) -> bool:
        """Makes room for a decode step by setting back the last that came; False where none is left that decodes."""
        while self.count and not self.memory.room(1):
            self._set_back()
        return self.count > 0

    def _next(self) -> int:
        """Decode steps at which the next request is done."""
        heap = self._heap
        while heap[0][2].finish != heap[0][0]:
            heappop(heap)
        return heap[0][0]

    def _note(self, time: tuple[float, int], read: int, made: int, ended: int, before: float) -> None:
        """What a time was spent on.

        Args:
            time: its length, and how many steps. [s]
            read: tokens of prompts. [token]
            made: sequences that decoded, times steps.
            ended: sequences that got their first token.
            before: memory that was taken when it began; it grows evenly to what is taken now.
        """
        seconds, steps = time
        running, now = len(self.running), self.memory.taken
        taken = (before + now) / 2
        self.busy += seconds
        self.steps += steps
        self.worked += running * seconds
        self.taken += taken * seconds
        self.most = max(self.most, now)
        self.states += (self.held + made * self.limits.gain / 2) * seconds
        if self.partial:
            self.states += sum([live.computed for live in self.partial]) * seconds
        self.series.add(self.clock - seconds, self.clock, (running, 0.0, taken), read, made * self.limits.gain + ended)

    def _gaps(self, start: float, seconds: float, steps: int) -> None:
        """Times between tokens: of the first step also what those that decode waited before it."""
        gaps, count, gain = self.tally.gaps, self.count, self.limits.gain
        each, fresh = seconds / steps, self._fresh
        if start > self._last or any(live.token < start for live in fresh):
            new = [live.token for live in fresh if live.finish >= 0]
            old = count - len(new) * self.limits.rows
            if old > 0:
                gaps.add((start - self._last + each) / gain, old)
            for when in new:
                gaps.add((start - when + each) / gain, self.limits.rows)
            steps -= 1
        fresh.clear()
        if steps:
            gaps.add(each / gain, count * steps)
        self._last = self.clock

    def _read(self, live: Live) -> None:
        """A prompt is read to the end, which makes a token."""
        if live.first < 0:
            live.first = self.clock
        else:  # it was set back, and goes on
            self.tally.gaps.add(self.clock - live.token, self.limits.rows)
        live.token = self.clock
        live.made += 1
        if live.made >= live.output or self.limits.reads:
            self._leave(live, live.todo)
            self._ended(live, self.clock)
            return
        self._join(live)

    def _join(self, live: Live) -> None:
        """A request decodes from now on."""
        live.context, live.joined = live.todo, self.ticks
        live.finish = self.ticks + ceil((live.output - live.made) / self.limits.gain - 1e-9)
        heappush(self._heap, (live.finish, live.order, live))
        self.count += self.limits.rows
        self.held += live.todo * self.limits.rows
        self.memory.join(live)
        self._fresh.append(live)

    def pad(self) -> None:
        """All that decode do so until the last of them is done, as in a batch that is one tensor."""
        batch = [(order, live) for finish, order, live in self._heap if live.finish == finish]
        last = max(live.finish for _, live in batch)
        for _, live in batch:
            live.finish = last
        self._heap = [(last, order, live) for order, live in batch]

    def _done(self) -> None:
        """Ends requests that have all their tokens."""
        heap, ticks = self._heap, self.ticks
        while heap and heap[0][0] <= ticks:
            finish, _, live = heappop(heap)
            if finish == live.finish:
                self._unjoin(live)
                self._leave(live, self._context(live))
                self._ended(live, self.clock)

    def _context(self, live: Live) -> int:
        """Tokens that a request holds which decodes."""
        made = int((self.ticks - live.joined) * self.limits.gain)
        return live.context + made

    def _unjoin(self, live: Live) -> None:
        """A request decodes no more."""
        self.count -= self.limits.rows
        self.held -= (live.context + (self.ticks - live.joined) * self.limits.gain) * self.limits.rows
        if not self.count:
            self.held = 0.0

    def _leave(self, live: Live, context: int) -> None:
        """A request gives up its place and its memory."""
        self.memory.free(live, context)
        del self.running[live]
        live.joined = live.finish = -1
        self.blocked = False

    def _set_back(self) -> None:
        """The last that came gives up its memory, and waits before all others."""
        live = next(reversed(self.running))
        joined, context = live.finish >= 0, live.computed
        if joined:
            context = self._context(live)
            made = live.made + context - live.context
            live.token = self._last if context > live.context else live.token
            self._unjoin(live)
            self._leave(live, context)
            live.made = min(made, live.output - 1)  # what a padded batch makes beyond the answer is no one's
            context -= made - live.made
        else:
            self.partial.remove(live)
            self._leave(live, live.todo)
        tally = self.tally
        self.preempted += 1
        tally.preemptions += 1
        live.since = self.clock
        self.waiting.appendleft(live)
        self.blocked = bool(self.running)
        if self.limits.preemption == SWAP and joined:
            live.todo, live.computed, live.swapped = context, context, True
            self._copy(context)
            return
        tally.recomputed += context
        live.todo, live.computed = live.job.prompt + live.made, 0

    def _copy(self, tokens: int) -> None:
        """The cache of so many tokens goes over the link to the host, and the replica waits for it."""
        size = tokens * self.limits.token_bytes
        self.tally.swapped += size
        seconds, start, running, taken = size / self.limits.host_link, self.clock, len(self.running), self.memory.taken
        self.clock += seconds
        self.busy += seconds
        self.worked += running * seconds
        self.taken += taken * seconds
        self.states += self.held * seconds
        self.series.add(start, self.clock, (running, 0.0, taken), 0.0, 0.0)
