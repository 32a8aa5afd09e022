"""Gemma 3n and Gemma 4: shared keys and values, per-layer inputs, heads by kind, experts beside a feed-forward."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.errors import MalformedModelError, ModelError, UnknownArchitectureError
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.state import per_token

GEMMA3N: dict[str, Any] = {
    "model_type": "gemma3n_text", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 2, "head_dim": 4,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 16, "vocab_size_per_layer_input": 6,
    "hidden_size_per_layer_input": 2, "altup_num_inputs": 2, "laurel_rank": 3, "num_kv_shared_layers": 1,
    "layer_types": ["full_attention", "full_attention"],
}  # fmt: skip
GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 12, "head_dim": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 16, "sliding_window": 8,
    "hidden_size_per_layer_input": 0, "global_head_dim": 16, "max_position_embeddings": 1024,
}  # fmt: skip
# sizes of Gemma 4 E2B's text model
E2B: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": 262144, "hidden_size": 1536, "intermediate_size": 6144,
    "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
    "global_head_dim": 512, "num_kv_shared_layers": 20, "use_double_wide_mlp": True, "sliding_window": 512,
    "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "max_position_embeddings": 131072,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
}  # fmt: skip


def attention(spec: ModelSpec, layer: int) -> GroupedAttention:
    """Return the softmax attention of one layer."""
    mixer = spec.layers[layer].mixers[0]
    assert isinstance(mixer, GroupedAttention)
    return mixer


def test_gemma3n_by_hand() -> None:
    """Every weight of a small Gemma 3n: a layer that shares keys and values has neither their projections nor norm."""
    feeding, norms = 3 * 8 * 16, 4 * 8
    altup, laurel, per_layer = (2 + 2) * 8 + 4 + 8, (2 * 3 + 1) * 8, (2 * 2 + 1) * 8
    rest = feeding + norms + altup + laurel + per_layer
    own, sharing = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 2 * 4, 8 * 8 + 8 * 8 + 4
    tables, projection, streams, final = 10 * 8 + 6 * 2 * 2, 8 * 2 * 2 + 2, 2 * (2 - 1) * 8 * 8, 8

    spec = build_spec(GEMMA3N)

    assert spec.parameters == own + sharing + 2 * rest + tables + projection + streams + final == 1718
    assert spec.components["embedding"] == tables
    assert dict(spec.kept) == {per_token(1, 8): 1}


def test_per_layer_embeddings_are_no_work() -> None:
    """A wider per-layer vocabulary is a longer table to look up in, and nothing that a token multiplies with."""
    longer = build_spec({**GEMMA3N, "vocab_size_per_layer_input": 106})

    assert longer.parameters == build_spec(GEMMA3N).parameters + 100 * 2 * 2
    assert longer.non_embedding_parameters == build_spec(GEMMA3N).non_embedding_parameters


def test_listed_widths_are_each_layers_own() -> None:
    """A list of feed-forward widths has one for each layer: 3 h more for each unit of width."""
    listed = build_spec({**GEMMA3N, "intermediate_size": [16, 20], "num_kv_shared_layers": 0})

    assert [layer.feed_forwards[0].parameters for layer in listed.layers] == [3 * 8 * 16, 3 * 8 * 20]


def test_e2b_keeps_15_of_35_layers() -> None:
    """Of 35 layers the last 20 read earlier keys and values: 12 windows of 512 tokens and 3 that grow remain."""
    spec = build_spec(E2B)

    assert dict(spec.kept) == {per_token(1, 512, 512): 12, per_token(1, 1024): 3}
    assert spec.parameters == 4_628_569_344


def test_double_width_only_where_keys_are_shared() -> None:
    """use_double_wide_mlp doubles the feed-forward of layers that read earlier keys and values, and no other."""
    widths = [layer.feed_forwards[0].label for layer in build_spec(E2B).layers]

    assert widths == ["dense 6144"] * 15 + ["dense 12288"] * 20


def test_keys_that_are_values_have_one_projection_and_two_cached_tensors() -> None:
    """With attention_k_eq_v full layers project keys alone, in heads of their own, yet both are kept."""
    spec = build_spec({**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1})
    full, sliding = attention(spec, 5), attention(spec, 0)

    assert full.parameters(8) == 2 * (8 * 4 * 16) + 8 * 1 * 16 + 2 * 16
    assert full.state == (per_token(1, 32),)
    assert sliding.parameters(8) == 2 * (8 * 4 * 4) + 2 * (8 * 2 * 4) + 2 * 4
    assert sliding.state == (per_token(2, 8, 8),)


def test_unified_gemma4_has_no_per_layer_inputs() -> None:
    """Gemma 4 12B's text model: 40 windows of 8 heads, 8 full layers of one head, and not a per-layer table."""
    layers = (["sliding_attention"] * 5 + ["full_attention"]) * 8
    unified = {
        **E2B, "model_type": "gemma4_unified_text", "hidden_size": 3840, "intermediate_size": 15360,
        "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8, "num_kv_shared_layers": 0,
        "num_global_key_value_heads": 1, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
        "sliding_window": 1024, "layer_types": layers,
    }  # fmt: skip
    spec = build_spec(unified)

    assert spec.parameters == 11_907_350_272
    assert dict(spec.kept) == {per_token(8, 512, 1024): 40, per_token(1, 1024): 8}
    with pytest.raises(UnknownArchitectureError, match="hidden_size_per_layer_input"):
        build_spec({**unified, "hidden_size_per_layer_input": 256})


