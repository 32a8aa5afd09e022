"""Laws of architectures: what must hold of every attention kind, every feed-forward kind and every model."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.kinds import KINDS
from roofcast.modelspec.serial import FEED_FORWARDS, spec_from_json, spec_to_json
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.model_configs import is_one_line, outcome
from tests.property.strategies import (
    ATTENTION_KINDS,
    CONFIGS,
    FEED_FORWARD_KINDS,
    KEPT,
    LATENT,
    TOKENS,
    broken_configs,
    dense_configs,
    full,
    grouped,
    moe_configs,
    specs,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.modelspec.attention import Attention, GroupedAttention
    from roofcast.modelspec.latent import LatentAttention
    from roofcast.modelspec.state import Kept

HIDDEN = st.integers(1, 1024)
DEVICES = st.integers(1, 256)


def held(parts: Iterable[Kept], tokens: int) -> int:
    """Elements that parts of state hold at a context."""
    return sum(part.elements * part.entries(tokens) for part in parts)


def kept(spec: ModelSpec, tokens: int) -> int:
    """Elements that a whole model holds at a context."""
    return sum(count * held((part,), tokens) for part, count in spec.kept.items())


def test_every_kind_has_a_strategy() -> None:
    """A new kind is under these laws from its first day."""
    assert ATTENTION_KINDS.keys() == KINDS.keys()
    assert FEED_FORWARD_KINDS.keys() == FEED_FORWARDS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_a_strategy_makes_its_kind(name: str) -> None:
    """The strategy of a name makes the class of that name."""

    @given(ATTENTION_KINDS[name])
    def check(attention: object) -> None:
        assert type(attention) is KINDS[name].cls

    check()


# --- state


@given(KEPT, TOKENS, TOKENS)
def test_more_context_never_shrinks_a_part(part: Kept, tokens: int, more: int) -> None:
    """Entries never fall with the context, and never pass its cap, its tokens or, where fixed, one."""
    limit = 1 if part.fixed else tokens if part.cap is None else min(tokens, part.cap)

    assert 0 <= part.entries(tokens) <= part.entries(tokens + more)
    assert part.entries(tokens) <= limit


@given(KEPT, TOKENS)
def test_a_cap_never_keeps_more(part: Kept, tokens: int) -> None:
    """A capped part holds at most what it would without a cap, and as much up to the cap."""
    uncapped = replace(part, cap=None)

    assert part.entries(tokens) <= uncapped.entries(tokens)
    assert part.cap is None or tokens > part.cap or part.entries(tokens) == uncapped.entries(tokens)


@given(KEPT, DEVICES)
def test_shards_of_a_part_hold_the_whole(part: Kept, tp: int) -> None:
    """All devices together hold at least the whole, none more than it, and exactly it where they divide the heads."""
    assert part.elements <= part.shard(tp) * tp
    assert part.shard(tp) <= part.elements == part.shard(1)
    assert (part.shard(tp) * tp == part.elements) == (part.heads % tp == 0)


@given(KEPT, DEVICES, DEVICES)
def test_more_devices_never_hold_more_each(part: Kept, tp: int, more: int) -> None:
    """A device's share never grows with their number, down to one head."""
    assert part.shard(tp + more) <= part.shard(tp)
    assert part.shard(part.heads + more) == part.width


@pytest.mark.parametrize("name", KINDS)
def test_more_context_never_shrinks_a_kinds_state(name: str) -> None:
    """Whatever a kind keeps, a token more never takes from it; its parts have heads and formats that engines know."""

    @given(ATTENTION_KINDS[name], TOKENS, TOKENS)
    def check(attention: Attention, tokens: int, more: int) -> None:
        assert 0 <= held(attention.state, tokens) <= held(attention.state, tokens + more)
        assert all(part.heads > 0 <= part.width for part in attention.state)
        assert {part.format for part in attention.state} <= {"cache", "model", "fp32"}

    check()


