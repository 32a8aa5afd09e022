"""Towers of Nemotron Omni: RADIO for images and video and, where its config has one, Parakeet for sound.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

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
    top_block,
    unshuffled,
    width_of,
)

if TYPE_CHECKING:
    from roofcast.modelspec.tower import Tower

# Source of all defaults: the configuration_*.py of radio, parakeet and nemotron_h_omni in transformers 5.24.
RADIO: Final = TowerClass(
    ("radio",),
    {
        "hidden_size": 1280,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "mlp_ratio": 4.0,
        "use_swiglu_ffn": False,
        "qkv_bias": True,
        "num_channels": 3,
        "patch_size": 16,
        "max_img_size": 2048,
        "num_cls_tokens": 3,
        "num_registers": 7,
        "video_temporal_patch_size": None,
    },
)
# the wrapper's published files leave both biases out, and mean none in the layers
PARAKEET: Final = TowerClass(
    (),
    {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "intermediate_size": 4096,
        "attention_bias": False,
        "convolution_bias": True,
        "conv_kernel_size": 9,
        "subsampling_factor": 8,
        "subsampling_conv_channels": 256,
        "num_mel_bins": 80,
        "subsampling_conv_kernel_size": 3,
        "subsampling_conv_stride": 2,
    },
)
# names that the first files give keys of the top
_OLD_NAMES: Final = {
    "sound_config": "audio_config",
    "vit_hidden_size": "vision_hidden_size",
    "llm_config": "text_config",
}


def nemotron_h_omni(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Nemotron Omni: unshuffled pixels go through a norm and two matrices, sound through two of its own.

    >>> [tower.parameters for tower in nemotron_h_omni({}, 4096)]
    [653693440, 37753856]
    """
    renamed = {_OLD_NAMES[key]: value for key, value in config.items() if key in _OLD_NAMES and value is not None}
    config = {**renamed, **{key: value for key, value in config.items() if value is not None}}
    frames = top_block(config, {"video_temporal_patch_size": 2}).values["video_temporal_patch_size"]
    absent = {} if "vision_config" in config else {"video_temporal_patch_size": frames}
    block = read_block(config, "vision_config", TowerClass(RADIO.types, {**RADIO.defaults, **absent}))
    top = top_block(config, {"projector_hidden_size": 4096, "vision_hidden_size": 1280})
    width, inner = top.size("vision_hidden_size"), top.size("projector_hidden_size")
    projector = _projector(width * unshuffled(config) ** 2, inner, hidden)
    # a text model with layers for multi-token prediction comes with one more norm after the tower
    text = read_block(config, "text_config", TowerClass((), {"num_nextn_predict_layers": 0}))
    final = norm(width) * (text.size("num_nextn_predict_layers", 0) > 0)
    towers = pair(radio(block) + final, projector)
    return towers + _sound(config, hidden) if "audio_config" in config else towers


def radio(block: Block) -> int:
    """Parameters of a RADIO tower: a large table of positions, class and register vectors, layers with two scales."""
    width, patch, heads = width_of(block), block.size("patch_size"), block.size("num_attention_heads")
    head = block.size("head_dim") if "head_dim" in block.values else width // heads
    pixels = block.size("num_channels") * patch**2
    frames = block.values["video_temporal_patch_size"]
    together = 1 + (0 if frames is None else block.size("video_temporal_patch_size", 2))
    vectors = block.size("num_cls_tokens", 0) + block.size("num_registers", 0)
    stem = pixels * width * together + ((block.size("max_img_size") // patch) ** 2 + vectors) * width
    gated, inner = block.flag("use_swiglu_ffn"), int(width * block.number("mlp_ratio"))
    if gated:  # two thirds, rounded up to a multiple of 8
        inner = (int(inner * 2 / 3) + 7) // 8 * 8
    queries, bias = heads * head, block.flag("qkv_bias")
    layer = attention(width, queries, queries, bias=bias, output_bias=True) + feed_forward(width, inner, gated=gated)
    return stem + block.size("num_hidden_layers", 0) * (layer + 2 * norm(width) + 2 * width)


def parakeet(block: Block) -> int:
    """Parameters of a Parakeet encoder: convolutions that shrink, then conformer layers with relative positions."""
    width, heads, bias = width_of(block), block.size("num_attention_heads"), block.flag("attention_bias")
    head = block.size("head_dim") if "head_dim" in block.values else width // heads
    queries, keys = (
        heads * head,
        head * block.size("num_key_value_heads" if "num_key_value_heads" in block.values else "num_attention_heads"),
    )
    convolved, kernel = block.flag("convolution_bias"), block.size("conv_kernel_size")
    mlps = 2 * feed_forward(width, block.size("intermediate_size"), bias=bias)
    heads_part = attention(width, queries, keys, bias=bias) + width * queries + 2 * queries
    convolution = linear(width, 2 * width, bias=convolved) + linear(width, width, bias=convolved)
    convolution += width * (kernel + convolved) + norm(width)
    layer = mlps + heads_part + convolution + 5 * norm(width)
    return _shrinking(block, width) + block.size("num_hidden_layers", 0) * layer


RADIO_WRAPPERS: Final[dict[str, Reader]] = {"nemotron_h_omni": nemotron_h_omni}


def _projector(inputs: int, inner: int, hidden: int, *, bias: bool = False) -> int:
    return norm(inputs, bias=False) + linear(inputs, inner, bias=bias) + linear(inner, hidden, bias=bias)


def _sound(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    block = read_block(config, "audio_config", PARAKEET)
    inner, bias = block.size("projection_hidden_size"), block.flag("projection_bias")
    return pair(parakeet(block), _projector(block.size("hidden_size"), inner, hidden, bias=bias), "audio")


def _shrinking(block: Block, width: int) -> int:
    channels, side = block.size("subsampling_conv_channels"), block.size("subsampling_conv_kernel_size")
    steps = block.size("subsampling_factor").bit_length() - 1
    # the first convolves one channel, the others each channel by itself and then across channels
    total = patch_embedding(1, channels, (side, side))
    total += max(steps - 1, 0) * (patch_embedding(1, channels, (side, side)) + linear(channels, channels))
    bins = block.size("num_mel_bins") // block.size("subsampling_conv_stride") ** steps
    return total + linear(channels * bins, width)
