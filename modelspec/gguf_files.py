"""GGUF files that together are a model: one, or the parts of a split, in a folder or wherever bytes can be asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.folder import refuse_unless_file
from roofcast.modelspec.gguf import read_gguf
from roofcast.modelspec.gguf_cursor import FIRST_READ
from roofcast.modelspec.strictjson import plain, quoted, short
from roofcast.modelspec.weights import collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofcast.modelspec.folder import Progress
    from roofcast.modelspec.gguf import ByteSource, GgufHeader, Value
    from roofcast.modelspec.weights import WeightFiles

SUFFIX: Final = ".gguf"
LOCAL_READ: Final = 1 << 14  # [B]; a disk answers at once, so small pieces read less beyond the header
# gguf-split and gguf-py write five digits. Source: llama.cpp, src/llama.cpp, llama_split_path.
_PART: Final = r"(?P<stem>.+)-(?P<number>\d{1,9})-of-(?P<count>\d{1,9})\.gguf"
_BESIDE: Final = r"(?i)mmproj|imatrix"  # a projector of images or sounds; what a quantiser has measured
_NAMED: Final = 12  # models that a message lists
COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file of this machine; it is open only while it is read.

    Args:
        path: of the file.
        where: the file as messages name it.
    """

    path: Path
    where: str

    @property
    def size(self) -> int:
        """Bytes of the file. [B]"""
        try:
            return self.path.stat().st_size
        except OSError as error:
            raise self._unreadable(error) from error

    def read(self, first: int, count: int) -> bytes:
        """Return so many bytes, fewer where the file ends.

        Raises:
            UndeterminedModelError: it is absent, no file, or cannot be read.
        """
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(first)
                return file.read(count)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> UndeterminedModelError:
        return UndeterminedModelError(f"{self.where}: cannot be read ({error.strerror or error})")


def read_local(
    path: Path, where: str, progress: Progress | None = None
) -> tuple[Mapping[str, Value], WeightFiles, tuple[str, ...]]:
    """Read the model of a .gguf file, with the other parts where it is split, or of a folder that holds only one.

    Args:
        path: the file, any part of it, or the folder.
        where: the same as messages name it.
        progress: told how many files there are and each one that is read.

    Returns:
        Metadata of the (first) file, what all hold, and their names.

    Raises:
        MalformedModelError: a file is broken, or the parts contradict each other.
        UndeterminedModelError: there is none, or more than one to choose from, or a part is missing.
    """
    is_folder = path.is_dir()
    folder = path if is_folder else path.parent
    if is_folder:
        chosen = only_model(_names(folder, where), where)
    else:
        refuse_unless_file(path, where)
        chosen = parts_of(path.name, _names(folder, where), where) if _part(path.name) else (path.name,)

    def open_part(name: str) -> LocalFile:
        shown = f"{where}: {plain(name)}" if is_folder or name != path.name else where
        refuse_unless_file(folder / name, shown)
        return LocalFile(folder / name, shown)

    metadata, weights = read_parts(chosen, open_part, where, progress, chunk=LOCAL_READ)
    return metadata, weights, chosen


def read_parts(
    names: Sequence[str],
    open_part: Callable[[str], ByteSource],
    where: str,
    progress: Progress | None = None,
    *,
    chunk: int = FIRST_READ,
) -> tuple[Mapping[str, Value], WeightFiles]:
    """Read the headers of the files of one model, one after the other; return the first's metadata and what all hold.

    Args:
        names: the files, in order.
        open_part: makes a source of a file's name.
        where: the model as messages name it.
        progress: told how many files there are and each one that is read.
        chunk: bytes of each file to ask for first. [B]

    Raises:
        MalformedModelError: a file is broken, or the parts contradict each other.
        UndeterminedModelError: a file cannot be read, or is a part of a model whose name does not tell the others.
    """
    if progress:
        progress.start(len(names))
    headers = {}
    for name in names:
        headers[name] = read_gguf(open_part(name), chunk)
        if progress:
            progress.advance()
    return join_parts(headers, where)


def join_parts(headers: Mapping[str, GgufHeader], where: str) -> tuple[Mapping[str, Value], WeightFiles]:
    """Put the parts of a model together: the first's metadata, and what all hold.

    Args:
        headers: file -> what it says, in order.
        where: the model as messages name it.

    Raises:
        MalformedModelError: the parts are not those of one model.
        UndeterminedModelError: a file alone says that it is one of several.

    Source: llama.cpp, tools/gguf-split: split.no counts from 0; only the first part has the model's metadata.
    """
    for number, (name, header) in enumerate(headers.items()):
        _refuse_stranger(header.metadata, number, len(headers), f"{where}: {plain(name)}")
    metadata = next(iter(headers.values())).metadata
    weights = collect({name: header.tensors for name, header in headers.items()}, where)
    if metadata.get(TENSORS, len(weights.tensors)) != len(weights.tensors):
        msg = f"{where}: {TENSORS} is {_told(metadata, TENSORS)}, but its files hold {len(weights.tensors):,} tensors"
        raise MalformedModelError(msg)
    return metadata, weights


