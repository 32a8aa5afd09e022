"""What llama.cpp's converter writes into a GGUF file for a config.json: its metadata, and the tensors that tell most.

Written from llama.cpp's conversion/*.py (mid 2026), each class by what its own `set_gguf_parameters` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.config import read_config
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.spec import ModelSpec
from roofcast.modelspec.ssm import Mamba1, Mamba2
from roofcast.modelspec.weights import Tensor

Facts = dict[str, Any]
Config = Mapping[str, Any]

# model_type -> general.architecture
ARCHITECTURES: Final[dict[str, str]] = {
    "afmoe": "afmoe",
    "apertus": "apertus",
    "arcee": "arcee",
    "baichuan": "baichuan",
    "bamba": "granitehybrid",
    "bloom": "bloom",
    "chatglm": "chatglm",
    "cohere": "command-r",
    "cohere2": "cohere2",
    "dbrx": "dbrx",
    "deepseek": "deepseek",
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "deepseek_v32": "deepseek32",
    "deepseek_v4": "deepseek4",
    "dots1": "dots1",
    "ernie4_5": "ernie4_5",
    "ernie4_5_moe": "ernie4_5-moe",
    "exaone4": "exaone4",
    "exaone4_5_text": "exaone4",
    "falcon": "falcon",
    "falcon_h1": "falcon-h1",
    "falcon_mamba": "mamba",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "gemma3n_text": "gemma3n",
    "gemma4_text": "gemma4",
    "gemma4_unified_text": "gemma4",
    "glm4": "glm4",
    "glm4_moe": "glm4moe",
    "glm4_moe_lite": "deepseek2",
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4moe",
    "glm_moe_dsa": "glm-dsa",
    "gpt2": "gpt2",
    "gpt_bigcode": "starcoder",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    "gptj": "gptj",
    "granite": "granite",
    "granitemoe": "granitemoe",
    "granitemoeshared": "granitemoe",
    "granitemoehybrid": "granitehybrid",
    "hy_v3": "hy_v3",
    "hunyuan_v1_dense": "hunyuan-dense",
    "internlm2": "internlm2",
    "jamba": "jamba",
    "kimi_k2": "deepseek2",
    "kimi_linear": "kimi-linear",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "llama": "llama",
    "llama4_text": "llama4",
    "mamba": "mamba",
    "mamba2": "mamba2",
    "mimo_v2": "mimo2",
    "mimo_v2_flash": "mimo2",
    "minicpm": "minicpm",
    "minicpm3": "minicpm3",
    "minimax_m2": "minimax-m2",
    "minimax_m3_vl_text": "minimax-m3",
    "ministral3": "mistral3",
    "mistral": "llama",
    "mixtral": "llama",
    "mpt": "mpt",
    "nemotron": "nemotron",
    "nemotron-nas": "deci",
    "nemotron_h": "nemotron_h",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmo3": "olmo2",
    "olmoe": "olmoe",
    "phi": "phi2",
    "phi3": "phi3",
    "phimoe": "phimoe",
    "qwen": "qwen",
    "qwen2": "qwen2",
    "qwen2_5_vl_text": "qwen2vl",
    "qwen2_moe": "qwen2moe",
    "qwen2_vl_text": "qwen2vl",
    "qwen3": "qwen3",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
    "qwen3_vl_moe_text": "qwen3vlmoe",
    "qwen3_vl_text": "qwen3vl",
    "sarvam_moe": "bailingmoe2",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
    "stablelm": "stablelm",
    "starcoder2": "starcoder2",
    "step3p5": "step35",
    "t5": "t5",
}


def metadata_of(raw: Config, spec: ModelSpec) -> dict[str, Any]:
    """Return the metadata that the converter would write for the text model of a config."""
    model_type = raw["model_type"]
    config = read_config(raw).raw  # the converter reads the class's defaults as well
    arch = ARCHITECTURES[model_type]
    if model_type == "nemotron_h" and config.get("num_experts_per_tok"):
        arch = "nemotron_h_moe"
    if model_type == "granitemoehybrid" and "mamba" not in config["layer_types"]:
        arch = "granitemoe" if config.get("num_local_experts") else "granite"
    if model_type in {"mistral", "ministral3"} and not str(raw.get("rope_parameters", "")).count("llama_4"):
        arch = "llama" if model_type == "mistral" else "mistral3"
    facts = _base(config) | OWN.get(model_type, _nothing)(config)
    facts["block_count"] = facts.get("block_count", len(spec.layers))
    stated = {f"{arch}.{key}": _array(value) for key, value in facts.items() if value is not None}
    tokens = tuple(f"token {n}" for n in range(4))
    return {
        "general.architecture": arch,
        "general.type": "model",
        "general.file_type": 1,
        **stated,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": tokens,
    }


def _array(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _nothing(_: Config) -> Facts:
    return {}


def _any(config: Config, *keys: str) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)


def _base(config: Config) -> Facts:
    """What every text model writes: the first of several keys that is there."""
    head_dim = config.get("head_dim")
    return {
        "context_length": _any(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length") or 2048,
        "embedding_length": _any(config, "hidden_size", "n_embd", "d_model", "n_embed"),
        "feed_forward_length": _any(config, "intermediate_size", "n_inner", "ffn_dim"),
        "attention.head_count": _any(config, "num_attention_heads", "n_head", "n_heads"),
        "attention.head_count_kv": _any(config, "num_key_value_heads", "n_kv_heads"),
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "expert_count": _any(config, "num_local_experts", "num_experts"),
        "expert_used_count": _any(config, "num_experts_per_tok", "num_experts_per_token", "top_k_experts"),
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
    }


def _llama(config: Config) -> Facts:
    heads = config["num_attention_heads"]
    return {
        "vocab_size": config["vocab_size"],
        "rope.dimension_count": config.get("head_dim") or config["hidden_size"] // heads,
    }


def _flags(config: Config, key: str, name: str) -> list[bool]:
    return [entry == name for entry in config[key]]


def _routed(config: Config) -> Facts:
    """DeepSeek-like experts: all keys in one place."""
    return {
        "expert_count": config["n_routed_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config.get("n_shared_experts"),
        "leading_dense_block_count": config.get("first_k_dense_replace"),
    }


def _deepseek2(config: Config) -> Facts:
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    return {
        **_routed(config),
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


def _sigmoid(config: Config) -> Facts:
    return {**_deepseek2(config), "expert_gating_func": 2}


def _extended(config: Config, nextn: int) -> Facts:
    layers = _any(config, "num_hidden_layers", "n_layer")
    return {"block_count": layers + nextn, "nextn_predict_layers": nextn or None}


def _glm_dsa(config: Config) -> Facts:
    types = config.get("indexer_types")
    return {
        **_sigmoid(config),
        **_extended(config, config.get("num_nextn_predict_layers", 0)),
        "attention.indexer.head_count": config["index_n_heads"],
        "attention.indexer.key_length": config["index_head_dim"],
        "attention.indexer.top_k": config["index_topk"],
        "attention.indexer.types": types and [name == "full" for name in types],
    }


def _deepseek4(config: Config) -> Facts:
    return {
        **_routed(config),
        **_window(config),
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


def _hy_v3(config: Config) -> Facts:
    return {
        "expert_count": config["num_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config["num_shared_experts"],
        "leading_dense_block_count": config.get("first_k_dense_replace"),
    }


def _minimax_m3(config: Config) -> Facts:
    block = config["sparse_attention_config"]
    return {
        **_expert_width(config),
        "feed_forward_length": config["dense_intermediate_size"],
        "expert_shared_count": 1,
        "attention.indexer.head_count": block["sparse_num_index_heads"],
        "attention.indexer.key_length": block["sparse_index_dim"],
        "attention.indexer.top_k": block["sparse_topk_blocks"],
        "attention.indexer.block_size": block["sparse_block_size"],
        "leading_dense_block_count": config["moe_layer_freq"].index(1),
    }


def _glm4_moe(config: Config) -> Facts:
    return {
        **_routed(config),
        **_extended(config, config.get("num_nextn_predict_layers") or 0),
        "expert_gating_func": 2,
        "rope.dimension_count": 64,
    }


def _qwen_moe(config: Config) -> Facts:
    return {
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size"),
    }


def _delta(config: Config) -> Facts:
    values = config["linear_num_value_heads"]
    return {
        **_qwen_moe(config),
        **_extended(config, config.get("mtp_num_hidden_layers") or 0),
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": values,
        "ssm.inner_size": config["linear_value_head_dim"] * values,
        "full_attention_interval": config.get("full_attention_interval", 4),
    }


def _window(config: Config) -> Facts:
    return {"attention.sliding_window": config.get("sliding_window")}


def _olmo(config: Config) -> Facts:
    if not config.get("sliding_window"):
        return {}
    names = config.get("layer_types") or ["full_attention" if n % 4 == 3 else "sliding_attention" for n in range(config["num_hidden_layers"])]  # fmt: skip
    return _window(config) | {"attention.sliding_window_pattern": [name == "sliding_attention" for name in names]}


def _exaone4(config: Config) -> Facts:
    if not config.get("sliding_window"):
        return {}
    pattern, layers = config.get("sliding_window_pattern", 4), config["num_hidden_layers"]
    if isinstance(pattern, str):
        flags = [pattern[n % len(pattern)] == "L" for n in range(layers)]
    else:
        flags = [(n + 1) % pattern != 0 for n in range(layers)]
    if config.get("layer_types"):
        flags = _flags(config, "layer_types", "sliding_attention")
    return _window(config) | {"attention.sliding_window_pattern": flags}


def _gemma3n(config: Config) -> Facts:
    names = config.get("layer_types") or ["full_attention" if n % 5 == 4 else "sliding_attention" for n in range(config["num_hidden_layers"])]  # fmt: skip
    widths = config["intermediate_size"]
    return _window(config) | {
        "feed_forward_length": widths if isinstance(widths, list) else widths,
        "altup.num_inputs": config["altup_num_inputs"],
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "attention.shared_kv_layers": config["num_kv_shared_layers"],
        "attention.sliding_window_pattern": [name == "sliding_attention" for name in names],
    }


def _gemma4(config: Config) -> Facts:
    shared, layers, width = config.get("num_kv_shared_layers", 0), config["num_hidden_layers"], config["intermediate_size"]  # fmt: skip
    slides = _flags(config, "layer_types", "sliding_attention")
    kv_full, kv = config.get("num_global_key_value_heads"), config["num_key_value_heads"]
    return _window(config) | {
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


def _mamba(config: Config) -> Facts:
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


def _mamba2(config: Config) -> Facts:
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


def _hybrid(config: Config) -> Facts:
    """Granite 4 and Bamba: Mamba-2 in all layers but those listed."""
    heads, layers = config["mamba_n_heads"], config["num_hidden_layers"]
    names = config.get("layer_types")
    attends = {n for n, name in enumerate(names or ()) if name == "attention"} or set(config.get("attn_layer_indices") or ())  # fmt: skip
    if names and "mamba" not in names:
        return _granite(config)
    kv = config["num_key_value_heads"]
    return {
        **_granite(config),
        "vocab_size": config["vocab_size"],
        "ssm.conv_kernel": config["mamba_d_conv"],
        "ssm.state_size": config["mamba_d_state"],
        "ssm.group_count": config["mamba_n_groups"],
        "ssm.inner_size": config["mamba_expand"] * config["hidden_size"],
        "ssm.time_step_rank": heads,
        "attention.head_count_kv": [kv if n in attends else 0 for n in range(layers)],
        "context_length": config["max_position_embeddings"] if config["model_type"] == "bamba" else 2**20,
    }


def _granite(config: Config) -> Facts:
    own = {"expert_shared_feed_forward_length": config.get("shared_intermediate_size") or None}
    return {**_llama(config), "attention.key_length": None, "attention.value_length": None, **own}


def _falcon_h1(config: Config) -> Facts:
    inner = config["mamba_d_ssm"]
    return {
        "vocab_size": config["vocab_size"],
        "ssm.conv_kernel": config["mamba_d_conv"],
        "ssm.state_size": config["mamba_d_state"],
        "ssm.inner_size": inner,
        "ssm.time_step_rank": inner // config["mamba_d_head"],
        "ssm.group_count": config["mamba_n_groups"],
    }


def _nemotron_h(config: Config) -> Facts:
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
    head_dim = _any(config, "head_dim", "attention_head_dim")
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


def _jamba(config: Config) -> Facts:
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


def _lfm2(config: Config) -> Facts:
    kv, names = config["num_key_value_heads"], config.get("layer_types")
    if not names:
        full = config["full_attn_idxs"]
        names = ["full_attention" if n in full else "conv" for n in range(config["num_hidden_layers"])]
    width = _any(config, "block_ff_dim", "intermediate_size")
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


def _kimi_linear(config: Config) -> Facts:
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


def _mimo(config: Config) -> Facts:
    layers = config["num_hidden_layers"]
    own = config.get("hybrid_layer_pattern") or [int(n % 6 != 5 and n != 0) for n in range(layers)]
    slides = [*own, 1, 1, 1]
    heads = config["num_key_value_heads"]
    kv = {0: heads, 1: config.get("swa_num_key_value_heads", 2 * heads)}
    return {
        **_extended(config, 3),
        "attention.head_count_kv": [kv[flag] for flag in slides],
        "attention.sliding_window": _any(config, "sliding_window", "sliding_window_size"),
        "attention.sliding_window_pattern": slides,
        "attention.value_length": config["v_head_dim"],
        "expert_count": config["n_routed_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
    }


def _step(config: Config) -> Facts:
    other, layers = config.get("attention_other_setting") or {}, config["num_hidden_layers"]
    nextn = config.get("num_nextn_predict_layers", 0)
    names = (list(config["layer_types"]) + ["full_attention"] * nextn)[: layers + nextn]
    slides = [name == "sliding_attention" for name in names]
    heads, groups = config["num_attention_heads"], config["num_attention_groups"]
    return {
        **_extended(config, nextn),
        "attention.head_count": [other.get("num_attention_heads", heads) if flag else heads for flag in slides],
        "attention.head_count_kv": [other.get("num_attention_groups", groups) if flag else groups for flag in slides],
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": slides,
        "expert_count": config["moe_num_experts"],
        "expert_used_count": config["moe_top_k"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": config["share_expert_dim"],
        "leading_dense_block_count": min(map(int, config["moe_layers_enum"].split(","))),
    }


def _deci(config: Config) -> Facts:
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


def _chatglm(config: Config) -> Facts:
    return {
        "attention.head_count_kv": _any(config, "multi_query_group_num", "num_key_value_heads"),
        "feed_forward_length": _any(config, "ffn_hidden_size", "intermediate_size"),
        "attention.key_length": None,
        "attention.value_length": None,
    }


def _falcon(config: Config) -> Facts:
    heads = _any(config, "num_attention_heads", "n_head")
    hidden = config["hidden_size"]
    kv = config.get("num_kv_heads") or heads
    if not config.get("new_decoder_architecture"):
        kv = 1 if config.get("multi_query") else heads
    return {"attention.head_count_kv": kv, "feed_forward_length": 4 * hidden, "attention.key_length": None, "attention.value_length": None}  # fmt: skip


def _dbrx(config: Config) -> Facts:
    feed, attend = config["ffn_config"], config["attn_config"]
    return {
        "feed_forward_length": feed["ffn_hidden_size"],
        "attention.head_count_kv": attend["kv_n_heads"],
        "expert_count": feed["moe_num_experts"],
        "expert_used_count": feed["moe_top_k"],
    }


def _mpt(config: Config) -> Facts:
    kv = (config.get("attn_config") or {}).get("kv_n_heads")
    return {"feed_forward_length": 4 * config["d_model"], "attention.head_count_kv": kv}


def _four(config: Config) -> Facts:
    """GPT-2 and its kin: no KV heads, a width of four times the hidden size unless stated."""
    hidden = _any(config, "n_embd", "hidden_size", "n_embed")
    return {"feed_forward_length": _any(config, "n_inner", "intermediate_size") or 4 * hidden}


def _bigcode(config: Config) -> Facts:
    return {**_four(config), "attention.head_count_kv": 1 if config.get("multi_query") else config["n_head"]}


def _minicpm3(config: Config) -> Facts:
    rope = config["qk_rope_head_dim"]
    return {
        "attention.q_lora_rank": config.get("q_lora_rank"),
        "attention.kv_lora_rank": config["kv_lora_rank"],
        "attention.key_length": config["qk_nope_head_dim"] + rope,
        "attention.value_length": None,
        "rope.dimension_count": rope,
    }


def _llama4(config: Config) -> Facts:
    return {
        **_llama(config),
        "feed_forward_length": config["intermediate_size_mlp"],
        "interleave_moe_layer_step": config["interleave_moe_layer_step"],
        "expert_feed_forward_length": config["intermediate_size"],
    }


def _ernie_moe(config: Config) -> Facts:
    return {
        "expert_count": config["moe_num_experts"],
        "expert_used_count": config["moe_k"],
        "interleave_moe_layer_step": config["moe_layer_interval"],
        "leading_dense_block_count": config["moe_layer_start_index"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config["moe_num_shared_experts"],
    }


def _afmoe(config: Config) -> Facts:
    return _window(config) | {
        "expert_shared_count": config.get("num_shared_experts"),
        "expert_feed_forward_length": config.get("moe_intermediate_size"),
        "leading_dense_block_count": config.get("num_dense_layers"),
    }


def _expert_width(config: Config) -> Facts:
    return {"expert_feed_forward_length": config["intermediate_size"]}


def _no_head_dim(_: Config) -> Facts:
    return {"attention.key_length": None, "attention.value_length": None}


def _phi3(config: Config) -> Facts:
    return {**_no_head_dim(config), "attention.sliding_window": config.get("sliding_window") or 0}


def _t5(config: Config) -> Facts:
    return {
        "block_count": config["num_layers"],
        "decoder_block_count": config.get("num_decoder_layers") or config["num_layers"],
        "feed_forward_length": config["d_ff"],
        "attention.head_count": config["num_heads"],
        "attention.key_length": config["d_kv"],
        "attention.value_length": config["d_kv"],
        "attention.relative_buckets_count": config["relative_attention_num_buckets"],
    }


OWN: Final[dict[str, Callable[[Config], Facts]]] = {
    "afmoe": _afmoe,
    "bamba": _hybrid,
    "bloom": _four,
    "chatglm": _chatglm,
    "cohere2": _window,
    "dbrx": _dbrx,
    "deepseek": _routed,
    "deepseek_v2": _deepseek2,
    "deepseek_v3": _sigmoid,
    "deepseek_v32": _glm_dsa,
    "deepseek_v4": _deepseek4,
    "dots1": _routed,
    "ernie4_5_moe": _ernie_moe,
    "exaone4": _exaone4,
    "exaone4_5_text": _exaone4,
    "falcon": _falcon,
    "falcon_h1": _falcon_h1,
    "falcon_mamba": _mamba,
    "gemma2": _window,
    "gemma3_text": _window,
    "gemma3n_text": _gemma3n,
    "gemma4_text": _gemma4,
    "gemma4_unified_text": _gemma4,
    "glm4_moe": _glm4_moe,
    "glm4_moe_lite": _sigmoid,
    "glm4v_moe_text": _glm4_moe,
    "glm_moe_dsa": _glm_dsa,
    "gpt2": _four,
    "gpt_bigcode": _bigcode,
    "gpt_oss": lambda config: {**_window(config), **_expert_width(config)},
    "gptj": _four,
    "granite": _granite,
    "granitemoe": _granite,
    "granitemoeshared": _granite,
    "granitemoehybrid": _hybrid,
    "hy_v3": _hy_v3,
    "jamba": _jamba,
    "kimi_k2": _sigmoid,
    "kimi_linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "llama": _llama,
    "llama4_text": _llama4,
    "mamba": _mamba,
    "mamba2": _mamba2,
    "mimo_v2": _mimo,
    "mimo_v2_flash": _mimo,
    "minicpm3": _minicpm3,
    "minimax_m2": _expert_width,
    "minimax_m3_vl_text": _minimax_m3,
    "ministral3": _llama,
    "mistral": _llama,
    "mixtral": _llama,
    "mpt": _mpt,
    "nemotron-nas": _deci,
    "nemotron_h": _nemotron_h,
    "olmo3": _olmo,
    "phi": _no_head_dim,
    "phi3": _phi3,
    "phimoe": _phi3,
    "qwen2_moe": _qwen_moe,
    "qwen3_5_moe_text": _delta,
    "qwen3_5_text": _delta,
    "qwen3_moe": _qwen_moe,
    "qwen3_next": _delta,
    "qwen3_vl_moe_text": _qwen_moe,
    "step3p5": _step,
    "t5": _t5,
}


def tensors_of(raw: Config, spec: ModelSpec, metadata: Config) -> tuple[Tensor, ...]:
    """Return the tensors of a model that metadata does not speak of: by their presence, and a width or two."""
    config = read_config(raw).raw
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (spec.vocab, spec.hidden), "output_norm.weight": (spec.hidden,)}
    if not spec.tied:
        shapes["output.weight"] = (spec.vocab, spec.hidden)
    if spec.head_bias_parameters:
        shapes["output.bias"] = (spec.vocab,)
    if str(config.get("feed_forward_proj", "")).startswith("gated"):
        shapes["dec.blk.0.ffn_gate.weight"] = (8, spec.hidden)
    if config.get("hidden_size_per_layer_input"):
        shapes["per_layer_token_embd.weight"] = (config["vocab_size_per_layer_input"], 1)
    for number, layer in enumerate(spec.layers):
        parts = [part for mixer in layer.mixers for part in _mixer_parts(mixer, config)]
        parts += [part for feed in layer.feed_forwards for part in _feed_parts(feed)]
        if raw["model_type"] != "falcon" and not config.get("use_parallel_residual", False):
            parts.append(("ffn_norm.weight", (spec.hidden,)))
        if config.get("num_ln_in_parallel_attn", 2) == 2 and config.get("new_decoder_architecture"):
            parts.append(("attn_norm_2.weight", (spec.hidden,)))
        if "laurel_rank" in config:
            parts.append(("laurel_l.weight", (config["laurel_rank"], spec.hidden)))
        shapes |= {f"blk.{number}.{name}": shape for name, shape in parts}
    for number in range(len(spec.layers), metadata.get(f"{metadata['general.architecture']}.block_count", 0)):
        shapes[f"blk.{number}.nextn.eh_proj.weight"] = (spec.hidden, 2 * spec.hidden)
    return tuple(Tensor(name, "F16", shape) for name, shape in shapes.items())


def _mixer_parts(mixer: Any, config: Config) -> list[tuple[str, tuple[int, ...]]]:
    """What tells the traits of a layer's attention or recurrence."""
    if isinstance(mixer, GroupedAttention):
        told = {
            "attn_q.bias": mixer.qkv_bias,
            "attn_output.bias": mixer.output_bias,
            "attn_q_norm.weight": mixer.qk_norm_parameters,
            "attn_v.weight": mixer.value_projection and mixer.stores,
            "attn_sinks.weight": mixer.extra_parameters and config["model_type"].startswith("mimo"),
        }
        told["indexer.attn_k.weight"] = mixer.index
        return [(name, (8,)) for name, present in told.items() if present]
    if isinstance(mixer, Mamba1 | Mamba2):
        told = {"ssm_in.bias": mixer.bias, "ssm_conv1d.bias": mixer.conv_bias, "ssm_out.bias": getattr(mixer, "output_bias", mixer.bias)}  # fmt: skip
        told["ssm_norm.weight"] = getattr(mixer, "gated_norm", False)
        return [(name, (8,)) for name, present in told.items() if present]
    if getattr(mixer, "index", None):
        return [("indexer.attn_k.weight", (8, 8))]
    return []


def _feed_parts(feed: Any) -> list[tuple[str, tuple[int, ...]]]:
    """What tells the traits of a feed-forward."""
    if isinstance(feed, MoeFeedForward):
        bias = [("ffn_up_shexp.bias", (8,))] if feed.shared and feed.shared.bias else []
        return [("ffn_gate_inp.weight", (feed.experts, feed.expert.hidden)), *bias]
    if isinstance(feed, DenseFeedForward):
        bias = [("ffn_up.bias", (8,))] if feed.bias else []
        return [("ffn_down.weight", (feed.hidden, feed.intermediate)), *bias]
    return []
