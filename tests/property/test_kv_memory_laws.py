"""Laws of KV memory: nothing overlaps, leaks or is written into another's, and no more is out than there is."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.beams import BeamBlocks, beams_saved, samples_saved
from roofcast.calculators.serving.blocks import BlockPool, BlockTable, blocks_for, blocks_of_samples
from roofcast.calculators.serving.contiguous import RESERVATIONS, Arena
from roofcast.calculators.serving.occupancy import PAGED, occupancy

SIZES = st.integers(1, 400)
BLOCKS = st.integers(1, 20)
# sizes that are asked for, and in between places in the list of what is out that are given back
ASKED = st.lists(st.tuples(st.sampled_from(["take", "take", "give"]), st.integers(1, 500)), max_size=60)
# fork, append and free, each of the sequence at a place in the list of all, with a count of tokens
WRITTEN = st.lists(
    st.tuples(st.sampled_from(["new", "append", "append", "fork", "free"]), st.integers(0, 9), st.integers(0, 40)),
    max_size=50,
)
LENGTHS = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 90)), min_size=30, max_size=80)


def free_place(units: list[bool], size: int) -> bool:
    """Whether any place that is a multiple of the size has so many free units."""
    return any(not any(units[place : place + size]) for place in range(0, len(units) - size + 1, size))


@given(tokens=SIZES, unit=st.integers(1, 9), asked=ASKED)
def test_pieces_never_overlap_and_all_return(tokens: int, unit: int, asked: list[tuple[str, int]]) -> None:
    """Against a map of units: a piece is given if and only if an aligned one is free, is whole, and merges back."""
    assume(unit <= tokens)
    arena = Arena(tokens, unit)
    units = [False] * (tokens // unit)
    out: dict[int, tuple[int, int]] = {}
    for what, number in asked:
        if what == "take":
            size = 1
            while size * unit < number:
                size *= 2
            could = free_place(units, size)
            assert arena.fits(number) == could
            place = arena.take(number)
            assert (place is not None) == could
            if place is not None:
                assert place % size == 0
                assert place + size <= len(units)
                assert not any(units[place : place + size])
                units[place : place + size] = [True] * size
                out[place] = size, number
        elif out:
            place = list(out)[number % len(out)]
            size, _ = out.pop(place)
            arena.give(place)
            units[place : place + size] = [False] * size
        assert arena.taken == unit * sum(units) <= tokens
        assert arena.asked == sum(number for _, number in out.values()) <= arena.taken
        assert arena.pieces == len(out)
    for place in out:
        arena.give(place)

    assert arena._orders == Arena(tokens, unit)._orders
    assert arena._free == Arena(tokens, unit)._free
    assert (arena.taken, arena.asked, arena.pieces) == (0, 0, 0)


@given(prompt=st.integers(1, 4000), output=st.integers(1, 4000), longest=st.integers(2, 5000))
def test_reservations_are_enough_and_ordered(prompt: int, output: int, longest: int) -> None:
    """What is needed <= the next power of two <= the longest, and the power at most twice the output."""
    oracle, power, most = (RESERVATIONS[kind](prompt, output, longest) for kind in ("oracle", "pow2", "max"))

    assert min(prompt + output, longest) == oracle <= power <= most == longest
    assert power < prompt + 2 * output


class Written:
    """Sequences as plain lists of tokens, and what their writes leave in the blocks of a pool."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self.sequences: list[tuple[BlockTable, list[int]]] = []
        self.content: dict[int, list[int]] = {}  # block -> tokens
        self.written = 0

    def append(self, place: int, count: int) -> None:
        """Write new tokens where the table says, into a copy where it says so."""
        table, tokens = self.sequences[place]
        before, copies, used, size = list(table.blocks), self.pool.copies, self.pool.used, self.pool.block_tokens
        shared = bool(count and len(tokens) % size and self.pool.holders(before[-1]) > 1)
        need = blocks_for(len(tokens) + count, size) - len(before) + shared
        done = table.append(count)
        assert done == (need <= self.pool.blocks - used)
        assert self.pool.used - used == need * done
        assert self.pool.copies - copies == shared * done
        if not done:
            assert table.blocks == before
            return
        if shared:
            self.content[table.blocks[len(before) - 1]] = self.content[before[-1]][: len(tokens) % size]
        for _ in range(count):
            block, at = table.blocks[len(tokens) // size], len(tokens) % size
            held = self.content.setdefault(block, [])
            self.content[block] = [*held[:at], self.written]  # what a block held before it was freed is gone
            tokens.append(self.written)
            self.written += 1

    def check(self) -> None:
        """Every sequence reads its own tokens; blocks are held by as many tables as list them, and no other is used."""
        holders: dict[int, int] = {}
        size = self.pool.block_tokens
        for table, tokens in self.sequences:
            assert table.tokens == len(tokens)
            assert len(table.blocks) == len(set(table.blocks)) == blocks_for(len(tokens), size)
            read = [token for block in table.blocks for token in self.content[block]]
            assert read == tokens
            for block in table.blocks:
                holders[block] = holders.get(block, 0) + 1
        assert all(0 <= block < self.pool.blocks for block in holders)
        assert [self.pool.holders(block) for block in range(self.pool.blocks)] == [
            holders.get(block, 0) for block in range(self.pool.blocks)
        ]
        assert self.pool.used == len(holders) <= self.pool.blocks
        assert self.pool.free == self.pool.blocks - len(holders)


@given(blocks=st.integers(1, 25), size=st.integers(1, 9), written=WRITTEN)
def test_tables_are_lists_of_tokens(blocks: int, size: int, written: list[tuple[str, int, int]]) -> None:
    """Whatever is forked, written and freed: every sequence reads what was written to it and to its forebears."""
    model = Written(BlockPool(blocks, size))
    for what, number, count in written:
        place = number % max(1, len(model.sequences))
        if what == "new":
            model.sequences.append((BlockTable(model.pool), []))
        elif model.sequences and what == "append":
            model.append(place, count)
        elif model.sequences and what == "fork":
            table, tokens = model.sequences[place]
            model.sequences.append((table.fork(), list(tokens)))
        elif model.sequences:
            table, _ = model.sequences.pop(place)
            table.free()
            assert (table.blocks, table.tokens) == ([], 0)
        model.check()
    for table, _ in model.sequences:
        table.free()
    assert model.pool.used == 0


@given(prompt=st.integers(1, 200), output=st.integers(1, 60), count=st.integers(1, 5), block=BLOCKS)
def test_sharing_saves_between_nothing_and_all_but_one(prompt: int, output: int, count: int, block: int) -> None:
    """0 <= saved <= (n - 1) / n; beams save as much as samples or more; more samples save more."""
    samples = samples_saved([(prompt, output)], count, block)
    beams = beams_saved([(prompt, output)], count, block, 0.2)

    assert 0 <= samples <= beams + 1e-12 <= (count - 1) / count + 1e-9
    assert samples <= samples_saved([(prompt, output)], count + 1, block) + 1e-12


@given(
    prompt=st.integers(1, 200),
    made=st.integers(0, 3000),
    width=st.integers(1, 8),
    block=BLOCKS,
    replaced=st.floats(0, 1),
)
def test_beams_hold_as_much_as_one_and_at_most_as_samples(
    prompt: int, made: int, width: int, block: int, replaced: float
) -> None:
    """ceil((p + t) / b) <= held <= blocks of as many samples."""
    held = BeamBlocks(width, block, replaced).at(prompt, made)

    assert blocks_for(prompt + made, block) - 1e-6 <= held <= blocks_of_samples(prompt, made, width, block) + 1e-6


@given(lengths=LENGTHS, memory=st.integers(120, 1500), kind=st.sampled_from([PAGED, *RESERVATIONS]), block=BLOCKS)
def test_memory_is_shared_out_whole(lengths: list[tuple[int, int]], memory: int, kind: str, block: int) -> None:
    """The four shares are at least 0 and sum to 1, every request is served or refused, the same again gives the same."""
    try:
        found = occupancy(lengths, memory, 120, kind, block)
    except UsageError as error:
        assert "give some times as many" in str(error)  # noqa: PT017 - few requests are no error of ours
        return
    shares = found.states, found.to_come, found.never, found.external

    assert min(shares) >= -1e-12
    assert sum(shares) == pytest.approx(1)
    assert 0 <= found.rounded <= found.external + 1e-12
    assert found.served + found.refused == len(lengths)
    assert found.never == 0 or kind != "oracle"
    assert found.preempted == 0 or kind == PAGED
    assert found.cut == sum(prompt < 120 < prompt + output for prompt, output in lengths)
    assert occupancy(iter(lengths), memory, 120, kind, block) == found
