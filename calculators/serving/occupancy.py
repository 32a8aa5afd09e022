"""What share of the KV memory holds tokens' states while it is as full of requests as it can be.

A replay without times: requests are admitted first come first served as long as there is room, each that is admitted
holds one token more every step, and leaves when it holds all of its prompt and output. Only the order of admission
matters, so that no model of time is needed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.blocks import blocks_for, check_block
from roofcast.calculators.serving.contiguous import RESERVATIONS, make_arena

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PAGED: Final = "paged"
WARM: Final = 2  # requests that leave before the measurement, as a multiple of what the first step admits
WATERMARK: Final = 0.01  # of all blocks, which admissions leave free. Source: vLLM 0.2, block_manager.py


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Where the KV memory goes, in the mean over steps: `states`, `to_come`, `never` and `external` sum to 1.

    Source: the split is that of Kwon et al. 2023, arXiv:2309.06180, section 3.1 and figure 2.
    """

    kind: str
    """paged, max, pow2 or oracle."""
    block: int | None
    """Tokens of a block; None of contiguous reservations. [token]"""
    states: float
    """Share of the memory that holds tokens' states. [-]"""
    to_come: float
    """Share that is kept for tokens that running requests will yet make (reservation). [-]"""
    never: float
    """Share that is kept for tokens that never come (internal fragmentation). [-]"""
    external: float
    """Share that no request has, and what pieces are rounded up by (external fragmentation and others). [-]"""
    rounded: float
    """Of the memory the part of `external` by which pieces are larger than what was asked for. [-]"""
    running: float
    """Requests in memory, in the mean."""
    steps: int
    """Steps that were measured: after the warm-up, as long as requests wait."""
    served: int
    """Requests that were served, measured or not."""
    refused: int
    """Requests whose prompt leaves no room for a token in the longest length, or that the memory can never hold."""
    cut: int
    """Requests whose output was cut at the longest length."""
    preempted: int
    """Times that a request was set back for want of blocks, to be computed anew."""


def occupancy(lengths: Iterable[tuple[int, int]], memory: int, longest: int, kind: str, block: int = 16) -> Occupancy:
    """Replay requests through a memory that is always asked for more than it has.

    A request of prompt p and output o holds p + 1 tokens in the step that admits it and p + o in its last. Blocks are
    taken as tokens fill them; where none is left, the requests that came last are set back, and nothing is admitted in
    that step. It is measured from when twice as many requests have left as the first step admits, until none waits.

    Args:
        lengths: prompt and output of each request in the order in which they come, read as they are needed. [token]
        memory: what it holds. [token]
        longest: prompt and output of a request together at most. [token]
        kind: paged, or one of `RESERVATIONS`.
        block: what a block holds, where it is paged. [token]

    Raises:
        UsageError: an unknown kind, a block outside 1-256, lengths below 1, a memory too small for anything, or too
            few requests to keep it full.

    >>> found = occupancy([(96, 32)] * 64, 1024, 256, "max")  # 4 places of 256; 96 + 16.5 tokens in the mean
    >>> found.states, found.to_come, found.never, found.running
    (0.439453125, 0.060546875, 0.5, 4.0)
    """
    queue, room, replay = _Queue(lengths, longest), _room(kind, memory, longest, block), _Replay()
    while replay.running or queue.peek() is not None:
        replay.step(queue, room)
    if not replay.steps:
        few = f"{replay.served:,} requests do not keep a KV memory of {memory:,} tokens full"
        raise UsageError(f"{few} ({queue.refused:,} are refused); give some times as many")
    measured = replay.steps * memory
    states, to_come, never = replay.states / measured, replay.to_come / measured, replay.never / measured
    return Occupancy(
        kind=kind,
        block=block if kind == PAGED else None,
        states=states,
        to_come=to_come,
        never=never,
        external=1 - states - to_come - never,
        rounded=replay.rounded / measured,
        running=replay.ran / replay.steps,
        steps=replay.steps,
        served=replay.served,
        refused=queue.refused,
        cut=queue.cut,
        preempted=replay.preempted,
    )


