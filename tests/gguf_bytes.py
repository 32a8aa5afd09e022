"""GGUF files byte by byte, for tests of what no writer would write; the gguf package writes the sound ones."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.modelspec.ggml import BY_NAME
from tests.hub_server import Sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from roofcast.modelspec.weights import Tensor

TYPES: Final = {"B": 0, "b": 1, "H": 2, "h": 3, "I": 4, "i": 5, "f": 6, "?": 7, "Q": 10, "q": 11, "d": 12}
STRING, ARRAY = 8, 9
ROWS, BLOCKS = 3, 2  # of the tensors that `writer` writes


def u32(value: int) -> bytes:
    """Return a number of 4 bytes."""
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    """Return a number of 8 bytes."""
    return struct.pack("<Q", value)


def string(text: str | bytes) -> bytes:
    """Return a string after its length."""
    data = text if isinstance(text, bytes) else text.encode()
    return u64(len(data)) + data


def number(code: str, value: float) -> bytes:
    """Return a value of a type of numbers, the type before it."""
    return u32(TYPES[code]) + struct.pack(f"<{code}", value)


def numbers(code: str, values: Sequence[float]) -> bytes:
    """Return a list of numbers, its type before it."""
    packed = struct.pack(f"<{len(values)}{code}", *values)
    return u32(ARRAY) + u32(TYPES[code]) + u64(len(values)) + packed


def strings(values: Sequence[str]) -> bytes:
    """Return a list of strings, its type before it."""
    return u32(ARRAY) + u32(STRING) + u64(len(values)) + b"".join(map(string, values))


CODES: Final[dict[type, str]] = {bool: "?", int: "i", float: "f"}
# what converters make of a value; bytes are taken as they are
WRITERS: Final[dict[type, Callable[[Any], bytes]]] = {
    bytes: bytes,
    bool: lambda found: number("?", found),
    int: lambda found: number("I", found),
    float: lambda found: number("f", found),
    str: lambda found: u32(STRING) + string(found),
    list: lambda found: strings(found) if isinstance(found[0], str) else numbers(CODES[type(found[0])], found),
}


def tensor(name: str | bytes, kind: int, shape: Sequence[int], offset: int) -> bytes:
    """Return what the header says about a tensor; the shape is rows before columns."""
    sizes = b"".join(u64(size) for size in reversed(shape))
    return string(name) + u32(len(shape)) + sizes + u32(kind) + u64(offset)


def start(tensors: int, keys: int, version: int = 3) -> bytes:
    """Return the first 24 bytes."""
    return b"GGUF" + u32(version) + u64(tensors) + u64(keys)


def header(keys: Sequence[bytes] = (), tensors: Sequence[bytes] = (), version: int = 3) -> bytes:
    """Return a header of entries that are bytes already."""
    return start(len(tensors), len(keys), version) + b"".join(keys) + b"".join(tensors)


def key(name: str | bytes, found: Any) -> bytes:
    """Return a key and its value."""
    return string(name) + WRITERS[type(found)](found)


def gguf(
    tensors: Mapping[str, tuple[str, Sequence[int]]], metadata: Mapping[str, Any] | None = None, alignment: int = 32
) -> Sparse:
    """Return a file that holds tensors of zeros, by name: ggml type and shape, rows before columns."""
    entries, end = [], 0
    for name, (dtype, shape) in tensors.items():
        kind = BY_NAME[dtype]
        begin = -(-end // alignment) * alignment
        entries.append(tensor(name, kind.number, shape, begin))
        end = begin + math.prod(shape) // kind.block * kind.bytes
    keys = dict(metadata or {}) if alignment == 32 else {**(metadata or {}), "general.alignment": alignment}
    made = header([key(name, found) for name, found in keys.items()], entries)
    made += bytes(-len(made) % alignment)
    return Sparse(made, len(made) + -(-end // alignment) * alignment)


@dataclass
class Counted:
    """A source that notes what is asked of it; without a size where the size is not to be known."""

    data: bytes
    size: int | None = None
    where: str = "x.gguf"
    asked: list[tuple[int, int]] = field(default_factory=list)

    def read(self, first: int, count: int) -> bytes:
        """Return bytes, and note what was asked."""
        self.asked.append((first, count))
        return self.data[first : first + count]


def writer(path: Path, endianess: int = 0, **settings: Any) -> tuple[Any, Any]:
    """Return the gguf package and a writer of its own with tensors of every type and metadata of every kind."""
    package: Any = pytest.importorskip("gguf")
    numpy: Any = pytest.importorskip("numpy")
    made = package.GGUFWriter(str(path), "llama", endianess=package.GGUFEndian(endianess), **settings)
    for kind, (_, size) in package.GGML_QUANT_SIZES.items():
        made.add_tensor(f"blk.0.{kind.name}.weight", numpy.zeros((ROWS, BLOCKS * size), numpy.uint8), raw_dtype=kind)
    return package, made


def write(made: Any) -> None:
    """Let the gguf package write what it was told."""
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def every_type(package: Any) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Return name -> dtype, shape and bytes of the tensors that `writer` writes."""
    return {
        f"blk.0.{kind.name}.weight": (kind.name, (ROWS, BLOCKS * block), ROWS * BLOCKS * size)
        for kind, (block, size) in package.GGML_QUANT_SIZES.items()
    }


def as_read(tensors: tuple[Tensor, ...]) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Return the same of tensors that were read."""
    return {t.name: (t.dtype, t.shape, t.bytes) for t in tensors}
