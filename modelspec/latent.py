"""Multi-head latent attention (MLA): one compressed vector a token for all heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.attention import output_gate
from roofcast.modelspec.config import listed
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.heads import window_of
from roofcast.modelspec.indexer import Indexer, latent_indexer
from roofcast.modelspec.keys import is_off
from roofcast.modelspec.latent_sharing import keeps_latent, rotates
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.plan import Slot, per_layer
from roofcast.modelspec.state import Kept, per_token
from roofcast.modelspec.strictjson import quoted, short
from roofcast.modelspec.work import attended, causal_pairs, least

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

INDEX_TYPES: Final[dict[str, bool]] = {"full": True, "shared": False}  # whether the layer has an index of its own


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
        window: keys a query sees at most; None is all. [token]
        index: keys of a sparse index (DSA) that this layer computes itself; None without.
        selected: tokens that an earlier layer's index selects for this one; None without.
        extra_parameters: sinks, norms and other weights of this layer's attention.
        stores: whether it keeps a latent of its own; without, it reads an earlier layer's and projects none.
        gate_rows: outputs of a gate on the attention's output that has a projection of its own; 0 is none.
        gated_query: whether the query latent's projection also makes a gate, n d_v; it then reads the latent twice,
            before and after its norm.
    """

    query_heads: int
    kv_lora_rank: int
    q_lora_rank: int | None
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    value_head_dim: int
    bias: bool = False
    window: int | None = None
    index: Indexer | None = None
    selected: int | None = None
    extra_parameters: int = 0
    stores: bool = True
    gate_rows: int = 0
    gated_query: bool = False

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

    @property
    def state(self) -> tuple[Kept, ...]:
        """The latent and the RoPE key of every token, whole on every device, and the index's keys.

        A layer that reads an earlier layer's latent keeps the keys of its own index alone, or nothing.
        """
        latent = (per_token(1, self.elements_per_token, self.window),) if self.stores else ()
        return (*latent, *(self.index.state if self.index else ()))

    @property
    def reads(self) -> tuple[Kept, ...]:
        """The latent and the RoPE key of all tokens, of a window's or of those selected, and the index's keys.

        An earlier layer's latent is read as one of its own would be.

        >>> [part.cap for part in LatentAttention(128, 512, 1536, 128, 64, 128, index=Indexer(64, 128, 2048)).reads]
        [2048, None]
        """
        return (per_token(1, self.elements_per_token, self.reach), *(self.index.reads if self.index else ()))

    @property
    def reach(self) -> int | None:
        """Tokens that a query reads at most: a window, or what its own or an earlier index selects. [token]"""
        return least(self.window, self.selected, self.index.selected if self.index else None)

    @property
    def projection_rows(self) -> tuple[tuple[str, int], ...]:
        """The projection that fills the cache, with its rows: d_c + d_rope."""
        return (("kv_a_proj_with_mqa", self.elements_per_token),) if self.stores else ()

    def parameters(self, hidden: int) -> int:
        """Weights of the down and up projections, their norms and the output. [parameter]

        h r_q + r_q + r_q n (d_nope + d_rope)  (or h n (d_nope + d_rope) without a query latent)
        + h (d_c + d_rope) + d_c + d_c n (d_nope + d_v) + n d_v h; a gate adds h rows, or with the queries
        r_q n (d_nope + d_rope + 2 d_v).

        >>> LatentAttention(128, 512, 1536, 128, 64, 128).parameters(7168)
        187107328
        """
        rank, q_width = self.q_lora_rank, self.query_heads * self.head_dim
        if rank is None:
            query = hidden * q_width
        else:
            gated = rank * (q_width + 2 * self.query_heads * self.value_head_dim) * self.gated_query
            query = hidden * rank + rank + rank * q_width + gated
        made = self.elements_per_token * self.stores
        down = hidden * made + self.kv_lora_rank * self.stores
        up = self.kv_lora_rank * self.query_heads * (self.qk_nope_head_dim + self.value_head_dim)
        output = self.query_heads * self.value_head_dim * hidden
        biases = ((rank or 0) + made + hidden) * self.bias
        index = self.index.parameters(hidden) if self.index else 0
        return query + down + up + output + biases + index + hidden * self.gate_rows + self.extra_parameters

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """Queries, down to the latent and up from it, output, a gate, and the index's.

        >>> [m.name for m in LatentAttention(128, 512, 1536, 128, 64, 128).matrices(7168)][2:4]
        ['self_attn.kv_a_proj_with_mqa', 'self_attn.kv_b_proj']
        """
        heads, rank = self.query_heads, self.kv_lora_rank
        made = (
            *self._query_matrices(hidden),
            Matrix("kv_a_proj_with_mqa", self.elements_per_token * self.stores, hidden),
            Matrix("kv_b_proj", heads * (self.qk_nope_head_dim + self.value_head_dim), rank),
            Matrix("o_proj", hidden, heads * self.value_head_dim),
            *output_gate(self.gate_rows, heads, hidden),
            *(self.index.matrices(hidden) if self.index else ()),
        )
        return tuple(matrix.under("self_attn") for matrix in made if matrix.elements)

    def _query_matrices(self, hidden: int) -> tuple[Matrix, ...]:
        rank, width = self.q_lora_rank, self.query_heads * self.head_dim
        if rank is None:
            return (Matrix("q_proj", width, hidden),)
        up = Matrix("q_b_proj", width, rank)
        if self.gated_query:
            up = Matrix("q_gate_proj", width + self.query_heads * self.value_head_dim, 2 * rank)
        return Matrix("q_a_proj", rank, hidden), up

    def prefill_flops(self, tokens: float) -> float:
        """FLOP of Q K^T and P V over a causal prompt in the expanded form: 2 pairs n (d_nope + d_rope + d_v). [FLOP]

        >>> LatentAttention(128, 512, 1536, 128, 64, 128).prefill_flops(4096) / 1e9
        687.19476736
        """
        scored = self.index.prefill_flops(tokens) if self.index else 0.0
        pairs = causal_pairs(tokens, self.reach)
        return 2 * pairs * self.query_heads * (self.head_dim + self.value_head_dim) + scored

    def decode_flops(self, context: float) -> float:
        """FLOP of q K^T and p V for one new token in the absorbed form: 2 min(C, W) n (2 d_c + d_rope). [FLOP]

        Queries are brought to the latent and values from it by the up projections, which a token passes once, like
        any other matrix, and are not counted here: keys are d_c + d_rope wide then and values d_c. C is the context,
        W the window or what an index selects; an index adds its scores.

        Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.2.

        >>> layer = LatentAttention(128, 512, 1536, 128, 64, 128)
        >>> layer.decode_flops(4096) / (2 * 4096 * layer.elements_per_token)  # FLOP/B at bf16
        241.8
        """
        scored = self.index.decode_flops(context) if self.index else 0.0
        width = self.kv_lora_rank + self.elements_per_token
        return 2 * attended(context, self.reach) * self.query_heads * width + scored

    def prefix_flops(self, before: float, new: float) -> float:
        """FLOP of prefill more where P tokens are cached as latents: they are expanded, or seen absorbed, the lesser. [FLOP]

        2 P d_c n (d_nope + d_v) of expansion; absorbed, each of n' new tokens spends 2 n (2 d_c - d_nope - d_v) more on
        each cached token that it sees.

        >>> deepseek = LatentAttention(128, 512, 1536, 128, 64, 128)
        >>> deepseek.prefix_flops(4096, 2048) / (2 * 4096 * 512 * 128 * 256), deepseek.prefix_flops(4096, 1) / 1e9
        (1.0, 0.805306368)
        """
        heads, rank = self.query_heads, self.kv_lora_rank
        expanded = 2 * before * rank * heads * (self.qk_nope_head_dim + self.value_head_dim)
        wider = max(0, 2 * rank - self.qk_nope_head_dim - self.value_head_dim)
        return min(expanded, 2 * new * attended(before, self.reach) * heads * wider)

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share the heads: it divides them."""
        return self.query_heads % tp == 0


def read_latent(config: Config, slot: Slot, role: str) -> LatentAttention:
    """MLA, with a sparse index of its own, an earlier layer's, or none.

    Raises:
        MalformedModelError: a first layer without an index or a latent of its own, sizes that cannot be.
    """
    layer = slot.layer or 0
    if config.trait_value("own_latent"):
        from roofcast.modelspec.latent_own import as_own  # noqa: PLC0415 - few models have layers that differ

        config = as_own(config, slot, role)
    indexed = config.raw.get("index_head_dim") is not None and config.has("indexer")
    own_index = indexed and _has_index(config, slot)
    if indexed and not own_index and layer == 0:
        msg = "the first layer shares the index of an earlier one, but there is none: it must have its own"
        raise MalformedModelError(msg)
    heads, rope = config.size("query_heads"), _rope_dim(config)
    shared = config.size("hidden") // heads if config.trait_value("values_share_hidden") else None
    if shared == 0:
        msg = f"hidden_size is {config.size('hidden')}, less than the {heads} heads that share it"
        raise MalformedModelError(msg)
    value_head_dim = config.size("v_head_dim", shared)
    gate = config.family.gate if not config.family.gate_key or config.flag(config.family.gate_key) else ""
    plain = 0 if rotates(config, layer) else rope  # without RoPE the whole key is expanded from the latent
    return LatentAttention(
        query_heads=heads,
        kv_lora_rank=config.size("kv_lora_rank"),
        q_lora_rank=config.optional_size("q_lora_rank"),
        qk_nope_head_dim=config.size("qk_nope_head_dim") + plain,
        qk_rope_head_dim=rope - plain,
        value_head_dim=value_head_dim,
        bias=config.trait(config.family.qkv_bias),
        window=window_of(config, role),
        index=latent_indexer(config) if own_index else None,
        selected=config.size("index_topk") if indexed and not own_index else None,
        extra_parameters=_extra(config, heads),
        stores=keeps_latent(config, layer),
        gate_rows=heads * {"head": 1, "element": value_head_dim}.get(gate, 0),
        gated_query=gate == "query_latent",
    )


def _rope_dim(config: Config) -> int:
    """Width of the RoPE key; a class may have none, and then takes no other."""
    if not config.trait_value("no_rope_key"):
        return config.size("qk_rope_head_dim")
    if config.size("qk_rope_head_dim", 0, least=0):
        msg = f"qk_rope_head_dim is {config.size('qk_rope_head_dim')}; model_type {quoted(config.model_type)} has none: it must be 0"
        raise MalformedModelError(msg)
    return 0


def _extra(config: Config, heads: int) -> int:
    """Weights beside the projections: a sink a head, a scale and a bias a head by position, a norm of the RoPE key. [parameter]"""
    scales = 2 * heads if config.trait_value("scaled_queries") else 0
    normed = _rope_dim(config) if config.trait_value("rope_norm") else 0
    return heads * config.trait(config.family.sinks) + scales + normed


def _has_index(config: Config, slot: Slot) -> bool:
    """Whether an MLA layer scores tokens itself: by indexer_types, by a pattern of letters, or every so many layers."""
    types, pattern = config.raw.get("indexer_types"), config.raw.get("index_topk_pattern")
    layer, count = slot.layer or 0, config.size("layers")
    if not config.has("shared_index"):
        return True
    if not is_off(types):
        name = str(per_layer(config, "indexer_types", count)[layer])
        if name not in INDEX_TYPES:
            msg = f"indexer_types has {listed([name])}, which roofcast does not understand; it knows full, shared"
            raise UnknownArchitectureError(msg)
        return INDEX_TYPES[name]
    if isinstance(pattern, str) and len(pattern) == count and set(pattern) <= {"F", "S"}:
        return pattern[layer] == "F"
    if not is_off(pattern):
        msg = f"index_topk_pattern is {short(pattern)}; it must be {count} letters F (own index) and S (shared)"
        raise MalformedModelError(msg)
    every, offset = config.size("index_topk_freq", 1), config.size("index_skip_topk_offset", 2, least=0)
    return max(layer - offset + 1, 0) % every == 0
