"""Vision towers that a wrapper chooses by the block's own `model_type`: CLIP, SigLIP, Pixtral; and their wrappers.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.strictjson import kind_of, quoted
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

VISION: Final = "vision_config"
BASE: Final = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
}
# Source of all defaults: the vision classes' configuration_*.py in transformers 5.24.
CLIP: Final = TowerClass(("clip_vision_model",), {**BASE, "patch_size": 32})
SIGLIP: Final = TowerClass(("siglip_vision_model",), {**BASE, "patch_size": 16, "vision_use_head": True})
PIXTRAL: Final = TowerClass(
    ("pixtral",),
    {
        **BASE,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "patch_size": 16,
    },
)
_LLAVA: Final = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
}
_SO400M: Final = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 26,
    "num_attention_heads": 16,
    "patch_size": 14,
    "image_size": 384,
    "vision_use_head": False,
}


@dataclass(frozen=True, slots=True)
class Slot:
    """What a wrapper puts in the place of its vision tower.

    Args:
        usual: class of a block that does not say its own.
        absent: sizes where the whole block is absent or null; a block with some keys takes its class's defaults.
    """

    usual: str
    absent: Mapping[str, Any]


_SLOTS: Final[dict[str, Slot]] = {
    "aya_vision": Slot("siglip_vision_model", {**_SO400M, "num_attention_heads": 14}),
    "cohere2_vision": Slot("siglip_vision_model", {"hidden_size": 1152, "image_size": 512, "num_hidden_layers": 27}),
    "deepseek_vl": Slot("siglip_vision_model", {}),
    "gemma3": Slot("siglip_vision_model", {}),
    "llava": Slot("clip_vision_model", {**_LLAVA, "image_size": 336}),
    "llava_onevision": Slot("siglip_vision_model", _SO400M),
    "lighton_ocr": Slot("pixtral", {**_LLAVA, "image_size": 1540}),
    "mistral3": Slot("pixtral", {**_LLAVA, "image_size": 1540}),
    "mistral_large4": Slot(
        "pixtral",
        {**_LLAVA, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 30, "image_size": 1540},
    ),
    "paligemma": Slot(
        "siglip_vision_model",
        {**_SO400M, "intermediate_size": 4096, "num_hidden_layers": 27, "image_size": 224},
    ),
    "video_llava": Slot("clip_vision_model", _LLAVA),
    "vipllava": Slot("clip_vision_model", {**_LLAVA, "image_size": 336}),
}
# the layers whose features ViP-LLaVA puts side by side
_VIP_LAYERS: Final = (-2, -5, -8, -11, 6)


def clip(block: Block) -> int:
    """Parameters of a CLIP vision tower: a class vector, patches, learned positions, a norm before and after.

    ViT-L/14 at 336 pixels: 24 layers of 12 * 1024^2 + 13 * 1024, 577 positions.

    >>> clip(Block("vision_config", {**CLIP.defaults, **_LLAVA, "image_size": 336}))
    303507456
    """
    width = width_of(block)
    stem = width + square_patches(block, width, bias=False) + (grid(block) + 1) * width
    return stem + layers(block, encoder_layer(width, block.size("intermediate_size"))) + 2 * norm(width)


def siglip(block: Block) -> int:
    """Parameters of a SigLIP vision tower: patches, learned positions, a norm after, a pooling head if it has one."""
    width, inner = width_of(block), block.size("intermediate_size")
    layer = encoder_layer(width, inner)
    stem = square_patches(block, width) + grid(block) * width
    # the pooling head: a learned query, attention, one norm, a feed-forward
    head = (width + layer - norm(width)) * block.flag("vision_use_head")
    return stem + layers(block, layer) + norm(width) + head


def pixtral(block: Block) -> int:
    """Parameters of a Pixtral vision tower: rotary positions, gated feed-forwards, no bias anywhere."""
    width = width_of(block)
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True, bias=False)
    layer = attention(width, width, width, bias=False) + mlp + 2 * width
    block.size("image_size")
    return square_patches(block, width, bias=False) + width + layers(block, layer)


# model_type of a vision block -> (what its class fixes, what it holds)
TOWERS: Final[dict[str, tuple[TowerClass, Callable[[Block], int]]]] = {
    "clip_vision_model": (CLIP, clip),
    "pixtral": (PIXTRAL, pixtral),
    "siglip_vision_model": (SIGLIP, siglip),
}


def gemma3(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Gemma 3: pooled patches go through one norm and one matrix without bias.

    >>> [tower.parameters for tower in gemma3({}, 2304)]
    [92884224, 1770240]
    """
    block, tower = slotted(config, "gemma3")
    width = block.size("hidden_size")
    return pair(tower, linear(width, hidden, bias=False) + width)


