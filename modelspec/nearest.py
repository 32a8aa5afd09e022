"""The valid names nearest to one that is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], count: int = 2, *, cutoff: float = 0.6) -> list[str]:
    """Up to `count` known names that resemble `name`, best first.

    >>> nearest("qwen25", ["qwen2", "llama"])
    ['qwen2']
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    return get_close_matches(name, known, n=count, cutoff=cutoff)
