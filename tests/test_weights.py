"""Headers of weight files: what is taken, what is refused, what counts as a parameter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.folder import read_config, read_header, read_weights
from roofcast.modelspec.strictjson import read_object
from roofcast.modelspec.weights import (
    DTYPE_BITS,
    MAX_HEADER,
    Tensor,
    collect,
    header_length,
    parse_header,
    parse_index,
    pick,
)
from tests.hub_server import header, index, safetensors

if TYPE_CHECKING:
    from pathlib import Path

GIB_100 = (100_000_000_000).to_bytes(8, "little")


def entry(**changes: Any) -> bytes:
    """Return a header of one tensor, two by two bf16, with some of its fields changed."""
    return json.dumps({"w": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8], **changes}}).encode()


def entries(*spans: tuple[int, int]) -> bytes:
    """Return a header of one-byte-element tensors at these places."""
    return json.dumps(
        {f"t{i}": {"dtype": "U8", "shape": [e - b], "data_offsets": [b, e]} for i, (b, e) in enumerate(spans)}
    ).encode()


def write(path: Path, data: bytes, size: int | None = None) -> Path:
    """Write a file, sparse beyond its data where it is larger."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.truncate(len(data) if size is None else size)
    return path


def model(folder: Path, tensors: dict[str, tuple[str, list[int]]], name: str = "model.safetensors") -> Path:
    """Write a weight file that holds these tensors."""
    made = safetensors(tensors)
    return write(folder / name, made.start, made.size)


def test_every_dtype_of_the_format_is_known() -> None:
    """The table has the 22 dtypes of safetensors 0.8, and their widths are those in their names."""
    assert len(DTYPE_BITS) == 22
    assert all(DTYPE_BITS[f"{kind}{bits}"] == bits for kind in "IU" for bits in (8, 16, 32, 64))
    assert [DTYPE_BITS[d] for d in ("F4", "F6_E2M3", "F8_E8M0", "BF16", "C64", "BOOL")] == [4, 6, 8, 16, 64, 8]


@pytest.mark.parametrize("dtype", DTYPE_BITS)
def test_a_header_of_any_dtype_is_read(dtype: str) -> None:
    """Bytes of eight elements are the bits of the dtype."""
    (tensor,) = parse_header(header({"w": (dtype, [2, 4])})[8:], "x")

    assert (tensor.elements, tensor.bytes) == (8, DTYPE_BITS[dtype])


