"""Routed experts: the router's choice, tokens sorted into blocks of one expert each, and products over these blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    from torch import Tensor

    from roofcast.profiler.kernels import Chosen, Weight


@triton.jit
def route_kernel(logits, experts, weights, E, K: tl.constexpr, WIDE: tl.constexpr):
    """The K largest logits of one token, and their softmax."""
    token = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, WIDE)
    left = tl.load(logits + token * E + cols, mask=cols < E, other=float("-inf")).to(tl.float32)
    most = tl.max(left, 0)
    total = 0.0
    for number in tl.static_range(K):
        value, best = tl.max(left, 0), tl.argmax(left, 0)
        share = tl.exp(value - most)
        total += share
        tl.store(experts + token * K + number, best.to(tl.int32))
        tl.store(weights + token * K + number, share)
        left = tl.where(cols == best, float("-inf"), left)
    for number in tl.static_range(K):
        tl.store(weights + token * K + number, tl.load(weights + token * K + number) / total)


def route(logits: Tensor, chosen: Chosen) -> None:
    """The k largest of [T, E] logits, their weights the softmax over these k."""
    tokens, count = logits.shape
    route_kernel[(tokens,)](
        logits,
        chosen.experts,
        chosen.weights,
        count,
        chosen.experts.shape[1],
        triton.next_power_of_2(count),
        num_warps=1,
    )


@triton.jit
def sort_kernel(
    ids, slots, owners, starts, counts, total, N, BLOCK: tl.constexpr, ROWS: tl.constexpr, SPARE: tl.constexpr
):
    """Slots of one expert, in order, and the blocks of ROWS that they fill: whose they are, and where they start."""
    expert = tl.program_id(0)
    found = 0
    for start in range(0, N, BLOCK):
        places = start + tl.arange(0, BLOCK)
        mine = (tl.load(ids + places, mask=places < N, other=-1) == expert).to(tl.int32)
        rank = tl.cumsum(mine, 0) - mine + found
        tl.store(slots + expert.to(tl.int64) * N + rank, places, mask=mine > 0)
        found += tl.sum(mine, 0)
    tl.store(counts + expert, found)
    blocks = tl.cdiv(found, ROWS)
    first = tl.atomic_add(total, blocks)
    for start in range(0, blocks, SPARE):
        more = start + tl.arange(0, SPARE)
        tl.store(owners + first + more, tl.zeros((SPARE,), tl.int32) + expert, mask=more < blocks)
        tl.store(starts + first + more, more * ROWS, mask=more < blocks)


@triton.jit
def _product(
    x, matrix, rows, row_mask, tokens, live, K, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr, ROWS: tl.constexpr
):
    """[BLOCK_N, ROWS]: rows of one expert's matrix times gathered rows of x."""
    acc = tl.zeros((BLOCK_N, ROWS), tl.float32)
    for start in range(0, K, BLOCK_K):
        cols = start + tl.arange(0, BLOCK_K)
        inside = cols < K
        w = tl.load(matrix + rows[:, None] * K + cols[None, :], mask=row_mask[:, None] & inside[None, :], other=0.0)
        v = tl.load(x + tokens[None, :] * K + cols[:, None], mask=live[None, :] & inside[:, None], other=0.0)
        acc = tl.dot(w.to(x.dtype.element_ty), v, acc, input_precision="ieee")
    return acc


