"""Models in GGUF files: one file, the parts of a split, a folder of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.gguf_files import LocalFile, models_among, only_model, parts_of, read_local, read_parts
from tests.gguf_bytes import ROWS, Counted, as_read, every_type, gguf, number, write, writer

if TYPE_CHECKING:
    from roofcast.modelspec.gguf import ByteSource


class Bar:
    """A progress bar that remembers."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def start(self, total: int) -> None:
        """Note how many there are."""
        self.told.append(total)

    def advance(self) -> None:
        """Note that one is done."""
        self.told.append(1)


def part(number_: int, count: int, *, told: int | None = None, **changes: Any) -> bytes:
    """Return one part of a split with a tensor of its own, as converters write it: counts of 2 bytes, a signed sum."""
    metadata = {
        "split.no": number("H", number_),
        "split.count": number("H", count),
        "split.tensors.count": number("i", count if told is None else told),
    }
    metadata |= {name.replace("_", "."): value for name, value in changes.items()}
    first = {"general.architecture": "llama"} if number_ == 0 else {}
    file = gguf({f"blk.{number_}.w": ("Q8_0", (2, 32))}, first | {k: v for k, v in metadata.items() if v is not None})
    return file.span(0, file.size)


def parts(folder: Path, *data: bytes, stem: str = "m") -> Path:
    """Write the parts of a split under their names; return the first's."""
    names = [f"{stem}-{i + 1:05}-of-{len(data):05}.gguf" for i in range(len(data))]
    for name, content in zip(names, data, strict=True):
        (folder / name).write_bytes(content)
    return folder / names[0]


