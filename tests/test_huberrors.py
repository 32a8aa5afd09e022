"""The table from the client's exceptions to one line each."""

from __future__ import annotations

import json

import pytest

from roofcast.modelspec.huberrors import Ask, TooLongError, explain, is_passing

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
        (named("LocalProtocolError", "Illegal header value b'hf_hub/2\\n'"), "check HF_HUB_USER_AGENT_ORIGIN"),
        (TimeoutError("no answer within 35 s"), "did not answer in time (no answer within 35 s, for config.json)"),
        (TooLongError(10_000_000), "sent more than 10 MB for config.json, which is no such file; check HF_ENDPOINT"),
        (named("SSLError", base=OSError), "check SSL_CERT_FILE"),
        (named("UnsupportedProtocol", "http://u:SECRET@x/y"), "cannot reach huggingface.co (http://x/y)"),
        (IsADirectoryError(21, "Is a directory", "/home/token"), "'/home/token' cannot be used (Is a directory)"),
        (IsADirectoryError(21, "Is a directory", "/cache/x"), "the Hub's cache /cache cannot be used"),
        (ValueError("Exceeds the limit for integer string conversion"), "a number of thousands of digits"),
        (ZeroDivisionError("x" * 5000), f": {'x' * 120}...)"),
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


def test_a_password_and_a_proxy_in_the_address() -> None:
    """Who the user is stays out of the message; that a proxy stands between is in it."""
    ask = Ask("org/name", "main", "x", "https://me:SECRET@host:1/hub", token=False, cache="", timeout=1, proxy="P")

    message = explain(named("ConnectError", "refused"), ask)

    assert message.startswith("org/name: cannot reach host:1/hub through the proxy of P (connection refused)")
    assert "SECRET" not in explain(named("GatedRepoError"), ask) + message


def test_only_passing_faults_are_worth_another_try() -> None:
    """A time-out or a broken connection may pass; a refusal does not."""
    assert is_passing(named("ReadTimeout", base=type(named("TimeoutException"))))
    assert is_passing(TimeoutError())
    assert not is_passing(named("GatedRepoError"))
    assert not is_passing(OSError(28, "No space left on device"))
