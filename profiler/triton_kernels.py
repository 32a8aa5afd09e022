"""The decoder's kernels on a GPU: fused ones in Triton, the library's where it is quicker, chosen by measuring."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.profiler import (
    triton_attention,
    triton_experts,
    triton_latent,
    triton_linear,
    triton_loose,
    triton_prefill,
)
from roofcast.profiler.torch_kernels import TorchKernels
from roofcast.profiler.triton_attention import Launch
from roofcast.profiler.triton_linear import ACTIVATED, GATED, LINEAR
from roofcast.profiler.tuning import Tuner

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from roofcast.profiler.kernels import Cache, Chosen, Heads, Rotation, Weight
    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.triton_experts import Cut
    from roofcast.profiler.triton_linear import Config

HOPPER: Final = (9, 0)  # compute capability from which a kernel may start before the one before it ends
MOST_PAIRS: Final = 65_535  # of sequence and head, that a grid's second side has
MOST_HEADS: Final = 256  # widest head that fits a program's registers


class TritonKernels(TorchKernels):
    """Fused kernels; what has none is torch's.

    Args:
        runtime: the device.
    """

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._tuner = Tuner(runtime)
        self._sms = runtime.machine.sms
        self._early = runtime.kind == "cuda" and self.torch.cuda.get_device_capability(runtime.device) >= HOPPER

    def _chained(self, tokens: int) -> bool:
        """Whether kernels overlap with the next one's start: they gain by it where each is short, as those of one token."""
        return self._early and tokens == 1

    def norm(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """One program a row."""
        triton_loose.norm(x, None, weight, out, chained=self._chained(x.shape[0]))

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor, out: Tensor) -> None:
        """One program a row, the residual in the same pass."""
        triton_loose.norm(x, residual, weight, out, chained=self._chained(x.shape[0]))

    def linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """Streams the weights where rows are few, else the library."""
        self._stream(LINEAR, x, weight, out)

    def gated_linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """The same with the activation in it."""
        self._stream(GATED, x, weight, out)

    def activated_linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """The same without gate."""
        self._stream(ACTIVATED, x, weight, out)

    def rotate_store(
        self, qkv: Tensor, places: Tensor, rotation: Rotation, heads: Heads, cache: Cache, queries: Tensor
    ) -> None:
        """Norms, rotates and stores in one kernel."""
        triton_loose.rotate_store(qkv, places, rotation, heads, (cache, queries), chained=self._chained(qkv.shape[0]))

    def decode_attention(self, queries: Tensor, places: Tensor, heads: Heads, cache: Cache, out: Tensor) -> None:
        """Split over the cache, where a head fits a program."""
        if max(heads.key_dim, heads.value_dim) > MOST_HEADS:
            super().decode_attention(queries, places, heads, cache, out)
            return
        launch = Launch(self._sms, self._chained(queries.shape[0] * queries.shape[2]))
        triton_attention.attend(queries, places, heads, cache, out, launch)

    def prefill_attention(self, queries: Tensor, heads: Heads, cache: Cache, out: Tensor) -> None:
        """The library's, but for windows shorter than the prompt, of which only what is seen is computed."""
        whole = heads.window is None or heads.window >= queries.shape[2]
        many = queries.shape[0] * queries.shape[1] > MOST_PAIRS
        if whole or many or max(heads.key_dim, heads.value_dim) > MOST_HEADS:
            super().prefill_attention(queries, heads, cache, out)
        else:
            triton_prefill.prefill(queries, heads, cache, out)

    def latent_store(self, latent: Tensor, places: Tensor, rotation: Rotation, weight: Tensor, cache: Tensor) -> None:
        """Norms, rotates and stores in one kernel."""
        triton_loose.latent_store(latent, places, rotation, weight, cache)

    def latent_rotate(self, queries: Tensor, places: Tensor, rotation: Rotation) -> None:
        """In place, a tile of heads a program."""
        triton_loose.latent_rotate(queries, places, rotation)

    def latent_attention(self, queries: Tensor, places: Tensor, scale: float, cache: Tensor, out: Tensor) -> None:
        """Split over the cache, heads of all new tokens in blocks."""
        triton_latent.attend(queries, places, scale, cache, out, Launch(self._sms))

    def route(self, x: Tensor, router: Weight, chosen: Chosen) -> None:
        """The router's product, and the choice in one kernel."""
        scores = x.new_empty((x.shape[0], router.data.shape[0]))
        self.linear(x, router, scores)
        triton_experts.route(scores, chosen)

    def experts(self, x: Tensor, chosen: Chosen, gate_up: Weight, down: Weight, out: Tensor) -> None:
        """Products over blocks of one expert's tokens each."""
        count, inner, slots = gate_up.data.shape[0], down.data.shape[2], chosen.experts.numel()
        space = triton_experts.make_space(x, chosen, count, inner)

        def run(cut: Cut, copy: tuple[Tensor, ...]) -> None:
            del copy  # experts of one layer are larger than a cache
            triton_experts.experts(x, chosen, (gate_up, down), out, space, cut)

        key = ("experts", slots, count, inner, x.shape[1], gate_up.data.dtype)
        run(self._tuner.choose(key, triton_experts.cuts_of(slots, count), run, ()), ())

    def _narrowed(self, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Rows in FP8 in one pass."""
        rows = self.torch.empty(x.shape, dtype=dtype, device=x.device)
        scales = self.torch.empty((x.shape[0], 1), dtype=self.torch.float32, device=x.device)
        triton_loose.narrow(x, rows, scales)
        return rows, scales

    def _stream(self, how: str, x: Tensor, weight: Weight, out: Tensor) -> None:
        rows = x.shape[0]
        if rows > triton_linear.MOST_ROWS:
            self._library(how, x, weight, out)
            return
        vectors = triton_linear.VECTOR if rows == 1 else ()
        narrow = triton_linear.NARROWED if weight.scale is not None else ()
        configs = (*vectors, *narrow, *triton_linear.DOTS, None)

        def run(config: Config | None, data: tuple[Tensor, ...]) -> None:
            one = replace(weight, data=data[0])
            if config is None:
                self._library(how, x, one, out)
            else:
                chained = self._chained(rows) and not config.dots
                given = self._narrowed(x, one.data.dtype) if config.narrow else x
                triton_linear.stream(given, one, out, config, how, chained=chained)

        key = (how, triton_linear.block_rows(rows) if rows > 1 else 1, *weight.data.shape, weight.data.dtype)
        run(self._tuner.choose(key, configs, run, (weight.data,)), (weight.data,))

    def _library(self, how: str, x: Tensor, weight: Weight, out: Tensor) -> None:
        if how == LINEAR:
            super().linear(x, weight, out)
        elif how == ACTIVATED:
            super().activated_linear(x, weight, out)
        else:
            both = x.new_empty((x.shape[0], weight.data.shape[0]))
            super().linear(x, weight, both)
            triton_loose.gate(both, out)
