"""Model classes of late 2026, and text models of further multimodal files: each a trait or two away from another."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.modelspec.families_kin import KIN_FAMILIES
from roofcast.modelspec.families_mixed import MIXED_FAMILIES
from roofcast.modelspec.families_plain import PLAIN_FAMILIES
from roofcast.modelspec.family import Family

_LLAMA: Final = PLAIN_FAMILIES["llama"]
_DEEPSEEK_V3: Final = PLAIN_FAMILIES["deepseek_v3"]
_SHARED_WIDTH: Final = ("experts", "expert_width", "shared_width", "kv_heads")

LATER_FAMILIES: Final[dict[str, Family]] = {
    "apertus1p5_text": KIN_FAMILIES["apertus"],
    "aria_text": replace(_LLAMA, has=("moe",), mlp_bias="mlp_bias", needs=("experts", "shared_experts")),
    "axk1": replace(
        _DEEPSEEK_V3,
        extras="normed_experts",
        constants={"dense_first": 1},
        needs=("kv_lora_rank", "q_lora_rank", "experts", "expert_width", "shared_experts"),
    ),
    "cosmos3_edge_text": replace(_LLAMA, gated=False, defaults={"head_dim": 128}, needs=("kv_heads",)),
    "flint": Family(
        has=("window", "moe"),
        qkv_bias="attention_bias",
        output_bias="attention_bias",
        qk_norm="head",
        sinks=True,
        sliding_sinks=True,
        defaults={"sliding_window": 513, "head_dim": 128},
        needs=(*_SHARED_WIDTH, "layer_types", "mlp_only_layers"),
    ),
    "glm_ocr_text": replace(KIN_FAMILIES["glm4v_text"], qkv_bias=False),
    "gpt-sw3": PLAIN_FAMILIES["gpt2"],
    "granite_docling_text": replace(_LLAMA, tied=True, needs=("kv_heads",)),
    "iquestcoder": replace(_LLAMA, defaults={"head_dim": 128}, needs=("kv_heads",)),
    "kolibri1": Family(
        has=("window", "moe"),
        layer_norms=4,
        qk_norm="head",
        constants={"full_every": 5},
        defaults={"sliding_window": 513, "head_dim": 128},
        needs=_SHARED_WIDTH,
    ),
    "muse_glimmer_text": replace(
        MIXED_FAMILIES["gemma2"],
        tied=False,
        gate="separate",
        constants={"full_every": 4, "from_end": True},
        defaults={"sliding_window": 2048, "head_dim": 128},
    ),
    "paddleocr_vl_text": PLAIN_FAMILIES["ernie4_5"],
    "qwen3_omni_moe_text": replace(PLAIN_FAMILIES["qwen3_moe"], has=("moe",), defaults={}),
    "voxtral_realtime_text": replace(PLAIN_FAMILIES["mistral"], extras="adaptive_norm"),
}
