"""GLM-5.3, Qwen4-Exp and Lara 4 Mini: full-size figures, and what their classes refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from roofcast.modelspec.errors import ModelError, UnknownArchitectureError
from roofcast.modelspec.indexer import Indexer
from roofcast.modelspec.serial import spec_from_json, spec_to_json
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.model_configs import DEEPSEEK, FIXTURES, LLAMA, is_one_line, outcome

MODELS: list[dict[str, Any]] = [
    model["config"] for model in json.loads((FIXTURES / "reference_newest_b.json").read_text())["models"]
]
BYTES = {"cache": 2, "model": 2, "fp32": 4}


def largest(model_type: str) -> dict[str, Any]:
    """Return the full-size config of a class."""
    return max((model for model in MODELS if model["model_type"] == model_type), key=lambda model: model["vocab_size"])


def small(model_type: str, key: str = "vocab_size") -> dict[str, Any]:
    """Return a small config of a class, with that key."""
    return next(model for model in MODELS if model["model_type"] == model_type and model.get(key))


def state(spec: ModelSpec) -> tuple[int, int, int]:
    """Return the bytes of a token, of full windows, and fixed."""
    kept = spec.kept.items()
    token = sum(count * part.elements * 2 for part, count in kept if part.grows)
    window = sum(count * part.elements * part.cap * 2 for part, count in kept if part.cap is not None)
    return token, window, sum(count * part.elements * BYTES[part.format] for part, count in kept if part.fixed)


@pytest.mark.parametrize(
    ("model_type", "parameters", "active", "kept"),
    [
        # 7 full layers of 4 heads; 13 windows of 512; 14 layers of 16 matrices of 128 x 128 and 4 columns of 4,096
        ("lara_mini", 7_281_684_672, 650_490_048, (7 * 4 * 256 * 2, 13 * 512 * 4 * 256 * 2, 14 * 1_081_344)),
        # 11 layers of a latent of 512 and an index of 257; 34 of 64 matrices of 128 x 128 and 4 columns of 24,576
        ("glm5_next_text", 313_326_816_766, 17_376_726_526, (11 * 769 * 2, 0, 34 * 4_390_912)),
        # 10 layers of 2 heads of 256 and an index of 128; 30 of 32 matrices; 2 memories of 9 tokens in 4 x 2,048
        ("qwen4_exp_text", 149_297_648_768, 86_131_430_528, (10 * 1_152 * 2, 0, 30 * 2_162_688 + 2 * 147_456)),
    ],
)
def test_full_size(model_type: str, parameters: int, active: int, kept: tuple[int, int, int]) -> None:
    """The sizes that a class has where a file says nothing give the reference's count, and state as worked out by hand."""
    spec = build_spec(largest(model_type))

    assert (spec.parameters, spec.active_parameters) == (parameters, active)
    assert state(spec) == kept


def test_tables_of_n_grams_are_embeddings() -> None:
    """Each of 16 heads has a prime number of rows above 20 million, so that two layers hold 82 billion weights."""
    spec = build_spec(largest("qwen4_exp_text"))
    without = build_spec({**largest("qwen4_exp_text"), "ple_layer_ids": []})

    assert spec.table_parameters == 81_920_851_968
    assert without.table_parameters == 0
    assert spec.parameters - without.parameters == spec.table_parameters + 2 * 21_028_864


@pytest.mark.parametrize("model_type", ["lara_mini", "glm5_next_text", "qwen4_exp_text"])
def test_documents_load_back_equal(model_type: str) -> None:
    """Pooled indexes and memories survive JSON."""
    spec = build_spec(largest(model_type))

    assert spec_from_json(json.loads(json.dumps(spec_to_json(spec)))) == spec


