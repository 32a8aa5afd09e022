"""Repos of many weight files: one question to the Hub where it knows the answer, else one for each file."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.modelspec.source import Checkpoint, resolve
from tests.checkpoints import TINY, decoder_tensors
from tests.hub_client import REPO, Bar, held, hub_fixture, server_fixture, written  # noqa: F401  pytest finds them
from tests.hub_server import Fault, LocalHub, Sparse, index, safetensors
from tests.running import answer
from tests.test_hub_cli import environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

# 18 layers of 9 tensors and 3 more are 165, the first two files hold two each
SHARDS = 163
LARGE = TINY | {"num_hidden_layers": 18}
PARAMETERS = 18 * 30_848 + 2 * 100 * 64 + 64
TENSORS = decoder_tensors(LARGE)
COPIES = "/safetensors-metadata/model.safetensors.index.json"
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
# a scale for each of 18 * 7 projections, F32 [1, 1]
SCALES = {f"{n}_scale_inv": ("F32", [1, 1]) for n in TENSORS if "_proj." in n}
BLOCKS: Mapping[str, tuple[str, list[int]]] = {
    n: ("F8_E4M3" if "_proj." in n else d, s) for n, (d, s) in TENSORS.items()
} | SCALES
PROJECTED = 18 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96)


def large(
    config: Mapping[str, Any] = LARGE,
    tensors: Mapping[str, tuple[str, list[int]]] = TENSORS,
    total: float | None = 2 * PARAMETERS,
) -> dict[str, bytes | Sparse]:
    """Return a repo of 163 weight files whose index states so many bytes."""
    homes = {name: f"model-{n % SHARDS + 1:05}-of-{SHARDS:05}.safetensors" for n, name in enumerate(tensors)}
    files: dict[str, bytes | Sparse] = {
        shard: safetensors({name: tensors[name] for name, home in homes.items() if home == shard})
        for shard in sorted(set(homes.values()))
    }
    stated = index(homes, total or 0)
    return files | {"config.json": json.dumps(config).encode(), "model.safetensors.index.json": stated}


@pytest.fixture(name="patient")
def patient_fixture(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a busy machine time to answer, where a test counts requests: half a second's patience may ask once more."""
    from huggingface_hub import constants

    assert hub.faults == []
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 20.0)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 20.0)


def shards_read(hub: LocalHub) -> list[str]:
    """Return the ranges of weight files that the storage host was asked for."""
    return [request.range or "" for request in hub.asked(f"-of-{SHARDS:05}.safetensors") if request.server == "cdn"]


def told(found: Checkpoint) -> tuple[str, int, int]:
    """Return where a checkpoint's weights are from, their bytes and their files."""
    assert found.weights is not None
    return found.weights.origin, found.weights.bytes, found.weights.files


@pytest.mark.usefixtures("patient")
def test_one_request_for_all_headers_where_the_hub_gives_them(hub: LocalHub) -> None:
    """163 files cost one question, and the answer is the same, tensor by tensor, as from the files."""
    hub.add(REPO, large(), copies=True)
    hub.add("acme/other", large())
    bar = Bar()

    found, other = resolve(REPO, progress=bar), resolve("acme/other")

    assert found.weights == other.weights
    assert told(found) == ("headers", 2 * PARAMETERS, SHARDS)
    assert (bar.total, found.weights_problem) == (0, None)
    assert len(hub.asked(COPIES)) == 2  # one a repo
    assert not [r for r in hub.requests if "acme/tiny" in r.path and f"-of-{SHARDS:05}" in r.path]
    assert len([r for r in hub.requests if "acme/tiny" in r.path]) == 9


