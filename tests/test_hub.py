"""Models from the Hub through its real client: what is read, how little, and what the cache is good for."""

from __future__ import annotations

import json
import logging
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.source import resolve
from tests.hub_client import (  # noqa: F401  pytest finds them by name
    CONFIG,
    REPO,
    SHARDED,
    SINGLE,
    SUMMARY,
    Bar,
    held,
    hub_fixture,
    point_at,
    server_fixture,
    written,
)
from tests.hub_server import Fault, LocalHub, Sparse, index, safetensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


@pytest.mark.parametrize("files", [SINGLE, SHARDED], ids=["one file", "two shards"])
def test_config_and_headers_come_from_the_hub(hub: LocalHub, files: Mapping[str, bytes | Sparse]) -> None:
    """The config and exact elements by dtype are read, and the answer says of which commit."""
    repo = hub.add(REPO, files)

    found = resolve(REPO)

    assert (found.name, found.config) == (REPO, json.loads(CONFIG))
    assert (held(found), found.weights_problem) == (SUMMARY, None)
    assert found.source == f"Hub {REPO}@{repo.commit}"
    assert found.weights is not None
    assert (found.weights.bytes, found.weights.origin) == (96, "headers")


def test_everything_after_the_config_is_read_at_its_commit(hub: LocalHub) -> None:
    """A push in the middle cannot mix two versions: no request but those for the config names a branch."""
    repo = hub.add(REPO, SHARDED)

    resolve(REPO)

    later = [r.path for r in hub.requests if r.server == "hub" and not r.path.endswith("config.json")]
    assert later
    assert all(repo.commit in path for path in later)


@pytest.mark.parametrize("revision", ["v1.0", "refs/pr/7"])
def test_a_revision_is_asked_for(hub: LocalHub, revision: str) -> None:
    """--revision takes a tag or a pull request."""
    hub.add(REPO, SINGLE, revisions=("main", revision))

    assert held(resolve(REPO, revision=revision)) == SUMMARY


def test_a_revision_of_a_catalogue_name_asks_the_hub(hub: LocalHub) -> None:
    """The catalogue knows one version; with --revision its first repo is read instead."""
    from roofcast.modelspec.known import find_known

    known = find_known("llama-3.1-8b")
    assert known is not None
    hub.add(known.repos[0], SINGLE)

    assert resolve("llama-3.1-8b").source == "catalogue llama-3.1-8b"
    assert resolve("llama-3.1-8b", revision="main").source.startswith(f"Hub {known.repos[0]}@")


def test_only_headers_are_read(hub: LocalHub) -> None:
    """Sixteen gigabytes of weights cost a few hundred bytes."""
    hub.add(REPO, {"config.json": CONFIG, "model.safetensors": safetensors({"w": ("BF16", [8_000_000_000])})})

    found = resolve(REPO)

    assert held(found) == {"BF16": 8_000_000_000}
    assert hub.sent < 200_000
    assert [r.range for r in hub.asked("/model.safetensors") if r.server == "cdn"] == ["bytes=0-99999"]


def test_a_long_header_takes_a_second_read(hub: LocalHub) -> None:
    """A header beyond the first 100 kB is fetched to its end, and no further."""
    tensors = {f"model.layers.{i}.self_attn.q_proj.weight": ("BF16", [2]) for i in range(3000)}
    made = safetensors(tensors)
    hub.add(REPO, {"config.json": CONFIG, "model.safetensors": made})

    assert held(resolve(REPO)) == {"BF16": 6000}
    ranges = [r.range for r in hub.asked("/model.safetensors") if r.server == "cdn"]
    assert ranges == ["bytes=0-99999", f"bytes=100000-{len(made.start) - 1}"]


@pytest.mark.parametrize("count", [1, 3000], ids=["short header", "long header"])
def test_a_server_that_ignores_ranges_is_hung_up_on(hub: LocalHub, count: int) -> None:
    """A server that sends five gigabytes instead of a header is read no further than the header."""
    hub.ranges = False
    tensors = {f"model.layers.{i}.self_attn.q_proj.weight": ("BF16", [2]) for i in range(count)}
    tensors["w"] = ("BF16", [2_500_000_000])
    hub.add(REPO, {"config.json": CONFIG, "model.safetensors": safetensors(tensors)})

    assert held(resolve(REPO)) == {"BF16": 2_500_000_000 + 2 * count}
    assert hub.sent < 100_000_000


