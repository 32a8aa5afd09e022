"""The Hub through its real client, with all that can go wrong."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.modelspec import hub as hub_module
from roofcast.modelspec.errors import MalformedModelError, ModelError, UndeterminedModelError
from roofcast.modelspec.folder import MAX_CONFIG
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
    written,
)
from tests.hub_server import PAGE, Fault, LocalHub, Sparse, framed, header, safetensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def _refused(_: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at("http://127.0.0.1:9", monkeypatch)


def _no_name(_: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at("http://hub.invalid", monkeypatch)
    monkeypatch.setenv("NO_PROXY", "*")


def _gated(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
    hub.add(REPO, SINGLE, token="hf_good")  # noqa: S106


def _gated_bad_token(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(REPO, SINGLE, token="hf_good")  # noqa: S106
    monkeypatch.setenv("HF_TOKEN", "hf_bad")


def _absent_with_token(_: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_some")


def _impossible_token(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(REPO, SINGLE)
    monkeypatch.setenv("HF_TOKEN", "hf_gänsefüßchen")


def _offline_env(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    hub.add(REPO, SINGLE)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def _faulty(**fault: Any) -> Callable[[LocalHub, pytest.MonkeyPatch], None]:
    def set_up(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
        hub.add(REPO, SINGLE)
        hub.faults.append(Fault("/config.json", **fault))

    return set_up


def _files(**files: bytes) -> Callable[[LocalHub, pytest.MonkeyPatch], None]:
    def set_up(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
        hub.add(REPO, {name.replace("_json", ".json").replace("_gguf", ".gguf"): data for name, data in files.items()})

    return set_up


def _cache_error(number: int) -> Callable[[LocalHub, pytest.MonkeyPatch], None]:
    def set_up(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
        import huggingface_hub

        hub.add(REPO, SINGLE)

        def fail(*_: object, **__: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)

    return set_up


def _nothing(_: LocalHub, __: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("set_up", "says"),
    [
        pytest.param(_nothing, ["no such repo on 127.0.0.1", "private (set HF_TOKEN)"], id="missing repo"),
        pytest.param(_absent_with_token, ["no such repo", "this token's account"], id="missing repo, with token"),
        pytest.param(_gated, ["gated; accept the licence at http", REPO, "HF_TOKEN"], id="gated"),
        pytest.param(_gated_bad_token, ["gated, and this token has no access"], id="gated, bad token"),
        pytest.param(_impossible_token, ["the token has characters"], id="a token of odd characters"),
        pytest.param(_files(README_md=b""), ["no config.json", "main", "GGUF, LoRA"], id="no config"),
        pytest.param(_files(a_gguf=b"GGUF", b_gguf=b"GGUF"), ["no config.json", "one of its GGUF files"], id="GGUFs"),
        pytest.param(_files(adapter_config_json=b"{}"), ["adapter (LoRA); ask for its base"], id="LoRA repo"),
        pytest.param(_files(model_index_json=b"{}"), ["pipeline of several models"], id="diffusers repo"),
        pytest.param(_refused, ["cannot reach 127.0.0.1:9 (connection refused)", "--offline"], id="refused"),
        pytest.param(_no_name, ["cannot reach hub.invalid (its name does not resolve)"], id="DNS"),
        pytest.param(
            _faulty(kind="silence"), ["did not answer within 0.5 s", "HF_HUB_DOWNLOAD_TIMEOUT"], id="time-out"
        ),
        pytest.param(_faulty(kind="close"), ["broke off while config.json"], id="no answer"),
        pytest.param(_faulty(kind="drop", methods=("GET",)), ["broke off while config.json"], id="drop in mid-body"),
        pytest.param(_faulty(kind="status", code=429), ["answered 429", "too many requests"], id="429"),
        pytest.param(
            _faulty(kind="status", code=429, headers={"Retry-After": "3600"}),
            ["answered 429", "retry after 3600 s"],
            id="429 with Retry-After",
        ),
        pytest.param(_faulty(kind="status", code=503), ["answered 503", "a fault of the server"], id="503"),
        pytest.param(_faulty(kind="status", code=504), ["answered 504", "a fault of the server"], id="504"),
        pytest.param(_faulty(kind="status", code=503, methods=("GET",)), ["answered 503"], id="503 on GET"),
        pytest.param(_faulty(kind="status", code=429, methods=("GET",)), ["answered 429"], id="429 on GET"),
        pytest.param(_faulty(kind="status", code=403), ["answered 403", "read permission"], id="403"),
        pytest.param(
            _faulty(
                kind="status", code=401, headers={"X-Error-Message": "Invalid credentials in Authorization header"}
            ),
            ["answered 401", "the token was not accepted"],
            id="401",
        ),
        pytest.param(_faulty(kind="status", code=404), ["answered 404", "no such file or repo"], id="404 of a mirror"),
        pytest.param(
            _faulty(kind="status", code=200, body=PAGE, headers={"Content-Type": "text/html"}),
            ["captive portal"],
            id="captive portal",
        ),
        pytest.param(
            _faulty(kind="status", code=302, headers={"Location": "http://localhost:8/login"}),
            ["captive portal"],
            id="captive portal that redirects",
        ),
        pytest.param(_offline_env, ["offline, and config.json is not in", f"hf download {REPO}"], id="HF_HUB_OFFLINE"),
        pytest.param(_cache_error(errno.ENOSPC), ["no space left on the device", "HF_HUB_CACHE"], id="disk full"),
        pytest.param(_cache_error(errno.EACCES), ["permission denied", "HF_HUB_CACHE"], id="no permission"),
        pytest.param(_cache_error(errno.EROFS), ["read-only file system"], id="read-only"),
    ],
)
def test_what_the_hub_cannot_answer_is_one_line_and_writes_nothing(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, set_up: Any, says: list[str]
) -> None:
    """Each way of not getting a config is undetermined, names the repo and what would help, and leaves no file."""
    set_up(hub, monkeypatch)

    with pytest.raises(UndeterminedModelError) as caught:
        resolve(REPO)

    assert str(caught.value).startswith(f"{REPO}: ")
    assert [part for part in says if part not in str(caught.value)] == []
    assert "\n" not in str(caught.value)
    # Of a broken download the client keeps its lock, its tag, the branch's commit, and before 2.0 the bytes that came.
    its_own = re.compile(r"cache/(CACHEDIR\.TAG|\.locks/.*|[^/]+/refs/main|[^/]+/blobs/[^/]+\.incomplete)")
    assert [name for name in written(tmp_path) if not its_own.fullmatch(name)] == []


def test_a_missing_revision_is_named(hub: LocalHub) -> None:
    """A branch that is not there is undetermined, and says what the default is."""
    hub.add(REPO, SINGLE)

    with pytest.raises(UndeterminedModelError, match=f"{REPO}: no revision 'v9'; without --revision it is main"):
        resolve(REPO, revision="v9")


def test_a_missing_repo_names_the_nearest_of_the_catalogue(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typo in a repo id gets the nearest valid choice."""
    assert hub.requests == []
    monkeypatch.setattr(hub_module, "nearest_names", lambda *_: ("llama-3.1-8b",))

    with pytest.raises(UndeterminedModelError, match=r"nearest in the catalogue: llama-3\.1-8b"):
        resolve("meta-lama/Llama-3.1-8B")


