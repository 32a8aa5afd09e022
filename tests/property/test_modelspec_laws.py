"""Laws of architectures: what must hold of every attention kind, every feed-forward kind and every config."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.attention import KINDS, Attention, GroupedAttention, LatentAttention
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.ffn import FeedForward, MoeFeedForward
from roofcast.modelspec.formats import FORMATS, Format
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.work import causal_pairs, matmul_flops
from tests.model_configs import is_one_line, outcome
from tests.property.strategies import (
    ATTENTION,
    ATTENTION_KINDS,
    CONFIGS,
    FEED_FORWARD,
    LATENT,
    SIZES,
    TOKENS,
    WINDOWS,
    broken_configs,
    dense_configs,
    grouped,
    moe,
    moe_configs,
)

HIDDEN = st.integers(1, 1024)


def elements(spec: ModelSpec) -> int:
    """Elements cached a token, over all layers."""
    return sum(attention.elements_per_token * count for attention, count in spec.attention_counts.items())


def test_every_kind_has_a_strategy() -> None:
    """A new attention kind is under these laws from its first day."""
    assert ATTENTION_KINDS.keys() == KINDS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_a_strategy_makes_its_kind(name: str) -> None:
    """The strategy of a name makes the class of that name."""

    @given(ATTENTION_KINDS[name])
    def check(attention: object) -> None:
        assert type(attention) is KINDS[name]

    check()


# --- attention


@given(ATTENTION, st.integers(1, 512))
def test_shards_hold_the_whole_and_at_most_one_copy_each(attention: Attention, tp: int) -> None:
    """All devices together hold at least the whole cache, and none holds more than all of it."""
    assert attention.elements_per_token <= attention.shard(tp) * tp
    assert attention.shard(tp) <= attention.elements_per_token
    assert attention.shard(1) == attention.elements_per_token


@given(ATTENTION, st.integers(1, 64), st.integers(1, 64))
def test_more_devices_never_hold_more_each(attention: Attention, tp: int, more: int) -> None:
    """A device's share never grows with their number."""
    assert attention.shard(tp + more) <= attention.shard(tp)


@given(grouped(), st.data())
def test_heads_that_divide_are_split_exactly(attention: GroupedAttention, data: st.DataObject) -> None:
    """shard(tp) x tp is the whole where tp divides the KV heads; with more devices than heads each has one head."""
    tp = data.draw(st.sampled_from([n for n in range(1, attention.kv_heads + 1) if attention.kv_heads % n == 0]))
    one_head = attention.head_dim + attention.value_head_dim

    assert attention.shard(tp) * tp == attention.elements_per_token
    assert attention.shard(attention.kv_heads + tp) == one_head


@given(LATENT, st.integers(1, 512))
def test_a_latent_replicates(attention: LatentAttention, tp: int) -> None:
    """Every device keeps all of it."""
    assert attention.shard(tp) == attention.elements_per_token


@given(LATENT, st.integers(1, 512))
def test_a_latent_does_not_grow_with_heads(attention: LatentAttention, heads: int) -> None:
    """One latent serves however many heads, which cost weights and work only."""
    other = replace(attention, query_heads=heads)

    assert other.elements_per_token == attention.elements_per_token
    assert (other.parameters(64) > attention.parameters(64)) == (heads > attention.query_heads)


@given(grouped(), st.data())
def test_fewer_kv_heads_keep_less(attention: GroupedAttention, data: st.DataObject) -> None:
    """Elements and weights fall with the KV heads, in proportion; prefill does not change."""
    fewer = replace(attention, kv_heads=data.draw(st.integers(1, attention.kv_heads)))

    assert fewer.elements_per_token * attention.kv_heads == attention.elements_per_token * fewer.kv_heads
    assert (fewer.parameters(64) < attention.parameters(64)) == (fewer.kv_heads < attention.kv_heads)
    assert fewer.prefill_flops(1000) == attention.prefill_flops(1000)


