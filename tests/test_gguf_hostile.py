"""GGUF headers that no writer writes: one line each, in bounded memory and time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.gguf import MAX_KEYS, MAX_STRINGS, Held, read_gguf
from roofcast.modelspec.gguf_cursor import LARGEST_READ, MAX_HEADER, MAX_STRING
from roofcast.modelspec.weights import MAX_TENSORS
from tests.gguf_bytes import ARRAY, STRING, Counted, header, key, number, start, string, tensor, u32, u64
from tests.hub_server import safetensors

F32, Q4_0, Q4_K = 0, 2, 12
ONE = key("a", 1)
GOOD = tensor("w", F32, (2, 8), 0)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(b"GG", "cut short: 2 bytes", id="two bytes"),
        pytest.param(start(0, 0)[:23], "cut short: 23 bytes", id="23 bytes"),
        pytest.param(b"<!DOCTYPE html><html><body>", "it looks like an HTML or XML page", id="HTML"),
        pytest.param(b'{"error": "not found", "x": 1}', "it looks like JSON", id="JSON"),
        pytest.param(safetensors({"w": ("F32", [2])}).start, "it looks like a safetensors file", id="safetensors"),
        pytest.param(b"PK\3\4" + bytes(40), "a zip archive", id="PyTorch"),
        pytest.param(b"tjgg" + bytes(40), "a GGML file, older than GGUF", id="GGML"),
        pytest.param(b"\n\x00'\xff" * 10, "must be b'GGUF'", id="anything"),
        pytest.param(start(0, 0, 1), "GGUF version 1; 2 and 3 are read, convert the model again", id="version 1"),
        pytest.param(start(0, 0, 0), "GGUF version 0; 2 and 3 are read", id="version 0"),
        pytest.param(start(0, 0, 4), "GGUF version 4; 2 and 3 are read", id="version 4"),
        pytest.param(start(1 << 63, 0), "claims 9,223,372,036,854,775,808 tensors", id="2^63 tensors"),
        pytest.param(start(0, 1 << 63), "claims 9,223,372,036,854,775,808 keys", id="2^63 keys"),
        pytest.param(start(MAX_TENSORS, 0), "claims 150,000 tensors, at least 3,600,000 bytes, but", id="no room"),
        pytest.param(start(0, MAX_KEYS), "claims 100,000 keys, at least 1,400,000 bytes, but", id="no room for keys"),
        pytest.param(
            start(0, 1) + u64(1 << 63) + bytes(9), "name of key 0 has 9,223,372,036,854,775,808 bytes", id="key of 2^63"
        ),
        pytest.param(start(0, 1) + u64(60_000) + bytes(99), "name of key 0 needs 60,032", id="key beyond the file"),
        pytest.param(header([string("") + number("I", 1)]), "key 0 has no name", id="nameless key"),
        pytest.param(header([key(b"\xff", 1)]), "name of key 0 is not UTF-8", id="key not UTF-8"),
        pytest.param(header([ONE, ONE]), "key 'a' occurs twice", id="key twice"),
        pytest.param(header([key("a", u32(13) + bytes(8))]), "has a value of type 13; known: 0 uint8", id="type 13"),
        pytest.param(header([key("a", u32(1 << 31) + bytes(8))]), "a value of type 2,147,483,648", id="type 2^31"),
        pytest.param(header([key("a", u32(7) + b"\2")]), "key 'a' is a bool of 2", id="bool of 2"),
        pytest.param(header([key("a", u32(STRING) + u64(1 << 63))]), "key 'a' has 9,223,372,036", id="string of 2^63"),
        pytest.param(header([key("a", u32(STRING) + u64(9000))]), "'a' needs 9,0", id="string beyond the file"),
        pytest.param(header([key("a", u32(STRING) + string(b"\xc3("))]), "'a' is not UTF-8", id="string not UTF-8"),
        pytest.param(
            header([key("a", u32(ARRAY) + u32(5) + u64(1 << 63))]),
            "claims 9,223,372,036,854,775,808",
            id="list of 2^63",
        ),
        pytest.param(header([key("a", u32(ARRAY) + u32(77) + u64(1))]), "a value of type 77", id="list of type 77"),
        pytest.param(header([key("a", (u32(ARRAY) * 2 + u64(1)) * 500)]), "a list of lists", id="nested lists"),
        pytest.param(
            header([key("a", u32(ARRAY) + u32(STRING) + u64(1 << 63))]), "808 strings in key 'a'", id="2^63 strings"
        ),
        pytest.param(
            header([key("a", u32(ARRAY) + u32(STRING) + u64(2) + string("x"))]), "at least 16 bytes", id="strings end"
        ),
        pytest.param(
            header([key("a", u32(ARRAY) + u32(STRING) + u64(2) + string("x") + u64(MAX_STRING + 1))]),
            "holds a string of 67,108,865 bytes",
            id="an endless string in a list",
        ),
        pytest.param(
            header([key("a", u32(ARRAY) + u32(STRING) + u64(2) + string("x" * 20) + u64(70))]),
            "cut short",
            id="a string in a list beyond the file",
        ),
        pytest.param(header([key("general.alignment", 0)]), "general.alignment is 0", id="alignment 0"),
        pytest.param(header([key("general.alignment", 4)]), "a power of two from 8 on", id="alignment 4"),
        pytest.param(header([key("general.alignment", 48)]), "alignment is 48; it must be", id="alignment 48"),
        pytest.param(header([key("general.alignment", "32")]), "alignment is a string", id="alignment a string"),
        pytest.param(header(tensors=[GOOD, GOOD]), "tensor 'w' occurs twice", id="tensor twice"),
        pytest.param(start(1, 0) + u64(1 << 63) + bytes(40), "name of tensor 0 has 9,223,372", id="name of 2^63"),
        pytest.param(
            header(tensors=[tensor(b"\xff", F32, (8,), 0)]), "name of tensor 0 is not UTF-8", id="name not UTF-8"
        ),
        pytest.param(header(tensors=[tensor("w", F32, (1,) * 5, 0)]), "'w' has 5 dimensions", id="5 dimensions"),
        pytest.param(
            start(1, 0) + string("w") + u32(0xFFFFFFFF) + bytes(40),
            "has 4,294,967,295 dimensions",
            id="2^32 dimensions",
        ),
        pytest.param(header(tensors=[tensor("w", F32, (2, 0), 0)]), "has the shape [2, 0]", id="no elements"),
        pytest.param(header(tensors=[tensor("w", F32, (2**40,) * 2, 0)]), "no file holds", id="2^80 elements"),
        pytest.param(header(tensors=[tensor("w", 28, (2**62,), 0)]), "no file holds", id="2^65 bytes"),
        pytest.param(header(tensors=[tensor("w", Q4_K, (256, 32), 0)]), "'w' has rows of 32, but Q4_K", id="block"),
        pytest.param(header(tensors=[tensor("w", Q4_0, (), 0)]), "'w' has rows of 1, but Q4_0", id="scalar in blocks"),
        pytest.param(header(tensors=[tensor("w", 4, (32,), 0)]), "Q4_2, which llama.cpp has removed", id="removed"),
        pytest.param(header(tensors=[tensor("w", 1000, (32,), 0)]), "'w' has ggml type 1,000; known", id="type 1000"),
        pytest.param(header(tensors=[tensor("w", F32, (8,), 8)]), "must be a multiple of 32", id="not aligned"),
        pytest.param(header(tensors=[tensor("w", F32, (8,), 32)]), "leaves a hole before it", id="hole at the start"),
        pytest.param(
            header(tensors=[tensor("v", F32, (8,), 0), tensor("w", F32, (8,), 64)]), "(expected 32)", id="hole"
        ),
        pytest.param(
            header(tensors=[tensor("v", F32, (9,), 0), tensor("w", F32, (8,), 32)]), "overlaps the tensor", id="overlap"
        ),
        pytest.param(
            header(tensors=[tensor("v", F32, (8,), 0), tensor("w", F32, (8,), 0)]), "overlaps", id="same place"
        ),
        pytest.param(header(tensors=[tensor("w", F32, (8,), 1 << 63)]), "leaves a hole", id="offset 2^63"),
        pytest.param(header(tensors=[GOOD]), "its tensors end at byte 160", id="out of the file"),
        pytest.param(header([key("a\n" * 100, u32(99) + bytes(8))]), r"key 'a\na\n", id="line breaks"),
    ],
)
def test_a_broken_file_is_refused_by_name(data: bytes, says: str) -> None:
    """Each thing that a file can have wrong is malformed input, in one line that names file, key or tensor."""
    source = Counted(data, len(data))
    with pytest.raises(MalformedModelError) as caught:
        read_gguf(source)

    assert says in str(caught.value)
    assert str(caught.value).startswith("x.gguf: ")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700
    assert len(source.asked) <= 2


def test_a_file_cut_anywhere_is_refused() -> None:
    """However little of the header is there, and whether or not the size is known, it is cut short or impossible."""
    keys = [key("a", "text"), key("b", [1, 2, 3]), key("c", ["x", "yz"]), key("d", [True])]
    whole = header(keys, [tensor("blk.0.w", Q4_0, (2, 32), 0), tensor("b", F32, (1 << 56,), 64)])

    for length in range(len(whole)):
        for size in (length, None, 1 << 62):
            with pytest.raises(MalformedModelError) as caught:
                read_gguf(Counted(whole[:length], size), 64)
            assert str(caught.value).isprintable()


def test_a_clone_without_git_lfs_says_so() -> None:
    """The pointer file of Git LFS is an absent file, not a broken one."""
    with pytest.raises(UndeterminedModelError, match="git lfs pull"):
        read_gguf(Held("x.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:"))


@dataclass
class Endless:
    """A file without an end: a start, then the same piece for ever."""

    start: bytes
    piece: bytes
    where: str = "x.gguf"
    size: int | None = None
    asked: int = 0
    largest: int = 0

    def read(self, first: int, count: int) -> bytes:
        """Return bytes, and note how many were asked for."""
        self.asked += count
        self.largest = max(self.largest, count)
        if first < len(self.start):
            return (self.start[first:] + self.piece * (count // len(self.piece) + 1))[:count]
        skip = (first - len(self.start)) % len(self.piece)
        return (self.piece * (count // len(self.piece) + 2))[skip : skip + count]


@pytest.mark.parametrize(
    ("begin", "piece", "says"),
    [
        pytest.param(
            start(0, 1) + string("a") + u32(ARRAY) + u32(STRING) + u64(MAX_STRINGS),
            string("x" * 248),
            "a header has at most 100,000,000 bytes",
            id="strings",
        ),
        pytest.param(
            start(0, 1) + string("a") + u32(ARRAY) + u32(STRING) + u64(MAX_STRINGS + 1),
            string(""),
            "claims 4,194,305 strings in key 'a'; at most 4,194,304",
            id="too many strings",
        ),
        pytest.param(
            start(0, 1) + string("a") + u32(STRING) + u64(1 << 40), b"x", "has 1,099,511,627,776", id="string"
        ),
        pytest.param(start(0, MAX_KEYS + 1), key("a", 1), "claims 100,001 keys; at most 100,000", id="keys"),
        pytest.param(start(MAX_TENSORS + 1, 0), GOOD, "claims 150,001 tensors; at most 150,000", id="tensors"),
        pytest.param(
            start(0, 1) + string("a") + u32(ARRAY) + u32(12) + u64(12_499_999), b"\0", "at most 99,999", id="numbers"
        ),
    ],
)
def test_a_file_without_an_end_is_given_up(begin: bytes, piece: bytes, says: str) -> None:
    """Where the size is not known, no more than the longest header is read, in pieces of bounded size."""
    source = Endless(begin, piece)

    with pytest.raises(MalformedModelError) as caught:
        read_gguf(source)

    assert says in str(caught.value)
    assert source.asked <= MAX_HEADER
    assert source.largest <= LARGEST_READ
