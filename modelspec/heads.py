"""Reads softmax attention from a config: heads, widths, norms, gates and windows of a layer of one role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.blocks import heads_in_group
from roofcast.modelspec.config import listed
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.keys import UNDERSTOOD, is_off, not_understood
from roofcast.modelspec.plan import CHUNKED, FULL, SLIDING, Slot, deciding_key, flags_of, per_layer
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.indexer import Indexer

# keys of attn_config that are understood or mean nothing (configuration classes write all of theirs there)
NESTED: Final = frozenset({"attn_type", "kv_n_heads", "qk_ln", "attn_pdrop", "attn_impl", "model_type", "tie_word_embeddings", "top_k", "torch_dtype"})  # fmt: skip
LAYER_SIZES: Final = frozenset(
    {"head_dim", "num_key_value_heads", "num_attention_heads"}
)  # keys of a layer in per_layer_config
OTHER_SETTING: Final = "attention_other_setting"
WINDOW_KEYS: Final[dict[str, str]] = {SLIDING: "window", CHUNKED: "attention_chunk_size"}


def window_of(config: Config, role: str) -> int | None:
    """Keys a query of a layer of that role sees at most; None where that is all of the context. [token]

    Raises:
        MalformedModelError: the role needs a window and the config has none.
        UnknownArchitectureError: the class has no such layers.
    """
    if role not in WINDOW_KEYS:
        return None
    fact = config.trait_value("window_key", WINDOW_KEYS[role]) if role == SLIDING else WINDOW_KEYS[role]
    feature = "chunked" if role == CHUNKED else "window"
    if not config.has(feature):
        msg = f"{deciding_key(config)} has {role} layers, but model_type {quoted(config.model_type)} has no such thing"
        raise UnknownArchitectureError(msg)
    window, context = config.optional_size(fact) or config.optional_size("window"), config.optional_size("context")
    if window is None:
        msg = f"{deciding_key(config)} has {role} layers, but {config.key_of(fact)} is missing"
        raise MalformedModelError(msg)
    # never reached within the context: Phi-3 carries 262144
    return None if context is not None and window >= context else window


def read_grouped(config: Config, slot: Slot, role: str) -> GroupedAttention:
    """MHA, GQA or MQA of one role."""
    window = window_of(config, role)
    own = _own_sizes(config, slot, role)
    heads = _query_heads(own, slot)
    nested = _block_heads(own, slot, heads) or _nested_heads(own)
    kv_heads = _kv_heads(own, heads, nested) * (own.trait_value("sliding_kv_times", 1) if role == SLIDING else 1)
    head_dim = _head_dim(own, heads)
    _divides(kv_heads, heads, own.key_of("kv_heads"), own.key_of("query_heads"))
    family, stores = own.family, _stores(own, slot)
    value_dim = own.optional_size("v_head_dim") or head_dim
    gate = _gate(own)
    return GroupedAttention(
        query_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        value_head_dim=value_dim,
        window=window,
        qkv_bias=own.trait(family.qkv_bias),
        output_bias=own.trait(family.output_bias),
        qk_norm_parameters=_qk_norm(own, heads, kv_heads * stores, head_dim),
        stores=stores,
        value_projection=not (role == FULL and own.has("k_eq_v") and own.flag("attention_k_eq_v")),
        doubled_query=gate == "element",
        extra_parameters=_sinks(own, role) * heads,
        index=_block_index(own, slot),
        chunked=role == CHUNKED and window is not None,
        key_bias=own.trait_value("key_bias", default=True),
        masks=window is not None and own.trait_value("masks", default=False),
        gate_rows=heads * {"head": 1, "separate": value_dim}.get(gate, 0),
    )


def _gate(config: Config) -> str:
    """The gate on the output: none, one a head, or one as wide as the output; Laguna's `gating` chooses."""
    family, chooses = config.family, config.trait_value("gate_chosen_by")
    if family.gate_key and not config.flag(family.gate_key):
        return ""
    if chooses and config.raw.get(chooses, True) not in (True, "per-head"):
        return "separate"
    return family.gate


