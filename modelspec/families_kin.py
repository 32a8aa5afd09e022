"""Model classes that are a trait or two away from another's: text models of multimodal files, and later classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.modelspec.families_mixed import MIXED_FAMILIES
from roofcast.modelspec.families_plain import PLAIN_FAMILIES
from roofcast.modelspec.family import Family

_BIAS: Final = "attention_bias"
_DEEPSEEK_V3: Final = PLAIN_FAMILIES["deepseek_v3"]
_NO_LIST: Final = ("kv_lora_rank", "experts", "expert_width", "shared_experts")  # its class lists dense layers itself
_QWEN2_TEXT: Final = replace(PLAIN_FAMILIES["qwen2"], defaults={"use_sliding_window": False, "max_window_layers": 80})
_BIASED: Final = Family(qkv_bias=_BIAS, output_bias=_BIAS)

KIN_FAMILIES: Final[dict[str, Family]] = {
    "apertus": replace(_BIASED, gated=False, qk_norm="head", extras="two_alphas"),
    "bitnet": replace(_BIASED, extras="inner_norms", needs=("kv_heads",)),
    "cohere2_moe": replace(
        MIXED_FAMILIES["cohere2"],
        has=("window", "moe"),
        constants={"full_every": 4, "dense_prefix": True},
        defaults={"head_dim": 128, "sliding_window": 4096},
        needs=("experts",),
    ),
    "dbrx": Family(has=("nested_experts", "nested_groups", "moe"), norm="plain", needs=("ffn_config", "attn_config")),
    "diffllama": replace(_BIASED, extras="lambdas"),
    "ernie4_5_vl_moe_text": replace(
        PLAIN_FAMILIES["ernie4_5_moe"],
        head_bias=False,
        constants={"dense_first": 1, "modalities": True},
        needs=("experts", "expert_width", "shared_experts", "kv_heads"),
    ),
    "flex_olmo": PLAIN_FAMILIES["olmoe"],
    "glm4v_moe_text": replace(
        PLAIN_FAMILIES["glm4_moe"],
        qk_norm="",
        qk_norm_key="",
        constants={"dense_first": 1},
        defaults={_BIAS: True},
        needs=("experts", "expert_width", "shared_experts", "kv_heads"),
    ),
    "glm4v_text": replace(PLAIN_FAMILIES["glm4"], qkv_bias=True, defaults={}),
    "granite_swa": replace(
        _BIASED,
        has=("window",),
        mlp_bias="mlp_bias",
        sinks=True,
        sliding_sinks=True,
        tied=True,
        constants={"full_every": 4, "full_at": 0},
        defaults={"sliding_window": 128},
        needs=("kv_heads",),
    ),
    "granitemoe_swa": replace(
        _BIASED,
        has=("window", "moe"),
        sinks=True,
        sliding_sinks=True,
        constants={"full_every": 4, "full_at": 0},
        defaults={"sliding_window": 128},
        needs=("experts",),
    ),
    "helium": replace(_BIASED, mlp_bias="mlp_bias", output_bias=False, needs=("kv_heads", "head_dim")),
    "mellum": replace(
        _BIASED,
        has=("window", "moe"),
        qk_norm="head",
        constants={"full_every": 1},
        defaults={"head_dim": 128, "sliding_window": 1024},
        needs=("experts", "expert_width", "kv_heads"),
    ),
    "minicpm3": replace(
        _DEEPSEEK_V3,
        has=("latent",),
        mlp_bias="mlp_bias",
        tied=True,
        constants={"values_share_hidden": True},
        defaults={"q_lora_rank": 768},
        needs=("kv_lora_rank",),
    ),
    "minimax_m3": MIXED_FAMILIES["minimax_m3_vl_text"],
    "ministral": Family(has=("window",), needs=("kv_heads",), defaults={"sliding_window": 4096}),
    "mistral4": replace(_DEEPSEEK_V3, defaults={"q_lora_rank": 1024}, needs=_NO_LIST),
    "molmo": Family(qkv_bias="qkv_bias", ffn_divisor=2, own_head_dim=False, needs=("kv_heads",)),
    "nanochat": Family(norm="none", qkv_bias=_BIAS, output_bias=_BIAS, gated=False),
    "nemotron-nas": Family(has=("blocks",), qkv_bias=_BIAS, output_bias=_BIAS, needs=("block_configs",)),
    "qwen2_5_omni_text": replace(
        _QWEN2_TEXT, tied=True, defaults={"use_sliding_window": False, "max_window_layers": 28}
    ),
    "qwen2_5_vl_text": _QWEN2_TEXT,
    "qwen2_vl_text": _QWEN2_TEXT,
    "qwen3_vl_moe_text": replace(PLAIN_FAMILIES["qwen3_moe"], tied=True),
    "qwen3_vl_text": PLAIN_FAMILIES["qwen3"],
    "sarvam_mla": replace(_DEEPSEEK_V3, constants={"dense_first": 1}, defaults={"q_lora_rank": None}, needs=_NO_LIST),
    "sarvam_moe": replace(
        PLAIN_FAMILIES["glm4_moe"],
        qkv_bias="attention_bias|use_qkv_bias",
        constants={"dense_first": 1},
        defaults={"use_qk_norm": True, "head_dim": 64},
        needs=("experts", "expert_width", "shared_experts", "kv_heads"),
    ),
    "solar_open": replace(
        PLAIN_FAMILIES["glm4_moe"],
        qk_norm="",
        qk_norm_key="",
        defaults={"head_dim": 128},
        needs=("experts", "expert_width", "shared_experts", "kv_heads"),
    ),
    "step3p5": Family(
        has=("window", "moe", "own_sliding", "per_layer"),
        reads=("num_experts", "n_shared_experts"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="head",
        gate="head",
        constants={"dense_first": 3, "full_every": 1},
        defaults={"head_dim": 128},
        needs=("experts", "expert_width", "kv_heads", "shared_width"),
    ),
    "vaultgemma": replace(MIXED_FAMILIES["gemma2"], layer_norms=2),
}
