"""Weights that several layers share: attention and feed-forward blocks that recur with small adapters (Zamba)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.ffn import DenseFeedForward
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.plan import OWNED
from roofcast.modelspec.state import Kept, ReadsAll, per_token
from roofcast.modelspec.work import causal_pairs

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.plan import Slot

TIMES_HIDDEN = 4  # feed-forward width where no key gives it
SHARED_BLOCK = "shared_transformer"  # the module that holds the shared weights
_FEEDS = f"{SHARED_BLOCK}.feed_forward"


@dataclass(frozen=True, slots=True)
class SharedAttention(ReadsAll):
    """Attention over the hidden state beside the embedding, twice as wide, whose weights recur in later layers.

    Args:
        query_heads, kv_heads, head_dim: of the attention.
        width: of its input, on which it has a norm. [element]
        owned: whether this layer is the first with these weights, so that they count here.
        adapters: rank of adapters on queries, keys and values, of which every layer has its own; 0 is none.
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    width: int
    owned: bool
    adapters: int = 0

    label: ClassVar[str] = "shared attention"
    window: ClassVar[int | None] = None

    @property
    def published_kv_heads(self) -> int:
        """KV heads as the config states them."""
        return self.kv_heads

    @property
    def state(self) -> tuple[Kept, ...]:
        """Keys and values of every token: shared weights, but a cache a layer.

        >>> SharedAttention(32, 32, 224, 7168, owned=False).state[0].elements  # Zamba2-7B
        14336
        """
        return (per_token(self.kv_heads, 2 * self.head_dim),)

    def parameters(self, hidden: int) -> int:
        """Weights of Q, K, V, output and the norm, once for all layers; each layer's adapters and way back. [parameter]

        w d (n_q + 2 n_kv) + n_q d h + w, and always h^2 and, for rank r, 3 (w r + r w).

        >>> SharedAttention(32, 32, 224, 7168, owned=False).parameters(3584)
        12845056
        """
        qkv = self.width * self.head_dim * (self.query_heads + 2 * self.kv_heads)
        output = self.query_heads * self.head_dim * hidden
        own = hidden * hidden + 6 * self.width * self.adapters
        return (qkv + output + self.width) * self.owned + own

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Q, K, V and output where the weights count here; each layer's way back and adapters, whose first part is A.

        >>> [m.name for m in SharedAttention(32, 32, 224, 7168, owned=False).matrices(3584)]
        ['linear']
        """
        made = []
        for name in ("linear_q_adapter", "linear_k_adapter", "linear_v_adapter") if self.adapters else ():
            made += [Matrix(f"{name}.0", self.adapters, self.width), Matrix(f"{name}.1", self.width, self.adapters)]
        within = (matrix.under(f"{SHARED_BLOCK}.self_attn") for matrix in made)
        return (*(self._block(hidden) if self.owned else ()), *within, Matrix("linear", hidden, hidden))

    def borrowed(self, hidden: int) -> tuple[Matrix, ...]:
        """Q, K, V and output where they work in this layer and count in an earlier one.

        >>> [m.rows for m in SharedAttention(32, 32, 224, 7168, owned=False).borrowed(3584)]
        [7168, 7168, 7168, 3584]
        """
        return () if self.owned else self._block(hidden)

    def _block(self, hidden: int) -> tuple[Matrix, ...]:
        """What layers share: Q, K, V and output."""
        keys, queries = self.kv_heads * self.head_dim, self.query_heads * self.head_dim
        rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        made = (*(Matrix(name, count, self.width) for name, count in rows.items()), Matrix("o_proj", hidden, queries))
        return tuple(matrix.under(f"{SHARED_BLOCK}.self_attn") for matrix in made)

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V over a causal prompt: 4 pairs n_q d. [FLOP]"""
        return 4 * causal_pairs(tokens) * self.query_heads * self.head_dim

    def decode_flops(self, context: float) -> float:
        """FLOP of q K^T and p V for one new token: 4 C n_q d. [FLOP]

        >>> SharedAttention(32, 32, 224, 7168, owned=False).decode_flops(4096) / 1e6
        117.440512
        """
        return 4 * context * self.query_heads * self.head_dim

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them, and KV heads split or replicate evenly."""
        return self.query_heads % tp == 0 and (self.kv_heads % tp == 0 or tp % self.kv_heads == 0)

    @classmethod
    def read(cls, config: Config, *, owned: bool) -> Self:
        """One layer's, whose heads share twice the hidden size.

        Raises:
            MalformedModelError: heads that do not divide it, or one another; widths stated otherwise.
        """
        heads, width = config.size("query_heads"), 2 * config.size("hidden")
        kv_heads = config.size("kv_heads", heads)
        if width % heads or heads % kv_heads:
            whole, part = (f"2 x hidden_size {width}", heads) if width % heads else (str(heads), kv_heads)
            msg = f"{part} attention heads do not divide {whole}"
            raise MalformedModelError(msg)
        for key, due in (
            ("attention_hidden_size", width),
            ("attention_head_dim", width // heads),
            ("head_dim", width // heads),
        ):
            if config.size(key, due) != due:  # one class reads it, the next works it out again: either would be a guess
                msg = f"{key} is {config.size(key)}; over twice the hidden size {width} and {heads} heads it is {due}"
                raise MalformedModelError(msg)
        rank = config.size("adapter_rank", 128) if config.flag("use_shared_attention_adapter") else 0
        return cls(heads, kv_heads, width // heads, width, owned=owned, adapters=rank)


@dataclass(frozen=True, slots=True)
class SharedFeedForward:
    """A feed-forward whose weights recur in later layers.

    Args:
        block: the feed-forward.
        owned: whether this layer is the first with these weights, so that they count here.
        adapters: rank of the adapter on its inner projections, of which every layer has its own; 0 is none.
    """

    block: DenseFeedForward
    owned: bool
    adapters: int = 0

    @property
    def label(self) -> str:
        """Shared, with its width."""
        return f"shared {self.block.intermediate}"

    @property
    def parameters(self) -> int:
        """The block and its norm (h), once for all layers, and the adapter: h r + r 2 i. [parameter]

        >>> SharedFeedForward(DenseFeedForward(3584, 14336), owned=False, adapters=128).parameters  # Zamba2-7B
        4128768
        """
        adapter = self.adapters * (self.block.hidden + 2 * self.block.intermediate)
        return (self.block.parameters + self.block.hidden) * self.owned + adapter

    def matrices(self) -> tuple[Matrix, ...]:
        """Those of the block where its weights count here, and the two of the adapter.

        >>> [m.rows for m in SharedFeedForward(DenseFeedForward(3584, 14336), owned=False, adapters=128).matrices()]
        [128, 28672]
        """
        own, rank = self.block.matrices(_FEEDS) if self.owned else (), self.adapters
        if not rank:
            return own
        down = Matrix("gate_up_proj_adapter.0", rank, self.block.hidden).under(_FEEDS)
        return *own, down, Matrix("gate_up_proj_adapter.1", 2 * self.block.intermediate, rank).under(_FEEDS)

    def borrowed(self) -> tuple[Matrix, ...]:
        """Those of the block where they work in this layer and count in an earlier one.

        >>> [m.rows for m in SharedFeedForward(DenseFeedForward(3584, 14336), owned=False).borrowed()]
        [14336, 14336, 3584]
        """
        return () if self.owned else self.block.matrices(_FEEDS)

    @property
    def active_parameters(self) -> int:
        """All of them."""
        return self.parameters

    @property
    def expert_parameters(self) -> int:
        """None is routed."""
        return 0

    @classmethod
    def read(cls, config: Config, *, owned: bool) -> Self:
        """One layer's."""
        hidden = config.size("hidden")
        width = config.size("intermediate", TIMES_HIDDEN * hidden)
        block = DenseFeedForward(hidden, width, gated=True, bias=config.trait(config.family.mlp_bias))
        rank = config.size("adapter_rank", 128) if config.has("adapters") else 0
        return cls(block, owned=owned, adapters=rank)


def read_shared(config: Config, slot: Slot, role: str) -> SharedAttention:
    """The shared attention of one layer."""
    del slot
    return SharedAttention.read(config, owned=role == OWNED)
