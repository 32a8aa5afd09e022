"""Weight files on the Hub: their headers by ranged reads, else the Hub's own summary; never silently neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.folder import MAX_INDEX, missing_shard, read_header, shards_of
from roofcast.modelspec.gguf_tags import how_to_ask, tags_among
from roofcast.modelspec.huberrors import HubError
from roofcast.modelspec.strictjson import plain, read_object
from roofcast.modelspec.weights import (
    INDEX,
    LENGTH,
    SINGLE,
    collect,
    header_length,
    parse_header,
    parse_index,
    pick,
    summarise,
    tensors_of,
    unread,
)
from roofcast.modelspec.workers import fan_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from roofcast.modelspec.folder import Progress
    from roofcast.modelspec.weights import Tensor, WeightFiles

FIRST_READ: Final = 100_000  # [B]; nearly all headers are shorter, so one request does
THREADS: Final = 8
MANY: Final = 16  # files; of more the Hub is asked for what it knows of all of them, one request instead of hundreds
#: What a header takes for a tensor: its dtype, shape, offsets and a name. [B]
#: Source: 129 B in deepseek-ai/DeepSeek-V3, whose index states the bytes of files instead of those of tensors.
_ENTRY: Final = (60, 256)
_NO_SIZE: Final = 1 << 63
# Of packed integers and 4-bit floats the Hub counts the values inside, of others the elements stored.
# Source: huggingface/huggingface.js, pull requests 1770, 2003 and 2323.
_COUNTED_AS_STORED: Final = frozenset(
    {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"}
)


class Remote(Protocol):
    """One commit of one repo. Every method raises HubError where the Hub could not be asked."""

    @property
    def where(self) -> str:
        """The repo as messages name it."""

    def cached(self, name: str) -> Path | None:
        """Return where the client has the file already."""

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a whole small file, None where the repo has none of that name."""

    def span(self, name: str, first: int, last: int) -> tuple[bytes, int | None] | None:
        """Return bytes first..last of a file and its size, None where the repo has none of that name."""

    def headers(self, index: str) -> bytes:
        """Return the Hub's own copy of all headers of an index, as JSON."""

    def summary(self) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return the Hub's count of elements by dtype (empty where it has none) and the names of all files."""


def read_remote(
    remote: Remote, progress: Progress | None = None, *, thorough: bool = True
) -> tuple[WeightFiles | None, str | None]:
    """Return what a repo's weight files hold, and what kept their headers from being read.

    Of many files the Hub gives all headers in one answer, or else its summary, where that agrees with the index.
    Headers that were read and are broken are an error; headers that could not be read fall back to the Hub's summary,
    and where there is none either, to nothing; the second value says so.

    Args:
        remote: the repo.
        progress: told how many files are read one by one, and of each that is.
        thorough: whether tensors are needed, so that no summary by dtype will do for those of many files.

    Raises:
        MalformedModelError: a header or the index is broken.
        UndeterminedModelError: the index names a file that the repo lacks.
    """
    try:
        return _from_headers(remote, progress, thorough=thorough)
    except HubError as error:
        problem = str(error).removeprefix(f"{remote.where}: ")
    try:
        elements, _ = remote.summary()
        if not elements:
            return None, f"{problem}; and the Hub has no summary of its weights"
        return summarise(elements, "hub summary"), f"{problem}; the Hub's own summary is used instead"
    except (HubError, MalformedModelError) as error:
        second = str(error).removeprefix(f"{remote.where}: ")
        return None, f"{problem}; nor could the Hub's summary be read: {second}"


def _from_headers(
    remote: Remote, progress: Progress | None, *, thorough: bool
) -> tuple[WeightFiles | None, str | None]:
    single = _header(remote, SINGLE)
    if single is not None:
        return collect({SINGLE: single}, remote.where), None
    text = remote.read(INDEX, MAX_INDEX)
    if text is not None:
        return _from_index(remote, text, progress, thorough=thorough), None
    try:
        elements, all_names = remote.summary()
        chosen = pick(all_names, remote.where)
        if not chosen and elements:  # the files are elsewhere (a folder of their own), the Hub has counted them
            return summarise(elements, "hub summary"), None
    except (HubError, MalformedModelError) as error:  # it would not come out better if it were asked again
        return None, str(error).removeprefix(f"{remote.where}: ")
    if not chosen:
        ways = f"; {how_to_ask(remote.where, all_names)}" if tags_among(all_names) else ""
        return None, f"{problem}{ways}" if (problem := unread(all_names)) else None
    return collect(_one_by_one(remote, chosen, progress, "the Hub's list of files"), remote.where), None


