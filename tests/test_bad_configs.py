"""Everything that can be wrong with a value of a config.json, each refused in one line that names the key."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import ModelError, UnknownArchitectureError
from roofcast.modelspec.spec import build_spec
from tests.model_configs import (
    DEEPSEEK,
    FALCON,
    LLAMA,
    MISSING,
    QWEN_MOE,
    assert_malformed,
    changed,
    is_one_line,
    outcome,
    refusal,
)

NAN = float("nan")
INFINITY = float("inf")
HUGE = 10**30

# every size that a dense, a mixture and a latent config need, none of which has a default
NEEDED = [
    *((LLAMA, key) for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")),
    (LLAMA, "intermediate_size"),
    (QWEN_MOE, "num_experts_per_tok"),
    *((DEEPSEEK, key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")),
]
# classes whose code lives in their own repositories: every key of the family counts
KIMI = {**DEEPSEEK, "model_type": "kimi_k2"}
BAICHUAN = {**LLAMA, "model_type": "baichuan"}
SIZES = [
    *NEEDED,
    (LLAMA, "num_key_value_heads"),
    (LLAMA, "max_position_embeddings"),
    (LLAMA, "head_dim"),
    (LLAMA, "sliding_window"),
    (QWEN_MOE, "num_experts"),
    (QWEN_MOE, "moe_intermediate_size"),
    (QWEN_MOE, "decoder_sparse_step"),
    (DEEPSEEK, "kv_lora_rank"),
    (DEEPSEEK, "q_lora_rank"),
    (DEEPSEEK, "n_shared_experts"),
    (DEEPSEEK, "first_k_dense_replace"),
    (KIMI, "moe_layer_freq"),
    (DEEPSEEK, "num_nextn_predict_layers"),
    (FALCON, "num_kv_heads"),
]
NO_SIZES = ["4096", "", "many", 4096.0, 0.5, NAN, INFINITY, -INFINITY, True, -1, -4096, HUGE, -HUGE, [8, 16], {"a": 1}]
# keys whose null, 0, false or empty text means that the model has no such thing
OFF = {
    "head_dim",
    "sliding_window",
    "max_position_embeddings",
    "num_experts",
    "moe_intermediate_size",
    "q_lora_rank",
    "n_shared_experts",
}


@pytest.mark.parametrize(("config", "key"), NEEDED)
def test_a_missing_size_is_named(config: dict[str, Any], key: str) -> None:
    """A key that nothing else supplies is asked for by name, absent or null."""
    assert_malformed(changed(config, **{key: MISSING}), key)
    assert_malformed(changed(config, **{key: None}), key)


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [(config, key, value) for config, key in SIZES for value in NO_SIZES if value or key not in OFF],
)
def test_what_is_no_size_is_refused(config: dict[str, Any], key: str, value: object) -> None:
    """Text, fractions, NaN, booleans, negatives, absurd sizes, lists and objects are no sizes."""
    assert_malformed({**config, key: value}, key)


@pytest.mark.parametrize(("config", "key"), NEEDED)
def test_zero_is_no_size(config: dict[str, Any], key: str) -> None:
    """A model has at least one of everything that it needs."""
    assert_malformed({**config, key: 0}, key)


@pytest.mark.parametrize("key", ["num_key_value_heads", "num_kv_heads", "n_head_kv"])
def test_zero_kv_heads_are_refused(key: str) -> None:
    """No KV heads is no attention, under every name of the key."""
    assert_malformed({**changed(LLAMA, num_key_value_heads=MISSING), "model_type": "baichuan", key: 0}, key)


@pytest.mark.parametrize("key", ["tie_word_embeddings", "attention_bias", "mlp_bias"])
@pytest.mark.parametrize("value", [0, 1, "true", "no", [], [True], 1.0, {}])
def test_a_flag_is_true_or_false(key: str, value: object) -> None:
    """Nothing stands for true or false but true and false."""
    assert_malformed({**LLAMA, key: value}, key)


@pytest.mark.parametrize("value", [7, None, True, 1.5, ["llama"], {"a": 1}, NAN])
def test_model_type_is_a_name(value: object) -> None:
    """A model_type that is no text is refused."""
    assert_malformed({**LLAMA, "model_type": value}, "model_type")


@pytest.mark.parametrize("value", ["bf17", "int", 16, ["bfloat16"], {"a": 1}, True, "torch.", "float16\n"])
@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_a_dtype_is_one_of_torch(key: str, value: object) -> None:
    """A dtype that torch does not have is refused, and the known ones are listed."""
    assert_malformed({**LLAMA, key: value}, key)
    assert "bfloat16" in str(refusal({**LLAMA, key: value}))


@pytest.mark.parametrize(
    ("config", "part", "whole"),
    [
        ({**LLAMA, "num_attention_heads": 7}, "num_attention_heads", "hidden_size"),
        ({**LLAMA, "num_attention_heads": 65}, "num_attention_heads", "hidden_size"),
        ({**LLAMA, "num_key_value_heads": 3}, "num_key_value_heads", "num_attention_heads"),
        ({**LLAMA, "num_key_value_heads": 16}, "num_key_value_heads", "num_attention_heads"),
        ({**FALCON, "num_kv_heads": 3}, "num_kv_heads", "num_attention_heads"),
    ],
)
def test_heads_must_divide(config: dict[str, Any], part: str, whole: str) -> None:
    """Query heads divide the width where no head size is given, and KV heads divide query heads."""
    assert_malformed(config, part)
    assert_malformed(config, whole)


@pytest.mark.parametrize(("config", "key"), [(QWEN_MOE, "num_experts"), (DEEPSEEK, "n_routed_experts")])
def test_no_more_experts_work_than_there_are(config: dict[str, Any], key: str) -> None:
    """Top-k is at most the number of experts; both keys are named."""
    broken = {**config, "num_experts_per_tok": 9}

    assert_malformed(broken, "num_experts_per_tok")
    assert_malformed(broken, key)
    build_spec({**config, "num_experts_per_tok": 8})


@pytest.mark.parametrize("value", [["full_attention"] * 3, ["full_attention"] * 5, "full_attention", 4, 4.5, {"0": 1}])
def test_layer_types_has_one_entry_a_layer(value: object) -> None:
    """A list of another length, or no list, is broken."""
    assert_malformed({**LLAMA, "layer_types": value}, "layer_types")


@pytest.mark.parametrize("kind", ["linear", "chunk", "Full_Attention", "", 1, None, ["full_attention"], NAN])
def test_an_unknown_kind_of_layer_is_not_understood(kind: object) -> None:
    """A kind that is not in the table is refused as unknown, with the key and the kind."""
    error = refusal({**LLAMA, "layer_types": ["full_attention"] * 3 + [kind]})

    assert isinstance(error, UnknownArchitectureError)
    assert "layer_types" in str(error)
    assert str(kind) in str(error)
    assert "full_attention, sliding_attention" in str(error)
    assert is_one_line(str(error))


@pytest.mark.parametrize("kind", ["linear_attention", "chunked_attention", "mamba", "conv", "hybrid", "moe", "mlp"])
def test_a_kind_of_layer_that_the_class_has_not_is_refused(kind: str) -> None:
    """A kind of layer that roofcast knows is still none of Llama's."""
    error = refusal({**LLAMA, "layer_types": ["full_attention"] * 3 + [kind]})

    assert isinstance(error, UnknownArchitectureError)
    assert "'llama' has no such" in str(error)
    assert is_one_line(str(error))


