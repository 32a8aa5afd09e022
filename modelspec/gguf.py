"""The header of a GGUF file: its metadata and its tensors, read in pieces and hardly beyond where it ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.ggml import ggml_type
from roofcast.modelspec.gguf_cursor import FIRST_READ, MAX_STRING, Cursor
from roofcast.modelspec.strictjson import kind_of, quoted
from roofcast.modelspec.weights import MAX_TENSOR_NAME, MAX_TENSORS, Tensor, likely

if TYPE_CHECKING:
    from collections.abc import Mapping


class ByteSource(Protocol):
    """A file of which bytes can be asked for, here or elsewhere."""

    @property
    def where(self) -> str:
        """The file as messages name it."""

    @property
    def size(self) -> int | None:
        """Bytes of the whole file, None where it is not known (yet). [B]"""

    def read(self, first: int, count: int) -> bytes:
        """Return so many bytes from `first` on, fewer only where the file ends."""


@dataclass(frozen=True, slots=True)
class Held:
    """A file that is in memory already.

    >>> Held("x", b"abcdef").read(2, 3)
    b'cde'
    """

    where: str
    data: bytes

    @property
    def size(self) -> int:
        """Bytes of the file. [B]"""
        return len(self.data)

    def read(self, first: int, count: int) -> bytes:
        """Return so many bytes, fewer where the file ends."""
        return self.data[first : first + count]


@dataclass(frozen=True, slots=True)
class Long:
    """A value that is too long to be kept: tokens of a vocabulary, a tokenizer as one string.

    Args:
        type: of its elements: "string", "float32", "int32"...
        length: elements; bytes of a string. [B]
    """

    type: str
    length: int


Value = int | float | bool | str | tuple[int | float | bool, ...] | Long


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a GGUF file says before its data.

    Args:
        version: of the format, 2 or 3.
        metadata: key -> value; lists of strings, and whatever is long, only as how long it is.
        tensors: in the order of the file; a shape is as torch has it, rows before columns: GGUF's own, reversed.
        data_offset: where the data starts. [B]
    """

    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]
    data_offset: int


MAGIC: Final = b"GGUF"
START: Final = 24  # [B]: magic, version, tensors, keys
VERSIONS: Final = (2, 3)
ALIGNMENT: Final = "general.alignment"
DEFAULT_ALIGNMENT: Final = 32  # [B]
LEAST_ALIGNMENT: Final = 8  # [B], of the specification
MAX_NAME: Final = (1 << 16) - 1  # [B] of a key, of the specification
MAX_DIMENSIONS: Final = 4
MAX_KEYS: Final = 100_000
MAX_STRINGS: Final = 1 << 22  # of one list; the largest vocabularies have half a million merges
KEPT_NUMBERS: Final = 8192  # of one list; the longest that shape a model have an entry a layer
KEPT_TEXT: Final = 1 << 18  # [B] of one string
KEPT: Final = 1 << 22  # [B] of all values together
_LEAST_KEY: Final = 8 + 1 + 4 + 1  # [B]: length, name, type, value
_LEAST_TENSOR: Final = 8 + 4 + 4 + 8  # [B]: length of the name, dimensions, type, offset
_NO_SIZE: Final = 1 << 63
_STRING, _ARRAY, _BOOL = 8, 9, 7
# number in the file -> name, struct's code
_NUMBERS: Final[dict[int, tuple[str, str]]] = {
    0: ("uint8", "B"),
    1: ("int8", "b"),
    2: ("uint16", "H"),
    3: ("int16", "h"),
    4: ("uint32", "I"),
    5: ("int32", "i"),
    6: ("float32", "f"),
    _BOOL: ("bool", "B"),
    10: ("uint64", "Q"),
    11: ("int64", "q"),
    12: ("float64", "d"),
}
_BYTES: Final = {"B": 1, "b": 1, "H": 2, "h": 2, "I": 4, "i": 4, "f": 4, "Q": 8, "q": 8, "d": 8}