@pytest.mark.parametrize("split", [1, 5])
def test_a_split_of_every_type_is_read_back_exactly(tmp_path: Path, split: int) -> None:
    """However the gguf package splits a model, its tensors are those of all parts and its metadata the first's."""
    package, made = writer(tmp_path / "m.gguf", split_max_tensors=split)
    made.add_uint32("llama.block_count", 1)
    write(made)

    for given in (tmp_path, min(tmp_path.iterdir()), max(tmp_path.iterdir())):
        metadata, weights, names = read_local(given, "x")

        assert as_read(weights.tensors) == every_type(package)
        assert weights.bytes == sum(size for _, _, size in every_type(package).values())
        assert weights.elements == {d: ROWS * n for d, (_, n), _ in every_type(package).values()}
        assert (weights.files, weights.origin) == (-(-len(every_type(package)) // split), "headers")
        assert metadata["llama.block_count"] == 1
        assert list(names) == sorted(path.name for path in tmp_path.iterdir())


def test_a_bar_hears_of_every_part(tmp_path: Path) -> None:
    """Progress starts with the number of files and advances with each."""
    bar = Bar()
    first = parts(tmp_path, part(0, 3), part(1, 3), part(2, 3))

    metadata, weights, names = read_local(first, "x", bar)

    assert bar.told == [3, 1, 1, 1]
    assert (metadata["general.architecture"], weights.bytes, weights.files) == ("llama", 3 * 2 * 34, 3)
    assert len(names) == 3


def test_a_first_part_without_tensors_is_taken(tmp_path: Path) -> None:
    """gguf-split can leave the first part to the metadata."""
    empty = gguf({}, {"split.no": number("H", 0), "split.count": number("H", 2), "a": 1})
    _, weights, _ = read_local(parts(tmp_path, empty.start, part(1, 2, told=1)), "x")

    assert [t.name for t in weights.tensors] == ["blk.1.w"]


def test_sources_of_any_kind_are_read() -> None:
    """Parts are opened by name, wherever they are."""
    files = {"a/m-00001-of-00002.gguf": part(0, 2), "a/m-00002-of-00002.gguf": part(1, 2)}
    opened: list[str] = []

    def open_part(name: str) -> ByteSource:
        opened.append(name)
        return Counted(files[name], where=name)

    _, weights = read_parts(parts_of("a/m-00002-of-00002.gguf", files, "x"), open_part, "x")

    assert opened == list(files)
    assert weights.bytes == 2 * 2 * 34


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_a_missing_part_is_named(tmp_path: Path, missing: int) -> None:
    """Whichever part is not there, the answer is undetermined and the part is named."""
    parts(tmp_path, part(0, 3), part(1, 3), part(2, 3))
    (tmp_path / f"m-0000{missing}-of-00003.gguf").unlink()

    for given in (tmp_path, next(tmp_path.iterdir())):
        with pytest.raises(UndeterminedModelError, match=rf"missing shard 'm-0000{missing}-of-00003\.gguf'; all 3"):
            read_local(given, "x")


@pytest.mark.parametrize(
    ("second", "says"),
    [
        pytest.param(part(1, 3), "split.count is 3; it must be 2, as its name says", id="of three"),
        pytest.param(part(0, 2), "split.no is 0; it must be 1, counted from 0", id="the first again"),
        pytest.param(part(1, 2, split_no=None), "split.no is missing; it must be 1", id="no number"),
        pytest.param(part(1, 2, split_no="1"), "split.no is '1'; it must be 1", id="number a string"),
        pytest.param(part(1, 2, split_no=True), "split.no is True; it must be 1", id="number a bool"),
        pytest.param(part(1, 2, split_count=None), "split.count is missing; it must be 2", id="no count"),
        pytest.param(part(1, 2, split_count="2" * 99), "split.count is '22", id="count a string"),
        pytest.param(gguf({}).start, "split.count is missing", id="no part at all"),
        pytest.param(
            gguf({"blk.0.w": ("F32", (1,))}, {"split.no": 1, "split.count": 2}).span(0, 999), "two files", id="twice"
        ),
        pytest.param(b"", "m-00002-of-00002.gguf: it is empty", id="empty"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path, second: bytes, says: str) -> None:
    """Numbers, counts and tensors of the parts agree, or the model is malformed, in one line that names the part."""
    first = parts(tmp_path, part(0, 2), second)

    with pytest.raises(MalformedModelError) as caught:
        read_local(first, "x")

    assert says in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_sum_of_tensors_that_is_wrong_is_refused(tmp_path: Path) -> None:
    """The first part says how many tensors there are in all."""
    first = parts(tmp_path, part(0, 2, told=5), part(1, 2))

    with pytest.raises(MalformedModelError, match=r"split\.tensors\.count is 5, but its files hold 2 tensors"):
        read_local(first, "x")


def test_a_part_under_another_name_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    """A renamed part says that it is one of several, and what the names must be."""
    (tmp_path / "model.gguf").write_bytes(part(0, 3))

    with pytest.raises(UndeterminedModelError, match=r"split\.count is 3, but its name .* NAME-00001-of-00003\.gguf"):
        read_local(tmp_path / "model.gguf", "x")


@pytest.mark.parametrize("name", ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-00001-of-00000.gguf"])
def test_a_part_beyond_its_own_count_is_refused(name: str) -> None:
    """Parts count from 1 to how many there are."""
    with pytest.raises(MalformedModelError, match="is no part of"):
        parts_of(name, [name], "x")


def test_a_folder_of_several_models_asks_which(tmp_path: Path) -> None:
    """All names to choose from are listed; projectors and importance matrices are none of them."""
    for name in ("a-Q4_K_M.gguf", "a-Q8_0.gguf", "mmproj-a-f16.gguf", "a.imatrix.gguf", "notes.txt"):
        (tmp_path / name).write_bytes(part(0, 1))
    parts(tmp_path, part(0, 2), part(1, 2), stem="a-BF16")

    with pytest.raises(UndeterminedModelError) as caught:
        read_local(tmp_path, "x")

    assert str(caught.value) == "x: holds 3 models; give one of a-BF16-00001-of-00002.gguf, a-Q4_K_M.gguf, a-Q8_0.gguf"
    (tmp_path / "a-Q8_0.gguf").unlink()
    (tmp_path / "a-BF16-00001-of-00002.gguf").unlink()
    (tmp_path / "a-BF16-00002-of-00002.gguf").unlink()
    assert read_local(tmp_path, "x")[2] == ("a-Q4_K_M.gguf",)


def test_many_models_are_not_all_listed() -> None:
    """A line stays a line."""
    with pytest.raises(
        UndeterminedModelError, match=r"holds 40 models; give one of m00\.gguf, .*, m11\.gguf and 28 more"
    ):
        only_model([f"m{n:02}.gguf" for n in range(40)], "x")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], r"x: no \.gguf file; the file"),
        (["config.json"], r"x: no \.gguf file; the file"),
        (["mmproj-f16.gguf"], "but projectors"),
    ],
)
def test_a_folder_without_a_model_says_so(names: list[str], says: str) -> None:
    """Nothing to read is an undetermined answer."""
    with pytest.raises(UndeterminedModelError, match=says):
        only_model(names, "x")


def test_models_of_a_repo_are_told_apart_by_folder_and_count() -> None:
    """Parts in another folder, or of another count, are another model."""
    names = [
        "Q4/m-00001-of-00002.gguf",
        "Q4/m-00002-of-00002.gguf",
        "Q8/m-00001-of-00002.gguf",
        "m-00001-of-00001.gguf",
    ]

    assert {first: len(found) for first, found in models_among(names).items()} == {
        "Q4/m-00001-of-00002.gguf": 2,
        "Q8/m-00001-of-00002.gguf": 1,
        "m-00001-of-00001.gguf": 1,
    }


@pytest.mark.parametrize("kind", ["absent", "folder", "link"])
def test_what_is_no_file_is_one_line(tmp_path: Path, kind: str) -> None:
    """A path that leads to no file is undetermined."""
    path = tmp_path / "m.gguf"
    if kind == "link":
        path.symlink_to(tmp_path / "nowhere")
    if kind == "folder":
        (path / "x-00001-of-00001.gguf").mkdir(parents=True)

    with pytest.raises(UndeterminedModelError, match=r"no such file|a folder, not a file|a link to nothing"):
        read_local(path, "x")


def test_what_a_disk_is_asked_for_is_hardly_more_than_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a local file, at most as much again as its header, and a first piece, is read; of its data of 4 GB no more."""
    file = gguf({"w": ("Q4_0", (1_000_000, 8192))}, {"tokenizer.ggml.tokens": ["x" * 9] * 20_000})
    path = tmp_path / "m.gguf"
    path.write_bytes(file.start)
    with path.open("r+b") as opened:
        opened.truncate(file.size)
    asked = []
    read = LocalFile.read

    def counted(self: LocalFile, first: int, count: int) -> bytes:
        asked.append(first + count)
        return read(self, first, count)

    monkeypatch.setattr(LocalFile, "read", counted)
    _, weights, _ = read_local(path, "m.gguf")

    assert weights.bytes == 1_000_000 * 8192 // 32 * 18 > 4e9
    assert max(asked) <= 2 * len(file.start) + 20_000
