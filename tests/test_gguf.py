"""GGUF headers: what writers write comes back exactly, and what no writer writes is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.ggml import GGML_TYPES
from roofcast.modelspec.gguf import KEPT_NUMBERS, Held, Long, read_gguf
from roofcast.modelspec.gguf_cursor import FIRST_READ
from roofcast.modelspec.gguf_files import LocalFile
from roofcast.modelspec.weights import Tensor
from tests.gguf_bytes import Counted, as_read, every_type, gguf, header, key, numbers, tensor, write, writer

F32 = 0
METADATA: dict[str, Any] = {
    "general.name": "Tiny é",
    "llama.block_count": 2,
    "llama.rope.freq_base": 500000.0,
    "llama.use_parallel_residual": True,
    "llama.attention.head_count_kv": [8, 4],
    "llama.sliding": [True, False],
    "tokenizer.ggml.tokens": ["<s>", "a"] * 3,
    "tokenizer.ggml.scores": [0.5] * (KEPT_NUMBERS + 1),
}
READ = METADATA | {
    "llama.attention.head_count_kv": (8, 4),
    "llama.sliding": (True, False),
    "tokenizer.ggml.tokens": Long("string", 6),
    "tokenizer.ggml.scores": Long("float32", KEPT_NUMBERS + 1),
}


@pytest.mark.parametrize("endianess", [0, 1])
def test_a_file_of_every_type_is_read_back_exactly(tmp_path: Path, endianess: int) -> None:
    """Names, types, shapes, bytes and metadata of every type are what the gguf package wrote, in either byte order."""
    path = tmp_path / "every.gguf"
    package, made = writer(path, endianess)
    scalars = {
        "uint8": 200, "int8": -100, "uint16": 60_000, "int16": -30_000, "uint32": 4_000_000_000, "int32": -(2**31),
        "uint64": 2**64 - 1, "int64": -(2**63), "float32": 0.5, "float64": 0.1, "bool": True, "string": "é\n",
    }  # fmt: skip
    for name, value in scalars.items():
        getattr(made, f"add_{name}")(f"x.{name}", value)
    made.add_array("x.numbers", [1, -2, 3])
    made.add_array("x.floats", [0.5, 0.25])
    made.add_array("x.bools", [True, False])
    made.add_array("x.strings", ["a", "bc"])
    made.add_tensor("three", package.gguf_writer.np.zeros((2, 3, 4), "float32"))
    write(made)

    read = read_gguf(LocalFile(path, "every.gguf"))

    assert as_read(read.tensors) == every_type(package) | {"three": ("F32", (2, 3, 4), 96)}
    assert read.metadata == {
        "general.architecture": "llama",
        **{f"x.{name}": value for name, value in scalars.items()},
        "x.numbers": (1, -2, 3),
        "x.floats": (0.5, 0.25),
        "x.bools": (True, False),
        "x.strings": Long("string", 2),
    }
    assert read.version == 3
    if not endianess:
        assert read.data_offset == package.GGUFReader(path).data_offset


def test_types_newer_than_the_package_are_read_too() -> None:
    """A file that this test writes itself comes back with every type of the table, and with what is kept of values."""
    tensors = {f"t.{kind.name}": (kind.name, (2, 5, kind.block)) for kind in GGML_TYPES.values()}
    file = gguf(tensors, METADATA)

    read = read_gguf(Counted(file.start, file.size))

    assert {t.name: (t.dtype, t.shape) for t in read.tensors} == tensors
    assert read.metadata == READ
    assert read.data_offset == len(file.start)


@pytest.mark.parametrize("chunk", [1, 7, 24, 1000, FIRST_READ])
@pytest.mark.parametrize("known", [True, False])
def test_how_it_is_read_changes_nothing(chunk: int, known: bool) -> None:
    """Whatever the size of the pieces, the answer is the same, and no more than twice what was needed is asked for."""
    file = gguf({f"blk.{n}.w": ("Q4_0", (n + 1, 64)) for n in range(50)}, METADATA, alignment=64)
    source = Counted(file.start + bytes(50_000), file.size if known else None)

    assert read_gguf(source, chunk) == read_gguf(Held("x", file.span(0, file.size)))

    assert sum(count for _, count in source.asked) <= max(chunk, 24) + 2 * len(file.start)
    assert all(first <= len(file.start) for first, _ in source.asked)


def test_version_2_is_read_alike() -> None:
    """Versions 2 and 3 differ in byte order only."""
    made = header([key("a", 7)], version=2)

    assert read_gguf(Held("x", made)).metadata == {"a": 7}
    assert read_gguf(Held("x", made)).version == 2


def test_a_tensor_without_dimensions_has_one_element() -> None:
    """A scalar is a tensor of one element."""
    file = gguf({"scalar": ("F32", ())})

    assert read_gguf(Counted(file.start, file.size)).tensors == (Tensor("scalar", "F32", ()),)


def test_the_last_tensor_needs_no_padding() -> None:
    """A file may end with the data of its last tensor, one byte less is cut short."""
    file = gguf({"a": ("Q4_0", (1, 32)), "b": ("Q4_0", (1, 32))})
    end = len(file.start) + 32 + 18

    assert len(read_gguf(Counted(file.start, end)).tensors) == 2
    with pytest.raises(MalformedModelError, match=f"cut short: {end - 1} bytes, but its tensors end at byte {end}"):
        read_gguf(Counted(file.start, end - 1))


def test_tensors_may_stand_in_any_order() -> None:
    """The order of the header need not be that of the data."""
    made = header(tensors=[tensor("b", F32, (8,), 32), tensor("a", F32, (8,), 0)])

    assert [t.name for t in read_gguf(Counted(made)).tensors] == ["b", "a"]


def test_long_texts_are_not_kept() -> None:
    """A tokenizer of a megabyte as one string is known by its length, and not read at all."""
    made = header([key("tokenizer.huggingface.json", "x" * 1_000_000), key("a", 1)])
    source = Counted(made)

    assert read_gguf(source, 100).metadata == {"tokenizer.huggingface.json": Long("string", 1_000_000), "a": 1}
    assert sum(count for _, count in source.asked) < 1000


def test_what_is_kept_of_all_values_together_is_bounded() -> None:
    """Many lists that would be kept each are not kept all."""
    lists = [key(f"k{n}", numbers("d", [0.5] * KEPT_NUMBERS)) for n in range(80)]

    kept = [value for value in read_gguf(Held("x", header(lists))).metadata.values() if isinstance(value, tuple)]

    assert 0 < len(kept) <= 64
