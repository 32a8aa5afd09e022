"""Every kernel of a decoder in plain torch: on any device, in any format; launches only, so that a graph can record them."""

from __future__ import annotations

from contextlib import nullcontext
from inspect import signature
from typing import TYPE_CHECKING, Final

from roofcast.profiler.fp8 import MULTIPLE, narrowed, widened
from roofcast.profiler.torch_experts import routed

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor

    from roofcast.profiler.kernels import Cache, Chosen, Heads, Rotation, Weight
    from roofcast.profiler.runtime import Runtime

EPSILON: Final = 1e-6
#: SDPA backends of torch, the fastest first; one that cannot run a shape leaves it to the next
CAUSAL: Final = ("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
MASKED: Final = ("EFFICIENT_ATTENTION", "MATH")


class TorchKernels:
    """Kernels by torch's own operations.

    Args:
        runtime: the device.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.torch = runtime.torch
        self.functional = runtime.torch.nn.functional
        known = str(self.functional.scaled_dot_product_attention.__doc__)
        self._grouped = "enable_gqa" in known  # from torch 2.5 on

    def norm(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """RMS norm of rows, in fp32."""
        out.copy_(self._normed(x, weight))

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor, out: Tensor) -> None:
        """Adds to the residual, then its norm."""
        residual.add_(x)
        out.copy_(self._normed(residual, weight))

    def linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """A product and its bias."""
        if weight.scale is not None:
            self._scaled(x, weight, weight.scale, out)
        elif weight.bias is None:
            self.torch.mm(x, weight.data.t(), out=out)
        else:
            self.torch.addmm(weight.bias, x, weight.data.t(), out=out)

    def gated_linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """Gate and up in one product, then silu(g) u."""
        both = self.torch.empty((x.shape[0], weight.data.shape[0]), dtype=out.dtype, device=out.device)
        self.linear(x, weight, both)
        gate, up = both.chunk(2, dim=1)
        self.torch.mul(self.functional.silu(gate), up, out=out)

    def activated_linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """A product, then silu in place."""
        self.linear(x, weight, out)
        self.functional.silu(out, inplace=True)

    def rotate_store(
        self, qkv: Tensor, places: Tensor, rotation: Rotation, heads: Heads, cache: Cache, queries: Tensor
    ) -> None:
        """Splits, norms and rotates; queries go to their tensor, keys and values to the cache."""
        batch, _, n, _ = queries.shape
        widths = [heads.query * heads.key_dim, heads.kv * heads.key_dim, heads.kv * heads.value_dim]
        query, key, value = qkv.view(batch, n, -1).split(widths, dim=-1)
        at = self._positions(places, n)  # [B, n]
        asked = self._headed(query, heads.query, heads.query_norm)
        kept = self._headed(key, heads.kv, heads.key_norm)
        queries.copy_(self._rotated(asked, at, rotation))
        self._store(cache.keys, at, self._rotated(kept, at, rotation))
        self._store(cache.values, at, self._headed(value, heads.kv, None))

    def decode_attention(self, queries: Tensor, places: Tensor, heads: Heads, cache: Cache, out: Tensor) -> None:
        """SDPA in which the query heads that share a KV head, of every new token, stand as its queries, with a mask of what each may see."""
        batch, n, kv = queries.shape[0], queries.shape[2], heads.kv
        group = heads.query // kv
        grouped = queries.reshape(batch, kv, group * n, heads.key_dim)
        seen = self._seen(places, n, heads, cache.keys.shape[2]).repeat(1, 1, 1 if n == 1 else group, 1)
        found = self._attend(grouped, cache.keys, cache.values, mask=seen, scale=heads.scale)  # [B, K, group n, V]
        rows = out.view(batch, n, kv, group, heads.value_dim)
        rows.copy_(found.unflatten(2, (group, n)).permute(0, 3, 1, 2, 4))

    def prefill_attention(self, queries: Tensor, heads: Heads, cache: Cache, out: Tensor) -> None:
        """SDPA over prompts: causal, block by block where a window is shorter than the prompt."""
        batch, _, n, _ = queries.shape
        keys, values = cache.keys[:, :, :n], cache.values[:, :, :n]
        whole = heads.window is None or heads.window >= n
        attend = self._causal if whole else self._chunks if heads.chunk else self._windows
        found = attend(queries, keys, values, heads)  # [B, H, n, V]
        out.view(batch, n, heads.query, heads.value_dim).copy_(found.transpose(1, 2))

    def latent_store(self, latent: Tensor, places: Tensor, rotation: Rotation, weight: Tensor, cache: Tensor) -> None:
        """Norms the latent, rotates the key beside it, and stores both."""
        batch, rank = cache.shape[0], weight.shape[0]
        rows = latent.view(batch, -1, latent.shape[-1])
        at = self._positions(places, rows.shape[1])
        key = self._rotated(rows[:, None, :, rank:], at, rotation)
        made = self.torch.cat((self._normed(rows[..., :rank], weight), key[:, 0].to(latent.dtype)), dim=-1)
        self._store(cache[:, None], at, made[:, None])

    def latent_rotate(self, queries: Tensor, places: Tensor, rotation: Rotation) -> None:
        """Rotates the last part of every head."""
        batch, (tokens, heads, _) = places.shape[0], queries.shape
        part = queries[..., queries.shape[-1] - rotation.rotated :].view(batch, tokens // batch, heads, -1)
        turned = self._rotated(part.transpose(1, 2), self._positions(places, tokens // batch), rotation)
        part.copy_(turned.transpose(1, 2))

    def latent_attention(self, queries: Tensor, places: Tensor, scale: float, cache: Tensor, out: Tensor) -> None:
        """SDPA in which all heads stand as the queries of one head of keys."""
        batch, (tokens, heads, width), rank = places.shape[0], queries.shape, out.shape[-1]
        n, slots = tokens // batch, self.torch.arange(cache.shape[1], device=cache.device)
        seen = (slots <= self._positions(places, n)[..., None]).repeat_interleave(1 if n == 1 else heads, 1)
        asked = queries.view(batch, 1, n * heads, width)
        found = self._attend(asked, cache[:, None], cache[:, None, :, :rank], mask=seen[:, None], scale=scale)
        out.view(batch, n * heads, rank).copy_(found[:, 0])

    def route(self, x: Tensor, router: Weight, chosen: Chosen) -> None:
        """The k largest scores, and a softmax over these alone: that of all, made to sum to 1."""
        scores = self.torch.empty((x.shape[0], router.data.shape[0]), dtype=x.dtype, device=x.device)
        self.linear(x, router, scores)
        best, experts = scores.float().topk(chosen.experts.shape[1], dim=-1)
        chosen.experts.copy_(experts)
        chosen.weights.copy_(best.softmax(-1))

    def experts(self, x: Tensor, chosen: Chosen, gate_up: Weight, down: Weight, out: Tensor) -> None:
        """Tokens sorted by expert, a grouped product over each expert's, and their sum."""
        routed(self.runtime, x, chosen, (gate_up, down), out)

    def _normed(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        scale = self.torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        made: Tensor = (wide * scale * weight.float()).to(x.dtype)
        return made

    def _scaled(self, x: Tensor, weight: Weight, scale: Tensor, out: Tensor) -> None:
        """FP8: on a device that multiplies it each token gets a scale of its own; elsewhere weights are widened first."""
        if not self.runtime.on_cuda or any(size % MULTIPLE for size in weight.data.shape):
            found = x @ widened(weight.data, scale, x.dtype).t()
            out.copy_(found if weight.bias is None else found + weight.bias)
            return
        rows, size = self._narrowed(x, weight.data.dtype)
        self.torch._scaled_mm(  # noqa: SLF001 - the only name that torch has for it in many versions
            rows, weight.data.t(), scale_a=size, scale_b=scale[None], bias=weight.bias, out_dtype=out.dtype, out=out
        )

    def _narrowed(self, x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Rows in FP8 and the scale of each."""
        return narrowed(x, dtype)

    def _positions(self, places: Tensor, n: int) -> Tensor:
        """Places of n new tokens of each sequence, [B, n], int64."""
        found: Tensor = places.long()[:, None] + self.torch.arange(n, device=places.device)
        return found

    def _headed(self, x: Tensor, heads: int, weight: Tensor | None) -> Tensor:
        """[B, n, heads width] as [B, heads, n, width], normed where there is a weight."""
        split = x.unflatten(-1, (heads, -1)).transpose(1, 2)
        return split if weight is None else self._normed(split, weight)

    def _rotated(self, x: Tensor, at: Tensor, rotation: Rotation) -> Tensor:
        """Rotates the first elements of [B, heads, n, width] by the angles of the places [B, n]."""
        if not rotation.rotated:
            return x
        half = rotation.rotated // 2
        cos, sin = rotation.cos[at][:, None], rotation.sin[at][:, None]  # [B, 1, n, half]
        first, second = x[..., :half].float(), x[..., half : 2 * half].float()
        turned = self.torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
        made: Tensor = self.torch.cat((turned, x[..., 2 * half :]), dim=-1)
        return made

    def _store(self, cache: Tensor, at: Tensor, rows: Tensor) -> None:
        """Writes [B, K, n, width] into [B, K, S, width] at the places [B, n]."""
        cache.scatter_(2, at[:, None, :, None].expand(rows.shape), rows)

    def _seen(self, places: Tensor, n: int, heads: Heads, slots: int) -> Tensor:
        """Which places of the cache each of n new tokens sees, [B, 1, n, S]."""
        slot, last = self.torch.arange(slots, device=places.device), self._positions(places, n)[..., None]
        seen = slot <= last
        if heads.window is not None:
            first = last // heads.window * heads.window if heads.chunk else last - heads.window + 1
            seen = seen & (slot >= first)
        found: Tensor = seen[:, None]
        return found

    def _causal(self, queries: Tensor, keys: Tensor, values: Tensor, heads: Heads) -> Tensor:
        return self._attend(queries, keys, values, scale=heads.scale)

    def _chunks(self, queries: Tensor, keys: Tensor, values: Tensor, heads: Heads) -> Tensor:
        """Each chunk as a sequence of its own, the last filled up behind."""
        width, n = heads.window or 1, queries.shape[2]
        asked, keys, values = (self._blocks(x, width) for x in (queries, keys, values))
        return self._joined(self._causal(asked, keys, values, heads), queries.shape[0], n)

    def _windows(self, queries: Tensor, keys: Tensor, values: Tensor, heads: Heads) -> Tensor:
        """Blocks of W queries against the W keys before them and their own, of which each sees the last W up to itself."""
        width, (batch, _, n, _) = heads.window or 1, queries.shape
        asked = self._blocks(queries, width)  # [B blocks, H, W, D]
        keys, values = (self._pairs(x, width) for x in (keys, values))  # [B blocks, K, 2 W, D]
        slot = self.torch.arange(2 * width, device=queries.device)
        row = self.torch.arange(width, device=queries.device)[:, None]
        seen = (slot > row) & (slot <= row + width)  # [W, 2 W]
        blocks = asked.shape[0] // batch
        starts = self.torch.arange(blocks, device=queries.device) == 0
        masks = seen & ~(starts[:, None, None] & (slot < width))  # [blocks, W, 2 W]: nothing is before the first
        mask = masks.repeat(batch, 1, 1)[:, None]
        return self._joined(self._attend(asked, keys, values, mask=mask, scale=heads.scale), batch, n)

    def _blocks(self, x: Tensor, width: int) -> Tensor:
        """[B, K, n, D] as [B blocks, K, W, D], filled up with zeros."""
        filled = self.functional.pad(x, (0, 0, 0, -x.shape[2] % width))
        return filled.unflatten(2, (-1, width)).transpose(1, 2).flatten(0, 1)

    def _pairs(self, x: Tensor, width: int) -> Tensor:
        """Each block of [B, K, n, D] with the one before it, [B blocks, K, 2 W, D]; zeros before the first."""
        filled = self.functional.pad(x, (0, 0, width, -x.shape[2] % width)).unflatten(2, (-1, width))
        both = self.torch.cat((filled[:, :, :-1], filled[:, :, 1:]), dim=3)
        made: Tensor = both.transpose(1, 2).flatten(0, 1)
        return made

    def _joined(self, x: Tensor, batch: int, n: int) -> Tensor:
        """[B blocks, H, W, V] as [B, H, n, V]."""
        return x.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :n]

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, mask: Tensor | None = None
    ) -> Tensor:
        """Torch's attention, causal or with a mask, in the fastest backend that the device has for the shapes."""
        width, shared = values.shape[-1], queries.shape[1] // keys.shape[1]
        if self.runtime.on_cuda and mask is None and width < queries.shape[-1]:  # fast backends want one width for all
            values = self.functional.pad(values, (0, queries.shape[-1] - width))
        if shared > 1 and not self._grouped:
            keys, values = (x.repeat_interleave(shared, dim=1) for x in (keys, values))
        grouping = {"enable_gqa": True} if shared > 1 and self._grouped else {}
        with self._backends(CAUSAL if mask is None else MASKED):
            found: Tensor = self.functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale, **grouping
            )
        return found[..., :width]

    def _backends(self, names: tuple[str, ...]) -> AbstractContextManager[object]:
        if not self.runtime.on_cuda:
            return nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel

        named = [getattr(SDPBackend, name) for name in names if hasattr(SDPBackend, name)]
        ordered = {"set_priority": True} if "set_priority" in signature(sdpa_kernel).parameters else {}  # from 2.6 on
        made: AbstractContextManager[object] = sdpa_kernel(named, **ordered)
        return made
