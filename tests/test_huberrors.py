"""The table from the client's exceptions to one line each."""

from __future__ import annotations

import json

import pytest

from roofcast.modelspec.huberrors import Ask, explain, is_passing

ASK = Ask("org/name", "main", "config.json", "https://huggingface.co", token=False, cache="/cache", timeout=10)


def named(name: str, text: str = "", base: type[Exception] = Exception) -> Exception:
    """Make an exception of a class of that name, as the client or its HTTP library has it."""
    made: Exception = type(name, (base,), {})(text)
    return made


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (named("OfflineModeIsEnabled", base=ConnectionError), "offline, and config.json is not in the Hub's cache"),
        (named("DisabledRepoError"), "access to it is disabled"),
        (named("TooManyRedirects"), "captive portal"),
        (named("LocalProtocolError", "Illegal header value"), "the token has characters"),
        (named("ProxyError", "407"), "cannot reach huggingface.co (407)"),
        (named("ConnectError", "[SSL: CERTIFICATE_VERIFY_FAILED]"), "its certificate is not trusted"),
        (named("ConnectError", "[Errno 113] No route to host"), "no route to it"),
        (named("ReadError", base=type(named("NetworkError"))), "broke off while config.json was read"),
        (json.JSONDecodeError("Expecting value", "<html>", 0), "captive portal"),
        (ConnectionResetError(104, "Connection reset by peer"), "broke off"),
        (OSError("Consistency check failed"), "config.json did not arrive whole"),
        (OSError(20, "Not a directory"), "the Hub's cache /cache cannot be used (Not a directory)"),
        (ZeroDivisionError("one\ntwo"), "config.json could not be read from huggingface.co (ZeroDivisionError: one)"),
        (ZeroDivisionError(), "(ZeroDivisionError: ZeroDivisionError)"),
    ],
)
def test_every_exception_is_one_line(error: Exception, says: str) -> None:
    """The nearest known class decides, and what is unknown is named by its class."""
    message = explain(error, ASK)

    assert says in message
    assert message.startswith("org/name: ")
    assert "\n" not in message


def test_only_passing_faults_are_worth_another_try() -> None:
    """A time-out or a broken connection may pass; a refusal does not."""
    assert is_passing(named("ReadTimeout", base=type(named("TimeoutException"))))
    assert is_passing(TimeoutError())
    assert not is_passing(named("GatedRepoError"))
    assert not is_passing(OSError(28, "No space left on device"))
