"""Fused element-wise kernels: norms with residuals, activations, rotary positions with the store into the cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import triton
import triton.language as tl

from roofcast.profiler.fp8 import LEAST, MOST
from roofcast.profiler.triton_linear import let_next, wait_last

if TYPE_CHECKING:
    from torch import Tensor

    from roofcast.profiler.kernels import Cache, Heads, Rotation

EPS: Final = 1e-6
HEADS: Final = 4  # of one program of `rotate_kernel`


def early(chained: bool) -> dict[str, bool]:
    """The option of a launch that may start before the one before it ends."""
    return {"launch_pdl": True} if chained else {}


@triton.jit
def norm_kernel(x, residual, weight, out, h, eps, ADD: tl.constexpr, BLOCK: tl.constexpr, CHAINED: tl.constexpr):
    """One row: residual += x, out = residual / rms(residual) weight; without ADD of x alone."""
    row = tl.program_id(0).to(tl.int64) * h
    cols = tl.arange(0, BLOCK)
    inside = cols < h
    let_next(CHAINED)
    wait_last(CHAINED)
    value = tl.load(x + row + cols, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(residual + row + cols, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + row + cols, value.to(residual.dtype.element_ty), mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, 0) / h + eps)
    scaled = value * scale * tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + cols, scaled.to(out.dtype.element_ty), mask=inside)


def norm(x: Tensor, residual: Tensor | None, weight: Tensor, out: Tensor, *, chained: bool = False) -> None:
    """RMS norm of rows [T, h], of x plus the residual where there is one, which is updated."""
    h = x.shape[-1]
    block = triton.next_power_of_2(h)
    warps = 4 if block <= 2048 else 8 if block <= 8192 else 16  # noqa: PLR2004 - elements a thread
    norm_kernel[(x.shape[0],)](
        x, residual, weight, out, h, EPS, residual is not None, block, chained, num_warps=warps, **early(chained)
    )


@triton.jit
def gate_kernel(both, out, f, total, BLOCK: tl.constexpr):
    """out[T, f] = silu(g) u of both [T, 2 f]."""
    flat = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = flat < total
    row = flat // f
    place = both + row * f + flat
    gate = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(place + f, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + flat, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


def gate(both: Tensor, out: Tensor) -> None:
    """silu(g) u of [T, 2 f], g before u."""
    block = 1024
    gate_kernel[(triton.cdiv(out.numel(), block),)](both, out, out.shape[1], out.numel(), block, num_warps=4)


@triton.jit
def narrow_kernel(x, out, scales, k, most, least, BLOCK: tl.constexpr):
    """One row in FP8: its largest element becomes the largest of the format."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < k
    value = tl.load(x + row * k + cols, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value), 0), least) / most
    tl.store(scales + row, scale)
    tl.store(out + row * k + cols, (value / scale).to(out.dtype.element_ty), mask=inside)


def narrow(x: Tensor, out: Tensor, scales: Tensor) -> None:
    """Rows [T, k] in FP8 and the scale of each, [T, 1] fp32, as `fp8.narrowed`."""
    k = x.shape[1]
    block = triton.next_power_of_2(k)
    narrow_kernel[(x.shape[0],)](x, out, scales, k, MOST, LEAST, block, num_warps=8 if block <= 8192 else 16)  # noqa: PLR2004


@triton.jit
def _head_tile(source, start, heads, HEADS: tl.constexpr, WIDTH: tl.constexpr, width):
    """Offsets and mask of a tile of heads of `width` elements."""
    numbers = start + tl.arange(0, HEADS)
    cols = tl.arange(0, WIDTH)
    inside = (numbers < heads)[:, None] & (cols < width)[None, :]
    return numbers, cols, inside, source + numbers[:, None] * width + cols[None, :]