def _from_index(remote: Remote, text: bytes, progress: Progress | None, *, thorough: bool) -> WeightFiles:
    where = f"{remote.where}: {INDEX}"
    index = parse_index(text, where)
    chosen = shards_of(index)
    if len(chosen) > MANY and not all(map(remote.cached, chosen)):
        total = _total_size(text, where)
        if found := _at_once(remote, chosen, index, total):
            return found
        if not thorough and (found := _summarised(remote, len(chosen), total, len(index))):
            return found
    return collect(_one_by_one(remote, chosen, progress, INDEX), remote.where, index)


def _at_once(remote: Remote, chosen: Sequence[str], index: Mapping[str, str], total: int) -> WeightFiles | None:
    """Return what the Hub's own copy of the headers says; None where it gives none, or one that is not of this index.

    It is of the newest commit, and the index may be of the one before: tensors and bytes must be those of the index.
    """
    where = f"{remote.where}: the Hub's copy of its headers"
    try:
        copies = read_object(remote.headers(INDEX), where, unique=True).get("headers")
        if not isinstance(copies, dict) or copies.keys() != set(chosen):
            return None
        shards = {name: tensors_of(copies[name], where) for name in chosen if isinstance(copies[name], dict)}
        found = collect(shards, remote.where, index)
    except (HubError, MalformedModelError):  # the files themselves will tell
        return None
    same = len(found.tensors) == len(index) and (not total or _agree(found.bytes, total, len(index)))
    return found if same else None


def _summarised(remote: Remote, files: int, total: int, tensors: int) -> WeightFiles | None:
    """Return the Hub's summary; None where it has none or its bytes are not those that the index states."""
    try:
        elements, _ = remote.summary()
        found = summarise(elements, "hub summary", files)
    except (HubError, MalformedModelError):  # the files themselves will tell
        return None
    agrees = _agree(found.bytes, total, tensors) if total else elements.keys() <= _COUNTED_AS_STORED
    return found if agrees else None


def _agree(counted: int, stated: int, tensors: int) -> bool:
    """Tell whether an index states as many bytes as were counted: those of the tensors, or of their files with headers.

    >>> _agree(16_060_522_496, 16_060_522_496, 291), _agree(688_574_839_360, 688_586_727_753, 91_991)
    (True, True)
    >>> _agree(688_408_616_960, 688_586_727_753, 91_991)  # without the scales
    False
    """
    least, most = _ENTRY
    return stated == counted or least * tensors <= stated - counted <= most * tensors


def _total_size(text: bytes, where: str) -> int:
    """Return the bytes in all that an index states, 0 where it states none. [B]"""
    metadata = read_object(text, where).get("metadata")
    stated = metadata.get("total_size") if isinstance(metadata, dict) else None
    return int(stated) if isinstance(stated, int | float) and 0 < stated < _NO_SIZE else 0


def _one_by_one(
    remote: Remote, chosen: Sequence[str], progress: Progress | None, by: str
) -> dict[str, tuple[Tensor, ...]]:
    """Return the tensors of every file, in order.

    Raises:
        UndeterminedModelError: `by` names a file that is not there.
    """
    if progress:
        progress.start(len(chosen))
    shards = {}
    for name, tensors in fan_out(lambda shard: _header(remote, shard), chosen, threads=THREADS):
        if tensors is None:
            raise missing_shard(remote.where, name, by)
        shards[name] = tensors
        if progress:
            progress.advance()
    return {name: shards[name] for name in chosen}


def _header(remote: Remote, name: str) -> tuple[Tensor, ...] | None:
    where = f"{remote.where}: {plain(name)}"
    if path := remote.cached(name):
        return read_header(path, where)
    found = remote.span(name, 0, FIRST_READ - 1)
    if found is None:
        return None
    start, size = found
    length = header_length(start, where, size)
    if (end := LENGTH + length) > len(start):
        rest, _ = remote.span(name, len(start), end - 1) or (b"", None)
        start += rest
    if end > len(start):
        msg = f"{where}: {len(start):,} bytes of its header arrived, not {end:,}"
        raise HubError(msg)
    return parse_header(start[LENGTH:end], where, None if size is None else size - end)
