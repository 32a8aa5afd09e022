"""Softmax attention with keys and values per head, and what roofcast asks of every kind of layer that mixes tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.state import Kept, per_token
from roofcast.modelspec.work import attended, causal_pairs, chunked_pairs, least

if TYPE_CHECKING:
    from roofcast.modelspec.indexer import Indexer


class Attention(Protocol):
    """What the rest of roofcast asks of an attention, recurrent or convolution kind."""

    @property
    def label(self) -> str:
        """Name of the kind, as people say it."""

    @property
    def query_heads(self) -> int:
        """Heads of Q, or of the recurrent state; 0 where there are none."""

    @property
    def published_kv_heads(self) -> int:
        """KV heads as the config states them; 0 where there are none."""

    @property
    def window(self) -> int | None:
        """Keys a query sees at most; None is all. [token]"""

    @property
    def state(self) -> tuple[Kept, ...]:
        """What one layer keeps of a sequence: growing, capped and fixed parts."""

    def parameters(self, hidden: int) -> int:
        """Weights and biases of one layer. [parameter]"""

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Weights that are matrices, by their module in the layer; norms, biases and convolutions are none."""

    @property
    def reads(self) -> tuple[Kept, ...]:
        """What one new token reads of what the sequence keeps; the cap of a part is what a query sees of it at most."""

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of scores and values, or of the recurrence, over a causal prompt. [FLOP]"""

    def decode_flops(self, context: float) -> float:
        """FLOP of scores and values, or of the recurrence, for one new token that attends to `context` tokens. [FLOP]

        The token itself is among them. Projections are not in it, as they are not in `prefill_flops`.
        """

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads."""


