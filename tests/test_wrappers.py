"""Multimodal classes whole: small configs with the reference's counts, ties, defaults of the wrapper, broken blocks."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.nested import WRAPPERS
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.tower import find_wrapper, wrappers
from tests.broken_blocks import BAD, entries, is_clean

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCE: Final = json.loads((Path(__file__).parent / "fixtures" / "reference_wrappers.json").read_text())["models"]
NAMES: Final = [f"{row['config']['model_type']}-{index}" for index, row in enumerate(REFERENCE)]
LLAMA: Final = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
LAYERS: Final = frozenset({"num_hidden_layers", "num_layers", "encoder_layers", "depth", "resampler_depth"})


@pytest.mark.parametrize("row", REFERENCE, ids=NAMES)
def test_the_whole_model_has_the_references_count(row: Mapping[str, Any]) -> None:
    """Text model, head, towers and projectors together, whatever keys are absent and whoever ties."""
    spec = build_spec(row["config"])

    assert spec.total_known
    assert spec.parameters == row["parameters"]
    assert sum(spec.components.values()) == row["parameters"]


@pytest.mark.parametrize("row", REFERENCE, ids=NAMES)
def test_any_broken_value_is_an_answer_or_one_clean_line(row: Mapping[str, Any]) -> None:
    """Each value beside the text model replaced by each kind of wrong one: parameters, or one short line."""
    config, hidden = deepcopy(row["config"]), row["hidden"]
    reader = wrappers()[config["model_type"]]
    for holder, key, value in entries(config):
        if holder is config.get("text_config"):
            continue
        for wrong in BAD:
            holder[key] = wrong
            assert is_clean(reader, config, hidden), (key, wrong)
        del holder[key]
        assert is_clean(reader, config, hidden), key
        holder[key] = value


@pytest.mark.parametrize("row", REFERENCE, ids=NAMES)
def test_one_more_layer_is_never_fewer_parameters(row: Mapping[str, Any]) -> None:
    """Each stack of layers adds one layer's parameters, or those of its period, and never takes any away."""
    config, hidden = deepcopy(row["config"]), row["hidden"]
    reader = wrappers()[config["model_type"]]
    for holder, key, value in entries(config):
        if key not in LAYERS or type(value) is not int or isinstance(holder.get("layer_types"), list):
            continue
        counts = []
        for more in range(7):
            holder[key] = value + more
            counts.append(sum(tower.parameters for tower in reader(config, hidden)))
        holder[key] = value

        assert counts == sorted(counts)


def test_every_wrapper_says_whose_tie_counts() -> None:
    """A class whose towers are known has a row that tells its text model's class and ties."""
    unsaid = {"glm_ocr", "internvl_chat", "minimax_m3_vl", "phi4_multimodal"}

    assert set(wrappers()) - set(WRAPPERS) <= unsaid
    assert find_wrapper("no_such_class") is None


def test_towers_of_video_are_counted_twice() -> None:
    """Video-LLaVA: two towers of CLIP-L at 224 pixels, 303,179,776 each, two matrices of 4096 with biases."""
    spec = build_spec({"model_type": "video_llava", "text_config": LLAMA})
    tower = 1024 + 3 * 14 * 14 * 1024 + 257 * 1024 + 24 * (12 * 1024**2 + 13 * 1024) + 4 * 1024

    assert spec.components["vision"] == spec.components["video"] == tower == 303_179_776
    assert spec.components["vision_projector"] == 1024 * 4096 + 4096 + 4096 * 4096 + 4096
    assert spec.parameters == 7_365_754_880


def test_the_resampler_of_idefics2_is_as_wide_as_the_text() -> None:
    """The block of the resampler may say another width, which the class overrules."""
    config = {"model_type": "idefics2", "text_config": {**LLAMA, "model_type": "mistral"}}
    said = {**config, "perceiver_config": {"hidden_size": 128}}

    assert build_spec(config).parameters == build_spec(said).parameters


def test_a_gated_feed_forward_is_as_wide_as_the_text_models_class_says() -> None:
    """Idefics 2 takes the width of the text model, whose default is Mistral's; of another class it must be stated."""
    block = {key: value for key, value in LLAMA.items() if key != "intermediate_size"}
    reader = wrappers()["idefics2"]

    assert reader({}, 4096) == reader({"text_config": {"intermediate_size": 14336}}, 4096)
    with pytest.raises(MalformedModelError, match=r"text_config\.intermediate_size is missing"):
        reader({"text_config": block}, 4096)


def test_an_untied_ovis2_has_a_head_of_the_files_top() -> None:
    """Its text model is of the block's sizes, its head of its own of hidden_size and vocab_size beside the block."""
    config = {"model_type": "ovis2", "text_config": {**LLAMA, "model_type": "qwen2"}, "vocab_size": 100}
    tied, untied = (build_spec({**config, "tie_word_embeddings": tie}) for tie in (True, False))

    assert untied.parameters - tied.parameters == untied.components["untied_head"] == 100 * 1536


