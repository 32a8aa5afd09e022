"""Quantisation that stands beside config.json: hf_quant_config.json, on the Hub and on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError
from roofcast.modelspec.source import resolve
from tests.checkpoints import TINY, decoder_tensors, folder_of, published
from tests.hub_client import REPO, hub_fixture, server_fixture  # noqa: F401  pytest finds them by name
from tests.hub_server import Fault, LocalHub, Sparse

if TYPE_CHECKING:
    from pathlib import Path

NAME = "hf_quant_config.json"
METHOD = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
BESIDE = json.dumps({"producer": {"name": "modelopt"}, "quantization": METHOD}).encode()
OWN = {"quant_method": "awq", "bits": 4, "group_size": 128}
FILES = published(TINY, decoder_tensors(TINY))


def config(**more: Any) -> bytes:
    """Return a config.json that states so much more."""
    return json.dumps({**TINY, **more}).encode()


def test_what_stands_beside_the_config_is_read_from_the_hub(hub: LocalHub) -> None:
    """The config has what hf_quant_config.json states, read at the config's commit."""
    repo = hub.add(REPO, {**FILES, NAME: BESIDE})

    assert resolve(REPO).config == {**TINY, "quantization_config": METHOD}
    assert [repo.commit in request.path for request in hub.asked(NAME)] == [True]


def test_it_is_read_offline_from_the_cache(hub: LocalHub) -> None:
    """What was read once is in the client's cache, beside the config."""
    hub.add(REPO, {**FILES, NAME: BESIDE})
    resolve(REPO)
    hub.requests.clear()

    assert resolve(REPO, offline=True).config["quantization_config"] == METHOD
    assert hub.requests == []


def test_a_second_answer_does_not_ask_again(hub: LocalHub) -> None:
    """A file of that commit does not change."""
    hub.add(REPO, {**FILES, NAME: BESIDE})
    resolve(REPO)
    hub.requests.clear()

    assert resolve(REPO).config["quantization_config"] == METHOD
    assert hub.asked(NAME, "HEAD") == hub.asked(NAME) == []


def test_a_repo_without_it_costs_one_small_question(hub: LocalHub) -> None:
    """No such file is no problem."""
    hub.add(REPO, FILES)

    found = resolve(REPO)

    assert (found.config, found.weights_problem) == (TINY, None)
    assert (len(hub.asked(NAME, "HEAD")), len(hub.asked(NAME))) == (1, 0)


STATED = [
    pytest.param({"quantization_config": OWN}, id="at the top"),
    pytest.param({"quantization": {"bits": 4, "group_size": 64}}, id="MLX"),
    pytest.param({"compression_config": {"quant_method": "sparse"}}, id="older"),
    pytest.param({"text_config": {**TINY, "quantization_config": OWN}}, id="in the text model"),
    pytest.param({"thinker_config": {"text_config": {"quantization_config": OWN}}}, id="in the thinker's text model"),
]


@pytest.mark.parametrize("stated", STATED)
def test_a_config_that_states_its_own_is_not_asked_beside(hub: LocalHub, stated: dict[str, Any]) -> None:
    """The config's word stands, at its top or in its text model, and no question is spent."""
    hub.add(REPO, {**FILES, "config.json": config(**stated), NAME: BESIDE})

    assert resolve(REPO).config == {**TINY, **stated}
    assert hub.asked(NAME, "HEAD") == hub.asked(NAME) == []


@pytest.mark.parametrize("stated", STATED)
def test_a_folders_config_that_states_its_own_stands(tmp_path: Path, stated: dict[str, Any]) -> None:
    """The same holds on this machine."""
    where = folder_of(tmp_path, {**TINY, **stated}, **{"hf_quant_config.json": BESIDE})

    assert resolve(where).config == {**TINY, **stated}


@pytest.mark.parametrize("stated", [{"quantization_config": None}, {"quantization_config": {}}, {"text_config": None}])
def test_nothing_stated_is_nothing(tmp_path: Path, stated: dict[str, Any]) -> None:
    """A key that holds nothing states nothing."""
    where = folder_of(tmp_path, {**TINY, **stated}, **{"hf_quant_config.json": BESIDE})

    assert resolve(where).config == {**TINY, **stated, "quantization_config": METHOD}


@pytest.mark.parametrize(
    ("text", "says"),
    [(b"", "it is empty"), (b"[1]", "holds a list"), (b"{", "not JSON"), (Sparse(b"{", 10**8), "larger than 10 MB")],
)
def test_a_broken_file_is_named(hub: LocalHub, text: bytes | Sparse, says: str) -> None:
    """It is not passed over: the weights' format is in it."""
    hub.add(REPO, {**FILES, NAME: text})

    with pytest.raises(MalformedModelError, match=f"{REPO}: {NAME}: .*{says}"):
        resolve(REPO)


@pytest.mark.parametrize("text", [b"{}", b'{"quantization": null}'])
def test_a_file_that_states_nothing_changes_nothing(hub: LocalHub, text: bytes) -> None:
    """It may hold the producer alone."""
    hub.add(REPO, {**FILES, NAME: text})

    assert resolve(REPO).config == TINY


@pytest.mark.parametrize("fault", [{"kind": "status", "code": 503}, {"kind": "close"}, {"kind": "silence"}])
def test_a_hub_that_does_not_say_leaves_it_undetermined(hub: LocalHub, fault: dict[str, Any]) -> None:
    """Without it weights would be taken as plain, so nothing is answered."""
    hub.add(REPO, {**FILES, NAME: BESIDE})
    hub.faults.append(Fault(NAME, **fault))

    with pytest.raises(UndeterminedModelError, match=f"^{REPO}: .*"):
        resolve(REPO)
