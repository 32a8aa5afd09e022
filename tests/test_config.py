"""Reading a config.json: aliases, class defaults, keys not understood, and classes that are not known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from roofcast.modelspec.config import read_config
from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.keys import ALIASES, INERT, UNDERSTOOD, is_off, not_understood
from roofcast.modelspec.spec import build_spec
from tests.model_configs import DEEPSEEK, LLAMA, MISSING, assert_malformed, changed, is_one_line, refusal


@pytest.mark.parametrize(
    ("changes", "first", "second"),
    [
        ({"n_layer": 5}, "num_hidden_layers", "n_layer"),
        ({"n_embd": 128}, "hidden_size", "n_embd"),
        ({"n_head": 16}, "num_attention_heads", "n_head"),
        ({"num_kv_heads": 4}, "num_key_value_heads", "num_kv_heads"),
        ({"n_inner": 97}, "intermediate_size", "n_inner"),
        ({"head_dim": 8, "kv_channels": 16}, "head_dim", "kv_channels"),
        ({"n_layer": math.nan}, "num_hidden_layers", "n_layer"),
        ({"torch_dtype": "float32", "dtype": "bfloat16"}, "torch_dtype", "dtype"),
    ],
)
def test_aliases_must_agree(changes: dict[str, Any], first: str, second: str) -> None:
    """Two names of one fact with different values are a contradiction, not a choice."""
    config = {**LLAMA, "model_type": "baichuan", **changes}  # its code lives elsewhere: every key counts

    assert_malformed(config, first)
    assert_malformed(config, second)


def test_aliases_that_agree_are_one_fact() -> None:
    """Files that repeat a fact under a second name are read as if they did not."""
    assert build_spec({**LLAMA, "n_layer": 4, "n_embd": 64, "n_head": 8}) == build_spec(LLAMA)


def test_vocab_and_context_may_differ_between_aliases() -> None:
    """A padded vocabulary beside a plain one, and several ideas of the context, are usual: the table's order decides."""
    spec = build_spec({**LLAMA, "model_type": "baichuan", "padded_vocab_size": 512, "seq_length": 64})

    assert spec.vocab == 512
    assert spec.max_context == 128


@pytest.mark.parametrize(("fact", "keys"), ALIASES.items())
def test_every_alias_is_read_and_understood(fact: str, keys: tuple[str, ...]) -> None:
    """A fact is found under each of its names, whichever the file has, and null is as if it had none."""
    empty = read_config({"model_type": "llama"})
    for key in keys:
        config = replace(empty, raw={key: 7})
        assert config.value(fact) == 7
        assert config.key_of(fact) == key
        assert key in UNDERSTOOD
        assert replace(empty, raw={key: None}).value(fact) is None


def test_no_alias_names_two_facts() -> None:
    """A key means one thing, but for those that together say which layers are sparse."""
    names = [key for fact, keys in ALIASES.items() if fact != "sparse_layers" for key in keys]

    assert len(names) == len(set(names))


def test_understood_and_inert_are_apart() -> None:
    """A key is either read or known to be harmless."""
    assert frozenset() == UNDERSTOOD & INERT


def test_heads_need_not_divide_where_their_size_is_given() -> None:
    """With head_dim the width of attention is its own: 5 heads of 16 beside 64."""
    spec = build_spec({**LLAMA, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 16})

    assert spec.layers[0].mixers[0].parameters(64) == 2 * 64 * 80 + 2 * 64 * 16


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


def test_a_tower_of_an_unknown_wrapper_is_not_counted_as_nothing() -> None:
    """A text model with a vision tower that roofcast does not know is answered, but its total is not told."""
    spec = build_spec({**LLAMA, "vision_config": {"depth": 1}})

    assert spec.unknown_towers == "llama"
    assert spec.layers == build_spec(LLAMA).layers


def test_a_nested_model_of_an_unknown_class_is_refused() -> None:
    """A block that names no class cannot be counted."""
    assert isinstance(
        refusal({**LLAMA, "model_type": "brand_new", "text_config": LLAMA | {"model_type": "x"}}),
        UnknownArchitectureError,
    )


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
    """Without headers a class outside the table is refused, and the message says what would tell; with them it is built."""
    config = {**LLAMA, "model_type": "llamma"}
    error = refusal(config)

    assert isinstance(error, UnknownArchitectureError)
    assert "'llamma'" in str(error)
    assert "headers" in str(error)
    assert not build_spec(config, counted_in_files=True).known_class


def test_a_config_without_model_type_needs_headers() -> None:
    """No model_type is an unknown class, and the message says that it is missing."""
    config = changed(LLAMA, model_type=MISSING)

    assert "no model_type" in str(refusal(config))
    assert not build_spec(config, counted_in_files=True).known_class


def test_class_defaults_complete_the_file() -> None:
    """Qwen3's heads are 128 wide where the file does not say; the file's own word wins, and null stays null."""
    qwen3 = {**LLAMA, "model_type": "qwen3"}

    assert read_config(qwen3).size("head_dim") == 128
    assert read_config({**qwen3, "head_dim": 64}).size("head_dim") == 64
    assert read_config({**qwen3, "head_dim": None}).optional_size("head_dim") is None


def test_present_are_the_files_own_keys() -> None:
    """A default is not among the keys that the file has, and neither is a null."""
    file = changed(DEEPSEEK, q_lora_rank=MISSING)
    config = read_config({**file, "layer_types": None})

    assert config.present == set(file) - {"moe_layer_freq"}  # which its class does not read
    assert config.raw["q_lora_rank"] == 1536


def test_a_size_as_a_list_of_equals_is_that_size() -> None:
    """Some files give one entry a layer, all alike."""
    assert read_config({"model_type": "minicpm", "moe_topk": [8, 8, 8]}).size("top_k") == 8


@pytest.mark.parametrize(
    ("value", "format_name"),
    [("bfloat16", "bf16"), ("torch.float16", "fp16"), ("float32", "fp32"), ("auto", None), (None, None)],
)
def test_dtype_is_a_format_or_unsaid(value: object, format_name: str | None) -> None:
    """The stored format is the file's word; `auto` is none."""
    assert build_spec({**LLAMA, "torch_dtype": value}).dtype == format_name
    assert build_spec({**LLAMA, "dtype": value}).dtype == format_name


INTERNVL = {"model_type": "internvl", "text_config": {**LLAMA, "model_type": "qwen2"}, "vision_config": {}}


def test_a_head_that_only_the_class_ties_is_said() -> None:
    """InternVL's class ties where the file says nothing; published files do not, so the answer says what it took."""
    silent = build_spec(INTERNVL)

    assert [line for line in silent.assumptions if "taken as tied" in line and "32,000" in line]
    assert silent.tied
    for stated in (True, False):
        said = build_spec({**INTERNVL, "tie_word_embeddings": stated})
        assert said.tied is stated
        assert said.assumptions == ()


def test_a_window_that_is_not_in_use_is_no_assumption() -> None:
    """Qwen2 carries a window of 4,096 that is switched off where the block says nothing."""
    silent = build_spec({**INTERNVL, "tie_word_embeddings": True})

    assert not any("sliding_window" in line for line in silent.assumptions)
