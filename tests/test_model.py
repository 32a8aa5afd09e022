"""A model with its files: counts from one or the other, bytes and their provenance, and differences that are said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofcast.modelspec.errors import MalformedModelError, UndeterminedModelError, UnknownArchitectureError
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.known import find_known
from roofcast.modelspec.model import Amount, load_model
from roofcast.modelspec.source import Checkpoint
from roofcast.modelspec.weights import Tensor, WeightFiles, collect, summarise
from tests.model_configs import DEEPSEEK, LLAMA, is_one_line, llama_tensors, published
from tests.tiny_files import difference, files, model

# 2 tables of 500 x 64, 4 layers of Q, O 64 x 64, K, V 64 x 16, three 64 x 96 and two norms, and the last norm
PARAMETERS = 2 * 500 * 64 + 4 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96 + 2 * 64) + 64
EMBEDDING = 500 * 64
TIED = {**LLAMA, "tie_word_embeddings": True}
NEW = {**LLAMA, "model_type": "brand_new"}
BF16, FP8, NVFP4 = FORMATS["bf16"], FORMATS["fp8"], FORMATS["nvfp4"]


def test_config_alone_counts_the_architecture() -> None:
    """Without files parameters are the config's, and none are in files."""
    alone = model(LLAMA)

    assert alone.parameters == Amount(PARAMETERS, "config")
    assert alone.parameters_in_files is None
    assert alone.files is None


def test_files_that_agree_say_nothing() -> None:
    """Tensors that add up to the architecture give both counts and no warning."""
    agreeing = model(LLAMA, files())

    assert agreeing.parameters == Amount(PARAMETERS, "config")
    assert agreeing.parameters_in_files == PARAMETERS


@pytest.mark.parametrize(
    ("weights", "held"),
    [
        (files(without="layers.3."), PARAMETERS - (PARAMETERS - 2 * EMBEDDING - 64) // 4),
        (files(Tensor("model.layers.0.self_attn.q_proj.bias", "BF16", (64,))), PARAMETERS + 64),
        (files(Tensor("vision.patch.weight", "BF16", (10, 10))), PARAMETERS + 100),
        (files(without="lm_head"), PARAMETERS - EMBEDDING),
        (files(config={**LLAMA, "intermediate_size": 97}), PARAMETERS + 4 * 3 * 64),
    ],
)
def test_files_that_differ_are_said(weights: WeightFiles, held: int) -> None:
    """A missing layer, a bias, a foreign tensor or another width is a warning that names both counts."""
    warning = difference(LLAMA, weights)

    assert f"{held:,}" in warning
    assert f"{PARAMETERS:,}" in warning
    assert warning.startswith("tiny: ")
    assert model(LLAMA, weights).parameters.value == PARAMETERS
    assert model(LLAMA, weights).parameters_in_files == held


def test_a_tied_head_may_be_stored_once_or_twice() -> None:
    """Files with or without a copy of the tied head agree with the architecture; a third copy does not."""
    third = Tensor("third.weight", "BF16", (500, 64))

    assert model(TIED, files(without="lm_head")).parameters == Amount(PARAMETERS - EMBEDDING, "config")
    assert model(TIED, files()).parameters == Amount(PARAMETERS - EMBEDDING, "config")
    assert f"{PARAMETERS + EMBEDDING:,}" in difference(TIED, files(third))


def test_an_untied_head_stored_twice_is_a_difference() -> None:
    """Where the head is a tensor of its own, a further table is not explained."""
    difference(LLAMA, files(Tensor("copy.weight", "BF16", (500, 64))))


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.4.self_attn.q_proj.weight",
        "model.layers.4.eh_proj.weight",
        "layers.17.enorm.weight",
        "transformer.h.4.mlp.weight",
        "mtp.fc.weight",
        "model.mtp_layers.0.mlp.weight",
        "model.nextn.0.weight",
    ],
)
def test_tensors_beyond_the_decoder_are_taken_out(name: str) -> None:
    """Multi-token prediction is in the files and not in the decoder's count."""
    more = model({**LLAMA, "num_nextn_predict_layers": 14}, files(Tensor(name, "BF16", (64, 64))))

    assert more.parameters == Amount(PARAMETERS, "config")
    assert more.parameters_in_files == PARAMETERS + 64 * 64
    assert more.weight_bytes(None).value == 2 * (PARAMETERS + 64 * 64)