def output_gate(rows: int, heads: int, hidden: int) -> tuple[Matrix, ...]:
    """A gate on attention's output with a projection of its own: g_proj of one a head, gate_proj of a wide one.

    >>> [m.name for m in (*output_gate(32, 32, 4096), *output_gate(4096, 32, 4096), *output_gate(0, 32, 4096))]
    ['g_proj', 'gate_proj']
    """
    return (Matrix("g_proj" if rows == heads else "gate_proj", rows, hidden),) if rows else ()


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Softmax attention whose query heads share key and value heads: MHA, GQA and MQA.

    Args:
        query_heads, kv_heads: heads of Q, and of K and V.
        head_dim, value_head_dim: width of a key and of a value head.
        window: keys a query sees at most (sliding window or chunk); None is all. [token]
        qkv_bias, output_bias: whether the projections have biases.
        key_bias: whether keys have one where qkv_bias says so; Whisper's have none.
        qk_norm_parameters: weights of norms on queries and keys, both together.
        stores: whether it keeps keys and values of its own; without, it reads an earlier layer's and projects none.
        value_projection: whether values have a projection; without, they are the keys' (K = V), yet cached.
        doubled_query: whether the query projection also makes a gate as wide as the queries.
        extra_parameters: sinks and other weights of this layer's attention.
        index: keys of a sparse index beside the cache; None without.
        chunked: whether the window is a chunk, which starts afresh every W tokens, instead of sliding.
        masks: whether the window only masks: older keys and values are kept all the same (GPT-Neo).
        gate_rows: outputs of a gate on the attention's output that has a projection of its own; 0 is none.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window: int | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm_parameters: int = 0
    stores: bool = True
    value_projection: bool = True
    doubled_query: bool = False
    extra_parameters: int = 0
    index: Indexer | None = None
    chunked: bool = False
    key_bias: bool = True
    masks: bool = False
    gate_rows: int = 0

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
        """Elements of a token's keys and values: n_kv (d_k + d_v). [element]

        Source: Shazeer 2019, arXiv:1911.02150; Ainslie et al. 2023, arXiv:2305.13245.

        >>> GroupedAttention(32, 8, 128, 128).elements_per_token
        2048
        """
        return self.kv_heads * (self.head_dim + self.value_head_dim)

    @property
    def state(self) -> tuple[Kept, ...]:
        """Keys and values of every token, or of the last W that a window keeps; none where an earlier layer's are read.

        >>> GroupedAttention(32, 8, 128, 128, window=1024).state
        (Kept(heads=8, width=256, per=1, cap=1024, fixed=False, format='cache'),)
        """
        if not self.stores:
            return ()
        return (self._keys(None if self.masks else self.window), *(self.index.state if self.index else ()))

    @property
    def reads(self) -> tuple[Kept, ...]:
        """Keys and values of the last W tokens, or of those that an index selects, and the keys of the index.

        A window that only masks bounds it too. Where the keys and values are an earlier layer's, they are read there.

        >>> GroupedAttention(32, 8, 128, 128, window=1024, stores=False).reads
        (Kept(heads=8, width=256, per=1, cap=1024, fixed=False, format='cache'),)
        """
        return (self._keys(self.reach), *(self.index.reads if self.index else ()))

    @property
    def reach(self) -> int | None:
        """Keys that a query reads at most: the window, or what an index selects; None is all. [token]"""
        return least(self.window, self.index.selected if self.index else None)

    def _keys(self, cap: int | None) -> Kept:
        return per_token(self.kv_heads, self.head_dim + self.value_head_dim, cap)

    @property
    def projection_rows(self) -> tuple[tuple[str, int], ...]:
        """Projections that fill the cache, with their rows: keys, and values where they are not the keys.

        >>> GroupedAttention(32, 8, 128, 128).projection_rows
        (('k_proj', 1024), ('v_proj', 1024))
        """
        if not self.stores:
            return ()
        values = (("v_proj", self.kv_heads * self.value_head_dim),) if self.value_projection else ()
        return (("k_proj", self.kv_heads * self.head_dim), *values)

    def parameters(self, hidden: int) -> int:
        """Weights and biases of Q, K, V and output: h n_q d_k + h n_kv (d_k + d_v) + n_q d_v h. [parameter]

        >>> GroupedAttention(32, 8, 128, 128).parameters(4096)
        41943040
        """
        keys = self.kv_heads * self.head_dim * self.stores
        values = self.kv_heads * self.value_head_dim * (self.stores and self.value_projection)
        qkv = self.query_heads * self.head_dim * (1 + self.doubled_query) + keys + values
        weights = hidden * (qkv + self.gate_rows) + self.query_heads * self.value_head_dim * hidden
        index = self.index.parameters(hidden) if self.index else 0
        biases = (qkv - keys * (not self.key_bias)) * self.qkv_bias + hidden * self.output_bias
        return weights + biases + self.qk_norm_parameters + self.extra_parameters + index

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Q, K, V and output, a gate and an index; a gate beside the queries is made by the same matrix.

        >>> [(m.name, m.rows, m.columns) for m in GroupedAttention(32, 8, 128, 128).matrices(4096)][1]
        ('self_attn.k_proj', 1024, 4096)
        """
        queries = Matrix("q_proj", self.query_heads * self.head_dim * (1 + self.doubled_query), hidden)
        keys = Matrix("k_proj", self.kv_heads * self.head_dim * self.stores, hidden)
        values = Matrix("v_proj", self.kv_heads * self.value_head_dim * (self.stores and self.value_projection), hidden)
        output = Matrix("o_proj", hidden, self.query_heads * self.value_head_dim)
        gate = output_gate(self.gate_rows, self.query_heads, hidden)
        index = self.index.matrices(hidden) if self.index else ()
        return tuple(matrix.under("self_attn") for matrix in (queries, keys, values, output, *gate, *index))

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V over a causal prompt: 2 pairs n_q (d_k + d_v), so 2 n^2 d_attn where d_k = d_v. [FLOP]

        Projections are not in it; causal pairs count n^2/2. With a sparse index, queries see what it selects, and
        the index itself is scored over all pairs.

        >>> GroupedAttention(32, 8, 128, 128).prefill_flops(4096) / 1e9
        137.438953472
        """
        chunk = self.window if self.chunked else None
        pairs = chunked_pairs(tokens, chunk, self.reach) if chunk else causal_pairs(tokens, self.reach)
        scored = self.index.prefill_flops(tokens) if self.index else 0.0
        return 2 * pairs * self.query_heads * (self.head_dim + self.value_head_dim) + scored

    def decode_flops(self, context: float) -> float:
        """FLOP of q K^T and p V for one new token: 2 min(C, W) n_q (d_k + d_v), and the scores of an index. [FLOP]

        C is the context, itself included, W the window or what the index selects. In chunks it is as when a chunk is
        full, the most that a token touches: the context alone does not tell where in its chunk a token stands.

        >>> GroupedAttention(32, 8, 128, 128).decode_flops(4096) / 1e6
        67.108864
        """
        scored = self.index.decode_flops(context) if self.index else 0.0
        pairs = attended(context, self.reach)
        return 2 * pairs * self.query_heads * (self.head_dim + self.value_head_dim) + scored

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them, and KV heads split or replicate evenly.

        >>> [tp for tp in range(1, 41) if GroupedAttention(40, 8, 128, 128).splits(tp)]
        [1, 2, 4, 8, 40]
        """
        return self.query_heads % tp == 0 and (self.kv_heads % tp == 0 or tp % self.kv_heads == 0)
