"""Classes of accelerators: what a buyer would call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.hwdb.accelerator import Accelerator

# name -> which accelerators are of it; the first that holds counts
CLASSES: Final[dict[str, Callable[[Accelerator], bool]]] = {
    "Apple": lambda one: one.vendor == "apple",
    "GeForce": lambda one: one.vendor == "nvidia" and "geforce" in one.name.lower(),
    "Jetson and DGX Spark": lambda one: one.vendor == "nvidia" and (one.memory_type or "").lower().startswith("lpddr"),
    "RTX workstation": lambda one: one.vendor == "nvidia" and "rtx" in one.name.lower(),
    "NVIDIA data centre": lambda one: one.vendor == "nvidia",
    "AMD Instinct": lambda one: one.vendor == "amd" and "instinct" in one.name.lower(),
    "Radeon": lambda one: one.vendor == "amd",
}
OTHER: Final = "other"


def class_of(accelerator: Accelerator) -> str:
    """The class of an accelerator; `other` where it is of none.

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> [class_of(find_accelerator(name).accelerator) for name in ("rtx-4090", "h200-sxm", "apple-m2-ultra")]
    ['GeForce', 'NVIDIA data centre', 'Apple']
    """
    return next((name for name, holds in CLASSES.items() if holds(accelerator)), OTHER)
