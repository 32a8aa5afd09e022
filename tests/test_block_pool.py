"""Blocks of KV memory: tables, forks and copies, by hand."""

from __future__ import annotations

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.blocks import BlockPool, BlockTable, blocks_of_samples


def table(pool: BlockPool, tokens: int) -> BlockTable:
    """A sequence of so many tokens."""
    made = BlockTable(pool)
    assert made.append(tokens)
    return made


def test_a_block_is_taken_when_the_last_is_full() -> None:
    """16 tokens are one block of 16; the 17th takes the next."""
    pool = BlockPool(10, 16)
    sequence = table(pool, 16)
    assert (pool.used, pool.free, sequence.blocks) == (1, 9, [0])

    sequence.append()
    assert (pool.used, sequence.blocks, sequence.tokens) == (2, [0, 1], 17)


def test_two_samples_copy_the_last_block_once() -> None:
    """The paper's figure 8, blocks of 4: a prompt of 7 is shared; the first to write copies, the last has its own."""
    pool = BlockPool(10, 4)
    first = table(pool, 7)
    second = first.fork()
    assert (pool.used, pool.holders(0), pool.holders(1)) == (2, 2, 2)

    first.append()
    assert (first.blocks, second.blocks, pool.copies) == ([0, 2], [0, 1], 1)
    second.append()
    assert (first.blocks, second.blocks, pool.copies) == ([0, 2], [0, 1], 1)
    assert [pool.holders(block) for block in range(4)] == [2, 1, 1, 0]


def test_a_full_block_is_never_copied() -> None:
    """A prompt of whole blocks stays shared, whatever is written behind it."""
    pool = BlockPool(10, 4)
    first = table(pool, 8)
    second = first.fork()
    first.append()
    second.append()

    assert (first.blocks, second.blocks, pool.copies) == ([0, 1, 2], [0, 1, 3], 0)


def test_what_does_not_fit_changes_nothing() -> None:
    """A copy needs a block as a new one does; all tokens are written, or none."""
    pool = BlockPool(2, 4)
    first = table(pool, 6)
    second = first.fork()

    assert not second.append()
    assert (second.blocks, second.tokens, pool.used, pool.copies) == ([0, 1], 6, 2, 0)
    assert not first.append(3)
    second.free()
    assert first.append(2)
    assert not first.append()
    assert (first.tokens, pool.used) == (8, 2)


def test_blocks_return_when_none_holds_them() -> None:
    """The last to go frees what is shared; freed blocks are given out again."""
    pool = BlockPool(3, 4)
    first = table(pool, 12)
    second = first.fork()
    first.free()
    assert (pool.used, first.blocks, first.tokens) == (3, [], 0)

    second.free()
    assert (pool.used, pool.free) == (0, 3)
    assert sorted(table(pool, 12).blocks) == [0, 1, 2]


def test_a_pool_hands_out_no_more_than_it_has() -> None:
    """Taking from a full pool is our own mistake."""
    pool = BlockPool(1, 4)
    pool.take()
    with pytest.raises(IndexError, match="no block is free"):
        pool.take()


@pytest.mark.parametrize(
    ("blocks", "size", "said"),
    [(0, 16, "pool of 0 blocks"), (5, 0, "blocks of 0"), (5, 257, "blocks of 257 tokens: a")],
)
def test_pools_of_nothing(blocks: int, size: int, said: str) -> None:
    """Sizes are 1 to 256 tokens, and there is a block."""
    with pytest.raises(UsageError, match=said):
        BlockPool(blocks, size)


@pytest.mark.parametrize(
    ("prompt", "made", "samples", "held"),
    [
        (20, 0, 4, 2),  # none has written
        (20, 1, 4, 1 + 4),  # each copies the 4 tokens of the second block
        (20, 12, 4, 1 + 4),
        (20, 13, 4, 1 + 8),
        (32, 1, 4, 2 + 4),
        (5, 100, 1, 7),
    ],
)
def test_blocks_of_samples(prompt: int, made: int, samples: int, held: int) -> None:
    """Whole blocks of the prompt once, the rest as often as there are samples."""
    assert blocks_of_samples(prompt, made, samples, 16) == held
