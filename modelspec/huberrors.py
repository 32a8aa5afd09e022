"""What went wrong with the Hub, in one line: a table from the client's exceptions to messages.

The exceptions are looked up by the names of their classes, because the client (huggingface_hub and the HTTP library
below it) is imported by `source` alone, and that library's name differs between versions of the client.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.gguf_tags import how_to_ask, tags_among
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Callable


class HubError(UndeterminedModelError):
    """The Hub could not be asked, or did not say; the message is one line."""


class OneGgufError(HubError):
    """A repo has no config.json but one model in GGUF, whose first file `file` names."""

    def __init__(self, message: str, file: str) -> None:
        super().__init__(message)
        self.file = file


class NotTheHubError(ConnectionError):
    """Something answered that is not the Hub: a captive portal, a proxy, a wrong HF_ENDPOINT."""


class TooLongError(Exception):
    """An answer goes on past the size that such a file may have; holds that size. [B]"""


class NotTheRangeError(Exception):
    """An answer is of other bytes than were asked for; holds the first that was. [B]"""


@dataclass(frozen=True, slots=True)
class Ask:
    """What was asked of the Hub when it went wrong.

    Args:
        repo: org/name.
        revision: as the user gave it, else "main".
        file: in the repo.
        endpoint: the Hub's address.
        token: whether one was sent.
        cache: the client's cache folder.
        timeout: for one answer. [s]
        nearest: repos of the catalogue that are spelt like this one.
        proxy: the variable that sets a proxy for this address, empty without one.
    """

    repo: str
    revision: str
    file: str
    endpoint: str
    token: bool
    cache: str
    timeout: float
    nearest: tuple[str, ...] = ()
    proxy: str = ""

    @property
    def host(self) -> str:
        """The Hub's address without its scheme, a user and a password."""
        return (self.endpoint.partition("://")[2] or self.endpoint).rpartition("@")[2]


def explain(error: BaseException, ask: Ask) -> str:
    """Say in one line what an exception of the Hub's client means and what would help.

    >>> ask = Ask("org/name", "main", "config.json", "https://huggingface.co", False, "~/.cache", 10)
    >>> explain(ConnectionResetError(), ask)
    'org/name: the connection to huggingface.co broke off while config.json was read; try again'
    """
    message = next(_MESSAGES[n] for n in _class_names(error) if n in _MESSAGES)
    without_password = re.sub(r"(?<=://)[^\s/]*@", "", message(error, ask))
    return " ".join(f"{ask.repo}: {without_password}".split())


def is_passing(error: BaseException) -> bool:
    """Tell whether asking again may help: a time-out, a broken connection, too many requests, a server's fault."""
    return status_of(error) in _PASSING_STATUS or not _PASSING.isdisjoint(_class_names(error))


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an exception carries, None where it carries none."""
    return getattr(getattr(error, "response", None), "status_code", None)


def retry_after(error: BaseException) -> str | None:
    """Return the server's Retry-After, None where it sent none."""
    found: str | None = getattr(getattr(error, "response", None), "headers", {}).get("Retry-After")
    return found


def offline_and_absent(ask: Ask) -> str:
    """Say that there was no network to ask and how to fill the cache beforehand."""
    revision = "" if ask.revision == "main" else f" --revision {ask.revision}"
    return (
        f"offline, and {ask.file} is not in the Hub's cache ({ask.cache}); while online run "
        f"`hf download {ask.repo} {ask.file}{revision}`, or ask without --offline (HF_HUB_OFFLINE)"
    )


def without_config(names: tuple[str, ...], ask: Ask) -> str:
    """Say why a repo without a config.json cannot be answered for, from the names of its files."""
    kinds = {
        how_to_ask(ask.repo, names): bool(tags_among(names)),
        "it is an adapter (LoRA); ask for its base model": "adapter_config.json" in names,
        "it is a pipeline of several models": "model_index.json" in names,
    }
    reason = next((text for text, holds in kinds.items() if holds), "is it a GGUF, LoRA or original-format repo?")
    return f"{ask.repo}: no {ask.file} at revision {ask.revision}: {reason}"