@pytest.mark.parametrize(
    "name", ["model.layers.2.mlp.gate.e_score_correction_bias", "model.layers.2.block_sparse_moe.expert_bias"]
)
def test_a_correction_bias_of_a_router_is_a_buffer(name: str) -> None:
    """The reference implementation does not count it, so files that hold it do not differ."""
    assert model(LLAMA, files(Tensor(name, "F32", (8,)))).parameters == Amount(PARAMETERS, "config")


def test_a_correction_bias_that_counts_is_no_difference() -> None:
    """Of ERNIE 4.5 the reference counts it as a parameter: files that hold it agree with the architecture."""
    ernie = {**LLAMA, "model_type": "ernie4_5_moe", "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32}
    ernie |= {"moe_num_shared_experts": 0, "moe_layer_start_index": 1}
    count = model(ernie).spec.parameters
    biases = tuple(
        Tensor(f"model.layers.{layer}.mlp.moe_statics.e_score_correction_bias", "F32", (1, 4)) for layer in (1, 2, 3)
    )
    weights = collect({"x.safetensors": (Tensor("model.rest.weight", "BF16", (count - 3 * 4,)), *biases)}, "x")

    assert model(ernie, weights).parameters == Amount(count, "config")


@pytest.mark.parametrize("name", ["model.layers.3.extra.weight", "decoder.weight", "prompt.weight", "player.4.weight"])
def test_other_tensors_are_not_taken_out(name: str) -> None:
    """Only what belongs to prediction or lies beyond the last layer is."""
    difference(LLAMA, files(Tensor(name, "BF16", (3,))))


def test_scales_are_stored_and_are_no_parameters() -> None:
    """Quantisation scales count in bytes and not in parameters."""
    scaled = model(LLAMA, files(Tensor("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", (8,))))

    assert scaled.parameters == Amount(PARAMETERS, "config")
    assert scaled.parameters_in_files == PARAMETERS
    assert scaled.weight_bytes(None) == Amount(2 * PARAMETERS + 32, "header")


def test_layers_that_no_key_announces_are_warned_of() -> None:
    """Files with more layers than a known class's config has contradict it, and the answer says so."""
    more = model(LLAMA, files(Tensor("model.layers.4.self_attn.q_proj.weight", "BF16", (64, 64))))

    assert more.parameters.warning is not None
    assert "hold layer 4, but the config has 4 layers" in more.parameters.warning


def test_kv_heads_that_the_files_contradict_are_warned_of() -> None:
    """Projections of a known class with other rows than the config implies contradict it, packed ones too."""
    lying = {**LLAMA, "num_key_value_heads": 1}
    scales = files(Tensor("model.layers.0.self_attn.k_proj.scales", "F16", (1, 64)))

    for weights in (files(), scales):
        warning = model(lying, weights).parameters.warning
        assert warning is not None
        assert "does not confirm its attention" in warning


def test_a_summary_is_held_against_the_config() -> None:
    """Elements by dtype give bytes and the number in the files; where nothing else can be in them they must agree."""
    assert model(LLAMA, summarise({"BF16": PARAMETERS}, "hub summary")).parameters == Amount(PARAMETERS, "config")
    summary = model(LLAMA, summarise({"BF16": PARAMETERS + 5}, "hub summary"))

    assert summary.parameters.warning is not None
    assert f"{PARAMETERS + 5:,}" in summary.parameters.warning
    assert summary.parameters_in_files == PARAMETERS + 5
    assert summary.weight_bytes(None) == Amount(2 * (PARAMETERS + 5), "header")


# --- bytes as stored


@pytest.mark.parametrize(("dtype", "size"), [("F32", 4), ("F16", 2), ("BF16", 2), ("F8_E4M3", 1)])
def test_stored_bytes_from_headers(dtype: str, size: int) -> None:
    """Bytes are those of the tensors, whatever the config says of its dtype."""
    weights = collect({"model.safetensors": llama_tensors(LLAMA, dtype)}, "x")

    assert model({**LLAMA, "torch_dtype": "float64"}, weights).weight_bytes(None) == Amount(PARAMETERS * size, "header")


def test_stored_bytes_from_the_configs_dtype() -> None:
    """Without files the config's dtype gives the bytes, and says so."""
    assert model({**LLAMA, "torch_dtype": "float32"}).weight_bytes(None) == Amount(4 * PARAMETERS, "config")
    assert model({**LLAMA, "dtype": "bfloat16"}).weight_bytes(None) == Amount(2 * PARAMETERS, "config")


def test_stored_bytes_without_a_dtype_are_assumed() -> None:
    """Where nothing says the dtype it is taken as bf16, and the assumption is listed."""
    amount = model(LLAMA).weight_bytes(None)

    assert (amount.value, amount.provenance, amount.warning) == (2 * PARAMETERS, "assumed", None)
    assert amount.assumption is not None
    assert "tiny" in amount.assumption
    assert "bf16" in amount.assumption
    assert is_one_line(amount.assumption)


def test_stored_bytes_of_an_unknown_quantisation_need_headers() -> None:
    """A quantisation that is not understood does not tell its bytes: null, and a warning that names the method."""
    hqq = {**LLAMA, "torch_dtype": "float16", "quantization_config": {"quant_method": "hqq", "bits": 4}}
    amount = model(hqq).weight_bytes(None)

    assert (amount.value, amount.provenance, amount.assumption) == (None, None, None)
    assert amount.warning is not None
    assert "hqq" in amount.warning
    assert is_one_line(amount.warning)
    assert model(hqq, files()).weight_bytes(None) == Amount(2 * PARAMETERS, "header")


def test_a_broken_quantisation_needs_headers() -> None:
    """Bits that are no number refuse a config alone; with the files at hand their bytes are told, and it is said."""
    broken = {**LLAMA, "torch_dtype": "float16", "quantization_config": {"quant_method": "awq", "bits": "four"}}
    with pytest.raises(MalformedModelError, match="bits is 'four'"):
        model(broken)
    read = model(broken, files())
    assert read.weight_bytes(None).value == 2 * PARAMETERS
    assert read.implied is None
    assert "bits is 'four'" in str(read.implied_problem)


# --- bytes in a requested format


def test_requested_bytes_count_the_parameters_in_the_files() -> None:
    """Headers give the number, multi-token prediction included; scales are the format's own business."""
    weights = files(
        Tensor("model.layers.4.eh_proj.weight", "BF16", (64, 128)),
        Tensor("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", (8,)),
    )
    loaded = model({**LLAMA, "num_nextn_predict_layers": 1}, weights)

    assert loaded.weight_bytes(FP8) == Amount(PARAMETERS + 64 * 128, "header")
    assert loaded.weight_bytes(NVFP4) == Amount((PARAMETERS + 64 * 128) * 0.5625, "header")


def test_requested_bytes_without_headers_count_the_architecture() -> None:
    """The config's count times the format's bytes."""
    assert model(LLAMA).weight_bytes(FP8) == Amount(PARAMETERS, "config")
    assert model({**LLAMA, "torch_dtype": "float32"}).weight_bytes(BF16) == Amount(2 * PARAMETERS, "config")


@pytest.mark.parametrize("requested", [None, BF16])
def test_multi_token_prediction_that_bytes_leave_out_is_said(requested: Any) -> None:
    """Without headers the modules that published files hold are not in the bytes, and a warning says it."""
    alone = model({**DEEPSEEK, "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1})
    amount = alone.weight_bytes(requested)

    assert amount.value == 2 * alone.spec.parameters
    assert amount.provenance == "config"
    assert amount.warning is not None
    assert "multi-token" in amount.warning
    assert is_one_line(amount.warning)


@pytest.mark.parametrize(
    "weights",
    [
        files(Tensor("model.layers.0.mlp.up_proj.qweight", "I32", (8, 8))),  # packed
        summarise({"I32": 1000, "F16": 10}, "hub summary"),
    ],
)
def test_files_that_hide_their_number_fall_back_aloud(weights: WeightFiles) -> None:
    """Where files do not tell their parameters the config's count is used, and what it leaves out is still said."""
    hidden = model({**DEEPSEEK, "num_nextn_predict_layers": 1}, weights)
    amount = hidden.weight_bytes(BF16)

    assert hidden.parameters_in_files is None
    assert (amount.value, amount.provenance) == (2 * hidden.spec.parameters, "config")
    assert amount.warning is not None
    assert "multi-token" in amount.warning


def test_catalogued_deepseek_v3_holds_both_counts() -> None:
    """The reference counts 671.0B; the files hold 684.5B with prediction, 1275.0 GiB in bf16, stored in FP8."""
    entry = find_known("deepseek-v3")
    assert entry is not None
    assert entry.files is not None
    deepseek = model(dict(entry.config), summarise(entry.files, "catalogue"), scales=entry.scales)

    assert deepseek.parameters.value == 671_026_404_352
    assert deepseek.parameters_in_files == pytest.approx(684.49e9, rel=1e-5)
    bf16 = deepseek.weight_bytes(BF16)
    assert bf16.provenance == "header"
    assert bf16.value is not None
    assert round(bf16.value / 2**30, 1) == 1275.0
    assert deepseek.weight_bytes(None).value == 2 * 3_918_786_560 + 680_571_043_840 + 4 * 41_555_600


def test_scales_in_a_summary_are_known_of_the_catalogue_only() -> None:
    """The catalogue says how many elements are scales; the Hub's summary by dtype does not, and counts them."""
    summary = summarise({"F8_E4M3": 1000, "F32": 10}, "catalogue")

    assert model(LLAMA, summary, scales=10).parameters_in_files == 1000
    assert model(LLAMA, replace(summary, origin="hub summary"), scales=10).parameters_in_files == 1010


# --- multi-token prediction in use


def test_a_state_that_nothing_bounds_is_refused_with_its_source() -> None:
    """T5 without a number of encoder tokens cannot be determined, whoever asks; with one it can."""
    t5 = published("shrunk/t5")

    with pytest.raises(UndeterminedModelError, match=r"^a test: .*--encoder-tokens"):
        model(t5)
    asked = load_model(Checkpoint("t5", t5, None, None, "a test"), encoder_tokens=24)
    assert asked.encoder_tokens == 24
    assert sum(n for part, n in asked.spec.kept.items() if part.fixed) == len(asked.spec.layers)


# --- classes outside the table


def test_an_unknown_class_counts_what_its_files_hold() -> None:
    """With headers that confirm its attention it is answered, from the files, with a warning."""
    weights = files(
        Tensor("model.layers.0.mlp.extra.weight", "BF16", (7,)),
        Tensor("model.layers.4.eh_proj.weight", "BF16", (64, 128)),
    )
    amount = model({**NEW, "num_nextn_predict_layers": 1}, weights).parameters

    assert (amount.value, amount.provenance) == (PARAMETERS + 7, "header")
    assert amount.assumption is not None
    assert amount.warning is not None
    assert "'brand_new'" in amount.warning
    assert is_one_line(amount.warning)


def test_an_unknown_class_whose_files_hide_their_number() -> None:
    """Packed weights beside projections that confirm: no count, no bytes in another format, and no provenance."""
    packed = model(NEW, files(Tensor("model.layers.0.mlp.up_proj.qweight", "I32", (8, 8))))

    assert (packed.parameters.value, packed.parameters.provenance) == (None, None)
    assert packed.parameters.warning is not None
    assert packed.weight_bytes(None).provenance == "header"
    requested = packed.weight_bytes(FP8)
    assert (requested.value, requested.provenance) == (None, None)


def test_an_unknown_class_without_headers_is_refused() -> None:
    """A config alone, or a summary without tensors, does not answer for a class outside the table."""
    with pytest.raises(UnknownArchitectureError, match=r"^a test: model_type 'brand_new' is not known"):
        model(NEW)
    with pytest.raises(UnknownArchitectureError, match=r"^a test: model_type 'brand_new' is not known"):
        model(NEW, summarise({"BF16": PARAMETERS}, "hub summary"))


def test_an_unknown_class_whose_headers_do_not_confirm_is_refused() -> None:
    """KV projections of another width than the config implies refuse it."""
    with pytest.raises(UnknownArchitectureError, match="32 rows, not 16"):
        model(NEW, files(config={**LLAMA, "num_key_value_heads": 4}))


def test_a_known_class_is_not_held_against_its_projections() -> None:
    """What the table knows needs no confirmation: fused projections of Phi-3 have other names."""
    fused = collect({"x.safetensors": (Tensor("model.layers.0.self_attn.qkv_proj.weight", "BF16", (96, 64)),)}, "x")

    assert model({**LLAMA, "model_type": "phi3"}, fused).parameters.value == PARAMETERS


def test_errors_name_the_source() -> None:
    """A broken config is refused with where it came from, as what it is."""
    with pytest.raises(MalformedModelError, match=r"^a test: hidden_size .*is missing"):
        model({"model_type": "llama"})
    with pytest.raises(UnknownArchitectureError, match=r"^a test: .*mamba_d_state"):
        model({**LLAMA, "mamba_d_state": 16})


def test_what_went_wrong_with_the_files_is_kept() -> None:
    """Why there are no headers stays with the model."""
    loaded = load_model(Checkpoint("tiny", LLAMA, None, "connection refused", "a test"))

    assert loaded.files_problem == "connection refused"
    assert (loaded.name, loaded.source) == ("tiny", "a test")
