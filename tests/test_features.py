"""A config whose keys contradict its class, or miss what the class needs, is refused: never read as another model."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.families import all_families
from roofcast.modelspec.features import FEATURE_KEYS
from roofcast.modelspec.kinds import KINDS
from roofcast.modelspec.spec import build_spec
from tests.model_configs import LLAMA, refusal

MLA = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK = {
    **LLAMA, **MLA, "model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1,
}  # fmt: skip


# features that the classes' rows name and that no key of a table tells: the reading of a size or of a list asks for them
ASKED_ELSEWHERE = {"nested_groups"}


def test_rows_name_known_features() -> None:
    """Every feature of a class is a kind of layer or belongs to keys, so that a slip of the pen is found."""
    features = {feature for features, _ in FEATURE_KEYS for feature in features}
    named = {feature for family in all_families().values() for feature in family.has}

    assert named <= features | set(KINDS) | ASKED_ELSEWHERE


@pytest.mark.parametrize(
    "foreign",
    [
        {"multi_query": True},
        {"multi_query": False},
        {"multi_query_attention": True, "multi_query_group_num": 2},
        MLA,
        {"num_experts": 8, "num_experts_per_tok": 2},
        {"num_local_experts": 4, "num_experts_per_tok": 1},
        {"sliding_window": 32},
        {"sliding_window": 32, "layer_types": ["sliding_attention"] * 4},
        {"is_encoder_decoder": True},
        {"add_cross_attention": True},
        {"pruned_heads": {"0": [1]}},
        {"use_cla": True},
        {"layer_norm_elementwise_affine": False},
    ],
    ids="-".join,
)
def test_a_feature_that_the_class_has_not_is_refused(foreign: dict[str, Any]) -> None:
    """Llama has no experts, no latent, no window and no switch for one KV head: a file that says so is no Llama."""
    error = refusal({**LLAMA, **foreign})

    assert isinstance(error, UnknownArchitectureError)
    assert any(key in str(error) for key in foreign)


@pytest.mark.parametrize("off", [{"num_experts": 0}, {"num_experts": 1}, {"multi_query": None}, {"kv_lora_rank": None}])
def test_a_feature_that_is_off_is_none(off: dict[str, Any]) -> None:
    """Keys that are off, and a single expert, leave the class as it is."""
    assert build_spec({**LLAMA, **off}).parameters == build_spec(LLAMA).parameters


@pytest.mark.parametrize("model_type", ["opt", "bloom"])
def test_a_head_width_that_the_class_ignores_moves_nothing(model_type: str) -> None:
    """These classes divide the hidden size by the heads, whatever a file says beside it."""
    config = {**LLAMA, "model_type": model_type, "num_key_value_heads": 8, "ffn_dim": 96}

    assert build_spec({**config, "head_dim": 99}).layers == build_spec(config).layers


@pytest.mark.parametrize("nothing", [None, 0, False])
@pytest.mark.parametrize(
    ("config", "key"),
    [
        (MIXTRAL, "num_local_experts"),
        (DEEPSEEK, "n_routed_experts"),
        (DEEPSEEK, "moe_intermediate_size"),
        (DEEPSEEK, "kv_lora_rank"),
    ],
)
def test_what_a_class_needs_may_not_be_nothing(config: dict[str, Any], key: str, nothing: object) -> None:
    """Null or zero experts would turn a mixture of experts into a dense model without a word."""
    error = refusal({**config, key: nothing})

    assert isinstance(error, MalformedModelError)
    assert key in str(error)


def test_a_granite_without_experts_is_dense() -> None:
    """Granite's class writes 0 experts for its dense models."""
    granite = {**LLAMA, "model_type": "granitemoe", "num_local_experts": 0, "num_experts_per_tok": 0}

    assert build_spec(granite).components["experts"] == 0


@pytest.mark.parametrize("value", [0, False, "", [], 0.0])
@pytest.mark.parametrize("key", ["head_dim", "max_position_embeddings"])
def test_a_size_of_nothing_is_refused(key: str, value: object) -> None:
    """Zero, false and empty are no sizes; only an absent key or null leaves them to the class."""
    assert key in str(refusal({**LLAMA, key: value}))


@pytest.mark.parametrize(
    ("key", "value"), [("num_hidden_layers", [4, 4, 4]), ("hidden_size", [64]), ("num_key_value_heads", [2, 2, 2])]
)
def test_a_list_is_no_size(key: str, value: list[int]) -> None:
    """Only experts may be listed layer by layer."""
    assert key in str(refusal({**LLAMA, key: value}))


def test_a_padded_vocabulary_is_no_smaller() -> None:
    """Padding adds rows to the embedding, it takes none away."""
    assert "padded_vocab_size" in str(refusal({**LLAMA, "model_type": "baichuan", "padded_vocab_size": 1}))


@pytest.mark.parametrize("nested", [["x"], {"sliding_window_size": 64}])
def test_attn_config_is_an_object_that_is_understood(nested: object) -> None:
    """MPT's nested keys are read like the others."""
    mpt = {"model_type": "mpt", "d_model": 64, "n_layers": 4, "n_heads": 8, "vocab_size": 500, "expansion_ratio": 4}

    assert "attn_config" in str(refusal({**mpt, "attn_config": nested}))