def _class_names(error: BaseException) -> list[str]:
    return [cls.__name__ for cls in type(error).__mro__]


def _first_line(error: BaseException) -> str:
    return _short((str(error).strip().splitlines() or [type(error).__name__])[0])


def _short(text: str) -> str:
    """Cut a stranger's text for a line of a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _gated(_: BaseException, ask: Ask) -> str:
    page = f"{ask.endpoint.partition('://')[0]}://{ask.host}/{ask.repo}"
    if ask.token:
        return f"gated, and this token has no access; accept the licence at {page} with the account of HF_TOKEN"
    return f"gated; accept the licence at {page}, then set HF_TOKEN or run `hf auth login`"


def _no_repo(_: BaseException, ask: Ask) -> str:
    private = "private to others than this token's account" if ask.token else "private (set HF_TOKEN)"
    near = f"; nearest in the catalogue: {', '.join(ask.nearest)}" if ask.nearest else ""
    return f"no such repo on {ask.host}: misspelt, or {private}{near}"


def _no_revision(_: BaseException, ask: Ask) -> str:
    return f"no revision '{ask.revision}'; without --revision it is main"


def _not_cached(error: BaseException, ask: Ask) -> str:
    cause = error.__cause__
    return (
        offline_and_absent(ask)
        if cause is None
        else next(_MESSAGES[n] for n in _class_names(cause) if n in _MESSAGES)(cause, ask)
    )


def _offline(_: BaseException, ask: Ask) -> str:
    return offline_and_absent(ask)


def _time_out(_: BaseException, ask: Ask) -> str:
    return (
        f"{ask.host} did not answer within {ask.timeout:g} s; try again, "
        "or set HF_HUB_DOWNLOAD_TIMEOUT and HF_HUB_ETAG_TIMEOUT"
    )


def _too_slow(error: BaseException, ask: Ask) -> str:
    return (
        f"{ask.host} did not answer in time ({_first_line(error)}, for {ask.file}); try again, "
        "or set HF_HUB_DOWNLOAD_TIMEOUT and HF_HUB_ETAG_TIMEOUT"
    )


def _too_long(error: BaseException, ask: Ask) -> str:
    limit = error.args[0] // 1_000_000
    return f"{ask.host} sent more than {limit} MB for {ask.file}, which is no such file; check HF_ENDPOINT"


def _no_connection(error: BaseException, ask: Ask) -> str:
    reason = next((words for sign, words in _CONNECT.items() if re.search(sign, str(error))), _first_line(error))
    way, proxy = (f" through the proxy of {ask.proxy}", ask.proxy) if ask.proxy else ("", "the proxy")
    return f"cannot reach {ask.host}{way} ({reason}); check the network, HF_ENDPOINT and {proxy}, or use --offline"


def _broken(_: BaseException, ask: Ask) -> str:
    return f"the connection to {ask.host} broke off while {ask.file} was read; try again"


def _portal(_: BaseException, ask: Ask) -> str:
    return f"{ask.host} did not answer as the Hub does (a captive portal, a proxy?); check the network and HF_ENDPOINT"


def _bad_header(error: BaseException, _: Ask) -> str:
    if "hf_hub/" in str(error):  # it stands in what the client says of itself
        return "the client's name for itself has characters that cannot be sent; check HF_HUB_USER_AGENT_ORIGIN"
    return "the token has characters that no token has; check HF_TOKEN or run `hf auth login`"


def _bad_text(error: UnicodeEncodeError, ask: Ask) -> str:
    if error.encoding == "utf-8":  # an address, by half of a surrogate pair
        return f"the repo has a file {ask.file}, a name that cannot be asked for"
    return _bad_header(ValueError(error.object), ask)


def _bad_value(error: ValueError, ask: Ask) -> str:
    if "integer string conversion" in str(error):
        return f"{ask.file} has a number of thousands of digits"
    return _other(error, ask)


def _bad_certificates(error: BaseException, _: Ask) -> str:
    return f"no certificates can be loaded ({_first_line(error)}); check SSL_CERT_FILE and SSL_CERT_DIR"


def _status(error: BaseException, ask: Ask) -> str:
    status = status_of(error) or 0
    known = _STATUS.get(status) or _STATUS.get(status // 100 * 100, "the Hub refused the request")
    wait = retry_after(error)
    pause = f"; retry after {_short(wait)}{' s' * wait.isdigit()}" if wait else ""
    return f"{ask.host} answered {status} for {ask.file}: {known}{pause}"


def _disk(error: OSError, ask: Ask) -> str:
    if error.errno is None:  # the client's own check: fewer bytes came than were announced
        return f"{ask.file} did not arrive whole; try again"
    reason = _DISK.get(error.errno, error.strerror or _first_line(error))
    path = error.filename
    if isinstance(path, str) and not path.startswith(ask.cache):  # the token's file, say
        return f"{quoted(path)} cannot be used ({reason}); check HF_HOME and HF_TOKEN_PATH"
    return f"the Hub's cache {ask.cache} cannot be used ({reason}); set HF_HUB_CACHE to a folder that can be written"


def _other(error: BaseException, ask: Ask) -> str:
    return f"{ask.file} could not be read from {ask.host} ({type(error).__name__}: {_first_line(error)})"


_SHOWN: Final = 120  # characters of a stranger's text that a message repeats
_CONNECT: Final = {
    r"refused": "connection refused",
    r"[Nn]ame or service|nodename|name resolution|getaddrinfo|No address": "its name does not resolve",
    r"CERTIFICATE|SSL|TLS": "its certificate is not trusted",
    r"unreachable|No route": "no route to it",
}
_STATUS: Final = {
    401: "the token was not accepted; check HF_TOKEN or run `hf auth login`",
    403: "access denied; the token may lack read permission for this repo",
    404: "no such file or repo",
    407: "the proxy wants a password",
    429: "too many requests",
    500: "a fault of the server; try again later",
}
_DISK: Final = {
    errno.ENOSPC: "no space left on the device",
    errno.EDQUOT: "disk quota exceeded",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "read-only file system",
}
_PASSING_STATUS: Final = frozenset({408, 429, 500, 502, 503, 504})
_PASSING: Final = frozenset({"TimeoutException", "TimeoutError", "NetworkError", "RemoteProtocolError"})
# The nearest class in the exception's own order of ancestors decides.
_MESSAGES: Final[dict[str, Callable[[Any, Ask], str]]] = {
    "GatedRepoError": _gated,
    "RepositoryNotFoundError": _no_repo,
    "RevisionNotFoundError": _no_revision,
    "DisabledRepoError": lambda _, __: "access to it is disabled on the Hub",
    "LocalEntryNotFoundError": _not_cached,
    "OfflineModeIsEnabled": _offline,
    "FileMetadataError": _portal,
    "NotTheHubError": _portal,
    "JSONDecodeError": _portal,
    "DecodingError": _portal,
    "TooManyRedirects": _portal,
    "TimeoutException": _time_out,
    "TimeoutError": _too_slow,
    "TooLongError": _too_long,
    "NotTheRangeError": lambda _, ask: (
        f"{ask.host} answered with other bytes of {ask.file} than were asked for; is a proxy between?"
    ),
    "ProxyError": _no_connection,
    "ConnectError": _no_connection,
    "UnsupportedProtocol": _no_connection,
    "InvalidURL": _no_connection,
    "NetworkError": _broken,
    "RemoteProtocolError": _broken,
    "LocalProtocolError": _bad_header,
    "UnicodeEncodeError": _bad_text,
    "SSLError": _bad_certificates,
    "HfHubHTTPError": _status,
    "ConnectionError": _broken,
    "OSError": _disk,
    "ValueError": _bad_value,
    "BaseException": _other,
}
