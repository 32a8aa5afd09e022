"""The answer of `model`: facts with provenance, the layer map, parameters by component."""

from __future__ import annotations

from roofcast.calculators.describe import Fact, LayerRun, ModelResult, describe
from roofcast.modelspec.weights import Tensor, collect
from tests.checkpoints import (
    BF16,
    DEEPSEEK_V3,
    TINY,
    TINY_KV,
    TINY_PARAMETERS,
    catalogued,
    decoder_tensors,
    loaded,
)


def described(name: str) -> ModelResult:
    """Return the answer for a model of the catalogue."""
    return describe(catalogued(name), weights=None, kv=BF16, contexts=None)[0]


def facts_of(result: ModelResult) -> dict[str, Fact]:
    """Return the facts by name, each of which stands once."""
    facts = {fact.name: fact for fact in result.facts}
    assert len(facts) == len(result.facts)
    return facts


def test_runs_of_alike_layers() -> None:
    """DeepSeek-V3 has three dense layers and then 58 with experts; all attend alike."""
    first, second = described("deepseek-v3").layers

    assert (first.first, first.last, second.first, second.last) == (0, 2, 3, 60)
    assert first.attention == second.attention == "MLA"
    assert first.kv_elements_per_token == second.kv_elements_per_token == 576
    assert first.feed_forward_parameters == 3 * 7168 * 18432
    # 256 routed and one shared expert, the router, its correction bias where the reference has it as a parameter
    assert second.feed_forward_parameters == 257 * 3 * 7168 * 2048 + 256 * 7168


def test_the_layers_of_a_small_model() -> None:
    """One run of two equal layers, every figure by hand."""
    result, _ = describe(loaded(TINY), weights=None, kv=BF16, contexts=[16])

    assert result.layers == [
        LayerRun(
            first=0,
            last=1,
            attention="GQA",
            query_heads=4,
            kv_heads=2,
            window=None,
            feed_forward=result.layers[0].feed_forward,
            attention_parameters=2 * 64 * 64 + 2 * 64 * 32,
            feed_forward_parameters=3 * 64 * 96,
            kv_elements_per_token=64,
        )
    ]
    assert "96" in result.layers[0].feed_forward
    assert result.kv_bytes_per_token == TINY_KV
    assert result.cache_bytes == {"16": 16 * TINY_KV}


def test_components_add_up() -> None:
    """Parameters by component sum to the parameters, embedding and head apart, experts apart."""
    components = described("deepseek-v3").parameters_by_component

    assert sum(components.values()) == 671_026_404_352
    assert components["embedding"] == components["head"] == 129280 * 7168
    assert components["experts"] == 58 * 256 * 3 * 7168 * 2048


def test_tied_embeddings_count_once() -> None:
    """Where the head is the embedding, it adds nothing."""
    result, _ = describe(loaded(TINY | {"tie_word_embeddings": True}), weights=None, kv=BF16, contexts=None)

    assert result.parameters_by_component["head"] == 0
    assert sum(result.parameters_by_component.values()) == TINY_PARAMETERS - 100 * 64


def test_every_fact_has_a_provenance() -> None:
    """A fact with a value says where it is from; one without says nothing."""
    for name in ("llama-3.1-8b", "deepseek-v3", "gpt2"):
        for fact in described(name).facts:
            assert (fact.value is None) == (fact.provenance is None), fact
            assert fact.provenance in {None, "config", "header", "assumed"}


def test_facts_of_deepseek_v3() -> None:
    """What the config states, what the files hold, and what is counted stand side by side."""
    facts = facts_of(described("deepseek-v3"))

    assert facts["attention"] == Fact("attention", "MLA", "config")
    assert facts["multi_token_prediction_layers"].value == 1
    assert facts["parameters"].value == 671_026_404_352
    assert facts["active_parameters"].value == 37_552_282_624
    assert facts["active_non_embedding_parameters"].value == 37_552_282_624 - 2 * 129280 * 7168
    assert facts["parameters_in_files"] == Fact("parameters_in_files", 684_489_830_400, "header")
    assert facts["weight_bytes"].provenance == "header"
    assert facts["quantization"].value == "fp8"
    assert facts["max_context"].value == 163840


def test_without_headers_nothing_is_stored() -> None:
    """A config alone has no stored elements, and says null rather than zero."""
    result, _ = describe(loaded(TINY), weights=None, kv=BF16, contexts=None)

    assert result.stored_elements is None
    assert result.stored_bytes is None
    assert facts_of(result)["parameters_in_files"] == Fact("parameters_in_files", None, None)


def test_headers_say_what_is_stored() -> None:
    """Elements by dtype and bytes of all tensors are those of the headers."""
    files = collect({"x": tuple(Tensor(n, d, tuple(s)) for n, (d, s) in decoder_tensors(TINY).items())}, "x")
    result, _ = describe(loaded(TINY, files=files), weights=None, kv=BF16, contexts=None)

    assert result.stored_elements == {"BF16": TINY_PARAMETERS}
    assert result.stored_bytes == 2 * TINY_PARAMETERS


def test_mtp_without_headers_is_warned_of() -> None:
    """A config with a multi-token-prediction layer and no headers: the bytes lack that layer, and it is said."""
    _, said = describe(loaded(DEEPSEEK_V3), weights=BF16, kv=BF16, contexts=None)

    assert any("multi-token" in line for line in said.warnings)


def test_an_assumed_dtype_is_marked() -> None:
    """Weights in an assumed format carry `assumed` and the assumption."""
    config = {key: value for key, value in TINY.items() if key != "torch_dtype"}
    result, said = describe(loaded(config), weights=None, kv=BF16, contexts=None)

    assert facts_of(result)["weight_bytes"] == Fact("weight_bytes", 2 * TINY_PARAMETERS, "assumed")
    assert facts_of(result)["stated_dtype"].value is None
    assert len(said.assumptions) == 1
