"""Audio towers of Audio Flamingo 3, GLM-ASR, Omnilingual ASR, VibeVoice-ASR, Voxtral Realtime and Qwen3-Omni.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.audio import AUDIO, QWEN2_AUDIO, WHISPER_NAMES, qwen3_audio, whisper_encoder
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
from roofcast.modelspec.vision import qwen3_vl

if TYPE_CHECKING:
    from roofcast.modelspec.tower import Tower

# Source of all defaults: the audio classes' configuration_*.py in transformers 5.24.
AUDIO_FLAMINGO_3: Final = TowerClass(
    ("audioflamingo3_encoder", "musicflamingo_encoder"), QWEN2_AUDIO.defaults, WHISPER_NAMES
)
GLM_ASR: Final = TowerClass(
    ("glmasr_encoder",),
    {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_attention_heads": 20,
        "num_key_value_heads": None,
        "num_mel_bins": 128,
    },
)
OMNI_ASR: Final = TowerClass(
    ("omniasr_audio",),
    {
        "hidden_size": 1024,
        "conv_dim": (512,) * 7,
        "conv_kernel": (10, 3, 3, 3, 3, 2, 2),
        "conv_bias": True,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "num_conv_pos_embeddings": 128,
        "num_conv_pos_embedding_groups": 16,
        "intermediate_size": 4096,
    },
)
VOXTRAL_REALTIME: Final = TowerClass(
    ("voxtral_realtime_encoder",),
    {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_mel_bins": 128,
        "head_dim": 64,
    },
    {**{old: name for name, old in WHISPER_NAMES.items()}, "num_key_value_heads": "num_attention_heads"},
)
VIBE_VOICE: Final = TowerClass(
    ("vibevoice_acoustic_tokenizer_encoder",),
    {
        "channels": 1,
        "hidden_size": 64,
        "kernel_size": 7,
        "num_filters": 32,
        "downsampling_ratios": (2, 2, 4, 5, 5, 8),
        "depths": (3, 3, 3, 3, 3, 3, 8),
        "ffn_expansion": 4,
    },
)
QWEN3_OMNI: Final = TowerClass(
    ("qwen3_omni_moe_audio_encoder",),
    {**QWEN2_AUDIO.defaults, "output_dim": 3584, "downsample_hidden_size": 480},
    WHISPER_NAMES,
)
QWEN3_OMNI_VISION: Final = TowerClass(("qwen3_omni_moe_vision_encoder",), {})


def audioflamingo3(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Audio Flamingo 3 and Music Flamingo: Whisper's encoder and two matrices.

    >>> [tower.parameters for tower in audioflamingo3({}, 4096)]
    [636968960, 22028288]
    """
    block = read_block(config, AUDIO, AUDIO_FLAMINGO_3)
    bias = top_block(config, {"projector_bias": True}).flag("projector_bias")
    width = block.size("d_model")
    return _pair(whisper_encoder(block), linear(width, hidden, bias=bias) + linear(hidden, hidden, bias=bias))


