"""Vision towers and projectors of the second group: hand-worked counts, the reference's counts, broken blocks."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.tower import find_wrapper
from roofcast.modelspec.towers_more import MORE_WRAPPERS
from roofcast.modelspec.vision_slots import TOWERS
from tests.broken_blocks import BAD, entries, is_clean

if TYPE_CHECKING:
    from collections.abc import Mapping

REFERENCE: Final = json.loads((Path(__file__).parent / "fixtures" / "reference_towers.json").read_text())["models"]
WRAPPERS: Final = [row for row in REFERENCE if "hidden" in row]
NAMES: Final = [f"{row['config']['model_type']}-{index % 3}" for index, row in enumerate(WRAPPERS)]
# Sizes of published vision blocks (google, mistralai, OpenGVLab on the Hub; config.json).
SIGLIP_SO400M: Final = {
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "model_type": "siglip_vision_model",
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
GEMMA4_VIT: Final = {
    "head_dim": 72,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "model_type": "gemma4_vision",
    "num_attention_heads": 16,
    "num_hidden_layers": 27,
    "num_key_value_heads": 16,
    "patch_size": 16,
    "position_embedding_size": 10240,
    "standardize": True,
    "use_clipped_linears": False,
}
PIXTRAL: Final = {
    "head_dim": 64,
    "hidden_size": 1024,
    "image_size": 1540,
    "intermediate_size": 4096,
    "model_type": "pixtral",
    "num_attention_heads": 16,
    "num_channels": 3,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
INTERN_VIT: Final = {
    "hidden_size": 1024,
    "image_size": 448,
    "intermediate_size": 4096,
    "model_type": "intern_vit_6b",
    "norm_type": "layer_norm",
    "num_attention_heads": 16,
    "num_channels": 3,
    "num_hidden_layers": 24,
    "patch_size": 14,
    "qk_normalization": False,
    "qkv_bias": True,
}
# (wrapper, config, hidden size of the text model, what each part holds in the reference implementation)
PUBLISHED: Final = [
    ("gemma3", {"vision_config": SIGLIP_SO400M}, 2560, [416_866_032, 2_950_272]),  # gemma-3-4b-it
    ("gemma4", {"audio_config": None, "vision_config": GEMMA4_VIT}, 2816, [569_548_080, 3_244_032]),  # 26B-A4B
    ("gemma4", {"audio_config": None, "vision_config": GEMMA4_VIT}, 5376, [569_548_080, 6_193_152]),  # 31B
    ("llama4", {}, 5120, [415_856_640, 39_321_600]),  # the abridged Scout: a tower of the class's sizes
    # Llama-3.2-11B-Vision: 10,670,220,835 less a text model of 9,775,192,080
    ("mllama", {"vision_config": {"image_size": 560}}, 4096, [863_567_379, 31_461_376]),
    ("mistral3", {"vision_config": PIXTRAL, "vision_feature_layer": -1}, 5120, [403_305_472, 35_652_608]),
]


@pytest.mark.parametrize("row", WRAPPERS, ids=NAMES)
def test_random_configs_have_the_references_count(row: Mapping[str, Any]) -> None:
    """Whatever the sizes and whatever keys are absent, the count is the reference implementation's."""
    reader = MORE_WRAPPERS[row["config"]["model_type"]]

    assert sum(tower.parameters for tower in reader(row["config"], row["hidden"])) == row["parameters"]


@pytest.mark.parametrize(("wrapper", "config", "hidden", "parameters"), PUBLISHED)
def test_published_towers_have_the_references_counts(
    wrapper: str, config: Mapping[str, Any], hidden: int, parameters: list[int]
) -> None:
    """Each part of a published model is as large as the reference implementation builds it."""
    assert [tower.parameters for tower in MORE_WRAPPERS[wrapper](config, hidden)] == parameters


def test_the_tower_of_gemma_3_is_its_matrices() -> None:
    """SigLIP: patches with a bias, 64 x 64 positions, 27 layers of 12 matrices and biases, a norm, no head."""
    width, inner = 1152, 4304
    patches = 3 * 14 * 14 * width + width
    layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width

    vision, projector = MORE_WRAPPERS["gemma3"]({"vision_config": SIGLIP_SO400M}, 2560)

    assert vision.parameters == patches + 64 * 64 * width + 27 * layer + 2 * width
    assert projector.parameters == width * 2560 + width


def test_the_tower_of_gemma_4_is_its_matrices() -> None:
    """Two tables of 10240 positions, layers of four norms and two a head, no bias, one matrix to the text."""
    width, inner = 1152, 4304
    layer = 4 * width * 16 * 72 + 2 * 72 + 3 * width * inner + 4 * width

    vision, projector = MORE_WRAPPERS["gemma4"]({"vision_config": GEMMA4_VIT}, 2816)

    assert vision.parameters == 2 * 10240 * width + 3 * 16 * 16 * width + 27 * layer
    assert projector.parameters == width * 2816


