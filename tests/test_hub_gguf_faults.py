"""GGUF files on the Hub, with all that can go wrong."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.source import resolve
from tests.gguf_bytes import gguf
from tests.gguf_models import BYTES, FILES, METADATA, model, split, tensors, told
from tests.hub_client import REPO, hub_fixture, server_fixture  # noqa: F401  pytest finds them by name
from tests.hub_server import PAGE, Fault, LocalHub, Sparse
from tests.running import refused, roofcast


@pytest.mark.parametrize("count", [1, 150_000], ids=["short header", "long header"])
def test_a_server_that_ignores_ranges_is_hung_up_on(hub: LocalHub, count: int) -> None:
    """A server that sends gigabytes instead of a header is read no further than the header."""
    hub.ranges = False
    words = {"tokenizer.ggml.tokens": [f"token{i:07}" for i in range(count)], "llama.vocab_size": 8_000_000}
    big = gguf({**tensors("F16"), "token_embd.weight": ("F16", [8_000_000, 64])}, METADATA | words)
    hub.add(REPO, {"big-F16.gguf": big})

    assert told(resolve(f"{REPO}:F16"))[1] > 10**9
    assert hub.sent < 100_000_000


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param({"kind": "drop", "after": 100}, "broke off", id="drop in mid-body"),
        pytest.param({"kind": "close"}, "broke off", id="no answer"),
        pytest.param({"kind": "silence"}, "did not answer within 0.5 s", id="time-out"),
        pytest.param({"kind": "status", "code": 503}, "answered 503", id="503"),
        pytest.param({"kind": "status", "code": 403}, "answered 403", id="403"),
        pytest.param(
            {"kind": "status", "code": 206, "body": b"GGUF", "headers": {"Content-Range": "bytes 0-3/70000"}},
            "4 bytes of its header arrived, not 70,000; try again",
            id="fewer bytes than there are",
        ),
        pytest.param(
            {"kind": "status", "code": 200, "body": PAGE, "headers": {"Content-Type": "text/html"}},
            "captive portal",
            id="captive portal",
        ),
        pytest.param(
            {"kind": "status", "code": 404, "headers": {"X-Error-Code": "EntryNotFound"}},
            "missing file 'tiny-Q8_0.gguf', which the Hub's list of files names",
            id="gone",
        ),
    ],
)
def test_a_header_that_does_not_arrive_is_undetermined(hub: LocalHub, fault: dict[str, Any], says: str) -> None:
    """Without a header there is no answer, and the line says why."""
    hub.add(REPO, FILES)
    hub.faults.append(Fault("tiny-Q8_0.gguf", **fault))

    with pytest.raises(UndeterminedModelError, match=says) as caught:
        resolve(f"{REPO}:Q8_0")

    assert str(caught.value).startswith(f"{REPO}: ")


@pytest.mark.parametrize("fault", [{"kind": "drop"}, {"kind": "status", "code": 503}, {"kind": "close"}])
def test_a_passing_fault_is_tried_again(hub: LocalHub, fault: dict[str, Any]) -> None:
    """Two failures in a row do not spoil the answer."""
    hub.add(REPO, FILES)
    hub.faults.append(Fault("tiny-Q8_0.gguf", **fault, times=2))

    assert told(resolve(f"{REPO}:Q8_0")) == ("headers", BYTES["Q8_0"], 1)


WHOLE = model()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(b"", "it is empty", id="empty"),
        pytest.param(b"GGUF", "cut short: 4 bytes", id="four bytes"),
        pytest.param(WHOLE.start[:500], "cut short|can follow", id="cut in the header"),
        pytest.param(Sparse(WHOLE.start, len(WHOLE.start) + 10), "its tensors end at byte", id="cut in the data"),
        pytest.param(b"PK\3\4" + bytes(100), "a zip archive", id="a zip archive"),
        pytest.param(gguf(tensors("F16"), {}), "general.architecture is missing", id="no architecture"),
        pytest.param(gguf(tensors("F16"), {"general.architecture": "llama"}), "llama", id="no sizes"),
    ],
)
@pytest.mark.parametrize("ranges", [True, False], ids=["ranges", "no ranges"])
def test_a_broken_file_is_malformed(hub: LocalHub, data: Any, says: str, *, ranges: bool) -> None:
    """A header that arrived and is wrong is the repo's fault."""
    hub.ranges = ranges
    hub.add(REPO, {"m-Q8_0.gguf": data})

    with pytest.raises(MalformedModelError, match=says) as caught:
        resolve(f"{REPO}:Q8_0")

    assert str(caught.value).startswith(f"{REPO}:")
    assert "\n" not in str(caught.value)


def test_a_split_that_contradicts_itself_is_malformed(hub: LocalHub) -> None:
    """A part that says it is another is refused."""
    files = split("m-Q8_0")
    names = sorted(files)
    hub.add(REPO, {**files, names[1]: files[names[2]]})

    with pytest.raises(MalformedModelError, match=r"split\.no is 2; it must be 1"):
        resolve(f"{REPO}:Q8_0")


def _absent(_: LocalHub, __: pytest.MonkeyPatch) -> None:
    """Publish nothing."""


def _gated(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
    hub.add(REPO, FILES, token="hf_good")  # noqa: S106


def _nameless(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
    hub.add(REPO, FILES).commit = "../../evil"


def _busy(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
    hub.add(REPO, FILES)
    hub.faults.append(Fault(f"/api/models/{REPO}", "status", code=503))


@pytest.mark.parametrize(
    ("set_up", "says"),
    [
        pytest.param(_absent, "no such repo", id="missing repo"),
        pytest.param(_gated, "gated", id="gated"),
        pytest.param(_nameless, "did not answer as the Hub does", id="a commit that is none"),
        pytest.param(_busy, "answered 503 for its list of files", id="503"),
    ],
)
def test_what_the_hub_cannot_answer_is_one_line(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, set_up: Any, says: str
) -> None:
    """The command says it in one line with code 3."""
    set_up(hub, monkeypatch)

    refused(roofcast("kv", f"{REPO}:Q8_0"), 3, REPO, says)


def test_a_token_opens_a_gated_repo_and_stays_on_the_hub(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_TOKEN goes to the Hub and not to the storage host."""
    hub.add(REPO, FILES, token="hf_good")  # noqa: S106
    monkeypatch.setenv("HF_TOKEN", "hf_good")

    assert told(resolve(f"{REPO}:Q8_0")) == ("headers", BYTES["Q8_0"], 1)
    assert {r.token for r in hub.requests if r.server == "hub"} == {"Bearer hf_good"}
    assert {r.token for r in hub.requests if r.server == "cdn"} == {None}
