"""The same of latent, indexed and windowed attention, and of layers with sizes of their own."""

from __future__ import annotations

from tests.gguf_plain import Config, Facts, entries_named, expert_width, extended, first_of, routed, window


def deepseek2(config: Config) -> Facts:
    """Return what the deepseek2 converter adds."""
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    return {
        **routed(config),
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": config.get("q_lora_rank"),
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": config["qk_nope_head_dim"] + rope,
        "attention.value_length_mla": config["v_head_dim"],
        "rope.dimension_count": rope,
        "vocab_size": config["vocab_size"],
        "leading_dense_block_count": config.get("first_k_dense_replace", 0),
    }


def sigmoid(config: Config) -> Facts:
    """Return what the sigmoid converter adds."""
    return {**deepseek2(config), "expert_gating_func": 2}


def glm_dsa(config: Config) -> Facts:
    """Return what the glm_dsa converter adds."""
    types = config.get("indexer_types")
    return {
        **sigmoid(config),
        **extended(config, config.get("num_nextn_predict_layers", 0)),
        "attention.indexer.head_count": config["index_n_heads"],
        "attention.indexer.key_length": config["index_head_dim"],
        "attention.indexer.top_k": config["index_topk"],
        "attention.indexer.types": types and [name == "full" for name in types],
    }


def deepseek4(config: Config) -> Facts:
    """Return what the deepseek4 converter adds."""
    return {
        **routed(config),
        **window(config),
        "attention.q_lora_rank": config["q_lora_rank"],
        "attention.output_lora_rank": config["o_lora_rank"],
        "attention.output_group_count": config["o_groups"],
        "attention.compress_ratios": config["compress_ratios"],
        "rope.dimension_count": config["qk_rope_head_dim"],
        "hash_layer_count": config.get("num_hash_layers"),
        "attention.indexer.head_count": config["index_n_heads"],
        "attention.indexer.key_length": config["index_head_dim"],
        "attention.indexer.top_k": config["index_topk"],
        "hyper_connection.count": config["hc_mult"],
    }


def minicpm3(config: Config) -> Facts:
    """Return what the minicpm3 converter adds."""
    rope = config["qk_rope_head_dim"]
    return {
        "attention.q_lora_rank": config.get("q_lora_rank"),
        "attention.kv_lora_rank": config["kv_lora_rank"],
        "attention.key_length": config["qk_nope_head_dim"] + rope,
        "attention.value_length": None,
        "rope.dimension_count": rope,
    }


def minimax_m3(config: Config) -> Facts:
    """Return what the minimax_m3 converter adds."""
    block = config["sparse_attention_config"]
    return {
        **expert_width(config),
        "feed_forward_length": config["dense_intermediate_size"],
        "expert_shared_count": 1,
        "attention.indexer.head_count": block["sparse_num_index_heads"],
        "attention.indexer.key_length": block["sparse_index_dim"],
        "attention.indexer.top_k": block["sparse_topk_blocks"],
        "attention.indexer.block_size": block["sparse_block_size"],
        "leading_dense_block_count": config["moe_layer_freq"].index(1),
    }


