"""Multi-token prediction: draft layers that a checkpoint holds beyond its decoder, used only when drafting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.modelspec.config import listed
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.keys import is_off
from roofcast.modelspec.layers import Layer, read_slots
from roofcast.modelspec.plan import (
    FULL,
    HYBRID,
    HYBRID_SLIDING,
    LAYER_NAMES,
    LINEAR,
    PATTERN_LETTERS,
    Slot,
    layer_numbers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.modelspec.config import Config

LARGEST: Final = 1_000  # draft layers; far above any model there is, and a size beyond is a slip of the file
JOINING_NORMS: Final = 3  # of the hidden state, of the token's embedding, and before the head


def read_draft(config: Config, layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], int]:
    """The draft layers, and their parameters with the projection (2 h to h) and norms that join each to the decoder.

    Embeddings and head are the decoder's and not counted again (files of DeepSeek-V3 hold copies of both).

    Source: DeepSeek-V3, arXiv:2412.19437, section 2.2, equation 21.

    Raises:
        MalformedModelError, UnknownArchitectureError: as the decoder's layers.
    """
    count = config.size("mtp_layers", 0, least=0) * config.size("mtp_transformer_layers", 1, least=0)
    if not count or not layers:
        return (), 0
    if count > LARGEST:
        msg = f"{config.key_of('mtp_layers')} gives {count} layers of multi-token prediction; it must be {LARGEST} at most"
        raise MalformedModelError(msg)
    if config.trait_value("own_draft"):
        return _inkling_draft(config, count)
    like = _like_the_decoder(config, layers)
    draft = _stated(config, count) or tuple(like(len(layers) + step) for step in range(count))
    hidden = config.size("hidden")
    joined = 2 * hidden * hidden + JOINING_NORMS * hidden
    steps = count if len(draft) % count == 0 else 1
    return draft, sum(layer.parameters(hidden) for layer in draft) + steps * joined


def _inkling_draft(config: Config, count: int) -> tuple[tuple[Layer, ...], int]:
    """Inkling: dense layers, sliding where mtp_local_layer_ids lists them; two norms each, and one for all if chained."""
    listing = config.raw.get("mtp_local_layer_ids")
    local = () if listing is None else layer_numbers(config, "mtp_local_layer_ids")
    roles = ((HYBRID_SLIDING,) if step in local else (HYBRID,) for step in range(count))
    draft = read_slots(config, tuple(Slot(role, sparse=False) for role in roles), (False,) * count)
    hidden = config.size("hidden")
    joined = count * (2 * hidden * hidden + 2 * hidden) + hidden * config.flag("chain_hidden_post_norm")
    return draft, sum(layer.parameters(hidden) for layer in draft) + joined


def _stated(config: Config, count: int) -> tuple[Layer, ...]:
    """Layers that a key names, one pattern for every prediction step; none where no key does."""
    names, letters = config.raw.get("mtp_layers_block_type"), config.raw.get("mtp_hybrid_override_pattern")
    entries, allowed = (letters, PATTERN_LETTERS) if isinstance(letters, str) else (names, LAYER_NAMES)
    if is_off(entries) or not isinstance(entries, (str, list)) or not config.family.separate:
        return ()
    strange = sorted({str(entry) for entry in entries if str(entry) not in allowed})
    if strange:
        msg = f"multi-token prediction has layers that roofcast does not understand: {listed(strange)}"
        raise UnknownArchitectureError(msg)
    slots = tuple(allowed[str(entry)] for entry in entries)
    separate = tuple(Slot(slot.roles, feeds=not slot.roles, sparse=slot.sparse) for slot in slots)
    return read_slots(config, separate, (False,) * len(separate)) * count


def _like_the_decoder(config: Config, layers: tuple[Layer, ...]) -> Callable[[int], Layer]:
    """How a draft layer of a number is made: as the decoder's last, with attention of the kind that drafting uses."""
    last = layers[-1]
    entries = config.raw.get("compress_ratios")
    named = config.raw.get("compress_rates") is not None and entries is None

    def reread(layer: int) -> Layer:
        slot = Slot((LINEAR,) if config.raw.get("mtp_use_kda") is True else (FULL,), feeds=False, layer=layer)
        mixing = read_slots(config, (slot,), (False,))[0].mixers
        return Layer(mixing, last.feed_forwards, last.norm_parameters, last.other_parameters, last.other_matrices)

    if config.raw.get("mtp_use_kda") is True or named or (isinstance(entries, list) and len(entries) > len(layers)):
        return reread
    seeing_all = [layer for layer in layers if layer.feed_forwards == last.feed_forwards and _growth(layer)]
    chosen = max(reversed(seeing_all or [last]), key=_growth)
    return lambda _: chosen


def _growth(layer: Layer) -> float:
    """Elements a token that a layer keeps without end. [element]"""
    return sum(part.elements / part.per for part in layer.state if part.grows)
