"""Attention kinds: what each keeps per token, holds as weights and computes over a prompt.

State is counted in elements; the cache format turns it into bytes. `KINDS` lists every kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from roofcast.modelspec.work import causal_pairs


class Attention(Protocol):
    """What the rest of roofcast asks of an attention kind."""

    @property
    def label(self) -> str:
        """Name of the kind, as people say it."""

    @property
    def query_heads(self) -> int:
        """Heads of Q."""

    @property
    def published_kv_heads(self) -> int:
        """KV heads as the config states them."""

    @property
    def window(self) -> int | None:
        """Keys a query sees at most; None is all. [token]"""

    @property
    def elements_per_token(self) -> int:
        """Elements cached a token a layer. [element]"""

    def parameters(self, hidden: int) -> int:
        """Weights and biases of one layer. [parameter]"""

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of scores and values over a causal prompt. [FLOP]"""

    def shard(self, tp: int) -> int:
        """Elements cached a token on each of `tp` devices. [element]"""

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads."""


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Softmax attention whose query heads share key and value heads: MHA, GQA and MQA.

    Args:
        query_heads, kv_heads: heads of Q, and of K and V.
        head_dim, value_head_dim: width of a key and of a value head.
        window: keys a query sees at most (sliding window); None is all. [token]
        qkv_bias, output_bias: whether the projections have biases.
        qk_norm_parameters: weights of norms on queries and keys, both together.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window: int | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm_parameters: int = 0

    @property
    def label(self) -> str:
        """MHA, GQA or MQA, by the number of KV heads.

        >>> GroupedAttention(32, 8, 128, 128).label
        'GQA'
        """
        if self.kv_heads == self.query_heads:
            return "MHA"
        return "MQA" if self.kv_heads == 1 else "GQA"

    @property
    def published_kv_heads(self) -> int:
        """KV heads as the config states them."""
        return self.kv_heads

    @property
    def elements_per_token(self) -> int:
        """Elements cached a token a layer: n_kv (d_k + d_v), keys and values. [element]

        Source: Shazeer 2019, arXiv:1911.02150; Ainslie et al. 2023, arXiv:2305.13245.

        >>> GroupedAttention(32, 8, 128, 128).elements_per_token
        2048
        """
        return self.kv_heads * (self.head_dim + self.value_head_dim)

    def parameters(self, hidden: int) -> int:
        """Weights and biases of Q, K, V and output: h n_q d_k + h n_kv (d_k + d_v) + n_q d_v h. [parameter]

        >>> GroupedAttention(32, 8, 128, 128).parameters(4096)
        41943040
        """
        qkv = self.query_heads * self.head_dim + self.elements_per_token
        weights = hidden * qkv + self.query_heads * self.value_head_dim * hidden
        return weights + qkv * self.qkv_bias + hidden * self.output_bias + self.qk_norm_parameters

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V over a causal prompt: 2 pairs n_q (d_k + d_v), so 2 n^2 d_attn where d_k = d_v. [FLOP]

        Projections are not in it; causal pairs count n^2/2.

        >>> GroupedAttention(32, 8, 128, 128).prefill_flops(4096) / 1e9
        137.438953472
        """
        return 2 * causal_pairs(tokens, self.window) * self.query_heads * (self.head_dim + self.value_head_dim)

    def shard(self, tp: int) -> int:
        """Elements cached a token on each of `tp` devices: KV heads split, and replicate beyond one a device. [element]

        >>> GroupedAttention(32, 8, 128, 128).shard(16)  # one KV head on each, twice over
        256
        """
        return -(-self.kv_heads // tp) * (self.head_dim + self.value_head_dim)

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them, and KV heads split or replicate evenly.

        >>> [tp for tp in range(1, 41) if GroupedAttention(40, 8, 128, 128).splits(tp)]
        [1, 2, 4, 8, 40]
        """
        return self.query_heads % tp == 0 and (self.kv_heads % tp == 0 or tp % self.kv_heads == 0)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one compressed KV vector a token for all heads, plus a shared RoPE key.

    Args:
        query_heads: heads after expansion.
        kv_lora_rank: width of the latent.
        q_lora_rank: width of the query latent; None is a plain query projection.
        qk_nope_head_dim, qk_rope_head_dim: parts of a key head without and with position.
        value_head_dim: width of a value head.
        bias: biases on the two down projections and the output, as `attention_bias` asks.
    """

    query_heads: int
    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    value_head_dim: int
    bias: bool = False
    window: int | None = None

    @property
    def label(self) -> str:
        """MLA."""
        return "MLA"

    @property
    def published_kv_heads(self) -> int:
        """Query heads, as published configs state them; the cache has one latent for all."""
        return self.query_heads

    @property
    def head_dim(self) -> int:
        """Width of an expanded key head: d_nope + d_rope."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def elements_per_token(self) -> int:
        """Elements cached a token a layer: d_c + d_rope, one copy for all heads. [element]

        Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.4 and table 1.

        >>> LatentAttention(128, 512, 1536, 128, 64, 128).elements_per_token
        576
        """
        return self.kv_lora_rank + self.qk_rope_head_dim

    def parameters(self, hidden: int) -> int:
        """Weights of the down and up projections, their norms and the output. [parameter]

        h r_q + r_q + r_q n (d_nope + d_rope)  (or h n (d_nope + d_rope) without a query latent)
        + h (d_c + d_rope) + d_c + d_c n (d_nope + d_v) + n d_v h.

        >>> LatentAttention(128, 512, 1536, 128, 64, 128).parameters(7168)
        187107328
        """
        rank, q_width = self.q_lora_rank, self.query_heads * self.head_dim
        query = hidden * q_width if rank is None else hidden * rank + rank + rank * q_width
        down = hidden * self.elements_per_token + self.kv_lora_rank
        up = self.kv_lora_rank * self.query_heads * (self.qk_nope_head_dim + self.value_head_dim)
        output = self.query_heads * self.value_head_dim * hidden
        biases = ((rank or 0) + self.elements_per_token + hidden) * self.bias
        return query + down + up + output + biases

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V over a causal prompt in the expanded form: 2 pairs n (d_nope + d_rope + d_v). [FLOP]

        >>> LatentAttention(128, 512, 1536, 128, 64, 128).prefill_flops(4096) / 1e9
        687.19476736
        """
        return 2 * causal_pairs(tokens, self.window) * self.query_heads * (self.head_dim + self.value_head_dim)

    def shard(self, tp: int) -> int:
        """Elements cached a token on each of `tp` devices: the latent replicates. [element]"""
        del tp  # one latent serves all heads, so every device keeps it whole
        return self.elements_per_token

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them."""
        return self.query_heads % tp == 0


KINDS: Final[dict[str, type[GroupedAttention | LatentAttention]]] = {
    "grouped": GroupedAttention,
    "latent": LatentAttention,
}
