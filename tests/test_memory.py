"""Blocks and reservations as a replica asks for them: what is taken, what there is room for, and what is given back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.serving.beams import BeamBlocks
from roofcast.calculators.serving.blocks import blocks_of_samples
from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.live import Live
from roofcast.calculators.serving.memory import Blocks, Contiguous, Paging, Pool
from roofcast.calculators.serving.prefix import BlockCache
from tests.serving_cases import nothing_beside

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.serving.memory import Memory


def pool(tokens: int, block: int = 4, **changes: Any) -> Pool:
    """Return a memory of so many tokens."""
    beside: Callable[[int], int] = changes.pop("beside", nothing_beside)
    return Pool(tokens, block, tokens // block, changes.pop("per", 1), beside, 1.0, changes.pop("longest", 64))


@dataclass
class Clock:
    """Decode steps, as a replica counts them for its requests."""

    memory: Memory
    ticks: int = 0
    orders: int = 0
    decoding: list[Live] = field(default_factory=list)

    def come(self, prompt: int, output: int, hashes: tuple[int, ...] = ()) -> Live | None:
        """Let a request come, be read and decode; None where it has no room."""
        self.orders += 1
        live = Live(Job(0.0, prompt, output, hashes), output, self.orders)
        if not self.memory.admit(live):
            return None
        self.join(live)
        return live

    def join(self, live: Live) -> None:
        """Let a request that is read decode."""
        live.made += 1
        live.context, live.joined = live.todo, self.ticks
        self.memory.join(live)
        self.decoding.append(live)

    def steps(self, count: int) -> float:
        """Let all decode so many steps; what is taken then."""
        assert self.memory.room(count) == count
        self.memory.grow(count)
        self.ticks += count
        return self.memory.taken

    def go(self, live: Live) -> float:
        """Let a request leave; what is taken then."""
        self.memory.free(live, live.context + self.ticks - live.joined)
        live.joined = -1
        self.decoding.remove(live)
        return self.memory.taken


def test_a_block_is_taken_when_the_last_one_is_full() -> None:
    """Of 6 tokens in blocks of 4: two, and a third at the ninth token."""
    clock = Clock(Blocks(pool(40), Paging()))
    live = clock.come(6, 20)
    assert live is not None

    taken = [clock.memory.taken, *(clock.steps(1) for _ in range(7))]

    assert taken == [2, 2, 2, 3, 3, 3, 3, 4]
    assert clock.go(live) == 0


def test_many_steps_are_one_sum() -> None:
    """Requests of 6 and 7 tokens after 9 steps: 15 and 16 tokens, four blocks each; after one more 16 and 17."""
    clock = Clock(Blocks(pool(400), Paging()))
    clock.come(6, 20)
    clock.steps(1)
    clock.come(7, 20)

    assert clock.steps(8) == 8
    assert clock.steps(1) == 8
    assert clock.steps(1) == 9 + 1


def test_room_ends_with_the_step_that_finds_no_block() -> None:
    """Ten blocks of 4, two requests of 4 and 6 tokens: 40 tokens at most, of which a block each is asked for in turn."""
    memory = Blocks(pool(40), Paging())
    clock = Clock(memory)
    clock.come(4, 30)
    clock.come(6, 30)

    # blocks: 1 + 2; the first asks at steps 1, 5, 9, 13 ..., the second at 3, 7, 11, 15: the eighth ask is at 15
    assert [memory.room(steps) for steps in (1, 14, 15, 100)] == [1, 14, 14, 14]
    assert clock.steps(14) == 10
    assert memory.room(1) == 0


def test_who_would_take_the_next_step_s_block_has_to_wait() -> None:
    """Two of three blocks are taken, and the next step needs the third."""
    clock = Clock(Blocks(pool(12), Paging()))
    clock.come(8, 4)

    assert clock.come(4, 1) is None
    assert clock.steps(1) == 3


def test_a_reserve_keeps_blocks_for_what_is_to_come() -> None:
    """Of 10 blocks a request of 4 and 13 tokens takes one now and three later: two of these fit, a third with no reserve."""
    admitted = {}
    for reserve in (0.0, 0.5, 1.0):
        clock = Clock(Blocks(pool(40), Paging(reserve=reserve)))
        admitted[reserve] = sum(clock.come(4, 13) is not None for _ in range(9))

    # none of it: n now, and n in the next step; half: n + n + 0.5 (3 n - n) <= 10; all: 4 n <= 10
    assert admitted == {0.0: 5, 0.5: 3, 1.0: 2}


def test_the_one_that_comes_may_count_more_than_those_that_run() -> None:
    """Of its own tokens all count, or the first few; of the others' a share, as under SGLang."""
    admitted = {}
    for own, clip in ((0.0, None), (1.0, None), (1.0, 5)):
        clock = Clock(Blocks(pool(36), Paging(reserve=0.0, own=own, clip=clip)))
        admitted[own, clip] = sum(clock.come(4, 13) is not None for _ in range(9))

    # n now and in the next step n - 1: 2 n - 1 + own <= 9 with own of 0, 3 and 2 blocks (5 more tokens end in the third)
    assert admitted == {(0.0, None): 5, (1.0, None): 3, (1.0, 5): 4}


