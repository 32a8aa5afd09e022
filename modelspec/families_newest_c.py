"""Model classes of late 2026 with sizes of their own in sliding layers: Muse Spark, Inkling 1 and 2, dots3 note."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from roofcast.modelspec.families_plain import PLAIN_FAMILIES
from roofcast.modelspec.family import Family
from roofcast.modelspec.state import FP32

_BIAS: Final = "attention_bias"
_SLIDING: Final = ("kv_heads", "swa_num_attention_heads", "swa_num_key_value_heads", "swa_head_dim")
_RELATIVE: Final = ("d_rel", "rel_extent", *_SLIDING)

_INKLING_2: Final = Family(
    has=("window", "moe", "relative", "own_sliding", "head_rows"),
    embedding_norm=True,
    extras="inkling2",
    # of its two names for the experts' width the plain one is an alias that is set last
    names={"expert_width": ("intermediate_size", "moe_intermediate_size")},
    constants={
        "pattern": "inkling",
        "second_inkling": True,
        "numbered": True,
        "ties": False,
        "own_head_rows": True,
        "draft_unknown": True,
    },
    defaults={"head_dim": 128, "sliding_window_size": 1024, "conv_kernel_size": 4, "n_layers_per_attn_res_block": 6},
    needs=("experts", "expert_width", "unpadded_vocab_size", *_RELATIVE),
)

NEWEST_C_FAMILIES: Final[dict[str, Family]] = {
    "dots3_note_text": replace(
        PLAIN_FAMILIES["deepseek_v3"],
        has=("moe", "latent", "indexer", "window", "per_layer", "own_latent"),
        gate="head",
        names={"shared_width": ("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size")},
        constants={
            "pattern": "dots",
            "draft_unknown": True,
            "own_latent": True,
            "numbered": True,
            "rope_norm": True,
            "index_format": FP32,  # the reference rotates index keys in fp32, and keeps them so
            "shared_width_each": True,
            "dense_first": 1,
            "list_after_first": True,
        },
        defaults={"sliding_window": 512},
        needs=(
            "kv_lora_rank", "q_lora_rank", "experts", "expert_width", "shared_experts", "shared_width", "index_head_dim",
            "index_n_heads", "index_topk",
        ),
    ),
    "inkling2_loop_text": replace(
        _INKLING_2, has=(*_INKLING_2.has, "loops"), constants={**_INKLING_2.constants, "loops": True}
    ),
    "inkling2_text": _INKLING_2,
    "inkling_text": Family(
        has=("window", "moe", "relative", "own_sliding", "head_rows"),
        embedding_norm=True,
        extras="inkling",
        router="shared_scores",
        names={"dense_first": ("dense_mlp_idx",)},
        constants={"pattern": "inkling", "ties": False, "frees_intermediate": True, "own_draft": True},
        defaults={
            "head_dim": 128, "sliding_window_size": 512, "conv_kernel_size": 4, "moe_intermediate_size": 3072,
        },
        needs=("experts", "shared_experts", *_RELATIVE),
    ),
    "muse_spark_text": Family(
        has=("window", "moe", "narrow"),
        layer_norms=3,
        qkv_bias=_BIAS,
        output_bias=_BIAS,
        gate="separate",
        extras="muse_spark",
        names={"latent_width": ("moe_hidden_size",)},
        constants={"full_every": 4, "from_end": True, "ties": False, "draft_unknown": True},
        defaults={"sliding_window": 2048, "head_dim": 64},
        needs=("experts", "expert_width", "latent_width", "kv_heads"),
    ),
}  # fmt: skip
