"""Where a model comes from: a path, the catalogue, or the Hugging Face Hub through its own client."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.folder import MAX_CONFIG, read_config, read_file, read_weights
from roofcast.modelspec.huberrors import (
    Ask,
    HubError,
    NotTheHubError,
    explain,
    is_passing,
    offline_and_absent,
    retry_after,
    without_config,
)
from roofcast.modelspec.known import find_known, nearest_names
from roofcast.modelspec.strictjson import quoted
from roofcast.modelspec.weights import summarise

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from roofcast.modelspec.folder import Progress
    from roofcast.modelspec.known import KnownModel
    from roofcast.modelspec.weights import WeightFiles

CONFIG: Final = "config.json"
PAUSES: Final = (1.0, 4.0)  # [s] before a header is asked for again
PATIENCE: Final = 60.0  # [s] that the client may take for a small file, its own retries included
SLOWEST: Final = 50_000  # [B/s]; a download below this is given up
_REPO_ID: Final = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_REVISION: Final = re.compile(r"(?!.*\.\.)[\w][\w./+@-]{0,254}", re.ASCII)
_GGUF: Final = re.compile(r"[^/]+/[^/:]+:\w+|.*\.gguf", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as it was found: its raw config and what its weight files hold.

    Args:
        name: as to be shown: of the catalogue, of the repo, or of the folder.
        config: the object of its config.json.
        weights: None where there are no weight files, or none that could be read.
        weights_problem: why the weights are none, or only a summary, although there are files; None otherwise.
        source: where it was found, in words.
        scales: elements of the weight files that are quantisation scales; known of the catalogue only.
    """

    name: str
    config: Mapping[str, Any]
    weights: WeightFiles | None
    weights_problem: str | None
    source: str
    scales: int = 0


def resolve(
    model: str, *, revision: str | None = None, offline: bool = False, progress: Progress | None = None
) -> Checkpoint:
    """Find a model: an existing path wins, then a name or repo id of the catalogue, then the Hub.

    A bare name that the catalogue does not know is refused without asking the Hub: the repos that once had bare names
    there (gpt2) have all moved to org/name.

    Args:
        model: a folder, a config.json, a name of the catalogue, or org/name.
        revision: a branch, tag or commit of the Hub's repo; with it the Hub is asked even where the catalogue knows.
        offline: ask nothing of the network; the Hub's cache is read.
        progress: told how many weight files there are and each one that is read.

    Raises:
        MalformedModelError: the config or a weight file is broken.
        UndeterminedModelError: there is no such model, or it cannot be reached.
    """
    if not model.strip() or not model.isprintable():
        msg = "MODEL is empty or cannot be printed; give a name of the catalogue, org/name, a folder or a config.json"
        raise MalformedModelError(msg)
    if path := _existing(model):
        if revision is not None:
            msg = f"--revision {revision} is for repos of the Hub, but {model} is a path on this machine"
            raise MalformedModelError(msg)
        return _from_path(path, model, progress)
    known = find_known(model)
    if known and revision is None:
        return _from_catalogue(known)
    repo = known.repos[0] if known and "/" not in model else model
    _refuse_unless_repo(repo)
    if revision is not None and not _REVISION.fullmatch(revision):
        msg = f"--revision {quoted(revision)} is no branch, tag or commit"
        raise MalformedModelError(msg)
    return _from_hub(repo, revision, offline, progress)


def _existing(model: str) -> Path | None:
    """Return the path that is meant where there is one, None where the name is no path.

    Raises:
        UndeterminedModelError: it can only be a path, and there is nothing.
    """
    if "://" in model:
        return None
    path = Path(model)
    try:
        path = path.expanduser()
        if path.exists():
            return path
        problem = "a link to nothing" if path.is_symlink() else "no such file or folder"
    except (OSError, ValueError, RuntimeError) as error:  # no permission, a NUL in it, no such user
        problem = f"cannot be looked at ({getattr(error, 'strerror', None) or error})"
    only_a_path = model[0] in "./~" or model.endswith(".json") or model.count("/") > 1 or "\\" in model
    if not only_a_path and problem.startswith("no such"):
        return None
    if _GGUF.fullmatch(model) and problem.startswith("no such"):
        return None
    msg = f"{quoted(model)}: {problem}"
    raise UndeterminedModelError(msg)


def _from_path(path: Path, model: str, progress: Progress | None) -> Checkpoint:
    if path.is_dir():
        config = path / CONFIG
        if not config.exists() and not config.is_symlink():
            msg = f"no {CONFIG} in folder {model}; a checkpoint's folder has one"
            raise UndeterminedModelError(msg)
        found = read_config(config, f"{model}/{CONFIG}")
        weights, problem = read_weights(path, model, progress)
        return Checkpoint(path.resolve().name or model, found, weights, problem, f"folder {model}")
    if path.suffix.lower() == ".gguf":
        raise _no_gguf(model)
    if path.suffix.lower() != ".json":
        msg = f"{model}: neither a folder nor a .json file; give the folder of the checkpoint or its {CONFIG}"
        raise MalformedModelError(msg)
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    return Checkpoint(name or model, read_config(path, model), None, None, f"file {model}")