def test_163_shards_are_read_side_by_side(hub: LocalHub) -> None:
    """As many shards as DeepSeek-V3 has are counted one by one on the progress bar, and are one answer."""
    names = [f"model-{i:05d}-of-000163.safetensors" for i in range(1, 164)]
    shards = {name: safetensors({f"l.{name}": ("F8_E4M3", [7])}) for name in names}
    weight_map = {f"l.{name}": name for name in names}
    hub.add(REPO, {"config.json": CONFIG, "model.safetensors.index.json": index(weight_map), **shards})
    bar = Bar()

    found = resolve(REPO, progress=bar)

    assert held(found) == {"F8_E4M3": 163 * 7}
    assert (bar.total, bar.done) == (163, 163)
    assert found.weights is not None
    assert [t.name for t in found.weights.tensors] == sorted(weight_map)


@pytest.mark.parametrize(
    ("names", "counted"),
    [
        (("awq-4bit.safetensors",), 1),
        (("m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "consolidated.safetensors"), 2),
    ],
)
def test_files_of_other_names_are_found_in_the_listing(hub: LocalHub, names: tuple[str, ...], counted: int) -> None:
    """Without model.safetensors and index the repo's list of files tells what there is."""
    files = {name: safetensors({name: ("F16", [3])}) for name in names}
    hub.add(REPO, {"config.json": CONFIG, **files})

    found = resolve(REPO)

    assert held(found) == {"F16": 3 * counted}
    assert found.weights_problem is None


def test_a_repo_without_weight_files_is_an_answer(hub: LocalHub) -> None:
    """No weight files is no problem; pickles are one, as they are not read."""
    hub.add(REPO, {"config.json": CONFIG})
    hub.add("acme/old", {"config.json": CONFIG, "pytorch_model.bin": b"PK"})

    assert (resolve(REPO).weights, resolve(REPO).weights_problem) == (None, None)
    old = resolve("acme/old")
    assert old.weights is None
    assert old.weights_problem == "no safetensors files; pytorch_model.bin is not read"


def test_the_token_opens_a_gated_repo_and_stays_on_the_hub(hub: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """HF_TOKEN is sent to the Hub and never to the storage host that it redirects to."""
    hub.add(REPO, SHARDED, token="hf_good")  # noqa: S106
    monkeypatch.setenv("HF_TOKEN", "hf_good")

    assert held(resolve(REPO)) == SUMMARY
    assert {r.token for r in hub.requests if r.server == "hub"} == {"Bearer hf_good"}
    assert [r.token for r in hub.requests if r.server == "cdn"] == [None, None]


def test_nothing_is_printed(hub: LocalHub, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's bars, log lines and warnings stay off the terminal, and are back afterwards."""
    import huggingface_hub
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled

    logger = logging.getLogger("huggingface_hub")
    seen: list[tuple[bool, bool]] = []
    download = huggingface_hub.hf_hub_download

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append((logger.isEnabledFor(logging.CRITICAL), are_progress_bars_disabled()))
        warnings.warn("a word from the client", UserWarning, stacklevel=1)
        return download(*args, **kwargs)

    before = (logger.level, are_progress_bars_disabled())
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", watched)
    hub.add(REPO, SINGLE)
    hub.faults.append(Fault("/config.json", "status", methods=("GET",), code=429, times=2))

    resolve(REPO)

    assert seen == [(False, True)]
    assert capfd.readouterr() == ("", "")
    assert (logger.level, are_progress_bars_disabled()) == before


def test_only_the_clients_cache_is_written(hub: LocalHub, tmp_path: Path) -> None:
    """The config and the index land in the cache; headers and answers are kept nowhere."""
    hub.add(REPO, SHARDED)

    resolve(REPO)

    kept = [name for name in written(tmp_path) if "/snapshots/" in name]
    assert [name.rpartition("/")[2] for name in kept] == ["config.json", "model.safetensors.index.json"]
    assert all(name.startswith("cache/") for name in written(tmp_path))


def test_offline_with_nothing_cached_says_how_to_fill_the_cache(hub: LocalHub, tmp_path: Path) -> None:
    """--offline asks nothing and names the command that helps."""
    hub.add(REPO, SINGLE)

    with pytest.raises(UndeterminedModelError, match=f"{REPO}: offline, .* `hf download {REPO} config.json`"):
        resolve(REPO, offline=True)

    assert hub.requests == []
    assert written(tmp_path) == []


@pytest.mark.parametrize("files", [SINGLE, SHARDED], ids=["one file", "two shards"])
def test_offline_reads_headers_of_cached_files(hub: LocalHub, files: Mapping[str, bytes | Sparse]) -> None:
    """A repo that was downloaded whole is read from the cache, headers and all, with no request."""
    from huggingface_hub import hf_hub_download

    commit = hub.add(REPO, files).commit
    for name in files:
        hf_hub_download(REPO, name)
    hub.requests.clear()

    found = resolve(REPO, offline=True)

    assert (held(found), found.weights_problem, hub.requests) == (SUMMARY, None, [])
    assert found.source == f"Hub {REPO}@{commit}"


@pytest.mark.parametrize("files", [SINGLE, SHARDED], ids=["one file", "two shards"])
def test_offline_without_cached_weights_says_so(hub: LocalHub, files: Mapping[str, bytes | Sparse]) -> None:
    """After one online answer the config is cached and the weights are not: the offline answer says that."""
    hub.add(REPO, files)
    resolve(REPO)
    hub.requests.clear()

    found = resolve(REPO, offline=True)

    assert (found.config, found.weights, hub.requests) == (json.loads(CONFIG), None, [])
    assert found.weights_problem is not None
    assert found.weights_problem.startswith("offline; ")


def _out_of_reach(_: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    point_at("http://127.0.0.1:9", monkeypatch)


def _gated(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
    hub.repos[REPO].token = "hf_good"  # noqa: S105


def _busy(hub: LocalHub, _: pytest.MonkeyPatch) -> None:
    hub.faults.append(Fault("/config.json", "status"))


@pytest.mark.parametrize(
    ("change", "says"), [(_out_of_reach, "connection refused"), (_gated, "gated"), (_busy, "answered 503")]
)
def test_a_hub_out_of_reach_falls_back_to_the_cache_and_says_so(
    hub: LocalHub, monkeypatch: pytest.MonkeyPatch, change: Callable[[LocalHub, pytest.MonkeyPatch], None], says: str
) -> None:
    """What was read before is still an answer when the Hub is not there, and the reason is told."""
    hub.add(REPO, SINGLE)
    resolve(REPO)
    change(hub, monkeypatch)

    found = resolve(REPO)

    assert (found.config, found.weights) == (json.loads(CONFIG), None)
    assert found.weights_problem is not None
    assert found.weights_problem.endswith("; no weight files in the Hub's cache")
    assert says in found.weights_problem


def test_a_second_answer_asks_for_the_config_and_headers_alone(hub: LocalHub) -> None:
    """What the client has is not fetched again: the config is looked at, the index of that commit is not."""
    hub.add(REPO, SHARDED)
    resolve(REPO)
    hub.requests.clear()

    assert held(resolve(REPO)) == SUMMARY
    assert hub.asked("/config.json", "GET") == []
    assert hub.asked("index.json", "HEAD") == hub.asked("index.json", "GET") == []


def test_cached_shards_are_not_asked_for_again(hub: LocalHub) -> None:
    """A shard that the client has is read from its cache."""
    from huggingface_hub import hf_hub_download

    hub.add(REPO, SHARDED)
    hf_hub_download(REPO, "model-1.safetensors")
    hub.requests.clear()

    assert held(resolve(REPO)) == SUMMARY
    assert hub.asked("/model-1.safetensors") == []
    assert len(hub.asked("/model-2.safetensors")) == 2
