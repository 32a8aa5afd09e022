"""How vLLM lays a cache out: layers in groups that share one pool of blocks, pages of one size, and what a request takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.kv_specs import (
    CHUNKED,
    CROSS,
    MLA,
    SLIDING,
    STATE,
    WHOLE,
    Keeps,
    counted,
    without_windows,
)
from roofcast.calculators.engines.terms import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

BLOCK: Final = 16  # tokens of a block where no kernel asks for more [token]
CLOSE: Final = 1.5  # types whose numbers of layers differ by less are padded to the larger


@dataclass(frozen=True, slots=True)
class Paging:
    """What the engine's options and version say of blocks.

    Args:
        block: tokens of a block, before hybrids are aligned. [token]
        align: tokens that a hybrid's block is a multiple of. [token]
        batched: tokens of one step, which windows keep beside themselves. [token]
        context_parallel: devices that share a sequence's tokens (decode context parallel).
        state_blocks: blocks that a recurrent layer takes of a request; None is one a block of tokens.
        extra_window_block: whether a window takes one block more than its tokens fill.
        hybrid: whether windows save memory; without the hybrid manager they do not.
        chunked: whether chunks do; the manager may be off for them alone.
        longest: tokens of the longest request, a block of a model of states alone. [token]
    """

    block: int = BLOCK
    align: int = BLOCK
    batched: int = 2048
    context_parallel: int = 1
    state_blocks: int | None = 1
    extra_window_block: bool = True
    hybrid: bool = True
    chunked: bool = True
    longest: int = BLOCK


@dataclass(frozen=True, slots=True)
class Sharing:
    """Layers of one type that share blocks, in as many groups as it takes.

    Args:
        keeps: what one of them keeps.
        layers: how many there are.
        groups: groups that they make.
        block: tokens of a block of theirs. [token]
    """

    keeps: Keeps
    layers: int
    groups: int
    block: int


@dataclass(frozen=True, slots=True)
class Layout:
    """A cache laid out.

    Args:
        sharing: types of layers.
        size: layers that one block serves: g.
        page: bytes of one block of one layer; of layers with different pages in one group, of all. [B]
        paging: as asked.
    """

    sharing: tuple[Sharing, ...]
    size: int
    page: float
    paging: Paging

    @property
    def block_tokens(self) -> int:
        """Tokens of the smallest block. [token]"""
        holding = [one.block for one in self.sharing if one.keeps.kind != STATE]
        return min(holding or [one.block for one in self.sharing])

    @property
    def groups(self) -> int:
        """Groups in all."""
        return sum(one.groups for one in self.sharing)

    @property
    def block_bytes(self) -> float:
        """Bytes of a block over all the layers that it serves: g x page. [B]"""
        return self.size * self.page

    @property
    def token_bytes(self) -> float:
        """Bytes that a further token of a request takes, once windows are full: g page / B of each group that holds all. [B]"""
        whole = (one for one in self.sharing if one.keeps.kind in WHOLE)
        return sum(one.groups * self.block_bytes / one.block for one in whole) / self.paging.context_parallel

    def blocks(self, available: float) -> int:
        """Blocks of the pool: available // page // g. [block]

        Source: vLLM, v1/core/kv_cache_utils.py, get_num_blocks.
        """
        return max(0, floor(floor(available / self.page) / self.size)) if self.block_bytes else 0

    def request_blocks(self, context: int) -> int:
        """Blocks that a request of so many tokens takes: the sum over groups. [block]

        Full: ceil(T / B), with T shared by context-parallel devices; sliding: ceil(min(W - 1 + N, T) / B) + 1; chunked:
        ceil(min(C + N, T) / B); a state one, or as many as the mode of its cache says; cross: ceil(E / B).

        Source: vLLM, v1/kv_cache_interface.py, max_memory_usage_bytes.
        """
        return sum(one.groups * _blocks(one, context, self.paging) for one in self.sharing)

    def concurrency(self, blocks: int, longest: int) -> float:
        """Requests of the longest length at once: blocks over those of one. [-]

        >>> layout = arrange([Keeps("full", 1024.0)] * 32, Paging())
        >>> round(layout.concurrency(29751, 8192), 2)
        58.11
        """
        return blocks / max(1, self.request_blocks(longest))

    def longest_request(self, blocks: int, most: int) -> int:
        """The longest request that so many blocks hold, up to a length; 0 where none does. [token]"""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.request_blocks(middle) <= blocks else (low, middle - 1)
        return low

    def shown(self, longest: int) -> tuple[Group, ...]:
        """Its groups, as an answer lists them."""
        return tuple(
            Group(
                kind=one.keeps.kind,
                layers=one.layers,
                padding=one.groups * self.size - one.layers if len(self.sharing) > 1 else 0,
                page_bytes=self.page if len(self.sharing) > 1 else self._own_page(one),
                blocks_per_request=one.groups * _blocks(one, longest, self.paging),
            )
            for one in self.sharing
        )

    def _own_page(self, one: Sharing) -> float:
        return self.page / one.layers if self.size == 1 else self.page


@dataclass(frozen=True, slots=True)
class PagedRoom:
    """A pool of blocks, as requests find it.

    Args:
        layout: of the cache.
        blocks: in the pool.
    """

    layout: Layout
    blocks: int

    def sequences(self, context: int) -> int:
        """Requests of so many tokens that fit at once: floor(blocks / blocks of one)."""
        return self.blocks // max(1, self.layout.request_blocks(context))

    def sequence_bytes(self, context: int) -> float:
        """Blocks of one, times their bytes. [B]"""
        return self.layout.request_blocks(context) * self.layout.block_bytes


def _blocks(one: Sharing, context: int, paging: Paging) -> int:
    """Blocks that one group of a type takes of a request."""
    return COUNT[one.keeps.kind](one, context, paging)


def _whole(one: Sharing, context: int, paging: Paging) -> int:
    return _ceil(_ceil(context, paging.context_parallel), one.block)


def _sliding(one: Sharing, context: int, paging: Paging) -> int:
    tokens = min((one.keeps.reach or 0) - 1 + paging.batched, context)
    return _ceil(tokens, one.block) + paging.extra_window_block


def _chunked(one: Sharing, context: int, paging: Paging) -> int:
    return _ceil(min((one.keeps.reach or 0) + paging.batched, context), one.block)


def _state(one: Sharing, context: int, paging: Paging) -> int:
    return _ceil(context, one.block) if paging.state_blocks is None else paging.state_blocks


def _cross(one: Sharing, context: int, paging: Paging) -> int:
    del context, paging
    return _ceil(one.keeps.reach or 0, one.block)


# kind -> blocks of one group that a request takes
COUNT: Final[Mapping[str, Callable[[Sharing, int, Paging], int]]] = {
    "full": _whole, MLA: _whole, SLIDING: _sliding, CHUNKED: _chunked, STATE: _state, CROSS: _cross,
}  # fmt: skip


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)


def arrange(kept: Iterable[Keeps], paging: Paging) -> Layout:
    """Groups of layers, their block sizes and the page that all share.

    Layers that hold every token make one group whatever their pages; else pages are made equal by growing the blocks of
    smaller ones, a recurrent state takes a page whose block is grown until it holds it, and each type of layer is cut
    into groups of g: the smallest number of layers of a type, or the largest where it is less than 1.5 times that.

    Source: vLLM, v1/core/kv_cache_utils.py, get_kv_cache_groups; config of hybrid models, block alignment.

    >>> gemma = [*[Keeps("sliding", 4096.0, reach=1024)] * 52, *[Keeps("full", 4096.0)] * 10]  # 27B: 7 groups of 10
    >>> layout = arrange(gemma, Paging())
    >>> layout.size, layout.groups, [group.padding for group in layout.shown(8192)]
    (10, 7, [8, 0])
    """
    kept = list(kept)
    if not paging.hybrid or (not paging.chunked and any(one.kind == CHUNKED for one in kept)):
        kept = without_windows(kept)
    counts = counted(kept)
    kinds = {one.kind for one in counts}
    if kinds <= WHOLE or len(counts) == 1:
        return _one_group(counts, paging)
    sized = _sized(counts, paging)
    page = max(block * one.token if one.kind != STATE else one.state for one, block in sized.items())
    size = _group_size(list(counts.values()))
    sharing = tuple(Sharing(one, n, _ceil(n, size), sized[one]) for one, n in counts.items())
    return Layout(sharing, size, page, paging)


def _one_group(counts: Mapping[Keeps, int], paging: Paging) -> Layout:
    """One type, or layers that all hold every token: one group, whose page is the sum where pages differ."""
    if len(counts) == 1:
        ((one, layers),) = counts.items()
        if one.kind == STATE:
            block = paging.block if paging.state_blocks is None else paging.longest
            return Layout((Sharing(one, layers, 1, block),), layers, one.state, paging)
        return Layout((Sharing(one, layers, 1, paging.block),), layers, paging.block * one.token, paging)
    page = sum(layers * one.token for one, layers in counts.items()) * paging.block
    widest = max(counts, key=lambda one: one.token)
    together = replace(widest, token=page / paging.block)
    return Layout((Sharing(together, sum(counts.values()), 1, paging.block),), 1, page, paging)


def _sized(counts: Mapping[Keeps, int], paging: Paging) -> dict[Keeps, int]:
    """Tokens of a block of each type: the smaller a token, the more, so that pages are equal; grown to hold a state."""
    widest = max((one.token for one in counts if one.kind != STATE), default=0.0)
    largest = max((one.state for one in counts if one.kind == STATE), default=0.0)
    block = paging.block
    if largest and widest:
        block = max(block, paging.align * _above(largest / (paging.align * widest)))
    return {one: block if one.kind == STATE else round(block * widest / one.token) for one in counts}


def _above(value: float) -> int:
    return int(-(-value // 1))


def _group_size(layers: list[int]) -> int:
    """Layers of a group: the least of all types, or the most where it is less than 1.5 times the least.

    >>> _group_size([52, 10]), _group_size([12, 13])
    (10, 13)
    """
    least, most = min(layers), max(layers)
    return most if most < CLOSE * least else least
