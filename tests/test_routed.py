"""JetMoE and Doge: experts that are not feed-forwards of their own, and a mask that keeps all it hides."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.ffn import MoeFeedForward
from roofcast.modelspec.routed import RoutedAttention
from roofcast.modelspec.spec import build_spec
from tests.model_configs import refusal

# the defaults of JetMoeConfig, which are the 8B's but for 24 layers there
JETMOE: dict[str, Any] = {
    "model_type": "jetmoe", "vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 12, "kv_channels": 128,
    "num_key_value_heads": 16, "intermediate_size": 5632, "max_position_embeddings": 4096, "num_local_experts": 8,
    "num_experts_per_tok": 2, "tie_word_embeddings": True,
}  # fmt: skip
DOGE: dict[str, Any] = {
    "model_type": "doge", "vocab_size": 32768, "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 32,
    "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 2048, "keep_window_size": 2048,
    "is_moe": True, "num_experts": 16384, "num_experts_per_tok": 64,
}  # fmt: skip
NEO: dict[str, Any] = {
    "model_type": "gpt_neo", "vocab_size": 50257, "hidden_size": 2048, "num_layers": 24, "num_heads": 16,
    "max_position_embeddings": 2048, "window_size": 256,
}  # fmt: skip


def test_jetmoe_routes_queries_and_feed_forward() -> None:
    """A layer: K and V, two sets of 8 experts with a router each, two biases and two norms of h."""
    h, width = 2048, 16 * 128
    experts = 8 * (2 * h * width + 3 * h * 5632)
    layer = 2 * h * width + experts + 2 * 8 * h + 2 * h + 2 * h
    spec = build_spec(JETMOE)

    assert spec.parameters == 32000 * h + 12 * layer + h == 4_293_888_000
    assert spec.components["experts"] == 12 * experts
    assert spec.active_parameters == spec.parameters - 12 * experts * 6 // 8


def test_jetmoe_is_published_under_other_names() -> None:
    """Its files spell sizes as their first code did; the 8B has 24 layers, and the reference counts 8,522,237,952."""
    new = ("intermediate_size", "max_position_embeddings", "num_local_experts", "num_experts_per_tok")
    old = ("ffn_hidden_size", "n_positions", "moe_num_experts", "moe_top_k")
    published = {dict(zip(new, old, strict=True)).get(key, key): value for key, value in JETMOE.items()}

    assert build_spec({**published, "bias": True, "glu": True}) == build_spec(JETMOE)
    assert build_spec({**published, "num_hidden_layers": 24}).parameters == 8_522_237_952


def test_jetmoe_keeps_the_keys_of_sixteen_heads() -> None:
    """However many experts there are, a token adds 16 keys and values of 128; 32 query heads work on it."""
    layer = build_spec({**JETMOE, "num_local_experts": 64}).layers[0]

    assert [part.elements for part in layer.state] == [2 * 16 * 128]
    assert (layer.label, layer.mixers[0].query_heads, layer.mixers[0].published_kv_heads) == ("MoA", 32, 16)


def test_devices_share_the_heads_of_keys_and_values() -> None:
    """Every expert has as many query heads as there are KV heads: more devices than these would split a head."""
    assert [tp for tp in range(1, 65) if RoutedAttention(16, 128, 2).splits(tp)] == [1, 2, 4, 8, 16]


def test_doge_has_experts_of_one_neuron() -> None:
    """Beside a dense feed-forward: 16,384 pairs of vectors, 64 in use, and a router of 2 x 128 keys."""
    h = 1024
    (part,) = build_spec(DOGE).layers[0].feed_forwards
    assert isinstance(part, MoeFeedForward)

    assert part.parameters == 3 * h * 2048 + 16384 * 2 * h + 2 * 128 * h
    assert part.active_parameters == 3 * h * 2048 + 64 * 2 * h + 2 * 128 * h
    assert build_spec({**DOGE, "is_moe": False}).layers[0].feed_forwards[0].parameters == 3 * h * 2048


def test_a_dynamic_mask_limits_what_is_read_not_what_is_kept() -> None:
    """keep_window_size moves no number."""
    assert build_spec({**DOGE, "keep_window_size": 16}) == build_spec(DOGE)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({**DOGE, "num_experts_per_tok": 16385}, "num_experts_per_tok is 16385, more than the 16384 of num_experts"),
        ({**DOGE, "num_experts": None}, "num_experts"),
        ({**DOGE, "is_moe": "yes"}, "is_moe is 'yes'"),
        ({**JETMOE, "num_key_value_heads": None}, "num_key_value_heads"),
        ({**JETMOE, "num_experts_per_tok": 9}, "more than the 8 of num_local_experts"),
    ],
)
def test_experts_that_cannot_be_are_refused(config: dict[str, Any], named: str) -> None:
    """No more experts work than there are, and their number is stated."""
    error = refusal(config)

    assert isinstance(error, MalformedModelError)
    assert named in str(error)


def test_gpt_neo_masks_and_keeps_all() -> None:
    """Local layers see 256 tokens, yet the reference's cache drops none: every layer adds 2 h a token without end."""
    spec = build_spec(NEO)

    assert [layer.mixers[0].window for layer in spec.layers] == [None, 256] * 12
    assert {(part.elements, part.cap): count for part, count in spec.kept.items()} == {(4096, None): 24}
    assert spec.parameters == 1_315_575_808


def test_a_masks_work_is_the_windows() -> None:
    """A local layer scores 256 keys a token, a global one all of them."""
    far, near = (layer.mixers[0].prefill_flops(2048) for layer in build_spec(NEO).layers[:2])

    assert far / near == pytest.approx(2048**2 / 2 / (256 * 2048 - 256**2 / 2))
