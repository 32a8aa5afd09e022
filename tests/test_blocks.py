"""Layers thinned out one by one, and weights that layers share: Nemotron-NAS and Zamba."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.calculators.flops import linear_flops_per_token
from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.linear import LinearFeedForward, LinearMap
from roofcast.modelspec.shared import SharedAttention
from roofcast.modelspec.spec import build_spec
from tests.checkpoints import catalogued
from tests.model_configs import LLAMA, changed

NO_OP, LINEAR = {"no_op": True}, {"replace_with_linear": True}


def nas(*blocks: tuple[dict[str, Any], dict[str, Any]]) -> dict[str, Any]:
    """Return a small Nemotron-NAS with these attentions and feed-forwards."""
    stated = [{"attention": attention, "ffn": feed} for attention, feed in blocks]
    return {**LLAMA, "model_type": "nemotron-nas", "num_key_value_heads": None, "num_hidden_layers": len(stated), "block_configs": stated}  # fmt: skip


def test_every_layer_has_heads_and_a_width_of_its_own() -> None:
    """8 query heads in groups of 4 are 2 KV heads; 2/3 of 1.5 h is 64, rounded up to 256."""
    layer = build_spec(nas(({"n_heads_in_group": 4}, {"ffn_mult": 1.5}))).layers[0]
    (mixer,), (feed,) = layer.mixers, layer.feed_forwards

    assert isinstance(mixer, GroupedAttention)
    assert (mixer.kv_heads, feed.label, layer.norm_parameters) == (2, "dense 256", 128)


def test_a_layer_without_attention_keeps_nothing() -> None:
    """no_op and a matrix in attention's place have no state; a part that is gone has no norm either."""
    spec = build_spec(nas((NO_OP, {"ffn_mult": 1.5}), (LINEAR, NO_OP), (NO_OP, NO_OP), (NO_OP, LINEAR)))
    without, mapped, empty, linear = spec.layers

    assert not spec.kept
    assert without.mixers == ()
    assert mapped.mixers == (LinearMap(),)
    assert (mapped.feed_forwards, mapped.norm_parameters) == ((), 64)
    assert empty.parameters(64) == 0
    assert linear.feed_forwards == (LinearFeedForward(64),)
    assert linear.parameters(64) == 64 * 64 + 64


@pytest.mark.parametrize(
    ("attention", "feed", "named"),
    [
        ({"n_heads_in_group": 3}, {"ffn_mult": 1.5}, "n_heads_in_group"),
        ({"n_heads_in_group": None}, {"ffn_mult": 1.5}, "n_heads_in_group"),
        ({"n_heads_in_group": 2}, {"ffn_mult": -1}, "ffn_mult"),
        ({"n_heads_in_group": 2}, {"ffn_mult": "2"}, "ffn_mult"),
        ({"n_heads_in_group": 2}, {"ffn_mult": 1e9}, "ffn_mult"),
    ],
)
def test_a_block_that_cannot_be_is_refused(attention: dict[str, Any], feed: dict[str, Any], named: str) -> None:
    """A group that does not divide the heads and a width that is none are named."""
    with pytest.raises(MalformedModelError, match=named):
        build_spec(nas((attention, feed)))


ZAMBA2: dict[str, Any] = {
    **changed(LLAMA, num_key_value_heads=8), "model_type": "zamba2", "num_hidden_layers": 5, "mamba_headdim": 16,
    "mamba_d_state": 8, "adapter_rank": 4, "num_mem_blocks": 1,
    "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "hybrid"],
}  # fmt: skip


@pytest.mark.parametrize("key", ["attention_hidden_size", "attention_head_dim", "head_dim"])
def test_shared_attention_over_another_width_is_refused(key: str) -> None:
    """One class reads these widths, the next works them out again: a file that says otherwise is a contradiction."""
    due = {"attention_hidden_size": 128}.get(key, 16)

    assert build_spec({**ZAMBA2, key: due}).parameters == build_spec(ZAMBA2).parameters
    with pytest.raises(MalformedModelError, match=f"it is {due}"):
        build_spec({**ZAMBA2, key: due * 2})


def test_shared_weights_count_once_and_caches_each() -> None:
    """Three uses of one block: its weights once, adapters and the way back three times, three caches of 2 h a token."""
    layers = build_spec(ZAMBA2).layers
    uses = [layer for layer in layers if len(layer.mixers) > 1]
    first, second, third = (layer.mixers[0] for layer in uses)

    assert isinstance(first, SharedAttention)
    assert (first.head_dim, first.width) == (16, 128)  # 2 x 64 over 8 heads
    # w d (n_q + 2 n_kv) + n_q d h + w, and h^2 at every use
    assert first.parameters(64) == 128 * 16 * 24 + 8 * 16 * 64 + 128 + 64 * 64
    assert second.parameters(64) == third.parameters(64) == 64 * 64
    assert [layer.feed_forwards[0].parameters for layer in uses[1:]] == [4 * (64 + 2 * 96)] * 2
    assert uses[0].feed_forwards[0].parameters == 3 * 64 * 96 + 64 + 4 * (64 + 2 * 96)
    assert all(layer.state[0].elements == 2 * 8 * 16 for layer in uses)


def test_as_many_blocks_as_the_file_says_bring_their_weights() -> None:
    """With two memory blocks the first two uses bring weights, the third finds them."""
    layers = build_spec({**ZAMBA2, "num_mem_blocks": 2, "use_shared_attention_adapter": True}).layers
    uses = [layer.mixers[0] for layer in layers if len(layer.mixers) > 1]

    assert [mixer.owned for mixer in uses if isinstance(mixer, SharedAttention)] == [True, True, False]
    assert uses[2].parameters(64) == 64 * 64 + 6 * 128 * 4


def test_shared_weights_work_wherever_they_recur() -> None:
    """Zamba2-2.7B: nine uses of two blocks, so seven borrow one: 3 x 5120^2 + 2560 x 5120 and 3 x 2560 x 10240 each.

    2 FLOP for each of these 1,192,755,200 come to those of the parameters without embeddings.
    """
    spec = catalogued("zamba2-2.7b").spec
    uses = [layer for layer in spec.layers if len(layer.mixers) > 1]

    assert [sum(matrix.elements for matrix in layer.borrowed(2560)) for layer in uses] == [0, 0] + [170_393_600] * 7
    assert spec.borrowed_parameters == 7 * (3 * 5120**2 + 2560 * 5120 + 3 * 2560 * 10240)
    assert linear_flops_per_token(spec) == 2 * (spec.non_embedding_parameters + 1_192_755_200)


def test_layers_that_own_their_weights_borrow_none() -> None:
    """Layers of other kinds, and the Mamba beside a shared block, have nothing of another layer's."""
    assert build_spec(LLAMA).borrowed_parameters == 0
    assert [len(layer.borrowed(64)) for layer in build_spec(ZAMBA2).layers] == [0, 0, 0, 7, 7]


def test_shared_heads_must_divide_twice_the_hidden_size() -> None:
    """Heads share 2 h; 7 of them cannot share 128."""
    with pytest.raises(MalformedModelError, match="do not divide"):
        build_spec({**ZAMBA2, "num_attention_heads": 7, "num_key_value_heads": 7})