def test_glm_asr_has_text_sizes_of_its_own() -> None:
    """A nested block that leaves sizes out takes GLM-ASR's and not LLaMA's, and the answer says so."""
    spec = build_spec({"model_type": "glmasr", "text_config": {"model_type": "llama"}})

    assert spec.parameters == 2_136_470_528
    assert "num_hidden_layers 28" in spec.assumptions[0]


@pytest.mark.parametrize(
    ("top", "inner", "tied"),
    [
        (None, None, True), (False, None, True), (True, False, True), (False, False, False), (None, False, False),
        (False, True, True),
    ],
)  # fmt: skip
def test_a_top_that_does_not_tie_leaves_the_word_to_the_text_model(
    top: bool | None, inner: bool | None, tied: bool
) -> None:
    """ShieldGemma 2 ties where its top or its text model says so, and its text model does where it says nothing."""
    words = {"tie_word_embeddings": inner} if inner is not None else {}
    config = {"model_type": "shieldgemma2", "text_config": {"model_type": "gemma3_text", **words}}

    assert build_spec({**config, **({} if top is None else {"tie_word_embeddings": top})}).tied is tied


def test_an_encoder_decoder_under_a_q_former_has_both() -> None:
    """BLIP-2 over T5: the encoder counts beside the tower and the projector."""
    row = next(row for row in REFERENCE if "d_model" in row["config"]["text_config"])

    assert [tower.name for tower in build_spec(row["config"]).towers] == ["encoder", "vision", "vision projector"]


@pytest.mark.parametrize(
    ("top", "inner", "tied"),
    [(None, None, True), (None, False, True), (False, None, True), (False, True, True), (False, False, False)],
)
def test_paddleocr_is_untied_only_where_neither_ties(top: bool | None, inner: bool | None, tied: bool) -> None:
    """The text model's word, true where it says nothing, overrules a top that says false; a flat file has only a top."""
    text = {**LLAMA, "num_key_value_heads": 8, "head_dim": 128}
    del text["model_type"]
    said = {**text, **({} if inner is None else {"tie_word_embeddings": inner})}
    outer = {"model_type": "paddleocr_vl", **({} if top is None else {"tie_word_embeddings": top})}

    assert build_spec({**outer, "text_config": said}).tied is tied
    if inner is None:
        assert build_spec({**outer, **text}).tied is tied


def test_qwen3_omni_speaks_unless_its_config_says_that_it_does_not() -> None:
    """With audio output a talker and its vocoder count; the talker's shared expert has no width unless stated."""
    reader = wrappers()["qwen3_omni_moe"]
    talker = {"text_config": {"shared_expert_intermediate_size": 768}}
    names = [tower.name for tower in reader({"talker_config": talker}, 2048)]

    assert names == ["vision", "vision projector", "audio", "audio projector", "talker", "code2wav"]
    assert [tower.name for tower in reader({"enable_audio_output": False}, 2048)] == names[:4]
    with pytest.raises(MalformedModelError, match=r"shared_expert_intermediate_size is missing"):
        reader({}, 2048)


def test_aria_has_as_many_queries_as_its_largest_image_needs() -> None:
    """Only the most queries of the table count; a table of none is refused."""
    reader = wrappers()["aria"]
    few, many = (
        reader({"projector_patch_to_query_dict": {"100": 2, "400": most}}, 64)[1].parameters for most in (1, 5)
    )

    assert many - few == 3 * 1152
    with pytest.raises(MalformedModelError, match="a mapping of patches to queries"):
        reader({"projector_patch_to_query_dict": {}}, 64)


def test_nemotron_omni_hears_where_its_config_has_a_block_for_it() -> None:
    """Sound is optional, stands under an old name too, and must say how wide its projector is."""
    reader = wrappers()["nemotron_h_omni"]
    sound = {"projection_hidden_size": 4096, "projection_bias": False}
    old = reader({"sound_config": sound, "vit_hidden_size": 1280}, 2688)

    assert [tower.name for tower in reader({}, 2688)] == ["vision", "vision projector"]
    assert old == reader({"audio_config": sound}, 2688)
    assert old[2:] != ()
    with pytest.raises(MalformedModelError, match="projection_hidden_size is missing"):
        reader({"audio_config": {}}, 2688)


def test_a_layer_of_a_strange_kind_is_refused() -> None:
    """LFM3-VL's tower convolves or attends; another kind, or too short a list, is no tower."""
    reader = wrappers()["lfm3_vl"]

    with pytest.raises(UnknownArchitectureError, match="layer_types has 'mamba'"):
        reader({"vision_config": {"num_hidden_layers": 1, "layer_types": ["mamba"]}}, 2048)
    with pytest.raises(MalformedModelError, match="layer_types"):
        reader({"vision_config": {"num_hidden_layers": 2, "layer_types": ["conv"]}}, 2048)
