"""MLA whose sliding layers have sizes of their own, and whose other layers have an index or none (dots3 note)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.config import listed
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.heads import as_layer
from roofcast.modelspec.plan import SLIDING, per_layer

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.plan import Slot

SIZES: Final = frozenset({
    "num_attention_heads", "num_key_value_heads", "q_lora_rank", "kv_lora_rank", "head_dim", "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim",
})  # fmt: skip
INDEXED: Final[dict[str, bool]] = {"indexed_attention": True, "full_attention": False, "sliding_attention": False}


def as_own(config: Config, slot: Slot, role: str) -> Config:
    """The config as one layer sees it: by per_layer_config, else by swa_* keys; without an index where it has none.

    Raises:
        MalformedModelError: sizes absent or that cannot be.
        UnknownArchitectureError: layers of another name.
    """
    slides = role == SLIDING
    if "per_layer_config" in config.raw:
        stated = config.raw["per_layer_config"] is not None
        own = as_layer(config, slot.layer, SIZES) if stated else config
    else:
        own = replace(config, raw={**config.raw, **_sliding_sizes(config)}) if slides else config
    if own.size("kv_heads", own.size("query_heads")) != own.size("query_heads"):
        msg = f"{role} layers have {own.size('kv_heads')} KV heads; MLA must have as many as query heads, {own.size('query_heads')}"
        raise MalformedModelError(msg)
    return own if not slides and _indexed(config, slot) else replace(own, raw={**own.raw, "index_head_dim": None})


def _sliding_sizes(config: Config) -> dict[str, Any]:
    """Sizes of sliding layers under swa_* keys; the RoPE part is what the others leave of the head."""
    own = {name: config.size(f"swa_{name}") for name in SIZES - {"qk_rope_head_dim", "num_key_value_heads"}}
    rope = own["head_dim"] - own["qk_nope_head_dim"]
    stated = config.size("swa_qk_rope_head_dim", rope)
    if stated != rope or rope < 1:
        msg = f"swa_head_dim is {own['head_dim']}; it must be swa_qk_nope_head_dim {own['qk_nope_head_dim']} and a RoPE part"
        raise MalformedModelError(msg)
    heads = config.size("swa_num_key_value_heads", own["num_attention_heads"])
    return {**own, "qk_rope_head_dim": rope, "num_key_value_heads": heads}


def _indexed(config: Config, slot: Slot) -> bool:
    """Whether a layer that sees all chooses by an index: as use_dsa says, else by its name."""
    names = config.raw.get("layer_types")
    name = "indexed_attention"
    if names is not None:
        name = str(per_layer(config, "layer_types", config.size("layers"))[slot.layer or 0])
    if name not in INDEXED:
        msg = (
            f"layer_types has {listed([name])}, which roofcast does not understand here; it knows {', '.join(INDEXED)}"
        )
        raise UnknownArchitectureError(msg)
    # files of transformers have per_layer_config and names that say it; published ones mean an index
    if config.raw.get("use_dsa", None if "per_layer_config" in config.raw else True) is None:
        return INDEXED[name]
    return config.flag("use_dsa", default=True)
