"""Attention of a decoder, with weights: grouped, over keys and values; latent (MLA), over one latent for all heads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, ELEMENTWISE, GEMM
from roofcast.profiler.decoder_step import Stage
from roofcast.profiler.kernels import Cache, Heads, Weight
from roofcast.profiler.random_weights import Cut
from roofcast.profiler.sharding import wide

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor

    from roofcast.modelspec.attention import GroupedAttention
    from roofcast.modelspec.latent import LatentAttention
    from roofcast.profiler.decoder_step import Buffers, Frame
    from roofcast.profiler.random_weights import Drawer

PAIR: Final = 2


@dataclass(frozen=True, slots=True)
class GroupedLayer:
    """Grouped attention.

    Args:
        layer: its number.
        norm: weights of the norm before it, [h].
        heads: their shape, with the weights of their norms.
        qkv: [H D + K D + K V, h].
        output: [h, H V].
    """

    layer: int
    norm: Tensor
    heads: Heads
    qkv: Weight
    output: Weight

    @classmethod
    def draw(cls, drawer: Drawer, layer: int, part: GroupedAttention, hidden: int) -> GroupedLayer:
        """Draws its weights."""
        d, v, share = part.head_dim, part.value_head_dim, drawer.share
        every = part.query_heads * d, part.kv_heads * d, part.kv_heads * v
        asked, kept = share.even(part.query_heads, "query heads"), share.kv_heads(part.kv_heads)
        rows = wide(asked, d), wide(kept, d, every[0]), wide(kept, v, every[0] + every[1])
        query, kv = asked[1] - asked[0], kept[1] - kept[0]
        normed = part.qk_norm_parameters == PAIR * d
        qkv = drawer.matrix(sum(every), hidden, bias=part.qkv_bias, cut=Cut(rows=rows))
        if qkv.bias is not None and not part.key_bias and not drawer.counting:
            qkv.bias[query * d : (query + kv) * d] = 0
        heads = Heads(
            query=query,
            kv=kv,
            key_dim=d,
            value_dim=v,
            window=part.window,
            scale=1 / math.sqrt(d),
            chunk=part.chunked,
            query_norm=drawer.norm(d) if normed else None,
            key_norm=drawer.norm(d) if normed else None,
        )
        columns = Cut(columns=(wide(asked, v),))
        output = drawer.matrix(hidden, part.query_heads * v, bias=part.output_bias, cut=columns)
        return cls(layer, drawer.norm(hidden), heads, qkv, output)

    def new_cache(self, buffers: Buffers, batch: int, capacity: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Keys [B, K, S, D] and values [B, K, S, V]."""
        return tuple(
            buffers.new((batch, self.heads.kv, capacity, width), dtype)
            for width in (self.heads.key_dim, self.heads.value_dim)
        )

    def stages(self, frame: Frame, cache: tuple[Tensor, ...]) -> Iterator[Stage]:
        """Product, rotation with the cache's writes, attention, product."""
        kernels, heads, kept = frame.kernels, self.heads, Cache(*cache)
        rotation = frame.rotation(heads.key_dim // 2 * 2)
        qkv = frame.scratch("qkv", frame.tokens, self.qkv.data.shape[0])
        queries = frame.scratch("queries", frame.batch, frame.new, heads.query, heads.key_dim).transpose(1, 2)
        out = frame.scratch("attended", frame.tokens, heads.query * heads.value_dim)
        yield Stage("attn.qkv", GEMM, self.layer, partial(kernels.linear, frame.x, self.qkv, qkv))
        store = partial(kernels.rotate_store, qkv, frame.places, rotation, heads, kept, queries)
        yield Stage("elementwise", ELEMENTWISE, self.layer, store)
        if frame.decoding:
            attend = partial(kernels.decode_attention, queries, frame.places, heads, kept, out)
            yield Stage("attn.decode", ATTN_DECODE, self.layer, attend)
        else:
            yield Stage(
                "attn.prefill", ATTN_PREFILL, self.layer, partial(kernels.prefill_attention, queries, heads, kept, out)
            )
        yield Stage("attn.out", GEMM, self.layer, partial(kernels.linear, out, self.output, frame.y))


@dataclass(frozen=True, slots=True)
class LatentLayer:
    """Multi-head latent attention: expanded to keys and values in prefill, absorbed over the latents in decode.

    Args:
        layer: its number.
        norm: weights of the norm before it, [h].
        part: its sizes, with the heads that are here.
        query_down: [r_q, h], and its norm's weights, [r_q]; None where queries have no latent.
        query_norm: likewise.
        query_up: [H (d_n + d_r), r_q], or of h inputs without a latent.
        latent_down: [d_c + d_r, h].
        latent_norm: [d_c].
        up: [H (d_n + d_v), d_c], head by head the rows of its key and of its value.
        output: [h, H d_v].

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """

    layer: int
    norm: Tensor
    part: LatentAttention
    query_down: Weight | None
    query_norm: Tensor | None
    query_up: Weight
    latent_down: Weight
    latent_norm: Tensor
    up: Weight
    output: Weight

    @classmethod
    def draw(cls, drawer: Drawer, layer: int, part: LatentAttention, hidden: int) -> LatentLayer:
        """Draws its weights; those that bring the latent to heads stay in the format of activations."""
        rank, heads = part.q_lora_rank, part.query_heads
        own, up = drawer.share.even(heads, "query heads"), part.qk_nope_head_dim + part.value_head_dim
        return cls(
            layer=layer,
            norm=drawer.norm(hidden),
            part=replace(part, query_heads=own[1] - own[0]),
            query_down=drawer.matrix(rank, hidden, bias=part.bias) if rank else None,
            query_norm=drawer.norm(rank) if rank else None,
            query_up=drawer.matrix(heads * part.head_dim, rank or hidden, cut=Cut(rows=(wide(own, part.head_dim),))),
            latent_down=drawer.matrix(part.elements_per_token, hidden, bias=part.bias),
            latent_norm=drawer.norm(part.kv_lora_rank),
            up=drawer.matrix(heads * up, part.kv_lora_rank, plain=True, cut=Cut(rows=(wide(own, up),))),
            output=drawer.matrix(
                hidden, heads * part.value_head_dim, bias=part.bias, cut=Cut(columns=(wide(own, part.value_head_dim),))
            ),
        )

    @property
    def scale(self) -> float:
        """Of scores: 1 / sqrt(d_n + d_r)."""
        return 1 / math.sqrt(self.part.head_dim)

    def new_cache(self, buffers: Buffers, batch: int, capacity: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """Latents with their rotated key, [B, S, d_c + d_r]."""
        return (buffers.new((batch, capacity, self.part.elements_per_token), dtype),)

    def stages(self, frame: Frame, cache: tuple[Tensor, ...]) -> Iterator[Stage]:
        """Down to the latents, which are stored; queries; attention; product."""
        kernels, part, rotation = frame.kernels, self.part, frame.rotation(self.part.qk_rope_head_dim)
        latent = frame.scratch("latent", frame.tokens, part.elements_per_token)
        queries = frame.scratch("latent queries", frame.tokens, part.query_heads, part.head_dim)
        out = frame.scratch("attended", frame.tokens, part.query_heads * part.value_head_dim)
        yield from self._query(frame, queries.view(frame.tokens, -1))
        yield Stage("attn.qkv", GEMM, self.layer, partial(kernels.linear, frame.x, self.latent_down, latent))
        store = partial(kernels.latent_store, latent, frame.places, rotation, self.latent_norm, cache[0])
        yield Stage("elementwise", ELEMENTWISE, self.layer, store)
        if part.qk_rope_head_dim:
            rotate = partial(kernels.latent_rotate, queries, frame.places, rotation)
            yield Stage("elementwise", ELEMENTWISE, self.layer, rotate)
        attend = self._absorbed if frame.decoding else self._expanded
        yield from attend(frame, queries, cache[0], out)
        yield Stage("attn.out", GEMM, self.layer, partial(kernels.linear, out, self.output, frame.y))

    def _query(self, frame: Frame, queries: Tensor) -> Iterator[Stage]:
        kernels = frame.kernels
        if self.query_down is None or self.query_norm is None:
            yield Stage("attn.qkv", GEMM, self.layer, partial(kernels.linear, frame.x, self.query_up, queries))
            return
        rank = self.query_norm.shape[0]
        down, normed = (
            frame.scratch("query latent", frame.tokens, rank),
            frame.scratch("query normed", frame.tokens, rank),
        )
        yield Stage("attn.qkv", GEMM, self.layer, partial(kernels.linear, frame.x, self.query_down, down))
        yield Stage("elementwise", ELEMENTWISE, self.layer, partial(kernels.norm, down, self.query_norm, normed))
        yield Stage("attn.up", GEMM, self.layer, partial(kernels.linear, normed, self.query_up, queries))

    def _absorbed(self, frame: Frame, queries: Tensor, cache: Tensor, out: Tensor) -> Iterator[Stage]:
        """Queries to the latent, attention over latents, values from it: W_uk and W_uv are applied to new tokens alone."""
        part, kernels, torch = self.part, frame.kernels, frame.runtime.torch
        heads, nope, rank = part.query_heads, part.qk_nope_head_dim, part.kv_lora_rank
        up = self.up.data.view(heads, nope + part.value_head_dim, rank)
        keys, values = up[:, :nope], up[:, nope:].transpose(1, 2)  # [H, d_n, d_c], [H, d_c, d_v]
        absorbed = frame.scratch("absorbed", frame.tokens, heads, part.elements_per_token)
        summed = frame.scratch("latents", frame.tokens, heads, rank)

        def absorb() -> None:
            torch.bmm(queries[:, :, :nope].transpose(0, 1), keys, out=absorbed[:, :, :rank].transpose(0, 1))
            absorbed[:, :, rank:].copy_(queries[:, :, nope:])

        def expand() -> None:
            torch.bmm(summed.transpose(0, 1), values, out=out.view(frame.tokens, heads, -1).transpose(0, 1))

        yield Stage("attn.up", GEMM, self.layer, absorb)
        attend = partial(kernels.latent_attention, absorbed, frame.places, self.scale, cache, summed)
        yield Stage("attn.decode", ATTN_DECODE, self.layer, attend)
        yield Stage("attn.up", GEMM, self.layer, expand)

    def _expanded(self, frame: Frame, queries: Tensor, cache: Tensor, out: Tensor) -> Iterator[Stage]:
        """Keys and values of every head from the latents, and attention over them."""
        part, kernels, n, batch = self.part, frame.kernels, frame.new, frame.batch
        heads, nope, rank = part.query_heads, part.qk_nope_head_dim, part.kv_lora_rank
        latents = frame.scratch("prompt latents", batch, n, rank)
        made = frame.scratch("expanded", frame.tokens, heads * (nope + part.value_head_dim))
        turned = frame.scratch("queries", batch, heads, n, part.head_dim)
        keys = frame.scratch("keys", batch, heads, n, part.head_dim)
        values = frame.scratch("values", batch, heads, n, part.value_head_dim)
        shape = Heads(heads, heads, part.head_dim, part.value_head_dim, None, self.scale)
        split = made.view(batch, n, heads, -1).transpose(1, 2)  # [B, H, n, d_n + d_v]

        def arrange() -> None:
            keys[..., :nope].copy_(split[..., :nope])
            keys[..., nope:].copy_(cache[:, None, :n, rank:].expand(batch, heads, n, -1))
            values.copy_(split[..., nope:])
            turned.copy_(queries.view(batch, n, heads, -1).transpose(1, 2))

        yield Stage("elementwise", ELEMENTWISE, self.layer, lambda: latents.copy_(cache[:, :n, :rank]))
        product = partial(kernels.linear, latents.view(-1, rank), self.up, made)
        yield Stage("attn.up", GEMM, self.layer, product)
        yield Stage("elementwise", ELEMENTWISE, self.layer, arrange)
        attend = partial(kernels.prefill_attention, turned, shape, Cache(keys, values), out)
        yield Stage("attn.prefill", ATTN_PREFILL, self.layer, attend)