@given(grouped())
def test_the_label_follows_the_heads(attention: GroupedAttention) -> None:
    """MHA is as many KV heads as query heads, MQA a single one for several, GQA what lies between."""
    is_mha, is_mqa = attention.kv_heads == attention.query_heads, attention.kv_heads == 1

    assert attention.label == ("MHA" if is_mha else "MQA" if is_mqa else "GQA")


@given(ATTENTION, HIDDEN, st.integers(1, 1024))
def test_weights_grow_with_the_stream(attention: Attention, hidden: int, more: int) -> None:
    """Every kind projects from and to the residual stream: wider is more, by the same for each unit of width."""
    step = attention.parameters(hidden + 1) - attention.parameters(hidden)

    assert step > 0
    assert attention.parameters(hidden + more) - attention.parameters(hidden) == step * more


@given(ATTENTION, TOKENS, st.integers(1, 1 << 20))
def test_prefill_grows_with_tokens(attention: Attention, tokens: int, more: int) -> None:
    """A longer prompt is more work; none is none."""
    assert attention.prefill_flops(0) == 0
    assert attention.prefill_flops(tokens) < attention.prefill_flops(tokens + more)


@given(st.one_of(grouped(), LATENT), TOKENS, st.integers(1, 1 << 20))
def test_a_window_never_does_more_than_full_attention(
    attention: GroupedAttention | LatentAttention, tokens: int, window: int
) -> None:
    """A window keeps the same a token and works no more; one that is not reached changes nothing."""
    full = replace(attention, window=None)
    sliding = replace(attention, window=window)

    assert sliding.elements_per_token == full.elements_per_token
    assert sliding.parameters(64) == full.parameters(64)
    assert sliding.prefill_flops(tokens) <= full.prefill_flops(tokens)
    assert (sliding.prefill_flops(tokens) == full.prefill_flops(tokens)) == (tokens <= window)


@given(ATTENTION, TOKENS)
def test_prefill_is_pairs_times_a_constant(attention: Attention, tokens: int) -> None:
    """Work follows the pairs: n times the pairs is n times the FLOP."""
    one_pair = attention.prefill_flops(1) / causal_pairs(1, attention.window)

    assert attention.prefill_flops(tokens) == one_pair * causal_pairs(tokens, attention.window)


# --- work


@given(TOKENS, WINDOWS)
def test_pairs_are_at_most_half_the_square(tokens: int, window: int | None) -> None:
    """Causal attention touches n^2/2 pairs at most, and n W at most."""
    pairs = causal_pairs(tokens, window)

    assert 0 <= pairs <= tokens * tokens / 2
    assert window is None or pairs <= tokens * window


@given(st.integers(1, 1 << 17))
def test_pairs_are_continuous_at_the_window(window: int) -> None:
    """Both branches meet at W, with the same slope on either side."""
    at, step = causal_pairs(window, window), 2**-8

    assert at == window * window / 2
    assert causal_pairs(window + step, window) - at == window * step
    assert at - causal_pairs(window - step, window) == window * step - step * step / 2


@given(TOKENS, st.integers(1, 1 << 17), st.integers(0, 1 << 17))
def test_a_wider_window_has_no_fewer_pairs(tokens: int, window: int, more: int) -> None:
    """Pairs never fall with the window."""
    assert causal_pairs(tokens, window) <= causal_pairs(tokens, window + more)


@given(SIZES, SIZES, SIZES)
def test_a_product_costs_the_same_however_it_is_turned(m: int, n: int, k: int) -> None:
    """2 m n k does not know which dimension is which, and is linear in each."""
    assert matmul_flops(m, n, k) == matmul_flops(n, m, k) == matmul_flops(k, n, m)
    assert matmul_flops(2 * m, n, k) == 2 * matmul_flops(m, n, k)
    assert matmul_flops(1, 1, 1) == 2


# --- feed-forward


