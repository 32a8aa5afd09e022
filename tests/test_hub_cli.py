"""The command line end to end: the real huggingface_hub client against a Hub on loopback."""

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

from tests.checkpoints import (
    DEEPSEEK_V3,
    LLAMA_2_7B,
    LLAMA_3_1_8B,
    MISTRAL_7B_V0_3,
    OPT_13B,
    QWEN2_5_7B,
    TINY,
    TINY_PARAMETERS,
    decoder_tensors,
    deepseek_v3_tensors,
    published,
)
from tests.hub_client import hub_fixture, point_at, server_fixture, written  # noqa: F401  pytest finds them by name
from tests.hub_server import PAGE, Fault, LocalHub, Sparse, framed
from tests.running import answer, refused, result, roofcast, table_cells

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REPO = "acme/tiny"
FILES = published(TINY, decoder_tensors(TINY))
# repo -> attention, layers, query heads, KV heads, KiB a token, GiB at 128k, weights in bf16 in GiB
TABLE = {
    "meta-llama/Llama-3.1-8B": ("GQA", 32, 32, 8, 128.0, 16.00, 15.0),
    "meta-llama/Llama-2-7b-hf": ("MHA", 32, 32, 32, 512.0, 64.00, 12.6),
    "Qwen/Qwen2.5-7B": ("GQA", 28, 28, 4, 56.0, 7.00, 14.2),
    "mistralai/Mistral-7B-v0.3": ("GQA", 32, 32, 8, 128.0, 16.00, 13.5),
    "deepseek-ai/DeepSeek-V3": ("MLA", 61, 128, 128, 68.6, 8.58, 1275.0),
}


def publish_all(hub: LocalHub) -> None:
    """Publish the five models with the tensors that the real files hold."""
    for repo, config, dtype, shards in (
        ("meta-llama/Llama-3.1-8B", LLAMA_3_1_8B, "BF16", 4),
        ("meta-llama/Llama-2-7b-hf", LLAMA_2_7B, "F16", 2),
        ("Qwen/Qwen2.5-7B", QWEN2_5_7B, "BF16", 4),
        ("mistralai/Mistral-7B-v0.3", MISTRAL_7B_V0_3, "BF16", 1),
    ):
        hub.add(repo, published(config, decoder_tensors(config, dtype), shards))
    hub.add("deepseek-ai/DeepSeek-V3", published(DEEPSEEK_V3, deepseek_v3_tensors()))


def test_the_five_models_through_the_real_client(hub: LocalHub) -> None:
    """The table of the catalogue, from config.json and safetensors headers of the published sizes."""
    publish_all(hub)
    rows = result("kv", *TABLE, "--revision", "main", "--context", "128k", "--weights", "bf16")["models"]

    assert table_cells(rows) == TABLE
    assert {row["provenance"]["weight_bytes"] for row in rows} == {"header"}
    assert all(row["source"].startswith("Hub ") for row in rows)
    assert {row["model"]: row["parameters"] for row in rows} == {
        "meta-llama/Llama-3.1-8B": 8_030_261_248,
        "meta-llama/Llama-2-7b-hf": 6_738_415_616,
        "Qwen/Qwen2.5-7B": 7_615_616_512,
        "mistralai/Mistral-7B-v0.3": 7_248_023_552,
        "deepseek-ai/DeepSeek-V3": 671_026_404_352,
    }
    assert all(row["parameters_in_files"] == row["parameters"] for row in rows[:4])
    assert hub.sent < 30_000_000  # headers of files that would be 734 GB


def test_deepseek_v3_from_its_headers(hub: LocalHub) -> None:
    """Stored: FP8, its scales and bf16; both counts, 684.5B in the files and 671.0B of the decoder, and which is meant."""
    hub.add("deepseek-ai/DeepSeek-V3", published(DEEPSEEK_V3, deepseek_v3_tensors()))
    arguments = ("kv", "deepseek-ai/DeepSeek-V3", "--revision", "main")
    [row] = result(*arguments)["models"]
    text = roofcast(*arguments).out
    [known] = result("kv", "deepseek-v3")["models"]

    assert row["weight_bytes"] == 680_571_043_840 + 2 * 3_918_786_560 + 4 * 41_555_600 == known["weight_bytes"]
    assert row["kv_bytes_per_token"] == 61 * 576 * 2
    assert row["parameters"] == known["parameters"] == 671_026_404_352
    assert round(row["parameters_in_files"] / 1e9, 1) == 684.5
    assert "684.5B" in text
    assert "671.0B" in text


