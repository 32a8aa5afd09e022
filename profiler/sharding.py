"""What of a decoder's weights one of several ranks holds: whole heads, parts of feed-forwards, rows of the vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.profiler.errors import ProfileUsageError

if TYPE_CHECKING:
    from torch import Tensor

    from roofcast.profiler.runtime import Runtime

    #: first and last row or column, the last not in it
    Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Share:
    """A rank's share, cut as tensor-parallel engines do: attention by heads, feed-forwards by width, tables by rows.

    Args:
        rank, of: its number, and how many ranks share; one holds all.

    Source: Shoeybi et al. 2019, Megatron-LM, arXiv:1909.08053, section 3.
    """

    rank: int = 0
    of: int = 1

    @property
    def first(self) -> bool:
        """Whether it adds what is added once: biases behind a sum."""
        return self.rank == 0

    def even(self, count: int, what: str) -> Span:
        """An equal part of so many.

        Raises:
            ProfileUsageError: they do not divide.

        >>> Share(1, 4).even(32, "query heads")
        (8, 16)
        """
        if count % self.of:
            raise ProfileUsageError(f"--tp {self.of}: it does not divide {count:,} {what}")
        each = count // self.of
        return self.rank * each, (self.rank + 1) * each

    def kv_heads(self, count: int) -> Span:
        """KV heads: an equal part, or one where there are fewer than ranks, which several then hold.

        Raises:
            ProfileUsageError: neither divides the other.

        >>> Share(5, 8).kv_heads(16), Share(5, 8).kv_heads(2)
        ((10, 12), (1, 2))
        """
        if self.of <= count or self.of % count:
            return self.even(count, "KV heads")
        own = self.rank * count // self.of
        return own, own + 1

    def rows(self, count: int) -> Span:
        """Rows of a table, as many to each rank; the last ones' may be fewer, or none.

        >>> Share(0, 4).rows(10), Share(3, 4).rows(10), Share(3, 4).rows(9)
        ((0, 3), (9, 10), (9, 9))
        """
        each = self.each(count)
        return min(count, self.rank * each), min(count, (self.rank + 1) * each)

    def each(self, count: int) -> int:
        """Rows that every rank has room for: ceil(n / ranks)."""
        return -(-count // self.of)


WHOLE: Final = Share()


def share_of(runtime: Runtime) -> Share:
    """The share of a device among its ranks."""
    ranks = runtime.ranks
    return WHOLE if ranks is None else Share(ranks.rank, ranks.size)


def wide(span: Span, width: int, start: int = 0) -> Span:
    """A span of heads as one of rows: of heads of a width, from a row on.

    >>> wide((2, 4), 128, 1000)
    (1256, 1512)
    """
    return start + span[0] * width, start + span[1] * width


def kept(tensor: Tensor, spans: tuple[Span, ...], dim: int) -> Tensor:
    """A copy of some spans of a dimension, one after the other."""
    import torch

    return torch.cat([tensor.narrow(dim, first, last - first) for first, last in spans], dim)