@given(FEED_FORWARD)
def test_no_more_works_than_is_held(ffn: FeedForward) -> None:
    """Active parameters are at most all, and all of them in a dense layer."""
    assert 0 < ffn.active_parameters <= ffn.parameters
    assert 0 <= ffn.expert_parameters < ffn.parameters
    if not isinstance(ffn, MoeFeedForward):
        assert ffn.active_parameters == ffn.parameters


@given(moe())
def test_a_mixture_that_chooses_all_experts_is_dense(ffn: MoeFeedForward) -> None:
    """With k = E everything works; each expert fewer works an expert less."""
    assert replace(ffn, top_k=ffn.experts).active_parameters == ffn.parameters
    idle = ffn.experts - ffn.top_k
    assert ffn.parameters - ffn.active_parameters == idle * ffn.expert.parameters


@given(moe(), st.integers(1, 64))
def test_an_expert_more_is_its_weights_and_a_row_of_the_router(ffn: MoeFeedForward, more: int) -> None:
    """Experts add their own parameters and h router weights each; active ones grow by the router alone."""
    wider = replace(ffn, experts=ffn.experts + more)

    assert wider.parameters - ffn.parameters == more * (ffn.expert.parameters + ffn.expert.hidden)
    assert wider.active_parameters - ffn.active_parameters == more * ffn.expert.hidden


# --- whole models


@given(CONFIGS)
def test_components_sum_to_parameters(config: dict[str, Any]) -> None:
    """No parameter is outside the components, none is negative, and layers add up to their own parts."""
    spec = build_spec(config)
    parts = spec.components

    assert sum(parts.values()) == spec.parameters
    assert min(parts.values()) >= 0
    layers = sum(layer.parameters(spec.hidden) for layer in spec.layers)
    outside = parts["embedding"] + parts["head"] + spec.other_norm_parameters
    assert layers + outside == spec.parameters


@given(CONFIGS)
def test_no_more_parameters_are_active_than_there_are(config: dict[str, Any]) -> None:
    """Non-embedding <= active <= all; a dense model has no experts and all are active."""
    spec = build_spec(config)

    assert 0 < spec.non_embedding_parameters < spec.active_parameters <= spec.parameters
    assert spec.parameters - spec.active_parameters <= spec.components["experts"]
    if not spec.components["experts"]:
        assert spec.active_parameters == spec.parameters


@given(dense_configs(), st.integers(1, 5))
def test_state_and_weights_are_linear_in_layers(config: dict[str, Any], times: int) -> None:
    """Equal layers each keep and hold the same."""
    one = build_spec({**config, "num_hidden_layers": 1})
    many = build_spec({**config, "num_hidden_layers": times})

    assert elements(many) == times * elements(one)
    layer = one.layers[0].parameters(one.hidden)
    assert many.parameters - one.parameters == (times - 1) * layer
    assert many.layer_map == ((times, one.layers[0]),)


@given(CONFIGS)
def test_the_layer_map_is_the_layers(config: dict[str, Any]) -> None:
    """Runs laid end to end are the layers, and neighbouring runs differ."""
    spec = build_spec(config)
    runs = spec.layer_map

    assert tuple(layer for count, layer in runs for _ in range(count)) == spec.layers
    assert all(a[1] != b[1] for a, b in pairwise(runs))
    assert len(spec.layers) == config["num_hidden_layers"] == sum(spec.attention_counts.values())


@given(CONFIGS)
def test_untying_adds_one_table(config: dict[str, Any]) -> None:
    """An untied head is another vocab x hidden, and nothing else changes."""
    tied = build_spec({**config, "tie_word_embeddings": True})
    untied = build_spec({**config, "tie_word_embeddings": False})

    assert untied.parameters == tied.parameters + tied.vocab * tied.hidden
    assert untied.non_embedding_parameters == tied.non_embedding_parameters
    assert untied.layers == tied.layers


