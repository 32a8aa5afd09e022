"""Blocks that sequences of one prompt share: samples of it, and the beams of a search, which part and take over.

The model of a beam search has one parameter. Before every step but the first each of the n beams is, with the chance
`replaced`, replaced by a copy of another one of the step before, each of the others equally likely; then each writes a
token of its own. Beams that are replaced give up their blocks, copies share all blocks but the one being written.

`REPLACED` is set once for two data sets. With the lengths of `chat_lengths`, at widths 2 and 6, the shares saved are
37 and 54 % for Alpaca (published 37.6 and 55.2) and 47 and 76 % for ShareGPT (44.3 and 66.3): real beams of long
outputs part for longer than this model's. Source: Kwon et al. 2023, arXiv:2309.06180, section 6.3 and figure 15.
"""

from __future__ import annotations

from math import comb
from random import Random
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.blocks import BlockPool, BlockTable, blocks_for, check_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

REPLACED: Final = 0.05  # chance a step
WIDEST: Final = 32  # beams
USUAL: Final = 256  # tokens of an output where one number has to do for all
SETTLED: Final = 1e-6  # forebears beyond one that are as good as none


def samples_saved(lengths: Iterable[tuple[int, int]], samples: int, block: int = 16) -> float:
    """Share of blocks that n samples of each prompt save: 1 - held / (n ceil((p + t) / b)), each summed over steps. [-]

    Args:
        lengths: prompt and output of each request; all its samples are as long. [token]
        samples: n.
        block: b. [token]

    Raises:
        UsageError: no sample, no request, or a block outside 1-256 tokens.

    Source: Kwon et al. 2023, arXiv:2309.06180, section 6.3, for what is divided by what.

    >>> samples_saved([(32, 16)], 2)  # of 3 blocks 2 are shared: 4 instead of 6
    0.3333333333333333
    """
    return _saved(lengths, samples, block, 0.0, Random(0))  # noqa: S311 - nothing is drawn


def beams_saved(
    lengths: Iterable[tuple[int, int]], width: int, block: int = 16, replaced: float = REPLACED, seed: int = 0
) -> float:
    """Share of blocks that a beam search saves, in the mean over steps of a replay of block tables. [-]

    Args:
        lengths: prompt and output of each request; all its beams are as long. [token]
        width: n, beams.
        block: b. [token]
        replaced: chance that a beam is replaced by another in a step. [-]
        seed: of the draws.

    Raises:
        UsageError: a width outside 1-32, a chance outside 0-1, no request, or a block outside 1-256 tokens.

    Source: Kwon et al. 2023, arXiv:2309.06180, section 6.3, for what is divided by what.
    """
    _check_beams(width, replaced)
    return _saved(lengths, width, block, replaced, Random(seed))  # noqa: S311 - draws that can be repeated