class _Request:
    """A request, in memory or before: it holds began + 1 tokens in the step `since`, one more in every next."""

    __slots__ = ("began", "end", "handle", "leaves", "number", "since")

    def __init__(self, number: int, prompt: int, end: int) -> None:
        self.number: Final = number  # order in which it came
        self.began = prompt  # tokens that it had when it was admitted
        self.end: Final = end  # tokens when it is done
        self.since = 0  # step that admitted it
        self.leaves = 0  # first step without it
        self.handle = 0


class _Room(Protocol):
    """A kind of memory, its counts those of the step in progress. [token]"""

    states: int
    to_come: int
    never: int

    @property
    def rounded(self) -> int: ...
    def holds(self, request: _Request) -> bool: ...
    def admit(self, request: _Request, *, alone: bool) -> bool: ...
    def leave(self, request: _Request) -> None: ...
    def grow(self, step: int, running: dict[int, _Request]) -> Sequence[_Request]: ...


class _Queue:
    """Requests that wait: those that were set back before those that come."""

    __slots__ = ("_back", "_coming", "_longest", "_number", "cut", "refused")

    def __init__(self, lengths: Iterable[tuple[int, int]], longest: int) -> None:
        self._coming: Final = iter(lengths)
        self._longest: Final = longest
        self._back: deque[_Request] = deque()
        self._number = self.cut = self.refused = 0

    def peek(self) -> _Request | None:
        """The first that waits, None where all have come and none waits."""
        if not self._back:
            for prompt, output in self._coming:
                self._number += 1
                if prompt < 1 or output < 1:
                    raise UsageError(f"request {self._number:,} has {prompt} + {output} tokens; give 1 or more of each")
                if prompt < self._longest:
                    self.cut += prompt + output > self._longest
                    self._back.append(_Request(self._number, prompt, min(prompt + output, self._longest)))
                    break
                self.refused += 1
        return self._back[0] if self._back else None

    def take(self) -> None:
        """Take the first."""
        self._back.popleft()

    def refuse(self) -> None:
        """Send the first away."""
        self._back.popleft()
        self.refused += 1

    def put_back(self, request: _Request) -> None:
        """Put one before all others."""
        self._back.appendleft(request)


class _Replay:
    """Steps, and sums over those that are measured. [token]"""

    __slots__ = (
        "_freed", "_leaving", "_now", "_warm", "never", "preempted", "ran", "rounded", "running", "served", "states",
        "steps", "to_come",
    )  # fmt: skip

    def __init__(self) -> None:
        self.running: dict[int, _Request] = {}  # in order of arrival
        self._leaving: dict[int, dict[int, _Request]] = {}  # by step
        self._now = self._warm = 0
        self._freed = True  # something has left since the last admission was tried
        self.states = self.to_come = self.never = self.rounded = 0
        self.steps = self.ran = self.served = self.preempted = 0

    def step(self, queue: _Queue, room: _Room) -> None:
        """Let those that are done leave, the others grow, and others in; measure."""
        self._now += 1
        done = self._leaving.pop(self._now, None)
        if done:
            for request in done.values():
                del self.running[request.number]
                room.leave(request)
            self.served += len(done)
        back = room.grow(self._now, self.running)
        for request in back:
            del self._leaving[request.leaves][request.number]
            queue.put_back(request)
        self.preempted += len(back)
        self._freed = self._freed or bool(done or back)
        if self._freed and not back:
            self._admit(queue, room)
            self._freed = False
        self._warm = self._warm or WARM * len(self.running)
        if self.served >= self._warm and queue.peek() is not None:
            self.states += room.states
            self.to_come += room.to_come
            self.never += room.never
            self.rounded += room.rounded
            self.ran += len(self.running)
            self.steps += 1

    def _admit(self, queue: _Queue, room: _Room) -> None:
        """Let in who waits, in order, as long as there is room."""
        while (request := queue.peek()) is not None:
            if not room.holds(request):
                queue.refuse()
                continue
            request.since, request.leaves = self._now, self._now + request.end - request.began
            if not room.admit(request, alone=not self.running):
                return
            queue.take()
            self.running[request.number] = request
            self._leaving.setdefault(request.leaves, {})[request.number] = request


