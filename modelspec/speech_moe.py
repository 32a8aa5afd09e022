"""What Qwen3-Omni speaks with: a talker with experts and a predictor of further codes, and a vocoder.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from roofcast.modelspec.audio_more import qwen3_omni_thinker
from roofcast.modelspec.tower import Tower
from roofcast.modelspec.towers import (
    Block,
    Reader,
    TowerClass,
    attention,
    feed_forward,
    linear,
    norm,
    patch_embedding,
    read_block,
    top_block,
)

# Source of all defaults: qwen3_omni_moe/configuration_qwen3_omni_moe.py in transformers 5.24.
THINKER: Final = TowerClass(("qwen3_omni_moe_thinker",), {})
TALKER: Final = TowerClass((), {"thinker_hidden_size": 2048})
# it has no default for the width of the shared expert
TALKER_TEXT: Final = TowerClass(
    ("qwen3_omni_moe_talker_text",),
    {
        "vocab_size": 3072,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "num_hidden_layers": 20,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "attention_bias": False,
        "moe_intermediate_size": 384,
        "num_experts": 128,
    },
    {"num_local_experts": "num_experts"},
)
PREDICTOR: Final = TowerClass(
    ("qwen3_omni_moe_talker_code_predictor",),
    {
        "vocab_size": 2048,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 5,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_bias": False,
        "num_code_groups": 32,
    },
)
CODE2WAV: Final = TowerClass(
    (),
    {
        "codebook_size": 2048,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "attention_bias": False,
        "intermediate_size": 3072,
        "num_hidden_layers": 8,
        "num_quantizers": 16,
        "upsample_rates": (8, 5, 4, 3),
        "upsampling_ratios": (2, 2),
        "decoder_dim": 1536,
    },
)
_KERNEL: Final = (7,)  # of every convolution over time that does not change the rate


def qwen3_omni(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Qwen3-Omni: the thinker's vision and audio towers; with audio output, a talker and its vocoder too."""
    towers = qwen3_omni_thinker(read_block(config, "thinker_config", THINKER).values, hidden)
    if not top_block(config, {"enable_audio_output": True}).flag("enable_audio_output"):
        return towers
    vocoder = _vocoder(read_block(config, "code2wav_config", CODE2WAV))
    return (*towers, Tower("talker", _talker(read_block(config, "talker_config", TALKER))), Tower("code2wav", vocoder))


SPEECH_WRAPPERS: Final[dict[str, Reader]] = {"qwen3_omni_moe": qwen3_omni}


def _attention(block: Block, *, normed: bool) -> int:
    width, heads = block.size("hidden_size"), block.size("num_attention_heads")
    head = block.size("head_dim") if "head_dim" in block.values else width // heads
    keys, bias = block.size("num_key_value_heads") * head, block.flag("attention_bias")
    return attention(width, heads * head, keys, bias=bias) + 2 * head * normed


def _talker(block: Block) -> int:
    text = read_block(block.values, "text_config", TALKER_TEXT)
    width, experts, codes = text.size("hidden_size"), text.size("num_experts"), text.size("vocab_size")
    routed = experts * (width + feed_forward(width, text.size("moe_intermediate_size"), gated=True, bias=False))
    shared = feed_forward(width, text.size("shared_expert_intermediate_size"), gated=True, bias=False) + width
    layer = _attention(text, normed=True) + routed + shared + 2 * norm(width, bias=False)
    # what the thinker hides and what it writes go through two matrices each
    inner = text.size("intermediate_size")
    projectors = 2 * (linear(block.size("thinker_hidden_size"), inner) + linear(inner, width))
    ends = 2 * codes * width + norm(width, bias=False) + projectors
    predictor = _predictor(read_block(block.values, "code_predictor_config", PREDICTOR))
    return ends + text.size("num_hidden_layers", 0) * layer + predictor


def _predictor(block: Block) -> int:
    # an embedding and a head for each group of codes but the first
    width = block.size("hidden_size")
    ends = 2 * (block.size("num_code_groups") - 1) * block.size("vocab_size") * width + norm(width, bias=False)
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True, bias=False)
    layer = _attention(block, normed=True) + mlp + 2 * norm(width, bias=False)
    return ends + block.size("num_hidden_layers", 0) * layer


def _vocoder(block: Block) -> int:
    width, channels = block.size("hidden_size"), block.size("decoder_dim")
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True, bias=False)
    # two norms and two learned scales
    layer = _attention(block, normed=False) + mlp + 4 * width
    total = block.size("num_hidden_layers", 0) * layer + norm(width, bias=False)
    total += block.size("codebook_size") * block.size("num_quantizers") * width
    for factor in block.listed("upsampling_ratios"):
        blend = patch_embedding(1, width, _KERNEL) + norm(width) + feed_forward(width, 4 * width) + width
        total += patch_embedding(width, width, (factor,)) + blend
    total += patch_embedding(width, channels, _KERNEL)
    for rate in block.listed("upsample_rates"):
        half = channels // 2
        if half < 1:
            raise block.wrong("decoder_dim", "large enough to be halved at each of upsample_rates")
        # three residual units of two learned activations, of two vectors each, and two convolutions
        unit = 4 * half + patch_embedding(half, half, _KERNEL) + linear(half, half)
        total += 2 * channels + patch_embedding(channels, half, (2 * rate,)) + 3 * unit
        channels = half
    return total + 2 * channels + patch_embedding(channels, 1, _KERNEL)
