"""Reads a config.json: facts by key, under every alias, each checked, none guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.families import DENSE_AT_ZERO, POSITIVE, find_family
from roofcast.modelspec.family import Family, Trait
from roofcast.modelspec.features import check_features
from roofcast.modelspec.formats import TORCH_DTYPES
from roofcast.modelspec.keys import (
    ALIASES,
    DIFFERENT_BY_DESIGN,
    ROLE_FACTS,
    UNREAD,
    is_off,
    not_understood,
)
from roofcast.modelspec.reading import as_read
from roofcast.modelspec.strictjson import quoted, short

# Far above any model there is; a size beyond is a slip of the file, not a model.
LARGEST: Final[dict[str, int]] = {"layers": 10_000, "query_heads": 100_000, "kv_heads": 100_000, "experts": 100_000}
LARGEST_SIZE: Final = 100_000_000
FACT_OF: Final = {name: fact for fact, names in ALIASES.items() for name in names}
# facts that a file may state as 0 for none, and those that it may list layer by layer
LAYER_LISTS: Final = ("layer_types", "layers_block_type", "hybrid_override_pattern", "block_configs")
ZERO_IS_NONE: Final = frozenset({"experts", "shared_experts", "shared_width", "sliding_window"})
PER_LAYER: Final = frozenset({"experts", "top_k", "expert_width", "shared_experts"})
LISTED: Final = 8  # names that an error spells out


@dataclass(frozen=True, slots=True)
class Config:
    """A config.json of one model class, read by fact instead of by key.

    Args:
        raw: the file's keys, completed with the class defaults.
        family: what the model class fixes in code.
        model_type: the class's name as the file states it; empty where it states none.
        known: whether the class is in the table of families.
        present: keys that the file itself has.
        unread: keys that say something, but not to this class.
    """

    raw: Mapping[str, Any]
    family: Family
    model_type: str
    known: bool
    present: frozenset[str] = field(repr=False)
    unread: tuple[str, ...] = ()

    def value(self, fact: str) -> Any:  # noqa: ANN401 - JSON
        """The value of a fact under whichever alias the file has, None where absent or null.

        Raises:
            MalformedModelError: where two aliases are present and disagree.
        """
        found = [(key, self.raw[key]) for key in self.keys_of(fact) if self.raw.get(key) is not None]
        if not found:
            return None
        key, value = found[0]
        if fact not in DIFFERENT_BY_DESIGN and fact not in self.family.names:
            for other, theirs in found[1:]:
                if theirs != value and other not in UNREAD and not isinstance(theirs, (list, dict)):
                    msg = f"{key} is {short(value)} but {other} is {short(theirs)}; they mean the same and must agree"
                    raise MalformedModelError(msg)
        return value

    def keys_of(self, fact: str) -> tuple[str, ...]:
        """Every name of a fact, in order: the class's own, else the usual ones."""
        return self.family.names.get(fact) or ALIASES.get(fact, (fact,))

    def key_of(self, fact: str) -> str:
        """The alias that the file uses, or the usual name."""
        names = self.keys_of(fact)
        return next((key for key in names if self.raw.get(key) is not None), names[0])

    def names_of(self, fact: str) -> str:
        """The fact's usual name and its others, for an error that misses it."""
        first, *others = self.keys_of(fact)
        return f"{first} (or {', '.join(others)})" if others else first

    def size(self, fact: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of at least `least`; `default` where the file has none.

        Raises:
            MalformedModelError: absent without a default, not a whole number, too small or absurdly large.
        """
        value = self.value(fact)
        key = self.key_of(fact)
        if value is None:
            if default is None:
                msg = f"{self.names_of(fact)} is missing; a config.json needs it as a whole number above 0"
                raise MalformedModelError(msg)
            return default
        if fact in PER_LAYER and isinstance(value, list) and value and all(entry == value[0] for entry in value):
            value = value[0]  # one entry a layer, all alike
        if isinstance(value, bool) or not isinstance(value, int):
            msg = f"{key} is {short(value)}; it must be a whole number"
            raise MalformedModelError(msg)
        limit = LARGEST.get(fact, LARGEST_SIZE)
        if not least <= value <= limit:
            msg = f"{key} is {short(value)}; it must be between {least} and {limit}"
            raise MalformedModelError(msg)
        return value

    def optional_size(self, fact: str) -> int | None:
        """A whole number above 0, or None where the fact is absent or null, and zero where zero means none."""
        value = self.value(fact)
        off = value is None or (fact in ZERO_IS_NONE and value == 0 and type(value) is int)
        return None if off else self.size(fact)

    def has(self, feature: str) -> bool:
        """Whether the class understands a feature's keys; of an unknown class every key counts."""
        return not self.known or feature in self.family.has or bool(getattr(self.family, feature, False))

    def block(self, key: str) -> Config:
        """The object nested under a key, read as this config is.

        Raises:
            MalformedModelError: it is no object.
        """
        value = self.raw.get(key)
        if not isinstance(value, Mapping):
            msg = f"{key} is {short(value)}; it must be an object"
            raise MalformedModelError(msg)
        return replace(self, raw=value, present=present_keys(value))

    def as_role(self, role: str) -> Config:
        """The config as layers of one role see it: a sliding or full layer may have heads and widths of its own."""
        own = {}
        for fact, feature, keys in ROLE_FACTS.get(role, ()):
            value = next((self.raw[key] for key in keys if self.raw.get(key) is not None), None)
            if value is not None and self.has(feature):
                own[ALIASES.get(fact, (fact,))[0]] = value
        return replace(self, raw={**self.raw, **own}) if own else self

    def trait_value(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - of the table's row
        """What the class fixes in code for one kind, by name."""
        return self.family.constants.get(name, default)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """A true or false.

        Raises:
            MalformedModelError: neither.
        """
        value = self.raw.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            msg = f"{key} is {short(value)}; it must be true or false"
            raise MalformedModelError(msg)
        return value

    def trait(self, trait: Trait) -> bool:
        """A trait of the class: fixed, or as the key that it names decides; a | stands between several keys."""
        return any(self.flag(key) for key in trait.split("|")) if isinstance(trait, str) else trait

    def names(self, key: str, allowed: Mapping[str, Any], count: int) -> tuple[str, ...] | None:
        """A list of `count` names, one a layer, each of those allowed; None where the key is absent.

        Raises:
            MalformedModelError: not a list, or of another length.
            UnknownArchitectureError: a name that is not understood.
        """
        value = self.raw.get(key)
        if is_off(value):
            return None
        if not isinstance(value, list) or len(value) != count:
            length = len(value) if isinstance(value, list) else short(value)
            msg = f"{key} has {length} entries; it must list one for each of the {count} layers"
            raise MalformedModelError(msg)
        strange = sorted({str(name) for name in value if str(name) not in allowed})
        if strange:
            msg = f"{key} has {listed(strange)}, which roofcast does not understand; it knows {', '.join(allowed)}"
            raise UnknownArchitectureError(msg)
        return tuple(str(name) for name in value)

    def dtype(self) -> str | None:
        """The stored format that the file states, None where it states none.

        Raises:
            MalformedModelError: a dtype that torch does not have.
        """
        value = self.value("dtype")
        if value is None or value == "auto":
            return None
        name = str(value).removeprefix("torch.")
        if name not in TORCH_DTYPES:
            msg = f"{self.key_of('dtype')} is {short(value)}; known: {', '.join(TORCH_DTYPES)}"
            raise MalformedModelError(msg)
        return TORCH_DTYPES[name]


def read_config(raw: Mapping[str, Any]) -> Config:
    """Recognises the model class and completes its defaults.

    Raises:
        MalformedModelError: `model_type` is no name.
        UnknownArchitectureError: keys that shape memory or work and are not understood.

    >>> read_config({"model_type": "qwen3", "num_key_value_heads": 8}).size("head_dim")
    128
    """
    model_type = raw.get("model_type", "")
    if not isinstance(model_type, str):
        msg = f"model_type is {short(model_type)}; it must be a name"
        raise MalformedModelError(msg)
    found = find_family(model_type)
    known = found is not None
    strange = not_understood(raw, known_class=known)
    if strange:
        what = f"model_type {quoted(model_type)}" if model_type else "a config without model_type"
        msg = f"{what} has keys that roofcast does not understand: {listed(strange)}"
        raise UnknownArchitectureError(msg)
    family = found or Family()
    check_features(_completed(raw, family, model_type, known=known))
    kept, unread = as_read(raw, model_type, family.reads)
    config = replace(_completed(kept, family, model_type, known=known), unread=unread)
    _check_needs(config)
    return config


def _completed(raw: Mapping[str, Any], family: Family, model_type: str, *, known: bool) -> Config:
    """The config with its class's defaults; an explicit null stays null: q_lora_rank null is no query latent."""
    completed = {**_counted_layers(raw), **without_stated(family.defaults, raw), **raw}
    return Config(completed, family, model_type, known, present_keys(raw))


def _counted_layers(raw: Mapping[str, Any]) -> dict[str, int]:
    """The number of layers where only a list of them tells it."""
    if any(raw.get(name) is not None for name in ALIASES["layers"]):
        return {}
    lists = (raw.get(key) for key in LAYER_LISTS)
    return next(
        ({"num_hidden_layers": len(listing)} for listing in lists if isinstance(listing, (list, str)) and listing), {}
    )


def without_stated(defaults: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Those defaults whose fact the file states under no name."""
    stated = {fact for fact, names in ALIASES.items() if any(name in raw for name in names)}
    return {key: value for key, value in defaults.items() if key not in raw and FACT_OF.get(key) not in stated}


def present_keys(raw: Mapping[str, Any]) -> frozenset[str]:
    """Keys with a value."""
    return frozenset(key for key, value in raw.items() if value is not None)


def _check_needs(config: Config) -> None:
    """Refuses a file without a size that its class needs: the class would fill in that of one particular model."""
    for fact in config.family.needs:
        keys = config.keys_of(fact)
        given = [config.raw[key] for key in keys if key in config.raw]
        null_counts = fact in {"kv_heads", "shared_experts"}  # as many as query heads, and none
        zero_counts = fact not in POSITIVE or config.model_type in DENSE_AT_ZERO
        if any((null_counts or value is not None) and (zero_counts or value != 0) for value in given):
            continue
        what = "is missing" if not given else f"is {short(given[0])}"
        msg = f"{config.names_of(fact)} {what}; a config of model_type {quoted(config.model_type)} needs it"
        raise MalformedModelError(msg)


def listed(names: Sequence[str]) -> str:
    r"""A stranger's names for an error message: on one line, and not more than a line bears.

    >>> print(listed(["mamba_d_state", "a\nb", *"cdefghij"]))
    mamba_d_state, 'a\nb', c, d, e, f, g, h and 2 more
    """
    shown = [name if re.fullmatch(r"[\w.-]{1,60}", name) else quoted(name) for name in names[:LISTED]]
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(shown) + more
