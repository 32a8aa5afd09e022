"""What a multimodal model holds beside its text model: towers and projectors, counted from their shapes.

A wrapper's config.json has one block a tower (`vision_config`) and a text model, nested or flat. Each wrapper
class has a reader that lists its towers; the pieces that readers share stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final, TypeGuard

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.strictjson import quoted
from roofcast.modelspec.tower import Tower

# Far above any tower there is; a size beyond is a slip of the file, not a model.
LARGEST: Final = 100_000_000
LISTED: Final = 4  # entries of a wrong list that an error repeats
_SHOWN: Final = 40  # digits of a wrong number that it repeats


# (config.json, hidden size of its text model) -> what the wrapper holds beside the text model
Reader = Callable[[Mapping[str, Any], int], tuple[Tower, ...]]


@dataclass(frozen=True, slots=True)
class TowerClass:
    """What a tower's class fixes in code and its block need not say.

    Args:
        types: values of the block's `model_type` that mean this class, as an absent or empty one does; none of them
            where the wrapper takes any.
        defaults: values of the keys that a block may leave out; None where null means something.
        aliases: other names of a key, and the key.
    """

    types: tuple[str, ...]
    defaults: Mapping[str, Any]
    aliases: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a config.json, completed with the defaults of its class; empty `name` is the file's top.

    >>> block = Block("vision_config", {"depth": 12, "bias": False})
    >>> block.size("depth"), block.flag("bias")
    (12, False)
    >>> Block("vision_config", {"depth": True}).size("depth")
    Traceback (most recent call last):
    roofcast.modelspec.errors.MalformedModelError: vision_config.depth is True; it must be a whole number from 1 to 100000000
    """

    name: str
    values: Mapping[str, Any] = field(repr=False)

    def where(self, key: str) -> str:
        """The key as an error names it: `vision_config.depth`."""
        return f"{self.name}.{key}" if self.name else key

    def wrong(self, key: str, right: str) -> MalformedModelError:
        """The error for a value that cannot be: what it is and what would be right."""
        shown = _shown(self.values[key]) if key in self.values else "missing"
        return MalformedModelError(f"{self.where(key)} is {shown}; it must be {right}")

    def size(self, key: str, least: int = 1) -> int:
        """A whole number of at least `least`.

        Raises:
            MalformedModelError: absent, null, of another kind, too small or absurdly large.
        """
        value = self.values.get(key)
        if not _is_size(value, least):
            raise self.wrong(key, f"a whole number from {least} to {LARGEST}")
        return value

    def sizes(self, key: str, count: int) -> tuple[int, ...]:
        """`count` whole numbers above 0, where one number stands for all of them.

        Raises:
            MalformedModelError: neither a number nor a list of `count`.
        """
        value = self.values.get(key)
        listed = list(value) if isinstance(value, (list, tuple)) else [value] * count
        numbers = tuple(entry for entry in listed if _is_size(entry, 1))
        if len(listed) != count or len(numbers) != count:
            raise self.wrong(key, f"a whole number above 0 or a list of {count}")
        return numbers

    def listed(self, key: str) -> tuple[int, ...]:
        """A list of at least one whole number, each above 0.

        Raises:
            MalformedModelError: not a list, empty, or of anything else.
        """
        value = self.values.get(key)
        if not isinstance(value, (list, tuple)) or not value:
            raise self.wrong(key, "a list of whole numbers above 0")
        return self.sizes(key, len(value))

    def indexes(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers.

        Raises:
            MalformedModelError: not a list, or not of whole numbers.
        """
        value = self.values.get(key)
        if not isinstance(value, (list, tuple)) or not all(type(entry) is int for entry in value):
            raise self.wrong(key, "a list of whole numbers")
        return tuple(value)

    def number(self, key: str) -> float:
        """A number above 0.

        Raises:
            MalformedModelError: another kind, not finite, not above 0 or absurdly large.
        """
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LARGEST:
            raise self.wrong(key, "a number above 0")
        return float(value)

    def flag(self, key: str) -> bool:
        """A true or false.

        Raises:
            MalformedModelError: neither.
        """
        value = self.values.get(key)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def name_of(self, key: str, known: tuple[str, ...]) -> str:
        """A name that must be among those known.

        Raises:
            UnknownArchitectureError: any other.
        """
        value = self.values.get(key)
        if not isinstance(value, str) or value not in known:
            raise UnknownArchitectureError(
                f"{self.where(key)} is {_shown(value)}, which roofcast does not understand; it knows {', '.join(known)}"
            )
        return value


def read_block(config: Mapping[str, Any], key: str, known: TowerClass) -> Block:
    """The block under a key, completed with its class's defaults; an absent or null block is all defaults.

    Raises:
        MalformedModelError: a block that is no mapping, or two names of one key that disagree.
        UnknownArchitectureError: a `model_type` of another class.

    >>> tower = TowerClass(("vit",), {"depth": 32, "width": 64}, {"num_hidden_layers": "depth"})
    >>> read_block({"vision_config": {"num_hidden_layers": 2}}, "vision_config", tower).values
    {'depth': 2, 'width': 64}
    """
    raw = config.get(key)
    if raw is not None and not isinstance(raw, Mapping):
        raise MalformedModelError(f"{key} is {_shown(raw)}; it must be a mapping of names to values")
    stated = dict(raw or {})
    kind = stated.pop("model_type", None)
    if known.types and kind not in (None, "", *known.types):
        raise UnknownArchitectureError(
            f"{key}.model_type is {_shown(kind)}, which roofcast does not understand here; "
            f"it knows {', '.join(known.types)}"
        )
    for alias, name in known.aliases.items():
        if alias in stated:
            value = stated.pop(alias)
            if name in stated and not _same(stated[name], value):
                raise MalformedModelError(
                    f"{key}.{alias} is {_shown(value)} but {name} is {_shown(stated[name])}; they mean the same and must agree"
                )
            stated[name] = value
    return Block(key, {**known.defaults, **stated})


def top_block(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Block:
    """The top of a config.json as a block, completed with the wrapper class's defaults.

    >>> top_block({"projector_bias": True}, {"projector_bias": False}).flag("projector_bias")
    True
    """
    return Block("", {**defaults, **config})


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """Parameters of one matrix: inputs * outputs + outputs for its bias.

    >>> linear(4, 3), linear(4, 3, bias=False)
    (15, 12)
    """
    return inputs * outputs + outputs * bias


def norm(width: int, *, bias: bool = True) -> int:
    """Parameters of one normalisation: a weight and, for LayerNorm, a bias a channel.

    >>> norm(8), norm(8, bias=False)
    (16, 8)
    """
    return width * (1 + bias)


def attention(
    width: int, heads_width: int, kv_width: int, *, bias: bool = True, output_bias: bool | None = None
) -> int:
    """Parameters of one attention: query, key, value and output; `heads_width` is heads * head size.

    >>> attention(8, 8, 8), attention(8, 8, 8, bias=False)
    (288, 256)
    """
    last = bias if output_bias is None else output_bias
    queries = linear(width, heads_width, bias=bias)
    return queries + 2 * linear(width, kv_width, bias=bias) + linear(heads_width, width, bias=last)


def feed_forward(width: int, inner: int, *, gated: bool = False, bias: bool = True) -> int:
    """Parameters of one feed-forward: up and down, and a gate beside up where gated.

    >>> feed_forward(4, 8), feed_forward(4, 8, gated=True, bias=False)
    (76, 96)
    """
    return linear(width, inner, bias=bias) * (1 + gated) + linear(inner, width, bias=bias)


def encoder_layer(width: int, inner: int, *, gated: bool = False, rms: bool = False) -> int:
    """Parameters of one layer of a vision transformer: attention, feed-forward, all biases, and two norms.

    >>> encoder_layer(8, 16) == attention(8, 8, 8) + feed_forward(8, 16) + 2 * norm(8)
    True
    """
    return attention(width, width, width) + feed_forward(width, inner, gated=gated) + 2 * norm(width, bias=not rms)


def pair(tower: int, projector: int, name: str = "vision") -> tuple[Tower, ...]:
    """A tower of that name and its projector."""
    return Tower(name, tower), Tower(f"{name} projector", projector)


def width_of(block: Block, key: str = "hidden_size", heads: str = "num_attention_heads") -> int:
    """A tower's width; heads cost no parameters of their own, but a width that they do not divide is no tower.

    Raises:
        MalformedModelError: the heads do not divide it.
    """
    width = block.size(key)
    if width % block.size(heads):
        raise block.wrong(key, f"a multiple of {block.where(heads)}, {block.size(heads)}")
    return width


def patch_embedding(channels: int, width: int, kernel: tuple[int, ...], *, bias: bool = True) -> int:
    """Parameters of the convolution that makes one vector of a patch: channels * kernel area * width, and a bias.

    >>> patch_embedding(3, 8, (2, 14, 14), bias=False)
    9408
    """
    return linear(channels * prod(kernel), width, bias=bias)


def unshuffled(config: Mapping[str, Any]) -> int:
    """How many pixels a side become one: the reciprocal of `downsample_ratio`, rounded down.

    >>> unshuffled({}), unshuffled({"downsample_ratio": 0.25})
    (2, 4)
    """
    top = top_block(config, {"downsample_ratio": 0.5})
    ratio = top.number("downsample_ratio")
    if not 1 / LARGEST <= ratio <= 1:
        raise top.wrong("downsample_ratio", "a number above 0 and at most 1")
    return int(1 / ratio)


def _is_size(value: object, least: int) -> TypeGuard[int]:
    return type(value) is int and least <= value <= LARGEST


def _same(one: object, other: object) -> bool:
    # no key with two names holds a container, and comparing deeply nested ones would not end well
    return not isinstance(one, (list, tuple, Mapping)) and type(one) is type(other) and one == other


def _shown(value: object) -> str:
    # nested containers by kind alone: the text of a deep one would not end well
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        flat = not any(isinstance(entry, (list, tuple, Mapping)) for entry in value[:LISTED])
        more = ", ..." if len(value) > LISTED else ""
        return f"[{', '.join(_shown(entry) for entry in value[:LISTED])}{more}]" if flat else "a list of lists"
    if isinstance(value, int) and abs(value) > 10**_SHOWN:
        return "a huge number"  # Python refuses to write out the longest ones
    return quoted(value) if isinstance(value, str) else repr(value)
