"""The memory that requests' caches take: blocks that grow with them, or one contiguous reservation for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.serving.contiguous import RESERVATIONS, make_arena

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.serving.live import Live
    from roofcast.calculators.serving.prefix import PrefixCache

PAGED: Final = "paged"


@dataclass(frozen=True, slots=True)
class Pool:
    """A replica's memory for caches, before any request.

    Args:
        tokens: that it holds. [token]
        block: tokens of a block. [token]
        blocks: of the pool; those that tokens fill, and those of windows and states alike.
        per: blocks that a block's worth of a request's tokens takes: one of each group of layers that keep all.
        beside: blocks that a request of so many tokens takes beside, for windows and states.
        token_bytes: of a token on all devices of a replica, as it goes over a link. [B]
        longest: tokens of the longest request. [token]
    """

    tokens: int
    block: int
    blocks: int
    per: int
    beside: Callable[[int], int]
    token_bytes: float
    longest: int


class Memory(Protocol):
    """What a replica asks of its memory, in a unit of its own: blocks, or tokens of reservations."""

    @property
    def capacity(self) -> float:
        """All of it."""

    @property
    def taken(self) -> float:
        """What running requests take."""

    def fits(self, prompt: int, output: int) -> bool:
        """Whether a request would fit were it alone."""

    def admit(self, live: Live) -> bool:
        """Takes room for a request's `todo` tokens; False where there is none."""

    def join(self, live: Live) -> None:
        """A request that has its room decodes from now on."""

    def room(self, steps: int) -> int:
        """Of so many decode steps, how many can be done before memory runs out."""

    def grow(self, steps: int) -> None:
        """All that decode have done so many steps more."""

    def free(self, live: Live, context: int) -> None:
        """A request of so many tokens leaves."""


@dataclass(frozen=True, slots=True)
class Paging:
    """How a pool's blocks are handed out.

    Args:
        reserve: of the tokens that running requests may yet make, the share whose blocks must be free where one more is
            admitted. [-]
        own: the same share of the tokens that the one itself may make; None is as of the others. [-]
        clip: of which no more count than so many; None is all. [token]
        rows: samples of a request, which share its prompt and write their own.
        grows: whether blocks are taken as tokens come; else all of a request's as it is admitted.
        beams: blocks of all beams of a request of so many prompt and further tokens; None without beams.
    """

    reserve: float = 0.0
    own: float | None = None
    clip: int | None = None
    rows: int = 1
    grows: bool = True
    beams: Callable[[int, int], float] | None = None


