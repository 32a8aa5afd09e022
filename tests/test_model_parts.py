"""A model's further parts with its files: draft layers that draft, and towers that are known or not."""

from __future__ import annotations

from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.model import Amount, load_model
from roofcast.modelspec.source import Checkpoint
from roofcast.modelspec.weights import Tensor, collect
from tests.model_configs import DEEPSEEK, LLAMA, is_one_line, published
from tests.tiny_files import difference, files, model

# 2 tables of 500 x 64, 4 layers of Q, O 64 x 64, K, V 64 x 16, three 64 x 96 and two norms, and the last norm
PARAMETERS = 2 * 500 * 64 + 4 * (2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 96 + 2 * 64) + 64
BF16 = FORMATS["bf16"]
FP8 = FORMATS["fp8"]


def test_drafting_counts_the_draft_layers() -> None:
    """Asked for, they are in the parameters and in bytes counted from the config, without the warning that they lack."""
    config = {**DEEPSEEK, "torch_dtype": "bfloat16", "num_nextn_predict_layers": 1}
    alone, drafting = model(config), load_model(Checkpoint("tiny", config, None, None, "a test"), drafting=True)

    assert drafting.parameters.value == alone.spec.parameters + alone.spec.draft_parameters
    assert drafting.weight_bytes(None) == Amount(2 * drafting.spec.parameters, "config")
    assert drafting.active_parameters == drafting.spec.active_parameters
    assert alone.active_parameters is not None
    assert drafting.spec.active_parameters > alone.active_parameters


def test_drafting_holds_the_files_against_the_decoder() -> None:
    """Files that hold the decoder agree with it whether or not multi-token prediction is in use."""
    config = {**LLAMA, "num_nextn_predict_layers": 1}
    weights = files(Tensor("model.layers.4.eh_proj.weight", "BF16", (64, 128)))
    drafting = load_model(Checkpoint("tiny", config, weights, None, "a test"), drafting=True)

    assert drafting.parameters.warning is None
    assert drafting.weight_bytes(None).value == 2 * (PARAMETERS + 64 * 128)


# --- towers beside a decoder

# a wrapper that nobody has checked around the small Llama, and one whose towers are known
UNKNOWN_TOWERS = {
    "model_type": "brand_new_vl",
    "text_config": {**LLAMA, "torch_dtype": "bfloat16"},
    "vision_config": {},
}
GEMMA = published("google/gemma-3-4b-it")


def test_unknown_towers_are_not_counted_from_the_config() -> None:
    """Parameters and bytes are null, and the warning names the class and what the text model alone has."""
    alone = model(UNKNOWN_TOWERS)
    amount = alone.parameters

    assert (amount.value, amount.provenance, alone.active_parameters) == (None, None, None)
    assert amount.warning is not None
    assert "'brand_new_vl'" in amount.warning
    assert f"{PARAMETERS:,}" in amount.warning
    assert is_one_line(amount.warning)
    for asked in (None, BF16):
        weight = alone.weight_bytes(asked)
        assert (weight.value, weight.provenance, weight.warning) == (None, None, amount.warning)


def test_unknown_towers_are_counted_from_headers() -> None:
    """With headers parameters and bytes are those of the files, and said to be."""
    tower = Tensor("vision_tower.layers.9.fc.weight", "BF16", (10, 10))
    held = model(UNKNOWN_TOWERS, files(tower))

    assert (held.parameters.value, held.parameters.provenance) == (PARAMETERS + 100, "header")
    assert held.parameters.warning is not None
    assert "'brand_new_vl'" in held.parameters.warning
    assert held.active_parameters == PARAMETERS + 100
    assert held.weight_bytes(None) == Amount(2 * (PARAMETERS + 100), "header")
    assert held.weight_bytes(FP8) == Amount(PARAMETERS + 100, "header")


def test_known_towers_are_held_against_the_files() -> None:
    """Files of a multimodal model agree where they hold decoder and towers; a tower's layers are no draft layers."""
    count = model(GEMMA).spec.parameters
    rest = Tensor("language_model.model.rest.weight", "BF16", (count - 100,))
    tower = Tensor("vision_tower.vision_model.encoder.layers.99.fc.weight", "BF16", (10, 10))
    whole = collect({"x.safetensors": (rest, tower)}, "x")
    less = collect({"x.safetensors": (rest,)}, "x")

    assert model(GEMMA, whole).parameters == Amount(count, "config")
    assert f"{count - 100:,}" in difference(GEMMA, less)
    assert "what stands beside it" in difference(GEMMA, less)


# --- encoders
