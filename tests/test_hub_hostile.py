"""A Hub that means no good: answers that never end, summaries that lie, names and numbers of thousands of characters."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

from roofcast.modelspec import hub as hub_module
from roofcast.modelspec.errors import MalformedModelError, ModelError, UndeterminedModelError
from roofcast.modelspec.source import resolve
from tests.hub_client import (  # noqa: F401  pytest finds them by name
    CONFIG,
    REPO,
    SHARDED,
    SINGLE,
    SUMMARY,
    held,
    hub_fixture,
    point_at,
    server_fixture,
)
from tests.hub_server import Fault, LocalHub, index

if TYPE_CHECKING:
    from collections.abc import Callable

COMMIT = "a" * 40
# a question that was given up in an earlier test may close the client's shared session while this one waits
GIVEN_UP = "did not answer in time|broke off"
START = f'HTTP/1.1 200 OK\r\nX-Repo-Commit: {COMMIT}\r\nETag: "x"\r\nConnection: close\r\n'
INDEX_PATH = f"/acme/tiny-7b/resolve/{COMMIT}/model.safetensors.index.json"
ABSENT = (
    f"HTTP/1.1 404 No\r\nX-Error-Code: EntryNotFound\r\nX-Repo-Commit: {COMMIT}\r\n"
    "Content-Length: 0\r\nConnection: close\r\n\r\n"
)


def _drip_headers(connection: socket.socket, pause: Callable[[], bool]) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while not pause():
        connection.sendall(b"X-More: y\r\n")


def _drip_body(connection: socket.socket, pause: Callable[[], bool]) -> None:
    connection.sendall(f"{START}Content-Length: 100000\r\n\r\n".encode())
    while not pause():
        connection.sendall(b" ")


def _never_end(connection: socket.socket, pause: Callable[[], bool]) -> None:
    connection.sendall(f"{START}\r\n".encode())
    while not pause():
        connection.sendall(b" " * 100_000)


class Hostile:
    """A server that answers well, but for one kind of request."""

    def __init__(self, request: str, how: Callable[[socket.socket, Callable[[], bool]], None], pause: float) -> None:
        self.request = request
        self.how = how
        self.pause = pause
        self.closing = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Self:
        self.threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.threads.append(threading.Thread(target=self._answer, args=(connection,), daemon=True))
                self.threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            asked = connection.recv(65536).decode().partition("\r\n")[0]
            if self.request in asked:
                self.how(connection, lambda: self.closing.wait(self.pause))
                return
            start = START.replace('"x"', f'"{len(asked)}"')  # the client keeps one blob for each ETag
            absent = ".safetensors" in asked and "index.json" not in self.request
            body = CONFIG if "config.json" in asked else b"{}"
            text = ABSENT if absent or ".safetensors " in asked else f"{start}Content-Length: {len(body)}\r\n\r\n"
            connection.sendall(text.encode() + (b"" if asked.startswith("HEAD") or text == ABSENT else body))


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"PATIENCE": 0.3, "AGENT": 0.3, "PAUSES": (), "SLOWEST": 10**9}.items():
        monkeypatch.setattr(hub_module, name, seconds)


@pytest.mark.parametrize(
    ("request_line", "how", "answers"),
    [
        ("HEAD /acme/tiny-7b/resolve/main/config.json", _drip_headers, False),
        ("GET /acme/tiny-7b/resolve/main/config.json", _drip_headers, False),
        ("GET /acme/tiny-7b/resolve/main/config.json", _drip_body, False),
        ("GET /api/agent-harnesses", _drip_headers, False),
        ("GET /api/agent-harnesses", _drip_body, False),
        (f"GET /acme/tiny-7b/resolve/{COMMIT}/model.safetensors", _drip_headers, True),
        (f"GET /acme/tiny-7b/resolve/{COMMIT}/model.safetensors", _drip_body, True),
        (f"HEAD {INDEX_PATH}", _drip_headers, True),
        ("GET /api/models/acme/tiny-7b", _drip_headers, True),
        ("GET /api/models/acme/tiny-7b", _drip_body, True),
    ],
)
def test_an_answer_that_drips_is_given_up(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, request_line: str, how: Any, *, answers: bool
) -> None:
    """A byte now and then keeps no one waiting: each question has a deadline, and a config that came is used."""
    assert hub.requests == []
    with contextlib.suppress(ImportError):  # older clients do not ask for agents
        monkeypatch.setattr("huggingface_hub.utils._detect_agent._registry", None)
    with Hostile(request_line, how, 0.05) as server:
        point_at(server.url, monkeypatch)
        if answers:
            assert re.search(GIVEN_UP, resolve(REPO).weights_problem or "")
        elif "agent" in request_line:  # the client gives it up itself, or the deadline does
            with contextlib.suppress(UndeterminedModelError):
                assert resolve(REPO).name == REPO
        else:
            with pytest.raises(UndeterminedModelError, match=GIVEN_UP):
                resolve(REPO)


@pytest.mark.parametrize(
    "request_line", ["GET /acme/tiny-7b/resolve/main/config.json", "GET /api/models/", f"GET {INDEX_PATH}"]
)
def test_an_answer_without_end_is_broken_off(hub: LocalHub, monkeypatch: pytest.MonkeyPatch, request_line: str) -> None:
    """No file or list grows past what such a thing can be."""
    assert hub.requests == []
    monkeypatch.setattr(hub_module, "LIMITS", dict.fromkeys(hub_module.LIMITS, 2_000_000))
    monkeypatch.setattr(hub_module, "PATIENCE", 20.0)
    monkeypatch.setattr(hub_module, "AGENT", 20.0)
    with Hostile(request_line, _never_end, 0.0) as server:
        point_at(server.url, monkeypatch)
        problem = _problem()
        if re.search(GIVEN_UP, problem):
            problem = _problem()

    assert "sent more than 2 MB for" in problem


def _problem() -> str:
    """Return what keeps the repo, or its weights, from being read."""
    try:
        return resolve(REPO).weights_problem or ""
    except UndeterminedModelError as error:
        return str(error)


def test_the_clients_session_is_given_back_as_it_was(hub: LocalHub) -> None:
    """Who uses huggingface_hub in the same process may still download large files with it."""
    from huggingface_hub import get_session

    hub.add(REPO, SINGLE)
    before = list(get_session().event_hooks["response"])

    resolve(REPO)

    assert get_session().event_hooks["response"] == before


@pytest.mark.parametrize(
    ("summary", "says"),
    [
        ({"BF16": 0}, "0 elements in all; no model has so few"),
        ({"BF16": 10**15}, "1,000,000,000,000,000 elements in all; no model has so many"),
        ({"BF16": 10**30}, "impossibly many elements of 'BF16'"),
        ({"BF16": "x" * 5000}, "no whole number of elements of 'BF16'"),
    ],
)
@pytest.mark.parametrize("files", [SINGLE, {"config.json": CONFIG}], ids=["headers refused", "no file"])
def test_a_summary_that_cannot_be_true_is_none(
    hub: LocalHub, summary: dict[str, Any], says: str, files: dict[str, Any]
) -> None:
    """A lie about the weights leaves them unknown, with the reason."""
    repo = hub.add(REPO, files)
    hub.faults.append(Fault("/model.safetensors", "status", code=403 if files is SINGLE else 404, headers=NO_ENTRY))
    hub.faults.append(_listing(repo.commit, {"siblings": [], "safetensors": {"parameters": summary, "total": 5}}))

    found = resolve(REPO)

    assert found.weights is None
    assert says in (found.weights_problem or "")
    assert len(found.weights_problem or "") < 1000


NO_ENTRY = {"X-Error-Code": "EntryNotFound"}


def _listing(commit: str, facts: dict[str, Any] | str) -> Fault:
    text = facts if isinstance(facts, str) else json.dumps({"id": REPO, **facts})
    return Fault(commit, "status", code=200, headers={"Content-Type": "application/json"}, body=text.encode())


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"siblings": [{"rfilename": None}, {"rfilename": 5}]}, None),
        ({"siblings": [{"rfilename": "\ud800.safetensors"}]}, r"'\ud800.safetensors', a name that cannot be asked for"),
        ({"siblings": [{}]}, "its list of files could not be read"),
        (f'{{"id": "{REPO}", "safetensors": {{"parameters": {{"F32": {"9" * 5000}}}}}}}', "a number of thousands of"),
    ],
)
def test_an_odd_list_of_files_is_one_line(hub: LocalHub, facts: Any, says: str | None) -> None:
    """Names that are none, names that no address can hold and numbers without end leave a reason, not a crash."""
    repo = hub.add(REPO, {"config.json": CONFIG})
    hub.faults.append(_listing(repo.commit, facts))

    problem = resolve(REPO).weights_problem

    assert (problem is None) if says is None else (says in (problem or ""))
    assert "HF_TOKEN" not in (problem or "")
    assert "set_int_max" not in (problem or "")


@pytest.mark.parametrize(
    ("name", "shown"),
    [("model-1-of-" + "9" * 5000 + ".safetensors", "'model-1-of-9999"), ("gone.safetensors", "'gone.safetensors'")],
)
def test_a_listed_file_that_is_not_there_is_blamed_on_the_list(hub: LocalHub, name: str, shown: str) -> None:
    """Without an index no index names it."""
    repo = hub.add(REPO, {"config.json": CONFIG})
    hub.faults.append(_listing(repo.commit, {"siblings": [{"rfilename": name}]}))

    with pytest.raises(UndeterminedModelError) as caught:
        resolve(REPO)

    assert f"missing shard {shown}" in str(caught.value)
    assert "which the Hub's list of files names" in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"model.safetensors.index.json": index({"w": "x" * 300 + ".safetensors"})}, MalformedModelError, "'w' is in"),
        ({"model.safetensors.index.json": b'{"a": ' + b"9" * 5000 + b"}"}, MalformedModelError, "thousands of digits"),
        ({"config.json": b'{"a": ' + b"9" * 5000 + b"}"}, MalformedModelError, "a number in it has thousands"),
    ],
)
def test_names_and_numbers_without_end_are_one_short_line(
    hub: LocalHub, changes: dict[str, bytes], kind: type[ModelError], says: str
) -> None:
    """What no file system and no integer parser takes is refused before it is tried."""
    hub.add(REPO, {**SHARDED, **changes})

    with pytest.raises(kind, match=says) as caught:
        resolve(REPO)

    assert len(str(caught.value)) < 300
    assert "set_int_max" not in str(caught.value)


def test_a_renamed_repo_is_followed(hub: LocalHub) -> None:
    """The Hub sends who asks by the old name on to the new one."""
    new = hub.add("acme/new", SINGLE)
    asked = (("main", "config.json"), (new.commit, "hf_quant_config.json"), (new.commit, "model.safetensors"))
    for revision, name in asked:
        old, place = (f"/{repo}/resolve/{revision}/{name}" for repo in (REPO, "acme/new"))
        hub.faults.append(Fault(old, "status", code=307, body=b"", headers={"Location": place}))

    found = resolve(REPO)

    assert held(found) == SUMMARY
    assert found.source == f"Hub {REPO}@{new.commit}"


@pytest.mark.parametrize("place", ["/acme/tiny-7b/resolve/main/config.json", "http://[::1"])
def test_a_redirect_that_leads_nowhere_is_undetermined(hub: LocalHub, place: str) -> None:
    """Round in circles, or to no address."""
    hub.faults.append(Fault("/config.json", "status", code=307, body=b"", headers={"Location": place}))

    with pytest.raises(UndeterminedModelError):
        resolve(REPO)


@pytest.mark.parametrize("commit", ["", "../../evil", "a" * 5000, "main\x1b[31m"])
def test_a_commit_that_is_none_is_not_shown(hub: LocalHub, commit: str) -> None:
    """Who names no commit is not the Hub, and what it names instead reaches no terminal."""
    hub.add(REPO, SINGLE).commit = commit

    with pytest.raises(UndeterminedModelError, match="did not answer as the Hub does") as caught:
        resolve(REPO)

    assert not commit or commit not in str(caught.value)


@pytest.mark.parametrize("size", ["9" * 5000, "²"])
def test_an_announced_size_that_is_no_number_is_not_believed(hub: LocalHub, size: str) -> None:
    """X-Linked-Size may hold anything."""
    hub.add(REPO, SINGLE)
    headers = {"X-Linked-Size": size, "X-Repo-Commit": hub.repos[REPO].commit, "ETag": '"x"'}
    hub.faults.append(
        Fault("/config.json", "status", code=200, methods=("HEAD",), body=CONFIG, headers=headers, times=1)
    )

    assert held(resolve(REPO)) == SUMMARY


def test_a_long_retry_after_is_cut(hub: LocalHub) -> None:
    """Three thousand characters of a header do not fill the terminal."""
    hub.faults.append(Fault("/config.json", "status", code=503, headers={"Retry-After": "x" * 3000}))

    with pytest.raises(UndeterminedModelError, match=r"retry after x{120}\.\.\.$"):
        resolve(REPO)
