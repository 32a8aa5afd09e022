"""What layers of a GGUF file are: windows and latents wherever stated, and rules of single architectures.

Every rule returns keys of the config.json of the class, from the facts of the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.gguf_recurrent import RECURRENT_RULES

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.modelspec.gguf_facts import GgufFacts
    from roofcast.modelspec.gguf_names import ClassKeys

    Rule = Callable[[GgufFacts, ClassKeys], dict[str, Any]]

_SIGMOID: Final = 2  # expert_gating_func. Source: llama.cpp, src/llama-hparams.h
_MTP: Final = "*E"  # attention, then experts: Nemotron 3's draft layer
_FFN_ROUND: Final = 256  # feed-forwards of Nemotron-NAS are multiples of it


def window(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """The window, null where the file states none, and which layers slide where the file says it."""
    if not keys.has("window"):
        return {}
    width = facts.number("attention.sliding_window") or None
    if width is None and not keys.known:
        return {}
    config: dict[str, Any] = {"sliding_window": width}
    pattern = facts.stated("attention.sliding_window_pattern")
    if width is None or pattern is None:
        return config
    if isinstance(pattern, tuple):
        slides = facts.each("attention.sliding_window_pattern") or ()
    else:  # the last of so many layers sees all; 0 is none
        step = facts.number("attention.sliding_window_pattern") or facts.layers + 1
        slides = tuple(int((layer + 1) % step != 0) for layer in range(facts.layers))
    return {**config, "layer_types": _named(slides, "sliding_attention", "full_attention")}


def _named(flags: tuple[int, ...], on: str, off: str) -> list[str]:
    return [on if flag else off for flag in flags]


def latent(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """MLA: the latent, the RoPE key and the true widths of heads, which newer files state beside those absorbed.

    Newer files describe MLA as MQA: `head_count_kv` 1, and as `key_length` d_c + d_rope; `key_length_mla` has the
    head's own width. Older ones have the head's own as `key_length`.

    Raises:
        MalformedModelError: a head that is no wider than its RoPE key, or of which only the absorbed width is stated.
    """
    rank = facts.number("attention.kv_lora_rank")
    if not rank or not keys.has("latent"):
        return {}
    rope = facts.needed("rope.dimension_count")
    name = (
        "attention.key_length_mla" if facts.stated("attention.key_length_mla") is not None else "attention.key_length"
    )
    width = facts.needed(name)
    if width <= rope or (name == "attention.key_length" and width == rank + rope and set(facts.kv_heads()) <= {0, 1}):
        wanted = "attention.key_length_mla" if width > rope else name
        msg = f"{facts.arch}.{name} is {width}; with a RoPE key of {rope}, {wanted} must state the width of a head"
        raise MalformedModelError(msg)
    value = facts.number("attention.value_length_mla") or facts.number("attention.value_length")
    heads = max(facts.heads())
    config = {
        "kv_lora_rank": rank,
        "q_lora_rank": facts.number("attention.q_lora_rank") or None,
        "qk_nope_head_dim": width - rope,
        "qk_rope_head_dim": rope,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": None,
    }
    return config if keys.family.constants.get("values_share_hidden") else {**config, "v_head_dim": value}


def _groups(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """ChatGLM: KV heads under keys of its own."""
    return {"multi_query_attention": True, "multi_query_group_num": max(facts.kv_heads())}


def _multi_query(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """GPT-BigCode: one KV head, or as many as query heads."""
    return {"multi_query": max(facts.kv_heads()) == 1}


def _falcon(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Falcon: one KV head (7B), groups (40B and 180B, with two norms; 11B, with one), or as many as query heads."""
    heads, two_norms = max(facts.kv_heads()), facts.has("attn_norm_2.weight")
    groups = two_norms or heads not in {1, max(facts.heads())}
    norms = {"num_ln_in_parallel_attn": 1 + two_norms} if groups and facts.shapes else {}
    return {"new_decoder_architecture": groups, "multi_query": groups or heads == 1, "num_kv_heads": heads, **norms}


