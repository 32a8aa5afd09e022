"""Model classes whose layers are all alike: MHA, GQA, MQA or MLA, dense or experts, with or without one window.

A config names its class in `model_type`. Kinds of attention and feed-forward are read from the config's keys
alone; this table only supplies what the class fixes in code. A trait given as a string names the config key
that decides it. Counts were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.modelspec.family import Family

_BIAS: Final = "attention_bias"
_NO_WINDOW: Final = {"use_sliding_window": False}
_LATE_WINDOW: Final = {**_NO_WINDOW, "max_window_layers": 28}
_LLAMA: Final = Family(qkv_bias=_BIAS, output_bias=_BIAS, mlp_bias="mlp_bias")
_PLAIN: Final = Family()
_GPT2: Final = Family(
    norm="layer", qkv_bias=True, output_bias=True, mlp_bias=True, gated=False, positions=0, tied=True, ffn_ratio=4
)
_GPTJ: Final = Family(norm="layer", layer_norms=1, mlp_bias=True, head_bias=True, gated=False, ffn_ratio=4)
_PHI: Final = Family(
    norm="layer",
    layer_norms=1,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    head_bias=True,
    gated=False,
    qk_norm="head_bias",
    qk_norm_key="qk_layernorm",
    ffn_ratio=4,
)
_ROUTED: Final = ("experts", "expert_width")
_SHARED: Final = (*_ROUTED, "shared_experts")
_DEEPSEEK: Final = Family(
    qkv_bias=_BIAS, output_bias=_BIAS, needs=("kv_lora_rank", *_SHARED), defaults={"q_lora_rank": 1536}
)
_DEEPSEEK_V3: Final = replace(_DEEPSEEK, needs=("kv_lora_rank", *_SHARED, "sparse_layers"))

PLAIN_FAMILIES: Final[dict[str, Family]] = {
    "arcee": Family(qkv_bias=_BIAS, output_bias=_BIAS, mlp_bias="mlp_bias", gated=False),
    "baichuan": _PLAIN,
    "biogpt": Family(
        own_head_dim=False,
        norm="layer",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        positions=2,
        tied=True,
    ),
    "bloom": Family(
        own_head_dim=False,
        ffn_ratio=4,
        norm="layer",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        embedding_norm=True,
        tied=True,
    ),
    "chatglm": Family(
        has=("multi_query_groups",), qkv_bias="add_qkv_bias", output_bias="add_bias_linear", mlp_bias="add_bias_linear"
    ),
    "codegen": replace(_GPTJ, own_head_dim=False),
    "cohere": Family(
        norm="plain",
        layer_norms=1,
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="full",
        qk_norm_key="use_qk_norm",
        tied=True,
    ),
    "deepseek": replace(_LLAMA, has=("moe",)),
    "deepseek_v2": replace(_DEEPSEEK, mlp_bias="mlp_bias", has=("latent", "moe")),
    "deepseek_v3": replace(_DEEPSEEK_V3, has=("latent", "moe")),
    "dots1": Family(has=("moe",), needs=(*_ROUTED, "kv_heads"), qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="head"),
    "ernie4_5": Family(
        needs=("kv_heads",),
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        tied=True,
        defaults={"head_dim": 128},
    ),
    "ernie4_5_moe": Family(
        has=("moe",),
        needs=(*_SHARED, "kv_heads", "moe_layer_start_index"),
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        head_bias="use_bias",
        router_bias=True,
        tied=True,
    ),
    "exaone": _LLAMA,
    "falcon": Family(
        has=("multi_query",),
        own_head_dim=False,
        single_norm_key="parallel_attn",
        ffn_ratio=4,
        defaults={"multi_query": True, "parallel_attn": True, "max_position_embeddings": 2048},
        norm="layer",
        qkv_bias="bias",
        output_bias="bias",
        mlp_bias="bias",
        gated=False,
        tied=True,
    ),
    "gemma": Family(needs=("kv_heads",), qkv_bias=_BIAS, output_bias=_BIAS, tied=True, defaults={"head_dim": 256}),
    "glm": Family(needs=("kv_heads",), qkv_bias=_BIAS, defaults={_BIAS: True, "head_dim": 128}),
    "glm4": Family(needs=("kv_heads",), layer_norms=4, qkv_bias=_BIAS, defaults={_BIAS: True, "head_dim": 128}),
    "glm4_moe": Family(
        has=("moe",),
        needs=(*_SHARED, "kv_heads", "sparse_layers"),
        qkv_bias=_BIAS,
        qk_norm="head",
        qk_norm_key="use_qk_norm",
    ),
    "glm4_moe_lite": replace(
        _DEEPSEEK,
        has=("latent", "moe"),
        constants={"dense_first": 1},
        defaults={"q_lora_rank": 768},
    ),
    "gpt2": replace(_GPT2, own_head_dim=False),
    "gpt_bigcode": replace(_GPT2, has=("multi_query",), own_head_dim=False, defaults={"multi_query": True}),
    "gpt_neox": Family(
        own_head_dim=False,
        norm="layer",
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias=True,
        gated=False,
        defaults={_BIAS: True},
    ),
    "gptj": replace(_GPTJ, own_head_dim=False),
    "granite": _LLAMA,
    "granitemoe": Family(has=("moe",), needs=("experts",), qkv_bias=_BIAS, output_bias=_BIAS),
    "granitemoeshared": Family(has=("moe",), needs=("experts",), qkv_bias=_BIAS, output_bias=_BIAS),
    "hunyuan_v1_dense": Family(qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="head"),
    "hunyuan_v1_moe": Family(
        has=("moe",), needs=("experts",), qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="head", always_shared=True
    ),
    "hy_v3": Family(
        has=("moe",),
        needs=(*_SHARED, "kv_heads"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        qk_norm="head",
        constants={"dense_first": 1},
        defaults={"head_dim": 128},
    ),
    "internlm": Family(qkv_bias="bias", output_bias="bias", defaults={"bias": True}),
    "internlm2": Family(qkv_bias="bias", output_bias="bias"),
    "internlm3": Family(qkv_bias="qkv_bias|attention_bias", output_bias="bias|mlp_bias", mlp_bias="bias|mlp_bias"),
    "jais2": Family(
        norm="layer",
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        gated=False,
        defaults={_BIAS: True, "mlp_bias": True},
    ),
    "kimi_k2": replace(_DEEPSEEK_V3, has=("latent", "moe"), needs=(*_DEEPSEEK.needs, "dense_first")),
    "llama": _LLAMA,
    "minicpm": Family(has=("moe",), qkv_bias=_BIAS, output_bias=_BIAS, tied=True),
    "minimax_m2": Family(
        has=("moe",),
        needs=("experts", "kv_heads"),
        qk_norm="full",
        qk_norm_key="use_qk_norm",
        defaults={"use_qk_norm": True, "head_dim": 128},
    ),
    "ministral3": Family(has=("window",), needs=("kv_heads",), defaults={"head_dim": 128}),
    "mistral": Family(has=("window",), needs=("kv_heads",), defaults={"sliding_window": 4096}),
    "mixtral": Family(has=("moe", "window"), needs=("experts", "kv_heads")),
    "mpt": Family(own_head_dim=False, ffn_ratio=4, norm="plain", gated=False, tied=True),
    "nemotron": Family(norm="layer", qkv_bias=_BIAS, output_bias=_BIAS, mlp_bias="mlp_bias", gated=False),
    "olmo": Family(norm="none", qkv_bias=_BIAS, output_bias=_BIAS),
    "olmo2": Family(qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="full"),
    "olmoe": Family(has=("moe",), needs=("experts",), qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="full"),
    "opt": Family(
        own_head_dim=False,
        norm="layer",
        qkv_bias="enable_bias",
        output_bias="enable_bias",
        mlp_bias="enable_bias",
        gated=False,
        positions=2,
        tied=True,
        defaults={"enable_bias": True},
    ),
    "persimmon": Family(
        own_head_dim=False,
        norm="layer",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        qk_norm="head_bias",
        qk_norm_key="qk_layernorm",
        defaults={"qk_layernorm": True},
    ),
    "phi": replace(_PHI, ffn_ratio=None),
    "phi-msft": _PHI,
    "phi3": Family(has=("window",)),
    "phimoe": Family(
        has=("moe", "window"),
        needs=("experts", "kv_heads"),
        norm="layer",
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        head_bias="lm_head_bias",
    ),
    "qwen": Family(qkv_bias=True, ffn_divisor=2),
    "qwen2": Family(has=("window",), needs=("kv_heads",), qkv_bias=True, defaults=_LATE_WINDOW),
    "qwen2_moe": Family(
        has=("moe", "window"),
        needs=(*_ROUTED, "shared_width", "kv_heads"),
        qkv_bias="qkv_bias",
        shared_gate=True,
        defaults={**_LATE_WINDOW, "qkv_bias": True},
    ),
    "qwen3": Family(
        has=("window",),
        needs=("kv_heads",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="head",
        defaults={**_LATE_WINDOW, "head_dim": 128},
    ),
    "qwen3_moe": Family(
        has=("moe", "window"),
        needs=(*_ROUTED, "kv_heads"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="head",
        defaults=_NO_WINDOW,
    ),
    "seed_oss": Family(
        needs=("kv_heads",),
        qkv_bias=_BIAS,
        output_bias="attention_out_bias",
        mlp_bias="mlp_bias",
        defaults={_BIAS: True, "head_dim": 128},
    ),
    "smollm3": Family(
        has=("window",),
        needs=("kv_heads",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        tied=True,
        defaults=_NO_WINDOW,
    ),
    "stablelm": Family(
        own_head_dim=False,
        needs=("kv_heads",),
        single_norm_key="use_parallel_residual",
        norm="layer",
        qkv_bias="use_qkv_bias",
        qk_norm="full",
        qk_norm_key="qk_layernorm",
    ),
    "starcoder2": Family(
        has=("window",),
        needs=("kv_heads",),
        norm="layer",
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        gated=False,
        tied=True,
        defaults={"use_bias": True},
    ),
    "youtu": Family(
        has=("latent",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        tied=True,
        needs=("kv_lora_rank",),
        defaults={"q_lora_rank": 1536},
    ),
}