@pytest.mark.parametrize(
    ("hidden", "text", "checkpoint"),
    [
        # InternVL2.5-2B (2-2B has its sizes): InternLM2 of 24 layers, 16 heads, 8 of keys, 92,553 tokens
        (
            2048,
            24 * (2 * 2048**2 + 2 * 2048 * 1024 + 3 * 2048 * 8192 + 2 * 2048) + 2048 * (2 * 92_553 + 1),
            2_205_754_368,
        ),
        # InternVL2.5-1B: Qwen2 of 24 layers without an embedding 357,898,112, 151,674 tokens, untied
        (896, 357_898_112 + 2 * 151_674 * 896, 938_193_024),
    ],
)
def test_the_first_internvl_has_the_tower_of_its_checkpoints(hidden: int, text: int, checkpoint: int) -> None:
    """What a published checkpoint holds beside its text model is the tower and its projector."""
    towers = MORE_WRAPPERS["internvl_chat"]({"downsample_ratio": 0.5, "vision_config": INTERN_VIT}, hidden)

    assert text + sum(tower.parameters for tower in towers) == checkpoint


def test_a_partial_block_takes_the_towers_defaults_and_an_absent_one_the_wrappers() -> None:
    """LLaVA without a block has CLIP-L at 336 pixels; with an empty one, CLIP-B/32 at 224."""
    configs: tuple[dict[str, Any], ...] = ({}, {"vision_config": None}, {"vision_config": {}})
    absent, null, empty = (MORE_WRAPPERS["llava"](config, 4096)[0].parameters for config in configs)

    assert absent == null == 303_507_456
    assert empty == 768 + 3 * 32 * 32 * 768 + 50 * 768 + 12 * (12 * 768**2 + 13 * 768) + 4 * 768


@pytest.mark.parametrize("model_type", sorted(TOWERS))
def test_a_tower_is_chosen_by_its_own_model_type(model_type: str) -> None:
    """LLaVA takes any of the towers; each is another one at the same sizes."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "image_size": 28, "patch_size": 7}
    counts = {
        kind: MORE_WRAPPERS["llava"]({"vision_config": {**sizes, "model_type": kind}}, 64)[0].parameters
        for kind in TOWERS
    }

    assert [kind for kind in TOWERS if counts[kind] == counts[model_type]] == [model_type]


def test_a_named_tower_is_known_by_name_or_refused() -> None:
    """Gemma 3n names a convolutional tower: another name, or arguments to it, cannot be counted."""
    assert MORE_WRAPPERS["gemma3n"]({}, 2048)[0].parameters == 294_126_912

    for block in ({"architecture": "resnet50"}, {"architecture": None}, {"model_args": {"features_only": True}}):
        with pytest.raises(UnknownArchitectureError, match="vision_config"):
            MORE_WRAPPERS["gemma3n"]({"vision_config": block}, 2048)


def test_a_block_of_another_class_is_refused_by_name() -> None:
    """A tower that roofcast does not know is named, with those it knows."""
    with pytest.raises(UnknownArchitectureError, match=r"vision_config.model_type is 'dinov2', .*it knows clip_vision"):
        MORE_WRAPPERS["llava"]({"vision_config": {"model_type": "dinov2"}}, 4096)
    with pytest.raises(UnknownArchitectureError, match=r"vision_config\.model_type is a list"):
        MORE_WRAPPERS["llava"]({"vision_config": {"model_type": []}}, 4096)


def test_sizes_that_cannot_be_are_refused_with_what_would_be_right() -> None:
    """Heads that do not divide the width, an image smaller than a patch, a ratio that would enlarge the image."""
    with pytest.raises(MalformedModelError, match=r"vision_config.hidden_size is 1150; it must be a multiple of"):
        MORE_WRAPPERS["gemma3"]({"vision_config": {**SIGLIP_SO400M, "hidden_size": 1150}}, 2560)
    with pytest.raises(MalformedModelError, match=r"vision_config.image_size is 13; it must be a whole number from 14"):
        MORE_WRAPPERS["gemma3"]({"vision_config": {**SIGLIP_SO400M, "image_size": 13}}, 2560)
    for ratio in (5e-324, 2):
        with pytest.raises(MalformedModelError, match="downsample_ratio"):
            MORE_WRAPPERS["internvl"]({"downsample_ratio": ratio}, 2048)


@pytest.mark.parametrize("row", WRAPPERS, ids=NAMES)
def test_one_more_layer_is_never_fewer_parameters(row: Mapping[str, Any]) -> None:
    """Each stack of layers adds the same at each layer more."""
    config, hidden = deepcopy(row["config"]), row["hidden"]
    reader = MORE_WRAPPERS[config["model_type"]]
    for holder, key, value in entries(config):
        if key not in {"num_hidden_layers", "encoder_layers", "depth", "num_blocks", "conf_num_hidden_layers"}:
            continue
        counts = []
        for more in range(3):
            holder[key] = value + more
            counts.append(sum(tower.parameters for tower in reader(config, hidden)))
        holder[key] = value

        assert counts[0] <= counts[1]
        assert counts[2] - counts[1] == counts[1] - counts[0]


@pytest.mark.parametrize("row", WRAPPERS, ids=NAMES)
def test_any_broken_value_is_an_answer_or_one_clean_line(row: Mapping[str, Any]) -> None:
    """Each value replaced by each kind of wrong one: a whole number of parameters, or an error of one short line."""
    config, hidden = deepcopy(row["config"]), row["hidden"]
    reader = MORE_WRAPPERS[config["model_type"]]
    for holder, key, value in entries(config):
        for wrong in BAD:
            holder[key] = wrong
            assert is_clean(reader, config, hidden), (key, wrong)
        del holder[key]
        assert is_clean(reader, config, hidden), key
        holder[key] = value


def test_every_wrapper_is_found_by_its_name() -> None:
    """The registry of all wrappers holds those of this group."""
    assert all(find_wrapper(name) is reader for name, reader in MORE_WRAPPERS.items())
