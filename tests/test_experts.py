"""Which layers are mixtures of experts, and their sizes, under every key that says so."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.config import read_config
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.experts import _SPARSE_RULES, sparse_layers
from roofcast.modelspec.spec import build_spec
from tests.model_configs import DEEPSEEK, LLAMA, QWEN_MOE, changed, is_one_line

QWEN = changed(QWEN_MOE, decoder_sparse_step=None, mlp_only_layers=None)
ERNIE = {
    **LLAMA, "model_type": "ernie4_5_vl_moe_text", "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1,
    "moe_intermediate_size": [40, 24],
}  # fmt: skip
INKLING = {
    "model_type": "inkling_text", "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "d_rel": 8,
    "rel_extent": 8, "swa_num_attention_heads": 8, "swa_num_key_value_heads": 2, "swa_head_dim": 8,
}  # fmt: skip
DOTS = {
    "model_type": "dots3_note_text", "index_head_dim": 8, "index_n_heads": 2, "index_topk": 8,
    "shared_experts_intermediate_size": 32,
}  # fmt: skip
CLASSES: dict[str, dict[str, Any]] = {
    "afmoe": {**QWEN, "model_type": "afmoe", "num_shared_experts": 0},
    "deepseek_v3": changed(DEEPSEEK, first_k_dense_replace=None, moe_layer_freq=None),
    "ernie4_5_vl_moe_text": ERNIE,
    "ernie4_5_moe": {**ERNIE, "model_type": "ernie4_5_moe", "moe_intermediate_size": 40, "moe_layer_start_index": 1},
    "exaone_moe": {**QWEN, "model_type": "exaone_moe", "num_shared_experts": 0},
    "kimi_k2": {**changed(DEEPSEEK, first_k_dense_replace=None, moe_layer_freq=None), "model_type": "kimi_k2"},
    "jamba": {**LLAMA, "model_type": "jamba", "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 2},
    "llama4_text": {**LLAMA, "model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1},
    "mixtral": {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": QWEN,
    "step3p5": {**QWEN, "model_type": "step3p5", "share_expert_dim": 32},
    "inkling_text": {**LLAMA, **INKLING},
    "dots3_note_text": {**changed(DEEPSEEK, first_k_dense_replace=None, moe_layer_freq=None), **DOTS},
}


def sparse(model_type: str, layers: int, **keys: Any) -> str:
    """Return a letter a layer: S where it routes, d where it is dense."""
    config = {**CLASSES[model_type], "num_hidden_layers": layers, **keys}
    return "".join("S" if flag else "d" for flag in sparse_layers(read_config(config)))


CASES: list[tuple[str, int, dict[str, Any], str]] = [
    ("exaone_moe", 4, {"mlp_layer_types": ["dense", "sparse", "moe", "dense"]}, "dSSd"),
    ("step3p5", 5, {"moe_layers_enum": "1, 3,4"}, "dSdSS"),
    ("step3p5", 4, {"moe_layers_enum": [2]}, "ddSd"),
    ("deepseek_v3", 4, {"first_k_dense_replace": 2}, "ddSS"),
    ("kimi_k2", 6, {"first_k_dense_replace": 1, "moe_layer_freq": 2}, "ddSdSd"),
    ("afmoe", 3, {"num_dense_layers": 1}, "dSS"),
    ("inkling_text", 3, {"dense_mlp_idx": 2}, "ddS"),
    ("dots3_note_text", 4, {"moe_layer_freq": [1, 1, 0, 1]}, "dSdS"),
    ("kimi_k2", 3, {"first_k_dense_replace": 0, "moe_layer_freq": [0, 1, 1]}, "dSS"),
    ("qwen3_moe", 4, {"decoder_sparse_step": 2}, "dSdS"),
    ("qwen3_moe", 4, {"mlp_only_layers": [0, 2]}, "dSdS"),
    ("qwen3_moe", 4, {"decoder_sparse_step": 2, "mlp_only_layers": [1]}, "dddS"),
    ("ernie4_5_moe", 5, {"moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 1}, "dSSSd"),
    ("ernie4_5_moe", 4, {"moe_layer_start_index": 2, "moe_layer_end_index": -1}, "ddSS"),
    ("jamba", 5, {"expert_layer_period": 2, "expert_layer_offset": 1}, "dSdSd"),
    ("llama4_text", 4, {"moe_layers": [1, 2]}, "dSSd"),
    ("llama4_text", 4, {"interleave_moe_layer_step": 2}, "dSdS"),
    # no key: as the class does
    ("mixtral", 2, {}, "SS"),
    ("jamba", 4, {}, "dSdS"),
    ("jamba", 4, {"num_experts": 1, "num_experts_per_tok": 1}, "dddd"),
    ("ernie4_5_vl_moe_text", 3, {}, "dSS"),
    ("step3p5", 5, {}, "dddSS"),
    ("qwen3_moe", 3, {}, "SSS"),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "layers", "keys", "expected"), CASES)
def test_a_key_says_which_layers_route(model_type: str, layers: int, keys: dict[str, Any], expected: str) -> None:
    """Each key, or the class where none is there, gives the sparse layers that were read by hand."""
    assert sparse(model_type, layers, **keys) == expected


def test_every_rule_has_a_case() -> None:
    """No rule of the table goes without a hand-read case."""
    assert {key for _, _, keys, _ in CASES for key in keys} >= _SPARSE_RULES.keys()


BAD = [
    ("exaone_moe", {"mlp_layer_types": ["dense"]}, "mlp_layer_types", MalformedModelError),
    ("exaone_moe", {"mlp_layer_types": ["dense", "dense", "quantum"]}, "quantum", UnknownArchitectureError),
    ("step3p5", {"moe_layers_enum": "1;2"}, "moe_layers_enum", MalformedModelError),
    ("step3p5", {"moe_layers_enum": [-1]}, "moe_layers_enum", MalformedModelError),
    ("deepseek_v3", {"first_k_dense_replace": -1}, "first_k_dense_replace", MalformedModelError),
    ("deepseek_v3", {"first_k_dense_replace": "1"}, "first_k_dense_replace", MalformedModelError),
    ("kimi_k2", {"first_k_dense_replace": 0, "moe_layer_freq": [0, 1, 2]}, "moe_layer_freq", UnknownArchitectureError),
    ("kimi_k2", {"first_k_dense_replace": 0, "moe_layer_freq": [0, 1]}, "moe_layer_freq", MalformedModelError),
    ("qwen3_moe", {"decoder_sparse_step": 0.5}, "decoder_sparse_step", MalformedModelError),
    ("qwen3_moe", {"mlp_only_layers": [-1]}, "mlp_only_layers", MalformedModelError),
    ("qwen3_moe", {"mlp_only_layers": 1}, "mlp_only_layers", MalformedModelError),
    ("ernie4_5_moe", {"moe_layer_start_index": [1, 2]}, "moe_layer_start_index", MalformedModelError),
    ("jamba", {"expert_layer_period": -2}, "expert_layer_period", MalformedModelError),
    ("llama4_text", {"interleave_moe_layer_step": -1}, "interleave_moe_layer_step", MalformedModelError),
    ("llama4_text", {"moe_layers": "x"}, "moe_layers", MalformedModelError),
]


@pytest.mark.parametrize(("model_type", "keys", "named", "kind"), BAD)
def test_a_list_that_cannot_be_is_refused(
    model_type: str, keys: dict[str, Any], named: str, kind: type[Exception]
) -> None:
    """A list of another length or with strange entries is refused on one line that names it."""
    with pytest.raises(kind) as error:
        sparse(model_type, 3, **keys)

    assert type(error.value) is kind
    assert named in str(error.value)
    assert is_one_line(str(error.value))


def test_experts_of_two_modalities_count_apart() -> None:
    """ERNIE 4.5 VL has experts for text and for images, a router each, and a shared one of the text experts' width."""
    text, images = build_spec(ERNIE).layers[1].feed_forwards

    # h 64: 4 experts of 3 h i, the shared one, 4 h router, 4 correction biases
    assert text.parameters == 4 * 3 * 64 * 40 + 3 * 64 * 40 + 4 * 64 + 4
    assert images.parameters == 4 * 3 * 64 * 24 + 4 * 64 + 4


def test_a_modality_without_a_width_is_refused() -> None:
    """Widths are for text and for images: three of them are a slip."""
    with pytest.raises(MalformedModelError, match="moe_intermediate_size has 3 entries"):
        build_spec({**ERNIE, "moe_intermediate_size": [40, 24, 8]})


def test_granite_without_experts_has_the_shared_width() -> None:
    """Granite 4 dense: 0 experts leave the shared feed-forward alone, whatever intermediate_size says."""
    config = {
        **LLAMA, "model_type": "granitemoehybrid", "num_local_experts": 0, "shared_intermediate_size": 48,
        "layer_types": ["attention"] * 4,
    }  # fmt: skip

    assert {part.label for layer in build_spec(config).layers for part in layer.feed_forwards} == {"dense 48"}


def test_dbrx_nests_its_experts_and_its_heads() -> None:
    """DBRX states experts in ffn_config and KV heads in attn_config: the published file has 131,596,523,520 weights."""
    config = {
        "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
        "max_seq_len": 32768, "tie_word_embeddings": False,
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
    }  # fmt: skip
    spec = build_spec(config)

    assert spec.parameters == 131_596_523_520
    assert spec.lead_mixer is not None
    assert spec.lead_mixer.published_kv_heads == 8
