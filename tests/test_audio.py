"""Audio towers, projectors and what Qwen2.5-Omni speaks with: hand-worked counts, defaults, broken blocks."""

from __future__ import annotations

from typing import Any, Final

import pytest

from roofcast.modelspec.audio import AUDIO_WRAPPERS
from roofcast.modelspec.errors import MalformedModelError, UnknownArchitectureError
from roofcast.modelspec.speech import speech
from roofcast.modelspec.towers_more import MORE_WRAPPERS

# Sizes of the published Qwen2.5-Omni-7B (Qwen on the Hub; config.json).
OMNI: Final[dict[str, Any]] = {
    "enable_audio_output": True,
    "talker_config": {
        "embedding_size": 3584,
        "head_dim": 128,
        "hidden_size": 896,
        "intermediate_size": 18944,
        "model_type": "qwen2_5_omni_talker",
        "num_attention_heads": 12,
        "num_hidden_layers": 24,
        "num_key_value_heads": 4,
        "vocab_size": 8448,
    },
    "thinker_config": {
        "audio_config": {
            "d_model": 1280,
            "encoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "encoder_layers": 32,
            "max_source_positions": 1500,
            "model_type": "qwen2_5_omni_audio_encoder",
            "num_hidden_layers": 32,
            "num_mel_bins": 128,
            "output_dim": 3584,
        },
        "model_type": "qwen2_5_omni_thinker",
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "model_type": "qwen2_5_omni_vision_encoder",
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
        },
    },
}
D: Final = 1280
WHISPER_LARGE_LAYER: Final = 4 * D * D + 3 * D + 2 * D * 5120 + 5120 + D + 4 * D


def test_the_tower_of_qwen2_audio_is_whispers_encoder() -> None:
    """Two convolutions of three steps, 1500 positions, 32 layers whose keys have no bias, a norm."""
    stem = 128 * 3 * D + D + D * 3 * D + D + 1500 * D

    audio, projector = AUDIO_WRAPPERS["qwen2_audio"]({}, 4096)

    assert WHISPER_LARGE_LAYER == 19_676_160
    assert audio.parameters == stem + 32 * WHISPER_LARGE_LAYER + 2 * D
    assert projector.parameters == D * 4096 + 4096


def test_qwen2_5_omni_is_what_the_reference_builds() -> None:
    """The 7B holds 10,732,225,408 parameters, of which its text model 7,615,616,512."""
    towers = AUDIO_WRAPPERS["qwen2_5_omni"](OMNI, 3584)

    assert {tower.name: tower.parameters for tower in towers} == {
        "vision": 631_975_680,
        "vision projector": 44_574_464,
        "audio": 635_056_128,
        "audio projector": 4_591_104,
        "talker": 1_351_360_256,
        "token2wav": 449_051_264,
    }
    assert sum(tower.parameters for tower in towers) == 10_732_225_408 - 7_615_616_512


def test_the_talker_is_its_matrices() -> None:
    """A bias on queries, keys and values alone; codes come in at the thinker's width and go out at the talker's."""
    h, wide, heads, keys, inner, codes = 896, 3584, 12 * 128, 4 * 128, 18944, 8448
    layer = h * heads + heads + 2 * (h * keys + keys) + heads * h + 3 * h * inner + 2 * h

    talker = speech(OMNI)[0]

    assert talker.parameters == codes * wide + wide * h + h + 24 * layer + h + h * codes


def test_an_omni_model_that_does_not_speak_has_no_talker() -> None:
    """Without audio output the thinker's towers are all there is."""
    towers = AUDIO_WRAPPERS["qwen2_5_omni"]({**OMNI, "enable_audio_output": False}, 3584)

    assert [tower.name for tower in towers] == ["vision", "vision projector", "audio", "audio projector"]


def test_omni_towers_stand_in_the_thinkers_block_alone() -> None:
    """A block at the file's top is not the thinker's: the class's sizes hold."""
    towers = AUDIO_WRAPPERS["qwen2_5_omni"]({"audio_config": {"encoder_layers": 1}}, 3584)

    assert towers == AUDIO_WRAPPERS["qwen2_5_omni"]({}, 3584)


