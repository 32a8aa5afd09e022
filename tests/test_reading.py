"""A key that a class does not read moves no number: it is passed over, or the config is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.families import all_families
from roofcast.modelspec.keys import UNDERSTOOD
from roofcast.modelspec.reading import ALWAYS, keys_read
from roofcast.modelspec.spec import build_spec
from tests.model_configs import FIXTURES, LLAMA, MISSING, QWEN_MOE, changed, outcome

# keys of every family, with values that would mean something to it
GRAFTS: dict[str, Any] = {
    "v_head_dim": 24, "head_dim": 40, "kv_channels": 40, "attention_head_dim": 40, "padded_vocab_size": 5000,
    "num_key_value_heads": 1, "num_kv_heads": 1, "n_head_kv": 1, "num_attention_groups": 1, "multi_query_group_num": 1,
    "intermediate_size": 72, "n_inner": 72, "ffn_dim": 72, "d_ff": 72, "ffn_hidden_size": 72, "block_ff_dim": 72,
    "dense_intermediate_size": 72, "intermediate_size_mlp": 72, "moe_intermediate_size": 24, "expert_ffn_hidden_size": 24,
    "moe_latent_size": 16, "routed_expert_hidden_size": 16, "n_shared_experts": 1, "num_shared_experts": 1,
    "num_shared_expert": 1, "moe_num_shared_experts": 1, "shared_expert_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 24, "shared_intermediate_size": 24, "share_expert_dim": 24,
    "first_k_dense_replace": 1, "num_dense_layers": 1, "moe_layer_freq": 2, "decoder_sparse_step": 2,
    "mlp_only_layers": [0], "moe_layers_enum": "1", "moe_layers": [1], "expert_layer_period": 2,
    "interleave_moe_layer_step": 2, "moe_layer_start_index": 1, "sliding_window_size": 8, "use_sliding_window": True,
    "max_window_layers": 1, "attention_bias": True, "mlp_bias": True, "bias": True, "qkv_bias": True, "use_bias": True,
    "add_bias_linear": True, "use_qk_norm": True, "qk_layernorm": True, "new_decoder_architecture": True, "expand": 3,
    "mamba_rms_norm": True, "mamba_conv_bias": False, "mamba_proj_bias": True, "n_groups": 4, "conv_bias": True,
    "num_mem_blocks": 1, "expansion_ratio": 3, "zero_expert_num": 4, "enable_moe_block": True, "use_double_wide_mlp": True,
}  # fmt: skip


def one_of_each() -> dict[str, dict[str, Any]]:
    """Return a small config of every class that the reference implementation has."""
    names = ("parameters", "mixed", "few", "text_unusual")
    files = [f"reference_{name}.json" for name in names]
    files += sorted(file.name for file in FIXTURES.glob("reference_newest_*.json"))
    models = [model["config"] for file in files for model in json.loads((FIXTURES / file).read_text())["models"]]
    return {model["model_type"]: model for model in models if keys_read(model["model_type"]) is not None}


MODELS = one_of_each()


@pytest.mark.parametrize("model_type", MODELS)
def test_a_foreign_key_moves_nothing(model_type: str) -> None:
    """Whatever key of another family a file carries, the answer is the same or none."""
    config, read = MODELS[model_type], keys_read(model_type) or frozenset()
    reads = all_families()[model_type].reads
    plain = build_spec(config)
    for key, value in GRAFTS.items():
        if key in config or key in read or key in reads:
            continue
        found = outcome({**config, key: value})
        assert isinstance(found, ModelError) or found == plain, key


def test_every_graft_is_a_key_that_is_read_somewhere() -> None:
    """A key that nothing reads would test nothing."""
    assert set(GRAFTS) <= UNDERSTOOD
    assert not ALWAYS & set(GRAFTS)


def test_what_is_passed_over_is_said() -> None:
    """The facts of `model` list such keys; keys that are off say nothing."""
    assert build_spec({**LLAMA, "v_head_dim": 64, "kv_channels": None}).unread == ("v_head_dim",)
    assert build_spec(LLAMA).unread == ()


def test_a_class_of_its_own_repository_reads_all() -> None:
    """Where the reference has no such class, its keys are those that roofcast understands."""
    baichuan = {**LLAMA, "model_type": "baichuan"}

    assert keys_read("baichuan") is None
    assert build_spec({**baichuan, "v_head_dim": 4}) != build_spec(baichuan)


def test_published_examples() -> None:
    """Mixtral's experts are as wide as intermediate_size, and all its layers route, whatever other keys say."""
    mixtral = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    qwen = changed(QWEN_MOE, mlp_only_layers=MISSING)

    for key, value in (("moe_intermediate_size", 8), ("first_k_dense_replace", 2), ("n_shared_experts", 1)):
        assert build_spec({**mixtral, key: value}) == build_spec(mixtral)
        assert build_spec({**qwen, key: value}) == build_spec(qwen) or key == "moe_intermediate_size"
