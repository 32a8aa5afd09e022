"""What a model class does and its config.json does not say: biases, norms, defaults of absent keys.

A config names its class in `model_type`. Kinds of attention and feed-forward are read from the config's keys
alone; this table only supplies what the class fixes in code. A trait given as a string names the config key
that decides it. Counts were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Trait = bool | str


@dataclass(frozen=True, slots=True)
class Family:
    """Traits of one model class.

    Args:
        norm: `rms` (h weights), `layer` (h weights and h biases), `plain` (h weights of a LayerNorm), `none`.
        layer_norms: norms of width h in a layer.
        qkv_bias, output_bias, mlp_bias, head_bias: biases of those projections.
        gated: whether the feed-forward has a gate projection.
        qk_norm: `` (none), `head` (d each), `full` (n d each), `head_bias` (d weights and d biases each).
        qk_norm_key: config key that switches it; empty is always.
        positions: rows of the learned position table beyond the context; None is no table.
        embedding_norm: whether a norm follows the embedding.
        tied: whether input and output embedding are one where the config does not say.
        shared_gate: whether a gate scales the shared expert.
        router_bias: whether the router's correction bias counts as a parameter.
        single_norm_key: config key that, when true, leaves one norm of width h in a layer.
        ffn_ratio: feed-forward width over h where no key gives it.
        ffn_divisor: how many times the real feed-forward width the key states.
        defaults: values of keys that a published file may leave out.
        needs: facts that the class would fill in with the sizes of one particular model: their absence is an error.
    """

    norm: str = "rms"
    layer_norms: int = 2
    qkv_bias: Trait = False
    output_bias: Trait = False
    mlp_bias: Trait = False
    head_bias: Trait = False
    gated: bool = True
    qk_norm: str = ""
    qk_norm_key: str = ""
    positions: int | None = None
    embedding_norm: bool = False
    tied: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    single_norm_key: str = ""
    ffn_ratio: int | None = None
    ffn_divisor: int = 1
    defaults: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


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

FAMILIES: Final[dict[str, Family]] = {
    "arcee": Family(qkv_bias=_BIAS, output_bias=_BIAS, mlp_bias="mlp_bias", gated=False),
    "baichuan": _PLAIN,
    "biogpt": Family(norm="layer", qkv_bias=True, output_bias=True, mlp_bias=True, gated=False, positions=2, tied=True),
    "bloom": Family(
        ffn_ratio=4,
        norm="layer",
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        gated=False,
        embedding_norm=True,
        tied=True,
    ),
    "chatglm": Family(qkv_bias="add_qkv_bias", output_bias="add_bias_linear", mlp_bias="add_bias_linear"),
    "codegen": _GPTJ,
    "cohere": Family(
        norm="plain",
        layer_norms=1,
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="full",
        qk_norm_key="use_qk_norm",
        tied=True,
    ),
    "deepseek": _LLAMA,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK_V3,
    "dots1": Family(needs=(*_ROUTED, "kv_heads"), qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="head"),
    "ernie4_5": Family(
        needs=("kv_heads",),
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        tied=True,
        defaults={"head_dim": 128},
    ),
    "ernie4_5_moe": Family(
        needs=(*_SHARED, "kv_heads", "moe_layer_start_index"),
        qkv_bias="use_bias",
        output_bias="use_bias",
        mlp_bias="use_bias",
        head_bias="use_bias",
        router_bias=True,
        tied=True,
    ),
    "exaone": _PLAIN,
    "falcon": Family(
        single_norm_key="parallel_attn",
        ffn_ratio=4,
        defaults={"multi_query": True, "parallel_attn": True},
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
        needs=(*_SHARED, "kv_heads", "sparse_layers"), qkv_bias=_BIAS, qk_norm="head", qk_norm_key="use_qk_norm"
    ),
    "glm4_moe_lite": replace(_DEEPSEEK_V3, defaults={"q_lora_rank": 768}),
    "gpt2": _GPT2,
    "gpt_bigcode": replace(_GPT2, defaults={"multi_query": True}),
    "gpt_neox": Family(
        norm="layer", qkv_bias=_BIAS, output_bias=_BIAS, mlp_bias=True, gated=False, defaults={_BIAS: True}
    ),
    "gptj": _GPTJ,
    "granite": _LLAMA,
    "granitemoe": Family(needs=("experts",), qkv_bias=_BIAS, output_bias=_BIAS),
    "granitemoeshared": Family(needs=("experts",), qkv_bias=_BIAS, output_bias=_BIAS),
    "hunyuan_v1_dense": Family(qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="head"),
    "hunyuan_v1_moe": Family(needs=("experts", "shared_experts"), qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="head"),
    "hy_v3": Family(
        needs=(*_SHARED, "kv_heads", "sparse_layers"),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        qk_norm="head",
        defaults={"head_dim": 128},
    ),
    "internlm": Family(qkv_bias="bias", output_bias="bias", defaults={"bias": True}),
    "internlm2": Family(qkv_bias="bias", output_bias="bias"),
    "internlm3": Family(qkv_bias="qkv_bias", output_bias="bias", mlp_bias="bias"),
    "jais2": Family(
        norm="layer",
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        gated=False,
        defaults={_BIAS: True, "mlp_bias": True},
    ),
    "kimi_k2": _DEEPSEEK_V3,
    "llama": _LLAMA,
    "minicpm": Family(qkv_bias=_BIAS, output_bias=_BIAS, tied=True),
    "minimax_m2": Family(
        needs=("experts", "kv_heads"),
        qk_norm="full",
        qk_norm_key="use_qk_norm",
        defaults={"use_qk_norm": True, "head_dim": 128},
    ),
    "ministral3": Family(needs=("kv_heads",), defaults={"head_dim": 128}),
    "mistral": Family(needs=("kv_heads",), defaults={"sliding_window": 4096}),
    "mixtral": Family(needs=("experts", "kv_heads")),
    "mpt": Family(ffn_ratio=4, norm="plain", gated=False, tied=True),
    "nemotron": Family(norm="layer", qkv_bias=_BIAS, output_bias=_BIAS, mlp_bias="mlp_bias", gated=False),
    "olmo": Family(norm="none", qkv_bias=_BIAS, output_bias=_BIAS),
    "olmo2": Family(qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="full"),
    "olmoe": Family(needs=("experts",), qkv_bias=_BIAS, output_bias=_BIAS, qk_norm="full"),
    "opt": Family(
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
    "phi3": Family(),
    "phimoe": Family(
        needs=("experts", "kv_heads"),
        norm="layer",
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        head_bias="lm_head_bias",
    ),
    "qwen": Family(qkv_bias=True, ffn_divisor=2),
    "qwen2": Family(needs=("kv_heads",), qkv_bias=True, defaults=_LATE_WINDOW),
    "qwen2_moe": Family(
        needs=(*_ROUTED, "shared_width", "kv_heads"),
        qkv_bias="qkv_bias",
        shared_gate=True,
        defaults={**_LATE_WINDOW, "qkv_bias": True},
    ),
    "qwen3": Family(
        needs=("kv_heads",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        qk_norm="head",
        defaults={**_LATE_WINDOW, "head_dim": 128},
    ),
    "qwen3_moe": Family(
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
        needs=("kv_heads",),
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        mlp_bias="mlp_bias",
        tied=True,
        defaults=_NO_WINDOW,
    ),
    "stablelm": Family(
        needs=("kv_heads",),
        single_norm_key="use_parallel_residual",
        norm="layer",
        qkv_bias="use_qkv_bias",
        qk_norm="full",
        qk_norm_key="qk_layernorm",
    ),
    "starcoder2": Family(
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
        qkv_bias=_BIAS, output_bias=_BIAS, tied=True, needs=("kv_lora_rank",), defaults={"q_lora_rank": 1536}
    ),
}

# feature -> the classes that understand its keys; a key of a feature that its class ignores is refused
FEATURES: Final[dict[str, frozenset[str]]] = {
    "window": frozenset(
        {
            "ministral3",
            "mistral",
            "mixtral",
            "phi3",
            "phimoe",
            "qwen2",
            "qwen2_moe",
            "qwen3",
            "qwen3_moe",
            "smollm3",
            "starcoder2",
        }
    ),
    "moe": frozenset(
        {
            "deepseek",
            "deepseek_v2",
            "deepseek_v3",
            "dots1",
            "ernie4_5_moe",
            "glm4_moe",
            "glm4_moe_lite",
            "granitemoe",
            "granitemoeshared",
            "hunyuan_v1_moe",
            "hy_v3",
            "kimi_k2",
            "minicpm",
            "minimax_m2",
            "mixtral",
            "olmoe",
            "phimoe",
            "qwen2_moe",
            "qwen3_moe",
        }
    ),
    "mla": frozenset({"deepseek_v2", "deepseek_v3", "glm4_moe_lite", "kimi_k2", "youtu"}),
    "multi_query": frozenset({"falcon", "gpt_bigcode"}),
    "multi_query_groups": frozenset({"chatglm"}),
    "head_dim": frozenset(FAMILIES)
    - {
        "biogpt",
        "bloom",
        "codegen",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neox",
        "gptj",
        "mpt",
        "opt",
        "persimmon",
        "stablelm",
    },
}

# facts whose value must be above zero where a class needs them; of the others zero and null mean something
POSITIVE: Final = frozenset({"experts", "expert_width", "kv_lora_rank"})
# a MoE class whose files say 0 experts for a dense model
DENSE_AT_ZERO: Final = frozenset({"granitemoe", "granitemoeshared"})