def read_gguf(source: ByteSource, chunk: int = FIRST_READ) -> GgufHeader:
    """Read the header of a GGUF file; bytes come in pieces, each twice the one before, and only until it ends.

    Args:
        source: the file.
        chunk: bytes to ask for first. [B]

    Raises:
        MalformedModelError: it is no GGUF file, cut short, of another version, or contradicts itself or its size.
        UndeterminedModelError: it is a Git LFS pointer, not the file.

    Source: ggml-org/ggml, docs/gguf.md; what llama.cpp refuses too: ggml/src/gguf.cpp.

    >>> empty = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)
    >>> read_gguf(Held("x.gguf", empty))
    GgufHeader(version=3, metadata={}, tensors=(), data_offset=32)
    """
    cursor = Cursor(source, chunk)
    start = cursor.start(START)
    _refuse_others(start, source.where)
    cursor.skip(len(MAGIC), "its start")
    version = _version(cursor)
    tensor_count = cursor.number("Q", "its start")
    key_count = cursor.number("Q", "its start")
    _refuse_more(key_count, MAX_KEYS, "keys", source.where)
    _refuse_more(tensor_count, MAX_TENSORS, "tensors", source.where)
    cursor.refuse_count(key_count, _LEAST_KEY, "keys")
    metadata = _metadata(cursor, key_count)
    alignment = _alignment(metadata, source.where)
    cursor.refuse_count(tensor_count, _LEAST_TENSOR, "tensors")
    placed = _tensors(cursor, tensor_count)
    data_offset = _aligned(cursor.position, alignment)
    end = _refuse_misplaced(placed, alignment, source.where)
    if placed and source.size is not None and data_offset + end > source.size:
        msg = f"{source.where}: cut short: {source.size:,} bytes, but its tensors end at byte {data_offset + end:,}"
        raise MalformedModelError(msg)
    return GgufHeader(version, metadata, tuple(tensor for tensor, _ in placed), data_offset)


def _refuse_others(start: bytes, where: str) -> None:
    if start.startswith(b"version "):
        msg = f"{where}: a Git LFS pointer, not the weights; fetch them with `git lfs pull`"
        raise UndeterminedModelError(msg)
    if start.startswith(MAGIC) and len(start) == START:
        return
    if MAGIC.startswith(start[: len(MAGIC)]):
        found = f"cut short: {len(start)} bytes; the start alone has {START}" if start else "it is empty"
        msg = f"{where}: {found}"
        raise MalformedModelError(msg)
    msg = f"{where}: not a GGUF file: it starts with {start[:4]!r}, which must be {MAGIC!r}{likely(start)}"
    raise MalformedModelError(msg)


def _version(cursor: Cursor) -> int:
    """The version, which also tells the order of all bytes: of a big-endian file it reads as if it were huge."""
    raw = cursor.take(4, "its start")
    if not any(raw[:2]) and any(raw[2:]):
        cursor.order = ">"
    version = int.from_bytes(raw, "big" if cursor.order == ">" else "little")
    if version not in VERSIONS:
        what = "convert the model again" if version == 1 else "no such version is known"
        msg = f"{cursor.source.where}: GGUF version {version:,}; 2 and 3 are read, {what}"
        raise MalformedModelError(msg)
    return version


def _metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    where = cursor.source.where
    metadata: dict[str, Value] = {}
    room = KEPT
    for index in range(count):
        nameless = f"the name of key {index}"
        name = cursor.text(cursor.length(MAX_NAME, nameless), nameless)
        if not name:
            msg = f"{where}: key {index} has no name; every key must have one"
            raise MalformedModelError(msg)
        what = f"key {quoted(name)}"
        if name in metadata:
            msg = f"{where}: {what} occurs twice; it must occur once"
            raise MalformedModelError(msg)
        before = cursor.position
        metadata[name] = value = _value(cursor, what, room)
        room -= 0 if isinstance(value, Long) else cursor.position - before
    return metadata


def _value(cursor: Cursor, what: str, room: int) -> Value:
    kind = cursor.number("I", what)
    if kind == _ARRAY:
        return _array(cursor, what, room)
    if kind == _STRING:
        length = cursor.length(MAX_STRING, what)
        if length <= min(KEPT_TEXT, room):
            return cursor.text(length, what)
        cursor.skip(length, what)
        return Long("string", length)
    name, code = _number_type(cursor, kind, what)
    (value,) = _numbers(cursor, name, code, 1, what)
    return value


def _array(cursor: Cursor, what: str, room: int) -> Value:
    kind, count = cursor.number("I", what), cursor.number("Q", what)
    if kind == _ARRAY:
        msg = f"{cursor.source.where}: {what} is a list of lists; llama.cpp reads lists of numbers and strings only"
        raise MalformedModelError(msg)
    if kind == _STRING:
        _refuse_more(count, MAX_STRINGS, f"strings in {what}", cursor.source.where)
        cursor.refuse_count(count, 8, f"strings in {what}")
        cursor.skip_strings(count, what)
        return Long("string", count)
    name, code = _number_type(cursor, kind, what)
    cursor.refuse_count(count, _BYTES[code], f"numbers in {what}")
    if count > KEPT_NUMBERS or count * _BYTES[code] > room:
        cursor.skip(count * _BYTES[code], what)
        return Long(name, count)
    return _numbers(cursor, name, code, count, what)


