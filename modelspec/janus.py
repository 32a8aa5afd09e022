"""What Janus sees with, and what it draws with: a tower, and a quantised autoencoder with its own embedding and head.

Counts and class defaults were checked against the reference implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

import itertools
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
    patch_embedding,
    read_block,
    width_of,
)
from roofcast.modelspec.vision_slots import grid, layers, square_patches

# Source of all defaults: janus/configuration_janus.py in transformers 5.24.
JANUS: Final = TowerClass(
    ("janus_vision_model",),
    {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_channels": 3,
        "image_size": 384,
        "patch_size": 16,
        "mlp_ratio": 4.0,
        "attention_bias": True,
        "projection_dim": 2048,
        "use_qk_norm": False,
        "depth": 2,
    },
)
VQ: Final = TowerClass(
    ("janus_vqgan",),
    {
        "embed_dim": 8,
        "num_embeddings": 16384,
        "double_latent": False,
        "latent_channels": 256,
        "in_channels": 3,
        "base_channels": 128,
        "channel_multiplier": (1, 1, 2, 2, 4),
        "num_res_blocks": 2,
        "out_channels": 3,
        "projection_dim": 2048,
        "num_hidden_layers": 2,
        "image_token_embed_dim": 2048,
    },
)
_KERNEL: Final = (3, 3)  # of every convolution that is not pointwise


def janus(config: Mapping[str, Any], _hidden: int) -> tuple[Tower, ...]:
    """Janus: a tower and its projector; an autoencoder, and what joins its codes to the text model.

    >>> [tower.parameters for tower in janus({}, 4096)]
    [303688704, 6295552, 71883403, 42113024]
    """
    block, codes = read_block(config, "vision_config", JANUS), read_block(config, "vq_config", VQ)
    width, out = width_of(block), block.size("projection_dim")
    inner = int(width * block.number("mlp_ratio"))
    layer = attention(width, width, width, bias=block.flag("attention_bias"), output_bias=True)
    layer += feed_forward(width, inner) + 2 * norm(width) + 2 * norm(width) * block.flag("use_qk_norm")
    tower = square_patches(block, width) + grid(block) * width + layers(block, layer) + norm(width)
    return (
        Tower("vision", tower),
        Tower("vision projector", _aligner(width, out, block.size("depth", 0))),
        Tower("image codes", _autoencoder(codes)),
        Tower("image head", _drawing(codes)),
    )


JANUS_WRAPPERS: Final[dict[str, Reader]] = {"janus": janus}


def _aligner(width: int, out: int, depth: int) -> int:
    return linear(width, out) + max(depth - 1, 0) * linear(out, out)


def _drawing(block: Block) -> int:
    # an embedding of codes and its projector; a head that writes codes
    codes, width, out = block.size("num_embeddings"), block.size("embed_dim"), block.size("projection_dim")
    head = linear(block.size("image_token_embed_dim"), out) + linear(out, codes)
    return codes * width + _aligner(width, out, block.size("num_hidden_layers", 0)) + head


def _autoencoder(block: Block) -> int:
    latent, width = block.size("latent_channels"), block.size("embed_dim")
    widths = tuple(block.size("base_channels") * factor for factor in block.listed("channel_multiplier"))
    depth, last = block.size("num_res_blocks"), widths[-1]
    encoded = latent * (1 + block.flag("double_latent"))
    total = patch_embedding(block.size("in_channels"), block.size("base_channels"), _KERNEL)
    total += _stages((block.size("base_channels"), *widths), depth)
    total += norm(last) + patch_embedding(last, encoded, _KERNEL)
    total += block.size("num_embeddings") * width + linear(latent, width) + linear(width, latent)
    total += patch_embedding(latent, last, _KERNEL) + _stages((last, *reversed(widths)), depth + 1, first=True)
    return total + norm(widths[0]) + patch_embedding(widths[0], block.size("out_channels"), _KERNEL)


def _stages(widths: tuple[int, ...], depth: int, *, first: bool = False) -> int:
    # residual blocks a resolution, attention at the coarsest alone, and one convolution between resolutions;
    # with the coarsest first on the way up, last on the way down
    coarsest = widths[1] if first else widths[-1]
    total = depth * _attended(coarsest) + 2 * _residual(coarsest, coarsest) + _attended(coarsest)
    for before, after in itertools.pairwise(widths):
        total += _residual(before, after) + (depth - 1) * _residual(after, after)
    return total + sum(patch_embedding(width, width, _KERNEL) for width in widths[1:-1])


def _residual(before: int, after: int) -> int:
    shortcut = linear(before, after) * (before != after)
    convolutions = patch_embedding(before, after, _KERNEL) + patch_embedding(after, after, _KERNEL)
    return norm(before) + norm(after) + convolutions + shortcut


def _attended(width: int) -> int:
    return norm(width) + 4 * linear(width, width)
