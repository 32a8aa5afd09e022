"""Vision towers and projectors of Gemma 3n and 4, Llama 4, InternVL, Idefics 3, Llama 3.2 Vision and Phi-4.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.audio import AUDIO_WRAPPERS, gemma3n_audio, gemma3n_embedder, gemma4_audio, phi4_audio
from roofcast.modelspec.errors import UnknownArchitectureError
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
    unshuffled,
    width_of,
)
from roofcast.modelspec.vision_slots import (
    BASE,
    SLOT_WRAPPERS,
    VISION,
    grid,
    layers,
    siglip,
    square_patches,
)

if TYPE_CHECKING:
    from roofcast.modelspec.tower import Tower

# Source of all defaults: the vision classes' configuration_*.py in transformers 5.24.
# the class takes no notice of the block's model_type; these are published
IDEFICS3: Final = TowerClass(
    ("idefics3_vision", "idefics3", "smolvlm_vision"),
    {**BASE, "hidden_size": 1152, "num_attention_heads": 16, "patch_size": 32, "vision_use_head": False},
)
PHI4_VISION: Final = TowerClass(
    ("phi4_multimodal_vision",),
    {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_channels": 3,
        "image_size": 448,
        "patch_size": 14,
        "vision_use_head": True,
    },
)
INTERNVL: Final = TowerClass(
    ("internvl_vision",),
    {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "attention_bias": False,
        "use_qk_norm": False,
        "intermediate_size": 4096,
        "norm_type": "layer_norm",
        "image_size": 448,
        "patch_size": 14,
        "num_channels": 3,
        "use_mask_token": False,
        "use_absolute_position_embeddings": True,
        "use_mean_pooling": True,
    },
)
QIANFAN_OCR: Final = TowerClass(("qianfan_ocr_vision",), {**INTERNVL.defaults, "attention_bias": True})
# the remote class of the first InternVL files, with its own names and defaults; it has no norm at the end
INTERN_VIT: Final = TowerClass(
    ("intern_vit_6b",),
    {
        **INTERNVL.defaults,
        "hidden_size": 3200,
        "num_hidden_layers": 48,
        "num_attention_heads": 25,
        "intermediate_size": 12800,
        "norm_type": "rms_norm",
        "image_size": 224,
        "use_qk_norm": True,
    },
    {"qkv_bias": "attention_bias", "qk_normalization": "use_qk_norm"},
)
LLAMA4: Final = TowerClass(
    ("llama4_vision_model",),
    {
        "hidden_size": 768,
        "num_hidden_layers": 34,
        "num_attention_heads": 16,
        "num_channels": 3,
        "intermediate_size": 5632,
        "vision_output_dim": 7680,
        "image_size": 448,
        "patch_size": 14,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
    },
)
MLLAMA: Final = TowerClass(
    ("mllama_vision_model",),
    {
        "hidden_size": 1280,
        "num_hidden_layers": 32,
        "num_global_layers": 8,
        "attention_heads": 16,
        "num_channels": 3,
        "intermediate_size": 5120,
        "vision_output_dim": 7680,
        "image_size": 448,
        "patch_size": 14,
        "max_num_tiles": 4,
        "supported_aspect_ratios": None,
    },
    {"num_attention_heads": "attention_heads"},
)
GEMMA4: Final = TowerClass(
    ("gemma4_vision",),
    {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "head_dim": 64,
        "patch_size": 16,
        "position_embedding_size": 10240,
    },
)
GEMMA3N: Final = TowerClass(
    ("gemma3n_vision",),
    {"architecture": "mobilenetv5_300m_enc", "model_args": None, "hidden_size": 2048, "vocab_size": 128},
)
# A convolutional tower that its config only names. Source: timm 1.0.31, create_model(name, num_classes=0).
NAMED_TOWERS: Final = {"mobilenetv5_300m_enc": 294_126_912}
# the shapes to which Llama 3.2 tiles an image where the block lists none
_ASPECT_RATIOS: Final = 8
_NORMS: Final = ("layer_norm", "rms_norm")


def gemma3n(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Gemma 3n: a MobileNetV5 that its block only names, and an embedder; the same for audio."""
    block = read_block(config, VISION, GEMMA3N)
    name = block.name_of("architecture", tuple(NAMED_TOWERS))
    if block.values["model_args"]:
        raise UnknownArchitectureError(
            f"{block.where('model_args')} changes the tower {name}, which roofcast does not understand; it knows null"
        )
    return pair(NAMED_TOWERS[name], gemma3n_embedder(block, hidden)) + gemma3n_audio(config, hidden)


