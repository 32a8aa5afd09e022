"""The Hugging Face Hub through its own client, which `source` alone imports and hands over."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.folder import MAX_CONFIG, MAX_INDEX, QUANTIZATION, read_file
from roofcast.modelspec.gguf_files import models_among
from roofcast.modelspec.huberrors import (
    Ask,
    HubError,
    NotTheHubError,
    NotTheRangeError,
    OneGgufError,
    TooLongError,
    explain,
    is_passing,
    offline_and_absent,
    retry_after,
    without_config,
)
from roofcast.modelspec.hubsettings import bad_setting, proxy_for, silence
from roofcast.modelspec.known import nearest_names
from roofcast.modelspec.strictjson import plain
from roofcast.modelspec.weights import INDEX, MAX_HEADER
from roofcast.modelspec.workers import within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    Response = Any  # of httpx or of httpx2, by the client's version

CONFIG: Final = "config.json"
PAUSES: Final = (0.5, 2.0)  # [s] before a header is asked for again
PATIENCE: Final = 30.0  # [s] that the client may take for a small file, its own retries included
SLOWEST: Final = 50_000  # [B/s]; a download below this is given up
LONGEST: Final = 60.0  # [s] that the bytes of one answer may take on top of that, however many there are
AGENT: Final = 5.0  # [s]; the client may ask for a list of agents (it allows 3 s) before it makes its headers
MOST_SUMMARY: Final = 50_000_000  # [B]; the Hub's own list of a repo's files is far below 10 MB
MOST: Final = 2 * MAX_HEADER + 1_000_000  # [B] of any other answer: the end of a header from a server without ranges
COPY: Final = "/safetensors-metadata/"  # the Hub's copy of all headers of an index
LIMITS: Final = {  # part of path -> [B], the first that fits
    COPY: MAX_INDEX,
    f"/{CONFIG}": MAX_CONFIG,
    f"/{QUANTIZATION}": MAX_CONFIG,
    f"/{INDEX}": MAX_INDEX,
    "/api/models/": MOST_SUMMARY,
}
_MAIN: Final = "main"
_HOPS: Final = 5  # redirects within the Hub, as for a repo that was renamed
_COMMIT: Final = r"\w[\w.-]{0,63}"
_PART: Final = 206  # HTTP: the range that was asked for
_NOTHING_THERE: Final = 416  # HTTP: the range begins behind the end, as every range of an empty file does


@contextlib.contextmanager
def quiet(client: ModuleType) -> Iterator[None]:
    """Keep the client's progress bars, log lines and warnings off the terminal: problems are reported in one line."""
    logger = logging.getLogger("huggingface_hub")
    level, hidden = logger.level, client.utils.are_progress_bars_disabled()
    with silence():
        logger.setLevel(logging.CRITICAL + 1)
        client.utils.disable_progress_bars()
        try:
            yield
        finally:
            logger.setLevel(level)
            if not hidden:
                client.utils.enable_progress_bars()