def models_among(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Group the .gguf files of a folder or repo: first file of each model -> all its files that are there, in order.

    Left out is what lies beside models: projectors (mmproj) and importance matrices.

    >>> models_among(["a-00001-of-00002.gguf", "a-00002-of-00002.gguf", "b.gguf", "mmproj-f16.gguf", "README.md"])
    {'a-00001-of-00002.gguf': ('a-00001-of-00002.gguf', 'a-00002-of-00002.gguf'), 'b.gguf': ('b.gguf',)}
    """
    models: dict[tuple[str, str], list[str]] = {}
    for name in sorted(names):
        if not name.endswith(SUFFIX) or re.search(_BESIDE, name.rpartition("/")[2]):
            continue
        part = _part(name)
        models.setdefault((part["stem"], part["count"]) if part else (name, ""), []).append(name)
    return {files[0]: tuple(files) for files in models.values()}


def only_model(names: Iterable[str], where: str) -> tuple[str, ...]:
    """Choose the files of the one model that a folder holds.

    Raises:
        UndeterminedModelError: it holds none, or several, or a part is missing.

    >>> only_model(["m-Q4_K_M.gguf", "mmproj-m-f16.gguf"], "x")
    ('m-Q4_K_M.gguf',)
    """
    everything = tuple(names)
    models = models_among(everything)
    if len(models) > 1:
        shown = [plain(name) for name in models]
        more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
        msg = f"{where}: holds {len(models)} models; give one of {', '.join(shown[:_NAMED])}{more}"
        raise UndeterminedModelError(msg)
    if not models:
        beside = " but projectors (mmproj) or importance matrices" if any(map(_is_gguf, everything)) else ""
        msg = f"{where}: no {SUFFIX} file{beside}; the file of a model must be there"
        raise UndeterminedModelError(msg)
    [first] = models
    return parts_of(first, everything, where)


def parts_of(name: str, names: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the names of all parts of the model that a file belongs to; of an unsplit model it is the file alone.

    Raises:
        MalformedModelError: the name counts from 0 or beyond its own count.
        UndeterminedModelError: a part is not among the names.

    >>> parts_of("m-00002-of-00002.gguf", ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"], "x")
    ('m-00001-of-00002.gguf', 'm-00002-of-00002.gguf')
    """
    part = _part(name)
    if part is None:
        return (name,)
    there, count, width = frozenset(names), int(part["count"]), len(part["number"])
    if not 1 <= int(part["number"]) <= count:
        msg = f"{where}: {quoted(name)} is no part of {count}; parts are numbered from 1 to {count}"
        raise MalformedModelError(msg)
    chosen: list[str] = []
    for number in range(1, count + 1):
        expected = f"{part['stem']}-{number:0{width}d}-of-{part['count']}{SUFFIX}"
        if expected not in there:
            msg = f"{where}: missing shard {quoted(expected)}; all {count:,} must be there"
            raise UndeterminedModelError(msg)
        chosen.append(expected)
    return tuple(chosen)


def _refuse_stranger(metadata: Mapping[str, Value], number: int, files: int, what: str) -> None:
    """Refuse a file that says it is another part, or one of another number of parts, than its name does."""
    count, told = metadata.get(COUNT, 1), _told(metadata, COUNT)
    if files == 1 and type(count) is int and count > 1:
        msg = (
            f"{what}: {COUNT} is {told}, but its name does not tell the other parts; "
            f"they must be named NAME-00001-of-{count:05d}{SUFFIX} and so on"
        )
        raise UndeterminedModelError(msg)
    if type(count) is not int or (count or 1) != files:  # llama.cpp takes 0 for a model that is not split
        msg = f"{what}: {COUNT} is {told}; it must be {files}, as its name says"
        raise MalformedModelError(msg)
    if type(metadata.get(NUMBER, 0)) is not int or metadata.get(NUMBER, 0) != number:
        msg = f"{what}: {NUMBER} is {_told(metadata, NUMBER)}; it must be {number}, counted from 0"
        raise MalformedModelError(msg)


def _told(metadata: Mapping[str, Value], key: str) -> str:
    return short(metadata[key]) if key in metadata else "missing"


def _names(folder: Path, where: str) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError as error:
        msg = f"{where}: cannot be read ({error.strerror or error})"
        raise UndeterminedModelError(msg) from error


def _part(name: str) -> re.Match[str] | None:
    return re.fullmatch(_PART, name)


def _is_gguf(name: str) -> bool:
    return name.endswith(SUFFIX)