@given(CONFIGS, st.integers(1, 1000))
def test_vocabulary_costs_the_tables_alone(config: dict[str, Any], more: int) -> None:
    """Rows of the vocabulary are rows of the embedding and of an untied head."""
    spec = build_spec(config)
    wider = build_spec({**config, "vocab_size": config["vocab_size"] + more})

    tables = 1 if spec.tied else 2
    assert wider.parameters - spec.parameters == tables * more * spec.hidden
    assert wider.non_embedding_parameters == spec.non_embedding_parameters


@given(moe_configs())
def test_choosing_more_experts_works_more_and_holds_the_same(config: dict[str, Any]) -> None:
    """top_k changes active parameters only."""
    few = build_spec({**config, "num_experts_per_tok": 1})
    all_of_them = build_spec({**config, "num_experts_per_tok": config["num_experts"]})

    assert few.parameters == all_of_them.parameters == all_of_them.active_parameters
    assert few.active_parameters <= build_spec(config).active_parameters <= all_of_them.active_parameters


@given(CONFIGS, st.integers(1, 3))
def test_multi_token_prediction_changes_no_count(config: dict[str, Any], modules: int) -> None:
    """Prediction layers are said and not counted."""
    spec = build_spec(config)
    more = build_spec({**config, "num_nextn_predict_layers": modules})

    assert more.mtp_layers == modules
    assert (more.components, more.layers) == (spec.components, spec.layers)


@given(dense_configs(), st.integers(1, 4095))
def test_a_window_changes_no_weights(config: dict[str, Any], window: int) -> None:
    """Where every layer slides, counts are those without a window."""
    full = build_spec({**config, "model_type": "mistral", "sliding_window": None})
    sliding = build_spec({**config, "model_type": "mistral", "sliding_window": window})

    assert {layer.attention.window for layer in sliding.layers} == {window}
    assert {layer.attention.window for layer in full.layers} == {None}
    assert sliding.components == full.components


@given(broken_configs(), st.booleans())
def test_a_broken_config_is_refused_in_one_line_or_answered(config: dict[str, Any], counted: bool) -> None:
    """Whatever JSON a config holds, it is built or refused as ModelError in one line: no other error, no huge answer."""
    found = outcome(config, counted_in_files=counted)

    if isinstance(found, ModelError):
        assert is_one_line(str(found))
    else:
        assert 1 <= len(found.layers) <= 10_000
        assert isinstance(found.parameters, int)
        assert 0 < found.active_parameters <= found.parameters
        assert elements(found) > 0


# --- formats


@pytest.mark.parametrize("row", FORMATS.values(), ids=FORMATS)
def test_bytes_are_at_least_the_bits(row: Format) -> None:
    """Scales only add, and never as much as another bit an element and a half."""
    assert row.bits / 8 <= row.bytes_per_element < (row.bits + 1.5) / 8


@given(st.floats(0.5, 64), st.floats(0, 256), st.integers(1, 512), st.floats(0.5, 64))
def test_bytes_grow_with_bits(bits: float, scale_bits: float, block: int, more: float) -> None:
    """More bits, more scale bits or smaller blocks are never fewer bytes."""
    row = Format("x", bits, scale_bits, block)

    assert row.bytes_per_element < replace(row, bits=bits + more).bytes_per_element
    assert row.bytes_per_element <= replace(row, scale_bits=scale_bits + more).bytes_per_element
    assert row.bytes_per_element >= replace(row, block=block + 1).bytes_per_element
    assert replace(row, scale_bits=0).bytes_per_element * 8 == pytest.approx(bits)


def test_fewer_bits_in_the_table_are_fewer_bytes() -> None:
    """No format of fewer bits takes more bytes than one of more, scales included."""
    rows = list(FORMATS.values())
    wrong = [
        (a.name, b.name) for a in rows for b in rows if a.bits < b.bits and a.bytes_per_element > b.bytes_per_element
    ]

    assert wrong == []
