"""The environment of the Hub's client: kept quiet, and what it cannot work with named in one line."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIMES: Final = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
_BAD_ENDPOINT: Final = "HF_ENDPOINT is no address of a server; it must be like https://huggingface.co"


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep log lines and warnings off the terminal, whatever HF_DEBUG and HF_HUB_VERBOSITY say."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(before)


def why_not_loaded(error: BaseException) -> str:
    """Say why the client could not be imported: it reads its settings then, and stumbles over a bad one.

    >>> why_not_loaded(ModuleNotFoundError("No module named 'huggingface_hub'"))
    "the Hub's client cannot be loaded (ModuleNotFoundError: No module named 'huggingface_hub')"
    """
    for name in _TIMES:
        value = os.environ.get(name)
        if value is not None and not _parses(int, value):
            return f"{name} is {quoted(value)}; it must be a whole number of seconds"
    if (endpoint := os.environ.get("HF_ENDPOINT")) is not None and not is_address(endpoint):
        return _BAD_ENDPOINT
    reason = (str(error).strip().splitlines() or ["no reason given"])[0]
    return f"the Hub's client cannot be loaded ({type(error).__name__}: {reason})"


def bad_setting(constants: Any) -> str | None:  # noqa: ANN401  a module of the client
    """Say which setting the client took although it cannot work, None where all are well.

    Args:
        constants: the client's module of that name.
    """
    for name in _TIMES:
        if not getattr(constants, name) > 0:
            return f"{name} is {getattr(constants, name)}; it must be a number of seconds above 0"
    if not is_address(constants.ENDPOINT):
        return _BAD_ENDPOINT
    path = os.environ.get("SSL_CERT_FILE")
    if path and not os.access(path, os.R_OK):
        return f"SSL_CERT_FILE is {quoted(path)}, which cannot be read; it must hold the certificates that are trusted"
    if constants.HF_HUB_CACHE.startswith("~"):  # expanded where there is such a user
        return f"the Hub's cache is {quoted(constants.HF_HUB_CACHE)}, of no user's home; set HF_HUB_CACHE or HF_HOME"
    return None


def is_address(endpoint: str) -> bool:
    """Tell whether an address names a server to which HTTP can be spoken.

    >>> is_address("https://huggingface.co"), is_address("http://[::1"), is_address("http://127.0.0.1:99999")
    (True, False, False)
    """

    def parts(text: str) -> bool:
        url = urlsplit(text)
        host = url.hostname or ""
        return (
            url.scheme in {"http", "https"} and host.isprintable() and " " not in host and url.port != 0 and host != ""
        )

    return _parses(parts, endpoint) and parts(endpoint)


def proxy_for(endpoint: str) -> str:
    """Return the variable that sets a proxy for an address, empty where none does."""
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415  after a failure only

    proxies: dict[str, str] = getproxies()
    url = urlsplit(endpoint)
    if proxy_bypass(url.hostname or ""):
        return ""
    return next((f"{kind.upper()}_PROXY" for kind in (url.scheme, "all") if proxies.get(kind)), "")


def _parses(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
