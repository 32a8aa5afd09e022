"""Whose constants count for expected times, and how far their spreads widen."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.expected.expectation import STAND_INS, kernels_of
from roofcast.calculators.expected.families import FAMILIES
from roofcast.calculators.expected.interval import interval
from roofcast.calculators.phases import Asked, answer_point
from roofcast.hwdb.efficiency_files import EfficiencyFileError, candidates, kinship
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.op import MOE
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import catalogued
from tests.expecting import ROUND_FITS, content, deployed, expected_of, known, written

if TYPE_CHECKING:
    from pathlib import Path

# --- whose constants count


@pytest.mark.parametrize(
    ("gpu", "engine", "family", "form", "file", "ways"),
    [
        ("h200-sxm", "vllm", "gemm", "bf16", "h200-sxm.vllm", ()),
        # where no engine is named, the usual one of what was measured there
        ("h200-sxm", "none", "gemm", "bf16", "h200-sxm.vllm", ()),
        ("rtx-4090", "none", "gemm", "ggml", "rtx-4090.llama.cpp", ()),
        ("b200", "none", "gemm", "bf16", "h200-sxm.vllm", ("memory",)),
        ("apple-m4-max", "none", "gemm", "ggml", "apple.llama.cpp", ("class",)),
        ("h200-sxm", "sglang", "attn_decode", "fp8", "h200-sxm.sglang", ()),
        ("h100-pcie", "vllm", "gemm", "bf16", "h100-sxm.vllm", ("architecture",)),
        ("h200-nvl", "vllm", "host", "decode", "h200-sxm.vllm", ("architecture",)),
        ("a100-80gb-pcie", "vllm", "gemm", "bf16", "a100-80gb-sxm.vllm", ("architecture",)),
        ("b200", "vllm", "gemm", "bf16", "h200-sxm.vllm", ("memory",)),
        ("b200", "vllm", "gemm", "fp4", "h200-sxm.vllm", ("memory", "format")),
        ("mi300x", "vllm", "attn_prefill", "bf16", "h200-sxm.vllm", ("hardware",)),  # HBM of another vendor
        ("rtx-4090", "llama.cpp", "gemm", "ggml", "rtx-4090.llama.cpp", ()),
        ("rtx-4090", "ollama", "gemm", "ggml", "rtx-4090.llama.cpp", ()),
        ("rtx-4070-ti-super", "llama.cpp", "gemm", "ggml", "gddr.llama.cpp", ("class",)),
        ("rtx-4070-ti-super", "vllm", "gemm", "bf16", "a100-80gb-sxm.vllm", ("hardware",)),
        ("apple-m4-max", "llama.cpp", "attn_decode", "fp16", "apple.llama.cpp", ("class",)),
        ("h200-sxm", "tgi", "gemm", "bf16", "h200-sxm.sglang", ("alike",)),
        ("h100-pcie", "lmdeploy", "gemm", "bf16", "h100-sxm.sglang", ("architecture", "alike")),
        # a file without the family passes it on: the A100's has no steps, the 4090's no links
        ("a100-80gb-sxm", "vllm", "host", "decode", "h100-sxm.vllm", ("memory",)),
        ("rtx-4090", "llama.cpp", "collective", "all_reduce", "a100-80gb-sxm.sglang", ("hardware", "other")),
        ("h200-sxm", "llama.cpp", "collective", "all_reduce", "h200-sxm.sglang", ("other",)),
    ],
)
def test_the_nearest_constants_count(
    gpu: str, engine: str, family: str, form: str, file: str, ways: tuple[str, ...]
) -> None:
    """An engine's own on that GPU, else of its kin, its class, engines alike; how they differ is told."""
    found = expected_of(gpu, engine).choice(family, form)

    assert (found.file, found.ways) == (file, ways)


@pytest.mark.parametrize(
    ("gpu", "engine", "asked", "used"),
    [
        ("h200-sxm", "vllm", "fp8_block", "fp8_block"),
        ("a100-80gb-sxm", "vllm", "fp8_block", "bf16"),
        ("a100-80gb-sxm", "tensorrt-llm", "fp8", "int8"),
        ("h200-sxm", "vllm", "fp4", "fp8"),
        ("h200-sxm", "vllm", "int4", "bf16"),
        ("h200-sxm", "vllm", "int8", "fp8"),
        ("h200-sxm", "vllm", "ggml", "bf16"),
        ("rtx-4090", "llama.cpp", "fp4", "any"),
        ("rtx-4090", "llama.cpp", "fp16", "fp16"),
    ],
)
def test_formats_that_were_not_measured_take_their_kin_s(gpu: str, engine: str, asked: str, used: str) -> None:
    """A format's own constants, else those of any, else of what stands in for it; only the last widens the spread."""
    found = expected_of(gpu, engine).choice("gemm", asked)

    assert found.fit.format == used
    assert ("format" in found.ways) == (used not in {asked, "any"})


def test_experts_have_no_block_scales_of_their_own() -> None:
    """The tables of experts have FP8 once: block-scaled checkpoints take that."""
    found = expected_of("h200-sxm", "vllm").choice(MOE, "fp8_block")

    assert (found.fit.format, found.file) == ("fp8", "h200-sxm.vllm")