def mimo(config: Config) -> Facts:
    """Return what the mimo converter adds."""
    layers = config["num_hidden_layers"]
    own = config.get("hybrid_layer_pattern") or [int(n % 6 != 5 and n != 0) for n in range(layers)]
    slides = [*own, 1, 1, 1]
    heads = config["num_key_value_heads"]
    kv = {0: heads, 1: config.get("swa_num_key_value_heads", 2 * heads)}
    return {
        **extended(config, 3),
        "attention.head_count_kv": [kv[flag] for flag in slides],
        "attention.sliding_window": first_of(config, "sliding_window", "sliding_window_size"),
        "attention.sliding_window_pattern": slides,
        "attention.value_length": config["v_head_dim"],
        "expert_count": config["n_routed_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
    }


def step(config: Config) -> Facts:
    """Return what the step converter adds."""
    other, layers = config.get("attention_other_setting") or {}, config["num_hidden_layers"]
    nextn = config.get("num_nextn_predict_layers", 0)
    names = (list(config["layer_types"]) + ["full_attention"] * nextn)[: layers + nextn]
    slides = [name == "sliding_attention" for name in names]
    heads, groups = config["num_attention_heads"], first_of(config, "num_attention_groups", "num_key_value_heads")
    return {
        **extended(config, nextn),
        "attention.head_count": [other.get("num_attention_heads", heads) if flag else heads for flag in slides],
        "attention.head_count_kv": [other.get("num_attention_groups", groups) if flag else groups for flag in slides],
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": slides,
        "expert_count": first_of(config, "moe_num_experts", "n_routed_experts"),
        "expert_used_count": first_of(config, "moe_top_k", "num_experts_per_tok"),
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": first_of(config, "share_expert_dim", "share_expert_dims"),
        "leading_dense_block_count": min(map(int, config["moe_layers_enum"].split(","))),
    }


def gemma3n(config: Config) -> Facts:
    """Return what the gemma3n converter adds."""
    names = config.get("layer_types") or ["full_attention" if n % 5 == 4 else "sliding_attention" for n in range(config["num_hidden_layers"])]  # fmt: skip
    widths = config["intermediate_size"]
    return window(config) | {
        "feed_forward_length": widths,
        "altup.num_inputs": config["altup_num_inputs"],
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "attention.shared_kv_layers": config["num_kv_shared_layers"],
        "attention.sliding_window_pattern": [name == "sliding_attention" for name in names],
    }


def gemma4(config: Config) -> Facts:
    """Return what the gemma4 converter adds."""
    shared, layers, width = config.get("num_kv_shared_layers", 0), config["num_hidden_layers"], config["intermediate_size"]  # fmt: skip
    slides = entries_named(config, "layer_types", "sliding_attention")
    kv_full, kv = config.get("num_global_key_value_heads"), config["num_key_value_heads"]
    return window(config) | {
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": config.get("hidden_size_per_layer_input") or 0,
        "attention.sliding_window_pattern": slides,
        "attention.key_length": config["global_head_dim"],
        "attention.value_length": config["global_head_dim"],
        "attention.key_length_swa": config["head_dim"],
        "attention.value_length_swa": config["head_dim"],
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "feed_forward_length": [width * (1 + (n >= layers - shared)) for n in range(layers)] if config.get("use_double_wide_mlp") else width,
        "attention.head_count_kv": kv if kv_full is None else [kv if slide else kv_full for slide in slides],
    }  # fmt: skip


def exaone4(config: Config) -> Facts:
    """Return what the exaone4 converter adds."""
    if not config.get("sliding_window"):
        return {}
    pattern, layers = config.get("sliding_window_pattern", 4), config["num_hidden_layers"]
    if isinstance(pattern, str):
        flags = [pattern[n % len(pattern)] == "L" for n in range(layers)]
    else:
        flags = [(n + 1) % pattern != 0 for n in range(layers)]
    if config.get("layer_types"):
        flags = entries_named(config, "layer_types", "sliding_attention")
    return window(config) | {"attention.sliding_window_pattern": flags}


def olmo(config: Config) -> Facts:
    """Return what the olmo converter adds."""
    if not config.get("sliding_window"):
        return {}
    names = config.get("layer_types") or ["full_attention" if n % 4 == 3 else "sliding_attention" for n in range(config["num_hidden_layers"])]  # fmt: skip
    return window(config) | {"attention.sliding_window_pattern": [name == "sliding_attention" for name in names]}


def deci(config: Config) -> Facts:
    """Return what the deci converter adds."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    own, kv, widths = [], [], []
    for block in config["block_configs"]:
        group = block["attention"]["n_heads_in_group"]
        linear = block["attention"].get("replace_with_linear")
        own.append(heads if group or linear else 0)
        kv.append(heads // group if group else 0)
        width = int(2 * (block["ffn"]["ffn_mult"] or 0.0) * hidden / 3)
        widths.append(width if width % 256 == 0 else width + 256 - width % 256)
    return {
        "attention.head_count": own,
        "attention.head_count_kv": kv,
        "feed_forward_length": widths,
        "attention.key_length": hidden // heads,
        "attention.value_length": hidden // heads,
        "vocab_size": config["vocab_size"],
    }


def glm4_moe(config: Config) -> Facts:
    """Return what the glm4_moe converter adds."""
    return {
        **routed(config),
        **extended(config, config.get("num_nextn_predict_layers") or 0),
        "expert_gating_func": 2,
        "rope.dimension_count": 64,
    }
