"""Model classes whose layers differ: windows beside full layers, recurrent and convolution layers, sparse indexes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.modelspec.families_plain import PLAIN_FAMILIES
from roofcast.modelspec.family import Family

_BIAS: Final = "attention_bias"
_DEEPSEEK_V3: Final = PLAIN_FAMILIES["deepseek_v3"]
_GEMMA: Final = Family(
    has=("window",), layer_norms=4, qkv_bias=_BIAS, output_bias=_BIAS, tied=True, needs=("kv_heads",)
)
_DSA: Final = replace(_DEEPSEEK_V3, has=("moe", "latent", "indexer"))
_V4: Final = Family(
    has=("moe", "compressed", "indexer", "window"), extras="hyper_connections", needs=("experts", "expert_width")
)
_BAMBA_SIZES: Final = {
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
_MAMBA1_SIZES: Final = {"state_size": 16, "conv_kernel": 4, "expand": 2}
_MIMO: Final = Family(
    has=("window", "moe", "own_sliding"),
    qkv_bias=_BIAS,
    sinks="add_full_attention_sink_bias",
    sliding_sinks="add_swa_attention_sink_bias",
    ignores=("attention_chunk_size",),
)
_QWEN_DELTA: Final = Family(
    has=("gated_delta",),
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    qk_norm="head",
    gate="element",
    constants={"linear_every": 4},
    needs=("kv_heads",),
)
_QWEN_DELTA_MOE: Final = replace(_QWEN_DELTA, has=("gated_delta", "moe"), shared_gate=True)

MIXED_FAMILIES: Final[dict[str, Family]] = {
    "afmoe": Family(has=("window", "moe"), layer_norms=4, qk_norm="head", gate="element", constants={"full_every": 4}),
    "bailing_hybrid": replace(
        _DEEPSEEK_V3,
        has=("moe", "latent", "kimi_delta"),
        gate="head",
        constants={"linear_from_attention": True, "full_rank_gate": True, "full_rank_decay": True},
        defaults={"short_conv_kernel_size": 4, "q_lora_rank": None, "layer_group_size": 6},
        needs=("kv_lora_rank", "experts", "expert_width"),
    ),
    "bamba": Family(has=("mamba2",), qkv_bias=_BIAS, output_bias=_BIAS, mlp_bias="mlp_bias", defaults=_BAMBA_SIZES),
    "cohere2": Family(
        has=("window",),
        norm="plain",
        layer_norms=1,
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        tied=True,
        constants={"full_every": 4},
    ),
    "cwm": Family(has=("window",), mlp_bias="mlp_bias", constants={"full_every": 4, "full_at": 0}),
    "deepseek_ref": _V4,
    "deepseek_v32": _DSA,
    "deepseek_v4": _V4,
    "exaone4": Family(has=("window",), qk_norm="head", constants={"full_every": 4}),
    "exaone_moe": Family(has=("window", "moe"), qk_norm="head", constants={"full_every": 4}),
    "falcon_h1": Family(
        has=("mamba2",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        constants={"ssm_output_bias": "projectors_bias"},
        defaults={**_BAMBA_SIZES, "mamba_d_ssm": 1024, "mamba_rms_norm": False},
    ),
    "falcon_mamba": Family(has=("mamba1",), tied=True, defaults=_MAMBA1_SIZES),
    "gemma2": replace(_GEMMA, constants={"full_every": 2}, defaults={"sliding_window": 4096, "head_dim": 256}),
    "gemma3_text": replace(
        _GEMMA, qk_norm="head", constants={"full_every": 6}, defaults={"sliding_window": 4096, "head_dim": 256}
    ),
    "gemma3n_text": replace(
        _GEMMA,
        has=("window", "kv_shared", "per_layer_inputs"),
        qk_norm="head",
        extras="gemma3n",
        constants={"full_every": 5, "listed_widths": True},
        defaults={
            "sliding_window": 512,
            "head_dim": 256,
            "vocab_size_per_layer_input": 262144,
            "hidden_size_per_layer_input": 256,
            "altup_num_inputs": 4,
            "num_kv_shared_layers": 15,
            "laurel_rank": 64,
        },
    ),
    "gemma4_text": replace(
        _GEMMA,
        has=("window", "moe", "kv_shared", "per_layer_inputs", "own_full", "own_full_kv", "k_eq_v"),
        qk_norm="head",
        extras="gemma4",
        router="scaled",
        dense_beside=True,
        ffn_shape="double_where_shared",
        constants={"full_every": 6, "last_full": True},
        defaults={
            "sliding_window": 512,
            "head_dim": 256,
            "global_head_dim": 512,
            "vocab_size_per_layer_input": 262144,
            "hidden_size_per_layer_input": 256,
            "enable_moe_block": False,
        },
    ),
    "glm_moe_dsa": _DSA,
    "gpt_oss": Family(
        has=("window", "moe"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        sinks=True,
        sliding_sinks=True,
        router_bias=True,
        expert_bias=True,
        constants={"full_every": 2},
        defaults={_BIAS: True, "sliding_window": 128, "head_dim": 64},
    ),
    "granitemoehybrid": Family(has=("mamba2", "moe"), qkv_bias=_BIAS, output_bias=_BIAS, defaults=_BAMBA_SIZES),
    "jamba": Family(
        has=("mamba1", "moe"),
        constants={"inner_norms": True},
        defaults={"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2},
    ),
    "kimi_linear": replace(
        _DEEPSEEK_V3,
        has=("moe", "latent", "kimi_delta"),
        gate="element",
        gate_key="mla_use_output_gate",
        defaults={"q_lora_rank": None},
        needs=("kv_lora_rank", "experts", "expert_width"),
    ),
    "laguna": Family(
        has=("window", "moe", "heads_per_layer"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="head",
        gate="head",
        router_bias=True,
        constants={"dense_first": 1},
    ),
    "lfm2": Family(has=("short_conv",), qk_norm="head", tied=True, ffn_shape="adjusted"),
    "lfm2_moe": Family(has=("short_conv", "moe"), qk_norm="head", tied=True),
    "llama4_text": Family(
        has=("chunked", "moe"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        always_shared=True,
        defaults={"interleave_moe_layer_step": 1, "attention_chunk_size": 8192},
    ),
    "longcat_flash": replace(
        _DEEPSEEK_V3,
        has=("moe", "latent", "zero_experts"),
        layer_norms=4,
        constants={"twice": True},
        needs=("kv_lora_rank", "experts", "expert_width"),
    ),
    "mamba": Family(has=("mamba1",), tied=True, defaults=_MAMBA1_SIZES),
    "mamba2": Family(has=("mamba2",), defaults={"state_size": 128, "conv_kernel": 4, "expand": 2, "n_groups": 8}),
    "mimo_v2": _MIMO,
    # its class doubles the KV heads of sliding layers instead of reading swa_num_key_value_heads; published files agree
    "mimo_v2_flash": replace(
        _MIMO,
        has=("window", "moe"),
        sinks=False,
        sliding_sinks=True,
        constants={"window_key": "sliding_window_size", "sliding_kv_times": 2},
        ignores=(
            "attention_chunk_size",
            "swa_num_attention_heads",
            "swa_num_key_value_heads",
            "swa_head_dim",
            "swa_v_head_dim",
        ),
    ),
    "minimax_m3_vl_text": Family(
        has=("moe", "block_index", "indexer"),
        qk_norm="head",
        needs=("experts", "kv_heads"),
    ),
    "nemotron_h": Family(
        has=("mamba2", "moe"),
        separate=True,
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        gated=False,
        constants={"ssm_bias": "use_bias", "ssm_expand_ignored": True},
        defaults={"ssm_state_size": 128, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4},
    ),
    "olmo3": Family(
        has=("window",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="full",
        constants={"full_every": 4},
        defaults={"sliding_window": 4096},
    ),
    "qwen3_5_moe_text": _QWEN_DELTA_MOE,
    "qwen3_5_text": _QWEN_DELTA,
    "qwen3_next": _QWEN_DELTA_MOE,
    "qwen3_vl_moe_text": PLAIN_FAMILIES["qwen3_moe"],
    "qwen3_vl_text": PLAIN_FAMILIES["qwen3"],
    "sarvam_mla": _DEEPSEEK_V3,
    "sarvam_moe": PLAIN_FAMILIES["glm4_moe"],
    "zaya": Family(
        has=("cca", "moe"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        router="mlp",
        extras="zaya",
        tied=True,
        defaults={"cca_time0": 2, "cca_time1": 2},
    ),
}