def test_what_a_pool_costs() -> None:
    """Pools of 16 are a sixteenth of the pairs to score; their learned weights are h d and 16 d."""
    plain = Indexer(32, 128, 2048, query_width=1536, norm_parameters=256)
    pooled = replace(plain, pool=16, gated=True)

    assert pooled.prefill_flops(4096) == plain.prefill_flops(4096) / 16
    assert pooled.parameters(4096) - plain.parameters(4096) == (4096 + 16) * 128


@pytest.mark.parametrize("layer_types", [["full_attention"] * 3, ["linear_attention", "indexed_attention"] * 2])
def test_names_of_layers_outrank_the_pattern(layer_types: list[str]) -> None:
    """GLM's index goes by layer_types, whatever linear_attn_config lists; files name indexed layers either way."""
    lists = {"kda_layers": [1, 2], "full_attn_layers": [3]}
    config = {**small("glm5_next_text"), "num_hidden_layers": len(layer_types), "layer_types": layer_types}
    config |= {"indexer_types": None, "index_topk_pattern": None, "mlp_layer_types": None}
    config |= {"linear_attn_config": {**lists, "num_heads": 2, "head_dim": 8}}
    labels = [layer.label for layer in build_spec(config).layers]

    assert labels == ["KDA" if name == "linear_attention" else "MLA" for name in layer_types]


@pytest.mark.parametrize("model_type", ["glm5_next_text", "qwen4_exp_text", "lara_mini"])
def test_a_draft_that_nobody_knows_is_not_guessed(model_type: str) -> None:
    """The decoder is answered as without the key; drafting, whose layers no public code shows, is refused."""
    config = small(model_type)
    plain, spec = build_spec(config), build_spec({**config, "num_nextn_predict_layers": 1})

    assert (spec.mtp_layers, spec.parameters, spec.kept) == (1, plain.parameters, plain.kept)
    with pytest.raises(UnknownArchitectureError, match="multi-token-prediction"):
        _ = replace(spec, drafting=True).kept


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({**small("glm5_next_text"), "qk_rope_head_dim": 16}, "qk_rope_head_dim is 16"),
        ({**small("glm5_next_text"), "index_topk": 40, "index_kpool": 16}, "index_kpool 16 does not divide"),
        ({**small("glm5_next_text"), "num_key_value_heads": 1}, "num_key_value_heads is 1"),
        ({**small("glm5_next_text"), "q_lora_rank": None}, "q_lora_rank is None"),
        ({**small("qwen4_exp_text"), "indexer_kv_heads": 2}, "indexer_kv_heads is 2"),
        ({**small("qwen4_exp_text"), "indexer_compress_ratio": 3}, "indexer_compress_ratio 3 does not divide"),
        ({**small("qwen4_exp_text"), "indexer_n_heads": None}, "indexer_n_heads is None"),
        ({**small("qwen4_exp_text"), "hc_count": 1}, "hc_count is 1"),
        ({**small("qwen4_exp_text"), "ple_layer_ids": [0]}, "ple_layer_ids has 0"),
        ({**small("qwen4_exp_text"), "ple_layer_ids": [99]}, "ple_layer_ids has 99"),
        ({**small("qwen4_exp_text", "ple_layer_ids"), "heads_per_ngram": 50_000_000}, "heads"),
        ({**largest("qwen4_exp_text"), "ple_embed_dim": 32_768, "heads_per_ngram": 8_192}, "10000 tables"),
        ({**LLAMA, "ple_layer_ids": [1]}, "ple_layer_ids"),
        ({**LLAMA, "indexer_n_heads": 4}, "indexer_n_heads"),
        ({**LLAMA, "hc_count": 4}, "hc_count"),
        ({**DEEPSEEK, "index_kpool": 16}, "index_kpool"),
        ({**DEEPSEEK, "qk_rope_head_dim": 0}, "qk_rope_head_dim"),
    ],
)
def test_refusals(config: dict[str, Any], said: str) -> None:
    """What a class refuses itself, and keys of another class, are errors that name the key."""
    found = outcome(config)

    assert isinstance(found, ModelError)
    assert is_one_line(str(found))
    assert said in str(found)
