"""Decode attention over latents, in the absorbed form: every head shares one row of keys, which are values too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import triton
import triton.language as tl

from roofcast.profiler.triton_attention import (
    LEAST_ROWS,
    LOG2E,
    WARPS,
    join,
    shown_to,
    softened,
    space,
    splits_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from roofcast.profiler.triton_attention import Launch

TILE: Final = 32  # latents that a program reads at once
HALF: Final = 2  # [B] of an element in 16 bits
MORE_ROWS: Final = 32  # of a program for several new tokens in 16 bits, since each reads all latents that its rows see


@triton.jit
def latent_kernel(
    queries, places, cache, parts, peaks, sums, S, H, rank, rope, scale, blocks,
    NEW: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, ROPE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """A block of heads of one sequence over one part of its latents, which are keys and, without their tail, values.

    Heads of NEW tokens follow one another, token by token; each sees its own token at most.
    """
    pair, split = tl.program_id(0), tl.program_id(1)
    batch, block = pair // blocks, pair % blocks
    place = tl.load(places + batch)
    rows = block * ROWS + tl.arange(0, ROWS)
    length = place + 1
    last = place + rows // H  # that a row sees, its own
    if NEW > 1:
        length = place + tl.minimum((block * ROWS + ROWS - 1) // H + 1, NEW)
    step = tl.cdiv(tl.cdiv(length, SPLITS), TILE) * TILE
    begin = split * step
    end = tl.minimum(begin + step, length)
    cols, tail = tl.arange(0, WIDE), tl.arange(0, ROPE)
    live = rows < H * NEW
    width = rank + rope
    heads = batch.to(tl.int64) * NEW * H + rows
    row = queries + heads[:, None] * width
    q = tl.load(row + cols[None, :], mask=live[:, None] & (cols < rank)[None, :], other=0.0)
    turned = tl.load(row + rank + tail[None, :], mask=live[:, None] & (tail < rope)[None, :], other=0.0)
    base = cache + batch.to(tl.int64) * S * width
    peak = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, WIDE), tl.float32)
    for start in range(begin, end, TILE):
        spots = start + tl.arange(0, TILE)
        seen = spots < end
        at = base + spots.to(tl.int64)[:, None] * width
        latent = tl.load(at + cols[None, :], mask=seen[:, None] & (cols < rank)[None, :], other=0.0)
        key = tl.load(at + rank + tail[None, :], mask=seen[:, None] & (tail < rope)[None, :], other=0.0)
        score = tl.dot(q, tl.trans(latent), input_precision="ieee")
        score = tl.dot(turned, tl.trans(key), score, input_precision="ieee") * scale
        shown = shown_to(spots, seen, last, 0, NEW, False, False)
        weight, shrink, peak, total = softened(score, shown, peak, total)
        acc = tl.dot(weight.to(latent.dtype), latent, acc * shrink[:, None], input_precision="ieee")
    spot = heads * SPLITS + split
    tl.store(peaks + spot, peak, mask=live)
    tl.store(sums + spot, total, mask=live)
    tl.store(parts + spot[:, None] * rank + cols[None, :], acc, mask=live[:, None] & (cols < rank)[None, :])


def attend(queries: Tensor, places: Tensor, scale: float, cache: Tensor, out: Tensor, launch: Launch) -> None:
    """As `Kernels.latent_attention`."""
    tokens, heads, width = queries.shape
    batch, rank, capacity = places.shape[0], out.shape[2], cache.shape[1]
    new = tokens // batch
    more = new > 1 and queries.dtype.itemsize <= HALF
    rows = MORE_ROWS if more else LEAST_ROWS
    blocks = triton.cdiv(heads * new, rows)
    splits = splits_of(batch * blocks, capacity, launch.sms, TILE)
    found = space(queries, tokens * heads, splits, rank)
    latent_kernel[(batch * blocks, splits)](
        queries, places, cache, *found, capacity, heads, rank, width - rank, scale * LOG2E, blocks,
        new, rows, TILE, triton.next_power_of_2(rank), max(LEAST_ROWS, triton.next_power_of_2(width - rank)), splits,
        num_warps=WARPS, num_stages=2,
    )  # fmt: skip
    join(found, out, rank, splits)
