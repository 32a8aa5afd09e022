"""What a decoder asks of its kernels; plain torch has every one, fused ones take their place where a device runs them.

Letters in shapes: T tokens of all sequences, B sequences, n tokens of one, S places of a cache, h width of the residual,
H query heads, K KV heads, D width of a key head, V of a value head, f of the feed-forward, E experts, k chosen.
Inputs and outputs are contiguous unless a method says otherwise, in the format of activations; every method writes
into tensors that it is given, launches only and never waits for the device, so that a graph can record it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix of a linear layer.

    Args:
        data: [outputs, inputs]; of experts [E, outputs, inputs].
        scale: of FP8, one fp32 number an output, [outputs]; None of what needs none.
        bias: [outputs]; None without.
    """

    data: Tensor
    scale: Tensor | None = None
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotary positions.

    Args:
        cos, sin: [S, rotated / 2], fp32, for every place; the rotated part of a head is its first.
        rotated: elements of a head that are rotated; 0 is none. Element i and i + rotated / 2 are a pair.
    """

    cos: Tensor
    sin: Tensor
    rotated: int


@dataclass(frozen=True, slots=True)
class Cache:
    """Static keys and values of one layer: of all its sequences, head by head.

    Args:
        keys: [B, K, S, D].
        values: [B, K, S, V].
    """

    keys: Tensor
    values: Tensor


@dataclass(frozen=True, slots=True)
class Heads:
    """How a layer's attention is shaped.

    Args:
        query, kv: heads.
        key_dim, value_dim: width of a head.
        window: keys that a query sees at most, itself among them; None is all. [token]
        chunk: whether the window is a chunk that starts afresh every W tokens.
        query_norm, key_norm: weights of RMS norms over a head, [D]; None without.
        scale: of scores.
    """

    query: int
    kv: int
    key_dim: int
    value_dim: int
    window: int | None
    scale: float
    chunk: bool = False
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """Experts that tokens are sent to.

    Args:
        experts: [T, k], int32.
        weights: [T, k], fp32; of one token they sum to 1.
    """

    experts: Tensor
    weights: Tensor


class Kernels(Protocol):
    """Every operation that a decoder runs.

    `places` is [B], int32, on the device: tokens of each sequence that are in the cache already, so that its new tokens
    stand at places, places + 1 ...; in prefill they are 0.
    """

    def norm(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        """RMS norm of rows, eps 1e-6: out = x / sqrt(mean x^2 + eps) weight; [T, h] all but the weight, [h]."""

    def add_norm(self, x: Tensor, residual: Tensor, weight: Tensor, out: Tensor) -> None:
        """Adds x to the residual in place, and writes its RMS norm: residual += x, out = norm(residual); [T, h]."""

    def linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """A product and its bias: out[T, outputs] = x[T, inputs] data^T scale + bias."""

    def gated_linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """Gate and up with the activation: out[T, f] = silu(g) u, with data [2 f, inputs], the f rows of g before those of u."""

    def activated_linear(self, x: Tensor, weight: Weight, out: Tensor) -> None:
        """A product with its activation, without gate: out[T, f] = silu(x data^T + bias)."""

    def rotate_store(
        self, qkv: Tensor, places: Tensor, rotation: Rotation, heads: Heads, cache: Cache, queries: Tensor
    ) -> None:
        """Norms and rotates queries and keys, and stores keys and values at their places.

        qkv is [T, H D + K D + K V], B sequences of n = T / B tokens each, one after the other; queries is [B, H, n, D].
        """

    def decode_attention(self, queries: Tensor, places: Tensor, heads: Heads, cache: Cache, out: Tensor) -> None:
        """Attention of n new tokens a sequence over what the cache holds and themselves, causal; one of decode, more to verify.

        Token i sees places + i + 1 tokens, itself the last, of these its window's or its chunk's; its key and value are
        stored already. queries is [B, H, n, D], of more than one token a view of [B, n, H, D]; out is [B n, H V].
        """

    def prefill_attention(self, queries: Tensor, heads: Heads, cache: Cache, out: Tensor) -> None:
        """Causal attention of n new tokens over the first n of the cache; queries [B, H, n, D], out [B n, H V]."""

    def latent_store(self, latent: Tensor, places: Tensor, rotation: Rotation, weight: Tensor, cache: Tensor) -> None:
        """Stores latents: norm of the first d_c elements by weight [d_c], rotated key in the rest; [T, d_c + d_r] into [B, S, d_c + d_r]."""

    def latent_rotate(self, queries: Tensor, places: Tensor, rotation: Rotation) -> None:
        """Rotates in place the last d_r elements of every head of queries, [T, H, d_n + d_r]."""

    def latent_attention(self, queries: Tensor, places: Tensor, scale: float, cache: Tensor, out: Tensor) -> None:
        """Absorbed decode over latents: queries [T, H, d_c + d_r], keys all of the cache's row, values its first d_c; out [T, H, d_c].

        T = B n, token i of n sees places + i + 1 latents, as of `decode_attention`.
        """

    def route(self, x: Tensor, router: Weight, chosen: Chosen) -> None:
        """Sends tokens to experts: the k largest of softmax(x data^T), [T, E], and their weights, made to sum to 1."""

    def experts(self, x: Tensor, chosen: Chosen, gate_up: Weight, down: Weight, out: Tensor) -> None:
        """Routed experts: out[T, h] = sum over k of weight_k down_k(silu(gate_k x) up_k x); data [E, 2 f, h] and [E, h, f]."""