def test_sliding_layers_need_a_window() -> None:
    """Layers that slide without a width are broken."""
    olmo = {**LLAMA, "model_type": "olmo3", "sliding_window": None}
    assert_malformed({**olmo, "layer_types": ["sliding_attention"] * 4}, "sliding_window")


@pytest.mark.parametrize("value", [3, "0", True, 1.5, {"0": 1}, ["1"], [0.5], [None], [[0]], [-1]])
def test_mlp_only_layers_lists_layer_numbers(value: object) -> None:
    """What is no list of layer numbers is broken: a layer that a typo leaves sparse would change the count."""
    assert_malformed({**QWEN_MOE, "mlp_only_layers": value}, "mlp_only_layers")


@pytest.mark.parametrize("value", [[], [0, 1, 1], [0, 1, 1, 1, 1]])
def test_moe_layer_freq_as_a_list_has_one_entry_a_layer(value: list[int]) -> None:
    """A list of another length than the layers is broken."""
    assert_malformed({**KIMI, "moe_layer_freq": value}, "moe_layer_freq")


@pytest.mark.parametrize("value", [[0, 1, 2, 1], [0, 1, "x", 1], [0, 1, None, 1], [0, 1, True, 1]])
def test_moe_layer_freq_as_a_list_holds_0_and_1(value: list[object]) -> None:
    """Anything but 0 and 1 in the list is not understood."""
    error = refusal({**KIMI, "moe_layer_freq": value})

    assert isinstance(error, UnknownArchitectureError)
    assert "moe_layer_freq" in str(error)


