"""Encoder stacks of encoder-decoder models: T5, mT5, UMT5, Whisper, BART and mBART.

All that is neither a decoder layer, nor a decoder's norm or position table, nor the embedding or head: an embedding
that both sides share belongs to the decoder. Counts and class defaults were checked against the reference
implementation (transformers 5.24, meta device).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from roofcast.modelspec.audio import WHISPER_NAMES, whisper_encoder
from roofcast.modelspec.tower import Tower
from roofcast.modelspec.towers import (
    Block,
    TowerClass,
    attention,
    encoder_layer,
    feed_forward,
    norm,
    read_block,
)

# config.json -> the encoder
EncoderReader = Callable[[Mapping[str, Any]], tuple[Tower, ...]]
_FILE: Final = "config.json"
_T5_NAMES: Final = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "head_dim": "d_kv",
}
# Source of all defaults: the classes' configuration_*.py in transformers 5.24.
T5: Final = TowerClass(
    ("t5",),
    {
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_heads": 8,
        "relative_attention_num_buckets": 32,
        "feed_forward_proj": "relu",
    },
    _T5_NAMES,
)
MT5: Final = TowerClass(
    ("mt5", "umt5"),
    {**T5.defaults, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"},
    _T5_NAMES,
)
WHISPER: Final = TowerClass(
    ("whisper",),
    {
        "num_mel_bins": 80,
        "encoder_layers": 4,
        "encoder_attention_heads": 6,
        "encoder_ffn_dim": 1536,
        "d_model": 384,
        "max_source_positions": 1500,
    },
    WHISPER_NAMES,
)
BART: Final = TowerClass(
    ("bart", "mbart"),
    {
        "max_position_embeddings": 1024,
        "encoder_layers": 12,
        "encoder_ffn_dim": 4096,
        "encoder_attention_heads": 16,
        "d_model": 1024,
    },
    {name: key for name, key in WHISPER_NAMES.items() if key != "encoder_ffn_dim"},
)
# rows of a BART position table that no position uses
_BART_OFFSET: Final = 2


def t5(config: Mapping[str, Any]) -> tuple[Tower, ...]:
    """T5: layers of 4 d a + f d (2, or 3 where gated) + 2 d, one table of relative biases, a norm at the end.

    a is heads * d_kv. T5-small: 6 (4 * 512 * 512 + 2 * 512 * 2048 + 2 * 512) + 32 * 8 + 512.

    >>> t5({})[0].parameters
    18881280
    """
    return _t5(_flat(config, T5), tables=1)


def mt5(config: Mapping[str, Any]) -> tuple[Tower, ...]:
    """mT5: as T5 with other defaults."""
    return _t5(_flat(config, MT5), tables=1)


def umt5(config: Mapping[str, Any]) -> tuple[Tower, ...]:
    """UMT5: as mT5 with a table of relative biases in each layer."""
    block = _flat(config, MT5)
    return _t5(block, tables=block.size("num_layers", 0))


def whisper(config: Mapping[str, Any]) -> tuple[Tower, ...]:
    """Whisper: two convolutions, learned positions, layers whose keys have no bias, a norm.

    >>> whisper({})[0].parameters
    8208384
    """
    return (Tower("encoder", whisper_encoder(_flat(config, WHISPER))),)


def bart(config: Mapping[str, Any]) -> tuple[Tower, ...]:
    """BART: a position table with two unused rows, a norm after the embedding, layers with all biases."""
    return (Tower("encoder", _bart(_flat(config, BART))),)


def mbart(config: Mapping[str, Any]) -> tuple[Tower, ...]:
    """mBART: as BART with one more norm at the end."""
    block = _flat(config, BART)
    return (Tower("encoder", _bart(block) + norm(block.size("d_model"))),)


ENCODERS: Final[dict[str, EncoderReader]] = {
    "bart": bart,
    "mbart": mbart,
    "mt5": mt5,
    "t5": t5,
    "umt5": umt5,
    "whisper": whisper,
}


def _flat(config: Mapping[str, Any], known: TowerClass) -> Block:
    # the encoder's sizes stand at the file's top
    return Block("", read_block({_FILE: config}, _FILE, known).values)


def _t5(block: Block, tables: int) -> tuple[Tower, ...]:
    width, heads = block.size("d_model"), block.size("num_heads")
    inner = heads * block.size("d_kv")
    mlp = feed_forward(width, block.size("d_ff"), gated=_gated(block), bias=False)
    layer = attention(width, inner, inner, bias=False) + mlp + 2 * norm(width, bias=False)
    count = block.size("num_layers", 0)
    biases = min(tables, count) * block.size("relative_attention_num_buckets") * heads
    return (Tower("encoder", count * layer + biases + norm(width, bias=False)),)


def _gated(block: Block) -> bool:
    # `gated-gelu` or `relu`
    name = block.values["feed_forward_proj"]
    first, dash, last = name.partition("-") if isinstance(name, str) else ("", "", "")
    if not first or (dash and (first != "gated" or not last or "-" in last)):
        raise block.wrong("feed_forward_proj", "an activation's name, or 'gated-' and one")
    return bool(dash)


def _bart(block: Block) -> int:
    width, inner = block.size("d_model"), block.size("encoder_ffn_dim")
    if width % block.size("encoder_attention_heads"):
        raise block.wrong("d_model", f"a multiple of encoder_attention_heads, {block.size('encoder_attention_heads')}")
    positions = (block.size("max_position_embeddings") + _BART_OFFSET) * width
    return positions + norm(width) + block.size("encoder_layers", 0) * encoder_layer(width, inner)