def test_scalars_and_empty_tensors_are_tensors() -> None:
    """A tensor without dimensions has one element, one with a dimension of 0 has none."""
    tensors = parse_header(header({"empty": ("F32", [0, 7]), "scalar": ("F32", [])})[8:], "x")

    assert {t.name: t.elements for t in tensors} == {"empty": 0, "scalar": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b"{not json", "header: not JSON", id="not JSON"),
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(b"[1, 2]", "holds a list", id="a list"),
        pytest.param(b'{"w": 3}', "'w' is a number", id="tensor is a number"),
        pytest.param(b'{"w": null}', "'w' is null", id="tensor is null"),
        pytest.param(b'{"w": {}, "w": {}}', "key 'w' occurs twice", id="a name twice"),
        pytest.param(b'{"__metadata__": []}', "__metadata__ is a list", id="metadata is a list"),
        pytest.param(b"\xff{}", "not UTF-8", id="not UTF-8"),
        pytest.param(b'{"w": ' + b"[" * 100_000, "nested too deeply", id="nesting bomb"),
        pytest.param(entry(data_offsets=None), "data_offsets of tensor 'w'", id="no offsets"),
        pytest.param(entry(data_offsets=[0]), "data_offsets of tensor 'w'", id="one offset"),
        pytest.param(entry(data_offsets=[8, 0]), "data_offsets of tensor 'w'", id="end before begin"),
        pytest.param(entry(data_offsets=[-8, 0]), "data_offsets of tensor 'w'", id="negative"),
        pytest.param(entry(data_offsets=[0.0, 8.0]), "data_offsets of tensor 'w'", id="fractions"),
        pytest.param(entry(data_offsets=[False, 8]), "data_offsets of tensor 'w'", id="a bool"),
        pytest.param(entry(dtype="F7"), "dtype 'F7'; known: ", id="unknown dtype"),
        pytest.param(entry(dtype=None), "dtype null", id="no dtype"),
        pytest.param(entry(shape=None), "shape of tensor 'w'", id="no shape"),
        pytest.param(entry(shape=[-2, 2]), "shape of tensor 'w'", id="negative size"),
        pytest.param(entry(shape=["2", 2]), "shape of tensor 'w'", id="size is a string"),
        pytest.param(entry(shape=[1] * 65), "shape of tensor 'w'", id="65 dimensions"),
        pytest.param(entry(shape=[2**63]), "shape of tensor 'w'", id="size of 2^63"),
        pytest.param(entry(shape=[2**62, 2**62]), "has 8 bytes of data, but BF16", id="2^124 elements"),
        pytest.param(entry(shape=[[2], [2]]), "shape of tensor 'w'", id="nested sizes"),
        pytest.param(entry(data_offsets=[0, 2**63]), "data_offsets of tensor 'w'", id="offset of 2^63"),
        pytest.param(entry(data_offsets=[[0], [8]]), "data_offsets of tensor 'w'", id="nested offsets"),
        pytest.param(b'{"w' + b"x" * 1_000_000, "not JSON (Unterminated string", id="a string without an end"),
        pytest.param(b'{"w":' * 100_000, "nested too deeply", id="objects in objects"),
        pytest.param(entry(shape=[10**30]), "shape of tensor 'w'", id="size beyond any file"),
        pytest.param(entry(shape=[3, 2]), "has 8 bytes of data, but BF16 [3, 2] needs 12", id="shape against offsets"),
        pytest.param(entry(data_offsets=[0, 9]), "has 9 bytes of data, but BF16 [2, 2] needs 8", id="too much data"),
        pytest.param(entry(dtype="F4", shape=[3]), "does not fill whole bytes", id="half a byte"),
        pytest.param(entry(data_offsets=[4, 12]), "leaves a hole", id="hole at the start"),
        pytest.param(entries((0, 4), (6, 8)), "'t1' starts at byte 6 and leaves a hole", id="hole"),
        pytest.param(entries((0, 4), (2, 6)), "'t1' starts at byte 2 and overlaps", id="overlap"),
    ],
)
def test_a_broken_header_is_refused_by_name(text: bytes, says: str) -> None:
    """Each thing that a header can have wrong is malformed input, in one line that names file and tensor."""
    with pytest.raises(MalformedModelError) as caught:
        parse_header(text, "model.safetensors")

    assert says in str(caught.value)
    assert str(caught.value).startswith("model.safetensors")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("start", "size", "says"),
    [
        pytest.param(b"", 0, "0 bytes", id="empty"),
        pytest.param(b"\1\2", 2, "2 bytes", id="two bytes"),
        pytest.param(GIB_100, 20, "its header claims 100,000,000,000 bytes", id="100 GB"),
        pytest.param(b"\xff" * 8, None, "its header claims", id="16 EB"),
        pytest.param((5000).to_bytes(8, "little"), 100, "cut short: 100 bytes, but its header", id="cut short"),
    ],
)
def test_an_impossible_length_is_refused_before_anything_is_read(start: bytes, size: int | None, says: str) -> None:
    """The length in front is checked against the format's limit and the file's size."""
    with pytest.raises(MalformedModelError, match=says):
        header_length(start, "model.safetensors", size)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"GGUF\3\0\0\0" + bytes(16), "; it looks like a GGUF file"),
        (b"<!DOCTYPE html>", "; it looks like an HTML or XML page"),
        (b'{"error": "not found"}', "; it looks like JSON"),
        (b"PK\3\4" + b"\1" * 20, "; it looks like a zip archive, as PyTorch writes it"),
    ],
)
def test_another_kind_of_file_is_called_what_it_is(start: bytes, says: str) -> None:
    """A file of another format is refused at its first eight bytes, and named."""
    with pytest.raises(MalformedModelError, match="its header claims") as caught:
        header_length(start, "model.safetensors", 10**12)

    assert str(caught.value).endswith(says)


@pytest.mark.parametrize(("mark", "text"), [("[", b"[],"), ("{", b"{},"), (",", b"1,")])
def test_what_would_fill_the_memory_is_not_parsed(mark: str, text: bytes) -> None:
    """A header of nothing but lists, objects or numbers takes many times its own memory: it is refused unparsed."""
    with pytest.raises(MalformedModelError, match=rf"times '\{mark}'; 150,000 tensors are the most"):
        parse_header(b'{"w":{"shape":[' + text * 5_000_000 + b"1]}}", "x")


def test_the_longest_header_of_the_format_is_allowed() -> None:
    """A header of 100 MB is the last that the format allows."""
    assert header_length(MAX_HEADER.to_bytes(8, "little"), "x", None) == MAX_HEADER


def test_a_clone_without_git_lfs_says_so() -> None:
    """The pointer file of Git LFS is an absent file, not a broken one."""
    with pytest.raises(UndeterminedModelError, match="git lfs pull"):
        header_length(b"version https://git-lfs.github.com/spec/v1", "model.safetensors", 130)


