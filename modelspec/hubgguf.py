"""GGUF files on the Hub: the headers of one model's files by ranged reads, or from the client's cache."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.gguf import read_gguf
from roofcast.modelspec.gguf_cursor import FIRST_READ
from roofcast.modelspec.gguf_files import LocalFile, join_parts
from roofcast.modelspec.gguf_tags import choose, projectors
from roofcast.modelspec.hub import Hub, quiet
from roofcast.modelspec.huberrors import HubError
from roofcast.modelspec.hubsettings import bad_setting
from roofcast.modelspec.hubweights import THREADS
from roofcast.modelspec.strictjson import plain, quoted
from roofcast.modelspec.workers import fan_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from roofcast.modelspec.folder import Progress
    from roofcast.modelspec.gguf import ByteSource, Value
    from roofcast.modelspec.gguf_tags import GgufName
    from roofcast.modelspec.weights import WeightFiles

WHOLE_READ: Final = 1 << 20  # [B] to ask for first of a model in one file: its vocabulary takes megabytes


@dataclass(frozen=True, slots=True)
class GgufFound:
    """A model in GGUF files, as it was found.

    Args:
        metadata: of the first file.
        weights: what all files hold.
        files: their names in the repo, in order.
        beside: projectors in the repo, which are not read.
        commit: of the repo.
    """

    metadata: Mapping[str, Value]
    weights: WeightFiles
    files: tuple[str, ...]
    beside: tuple[str, ...]
    commit: str


class RemoteFile:
    """A file of a repo, of which the Hub is asked for the bytes that are wanted."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.where = f"{hub.where}: {plain(name)}"
        self.size: int | None = None  # told with the first bytes
        self._hub = hub
        self._name = name

    def read(self, first: int, count: int) -> bytes:
        """Return so many bytes, fewer only where the file ends.

        Raises:
            UndeterminedModelError: the file is not there, out of reach, or not all of the bytes arrived.
        """
        if count <= 0:
            return b""
        found = self._hub.span(self._name, first, first + count - 1)
        if found is None:
            msg = f"{self._hub.where}: missing file {quoted(self._name)}, which the Hub's list of files names"
            raise UndeterminedModelError(msg)
        data, size = found
        self.size = self.size if size is None else size
        expected = count if self.size is None else min(count, self.size - first)
        if self.size is not None and len(data) < expected:
            msg = f"{self.where}: {len(data):,} bytes of its header arrived, not {expected:,}; try again"
            raise HubError(msg)
        return data


def read_gguf_repo(
    client: ModuleType, asked: GgufName, revision: str | None, *, offline: bool, progress: Progress | None
) -> GgufFound:
    """Read the headers of the GGUF files of a model on the Hub.

    Args:
        client: the module huggingface_hub.
        asked: the repo, and which of its files.
        revision: a branch, tag or commit, None for main.
        offline: read the client's cache alone.
        progress: told of every file of several that is read.

    Raises:
        MalformedModelError: a file is broken, or the parts contradict each other.
        UndeterminedModelError: the repo or a file of it is absent or out of reach, or several are meant.
    """
    hub = Hub(client, asked.repo, revision)
    with quiet(client), contextlib.closing(hub):
        names, snapshot = _files(hub, offline=offline)
        where = asked.repo if snapshot is None else f"{asked.repo} in the Hub's cache"
        chosen = choose(asked, names, where)
        metadata, weights = _read(chosen, lambda name: _open(hub, name, snapshot), asked.repo, progress)
        return GgufFound(metadata, weights, chosen, projectors(names), hub.commit or "")


def _files(hub: Hub, *, offline: bool) -> tuple[tuple[str, ...], Path | None]:
    """Return the names of a repo's files, and the folder of those in the client's cache where the Hub is not asked."""
    constants = hub.client.constants
    if not (offline or constants.HF_HUB_OFFLINE):
        if problem := bad_setting(constants):
            raise HubError(f"{hub.where}: {problem}")
        try:
            return hub.files(), None
        except HubError as error:
            moved = isinstance(error.__cause__, hub.client.errors.RevisionNotFoundError)
            if moved or not (kept := _kept(hub)):
                raise
            return kept
    if kept := _kept(hub):
        return kept
    msg = (
        f"{hub.where}: offline, and no GGUF file of it is in the Hub's cache ({constants.HF_HUB_CACHE}); "
        f"while online run `hf download {hub.where} FILE`, or ask without --offline (HF_HUB_OFFLINE)"
    )
    raise HubError(msg)


def _kept(hub: Hub) -> tuple[tuple[str, ...], Path] | None:
    """Return the GGUF files that the client's cache has, with their folder; None where it has none."""
    snapshot = hub.snapshot()
    if snapshot is None:
        return None
    names = tuple(path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf"))
    return (names, snapshot) if names else None


def _open(hub: Hub, name: str, snapshot: Path | None) -> ByteSource:
    path = snapshot / name if snapshot else hub.cached(name)
    return LocalFile(path, f"{hub.where}: {plain(name)}") if path else RemoteFile(hub, name)


def _read(
    names: Sequence[str], open_part: Callable[[str], ByteSource], where: str, progress: Progress | None
) -> tuple[Mapping[str, Value], WeightFiles]:
    """Read the headers of all parts side by side."""
    several = len(names) > 1
    if progress and several:
        progress.start(len(names))
    chunk = FIRST_READ if several else WHOLE_READ
    headers = {}
    for name, header in fan_out(lambda name: read_gguf(open_part(name), chunk), names, threads=THREADS):
        headers[name] = header
        if progress and several:
            progress.advance()
    return join_parts({name: headers[name] for name in names}, where)