@pytest.mark.usefixtures("patient")
def test_one_request_for_the_summary_where_the_hub_has_one(hub: LocalHub) -> None:
    """Without the headers the Hub's count by dtype does, and the source says so; no weight file is asked for."""
    repo = hub.add(REPO, large(), summary={"BF16": PARAMETERS})
    bar = Bar()

    found = resolve(REPO, progress=bar)

    assert told(found) == ("hub summary", 2 * PARAMETERS, SHARDS)
    assert found.source == f"Hub {REPO}@{repo.commit} (hub summary)"
    assert (held(found), found.weights_problem, bar.total) == ({"BF16": PARAMETERS}, None, 0)
    assert len(hub.asked(repo.commit)) == 1
    assert shards_read(hub) == []


@pytest.mark.usefixtures("patient")
def test_one_ranged_read_a_file_where_the_hub_knows_nothing(hub: LocalHub) -> None:
    """Without both each file is asked for its header once, and the bar counts them."""
    hub.add(REPO, large())
    bar = Bar()

    found = resolve(REPO, progress=bar)

    assert told(found) == ("headers", 2 * PARAMETERS, SHARDS)
    assert shards_read(hub) == ["bytes=0-99999"] * SHARDS
    assert (bar.total, bar.done) == (SHARDS, SHARDS)


@pytest.mark.usefixtures("patient")
def test_who_wants_tensors_gets_them(hub: LocalHub) -> None:
    """`thorough` takes no summary: every header is read."""
    hub.add(REPO, large(), summary={"BF16": PARAMETERS})

    found = resolve(REPO, thorough=True)

    assert told(found) == ("headers", 2 * PARAMETERS, SHARDS)
    assert len(shards_read(hub)) == SHARDS


@pytest.mark.usefixtures("patient")
def test_model_lists_tensors_and_kv_does_not(hub: LocalHub) -> None:
    """`model` reads every header, `kv` takes the summary; the bytes are the same."""
    hub.add(REPO, large(), summary={"BF16": PARAMETERS})

    [row] = answer("kv", REPO)["result"]["models"]
    few = len(shards_read(hub))
    facts = answer("model", REPO)["result"]

    assert (few, len(shards_read(hub))) == (0, SHARDS)
    assert row["weight_bytes"] == facts["stored_bytes"] == 2 * PARAMETERS
    assert row["source"].endswith("(hub summary)")
    assert row["parameters_in_files"] == row["parameters"] == PARAMETERS


@pytest.mark.usefixtures("patient")
def test_the_headers_of_a_revision_are_its_own(hub: LocalHub) -> None:
    """The Hub's copy is of main: with --revision it is not asked for."""
    hub.add(REPO, large(), copies=True, revisions=("main", "v1"))

    assert told(resolve(REPO, revision="v1")) == ("headers", 2 * PARAMETERS, SHARDS)
    assert hub.asked(COPIES) == []
    assert len(shards_read(hub)) == SHARDS


COPY = {"model-00001-of-00163.safetensors": {"w": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"kind": "silence", "seconds": 1.0}, id="time-out"),
        pytest.param({"kind": "close"}, id="no answer"),
        pytest.param({"kind": "status", "code": 500}, id="500"),
        pytest.param({"kind": "status", "code": 403}, id="403"),
        pytest.param({"body": b"<html>"}, id="HTML"),
        pytest.param({"body": b"[]"}, id="a list"),
        pytest.param({"body": b"{}"}, id="no headers"),
        pytest.param({"body": b'{"headers": []}'}, id="headers are a list"),
        pytest.param({"body": json.dumps({"headers": COPY}).encode()}, id="of another commit"),
        pytest.param(
            {
                "body": json.dumps(
                    {"headers": {f"model-{n + 1:05}-of-00163.safetensors": 7 for n in range(163)}}
                ).encode()
            },
            id="numbers",
        ),
        pytest.param(
            {
                "body": json.dumps(
                    {"headers": {f"model-{n + 1:05}-of-00163.safetensors": {} for n in range(163)}}
                ).encode()
            },
            id="nothing in them",
        ),
    ],
)
def test_a_copy_that_is_no_use_is_not_used(hub: LocalHub, fault: dict[str, Any]) -> None:
    """Whatever the Hub says instead of the headers, the files themselves are read, and nothing is amiss."""
    hub.add(REPO, large(), copies=True)
    hub.faults.append(Fault(COPIES, **{"kind": "status", "code": 200, **fault}))

    found = resolve(REPO)

    assert told(found) == ("headers", 2 * PARAMETERS, SHARDS)
    assert found.weights_problem is None
    assert len(shards_read(hub)) == SHARDS