def test_the_catalogue_counts_deepseek_v3_as_its_headers_do(hub: LocalHub) -> None:
    """The files hold so many parameters, whoever is asked: the catalogue offline or the headers."""
    hub.add("deepseek-ai/DeepSeek-V3", published(DEEPSEEK_V3, deepseek_v3_tensors()))
    [row] = result("kv", "deepseek-ai/DeepSeek-V3", "--revision", "main")["models"]
    [known] = result("kv", "deepseek-v3")["models"]

    assert row["parameters_in_files"] == known["parameters_in_files"]


def test_opt_13b_without_safetensors(hub: LocalHub) -> None:
    """A repo that has only pytorch_model.bin is answered from its config, and the answer says what was not read."""
    hub.add("facebook/opt-13b", {"config.json": json.dumps(OPT_13B).encode(), "pytorch_model.bin": b"x"})
    got = answer("kv", "facebook/opt-13b", "--revision", "main", "--context", "2k")
    [row] = got["result"]["models"]

    assert row["kv_bytes_per_token"] == 800 * 1024
    assert row["cache_bytes"] == {"2048": 1_677_721_600}
    assert row["provenance"]["weight_bytes"] == "config"
    assert any("pytorch_model.bin" in line for line in got["assumptions"])


def test_names_of_the_catalogue_ask_nothing(hub: LocalHub) -> None:
    """Repo ids that the catalogue knows are answered without a request."""
    assert roofcast("kv", *TABLE).code == 0
    assert hub.requests == []


def test_fit_from_headers(hub: LocalHub) -> None:
    """`fit` takes the bytes that the headers describe: Llama 3.1 8B is 16.06 GB and 104 sequences at 4k."""
    hub.add("acme/llama", published(LLAMA_3_1_8B, decoder_tensors(LLAMA_3_1_8B), 4))
    got = result("fit", "acme/llama", "--gpu", "h100-sxm", "--context", "4k,32k,128k")

    assert got["memory"]["weight_bytes"] == 16_060_522_496
    assert got["provenance"]["weight_bytes"] == "header"
    assert [row["max_sequences"] for row in got["contexts"]] == [104, 13, 3]


def test_model_from_headers(hub: LocalHub) -> None:
    """`model` says which facts are from headers and which from the config."""
    hub.add(REPO, FILES)
    got = result("model", REPO)
    origins = {fact["name"]: fact["provenance"] for fact in got["facts"]}

    assert got["stored_elements"] == {"BF16": TINY_PARAMETERS}
    assert got["stored_bytes"] == 2 * TINY_PARAMETERS
    assert origins["layers"] == origins["parameters"] == "config"
    assert origins["parameters_in_files"] == origins["weight_bytes"] == "header"