def _number_type(cursor: Cursor, kind: int, what: str) -> tuple[str, str]:
    if kind not in _NUMBERS:
        known = ", ".join(f"{number} {name}" for number, (name, _) in _NUMBERS.items())
        msg = f"{cursor.source.where}: {what} has a value of type {kind:,}; known: {known}, 8 string, 9 array"
        raise MalformedModelError(msg)
    return _NUMBERS[kind]


def _numbers(cursor: Cursor, name: str, code: str, count: int, what: str) -> tuple[int | float | bool, ...]:
    values = cursor.numbers(code, count, what)
    if name != "bool":
        return values
    if any(value > 1 for value in values):
        msg = f"{cursor.source.where}: {what} is a bool of {max(values)}; it must be 0 or 1"
        raise MalformedModelError(msg)
    return tuple(value == 1 for value in values)


def _alignment(metadata: Mapping[str, Value], where: str) -> int:
    value = metadata.get(ALIGNMENT, DEFAULT_ALIGNMENT)
    if type(value) is not int or value < LEAST_ALIGNMENT or value & (value - 1):
        shown = value if type(value) is int else kind_of(value)
        msg = f"{where}: {ALIGNMENT} is {shown}; it must be a power of two from {LEAST_ALIGNMENT} on"
        raise MalformedModelError(msg)
    return value


def _tensors(cursor: Cursor, count: int) -> list[tuple[Tensor, int]]:
    """Tensors and where each starts in the data."""
    where = cursor.source.where
    placed = []
    names = set()
    for index in range(count):
        nameless = f"the name of tensor {index}"
        name = cursor.text(cursor.length(MAX_TENSOR_NAME, nameless), nameless)
        what = f"tensor {quoted(name)}"
        if name in names:
            msg = f"{where}: {what} occurs twice; it must occur once"
            raise MalformedModelError(msg)
        names.add(name)
        rank = cursor.number("I", what)
        if rank > MAX_DIMENSIONS:
            msg = f"{where}: {what} has {rank:,} dimensions; at most {MAX_DIMENSIONS} are possible"
            raise MalformedModelError(msg)
        shape = tuple(int(n) for n in cursor.numbers("Q", rank, what))[::-1]
        kind = ggml_type(cursor.number("I", what), f"{where}: {what}")
        tensor = Tensor(name, kind.name, shape)
        _refuse_shape(tensor, kind.block, f"{where}: {what}")
        placed.append((tensor, cursor.number("Q", what)))
    return placed


def _refuse_shape(tensor: Tensor, block: int, what: str) -> None:
    shape = list(tensor.shape)
    row = shape[-1] if shape else 1
    if 0 in shape:
        msg = f"{what} has the shape {shape}; every dimension must be 1 or more"
    elif math.prod(shape) >= _NO_SIZE or tensor.bytes >= _NO_SIZE:
        msg = f"{what} has the shape {shape}; no file holds so many elements"
    elif row % block:
        msg = f"{what} has rows of {row:,}, but {tensor.dtype} stores blocks of {block}; a row must be whole blocks"
    else:
        return
    raise MalformedModelError(msg)


def _refuse_misplaced(placed: list[tuple[Tensor, int]], alignment: int, where: str) -> int:
    """Refuse tensors that overlap or leave holes; return where the last one ends in the data. [B]"""
    end = 0
    for tensor, begin in sorted(placed, key=lambda pair: pair[1]):
        what = f"{where}: tensor {quoted(tensor.name)} starts at byte {begin:,} of the data"
        if begin % alignment:
            msg = f"{what}, which must be a multiple of {alignment}"
            raise MalformedModelError(msg)
        if begin != (expected := _aligned(end, alignment)):
            problem = "overlaps the tensor before it" if begin < end else "leaves a hole before it"
            msg = f"{what} and {problem} (expected {expected:,})"
            raise MalformedModelError(msg)
        end = begin + tensor.bytes
    return end


def _aligned(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


def _refuse_more(count: int, most: int, what: str, where: str) -> None:
    if count > most:
        msg = f"{where}: claims {count:,} {what}; at most {most:,} are possible"
        raise MalformedModelError(msg)
