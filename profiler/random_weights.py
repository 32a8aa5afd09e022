"""Random weights on the device: normal, each matrix scaled so that outputs are as large as inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from roofcast.profiler.fp8 import narrowed
from roofcast.profiler.kernels import Weight

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from roofcast.profiler.runtime import Runtime

ROWS: Final = 2**24  # elements that are drawn at once where they must be quantised
NORM_SPREAD: Final = 0.1


@dataclass(slots=True)
class Drawer:
    """Draws weights, or with `counting` only tells how large they would be.

    Args:
        runtime: the device.
        weights, activations: formats of the layers' matrices, and of all else.
        seed: the same weights of the same seed and device.
        counting: whether tensors are without data.
        bytes: of all that was drawn. [B]
    """

    runtime: Runtime
    weights: str
    activations: str
    seed: int
    counting: bool = False
    bytes: int = 0
    _numbers: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._numbers = self.runtime.torch.Generator(device=self.runtime.device).manual_seed(self.seed)

    @property
    def device(self) -> torch.device | str:
        """Where tensors are made."""
        return "meta" if self.counting else self.runtime.device

    def matrix(self, *shape: int, bias: bool = False, plain: bool = False) -> Weight:
        """A matrix [..., outputs, inputs] of N(0, 1 / inputs), in the format of weights.

        Args:
            shape: of it.
            bias: whether it has one, N(0, 0.01).
            plain: whether it stays in the format of activations: router, head.
        """
        added = self._normal((shape[-2],), NORM_SPREAD) if bias else None
        deviation = 1 / math.sqrt(shape[-1])
        if plain or self.weights != "fp8":
            return Weight(self._normal(shape, deviation), None, added)
        data, scale = self._quantised(shape, deviation)
        return Weight(data, scale, added)

    def table(self, rows: int, width: int) -> Tensor:
        """An embedding of N(0, 1)."""
        return self._normal((rows, width), 1.0)

    def tied(self, embedding: Tensor) -> Weight:
        """The embedding as a head."""
        return Weight(embedding)

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