def _own_sizes(config: Config, slot: Slot, role: str) -> Config:
    """The config as one layer sees it: by per_layer_config where the file has one, else with its role's own sizes."""
    if "per_layer_config" in config.raw and (config.has("own_full") or config.has("per_layer")):
        return config if config.raw["per_layer_config"] is None else as_layer(config, slot.layer)
    if role == FULL and config.has("own_full_kv") and not config.flag("attention_k_eq_v"):
        # Gemma 4 reads num_global_key_value_heads where keys are values alone
        config = replace(config, raw={**config.raw, "num_global_key_value_heads": None})
    if role == SLIDING and config.has("own_sliding") and config.raw.get(OTHER_SETTING) is not None:
        return _as_other_setting(config)
    return config.as_role(role)


def _as_other_setting(config: Config) -> Config:
    """The config with the sizes that attention_other_setting states of sliding layers (Step)."""
    stated = config.block(OTHER_SETTING).raw
    kind = stated.get("attention_type", "sliding_attention")
    if kind != "sliding_attention":
        msg = f"{OTHER_SETTING} is of {short(kind)}, which roofcast does not understand; it knows sliding_attention"
        raise UnknownArchitectureError(msg)
    names = {"num_attention_heads": "query_heads", "num_attention_groups": "kv_heads", "head_dim": "head_dim"}
    own = {config.key_of(fact): stated[key] for key, fact in names.items() if stated.get(key) is not None}
    return replace(config, raw={**config.raw, **own})


def as_layer(config: Config, layer: int | None, sizes: frozenset[str] = LAYER_SIZES) -> Config:
    """The config with what per_layer_config, which transformers 5 writes, states of one layer."""
    stated, count = config.block("per_layer_config").raw, config.size("layers")
    # numbers are written as 5, or as 05 where there are ten layers or more
    strange = [key for key in stated if not (key.isdecimal() and len(key) < 6 and int(key) < count)]  # noqa: PLR2004
    if strange:
        msg = f"per_layer_config names {listed(strange)}; it must name layers from 0 to {count - 1}"
        raise MalformedModelError(msg)
    entry = {int(key): value for key, value in stated.items()}.get(-1 if layer is None else layer, {})
    if not isinstance(entry, Mapping) or None in entry.values():
        msg = f"per_layer_config has {short(entry)} for layer {layer}; it must be an object of sizes"
        raise MalformedModelError(msg)
    unknown = sorted(str(key) for key in entry if key not in sizes)
    if unknown:
        msg = f"per_layer_config has keys that roofcast does not understand: {listed(unknown)}"
        raise UnknownArchitectureError(msg)
    return replace(config, raw={**config.raw, **entry})


def _query_heads(config: Config, slot: Slot) -> int:
    """Query heads, of one layer where a list gives them."""
    key = "num_attention_heads_per_layer"
    listed_heads = config.raw.get(key)
    if slot.layer is None or is_off(listed_heads) or not config.has("heads_per_layer"):
        return config.size("query_heads")
    entry = per_layer(config, key, config.size("layers"))[slot.layer]
    if type(entry) is not int or not 0 < entry < 100_000:  # noqa: PLR2004 - as keys of sizes are bounded
        msg = f"{key} has {short(entry)}; it must list a number of heads for each layer"
        raise MalformedModelError(msg)
    return entry


def _head_dim(config: Config, heads: int) -> int:
    """Width of a head: as stated, else hidden over heads."""
    hidden, head_dim = config.size("hidden"), config.optional_size("head_dim")
    reads = not config.known or config.family.own_head_dim
    if head_dim is not None and not reads and head_dim * heads != hidden:
        msg = f"{config.key_of('head_dim')} is {head_dim}, but model_type {quoted(config.model_type)} has no such thing"
        raise UnknownArchitectureError(msg)
    if head_dim is None:
        _divides(heads, hidden, config.key_of("query_heads"), config.key_of("hidden"))
        head_dim = hidden // heads
    return head_dim


def _block_heads(config: Config, slot: Slot, heads: int) -> int | None:
    """KV heads that block_configs states for one layer; None without."""
    if slot.layer is None or not config.has("blocks") or config.raw.get("block_configs") is None:
        return None
    return heads // heads_in_group(config, slot.layer)