def _from_catalogue(known: KnownModel) -> Checkpoint:
    weights = summarise(known.files, "catalogue") if known.files else None
    return Checkpoint(known.name, known.config, weights, None, f"catalogue {known.name}", known.scales)


def _from_hub(repo: str, revision: str | None, offline: bool, progress: Progress | None) -> Checkpoint:
    from roofcast.modelspec.hubweights import read_remote  # noqa: PLC0415  a model of the catalogue does without

    client = _client()
    with _quiet(client):
        hub = _Hub(client, repo, revision)
        path, trouble = hub.config(offline=offline)
        config = read_config(path, f"{repo}: {CONFIG}")
        hub.commit = path.parent.name  # the client keeps snapshots/<commit>/config.json
        source = f"Hub {repo}@{hub.commit}"
        if trouble is None:
            weights, problem = read_remote(hub, progress)
            return Checkpoint(repo, config, weights, problem, source)
        try:
            weights, problem = read_weights(path.parent, repo, progress)
        except UndeterminedModelError as error:
            return Checkpoint(repo, config, None, f"{trouble}; in the Hub's cache: {error}", source)
        absent = None if weights else problem or f"{trouble}; no weight files of {repo} in the Hub's cache"
        return Checkpoint(repo, config, weights, absent, source)


def _refuse_unless_repo(repo: str) -> None:
    if _GGUF.fullmatch(repo):
        raise _no_gguf(repo)
    if "/" not in repo:
        near = f"; nearest: {', '.join(names)}" if (names := nearest_names(repo, 3)) else ""
        msg = f"no model {quoted(repo)} in the catalogue{near}; a repo of the Hub is org/name"
        raise UndeterminedModelError(msg)
    if not _REPO_ID.fullmatch(repo) or "--" in repo or ".." in repo or repo.endswith((".git", "-", ".")):
        msg = f"{quoted(repo)} is no repo of the Hub; org/name has letters, digits and single '-', '_' or '.'"
        raise MalformedModelError(msg)


def _no_gguf(model: str) -> UndeterminedModelError:
    return UndeterminedModelError(f"{model}: GGUF is not read yet; give the repo or folder with its {CONFIG}")


def _client() -> ModuleType:
    """Import huggingface_hub, which takes half a second: only who asks the Hub waits for it."""
    import huggingface_hub
    import huggingface_hub.errors
    import huggingface_hub.utils

    return huggingface_hub


@contextlib.contextmanager
def _quiet(client: ModuleType) -> Iterator[None]:
    """Keep the client's progress bars, log lines and warnings off the terminal: problems are reported in one line."""
    import logging  # noqa: PLC0415  a model of the catalogue does without
    import warnings  # noqa: PLC0415  likewise

    logger = logging.getLogger("huggingface_hub")
    level, hidden = logger.level, client.utils.are_progress_bars_disabled()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger.setLevel(logging.CRITICAL + 1)
        client.utils.disable_progress_bars()
        try:
            yield
        finally:
            logger.setLevel(level)
            if not hidden:
                client.utils.enable_progress_bars()