class BeamBlocks:
    """Blocks that a beam search holds in the mean, from a table.

    A block that was filled d steps ago is held as often as the n beams have different forebears d steps ago. How many
    that are, A(d), is a Markov chain which begins with n and ends with 1: it depends on how many there were a step
    later, not on which.

    Args:
        width: n, beams.
        block: b. [token]
        replaced: chance that a beam is replaced by another in a step. [-]

    Raises:
        UsageError: a width outside 1-32, a chance outside 0-1, or a block outside 1-256 tokens.
    """

    __slots__ = ("_block", "_settled", "_sums", "_width")

    def __init__(self, width: int, block: int = 16, replaced: float = REPLACED) -> None:
        _check_beams(width, replaced)
        self._width: Final = width
        self._block: Final = check_block(block)
        more = [count - 1 for count in _forebears(width, replaced)]
        self._settled: Final = more.pop()  # A(d) - 1 of all later d
        for step in range(block, len(more)):
            more[step] += more[step - block]
        self._sums: Final = more  # of A(d) - 1 over d, d - b, d - 2b ...

    def at(self, prompt: int, made: int) -> float:
        """Blocks after t tokens of each beam: floor(p / b) + sum over full blocks of A(d) + n where one is not full.

        Args:
            prompt: p. [token]
            made: t. [token]

        >>> table = BeamBlocks(2, 16)
        >>> table.at(20, 0), table.at(20, 1), table.at(20, 12), table.at(20, 13)  # A(0) = 2, A(1) = 1.905
        (2.0, 3.0, 3.0, 4.905)
        """
        if not made:
            return float(blocks_for(prompt, self._block))
        full, rest = divmod(prompt + made, self._block)
        last = (
            rest + (full - prompt // self._block - 1) * self._block
        )  # steps since the first block of one's own was full
        late = max(0, (last - len(self._sums)) // self._block + 1)  # blocks that were full before the table's steps
        last -= late * self._block
        beyond = late * self._settled + (self._sums[last] if last >= 0 else 0.0)
        return full + beyond + (self._width if rest else 0)

    def sharing_of(self, output: int) -> float:
        """Blocks behind the prompt that each further beam takes, of what one takes alone, in the mean over an output. [-]

        It falls with the output: far behind, all beams have the same forebear.

        Args:
            output: tokens that are made, after a prompt of whole blocks. [token]

        >>> round(BeamBlocks(2).sharing_of(16), 9), round(BeamBlocks(2).sharing_of(1024), 3)
        (1.0, 0.049)
        """
        steps = range(1, output + 1)
        alone = sum(blocks_for(made, self._block) for made in steps)
        more = sum(self.at(0, made) for made in steps) - alone
        return more / (alone * (self._width - 1)) if self._width > 1 and alone else 0.0

    @property
    def sharing(self) -> float:
        """`sharing_of` an output of 256 tokens. [-]"""
        return self.sharing_of(USUAL)


def _check_beams(width: int, replaced: float) -> None:
    if not 1 <= width <= WIDEST:
        raise UsageError(f"{width:,} beams: a search has 1 to {WIDEST}")
    if not 0 <= replaced <= 1:
        raise UsageError(f"beams are replaced with a chance of {replaced}: give 0 to 1")


def _saved(lengths: Iterable[tuple[int, int]], count: int, block: int, replaced: float, random: Random) -> float:
    if count < 1:
        raise UsageError(f"{count:,} sequences of a prompt: give 1 or more")
    held = apart = 0
    for prompt, output in lengths:
        pool = BlockPool(count * blocks_for(prompt + output, block), block)
        for made, used in enumerate(_replay(pool, (prompt, output), count, replaced, random), 1):
            held += used
            apart += count * blocks_for(prompt + made, block)
    if not apart:
        raise UsageError("no request holds a block; give lengths of 1 token or more")
    return 1 - held / apart


def _replay(pool: BlockPool, lengths: tuple[int, int], count: int, replaced: float, random: Random) -> Iterator[int]:
    """Yield the blocks that are held after each step."""
    prompt, output = lengths
    first = BlockTable(pool)
    first.append(prompt)
    beams = [first, *(first.fork() for _ in range(count - 1))]
    for made in range(output):
        if made and replaced and count > 1:
            beams = take_over(beams, _parents(count, replaced, random))
        for beam in beams:
            beam.append()
        yield pool.used


def _parents(count: int, replaced: float, random: Random) -> list[int]:
    """Which beam each comes from: itself, or with the chance `replaced` another."""
    draw = random.random
    return [beam if draw() >= replaced else (beam + 1 + int(draw() * (count - 1))) % count for beam in range(count)]


def take_over(beams: Sequence[BlockTable], parents: Sequence[int]) -> list[BlockTable]:
    """The tables of the next step: the first that comes from a beam keeps its table, others get a fork, the rest is freed.

    >>> pool = BlockPool(4, 16)
    >>> left, right = BlockTable(pool), BlockTable(pool)
    >>> left.append(16), right.append(16)
    (True, True)
    >>> [table.blocks for table in take_over([left, right], [1, 1])], pool.used
    ([[1], [1]], 1)
    """
    kept: set[int] = set()
    after: list[BlockTable] = []
    for parent in parents:
        after.append(beams[parent].fork() if parent in kept else beams[parent])
        kept.add(parent)
    for number, beam in enumerate(beams):
        if number not in kept:
            beam.free()
    return after


def _forebears(width: int, replaced: float) -> Iterator[float]:
    """Yield A(d), different forebears of n beams d steps ago in the mean, from d = 0 on; the last is that of all later d.

    It is 1, unless nothing is replaced or two beams always swap.
    """
    chances = [0.0] * width + [1.0]  # of k forebears
    rows = [_row(width, children, replaced) for children in range(1, width + 1)]
    mean, before = float(width), 0.0
    while mean - 1 > SETTLED and mean != before:
        yield mean
        before = mean
        chances = [0.0, *(sum(chances[k] * rows[k - 1][m] for k in range(m, width + 1)) for m in range(1, width + 1))]
        mean = sum(m * chance for m, chance in enumerate(chances))
    yield mean if mean - 1 > SETTLED else 1.0


def _row(width: int, children: int, replaced: float) -> list[float]:
    """Chances that k beams, any of n, come from m different ones, for m = 0 ... n.

    All k come from a given set of m where each that is in it stays or is replaced by another of it, and each that is not
    is replaced by one of it: F(m) in the mean over sets. A set of j is within C(n - j, m - j) of the C(n, m) sets of m,
    so that F(m) = sum over j <= m of P(j) C(n - j, m - j) / C(n, m), which is solved from P(1) on.
    """
    if width == 1:
        return [0.0, 1.0]
    found = [0.0]
    for m in range(1, width + 1):
        inside, outside = 1 - replaced + replaced * (m - 1) / (width - 1), replaced * m / (width - 1)
        within = sum(
            comb(m, i) * comb(width - m, children - i) * inside**i * outside ** (children - i)
            for i in range(max(0, children - width + m), min(m, children) + 1)
        ) / comb(width, children)
        fewer = sum(found[j] * comb(width - j, m - j) for j in range(1, m))
        found.append(max(0.0, within * comb(width, m) - fewer) if m <= children else 0.0)
    return found
