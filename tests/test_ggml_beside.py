"""Mixes of models of which a file leaves something out or as it is: towers, what speaks, experts in MXFP4."""

from __future__ import annotations

import pytest

from roofcast.modelspec.ggml_mix import mix_bytes
from roofcast.modelspec.spec import ModelSpec, build_spec
from tests.checkpoints import catalogued
from tests.model_configs import published


def spec_of(repo: str) -> ModelSpec:
    """Build the model of a published config."""
    return build_spec(published(repo))


def test_towers_are_a_file_of_their_own() -> None:
    """A vision tower is F16 whatever the mix, and the answer says how many of the bytes are its own file's."""
    spec = spec_of("Qwen/Qwen2.5-VL-3B-Instruct")
    made = mix_bytes(spec, "q4_k_m")

    held = sum(tower.parameters for tower in spec.towers)
    assert 2 * spec.components["vision"] == made.components["vision"]
    assert sum(made.elements.values()) == spec.parameters
    assert any(line.startswith(f"{2 * held / 1e9:.2f} GB of it are vision") for line in made.assumptions)


def test_what_a_model_speaks_with_is_in_no_file() -> None:
    """Qwen2.5-Omni's talker is not converted: the bytes are those of the thinker and its towers, and it is said."""
    spec = spec_of("Qwen/Qwen2.5-Omni-7B-AWQ")
    made = mix_bytes(spec, "f16")

    assert made.components["talker"] == 0
    assert sum(made.elements.values()) < spec.parameters
    assert any("talker" in line and "leave it out" in line for line in made.assumptions)


@pytest.mark.parametrize(("mix", "size"), [("q4_k_m", 11_624_759_488), ("q8_0", 12.1e9), ("f16", 13.8e9)])
def test_experts_that_are_packed_already_stay_so(mix: str, size: float) -> None:
    """gpt-oss has its experts in MXFP4 in every file, by whatever name: published ones have 11.6, 12.1 and 13.8 GB."""
    made = mix_bytes(spec_of("openai/gpt-oss-20b"), mix)

    assert made.elements["MXFP4"] == 24 * 32 * 3 * 2880 * 2880
    assert made.total == pytest.approx(size, rel=2e-3)
    assert any("MXFP4" in line for line in made.assumptions)


@pytest.mark.parametrize(
    ("name", "mix", "size"),
    [
        ("qwen3-1.7b", "bf16", 4.07),
        ("qwen3-1.7b", "q8_0", 2.17),
    ],  # bartowski/Qwen_Qwen3-1.7B-GGUF, made of files with a head
)
def test_a_head_that_the_files_hold_apart_is_converted(name: str, mix: str, size: float) -> None:
    """Weight files of Qwen3-1.7B hold the tied head once more, and so does the file that is made of them; it is said."""
    made = catalogued(name).as_mix(mix)

    assert -0.005 < size - made.total / 1e9 < 0.015
    assert any("GB less" in line for line in made.assumptions)
