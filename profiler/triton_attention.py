"""Decode attention: a new token a sequence, or a few, its cache split over programs whose parts a second kernel joins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import triton
import triton.language as tl

from roofcast.profiler.triton_linear import let_next, wait_last
from roofcast.profiler.triton_loose import early

if TYPE_CHECKING:
    from torch import Tensor

    from roofcast.profiler.kernels import Cache, Heads

LOG2E: Final = 1.4426950408889634
LEAST_ROWS: Final = 16  # that tensor cores multiply at once
PROGRAMS: Final = 2  # a multiprocessor, where sequences are long enough to be split
MOST_SPLITS: Final = 64
NARROW: Final = 128  # elements of a head that two warps join
TILE: Final = 64  # places that a program reads at once
WIDE: Final = 16384  # elements of keys and values in a tile, above which two tiles in flight are what fits
MOST_ROWS: Final = 64  # queries of a program, where several new tokens are asked: more are cut into blocks
ROW_BYTES: Final = 16384  # of these queries at most
WARPS: Final = 4  # of a program: eight took a fifth to four fifths longer for several new tokens on an H200


@triton.jit
def first_seen(length, window, WINDOW: tl.constexpr, CHUNK: tl.constexpr):
    """First place that the query at length - 1 sees."""
    first = 0
    if WINDOW:
        first = (length - 1) // window * window if CHUNK else tl.maximum(length - window, 0)
    return first


@triton.jit
def softened(score, seen, peak, total):
    """One tile of a running softmax: its weights, what is summed so far shrinks by, the largest score and the sum."""
    score = tl.where(seen, score, -1e30)
    most = tl.maximum(peak, tl.max(score, 1))
    shrink = tl.exp2(peak - most)
    weight = tl.where(seen, tl.exp2(score - most[:, None]), 0.0)
    return weight, shrink, most, total * shrink + tl.sum(weight, 1)


@triton.jit
def asked_rows(
    place, block, batch, head, H, window,
    GROUP: tl.constexpr, NEW: tl.constexpr, ROWS: tl.constexpr, WINDOW: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Rows of a block of queries: which they are of all, the last place that each sees, and where their tokens begin and end."""
    rows = block * ROWS + tl.arange(0, ROWS)
    if NEW == 1:
        last, length = place, place + 1
        first = first_seen(length, window, WINDOW, CHUNK)
        heads = batch.to(tl.int64) * H + head * GROUP + rows
    else:
        last = place + rows // GROUP
        length = place + tl.minimum((block * ROWS + ROWS - 1) // GROUP + 1, NEW)
        first = first_seen(place + block * ROWS // GROUP + 1, window, WINDOW, CHUNK)
        heads = (batch.to(tl.int64) * NEW + rows // GROUP) * H + head * GROUP + rows % GROUP
    return heads, rows < GROUP * NEW, last, first, length


@triton.jit
def shown_to(spots, seen, last, window, NEW: tl.constexpr, WINDOW: tl.constexpr, CHUNK: tl.constexpr):
    """Which places of a tile each row sees: all that the block does where it is of one token, else up to its own."""
    shown = seen[None, :]
    if NEW > 1:
        shown = shown & (spots[None, :] <= last[:, None])
        if WINDOW:
            oldest = last // window * window if CHUNK else last - window + 1
            shown = shown & (spots[None, :] >= oldest[:, None])
    return shown


@triton.jit
def decode_kernel(
    queries, places, keys, values, parts, peaks, sums,
    S, H, K, D, V, window, scale,
    GROUP: tl.constexpr, NEW: tl.constexpr, BLOCKS: tl.constexpr, WINDOW: tl.constexpr, CHUNK: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, VWIDE: tl.constexpr, FULL: tl.constexpr, SPLITS: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """One KV head of one sequence over one part of its cache: unscaled output, its largest score and its sum.

    Its rows are the query heads that share the KV head, of NEW tokens one after the other; each sees itself at most.
    """
    pair, split, block = tl.program_id(0), tl.program_id(1), 0
    if BLOCKS > 1:
        block = pair % BLOCKS
        pair = pair // BLOCKS
    batch, head = pair // K, pair % K
    let_next(CHAINED)
    wait_last(CHAINED)
    place = tl.load(places + batch)
    heads, live, last, first, length = asked_rows(place, block, batch, head, H, window, GROUP, NEW, ROWS, WINDOW, CHUNK)
    cols, vcols = tl.arange(0, WIDE), tl.arange(0, VWIDE)
    step = tl.cdiv(tl.cdiv(length - first, SPLITS), TILE) * TILE
    begin = first + split * step
    end = tl.minimum(begin + step, length)
    q = tl.load(queries + heads[:, None] * D + cols[None, :], mask=live[:, None] & (cols < D)[None, :], other=0.0)
    q = (q.to(tl.float32) * scale).to(queries.dtype.element_ty)
    base = pair.to(tl.int64) * S
    peak = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, VWIDE), tl.float32)
    for start in range(begin, end, TILE):
        spots = start + tl.arange(0, TILE)
        seen = spots < end
        at = base + spots
        if FULL:
            k = tl.load(keys + at[:, None] * D + cols[None, :], mask=seen[:, None], other=0.0)
            v = tl.load(values + at[:, None] * V + vcols[None, :], mask=seen[:, None], other=0.0)
        else:
            k = tl.load(keys + at[:, None] * D + cols[None, :], mask=seen[:, None] & (cols < D)[None, :], other=0.0)
            v = tl.load(values + at[:, None] * V + vcols[None, :], mask=seen[:, None] & (vcols < V)[None, :], other=0.0)
        score = tl.dot(q, tl.trans(k).to(q.dtype), input_precision="ieee")
        shown = shown_to(spots, seen, last, window, NEW, WINDOW, CHUNK)
        weight, shrink, peak, total = softened(score, shown, peak, total)
        acc = tl.dot(weight.to(q.dtype), v.to(q.dtype), acc * shrink[:, None], input_precision="ieee")
    spot = heads * SPLITS + split
    tl.store(peaks + spot, peak, mask=live)
    tl.store(sums + spot, total, mask=live)
    tl.store(parts + spot[:, None] * V + vcols[None, :], acc, mask=live[:, None] & (vcols < V)[None, :])


@triton.jit
def join_kernel(
    parts, peaks, sums, out, V, SPLITS: tl.constexpr, PADDED: tl.constexpr, VWIDE: tl.constexpr, CHAINED: tl.constexpr
):
    """Joins the parts of one head: out = sum 2^(m_i - m) o_i / sum 2^(m_i - m) l_i."""
    head = tl.program_id(0).to(tl.int64)
    splits, cols = tl.arange(0, PADDED), tl.arange(0, VWIDE)
    live = splits < SPLITS
    let_next(CHAINED)
    wait_last(CHAINED)
    peak = tl.load(peaks + head * SPLITS + splits, mask=live, other=-1e30)
    total = tl.load(sums + head * SPLITS + splits, mask=live, other=0.0)
    factor = tl.exp2(peak - tl.max(peak, 0))
    factor = tl.where(live, factor, 0.0)
    inside = live[:, None] & (cols < V)[None, :]
    acc = tl.load(parts + (head * SPLITS + splits)[:, None] * V + cols[None, :], mask=inside, other=0.0)
    made = tl.sum(acc * factor[:, None], 0) / tl.sum(total * factor, 0)
    tl.store(out + head * V + cols, made.to(out.dtype.element_ty), mask=cols < V)


def splits_of(pairs: int, context: int, sms: int, tile: int = TILE) -> int:
    """Parts of a sequence's cache: a power of two, of a tile or more each, so that every multiprocessor has two programs.

    >>> splits_of(8, 1024, 132), splits_of(128, 1024, 132), splits_of(512, 8192, 132)
    (16, 2, 1)
    """
    wanted = min(PROGRAMS * sms // pairs, context // tile, MOST_SPLITS)
    return int(1 << (max(1, wanted).bit_length() - 1))


def space(queries: Tensor, rows: int, splits: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs of the parts, [rows splits width], their largest scores and their sums, fp32."""
    import torch

    sizes = (rows * splits * width, rows * splits, rows * splits)
    parts, peaks, sums = (torch.empty(size, dtype=torch.float32, device=queries.device) for size in sizes)
    return parts, peaks, sums


def join(found: tuple[Tensor, Tensor, Tensor], out: Tensor, width: int, splits: int, *, chained: bool = False) -> None:
    """Joins the parts of every head into rows of `out`."""
    wide = triton.next_power_of_2(width)
    join_kernel[(out.numel() // width,)](
        *found,
        out,
        width,
        splits,
        splits,
        wide,
        chained,
        num_warps=2 if wide <= NARROW else 4,
        **early(chained),
    )


@dataclass(frozen=True, slots=True)
class Launch:
    """How kernels are launched.

    Args:
        sms: multiprocessors of the device.
        chained: whether a kernel may start before the one before it ends.
    """

    sms: int
    chained: bool = False


def rows_of(group: int, new: int, width: int) -> tuple[int, int]:
    """Queries of a program and programs that a KV head's are cut into: of one new token, one program has all.

    Args:
        group: query heads that share the KV head.
        new: tokens.
        width: of a query. [B]

    >>> rows_of(4, 1, 256), rows_of(4, 5, 256), rows_of(4, 9, 256), rows_of(8, 9, 256), rows_of(4, 9, 1024)
    ((16, 1), (32, 1), (64, 1), (64, 2), (16, 3))
    """
    rows = max(LEAST_ROWS, triton.next_power_of_2(group * new))
    if new > 1:
        rows = min(rows, max(LEAST_ROWS, min(MOST_ROWS, ROW_BYTES // triton.next_power_of_2(width))))
    return rows, int(triton.cdiv(group * new, rows))


def attend(queries: Tensor, places: Tensor, heads: Heads, cache: Cache, out: Tensor, launch: Launch) -> None:
    """As `Kernels.decode_attention`."""
    chained = launch.chained
    batch, kv, capacity, d = cache.keys.shape
    v, group, new = heads.value_dim, heads.query // heads.kv, queries.shape[2]
    rows, blocks = rows_of(group, new, max(d, v) * queries.dtype.itemsize)
    reach = capacity if heads.window is None else min(capacity, heads.window + new - 1)
    splits = splits_of(batch * kv * blocks, reach, launch.sms)
    found = space(queries, batch * new * heads.query, splits, v)
    wide, value_wide = triton.next_power_of_2(d), triton.next_power_of_2(v)
    stages = 3 if TILE * (wide + value_wide) * queries.dtype.itemsize <= 2 * WIDE else 2
    decode_kernel[(batch * kv * blocks, splits)](
        queries, places, cache.keys, cache.values, *found,
        capacity, heads.query, kv, d, v, heads.window or 0, heads.scale * LOG2E,
        group, new, blocks, heads.window is not None, heads.chunk,
        rows, TILE, wide, value_wide, wide == d and value_wide == v, splits, chained,
        num_warps=WARPS, num_stages=stages, **early(chained),
    )  # fmt: skip
    join(found, out, v, splits, chained=chained)
