"""Compressed convolutional attention (CCA): GQA whose queries and keys pass short convolutions first (ZAYA).

Source: Figliolia et al. 2025, arXiv:2510.04476.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.plan import HYBRID_SLIDING
from roofcast.modelspec.state import Kept, ReadsAll, fixed, per_token
from roofcast.modelspec.work import attended, causal_pairs

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.plan import Slot


@dataclass(frozen=True, slots=True)
class ConvolutionalAttention(ReadsAll):
    """GQA over convolved queries and keys; half of a value comes from the token before, and its projection is kept.

    Args:
        query_heads, kv_heads, head_dim: of the attention.
        depthwise, grouped: widths of the two convolutions, in tokens.
        window: keys a query sees at most; None is all. [token]
        bias: whether the projections have biases.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    depthwise: int
    grouped: int
    window: int | None = None
    bias: bool = False

    @property
    def label(self) -> str:
        """CCA."""
        return "CCA"

    @property
    def published_kv_heads(self) -> int:
        """KV heads as the config states them."""
        return self.kv_heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Keys and values of every token; the convolutions' inputs, (n_q + n_kv) d of their tokens; a half value."""
        behind = self.depthwise - 1 + self.grouped - 1
        return (
            per_token(self.kv_heads, 2 * self.head_dim, self.window),
            fixed(1, (self.query_heads + self.kv_heads) * self.head_dim * behind),
            fixed(self.kv_heads, self.head_dim // 2),
        )

    def parameters(self, hidden: int) -> int:
        """Projections, a depthwise and a grouped convolution with biases over the queries and keys, temperatures.

        h n_q d + h n_kv 2 d + n_q d h + c (k_1 + 1) + c (d k_2 + 1) + n_kv with c = (n_q + n_kv) d. [parameter]
        """
        channels = (self.query_heads + self.kv_heads) * self.head_dim
        output = self.query_heads * self.head_dim
        qkv = channels + self.kv_heads * self.head_dim
        convolutions = channels * (self.depthwise + 1) + channels * (self.head_dim * self.grouped + 1)
        biases = (qkv + hidden) * self.bias
        return hidden * qkv + output * hidden + convolutions + self.kv_heads + biases

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Queries, keys, values in two halves, and output.

        >>> [m.name for m in ConvolutionalAttention(8, 2, 128, 2, 2).matrices(2048)][2:]
        ['self_attn.qkv_proj.v_proj_current', 'self_attn.qkv_proj.v_proj_delayed', 'self_attn.o_proj']
        """
        queries, keys = self.query_heads * self.head_dim, self.kv_heads * self.head_dim
        rows = {"q_proj": queries, "k_proj": keys, "v_proj_current": keys // 2, "v_proj_delayed": keys // 2}
        inputs = (Matrix(f"self_attn.qkv_proj.{name}", count, hidden) for name, count in rows.items())
        return *(made for made in inputs if made.elements), Matrix("self_attn.o_proj", hidden, queries)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V over a causal prompt: 4 pairs n_q d. [FLOP]"""
        return 4 * causal_pairs(tokens, self.window) * self.query_heads * self.head_dim

    def decode_flops(self, context: float) -> float:
        """FLOP of q K^T and p V for one new token: 4 min(C, W) n_q d. [FLOP]

        >>> ConvolutionalAttention(8, 2, 128, 2, 2, window=4096).decode_flops(8192)
        16777216
        """
        return 4 * attended(context, self.window) * self.query_heads * self.head_dim

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads."""
        return self.query_heads % tp == 0 and (self.kv_heads % tp == 0 or tp % self.kv_heads == 0)

    @classmethod
    def read(cls, config: Config, window: int | None = None) -> Self:
        """As `cca_time0` and `cca_time1` say."""
        return cls(
            query_heads=config.size("query_heads"),
            kv_heads=config.size("kv_heads"),
            head_dim=config.size("head_dim"),
            depthwise=config.size("cca_time0"),
            grouped=config.size("cca_time1"),
            window=window,
            bias=config.flag("attention_bias"),
        )


def read_cca(config: Config, slot: Slot, role: str) -> ConvolutionalAttention:
    """One layer's, of which those named `hybrid_sliding` see a window.

    Raises:
        MalformedModelError: such a layer without a `sliding_window`.
    """
    del slot
    return ConvolutionalAttention.read(config, config.size("window") if role == HYBRID_SLIDING else None)
