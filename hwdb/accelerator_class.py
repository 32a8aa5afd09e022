"""Classes of accelerators: what a buyer would call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.hwdb.files import accelerator_files, read_accelerator

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.hwdb.accelerator import Accelerator

# name -> which accelerators are of it; the first that holds counts
CLASSES: Final[dict[str, Callable[[Accelerator], bool]]] = {
    "Apple": lambda one: one.vendor == "apple",
    "GeForce": lambda one: one.vendor == "nvidia" and "geforce" in one.name.lower(),
    "RTX workstation": lambda one: one.vendor == "nvidia" and "rtx" in one.name.lower(),
    "NVIDIA data centre": lambda one: one.vendor == "nvidia",
    "AMD Instinct": lambda one: one.vendor == "amd" and "instinct" in one.name.lower(),
    "Radeon": lambda one: one.vendor == "amd",
}
OTHER: Final = "other"


def class_of(identity: str) -> str:
    """The class of an accelerator by its id; `other` where none is known.

    >>> class_of("rtx-4090"), class_of("h200-sxm"), class_of("apple-m2-ultra")
    ('GeForce', 'NVIDIA data centre', 'Apple')
    """
    path = accelerator_files().get(identity)
    if path is None:
        return OTHER
    accelerator = read_accelerator(path)
    return next((name for name, holds in CLASSES.items() if holds(accelerator)), OTHER)