def test_what_was_kept_for_a_request_goes_with_it() -> None:
    """One that leaves long before it has all its tokens makes room for another."""
    clock = Clock(Blocks(pool(40), Paging(reserve=1.0)))
    for _ in range(50):
        live = clock.come(4, 33)
        assert live is not None
        assert clock.come(4, 33) is None
        clock.steps(3)
        assert clock.go(live) == 0


@pytest.mark.parametrize("rows", [2, 3])
def test_samples_do_not_use_up_a_reserve(rows: int) -> None:
    """One that fits alone always does, however many were before it."""
    clock = Clock(Blocks(pool(80), Paging(reserve=1.0, rows=rows)))
    for _ in range(50):
        live = clock.come(6, 9)
        assert live is not None
        clock.steps(8)
        assert clock.go(live) == 0


@pytest.mark.parametrize("prompt", [16, 20, 31])
def test_samples_share_the_prompt_s_full_blocks(prompt: int) -> None:
    """As block tables count them, after each token."""
    clock = Clock(Blocks(pool(16 * 400, 16), Paging(rows=4)))
    live = clock.come(prompt, 100)
    assert live is not None

    for made in range(1, 90):
        assert clock.steps(1) == blocks_of_samples(prompt, made, 4, 16)
    assert clock.go(live) == 0


def test_samples_fit_as_one_has_them_at_its_end() -> None:
    """Of a prompt of 20 and 14 tokens four samples hold 9 blocks in the end: 1 + 4 x 2."""
    assert Blocks(pool(9 * 16, 16), Paging(rows=4)).fits(20, 14)
    assert not Blocks(pool(8 * 16, 16), Paging(rows=4)).fits(20, 14)


def test_beams_take_all_that_they_will_at_once() -> None:
    """As the table says of their end."""
    memory = Blocks(pool(16 * 400, 16), Paging(rows=4, grows=False, beams=BeamBlocks(4, 16).at))
    clock = Clock(memory)
    live = clock.come(100, 201)
    assert live is not None

    assert memory.taken >= BeamBlocks(4, 16).at(100, 200)
    taken = memory.taken
    assert clock.steps(100) == taken
    assert clock.go(live) == pytest.approx(0)


def test_windows_and_states_stand_beside() -> None:
    """A request has its blocks, and as many as it says beside them, from its beginning on."""
    memory = Blocks(pool(40, beside=lambda context: 2 if context > 10 else 1), Paging())
    clock = Clock(memory)

    assert clock.come(4, 3) is not None
    assert memory.taken == 2
    assert clock.come(4, 12) is not None
    assert memory.taken == 5
    assert memory.fits(20, 9)  # 7 blocks and 2
    assert memory.fits(24, 9)  # 8 and 2
    assert not memory.fits(28, 6)  # 9 and 2