def test_qwen3_asr_is_read_nested_and_flat() -> None:
    """The published file nests its tower in the thinker's block, the reference's own does not: both mean the same."""
    block = {"d_model": 896, "encoder_attention_heads": 14, "encoder_ffn_dim": 3584, "encoder_layers": 18}
    published = {"thinker_config": {"audio_config": {**block, "model_type": "qwen3_asr_audio_encoder"}}}

    assert AUDIO_WRAPPERS["qwen3_asr"](published, 1024) == AUDIO_WRAPPERS["qwen3_asr"]({"audio_config": block}, 1024)


def test_an_absent_audio_block_of_gemma_4_is_no_tower() -> None:
    """Gemma 4 without sound says null or nothing; an empty block is a tower of the class's sizes."""
    reader = MORE_WRAPPERS["gemma4"]

    assert reader({}, 2304) == reader({"audio_config": None, "vision_config": None}, 2304) == ()
    assert [tower.parameters for tower in reader({"audio_config": {}}, 2304)] == [304_824_608, 3_538_944]


def test_gemma_3n_has_an_embedder_for_sound() -> None:
    """128 tokens of its own, two norms, one matrix to the text."""
    towers = {tower.name: tower.parameters for tower in MORE_WRAPPERS["gemma3n"]({}, 2048)}

    assert towers["audio projector"] == 128 * 1536 + 2 * 1536 + 1536 * 2048


def test_two_names_of_one_size_must_agree() -> None:
    """Whisper's and the common name mean the same; which one a file takes does not matter, but not two sizes."""
    ours, common = {"d_model": 64, "encoder_layers": 2}, {"hidden_size": 64, "num_hidden_layers": 2}
    heads = {"encoder_attention_heads": 4}
    reader = AUDIO_WRAPPERS["voxtral"]

    assert reader({"audio_config": {**ours, **heads}}, 64) == reader({"audio_config": {**common, **heads}}, 64)
    with pytest.raises(MalformedModelError, match="they mean the same"):
        reader({"audio_config": {"d_model": 64, "hidden_size": 32}}, 64)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"bigvgan_config": {"upsample_initial_channel": 32}}, "upsample_initial_channel"),
        ({"bigvgan_config": {"upsample_rates": [2] * 5}}, "upsample_kernel_sizes"),
        ({"bigvgan_config": {"upsample_rates": []}}, "upsample_rates"),
        ({"bigvgan_config": {"resblock_dilation_sizes": [[1, 3, 5]]}}, "resblock_dilation_sizes"),
        ({"dit_config": {"enc_channels": [256, 256, 768]}}, "enc_kernel_sizes"),
        ({"dit_config": {"enc_res2net_scale": 1000}}, "enc_res2net_scale"),
        ({"dit_config": {"mel_dim": "80"}}, "mel_dim"),
    ],
)
def test_a_vocoder_that_cannot_be_is_refused(config: dict[str, Any], named: str) -> None:
    """Lists that do not fit together, channels that run out, sizes of another kind: the error names the key."""
    with pytest.raises(MalformedModelError, match=named):
        speech({"token2wav_config": config})


def test_blocks_of_another_class_are_refused() -> None:
    """A block that names another class is not read as this one."""
    for wrapper in AUDIO_WRAPPERS:
        block = {"audio_config": {"model_type": "hubert"}}
        with pytest.raises(UnknownArchitectureError, match="hubert"):
            AUDIO_WRAPPERS[wrapper]({**block, "thinker_config": block}, 4096)


def test_mel_bins_of_phi_4_are_halved_by_even_steps() -> None:
    """The time reduction is a power of two in code: an odd one is no model."""
    with pytest.raises(MalformedModelError, match="time_reduction is 7; it must be even"):
        MORE_WRAPPERS["phi4_multimodal"]({"audio_config": {"time_reduction": 7}}, 3072)