def _nested_heads(config: Config) -> int | None:
    """KV heads that `attn_config` nests (MPT, DBRX); None where it states none."""
    if config.raw.get("attn_config") is None:
        return None
    block = config.block("attn_config")
    nested = block.raw
    other = {key: value for key, value in nested.items() if key not in NESTED and value != -1}
    misplaced = (key for key, value in other.items() if key in UNDERSTOOD and not is_off(value))
    strange = (*not_understood(other, known_class=True), *misplaced)
    if strange:
        msg = f"attn_config has keys that roofcast does not understand: {listed(strange)}"
        raise UnknownArchitectureError(msg)
    kind = nested.get("attn_type", "multihead_attention")
    kv_heads = nested.get("kv_n_heads")
    plain = kind == "multihead_attention" and kv_heads in (None, config.size("query_heads"))
    if nested.get("qk_ln") or not (plain or config.has("nested_groups")):
        msg = f"attn_config has attn_type {short(kind)}, kv_n_heads {short(kv_heads)}, qk_ln {short(nested.get('qk_ln'))}: not understood"
        raise UnknownArchitectureError(msg)
    if kv_heads is None:
        return 1 if config.has("nested_groups") else None  # DBRX's class has one, MPT's as many as query heads
    return block.size("kv_n_heads")


def _kv_heads(config: Config, heads: int, nested: int | None) -> int:
    """KV heads under every convention: a switch for one, a switch for groups, a count, or as many as queries."""
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        return 1
    if config.flag("multi_query_attention"):
        return config.size("multi_query_group_num")
    if config.raw.get("multi_query") is not None and not config.flag("new_decoder_architecture"):
        return heads  # falcon without multi_query carries a count it does not use
    return config.size("kv_heads", nested or heads)


def _qk_norm(config: Config, heads: int, kv_heads: int, head_dim: int) -> int:
    """Parameters of the norms on queries and keys; a layer without keys of its own has the queries' alone."""
    family = config.family
    if not family.qk_norm or (family.qk_norm_key and not config.flag(family.qk_norm_key)):
        return 0
    sides = 2 if kv_heads else 1
    widths = {"head": sides * head_dim, "head_bias": 2 * sides * head_dim, "full": (heads + kv_heads) * head_dim}
    return widths[family.qk_norm]


def _sinks(config: Config, role: str) -> bool:
    """Whether a layer of that role has a learned sink a head."""
    return config.trait(config.family.sliding_sinks if role == SLIDING else config.family.sinks)


def _stores(config: Config, slot: Slot) -> bool:
    """Whether a layer keeps keys and values: the last num_kv_shared_layers read those of an earlier one."""
    shared = config.size("num_kv_shared_layers", 0, least=0) if config.has("kv_shared") else 0
    count = config.size("layers")
    return slot.layer is None or slot.layer < count - shared


def _block_index(config: Config, slot: Slot) -> Indexer | None:
    """The index branch of a block-sparse layer, where sparse_attention_freq says that it has one."""
    if config.known and config.has("mean_index"):
        from roofcast.modelspec.indexer import mean_indexer  # noqa: PLC0415 - few models have one

        return mean_indexer(config)
    if slot.layer is None or not config.has("block_index"):
        return None
    if config.raw.get("sparse_attention_config") is None:
        return _named_index(config, slot.layer)
    sparse = config.block("sparse_attention_config")
    if not sparse.flag("use_sparse_attention", default=True):
        return None
    flags = flags_of(sparse, "sparse_attention_freq", config.size("layers"))
    if not flags[slot.layer]:
        return None
    from roofcast.modelspec.indexer import block_indexer  # noqa: PLC0415 - few models have one

    return block_indexer(config)


def _named_index(config: Config, layer: int) -> Indexer | None:
    """The index branch where layer_types names the sparse layers and flat keys give its sizes, as transformers writes."""
    if is_off(config.raw.get("layer_types")):
        return None
    if per_layer(config, "layer_types", config.size("layers"))[layer] != "minimax_m3_sparse":
        return None
    from roofcast.modelspec.indexer import block_indexer  # noqa: PLC0415 - few models have one

    names = {"sparse_index_dim": "index_head_dim", "sparse_num_index_heads": "index_n_heads"}
    names |= {"sparse_block_size": "index_block_size", "sparse_topk_blocks": "index_topk_blocks"}
    block = {theirs: config.size(flat) for theirs, flat in names.items()}
    return block_indexer(replace(config, raw={**config.raw, "sparse_attention_config": block}))


def _divides(part: Any, whole: int, part_key: str, whole_key: str) -> None:  # noqa: ANN401
    """Raises unless `part` divides `whole`."""
    if whole % part:
        msg = f"{part_key} {part} does not divide {whole_key} {whole}"
        raise MalformedModelError(msg)
