"""What laws are checked over: every attention and feed-forward kind, whole models, and configs that are answered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.cca import ConvolutionalAttention
from roofcast.modelspec.compressed import KINDS_BY_RATIO, CompressedAttention
from roofcast.modelspec.cross import CrossAttention
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.griffin import RgLru
from roofcast.modelspec.indexer import Indexer
from roofcast.modelspec.keys import INERT, UNDERSTOOD
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.layers import Layer
from roofcast.modelspec.linear import LinearFeedForward, LinearMap
from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.ngram import NgramMemory
from roofcast.modelspec.recurrent import DELTA_INPUTS, GatedDeltaNet, KimiDelta, LightningAttention
from roofcast.modelspec.relative import RelativeAttention
from roofcast.modelspec.routed import RoutedAttention
from roofcast.modelspec.rwkv import CHANNELS, GENERATIONS, Rwkv
from roofcast.modelspec.shared import SharedAttention, SharedFeedForward
from roofcast.modelspec.spec import ModelSpec
from roofcast.modelspec.ssm import Mamba1, Mamba2, ShortConvolution
from roofcast.modelspec.state import CACHE, FP32, MODEL, Kept
from roofcast.modelspec.tower import Tower
from roofcast.modelspec.xlstm import MLstm
from tests.model_configs import DEEPSEEK, FALCON, LLAMA, MISSING, QWEN_MOE

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.ffn import FeedForward

SIZES: Final = st.integers(1, 512)
FEW: Final = st.integers(1, 16)
TOKENS: Final = st.integers(0, 1 << 20)
WINDOWS: Final = st.none() | st.integers(1, 1 << 17)
WEIGHTS: Final = st.integers(0, 512)  # of norms, gates and the like
STATE_FORMATS: Final = st.sampled_from((FP32, MODEL))

KEPT: Final = st.builds(
    Kept,
    heads=st.integers(1, 128),
    width=SIZES,
    per=st.integers(1, 128),
    cap=WINDOWS,
    fixed=st.booleans(),
    format=st.sampled_from((CACHE, MODEL, FP32)),
)
INDEX: Final = st.builds(
    Indexer,
    heads=FEW,
    head_dim=SIZES,
    selected=SIZES,
    query_width=WEIGHTS,
    norm_parameters=WEIGHTS,
    weighted=st.booleans(),
    pool=FEW,
    gated=st.booleans(),
)


@st.composite
def grouped(draw: st.DrawFn) -> GroupedAttention:
    """MHA, GQA or MQA with any sizes whose heads divide."""
    kv_heads, share, window = draw(st.integers(1, 32)), draw(FEW), draw(WINDOWS)
    return GroupedAttention(
        query_heads=kv_heads * share,
        kv_heads=kv_heads,
        head_dim=draw(SIZES),
        value_head_dim=draw(SIZES),
        window=window,
        qkv_bias=draw(st.booleans()),
        output_bias=draw(st.booleans()),
        qk_norm_parameters=draw(WEIGHTS),
        stores=draw(st.booleans()),
        value_projection=draw(st.booleans()),
        doubled_query=draw(st.booleans()),
        extra_parameters=draw(WEIGHTS),
        index=draw(st.none() | INDEX),
        chunked=window is not None and draw(st.booleans()),
        masks=window is not None and draw(st.booleans()),
        key_bias=draw(st.booleans()),
        gate_rows=draw(WEIGHTS),
    )


def full(attention: GroupedAttention) -> GroupedAttention:
    """Return the same heads with keys and values of their own for all of the context, and nothing else."""
    return replace(attention, window=None, chunked=False, index=None, stores=True, value_projection=True)


@st.composite
def grouped_sizes(draw: st.DrawFn) -> tuple[int, int]:
    """Heads that others divide: how many there are, and how many share."""
    few, share = draw(FEW), draw(FEW)
    return few * share, few


@st.composite
def gated_delta(draw: st.DrawFn) -> GatedDeltaNet:
    """Gated DeltaNet whose key heads divide its value heads."""
    value_heads, key_heads = draw(grouped_sizes())
    inputs = draw(st.sampled_from(sorted(DELTA_INPUTS)))
    return GatedDeltaNet(key_heads, value_heads, draw(SIZES), draw(SIZES), draw(FEW), draw(STATE_FORMATS), inputs)


@st.composite
def mamba2(draw: st.DrawFn) -> Mamba2:
    """Mamba-2 whose groups divide its heads."""
    heads, groups = draw(grouped_sizes())
    switches = draw(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()))
    return Mamba2(heads, draw(SIZES), draw(SIZES), groups, draw(FEW), *switches, draw(STATE_FORMATS))


@st.composite
def cca(draw: st.DrawFn) -> ConvolutionalAttention:
    """Convolved GQA whose heads divide."""
    query_heads, kv_heads = draw(grouped_sizes())
    return ConvolutionalAttention(
        query_heads, kv_heads, draw(SIZES), draw(FEW), draw(FEW), draw(WINDOWS), draw(st.booleans())
    )


@st.composite
def relative(draw: st.DrawFn) -> RelativeAttention:
    """Convolved GQA with biases by distance, of either generation."""
    query_heads, kv_heads = draw(grouped_sizes())
    return RelativeAttention(
        query_heads,
        kv_heads,
        head_dim=draw(SIZES),
        hidden=draw(SIZES),
        distance_width=draw(FEW),
        extent=draw(SIZES),
        conv_kernel=draw(FEW),
        window=draw(WINDOWS),
        gated=draw(st.booleans()),
        token_sinks=draw(st.booleans()),
        dynamic=draw(st.booleans()),
        extra_parameters=draw(WEIGHTS),
    )


@st.composite
def shared(draw: st.DrawFn) -> SharedAttention:
    """Attention whose weights recur, counted here or in an earlier layer."""
    query_heads, kv_heads = draw(grouped_sizes())
    return SharedAttention(query_heads, kv_heads, draw(SIZES), draw(SIZES), draw(st.booleans()), draw(WEIGHTS))


@st.composite
def rwkv(draw: st.DrawFn) -> Rwkv:
    """RWKV of every generation; that of channels has heads of one."""
    generation, heads = draw(st.sampled_from(sorted(GENERATIONS))), draw(FEW)
    size = 1 if generation == CHANNELS else draw(st.integers(1, 64))
    return Rwkv(generation, draw(SIZES), heads * size, size, draw(STATE_FORMATS))


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
    index=st.none() | INDEX,
    selected=st.none() | SIZES,
    extra_parameters=WEIGHTS,
    gate_rows=WEIGHTS,
    gated_query=st.booleans(),
)
COMPRESSED: Final = st.builds(
    CompressedAttention,
    query_heads=st.integers(1, 128),
    head_dim=SIZES,
    q_lora_rank=SIZES,
    output_groups=FEW,
    output_rank=SIZES,
    sliding_window=SIZES,
    ratio=st.sampled_from(sorted(KINDS_BY_RATIO)),
    index_heads=FEW,
    index_head_dim=SIZES,
    index_selected=SIZES,
)
# every name of KINDS has its strategy; a test holds the two against each other
ATTENTION_KINDS: Final[dict[str, SearchStrategy[Any]]] = {
    "compressed": COMPRESSED,
    "latent": LATENT,
    "cca": cca(),
    "relative": relative(),
    "cross": st.builds(CrossAttention, grouped().map(full), encoder_tokens=WEIGHTS, gate_parameters=WEIGHTS),
    "grouped": grouped(),
    "shared_block": shared(),
    "blocks": st.just(LinearMap()),
    "gated_delta": gated_delta(),
    "kimi_delta": st.builds(KimiDelta, FEW, SIZES, FEW, st.booleans(), st.booleans(), STATE_FORMATS),
    "mamba2": mamba2(),
    "mamba1": st.builds(Mamba1, SIZES, FEW, FEW, FEW, st.booleans(), st.booleans(), st.booleans(), STATE_FORMATS),
    "rg_lru": st.builds(RgLru, FEW, SIZES, FEW, STATE_FORMATS),
    "routed_heads": st.builds(RoutedAttention, FEW, SIZES, FEW),
    "mlstm": st.builds(MLstm, FEW, SIZES, SIZES, st.booleans(), STATE_FORMATS),
    "rwkv": rwkv(),
    "lightning": st.builds(LightningAttention, FEW, SIZES, STATE_FORMATS),
    "ngram": st.builds(NgramMemory, FEW, SIZES, SIZES, st.integers(2, 8), st.integers(2, 8)),
    "short_conv": st.builds(ShortConvolution, SIZES, FEW, st.booleans()),
}
ATTENTION: Final[SearchStrategy[Attention]] = st.one_of(*ATTENTION_KINDS.values())

DENSE: Final = st.builds(
    DenseFeedForward, hidden=SIZES, intermediate=st.integers(1, 2048), gated=st.booleans(), bias=st.booleans()
)


@st.composite
def moe(draw: st.DrawFn) -> MoeFeedForward:
    """A mixture of experts of one width, with or without what all tokens share, identity experts or a narrow stream."""
    experts = draw(st.integers(1, 64))
    return MoeFeedForward(
        expert=draw(DENSE),
        experts=experts,
        top_k=draw(st.integers(1, experts)),
        shared=draw(st.none() | DENSE),
        shared_gate=draw(st.booleans()),
        router_bias=draw(st.sampled_from((0, experts))),
        outer=draw(st.none() | SIZES),
        idle=draw(st.just(0) | FEW),
        router_parameters=draw(st.none() | WEIGHTS),
    )


# every name of FEED_FORWARDS has its strategy; a test holds the two against each other
FEED_FORWARD_KINDS: Final[dict[str, SearchStrategy[Any]]] = {
    "dense": DENSE,
    "moe": moe(),
    "linear": st.builds(LinearFeedForward, SIZES),
    "shared": st.builds(SharedFeedForward, DENSE, st.booleans(), WEIGHTS),
}
FEED_FORWARD: Final[SearchStrategy[FeedForward]] = st.one_of(*FEED_FORWARD_KINDS.values())

NAMED: Final = st.lists(st.builds(Matrix, st.just("altup.router"), SIZES, SIZES), max_size=2).map(tuple)


def held(matrices: tuple[Matrix, ...]) -> int:
    """Return the parameters of matrices."""
    return sum(matrix.elements for matrix in matrices)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """A layer of any kinds; what belongs to none of them is at least its matrices."""
    others = draw(NAMED)
    mixers = tuple(draw(st.lists(ATTENTION, max_size=2)))
    feed_forwards = tuple(draw(st.lists(FEED_FORWARD, max_size=2)))
    return Layer(mixers, feed_forwards, draw(WEIGHTS), held(others) + draw(WEIGHTS), others, draw(FEW))


TOWERS: Final = ("vision", "vision projector", "audio", "audio projector", "talker", "encoder")


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """A whole model: any mixture of layers, some of them again and again, with towers and layers of prediction."""
    kinds = draw(st.lists(layers(), min_size=1, max_size=3))
    others, tables = draw(NAMED), draw(NAMED)
    towers = draw(st.lists(st.sampled_from(TOWERS), unique=True, max_size=2))
    draft = draw(st.lists(st.sampled_from(kinds), max_size=2))
    return ModelSpec(
        model_type=draw(st.text(max_size=5)),
        known_class=draw(st.booleans()),
        layers=tuple(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=8))),
        hidden=draw(SIZES),
        vocab=draw(SIZES),
        tied=draw(st.booleans()),
        position_parameters=draw(WEIGHTS),
        head_bias_parameters=draw(WEIGHTS),
        other_norm_parameters=draw(WEIGHTS),
        other_parameters=held(others) + draw(WEIGHTS),
        other_matrices=others,
        max_context=draw(st.none() | SIZES),
        dtype=draw(st.sampled_from((None, "bf16", "fp32"))),
        quantization=draw(st.none() | st.text(max_size=5)),
        towers=tuple(Tower(name, draw(WEIGHTS)) for name in towers),
        unknown_towers=draw(st.text(max_size=3)),
        table_parameters=held(tables) + draw(WEIGHTS),
        tables=tables,
        draft=tuple(draft),
        draft_parameters=sum(map(_size, draft)),
        drafting=draw(st.booleans()),
        head_rows=draw(st.none() | SIZES),
        assumptions=tuple(draw(st.lists(st.text(max_size=5), max_size=2))),
    )


def _size(layer: Layer) -> int:
    """Parameters of a layer in the narrowest stream: at least its experts'."""
    return layer.parameters(1)


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