def _mpt(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """MPT: the feed-forward's width as a multiple of the hidden size, KV heads nested."""
    hidden, width = facts.needed("embedding_length"), facts.needed("feed_forward_length")
    if width % hidden:
        msg = f"mpt.feed_forward_length is {width}; it must be a multiple of embedding_length, {hidden}"
        raise MalformedModelError(msg)
    heads, kv_heads = max(facts.heads()), max(facts.kv_heads())
    nested = (
        {} if heads == kv_heads else {"attn_config": {"attn_type": "grouped_query_attention", "kv_n_heads": kv_heads}}
    )
    return {"expansion_ratio": width // hidden, "d_model": hidden, **nested}


def _dbrx(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """DBRX: experts and KV heads nested."""
    feed = {
        "ffn_hidden_size": facts.needed("feed_forward_length"),
        "moe_num_experts": facts.needed("expert_count"),
        "moe_top_k": facts.needed("expert_used_count"),
    }
    return {"attn_config": {"kv_n_heads": max(facts.kv_heads())}, "ffn_config": feed}


def _blocks(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Nemotron-NAS: layer by layer heads, a matrix in the place of attention, or nothing; and a width, or nothing."""
    widths, heads = facts.each("feed_forward_length"), facts.heads()
    if widths is None:
        facts.needed("feed_forward_length")
    hidden, blocks = facts.needed("embedding_length"), []
    for own, kv_heads, width in zip(heads, facts.kv_heads(), widths or (), strict=True):
        if (kv_heads and own % kv_heads) or width % _FFN_ROUND:
            msg = f"deci has a layer of {own} query heads, {kv_heads} KV heads and a width of {width}: KV heads must divide query heads, and {_FFN_ROUND} the width"
            raise MalformedModelError(msg)
        # half a column less, so that what its class computes rounds up to the width
        feed = {"no_op": False, "ffn_mult": 3 * (width - 0.5) / (2 * hidden)} if width else {"no_op": True}
        attention: dict[str, Any] = {"no_op": not (own or kv_heads), "replace_with_linear": bool(own and not kv_heads)}
        if kv_heads:
            attention["n_heads_in_group"] = own // kv_heads
        blocks.append({"attention": attention, "ffn": feed})
    return {"block_configs": blocks, "num_key_value_heads": None, "intermediate_size": None}


def _chunks(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Llama 4: chunks of 8192 in all but every fourth layer, in code; a window of 0 switches them off."""
    off = facts.stated("attention.sliding_window") == 0
    return {"layer_types": ["full_attention"] * facts.layers} if off else {"attention_chunk_size": 8192}


def _per_layer_inputs(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Gemma 3n and 4: an input of its own for every layer, and last layers without keys of their own."""
    rows = facts.rows("per_layer_token_embd.weight")
    return {
        "hidden_size_per_layer_input": facts.number("embedding_length_per_layer_input", 0),
        "num_kv_shared_layers": facts.number("attention.shared_kv_layers", 0),
        **({"vocab_size_per_layer_input": rows} if rows else {}),
    }


def _altup(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Gemma 3n: streams, the rank of LAuReL, and a width for every layer."""
    rank, streams = facts.size("laurel_l.weight", 0), facts.number("altup.num_inputs")
    config: dict[str, Any] = {"intermediate_size": list(facts.each("feed_forward_length") or ())}
    return config | ({"laurel_rank": rank} if rank else {}) | ({"altup_num_inputs": streams} if streams else {})


def _gemma4(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Gemma 4: sizes of its own in full layers, keys that are values, and a double width in layers that share."""
    widths, kv_heads = facts.each("feed_forward_length") or (), facts.kv_heads()
    slides = facts.each("attention.sliding_window_pattern") or (0,) * facts.layers
    by_role = {
        role: {n for n, flag in zip(kv_heads, slides, strict=True) if bool(flag) == role} for role in (True, False)
    }
    full = frozenset(layer for layer, flag in enumerate(slides) if not flag)
    differ = by_role[False] != by_role[True]
    same = not full & facts.blocks("attn_v.weight") if facts.shapes else differ
    own = max(by_role[False], default=None) if same or differ else None
    return {
        "head_dim": facts.number("attention.key_length_swa") or facts.number("attention.key_length"),
        "v_head_dim": None,
        "global_head_dim": facts.number("attention.key_length"),
        "num_key_value_heads": max(by_role[True] or by_role[False]),
        "num_global_key_value_heads": own,
        "attention_k_eq_v": same,
        "intermediate_size": min(widths, default=None),
        "use_double_wide_mlp": len(set(widths)) > 1,
        "enable_moe_block": bool(facts.number("expert_count", 0)),
    }


def _own_sliding(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """MiMo-V2: KV heads of their own in sliding layers, keys wider than values."""
    slides, kv_heads = facts.each("attention.sliding_window_pattern"), facts.kv_heads()
    if slides is None:
        facts.needed("attention.sliding_window_pattern")
    own = {
        flag: max((n for n, slid in zip(kv_heads, slides or (), strict=True) if bool(slid) == flag), default=None)
        for flag in (True, False)
    }
    key, value = facts.needed("attention.key_length"), facts.needed("attention.value_length")
    sinks = facts.blocks("attn_sinks.weight")
    sliding = frozenset(layer for layer, flag in enumerate(slides or ()) if flag)
    return {
        "layer_types": None,
        "hybrid_layer_pattern": [int(bool(flag)) for flag in slides or ()],
        "num_key_value_heads": own[False] or own[True],
        "swa_num_key_value_heads": own[True],
        "swa_num_attention_heads": max(facts.heads()),
        "swa_head_dim": key,
        "swa_v_head_dim": value,
        "v_head_dim": value,
        "add_swa_attention_sink_bias": bool(sinks & sliding),
        "add_full_attention_sink_bias": bool(sinks - sliding),
    }


def _other_setting(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Step 3.5: heads of their own in sliding layers."""
    slides, heads, kv_heads = facts.each("attention.sliding_window_pattern"), facts.heads(), facts.kv_heads()
    if slides is None:
        facts.needed("attention.sliding_window_pattern")
    first = {bool(flag): layer for layer, flag in reversed(tuple(enumerate(slides or ())))}
    full, sliding = first.get(False, first.get(True, 0)), first.get(True)
    config: dict[str, Any] = {"num_attention_heads": heads[full], "num_attention_groups": kv_heads[full]}
    if sliding is not None:
        own = {"num_attention_heads": heads[sliding], "num_attention_groups": kv_heads[sliding]}
        config["attention_other_setting"] = {"attention_type": "sliding_attention", **own}
    return {**config, "num_key_value_heads": None, "v_head_dim": None}


def _index(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """DSA: the index, and which layers have one of their own."""
    stated = facts.each("attention.indexer.types") or _indexed(facts)
    return {
        "index_n_heads": facts.needed("attention.indexer.head_count"),
        "index_head_dim": facts.needed("attention.indexer.key_length"),
        "index_topk": facts.needed("attention.indexer.top_k"),
        **({"indexer_types": _named(stated, "full", "shared")} if stated and keys.has("shared_index") else {}),
    }


def _indexed(facts: GgufFacts) -> tuple[int, ...]:
    """Which layers hold parts of an index; empty where none does."""
    owners = facts.blocks(*(part for part in facts.parts if part.startswith("indexer.")))
    return tuple(int(layer in owners) for layer in range(facts.layers)) if owners else ()


def _block_index(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """MiniMax-M3: an index that chooses blocks, in the layers that hold one."""
    block = {
        "sparse_attention_freq": list(_indexed(facts) or (1,) * facts.layers),
        "sparse_num_index_heads": facts.needed("attention.indexer.head_count"),
        "sparse_index_dim": facts.needed("attention.indexer.key_length"),
        "sparse_topk_blocks": facts.needed("attention.indexer.top_k"),
        "sparse_block_size": facts.needed("attention.indexer.block_size"),
    }
    return {"sparse_attention_config": block}


def _compressed(facts: GgufFacts, keys: ClassKeys) -> dict[str, Any]:
    """DeepSeek-V4: how far each layer compresses, groups of the output, streams of the residual."""
    ratios = facts.each("attention.compress_ratios")
    if ratios is None:
        facts.needed("attention.compress_ratios")
    return {
        **_index(facts, keys),
        "compress_ratios": list(ratios or ()),
        "q_lora_rank": facts.needed("attention.q_lora_rank"),
        "qk_rope_head_dim": facts.needed("rope.dimension_count"),
        "o_lora_rank": facts.needed("attention.output_lora_rank"),
        "o_groups": facts.needed("attention.output_group_count"),
        "hc_mult": facts.needed("hyper_connection.count"),
    }


def _letters(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """Nemotron-H: a letter a layer; one with KV heads attends, one with a width feeds forward, others are Mamba-2."""
    feed = "E" if facts.number("expert_count", 0) else "-"
    widths = facts.each("feed_forward_length") or (0,) * facts.layers
    pattern = "".join("*" if kv else feed if width else "M" for kv, width in zip(facts.kv_heads(), widths, strict=True))
    return {"hybrid_override_pattern": pattern, **({"mtp_hybrid_override_pattern": _MTP} if facts.draft else {})}


def _encoder(facts: GgufFacts, _: ClassKeys) -> dict[str, Any]:
    """T5: an encoder beside the decoder, which may have another number of layers."""
    gated = any(name.startswith("dec.blk.") and ".ffn_gate." in name for name in facts.shapes)
    return {
        "is_encoder_decoder": True,
        "num_heads": max(facts.heads()),
        "d_kv": facts.needed("attention.key_length"),
        "d_ff": facts.needed("feed_forward_length"),
        "num_layers": facts.layers,
        "num_decoder_layers": facts.number("decoder_block_count") or facts.layers,
        "relative_attention_num_buckets": facts.number("attention.relative_buckets_count", 32),
        "feed_forward_proj": "gated-gelu" if gated else "relu",
    }


RULES: Final[dict[str, Rule]] = {
    **RECURRENT_RULES,
    "altup": _altup,
    "block_index": _block_index,
    "blocks": _blocks,
    "chunks": _chunks,
    "compressed": _compressed,
    "dbrx": _dbrx,
    "encoder": _encoder,
    "falcon": _falcon,
    "gemma4": _gemma4,
    "groups": _groups,
    "index": _index,
    "letters": _letters,
    "mpt": _mpt,
    "multi_query": _multi_query,
    "other_setting": _other_setting,
    "own_sliding": _own_sliding,
    "per_layer_inputs": _per_layer_inputs,
}
# what tells classes of one architecture apart
TESTS: Final[dict[str, Callable[[GgufFacts], bool]]] = {
    "dense": lambda facts: not facts.number("expert_count", 0),
    "experts": lambda facts: bool(facts.number("expert_count", 0)),
    "mamba_norms": lambda facts: facts.stated("ssm.dt_b_c_rms") is True,
    "shared_width": lambda facts: bool(facts.number("expert_shared_feed_forward_length", 0)),
    "sigmoid": lambda facts: facts.number("expert_gating_func", 0) == _SIGMOID or facts.has("exp_probs_b.bias"),
    "windows": lambda facts: bool(facts.number("attention.sliding_window", 0)),
}
