"""The newest classes of latent attention with a sparse index: Mistral Large 4, A.X K2, Hy4."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.families_mixed import MIXED_FAMILIES

if TYPE_CHECKING:
    from roofcast.modelspec.family import Family

_DSA: Final = MIXED_FAMILIES["deepseek_v32"]
_NEEDS: Final = ("kv_lora_rank", "experts", "expert_width", "shared_experts", "index_head_dim")
# their checkpoints may hold draft layers, of which no public code tells the shape
_FIXED: Final = {"dense_first": 1, "draft_unknown": True}
_HY_V4: Final = replace(
    _DSA,
    has=(*_DSA.has, "shared_index", "hyper_connections"),
    gate="element",
    sinks=True,
    extras="independent_connections",
    constants={**_FIXED, "numbered": True},
    defaults={"index_topk_freq": 4, "hc_mult": 4},
    needs=(*_NEEDS, "q_lora_rank"),
)

NEWEST_A_FAMILIES: Final[dict[str, Family]] = {
    "axk2": replace(
        _DSA,
        has=(*_DSA.has, "gated_norms"),
        gate="query_latent",
        extras="gated_norms",
        constants=_FIXED,
        defaults={"gated_norm_rank": 16},
        needs=(*_NEEDS, "q_lora_rank"),
    ),
    "hy_v4": _HY_V4,
    "hy_v4_vl_text": _HY_V4,
    "mistral_large4_text": replace(
        _DSA,
        has=(*_DSA.has, "shared_index", "latent_shared"),
        extras="learned_frequencies",
        constants={**_FIXED, "numbered": True, "nope_every": 4, "scaled_queries": True},
        defaults={"index_topk_freq": 1},
        needs=_NEEDS,
    ),
}