class Blocks:
    """Paged memory: a block more each time that a request's last one is full.

    Requests that decode gain a token in each step, so that those whose last block is full after so many steps, modulo
    its size, ask for a block together: they are counted, and any number of steps is one sum.

    Args:
        pool: the memory.
        paging: how it is handed out.
        cache: of prefixes; None without.
        apart: whether the cache has a memory of its own, which never ends.
    """

    __slots__ = (
        "_block",
        "_due",
        "_future",
        "_own",
        "_paging",
        "_per",
        "_pool",
        "_rows",
        "_step",
        "_weight",
        "cache",
        "taken",
        "used",
    )

    def __init__(self, pool: Pool, paging: Paging, cache: PrefixCache | None = None, *, apart: bool = False) -> None:
        self._pool, self._paging, self.cache = pool, paging, cache
        self._own = cache if not apart else None  # the cache whose blocks are of this memory
        self._block, self._per = pool.block, pool.per
        self._weight = float(pool.per * paging.rows)
        self._due = [0.0] * pool.block  # blocks that are due after so many steps, modulo the block
        self._step = 0  # decode steps so far
        self._rows = 0.0  # blocks that are due in a whole round of the block
        self._future = 0.0  # blocks that admitted requests will yet ask for
        self.used = 0.0  # blocks of running requests that no cache holds
        self.taken = 0.0  # and those that it holds, shared ones once

    @property
    def capacity(self) -> float:
        """Blocks."""
        return self._pool.blocks

    def _filled(self, tokens: int) -> int:
        return -(-tokens // self._block) * self._per

    def _grown(self, before: int, after: int) -> float:
        """Blocks that a request takes between two contexts, in all its samples."""
        return (self._filled(after) - self._filled(before)) * self._paging.rows

    def fits(self, prompt: int, output: int) -> bool:
        """Whether a request would fit were it alone."""
        last = prompt + output - 1
        need = self._filled(prompt) + self._beside(prompt, prompt, last)
        return need + self._grown(prompt, last) <= self._pool.blocks

    def _beside(self, prompt: int, todo: int, last: int) -> float:
        """What a request takes beside the blocks of its tokens: windows, states, what beams do not share, and copies.

        Of a last block of `todo` tokens that is not full each sample has its own, since it writes to it.
        """
        beams, more = self._paging.beams, 0.0
        if beams is not None and last > prompt:
            more = max(0.0, beams(prompt, last - prompt) * self._per - self._filled(last))
        copies = self._weight - self._per if todo % self._block and last > todo else 0.0
        return self._pool.beside(last) * self._paging.rows + more + copies

    def admit(self, live: Live) -> bool:
        """Takes the blocks of all that is to be computed, less those of a prefix that is there."""
        pool, cache, paging = self._pool, self.cache, self._paging
        need = self._filled(live.todo) + self._beside(live.job.prompt, live.todo, live.last)
        later = self._grown(live.todo, live.last)
        if not paging.grows:
            need, later = need + later, 0.0
        found, covered, fresh = None, 0, need
        if cache is not None and live.job.hashes and not live.made:
            found = cache.match(live.job.hashes, live.job.prompt)
            if self._own is not None:
                covered = self._filled(found.covered)
                fresh = max(0, need - covered) + (found.new + found.revived) * self._per
        soon = self._due[(self._step + 1) % self._block]  # what the next step takes
        if fresh + soon + self._expected(live, later, soon) > pool.blocks - self.taken:
            return False
        mine = max(0, need - covered)
        self.used += mine
        if found is not None and cache is not None:
            live.lease = cache.take(found)
            live.computed = min(found.hit_tokens, live.todo - 1)
            live.hit = found.hit_tokens, found.hit_ids
        self._count()
        live.blocks = mine, later
        self._future += later
        return True

    def _expected(self, live: Live, later: float, soon: float) -> float:
        """Blocks that must be free for tokens to come, as admission counts them, beside those of the next step."""
        paging = self._paging
        if later and paging.clip is not None and live.last - live.todo > paging.clip:
            later = self._grown(live.todo, live.todo + paging.clip)
        own = (paging.reserve if paging.own is None else paging.own) * later
        if live.computed >= live.todo and paging.grows and not live.todo % self._block:
            own = max(own, self._weight)  # it decodes in the next step, and its last block is full
        return paging.reserve * max(0.0, self._future - soon) + own

    def _count(self) -> None:
        """Counts what is taken; the cache gives up what running requests need."""
        own = self._own
        if own is None:
            self.taken = self.used
            return
        self.taken = self.used + own.held * self._per
        own.trim(max(0, int(self._pool.blocks - self.taken) // self._per))

    def join(self, live: Live) -> None:
        """A request grows from its context on."""
        if self._paging.grows:
            self._due[(self._step - live.context + 1) % self._block] += self._weight
            self._rows += self._weight

    def room(self, steps: int) -> int:
        """Steps until blocks run out, counted residue by residue where it is near."""
        free, rows, block = max(0.0, self._pool.blocks - self.taken), self._rows, self._block
        if (steps // block + 1) * rows <= free:
            return steps
        whole = int(free // rows)
        done, free, at, due = whole * block, free - whole * rows, self._step, self._due
        while done < steps:
            free -= due[(at + done + 1) % block]
            if free < 0:
                return done
            done += 1
        return steps

    def grow(self, steps: int) -> None:
        """Blocks of so many steps."""
        whole, rest = divmod(steps, self._block)
        more = whole * self._rows
        if rest:
            first = (self._step + 1) % self._block
            last, due = first + rest, self._due
            more += sum(due[first:last])
            if last > self._block:
                more += sum(due[: last - self._block])
        self._step += steps
        if more:
            self.used += more
            self._future = max(0.0, self._future - more)
            self._count()

    def free(self, live: Live, context: int) -> None:
        """All blocks of a request; those of its prefix are kept by the cache."""
        own, later = live.blocks
        grown = 0.0
        if live.joined >= 0 and self._paging.grows:
            self._due[(live.joined - live.context + 1) % self._block] -= self._weight
            self._rows -= self._weight
            grown = self._grown(live.context, context)
        self._future = max(0.0, self._future - max(0.0, later - grown))
        self.used -= own + grown
        live.blocks = None
        if live.lease is not None and self.cache is not None:
            self.cache.release(live.lease)
            live.lease = None
        self._count()


class Contiguous:
    """One piece of memory for each request, reserved as it is admitted.

    Args:
        pool: the memory.
        kind: max, pow2 or oracle.
    """

    __slots__ = ("_arena", "_pool", "_size")

    def __init__(self, pool: Pool, kind: str) -> None:
        self._pool, self._size = pool, RESERVATIONS[kind]
        self._arena = make_arena(kind, pool.tokens, pool.longest)

    @property
    def capacity(self) -> float:
        """Tokens."""
        return self._pool.tokens

    @property
    def taken(self) -> float:
        """Tokens of all pieces, as the allocator rounds them."""
        return self._arena.taken

    def fits(self, prompt: int, output: int) -> bool:
        """Whether a request's piece is no larger than all of it."""
        return self._size(prompt, output, self._pool.longest) <= self._arena.most

    def admit(self, live: Live) -> bool:
        """Takes a piece for all that it may become."""
        live.blocks = self._arena.take(self._size(live.job.prompt, live.output, self._pool.longest))
        return live.blocks is not None

    def join(self, live: Live) -> None:
        """Its place is there already."""

    def room(self, steps: int) -> int:
        """All of them: nothing is taken in a step."""
        return steps

    def grow(self, steps: int) -> None:
        """Nothing is taken in a step."""

    def free(self, live: Live, context: int) -> None:  # noqa: ARG002 - a piece is given back whole
        """Its piece."""
        self._arena.give(live.blocks)
        live.blocks = None
