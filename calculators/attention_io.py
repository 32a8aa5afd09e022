"""Memory traffic of one head's attention over N tokens: standard, FlashAttention's bound, its loops, and the floor."""

from __future__ import annotations

from math import ceil
from typing import Final

from roofcast.calculators.errors import UsageError

# rows of Q that a block of FlashAttention-2 keeps, forward, whatever the head size. Source: Dao-AILab/flash-attention,
# csrc/flash_attn/src/flash_fwd_launch_template.h, without dropout (sm86 and sm89 take 64 where causal)
TILE_ROWS: Final = 128
PASSES: Final = 4  # of the score matrix: S and P written, S and P read
STATISTICS: Final = 4  # of a row in a pass of Algorithm 1: maximum and normaliser, read and written


def compulsory_accesses(tokens: int, width: float, share: float = 1.0) -> float:
    """Elements that any attention must move: Q and K and V read, O written once, 2 N d + 2 N d share. [element]

    4 N d with as many KV heads as query heads. No tiling goes below it.

    Args:
        tokens: N. [token]
        width: d of a head; the mean of both where keys and values differ. [element]
        share: KV heads a query head, n_kv / n_q. [-]

    Source: Dao et al. 2022, arXiv:2205.14135, algorithm 0, without S and P.

    >>> compulsory_accesses(1024, 64), compulsory_accesses(1024, 64, 1 / 4)  # 4 x 65,536; 2.5 x 65,536
    (262144.0, 163840.0)
    """
    _check(tokens, width)
    return 2 * tokens * width * (1 + share)


def standard_accesses(tokens: int, width: float, share: float = 1.0) -> float:
    """Elements that standard attention moves for one head: 4 N d + 4 N^2, so Theta(N d + N^2). [element]

    S = Q K^T is written, read by the softmax, P written, and read for P V; masks, scaling and dropout as kernels of
    their own add passes.

    Args:
        tokens: N. [token]
        width: d of a head. [element]
        share: KV heads a query head, which K and V count once for. [-]

    Source: Dao et al. 2022, arXiv:2205.14135, algorithm 0 and theorem 2.

    >>> standard_accesses(1024, 64)  # 4 x 65,536 + 4 x 1,048,576
    4456448.0
    """
    return compulsory_accesses(tokens, width, share) + PASSES * float(tokens) ** 2


def flash_accesses(tokens: int, width: float, memory: float, share: float = 1.0) -> float:
    """Elements by FlashAttention's theorem, its constant taken as 1: max(N^2 d^2 / M, the floor 4 N d). [element]

    Theta(N^2 d^2 / M) holds for d <= M <= N d; a larger M changes nothing, as there the floor rules. No exact attention
    moves asymptotically less for all M of that range (proposition 3).

    Args:
        tokens: N. [token]
        width: d of a head. [element]
        memory: M, on-chip memory of a block. [element]
        share: KV heads a query head. [-]

    Source: Dao et al. 2022, arXiv:2205.14135, theorem 2.

    Raises:
        UsageError: M is below d.

    >>> flash_accesses(16384, 128, 2**16)  # 2^28 x 2^14 / 2^16
    67108864.0
    >>> flash_accesses(1024, 64, 2**16) == compulsory_accesses(1024, 64)  # 2^20 x 2^12 / 2^16 = 2^16 < 4 x 2^16
    True
    """
    floor = compulsory_accesses(tokens, width, share)
    _check_memory(memory, width)
    return max(floor, (tokens * width) ** 2 / memory)


def algorithm_accesses(tokens: int, width: float, memory: float, share: float = 1.0) -> float:
    """Elements that the loops of the paper's algorithm move: 2 N d share + ceil(N / Bc) x (3 N d + 4 N). [element]

    K and V blocks of Bc = ceil(M / 4 d) rows are the outer loop: each is loaded once, and for each all of Q and O are
    read and O written, with the row's maximum and normaliser. Setting O, l and m to their first values is not in it.

    Args:
        tokens: N. [token]
        width: d of a head. [element]
        memory: M, on-chip memory of a block. [element]
        share: KV heads a query head. [-]

    Source: Dao et al. 2022, arXiv:2205.14135, algorithm 1.

    Raises:
        UsageError: M is below d.

    >>> algorithm_accesses(1024, 64, 2**16)  # Bc 256, 4 passes: 2 x 65,536 + 4 x (3 x 65,536 + 4,096)
    933888.0
    """
    _check(tokens, width)
    _check_memory(memory, width)
    rows = min(ceil(memory / (4 * width)), tokens)
    passes = ceil(tokens / rows)
    return 2 * tokens * width * share + passes * (3 * tokens * width + STATISTICS * tokens)


def tiled_accesses(tokens: int, width: float, rows: int = TILE_ROWS) -> float:
    """Elements that kernels since FlashAttention-2 ask for: 2 N d + ceil(N / Br) x 2 N d, Br = 128 rows of Q. [element]

    Q blocks are the outer loop: Q is read and O written once, K and V are read by every block of every query head. What
    a cache serves of these reads does not reach memory: between this and the floor lies what does.

    Args:
        tokens: N. [token]
        width: d of a head. [element]
        rows: Br. [token]

    Source: Dao 2023, arXiv:2307.08691, algorithm 1; the rows as in flash_fwd_launch_template.h.

    >>> tiled_accesses(1024, 64)  # 2 x 65,536 + 8 x 2 x 65,536
    1179648.0
    """
    _check(tokens, width)
    return 2.0 * tokens * width * (1 + ceil(tokens / rows))


def product_flops(tokens: int, width: float) -> float:
    """FLOP of Q K^T and P V of one head, every query with every key: 4 N^2 d. [FLOP]

    A causal mask leaves about half. The softmax is not in it.

    Args:
        tokens: N. [token]
        width: d of a head. [element]

    Source: two products of [N, d] and [N, N], 2 N^2 d each; Dao et al. 2022, arXiv:2205.14135, theorem 1: O(N^2 d).

    >>> product_flops(1024, 64)  # 4 x 1,048,576 x 64
    268435456.0
    """
    _check(tokens, width)
    return 4 * float(tokens) ** 2 * width


def _check(tokens: int, width: float) -> None:
    if tokens < 1 or width < 1:
        raise UsageError(f"{tokens:,} tokens of heads of {width:g}: both must be 1 or more")


def _check_memory(memory: float, width: float) -> None:
    if memory < width:
        raise UsageError(
            f"M is {memory:,.0f} elements and a head has {width:g}: FlashAttention's bound holds from M = d on; "
            "give a larger --shared-memory or a smaller --head-dim"
        )
