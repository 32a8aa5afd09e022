"""The answer of `model`: facts with provenance, the layer map, parameters by component."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.answer import Remarks
from roofcast.calculators.describe import Fact, LayerRun, ModelResult, State, describe
from roofcast.calculators.stored import StoredComponent
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.model import load_model
from roofcast.modelspec.source import Checkpoint
from roofcast.modelspec.weights import Tensor, collect
from roofcast.reports.model import model_document
from tests.checkpoints import (
    BF16,
    DEEPSEEK_V3,
    TINY,
    TINY_KV,
    TINY_PARAMETERS,
    catalogued,
    decoder_tensors,
    deepseek_v3_tensors,
    folder_of,
    loaded,
)
from tests.hub_server import safetensors
from tests.model_configs import published
from tests.running import refused, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.modelspec.weights import WeightFiles
    from tests.checkpoints import Tensors


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
    assert first.token_state == second.token_state == State(576 * 2, "bf16")
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
            draft=False,
            attention="GQA",
            query_heads=4,
            kv_heads=2,
            window=None,
            feed_forwards=["dense 96"],
            attention_parameters=2 * 64 * 64 + 2 * 64 * 32,
            feed_forward_parameters=3 * 64 * 96,
            token_state=State(64 * 2, "bf16"),
            window_state=None,
            fixed_state=None,
        )
    ]
    assert result.kv_bytes_per_token == TINY_KV
    assert result.cache_bytes == result.reserved_bytes == {"16": 16 * TINY_KV}
    assert (result.page_tokens, result.experts) == (16, None)


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
    assert facts["quantization"].value == "fp8, blocks of 128 x 128"
    assert facts["max_context"].value == 163840


def test_without_headers_nothing_is_stored() -> None:
    """A config alone has no stored elements, and says null rather than zero."""
    result, _ = describe(loaded(TINY), weights=None, kv=BF16, contexts=None)

    assert result.stored_elements is None
    assert result.stored_bytes is None
    assert result.stored_components is None
    assert result.implied_components is None
    assert result.implied_parts is None
    assert (result.requested_components, result.requested_types) == (None, None)
    assert result.kv_format == "bf16"
    assert facts_of(result)["parameters_in_files"] == Fact("parameters_in_files", None, None)


def test_headers_say_what_is_stored() -> None:
    """Elements by dtype and bytes of all tensors are those of the headers."""
    files = collect({"x": tuple(Tensor(n, d, tuple(s)) for n, (d, s) in decoder_tensors(TINY).items())}, "x")
    result, _ = describe(loaded(TINY, files=files), weights=None, kv=BF16, contexts=None)

    assert result.stored_elements == {"BF16": TINY_PARAMETERS}
    assert result.stored_bytes == 2 * TINY_PARAMETERS
    assert result.stored_components is not None
    assert sum(part.bytes for part in result.stored_components) == result.stored_bytes
    assert result.stored_components[0] == StoredComponent("embedding", 2 * 6400, {"BF16": 6400})


def test_a_summary_has_no_components() -> None:
    """The catalogue's elements by dtype do not say which component they are of."""
    assert described("deepseek-v3").stored_components is None


def held_by(tensors: Tensors) -> WeightFiles:
    """The headers of one file with these."""
    return collect({"x": tuple(Tensor(n, d, tuple(s)) for n, (d, s) in tensors.items())}, "x")


def test_files_that_are_as_the_config_implies_agree() -> None:
    """DeepSeek-V3's headers and its quantization_config give the same bytes, component by component."""
    model = loaded(DEEPSEEK_V3, files=held_by(deepseek_v3_tensors()))
    result, said = describe(model, weights=None, kv=BF16, contexts=None)

    assert result.stored_components is not None
    assert result.implied_components is not None
    held = {part.component: part.bytes for part in result.stored_components}
    assert held.keys() - result.implied_components.keys() == {"multi_token_prediction"}
    assert held["experts"] == result.implied_components["experts"]
    assert held["scales"] == result.implied_components["scales"]
    assert not any("implies" in line for line in said.warnings)