def glmasr(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """GLM-ASR: Whisper's layers with rotary positions; a feed-forward's width of frames goes through two matrices."""
    block = read_block(config, AUDIO, GLM_ASR)
    width, inner, heads = width_of(block), block.size("intermediate_size"), block.size("num_attention_heads")
    head = block.size("head_dim") if "head_dim" in block.values else width // heads
    keys = (heads if block.values["num_key_value_heads"] is None else block.size("num_key_value_heads")) * head
    stem = patch_embedding(block.size("num_mel_bins"), width, (3,)) + patch_embedding(width, width, (3,))
    # keys have no bias
    layer = attention(width, heads * head, keys) - keys + feed_forward(width, inner) + 2 * norm(width)
    tower = stem + block.size("num_hidden_layers", 0) * layer + norm(width)
    return _pair(tower, linear(inner, 2 * hidden) + linear(2 * hidden, hidden))


def omniasr(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Omnilingual ASR: convolutions with norms, one grouped convolution for positions, a transformer, one matrix."""
    block = read_block(config, AUDIO, OMNI_ASR)
    width, channels = width_of(block), block.listed("conv_dim")
    kernels, bias = block.sizes("conv_kernel", len(channels)), block.flag("conv_bias")
    stem = norm(channels[-1]) + linear(channels[-1], width)
    for before, after, kernel in zip((1, *channels), channels, kernels, strict=False):
        stem += patch_embedding(before, after, (kernel,), bias=bias) + norm(after)
    group = width_of(block, heads="num_conv_pos_embedding_groups") // block.size("num_conv_pos_embedding_groups")
    positions = patch_embedding(group, width, (block.size("num_conv_pos_embeddings"),))
    layer = encoder_layer(width, block.size("intermediate_size"))
    tower = stem + positions + block.size("num_hidden_layers", 0) * layer + norm(width)
    return _pair(tower, linear(width, hidden))


def vibevoice_asr(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """VibeVoice-ASR: two convolutional encoders, of sound and of meaning; each goes through two matrices and a norm."""
    encoders, projector = 0, 0
    # only an absent block of meaning is wider
    absent = config.get("semantic_tokenizer_encoder_config") is None
    wide = TowerClass(VIBE_VOICE.types, {**VIBE_VOICE.defaults, "hidden_size": 128})
    for key, known in (("acoustic", VIBE_VOICE), ("semantic", wide if absent else VIBE_VOICE)):
        block = read_block(config, f"{key}_tokenizer_encoder_config", known)
        encoders += _vibevoice_encoder(block)
        projector += linear(block.size("hidden_size"), hidden) + hidden + linear(hidden, hidden)
    return _pair(encoders, projector)


def voxtral_realtime(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Voxtral Realtime: gated layers whose keys have no bias; a few frames together go through two matrices without."""
    block = read_block(config, AUDIO, VOXTRAL_REALTIME)
    width, inner = block.size("hidden_size"), block.size("intermediate_size")
    queries = block.size("num_attention_heads") * block.size("head_dim")
    stem = patch_embedding(block.size("num_mel_bins"), width, (3,)) + patch_embedding(width, width, (3,))
    mlp = feed_forward(width, inner, gated=True, bias=False) + width
    layer = attention(width, queries, queries) - queries + mlp + 2 * norm(width, bias=False)
    tower = stem + block.size("num_hidden_layers", 0) * layer + norm(width, bias=False)
    frames = top_block(config, {"downsample_factor": 4}).size("downsample_factor")
    return _pair(tower, linear(width * frames, hidden, bias=False) + linear(hidden, hidden, bias=False))


def qwen3_omni_thinker(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Qwen3-Omni without what speaks: the vision tower of Qwen3-VL and the audio tower of Qwen3-ASR."""
    vision = read_block(config, "vision_config", QWEN3_OMNI_VISION)
    towers = qwen3_vl({"vision_config": vision.values}, hidden)
    return towers + qwen3_audio(read_block(config, AUDIO, QWEN3_OMNI))


MORE_AUDIO_WRAPPERS: Final[dict[str, Reader]] = {
    "audioflamingo3": audioflamingo3,
    "glmasr": glmasr,
    "musicflamingo": audioflamingo3,
    "omniasr": omniasr,
    "qwen3_omni_moe_thinker": qwen3_omni_thinker,
    "vibevoice_asr": vibevoice_asr,
    "voxtral_realtime": voxtral_realtime,
}


def _pair(tower: int, projector: int) -> tuple[Tower, ...]:
    return pair(tower, projector, "audio")


def _vibevoice_encoder(block: Block) -> int:
    width, kernel, ratios = block.size("num_filters"), block.size("kernel_size"), block.listed("downsampling_ratios")
    depths = block.sizes("depths", len(ratios) + 1)
    total, expansion = patch_embedding(block.size("channels"), width, (kernel,)), block.size("ffn_expansion")
    for depth, ratio in zip(depths, (*ratios, None), strict=True):
        # a feed-forward and a depthwise convolution, each with a norm and a learned scale
        total += depth * (feed_forward(width, expansion * width) + width * kernel + width + 4 * width)
        if ratio is not None:
            # halving the frames doubles the channels
            total += patch_embedding(width, 2 * width, (2 * ratio,))
            width *= 2
    return total + patch_embedding(width, block.size("hidden_size"), (kernel,))
