"""Turns a config into the attention and feed-forward of every layer, by the keys that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.attention import Attention, GroupedAttention, LatentAttention
from roofcast.modelspec.config import listed, short
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.ffn import DenseFeedForward, FeedForward, MoeFeedForward
from roofcast.modelspec.keys import is_off, not_understood
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.modelspec.config import Config

LAYER_TYPES: Final[dict[str, bool]] = {"full_attention": False, "sliding_attention": True}  # name -> slides
FEED_FORWARD_TYPES: Final[dict[str, bool]] = {"dense": False, "sparse": True}  # name -> mixture of experts
NESTED: Final = frozenset({"attn_type", "kv_n_heads", "qk_ln", "attn_pdrop", "attn_impl"})  # keys of attn_config
SOFTMAX_ONLY: Final[dict[str, bool]] = {"1": True}  # attn_type_list: 1 is softmax, 0 is lightning attention


def attention_layers(config: Config) -> tuple[Attention, ...]:
    """The attention of every layer.

    Raises:
        MalformedModelError: heads that do not divide, sizes that cannot be.
        UnknownArchitectureError: layer kinds that are not understood.
    """
    count = config.size("layers")
    config.names("attn_type_list", SOFTMAX_ONLY, count)
    build = _latent if config.value("kv_lora_rank") is not None else _grouped
    windows = _windows(config, count)
    by_window = {window: build(config, window) for window in set(windows)}
    return tuple(by_window[window] for window in windows)


def _windows(config: Config, count: int) -> tuple[int | None, ...]:
    """The sliding window of every layer, None where it sees all."""
    kinds = config.names("layer_types", LAYER_TYPES, count)
    window, context = config.optional_size("sliding_window"), config.optional_size("context")
    if window is not None and context is not None and window >= context:
        return (None,) * count  # never reached within the context: Phi-3 carries 262144
    if window is None or not config.flag("use_sliding_window", default=True):
        if kinds and any(LAYER_TYPES[kind] for kind in kinds) and window is None:
            msg = "layer_types has sliding_attention but sliding_window is missing"
            raise MalformedModelError(msg)
        return (None,) * count
    if kinds and any(LAYER_TYPES[kind] for kind in kinds) and not config.has("window"):
        msg = f"layer_types has sliding_attention, but model_type {quoted(config.model_type)} has no such thing"
        raise UnknownArchitectureError(msg)
    if kinds:
        return tuple(window if LAYER_TYPES[kind] else None for kind in kinds)
    if not config.known or not config.has("window"):
        msg = f"model_type {quoted(config.model_type)} has sliding_window but no layer_types: which layers slide is unknown"
        raise UnknownArchitectureError(msg)
    if config.flag("use_sliding_window"):
        if not is_off(config.raw.get("no_rope_layers")):  # smollm3: only layers with RoPE slide
            msg = "use_sliding_window with no_rope_layers and no layer_types: which layers slide is not understood"
            raise UnknownArchitectureError(msg)
        first = config.size("max_window_layers", 0, least=0)
        return tuple(window if layer >= first else None for layer in range(count))
    return (window,) * count


def _grouped(config: Config, window: int | None) -> GroupedAttention:
    """MHA, GQA or MQA."""
    hidden, heads = config.size("hidden"), config.size("query_heads")
    _refuse_nested_heads(config, heads)
    head_dim = config.optional_size("head_dim")
    if head_dim is not None and not config.has("head_dim") and head_dim * heads != hidden:
        msg = f"{config.key_of('head_dim')} is {head_dim}, but model_type {quoted(config.model_type)} has no such thing"
        raise UnknownArchitectureError(msg)
    if head_dim is None:
        _divides(heads, hidden, config.key_of("query_heads"), config.key_of("hidden"))
        head_dim = hidden // heads
    kv_heads = _kv_heads(config, heads)
    _divides(kv_heads, heads, config.key_of("kv_heads"), config.key_of("query_heads"))
    value_dim = config.optional_size("v_head_dim") or head_dim
    return GroupedAttention(
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=value_dim,
        window=window,
        qkv_bias=config.trait(config.family.qkv_bias),
        output_bias=config.trait(config.family.output_bias),
        qk_norm_parameters=_qk_norm(config, heads, kv_heads, head_dim),
    )


def _refuse_nested_heads(config: Config, heads: int) -> None:
    """MPT may nest another attention in attn_config; only as many KV heads as query heads are understood there."""
    nested = config.raw.get("attn_config")
    if nested is None:
        return
    if not isinstance(nested, dict):
        msg = f"attn_config is {short(nested)}; it must be an object"
        raise MalformedModelError(msg)
    strange = not_understood({k: v for k, v in nested.items() if k not in NESTED and v != -1}, known_class=True)
    if strange:
        msg = f"attn_config has keys that roofcast does not understand: {listed(strange)}"
        raise UnknownArchitectureError(msg)
    kind, kv_heads = nested.get("attn_type", "multihead_attention"), nested.get("kv_n_heads", heads)
    if kind != "multihead_attention" or kv_heads != heads or nested.get("qk_ln"):
        msg = f"attn_config has attn_type {short(kind)}, kv_n_heads {short(kv_heads)}, qk_ln {short(nested.get('qk_ln'))}: not understood"
        raise UnknownArchitectureError(msg)


def _kv_heads(config: Config, heads: int) -> int:
    """KV heads under every convention: a switch for one, a switch for groups, a count, or as many as queries."""
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        return 1
    if config.flag("multi_query_attention"):
        return config.size("multi_query_group_num")
    if config.raw.get("multi_query") is not None and not config.flag("new_decoder_architecture"):
        return heads  # falcon without multi_query carries a count it does not use
    return config.size("kv_heads", heads)


def _qk_norm(config: Config, heads: int, kv_heads: int, head_dim: int) -> int:
    """Parameters of the norms on queries and keys."""
    family = config.family
    if not family.qk_norm or (family.qk_norm_key and not config.flag(family.qk_norm_key)):
        return 0
    widths = {"head": 2 * head_dim, "head_bias": 4 * head_dim, "full": (heads + kv_heads) * head_dim}
    return widths[family.qk_norm]


def _latent(config: Config, window: int | None) -> LatentAttention:
    """MLA."""
    return LatentAttention(
        query_heads=config.size("query_heads"),
        kv_lora_rank=config.size("kv_lora_rank"),
        q_lora_rank=config.optional_size("q_lora_rank"),
        qk_nope_head_dim=config.size("qk_nope_head_dim"),
        qk_rope_head_dim=config.size("qk_rope_head_dim"),
        value_head_dim=config.size("v_head_dim"),
        bias=config.trait(config.family.qkv_bias),
        window=window,
    )


def feed_forward_layers(config: Config) -> tuple[FeedForward, ...]:
    """The feed-forward of every layer.

    Raises:
        MalformedModelError: sizes that cannot be, more experts chosen than there are.
    """
    count = config.size("layers")
    if not config.has("moe") or config.optional_size("experts") is None:
        return (_dense(config),) * count
    sparse = _sparse_layers(config, count)
    moe = _moe(config) if any(sparse) else None
    dense = _dense(config) if not all(sparse) else None
    return tuple(kind for is_sparse in sparse if (kind := moe if is_sparse else dense) is not None)


def _dense(config: Config) -> DenseFeedForward:
    """One feed-forward for every token."""
    hidden, family = config.size("hidden"), config.family
    ratio = config.optional_size("expansion_ratio") or family.ffn_ratio
    width = config.size("intermediate", ratio * hidden if ratio else None)
    return _projections(config, width // family.ffn_divisor)


def _projections(config: Config, width: int, *, routed: bool = False) -> DenseFeedForward:
    """A feed-forward of that width with the class's gate and biases; routed experts have none."""
    family = config.family
    bias = config.trait(family.mlp_bias) and not routed
    return DenseFeedForward(config.size("hidden"), width, gated=family.gated, bias=bias)


