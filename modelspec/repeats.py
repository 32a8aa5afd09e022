"""Which layer is what where a file states a pattern instead of every layer: RecurrentGemma's and GPT-Neo's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.plan import FULL, LINEAR, SLIDING, Slot, deciding_key, per_layer
from roofcast.modelspec.strictjson import short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.modelspec.config import Config

_PAIR: Final = 2  # a pattern and how often it comes
# key -> what its names mean: RecurrentGemma's attention always slides
_BLOCKS: Final = {"recurrent": Slot((LINEAR,)), "attention": Slot((SLIDING,))}
_REACH: Final = {"global": Slot((FULL,)), "local": Slot((SLIDING,))}
NAMES: Final[Mapping[str, Mapping[str, Slot]]] = {
    "block_types": _BLOCKS,
    "_block_types": _BLOCKS,
    "attention_layers": _REACH,
    "attention_types": _REACH,
}


def repeated_slots(config: Config, count: int) -> tuple[Slot, ...]:
    """Every layer, by the names of the pattern.

    Raises:
        MalformedModelError: no pattern, or one that does not fill the layers.
        UnknownArchitectureError: a name that is not understood.
    """
    key = deciding_key(config)
    names, known = _READERS[key](config, key, count), NAMES[key]
    strange = [name for name in names if not (isinstance(name, str) and name in known)]
    if strange:
        msg = f"{key} has {short(strange[0])}, which roofcast does not understand; it knows {', '.join(known)}"
        raise UnknownArchitectureError(msg)
    return tuple(known[name] for name in names)


def _cycled(config: Config, key: str, count: int) -> tuple[Any, ...]:
    """A list that begins anew at its end until all layers are named."""
    pattern = config.raw[key]
    if not isinstance(pattern, list):
        msg = f"{key} is {short(pattern)}; it must be a list of names, which repeats over the layers"
        raise MalformedModelError(msg)
    return tuple(pattern[layer % len(pattern)] for layer in range(count))


def _expanded(config: Config, key: str, count: int) -> tuple[Any, ...]:
    """Pairs of a list of names and how often it comes, one after the other."""
    pairs, names = config.raw[key], []
    for pair in pairs if isinstance(pairs, list) else [pairs]:
        pattern, times = pair if isinstance(pair, list) and len(pair) == _PAIR else (None, None)
        if not (isinstance(pattern, list) and pattern and type(times) is int and times >= 0):
            msg = f'{key} has {short(pair)}; it must list pairs like [["global", "local"], 12]'
            raise MalformedModelError(msg)
        names += pattern * min(times, count // len(pattern) + 1)  # one too many is as wrong as millions
    if len(names) != count:
        more = "more than " if len(names) > count else ""
        msg = f"{key} names {more}{min(len(names), count)} layers; it must name each of the {count} layers"
        raise MalformedModelError(msg)
    return tuple(names)


_READERS: Final[Mapping[str, Callable[[Config, str, int], tuple[Any, ...]]]] = {
    "block_types": _cycled,
    "_block_types": _cycled,
    "attention_layers": per_layer,
    "attention_types": _expanded,
}
