"""GLM-5.3, Qwen4-Exp and Lara 4 Mini: linear attention beside an index with pooled keys, or beside windows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.families_plain import PLAIN_FAMILIES
from roofcast.modelspec.families_recurrent import RECURRENT_FAMILIES

if TYPE_CHECKING:
    from roofcast.modelspec.family import Family

_DEEPSEEK_V3: Final = PLAIN_FAMILIES["deepseek_v3"]
_QWEN3_NEXT: Final = RECURRENT_FAMILIES["qwen3_next"]
_QSA: Final = ("indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio")

NEWEST_B_FAMILIES: Final[dict[str, Family]] = {
    "glm5_next_text": replace(
        _DEEPSEEK_V3,
        has=("moe", "latent", "indexer", "shared_index", "pooled_index", "kimi_delta", "hyper_connections"),
        extras="streams",
        constants={
            "dense_first": 3,
            "linear_every": 4,
            "no_plan": ("linear_attn_config",),
            "full_rank_gate": False,
            "no_rope_key": True,
            "draft_unknown": True,
        },
        defaults={
            "linear_num_heads": 64,
            "linear_head_dim": 128,
            "linear_conv_kernel_dim": 4,
            "hc_mult": 4,
            "index_kpool": 16,
        },
        needs=(
            *("kv_lora_rank", "q_lora_rank", "kv_heads", "experts", "expert_width", "shared_experts"),
            *("index_n_heads", "index_head_dim", "index_topk"),
        ),
    ),
    "lara_mini": replace(
        _QWEN3_NEXT,
        has=("gated_delta", "moe", "window"),
        gate="",
        shared_gate=False,
        tied=True,
        constants={"cycle": ("linear", "sliding", "linear", "full", "sliding"), "draft_unknown": True},
        defaults={
            **_QWEN3_NEXT.defaults,
            "head_dim": 128,
            "sliding_window": 512,
            "linear_num_key_heads": 8,
            "linear_num_value_heads": 16,
        },
    ),
    "qwen4_exp_text": replace(
        _QWEN3_NEXT,
        has=("gated_delta", "moe", "mean_index", "gated_streams", "ngram"),
        layer_norms=0,
        final_norm=False,
        extras="gated_streams",
        constants={"linear_every": 4, "draft_unknown": True},
        defaults={
            **_QWEN3_NEXT.defaults,
            "hc_count": 4,
            "hc_lowrank": 320,
            "ple_conv_kernel_size": 4,
            "ngram_size": 3,
            "heads_per_ngram": 8,
            "ngram_vocab_size_base": 20_000_000,
            "make_ngram_vocab_size_divisible_by": 128,
        },
        needs=(*_QWEN3_NEXT.needs, *_QSA),
    ),
}
