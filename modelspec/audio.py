"""Audio towers and projectors: Qwen2-Audio, Qwen2.5-Omni, Qwen3-ASR, Voxtral, and the conformers of Gemma and Phi-4.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from roofcast.modelspec.speech import speech
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
    top_block,
    width_of,
)
from roofcast.modelspec.vision import qwen2_5_vl

AUDIO: Final = "audio_config"
# Whisper's names and the common ones: both occur, and both mean the encoder
WHISPER_NAMES: Final = {
    "hidden_size": "d_model",
    "num_hidden_layers": "encoder_layers",
    "num_attention_heads": "encoder_attention_heads",
    "intermediate_size": "encoder_ffn_dim",
}
_LARGE: Final = {
    "num_mel_bins": 128,
    "encoder_layers": 32,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "d_model": 1280,
    "max_source_positions": 1500,
}
# Source of all defaults: the audio classes' configuration_*.py in transformers 5.24.
QWEN2_AUDIO: Final = TowerClass(("qwen2_audio_encoder",), _LARGE, WHISPER_NAMES)
VOXTRAL: Final = TowerClass(("voxtral_encoder",), _LARGE, WHISPER_NAMES)
OMNI_AUDIO: Final = TowerClass(("qwen2_5_omni_audio_encoder",), {**_LARGE, "output_dim": 3584}, WHISPER_NAMES)
OMNI_VISION: Final = TowerClass(("qwen2_5_omni_vision_encoder",), {})
# the published files name the class as their remote code does
QWEN3_ASR: Final = TowerClass(
    ("qwen3_asr_encoder", "qwen3_asr_audio_encoder"),
    {
        "num_mel_bins": 128,
        "encoder_layers": 24,
        "encoder_attention_heads": 16,
        "encoder_ffn_dim": 4096,
        "d_model": 1024,
        "output_dim": 3584,
        "downsample_hidden_size": 480,
    },
    WHISPER_NAMES,
)
GEMMA3N_AUDIO: Final = TowerClass(
    ("gemma3n_audio",),
    {
        "vocab_size": 128,
        "input_feat_size": 128,
        "hidden_size": 1536,
        "conf_num_attention_heads": 8,
        "conf_num_hidden_layers": 12,
        "conf_conv_kernel_size": 5,
        "sscp_conv_channel_size": (128, 32),
        "sscp_conv_kernel_size": ((3, 3), (3, 3)),
        "sscp_conv_stride_size": ((2, 2), (2, 2)),
    },
)
GEMMA4_AUDIO: Final = TowerClass(
    ("gemma4_audio",),
    {
        "hidden_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "subsampling_conv_channels": (128, 32),
        "conv_kernel_size": 5,
        "output_proj_dims": 1536,
    },
)
PHI4_AUDIO: Final = TowerClass(
    ("phi4_multimodal_audio",),
    {
        "hidden_size": 1024,
        "intermediate_size": 1536,
        "num_blocks": 24,
        "num_attention_heads": 16,
        "ext_pw_out_channel": 1024,
        "depthwise_separable_out_channel": 1024,
        "depthwise_multiplier": 1,
        "kernel_size": 3,
        "input_size": 80,
        "time_reduction": 8,
        "bias_max_distance": 1000,
        "bias_symmetric": False,
        "nemo_conv_channels": 1024,
        "downsample_rate": 1,
    },
)


def qwen2_audio(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Qwen2-Audio: Whisper's encoder, and one matrix to the text width.

    Large: 32 layers of 4 * 1280^2 + 2 * 1280 * 5120 + 14080 = 19676160, and a stem of 7331840.

    >>> [tower.parameters for tower in qwen2_audio({}, 4096)]
    [636968960, 5246976]
    """
    block = read_block(config, AUDIO, QWEN2_AUDIO)
    return _pair(whisper_encoder(block), linear(block.size("d_model"), hidden))