def test_a_component_that_differs_is_warned_of() -> None:
    """Files whose attention was left in 16 bits hold twice what the config implies of it; scales are a trifle."""
    tensors = {
        name: ("BF16" if ".self_attn." in name else dtype, shape)
        for name, (dtype, shape) in deepseek_v3_tensors().items()
        if not (".self_attn." in name and name.endswith("_scale_inv"))
    }
    _, said = describe(loaded(DEEPSEEK_V3, files=held_by(tensors)), weights=None, kv=BF16, contexts=None)

    lines = [line for line in said.warnings if "implies" in line]
    assert lines == ["m: attention: the files hold 21.26 GiB (BF16), the config implies 10.63 GiB"]


def test_the_table_of_stored_components(tmp_path: Path) -> None:
    """Text shows what the files hold by component, with dtypes, in 80 columns."""
    files = {"model_safetensors": safetensors(decoder_tensors(TINY)).start}
    text = roofcast("model", folder_of(tmp_path / "m", TINY, **files)).out
    table = text[text.index("weights as stored") :].split("\n\n")[0].splitlines()

    assert table[0].split() == ["weights", "as", "stored", "GiB", "share", "dtypes"]
    assert [line.split()[0] for line in table[2:]] == ["embedding", "attention", "feed-forward", "norms", "head", "all"]
    assert table[2].split()[2:] == ["8.6%", "BF16"]
    assert max(map(len, table)) <= 80


def test_a_long_value_is_broken() -> None:
    """A fact that lists many things goes on in rows below it, and no digit or name is lost."""
    result = described("gpt2")
    names = ", ".join(f"a_key_that_nobody_reads_{n}" for n in range(9))
    long = replace(result, facts=[*result.facts, Fact("keys_not_read", names, "config")])
    rows = model_document(long, {"kv": "bf16"}, Remarks()).tables[0].rows
    broken = rows[next(n for n, row in enumerate(rows) if row[0] == "keys not read") :]

    assert len(broken) > 1
    assert {row[0] for row in broken[1:]} == {""}
    assert " ".join(row[1] for row in broken) == names
    assert model_document(long, {"kv": "bf16"}, Remarks()).tables[0].width <= 80


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


def test_every_number_of_state_has_its_format() -> None:
    """Qwen3.5-0.8B with an fp8 cache: 1,024 B a token in fp8, and 1,097,728 B fixed in bf16 and fp32."""
    result, _ = describe(loaded(published("Qwen/Qwen3.5-0.8B")), weights=None, kv=FORMATS["fp8"], contexts=None)
    delta, softmax = result.layers[:2]

    assert (delta.first, delta.last, softmax.first, softmax.last) == (0, 2, 3, 3)
    assert delta.fixed_state == State(1_097_728, "bf16+fp32")
    assert (delta.token_state, delta.window_state) == (None, None)
    assert softmax.token_state == State(1024, "fp8")
    assert (softmax.window_state, softmax.fixed_state) == (None, None)
    assert result.state_bytes == 18 * 1_097_728


def test_windows_are_capped_layer_by_layer() -> None:
    """A window of 512 keeps 512 tokens; it is not in what grows."""
    gemma = published("google/gemma-3-270m")
    result, _ = describe(loaded(gemma), weights=None, kv=BF16, contexts=None)
    windowed = result.layers[0]

    assert windowed.window == gemma["sliding_window"] == 512
    assert windowed.window_state == State(512 * 2 * 256 * 2, "bf16")
    assert windowed.token_state is None
    assert result.layers[1].token_state == State(2 * 256 * 2, "bf16")