@pytest.mark.parametrize("name", KINDS)
def test_heads_that_split_are_shared_evenly(name: str) -> None:
    """Where devices can share a kind, each part sums to the whole exactly, or has fewer heads and is a head each."""

    @given(ATTENTION_KINDS[name], st.data())
    def check(attention: Attention, data: st.DataObject) -> None:
        heads = max([1, attention.query_heads, *(part.heads for part in attention.state)])
        tp = data.draw(st.sampled_from([n for n in range(1, heads + 1) if heads % n == 0]) | DEVICES)
        if not attention.splits(tp):
            assert tp > 1
            return
        for part in attention.state:
            whole = part.heads % tp == 0
            assert part.shard(tp) * tp == part.elements * (1 if whole else tp // part.heads)
            assert whole or tp % part.heads == 0

    check()


def may_slide(cls: Any) -> bool:
    """Whether layers of a kind may have a window."""
    return "window" in {field.name for field in fields(cls)}


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if may_slide(kind.cls)])
def test_a_window_never_keeps_more_than_full_attention(name: str) -> None:
    """The same layer without its window keeps at least as much at every context, and as much up to the window."""

    @given(ATTENTION_KINDS[name], TOKENS)
    def check(attention: Any, tokens: int) -> None:
        whole = replace(attention, window=None)
        reached = attention.window is not None and tokens > attention.window
        assert held(attention.state, tokens) <= held(whole.state, tokens)
        assert reached or held(attention.state, tokens) == held(whole.state, tokens)
        assert attention.parameters(64) == whole.parameters(64)

    check()


@given(ATTENTION_KINDS["compressed"], TOKENS, st.integers(1, 512))
def test_a_wider_window_of_single_tokens_keeps_no_less(attention: Any, tokens: int, more: int) -> None:
    """Compressed attention keeps single tokens up to its window, and its entries whatever that is."""
    wider = replace(attention, sliding_window=attention.sliding_window + more)

    assert held(attention.state, tokens) <= held(wider.state, tokens)


@given(LATENT, st.integers(1, 512))
def test_a_latent_does_not_grow_with_heads(attention: LatentAttention, heads: int) -> None:
    """One latent serves however many heads, which cost weights and work only."""
    other = replace(attention, query_heads=heads)

    assert other.state == attention.state
    assert (other.parameters(64) > attention.parameters(64)) == (heads > attention.query_heads)


@given(grouped().map(full), st.data())
def test_fewer_kv_heads_keep_less(attention: GroupedAttention, data: st.DataObject) -> None:
    """Elements and weights fall with the KV heads, in proportion; prefill does not change."""
    fewer = replace(attention, kv_heads=data.draw(st.integers(1, attention.kv_heads)))

    assert held(fewer.state, 9) * attention.kv_heads == held(attention.state, 9) * fewer.kv_heads
    assert (fewer.parameters(64) < attention.parameters(64)) == (fewer.kv_heads < attention.kv_heads)
    assert fewer.prefill_flops(1000) == attention.prefill_flops(1000)


@given(grouped())
def test_a_layer_that_reads_anothers_keys_keeps_none(attention: GroupedAttention) -> None:
    """Without keys of its own there is no state and less to project; without a value projection, as much state."""
    reader, alike = replace(attention, stores=False), replace(attention, stores=True, value_projection=False)

    assert reader.state == ()
    assert reader.parameters(64) < replace(attention, stores=True, value_projection=True).parameters(64)
    assert alike.state == replace(alike, value_projection=True).state


# --- whole models of any layers


@given(specs())
def test_components_are_all_of_a_model_once(spec: ModelSpec) -> None:
    """No parameter is outside the components, none is negative, and layers add up to their own parts."""
    parts = spec.components
    layers = sum(layer.parameters(spec.hidden) for layer in spec.layers)
    rows = spec.vocab + (0 if spec.tied else spec.head_rows or spec.vocab)
    tables = rows * spec.hidden + spec.position_parameters + spec.head_bias_parameters + spec.table_parameters
    beside = sum(tower.parameters for tower in spec.towers) + spec.draft_parameters * spec.drafting

    assert sum(parts.values()) == spec.parameters
    assert min(parts.values()) >= 0
    assert layers + tables + spec.other_norm_parameters + spec.other_parameters + beside == spec.parameters
    assert spec.decoder_parameters <= spec.parameters


@given(specs())
def test_no_more_parameters_work_than_there_are(spec: ModelSpec) -> None:
    """Active parameters are at most all, and short of them by idle experts alone."""
    experts = sum(part.expert_parameters for layer in spec.active_layers for part in layer.feed_forwards)

    assert 0 < spec.active_parameters <= spec.parameters
    assert spec.parameters - spec.active_parameters <= experts
    assert 0 <= spec.non_embedding_parameters <= spec.active_parameters