@pytest.mark.parametrize("value", ["fp8", 8, ["fp8"], True])
def test_quantization_config_is_an_object(value: object) -> None:
    """A quantisation that cannot be read is never taken for none."""
    assert "quantization_config" in str(refusal({**LLAMA, "quantization_config": value}))


def test_another_name_for_quantisation_is_not_taken_for_none() -> None:
    """MLX writes `quantization`: weights under it are not stored plainly, so it is read or refused."""
    found = outcome({**LLAMA, "quantization": {"group_size": 64, "bits": 4}})

    if isinstance(found, ModelError):
        assert "quantization" in str(found)
    else:
        assert found.quantization is not None


@pytest.mark.parametrize(
    "config",
    [
        {**LLAMA, "model_type": "x", "strange\nkey": 1},
        {**LLAMA, "model_type": "x\ny"},
        {**LLAMA, "layer_types": ["a\nb"] * 4},
        {**LLAMA, "layer_types": ["\x1b[31mred"] * 4},
        {**LLAMA, "layer_types": ["x" * 100_000] * 4},
        {**LLAMA, "model_type": "x", "k" * 100_000: 1},
        {**LLAMA, "model_type": "x" * 100_000},
        {**LLAMA, "hidden_size": "x\ny" * 1000},
        {**LLAMA, "torch_dtype": "x\ny" * 1000},
        {**QWEN_MOE, "mlp_only_layers": "x\ny" * 1000},
        {**BAICHUAN, "n_layer": 10**4000},
        {**BAICHUAN, "n_head": "a\nb"},
        {**BAICHUAN, "attn_config": {"attn_type": "x\ny" * 1000}},
    ],
    ids=range(13),
)
def test_a_strangers_text_stays_on_one_line(config: dict[str, Any]) -> None:
    """Whatever a file holds, the error about it is one printable line of bearable length."""
    assert is_one_line(str(refusal(config)))


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({**LLAMA, "model_type": "mistral"}, "num_key_value_heads"),
        ({**LLAMA, "model_type": "qwen2"}, "num_key_value_heads"),
        (QWEN_MOE, "moe_intermediate_size"),
        (DEEPSEEK, "kv_lora_rank"),
        (DEEPSEEK, "n_routed_experts"),
        (DEEPSEEK, "n_shared_experts"),
    ],
)
def test_what_the_class_would_fill_in_with_one_models_size_is_asked_for(config: dict[str, Any], key: str) -> None:
    """An absent size that the class has a default for is never taken as none: it is missing."""
    assert_malformed(changed(config, **{key: MISSING}), key)


def test_the_largest_sizes_are_answered() -> None:
    """The limits are far above any model and are themselves allowed; one more is refused."""
    assert len(build_spec({**LLAMA, "num_hidden_layers": 10_000}).layers) == 10_000
    assert_malformed({**LLAMA, "num_hidden_layers": 10_001}, "num_hidden_layers")
    build_spec({**LLAMA, "vocab_size": 100_000_000})
    assert_malformed({**LLAMA, "vocab_size": 100_000_001}, "vocab_size")


@pytest.mark.parametrize(
    "garbage",
    [
        {"hidden_size": {"hidden_size": {"hidden_size": 64}}},
        {"num_hidden_layers": [[4], [4]]},
        {"num_hidden_layers": [True, True]},
        {"num_attention_heads": [None]},
        {"vocab_size": [{}]},
        {"quantization_config": {"quant_method": {"a": [1]}}, "hidden_size": "x"},
    ],
)
def test_nested_garbage_is_malformed(garbage: dict[str, Any]) -> None:
    """Lists and objects where a number belongs are refused, however deep."""
    assert_malformed({**LLAMA, **garbage}, next(reversed(garbage)))