class _Hub:
    """One repo at one revision, through huggingface_hub: its cache, its tokens, its time-outs."""

    def __init__(self, client: ModuleType, repo: str, revision: str | None) -> None:
        self.client = client
        self.repo = repo
        self.revision = revision
        self.commit: str | None = None  # everything after config.json is read at its commit
        self.timeout: float = client.constants.HF_HUB_DOWNLOAD_TIMEOUT

    @property
    def where(self) -> str:
        return self.repo

    def config(self, *, offline: bool) -> tuple[Path, str | None]:
        """Return config.json in the client's cache, and what kept the Hub from being asked for it."""
        if offline or self.client.constants.HF_HUB_OFFLINE:
            if path := self.cached(CONFIG):
                return path, "offline"
            raise HubError(f"{self.repo}: {offline_and_absent(self._ask(CONFIG))}")
        try:
            return self._download(CONFIG, MAX_CONFIG), None
        except MalformedModelError:
            raise
        except self.client.errors.RemoteEntryNotFoundError as error:
            raise self._without_config() from error
        except Exception as error:
            trouble = self._error(error, CONFIG)
            moved = isinstance(error, self.client.errors.RevisionNotFoundError)
            if not moved and (path := self.cached(CONFIG)):
                return path, str(trouble)
            raise trouble from error

    def cached(self, name: str) -> Path | None:
        found = self.client.try_to_load_from_cache(self.repo, name, revision=self.commit or self.revision)
        return Path(found) if isinstance(found, str) else None

    def read(self, name: str, limit: int) -> bytes | None:
        try:
            path = self.cached(name) or self._download(name, limit)
        except MalformedModelError:
            raise
        except self.client.errors.RemoteEntryNotFoundError:
            return None
        except Exception as error:
            raise self._error(error, name) from error
        return read_file(path, f"{self.repo}: {name}", limit)

    def span(self, name: str, first: int, last: int) -> tuple[bytes, int | None] | None:
        pauses = iter(PAUSES)
        while True:
            try:
                return self._get(name, first, last)
            except self.client.errors.RemoteEntryNotFoundError:
                return None
            except Exception as error:
                pause = next(pauses, None)
                if pause is None or not is_passing(error) or retry_after(error):
                    raise self._error(error, name) from error
            time.sleep(pause)

    def summary(self) -> tuple[dict[str, int], tuple[str, ...]]:
        expand = ["safetensors", "siblings"]
        try:
            info = self.client.HfApi(library_name="roofcast").model_info(
                self.repo, revision=self.commit or self.revision, expand=expand, timeout=self.timeout
            )
        except Exception as error:
            raise self._error(error, "its list of files") from error
        elements = info.safetensors.parameters if info.safetensors else {}
        return dict(elements), tuple(sibling.rfilename for sibling in info.siblings or ())

    def _download(self, name: str, limit: int) -> Path:
        """Put a small file into the client's cache, after a look at the server that does not hang as the client may.

        Without it the client itself asks a silent server for seven minutes, and waits as long as Retry-After says.
        """
        from roofcast.modelspec.workers import within  # noqa: PLC0415

        revision = self.commit or self.revision
        size = self._size(name, revision)
        if size > limit:
            msg = f"{self.repo}: {name}: {size:,} bytes, larger than {limit // 1_000_000} MB; that is no such file"
            raise MalformedModelError(msg)
        ask = partial(self.client.hf_hub_download, self.repo, name, revision=revision, library_name="roofcast")
        return Path(within(PATIENCE + size / SLOWEST, ask))

    def _size(self, name: str, revision: str | None) -> int:
        """Return the size of a file, 0 where the server does not tell. [B]"""
        response = self.client.utils.get_session().head(
            self.client.hf_hub_url(self.repo, name, revision=revision),
            headers=self._headers(),
            timeout=self.client.constants.HF_HUB_ETAG_TIMEOUT,
            follow_redirects=False,  # the answer is about the file; a storage host need not be asked, nor see the token
        )
        self.client.utils.hf_raise_for_status(response)
        if response.is_success and "X-Repo-Commit" not in response.headers:
            raise NotTheHubError
        size = response.headers.get("X-Linked-Size") or (response.is_success and response.headers.get("Content-Length"))
        return int(size) if size and size.isdigit() else 0

    def _get(self, name: str, first: int, last: int) -> tuple[bytes, int | None]:
        url = self.client.hf_hub_url(self.repo, name, revision=self.commit)
        headers = self._headers() | {"Range": f"bytes={first}-{last}"}
        session = self.client.utils.get_session()  # it drops the token when another host is redirected to
        with session.stream("GET", url, headers=headers, timeout=self.timeout, follow_redirects=True) as response:
            if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # an empty file
                return b"", _total(response.headers.get("Content-Range"))
            self.client.utils.hf_raise_for_status(response)
            return _body(response, first, last, time.monotonic() + 3 * self.timeout + (last - first) / SLOWEST)

    def _headers(self) -> dict[str, str]:
        sent: dict[str, str] = self.client.utils.build_hf_headers(library_name="roofcast")
        return sent | {"Accept-Encoding": "identity"}  # sizes and ranges are those of the file

    def _ask(self, name: str) -> Ask:
        constants = self.client.constants
        return Ask(
            repo=self.repo,
            revision=self.revision or "main",
            file=name,
            endpoint=constants.ENDPOINT,
            token=self.client.utils.get_token() is not None,
            cache=str(constants.HF_HUB_CACHE),
            timeout=self.timeout,
            nearest=tuple(nearest_names(self.repo, 3)),
        )

    def _error(self, error: Exception, name: str) -> HubError:
        return HubError(explain(error, self._ask(name)))

    def _without_config(self) -> HubError:
        try:
            names = self.summary()[1]
        except HubError:
            names = ()
        return HubError(without_config(names, self._ask(CONFIG)))


def _body(response: Any, first: int, last: int, deadline: float) -> tuple[bytes, int | None]:  # noqa: ANN401  of httpx, or of httpx2
    """Return bytes first..last of an answer and the file's size; a server without ranges sends all: stop early."""
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise NotTheHubError
    whole = response.status_code != HTTPStatus.PARTIAL_CONTENT  # the range was ignored
    skip = first if whole else 0
    end = skip + last - first + 1
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) >= end:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
    size = response.headers.get("Content-Length") if whole else response.headers.get("Content-Range")
    return bytes(body[skip:end]), _total(size)


def _total(header: str | None) -> int | None:
    size = (header or "").rpartition("/")[2]
    return int(size) if size.isdigit() else None
