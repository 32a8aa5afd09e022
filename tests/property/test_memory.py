"""Laws of paged memory: blocks that are counted in sums are those that tables count one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.serving.blocks import blocks_of_samples
from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.live import Live
from roofcast.calculators.serving.memory import Blocks, Paging, Pool
from tests.serving_cases import nothing_beside

FAR: Final = 400  # decode steps that are looked ahead
SIZES: Final = st.sampled_from([1, 2, 3, 7, 16, 100, 256])


@dataclass
class Naive:
    """Requests of which each says how many blocks it holds after each token."""

    block: int
    rows: int
    made: dict[Live, int] = field(default_factory=dict)  # tokens since they decode; of those that are read none

    def held(self, more: int = 0) -> int:
        """Blocks of all requests, after so many steps more."""
        return sum(
            blocks_of_samples(live.todo, made + more if live.joined >= 0 else 0, self.rows, self.block)
            for live, made in self.made.items()
        )

    def room(self, blocks: int, steps: int) -> int:
        """Steps until there are more than so many blocks, one after the other."""
        return next((step for step in range(steps) if self.held(step + 1) > blocks), steps)


@dataclass
class Pair:
    """A memory and what it is held against."""

    memory: Blocks
    naive: Naive
    pool: Pool
    ticks: int = 0
    order: int = 0

    def come(self, prompt: int, output: int) -> None:
        """A request comes; it is let in where its blocks, and those of the next step, are there."""
        live = Live(Job(0.0, prompt, output), output, self.order)
        self.order += 1
        free = self.pool.blocks - self.naive.held(1)
        admitted = self.memory.admit(live)
        if -(-prompt // self.pool.block) > free:
            assert not admitted
        elif self.naive.rows == 1:
            assert admitted
        if admitted:
            self.naive.made[live] = 0

    def join(self, index: int) -> None:
        """One that is read decodes."""
        read = [live for live in self.naive.made if live.joined < 0]
        if not read:
            return
        live = read[index % len(read)]
        live.made += 1
        live.context, live.joined = live.todo, self.ticks
        self.memory.join(live)

    def grow(self, steps: int) -> None:
        """As many steps as there is room for."""
        room = self.memory.room(steps)
        if self.naive.rows == 1:
            assert room == self.naive.room(self.pool.blocks, steps)
        if not room:
            return
        self.memory.grow(room)
        self.ticks += room
        for live in self.naive.made:
            if live.joined >= 0:
                self.naive.made[live] += room

    def leave(self, index: int) -> None:
        """One leaves, done, set back or never read to its end."""
        if not self.naive.made:
            return
        live = list(self.naive.made)[index % len(self.naive.made)]
        made = self.naive.made.pop(live)
        self.memory.free(live, live.todo + made)
        live.joined = -1


@st.composite
def pairs(draw: st.DrawFn, least: int = 1, most: int = 1) -> Pair:
    """An empty memory, of requests of so many samples."""
    block, count = draw(SIZES), draw(st.integers(least, most))
    blocks = draw(st.integers(1, 60)) * count
    pool = Pool(blocks * block, block, blocks, 1, nothing_beside, 1.0, 1 << 20)
    return Pair(Blocks(pool, Paging(rows=count)), Naive(block, count), pool)


EVENTS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(1, 600), st.integers(2, 500)),
        st.tuples(st.just("join"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("grow"), st.integers(1, FAR), st.just(0)),
        st.tuples(st.just("grow"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 9), st.just(0)),
    ),
    max_size=60,
)


def replay(pair: Pair, events: list[tuple[str, int, int]]) -> None:
    """Let it all happen, and compare after each event."""
    for name, one, two in events:
        if name == "come":
            pair.come(one, two)
        else:
            getattr(pair, name)(one)
        check(pair)
    while pair.naive.made:
        pair.leave(0)
    assert pair.memory.taken == 0
    assert pair.memory._future == 0


def check(pair: Pair) -> None:
    """Blocks are those of the tables, and no more than there are; samples may have copies of a last block a step early."""
    if pair.naive.rows == 1:
        assert pair.memory.taken == pair.naive.held()
    assert pair.naive.held() <= pair.memory.taken <= pair.memory.capacity


@given(pairs(), EVENTS)
def test_sums_are_counts(pair: Pair, events: list[tuple[str, int, int]]) -> None:
    """Taken blocks, room for steps, who is let in, and nothing left at the end."""
    replay(pair, events)


@given(
    st.integers(1, 256), st.integers(1, 5), st.lists(st.tuples(st.integers(1, 700), st.integers(1, 300)), max_size=6)
)
def test_samples_hold_what_their_tables_do(block: int, rows: int, lengths: list[tuple[int, int]]) -> None:
    """In a memory that is large enough, one request behind the other: after each has made its tokens."""
    pool = Pool(block << 20, block, 1 << 20, 1, nothing_beside, 1.0, 1 << 20)
    pair = Pair(Blocks(pool, Paging(rows=rows)), Naive(block, rows), pool)
    for prompt, steps in lengths:
        pair.come(prompt, 1 << 10)
        pair.join(0)
        pair.grow(steps)
        assert pair.memory.taken == pair.naive.held()
    while pair.naive.made:
        pair.leave(1)
        assert pair.memory.taken == pair.naive.held()


@given(pairs(2, 4), EVENTS)
def test_samples_leave_nothing(pair: Pair, events: list[tuple[str, int, int]]) -> None:
    """Nor more than there is, whoever comes and goes."""
    replay(pair, events)


@given(
    st.floats(0.0, 1.0), st.integers(1, 64), st.lists(st.tuples(st.integers(1, 200), st.integers(2, 200)), max_size=40)
)
def test_a_reserve_is_kept(reserve: float, block: int, lengths: list[tuple[int, int]]) -> None:
    """Where all that is to come is reserved, everybody's last token has its block; with less of it no fewer are let in."""
    admitted = []
    for share in (reserve, 1.0):
        pool = Pool(50 * block, block, 50, 1, nothing_beside, 1.0, 1 << 20)
        pair = Pair(Blocks(pool, Paging(reserve=share)), Naive(block, 1), pool)
        inside = 0
        for prompt, output in lengths:
            live = Live(Job(0.0, prompt, output), output, inside)
            if not pair.memory.admit(live):
                break
            pair.naive.made[live] = 0
            pair.join(0)
            inside += 1
        admitted.append(inside)
        if share == 1.0:
            last = sum(-(-(live.job.prompt + live.output - 1) // block) for live in pair.naive.made)
            assert last <= pool.blocks

    assert admitted[0] >= admitted[1]


@given(st.integers(1, 256), st.integers(1, 300), st.integers(1, 900), st.integers(1, 900), st.integers(1, 4))
def test_what_fits_alone_is_let_in_alone(block: int, blocks: int, prompt: int, output: int, rows: int) -> None:
    """And has room to its last token; what does not fit has not."""
    pool = Pool(blocks * block, block, blocks, 1, nothing_beside, 1.0, 1 << 20)
    for reserve in (0.0, 1.0):
        memory = Blocks(pool, Paging(reserve=reserve, rows=rows))
        fits = blocks_of_samples(prompt, output - 1, rows, block) <= blocks
        if rows == 1 or output > 1:
            assert memory.fits(prompt, output) == fits
        live = Live(Job(0.0, prompt, output), output, 0)
        if not memory.fits(prompt, output):
            continue
        assert memory.admit(live)
        live.context, live.joined = prompt, 0
        memory.join(live)
        assert memory.room(output - 1) == output - 1