@pytest.mark.parametrize("format_", sorted(STAND_INS))
def test_every_format_has_constants_everywhere(format_: str) -> None:
    """Whatever is multiplied in, on whatever engine, some constants count; of a format that is its own stand-in none."""
    assert format_ not in STAND_INS[format_]
    for gpu, engine in (("h200-sxm", "vllm"), ("a100-80gb-sxm", "sglang"), ("p40", "llama.cpp"), ("tpu-v5e", "tgi")):
        for family in ("gemm", "moe", "attn_decode", "attn_prefill", "elementwise"):
            assert expected_of(gpu, engine).choice(family, format_).constants.t0 >= 0


@pytest.mark.parametrize(
    ("gpu", "engine", "form"),
    [
        ("h100-pcie", "vllm", "bf16"),
        ("b200", "vllm", "fp4"),
        ("h100-pcie", "tgi", "int4"),
        ("h200-sxm", "vllm", "bf16"),
    ],
)
def test_spreads_widen_by_every_way_they_differ(gpu: str, engine: str, form: str) -> None:
    """sigma^2 = own^2 and the square of every way in which constants are another's."""
    found, table = expected_of(gpu, engine).choice("gemm", form), kinship()

    assert found.spread == pytest.approx(
        sum(x * x for x in (found.fit.spread, *(table[way] for way in found.ways))) ** 0.5
    )
    assert (found.spread > found.fit.spread) == bool(found.ways)


def test_a_widened_spread_by_hand(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0.03 of the fit, 0.04 of another card of the architecture and 0.12 of another format are 0.13."""
    written(home / "efficiency" / "h100-sxm.vllm.yaml", content({"gemm fp8 0.03": {}}, accelerator="h100-sxm"))
    table = {"architecture": 0.04, "format": 0.12}
    monkeypatch.setattr("roofcast.calculators.expected.expectation.kinship", lambda: table)
    found = expected_of("h100-pcie", "vllm").choice("gemm", "int8")

    assert found.ways == ("architecture", "format")
    assert found.spread == pytest.approx(hypot(0.03, 0.04, 0.12)) == pytest.approx(0.13)


def test_kinship_knows_every_way() -> None:
    """Every way that a choice can differ by has a number, from 0 to 2."""
    table = kinship()

    ways = {"class", "architecture", "memory", "hardware", "alike", "other", "format", "server", "kind"}
    assert set(table) == ways
    assert all(0 <= value <= 2 for value in table.values())
    # a card of the same architecture is nearer than one that shares its memory, and that nearer than any other
    assert table["architecture"] < table["memory"] < table["hardware"]
    assert table["alike"] < table["other"]


def test_candidates_are_in_order_of_their_distance() -> None:
    """All files are candidates, once each, an engine's own before those alike and these before the others."""
    found = candidates(find_accelerator("h100-pcie").accelerator, "vllm")
    software, hardware = ("same", "alike", "other"), ("own", "class", "architecture", "memory", "hardware")
    ranks = [(software.index(one.software), hardware.index(one.hardware)) for one in found]

    assert ranks == sorted(ranks)
    assert len({one.path for one in found}) == len(found)
    assert {one.engine for one in found if one.software == "alike"} == {"sglang", "tensorrt-llm", "roofcast"}


def test_bandwidth_tells_the_nearest_of_the_same_kind() -> None:
    """Of two cards of an architecture the one whose bandwidth is nearer: an H200 NVL takes the H200's."""
    assert [one.accelerator for one in candidates(find_accelerator("h200-nvl").accelerator, "vllm")][:2] == [
        "h200-sxm",
        "h100-sxm",
    ]
    assert candidates(find_accelerator("h100-nvl").accelerator, "vllm")[0].accelerator == "h100-sxm"


# --- block-scaled FP8


@pytest.mark.parametrize(
    ("model", "weights", "kernels"),
    [
        ("deepseek-v3", None, {"fp8": "fp8_block"}),
        ("deepseek-v3", "fp8", {}),  # a format that is asked has a scale a tensor
        ("llama-3.1-8b", None, {}),
        ("gpt-oss-20b", None, {}),  # blocks of one row: MXFP4
    ],
)
def test_block_scaled_checkpoints_ask_for_their_kernels(model: str, weights: str | None, kernels: object) -> None:
    """FP8 with a scale for each block of rows and columns is multiplied by kernels of its own."""
    asked = FORMATS[weights] if weights else None

    assert kernels_of(catalogued(model), asked) == kernels


def test_block_kernels_are_chosen_for_matrices_alone() -> None:
    """Attention over an FP8 cache is not block-scaled: only matrices take the other kernels."""
    ready = known("deepseek-v3", "h200-sxm", "vllm", Shards(dp=8, ep=8))
    answer_point(ready, Asked("decode", 8, 1000))
    assert ready.expectation is not None
    made = {(choice.family, choice.format, choice.fit.format) for choice in ready.expectation.used}

    assert ("gemm", "fp8_block", "fp8_block") in made
    assert not any(form == "fp8_block" for family, form, _ in made if family.startswith("attn"))


# --- a file of the user's own


@pytest.mark.parametrize(
    ("gpu", "engine", "file", "ways"),
    [
        ("any", "vllm", "any.vllm", ()),  # of no machine: taken as it is
        ("h100-pcie", "sglang", "h100-pcie.sglang", ()),
        ("h100-pcie", "vllm", "h100-pcie.vllm", ("alike",)),
        ("h100-sxm", "roofcast", "h100-sxm.roofcast", ("architecture",)),  # a profile is of every engine
        ("b200", "vllm", "b200.vllm", ("memory", "alike")),
        ("no-such-card", "sglang", "no-such-card.sglang", ("hardware",)),
    ],
)
def test_a_file_that_is_asked_counts_before_all(
    gpu: str, engine: str, file: str, ways: tuple[str, ...], tmp_path: Path
) -> None:
    """Its families are taken before all others, wider where it says it is of another machine; the rest as ever."""
    mine = content({"gemm any 0.25": {"t0": 1e-3}}, accelerator=gpu, engine=engine)
    made = expected_of("h100-pcie", "sglang", written(tmp_path / "mine.yaml", mine))
    found = made.choice("gemm", "fp8")

    assert (found.constants.t0, found.file, found.ways) == (1e-3, file, ways)
    assert found.spread == pytest.approx(hypot(0.25, *(kinship()[way] for way in ways)))
    assert made.choice("attn_decode", "bf16").file == "h100-sxm.sglang"


def test_constants_that_no_formula_knows_are_named(tmp_path: Path) -> None:
    """A misspelt constant is no silent default."""
    file = written(tmp_path / "mine.yaml", content({"gemm any 0.1": {"t0": 1e-6, "wlak": 1e-9}}))

    with pytest.raises(EfficiencyFileError, match=r"gemm has no constant 'wlak'; known: droop, ec, em") as caught:
        expected_of("h200-sxm", "vllm", file).choice("gemm", "bf16")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("name", "constants", "lacks"),
    [
        ("attn_decode any 0.1", {"t0": 1e-6}, "attn_decode any lacks ec, em"),
        ("attn_prefill bf16 0.1", {"t0": 1e-6, "ec": 0.5}, "attn_prefill bf16 lacks em"),
    ],
)
def test_constants_that_a_formula_needs_are_named(
    name: str, constants: dict[str, float], lacks: str, tmp_path: Path
) -> None:
    """A fit without them is refused as the file is read, with what it lacks."""
    file = written(tmp_path / "mine.yaml", content({"gemm any 0.1": {}, name: constants}))

    with pytest.raises(EfficiencyFileError) as caught:
        expected_of("h200-sxm", "vllm", file)
    assert str(caught.value) == f"{file}: {lacks}"


