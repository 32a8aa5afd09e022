"""RecurrentGemma: its recurrence against the reference implementation's count and states, and its local attention."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, ModelError, UnknownArchitectureError
from roofcast.modelspec.griffin import RgLru
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.state import FP32, MODEL
from tests.model_configs import LLAMA, refusal

# google/recurrentgemma-2b as published, its pattern under the name of transformers 4
GEMMA: dict[str, Any] = {
    "model_type": "recurrent_gemma", "_block_types": ["recurrent", "recurrent", "attention"], "attention_bias": False,
    "attention_window_size": 2048, "conv1d_width": 4, "embeddings_scale_by_sqrt_dim": True, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2560, "intermediate_size": 15360, "logits_soft_cap": 30.0,
    "lru_width": 2560, "num_attention_heads": 10, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "vocab_size": 256000,
}  # fmt: skip


def test_the_2b_is_the_references() -> None:
    """18 recurrent and 8 local layers, half of the stated feed-forward width, and one table of 256,000 x 2,560."""
    hidden, inner, layers = 2560, 7680, 26
    attention = 2 * hidden * hidden + 2 * hidden * 256 + hidden
    block = 3 * hidden * hidden + 3 * hidden + hidden * 5 + 2 * (hidden * 256 + hidden) + hidden
    mlp = 3 * hidden * inner + 2 * inner + hidden
    spec = build_spec(GEMMA)

    assert spec.parameters == 256000 * hidden + 18 * block + 8 * attention + layers * (mlp + 2 * hidden) + hidden
    assert spec.parameters == 2_682_862_080
    assert spec.attention_label == "RG-LRU+MQA"
    assert spec.tied


def test_the_2b_keeps_a_window_and_a_fixed_state() -> None:
    """Whatever the context: 8 layers of 2,048 keys and values, 18 of three bf16 columns and an fp32 number a channel."""
    kept = build_spec(GEMMA).kept

    assert {(part.elements, part.cap, part.fixed, part.format): count for part, count in kept.items()} == {
        (2560 * 3, None, True, MODEL): 18,
        (2560, None, True, FP32): 18,
        (2 * 256, 2048, False, "cache"): 8,
    }


def test_parameters_as_the_reference_counts() -> None:
    """At h 128 and w 64 in 4 blocks: 3 x 128 x 64 + 2 x 64 + 128 + 64 x 5 + 2 (64 x 16 + 64) + 64."""
    assert RgLru(4, 16, 4).parameters(128) == 27_392


def test_a_convolution_of_one_keeps_nothing() -> None:
    """There is no column before the current one."""
    assert [part.format for part in RgLru(4, 16, 1).state] == [FP32]


def test_devices_share_its_blocks() -> None:
    """Five devices hold two of ten blocks each; three or four cannot share them."""
    block = RgLru(10, 256, 4)

    assert all(5 * part.shard(5) == part.elements for part in block.state)
    assert [tp for tp in range(1, 11) if block.splits(tp)] == [1, 2, 5, 10]


def test_work_of_the_recurrence_is_linear() -> None:
    """Each token costs 4 FLOP a channel, however many went before."""
    assert RgLru(10, 256, 4).prefill_flops(5000) == 5000 * 4 * 2560


@pytest.mark.parametrize("width", [None, 2560])
def test_it_is_as_wide_as_the_residual_by_default(width: int | None) -> None:
    """An absent or null lru_width is the hidden size."""
    assert build_spec({**GEMMA, "lru_width": width}) == build_spec(GEMMA)


@pytest.mark.parametrize(
    ("keys", "kind", "message"),
    [
        ({"lru_width": 2564}, MalformedModelError, "num_attention_heads 10 does not divide lru_width 2564"),
        ({"lru_width": "wide"}, MalformedModelError, "lru_width is 'wide'"),
        ({"conv1d_width": 0}, MalformedModelError, "conv1d_width is 0"),
        ({"num_hidden_layers": None}, MalformedModelError, "num_hidden_layers"),
    ],
)
def test_sizes_that_cannot_be_are_refused(keys: dict[str, Any], kind: type[ModelError], message: str) -> None:
    """The gates' blocks fill the recurrence, and every size is a whole number above 0."""
    error = refusal({**GEMMA, **keys})

    assert type(error) is kind
    assert message in str(error)


@pytest.mark.parametrize(
    "key", ["lru_width", "conv1d_width", "attention_window_size", "attention_types", "window_size"]
)
def test_other_classes_have_no_such_keys(key: str) -> None:
    """A Llama that states a width of the recurrence, or another window, is no Llama; nor is an unknown class guessed."""
    value = [[["global", "local"], 2]] if key == "attention_types" else 64
    for config in ({**LLAMA, key: value}, {**LLAMA, key: value, "model_type": "brand_new"}):
        error = refusal(config)
        assert isinstance(error, UnknownArchitectureError)
        assert key in str(error)
