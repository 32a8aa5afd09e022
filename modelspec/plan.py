"""What every layer is, by the key that says so: roles of its mixers, and whether it has a feed-forward.

A role is what a layer does for the sequence (see all of it, a window, a chunk, carry a state); which kind does it
is found from the config's other keys in `kinds.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.blocks import block_of
from roofcast.modelspec.config import listed
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.keys import LAYERED, is_off
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roofcast.modelspec.config import Config

FULL, SLIDING, CHUNKED, LINEAR, CONV, CROSS, HYBRID = "full", "sliding", "chunked", "linear", "conv", "cross", "hybrid"
# CCA in a window; a shared block that the layer brings or finds; a matrix in the place of attention; hashed n-grams
HYBRID_SLIDING, OWNED, SHARED, MAPPED, NGRAM = "hybrid_sliding", "owned", "shared", "mapped", "ngram"


@dataclass(frozen=True, slots=True)
class Slot:
    """One layer before its sizes are read.

    Args:
        roles: of its mixers; none where it only feeds forward.
        feeds: whether it has a feed-forward.
        sparse: whether that is a mixture of experts; None leaves it to the keys that list sparse layers.
        layer: its number where sizes differ from layer to layer, else None, so that equal layers are equal.
    """

    roles: tuple[str, ...]
    feeds: bool = True
    sparse: bool | None = None
    layer: int | None = None


_FEED: Final = {"mlp": Slot((), sparse=False), "moe": Slot((), sparse=True)}
# a layer's name in layer_types and layers_block_type -> what it is
LAYER_NAMES: Final[dict[str, Slot]] = {
    "full_attention": Slot((FULL,)),
    "sliding_attention": Slot((SLIDING,)),
    "chunked_attention": Slot((CHUNKED,)),
    "linear_attention": Slot((LINEAR,)),
    "mamba": Slot((LINEAR,)),
    "attention": Slot((FULL,)),
    "recurrent": Slot((LINEAR,)),
    "conv": Slot((CONV,)),
    "hybrid": Slot((HYBRID,)),
    "hybrid_sliding": Slot((HYBRID_SLIDING,)),
    "hybrid_mamba": Slot((LINEAR, FULL)),
    "indexed_attention": Slot((FULL,)),
    "minimax_m3_sparse": Slot((FULL,)),
    "deepseek_sparse_attention": Slot((FULL,)),
    "compressed_sparse_attention": Slot((FULL,)),
    "heavily_compressed_attention": Slot((FULL,)),
    **_FEED,
}
PATTERN_LETTERS: Final = {"M": Slot((LINEAR,)), "*": Slot((FULL,)), "-": _FEED["mlp"], "E": _FEED["moe"]}
_GLOBAL_LETTERS: Final = frozenset("GF")


def layer_plan(config: Config) -> tuple[Slot, ...]:
    """What every layer is, by the first rule whose key the config has.

    Raises:
        MalformedModelError: a list of another length, sizes that cannot be.
        UnknownArchitectureError: a layer name that is not understood.
    """
    count = config.size("layers")
    key = deciding_key(config)
    if not key and config.trait_value("plan_needed"):
        msg = f"model_type {quoted(config.model_type)} needs its layers named: by layer_types, or as its files do"
        raise MalformedModelError(msg)
    slots = (PLAN_RULES[key] if key else _by_window)(config, count)
    if not all(slot.roles or config.has("separate") or config.has("blocks") for slot in slots):
        msg = f"a layer only feeds forward, but model_type {quoted(config.model_type)} has no such layers"
        raise UnknownArchitectureError(msg)
    if config.family.separate:
        slots = tuple(slot if not slot.roles else Slot(slot.roles, feeds=False) for slot in slots)
    if config.has("shared_block") and config.known:
        slots = _sharing(config, slots)
    if config.trait_value("last_full"):
        slots = (*slots[:-1], Slot((FULL,)))
    _check_shared(config, slots)
    widths = config.trait_value("listed_widths") and isinstance(config.value("intermediate"), list)
    if not (widths or config.trait_value("numbered")) and all(is_off(config.raw.get(key)) for key in LAYERED):
        return slots
    return tuple(Slot(slot.roles, slot.feeds, slot.sparse, layer) for layer, slot in enumerate(slots))


def _sharing(config: Config, slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
    """Zamba: `hybrid` layers run a shared block before their recurrence; the first num_mem_blocks of them bring it."""
    owners = [layer for layer, slot in enumerate(slots) if HYBRID in slot.roles][: config.size("num_mem_blocks", 1)]
    return tuple(
        Slot((OWNED if layer in owners else SHARED, LINEAR)) if HYBRID in slot.roles else replace(slot, feeds=False)
        for layer, slot in enumerate(slots)
    )


def _check_shared(config: Config, slots: tuple[Slot, ...]) -> None:
    """Refuses layers that read keys and values of an earlier layer of their kind where there is none."""
    shared = config.size("num_kv_shared_layers", 0, least=0) if config.has("kv_shared") else 0
    own = {slot.roles for slot in slots[: max(0, len(slots) - shared)]}
    missing = {role for slot in slots for role in slot.roles if slot.roles not in own}
    if missing:
        msg = f"num_kv_shared_layers is {shared}, but no layer before these is {' or '.join(sorted(missing))}: the first of a kind must keep keys and values"
        raise MalformedModelError(msg)


def deciding_key(config: Config) -> str:
    """The key that says what every layer is; empty where none does."""
    if config.known and config.has("encoder"):  # its class has an encoder whatever the file says
        return "is_encoder_decoder"
    passed = config.trait_value("no_plan", ())  # keys that others plan by, and this class does not
    return next((key for key in PLAN_RULES if key not in passed and not is_off(config.raw.get(key))), "")


def _named(key: str, names: Sequence[str], allowed: Mapping[str, Slot]) -> tuple[Slot, ...]:
    """The slots of a list of names, each of those allowed."""
    strange = sorted({name for name in names if name not in allowed})
    if strange:
        msg = f"{key} has {listed(strange)}, which roofcast does not understand; it knows {listed(tuple(allowed))}"
        raise UnknownArchitectureError(msg)
    return tuple(allowed[name] for name in names)


def _by_names(key: str) -> Callable[[Config, int], tuple[Slot, ...]]:
    """A rule that reads one name a layer; entries beyond the layers are those of multi-token prediction."""

    def rule(config: Config, count: int) -> tuple[Slot, ...]:
        return _named(key, [str(name) for name in per_layer(config, key, count)], LAYER_NAMES)

    return rule


def per_layer(config: Config, key: str, count: int) -> tuple[Any, ...]:
    """The entries of a list with one a layer; as many more as there are multi-token-prediction layers may follow.

    Raises:
        MalformedModelError: no list, or of another length.
    """
    value = config.raw.get(key)
    extra = config.size("mtp_layers", 0, least=0)
    if not isinstance(value, list) or len(value) not in (count, count + extra):
        length = f"{len(value)} entries" if isinstance(value, list) else short(value)
        msg = f"{key} has {length}; it must list one for each of the {count} layers"
        raise MalformedModelError(msg)
    return tuple(value[:count])


def _by_letters(config: Config, count: int) -> tuple[Slot, ...]:
    """hybrid_override_pattern: a letter a layer, M Mamba, * attention, - feed-forward, E experts."""
    pattern = config.raw["hybrid_override_pattern"]
    if not isinstance(pattern, str) or len(pattern) != count:
        length = f"{len(pattern)} letters" if isinstance(pattern, str) else short(pattern)
        msg = f"hybrid_override_pattern has {length}; it must have one for each of the {count} layers"
        raise MalformedModelError(msg)
    return _named("hybrid_override_pattern", pattern, PATTERN_LETTERS)


def _by_flags(key: str, on: str, off: str) -> Callable[[Config, int], tuple[Slot, ...]]:
    """A rule that reads a 0/1 list: 1 is the role `on`, 0 is `off`."""

    def rule(config: Config, count: int) -> tuple[Slot, ...]:
        return tuple(Slot((on,)) if flag else Slot((off,)) for flag in flags_of(config, key, count))

    return rule


def flags_of(config: Config, key: str, count: int) -> tuple[bool, ...]:
    """A list of 0 and 1, one a layer.

    Raises:
        MalformedModelError: no list, or of another length.
        UnknownArchitectureError: other values.
    """
    flags = per_layer(config, key, count)
    strange = [flag for flag in flags if not (type(flag) is int and flag in (0, 1))]
    if strange:
        msg = f"{key} has {short(strange[0])}, which roofcast does not understand; it knows 0, 1"
        raise UnknownArchitectureError(msg)
    return tuple(flag == 1 for flag in flags)


def _by_compression(config: Config, count: int) -> tuple[Slot, ...]:
    """compress_ratios: every layer is compressed attention, by its ratio."""
    per_layer(config, "compress_ratios", count)
    return (Slot((FULL,)),) * count


def _by_kda_lists(config: Config, count: int) -> tuple[Slot, ...]:
    """linear_attn_config: kda_layers and full_attn_layers, counted from 1, that together are all layers."""
    block = config.block("linear_attn_config")
    roles: dict[int, str] = {}
    for key, role in (("full_attn_layers", FULL), ("kda_layers", LINEAR)):
        for number in layer_numbers(block, key):
            roles[number - 1] = role
    if sorted(roles) != list(range(count)):
        msg = f"linear_attn_config's kda_layers and full_attn_layers must name each of the {count} layers once, from 1"
        raise MalformedModelError(msg)
    return tuple(Slot((roles[layer],)) for layer in range(count))


def layer_numbers(config: Config, key: str) -> tuple[int, ...]:
    """A list of layer numbers.

    Raises:
        MalformedModelError: anything else.
    """
    value = config.raw.get(key)
    if not isinstance(value, list) or not all(type(entry) is int and entry >= 0 for entry in value):
        msg = f"{key} is {short(value)}; it must be a list of layer numbers"
        raise MalformedModelError(msg)
    return tuple(value)


def _listed_layers(key: str, on: str, off: str) -> Callable[[Config, int], tuple[Slot, ...]]:
    """A rule that reads the numbers of the layers with one role."""

    def rule(config: Config, count: int) -> tuple[Slot, ...]:
        numbers = frozenset(layer_numbers(config, key))
        if numbers and max(numbers) >= count:
            msg = f"{key} names layer {max(numbers)}, but there are {count} layers, counted from 0"
            raise MalformedModelError(msg)
        return tuple(Slot((on,)) if layer in numbers else Slot((off,)) for layer in range(count))

    return rule


def _every(key: str, off: str) -> Callable[[Config, int], tuple[Slot, ...]]:
    """A rule where the last of every N layers is full and the others have the role `off`."""

    def rule(config: Config, count: int) -> tuple[Slot, ...]:
        return _periodic(count, config.size(key), -1, off)

    return rule


def _periodic(count: int, step: int, at: int, off: str) -> tuple[Slot, ...]:
    """Full layers at numbers i with i mod step = at mod step, the role `off` elsewhere."""
    return tuple(Slot((FULL,)) if layer % step == at % step else Slot((off,)) for layer in range(count))


def _by_window_pattern(key: str) -> Callable[[Config, int], tuple[Slot, ...]]:
    """A rule that reads every how many layers one is full, as a number or as a word like LLLG."""

    def rule(config: Config, count: int) -> tuple[Slot, ...]:
        value = config.raw[key]
        if not _windowed(config):
            return (Slot((FULL,)),) * count
        if not isinstance(value, str):
            return _slides(config, count, config.size(key))
        if not value or set(value) - _GLOBAL_LETTERS - {"L", "S"}:
            msg = f"{key} is {short(value)}; it must be a number, or letters L (local) and G (global)"
            raise MalformedModelError(msg)
        letters = (value[layer % len(value)] for layer in range(count))
        return tuple(Slot((FULL,)) if letter in _GLOBAL_LETTERS else Slot((SLIDING,)) for letter in letters)

    return rule


def _by_period(config: Config, count: int) -> tuple[Slot, ...]:
    """attn_layer_period and attn_layer_offset: attention at layers i with i mod period = offset, Mamba elsewhere."""
    period, offset = config.size("attn_layer_period"), config.size("attn_layer_offset", 0, least=0)
    if config.has("shared_block") and config.known:  # Zamba counts from the fourth layer on, and the third is hybrid
        numbers = {2, *(layer for layer in range(3, count) if (layer - 3) % period == offset)}
        return tuple(Slot((HYBRID,)) if layer in numbers else Slot((LINEAR,)) for layer in range(count))
    return _periodic(count, period, offset, LINEAR)


def _by_chunk(config: Config, count: int) -> tuple[Slot, ...]:
    """attention_chunk_size: layers with RoPE see their chunk, those without see all."""
    if not config.has("chunked"):
        return _by_window(config, count)
    if is_off(config.raw.get("no_rope_layers")):
        return _periodic(count, config.size("no_rope_layer_interval", 4), -1, CHUNKED)
    return _by_flags("no_rope_layers", CHUNKED, FULL)(config, count)


def _all(*roles: str, feeds: bool = True) -> Callable[[Config, int], tuple[Slot, ...]]:
    """A rule where every layer is alike."""

    def rule(config: Config, count: int) -> tuple[Slot, ...]:
        del config
        return (Slot(roles, feeds=feeds),) * count

    return rule


def _slides(config: Config, count: int, step: int) -> tuple[Slot, ...]:
    """One of every N layers is full, the others slide; some classes begin with a full one, or with dense layers apart."""
    at, first_full = config.trait_value("full_at", -1), config.trait_value("first_full", default=False)
    if config.trait_value("dense_prefix"):  # Cohere 2 MoE: dense first layers have a step of their own
        prefix = min(config.size("dense_first", 0, least=0), count)
        before = _periodic(prefix, config.size("prefix_dense_sliding_window_pattern", 1), -1, SLIDING)
        return (*before, *_periodic(count - prefix, step, at, SLIDING))
    slots = _periodic(count, step, at, SLIDING)
    if config.trait_value("from_end"):  # Muse Glimmer: the last layer is full, and every N-th before it
        return _periodic(count, step, 0, SLIDING)[::-1]
    return (Slot((FULL,)), *slots[1:]) if first_full else slots


def _by_repeats(config: Config, count: int) -> tuple[Slot, ...]:
    """A pattern that repeats."""
    from roofcast.modelspec.repeats import repeated_slots  # noqa: PLC0415 - few models have one

    return repeated_slots(config, count)


def _by_blocks(config: Config, count: int) -> tuple[Slot, ...]:
    """block_configs: in each layer attention, a matrix in its place, or none, and a feed-forward or none."""
    slots = []
    for layer in range(count):
        attention, feed = (block_of(config, layer, part) for part in ("attention", "ffn"))
        roles = () if attention.get("no_op") else (MAPPED if attention.get("replace_with_linear") else FULL,)
        slots.append(Slot(roles, feeds=not feed.get("no_op")))
    return tuple(slots)


def _windowed(config: Config) -> bool:
    """Whether a window is in use at all."""
    return config.optional_size("window") is not None and config.flag("use_sliding_window", default=True)


def _by_class(config: Config, count: int) -> tuple[Slot, ...]:
    """The pattern of a class whose layers do not go by windows; empty of others."""
    crossing, cycle, every = (config.trait_value(name) for name in ("cross_layers", "cycle", "linear_every"))
    if config.trait_value("pattern"):
        from roofcast.modelspec.patterns import PATTERNS  # noqa: PLC0415 - few classes have one

        return PATTERNS[config.trait_value("pattern")](config, count)
    if crossing and config.raw.get("cross_attention_layers") is None:
        return tuple(Slot((CROSS,)) if layer in crossing else Slot((FULL,)) for layer in range(count))
    if cycle:  # roles that recur; RWKV has one, Lara five
        return tuple(Slot((cycle[layer % len(cycle)],)) for layer in range(count))
    return _periodic(count, every, config.trait_value("full_at", -1), LINEAR) if every else ()


def _by_window(config: Config, count: int) -> tuple[Slot, ...]:
    """No key tells layers apart: the class's own pattern, else all slide, those from max_window_layers on, or none."""
    if fixed := _by_class(config, count):
        return fixed
    if not _windowed(config):
        return (Slot((FULL,)),) * count
    full_every = config.trait_value("full_every")
    if full_every:
        return _slides(config, count, full_every)
    if not config.known or not config.has("window"):
        msg = f"model_type {quoted(config.model_type)} has sliding_window but no layer_types: which layers slide is unknown"
        raise UnknownArchitectureError(msg)
    if not config.flag("use_sliding_window"):
        return (Slot((SLIDING,)),) * count
    if not is_off(config.raw.get("no_rope_layers")):  # smollm3: only layers with RoPE slide
        msg = "use_sliding_window with no_rope_layers and no layer_types: which layers slide is not understood"
        raise UnknownArchitectureError(msg)
    first = config.size("max_window_layers", 0, least=0)
    return tuple(Slot((SLIDING,)) if layer >= first else Slot((FULL,)) for layer in range(count))


