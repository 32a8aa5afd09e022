"""Expected time of one call of attention, decode and prefill: the roofline with fitted constants and what they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from roofcast.calculators.expected.limits import Limits
    from roofcast.modelspec.shapes import DecodeShape, PrefillShape


ROWS: Final = 128  # of Q in a block. Source: FlashAttention-3, as FLASH_ROWS of flash_decoding.py
OVERLAP: Final = (
    1.5  # joins the times of data and of blocks: at 1 one follows the other, at infinity they run side by side
)
RAMP: Final = 50e-6  # seconds of data at the bandwidth of the data sheet, at which half of `ramp` is spent
SPLIT: Final = 256.0  # tokens of context at which half of `split` is spent
HALF: Final = 2.0  # bytes of an element of queries and outputs, whatever the cache is stored in


@dataclass(frozen=True, slots=True)
class DecodeConstants:
    """What one engine's decode attention takes on one device. Defaults of what follows `em` change nothing.

    Args:
        t0: launch, and the latency of the first block. A CUDA graph hides part of it. [s]
        ec, em: share of the peak and of the bandwidth that is reached.
        block: start and end of a thread block, of which a multiprocessor runs one after the other. [s]
        ramp: most that the bandwidth's rise with the bytes in flight adds. [s]
        split: what splitting a sequence's cache and joining the parts adds. [s]
        unfilled: share that is lost of the time in which multiprocessors idle for want of a block; 0 where all are filled.
        widest: query heads of a KV head that share a block; seen in the tables, not fitted.
        alone_t0 ... alone_unfilled: the same where every block is one query head's: where there are no groups, or wider
            ones than `widest`. There are none where `alone_em` is 0.
        alone_splits: most parts of a sequence there; seen in the tables, not fitted.
    """

    t0: float
    ec: float
    em: float
    block: float = 0.0
    ramp: float = 0.0
    split: float = 0.0
    unfilled: float = 0.0
    widest: float = inf
    alone_t0: float = 0.0
    alone_ec: float = 1.0
    alone_em: float = 0.0
    alone_block: float = 0.0
    alone_ramp: float = 0.0
    alone_split: float = 0.0
    alone_unfilled: float = 0.0
    alone_splits: float = inf

    @property
    def alone(self) -> DecodeConstants:
        """Those of a block with one query head.

        >>> DecodeConstants(9e-6, 0.5, 0.9, alone_ec=0.01, alone_em=0.8).alone.ec
        0.01
        """
        return DecodeConstants(
            self.alone_t0, self.alone_ec, self.alone_em, self.alone_block, self.alone_ramp, self.alone_split,
            self.alone_unfilled,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrefillConstants:
    """What one engine's prefill attention takes on one device. Defaults of what follows `em` change nothing.

    Args:
        t0: launch, and the latency of the first block. [s]
        ec, em: share of the peak and of the bandwidth that is reached.
        block: start and end of a thread block, of which a multiprocessor runs one after the other. [s]
        chain: of a token of the longest sequence: the last blocks read it all, while other multiprocessors idle. [s]
        tile: keys of a tile; the tile on the diagonal is computed whole. An assumption, not fitted. [token]
        packs: 1 where query heads of a KV head share a block, else 0; seen in the tables, not fitted.
    """

    t0: float
    ec: float
    em: float
    block: float = 0.0
    chain: float = 0.0
    tile: float = 1.0
    packs: float = 1.0


def unfilled_share(blocks: float, splits: float) -> float:
    """Idle time of multiprocessors over their busy time: ceil(b s) / (b s) - 1, with s = min(splits, floor(1 / b)). [-]

    Args:
        blocks: b, thread blocks a multiprocessor; may be below 1.
        splits: most parts that a block's sequence is split into.

    Source: wave quantisation; Flash-Decoding, https://pytorch.org/blog/flash-decoding/, splits where blocks are few.

    >>> unfilled_share(1.5, 8), unfilled_share(0.4, 8), unfilled_share(0.4, 1)  # 2 / 1.5, 1 / 0.8, 1 / 0.4
    (0.3333, 0.25, 1.5)
    """
    if blocks > 1.0:
        return ceil(blocks) / blocks - 1.0
    if blocks <= 0.0:
        return 0.0
    return max(0.0, 1.0 / (blocks * max(1, floor(min(splits, 1.0 / blocks)))) - 1.0)


def decode_seconds(shape: DecodeShape, limits: Limits, c: DecodeConstants) -> float:
    """t0 + split s^2 / (s^2 + 256^2) + (max(F / (peak ec), data)^1.5 + (block b^2 / (1 + b))^1.5)^(1/1.5). [s]

    data = x (1 + unfilled u) / em + ramp x / (x + 50 us), with x = (cache + queries + outputs) / bandwidth, s the
    context, b the thread blocks a multiprocessor (the first is in t0) and u `unfilled_share`. A block is one sequence's
    KV head with its query heads, up to 128 in one.

    Args:
        shape: of the call.
        limits: of the device.
        c: of the engine on it.

    Source: the roofline with terms of Flash-Decoding; form and constants by benchmarks/fit_attention.py.

    >>> from roofcast.calculators.expected.limits import Limits
    >>> from roofcast.modelspec.shapes import DecodeShape
    >>> shape = DecodeShape(1, 65536, 32, 8, 128, 268435456, 1073741824)
    >>> decode_seconds(shape, Limits(989.4e12, 4.8e12, 132), DecodeConstants(12e-6, 0.5, 0.8)) * 1e6  # 12 + 55.9 / 0.8
    81.9
    """
    group = shape.query_heads / shape.kv_heads if shape.kv_heads else 1.0
    blocks = shape.sequences * shape.kv_heads * ceil(group / ROWS) / limits.sms
    splits = inf
    if c.alone_em and not 1.0 < group <= c.widest:
        splits, c = c.alone_splits, c.alone
        blocks = shape.sequences * shape.query_heads / limits.sms
    outside = 2.0 * HALF * shape.sequences * shape.query_heads * shape.head_dim
    read = (shape.state_bytes + outside) / limits.bandwidth
    data = read / c.em
    if c.unfilled:
        data *= 1.0 + c.unfilled * unfilled_share(blocks, splits)
    data = max(data + c.ramp * read / (read + RAMP), shape.flops / (limits.peak * c.ec))
    started = c.block * blocks * blocks / (1.0 + blocks)
    square = shape.context * shape.context
    joined = c.split * square / (square + SPLIT * SPLIT)
    return c.t0 + joined + (data if not started else (data**OVERLAP + started**OVERLAP) ** (1.0 / OVERLAP))


def prefill_seconds(shape: PrefillShape, limits: Limits, c: PrefillConstants) -> float:
    """t0 + F (1 + (tile - 1) / (2 p)) / (peak ec) + D / (bandwidth em) + block b + chain s. [s]

    p are the keys that a token sees in the mean, F / (4 sequences new query_heads head_dim); D the cache, queries and
    outputs; b the thread blocks of 128 rows a multiprocessor; s the longest row of keys that a block reads alone:
    min(new + before min(1, b), 2 p), for keys in the cache are split over idle multiprocessors.

    Args:
        shape: of the call.
        limits: of the device.
        c: of the engine on it.

    Source: the roofline with terms of FlashAttention-2, arXiv:2307.08691, section 3; form and constants by
    benchmarks/fit_attention.py. No measured row had tokens before: their part is an assumption.

    >>> from roofcast.calculators.expected.limits import Limits
    >>> from roofcast.modelspec.shapes import PrefillShape
    >>> shape = PrefillShape(1, 8192, 0, 32, 8, 128, 33554432, 4 * 32 * 128 * 8192 * 8193 / 2)
    >>> prefill_seconds(shape, Limits(989.4e12, 4.8e12, 132), PrefillConstants(12e-6, 0.7, 0.5)) * 1e6  # 12 + 793.9 + 69.9
    875.8
    """
    wide = shape.sequences * shape.new * shape.query_heads * shape.head_dim
    if c.packs and shape.kv_heads:
        blocks = shape.sequences * shape.kv_heads * ceil(shape.new * shape.query_heads / (shape.kv_heads * ROWS))
    else:
        blocks = shape.sequences * shape.query_heads * ceil(shape.new / ROWS)
    waves = blocks / limits.sms
    whole = shape.flops + 2.0 * wide * max(0.0, c.tile - 1.0)
    longest = shape.new + shape.before * min(1.0, waves)
    if wide:
        longest = min(longest, shape.flops / (2.0 * wide))
    moved = shape.state_bytes + 2.0 * HALF * wide
    busy = whole / (limits.peak * c.ec) + moved / (limits.bandwidth * c.em)
    return c.t0 + busy + c.block * waves + c.chain * longest