def _moe(config: Config) -> MoeFeedForward:
    """Routed experts and, where the config has them, shared ones."""
    experts, top_k = config.size("experts"), config.size("top_k")
    if top_k > experts:
        msg = f"{config.key_of('top_k')} is {top_k}, more than the {experts} of {config.key_of('experts')}"
        raise MalformedModelError(msg)
    width = config.optional_size("expert_width") or config.size("intermediate")
    shared_width = config.optional_size("shared_width") or (config.optional_size("shared_experts") or 0) * width
    return MoeFeedForward(
        expert=_projections(config, width, routed=True),
        experts=experts,
        top_k=top_k,
        shared=_projections(config, shared_width) if shared_width else None,
        shared_gate=config.family.shared_gate and shared_width > 0,
        router_bias=experts * config.family.router_bias,
    )


def _sparse_layers(config: Config, count: int) -> tuple[bool, ...]:
    """Which layers are mixtures of experts: the first rule whose key the config has."""
    for key, rule in _SPARSE_RULES.items():
        if key in config.present:
            return rule(config, count)
    return (True,) * count


def _by_list(config: Config, count: int) -> tuple[bool, ...]:
    """mlp_layer_types: a name for every layer."""
    kinds = config.names("mlp_layer_types", FEED_FORWARD_TYPES, count)
    return tuple(FEED_FORWARD_TYPES[kind] for kind in kinds) if kinds else (True,) * count


