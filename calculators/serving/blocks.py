"""KV memory in blocks: tables of the blocks that sequences hold, how many hold each, and copies where they part.

Source: Kwon et al. 2023, arXiv:2309.06180, sections 4.2-4.4.
"""

from __future__ import annotations

from typing import Final

from roofcast.calculators.errors import UsageError

MOST_BLOCK: Final = 256  # [token]


def check_block(tokens: int) -> int:
    """Give the size of a block back. [token]

    Raises:
        UsageError: outside 1-256.
    """
    if not 1 <= tokens <= MOST_BLOCK:
        raise UsageError(f"blocks of {tokens:,} tokens: a block holds 1 to {MOST_BLOCK} tokens")
    return tokens


def blocks_for(tokens: int, block: int) -> int:
    """Blocks that hold so many tokens: ceil(t / b).

    >>> blocks_for(32, 16), blocks_for(33, 16)
    (2, 3)
    """
    return -(-tokens // block)


def blocks_of_samples(prompt: int, made: int, samples: int, block: int) -> int:
    """Blocks of n samples of one prompt: floor(p / b) + n (ceil((p + t) / b) - floor(p / b)), ceil(p / b) before t = 1.

    Whole blocks of the prompt are held once; the last of it, where it is not full, is copied by each that writes to it
    but the last, which then is alone with it.

    Args:
        prompt: p. [token]
        made: t, tokens that each sample has made. [token]
        samples: n.
        block: b. [token]

    Source: Kwon et al. 2023, arXiv:2309.06180, section 4.4, figure 8.

    >>> blocks_of_samples(20, 0, 4, 16), blocks_of_samples(20, 1, 4, 16), blocks_of_samples(20, 13, 4, 16)
    (2, 5, 9)
    """
    if not made:
        return blocks_for(prompt, block)
    shared = prompt // block
    return shared + samples * (blocks_for(prompt + made, block) - shared)


class BlockPool:
    """Blocks of equal size, each held by any number of tables, and free where none holds it.

    Args:
        blocks: how many there are.
        block_tokens: what each holds. [token]

    Raises:
        UsageError: a block outside 1-256 tokens, or no block.
    """

    __slots__ = ("_free", "_holders", "block_tokens", "blocks", "copies", "used")

    def __init__(self, blocks: int, block_tokens: int) -> None:
        if blocks < 1:
            raise UsageError(f"a pool of {blocks:,} blocks holds nothing; give 1 or more")
        self.blocks: Final = blocks
        self.block_tokens: Final = check_block(block_tokens)  # [token]
        self.used = 0  # blocks that a table holds
        self.copies = 0  # blocks that were copied before a write so far
        self._holders: list[int] = []  # tables that hold a block, by block; of those that were ever held
        self._free: list[int] = []  # of those, the ones that none holds

    @property
    def free(self) -> int:
        """Blocks that no table holds."""
        return self.blocks - self.used

    def holders(self, block: int) -> int:
        """Tables that hold a block."""
        return self._holders[block] if block < len(self._holders) else 0

    def take(self) -> int:
        """Give out a block that none holds; there must be one."""
        if self.used == self.blocks:
            raise IndexError("no block is free")
        self.used += 1
        if self._free:
            block = self._free.pop()
            self._holders[block] = 1
            return block
        self._holders.append(1)
        return len(self._holders) - 1

    def share(self, block: int) -> None:
        """Note that one more table holds it."""
        self._holders[block] += 1

    def drop(self, block: int) -> None:
        """Note that one table less holds it."""
        self._holders[block] -= 1
        if not self._holders[block]:
            self._free.append(block)
            self.used -= 1


class BlockTable:
    """The blocks of one sequence, in the order of its tokens; all but the last are full.

    >>> pool = BlockPool(8, 16)
    >>> first = BlockTable(pool)
    >>> first.append(20)
    True
    >>> second = first.fork()
    >>> pool.used, second.append(), first.append(), pool.used  # the block of the last 4 tokens is copied once
    (2, True, True, 3)
    >>> first.free()
    >>> pool.used, second.tokens, second.append(112)  # of 133 tokens 128 fit
    (2, 21, False)
    """

    __slots__ = ("_pool", "blocks", "tokens")

    def __init__(self, pool: BlockPool) -> None:
        self._pool: Final = pool
        self.blocks: list[int] = []
        self.tokens = 0  # [token]

    def append(self, tokens: int = 1) -> bool:
        """Write tokens behind the last; False, and nothing changed, where the pool has too few blocks for them.

        A last block that is not full and that another table holds too is copied first, and the copy is written to.
        """
        pool, block = self._pool, self._pool.block_tokens
        more = -(-(self.tokens + tokens) // block) - len(self.blocks)
        copied = tokens > 0 and self.tokens % block > 0 and pool.holders(self.blocks[-1]) > 1
        if more + copied > pool.free:
            return False
        if copied:
            pool.drop(self.blocks[-1])
            self.blocks[-1] = pool.take()
            pool.copies += 1
        for _ in range(more):
            self.blocks.append(pool.take())
        self.tokens += tokens
        return True

    def fork(self) -> BlockTable:
        """Give a second sequence with the same tokens, in the same blocks."""
        other = BlockTable(self._pool)
        other.blocks, other.tokens = self.blocks.copy(), self.tokens
        for block in self.blocks:
            self._pool.share(block)
        return other

    def free(self) -> None:
        """Give up all tokens; the table is empty then."""
        for block in reversed(self.blocks):
            self._pool.drop(block)
        self.blocks, self.tokens = [], 0
