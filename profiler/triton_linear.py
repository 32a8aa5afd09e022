"""Products of few rows, bound by reading their weights: kernels that stream these, and the choice of the quickest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

    from roofcast.profiler.kernels import Weight


LINEAR: Final = "linear"
ACTIVATED: Final = "activated"
GATED: Final = "gated"


@triton.jit
def let_next(CHAINED: tl.constexpr):
    """Lets the kernel after this one start, as far as multiprocessors have room, while this one runs."""
    if CHAINED:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def wait_last(CHAINED: tl.constexpr):
    """Waits for the kernel before this one, where it was let start early: nothing that it wrote is read above."""
    if CHAINED:
        tl.extra.cuda.gdc_wait()


@triton.jit
def _finished(acc, scale, bias, rows, row_mask, SCALED: tl.constexpr, BIASED: tl.constexpr):
    """Scale and bias of outputs in rows of acc [N, M]."""
    if SCALED:
        acc = acc * tl.load(scale + rows, mask=row_mask, other=0.0)[:, None]
    if BIASED:
        acc = acc + tl.load(bias + rows, mask=row_mask, other=0.0).to(tl.float32)[:, None]
    return acc


@triton.jit
def _tile(x, weight, acc, rows, row_mask, cols, ms, M, K, EVEN: tl.constexpr):
    """acc[N, M] + weight[N, K] x[M, K]^T over one block of k."""
    live = ms < M
    if EVEN:
        w = tl.load(
            weight + rows[:, None] * K + cols[None, :],
            mask=row_mask[:, None],
            other=0.0,
            eviction_policy="evict_first",
        )
        v = tl.load(x + ms[None, :] * K + cols[:, None], mask=live[None, :], other=0.0)
    else:
        inside = cols < K
        w = tl.load(
            weight + rows[:, None] * K + cols[None, :],
            mask=row_mask[:, None] & inside[None, :],
            other=0.0,
            eviction_policy="evict_first",
        )
        v = tl.load(x + ms[None, :] * K + cols[:, None], mask=live[None, :] & inside[:, None], other=0.0)
    return tl.dot(w.to(x.dtype.element_ty), v, acc, input_precision="ieee")


@triton.jit
def dot_kernel(
    x, sizes, weight, scale, bias, out, M, N, K,
    GATED: tl.constexpr, ACT: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr, EVEN: tl.constexpr,
    NARROW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """out[M, N] = act(x[M, K] weight[N, K]^T) on tensor cores, weights as the left operand; gated: weight is [2 N, K].

    NARROW: x is in FP8 like the weights, each of its rows with a scale in `sizes`.
    """
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows < N
    ms = tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    up = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    wide = rows.to(tl.int64)
    for start in range(0, K, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        acc = _tile(x, weight, acc, wide, row_mask, cols, ms, M, K, EVEN)
        if GATED:
            up = _tile(x, weight, up, wide + N, row_mask, cols, ms, M, K, EVEN)
    if NARROW:
        size = tl.load(sizes + ms, mask=ms < M, other=0.0)[None, :]
        acc = acc * size
        up = up * size
    acc = _finished(acc, scale, bias, rows, row_mask, SCALED, BIASED)
    if GATED:
        up = _finished(up, scale, bias, rows + N, row_mask, SCALED, BIASED)
        acc = acc * tl.sigmoid(acc) * up
    elif ACT:
        acc = acc * tl.sigmoid(acc)
    place = out + ms[None, :] * N + rows[:, None]
    tl.store(place, acc.to(out.dtype.element_ty), mask=row_mask[:, None] & (ms < M)[None, :])


@triton.jit
def _row_tile(weight, rows, row_mask, cols, K, EVEN: tl.constexpr):
    """A tile of weights, on its way to registers."""
    mask = row_mask[:, None] if EVEN else row_mask[:, None] & (cols < K)[None, :]
    return tl.load(weight + rows[:, None] * K + cols[None, :], mask=mask, other=0.0, eviction_policy="evict_first")


@triton.jit
def vector_kernel(
    x, sizes, weight, scale, bias, out, M, N, K,
    GATED: tl.constexpr, ACT: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr, EVEN: tl.constexpr,
    NARROW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, CHAINED: tl.constexpr,
):  # fmt: skip
    """The same for one row, without tensor cores: weights go straight to registers, the first of them before the wait."""
    rows = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows < N
    wide = rows.to(tl.int64)
    let_next(CHAINED)
    cols = tl.arange(0, BLOCK_K)
    first = _row_tile(weight, wide, row_mask, cols, K, EVEN)
    second = first
    if GATED:
        second = _row_tile(weight, wide + N, row_mask, cols, K, EVEN)
    wait_last(CHAINED)
    v = tl.load(x + cols, mask=cols < K, other=0.0).to(tl.float32)[None, :]
    part, more = first.to(tl.float32) * v, second.to(tl.float32) * v
    for start in range(BLOCK_K, K, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        v = tl.load(x + cols, mask=cols < K, other=0.0).to(tl.float32)[None, :]
        part += _row_tile(weight, wide, row_mask, cols, K, EVEN).to(tl.float32) * v
        if GATED:
            more += _row_tile(weight, wide + N, row_mask, cols, K, EVEN).to(tl.float32) * v
    acc = _finished(tl.sum(part, 1)[:, None], scale, bias, rows, row_mask, SCALED, BIASED)
    if GATED:
        up = _finished(tl.sum(more, 1)[:, None], scale, bias, rows + N, row_mask, SCALED, BIASED)
        acc = acc * tl.sigmoid(acc) * up
    elif ACT:
        acc = acc * tl.sigmoid(acc)
    tl.store(out + rows[:, None], acc.to(out.dtype.element_ty), mask=row_mask[:, None])


@dataclass(frozen=True, slots=True)
class Config:
    """How a kernel is cut.

    Args:
        dots: whether it runs on tensor cores; else one row on plain ones.
        block_n, block_k: of the weights' tile.
        warps, stages: of a program.
        narrow: whether rows are brought into FP8 first, which tensor cores then multiply.
    """

    dots: bool
    block_n: int
    block_k: int
    warps: int
    stages: int
    narrow: bool = False


VECTOR: Final = (
    Config(False, 4, 1024, 8, 1), Config(False, 2, 2048, 8, 1), Config(False, 4, 2048, 8, 1), Config(False, 1, 4096, 8, 1),
    Config(False, 4, 512, 4, 1), Config(False, 1, 2048, 4, 1),
)  # fmt: skip
DOTS: Final = (
    Config(True, 64, 128, 4, 4), Config(True, 32, 128, 4, 5), Config(True, 64, 64, 4, 6), Config(True, 128, 64, 8, 4),
    Config(True, 16, 256, 4, 4),
)  # fmt: skip
#: of FP8 weights, beside DOTS, which widen them
NARROWED: Final = (
    Config(True, 64, 128, 4, 5, narrow=True), Config(True, 128, 128, 8, 4, narrow=True), Config(True, 64, 256, 4, 4, narrow=True),
)  # fmt: skip
LEAST_ROWS: Final = 16  # that tensor cores multiply at once
MOST_ROWS: Final = 64  # more are a library's


def block_rows(m: int) -> int:
    """Rows of x that one program multiplies: the power of two from 16 that holds them."""
    return max(LEAST_ROWS, 1 << (m - 1).bit_length())


def stream(
    x: Tensor | tuple[Tensor, Tensor],
    weight: Weight,
    out: Tensor,
    config: Config,
    how: str = LINEAR,
    *,
    chained: bool = False,
) -> None:
    """out = x data^T, with scale, bias and activation, in one kernel of `config`; x [M, K], M at most 64.

    `how` is LINEAR, ACTIVATED or GATED; `chained` lets it start before the kernel before it ends. Rows in FP8 come with
    their scales, [M, 1].
    """
    x, sizes = x if isinstance(x, tuple) else (x, None)
    m, k = x.shape
    n = out.shape[1]
    kernel: Any = dot_kernel if config.dots else vector_kernel
    kernel[(triton.cdiv(n, config.block_n),)](
        x, sizes, weight.data, weight.scale, weight.bias, out, m, n, k,
        how == GATED, how == ACTIVATED, weight.scale is not None, weight.bias is not None, k % config.block_k == 0,
        config.narrow, block_rows(m), config.block_n, config.block_k, chained,
        num_warps=config.warps, num_stages=config.stages, **({"launch_pdl": True} if chained else {}),
    )  # fmt: skip