@pytest.mark.parametrize("missing", [1, 7])
def test_a_file_cut_short_in_its_data_is_refused(tmp_path: Path, missing: int) -> None:
    """A download that stopped in the data is malformed, though its header is whole."""
    made = safetensors({"w": ("BF16", [2, 2])})
    path = write(tmp_path / "model.safetensors", made.start, made.size - missing)

    with pytest.raises(MalformedModelError, match=f"{8 - missing} bytes of data, but its header describes 8"):
        read_header(path, "x")


def test_a_header_kept_without_its_data_is_read(tmp_path: Path) -> None:
    """A file of nothing but its header still tells what the weights are."""
    path = write(tmp_path / "model.safetensors", header({"w": ("BF16", [2, 2])}))

    assert read_header(path, "x") == (Tensor("w", "BF16", (2, 2)),)


def test_data_that_no_tensor_describes_is_refused(tmp_path: Path) -> None:
    """A file longer than its header says has been overwritten."""
    path = write(tmp_path / "model.safetensors", header({"w": ("BF16", [2, 2])}), 1000)

    with pytest.raises(MalformedModelError, match="cut short or overwritten"):
        read_header(path, "x")


def test_shards_add_up(tmp_path: Path) -> None:
    """Elements by dtype and bytes are those of all shards together."""
    model(tmp_path, {"a": ("BF16", [3, 5])}, "model-1.safetensors")
    model(tmp_path, {"b": ("F32", [7]), "c": ("BF16", [1])}, "model-2.safetensors")
    weight_map = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-2.safetensors"}
    write(tmp_path / "model.safetensors.index.json", index(weight_map))

    weights, problem = read_weights(tmp_path, "x")

    assert weights is not None
    assert (weights.elements, weights.bytes, weights.files) == ({"BF16": 16, "F32": 7}, 60, 2)
    assert (weights.origin, problem) == ("headers", None)


def test_the_index_decides_what_belongs_to_the_model(tmp_path: Path) -> None:
    """Consolidated files beside the index's shards are a second copy and are not counted."""
    model(tmp_path, {"a": ("BF16", [4])}, "model-1.safetensors")
    model(tmp_path, {"x": ("BF16", [4])}, "consolidated.safetensors")
    write(tmp_path / "model.safetensors.index.json", index({"a": "model-1.safetensors"}))

    weights, _ = read_weights(tmp_path, "x")

    assert weights is not None
    assert weights.bytes == 8


def test_files_of_nothing_but_empty_tensors_are_no_model() -> None:
    """Zero bytes of weights are a mistake, not an answer; one empty tensor among others is fine."""
    empty = Tensor("a", "F32", (0, 8))

    with pytest.raises(MalformedModelError, match="hold only empty tensors"):
        collect({"1": (empty,), "2": ()}, "x")
    assert collect({"1": (empty, Tensor("b", "F32", (2,)))}, "x").bytes == 8


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    """A shard that the index names and the folder lacks leaves the answer undetermined."""
    write(tmp_path / "model.safetensors.index.json", index({"a": "model-2.safetensors"}))

    with pytest.raises(UndeterminedModelError, match=r"missing shard 'model-2\.safetensors'"):
        read_weights(tmp_path, "x")


def test_a_shard_on_too_long_a_path_is_one_line(tmp_path: Path) -> None:
    """A path that no file system takes is as absent as any other, in one line."""
    write(tmp_path / "model.safetensors.index.json", index({"a": "x/" * 2500 + "m.safetensors"}))

    with pytest.raises(UndeterminedModelError, match=r"cannot be read \(File name too long\)") as caught:
        read_weights(tmp_path, "x")

    assert len(str(caught.value)) < 300


def test_a_numbered_shard_is_missed_without_an_index() -> None:
    """The names of numbered files tell how many there must be."""
    with pytest.raises(UndeterminedModelError, match=r"missing shard 'm-00002-of-00003\.safetensors'"):
        pick(["m-00001-of-00003.safetensors", "m-00003-of-00003.safetensors"], "x")


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["config.json", "pytorch_model.bin"], ()),
        (["gptq-4bit.safetensors", "adapter_model.safetensors"], ("gptq-4bit.safetensors",)),
        (["consolidated.safetensors"], ("consolidated.safetensors",)),
        (["a.safetensors", "b.safetensors", "sub/c.safetensors"], ("a.safetensors", "b.safetensors")),
    ],
)
def test_files_without_an_index_are_chosen_by_name(names: list[str], chosen: tuple[str, ...]) -> None:
    """Whatever lies in the folder is the model, but adapters and second copies are not."""
    assert pick(names, "x") == chosen


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b"<html>", "HTML page", id="HTML"),
        pytest.param(b"[]", "holds a list", id="a list"),
        pytest.param(b"{}", "weight_map holds nothing", id="no map"),
        pytest.param(b'{"weight_map": {}}', "weight_map holds nothing", id="empty map"),
        pytest.param(b'{"weight_map": ["a"]}', "weight_map holds a list", id="map is a list"),
        pytest.param(b'{"weight_map": {"a": 1}}', "'a' is in a number", id="file is a number"),
        pytest.param(index({"a": "../m.safetensors"}), "relative name", id="outside the folder"),
        pytest.param(index({"a": "/etc/m.safetensors"}), "relative name", id="absolute"),
        pytest.param(index({"a": "sub\\..\\m.safetensors"}), "relative name", id="backslashes"),
        pytest.param(index({"a": "passwd"}), "relative name", id="another kind of file"),
    ],
)
def test_a_broken_index_is_refused(text: bytes, says: str) -> None:
    """An index maps every tensor to a file inside its own folder, or is malformed."""
    with pytest.raises(MalformedModelError, match=says):
        parse_index(text, "model.safetensors.index.json")


