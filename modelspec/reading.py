"""Which keys of a config.json its class reads: a key that it does not read moves no number."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from roofcast.modelspec.keys import ALIASES, ENCODER_TOKENS, UNDERSTOOD, is_off

KEYS_FILE: Final = Path(__file__).parent / "class_keys.json"
# read of every class: what files of any carry, and what a class ignores though its checkpoints hold it
ALWAYS: Final = frozenset(
    {
        "model_type", "quantization_config", "quantization", "compression_config", "tie_word_embeddings",
        "sliding_window", "layer_types", "vision_config", "audio_config", "text_config", "mtp_transformer_layers",
        "mtp_layers_block_type", "mtp_hybrid_override_pattern", "mtp_use_kda", "attn_type_list",
        ENCODER_TOKENS, *ALIASES["mtp_layers"], *ALIASES["dtype"], *ALIASES["context"],
    }
)  # fmt: skip


@cache
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(KEYS_FILE.read_bytes())
    return table


def keys_read(model_type: str) -> frozenset[str] | None:
    """Keys that a class reads, None of a class that the reference implementation does not have.

    Source: the configuration classes of transformers 5.24.

    >>> sorted(keys_read("llama") & {"head_dim", "v_head_dim"}), keys_read("brand_new")
    (['head_dim'], None)
    """
    table = _table()
    own = table["classes"].get(model_type)
    return None if own is None else frozenset((*own, *table["common"]))


def as_read(
    raw: Mapping[str, Any], model_type: str, more: tuple[str, ...]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The config as its class reads it, and the keys that say something which it does not read.

    Args:
        raw: the file's keys.
        model_type: its class.
        more: keys that published files of the class state beside those that the reference implementation reads.
    """
    read = keys_read(model_type)
    if read is None:
        return raw, ()
    unread = {key for key in raw if key in UNDERSTOOD and not (key in read or key in ALWAYS or key in more)}
    if not unread:
        return raw, ()
    kept = {key: value for key, value in raw.items() if key not in unread}
    return kept, tuple(key for key in raw if key in unread and not is_off(raw[key]))