def mistral3(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Mistral 3: a norm, a matrix that merges squares of patches, and two matrices to the text width."""
    return _merged_patches(config, hidden, "mistral3")


def mistral_large4(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Mistral Large 4: as Mistral 3 with a wider tower.

    >>> [tower.parameters for tower in mistral_large4({}, 6144)]
    [1637107712, 67110912]
    """
    return _merged_patches(config, hidden, "mistral_large4")


def _merged_patches(config: Mapping[str, Any], hidden: int, wrapper: str) -> tuple[Tower, ...]:
    top = top_block(config, {"vision_feature_layer": -1, "multimodal_projector_bias": False, "spatial_merge_size": 2})
    block, tower = slotted(config, wrapper)
    width = block.size("hidden_size")
    merger = width + linear(width * top.size("spatial_merge_size") ** 2, width, bias=False)
    return pair(tower, merger + _mlp(top, width, hidden))


def llava(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """LLaVA 1.5: features of one or several layers go through two matrices."""
    block, tower = slotted(config, "llava")
    top = top_block(config, {"vision_feature_layer": -2, "multimodal_projector_bias": True})
    return pair(tower, _mlp(top, block.size("hidden_size"), hidden))


def llava_next(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """LLaVA-NeXT: as LLaVA 1.5, and a learned vector that ends a row of patches."""
    tower, projector = llava(config, hidden)
    return tower, replace(projector, parameters=projector.parameters + hidden)


def video_llava(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Video-LLaVA: two equal towers, for images and for video, and the projector of LLaVA 1.5."""
    block, tower = slotted(config, "video_llava")
    top = top_block(config, {"vision_feature_layer": -2, "multimodal_projector_bias": True})
    return Tower("vision", tower), Tower("video", tower), Tower("vision projector", _mlp(top, width_of(block), hidden))


def vipllava(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """ViP-LLaVA: features of several layers, side by side, go through a norm and two matrices with biases."""
    block, tower = slotted(config, "vipllava")
    named = {"vision_feature_layer": config.get("vision_feature_layers", _VIP_LAYERS)}
    top = top_block(config, {**named, "multimodal_projector_bias": True})
    width = width_of(block) * _features(top)
    return pair(tower, norm(width) + linear(width, hidden) + linear(hidden, hidden))


def deepseek_vl(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """DeepSeek-VL: a SigLIP tower and two matrices with biases."""
    block, tower = slotted(config, "deepseek_vl")
    return pair(tower, linear(width_of(block), hidden) + linear(hidden, hidden))


def lighton_ocr(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """LightOnOCR: a Pixtral tower and the projector of Mistral 3 without biases."""
    block, tower = slotted(config, "lighton_ocr")
    width, merge = width_of(block), top_block(config, {"spatial_merge_size": 2}).size("spatial_merge_size")
    merger = width + linear(width * merge**2, width, bias=False)
    return pair(tower, merger + linear(width, hidden, bias=False) + linear(hidden, hidden, bias=False))


def llava_onevision(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """LLaVA-OneVision: as LLaVA-NeXT with a SigLIP tower."""
    block, tower = slotted(config, "llava_onevision")
    top = top_block(config, {"vision_feature_layer": -1, "multimodal_projector_bias": True})
    return pair(tower, _mlp(top, block.size("hidden_size"), hidden) + hidden)


def paligemma(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """PaliGemma: a SigLIP tower and one matrix to `projection_dim`."""
    block, tower = slotted(config, "paligemma")
    out = top_block(config, {"projection_dim": 2048}).size("projection_dim")
    return pair(tower, linear(block.size("hidden_size"), out))


def aya_vision(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Aya Vision: unshuffled pixels go through a norm and a gated pair of matrices."""
    top = top_block(config, {"downsample_factor": 2, "alignment_intermediate_size": hidden})
    block, tower = slotted(config, "aya_vision")
    merged = block.size("hidden_size") * top.size("downsample_factor") ** 2
    return pair(tower, norm(merged) + _gated_mlp(top, merged, hidden))


def cohere2_vision(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Command A Vision: as Aya Vision without the norm."""
    top = top_block(config, {"downsample_factor": 2, "alignment_intermediate_size": 36864})
    block, tower = slotted(config, "cohere2_vision")
    return pair(tower, _gated_mlp(top, block.size("hidden_size") * top.size("downsample_factor") ** 2, hidden))


SLOT_WRAPPERS: Final[dict[str, Reader]] = {
    "aya_vision": aya_vision,
    "cohere2_vision": cohere2_vision,
    "deepseek_vl": deepseek_vl,
    "gemma3": gemma3,
    "lighton_ocr": lighton_ocr,
    "llava": llava,
    "llava_next": llava_next,
    "llava_next_video": llava_next,
    "llava_onevision": llava_onevision,
    "mistral3": mistral3,
    "mistral_large4": mistral_large4,
    "paligemma": paligemma,
    "shieldgemma2": gemma3,
    "video_llava": video_llava,
    "vipllava": vipllava,
}


def slotted(config: Mapping[str, Any], wrapper: str) -> tuple[Block, int]:
    """The vision block of a wrapper, and how many parameters its tower holds.

    Raises:
        UnknownArchitectureError: a tower that roofcast does not know.
    """
    slot, raw = _SLOTS[wrapper], config.get(VISION)
    kind = raw.get("model_type") if isinstance(raw, Mapping) else None
    name = slot.usual if kind is None or kind == "" else kind
    if not isinstance(name, str) or name not in TOWERS:
        shown = quoted(name) if isinstance(name, str) else kind_of(name)
        raise UnknownArchitectureError(
            f"{VISION}.model_type is {shown}, which roofcast does not understand here; it knows {', '.join(TOWERS)}"
        )
    known, count = TOWERS[name]
    if raw is None:
        known = replace(known, defaults={**known.defaults, **slot.absent})
    block = read_block(config, VISION, known)
    return block, count(block)


def square_patches(block: Block, width: int, *, bias: bool = True) -> int:
    """Parameters of the convolution over square patches."""
    return patch_embedding(block.size("num_channels"), width, (block.size("patch_size"),) * 2, bias=bias)


def grid(block: Block) -> int:
    """Patches of a square image: (pixels a side / pixels a patch) squared.

    Raises:
        MalformedModelError: the image is smaller than one patch.
    """
    return (block.size("image_size", block.size("patch_size")) // block.size("patch_size")) ** 2


def layers(block: Block, layer: int) -> int:
    """Parameters of all layers."""
    return block.size("num_hidden_layers", 0) * layer


def _mlp(top: Block, width: int, hidden: int) -> int:
    bias = top.flag("multimodal_projector_bias")
    return linear(width * _features(top), hidden, bias=bias) + linear(hidden, hidden, bias=bias)


def _features(top: Block) -> int:
    # several feature layers stand side by side before the first matrix
    chosen = top.values["vision_feature_layer"]
    return 1 if type(chosen) is int else len(top.indexes("vision_feature_layer"))


def _gated_mlp(top: Block, width: int, hidden: int) -> int:
    # half of the inner width gates the other half
    inner = top.size("alignment_intermediate_size")
    return linear(width, inner) + linear(inner // 2, hidden)
