"""Layers that a search over architectures has thinned out, one by one: `block_configs` (Nemotron-NAS)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.config import listed
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.keys import is_off
from roofcast.modelspec.strictjson import short

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

PARTS: Final[dict[str, frozenset[str]]] = {
    "attention": frozenset({"no_op", "replace_with_linear", "n_heads_in_group"}),
    "ffn": frozenset({"no_op", "replace_with_linear", "ffn_mult"}),
}
WIDTHS_ROUND_UP_TO: Final = 256
LARGEST_MULTIPLE: Final = 1000  # of the hidden size; beyond is a slip of the file


def block_of(config: Config, layer: int, part: str) -> dict[str, Any]:
    """The `attention` or `ffn` entry of one layer in `block_configs`.

    Raises:
        MalformedModelError: entries that cannot be.
        UnknownArchitectureError: keys that are on and not understood.
    """
    blocks, count = config.raw.get("block_configs"), config.size("layers")
    if not isinstance(blocks, list) or len(blocks) != count:
        length = f"{len(blocks)} entries" if isinstance(blocks, list) else short(blocks)
        msg = f"block_configs has {length}; it must list one for each of the {count} layers"
        raise MalformedModelError(msg)
    block = blocks[layer].get(part) if isinstance(blocks[layer], dict) else None
    if not isinstance(block, dict):
        msg = f"block_configs has no {part} object for layer {layer}"
        raise MalformedModelError(msg)
    strange = sorted(str(key) for key, value in block.items() if key not in PARTS[part] and not is_off(value))
    if strange:
        msg = f"block_configs has keys that roofcast does not understand: {listed(strange)}"
        raise UnknownArchitectureError(msg)
    flags = [block.get(key) for key in ("no_op", "replace_with_linear")]
    if not all(flag is None or isinstance(flag, bool) for flag in flags):
        msg = f"block_configs has {part} switches {short(flags)} for layer {layer}; they must be true or false"
        raise MalformedModelError(msg)
    return block


def heads_in_group(config: Config, layer: int) -> int:
    """Query heads that share a KV head in one layer.

    Raises:
        MalformedModelError: no number that divides the query heads.
    """
    group, heads = block_of(config, layer, "attention").get("n_heads_in_group"), config.size("query_heads")
    if type(group) is not int or group < 1 or heads % group:
        msg = f"n_heads_in_group is {short(group)} in layer {layer}; it must divide the {heads} query heads"
        raise MalformedModelError(msg)
    return group


def block_width(config: Config, layer: int) -> int:
    """Feed-forward width of one layer: 2/3 of ffn_mult x h, rounded up to a multiple of 256. [element]

    Raises:
        MalformedModelError: no multiple that can be.
    """
    multiple = block_of(config, layer, "ffn").get("ffn_mult")
    if isinstance(multiple, bool) or not isinstance(multiple, (int, float)) or not 0 < multiple < LARGEST_MULTIPLE:
        msg = f"ffn_mult is {short(multiple)} in layer {layer}; it must be a number above 0"
        raise MalformedModelError(msg)
    width = int(2 * multiple * config.size("hidden") / 3)
    return -(-width // WIDTHS_ROUND_UP_TO) * WIDTHS_ROUND_UP_TO