@triton.jit
def _rotated(
    source,
    start,
    heads,
    weight,
    cos,
    sin,
    half,
    width,
    eps,
    NORMED: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """A tile of heads, normed where NORMED, with its first 2 half elements rotated."""
    numbers, cols, inside, place = _head_tile(source, start, heads, HEADS, WIDTH, width)
    value = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    turned = cols < 2 * half
    other = tl.where(cols < half, cols + half, cols - half)
    other = tl.where(turned, other, cols)
    pair = tl.load(source + numbers[:, None] * width + other[None, :], mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        scale = tl.rsqrt(tl.sum(value * value, 1) / width + eps)[:, None]
        value = value * scale * tl.load(weight + cols, mask=cols < width, other=0.0).to(tl.float32)[None, :]
        pair = pair * scale * tl.load(weight + other, mask=cols < width, other=0.0).to(tl.float32)[None, :]
    angle = tl.where(cols < half, cols, cols - half)
    c = tl.load(cos + angle, mask=turned, other=1.0)[None, :]
    s = tl.load(sin + angle, mask=turned, other=0.0)[None, :]
    return value * c + tl.where(cols < half, -pair, pair) * s


@triton.jit
def rotate_kernel(
    qkv, places, cos, sin, q_weight, k_weight, keys, values, queries,
    n, S, H, K, D, V, half, eps, qb, qh, qn,
    Q_BLOCKS: tl.constexpr, K_BLOCKS: tl.constexpr, Q_NORMED: tl.constexpr, K_NORMED: tl.constexpr,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """One token's queries, keys or values of HEADS heads: normed, rotated, and put where attention reads them."""
    token, block = tl.program_id(0), tl.program_id(1)
    let_next(CHAINED)
    wait_last(CHAINED)
    sequence, number = token // n, token % n
    place = tl.load(places + sequence) + number
    row = qkv + token.to(tl.int64) * (H * D + K * D + K * V)
    turn = place.to(tl.int64) * half
    if block < Q_BLOCKS:
        start = block * HEADS
        made = _rotated(row, start, H, q_weight, cos + turn, sin + turn, half, D, eps, Q_NORMED, HEADS, WIDTH)
        numbers, cols, inside, _ = _head_tile(row, start, H, HEADS, WIDTH, D)
        base = queries + sequence.to(tl.int64) * qb + number.to(tl.int64) * qn
        tl.store(base + numbers[:, None] * qh + cols[None, :], made.to(queries.dtype.element_ty), mask=inside)
    elif block < Q_BLOCKS + K_BLOCKS:
        start = (block - Q_BLOCKS) * HEADS
        made = _rotated(row + H * D, start, K, k_weight, cos + turn, sin + turn, half, D, eps, K_NORMED, HEADS, WIDTH)
        numbers, cols, inside, _ = _head_tile(row, start, K, HEADS, WIDTH, D)
        spot = ((sequence.to(tl.int64) * K + numbers) * S + place)[:, None] * D + cols[None, :]
        tl.store(keys + spot, made.to(keys.dtype.element_ty), mask=inside)
    else:
        start = (block - Q_BLOCKS - K_BLOCKS) * HEADS
        numbers, cols, inside, from_ = _head_tile(row + H * D + K * D, start, K, HEADS, WIDTH, V)
        spot = ((sequence.to(tl.int64) * K + numbers) * S + place)[:, None] * V + cols[None, :]
        tl.store(values + spot, tl.load(from_, mask=inside, other=0.0).to(values.dtype.element_ty), mask=inside)


def rotate_store(
    qkv: Tensor, places: Tensor, rotation: Rotation, heads: Heads, into: tuple[Cache, Tensor], *, chained: bool = False
) -> None:
    """As `Kernels.rotate_store`, into cache and queries; these may be any view whose last dimension is contiguous."""
    cache, queries = into
    tokens, batch = qkv.shape[0], queries.shape[0]
    q_blocks, k_blocks = triton.cdiv(heads.query, HEADS), triton.cdiv(heads.kv, HEADS)
    width = triton.next_power_of_2(max(heads.key_dim, heads.value_dim))
    rotate_kernel[(tokens, q_blocks + 2 * k_blocks)](
        qkv, places, rotation.cos, rotation.sin, heads.query_norm, heads.key_norm, cache.keys, cache.values, queries,
        tokens // batch, cache.keys.shape[2], heads.query, heads.kv, heads.key_dim, heads.value_dim,
        rotation.rotated // 2, EPS, *queries.stride()[:3],
        q_blocks, k_blocks, heads.query_norm is not None, heads.key_norm is not None, HEADS, width, chained,
        num_warps=2, **early(chained),
    )  # fmt: skip


@triton.jit
def latent_store_kernel(
    latent, places, cos, sin, weight, cache, n, S, rank, rope, eps, WIDTH: tl.constexpr, ROPE: tl.constexpr
):
    """One token's latent, normed, and its rotated key, put into the cache."""
    token = tl.program_id(0)
    sequence, number = token // n, token % n
    place = (tl.load(places + sequence) + number).to(tl.int64)
    row = latent + token.to(tl.int64) * (rank + rope)
    spot = cache + (sequence.to(tl.int64) * S + place) * (rank + rope)
    cols = tl.arange(0, WIDTH)
    inside = cols < rank
    value = tl.load(row + cols, mask=inside, other=0.0).to(tl.float32)
    value = value * tl.rsqrt(tl.sum(value * value, 0) / rank + eps)
    value = value * tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(spot + cols, value.to(cache.dtype.element_ty), mask=inside)
    if ROPE > 0:
        half = rope // 2
        turn = tl.arange(0, ROPE)
        live = turn < rope
        other = tl.where(turn < half, turn + half, turn - half)
        first = tl.load(row + rank + turn, mask=live, other=0.0).to(tl.float32)
        pair = tl.load(row + rank + other, mask=live, other=0.0).to(tl.float32)
        angle = place * half + tl.where(turn < half, turn, turn - half)
        c, s = tl.load(cos + angle, mask=live, other=1.0), tl.load(sin + angle, mask=live, other=0.0)
        made = first * c + tl.where(turn < half, -pair, pair) * s
        tl.store(spot + rank + turn, made.to(cache.dtype.element_ty), mask=live)


def latent_store(latent: Tensor, places: Tensor, rotation: Rotation, weight: Tensor, cache: Tensor) -> None:
    """As `Kernels.latent_store`."""
    rank, rope = weight.shape[0], latent.shape[1] - weight.shape[0]
    latent_store_kernel[(latent.shape[0],)](
        latent, places, rotation.cos, rotation.sin, weight, cache, latent.shape[0] // places.shape[0], cache.shape[1],
        rank, rope, EPS, triton.next_power_of_2(rank), triton.next_power_of_2(rope) if rope else 0, num_warps=4,
    )  # fmt: skip


@triton.jit
def latent_rotate_kernel(queries, places, cos, sin, n, H, width, rope, HEADS: tl.constexpr, ROPE: tl.constexpr):
    """Rotates the last elements of a tile of heads of one token, in place."""
    token = tl.program_id(0)
    place = (tl.load(places + token // n) + token % n).to(tl.int64)
    numbers = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    half = rope // 2
    turn = tl.arange(0, ROPE // 2)
    live = (numbers < H)[:, None] & (turn < half)[None, :]
    spot = queries + token.to(tl.int64) * H * width + numbers[:, None] * width + (width - rope) + turn[None, :]
    first = tl.load(spot, mask=live, other=0.0).to(tl.float32)
    second = tl.load(spot + half, mask=live, other=0.0).to(tl.float32)
    c = tl.load(cos + place * half + turn, mask=turn < half, other=1.0)[None, :]
    s = tl.load(sin + place * half + turn, mask=turn < half, other=0.0)[None, :]
    tl.store(spot, (first * c - second * s).to(queries.dtype.element_ty), mask=live)
    tl.store(spot + half, (second * c + first * s).to(queries.dtype.element_ty), mask=live)


def latent_rotate(queries: Tensor, places: Tensor, rotation: Rotation) -> None:
    """As `Kernels.latent_rotate`."""
    tokens, heads, width = queries.shape
    if rotation.rotated:
        latent_rotate_kernel[(tokens, triton.cdiv(heads, 16))](
            queries, places, rotation.cos, rotation.sin, tokens // places.shape[0], heads, width, rotation.rotated,
            16, triton.next_power_of_2(rotation.rotated), num_warps=2,
        )  # fmt: skip
