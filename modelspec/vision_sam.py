"""Towers of SAM's kind, with relative positions in windows: GOT-OCR 2, PP-Chart2Table and DeepSeek-VL's second one.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from roofcast.modelspec.tower import Tower
from roofcast.modelspec.towers import (
    Block,
    Reader,
    TowerClass,
    attention,
    feed_forward,
    linear,
    norm,
    pair,
    patch_embedding,
    read_block,
    width_of,
)
from roofcast.modelspec.vision_slots import grid, slotted, square_patches

VISION: Final = "vision_config"
HIGH_RESOLUTION: Final = "high_res_vision_config"
# Source of all defaults: the vision classes' configuration_*.py in transformers 5.24.
GOT_OCR2: Final = TowerClass(
    ("got_ocr2_vision", "pp_chart2table_vision"),
    {
        "hidden_size": 768,
        "output_channels": 256,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_channels": 3,
        "image_size": 1024,
        "patch_size": 16,
        "qkv_bias": True,
        "use_abs_pos": True,
        "use_rel_pos": True,
        "window_size": 14,
        "global_attn_indexes": (2, 5, 8, 11),
        "mlp_dim": 3072,
    },
)
SAM: Final = TowerClass(("sam_vision_model",), {**GOT_OCR2.defaults, "mlp_dim": None, "mlp_ratio": 4.0})


def got_ocr2(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """GOT-OCR 2: two convolutions that halve each side, the second to the text width, and one matrix.

    >>> [tower.parameters for tower in got_ocr2({}, 1024)]
    [89670912, 6947840]
    """
    block = read_block(config, VISION, GOT_OCR2)
    channels = block.size("output_channels")
    upsampler = patch_embedding(channels, 2 * channels, (3, 3), bias=False)
    upsampler += patch_embedding(2 * channels, hidden, (3, 3), bias=False)
    return pair(sam(block, block.size("mlp_dim")), upsampler + linear(hidden, hidden))


def deepseek_vl_hybrid(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """DeepSeek-VL of 7B: as the smaller one, and a SAM tower whose features have a neck and convolutions of their own."""
    block = read_block(config, HIGH_RESOLUTION, SAM)
    if block.values["mlp_dim"] is None:
        inner = int(block.size("hidden_size") * block.number("mlp_ratio"))
    else:
        inner = block.size("mlp_dim")
    vision, tower = slotted(config, "deepseek_vl")
    channels = block.size("output_channels")
    convolutions = patch_embedding(channels, 2 * channels, (3, 3), bias=False)
    convolutions += patch_embedding(2 * channels, 4 * channels, (3, 3), bias=False)
    # each tower puts out half of the text width; a learned number weighs the second
    halves = linear(width_of(vision), hidden // 2) + linear(4 * channels, hidden // 2)
    projector = _neck(block) + convolutions + 1 + halves + linear(hidden, hidden)
    return (
        Tower("vision", tower),
        Tower("high resolution vision", sam(block, inner)),
        Tower("vision projector", projector),
    )


def sam(block: Block, inner: int) -> int:
    """Parameters of a SAM tower: layers with two tables of relative positions a head, as long as what they attend to."""
    width, side = width_of(block), grid(block)
    head, count = width // block.size("num_attention_heads"), block.size("num_hidden_layers", 0)
    stem = square_patches(block, width) + side * width * block.flag("use_abs_pos")
    layer = attention(width, width, width, bias=block.flag("qkv_bias"), output_bias=True)
    layer += feed_forward(width, inner) + 2 * norm(width)
    across = block.size("image_size") // block.size("patch_size")
    window = block.size("window_size", 0) or across
    everywhere = sum(0 <= index < count for index in set(block.indexes("global_attn_indexes")))
    reach = everywhere * (2 * across - 1) + (count - everywhere) * (2 * window - 1)
    return stem + count * layer + 2 * head * reach * block.flag("use_rel_pos") + _neck(block)


SAM_WRAPPERS: Final[dict[str, Reader]] = {
    "deepseek_vl_hybrid": deepseek_vl_hybrid,
    "got_ocr2": got_ocr2,
    "pp_chart2table": got_ocr2,
}


def _neck(block: Block) -> int:
    # a pointwise and a 3x3 convolution without bias, each with a norm
    width, channels = block.size("hidden_size"), block.size("output_channels")
    convolutions = linear(width, channels, bias=False) + patch_embedding(channels, channels, (3, 3), bias=False)
    return convolutions + 2 * norm(channels)