@given(specs())
def test_tying_never_raises_parameters(spec: ModelSpec) -> None:
    """One table instead of two is the head's rows x width fewer, and changes no state."""
    tied, untied = replace(spec, tied=True), replace(spec, tied=False)

    assert tied.parameters == untied.parameters - (spec.head_rows or spec.vocab) * spec.hidden
    assert tied.kept == untied.kept


@given(specs(), TOKENS, TOKENS)
def test_more_context_never_shrinks_a_models_state(spec: ModelSpec, tokens: int, more: int) -> None:
    """A token more is never fewer elements, and the whole is the sum of its layers."""
    assert kept(spec, tokens) <= kept(spec, tokens + more)
    assert kept(spec, tokens) == sum(held(layer.state, tokens) for layer in spec.active_layers)


@given(specs(), TOKENS, DEVICES)
def test_shards_of_a_model_hold_the_whole(spec: ModelSpec, tokens: int, tp: int) -> None:
    """All devices together hold at least the state, and exactly it where they divide the heads of every part."""
    shards = tp * sum(n * part.shard(tp) * part.entries(tokens) for part, n in spec.kept.items())

    assert kept(spec, tokens) <= shards
    if all(part.heads % tp == 0 for part in spec.kept):
        assert kept(spec, tokens) == shards


@given(specs(), TOKENS)
def test_drafting_never_lowers_state_or_parameters(spec: ModelSpec, tokens: int) -> None:
    """Layers of multi-token prediction only add: their state, their parameters, and those of them that work."""
    off, on = replace(spec, drafting=False), replace(spec, drafting=True)

    assert kept(on, tokens) == kept(off, tokens) + sum(held(layer.state, tokens) for layer in spec.draft)
    assert on.parameters == off.parameters + spec.draft_parameters
    assert on.active_parameters >= off.active_parameters
    assert on.mtp_layers == off.mtp_layers


@given(specs())
def test_json_of_a_model_loads_back_equal(spec: ModelSpec) -> None:
    """Through text and back every model is itself, whatever its kinds; equal layers are written once."""
    document = spec_to_json(spec)

    assert spec_from_json(json.loads(json.dumps(document))) == spec
    assert len(document["layer_table"]) == len({*spec.layers, *spec.draft})


# --- models of configs


@given(CONFIGS)
def test_a_dense_config_has_no_experts_and_all_its_parameters_work(config: dict[str, Any]) -> None:
    """Non-embedding < active <= all, short of them by experts alone."""
    spec = build_spec(config)

    assert 0 < spec.non_embedding_parameters < spec.active_parameters <= spec.parameters
    assert spec.parameters - spec.active_parameters <= spec.components["experts"]


@given(dense_configs(), st.integers(1, 5))
def test_state_and_weights_are_linear_in_layers(config: dict[str, Any], times: int) -> None:
    """Equal layers each keep and hold the same."""
    one = build_spec({**config, "num_hidden_layers": 1})
    many = build_spec({**config, "num_hidden_layers": times})

    assert kept(many, 100) == times * kept(one, 100)
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
    assert len(spec.layers) == config["num_hidden_layers"] == spec.layer_counts.total()


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
    """Prediction layers are said and not counted, until they are in use."""
    spec = build_spec(config)
    more = build_spec({**config, "num_nextn_predict_layers": modules})

    assert more.mtp_layers == modules
    assert (more.components, more.layers) == (spec.components, spec.layers)
    assert replace(more, drafting=True).parameters > spec.parameters


@given(dense_configs(), st.integers(1, 4095))
def test_a_window_changes_no_weights(config: dict[str, Any], window: int) -> None:
    """Where every layer slides, counts are those without a window."""
    whole = build_spec({**config, "model_type": "mistral", "sliding_window": None})
    sliding = build_spec({**config, "model_type": "mistral", "sliding_window": window})

    assert {mixer.window for layer in sliding.layers for mixer in layer.mixers} == {window}
    assert {mixer.window for layer in whole.layers for mixer in layer.mixers} == {None}
    assert sliding.components == whole.components


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
        assert kept(found, 1) >= 0
