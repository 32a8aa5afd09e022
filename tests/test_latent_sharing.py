"""The newest classes of latent attention: layers that read an earlier latent, keys without RoPE, gates and drafts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.model_configs import DEEPSEEK, refusal

INDEX: Final = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 8}
SMALL: Final[dict[str, Any]] = {
    **{key: value for key, value in DEEPSEEK.items() if key not in {"q_lora_rank", "moe_layer_freq"}},
    **INDEX,
    "model_type": "mistral_large4_text",
}
HY: Final[dict[str, Any]] = {**SMALL, "model_type": "hy_v4", "q_lora_rank": 24, "hc_mult": 4}
# Sizes that the configuration classes of transformers 5.24 carry for mistralai/Mistral-Large-4-1T-A52B,
# A.X-K2-Light, Hy4's text model by itself and tencent/Hy4.
MISTRAL_LARGE_4: Final[dict[str, Any]] = {
    "model_type": "mistral_large4_text", "vocab_size": 204800, "hidden_size": 6144, "intermediate_size": 24576,
    "moe_intermediate_size": 6144, "num_hidden_layers": 72, "num_attention_heads": 64, "num_key_value_heads": 64,
    "n_shared_experts": 1, "n_routed_experts": 128, "num_experts_per_tok": 4, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 128, "index_topk": 2048, "index_head_dim": 128,
    "index_n_heads": 32, "max_position_embeddings": 1048576, "tie_word_embeddings": False,
}  # fmt: skip
AX_K2_LIGHT: Final[dict[str, Any]] = {
    "model_type": "axk2", "vocab_size": 163840, "hidden_size": 2048, "intermediate_size": 5120,
    "moe_intermediate_size": 512, "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 32,
    "n_shared_experts": 1, "n_routed_experts": 128, "num_experts_per_tok": 8, "kv_lora_rank": 128, "q_lora_rank": 384,
    "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64, "index_topk": 2048, "index_head_dim": 128,
    "index_n_heads": 16, "gated_norm_rank": 16, "max_position_embeddings": 131072,
}  # fmt: skip
HY4: Final[dict[str, Any]] = {
    "model_type": "hy_v4", "vocab_size": 120832, "hidden_size": 2816, "intermediate_size": 6912,
    "moe_intermediate_size": 768, "num_hidden_layers": 34, "num_attention_heads": 32, "n_shared_experts": 1,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "index_topk": 2048, "index_head_dim": 128,
    "index_n_heads": 16, "hc_mult": 4, "max_position_embeddings": 262144,
}  # fmt: skip
FULL_SIZE: Final[dict[str, tuple[dict[str, Any], int, int]]] = {
    # 54 layers of 512 + 64, 18 without RoPE of 512, an index of 128 in each of the 72
    "mistral_large4_text": (MISTRAL_LARGE_4, 1_050_118_202_912, 2 * (54 * 576 + 18 * 512 + 72 * 128)),
    "mistral_large4": (
        {"model_type": "mistral_large4", "text_config": MISTRAL_LARGE_4}, 1_051_822_421_536, 99_072,
    ),
    "axk2": (AX_K2_LIGHT, 20_314_494_976, 2 * 48 * (128 + 32 + 128)),
    # layers 0, 1, 5, 9 .. 33 have an index of their own
    "hy_v4": (HY4, 58_278_193_133, 2 * (34 * 576 + 10 * 128)),
    "hy_v4_vl": (
        {"model_type": "hy_v4_vl", "text_config": {"num_hidden_layers": 78}}, 771_142_515_869,
        2 * (78 * 576 + 21 * 128),
    ),
}  # fmt: skip


def widths(config: dict[str, Any]) -> list[tuple[int, ...]]:
    """Return the widths of what each layer keeps of a token."""
    return [tuple(part.elements for part in layer.state) for layer in build_spec(config).layers]


def a_token(spec: ModelSpec) -> int:
    """Return the bytes that a token adds in bf16."""
    return 2 * sum(part.elements * count for part, count in spec.kept.items())


@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size(name: str) -> None:
    """Parameters are the reference's to the last one, and a token's bytes those of the hand-written sum."""
    config, parameters, kept = FULL_SIZE[name]
    spec = build_spec(config)

    assert (spec.parameters, a_token(spec)) == (parameters, kept)


def test_active_parameters_are_those_of_the_name() -> None:
    """Mistral Large 4 is published as 1T-A52B: what works on a token, without the embedding that is looked up."""
    spec = build_spec(MISTRAL_LARGE_4)

    assert round((spec.active_parameters - spec.components["embedding"]) / 1e9) == 52


def test_a_layer_that_reads_an_earlier_latent_keeps_its_index_alone() -> None:
    """Own latents have 16 + 4, the fourth layer has no RoPE, and an index is 16 where the layer has its own."""
    config = {**SMALL, "num_hidden_layers": 6, "no_rope_layers": [1, 1, 1, 0, 1, 0]}
    shared = {**config, "kv_source_layers": [0, 0, 0, 3, 4, 3]}

    assert widths(config) == [(20, 16), (20, 16), (20, 16), (16, 16), (20, 16), (16, 16)]
    assert widths(shared) == [(20, 16), (16,), (16,), (16, 16), (20, 16), (16,)]
    assert widths({**shared, "index_topk_pattern": "FSFSSS"}) == [(20, 16), (), (16,), (16,), (20,), ()]


def test_a_layer_that_reads_an_earlier_latent_projects_none() -> None:
    """It has neither the down projection nor its norm, but expands what it reads with weights of its own."""
    config = {**SMALL, "no_rope_layer_interval": 9}
    spec, shared = build_spec(config), build_spec({**config, "kv_source_layers": [0, 0, 2, 3]})

    assert spec.parameters - shared.parameters == 64 * 20 + 16
    rows = [
        mixer.projection_rows for layer in shared.layers for mixer in layer.mixers if isinstance(mixer, LatentAttention)
    ]
    assert rows == [(("kv_a_proj_with_mqa", 20),), (), *[(("kv_a_proj_with_mqa", 20),)] * 2]


@pytest.mark.parametrize(
    ("keys", "word"),
    [
        ({"kv_source_layers": [0, 0]}, "kv_source_layers"),
        ({"kv_source_layers": 3}, "kv_source_layers"),
        ({"kv_source_layers": [0, 1, 2, True]}, "kv_source_layers"),
        ({"kv_source_layers": [0, 1, 2, -1]}, "layer -1"),
        ({"kv_source_layers": [1, 1, 2, 3]}, "layer 1"),
        ({"kv_source_layers": [0, 0, 1, 3]}, "layer 1"),
        ({"kv_source_layers": [0, 1, 2, 0]}, "without RoPE"),
        ({"no_rope_layers": [1, 1]}, "no_rope_layers"),
        ({"no_rope_layers": [1, 1, 1, 2]}, "no_rope_layers"),
        ({"no_rope_layer_interval": 0}, "no_rope_layer_interval"),
        ({"indexer_types": ["shared", "full", "full", "full"]}, "first layer"),
    ],
    ids=str,
)
def test_lists_that_cannot_be_are_refused(keys: dict[str, Any], word: str) -> None:
    """The reference runs none of these: each layer reads itself or an earlier layer that keeps keys like its own."""
    error = refusal({**SMALL, **keys})

    assert isinstance(error, MalformedModelError)
    assert word in str(error)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({**DEEPSEEK, "kv_source_layers": [0, 0, 0, 0]}, "kv_source_layers"),
        ({**DEEPSEEK, "gated_norm_rank": 8}, "gated_norm_rank"),
        ({**SMALL, "hc_mult": 4}, "hc_mult"),
        ({**HY, "kv_source_layers": [0, 0, 0, 0]}, "kv_source_layers"),
        ({**SMALL, "partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({**SMALL, "rope_parameters": {"rope_type": "yarn", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({**SMALL, "model_type": "brand_new", "kv_source_layers": [0, 0, 0, 0]}, "brand_new"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)
def test_a_feature_of_another_class_is_refused(config: dict[str, Any], key: str) -> None:
    """Sharing, gated norms and hyper-connections count only in classes that have them."""
    error = refusal(config)

    assert isinstance(error, UnknownArchitectureError)
    assert key in str(error)


@pytest.mark.parametrize(
    "config", [SMALL, HY, {**HY, "model_type": "axk2", "hc_mult": None}], ids=lambda c: c["model_type"]
)
def test_a_draft_that_nobody_knows_is_not_guessed(config: dict[str, Any]) -> None:
    """The decoder is answered as without the key; drafting, whose layers no public code shows, is refused."""
    plain, spec = build_spec(config), build_spec({**config, "num_nextn_predict_layers": 1})

    assert (spec.mtp_layers, spec.parameters, spec.kept) == (1, plain.parameters, plain.kept)
    with pytest.raises(UnknownArchitectureError, match="multi-token-prediction"):
        _ = replace(spec, drafting=True).kept
    assert replace(plain, drafting=True).kept == plain.kept


def test_an_index_limits_the_work_of_a_layer_that_shares_it() -> None:
    """A layer without an index of its own reads as many tokens, but scores none."""
    first, _, shared, *_ = (layer.mixers[0] for layer in build_spec({**HY, "num_hidden_layers": 4}).layers)

    assert first.prefill_flops(64) - shared.prefill_flops(64) == 64 * 64 * 2 * 16