@triton.jit
def experts_kernel(
    x, matrix, scale, weights, out, slots, owners, starts, counts, total, N, outputs, K, TOP: tl.constexpr,
    GATED: tl.constexpr, SCALED: tl.constexpr, WEIGHED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One block of an expert's tokens through some of its outputs: gate and up with the activation, or down weighed."""
    block = tl.program_id(0)
    if block >= tl.load(total):
        return
    expert = tl.load(owners + block).to(tl.int64)
    places = tl.load(starts + block) + tl.arange(0, ROWS)
    live = places < tl.load(counts + expert)
    slot = tl.load(slots + expert * N + places, mask=live, other=0).to(tl.int64)
    rows = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows < outputs
    wide = rows.to(tl.int64)
    source = slot // TOP if GATED else slot
    height = 2 * outputs if GATED else outputs
    own = matrix + expert * height * K
    acc = _product(x, own, wide, row_mask, source, live, K, BLOCK_K, BLOCK_N, ROWS)
    if SCALED:
        acc = acc * tl.load(scale + expert * height + rows, mask=row_mask, other=0.0)[:, None]
    if GATED:
        up = _product(x, own, wide + outputs, row_mask, source, live, K, BLOCK_K, BLOCK_N, ROWS)
        if SCALED:
            up = up * tl.load(scale + expert * height + outputs + rows, mask=row_mask, other=0.0)[:, None]
        acc = acc * tl.sigmoid(acc) * up
    if WEIGHED:
        acc = acc * tl.load(weights + slot, mask=live, other=0.0)[None, :]
    tl.store(
        out + slot[None, :] * outputs + rows[:, None],
        acc.to(out.dtype.element_ty),
        mask=row_mask[:, None] & live[None, :],
    )


@triton.jit
def sum_kernel(parts, out, h, TOP: tl.constexpr, BLOCK: tl.constexpr):
    """out[T, h] = sum over k of parts[T, k, h]."""
    token = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for number in tl.static_range(TOP):
        acc += tl.load(parts + (token * TOP + number) * h + cols, mask=cols < h, other=0.0).to(tl.float32)
    tl.store(out + token * h + cols, acc.to(out.dtype.element_ty), mask=cols < h)


@dataclass(frozen=True, slots=True)
class Cut:
    """How the products are cut.

    Args:
        rows: tokens of a block.
        block_n, block_k: of a matrix' tile.
        warps, stages: of a program.
    """

    rows: int
    block_n: int
    block_k: int
    warps: int
    stages: int


#: mean tokens of an expert up to which a cut is tried -> cuts
CUTS: dict[int, tuple[Cut, ...]] = {
    16: (Cut(16, 64, 128, 4, 4), Cut(16, 32, 128, 4, 5), Cut(16, 128, 64, 8, 4)),
    64: (Cut(32, 64, 128, 4, 4), Cut(64, 128, 64, 8, 4), Cut(64, 64, 64, 4, 4)),
    1 << 30: (Cut(128, 128, 64, 8, 3), Cut(64, 128, 64, 4, 4), Cut(128, 256, 64, 8, 3), Cut(128, 128, 64, 4, 3)),
}


def cuts_of(slots: int, experts: int) -> tuple[Cut, ...]:
    """Cuts worth trying where so many rows go to so many experts."""
    return next(cuts for most, cuts in CUTS.items() if slots <= most * experts)


@dataclass(frozen=True, slots=True)
class Space:
    """What sorting needs: [E, N] slots, owner and start of each block, tokens of each expert, blocks in all."""

    slots: Tensor
    owners: Tensor
    starts: Tensor
    counts: Tensor
    total: Tensor
    inner: Tensor
    parts: Tensor


def make_space(x: Tensor, chosen: Chosen, experts: int, inner: int) -> Space:
    """Workspace for T tokens of k experts each."""
    import torch

    n = chosen.experts.numel()

    def integers(*shape: int) -> Tensor:
        made: Tensor = torch.empty(shape, dtype=torch.int32, device=x.device)
        return made

    return Space(
        slots=integers(experts, n), owners=integers(n + experts), starts=integers(n + experts), counts=integers(experts),
        total=integers(1), inner=torch.empty((n, inner), dtype=x.dtype, device=x.device),
        parts=torch.empty((n, x.shape[1]), dtype=x.dtype, device=x.device),
    )  # fmt: skip


def experts(x: Tensor, chosen: Chosen, weights: tuple[Weight, Weight], out: Tensor, space: Space, cut: Cut) -> None:
    """As `Kernels.experts`, with gate_up and down in `weights`."""
    gate_up, down = weights
    count, n, top = gate_up.data.shape[0], chosen.experts.numel(), chosen.experts.shape[1]
    h, f = x.shape[1], down.data.shape[2]
    space.total.zero_()
    sort_kernel[(count,)](
        chosen.experts,
        space.slots,
        space.owners,
        space.starts,
        space.counts,
        space.total,
        n,
        1024,
        cut.rows,
        64,
        num_warps=4,
    )
    blocks = min(n, n // cut.rows + count)
    tables = (space.slots, space.owners, space.starts, space.counts, space.total)
    how = {"num_warps": cut.warps, "num_stages": cut.stages}
    experts_kernel[(blocks, triton.cdiv(f, cut.block_n))](
        x, gate_up.data, gate_up.scale, chosen.weights, space.inner, *tables, n, f, h, top,
        True, gate_up.scale is not None, False, cut.rows, cut.block_n, cut.block_k, **how,
    )  # fmt: skip
    experts_kernel[(blocks, triton.cdiv(h, cut.block_n))](
        space.inner, down.data, down.scale, chosen.weights, space.parts, *tables, n, h, f, top,
        False, down.scale is not None, True, cut.rows, cut.block_n, cut.block_k, **how,
    )  # fmt: skip
    sum_kernel[(x.shape[0], triton.cdiv(h, 1024))](space.parts, out, h, top, 1024, num_warps=4)
