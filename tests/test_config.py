"""Reading a config.json: aliases, class defaults, keys not understood, and everything that can be wrong with a value."""

from __future__ import annotations

import math
from typing import Any

import pytest

from roofcast.modelspec.config import read_config
from roofcast.modelspec.errors import MalformedModelError, ModelError, UnknownArchitectureError
from roofcast.modelspec.keys import ALIASES, INERT, UNDERSTOOD, is_off, not_understood
from roofcast.modelspec.spec import build_spec
from tests.model_configs import DEEPSEEK, FALCON, LLAMA, MISSING, QWEN_MOE, changed, is_one_line, refusal

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
    (DEEPSEEK, "moe_layer_freq"),
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


def malformed(config: dict[str, Any], key: str) -> None:
    """Expect a config to be refused as broken, with the key named on one line."""
    error = refusal(config)
    assert type(error) is MalformedModelError, error
    assert key in str(error)
    assert is_one_line(str(error))


@pytest.mark.parametrize(("config", "key"), NEEDED)
def test_a_missing_size_is_named(config: dict[str, Any], key: str) -> None:
    """A key that nothing else supplies is asked for by name, absent or null."""
    malformed(changed(config, **{key: MISSING}), key)
    malformed(changed(config, **{key: None}), key)


@pytest.mark.parametrize(
    ("config", "key", "value"),
    [(config, key, value) for config, key in SIZES for value in NO_SIZES if value or key not in OFF],
)
def test_what_is_no_size_is_refused(config: dict[str, Any], key: str, value: object) -> None:
    """Text, fractions, NaN, booleans, negatives, absurd sizes, lists and objects are no sizes."""
    malformed({**config, key: value}, key)


@pytest.mark.parametrize(("config", "key"), NEEDED)
def test_zero_is_no_size(config: dict[str, Any], key: str) -> None:
    """A model has at least one of everything that it needs."""
    malformed({**config, key: 0}, key)


@pytest.mark.parametrize("key", ["num_key_value_heads", "num_kv_heads", "n_head_kv"])
def test_zero_kv_heads_are_refused(key: str) -> None:
    """No KV heads is no attention, under every name of the key."""
    malformed({**changed(LLAMA, num_key_value_heads=MISSING), key: 0}, key)


@pytest.mark.parametrize(
    "key", ["tie_word_embeddings", "attention_bias", "mlp_bias", "multi_query_attention", "do_layer_norm_before"]
)
@pytest.mark.parametrize("value", [0, 1, "true", "no", [], [True], 1.0, {}])
def test_a_flag_is_true_or_false(key: str, value: object) -> None:
    """Nothing stands for true or false but true and false."""
    malformed({**LLAMA, key: value}, key)


@pytest.mark.parametrize("value", [7, None, True, 1.5, ["llama"], {"a": 1}, NAN])
def test_model_type_is_a_name(value: object) -> None:
    """A model_type that is no text is refused."""
    malformed({**LLAMA, "model_type": value}, "model_type")


@pytest.mark.parametrize("value", ["bf17", "int", 16, ["bfloat16"], {"a": 1}, True, "torch.", "float16\n"])
@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_a_dtype_is_one_of_torch(key: str, value: object) -> None:
    """A dtype that torch does not have is refused, and the known ones are listed."""
    malformed({**LLAMA, key: value}, key)
    assert "bfloat16" in str(refusal({**LLAMA, key: value}))


@pytest.mark.parametrize(
    ("changes", "first", "second"),
    [
        ({"n_layer": 5}, "num_hidden_layers", "n_layer"),
        ({"n_embd": 128}, "hidden_size", "n_embd"),
        ({"n_head": 16}, "num_attention_heads", "n_head"),
        ({"num_kv_heads": 4}, "num_key_value_heads", "num_kv_heads"),
        ({"n_inner": 97}, "intermediate_size", "n_inner"),
        ({"head_dim": 8, "kv_channels": 16}, "head_dim", "kv_channels"),
        ({"n_layer": NAN}, "num_hidden_layers", "n_layer"),
        ({"torch_dtype": "float32", "dtype": "bfloat16"}, "torch_dtype", "dtype"),
    ],
)
def test_aliases_must_agree(changes: dict[str, Any], first: str, second: str) -> None:
    """Two names of one fact with different values are a contradiction, not a choice."""
    config = {**LLAMA, **changes}

    malformed(config, first)
    malformed(config, second)