def test_a_long_copy_is_broken_off(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer larger than all headers can be is read no further."""
    from roofcast.modelspec import hub as hub_module

    hub.add(REPO, large(), copies=True)
    monkeypatch.setitem(hub_module.LIMITS, hub_module.COPY, 1000)

    assert told(resolve(REPO)) == ("headers", 2 * PARAMETERS, SHARDS)
    assert len(shards_read(hub)) == SHARDS


@pytest.mark.parametrize(
    ("summary", "total"),
    [
        pytest.param({"BF16": PARAMETERS - 64}, 2 * PARAMETERS, id="too few"),
        pytest.param({"BF16": PARAMETERS + 64}, 2 * PARAMETERS, id="too many"),
        pytest.param({"F32": PARAMETERS}, 2 * PARAMETERS, id="another dtype"),
        pytest.param({"I32": 8 * PARAMETERS}, 2 * PARAMETERS, id="values inside of packed integers"),
        pytest.param({"I32": PARAMETERS // 2}, None, id="packed, and the index says nothing"),
        pytest.param({"F7": PARAMETERS}, 2 * PARAMETERS, id="no dtype"),
        pytest.param({"BF16": 10**30}, 2 * PARAMETERS, id="impossibly many"),
    ],
)
def test_a_summary_that_the_index_does_not_confirm_is_not_used(
    hub: LocalHub, summary: dict[str, int], total: int | None
) -> None:
    """The Hub counts packed values, and may leave scales out: bytes that are not those of the index are no answer."""
    hub.add(REPO, large(total=total), summary=summary)

    found = resolve(REPO)

    assert told(found) == ("headers", 2 * PARAMETERS, SHARDS)
    assert len(shards_read(hub)) == SHARDS


@pytest.mark.parametrize("total", [None, 2 * PARAMETERS, 2.0 * PARAMETERS, 2 * PARAMETERS + 130 * len(TENSORS)])
def test_a_summary_is_used_where_the_index_does_not_deny_it(hub: LocalHub, total: float | None) -> None:
    """An index may state no bytes, those of the tensors, or those of the files with their headers."""
    hub.add(REPO, large(total=total), summary={"BF16": PARAMETERS})

    assert told(resolve(REPO)) == ("hub summary", 2 * PARAMETERS, SHARDS)


@pytest.mark.parametrize(
    "changes",
    [{"model_type": "brand_new"}, {"num_attention_heads": 3}, {"vision_config": {"x": 1}, "model_type": "strange_vl"}],
    ids=["unknown class", "malformed", "unknown tower"],
)
def test_what_only_tensors_tell_is_read_from_them(hub: LocalHub, changes: dict[str, Any]) -> None:
    """A class that nobody has checked is confirmed by its headers, however many there are."""
    hub.add(REPO, large(LARGE | changes), summary={"BF16": PARAMETERS})

    assert told(resolve(REPO)) == ("headers", 2 * PARAMETERS, SHARDS)


def test_scales_in_the_summary_are_warned_of(hub: LocalHub) -> None:
    """Of FP8 in blocks the bytes are exact; its parameters are not told from its scales, and that is said."""
    counts = {"F8_E4M3": PROJECTED, "BF16": PARAMETERS - PROJECTED, "F32": len(SCALES)}
    stored = PROJECTED + 2 * (PARAMETERS - PROJECTED) + 4 * len(SCALES)
    hub.add(REPO, large(LARGE | {"quantization_config": FP8}, BLOCKS, stored), summary=counts)
    hub.add("acme/read", large(LARGE | {"quantization_config": FP8}, BLOCKS, stored))

    got, read = answer("kv", REPO), answer("kv", "acme/read")
    [row], [other] = got["result"]["models"], read["result"]["models"]

    assert row["weight_bytes"] == other["weight_bytes"] == stored
    assert row["parameters_in_files"] == PARAMETERS + len(SCALES)
    assert other["parameters_in_files"] == PARAMETERS
    assert any("quantisation scales among them" in line for line in got["warnings"])
    assert not any("scales" in line for line in read["warnings"])


def test_files_in_the_cache_are_read_there(hub: LocalHub) -> None:
    """Who has all files needs no question."""
    from huggingface_hub import hf_hub_download

    files = large()
    hub.add(REPO, files, copies=True, summary={"BF16": PARAMETERS})
    for name in files:
        hf_hub_download(REPO, name)
    hub.requests.clear()

    assert told(resolve(REPO)) == ("headers", 2 * PARAMETERS, SHARDS)
    assert [*shards_read(hub), *hub.asked(COPIES)] == []


def _start(hub: LocalHub, folder: Path, **streams: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "roofcast", "kv", REPO, "--format", "json"], text=True, **streams,
        env=environment(hub, folder, HF_HUB_ETAG_TIMEOUT="100", HF_HUB_DOWNLOAD_TIMEOUT="100"),
    )  # fmt: skip


def test_ctrl_c_in_the_middle_of_163_files(hub: LocalHub, tmp_path: Path) -> None:
    """An interrupt while files are read ends the process with 130 and at most one line, and spoils nothing."""
    hub.add(REPO, large())
    hub.faults.append(Fault("5-of-00163.safetensors", "silence", seconds=300))
    process = _start(hub, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    waiting = threading.Event()
    while len(hub.asked("5-of-00163.safetensors")) < 8 and process.poll() is None:  # every thread is held
        waiting.wait(0.02)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=50)
    hub.faults.clear()

    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in errors
    assert errors.count("\n") <= 1
    assert not [name for name in written(tmp_path) if name.endswith(".incomplete")]

    again = _start(hub, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = again.communicate(timeout=50)
    assert (again.returncode, errors) == (0, "")
    assert json.loads(out)["result"]["models"][0]["weight_bytes"] == 2 * PARAMETERS


def test_ctrl_c_takes_the_bar_away(hub: LocalHub, tmp_path: Path) -> None:
    """On a terminal the bar is gone and the cursor is back when an interrupt ends the reading."""
    hub.add(REPO, large())
    hub.faults.append(Fault("5-of-00163.safetensors", "silence", seconds=300))
    ours, theirs = pty.openpty()
    process = _start(hub, tmp_path, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                shown.append(os.read(ours, 4096))
            except OSError:  # the other side is closed
                return

    listener = threading.Thread(target=listen)
    listener.start()
    waiting = threading.Event()
    while len(hub.asked("5-of-00163.safetensors")) < 8 and process.poll() is None:
        waiting.wait(0.02)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=50)
    listener.join(50)
    os.close(ours)
    text = b"".join(shown).decode()

    assert (process.returncode, out) == (130, "")
    assert "/163" in text
    assert text.rpartition("\x1b[?25l")[2].count("\x1b[?25h") == 1  # hidden, then shown again
    assert "Traceback" not in text


def test_no_bar_on_a_pipe(hub: LocalHub, tmp_path: Path) -> None:
    """Without a terminal 163 files leave stderr empty."""
    hub.add(REPO, large())
    process = _start(hub, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, errors = process.communicate(timeout=50)

    assert (process.returncode, errors) == (0, "")
    assert json.loads(out)["result"]["models"][0]["parameters_in_files"] == PARAMETERS
