"""Reads feed-forward layers from a config: dense or experts, and which layers are which."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.blocks import block_of, block_width
from roofcast.modelspec.config import present_keys
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.ffn import DenseFeedForward, FeedForward, MoeFeedForward
from roofcast.modelspec.plan import flags_of, layer_numbers, per_layer
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.modelspec.config import Config

MODALITIES: Final = 2  # text and images, where each has experts of its own
FEED_FORWARD_TYPES: Final[dict[str, bool]] = {  # name -> mixture of experts
    "dense": False, "sparse": True, "moe": True, "hash_moe": True,
}  # fmt: skip


def sparse_layers(config: Config) -> tuple[bool, ...]:
    """Which layers are mixtures of experts: the first rule whose key the config has.

    Raises:
        MalformedModelError: lists of another length, steps that cannot be.
        UnknownArchitectureError: names that are not understood.
    """
    count = config.size("layers")
    if not has_experts(config):
        return (False,) * count
    filled = present_keys(config.raw)  # what the file says counts before what the class fills in
    said = (rule for keys in (config.present, filled) for key, rule in _SPARSE_RULES.items() if key in keys)
    return next(said, _by_class)(config, count)


def has_experts(config: Config) -> bool:
    """Whether any layer routes."""
    if not config.has("moe") or not config.flag(config.trait_value("moe_switch", "enable_moe_block"), default=True):
        return False
    experts = config_of_experts(config).optional_size("experts")
    return experts is not None and not (experts == 1 and config.trait_value("dense_at_one"))


def config_of_experts(config: Config) -> Config:
    """The config that states the experts: DBRX nests them in ffn_config."""
    if config.raw.get("ffn_config") is not None and config.has("nested_experts"):
        return config.block("ffn_config")
    return config


def dense_layer(config: Config, layer: int | None) -> DenseFeedForward:
    """One feed-forward for every token."""
    hidden, family = config.size("hidden"), config.family
    ratio = config.optional_size("expansion_ratio") or family.ffn_ratio
    stated = config.optional_size("dense_width") if config.has("moe") else None
    width = stated or _listed_width(config, layer) or config.size("intermediate", ratio * hidden if ratio else None)
    shape = WIDTHS.get(family.ffn_shape)
    return _projections(config, shape(config, width, layer) if shape else width // family.ffn_divisor)


def _listed_width(config: Config, layer: int | None) -> int | None:
    """The width of one layer, or of all of them alike, where intermediate_size is a list (Gemma 3n)."""
    value = config.value("intermediate")
    if not isinstance(value, list):
        return None
    widths = per_layer(config, config.key_of("intermediate"), config.size("layers"))
    width = widths[layer or 0]
    if type(width) is not int or not 0 < width <= 100_000_000:  # noqa: PLR2004 - as other sizes
        msg = f"{config.key_of('intermediate')} is {short(value)}; it must be a width, or one for each layer"
        raise MalformedModelError(msg)
    if layer is None and any(other != width for other in widths):
        msg = f"{config.key_of('intermediate')} differs from layer to layer, which model_type {quoted(config.model_type)} does not"
        raise UnknownArchitectureError(msg)
    stated: int = width
    return stated


def _adjusted(config: Config, width: int, layer: int | None) -> int:
    """LFM2: two thirds of the stated width, times a multiplier, rounded up; or the width as it stands."""
    del layer
    if not config.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(2 * width / 3)
    multiplier = config.raw.get("block_ffn_dim_multiplier")
    if multiplier is not None:
        if isinstance(multiplier, bool) or not isinstance(multiplier, (int, float)) or not 0 < multiplier < 1000:  # noqa: PLR2004
            msg = f"block_ffn_dim_multiplier is {short(multiplier)}; it must be a number above 0"
            raise MalformedModelError(msg)
        width = int(multiplier * width)
    multiple = config.size("block_multiple_of", 256)
    return -(-width // multiple) * multiple


def _factored(config: Config, width: int, layer: int | None) -> int:
    """xLSTM: a factor of the residual's width, rounded up."""
    del width, layer
    factor = config.raw.get("ffn_proj_factor", 2.667)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor < 1000:  # noqa: PLR2004
        msg = f"ffn_proj_factor is {short(factor)}; it must be a number above 0"
        raise MalformedModelError(msg)
    multiple = config.size("ffn_round_up_to_multiple_of", 64)
    return int((config.size("hidden") * factor + multiple - 1) // multiple) * multiple


def _double_where_shared(config: Config, width: int, layer: int | None) -> int:
    """Gemma 4: twice the width in layers that read an earlier layer's keys and values, where use_double_wide_mlp."""
    shared = config.size("num_kv_shared_layers", 0, least=0)
    wide = config.flag("use_double_wide_mlp") and layer is not None and layer >= config.size("layers") - shared
    return width * (1 + wide)


def _seven_halves(config: Config, width: int, layer: int | None) -> int:
    """RWKV-5 and 6: as stated, else 3.5 times the residual's width, rounded down to 32. Source: arXiv:2404.05892."""
    del layer
    return width if config.value("intermediate") is not None else config.size("hidden") * 7 // 2 // 32 * 32


WIDTHS: Final[Mapping[str, Callable[[Config, int, int | None], int]]] = {
    "adjusted": _adjusted,
    "factored": _factored,
    "double_where_shared": _double_where_shared,
    "shared_width": lambda config, _, __: config.size("shared_width"),  # Granite 4: without experts, the shared one
    "seven_halves": _seven_halves,
}


def _projections(config: Config, width: int, *, routed: bool = False, hidden: int | None = None) -> DenseFeedForward:
    """A feed-forward of that width with the class's gate and biases; routed experts seldom have any."""
    family = config.family
    bias = config.trait(family.expert_bias if routed else family.mlp_bias)
    return DenseFeedForward(hidden or config.size("hidden"), width, gated=_gated(config), bias=bias)


def _gated(config: Config) -> bool:
    """Whether a gate multiplies: as the class fixes, or as T5's feed_forward_proj says, `relu` or `gated-gelu`."""
    key = config.trait_value("gated_by")
    if not key:
        return config.family.gated
    name = config.raw.get(key)
    first, dash, last = name.partition("-") if isinstance(name, str) else ("", "", "")
    if not first or (dash and (first != "gated" or not last or "-" in last)):
        msg = f"{key} is {short(name)}; it must be an activation's name, or 'gated-' and one"
        raise MalformedModelError(msg)
    return bool(dash)


def moe_layer(config: Config) -> MoeFeedForward:
    """Routed experts and, where the config has them, shared ones.

    Raises:
        MalformedModelError: sizes that cannot be, more experts chosen than there are.
    """
    source, family = config_of_experts(config), config.family
    for fact in config.trait_value("expert_needs", ()):  # its class would fill in the sizes of one particular model
        config.size(fact)
    experts, top_k = source.size("experts"), source.size("top_k")
    if top_k > experts:
        msg = f"{source.key_of('top_k')} is {top_k}, more than the {experts} of {source.key_of('experts')}"
        raise MalformedModelError(msg)
    freed = config.trait_value("frees_intermediate") and config.value("dense_width") is not None  # Inkling
    width = (None if freed else source.optional_size("expert_width")) or source.size("intermediate")
    shared = _shared_width(config, width)
    outer, narrow = config.size("hidden"), source.optional_size("latent_width")
    idle = config.size("zero_expert_num", 0, least=0) if config.has("zero_experts") else 0
    router = ROUTERS.get(family.router)
    return MoeFeedForward(
        expert=_projections(config, width, routed=True, hidden=narrow),
        experts=experts,
        top_k=top_k,
        shared=_projections(config, shared) if shared else None,
        shared_gate=family.shared_gate,
        router_bias=experts * family.router_bias,
        outer=outer if narrow else None,
        idle=idle,
        router_parameters=router(config, experts) if router else None,
        narrow_bias=narrow is not None and config.trait(family.mlp_bias),
        groups=_groups(config, experts),
    )


def _groups(config: Config, experts: int) -> tuple[int, int]:
    """Groups of experts, and how many of them a token may choose from; one where the file states none that can be.

    They shape no weight and no state, only where tokens are sent.
    """
    groups, chosen = config.raw.get("n_group"), config.raw.get("topk_group")
    if type(groups) is int and type(chosen) is int and 0 < chosen < groups <= experts and experts % groups == 0:
        return groups, chosen
    return 1, 1


def _shared_width(config: Config, width: int) -> int:
    """Width of all shared experts as one: stated (0 is none), else their number times the experts' width."""
    if config.family.always_shared:
        return width
    if config.value("shared_width") is not None:
        times = config.size("shared_experts") if config.trait_value("shared_width_each") else 1
        return times * (config.optional_size("shared_width") or 0)
    count = config.optional_size("shared_experts") or 0
    always = config.trait_value("shared_count", count)
    if count != always:
        msg = f"{config.key_of('shared_experts')} is {count}, but its class has {always} whatever the file says"
        raise MalformedModelError(msg)
    return count * width


def _mlp_router(config: Config, experts: int) -> int:
    """ZAYA: down to r, a norm, two layers of r, and out to the experts and one that skips them."""
    r, hidden = config.size("router_hidden_size"), config.size("hidden")
    return (hidden * r + r) + r + 2 * (r * r + r) + r * (experts + 1)


def _scaled_router(config: Config, experts: int) -> int:
    """Gemma 4: a matrix, a scale of its input and one of every expert: E h + h + E."""
    return (experts + 1) * config.size("hidden") + experts


def _shared_scores(config: Config, experts: int) -> int:
    """Inkling: the shared experts are scored too: (E + E_shared) h."""
    return (experts + config.size("shared_experts")) * config.size("hidden")


ROUTERS: Final[Mapping[str, Callable[[Config, int], int]]] = {
    "mlp": _mlp_router, "scaled": _scaled_router, "shared_scores": _shared_scores,
}  # fmt: skip


def _by_class(config: Config, count: int) -> tuple[bool, ...]:
    """No key says it: all layers but as many first ones as the class leaves dense."""
    dense = config.trait_value("dense_first", 0)
    return tuple(layer >= dense for layer in range(count))


def _by_list(config: Config, count: int) -> tuple[bool, ...]:
    """mlp_layer_types: a name for every layer."""
    names = tuple(map(str, per_layer(config, "mlp_layer_types", count)))
    strange = sorted(set(names) - FEED_FORWARD_TYPES.keys())
    if strange:
        msg = f"mlp_layer_types has {short(strange[0])}, which roofcast does not understand; it knows {', '.join(FEED_FORWARD_TYPES)}"
        raise UnknownArchitectureError(msg)
    return tuple(FEED_FORWARD_TYPES[name] for name in names)


def _by_first_dense(config: Config, count: int) -> tuple[bool, ...]:
    """The first k layers are dense, then every f-th is sparse; or a 0/1 list says it."""
    first = config.size("dense_first", config.trait_value("dense_first", 0), least=0)
    frequency = config.raw.get("moe_layer_freq", 1)
    if isinstance(frequency, list):
        after = first if config.trait_value("list_after_first") else 0
        return tuple(flag and layer >= after for layer, flag in enumerate(flags_of(config, "moe_layer_freq", count)))
    step = config.size("moe_layer_freq", 1)
    return tuple(layer >= first and layer % step == 0 for layer in range(count))


def _by_sparse_step(config: Config, count: int) -> tuple[bool, ...]:
    """Every s-th layer is sparse, but those listed in mlp_only_layers."""
    step, dense = config.size("decoder_sparse_step", 1), config.raw.get("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(layer) is int and layer >= 0 for layer in dense):
        msg = f"mlp_only_layers is {short(dense)}; it must be a list of layer numbers, from 0"
        raise MalformedModelError(msg)
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(count))


def _alike(config: Config, *keys: str) -> Config:
    """The config with those lists that say the same for text and for images as one number."""
    lists = {key: config.raw[key] for key in keys if isinstance(config.raw.get(key), list) and config.raw[key]}
    own = {key: value[0] for key, value in lists.items() if all(entry == value[0] for entry in value)}
    return replace(config, raw={**config.raw, **own}) if own else config


def _by_range(config: Config, count: int) -> tuple[bool, ...]:
    """Layers from a start to an end index, every i-th, are sparse."""
    config = _alike(config, "moe_layer_start_index", "moe_layer_end_index")
    start, step = config.size("moe_layer_start_index", 0, least=0), config.size("moe_layer_interval", 1)
    end = config.size("moe_layer_end_index", count - 1, least=-1)
    last = count - 1 if end < 0 else end
    return tuple(start <= layer <= last and (layer + 1) % step == 0 for layer in range(count))


def _by_period(config: Config, count: int) -> tuple[bool, ...]:
    """expert_layer_period and expert_layer_offset: layers i with i mod period = offset are sparse."""
    period, offset = config.size("expert_layer_period"), config.size("expert_layer_offset", 0, least=0)
    return tuple(layer % period == offset % period for layer in range(count))


def _by_interleave(config: Config, count: int) -> tuple[bool, ...]:
    """interleave_moe_layer_step: the last of every s layers is sparse."""
    step = config.size("interleave_moe_layer_step")
    return tuple((layer + 1) % step == 0 for layer in range(count))


def _by_numbers(key: str) -> Callable[[Config, int], tuple[bool, ...]]:
    """A rule that reads the numbers of the sparse layers: a list, or a string with commas."""

    def rule(config: Config, count: int) -> tuple[bool, ...]:
        value: Any = config.raw.get(key)
        if isinstance(value, str):
            parts = [part.strip() for part in value.split(",") if part.strip()]
            if not all(part.isdecimal() and len(part) < 6 for part in parts):  # noqa: PLR2004 - more layers than there are
                msg = f"{key} is {short(value)}; it must list layer numbers, separated by commas"
                raise MalformedModelError(msg)
            numbers = frozenset(map(int, parts))
        else:
            numbers = frozenset(layer_numbers(config, key))
        return tuple(layer in numbers for layer in range(count))

    return rule


_SPARSE_RULES: Final[Mapping[str, Callable[[Config, int], tuple[bool, ...]]]] = {
    "mlp_layer_types": _by_list,
    "moe_layers_enum": _by_numbers("moe_layers_enum"),
    "first_k_dense_replace": _by_first_dense,
    "num_dense_layers": _by_first_dense,
    "dense_mlp_idx": _by_first_dense,
    "moe_layer_freq": _by_first_dense,
    "decoder_sparse_step": _by_sparse_step,
    "mlp_only_layers": _by_sparse_step,
    "moe_layer_start_index": _by_range,
    "expert_layer_period": _by_period,
    "moe_layers": _by_numbers("moe_layers"),
    "interleave_moe_layer_step": _by_interleave,
}


def _block(config: Config, layer: int) -> FeedForward:
    """The feed-forward that block_configs states for one layer."""
    if block_of(config, layer, "ffn").get("replace_with_linear"):
        from roofcast.modelspec.linear import LinearFeedForward  # noqa: PLC0415 - few models have one

        return LinearFeedForward(config.size("hidden"))
    return _projections(config, block_width(config, layer))


def _of_modality(config: Config, modality: int) -> Config:
    """The config as one set of experts sees it: 0 of text, which has the shared ones, or 1 of images (ERNIE 4.5 VL)."""
    keys = {fact: config.key_of(fact) for fact in ("experts", "expert_width", "shared_experts")}
    own = {}
    for key in (keys["experts"], keys["expert_width"]):
        value = config.raw.get(key)
        if isinstance(value, list):
            if len(value) != MODALITIES:
                msg = f"{key} has {len(value)} entries; it must have {MODALITIES}, for text and for images"
                raise MalformedModelError(msg)
            own[key] = value[modality]
    if modality:
        own[keys["shared_experts"]] = 0
    return replace(config, raw={**config.raw, **own})


def feed_forwards(config: Config, layer: int | None, *, sparse: bool) -> tuple[FeedForward, ...]:
    """The feed-forwards of one layer: experts, a dense one, or both side by side."""
    if layer is not None and config.has("blocks") and config.raw.get("block_configs") is not None:
        return (_block(config, layer),)
    if not sparse:
        return (dense_layer(config, layer),)
    routed = config.trait_value("routed")
    if routed:
        from roofcast.modelspec.routed import ROUTED  # noqa: PLC0415 - few classes have any

        return ROUTED[routed](config)
    if config.trait_value("modalities"):
        return tuple(moe_layer(_of_modality(config, modality)) for modality in range(MODALITIES))
    experts = moe_layer(config)
    return (dense_layer(config, layer), experts) if config.family.dense_beside else (experts,)
