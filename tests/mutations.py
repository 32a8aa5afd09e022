"""Makes broken configs of real ones: a seeded stream of small changes, alone or two at once, at any depth."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tests.model_configs import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Path = tuple[str | int, ...]
    Change = Callable[[Any, random.Random], Any]

DEPTH: Final = 4  # how deep changes go
ENTRIES: Final = 6  # of a list, that are changed themselves
DEEP: Final = 200  # lists in lists, well within what a JSON reader takes
GRAFTED: Final = 0.1  # share of changes that are a key of another model
NESTED: Final = 0.25  # share of changes inside a block, of which there are few
BLOCKS: Final = (
    "text_config",
    "vision_config",
    "linear_attn_config",
    "sparse_attention_config",
    "block_configs",
    "quantization_config",
)


def _number(value: Any) -> int:
    return value if type(value) is int and abs(value) < 10**18 else 1


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, str)) else [value]


def _garbled(value: Any, rng: random.Random) -> list[Any]:
    entries = _list(value) or [0]
    entries[rng.randrange(len(entries))] = rng.choice((None, -1, 10**30, "", "full_attention", 1.5, [], {}, True))
    return entries


def _deep(value: Any, _: random.Random) -> Any:
    for _level in range(DEEP):
        value = [value]
    return value


# what a change makes of a value
CHANGES: Final[dict[str, Change]] = {
    "drop": lambda _, __: MISSING,
    "null": lambda _, __: None,
    "string": lambda value, rng: rng.choice(("", "x\ny", "auto", str(value)[:50], "x" * 10_000)),
    "list": lambda value, _: [value],
    "empty list": lambda _, __: [],
    "object": lambda value, _: {"value": value},
    "empty object": lambda _, __: {},
    "float object": lambda _, __: {"__float__": "Infinity"},
    "true": lambda _, __: True,
    "false": lambda _, __: False,
    "float": lambda value, _: _number(value) + 0.5,
    "whole float": lambda value, _: float(min(_number(value), 10**9)),
    "NaN": lambda _, __: float("nan"),
    "Infinity": lambda _, rng: rng.choice((float("inf"), float("-inf"))),
    "negative": lambda value, _: -_number(value),
    "zero": lambda _, __: 0,
    "huge": lambda _, rng: rng.choice((10**30, -(10**30), 2**63, 10**4000)),
    "large": lambda _, rng: rng.choice((9_999, 99_999, 99_999_999)),
    "one more": lambda value, _: _number(value) + 1,
    "one less": lambda value, _: _number(value) - 1,
    "another": lambda _, rng: rng.randrange(1, 300),
    "truncated": lambda value, _: _list(value)[:-1],
    "extended": lambda value, _: _list(value) * 2,
    "reversed": lambda value, _: _list(value)[::-1],
    "garbled": _garbled,
    "deep": _deep,
}


def paths(config: Any, depth: int = DEPTH) -> Iterator[Path]:
    """Where a config can be changed: its keys, those of nested blocks, and the first entries of lists."""
    entries = config.items() if isinstance(config, dict) else enumerate(config[:ENTRIES])
    for key, value in entries:
        yield (key,)
        if depth > 1 and isinstance(value, (dict, list)) and len(value) < 1000:
            yield from ((key, *rest) for rest in paths(value, depth - 1))


def at(config: Any, path: Path) -> Any:
    """Return the value at a path."""
    for key in path:
        config = config[key]
    return config


def placed(config: Any, path: Path, value: Any) -> Any:
    """Return the config with another value at a path, or without it; only what lies on the path is copied."""
    key, *rest = path
    copy = config.copy()
    new = placed(config[key], tuple(rest), value) if rest else value
    if new is MISSING:
        del copy[key]
    else:
        copy[key] = new
    return copy


def mutants(config: dict[str, Any], others: list[dict[str, Any]], seed: str, count: int) -> Iterator[tuple[str, Any]]:
    """Yield `count` changed configs, each with what was done to it; the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - the same stream every time is the point
    every = list(paths(config))
    nested = [path for path in every if path[0] in BLOCKS] or every
    for _ in range(count):
        said, changed = [], config
        for _change in range(rng.choice((1, 1, 2))):
            if rng.random() < GRAFTED:
                key, value = rng.choice(list(rng.choice(others).items()))
                said.append(f"{key} of another model")
                changed = {**changed, key: value}
                continue
            path = rng.choice(nested if rng.random() < NESTED else every)
            name, change = rng.choice(list(CHANGES.items()))
            try:
                changed = placed(changed, path, change(at(changed, path), rng))
            except (KeyError, IndexError, TypeError, AttributeError):
                continue  # the first change took it away
            said.append(f"{'.'.join(map(str, path))}: {name}")
        yield ", ".join(said), changed