class Hub:
    """One repo at one revision, through huggingface_hub: its cache, its tokens, its time-outs."""

    def __init__(self, client: ModuleType, repo: str, revision: str | None) -> None:
        self.client = client
        self.repo = repo
        self.revision = revision
        self.commit: str | None = None  # everything after config.json is read at its commit
        self.timeout: float = client.constants.HF_HUB_DOWNLOAD_TIMEOUT
        self._hooks: list[list[Callable[[Response], None]]] = []

    @property
    def where(self) -> str:
        """The repo as messages name it."""
        return self.repo

    def close(self) -> None:
        """Give the client's session back as it was."""
        for hooks in self._hooks:
            hooks.remove(_cap)
        self._hooks.clear()

    def commit_of(self, config: Path) -> str:
        """Return the commit at which the client keeps a file: snapshots/<commit>/config.json.

        Raises:
            HubError: whoever answered named no commit.
        """
        commit = config.parent.name
        if not re.fullmatch(_COMMIT, commit, re.ASCII):
            raise self._error(NotTheHubError(), CONFIG)
        return commit

    def config(self, *, offline: bool) -> tuple[Path, str | None]:
        """Return config.json in the client's cache, and what kept the Hub from being asked for it."""
        if offline or self.client.constants.HF_HUB_OFFLINE:
            if path := self.cached(CONFIG):
                return path, "offline"
            raise HubError(f"{self.repo}: {offline_and_absent(self._ask(CONFIG))}")
        if problem := bad_setting(self.client.constants):
            raise HubError(f"{self.repo}: {problem}")
        try:
            return self._download(CONFIG, MAX_CONFIG), None
        except (MalformedModelError, HubError):
            raise
        except self.client.errors.RemoteEntryNotFoundError as error:
            raise self._without_config() from error
        except Exception as error:
            trouble = self._error(error, CONFIG)
            moved = isinstance(error, self.client.errors.RevisionNotFoundError)
            if not moved and (path := self.cached(CONFIG)):
                return path, str(trouble).removeprefix(f"{self.repo}: ")
            raise trouble from error

    def cached(self, name: str) -> Path | None:
        """Return where the client has the file already."""
        try:
            found = self.client.try_to_load_from_cache(self.repo, name, revision=self.commit or self.revision)
        except Exception as error:
            raise self._error(error, name) from error
        return Path(found) if isinstance(found, str) else None

    def read(self, name: str, limit: int) -> bytes | None:
        """Return a whole small file, None where the repo has none of that name."""
        try:
            path = self.cached(name) or self._download(name, limit)
        except (MalformedModelError, HubError):
            raise
        except self.client.errors.RemoteEntryNotFoundError:
            return None
        except Exception as error:
            raise self._error(error, name) from error
        return read_file(path, f"{self.repo}: {plain(name)}", limit)

    def span(self, name: str, first: int, last: int) -> tuple[bytes, int | None] | None:
        """Return bytes first..last of a file and its size, None where the repo has none of that name."""
        try:
            return within(self._patience(last - first), partial(self._span, name, first, last))
        except self.client.errors.RemoteEntryNotFoundError:
            return None
        except Exception as error:
            raise self._error(error, name) from error

    def _span(self, name: str, first: int, last: int) -> tuple[bytes, int | None]:
        pauses = iter(PAUSES)
        while True:
            try:
                return self._get(name, first, last)
            except Exception as error:
                pause = next(pauses, None)
                if pause is None or not is_passing(error) or retry_after(error):
                    raise
            time.sleep(pause)

    def headers(self, index: str) -> bytes:
        """Return the Hub's own copy of all headers of an index, as JSON; it keeps one of the newest commit alone."""
        what = "all headers at once"
        if self.revision not in {None, _MAIN}:
            msg = f"{self.repo}: the Hub gives {what} of {_MAIN} alone"
            raise HubError(msg)
        try:
            return within(self._patience(MAX_INDEX), partial(self._all_headers, index))
        except Exception as error:
            raise self._error(error, what) from error

    def _all_headers(self, index: str) -> bytes:
        url = f"{self.client.constants.ENDPOINT}/api/models/{self.repo}{COPY}{index}"
        response = self._session().get(url, headers=self._headers(), timeout=self.timeout, follow_redirects=True)
        self.client.utils.hf_raise_for_status(response)
        content: bytes = response.content
        return content

    def summary(self) -> tuple[dict[str, int], tuple[str, ...]]:
        """Return the Hub's count of elements by dtype and the names of all files."""
        try:
            return within(self._patience(0), self._summary)
        except Exception as error:
            raise self._error(error, "its list of files") from error

    def _summary(self) -> tuple[dict[str, int], tuple[str, ...]]:
        info = self._info("safetensors", "siblings")
        return dict(info.safetensors.parameters if info.safetensors else {}), _names(info)

    def files(self) -> tuple[str, ...]:
        """Return the names of all files; whatever is read afterwards is of the commit that has them."""
        what = "its list of files"
        try:
            info = within(self._patience(0), partial(self._info, "sha", "siblings"))
        except Exception as error:
            raise self._error(error, what) from error
        if not isinstance(info.sha, str) or not re.fullmatch(_COMMIT, info.sha, re.ASCII):
            raise self._error(NotTheHubError(), what)
        self.commit = info.sha
        return _names(info)

    def _info(self, *expand: str) -> Any:  # noqa: ANN401  of the client, by its version
        self._session()
        return self.client.HfApi(library_name="roofcast").model_info(
            self.repo, revision=self.commit or self.revision, expand=list(expand), timeout=self.timeout
        )

    def snapshot(self) -> Path | None:
        """Return the folder in the client's cache that holds the files of this revision, None where there is none.

        Source: https://huggingface.co/docs/huggingface_hub/guides/manage-cache.
        """
        storage = Path(self.client.constants.HF_HUB_CACHE).expanduser() / f"models--{self.repo.replace('/', '--')}"
        revision = self.revision or _MAIN
        ref = storage / "refs" / revision
        try:
            commit = ref.read_text(encoding="ascii").strip() if ref.is_file() else revision
            found = re.fullmatch(_COMMIT, commit, re.ASCII) and (storage / "snapshots" / commit).is_dir()
        except (OSError, ValueError) as error:
            raise self._error(error, "the Hub's cache") from error
        self.commit = commit if found else None
        return storage / "snapshots" / commit if found else None

    def _patience(self, size: int) -> float:
        """Return how long one question may take in all: three tries, pauses, and the bytes on a slow line. [s]"""
        return AGENT + min(3 * self.timeout + sum(PAUSES), 10 * LONGEST) + min(size / SLOWEST, LONGEST)

    def _download(self, name: str, limit: int) -> Path:
        """Put a small file into the client's cache, after a look at the server that does not hang as the client may.

        Without it the client itself asks a silent server for seven minutes, and waits as long as Retry-After says.
        """
        revision = self.commit or self.revision
        size = within(self._patience(0), partial(self._size, name, revision))
        if size > limit:
            msg = f"{self.repo}: {name}: {size:,} bytes, larger than {limit // 1_000_000} MB; that is no such file"
            raise MalformedModelError(msg)
        ask = partial(self.client.hf_hub_download, self.repo, name, revision=revision, library_name="roofcast")
        patience = max(PATIENCE, min(2 * self.timeout, 10 * LONGEST))
        return Path(within(patience + min(size / SLOWEST, LONGEST), ask))

    def _size(self, name: str, revision: str | None) -> int:
        """Return the size of a file, 0 where the server does not tell. [B]"""
        response = self._head(self.client.hf_hub_url(self.repo, name, revision=revision))
        commit = response.headers.get("X-Repo-Commit")
        if commit is not None and not re.fullmatch(_COMMIT, commit, re.ASCII):
            raise NotTheHubError
        size = response.headers.get("X-Linked-Size") or (response.is_success and response.headers.get("Content-Length"))
        return _number(size or "") or 0

    def _head(self, url: str) -> Response:
        """Ask about a file; only redirects within the Hub are followed, so that no storage host sees the token."""
        headers = self._headers()
        for _ in range(_HOPS):
            response = self._session().head(
                url, headers=headers, timeout=self.client.constants.HF_HUB_ETAG_TIMEOUT, follow_redirects=False
            )
            self.client.utils.hf_raise_for_status(response)
            target = urljoin(url, response.headers.get("Location", ""))
            if not response.is_redirect or urlsplit(target)[:2] != urlsplit(url)[:2]:
                return response
            url = target
        raise NotTheHubError

    def _session(self) -> Any:  # noqa: ANN401  likewise of httpx
        """Return the client's session, which from then on breaks off answers that do not end."""
        session = self.client.utils.get_session()
        hooks = session.event_hooks["response"]
        if _cap not in hooks:
            hooks.append(_cap)
            self._hooks.append(hooks)
        return session

    def _get(self, name: str, first: int, last: int) -> tuple[bytes, int | None]:
        url = self.client.hf_hub_url(self.repo, name, revision=self.commit)
        headers = self._headers() | {"Range": f"bytes={first}-{last}"}
        session = self._session()  # it drops the token when another host is redirected to
        with session.stream("GET", url, headers=headers, timeout=self.timeout, follow_redirects=True) as response:
            if response.status_code == _NOTHING_THERE:  # an empty file
                return b"", _total(response.headers.get("Content-Range"))
            self.client.utils.hf_raise_for_status(response)
            return _body(response, first, last, time.monotonic() + self._patience(last - first))

    def _headers(self) -> dict[str, str]:
        sent: dict[str, str] = self.client.utils.build_hf_headers(library_name="roofcast")
        return sent | {"Accept-Encoding": "identity"}  # sizes and ranges are those of the file

    def _ask(self, name: str) -> Ask:
        constants = self.client.constants
        return Ask(
            repo=self.repo,
            revision=self.revision or "main",
            file=plain(name),
            endpoint=constants.ENDPOINT,
            token=self._has_token(),
            cache=str(constants.HF_HUB_CACHE),
            timeout=self.timeout,
            nearest=tuple(nearest_names(self.repo, 3)),
            proxy=proxy_for(constants.ENDPOINT),
        )

    def _has_token(self) -> bool:
        try:
            return within(AGENT, self.client.utils.get_token) is not None
        except Exception:  # noqa: BLE001  its file cannot be read, or the Hub would not renew it
            return False

    def _error(self, error: Exception, name: str) -> HubError:
        return HubError(explain(error, self._ask(name)))

    def _without_config(self) -> HubError:
        try:
            names = self.summary()[1]
        except HubError:
            names = ()
        message = without_config(names, self._ask(CONFIG))
        models = tuple(models_among(names))
        return OneGgufError(message, models[0]) if len(models) == 1 else HubError(message)


def _cap(response: Response) -> None:
    """Make an answer break off where it is larger than it may be, decoded as well as sent."""
    path = response.request.url.path
    limit = next((size for part, size in LIMITS.items() if part in path), MOST)
    read = response.iter_bytes

    def iter_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        total = 0
        for chunk in read(chunk_size):
            total += len(chunk)
            if total > limit:
                raise TooLongError(limit)
            yield chunk

    response.iter_bytes = iter_bytes


def _body(response: Response, first: int, last: int, deadline: float) -> tuple[bytes, int | None]:
    """Return bytes first..last of an answer and the file's size; a server without ranges sends all: stop early."""
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise NotTheHubError
    whole = response.status_code != _PART  # the range was ignored
    began = re.match(r"bytes (\d{1,18})-", response.headers.get("Content-Range", ""))
    if not whole and began and int(began[1]) != first:
        raise NotTheRangeError(first)
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


def _names(info: Any) -> tuple[str, ...]:  # noqa: ANN401  of the client, by its version
    names = (sibling.rfilename for sibling in info.siblings or ())
    return tuple(name for name in names if isinstance(name, str))


def _total(header: str | None) -> int | None:
    return _number((header or "").rpartition("/")[2])


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None