@pytest.mark.parametrize(
    ("shards", "weight_map", "says"),
    [
        pytest.param({"1": ["a"], "2": ["a"]}, None, "'a' is in two files, '1' and '2'", id="twice"),
        pytest.param({"1": ["a"]}, {"a": "1", "b": "1"}, "'b' is in '1', which does not hold it", id="in no shard"),
        pytest.param({"1": ["a"], "2": ["b"]}, {"a": "2", "b": "2"}, "'a' is in '2', which does not", id="elsewhere"),
        pytest.param({"1": []}, None, "hold no tensor", id="nothing"),
    ],
)
def test_shards_must_agree_with_each_other_and_the_index(
    shards: dict[str, list[str]], weight_map: dict[str, str] | None, says: str
) -> None:
    """A tensor is in one file, the one that the index names."""
    with pytest.raises(MalformedModelError, match=says):
        collect({f: tuple(Tensor(n, "U8", (1,)) for n in names) for f, names in shards.items()}, "x", weight_map)


def test_a_folder_of_pickles_says_that_they_are_not_read(tmp_path: Path) -> None:
    """Weight files in another format are no silence."""
    write(tmp_path / "pytorch_model.bin", b"PK")

    weights, problem = read_weights(tmp_path, "x")

    assert weights is None
    assert problem is not None
    assert "pytorch_model.bin" in problem
    write(tmp_path / "pytorch_model.bin", b"").unlink()
    assert read_weights(tmp_path, "x") == (None, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b"{", "not JSON", id="not JSON"),
        pytest.param(b"<!DOCTYPE html>", "HTML page", id="HTML"),
        pytest.param(b"[]", "holds a list", id="a list"),
        pytest.param(b"3", "holds a number", id="a number"),
        pytest.param(b"null", "holds null", id="null"),
        pytest.param(b" \n", "it is empty", id="empty"),
        pytest.param(b'{"a": "\xff"}', "not UTF-8", id="not UTF-8"),
        pytest.param(b'{"a": 1, "a": 2}', "'a' occurs twice", id="a key twice"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}", "not JSON", id="a number of 5000 digits"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="nesting bomb"),
        pytest.param(b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull", id="Git LFS pointer"),
        pytest.param(b'{"a": "' + b" " * 10_000_000 + b'"}', "larger than 10 MB", id="huge"),
    ],
)
def test_a_broken_config_is_refused(tmp_path: Path, text: bytes, says: str) -> None:
    """A config.json that is no JSON object is malformed, in one line that names it."""
    with pytest.raises(MalformedModelError) as caught:
        read_config(write(tmp_path / "config.json", text), "x/config.json")

    assert says in str(caught.value)
    assert str(caught.value).startswith("x/config.json")
    assert "\n" not in str(caught.value)


def test_published_oddities_of_configs_are_taken() -> None:
    """NaN and Infinity, a byte order mark and a key repeated with the same value do no harm."""
    found = read_object(b'\xef\xbb\xbf{"a": Infinity, "b": 1, "b": 1}', "x")

    assert found == {"a": float("inf"), "b": 1}


def test_a_name_with_line_breaks_stays_on_one_line() -> None:
    """What a stranger's file calls its tensors cannot break a message into lines."""
    with pytest.raises(MalformedModelError) as caught:
        parse_header(b'{"a\\nb": 1}', "x")

    assert str(caught.value) == r"x: tensor 'a\nb' is a number; it must be an object"


def test_no_name_of_a_tensor_is_endless() -> None:
    """A name that no library writes is refused, whatever is in it; 512 characters are not."""
    entry = {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}
    assert parse_header(json.dumps({"a" * 512: entry}).encode(), "x")[0].elements == 1
    with pytest.raises(
        MalformedModelError, match=r"x: the name of tensor 'layers\.1.* has 450,000 characters; at most 512"
    ):
        parse_header(json.dumps({"layers.1." * 50_000: entry}).encode(), "x")
