"""The same of layers that differ: recurrent and convolution layers beside attention."""

from __future__ import annotations

from tests.gguf_plain import Config, Facts, extended, first_of, llama, qwen_moe


def delta(config: Config) -> Facts:
    """Return what the delta converter adds."""
    values = config["linear_num_value_heads"]
    return {
        **qwen_moe(config),
        **extended(config, config.get("mtp_num_hidden_layers") or 0),
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": values,
        "ssm.inner_size": config["linear_value_head_dim"] * values,
        "full_attention_interval": config.get("full_attention_interval", 4),
    }


def mamba(config: Config) -> Facts:
    """Return what the mamba converter adds."""
    hidden = config["hidden_size"]
    return {
        "context_length": 2**20,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.head_count_kv": None,
        "ssm.conv_kernel": config["conv_kernel"],
        "ssm.inner_size": config.get("intermediate_size") or 2 * hidden,
        "ssm.state_size": config["state_size"],
        "ssm.time_step_rank": config["time_step_rank"] if isinstance(config.get("time_step_rank"), int) else -(-hidden // 16),
        "ssm.dt_b_c_rms": config["model_type"] == "falcon_mamba",
    }  # fmt: skip


def mamba2(config: Config) -> Facts:
    """Return what the mamba2 converter adds."""
    inner = 2 * config["hidden_size"]
    return {
        "context_length": 2**20,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.key_length": None,
        "attention.value_length": None,
        "ssm.conv_kernel": config["conv_kernel"],
        "ssm.inner_size": inner,
        "ssm.state_size": config["state_size"],
        "ssm.time_step_rank": inner // config["head_dim"],
        "ssm.group_count": config["n_groups"],
    }


def hybrid(config: Config) -> Facts:
    """Granite 4 and Bamba: Mamba-2 in all layers but those listed."""
    heads, layers = config["mamba_n_heads"], config["num_hidden_layers"]
    names = config.get("layer_types")
    attends = {n for n, name in enumerate(names or ()) if name == "attention"} or set(config.get("attn_layer_indices") or ())  # fmt: skip
    if names and "mamba" not in names:
        return granite(config)
    kv = config["num_key_value_heads"]
    return {
        **granite(config),
        "vocab_size": config["vocab_size"],
        "ssm.conv_kernel": config["mamba_d_conv"],
        "ssm.state_size": config["mamba_d_state"],
        "ssm.group_count": config["mamba_n_groups"],
        "ssm.inner_size": config["mamba_expand"] * config["hidden_size"],
        "ssm.time_step_rank": heads,
        "attention.head_count_kv": [kv if n in attends else 0 for n in range(layers)],
        "context_length": config["max_position_embeddings"] if config["model_type"] == "bamba" else 2**20,
    }


def granite(config: Config) -> Facts:
    """Return what the granite converter adds."""
    own = {"expert_shared_feed_forward_length": config.get("shared_intermediate_size") or None}
    return {**llama(config), "attention.key_length": None, "attention.value_length": None, **own}


def falcon_h1(config: Config) -> Facts:
    """Return what the falcon_h1 converter adds."""
    inner = config["mamba_d_ssm"]
    return {
        "vocab_size": config["vocab_size"],
        "ssm.conv_kernel": config["mamba_d_conv"],
        "ssm.state_size": config["mamba_d_state"],
        "ssm.inner_size": inner,
        "ssm.time_step_rank": inner // config["mamba_d_head"],
        "ssm.group_count": config["mamba_n_groups"],
    }


def nemotron_h(config: Config) -> Facts:
    """Return what the nemotron_h converter adds."""
    pattern: str = config.get("hybrid_override_pattern") or ""
    named = {"mamba": "M", "attention": "*", "moe": "E", "mlp": "-", "linear_attention": "M", "full_attention": "*"}
    pattern = pattern or "".join(named[name] for name in config.get("layers_block_type") or config["layer_types"])
    heads, width = config["mamba_num_heads"], config["mamba_head_dim"]
    moe = bool(config.get("num_experts_per_tok"))
    ff = config["moe_intermediate_size"] if moe else config["intermediate_size"]
    routed = {
        "expert_feed_forward_length": ff,
        "expert_shared_feed_forward_length": config.get("moe_shared_expert_intermediate_size"),
        "expert_count": config.get("n_routed_experts"),
        "expert_shared_count": config.get("n_shared_experts"),
        "moe_latent_size": config.get("moe_latent_size"),
    }
    head_dim = first_of(config, "head_dim", "attention_head_dim")
    return {
        "ssm.conv_kernel": config["conv_kernel"],
        "ssm.state_size": config["ssm_state_size"],
        "ssm.group_count": config["n_groups"],
        "ssm.inner_size": heads * width,
        "ssm.time_step_rank": heads,
        "attention.head_count_kv": [config["num_key_value_heads"] * (letter == "*") for letter in pattern],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "feed_forward_length": [ff * (letter in "E-") for letter in pattern],
        **(routed if moe else {"expert_count": None}),
    }


def jamba(config: Config) -> Facts:
    """Return what the jamba converter adds."""
    hidden, kv = config["hidden_size"], config["num_key_value_heads"]
    period, offset = config["attn_layer_period"], config["attn_layer_offset"]
    return {
        "attention.key_length": None,
        "attention.value_length": None,
        "ssm.conv_kernel": config["mamba_d_conv"],
        "ssm.inner_size": config["mamba_expand"] * hidden,
        "ssm.state_size": config["mamba_d_state"],
        "ssm.time_step_rank": config["mamba_dt_rank"] if isinstance(config.get("mamba_dt_rank"), int) else -(-hidden // 16),
        "attention.head_count_kv": [kv * (n % period == offset) for n in range(config["num_hidden_layers"])],
    }  # fmt: skip


def lfm2(config: Config) -> Facts:
    """Return what the lfm2 converter adds."""
    kv, names = config["num_key_value_heads"], config.get("layer_types")
    if not names:
        full = config["full_attn_idxs"]
        names = ["full_attention" if n in full else "conv" for n in range(config["num_hidden_layers"])]
    width = first_of(config, "block_ff_dim", "intermediate_size")
    if config["model_type"] == "lfm2" and config.get("block_auto_adjust_ff_dim", True):
        multiple = config.get("block_multiple_of", 256)
        width = -(-int(config.get("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3)) // multiple) * multiple
    return {
        "attention.head_count_kv": [kv * (name != "conv") for name in names],
        "shortconv.l_cache": config["conv_L_cache"],
        "feed_forward_length": width,
        "vocab_size": config["vocab_size"],
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "leading_dense_block_count": config.get("num_dense_layers"),
    }


def kimi_linear(config: Config) -> Facts:
    """Return what the kimi_linear converter adds."""
    block, rank, rope = config["linear_attn_config"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    full = block["full_attn_layers"]
    return {
        "attention.head_count_kv": [int(n + 1 in full) for n in range(config["num_hidden_layers"])],
        "ssm.conv_kernel": block["short_conv_kernel_size"],
        "kda.head_dim": block["head_dim"],
        "attention.q_lora_rank": config.get("q_lora_rank"),
        "attention.kv_lora_rank": rank,
        "rope.dimension_count": rope,
        "attention.key_length": rank + rope,
        "attention.value_length": None,
        "attention.key_length_mla": config["qk_nope_head_dim"] + rope,
        "attention.value_length_mla": config["v_head_dim"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config["num_shared_experts"],
        "leading_dense_block_count": config["first_k_dense_replace"],
    }
