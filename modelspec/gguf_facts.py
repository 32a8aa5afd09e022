"""What a GGUF file says of its model: metadata read by name and checked, and which blocks hold which tensors."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.strictjson import quoted, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.weights import Tensor

LARGEST: Final = 1_000_000_000  # of any size; beyond is a slip of the file, not a model
MOST_LAYERS: Final = 10_000
_BLOCK: Final = r"(?:dec\.)?blk\.(?P<layer>\d{1,6})\.(?P<part>.+)"  # an encoder's blocks are not the decoder's
_EXPERT: Final = r"(ffn_(?:gate|up|down))\.\d{1,6}\."  # files of early 2024 have a tensor for each expert


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """The metadata of one architecture, and the tensors beside it.

    Args:
        arch: general.architecture.
        metadata: every key of the file.
        shapes: of every tensor, rows before columns.
        parts: what blocks hold, `attn_q.bias`, and in which of them.
        layers: blocks of the decoder, those of multi-token prediction not counted.
        draft: blocks of multi-token prediction, which the file holds after the others.
    """

    arch: str
    metadata: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]] = field(repr=False)
    parts: Mapping[str, frozenset[int]] = field(repr=False)
    layers: int
    draft: int

    def stated(self, name: str) -> Any:  # noqa: ANN401 - as the file has it
        """A key of the architecture as it stands, None where the file has none."""
        return self.metadata.get(f"{self.arch}.{name}")

    def number(self, name: str, default: int | None = None) -> int | None:
        """A whole number that is not negative; one entry a layer counts where all are alike.

        Raises:
            MalformedModelError: anything else.
        """
        value = self.stated(name)
        if value is None:
            return default
        if isinstance(value, tuple):
            entries = set(self.each(name) or ())
            if len(entries) == 1:
                return entries.pop()
        return _whole(value, f"{self.arch}.{name}")

    def needed(self, name: str) -> int:
        """A whole number above 0 that the architecture cannot do without.

        Raises:
            MalformedModelError: absent, or no such number.
        """
        value = self.number(name)
        if not value:
            found = "is missing" if value is None else "is 0"
            msg = f"{self.arch}.{name} {found}; a GGUF file of this architecture needs it as a whole number above 0"
            raise MalformedModelError(msg)
        return value

    def each(self, name: str) -> tuple[int, ...] | None:
        """One whole number a layer, where the file states one for all as often as there are layers; None without.

        Raises:
            MalformedModelError: too few entries, or other values.
        """
        value, key = self.stated(name), f"{self.arch}.{name}"
        if value is None:
            return None
        if not isinstance(value, tuple):
            return (_whole(value, key),) * self.layers
        if len(value) < self.layers:
            msg = f"{key} has {len(value)} entries; it must have one for each of the {self.layers} layers"
            raise MalformedModelError(msg)
        return tuple(_whole(entry, key, flags=True) for entry in value[: self.layers])

    def heads(self) -> tuple[int, ...]:
        """Query heads of every layer.

        Raises:
            MalformedModelError: not stated.
        """
        found = self.each("attention.head_count")
        if found is None or not any(found):
            found_said = "is missing" if found is None else "is 0"
            msg = f"{self.arch}.attention.head_count {found_said}; a GGUF file of this architecture needs it"
            raise MalformedModelError(msg)
        return found

    def kv_heads(self) -> tuple[int, ...]:
        """KV heads of every layer, 0 where it has none; as many as query heads where the file does not say."""
        return self.each("attention.head_count_kv") or self.heads()

    def has(self, *parts: str) -> bool:
        """Whether any block of the decoder holds one of these parts."""
        return any(layer < self.layers for part in parts for layer in self.parts.get(part, ()))

    def blocks(self, *parts: str) -> frozenset[int]:
        """The decoder's blocks that hold one of these parts."""
        return frozenset(layer for part in parts for layer in self.parts.get(part, ()) if layer < self.layers)

    def size(self, part: str, dimension: int) -> int | None:
        """A dimension of a part in the first block that holds it; None where none does."""
        layers = self.blocks(part)
        shape = self.shapes.get(f"blk.{min(layers)}.{part}", ()) if layers else ()
        return shape[dimension] if -len(shape) <= dimension < len(shape) else None

    def rows(self, tensor: str) -> int | None:
        """Rows of a tensor outside the blocks; None where the file has none."""
        shape = self.shapes.get(tensor, ())
        return shape[0] if shape else None


def read_facts(arch: str, metadata: Mapping[str, Any], tensors: tuple[Tensor, ...]) -> GgufFacts:
    """The facts of a file, with its layers counted.

    `block_count` counts the blocks of multi-token prediction as well, `nextn_predict_layers` of them; where tensors
    are known, only last blocks with parts that join a draft, or that are left out of the file, are no decoder's.

    Raises:
        MalformedModelError: no layers, or more of multi-token prediction than there are.
    """
    key = f"{arch}.block_count"
    if metadata.get(key) is None:
        msg = f"{key} is missing; a GGUF file needs it as a whole number above 0"
        raise MalformedModelError(msg)
    blocks = _whole(metadata[key], key)
    draft_key = f"{arch}.nextn_predict_layers"
    draft = _whole(metadata.get(draft_key, 0), draft_key)
    if not 0 < blocks <= MOST_LAYERS:
        msg = f"{key} is {blocks}; it must be between 1 and {MOST_LAYERS}"
        raise MalformedModelError(msg)
    if draft >= blocks:
        msg = f"{draft_key} is {draft}; it must be less than {key}, {blocks}"
        raise MalformedModelError(msg)
    parts = _parts(tensors)
    layers, held = _decoder(parts, blocks, draft) if parts else (blocks - draft, draft)
    return GgufFacts(arch, metadata, {t.name: t.shape for t in tensors}, parts, layers, held)


def _decoder(parts: Mapping[str, frozenset[int]], blocks: int, draft: int) -> tuple[int, int]:
    """Blocks of the decoder, and those of multi-token prediction that the file holds.

    >>> _decoder({"attn_q.weight": frozenset({0, 1, 2}), "nextn.eh_proj.weight": frozenset({2})}, 3, 1)
    (2, 1)
    """
    last = range(blocks - draft, blocks)
    joined = {layer for part, layers in parts.items() if part.startswith("nextn.") for layer in layers & set(last)}
    if joined:
        return min(joined), blocks - min(joined)
    held = frozenset().union(*parts.values())
    return blocks - sum(layer not in held for layer in last), 0


def _parts(tensors: tuple[Tensor, ...]) -> dict[str, frozenset[int]]:
    """What blocks hold, and which of them do."""
    found: dict[str, set[int]] = {}
    for tensor in tensors:
        match = re.fullmatch(_BLOCK, tensor.name)
        if match:
            part = re.sub(_EXPERT, r"\1_exps.", match["part"])
            found.setdefault(part, set()).add(int(match["layer"]))
    return {part: frozenset(layers) for part, layers in found.items()}


def _whole(value: Any, key: str, *, flags: bool = False) -> int:  # noqa: ANN401 - as the file has it
    """A whole number from 0 on; with `flags` true and false count as 1 and 0.

    >>> _whole(32, "llama.block_count"), _whole(True, "gemma3n.attention.sliding_window_pattern", flags=True)
    (32, 1)
    """
    if isinstance(value, bool) and flags:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        shown = short(value) if isinstance(value, bool | int | float | str) else "a list"
        msg = f"{quoted(key)[1:-1]} is {shown}; it must be a whole number from 0 to {LARGEST}"
        raise MalformedModelError(msg)
    return value
