"""Reads a buffer at the rate of the memory, and does nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import triton
import triton.language as tl

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

BLOCK: Final = 2048  # elements that a program reads at once
TURNS: Final = 16  # that it reads one after the other


@triton.jit
def read_kernel(buffer, out, n, BLOCK: tl.constexpr, TURNS: tl.constexpr):
    """The sum of BLOCK x TURNS elements, one after the other."""
    start = tl.program_id(0).to(tl.int64) * BLOCK * TURNS
    acc = tl.zeros((BLOCK,), tl.float32)
    for turn in range(TURNS):
        at = start + turn * BLOCK + tl.arange(0, BLOCK)
        acc += tl.load(buffer + at, mask=at < n, other=0.0, eviction_policy="evict_first").to(tl.float32)
    tl.store(out + tl.program_id(0), tl.sum(acc, 0))


def read_buffer(buffer: Tensor) -> tuple[Tensor, Callable[[], object]]:
    """What a read of the buffer writes, one fp32 sum a program, and the call that reads it."""
    import torch

    n = buffer.numel()
    programs = triton.cdiv(n, BLOCK * TURNS)
    out = torch.empty(programs, dtype=torch.float32, device=buffer.device)

    def read() -> None:
        read_kernel[(programs,)](buffer, out, n, BLOCK, TURNS, num_warps=4)

    return out, read