def test_aliases_that_agree_are_one_fact() -> None:
    """Files that repeat a fact under a second name are read as if they did not."""
    assert build_spec({**LLAMA, "n_layer": 4, "n_embd": 64, "n_head": 8}) == build_spec(LLAMA)


def test_vocab_and_context_may_differ_between_aliases() -> None:
    """A padded vocabulary beside a plain one, and several ideas of the context, are usual: the table's order decides."""
    spec = build_spec({**LLAMA, "padded_vocab_size": 512, "n_ctx": 64})

    assert spec.vocab == 512
    assert spec.max_context == 128


@pytest.mark.parametrize(("fact", "keys"), ALIASES.items())
def test_every_alias_is_read_and_understood(fact: str, keys: tuple[str, ...]) -> None:
    """A fact is found under each of its names, whichever the file has, and null is as if it had none."""
    for key in keys:
        config = read_config({"model_type": "llama", key: 7})
        assert config.value(fact) == 7
        assert config.key_of(fact) == key
        assert key in UNDERSTOOD
        assert read_config({"model_type": "llama", key: None}).value(fact) is None


def test_no_alias_names_two_facts() -> None:
    """A key means one thing."""
    names = [key for keys in ALIASES.values() for key in keys]

    assert len(names) == len(set(names))


def test_understood_and_inert_are_apart() -> None:
    """A key is either read or known to be harmless."""
    assert frozenset() == UNDERSTOOD & INERT


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
    malformed(config, part)
    malformed(config, whole)


def test_heads_need_not_divide_where_their_size_is_given() -> None:
    """With head_dim the width of attention is its own: 5 heads of 16 beside 64."""
    spec = build_spec({**LLAMA, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 16})

    assert spec.layers[0].attention.parameters(64) == 2 * 64 * 80 + 2 * 64 * 16


@pytest.mark.parametrize(("config", "key"), [(QWEN_MOE, "num_experts"), (DEEPSEEK, "n_routed_experts")])
def test_no_more_experts_work_than_there_are(config: dict[str, Any], key: str) -> None:
    """Top-k is at most the number of experts; both keys are named."""
    broken = {**config, "num_experts_per_tok": 9}

    malformed(broken, "num_experts_per_tok")
    malformed(broken, key)
    build_spec({**config, "num_experts_per_tok": 8})


@pytest.mark.parametrize("value", [["full_attention"] * 3, ["full_attention"] * 5, "full_attention", 4, 4.5, {"0": 1}])
def test_layer_types_has_one_entry_a_layer(value: object) -> None:
    """A list of another length, or no list, is broken."""
    malformed({**LLAMA, "layer_types": value}, "layer_types")


@pytest.mark.parametrize(
    "kind", ["linear_attention", "chunked_attention", "mamba", "Full_Attention", "", 1, None, ["full_attention"], NAN]
)
def test_an_unknown_kind_of_layer_is_not_understood(kind: object) -> None:
    """A kind that is not in the table is refused as unknown, with the key and the kind."""
    error = refusal({**LLAMA, "layer_types": ["full_attention"] * 3 + [kind]})

    assert isinstance(error, UnknownArchitectureError)
    assert "layer_types" in str(error)
    assert str(kind) in str(error)
    assert "full_attention, sliding_attention" in str(error)
    assert is_one_line(str(error))


def test_sliding_layers_need_a_window() -> None:
    """Layers that slide without a width are broken."""
    malformed({**LLAMA, "layer_types": ["sliding_attention"] * 4}, "sliding_window")


@pytest.mark.parametrize("value", [3, "0", True, 1.5, {"0": 1}, ["1"], [0.5], [None], [[0]], [-1]])
def test_mlp_only_layers_lists_layer_numbers(value: object) -> None:
    """What is no list of layer numbers is broken: a layer that a typo leaves sparse would change the count."""
    malformed({**QWEN_MOE, "mlp_only_layers": value}, "mlp_only_layers")


