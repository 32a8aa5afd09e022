"""What single converters of llama.cpp write beside the keys of every text model: plain layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Facts = dict[str, Any]
Config = Mapping[str, Any]


def nothing(_: Config) -> Facts:
    """Return nothing: the base writes it all."""
    return {}


def first_of(config: Config, *keys: str) -> Any:
    """Return the first of several keys that is there."""
    return next((config[key] for key in keys if config.get(key) is not None), None)


def llama(config: Config) -> Facts:
    """Return what the llama converter adds."""
    heads = config["num_attention_heads"]
    return {
        "vocab_size": config["vocab_size"],
        "rope.dimension_count": config.get("head_dim") or config["hidden_size"] // heads,
    }


def window(config: Config) -> Facts:
    """Return what the window converter adds."""
    return {"attention.sliding_window": config.get("sliding_window")}


def extended(config: Config, nextn: int) -> Facts:
    """Return what the extended converter adds."""
    layers = first_of(config, "num_hidden_layers", "n_layer")
    return {"block_count": layers + nextn, "nextn_predict_layers": nextn or None}


def qwen_moe(config: Config) -> Facts:
    """Return what the qwen_moe converter adds."""
    return {
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size"),
    }


def routed(config: Config) -> Facts:
    """DeepSeek-like experts: all keys in one place."""
    return {
        "expert_count": config["n_routed_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config.get("n_shared_experts"),
        "leading_dense_block_count": config.get("first_k_dense_replace"),
    }


def expert_width(config: Config) -> Facts:
    """Return what the expert_width converter adds."""
    return {"expert_feed_forward_length": config["intermediate_size"]}


def no_head_dim(_: Config) -> Facts:
    """Return what the no_head_dim converter adds."""
    return {"attention.key_length": None, "attention.value_length": None}


def entries_named(config: Config, key: str, name: str) -> list[bool]:
    """Return of each entry of a list whether it is that name."""
    return [entry == name for entry in config[key]]


def hy_v3(config: Config) -> Facts:
    """Return what the hy_v3 converter adds."""
    return {
        "expert_count": config["num_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config["num_shared_experts"],
        "leading_dense_block_count": config.get("first_k_dense_replace"),
    }


def chatglm(config: Config) -> Facts:
    """Return what the chatglm converter adds."""
    return {
        "attention.head_count_kv": first_of(config, "multi_query_group_num", "num_key_value_heads"),
        "feed_forward_length": first_of(config, "ffn_hidden_size", "intermediate_size"),
        "attention.key_length": None,
        "attention.value_length": None,
    }


def falcon(config: Config) -> Facts:
    """Return what the falcon converter adds."""
    heads = first_of(config, "num_attention_heads", "n_head")
    hidden = config["hidden_size"]
    kv = config.get("num_kv_heads") or heads
    if not config.get("new_decoder_architecture"):
        kv = 1 if config.get("multi_query") else heads
    return {"attention.head_count_kv": kv, "feed_forward_length": 4 * hidden, "attention.key_length": None, "attention.value_length": None}  # fmt: skip


def dbrx(config: Config) -> Facts:
    """Return what the dbrx converter adds."""
    feed, attend = config["ffn_config"], config["attn_config"]
    return {
        "feed_forward_length": feed["ffn_hidden_size"],
        "attention.head_count_kv": attend["kv_n_heads"],
        "expert_count": feed["moe_num_experts"],
        "expert_used_count": feed["moe_top_k"],
    }


def mpt(config: Config) -> Facts:
    """Return what the mpt converter adds."""
    kv = (config.get("attn_config") or {}).get("kv_n_heads")
    return {"feed_forward_length": 4 * config["d_model"], "attention.head_count_kv": kv}


def four(config: Config) -> Facts:
    """GPT-2 and its kin: no KV heads, a width of four times the hidden size unless stated."""
    hidden = first_of(config, "n_embd", "hidden_size", "n_embed")
    return {"feed_forward_length": first_of(config, "n_inner", "intermediate_size") or 4 * hidden}


def bigcode(config: Config) -> Facts:
    """Return what the bigcode converter adds."""
    return {**four(config), "attention.head_count_kv": 1 if config.get("multi_query") else config["n_head"]}


def llama4(config: Config) -> Facts:
    """Return what the llama4 converter adds."""
    return {
        **llama(config),
        "feed_forward_length": config["intermediate_size_mlp"],
        "interleave_moe_layer_step": config["interleave_moe_layer_step"],
        "expert_feed_forward_length": config["intermediate_size"],
    }


def ernie_moe(config: Config) -> Facts:
    """Return what the ernie_moe converter adds."""
    return {
        "expert_count": config["moe_num_experts"],
        "expert_used_count": config["moe_k"],
        "interleave_moe_layer_step": config["moe_layer_interval"],
        "leading_dense_block_count": config["moe_layer_start_index"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config["moe_num_shared_experts"],
    }


def afmoe(config: Config) -> Facts:
    """Return what the afmoe converter adds."""
    return window(config) | {
        "expert_shared_count": config.get("num_shared_experts"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "leading_dense_block_count": config.get("num_dense_layers"),
    }


def phi3(config: Config) -> Facts:
    """Return what the phi3 converter adds."""
    return {**no_head_dim(config), "attention.sliding_window": config.get("sliding_window") or 0}


def t5(config: Config) -> Facts:
    """Return what the t5 converter adds."""
    return {
        "block_count": config["num_layers"],
        "decoder_block_count": config.get("num_decoder_layers") or config["num_layers"],
        "feed_forward_length": config["d_ff"],
        "attention.head_count": config["num_heads"],
        "attention.key_length": config["d_kv"],
        "attention.value_length": config["d_kv"],
        "attention.relative_buckets_count": config["relative_attention_num_buckets"],
    }


def gpt_oss(config: Config) -> Facts:
    """Return a window, and experts as wide as the stated width."""
    return {**window(config), **expert_width(config)}