# the key that says which layer is what -> how it says it; the first that is present decides
PLAN_RULES: Final[Mapping[str, Callable[[Config, int], tuple[Slot, ...]]]] = {
    "is_encoder_decoder": _all(FULL, CROSS),
    "block_configs": _by_blocks,
    "compress_ratios": _by_compression,
    "layer_types": _by_names("layer_types"),
    "layers_block_type": _by_names("layers_block_type"),
    "hybrid_override_pattern": _by_letters,
    "hybrid_layer_pattern": _by_flags("hybrid_layer_pattern", SLIDING, FULL),
    "attn_type_list": _by_flags("attn_type_list", FULL, LINEAR),
    "block_types": _by_repeats,
    "_block_types": _by_repeats,
    "attention_layers": _by_repeats,
    "attention_types": _by_repeats,
    "linear_attn_config": _by_kda_lists,
    "full_attention_interval": _every("full_attention_interval", LINEAR),
    "layer_group_size": _every("layer_group_size", LINEAR),
    "cross_attention_layers": _listed_layers("cross_attention_layers", CROSS, FULL),
    "full_attn_idxs": _listed_layers("full_attn_idxs", FULL, CONV),
    "attn_layer_period": _by_period,
    "attn_layer_indices": _listed_layers("attn_layer_indices", FULL, LINEAR),
    "cca_time0": _all(HYBRID),
    "mamba_d_ssm": _all(LINEAR, FULL),
    "sliding_window_pattern": _by_window_pattern("sliding_window_pattern"),
    "_sliding_window_pattern": _by_window_pattern("_sliding_window_pattern"),
    "layer_switch": _by_window_pattern("layer_switch"),
    "global_attn_every_n_layers": _by_window_pattern("global_attn_every_n_layers"),
    "attention_chunk_size": _by_chunk,
    "mamba_n_heads": _all(LINEAR),
    "state_size": _all(LINEAR, feeds=False),
    "qk_dim_factor": _all(LINEAR),
    "attention_hidden_size": _all(LINEAR),
}