@pytest.mark.parametrize("value", [[], [0, 1, 1], [0, 1, 1, 1, 1]])
def test_moe_layer_freq_as_a_list_has_one_entry_a_layer(value: list[int]) -> None:
    """A list of another length than the layers is broken."""
    malformed({**DEEPSEEK, "moe_layer_freq": value}, "moe_layer_freq")


@pytest.mark.parametrize("value", [[0, 1, 2, 1], [0, 1, "x", 1], [0, 1, None, 1], [0, 1, True, 1]])
def test_moe_layer_freq_as_a_list_holds_0_and_1(value: list[object]) -> None:
    """Anything but 0 and 1 in the list is not understood."""
    error = refusal({**DEEPSEEK, "moe_layer_freq": value})

    assert isinstance(error, UnknownArchitectureError)
    assert "moe_layer_freq" in str(error)


@pytest.mark.parametrize("value", ["fp8", 8, ["fp8"], True])
def test_quantization_config_is_an_object(value: object) -> None:
    """A quantisation that cannot be read is never taken for none."""
    assert "quantization_config" in str(refusal({**LLAMA, "quantization_config": value}))


def test_another_name_for_quantisation_is_not_taken_for_none() -> None:
    """MLX writes `quantization`: weights under it are not stored plainly, so it is read or refused."""
    try:
        spec = build_spec({**LLAMA, "quantization": {"group_size": 64, "bits": 4}})
    except ModelError as error:
        assert "quantization" in str(error)
    else:
        assert spec.quantization is not None


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
        {**LLAMA, "n_layer": 10**4000},
        {**LLAMA, "attn_config": {"attn_type": "x\ny" * 1000}},
    ],
    ids=range(12),
)
def test_a_strangers_text_stays_on_one_line(config: dict[str, Any]) -> None:
    """Whatever a file holds, the error about it is one printable line of bearable length."""
    assert is_one_line(str(refusal(config)))


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}])
def test_off(value: object) -> None:
    """Null, false, zero and what is empty switch a key off."""
    assert is_off(value)


@pytest.mark.parametrize("value", [True, 1, -1, 0.5, "no", [0], [None], {"a": 0}, math.nan])
def test_on(value: object) -> None:
    """Everything else does not."""
    assert not is_off(value)


SHAPING = {
    "index_topk": 2048,
    "linear_num_key_heads": 16,
    "mamba_d_state": 128,
    "hybrid_override_pattern": "M-M*",
    "sliding_window_pattern": 6,
    "attention_chunk_size": 8192,
    "o_lora_rank": 1024,
    "vision_config": {"depth": 1},
    "text_config": {"hidden_size": 8},
    "layers_block_type": ["mamba"],
    "num_kv_shared_layers": 10,
    "compress_ratios": [4, 128],
    "swa_head_dim": 192,
    "use_cla": True,
    "cross_attention_layers": [3],
    "block_configs": [{}],
    "global_attn_every_n_layers": 3,
    "zero_expert_num": 8,
}
CLUTTER = {
    "architectures": ["LlamaForCausalLM"],
    "attention_dropout": 0.1,
    "bos_token_id": 1,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
    "rope_theta": 500000.0,
    "pretraining_tp": 1,
    "use_cache": True,
    "transformers_version": "4.43.0",
    "auto_map": {"AutoConfig": "configuration.Config"},
    "_name_or_path": "./x",
    "hidden_act": "silu",
    "router_aux_loss_coef": 0.001,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "id2label": {"0": "a"},
    "task_specific_params": {"text-generation": {"do_sample": True}},
}


@pytest.mark.parametrize(("key", "value"), SHAPING.items())
@pytest.mark.parametrize("model_type", ["llama", "brand_new"])
def test_a_shaping_key_is_never_overlooked(model_type: str, key: str, value: object) -> None:
    """A key that may shape memory or work refuses the config, of a known class too and with headers at hand."""
    error = refusal({**LLAMA, "model_type": model_type, key: value}, counted_in_files=True)

    assert isinstance(error, UnknownArchitectureError)
    assert key in str(error)
    assert repr(model_type) in str(error)
    assert is_one_line(str(error))


