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
_GEMMA4_SIZES: Final = {"sliding_window": 512, "head_dim": 256, "global_head_dim": 512}
_DSA: Final = replace(
    _DEEPSEEK_V3,
    has=("moe", "latent", "indexer"),
    constants={"dense_first": 3},
    needs=(*_DEEPSEEK_V3.needs, "index_head_dim"),
)
_V4: Final = Family(
    has=("moe", "compressed", "indexer", "window"),
    mlp_bias="mlp_bias",
    extras="hyper_connections",
    constants={"shared_count": 1},
    needs=("experts", "expert_width", "shared_experts", "compression"),
)
_MIMO: Final = Family(
    has=("window", "moe", "own_sliding"),
    qkv_bias=_BIAS,
    sinks="add_full_attention_sink_bias",
    sliding_sinks="add_swa_attention_sink_bias",
    ignores=("attention_chunk_size",),
)

MIXED_FAMILIES: Final[dict[str, Family]] = {
    "afmoe": Family(
        has=("window", "moe"),
        layer_norms=4,
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="head",
        gate="separate",
        router_bias=True,
        constants={"full_every": 4, "dense_first": 1},
        defaults={"head_dim": 128, "sliding_window": 1024},
        needs=("experts", "expert_width", "shared_experts"),
    ),
    "cohere2": Family(
        has=("window",),
        norm="plain",
        layer_norms=1,
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        tied=True,
        constants={"full_every": 4},
        defaults={"sliding_window": 4096},
    ),
    "cwm": Family(
        has=("window",),
        mlp_bias="mlp_bias",
        constants={"full_every": 4, "full_at": 0},
        defaults={"sliding_window": 8192, "head_dim": 128},
        needs=("kv_heads",),
    ),
    "deepseek_ref": _V4,
    "deepseek_v32": _DSA,
    "deepseek_v4": _V4,
    "doge": Family(
        has=("window", "moe"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        qk_norm="head",
        extras="dynamic_mask",
        constants={"moe_switch": "is_moe", "routed": "neurons"},
        defaults={"is_moe": False},
    ),
    "exaone4": Family(
        has=("window",),
        qk_norm="head",
        constants={"full_every": 4},
        defaults={"sliding_window": 4096},
        needs=("kv_heads",),
    ),
    "exaone4_5_text": Family(has=("window",), qk_norm="head", constants={"full_every": 4}),
    "exaone_moe": Family(
        has=("window", "moe"),
        qk_norm="head",
        constants={"full_every": 4, "dense_first": 1},
        defaults={"sliding_window": 4096},
        needs=("experts", "expert_width", "shared_experts", "kv_heads"),
    ),
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
            **_GEMMA4_SIZES,
            "vocab_size_per_layer_input": 262144,
            "hidden_size_per_layer_input": 256,
            "enable_moe_block": False,
        },
    ),
    "gemma4_unified_text": replace(
        _GEMMA,
        has=("window", "kv_shared", "own_full", "own_full_kv", "k_eq_v"),
        qk_norm="head",
        ffn_shape="double_where_shared",
        constants={"full_every": 6, "last_full": True},
        defaults=_GEMMA4_SIZES,
    ),
    "glm_moe_dsa": replace(_DSA, has=(*_DSA.has, "shared_index"), defaults={"q_lora_rank": 2048}),
    "gpt_neo": Family(
        has=("local", "window"),
        norm="layer",
        output_bias=True,
        mlp_bias=True,
        gated=False,
        positions=0,
        tied=True,
        ffn_ratio=4,
        own_head_dim=False,
        constants={"masks": True},
        defaults={"window_size": 256, "attention_types": [[["global", "local"], 12]]},
        names={"query_heads": ("num_attention_heads", "num_heads"), "window": ("window_size",)},
    ),
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
        needs=("experts", "kv_heads"),
    ),
    "hyperclovax": replace(PLAIN_FAMILIES["granite"], extras="post_norms"),
    "jetmoe": Family(
        has=("moe", "routed_heads"),
        extras="jetmoe",
        tied=True,
        constants={"routed": "attention"},
        defaults={"head_dim": 128},
        reads=("ffn_hidden_size", "moe_num_experts", "moe_top_k"),
        names={"routed_heads": ("num_local_experts", "moe_num_experts")},
        needs=("experts", "kv_heads"),
    ),
    "laguna": Family(
        has=("window", "moe", "heads_per_layer"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="head",
        gate="head",
        router_bias=True,
        constants={"dense_first": 1, "full_every": 1, "gate_chosen_by": "gating"},
        defaults={"sliding_window": 512, "head_dim": 128},
        needs=("experts", "expert_width", "shared_width", "kv_heads"),
    ),
    "llama4_text": Family(
        has=("chunked", "moe"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        always_shared=True,
        defaults={
            "interleave_moe_layer_step": 1,
            "attention_chunk_size": 8192,
            "head_dim": 128,
            "intermediate_size_mlp": 16384,
        },
        needs=("experts", "kv_heads"),
    ),
    "longcat_flash": replace(
        _DEEPSEEK_V3,
        has=("moe", "latent", "zero_experts"),
        layer_norms=4,
        constants={"twice": True},
        defaults={"q_lora_rank": 1536, "zero_expert_num": 256},
        needs=("kv_lora_rank", "experts", "expert_width"),
    ),
    "mimo_v2": _MIMO,
    # its class doubles the KV heads of sliding layers instead of reading swa_num_key_value_heads; published files agree
    "mimo_v2_flash": replace(
        _MIMO,
        reads=("hybrid_layer_pattern", "moe_layer_freq", "sliding_window_size"),
        has=("window", "moe"),
        sinks=False,
        sliding_sinks=True,
        constants={
            "window_key": "sliding_window_size",
            "sliding_kv_times": 2,
            "full_every": 6,
            "first_full": True,
            "dense_first": 1,
        },
        defaults={"head_dim": 192, "v_head_dim": 128},
        needs=("experts", "expert_width", "kv_heads"),
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
        defaults={"head_dim": 128},
        needs=("experts", "kv_heads", "dense_width", "shared_width"),
    ),
    "olmo3": Family(
        has=("window",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="full",
        constants={"full_every": 4},
        defaults={"sliding_window": 4096},
    ),
    "phi4_multimodal": replace(PLAIN_FAMILIES["phi3"], needs=("kv_heads",)),
}
