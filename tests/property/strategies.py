"""What laws are checked over: attention and feed-forward kinds, and configs of the kinds that are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from roofcast.modelspec.attention import GroupedAttention, LatentAttention
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.keys import INERT, UNDERSTOOD
from tests.model_configs import DEEPSEEK, FALCON, LLAMA, MISSING, QWEN_MOE

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.ffn import FeedForward

SIZES: Final = st.integers(1, 512)
TOKENS: Final = st.integers(0, 1 << 20)
WINDOWS: Final = st.none() | st.integers(1, 1 << 17)


@st.composite
def grouped(draw: st.DrawFn) -> GroupedAttention:
    """MHA, GQA or MQA with any sizes whose heads divide."""
    kv_heads, share = draw(st.integers(1, 32)), draw(st.integers(1, 16))
    return GroupedAttention(
        query_heads=kv_heads * share,
        kv_heads=kv_heads,
        head_dim=draw(SIZES),
        value_head_dim=draw(SIZES),
        window=draw(WINDOWS),
        qkv_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        qk_norm_parameters=draw(st.integers(0, 512)),
    )


LATENT: Final = st.builds(
    LatentAttention,
    query_heads=st.integers(1, 256),
    kv_lora_rank=SIZES,
    q_lora_rank=st.none() | SIZES,
    qk_nope_head_dim=SIZES,
    qk_rope_head_dim=SIZES,
    value_head_dim=SIZES,
    bias=st.booleans(),
    window=WINDOWS,
)
# every name of KINDS has its strategy; a test holds the two against each other
ATTENTION_KINDS: Final[dict[str, SearchStrategy[Any]]] = {"grouped": grouped(), "latent": LATENT}
ATTENTION: Final[SearchStrategy[Attention]] = st.one_of(*ATTENTION_KINDS.values())

DENSE: Final = st.builds(
    DenseFeedForward, hidden=SIZES, intermediate=st.integers(1, 2048), gated=st.booleans(), bias=st.booleans()
)


@st.composite
def moe(draw: st.DrawFn) -> MoeFeedForward:
    """A mixture of experts of one width, with or without what all tokens share."""
    expert, experts = draw(DENSE), draw(st.integers(1, 64))
    return MoeFeedForward(
        expert=expert,
        experts=experts,
        top_k=draw(st.integers(1, experts)),
        shared=draw(st.none() | DENSE.filter(lambda ffn: ffn.bias == expert.bias)),
        shared_gate=draw(st.booleans()),
        router_bias=draw(st.sampled_from((0, experts))),
    )


FEED_FORWARD: Final[SearchStrategy[FeedForward]] = st.one_of(DENSE, moe())

COUNTS: Final = st.integers(1, 6)
HEADS: Final = st.sampled_from(((1, 1), (2, 1), (4, 2), (8, 8), (12, 3)))


@st.composite
def dense_configs(draw: st.DrawFn) -> dict[str, Any]:
    """A dense decoder of a class whose traits differ."""
    heads, kv_heads = draw(HEADS)
    return {
        "model_type": draw(st.sampled_from(("llama", "qwen2", "qwen3", "olmo2", "starcoder2", "cohere", "granite"))),
        "hidden_size": heads * 8 * draw(st.integers(1, 4)),
        "num_hidden_layers": draw(COUNTS),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": draw(st.integers(1, 32)),
        "intermediate_size": draw(SIZES),
        "vocab_size": draw(st.integers(1, 5000)),
        "max_position_embeddings": 4096,
        "attention_bias": draw(st.booleans()),
        "use_bias": draw(st.booleans()),
        "tie_word_embeddings": draw(st.booleans()),
    }


@st.composite
def moe_configs(draw: st.DrawFn) -> dict[str, Any]:
    """A mixture of experts, some of its layers dense."""
    config, experts = draw(dense_configs()), draw(st.integers(1, 16))
    return {
        **config,
        "model_type": "qwen3_moe",
        "num_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "moe_intermediate_size": draw(SIZES),
        "decoder_sparse_step": draw(st.integers(1, 3)),
        "mlp_only_layers": draw(st.lists(st.integers(0, 5), max_size=3)),
    }


@st.composite
def latent_configs(draw: st.DrawFn) -> dict[str, Any]:
    """An MLA decoder with mixtures after its first layers."""
    config, experts = draw(dense_configs()), draw(st.integers(1, 16))
    return {
        **{key: value for key, value in config.items() if key != "head_dim"},
        "model_type": "deepseek_v3",
        "kv_lora_rank": draw(SIZES),
        "q_lora_rank": draw(st.none() | SIZES),
        "qk_nope_head_dim": draw(SIZES),
        "qk_rope_head_dim": draw(SIZES),
        "v_head_dim": draw(SIZES),
        "n_routed_experts": experts,
        "num_experts_per_tok": draw(st.integers(1, experts)),
        "n_shared_experts": draw(st.integers(0, 2)),
        "moe_intermediate_size": draw(SIZES),
        "first_k_dense_replace": draw(st.integers(0, 7)),
        "moe_layer_freq": draw(st.integers(1, 3)),
    }


CONFIGS: Final = st.one_of(dense_configs(), moe_configs(), latent_configs())

NUMBERS: Final = (
    st.integers(-2, 600)
    | st.sampled_from((10**6, 10**9, 10**30, -(10**30), 1 << 63))
    | st.floats()
    | st.booleans()
    | st.none()
)
TEXTS: Final = st.text(max_size=8) | st.sampled_from(
    ("full_attention", "sliding_attention", "linear_attention", "dense", "sparse", "llama", "deepseek_v3", "bfloat16")
)
JSON: Final = st.recursive(
    NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KEYS: Final = st.sampled_from(sorted(UNDERSTOOD)) | st.sampled_from(sorted(INERT)) | st.text(max_size=12)


@st.composite
def broken_configs(draw: st.DrawFn) -> dict[str, Any]:
    """A good config with a few keys left out or set to anything that JSON can hold."""
    base = draw(st.sampled_from((LLAMA, QWEN_MOE, DEEPSEEK, FALCON)) | CONFIGS)
    own = st.sampled_from(sorted(base))
    values = st.just(MISSING) | JSON | st.lists(NUMBERS | TEXTS, min_size=4, max_size=4)
    changes = draw(st.dictionaries(own | KEYS, values, min_size=1, max_size=4))
    return {key: value for key, value in {**base, **changes}.items() if value is not MISSING}
