"""Thousands of broken headers: each is read or refused in one line, within what its file may be asked for."""

from __future__ import annotations

import io
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.folder import read_header
from roofcast.modelspec.ggml import GGML_TYPES
from roofcast.modelspec.gguf import read_gguf
from roofcast.modelspec.gguf_cursor import MAX_HEADER
from roofcast.modelspec.weights import DTYPE_BITS, Tensor
from tests.gguf_bytes import Counted, gguf, number
from tests.hub_server import safetensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Change = Callable[[bytearray, random.Random, bytes], None]

CASES: Final = 10_000  # of each format
REFRAMED: Final = 0.8  # share of safetensors headers whose length is right
CHUNK: Final = 64  # [B]; small, so that reading too far would show
LONGEST: Final = 700  # characters of a message; the longest lists all types of ggml
SIZES: Final = (0, 1, 2, 3, 4, 8, 9, 31, 33, 255, 2**16, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS: Final = (
    b"", b"0", b"-1", b"1e9", b"9223372036854775808", b"9" * 5000, b"null", b"true", b"[]", b"{}", b'"', b"\\",
    b"[" * 3000, b'{"a":' * 3000, b"\xff", b"\x00", b"\n", b"NaN", b'"w0"', b'"shape"', b'"data_offsets"', b"\xed\xa0\x80",
)  # fmt: skip

VALUES: Final = (
    b"0", b"-1", b"1.5", b"1e300", b"9223372036854775808", b"null", b"true", b'"F4"', b'"Q4_K"', b"[]", b"{}",
    b"[1,2]", b"[[1],[2]]", b"[0,0]", b"[" * 50 + b"]" * 50, b'"__metadata__"', b'"w0"', b'"\\ud800"', b'"\\n"',
)  # fmt: skip


def flip(data: bytearray, rng: random.Random, _: bytes) -> None:
    """Change bits of a few bytes."""
    for _flip in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def cut(data: bytearray, rng: random.Random, _: bytes) -> None:
    """Lose the end."""
    del data[rng.randrange(1, len(data)) :]


def count(data: bytearray, rng: random.Random, _: bytes) -> None:
    """Put another number where a count, a length or an offset may be."""
    size = rng.choice((4, 8))
    at = rng.randrange(max(1, len(data) - size))
    small = [place for place in range(at, min(at + 60, len(data) - size)) if not any(data[place + 2 : place + size])]
    at = rng.choice(small) if small else at  # numbers of a header are small, letters are not
    data[at : at + size] = (rng.choice(SIZES) % 2 ** (8 * size)).to_bytes(size, "little")


def splice(data: bytearray, rng: random.Random, other: bytes) -> None:
    """Put a piece of this header, or of another, somewhere else."""
    source = rng.choice((bytes(data), other))
    begin, length = rng.randrange(len(source)), rng.choice((1, 4, 8, 24, 200))
    at = rng.randrange(len(data))
    data[at : at + rng.choice((0, length))] = source[begin : begin + length]


def lose(data: bytearray, rng: random.Random, _: bytes) -> None:
    """Take a piece out."""
    at = rng.randrange(len(data))
    del data[at : min(at + rng.choice((1, 4, 8, 40)), len(data) - 1)]


def write(data: bytearray, rng: random.Random, _: bytes) -> None:
    """Write text that a JSON reader may stumble over, in place of a few bytes."""
    at = rng.randrange(len(data))
    data[at : at + rng.choice((0, 1, 3))] = rng.choice(TEXTS)


def edit(data: bytearray, rng: random.Random, _: bytes) -> None:
    """Put another value where JSON has one: the text stays JSON, what it says is wrong."""
    tokens = list(re.finditer(rb'-?\d+|"[^"]*"|\[[^][]*\]', data[8:]))
    if not tokens:
        return
    token = rng.choice(tokens)
    near = str(int(token[0]) + rng.choice((-1, 1, 8))).encode() if token[0].isdigit() else token[0]
    values = (near, near, rng.choice(tokens)[0], rng.choice(VALUES), str(rng.choice(SIZES)).encode())
    data[8 + token.start() : 8 + token.end()] = rng.choice(values)


BINARY: Final[tuple[Change, ...]] = (flip, cut, count, count, splice, lose, write)
JSON: Final[tuple[Change, ...]] = (flip, cut, splice, lose, write, edit, edit, edit, edit, edit)


def mutants(headers: list[bytes], seed: str, changes: tuple[Change, ...]) -> Iterator[tuple[bytes, random.Random]]:
    """Yield headers with one to three changes, always the same for a seed."""
    rng = random.Random(seed)  # noqa: S311 - the same stream every time is the point
    for _ in range(CASES):
        data = bytearray(rng.choice(headers))
        for _change in range(rng.choice((1, 1, 2, 3))):
            rng.choice(changes)(data, rng, rng.choice(headers))
            data += bytes(max(0, 2 - len(data)))
        yield bytes(data), rng


@dataclass
class Opened(io.BytesIO):
    """A file of a test: how far it was read."""

    furthest: int = 0

    def __init__(self, data: bytes) -> None:
        super().__init__(data)

    def read(self, size: int | None = -1) -> bytes:
        """Read, and note how far."""
        got = super().read(size)
        self.furthest = max(self.furthest, self.tell())
        return got


@dataclass
class Pretended:
    """What `read_header` asks of a path, without a disk."""

    data: bytes
    st_size: int
    opened: list[Opened] = field(default_factory=list)

    def is_file(self) -> bool:
        """Say that it is one."""
        return True

    def stat(self) -> Pretended:
        """Tell the size."""
        return self

    def open(self, _mode: str) -> Opened:
        """Open it, and remember that."""
        self.opened.append(Opened(self.data))
        return self.opened[-1]


def is_sound(tensors: tuple[Tensor, ...]) -> bool:
    """Tell whether every tensor of an answer is one that a file can hold."""
    return len({t.name for t in tensors}) == len(tensors) and all(0 <= t.bytes < 2**63 for t in tensors)


def refuse_more_than_a_line(error: ModelError) -> None:
    """Fail unless a message is one line that names the file."""
    message = str(error)
    assert message.startswith("x.file: ")
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < LONGEST


def safetensors_headers() -> list[bytes]:
    """Return headers of every dtype, of few and of many tensors, one with metadata."""
    every = {f"w{n}": (dtype, [n + 1, 8]) for n, dtype in enumerate(DTYPE_BITS)}
    few = {"w0": ("BF16", [2, 2]), "w1": ("F32", [])}
    made = [safetensors(tensors).start for tensors in (every, few, {"é" * 9: ("U8", [0])})]
    text = b'{"__metadata__":{"format":"pt"},"w0":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    return [*made, len(text).to_bytes(8, "little") + text]


def gguf_headers() -> list[bytes]:
    """Return headers of every type, of few and of many tensors, with values of every kind."""
    every = {f"blk.{n}.w": (kind.name, (2, kind.block)) for n, kind in enumerate(GGML_TYPES.values())}
    few = {"token_embd.weight": ("Q4_K", (4, 256)), "output_norm.weight": ("F32", (256,))}
    metadata: dict[str, Any] = {"general.architecture": "llama", "llama.block_count": 2, "llama.rope.freq_base": 1e4}
    lists = {"a": [1, 2, 3], "b": [0.5, 0.25], "c": [True, False], "tokenizer.ggml.tokens": ["<s>", "a", "é"] * 20}
    scalars = {f"n.{code}": number(code, 1) for code in "BbHhIifQqd?"}
    made = [
        gguf(few, metadata | lists | scalars),
        gguf(few, metadata, alignment=64),
        gguf(every, metadata),
        gguf({}, lists),
    ]
    return [file.start for file in made]


@pytest.mark.parametrize("known", [True, False])
def test_a_mutated_gguf_header_is_an_answer_or_one_line(known: bool) -> None:
    """No change makes the reader fail in a way of its own, read beyond the file, or far beyond where the header ends."""
    answered = refused = 0
    for data, rng in mutants(gguf_headers(), f"gguf {known}", BINARY):
        size = rng.choice((len(data), len(data) + 5_000, 2**40)) if known else None
        source = Counted(data + bytes(5_000), size, "x.file")
        try:
            read = read_gguf(source, CHUNK)
        except ModelError as error:
            refuse_more_than_a_line(error)
            refused += 1
        else:
            assert is_sound(read.tensors)
            assert sum(asked for _, asked in source.asked) <= CHUNK + 2 * read.data_offset
            answered += 1
        assert all(first + asked <= (size or MAX_HEADER) or first == 0 for first, asked in source.asked)
        assert sum(asked for _, asked in source.asked[:-1]) <= 2 * len(source.data)
    assert answered > CASES // 50
    assert refused > CASES // 4


def test_a_mutated_safetensors_header_is_an_answer_or_one_line() -> None:
    """No change makes the reader fail in a way of its own, or read anything but the header that the file claims."""
    answered = refused = 0
    for data, rng in mutants(safetensors_headers(), "safetensors", JSON):
        text = data[8:] if rng.random() < REFRAMED else None  # else nearly every one fails by its length
        whole = data if text is None else len(text).to_bytes(8, "little") + text
        claimed = 8 + int.from_bytes(whole[:8], "little")
        path = Pretended(whole + bytes(5_000), rng.choice((len(whole), min(claimed, 2**62), len(whole) + 5_000)))
        try:
            tensors = read_header(cast("Path", path), "x.file")
        except ModelError as error:
            refuse_more_than_a_line(error)
            refused += 1
        else:
            assert is_sound(tensors)
            answered += 1
        assert all(file.furthest <= claimed or file.furthest <= 8 for file in path.opened)
    assert answered > CASES // 50
    assert refused > CASES // 4
