"""Towers of Aria, Idefics 2, Ovis 2, PaddleOCR-VL, VideoLLaMA 3, LFM3-VL and Fuyu, each with a shape of its own.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.strictjson import quoted
from roofcast.modelspec.tower import Tower
from roofcast.modelspec.towers import (
    Block,
    Reader,
    TowerClass,
    attention,
    encoder_layer,
    feed_forward,
    linear,
    norm,
    pair,
    patch_embedding,
    read_block,
    top_block,
    width_of,
)
from roofcast.modelspec.vision_slots import BASE, grid, layers, siglip, square_patches

VISION: Final = "vision_config"
# Source of all defaults: the vision classes' configuration_*.py in transformers 5.24.
# the class takes no notice of a block's model_type
IDEFICS2: Final = TowerClass((), {**BASE, "patch_size": 32})
ARIA: Final = TowerClass(
    ("idefics3_vision",), {**BASE, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32}
)
PADDLE_OCR: Final = TowerClass(
    ("paddleocr_vl_vision", "paddleocr_vl"),
    {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_channels": 3,
        "image_size": 384,
        "patch_size": 14,
        "spatial_merge_size": 2,
    },
)
PERCEIVER: Final = TowerClass(
    (),
    {
        "resampler_n_latents": 64,
        "resampler_depth": 3,
        "resampler_n_heads": 16,
        "resampler_head_dim": 96,
        "num_key_value_heads": 4,
    },
)
OVIS2: Final = TowerClass(
    ("ovis2_vision",),
    {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 14,
        "qkv_bias": False,
        "mlp_bias": False,
        "vocab_size": 16384,
        "hidden_stride": 1,
        "num_visual_indicator_tokens": 5,
    },
)
VIDEO_LLAMA_3: Final = TowerClass(("video_llama_3_vision",), {**BASE, "patch_size": 16})
LFM3_VL: Final = TowerClass(
    ("lfm3_vl_vision",),
    {
        "hidden_size": 1024,
        "intermediate_size": 2560,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_hidden_layers": 14,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "layer_types": None,
        "conv_kernel_size": 3,
    },
)
_QUERIES: Final = {"1225": 128, "4900": 256}  # of Aria, by patches of the image
_MISTRAL: Final = {"intermediate_size": 14336}
_FIRST_CONVOLVED: Final = 2  # layers of LFM3-VL, before every other one attends


def aria(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Aria: a SigLIP tower without a head; learned queries attend to it twice over and go through two matrices.

    >>> aria({}, 4096)[1].parameters
    32420224
    """
    block = read_block(config, VISION, ARIA)
    top = top_block(config, {"projector_patch_to_query_dict": _QUERIES})
    queries = top.values["projector_patch_to_query_dict"]
    if not isinstance(queries, Mapping) or not queries:
        raise top.wrong("projector_patch_to_query_dict", "a mapping of patches to queries")
    most = max(Block("projector_patch_to_query_dict", queries).size(patches) for patches in queries)
    width = width_of(block)
    # projected before an attention that projects by itself
    attends = 3 * width * width + attention(width, width, width) + linear(width, width) + 2 * norm(width)
    projector = most * width + attends + norm(width) + linear(width, hidden, bias=False) + hidden * hidden
    return pair(siglip(_headless(block)), projector)