def _by_first_dense(config: Config, count: int) -> tuple[bool, ...]:
    """The first k layers are dense, then every f-th is sparse; or a 0/1 list says it."""
    first = config.size("dense_first", 0, least=0)
    frequency = config.raw.get("moe_layer_freq", 1)
    if isinstance(frequency, list):
        flags = config.names("moe_layer_freq", {"0": False, "1": True}, count)
        if flags is None:
            msg = f"moe_layer_freq has no entries; it must list one for each of the {count} layers"
            raise MalformedModelError(msg)
        return tuple(flag == "1" for flag in flags)
    step = config.size("moe_layer_freq", 1)
    return tuple(layer >= first and layer % step == 0 for layer in range(count))


def _by_sparse_step(config: Config, count: int) -> tuple[bool, ...]:
    """Every s-th layer is sparse, but those listed in mlp_only_layers."""
    step, dense = config.size("decoder_sparse_step", 1), config.raw.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(layer) is int and layer >= 0 for layer in dense):
        msg = f"mlp_only_layers is {short(dense)}; it must be a list of layer numbers, from 0"
        raise MalformedModelError(msg)
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(count))


def _by_range(config: Config, count: int) -> tuple[bool, ...]:
    """Layers from a start to an end index, every i-th, are sparse."""
    start, step = config.size("moe_layer_start_index", 0, least=0), config.size("moe_layer_interval", 1)
    end = config.size("moe_layer_end_index", count - 1, least=-1)
    last = count - 1 if end < 0 else end
    return tuple(start <= layer <= last and (layer + 1) % step == 0 for layer in range(count))


_SPARSE_RULES: Final[Mapping[str, Callable[[Config, int], tuple[bool, ...]]]] = {
    "mlp_layer_types": _by_list,
    "first_k_dense_replace": _by_first_dense,
    "num_dense_layers": _by_first_dense,
    "moe_layer_freq": _by_first_dense,
    "decoder_sparse_step": _by_sparse_step,
    "mlp_only_layers": _by_sparse_step,
    "moe_layer_start_index": _by_range,
}


def _divides(part: Any, whole: int, part_key: str, whole_key: str) -> None:  # noqa: ANN401
    """Raises unless `part` divides `whole`."""
    if whole % part:
        msg = f"{part_key} {part} does not divide {whole_key} {whole}"
        raise MalformedModelError(msg)