def gemma4(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Gemma 4: two position tables, gated layers of four norms, one matrix to the text; an absent block is no tower."""
    audio = gemma4_audio(config, hidden)
    if config.get(VISION) is None:
        return audio
    block = read_block(config, VISION, GEMMA4)
    width, head, patch = block.size("hidden_size"), block.size("head_dim"), block.size("patch_size")
    queries, keys = block.size("num_attention_heads") * head, block.size("num_key_value_heads") * head
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True, bias=False)
    layer = attention(width, queries, keys, bias=False) + 2 * head + mlp + 4 * width
    stem = 2 * block.size("position_embedding_size") * width + patch_embedding(3, width, (patch, patch), bias=False)
    return pair(stem + layers(block, layer), linear(width, hidden, bias=False)) + audio


def llama4(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Llama 4: a tower whose unshuffled pixels go through two matrices, then one to the text width."""
    block = read_block(config, VISION, LLAMA4)
    width, inner, out = width_of(block), block.size("intermediate_size"), block.size("projector_output_dim")
    stem = width + (grid(block) + 1) * width + square_patches(block, width, bias=False) + 2 * norm(width)
    adapter = linear(inner, block.size("projector_input_dim"), bias=False) + linear(out, out, bias=False)
    tower = stem + layers(block, encoder_layer(width, inner)) + adapter
    return pair(tower, linear(block.size("vision_output_dim"), hidden, bias=False))


def internvl(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """InternVL: layers with learned scales; unshuffled pixels go through a norm and two matrices."""
    return _internvl(config, hidden, INTERNVL)


def internvl_chat(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """InternVL as first published, a class of its own with the same tower under other names.

    No reference implementation builds it; InternVL2.5-1B's checkpoint holds 938193024, of which Qwen2 629697920.
    """
    return _internvl(config, hidden, INTERN_VIT)


def qianfan_ocr(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Qianfan-OCR: the tower of InternVL, with biases where its block says nothing."""
    return _internvl(config, hidden, QIANFAN_OCR)


def idefics3(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Idefics 3 and SmolVLM: a SigLIP tower without a head; unshuffled pixels go through one matrix without bias."""
    block = read_block(config, VISION, IDEFICS3)
    merged = block.size("hidden_size") * top_block(config, {"scale_factor": 2}).size("scale_factor") ** 2
    return pair(siglip(_headed(block, head=False)), linear(merged, hidden, bias=False))


def mllama(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Llama 3.2 Vision: gated position tables a shape of tiling, local layers, then gated global ones.

    The text model's cross-attention layers are not counted here.

    >>> [tower.parameters for tower in mllama({}, 4096)]
    [836288019, 31461376]
    """
    block = read_block(config, VISION, MLLAMA)
    width, positions = width_of(block, heads="attention_heads"), grid(block) + 1
    shapes = block.values["supported_aspect_ratios"]
    if shapes is not None and not isinstance(shapes, (list, tuple)):
        raise block.wrong("supported_aspect_ratios", "a list of pairs")
    rows = (_ASPECT_RATIOS if shapes is None else len(shapes)) + 1
    tiles = rows * block.size("max_num_tiles") * width
    # positions of a patch and of it in each tiling, with a gate; a vector a tile before and after, each with a gate
    tables = 1 + positions * width + tiles * positions + 2 * (1 + tiles)
    inner = block.size("intermediate_size")
    layer = attention(width, width, width, bias=False) + feed_forward(width, inner) + 2 * norm(width)
    stem = square_patches(block, width, bias=False) + width + tables + 2 * norm(width)
    tower = stem + layers(block, layer) + block.size("num_global_layers", 0) * (layer + 2)
    return pair(tower, linear(block.size("vision_output_dim"), hidden))


def phi4_multimodal(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Phi-4-multimodal: a SigLIP tower with its head, two learned vectors and two matrices; a conformer for audio."""
    block = read_block(config, VISION, PHI4_VISION)
    width = block.size("hidden_size")
    projector = 2 * width + linear(width, hidden) + linear(hidden, hidden)
    return pair(siglip(_headed(block, head=True)), projector) + phi4_audio(config, hidden)


MORE_WRAPPERS: Final[dict[str, Reader]] = {
    **AUDIO_WRAPPERS,
    **SLOT_WRAPPERS,
    "gemma3n": gemma3n,
    "gemma4": gemma4,
    "idefics3": idefics3,
    "internvl": internvl,
    "internvl_chat": internvl_chat,
    "llama4": llama4,
    "mllama": mllama,
    "phi4_multimodal": phi4_multimodal,
    "qianfan_ocr": qianfan_ocr,
    "smolvlm": idefics3,
}


def _headed(block: Block, *, head: bool) -> Block:
    # the class decides whether there is a pooling head, whatever the block says
    return replace(block, values={**block.values, "vision_use_head": head})


def _internvl(config: Mapping[str, Any], hidden: int, known: TowerClass) -> tuple[Tower, ...]:
    block = read_block(config, VISION, known)
    width, inner, bias = width_of(block), block.size("intermediate_size"), block.flag("attention_bias")
    high, wide = block.sizes("patch_size", 2)
    patches = prod(pixels // patch for pixels, patch in zip(block.sizes("image_size", 2), (high, wide), strict=True))
    # a class vector, patches, and positions of both
    stem = (1 + block.flag("use_mask_token")) * width + patch_embedding(block.size("num_channels"), width, (high, wide))
    stem += (patches + 1) * width * block.flag("use_absolute_position_embeddings")
    rms = block.name_of("norm_type", _NORMS) == "rms_norm"
    layer = attention(width, width, width, bias=bias, output_bias=True) + feed_forward(width, inner)
    # two norms, two learned scales, and norms of queries and keys over all heads at once
    layer += 2 * norm(width, bias=not rms) + 2 * width + 2 * width * block.flag("use_qk_norm")
    tower = stem + layers(block, layer) + norm(width) * (not block.flag("use_mean_pooling"))
    merged = width * unshuffled(config) ** 2
    return pair(tower, norm(merged) + linear(merged, hidden) + linear(hidden, hidden))
