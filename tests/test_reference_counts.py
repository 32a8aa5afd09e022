"""Counts against the reference implementation: small random configs, the catalogue, and published files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofcast.modelspec.errors import ModelError, UnknownArchitectureError
from roofcast.modelspec.families_plain import PLAIN_FAMILIES
from roofcast.modelspec.known import find_known, known_names
from roofcast.modelspec.spec import build_spec
from tests.hand_counts import BY_HAND
from tests.model_configs import CONFIGS, FIXTURES, MISSING, changed, is_one_line, outcome, published

REFERENCE = json.loads((FIXTURES / "reference_parameters.json").read_text())["models"]
ABSENT = json.loads((FIXTURES / "reference_absent_keys.json").read_text())["models"]
CATALOGUE = json.loads((FIXTURES / "catalogue_parameters.json").read_text())["counts"]


def known(name: str) -> dict[str, Any]:
    """Return the config of a catalogue entry."""
    entry = find_known(name)
    assert entry is not None, name
    return dict(entry.config)


@pytest.mark.parametrize("index", range(len(REFERENCE)), ids=lambda i: f"{REFERENCE[i]['config']['model_type']}-{i}")
def test_small_configs_match_the_reference_implementation(index: int) -> None:
    """Every class, with random sizes and switches, has the reference's parameters to the last one."""
    model = REFERENCE[index]

    assert build_spec(model["config"]).parameters == model["parameters"]


def test_the_reference_covers_every_class_that_it_has() -> None:
    """Classes checked against the reference are those of the first table but for those that live in their own repos."""
    remote = {"baichuan", "chatglm", "deepseek", "exaone", "internlm", "internlm2", "internlm3", "kimi_k2", "minicpm"}
    remote |= {"phi-msft", "qwen"}

    assert {model["config"]["model_type"] for model in REFERENCE} | remote == set(PLAIN_FAMILIES)


@pytest.mark.parametrize(
    "row", ABSENT, ids=lambda row: f"{REFERENCE[row['model']]['config']['model_type']}-{row['without']}"
)
def test_an_absent_key_is_the_classs_default_or_refused(row: dict[str, Any]) -> None:
    """A key left out is never silently another value than the class takes: the count is the reference's, or none."""
    config = changed(REFERENCE[row["model"]]["config"], **{row["without"]: MISSING})
    found = outcome(config)

    if isinstance(found, ModelError):
        assert is_one_line(str(found))
    else:
        assert found.parameters == row["parameters"]


@pytest.mark.parametrize("name", CATALOGUE)
def test_catalogue_matches_the_reference_implementation(name: str) -> None:
    """Every entry that is answered has the reference's parameters and experts; others name what is not understood."""
    config, counts = known(name), CATALOGUE[name]
    found = outcome(config)

    if isinstance(found, ModelError):
        assert isinstance(found, UnknownArchitectureError)
        assert f"model_type {config['model_type']!r}" in str(found)
        assert is_one_line(str(found))
    else:
        assert found.parameters == counts["params"]
        assert found.components["experts"] == counts["routed_expert_params"]


def test_all_of_the_catalogue_is_answered() -> None:
    """Every entry has layers and a state; none is refused."""
    assert [name for name in known_names() if isinstance(outcome(known(name)), ModelError)] == []


# repo -> label, layers, KV elements a token of one layer, parameters where the published file gives them
ANSWERED = {
    "meta-llama/Meta-Llama-3.1-8B": ("GQA", 32, 2048, "llama-3.1-8b"),
    "Qwen/Qwen2.5-7B-Instruct": ("GQA", 28, 1024, "qwen2.5-7b"),
    "Qwen/Qwen3-30B-A3B": ("GQA", 48, 1024, "qwen3-30b-a3b"),
    "mistralai/Mixtral-8x7B-v0.1": ("GQA", 32, 2048, "mixtral-8x7b"),
    "deepseek-ai/DeepSeek-V3": ("MLA", 61, 576, "deepseek-v3"),
    "tiiuae/falcon-40b": ("GQA", 60, 1024, "falcon-40b"),
    "openai-community/gpt2-medium": ("MHA", 24, 2048, "gpt2-medium"),
    "google/gemma-2b": ("MQA", 18, 512, "gemma-2b"),
    "microsoft/Phi-3.5-mini-instruct": ("MHA", 32, 6144, "phi-3.5-mini"),
    "microsoft/phi-2": ("MHA", 32, 5120, "phi-2"),
    "MiniMaxAI/MiniMax-M2": ("GQA", 62, 2048, "minimax-m2"),
    "zai-org/chatglm3-6b": ("GQA", 28, 512, "chatglm3-6b"),
    "WizardLM/WizardCoder-15B-V1.0": ("MQA", 40, 256, "wizardcoder-15b"),
}


@pytest.mark.parametrize("repo", ANSWERED)
def test_published_files_are_answered(repo: str) -> None:
    """Whole published files, clutter and all, give the attention and the parameters worked out by hand."""
    label, layers, elements, by_hand = ANSWERED[repo]
    spec = build_spec(published(repo))

    assert spec.attention_label == label
    assert [layer.state[0].elements for layer in spec.layers] == [elements] * layers
    assert spec.parameters == BY_HAND[by_hand]


def test_mistral_v01_slides() -> None:
    """Its published file has a window of 4096 in a context of 32768, in every layer."""
    spec = build_spec(published("mistralai/Mistral-7B-v0.1"))

    assert [layer.mixers[0].window for layer in spec.layers] == [4096] * 32
    assert spec.parameters == 7_241_732_096


def test_every_published_file_has_an_origin() -> None:
    """ORIGIN.md says where each fixture is from."""
    files = {path.name for path in CONFIGS.glob("*.json")}
    origin = (CONFIGS / "ORIGIN.md").read_text()

    assert all(f"| {name} |" in origin for name in files)