def test_the_largest_spreads_have_an_end(tmp_path: Path) -> None:
    """Every spread and factor at its most is answered, with 80 % at most e^(1.28 x 12) apart: 4.8 million times."""
    most = {name.rpartition(" ")[0] + " 10": values for name, values in ROUND_FITS.items()}
    most["step decode 10"] = {"parts": 10, "batch": 10}
    ready = deployed(catalogued("llama-3.1-8b"), "h200-sxm", file=written(tmp_path / "mine.yaml", content(most)))
    point = answer_point(ready, Asked("decode", 64, 1000))

    assert point.spread > 12
    assert point.interval is not None
    assert point.expected is not None
    assert point.interval[1] == pytest.approx(point.expected * 4.774e6, rel=1e-3)
    assert interval(1.0, 0.5, 1e300) == interval(1.0, 0.5, 12.0)


def test_links_do_not_stand_in_for_each_other(tmp_path: Path) -> None:
    """A file with one pattern of exchange passes the others on, while one format of matrices does for another."""
    fits: dict[str, dict[str, float]] = {"collective all_reduce 0.1": {"t0": 1e-3}, "gemm fp8 0.1": {"t0": 1e-3}}
    made = expected_of("h200-sxm", "vllm", written(tmp_path / "mine.yaml", content(fits)))

    assert made.choice("collective", "all_reduce").constants.t0 == 1e-3
    assert made.choice("collective", "all_gather").file == "h200-sxm.vllm"
    assert made.choice("collective", "all_gather").constants.t0 < 1e-4
    assert made.choice("gemm", "fp32").constants.t0 == 1e-3


def test_every_family_has_constants_and_all_but_streams_a_formula() -> None:
    """What FAMILIES holds is what files may name."""
    assert [name for name, made in FAMILIES.items() if made.formula is None] == ["elementwise", "host", "step"]


def test_a_device_without_multiprocessors_takes_a_number_of_them() -> None:
    """Data sheets of other vendors say nothing of them: 108 stand in."""
    made = expected_of("h200-sxm", "vllm")
    unsaid = replace(made, accelerator=made.accelerator.model_copy(update={"sm_count": None}), _limits={})

    assert made.limits("bf16").sms == 132
    assert unsaid.limits("bf16").sms == 108
