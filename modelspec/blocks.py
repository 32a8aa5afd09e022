"""Layers that a search over architectures has thinned out, one by one: `block_configs` (Nemotron-NAS)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from roofcast.modelspec.config import listed
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.keys import is_off
from roofcast.modelspec.strictjson import short

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.plan import Slot
    from roofcast.modelspec.state import Kept

PARTS: Final[dict[str, frozenset[str]]] = {
    "attention": frozenset({"no_op", "replace_with_linear", "n_heads_in_group"}),
    "ffn": frozenset({"no_op", "replace_with_linear", "ffn_mult"}),
}
WIDTHS_ROUND_UP_TO: Final = 256
LARGEST_MULTIPLE: Final = 1000  # of the hidden size; beyond is a slip of the file


@dataclass(frozen=True, slots=True)
class LinearMap:
    """One matrix in the place of attention: it mixes no tokens and keeps nothing of them."""

    label: ClassVar[str] = "linear map"
    query_heads: ClassVar[int] = 0
    published_kv_heads: ClassVar[int] = 0
    window: ClassVar[int | None] = None

    @property
    def state(self) -> tuple[Kept, ...]:
        """Nothing."""
        return ()

    def parameters(self, hidden: int) -> int:
        """One matrix: h^2. [parameter]

        >>> LinearMap().parameters(8192)
        67108864
        """
        return hidden * hidden

    def prefill_flops(self, tokens: float) -> float:
        """None beyond its projection's. [FLOP]"""
        return 0.0 * tokens

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share it: any number."""
        return tp > 0


def read_map(config: Config, slot: Slot, role: str) -> LinearMap:
    """It has no sizes of its own."""
    del config, slot, role
    return LinearMap()


@dataclass(frozen=True, slots=True)
class LinearFeedForward:
    """One matrix in the place of a feed-forward."""

    hidden: int

    label: ClassVar[str] = "linear map"
    expert_parameters: ClassVar[int] = 0

    @property
    def parameters(self) -> int:
        """One matrix: h^2. [parameter]"""
        return self.hidden * self.hidden

    @property
    def active_parameters(self) -> int:
        """All of them."""
        return self.parameters


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
