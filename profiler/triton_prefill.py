"""Prefill attention over a window or chunks, for which torch has no kernel that skips what a query does not see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from roofcast.profiler.triton_attention import LOG2E, first_seen, softened

if TYPE_CHECKING:
    from torch import Tensor

    from roofcast.profiler.kernels import Cache, Heads


@triton.jit
def prefill_kernel(
    queries, keys, values, out, qb, qh, qn, S, H, K, n, D, V, window, scale,
    WINDOW: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, WIDE: tl.constexpr, VWIDE: tl.constexpr,
):  # fmt: skip
    """A block of queries of one head over the keys that they see, causal, in a window or a chunk."""
    block, pair = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1)
    batch, head = pair // H, pair % H
    rows = block * ROWS + tl.arange(0, ROWS)
    cols, vcols = tl.arange(0, WIDE), tl.arange(0, VWIDE)
    source = queries + batch.to(tl.int64) * qb + head.to(tl.int64) * qh
    q = tl.load(
        source + rows.to(tl.int64)[:, None] * qn + cols[None, :],
        mask=(rows < n)[:, None] & (cols < D)[None, :],
        other=0.0,
    )
    base = (batch.to(tl.int64) * K + head // (H // K)) * S
    begin = 0
    if WINDOW:
        begin = (first_seen(block * ROWS + 1, window, WINDOW, CHUNK) // TILE) * TILE
    end = tl.minimum(block * ROWS + ROWS, n)
    peak = tl.full((ROWS,), -1e30, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, VWIDE), tl.float32)
    for start in range(begin, end, TILE):
        spots = start + tl.arange(0, TILE)
        at = base + spots
        k = tl.load(keys + at[:, None] * D + cols[None, :], mask=(spots < n)[:, None] & (cols < D)[None, :], other=0.0)
        v = tl.load(
            values + at[:, None] * V + vcols[None, :], mask=(spots < n)[:, None] & (vcols < V)[None, :], other=0.0
        )
        score = tl.dot(q, tl.trans(k).to(q.dtype), input_precision="ieee") * scale
        seen = spots[None, :] <= rows[:, None]
        if WINDOW:
            oldest = rows // window * window if CHUNK else rows - window + 1
            seen = seen & (spots[None, :] >= oldest[:, None])
        weight, shrink, peak, total = softened(score, seen, peak, total)
        acc = tl.dot(weight.to(q.dtype), v.to(q.dtype), acc * shrink[:, None], input_precision="ieee")
    made = acc / total[:, None]
    place = out + ((batch.to(tl.int64) * n + rows) * H + head)[:, None] * V + vcols[None, :]
    tl.store(place, made.to(out.dtype.element_ty), mask=(rows < n)[:, None] & (vcols < V)[None, :])


def prefill(queries: Tensor, heads: Heads, cache: Cache, out: Tensor) -> None:
    """As `Kernels.prefill_attention`, windows and chunks too; queries may be any view with contiguous heads."""
    batch, h, n, d = queries.shape
    rows, tile = (64, 64) if d > 128 else (128, 64)  # noqa: PLR2004 - what registers hold
    prefill_kernel[(triton.cdiv(n, rows), batch * h)](
        queries, cache.keys, cache.values, out, *queries.stride()[:3], cache.keys.shape[2], h, heads.kv, n, d, heads.value_dim,
        heads.window or 0, heads.scale * LOG2E, heads.window is not None, heads.chunk,
        rows, tile, triton.next_power_of_2(d), triton.next_power_of_2(heads.value_dim), num_warps=8 if rows == 128 else 4, num_stages=3,  # noqa: PLR2004
    )  # fmt: skip