def test_groups_of_layers_have_blocks_of_their_own() -> None:
    """Three groups that keep all: three blocks where one was; of 12 tokens nine of ten blocks, and no more."""
    memory = Blocks(pool(40, per=3), Paging())
    clock = Clock(memory)
    live = clock.come(4, 9)
    assert live is not None

    assert memory.taken == 3
    assert clock.steps(1) == 6
    assert memory.room(100) == 7
    assert clock.go(live) == 0


# --- with a prefix cache


def test_two_that_share_a_prefix_hold_it_once() -> None:
    """Of 8 tokens and 8 with one block in common: three blocks, and one of their own each when they decode."""
    cache = BlockCache(4, 4)
    memory = Blocks(pool(40), Paging(), cache)
    clock = Clock(memory)
    first, second = clock.come(8, 5, (1, 2)), clock.come(8, 5, (1, 3))
    assert first is not None
    assert second is not None

    assert (memory.taken, second.computed, second.hit) == (3, 4, (4, 1))
    assert clock.steps(1) == 5
    clock.go(first)
    assert (memory.taken, cache.kept) == (3, 1)
    clock.go(second)
    assert (memory.taken, memory.used, cache.kept) == (0, 0, 3)


def test_what_is_kept_makes_room_for_tokens() -> None:
    """Three blocks kept of ten: eight decode steps of one of 4 tokens leave them, 28 do not."""
    cache = BlockCache(4, 4)
    memory = Blocks(pool(40), Paging(), cache)
    clock = Clock(memory)
    first = clock.come(12, 2, (1, 2, 3))
    assert first is not None
    clock.go(first)
    assert cache.kept == 3

    assert clock.come(4, 40) is not None
    clock.steps(8)
    assert (memory.taken, cache.kept) == (3, 3)
    assert memory.room(100) == 28
    clock.steps(28)
    assert (memory.taken, cache.kept, cache.evicted) == (10, 0, 12)


def test_a_cache_apart_takes_no_room() -> None:
    """Of a prompt that it holds no block is the request's own, and none is taken."""
    cache = BlockCache(4, 4)
    memory = Blocks(pool(8), Paging(), cache, apart=True)
    clock = Clock(memory)
    for number in range(20):
        live = clock.come(8, 1, (number, number + 100))
        assert live is not None
        clock.go(live)

    assert memory.taken == 0
    assert cache.kept == 40
    assert cache.match((3, 103), 8).hit_tokens == 8


# --- one piece a request


@pytest.mark.parametrize(
    ("kind", "piece"),
    # of a prompt of 20 and 25 tokens: the longest; 20 + 32, of a power of two; 45, of one too
    [("max", 64), ("pow2", 64), ("oracle", 64)],
)
def test_a_piece_is_reserved(kind: str, piece: int) -> None:
    """And is given back whole, whatever was made."""
    memory = Contiguous(pool(256), kind)
    clock = Clock(memory)
    live = clock.come(20, 25)
    assert live is not None

    assert memory.taken == piece
    assert memory.room(10**9) == 10**9
    assert clock.steps(7) == piece
    assert clock.go(live) == 0


def test_pieces_come_to_an_end() -> None:
    """Of 256 tokens: four of the longest, four of 52 in 64, eight of 30 in 32."""
    found = {}
    for kind, prompt, output in (("max", 1, 1), ("pow2", 20, 25), ("oracle", 20, 10)):
        clock = Clock(Contiguous(pool(256), kind))
        while clock.come(prompt, output) is not None:
            pass
        found[kind] = len(clock.decoding)

    assert found == {"max": 4, "pow2": 4, "oracle": 8}


def test_what_no_piece_holds_does_not_fit() -> None:
    """A memory of 100 has a piece of 64 at most."""
    memory = Contiguous(pool(100, longest=100), "oracle")

    assert memory.fits(60, 4)
    assert not memory.fits(60, 5)
