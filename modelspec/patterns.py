"""Which layers slide where no key says it: patterns of single model classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.modelspec.plan import FULL, HYBRID, HYBRID_SLIDING, SLIDING, Slot, layer_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.modelspec.config import Config


def _inkling(config: Config, count: int) -> tuple[Slot, ...]:
    """Inkling: layers that local_layer_ids lists slide, else all but every sixth."""
    listed = config.raw.get("local_layer_ids")
    local = {n for n in range(count) if (n + 1) % 6} if listed is None else {*layer_numbers(config, "local_layer_ids")}
    return tuple(Slot((HYBRID_SLIDING,)) if layer in local else Slot((HYBRID,)) for layer in range(count))


def _dots(config: Config, count: int) -> tuple[Slot, ...]:
    """dots3 note: the first two layers are full, and every fourth from the second on."""
    slides = config.flag("use_sliding_window", default=True)
    full = (not slides or layer <= 1 or layer % 4 == 1 for layer in range(count))
    return tuple(Slot((FULL,)) if sees_all else Slot((SLIDING,)) for sees_all in full)


PATTERNS: Final[Mapping[str, Callable[[Config, int], tuple[Slot, ...]]]] = {"dots": _dots, "inkling": _inkling}
