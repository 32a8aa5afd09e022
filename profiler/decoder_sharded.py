"""What a decoder does beside its layers, alone or with other ranks: tokens looked up, sums, logits, and whether all fits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from roofcast.modelspec.op import COLLECTIVE, ELEMENTWISE, GEMM
from roofcast.profiler.decoder_step import Stage
from roofcast.profiler.errors import AgreedMemoryError
from roofcast.profiler.sharding import share_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from roofcast.profiler.decoder_step import Frame
    from roofcast.profiler.kernels import Weight
    from roofcast.profiler.ranks import Ranks
    from roofcast.profiler.runtime import Runtime


def embedded(frame: Frame, table: Tensor, tokens: Tensor, out: Tensor) -> Iterator[Stage]:
    """Tokens' rows of the embedding into the residual, [T, h]; of a share its own tokens' and zeros, then summed over ranks."""
    torch, share = frame.runtime.torch, share_of(frame.runtime)
    if share.of == 1:
        gather = partial(torch.index_select, table, 0, tokens, out=out)
        yield Stage("embedding", ELEMENTWISE, -1, gather)
        return
    each = table.shape[0] - 1  # the last row, of zeros, stands for tokens of other ranks
    first = share.rank * each

    def look_up() -> None:
        own = tokens - first
        torch.index_select(table, 0, torch.where((own < 0) | (own >= each), each, own), out=out)

    yield Stage("embedding", ELEMENTWISE, -1, look_up)
    yield from summed(frame, out, -1)


def summed(frame: Frame, x: Tensor, layer: int) -> Iterator[Stage]:
    """The sum over ranks of what each has of a product whose inputs are split; nothing of a rank alone."""
    ranks = frame.runtime.ranks
    if ranks is not None:
        yield Stage("tp.all_reduce", COLLECTIVE, layer, partial(ranks.all_reduce, x))


def headed(frame: Frame, head: Weight, x: Tensor, logits: Tensor) -> Iterator[Stage]:
    """Logits of the last rows: a product, and of a share every rank's, put together: [rows, vocabulary], zeros at its end."""
    ranks = frame.runtime.ranks
    if ranks is None:
        yield Stage("head", GEMM, -1, partial(frame.kernels.linear, x, head, logits))
        return
    rows, each = x.shape[0], head.data.shape[0]
    own = frame.scratch("own logits", rows, each)
    every = frame.scratch("logits", ranks.size, rows, each)
    yield Stage("head", GEMM, -1, partial(frame.kernels.linear, x, head, own))
    yield Stage("tp.logits", COLLECTIVE, -1, partial(_gathered, ranks, own, every, logits))


def _gathered(ranks: Ranks, own: Tensor, every: Tensor, logits: Tensor) -> None:
    ranks.all_gather(every, own)
    size, rows, each = every.shape
    logits.view(rows, size, each).copy_(every.transpose(0, 1))


def must_fit(runtime: Runtime, size: int, what: str) -> None:
    """Refuses what is larger than the free memory of the device, or of any rank's.

    Raises:
        AgreedMemoryError: it is; all ranks raise it.
    """
    runtime.release()
    free, ranks = runtime.free_bytes(), runtime.ranks
    if ranks is not None and not runtime.on_cuda:
        free //= ranks.place.locals  # that share the host's
    problem = (
        f"{what} of {size / 2**30:.1f} GiB do not fit {free / 2**30:.1f} GiB that are free on {runtime.machine.name}"
        if size > free
        else ""
    )
    for rank, found in enumerate([problem] if ranks is None else ranks.gather(problem)):
        if found:
            raise AgreedMemoryError(found if ranks is None else f"rank {rank}: {found}")