@pytest.mark.parametrize("key", SHAPING)
@pytest.mark.parametrize("value", [None, False, 0, []])
def test_a_shaping_key_that_is_off_is_harmless(key: str, value: object) -> None:
    """Files carry keys of features that they switch off."""
    assert build_spec({**LLAMA, key: value}) == build_spec(LLAMA)


def test_clutter_is_harmless() -> None:
    """Token ids, dropout, RoPE settings and the like change nothing, for a known class and for an unknown one."""
    assert build_spec({**LLAMA, **CLUTTER}) == build_spec(LLAMA)
    assert not_understood(CLUTTER, known_class=False) == ()


def test_a_known_class_ignores_keys_of_others() -> None:
    """What is no word of memory or work is a note that the class does not read."""
    assert build_spec({**LLAMA, "my_note": "x"}) == build_spec(LLAMA)
    assert not_understood({"my_note": "x"}, known_class=False) == ("my_note",)


def test_many_strange_keys_are_cut_short() -> None:
    """Eight are named, the rest counted."""
    error = refusal({**LLAMA, "model_type": "x", **{f"strange{i:02}": 1 for i in range(30)}})

    assert "strange07 and 22 more" in str(error)
    assert "strange08" not in str(error)


def test_an_unknown_class_needs_headers() -> None:
    """Without headers a class outside the table is refused, with the nearest known one; with them it is built."""
    config = {**LLAMA, "model_type": "llamma"}
    error = refusal(config)

    assert isinstance(error, UnknownArchitectureError)
    assert "'llamma'" in str(error)
    assert "nearest: llama" in str(error)
    assert "headers" in str(error)
    assert not build_spec(config, counted_in_files=True).known_class


def test_a_config_without_model_type_needs_headers() -> None:
    """No model_type is an unknown class, and the message says that it is missing."""
    config = changed(LLAMA, model_type=MISSING)

    assert "no model_type" in str(refusal(config))
    assert not build_spec(config, counted_in_files=True).known_class


def test_class_defaults_complete_the_file() -> None:
    """Qwen3's heads are 128 wide where the file does not say; the file's own word wins, and null stays null."""
    qwen3 = {"model_type": "qwen3", "hidden_size": 4096}

    assert read_config(qwen3).size("head_dim") == 128
    assert read_config({**qwen3, "head_dim": 64}).size("head_dim") == 64
    assert read_config({**qwen3, "head_dim": None}).optional_size("head_dim") is None


def test_present_are_the_files_own_keys() -> None:
    """A default is not among the keys that the file has, and neither is a null."""
    config = read_config({"model_type": "deepseek_v3", "hidden_size": 8, "moe_layer_freq": None})

    assert config.present == {"model_type", "hidden_size"}
    assert config.raw["q_lora_rank"] == 1536


def test_a_size_as_a_list_of_equals_is_that_size() -> None:
    """Some files give one entry a layer, all alike."""
    assert read_config({"model_type": "llama", "moe_topk": [8, 8, 8]}).size("top_k") == 8


@pytest.mark.parametrize(
    ("value", "format_name"),
    [("bfloat16", "bf16"), ("torch.float16", "fp16"), ("float32", "fp32"), ("auto", None), (None, None)],
)
def test_dtype_is_a_format_or_unsaid(value: object, format_name: str | None) -> None:
    """The stored format is the file's word; `auto` is none."""
    assert build_spec({**LLAMA, "torch_dtype": value}).dtype == format_name
    assert build_spec({**LLAMA, "dtype": value}).dtype == format_name


def test_the_largest_sizes_are_answered() -> None:
    """The limits are far above any model and are themselves allowed; one more is refused."""
    assert len(build_spec({**LLAMA, "num_hidden_layers": 10_000}).layers) == 10_000
    malformed({**LLAMA, "num_hidden_layers": 10_001}, "num_hidden_layers")
    build_spec({**LLAMA, "vocab_size": 100_000_000})
    malformed({**LLAMA, "vocab_size": 100_000_001}, "vocab_size")


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
    malformed({**LLAMA, **garbage}, next(reversed(garbage)))
