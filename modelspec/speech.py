"""What Qwen2.5-Omni speaks with: a talker that writes codes, a diffusion transformer, and a vocoder.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from roofcast.modelspec.tower import Tower
from roofcast.modelspec.towers import (
    Block,
    TowerClass,
    attention,
    feed_forward,
    linear,
    norm,
    patch_embedding,
    read_block,
)

# Source of all defaults: qwen2_5_omni/configuration_qwen2_5_omni.py in transformers 5.24.
TALKER: Final = TowerClass(
    ("qwen2_5_omni_talker",),
    {
        "vocab_size": 8448,
        "embedding_size": 3584,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "head_dim": 128,
    },
)
DIFFUSION: Final = TowerClass(
    ("qwen2_5_omni_dit",),
    {
        "hidden_size": 1024,
        "num_hidden_layers": 22,
        "num_attention_heads": 16,
        "ff_mult": 2,
        "emb_dim": 512,
        "head_dim": 64,
        "num_embeds": 8193,
        "mel_dim": 80,
        "enc_emb_dim": 192,
        "enc_dim": 128,
        "enc_channels": (256, 256, 256, 256, 768),
        "enc_kernel_sizes": (5, 3, 3, 3, 1),
        "enc_attention_channels": 64,
        "enc_res2net_scale": 2,
        "enc_se_channels": 64,
    },
)
VOCODER: Final = TowerClass(
    ("qwen2_5_omni_bigvgan",),
    {
        "mel_dim": 80,
        "upsample_initial_channel": 1536,
        "resblock_kernel_sizes": (3, 7, 11),
        "resblock_dilation_sizes": ((1, 3, 5), (1, 3, 5), (1, 3, 5)),
        "upsample_rates": (5, 3, 2, 2, 2, 2),
        "upsample_kernel_sizes": (11, 7, 4, 4, 4, 4),
    },
)
_TIME: Final = 256  # frequencies that encode the time step, fixed in code


def speech(config: Mapping[str, Any]) -> tuple[Tower, ...]:
    """The talker and, together, the diffusion transformer and vocoder that turn its codes into sound.

    >>> [tower.parameters for tower in speech({})]
    [6599025664, 449051264]
    """
    talker = _talker(read_block(config, "talker_config", TALKER))
    sound = read_block(config, "token2wav_config", TowerClass(("qwen2_5_omni_token2wav",), {})).values
    diffusion = _diffusion(read_block(sound, "dit_config", DIFFUSION))
    return Tower("talker", talker), Tower(
        "token2wav", diffusion + _vocoder(read_block(sound, "bigvgan_config", VOCODER))
    )


def _talker(block: Block) -> int:
    width, head = block.size("hidden_size"), block.size("head_dim")
    queries, keys = block.size("num_attention_heads") * head, block.size("num_key_value_heads") * head
    mlp = feed_forward(width, block.size("intermediate_size"), gated=True, bias=False)
    layer = attention(width, queries, keys, output_bias=False) + mlp + 2 * norm(width, bias=False)
    codes, embedding = block.size("vocab_size"), block.size("embedding_size")
    ends = codes * embedding + linear(embedding, width) + norm(width, bias=False) + linear(width, codes, bias=False)
    return ends + block.size("num_hidden_layers", 0) * layer


def _diffusion(block: Block) -> int:
    width, mel, codes = block.size("hidden_size"), block.size("mel_dim"), block.size("emb_dim")
    heads_width = block.size("num_attention_heads") * block.size("head_dim")
    # each layer scales and shifts by the time step: six vectors, and two before the output
    layer = linear(width, 6 * width) + attention(width, heads_width, heads_width)
    layer += feed_forward(width, width * block.size("ff_mult"))
    inputs = mel + block.size("enc_dim") + block.size("enc_emb_dim") + codes
    ends = linear(_TIME, width) + linear(width, width) + (block.size("num_embeds") + 1) * codes
    ends += linear(inputs, width) + linear(width, 2 * width) + linear(width, mel)
    return ends + _speaker(block) + block.size("num_hidden_layers", 0) * layer


def _speaker(block: Block) -> int:
    # ECAPA-TDNN: convolutions over time, squeezed and split ones between, attentive pooling at the end
    channels = block.listed("enc_channels")
    kernels = block.sizes("enc_kernel_sizes", len(channels))
    scale, squeezed = block.size("enc_res2net_scale"), block.size("enc_se_channels")
    total = patch_embedding(block.size("mel_dim"), channels[0], kernels[:1])
    for before, after, kernel in zip(channels[:-2], channels[1:-1], kernels[1:-1], strict=True):
        part = after // scale
        if part < 1:
            raise block.wrong("enc_res2net_scale", "at most the width it splits")
        total += linear(before, after) + (scale - 1) * patch_embedding(part, part, (kernel,)) + linear(after, after)
        total += linear(after, squeezed) + linear(squeezed, after)
    last, pooled = channels[-1], block.size("enc_attention_channels")
    total += patch_embedding(last, last, kernels[-1:]) + linear(3 * last, pooled) + linear(pooled, last)
    return total + linear(2 * last, block.size("enc_dim"))


def _vocoder(block: Block) -> int:
    # BigVGAN: each upsampling halves the channels; then, a kernel size, six convolutions and six learned activations
    rates = block.listed("upsample_rates")
    widths = block.sizes("upsample_kernel_sizes", len(rates))
    kernels = block.listed("resblock_kernel_sizes")
    dilations = block.values.get("resblock_dilation_sizes")
    if not isinstance(dilations, (list, tuple)) or len(dilations) != len(kernels):
        raise block.wrong("resblock_dilation_sizes", f"a list of {len(kernels)}, as resblock_kernel_sizes")
    channels = block.size("upsample_initial_channel")
    total = patch_embedding(block.size("mel_dim"), channels, (7,))
    for width in widths:
        half = channels // 2
        if half < 1:
            raise block.wrong("upsample_initial_channel", "large enough to be halved at each upsampling")
        total += patch_embedding(channels, half, (width,))
        total += 6 * sum(patch_embedding(half, half, (kernel,)) + 2 * half for kernel in kernels)
        channels = half
    return total + 2 * channels + patch_embedding(channels, 1, (7,), bias=False)