def test_a_gated_repo_with_its_token(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the token in the environment a gated repo answers like any other; the token is printed nowhere."""
    hub.add(REPO, FILES, token="hf_good")  # noqa: S106
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    outcome = roofcast("kv", REPO)

    assert outcome.code == 0, outcome.err
    assert "hf_good" not in outcome.out + outcome.err


def test_offline_answers_from_the_cache(hub: LocalHub) -> None:
    """What was asked once is answered offline, from the config in the client's cache, and says what it lacks."""
    hub.add(REPO, FILES)
    roofcast("kv", REPO)
    hub.requests.clear()
    got = answer("kv", REPO, "--offline")

    assert hub.requests == []
    assert got["result"]["models"][0]["parameters"] == TINY_PARAMETERS
    assert any("offline" in line for line in got["assumptions"])


def _absent(_: LocalHub, __: pytest.MonkeyPatch) -> None:
    """Publish nothing."""


def _gated(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
    hub.add(REPO, FILES, token="hf_good")  # noqa: S106


def _gone(_: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at("http://127.0.0.1:9", monkeypatch)


def _faulty(**fault: Any) -> Callable[[LocalHub, pytest.MonkeyPatch], None]:
    def set_up(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
        hub.add(REPO, FILES)
        hub.faults.append(Fault("/config.json", **fault))

    return set_up


def _holding(name: str, data: bytes | Sparse | None) -> Callable[[LocalHub, pytest.MonkeyPatch], None]:
    def set_up(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
        files = published(TINY, decoder_tensors(TINY), 2) if "index" in name or "-of-" in name else dict(FILES)
        kept = files if data is None else files | {name: data}
        hub.add(REPO, {n: d for n, d in kept.items() if n != name or data is not None})

    return set_up


BROKEN: dict[str, tuple[Callable[[LocalHub, pytest.MonkeyPatch], None], tuple[str, ...], int, tuple[str, ...]]] = {
    "gated without token": (_gated, (), 3, ("gated", "HF_TOKEN")),
    "missing repo": (_absent, (), 3, ("no such repo",)),
    "missing revision": (_holding("x", b""), ("--revision", "v9"), 3, ("v9",)),
    "connection refused": (_gone, (), 3, ("refused",)),
    "time-out": (_faulty(kind="silence", seconds=5), (), 3, ("did not answer",)),
    "no answer": (_faulty(kind="close"), (), 3, ()),
    "dropped in mid-body": (_faulty(kind="drop", methods=("GET",)), (), 3, ()),
    "429": (_faulty(kind="status", code=429), (), 3, ("429",)),
    "503": (_faulty(kind="status", code=503), (), 3, ("503",)),
    "captive portal": (
        _faulty(kind="status", code=200, body=PAGE, headers={"Content-Type": "text/html"}), (), 3, ("portal",),
    ),
    "offline with nothing cached": (_holding("x", b""), ("--offline",), 3, ("offline",)),
    "config is no JSON": (_holding("config.json", b"{"), (), 2, ("config.json", "JSON")),
    "config is a list": (_holding("config.json", b"[]"), (), 2, ("config.json", "object")),
    "no config": (_holding("config.json", None), (), 3, ("config.json",)),
    "heads do not divide": (
        _holding("config.json", json.dumps(TINY | {"num_key_value_heads": 3}).encode()), (), 2, ("3", "4"),
    ),
    "header cut short": (_holding("model.safetensors", b"\xff\0\0\0\0\0\0\0{}"), (), 2, ("cut short",)),
    "header of 100 GB": (
        _holding("model.safetensors", Sparse((10**11).to_bytes(8, "little"), 10**12)), (), 2, ("100,000,000,000",),
    ),
    "header is no JSON": (_holding("model.safetensors", framed(b"nope")), (), 2, ("header",)),
    "header of another shape": (_holding("model.safetensors", framed(b"[1]")), (), 2, ("header",)),
    "missing shard": (_holding("model-00002-of-00002.safetensors", None), (), 3, ("model-00002-of-00002", "missing")),
    "index is no JSON": (_holding("model.safetensors.index.json", b"{"), (), 2, ("index",)),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_what_goes_wrong_is_one_line(what: str, hub: LocalHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever the network or the repo does, it is one line that names the repo, the right code, and no file."""
    set_up, options, code, words = BROKEN[what]
    set_up(hub, monkeypatch)
    out = tmp_path / "answer.json"

    refused(roofcast("kv", REPO, *options, "--out", str(out)), code, REPO, *words)
    assert not out.exists()


@pytest.mark.parametrize("fault", ["status", "close", "drop"])
def test_headers_that_could_not_be_read(fault: str, hub: LocalHub) -> None:
    """The config answers, weights from its count, and the assumption says that headers failed; --strict refuses."""
    hub.add(REPO, FILES)
    hub.faults.append(Fault("/model.safetensors", fault))
    got = answer("kv", REPO)
    [row] = got["result"]["models"]

    assert row["weight_bytes"] == 2 * TINY_PARAMETERS
    assert row["parameters_in_files"] is None
    assert row["provenance"]["weight_bytes"] == "config"
    assert any("model.safetensors" in line for line in got["assumptions"])
    assert "assumed" in roofcast("kv", REPO).out
    for command in (("kv", REPO), ("model", REPO), ("fit", REPO, "--gpu", "h100-sxm")):
        refused(roofcast(*command, "--strict"), 3, "--strict", "model.safetensors")


def test_the_hubs_summary_stands_in_for_headers(hub: LocalHub) -> None:
    """Where headers fail and the Hub's summary does not, it is used, and that is an assumption."""
    hub.add(REPO, FILES, summary={"BF16": TINY_PARAMETERS})
    hub.faults.append(Fault("/model.safetensors", "status"))
    got = answer("kv", REPO)
    [row] = got["result"]["models"]

    assert row["parameters_in_files"] == TINY_PARAMETERS
    assert row["provenance"]["weight_bytes"] == "header"
    assert any("summary" in line for line in got["assumptions"])
    refused(roofcast("kv", REPO, "--strict"), 3, "summary")


def test_several_repos_one_of_them_bad(hub: LocalHub) -> None:
    """The good repo is printed, the absent and the malformed one are a line each, and the worst code is returned."""
    hub.add(REPO, FILES)
    hub.add("acme/broken", {"config.json": b"[]"})
    outcome = roofcast("kv", "acme/absent", REPO, "acme/broken", "--format", "json")

    assert outcome.code == 2
    assert [row["model"] for row in outcome.data["result"]["models"]] == [REPO]
    assert ["acme/absent" in outcome.err, "acme/broken" in outcome.err, outcome.err.count("\n")] == [True, True, 2]


def test_nothing_is_left_where_one_works(hub: LocalHub, tmp_path: Path) -> None:
    """Asking writes to the client's cache only."""
    hub.add(REPO, FILES)
    roofcast("kv", REPO)

    assert [name for name in written(tmp_path) if not name.startswith("cache/")] == []


def environment(hub: LocalHub, folder: Path, **changes: str) -> dict[str, str]:
    """Return an environment for a real process that asks this Hub."""
    kept = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM"}}
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "hf"), "NO_PROXY": "127.0.0.1", "TERM": "xterm-256color"}
    return kept | own | changes


def test_a_progress_bar_on_a_terminal(hub: LocalHub, tmp_path: Path) -> None:
    """On a terminal stderr counts the weight files; stdout is the same JSON."""
    hub.add(REPO, published(TINY, decoder_tensors(TINY), 3))
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "roofcast", "kv", REPO, "--format", "json"],
        stdout=subprocess.PIPE, stderr=theirs, env=environment(hub, tmp_path),
    )  # fmt: skip
    os.close(theirs)
    shown: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other side is closed
                return
            shown.append(piece)

    listener = threading.Thread(target=listen)
    listener.start()
    out, _ = process.communicate(timeout=60)
    listener.join(60)
    os.close(ours)

    assert process.returncode == 0
    assert json.loads(out)["result"]["models"][0]["parameters_in_files"] == TINY_PARAMETERS
    assert "/3" in b"".join(shown).decode()


def test_no_progress_bar_without_a_terminal(hub: LocalHub, tmp_path: Path) -> None:
    """On a pipe stderr stays empty, the client's own bars and warnings included."""
    hub.add(REPO, published(TINY, decoder_tensors(TINY), 3))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "roofcast", "kv", REPO, "--format", "json"],
        capture_output=True, check=False, text=True, timeout=60, env=environment(hub, tmp_path),
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["schema"] == "roofcast.kv/1"


def test_a_process_speaks_for_its_client(hub: LocalHub, tmp_path: Path) -> None:
    """In a process of its own, where nothing has imported the client before, its log lines stay away too."""
    hub.add(REPO, FILES)
    hub.faults.append(Fault("/config.json", "drop", methods=("GET",)))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "roofcast", "kv", REPO],
        capture_output=True, check=False, text=True, timeout=60, env=environment(hub, tmp_path),
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "broke off" in done.stderr


def test_ctrl_c_while_the_hub_is_silent(hub: LocalHub, tmp_path: Path) -> None:
    """An interrupt in the middle of a request ends the process with 130, at once and without a traceback."""
    hub.add(REPO, FILES)
    hub.faults.append(Fault("/config.json", "silence", seconds=300))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "roofcast", "kv", REPO],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(hub, tmp_path, HF_HUB_ETAG_TIMEOUT="100", HF_HUB_DOWNLOAD_TIMEOUT="100"),
    )  # fmt: skip
    waiting = threading.Event()
    while not hub.asked("/config.json", "HEAD") and process.poll() is None:
        waiting.wait(0.02)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=50)

    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in errors
    assert errors.count("\n") <= 1