class _Pieces:
    """A piece for all tokens of a request, from an arena."""

    __slots__ = ("_arena", "_longest", "_reserve", "never", "states", "to_come")

    def __init__(self, kind: str, memory: int, longest: int) -> None:
        self._arena: Final = make_arena(kind, memory, longest)
        self._reserve: Final = RESERVATIONS[kind]
        self._longest: Final = longest
        self.states = self.to_come = self.never = 0

    @property
    def rounded(self) -> int:
        return self._arena.taken - self._arena.asked

    def _asked(self, request: _Request) -> int:
        return self._reserve(request.began, request.end - request.began, self._longest)

    def holds(self, request: _Request) -> bool:
        return self._asked(request) <= self._arena.most

    def admit(self, request: _Request, *, alone: bool) -> bool:  # noqa: ARG002 - the other kind's
        asked = self._asked(request)
        handle = self._arena.take(asked)
        if handle is None:
            return False
        request.handle = handle
        self.states += request.began + 1
        self.to_come += request.end - request.began - 1
        self.never += asked - request.end
        return True

    def leave(self, request: _Request) -> None:
        self._arena.give(request.handle)
        self.states -= request.end
        self.never -= self._asked(request) - request.end

    def grow(self, step: int, running: dict[int, _Request]) -> Sequence[_Request]:  # noqa: ARG002 - likewise
        self.states += len(running)
        self.to_come -= len(running)
        return ()


class _Blocks:
    """Blocks as tokens fill them; who needs one in a step is found by the step modulo the block."""

    __slots__ = ("_block", "_due", "_free", "_spare", "_total", "never", "states", "to_come")

    rounded: Final = 0

    def __init__(self, memory: int, block: int) -> None:
        self._block: Final = check_block(block)
        self._total: Final = memory // block
        if not self._total:
            raise UsageError(f"a memory of {memory:,} tokens has no room for one block of {block}; give more memory")
        self._free = self._total
        self._spare: Final = int(WATERMARK * self._total)
        self._due: list[dict[int, _Request]] = [{} for _ in range(block)]
        self.states = self.to_come = self.never = 0

    def holds(self, request: _Request) -> bool:
        return blocks_for(request.end, self._block) <= self._total

    def admit(self, request: _Request, *, alone: bool) -> bool:
        need = request.began // self._block + 1
        if need > self._free - (0 if alone else self._spare):
            return False
        self._count(request, request.began + 1, 1)
        self._due[self._class(request)][request.number] = request
        return True

    def leave(self, request: _Request) -> None:
        del self._due[self._class(request)][request.number]
        self._count(request, request.end, -1)

    def grow(self, step: int, running: dict[int, _Request]) -> Sequence[_Request]:
        back: list[_Request] = []
        due = self._due[step % self._block]
        for request in list(due.values()) if due else ():  # in order of arrival
            while not self._free and request.number in running:
                back.append(self._set_back(step, running))
            if request.number in running:
                kept = min(self._block, request.end - request.began - (step - request.since))
                self._free -= 1
                self.to_come += kept
                self.never += self._block - kept
        self.states += len(running)
        self.to_come -= len(running)
        return back

    def _set_back(self, step: int, running: dict[int, _Request]) -> _Request:
        """Take all blocks from who came last, which has not grown in this step."""
        _, request = running.popitem()
        del self._due[self._class(request)][request.number]
        held = request.began + step - request.since
        self._count(request, held, -1)
        request.began = held
        return request

    def _class(self, request: _Request) -> int:
        return (request.since - request.began) % self._block

    def _count(self, request: _Request, held: int, sign: int) -> None:
        """Add or take away a request that holds so many tokens, and what is left of its last block."""
        blocks = blocks_for(held, self._block)
        last = min(blocks * self._block, request.end)
        self._free -= sign * blocks
        self.states += sign * held
        self.to_come += sign * (last - held)
        self.never += sign * (blocks * self._block - last)


def _room(kind: str, memory: int, longest: int, block: int) -> _Room:
    if kind == PAGED:
        return _Blocks(memory, block)
    if kind not in RESERVATIONS:
        raise UsageError(f"no KV memory {kind!r}; known: {', '.join(chain((PAGED,), RESERVATIONS))}")
    return _Pieces(kind, memory, longest)