def voxtral(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Voxtral: Whisper's encoder; four frames, its feed-forward's width together, are projected by two matrices."""
    block = read_block(config, AUDIO, VOXTRAL)
    inner = block.size("encoder_ffn_dim")
    return _pair(whisper_encoder(block), linear(inner, hidden, bias=False) + linear(hidden, hidden, bias=False))


def qwen3_asr(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """Qwen3-ASR: three strided convolutions, layers with all biases, and two matrices to `output_dim`."""
    # the published files nest their towers in one block, those of the reference do not
    nested = config.get("thinker_config") is not None
    return qwen3_audio(read_block(_thinker(config) if nested else config, AUDIO, QWEN3_ASR))


def qwen3_audio(block: Block) -> tuple[Tower, ...]:
    """The audio tower of Qwen3-ASR and Qwen3-Omni, and its projector."""
    width, inner = width_of(block, "d_model", "encoder_attention_heads"), block.size("encoder_ffn_dim")
    channels, bins = block.size("downsample_hidden_size"), block.size("num_mel_bins")
    for _ in range(3):  # each convolution halves the frequencies, rounded up
        bins = (bins + 1) // 2
    stem = patch_embedding(1, channels, (3, 3)) + 2 * patch_embedding(channels, channels, (3, 3))
    stem += linear(channels * bins, width, bias=False)
    layer = attention(width, width, width) + feed_forward(width, inner) + 2 * norm(width)
    tower = stem + block.size("encoder_layers", 0) * layer + norm(width)
    return _pair(tower, linear(width, width) + linear(width, block.size("output_dim")))


def qwen2_5_omni(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Qwen2.5-Omni: the thinker's vision and audio towers; with audio output, a talker and its vocoder too."""
    towers = qwen2_5_omni_thinker(_thinker(config), hidden)
    speaks = top_block(config, {"enable_audio_output": True}).flag("enable_audio_output")
    return towers + speech(config) if speaks else towers


def qwen2_5_omni_thinker(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Qwen2.5-Omni without what speaks: a vision and an audio tower."""
    audio = read_block(config, AUDIO, OMNI_AUDIO)
    vision = read_block(config, "vision_config", OMNI_VISION)  # the tower of Qwen2.5-VL under a name of its own
    width, out = audio.size("d_model"), audio.size("output_dim")
    towers = qwen2_5_vl({"vision_config": vision.values}, hidden)
    # learned positions are computed ones here; two vectors mark where audio begins and ends
    encoder = whisper_encoder(audio) - audio.size("max_source_positions") * width + 2 * out
    return (*towers, Tower("audio", encoder), Tower("audio projector", linear(width, out)))


def whisper_encoder(block: Block) -> int:
    """Parameters of Whisper's encoder: two convolutions, learned positions, layers whose keys have no bias, a norm."""
    width, inner = width_of(block, "d_model", "encoder_attention_heads"), block.size("encoder_ffn_dim")
    stem = patch_embedding(block.size("num_mel_bins"), width, (3,)) + patch_embedding(width, width, (3,))
    layer = attention(width, width, width) - width + feed_forward(width, inner) + 2 * norm(width)
    positions = block.size("max_source_positions") * width
    return stem + positions + block.size("encoder_layers", 0) * layer + norm(width)


def gemma4_audio(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Gemma 4's audio tower, a conformer; an absent or null block is no tower."""
    if config.get(AUDIO) is None:
        return ()
    block = read_block(config, AUDIO, GEMMA4_AUDIO)
    width, out = block.size("hidden_size"), block.size("output_proj_dims")
    first, second = block.sizes("subsampling_conv_channels", 2)
    stem = patch_embedding(1, first, (3, 3), bias=False) + patch_embedding(first, second, (3, 3), bias=False)
    # channels stand in for frequencies: there are as many mel bins, and the convolutions quarter them
    stem += first + second + linear(first // 4 * second, width, bias=False)
    layer = _conformer(width, width_of(block), block.size("conv_kernel_size"))
    layer += width // block.size("num_attention_heads")
    tower = stem + block.size("num_hidden_layers", 0) * layer + linear(width, out)
    return _pair(tower, linear(out, hidden, bias=False))


def gemma3n_audio(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Gemma 3n's audio tower, a conformer, and its embedder: a small vocabulary, two norms, a matrix."""
    block = read_block(config, AUDIO, GEMMA3N_AUDIO)
    width = width_of(block, heads="conf_num_attention_heads")
    layer = _conformer(width, width, block.size("conf_conv_kernel_size"))
    layer += width // block.size("conf_num_attention_heads")
    tower = _gemma3n_stem(block, width) + block.size("conf_num_hidden_layers", 0) * layer
    return _pair(tower, gemma3n_embedder(block, hidden))


def gemma3n_embedder(block: Block, hidden: int) -> int:
    """Parameters of a Gemma 3n embedder: its own vocabulary, norms for tokens and for features, one matrix."""
    width = block.size("hidden_size")
    return block.size("vocab_size") * width + 2 * norm(width, bias=False) + linear(width, hidden, bias=False)


def phi4_audio(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Phi-4-multimodal's audio tower, a conformer with relative positions, and two projectors: alone and with vision."""
    block = read_block(config, AUDIO, PHI4_AUDIO)
    width, channels, steps = block.size("hidden_size"), block.size("nemo_conv_channels"), block.size("time_reduction")
    if steps % 2:
        raise block.wrong("time_reduction", "even")
    halvings, bins = steps.bit_length() - 1, block.size("input_size")
    for _ in range(halvings):
        bins = (bins + 1) // 2
    stem = patch_embedding(1, channels, (3, 3)) + linear(channels * bins, width)
    stem += (halvings - 1) * (patch_embedding(1, channels, (3, 3)) + linear(channels, channels))
    buckets = block.size("bias_max_distance") * (1 if block.flag("bias_symmetric") else 2)
    tower = stem + buckets * block.size("num_attention_heads") + block.size("num_blocks", 0) * _phi4_layer(block)
    projector = linear(width * block.size("downsample_rate"), hidden) + linear(hidden, hidden)
    return _pair(tower, 2 * projector)


AUDIO_WRAPPERS: Final[dict[str, Reader]] = {
    "qwen2_5_omni": qwen2_5_omni,
    "qwen2_5_omni_thinker": qwen2_5_omni_thinker,
    "qwen2_audio": qwen2_audio,
    "qwen3_asr": qwen3_asr,
    "voxtral": voxtral,
}


def _pair(tower: int, projector: int) -> tuple[Tower, ...]:
    return pair(tower, projector, "audio")


def _thinker(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return read_block(config, "thinker_config", TowerClass(("qwen2_5_omni_thinker", "qwen3_asr"), {})).values


def _conformer(width: int, heads_width: int, kernel: int) -> int:
    # two feed-forwards of four widths with two norms each; attention with a matrix for relative positions;
    # a gated pointwise, a depthwise and a pointwise convolution; norms; no bias anywhere
    mlps = 2 * (feed_forward(width, 4 * width, bias=False) + 2 * width)
    heads = attention(width, heads_width, heads_width, bias=False) + width * heads_width + 2 * width
    convolution = linear(width, 2 * width, bias=False) + kernel * width + linear(width, width, bias=False) + 2 * width
    return mlps + heads + convolution + width


def _gemma3n_stem(block: Block, width: int) -> int:
    first, second = block.sizes("sscp_conv_channel_size", 2)
    kernels, strides = _areas(block, "sscp_conv_kernel_size"), _areas(block, "sscp_conv_stride_size")
    bins = block.size("input_feat_size")
    for (_, across), (_, step) in zip(kernels, strides, strict=True):
        bins = (bins + 2 - across) // step + 1  # one zero is padded on either side
    if bins < 1:
        raise block.wrong("input_feat_size", "as wide as the convolutions' kernels")
    convolutions = patch_embedding(1, first, kernels[0], bias=False)
    convolutions += patch_embedding(first, second, kernels[1], bias=False)
    return convolutions + first + second + linear(second * bins, width, bias=False)


def _areas(block: Block, key: str) -> tuple[tuple[int, ...], ...]:
    value = block.values.get(key)
    if not isinstance(value, (list, tuple)) or len(value) != 2:  # noqa: PLR2004 - two convolutions
        raise block.wrong(key, "a list of two pairs")
    return tuple(Block(block.name, {key: entry}).sizes(key, 2) for entry in value)


def _phi4_layer(block: Block) -> int:
    width, inner = width_of(block), block.size("intermediate_size")
    outer, deep = block.size("ext_pw_out_channel"), width * block.size("depthwise_multiplier")
    # gate and up are one matrix; two feed-forwards, each with its norm
    mlps = 2 * (linear(width, 2 * inner) + linear(inner, width) + norm(width))
    convolution = norm(width) + linear(width, 2 * outer) + 2 * outer + linear(width, outer)
    convolution += linear(block.size("kernel_size"), deep) + linear(deep, block.size("depthwise_separable_out_channel"))
    return mlps + attention(width, width, width) + convolution + 2 * norm(width)
