"""Weight files on the Hub: their headers by ranged reads, else the Hub's own summary; never silently neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.folder import MAX_INDEX, missing_shard, read_header, shards_of
from roofcast.modelspec.huberrors import HubError
from roofcast.modelspec.strictjson import plain
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
    unread,
)
from roofcast.modelspec.workers import fan_out

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.modelspec.folder import Progress
    from roofcast.modelspec.weights import Tensor, WeightFiles

FIRST_READ: Final = 100_000  # [B]; nearly all headers are shorter, so one request does
THREADS: Final = 8


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

    def summary(self) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return the Hub's count of elements by dtype (empty where it has none) and the names of all files."""


def read_remote(remote: Remote, progress: Progress | None = None) -> tuple[WeightFiles | None, str | None]:
    """Return what a repo's weight files hold, and what kept their headers from being read.

    Headers that were read and are broken are an error; headers that could not be read fall back to the Hub's summary,
    and where there is none either, to nothing; the second value says so.

    Raises:
        MalformedModelError: a header or the index is broken.
        UndeterminedModelError: the index names a file that the repo lacks.
    """
    try:
        return _from_headers(remote, progress)
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


def _from_headers(remote: Remote, progress: Progress | None) -> tuple[WeightFiles | None, str | None]:
    single = _header(remote, SINGLE)
    if single is not None:
        return collect({SINGLE: single}, remote.where), None
    text = remote.read(INDEX, MAX_INDEX)
    index = parse_index(text, f"{remote.where}: {INDEX}") if text is not None else None
    try:
        elements, all_names = remote.summary() if index is None else ({}, ())
        chosen = shards_of(index) if index else pick(all_names, remote.where)
        if not chosen and elements:  # the files are elsewhere (a folder of their own), the Hub has counted them
            return summarise(elements, "hub summary"), None
    except (HubError, MalformedModelError) as error:  # it would not come out better if it were asked again
        return None, str(error).removeprefix(f"{remote.where}: ")
    if not chosen:
        return None, unread(all_names)
    if progress:
        progress.start(len(chosen))
    shards = {}
    for name, tensors in fan_out(lambda shard: _header(remote, shard), chosen, threads=THREADS):
        if tensors is None:
            raise missing_shard(remote.where, name, INDEX if index else "the Hub's list of files")
        shards[name] = tensors
        if progress:
            progress.advance()
    return collect({name: shards[name] for name in chosen}, remote.where, index), None


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