def test_global_heads_only_where_keys_are_values() -> None:
    """num_global_key_value_heads means nothing without attention_k_eq_v; global_head_dim always does."""
    full = attention(build_spec({**GEMMA4, "num_global_key_value_heads": 1}), 5)

    assert (full.kv_heads, full.head_dim) == (2, 16)


def test_the_last_layer_is_full() -> None:
    """Gemma 4 makes its last layer see everything, whatever layer_types says of it."""
    spec = build_spec({**GEMMA4, "layer_types": ["sliding_attention"] * 12})

    assert [attention(spec, layer).window for layer in (10, 11)] == [8, None]


def test_per_layer_config_says_the_same_as_global_keys() -> None:
    """A file that transformers 5 saved lists the sizes of single layers, by numbers that may have zeros before."""
    keys = {**GEMMA4, "attention_k_eq_v": True, "num_global_key_value_heads": 1}
    saved = {key: value for key, value in keys.items() if "global" not in key}
    sizes = {"head_dim": 16, "num_key_value_heads": 1}

    assert build_spec({**saved, "per_layer_config": {"05": sizes, "11": sizes}}).layers == build_spec(keys).layers


def test_per_layer_config_replaces_global_keys() -> None:
    """Where per_layer_config is there, even empty or null, layers that it does not name have the plain sizes."""
    assert attention(build_spec({**GEMMA4, "per_layer_config": {}}), 5).head_dim == 4
    assert attention(build_spec({**GEMMA4, "per_layer_config": None}), 5).head_dim == 4


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"12": {"head_dim": 16}}, MalformedModelError),
        ({"x": {"head_dim": 16}}, MalformedModelError),
        ({"1": 16}, MalformedModelError),
        ({"1": {"head_dim": None}}, MalformedModelError),
        ({"1": {"head_dim": "wide"}}, MalformedModelError),
        ([], MalformedModelError),
        ({"1": {"intermediate_size": 16}}, UnknownArchitectureError),
    ],
)
def test_a_strange_per_layer_config_is_refused(value: object, error: type[ModelError]) -> None:
    """Layers that do not exist, sizes that are none, and keys that are not understood are errors."""
    with pytest.raises(error, match=r"per_layer_config|head_dim"):
        build_spec({**GEMMA4, "per_layer_config": value})


@pytest.mark.parametrize("shared", [12, 13, 8])
def test_shared_layers_need_an_earlier_one_of_their_kind(shared: int) -> None:
    """Full layers cannot read keys and values where every earlier layer slides, nor where there is none."""
    with pytest.raises(MalformedModelError, match=f"num_kv_shared_layers is {shared}"):
        build_spec({**GEMMA4, "num_kv_shared_layers": shared})


def test_experts_stand_beside_the_feed_forward() -> None:
    """With enable_moe_block a layer has both, three norms more, and a router with scales of input and experts."""
    moe = {**GEMMA4, "enable_moe_block": True, "num_experts": 4, "top_k_experts": 1, "moe_intermediate_size": 5}
    plain, mixed = build_spec(GEMMA4), build_spec(moe)
    expert, router, norms = 3 * 8 * 5, 4 * 8 + 8 + 4, 3 * 8

    assert mixed.parameters - plain.parameters == 12 * (4 * expert + router + norms)
    assert mixed.parameters - mixed.active_parameters == 12 * 3 * expert


@pytest.mark.parametrize("key", ["num_experts", "moe_intermediate_size"])
def test_experts_must_be_sized_where_they_are_enabled(key: str) -> None:
    """enable_moe_block without a number or a width of experts is an error, not a dense model."""
    moe = {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 1, "moe_intermediate_size": 5}
    with pytest.raises(MalformedModelError, match=f"{key}.* is missing"):
        build_spec({**GEMMA4, **moe, key: None})
