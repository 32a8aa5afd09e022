"""Weights in the answer of `model`: as a quantised config implies them, and in a format asked for."""

from __future__ import annotations

import re

import pytest

from roofcast.calculators.describe import Fact, ModelResult, describe
from roofcast.calculators.stored import ImpliedPart
from roofcast.modelspec.requested import find_requested
from tests.checkpoints import BF16, catalogued
from tests.running import roofcast


def described(name: str, weights: str | None = None) -> ModelResult:
    """Return the answer for a model of the catalogue."""
    asked = find_requested(weights) if weights else None
    return describe(catalogued(name), weights=asked, kv=BF16, contexts=None)[0]


def facts_of(result: ModelResult) -> dict[str, Fact]:
    """Return the facts by name."""
    return {fact.name: fact for fact in result.facts}


def test_what_a_quantised_config_implies_is_listed() -> None:
    """gpt-oss-20b: experts in mxfp4, 4 bits and a scale byte for 32, their biases and all else in bf16."""
    result = described("gpt-oss-20b")
    parts = result.implied_parts or []
    packed = 24 * 32 * 3 * 2880 * 2880

    assert [part for part in parts if part.component == "experts"] == [
        ImpliedPart("experts", "mxfp4", "fp4", packed, packed // 2, packed // 32),
        ImpliedPart("experts", "bf16", "bf16", 24 * 32 * 3 * 2880, 24 * 32 * 3 * 2880 * 2, 0),
    ]
    assert sum(part.bytes + part.scale_bytes for part in parts) == facts_of(result)["weight_bytes"].value
    assert sum(part.elements for part in parts) == facts_of(result)["parameters"].value


def test_the_table_of_implied_parts() -> None:
    """Text and Markdown show them where the names of stored tensors are not known; CSV has a row a component."""
    text = roofcast("model", "gpt-oss-20b").out
    rows = roofcast("model", "gpt-oss-20b", "--format", "csv").out.splitlines()
    packed = 24 * 32 * 3 * 2880 * 2880

    assert re.search(r"^experts +mxfp4 +19\.11B +8\.90 +0\.56 +73\.8%$", text, re.MULTILINE)
    assert "**weights as the config implies**" in roofcast("model", "gpt-oss-20b", "--format", "markdown").out
    assert f"implied_bytes.scales,{packed // 32},config" in rows
    assert "weights as the config implies" not in roofcast("model", "llama-3.1-8b").out


def test_the_format_asked_for_is_a_fact() -> None:
    """Weights as stored are said to be; those of `--weights` name the format, whoever counts the parameters."""
    asked = described("deepseek-v3", "nvfp4")

    assert facts_of(described("deepseek-v3"))["weight_format"] == Fact("weight_format", "as stored", "header")
    assert facts_of(described("llama-3.1-8b"))["weight_format"] == Fact("weight_format", "as stored", "config")
    assert facts_of(asked)["weight_format"] == Fact("weight_format", "nvfp4", "asked")
    assert facts_of(asked)["weight_bytes"].provenance == "header"


@pytest.mark.parametrize("weights", ["bf16", "nvfp4", "q4_k_m", "q8_0"])
@pytest.mark.parametrize("name", ["deepseek-v3", "llama-3.1-8b", "gpt2", "qwen3.6-35b-a3b"])
def test_bytes_asked_for_are_the_sum_of_their_components(name: str, weights: str) -> None:
    """By component and in all the bytes of a format are the same, what the files hold beyond the decoder included."""
    result = described(name, weights)

    assert result.requested_components is not None
    assert sum(result.requested_components.values()) == facts_of(result)["weight_bytes"].value
    assert all(result.requested_components.values())


def test_a_single_format_asked_for_by_component() -> None:
    """DeepSeek-V3 in bf16: two bytes a parameter, and its multi-token prediction is what the files hold beyond."""
    result = described("deepseek-v3", "bf16")
    sizes = result.requested_components or {}

    assert sizes["experts"] == 2 * 58 * 256 * 3 * 7168 * 2048
    assert sizes["multi_token_prediction"] == 2 * (684_489_830_400 - 671_026_404_352)
    assert result.requested_types is None


def test_a_mix_asked_for_by_component_and_type() -> None:
    """Llama-3.1-8B in Q4_K_M: the embedding is Q4_K, 144 B for 256, and the head Q6_K, 210 B; both tables are shown."""
    result = described("llama-3.1-8b", "q4_k_m")
    sizes, types = result.requested_components or {}, result.requested_types or {}
    text = roofcast("model", "llama-3.1-8b", "--weights", "Q4_K_M").out

    assert (sizes["embedding"], sizes["head"]) == (128256 * 4096 // 256 * 144, 128256 * 4096 // 256 * 210)
    assert list(types) == ["Q4_K", "Q6_K", "F32"]
    assert sum(types.values()) == facts_of(result)["parameters"].value
    assert re.search(r"^weights, format +q4_k_m +asked$", text, re.MULTILINE)
    assert re.search(r"^weights as q4_k_m +GiB +share$", text, re.MULTILINE)
    assert re.search(r"^Q4_K +[\d,]+ +3\.40$", text, re.MULTILINE)
