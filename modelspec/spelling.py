"""How classes spell the names of their modules in published files, where that is not as this package names them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    Spelling = tuple[tuple[str, str], ...]

_SPARSE: Final = (r"^mlp\.(?=experts|gate$|shared)", "block_sparse_moe.")
_EXPERTS: Final = (
    (r"(experts(?:\.\*)?)\.gate_proj$", r"\1.w1"),
    (r"(experts(?:\.\*)?)\.up_proj$", r"\1.w3"),
    (r"(experts(?:\.\*)?)\.down_proj$", r"\1.w2"),
)
_ALL: Final = ((r"\.gate_proj$", ".w1"), (r"\.up_proj$", ".w3"), (r"\.down_proj$", ".w2"))
_FUSED: Final = ((r"\.[qkv]_proj$", ".qkv_proj"), (r"\.(?:gate|up)_proj$", ".gate_up_proj"))
_SHARED: Final = ((r"shared_experts", "shared_expert"),)
_MIXER: Final = ((r"^(?:self_attn|mlp|mamba)\.", "mixer."),)
_FORWARD: Final = (r"^mlp\.", "feed_forward.")
# model_type -> replacements in a module's name, in order
SPELLINGS: Final[Mapping[str, Spelling]] = {
    **dict.fromkeys(("mixtral", "phimoe", "minimax_m2", "kimi_linear"), (_SPARSE, *_EXPERTS)),
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl_text", "minimax", "minimax_m1"), (_SPARSE, *_EXPERTS)),
    **dict.fromkeys(("lfm2", "lfm2_moe"), (_FORWARD, *_ALL, (r"^self_attn\.o_proj$", "self_attn.out_proj"))),
    **dict.fromkeys(("qwen2_moe", "qwen3_next", "qwen3_5_moe", "qwen3_5_moe_text"), _SHARED),
    **dict.fromkeys(("llama4", "llama4_text"), (_FORWARD, *_SHARED, (r"\.gate$", ".router"))),
    **dict.fromkeys(("phi3", "phi4_multimodal"), _FUSED),
    **dict.fromkeys(("glm", "glm4"), _FUSED[1:]),
    "deepseek_v4": ((r"^self_attn\.", "attn."), (r"^mlp\.", "ffn."), *_ALL),
    "nemotron_h": _MIXER,
    "jamba": (_FORWARD, (r"\.gate$", ".router")),
    "gpt_oss": ((r"\.gate$", ".router"),),
}


@lru_cache(maxsize=4096)
def spelt(name: str, spelling: Spelling) -> str:
    """A module's name as its class spells it.

    >>> spelt("mlp.experts.*.gate_proj", SPELLINGS["mixtral"])
    'block_sparse_moe.experts.*.w1'
    """
    for pattern, replacement in spelling:
        name = re.sub(pattern, replacement, name)
    return name
