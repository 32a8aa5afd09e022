"""Wrong values for the keys of a multimodal config, and whether its towers are still counted or cleanly refused."""

from __future__ import annotations

import json
from math import inf, nan
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roofcast.modelspec.towers import Reader

DEEP: Final[list[Any]] = json.loads("[" * 900 + "]" * 900)
BAD: Final[tuple[Any, ...]] = (
    DEEP,
    None,
    -1,
    0,
    1.5,
    nan,
    inf,
    10**400,
    True,
    "many",
    [],
    [1, [2]],
    {},
    {"a": {"b": 1}},
)


def entries(config: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Every place in a config: what holds it, its key, its value; lists are values."""
    for key, value in list(config.items()):
        yield config, key, value
        if isinstance(value, dict):
            yield from entries(value)


def is_clean(reader: Reader, config: Mapping[str, Any], hidden: int) -> bool:
    """Whether a reader answers with whole numbers, or refuses in one line."""
    try:
        towers = reader(config, hidden)
    except ModelError as error:
        return 0 < len(str(error)) < 300 and "\n" not in str(error)
    return all(type(tower.parameters) is int and tower.parameters >= 0 for tower in towers)
