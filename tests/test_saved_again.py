"""Configs as transformers 5 saves them: the same model under other keys gives the same answer."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.nested import WRAPPERS
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.tower import find_wrapper, wrappers
from tests.model_configs import LLAMA, published, refusal

NAMES = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}


def saved_v4() -> dict[str, Any]:
    """Return DeepSeek-V4-Pro with names and rates in the place of ratios."""
    config = published("deepseek-ai/DeepSeek-V4-Pro")
    layers = config["num_hidden_layers"]
    names = [NAMES[ratio] for ratio in config.pop("compress_ratios")[:layers]]
    hashed = config.pop("num_hash_layers")
    kinds = ["hash_moe"] * hashed + ["moe"] * (layers - hashed)
    rates = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    return {**config, "layer_types": names, "mlp_layer_types": kinds, "compress_rates": rates}


def test_compressed_layers_by_name() -> None:
    """Names of layers and a rate a name say what one ratio a layer says."""
    assert build_spec(saved_v4()) == build_spec(published("deepseek-ai/DeepSeek-V4-Pro"))


def test_a_rate_that_is_not_understood() -> None:
    """Other rates than 4 and 128 keep other state."""
    config = saved_v4()
    config["compress_rates"]["heavily_compressed_attention"] = 64

    assert "64" in str(refusal(config))
    assert isinstance(refusal(config), UnknownArchitectureError)


def test_an_index_that_the_class_does_not_share() -> None:
    """DeepSeek-V3.2 has an index in every layer; a key of GLM that says otherwise is none of its."""
    config = {**published("deepseek-ai/DeepSeek-V3.2"), "index_topk_freq": 4}

    assert "index_topk_freq" in str(refusal(config))
    assert build_spec({**config, "index_topk_freq": 1}) == build_spec(published("deepseek-ai/DeepSeek-V3.2"))


# wrapper -> whether the head is tied for (word at the top, word in the block): what the reference implementation does
TIES: dict[str, dict[tuple[bool | None, bool | None], bool]] = {
    "llama4": {(True, None): False, (True, False): False, (None, True): True, (False, True): True},
    "glm46v": {(True, False): True, (None, True): False, (False, True): False},
    "glm4v": {(True, False): True, (None, True): True, (False, True): True},
    "qwen2_audio": {(True, True): False, (True, None): False},
    "voxtral": {(True, None): False},
    "gemma3": {(None, False): True, (False, True): False},
}
INNER = {"llama4": "llama", "glm46v": "llama", "glm4v": "llama", "qwen2_audio": "qwen2", "voxtral": "llama"}


@pytest.mark.parametrize(
    ("outer", "top", "inner", "tied"), [(w, *k, v) for w, row in TIES.items() for k, v in row.items()]
)
def test_whose_word_ties(outer: str, top: bool | None, inner: bool | None, tied: bool) -> None:
    """Some wrappers heed the top's word, some the text model's, some either's, some nobody's."""
    text = {**LLAMA, "model_type": INNER.get(outer, "llama"), "tie_word_embeddings": inner}
    config = {"model_type": outer, "text_config": text, "tie_word_embeddings": top}

    assert build_spec(config).tied is tied


def test_every_wrapper_with_towers_says_how_it_ties() -> None:
    """A class whose towers are counted stands in the table that tells its text model and its ties."""
    remote = {"internvl_chat", "glm_ocr", "phi4_multimodal"}  # flat, or read as its text model says

    assert set(wrappers()) - remote <= set(WRAPPERS)
    assert all(find_wrapper(name) for name in wrappers())
