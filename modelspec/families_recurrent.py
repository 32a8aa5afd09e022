"""Model classes with recurrent, convolution or linear-attention layers, alone or beside attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.modelspec.families_plain import PLAIN_FAMILIES
from roofcast.modelspec.family import Family

_BIAS: Final = "attention_bias"
_DEEPSEEK_V3: Final = PLAIN_FAMILIES["deepseek_v3"]
_BAMBA_SIZES: Final = {
    "mamba_n_heads": 128,
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
_MAMBA1_SIZES: Final = {"state_size": 16, "conv_kernel": 4, "expand": 2}
_DELTA_SIZES: Final = {
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}
_QWEN_DELTA: Final = Family(
    has=("gated_delta",),
    qkv_bias=_BIAS,
    output_bias=_BIAS,
    qk_norm="head",
    gate="element",
    constants={"linear_every": 4},
    defaults=_DELTA_SIZES,
    needs=("kv_heads",),
)
_QWEN_DELTA_MOE: Final = replace(
    _QWEN_DELTA,
    has=("gated_delta", "moe"),
    shared_gate=True,
    needs=("kv_heads", "experts", "expert_width", "shared_width"),
)
_LIGHTNING: Final = Family(
    has=("lightning", "moe"), needs=("experts", "kv_heads"), constants={"linear_every": 2, "full_at": 0}
)
_ZAMBA: Final = Family(has=("mamba1", "shared_block"), layer_norms=1, tied=True)
_KDA: Final = ("kv_lora_rank", "experts", "expert_width", "shared_experts")

_RWKV: Final = Family(
    has=("rwkv",),
    norm="layer",
    gated=False,
    embedding_norm=True,
    extras="rwkv",
    ffn_ratio=4,
    names={
        "attention_hidden_size": ("attention_hidden_size", "hidden_size"),
        "context": ("context_length", "max_position_embeddings"),
    },
    constants={"rwkv_generation": 4, "cycle": ("linear",)},
)
RECURRENT_FAMILIES: Final[dict[str, Family]] = {
    "bailing_hybrid": replace(
        _DEEPSEEK_V3,
        has=("moe", "latent", "kimi_delta"),
        gate="head",
        constants={
            "linear_from_attention": True,
            "full_rank_gate": True,
            "full_rank_decay": True,
            "dense_first": 2,
            "ties": False,
        },
        defaults={"short_conv_kernel_size": 4, "q_lora_rank": None, "layer_group_size": 6, "head_dim": 128},
        needs=_KDA,
    ),
    "bamba": Family(
        has=("mamba2",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        defaults=_BAMBA_SIZES,
        needs=("kv_heads",),
    ),
    "falcon_h1": Family(
        has=("mamba2",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        constants={"ssm_output_bias": "projectors_bias"},
        defaults={**_BAMBA_SIZES, "mamba_d_ssm": 1024, "mamba_rms_norm": False},
        needs=("kv_heads",),
    ),
    "falcon_mamba": Family(has=("mamba1",), tied=True, defaults=_MAMBA1_SIZES),
    "granitemoehybrid": Family(
        has=("mamba2", "moe"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        ffn_shape="shared_width",
        defaults=_BAMBA_SIZES,
        needs=("shared_width", "experts"),
    ),
    "jamba": Family(
        has=("mamba1", "moe"),
        constants={"inner_norms": True, "dense_at_one": True},
        defaults={
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "attn_layer_period": 8,
            "attn_layer_offset": 4,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
        },
        needs=("experts", "kv_heads"),
    ),
    "kimi_linear": replace(
        _DEEPSEEK_V3,
        reads=(
            "attn_res_block_size",
            "latent_moe_use_norm",
            "mla_use_output_gate",
            "routed_expert_hidden_size",
        ),
        has=("moe", "latent", "kimi_delta"),
        gate="element",
        gate_key="mla_use_output_gate",
        constants={"ties": False, "dense_first": 1, "plan_needed": True},
        defaults={"q_lora_rank": None},
        names={"linear_layers": ("linear_attn_config", "layer_types")},
        needs=(*_KDA, "linear_layers"),
    ),
    "lfm2": Family(
        has=("short_conv",),
        qk_norm="head",
        tied=True,
        ffn_shape="adjusted",
        defaults={"conv_L_cache": 3, "block_ffn_dim_multiplier": 1.0},
        needs=("kv_heads",),
        constants={"tie_key": "tie_embedding"},
    ),
    "lfm2_moe": Family(
        has=("short_conv", "moe"),
        qk_norm="head",
        tied=True,
        constants={"dense_first": 2, "tie_key": "tie_embedding", "plan_needed": True},
        defaults={"conv_L_cache": 3},
        needs=("experts", "expert_width", "kv_heads"),
    ),
    "lfm3": Family(
        has=("short_conv", "window"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="head",
        gate="head",
        gate_key="use_attention_gate",
        extras="sandwich",
        tied=True,
        defaults={"conv_L_cache": 7, "head_dim": 128, "sliding_window": 256, "use_attention_gate": True},
        needs=("kv_heads", "layer_types"),
    ),
    "mamba": Family(has=("mamba1",), tied=True, defaults=_MAMBA1_SIZES),
    "mamba2": Family(has=("mamba2",), defaults={"state_size": 128, "conv_kernel": 4, "expand": 2, "n_groups": 8}),
    "minimax": _LIGHTNING,
    "minimax_m1": _LIGHTNING,
    "minimax_text_01": _LIGHTNING,
    "nemotron_h": Family(
        has=("mamba2", "moe"),
        separate=True,
        mlp_bias="mlp_bias",
        gated=False,
        constants={
            "ssm_bias": "use_bias",
            "ssm_expand_ignored": True,
            "plan_needed": True,
            "ties": False,
            "expert_needs": ("expert_width", "shared_width"),
        },
        defaults={
            "ssm_state_size": 128,
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "conv_kernel": 4,
            "head_dim": 128,
        },
        names={"plan": ("hybrid_override_pattern", "layers_block_type", "layer_types")},
        needs=("plan", "kv_heads"),
    ),
    "olmo_hybrid": Family(
        has=("gated_delta",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="full",
        constants={"linear_every": 4, "linear_from_attention": True, "delta_inputs": 6},
        defaults={"linear_conv_kernel_dim": 4},
        names={
            "linear_num_key_heads": ("linear_num_key_heads", "num_attention_heads"),
            "linear_num_value_heads": ("linear_num_value_heads", "num_attention_heads"),
        },
    ),
    "qwen3_5_moe_text": _QWEN_DELTA_MOE,
    "qwen3_5_text": _QWEN_DELTA,
    "qwen3_next": replace(_QWEN_DELTA_MOE, constants={**_QWEN_DELTA_MOE.constants, "delta_inputs": 2}),
    "recurrent_gemma": Family(
        has=("rg_lru", "window"),
        reads=("_block_types",),
        qkv_bias=_BIAS,
        output_bias=True,
        mlp_bias=True,
        tied=True,
        ffn_divisor=2,
        defaults={
            "conv1d_width": 4,
            "attention_window_size": 2048,
            "_block_types": ["recurrent", "recurrent", "attention"],
        },
        names={"window": ("sliding_window", "attention_window_size")},
    ),
    "rwkv": _RWKV,
    "rwkv5": replace(
        _RWKV, ffn_ratio=1, ffn_shape="seven_halves", constants={"rwkv_generation": 5, "cycle": ("linear",)}
    ),
    "rwkv6": replace(
        _RWKV, ffn_ratio=1, ffn_shape="seven_halves", constants={"rwkv_generation": 6, "cycle": ("linear",)}
    ),
    "xlstm": Family(
        has=("mlstm",),
        mlp_bias="use_bias",
        extras="norm_biases",
        ffn_shape="factored",
        ffn_ratio=1,  # its width is a factor's, not this
        constants={"cycle": ("linear",), "ties": False},
        defaults={"num_heads": 8, "qk_dim_factor": 0.5, "v_dim_factor": 1.0},
    ),
    "zamba": replace(
        _ZAMBA,
        defaults={
            "mamba_d_state": 16,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "attn_layer_period": 6,
            "attn_layer_offset": 4,
        },
        needs=("kv_heads", "intermediate"),
    ),
    "zamba2": replace(
        _ZAMBA,
        has=("mamba2", "shared_block", "adapters"),
        mlp_bias="add_bias_linear",
        constants={"ssm_bias": "add_bias_linear", "ssm_conv_bias": True},
        defaults={
            "mamba_d_state": 64,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "mamba_ngroups": 1,
            "max_position_embeddings": 4096,
        },
        needs=("layers_block_type",),
    ),
    "zaya": Family(
        has=("cca", "moe"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        head_bias="lm_head_bias",
        router="mlp",
        extras="zaya",
        tied=True,
        defaults={"cca_time0": 2, "cca_time1": 2},
    ),
}
