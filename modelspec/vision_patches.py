"""Towers of EXAONE 4.5, with grouped attention, of GLM-5.3 and Hy4, and of Gemma 4's unified model, of raw patches.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.tower import Tower
from roofcast.modelspec.towers import (
    Reader,
    TowerClass,
    attention,
    feed_forward,
    linear,
    norm,
    patch_embedding,
    read_block,
)
from roofcast.modelspec.vision import GLM_OCR, glm_ocr_tower

VISION: Final = "vision_config"
AUDIO: Final = "audio_config"
CHANNELS: Final = 3  # of a colour image
# Source of all defaults: the vision classes' configuration_*.py in transformers 5.24.
EXAONE4_5: Final = TowerClass(
    ("exaone4_5_vision", "exaone4_5"),
    {
        "depth": 32,
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "num_heads": 16,
        "num_key_value_heads": 8,
        "in_channels": 3,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "out_hidden_size": 3584,
    },
    {"num_attention_heads": "num_heads", "num_hidden_layers": "depth"},
)
GLM5_NEXT: Final = TowerClass(
    ("glm5_next", "glm5_next_vision"), {**GLM_OCR.defaults, "projection_intermediate_size": 10240}, GLM_OCR.aliases
)
GEMMA4_UNIFIED: Final = TowerClass(
    ("gemma4_unified_vision",),
    {"patch_size": 16, "pooling_kernel_size": 3, "mm_embed_dim": 3840, "mm_posemb_size": 1120},
)
GEMMA4_UNIFIED_AUDIO: Final = TowerClass(
    ("gemma4_unified_audio",), {"audio_embed_dim": 640}, {"hidden_size": "audio_embed_dim"}
)


HY_V4: Final = TowerClass(
    ("hy_v4_vl_vision",),
    {
        "hidden_size": 1536,
        "intermediate_size": 6144,
        "num_attention_heads": 16,
        "num_channels": 3,
        "num_hidden_layers": 40,
        "out_hidden_size": 6144,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "max_image_size": 2048,
    },
    {"attention_heads": "num_attention_heads"},
)


def exaone4_5(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """EXAONE 4.5: RMS-normed blocks with fewer key-value heads and a gated feed-forward, both with biases.

    Raises:
        MalformedModelError: heads that do not divide the width.
    """
    block = read_block(config, VISION, EXAONE4_5)
    width, heads = block.size("hidden_size"), block.size("num_heads")
    if width % heads:
        msg = f"{block.where('num_heads')} {heads} does not divide hidden_size {width}"
        raise MalformedModelError(msg)
    keys = block.size("num_key_value_heads") * (width // heads)
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True)
    layer = attention(width, width, keys) + mlp + 2 * norm(width, bias=False)
    kernel = (block.size("temporal_patch_size"), block.size("patch_size"), block.size("patch_size"))
    stem = patch_embedding(block.size("in_channels"), width, kernel, bias=False)
    merged = width * block.size("spatial_merge_size") ** 2
    merger = norm(width, bias=False) + linear(merged, merged) + linear(merged, block.size("out_hidden_size"))
    return Tower("vision", stem + block.size("depth", 0) * layer), Tower("vision projector", merger)


def glm5_next(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """GLM-5.3: GLM-OCR's tower, with a merger as wide as its block says."""
    block = read_block(config, VISION, GLM5_NEXT)
    return glm_ocr_tower(block, block.size("projection_intermediate_size"))


def gemma4_unified(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Gemma 4 12B: no tower; patches of raw pixels and frames of raw sound go through norms and single matrices."""
    towers: list[Tower] = []
    if config.get(VISION) is not None:
        block = read_block(config, VISION, GEMMA4_UNIFIED)
        width = block.size("mm_embed_dim")
        pixels = CHANNELS * (block.size("patch_size") * block.size("pooling_kernel_size")) ** 2
        stem = norm(pixels) + linear(pixels, width) + 2 * norm(width) + 2 * block.size("mm_posemb_size") * width
        towers += [Tower("vision", stem), Tower("vision projector", linear(width, hidden, bias=False))]
    if config.get(AUDIO) is not None:
        sound = read_block(config, AUDIO, GEMMA4_UNIFIED_AUDIO).size("audio_embed_dim")
        towers.append(Tower("audio projector", linear(sound, hidden, bias=False)))
    return tuple(towers)


def hy_v4_vl(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """Hy4: learned positions of the largest image, and two convolutions that merge squares of patches.

    >>> [tower.parameters for tower in hy_v4_vl({}, 6144)]
    [1159609344, 75517440]
    """
    block = read_block(config, VISION, HY_V4)
    width, heads, patch = block.size("hidden_size"), block.size("num_attention_heads"), block.size("patch_size")
    head_dim = block.size("head_dim") if block.values.get("head_dim") is not None else width // heads
    edge = block.size("max_image_size") // patch
    stem = patch_embedding(block.size("num_channels"), width, (patch, patch)) + (edge**2 + 1) * width
    mlp = feed_forward(width, block.size("intermediate_size"))
    layer = attention(width, heads * head_dim, heads * head_dim) + mlp + 2 * norm(width)
    merge, out = block.size("spatial_merge_size"), block.size("out_hidden_size")
    merged = width * merge**2
    merger = norm(width, bias=False) + patch_embedding(width, merged, (merge, merge)) + linear(merged, out) + out
    return Tower("vision", stem + block.size("num_hidden_layers", 0) * layer), Tower("vision projector", merger)


PATCH_WRAPPERS: Final[dict[str, Reader]] = {
    "exaone4_5": exaone4_5,
    "gemma4_unified": gemma4_unified,
    "glm5_next": glm5_next,
    "hy_v4_vl": hy_v4_vl,
}
