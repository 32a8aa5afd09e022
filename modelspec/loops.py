"""Layers that a token passes several times (Inkling 2 Loop): weights once, a state of their own in every pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import MalformedModelError

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config

MOST_PASSES: Final = 1_000  # far above any model there is
GATES: Final = 4  # of queries, keys, values and the feed-forward
# what a loop_config states -> the key of a flat file
KEYS: Final[dict[str, str]] = {
    "core_start": "loop_layer_index_start",
    "core_end": "loop_layer_index_end",
    "num_passes": "loop_num_passes",
    "gate_rank": "loop_gate_rank",
}


@dataclass(frozen=True, slots=True)
class Loop:
    """Which layers are looped, how often, and the rank of the gates that mix in what the last pass says."""

    start: int
    end: int
    passes: int
    gate_rank: int

    def gate_parameters(self, hidden: int) -> int:
        """Gates and learned queries of messages in a looped layer: 4 (4 h r + h). [parameter]

        >>> Loop(6, 18, 3, 64).gate_parameters(2304)
        2368512
        """
        return GATES * (4 * hidden * self.gate_rank + hidden)


def loop_of(config: Config) -> Loop:
    """The loop as a config states it, under `loop_config` before flat keys.

    Raises:
        MalformedModelError: sizes absent, or layers that are not there or break up a block of the residual.
    """
    own = config.block("loop_config") if config.raw.get("loop_config") is not None else config
    sizes = (own.size(key) if own.raw.get(key) is not None else config.size(flat) for key, flat in KEYS.items())
    loop = Loop(*sizes)
    block, layers = config.size("n_layers_per_attn_res_block"), config.size("layers")
    if not loop.start < loop.end <= layers or loop.start % block or loop.end % block:
        msg = f"layers {loop.start} to {loop.end} are looped; these must be multiples of n_layers_per_attn_res_block {block}, in order, at most {layers}"
        raise MalformedModelError(msg)
    if loop.passes > MOST_PASSES:
        msg = f"looped layers are passed {loop.passes} times; it must be at most {MOST_PASSES} times"
        raise MalformedModelError(msg)
    return loop


def passes_of(config: Config, layer: int | None) -> int:
    """How many times a token passes one layer."""
    loop = _loop_around(config, layer)
    return loop.passes if loop else 1


def loop_parameters(config: Config, layer: int | None) -> int:
    """Weights that a layer has because it is looped; none where it is not. [parameter]"""
    loop = _loop_around(config, layer)
    return loop.gate_parameters(config.size("hidden")) if loop else 0


def _loop_around(config: Config, layer: int | None) -> Loop | None:
    """The loop that a layer is in; None where it is in none."""
    if not config.trait_value("loops") or layer is None:
        return None
    loop = loop_of(config)
    return loop if loop.start <= layer < loop.end else None