def paddleocr_vl(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """PaddleOCR-VL: a SigLIP tower without a head; a norm, and two matrices over squares of patches."""
    block = read_block(config, VISION, PADDLE_OCR)
    width = width_of(block)
    merged = width * block.size("spatial_merge_size") ** 2
    return pair(siglip(_headless(block)), norm(width) + linear(merged, merged) + linear(merged, hidden))


def idefics2(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Idefics 2: a SigLIP tower without a head, a gated feed-forward as wide as the text model's, a resampler.

    >>> [tower.parameters for tower in idefics2({}, 4096)]
    [87453696, 732209152]
    """
    block, perceiver = read_block(config, VISION, IDEFICS2), read_block(config, "perceiver_config", PERCEIVER)
    text = config.get("text_config")
    usual = not isinstance(text, Mapping) or text.get("model_type") in (None, "", "mistral")
    inner = read_block(config, "text_config", TowerClass((), _MISTRAL if usual else {})).size("intermediate_size")
    up = 2 * linear(block.size("hidden_size"), inner, bias=False) + linear(inner, hidden, bias=False)
    head = perceiver.size("resampler_head_dim")
    queries, keys = perceiver.size("resampler_n_heads") * head, perceiver.size("num_key_value_heads") * head
    # the resampler is as wide as the text model, whatever its block says
    layer = attention(hidden, queries, keys, bias=False) + feed_forward(hidden, 4 * hidden, gated=True, bias=False)
    layer += 3 * norm(hidden, bias=False)
    resampler = perceiver.size("resampler_n_latents") * hidden + norm(hidden, bias=False)
    resampler += perceiver.size("resampler_depth", 0) * layer
    return pair(siglip(_headless(block)), up + resampler)


def ovis2(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """Ovis 2: a tower that writes visual words, and a table that embeds them, `hidden_size` of the file's top wide.

    >>> [tower.parameters for tower in ovis2({}, 4096)]
    [309197824, 41970678]
    """
    block = read_block(config, VISION, OVIS2)
    width, words = width_of(block), block.size("vocab_size")
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True, bias=block.flag("mlp_bias"))
    layer = attention(width, width, width, bias=block.flag("qkv_bias")) + mlp + 2 * norm(width, bias=False)
    stem = square_patches(block, width) + grid(block) * width + norm(width, bias=False)
    # some words mark where an image begins and ends, and no patch is one
    written = words - block.size("num_visual_indicator_tokens", 0)
    if written < 1:
        raise block.wrong("vocab_size", "above num_visual_indicator_tokens")
    head = linear(width * block.size("hidden_stride") ** 2, written, bias=False) + norm(written)
    top = top_block(config, {"hidden_size": 1536, "vocab_size": 151643, "tie_word_embeddings": True})
    wide = top.size("hidden_size")
    towers = pair(stem + layers(block, layer) + norm(width, bias=False), head + words * wide)
    # the text model's embedding has its block's sizes, a head of its own those of the file's top
    if top.values["tie_word_embeddings"] is False:
        return (*towers, Tower("untied head", top.size("vocab_size") * wide))
    return towers


def video_llama_3(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """VideoLLaMA 3: a SigLIP tower with rotary positions, and two matrices."""
    block = read_block(config, VISION, VIDEO_LLAMA_3)
    width = width_of(block)
    tower = square_patches(block, width) + layers(block, encoder_layer(width, block.size("intermediate_size")))
    return pair(tower + norm(width), linear(width, hidden) + linear(hidden, hidden))


def lfm3_vl(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """LFM3-VL: layers that convolve and layers that attend, no bias; unshuffled pixels go through two matrices.

    >>> [tower.parameters for tower in lfm3_vl({}, 2048)]
    [164206336, 25174016]
    """
    block = read_block(config, VISION, LFM3_VL)
    width, patch, count = width_of(block), block.size("patch_size"), block.size("num_hidden_layers", 0)
    head, keys = width // block.size("num_attention_heads"), block.size("num_key_value_heads")
    attends = attention(width, width, keys * head, bias=False) + 2 * head
    convolves = linear(width, 3 * width, bias=False) + width * block.size("conv_kernel_size") ** 2 + width * width
    attending = _attending(block, count)
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True, bias=False) + 2 * norm(width, bias=False)
    kernel = (block.size("temporal_patch_size"), patch, patch)
    tower = patch_embedding(block.size("in_channels"), width, kernel, bias=False) + norm(width, bias=False)
    tower += attending * attends + (count - attending) * convolves + count * mlp
    top = top_block(config, {"projector_hidden_size": 4096, "projector_bias": True})
    inner, bias = top.size("projector_hidden_size"), top.flag("projector_bias")
    merged = width * block.size("spatial_merge_size") ** 2
    return pair(tower, norm(width) + linear(merged, inner, bias=bias) + linear(inner, hidden, bias=bias))


def fuyu(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Fuyu: no tower; patches of raw pixels go through one matrix.

    >>> [tower.parameters for tower in fuyu({}, 4096)]
    [11063296]
    """
    top = top_block(config, {"patch_size": 30, "num_channels": 3})
    return (Tower("vision projector", square_patches(top, hidden)),)


MIXED_WRAPPERS: Final[dict[str, Reader]] = {
    "aria": aria,
    "fuyu": fuyu,
    "idefics2": idefics2,
    "lfm3_vl": lfm3_vl,
    "ovis2": ovis2,
    "paddleocr_vl": paddleocr_vl,
    "video_llama_3": video_llama_3,
}


def _headless(block: Block) -> Block:
    return replace(block, values={**block.values, "vision_use_head": False})


def _attending(block: Block, count: int) -> int:
    # how many layers attend
    stated = block.values["layer_types"]
    if stated is None:
        return sum(not (index < _FIRST_CONVOLVED or index % 2) for index in range(count))
    if not isinstance(stated, (list, tuple)) or len(stated) < count:
        raise block.wrong("layer_types", f"a list of {count}")
    strange = next((kind for kind in stated if kind not in ("conv", "full_attention")), None)
    if strange is not None:
        shown = quoted(strange) if isinstance(strange, str) else "no name"
        raise UnknownArchitectureError(
            f"{block.where('layer_types')} has {shown}, which roofcast does not understand; it knows conv, full_attention"
        )
    return sum(kind != "conv" for kind in stated[:count])