def test_a_client_that_waits_too_long_is_given_up(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client obeys a Retry-After of an hour; whoever asked does not wait for that."""
    hub.add(REPO, SINGLE)
    hub.faults.append(Fault("/config.json", "silence", methods=("GET",), seconds=3.0))
    monkeypatch.setattr(hub_module, "PATIENCE", 0.2)

    with pytest.raises(UndeterminedModelError, match="did not answer"):
        resolve(REPO)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(b"not json", "not JSON", id="not JSON"),
        pytest.param(b"[1]", "holds a list", id="a list"),
        pytest.param(PAGE, "HTML page", id="HTML"),
        pytest.param(Sparse(b"{", MAX_CONFIG + 1), "larger than 10 MB", id="huge"),
    ],
)
def test_a_broken_config_on_the_hub_is_malformed(hub: LocalHub, text: Any, says: str) -> None:
    """A config.json that is no JSON object is the repo's fault, not the network's."""
    hub.add(REPO, {**SINGLE, "config.json": text})

    with pytest.raises(MalformedModelError, match=f"{REPO}: config.json: .*{says}"):
        resolve(REPO)

    assert len(hub.asked("/config.json")) == (0 if isinstance(text, Sparse) else 1)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"", "0 bytes", id="empty"),
        pytest.param(b"\1\2", "2 bytes", id="two bytes"),
        pytest.param((10**11).to_bytes(8, "little") + b"{}", "claims 100,000,000,000 bytes", id="100 GB"),
        pytest.param((5000).to_bytes(8, "little") + b'{"a":', "cut short: 13 bytes", id="truncated"),
        pytest.param(framed(b"this is not JSON"), "not JSON", id="not JSON"),
        pytest.param(framed(b"[]"), "holds a list", id="a list"),
        pytest.param(framed(b'{"w": 3}'), "'w' is a number", id="tensor is a number"),
        pytest.param(framed(b'{"w": {"dtype": "F32", "shape": [1], "data_offsets": null}}'), "data_offsets", id="null"),
        pytest.param(
            header({"w": ("F32", [9])}) + b"\0", "1 bytes of data, but its header describes 36", id="cut data"
        ),
    ],
)
@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_a_broken_header_on_the_hub_is_malformed(hub: LocalHub, data: bytes, says: str, *, ranges: bool) -> None:
    """A header that was read and is wrong is never replaced by a summary or a formula."""
    hub.ranges = ranges
    hub.add(REPO, {"config.json": CONFIG, "model.safetensors": data}, summary=SUMMARY)

    with pytest.raises(MalformedModelError) as caught:
        resolve(REPO)

    assert says in str(caught.value)
    assert str(caught.value).startswith(f"{REPO}: model.safetensors")


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        pytest.param({"model-2.safetensors": None}, UndeterminedModelError, "missing shard 'model-2", id="missing"),
        pytest.param({"model.safetensors.index.json": b"[]"}, MalformedModelError, "holds a list", id="index a list"),
        pytest.param({"model.safetensors.index.json": b"{}"}, MalformedModelError, "weight_map holds", id="no map"),
        pytest.param({"model.safetensors.index.json": PAGE}, MalformedModelError, "HTML page", id="index HTML"),
        pytest.param(
            {"model-2.safetensors": safetensors({"embed.weight": ("F32", [8])})},
            MalformedModelError,
            "'embed.weight' is in two files",
            id="a tensor twice",
        ),
        pytest.param(
            {"model-2.safetensors": safetensors({"other": ("F32", [8])})},
            MalformedModelError,
            "'norm.weight' is in 'model-2.safetensors', which does not hold it",
            id="a tensor in no shard",
        ),
    ],
)
def test_shards_that_contradict_the_index_are_refused(
    hub: LocalHub, changes: dict[str, Any], kind: type[ModelError], says: str
) -> None:
    """A missing shard leaves the answer undetermined; an index and shards at odds are malformed."""
    files = {name: data for name, data in {**SHARDED, **changes}.items() if data is not None}
    hub.add(REPO, files, summary=SUMMARY)

    with pytest.raises(kind) as caught:
        resolve(REPO)

    assert type(caught.value) is kind
    assert says in str(caught.value)


UNREADABLE = [
    pytest.param({"kind": "silence"}, "did not answer within 0.5 s", id="time-out"),
    pytest.param({"kind": "close"}, "broke off", id="no answer"),
    pytest.param({"kind": "drop"}, "broke off", id="drop in mid-body"),
    pytest.param({"kind": "status", "code": 429, "headers": {"Retry-After": "90"}}, "retry after 90 s", id="429"),
    pytest.param({"kind": "status", "code": 503}, "answered 503", id="503"),
    pytest.param({"kind": "status", "code": 403}, "answered 403", id="403"),
    pytest.param(
        {"kind": "status", "code": 200, "body": PAGE, "headers": {"Content-Type": "text/html"}},
        "captive portal",
        id="captive portal",
    ),
]


@pytest.mark.parametrize(("fault", "says"), UNREADABLE)
@pytest.mark.parametrize("files", [SINGLE, SHARDED], ids=["one file", "two shards"])
def test_a_header_that_cannot_be_read_falls_back_to_the_summary_and_says_so(
    hub: LocalHub, files: Mapping[str, bytes | Sparse], fault: dict[str, Any], says: str
) -> None:
    """The Hub's own count stands in for headers, and the answer names the reason."""
    hub.add(REPO, files, summary=SUMMARY)
    hub.faults.append(Fault(".safetensors", **fault))

    found = resolve(REPO)

    assert held(found) == SUMMARY
    assert found.weights is not None
    assert (found.weights.origin, found.weights.bytes) == ("hub summary", 96)
    assert found.weights_problem is not None
    assert says in found.weights_problem
    assert "summary is used instead" in found.weights_problem


@pytest.mark.parametrize(("fault", "says"), UNREADABLE)
def test_neither_headers_nor_summary_is_never_silent(hub: LocalHub, fault: dict[str, Any], says: str) -> None:
    """Without either the weights are none, and the answer says why."""
    hub.add(REPO, SINGLE, summary=SUMMARY)
    hub.faults += [Fault(".safetensors", **fault), Fault("", "status", code=500, methods=("GET",))]
    hub.faults[1].path = hub.repos[REPO].commit

    found = resolve(REPO)

    assert found.weights is None
    assert found.weights_problem is not None
    assert says in found.weights_problem
    assert "nor could the Hub's summary be read" in found.weights_problem
    assert "answered 500" in found.weights_problem


@pytest.mark.parametrize(
    ("summary", "says"), [(None, "has no summary"), ({"F7": 3}, "F7")], ids=["none", "of an unknown dtype"]
)
def test_a_summary_that_is_no_use_is_not_used(hub: LocalHub, summary: dict[str, int] | None, says: str) -> None:
    """A repo whose headers fail and whose summary is absent or odd has no weights, and says why."""
    hub.add(REPO, SINGLE, summary=summary)
    hub.faults.append(Fault(".safetensors", "status"))

    found = resolve(REPO)

    assert found.weights is None
    assert found.weights_problem is not None
    assert says in found.weights_problem


def test_an_index_that_cannot_be_read_falls_back_too(hub: LocalHub) -> None:
    """The index is part of the headers: when it fails the summary stands in."""
    hub.add(REPO, SHARDED, summary=SUMMARY)
    hub.faults.append(Fault("index.json", "status"))

    found = resolve(REPO)

    assert held(found) == SUMMARY
    assert found.weights_problem is not None
    assert "index.json" in found.weights_problem


@pytest.mark.parametrize("fault", [{"kind": "drop"}, {"kind": "status", "code": 503}, {"kind": "close"}])
def test_a_passing_fault_is_tried_again(hub: LocalHub, fault: dict[str, Any]) -> None:
    """Two failures of one header in a row do not spoil the answer."""
    hub.add(REPO, SINGLE)
    hub.faults.append(Fault(".safetensors", **fault, times=2))

    found = resolve(REPO)

    assert (held(found), found.weights_problem) == (SUMMARY, None)


def test_a_server_that_trickles_is_given_up(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that sends a byte now and then has a deadline for the whole header, not for each byte."""
    hub.add(REPO, SINGLE, summary=SUMMARY)
    hub.ranges = False
    clock = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(hub_module, "SLOWEST", 10**12)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))

    class Trickle:
        status_code = 206
        headers: dict[str, str] = {}  # noqa: RUF012

        def iter_bytes(self) -> Iterator[bytes]:
            while True:
                yield b"\0"

    with pytest.raises(TimeoutError):
        hub_module._body(Trickle(), 0, 99_999, 30.0)


def test_a_hub_that_says_when_to_come_back_is_not_pressed(hub: LocalHub) -> None:
    """A header answered with Retry-After is asked for once."""
    hub.add(REPO, SINGLE, summary=SUMMARY)
    hub.faults.append(Fault(".safetensors", "status", code=429, headers={"Retry-After": "7"}))

    resolve(REPO)

    assert len(hub.asked(".safetensors")) == 1
