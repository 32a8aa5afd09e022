"""Random weights on the device: normal, each matrix scaled so that outputs are as large as inputs; a rank keeps its share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from roofcast.profiler.fp8 import narrowed
from roofcast.profiler.kernels import Weight
from roofcast.profiler.sharding import WHOLE, Share, kept

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sharding import Span

ROWS: Final = 2**24  # elements that are drawn at once where they must be quantised
NORM_SPREAD: Final = 0.1


@dataclass(frozen=True, slots=True)
class Cut:
    """What a rank keeps of a matrix.

    Args:
        rows: spans of outputs; empty is all.
        columns: spans of inputs; empty is all. What is summed over ranks then has its bias on the first alone.
    """

    rows: tuple[Span, ...] = ()
    columns: tuple[Span, ...] = ()

    def of(self, weight: Weight, share: Share) -> Weight:
        """The part of a matrix, in memory of its own."""
        data, scale, bias = weight.data, weight.scale, weight.bias
        if self.rows:
            data = kept(data, self.rows, -2)
            scale = None if scale is None else kept(scale, self.rows, -1)
            bias = None if bias is None else kept(bias, self.rows, -1)
        if self.columns:
            data = kept(data, self.columns, -1)
            bias = bias if share.first else None
        return Weight(data, scale, bias)


@dataclass(slots=True)
class Drawer:
    """Draws weights, or with `counting` only tells how large they would be.

    Args:
        runtime: the device.
        weights, activations: formats of the layers' matrices, and of all else.
        seed: the same weights of the same seed and device.
        counting: whether tensors are without data.
        share: what of matrices is kept; they are drawn whole, so that weights are the same over any number of ranks.
        bytes: of all that was drawn and kept. [B]
        whole_bytes: of the largest matrix that was drawn to be cut. [B]
    """

    runtime: Runtime
    weights: str
    activations: str
    seed: int
    counting: bool = False
    share: Share = WHOLE
    bytes: int = 0
    whole_bytes: int = 0
    _numbers: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._numbers = self.runtime.torch.Generator(device=self.runtime.device).manual_seed(self.seed)

    @property
    def device(self) -> torch.device | str:
        """Where tensors are made."""
        return "meta" if self.counting else self.runtime.device

    def matrix(self, *shape: int, bias: bool = False, plain: bool = False, cut: Cut | None = None) -> Weight:
        """A matrix [..., outputs, inputs] of N(0, 1 / inputs), in the format of weights.

        Args:
            shape: of it.
            bias: whether it has one, N(0, 0.01).
            plain: whether it stays in the format of activations: router, head.
            cut: what a rank keeps; None is all.
        """
        before = self.bytes
        added = self._normal((shape[-2],), NORM_SPREAD) if bias else None
        deviation = 1 / math.sqrt(shape[-1])
        if plain or self.weights != "fp8":
            made = Weight(self._normal(shape, deviation), None, added)
        else:
            data, scale = self._quantised(shape, deviation)
            made = Weight(data, scale, added)
        if cut is None or self.share.of == 1:
            return made
        whole, made = self.bytes - before, cut.of(made, self.share)
        size = sum(one.numel() * one.element_size() for one in (made.data, made.scale, made.bias) if one is not None)
        self.bytes, self.whole_bytes = before + size, max(self.whole_bytes, whole)
        return made

    def table(self, rows: int, width: int) -> Tensor:
        """An embedding of N(0, 1); of a share its rows, and zeros up to one more than every rank has room for."""
        return self._rows((rows, width), 1.0, 1)

    def head(self, rows: int, width: int) -> Weight:
        """A head; of a share its rows, zeros after them up to what every rank has room for."""
        return Weight(self._rows((rows, width), 1 / math.sqrt(width), 0))

    def _rows(self, shape: tuple[int, int], deviation: float, more: int) -> Tensor:
        """A table, or a rank's rows of it with zeros after them."""
        before, made, share = self.bytes, self._normal(shape, deviation), self.share
        if share.of == 1:
            return made
        first, last = share.rows(shape[0])
        own = made.new_zeros((share.each(shape[0]) + more, shape[1]))
        if not self.counting:
            own[: last - first] = made[first:last]
        self.whole_bytes = max(self.whole_bytes, self.bytes - before)
        self.bytes = before + own.numel() * own.element_size()
        return own

    def tied(self, embedding: Tensor) -> Weight:
        """The embedding as a head; of a share without the row that stands for other ranks' tokens."""
        return Weight(embedding if self.share.of == 1 else embedding[:-1])

    def norm(self, width: int) -> Tensor:
        """Weights of a norm, N(1, 0.01)."""
        made = self._normal((width,), NORM_SPREAD)
        return made if self.counting else made.add_(1.0)

    def _normal(self, shape: tuple[int, ...], deviation: float) -> Tensor:
        made = self._new(shape, self.runtime.dtype(self.activations))
        return made if self.counting else made.normal_(0.0, deviation, generator=self._numbers)

    def _quantised(self, shape: tuple[int, ...], deviation: float) -> tuple[Tensor, Tensor]:
        """FP8 numbers and a scale an output: the largest of a row becomes the largest that FP8 has."""
        torch = self.runtime.torch
        data, scale = self._new(shape, self.runtime.dtype("fp8")), self._new(shape[:-1], torch.float32)
        if self.counting:
            return data, scale
        rows, scales = data.view(-1, shape[-1]), scale.view(-1)
        step = max(1, ROWS // shape[-1])
        for first in range(0, rows.shape[0], step):
            part = torch.empty((min(step, rows.shape[0] - first), shape[-1]), device=self.device)
            part.normal_(0.0, deviation, generator=self._numbers)
            narrow, size = narrowed(part, data.dtype)
            rows[first : first + step] = narrow
            scales[first : first + step] = size[:, 0]
        return data, scale

    def _new(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        made: Tensor = self.runtime.torch.empty(shape, dtype=dtype, device=self.device)
        self.bytes += made.numel() * made.element_size()
        return made