def test_layers_of_one_thing_alone() -> None:
    """Nemotron-3-Nano: a layer mixes or feeds forward, and says null or an empty list for what it lacks."""
    nano = published("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    mamba, experts = describe(loaded(nano), weights=None, kv=BF16, contexts=None)[0].layers[:2]

    assert (mamba.attention, mamba.feed_forwards, mamba.feed_forward_parameters) == ("Mamba-2", [], 0)
    assert (experts.attention, experts.query_heads, experts.attention_parameters) == (None, None, 0)
    assert len(experts.feed_forwards) == 1
    assert (experts.token_state, experts.window_state, experts.fixed_state) == (None, None, None)


def test_draft_layers_are_marked() -> None:
    """With multi-token prediction in use its layers stand after the decoder's, marked; else they are a fact alone."""
    config = published("Qwen/Qwen3.5-0.8B")
    drafting, said = describe(
        load_model(Checkpoint("m", config, None, None, "m"), drafting=True), weights=None, kv=BF16, contexts=None
    )
    alone, _ = describe(loaded(config), weights=None, kv=BF16, contexts=None)

    assert [(run.first, run.last, run.attention) for run in drafting.layers if run.draft] == [(24, 24, "GQA")]
    assert not any(run.draft for run in alone.layers)
    assert facts_of(alone)["multi_token_prediction_layers"].value == 1
    assert facts_of(alone)["multi_token_prediction_parameters"].value == loaded(config).spec.draft_parameters
    assert "multi_token_prediction" in drafting.parameters_by_component
    assert "multi_token_prediction" not in alone.parameters_by_component
    assert any("layer 24 (GQA)" in line for line in said.notes)


def test_towers_are_a_fact() -> None:
    """What stands beside the decoder is named, and is a component; a decoder alone says nothing of towers."""
    result, _ = describe(loaded(published("google/gemma-3-4b-it")), weights=None, kv=BF16, contexts=None)
    tower = facts_of(result)["towers"]

    assert "vision" in str(tower.value)
    assert result.parameters_by_component["vision"] > 4e8
    assert "towers" not in facts_of(described("llama-3.1-8b"))


def test_experts_of_deepseek_v3() -> None:
    """8 of 256 beside one shared of 2,048 in 58 layers; 64 tokens read E (1 - (1 - k/E)^64) = 222.4 of them."""
    experts = describe(catalogued("deepseek-v3"), weights=FORMATS["fp8"], kv=BF16, contexts=None)[0].experts

    assert experts is not None
    assert (experts.experts, experts.top_k, experts.shared_width, experts.layers) == (256, 8, 2048, 58)
    assert experts.active_parameters == 37_552_282_624
    assert list(experts.expected_experts) == ["1", "16", "64"]
    assert experts.expected_experts["1"] == 8
    assert experts.expected_experts["64"] == pytest.approx(256 * (1 - (1 - 8 / 256) ** 64))
    assert experts.expected_bytes is not None
    assert experts.expected_bytes["1"] == 58 * 8 * 3 * 7168 * 2048
    assert experts.format == "fp8"


def test_bytes_of_experts_in_an_unknown_format() -> None:
    """A quantisation that is not understood leaves the experts' bytes null; mxfp4 packs matrices and not biases."""
    unknown = {**DEEPSEEK_V3, "quantization_config": {"quant_method": "hqq"}}
    stored = describe(loaded(unknown), weights=None, kv=BF16, contexts=None)[0].experts
    packed = described("gpt-oss-20b").experts

    assert stored is not None
    assert (stored.format, stored.expected_bytes) == (None, None)
    assert packed is not None
    assert packed.format == "mxfp4"
    assert packed.expected_bytes is not None
    assert packed.expected_bytes["1"] == 24 * 4 * (3 * 2880 * 2880 * 0.53125 + 3 * 2880 * 2)


def test_batches_asked_for() -> None:
    """`--batch` gives the tokens of a step; a dense model has no experts to read."""
    batches = result("model", "mixtral-8x7b", "--batch", "1,8,1k")["experts"]["expected_experts"]

    assert batches == {"1": 2, "8": 8 * (1 - 0.75**8), "1024": 8 * (1 - 0.75**1024)}
    assert result("model", "llama-3.1-8b")["experts"] is None
    refused(roofcast("model", "mixtral-8x7b", "--batch", "0"), 2, "--batch")


def test_alike_layers_share_a_row() -> None:
    """In text Qwen3.5's 24 layers are two rows, wherever the layers stand; JSON has every run."""
    out = roofcast("model", "qwen3.6-35b-a3b").out

    assert len(re.findall(r"^[0-9, .-]+ +30 +Gated DeltaNet ", out, re.MULTILINE)) == 1
    assert len(re.findall(r"^[0-9, .-]+ +10 +GQA ", out, re.MULTILINE)) == 1
    assert len(result("model", "qwen3.6-35b-a3b")["layers"]) == 20
