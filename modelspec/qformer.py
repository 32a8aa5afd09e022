"""Towers that a Q-Former joins to the text: BLIP-2, InstructBLIP and Granite Speech.

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
    width_of,
)
from roofcast.modelspec.vision_slots import grid, layers

if TYPE_CHECKING:
    from roofcast.modelspec.tower import Tower

# Source of all defaults: the classes' configuration_*.py in transformers 5.24.
BLIP_VISION: Final = TowerClass(
    ("blip_2_vision_model", "instructblip_vision_model", "instructblipvideo_vision_model"),
    {
        "hidden_size": 1408,
        "intermediate_size": 6144,
        "num_hidden_layers": 39,
        "num_attention_heads": 16,
        "image_size": 224,
        "patch_size": 14,
        "qkv_bias": True,
    },
)
_QFORMER: Final = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "cross_attention_frequency": 2,
    "encoder_hidden_size": 1408,
}
QFORMER: Final = TowerClass(("blip_2_qformer",), {**_QFORMER, "use_qformer_text_input": False})
# it reads the instruction beside its queries, and so has an embedding and a second feed-forward
INSTRUCT_QFORMER: Final = TowerClass(
    ("instructblip_qformer", "instructblipvideo_qformer"),
    {**_QFORMER, "vocab_size": 30522, "max_position_embeddings": 512},
)
GRANITE_ENCODER: Final = TowerClass(
    ("granite_speech_encoder", "granite_speech_plus_encoder"),
    {
        "input_dim": 160,
        "num_layers": 10,
        "hidden_dim": 1024,
        "feedforward_mult": 4,
        "num_heads": 8,
        "dim_head": None,
        "output_dim": 42,
        "max_pos_emb": 512,
        "conv_kernel_size": 15,
        "conv_expansion_factor": 2,
    },
    {
        "hidden_size": "hidden_dim",
        "num_hidden_layers": "num_layers",
        "num_attention_heads": "num_heads",
        "num_mel_bins": "input_dim",
    },
)
_CHANNELS: Final = 3  # of an image, fixed in code


def blip_2(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """BLIP-2: a ViT, learned queries that a Q-Former fills from it, one matrix.

    >>> [tower.parameters for tower in blip_2({}, 2560)]
    [985952256, 107130880]
    """
    vision = read_block(config, "vision_config", BLIP_VISION)
    block = read_block(config, "qformer_config", QFORMER)
    texts = block.flag("use_qformer_text_input")
    joined = qformer(block, width_of(vision), texts=texts) + norm(block.size("hidden_size"))
    return pair(_blip_vision(vision), joined + _queries(config, block, hidden))


def instructblip(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """InstructBLIP: as BLIP-2, with a Q-Former that embeds and reads the instruction too."""
    vision = read_block(config, "vision_config", BLIP_VISION)
    block = read_block(config, "qformer_config", INSTRUCT_QFORMER)
    rows = block.size("vocab_size") + block.size("max_position_embeddings")
    embedding = rows * block.size("hidden_size") + norm(block.size("hidden_size"))
    joined = qformer(block, width_of(vision), texts=True) + embedding
    return pair(_blip_vision(vision), joined + _queries(config, block, hidden))


def granite_speech(config: Mapping[str, Any], hidden: int) -> tuple[Tower, ...]:
    """Granite Speech: a conformer, and a Q-Former with as many queries as a window has steps after downsampling."""
    block = read_block(config, "projector_config", QFORMER)
    top = top_block(config, {"downsample_rate": 5, "window_size": 15})
    width, queries = block.size("hidden_size"), top.size("window_size") // top.size("downsample_rate")
    projector = qformer(block, block.size("encoder_hidden_size"), texts=block.flag("use_qformer_text_input"))
    projector += queries * width + norm(width) + linear(width, hidden)
    return pair(_granite_encoder(read_block(config, "encoder_config", GRANITE_ENCODER)), projector, "audio")


def qformer(block: Block, seen: int, *, texts: bool) -> int:
    """Parameters of a Q-Former's layers, every few of which attend to features of width `seen`.

    Args:
        block: its sizes.
        seen: width of the features.
        texts: whether a second feed-forward serves tokens of text.
    """
    width, count, every = width_of(block), block.size("num_hidden_layers", 0), block.size("cross_attention_frequency")
    mlp = feed_forward(width, block.size("intermediate_size")) + norm(width)
    layer = attention(width, width, width) + norm(width) + mlp * (1 + texts)
    crossed = 2 * linear(width, width) + 2 * linear(seen, width) + norm(width)
    return count * layer + -(-count // every) * crossed


QFORMER_WRAPPERS: Final[dict[str, Reader]] = {
    "blip-2": blip_2,
    "granite_speech": granite_speech,
    "granite_speech_plus": granite_speech,
    "instructblip": instructblip,
    "instructblipvideo": instructblip,
}


def _queries(config: Mapping[str, Any], block: Block, hidden: int) -> int:
    width = block.size("hidden_size")
    return top_block(config, {"num_query_tokens": 32}).size("num_query_tokens") * width + linear(width, hidden)


def _blip_vision(block: Block) -> int:
    width, patch = width_of(block), block.size("patch_size")
    stem = patch_embedding(_CHANNELS, width, (patch, patch)) + (grid(block) + 2) * width
    # query, key and value are one matrix with one bias
    heads = attention(width, width, width, bias=block.flag("qkv_bias"), output_bias=True)
    layer = heads + feed_forward(width, block.size("intermediate_size")) + 2 * norm(width)
    return stem + layers(block, layer) + norm(width)


def _granite_encoder(block: Block) -> int:
    width, heads, out = block.size("hidden_dim"), block.size("num_heads"), block.size("output_dim")
    head = width // heads if block.values["dim_head"] is None else block.size("dim_head")
    mlps = 2 * (norm(width) + feed_forward(width, width * block.size("feedforward_mult")))
    # relative positions of one head serve all
    mixing = norm(width) + attention(width, heads * head, heads * head, bias=False, output_bias=True)
    mixing += (2 * block.size("max_pos_emb") + 1) * head
    inner = width * block.size("conv_expansion_factor")
    convolution = norm(width) + linear(width, 2 * inner) + inner * block.size("conv_kernel_size")
    convolution += norm(inner) + linear(inner, width)
    layer = mlps + mixing + convolution + norm(width)
    # a guess of the text half-way, and back
    ends = linear(block.size("input_dim"), width) + linear(width, out) + linear(out, width)
    return ends + block.size("num_layers", 0) * layer
