"""Efficiency files: the project's own hold what formulas take, and a user's are read, counted and refused by name."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.cache_format import ENGINES
from roofcast.calculators.expected.families import FAMILIES
from roofcast.calculators.roofline import INSTEAD
from roofcast.hwdb.efficiency import FAMILIES as FILED
from roofcast.hwdb.efficiency import Efficiency
from roofcast.hwdb.efficiency_files import (
    ALIKE,
    BUILT_IN,
    CLASSES,
    OWN,
    efficiency_files,
    hardware,
    kind_of,
    memory_kind,
    read_efficiency,
)
from roofcast.hwdb.files import AcceleratorFileError, accelerator_files
from roofcast.hwdb.lookup import all_accelerators, find_accelerator
from roofcast.modelspec.op import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER
from tests.expecting import PROVENANCE, ROUND_FITS, content, expected_of, fit, written
from tests.running import answer, refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(path.stem for path in BUILT_IN.glob("*.yaml"))
PATTERNS = {ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, POINT_TO_POINT}
# all-reduces of other kinds, fitted beside the one that engines use in a graph
OTHER_PATTERNS = {"all_reduce_eager", "all_reduce_nccl"}
PHASES = {"decode", "prefill", "mixed", "any"}
# kernels that weights' scales or a cache's format tell apart, beside formats that are multiplied in
KERNELS = {"any", "fp8_block", "fp8_tensor", "fp8.bf16", "mxfp4", "int4_wo", "int8_wo"}
FORMATS = set(INSTEAD) | KERNELS
ON_H200 = ("estimate", "llama-3.1-8b", "--gpu", "h200-sxm", "--batch", "1", "--context", "1k")


def own_file(name: str) -> Efficiency:
    """Return one of the project's own files."""
    return read_efficiency(BUILT_IN / f"{name}.yaml")


# --- the project's own


def test_there_are_files_of_every_card_that_was_fitted() -> None:
    """Three cards of the data centre under three engines each, and classes for what was not measured."""
    cards = {f"{card}-sxm.{engine}" for card in ("h100", "h200") for engine in ("vllm", "sglang", "tensorrt-llm")}

    assert cards | {"a100-80gb-sxm.vllm", "gddr.llama.cpp", "hbm.llama.cpp", "apple.llama.cpp"} <= set(FILES)
    assert efficiency_files().keys() == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_built_in_files_are_of_what_is_known(name: str) -> None:
    """A file is named by its accelerator, an id or a class, and an engine that --engine takes; it says both itself."""
    made = own_file(name)

    assert name == f"{made.accelerator}.{made.engine}"
    assert made.accelerator in accelerator_files() or made.accelerator in CLASSES
    assert made.engine in set(ENGINES) - {"none"}


@pytest.mark.parametrize("name", FILES)
def test_built_in_constants_are_those_of_their_formulas(name: str) -> None:
    """Every family is one of FAMILIES, and its formula takes each constant by name; none that it needs is missing."""
    for one in own_file(name).fits:
        made = fields(FAMILIES[one.family].constants)
        needed = {field.name for field in made if field.default is MISSING}

        assert needed <= one.constants.keys() <= {field.name for field in made}, (one.family, one.format)
        FAMILIES[one.family].constants(**one.constants)


@pytest.mark.parametrize("name", FILES)
def test_built_in_formats_are_known(name: str) -> None:
    """Formats are ones that operations multiply in, patterns that devices exchange by, or phases."""
    for one in own_file(name).fits:
        known = {"collective": PATTERNS | OTHER_PATTERNS, "host": PHASES, "step": PHASES}.get(one.family, FORMATS)

        assert one.format in known, (one.family, one.format)


@pytest.mark.parametrize("name", FILES)
def test_built_in_shares_are_of_the_roof(name: str) -> None:
    """0 < share <= 1 of peaks and bandwidths, and nothing else makes a time shorter than its bound."""
    for one in own_file(name).fits:
        c = one.constants
        assert all(0 < c[key] <= 1 for key in ("ec", "em", "alone_ec") if key in c), (one.family, c)
        assert 0 <= c.get("alone_em", 0) <= 1
        assert c.get("tile", 1) >= 1 or one.family != "attn_prefill"
        assert all(0 <= c.get(key, 0) <= 1 for key in ("parts", "gemm", "moe", "attn_decode", "attn_prefill"))
        assert 0 <= one.spread < 2
        assert c.get("t0", 0) < 1e-3  # a launch takes microseconds


@pytest.mark.parametrize("name", FILES)
def test_built_in_constants_have_their_provenance(name: str) -> None:
    """Date, program, source in words, and the hash of every file that a fit names."""
    made = own_file(name)
    hashes = {one.file: one.sha256 for one in made.provenance.data}

    assert made.provenance.by == "benchmarks/fit_efficiency.py"
    assert len(made.provenance.source) > 30
    assert all(re.fullmatch("[0-9a-f]{64}", value) for value in hashes.values())
    assert hashes
    for one in made.fits:
        assert one.rows > 0
        assert one.data
        assert set(one.data) <= hashes.keys()


def test_the_same_data_have_the_same_hash_everywhere() -> None:
    """Files that are fitted to one file of data say the same of it."""
    seen: dict[str, set[str]] = {}
    for name in FILES:
        for one in own_file(name).provenance.data:
            seen.setdefault(one.file, set()).add(one.sha256)

    assert [file for file, hashes in seen.items() if len(hashes) > 1] == []


def test_families_are_the_same_in_files_and_formulas() -> None:
    """What a file may name has a formula, and the other way round."""
    assert set(FILED) == set(FAMILIES)


def test_engines_that_run_alike_are_engines() -> None:
    """Each stands in one row."""
    rows = [name for row in ALIKE for name in row]

    assert len(rows) == len(set(rows))
    assert set(rows) == set(ENGINES) - {"none"}


def test_every_accelerator_is_of_a_class_or_none() -> None:
    """Classes are kinds of memory of NVIDIA's, and vendors of the rest; their names are no ids."""
    kinds = {kind_of(one) for one in all_accelerators().accelerators}

    assert {"gddr", "hbm", "lpddr", "apple", "amd"} <= kinds
    assert not CLASSES & accelerator_files().keys()


@pytest.mark.parametrize(
    ("gpu", "memory"),
    [("rtx-4090", "gddr"), ("h200-sxm", "hbm"), ("apple-m3-max", "lpddr"), ("jetson-agx-orin-64gb", "lpddr")],
)
def test_kinds_of_memory(gpu: str, memory: str) -> None:
    """The letters before a generation's number."""
    assert memory_kind(find_accelerator(gpu).accelerator) == memory


@pytest.mark.parametrize(
    ("gpu", "of", "found"),
    [
        ("h100-pcie", "h100-pcie", "own"),
        ("h100-pcie", "h100-sxm", "architecture"),
        ("h100-pcie", "a100-80gb-sxm", "memory"),
        ("rtx-4090", "rtx-6000-ada", "architecture"),
        ("rtx-4090", "rtx-3090", "memory"),
        ("rtx-3090", "a100-80gb-sxm", "memory"),  # the architecture without the memory
        ("rtx-4090", "h100-sxm", "hardware"),
        ("rtx-4090", "gddr", "class"),
        ("rtx-4090", "hbm", None),
        ("rtx-4090", "no-such-card", None),
    ],
)
def test_how_near_hardware_is(gpu: str, of: str, found: str | None) -> None:
    """The card itself, its class, its architecture with the same memory, one of both, none of them."""
    near = hardware(find_accelerator(gpu).accelerator, of)

    assert (near and near[0]) == found


# --- files of the user's


def bad(change: dict[str, Any]) -> dict[str, Any]:
    """Return a file with its one fit changed."""
    return content({}) | {"fits": [{**fit("gemm bf16 0.1", {"t0": 1e-6}), **change}]}


def constants(**values: Any) -> dict[str, Any]:
    """Return a file with one fit of those constants."""
    return bad({"constants": values})


REFUSED: dict[str, tuple[object, str]] = {
    "unknown key": (content({}, colour="red"), "colour is not a field"),
    "unknown key of a fit": (bad({"colour": "red"}), "fits.1.colour is not a field"),
    "misspelt key": (content({}, provenence={}), "provenence is not a field (did you mean provenance?)"),
    "missing key": ({"schema": "roofcast.efficiency/1"}, "accelerator is missing"),
    "share above 1": (constants(ec=1.2), "fits.1.constants: ec is 1.2"),
    "share of nothing": (constants(em=0), "fits.1.constants: em is 0.0"),
    "negative time": (constants(t0=-1e-6), "fits.1.constants: t0 is -1e-06"),
    "not a number": (constants(t0=float("nan")), "fits.1.constants: t0 is nan"),
    "no end": (constants(t0=float("inf")), "fits.1.constants: t0 is inf"),
    "words": (constants(t0="fast"), "fits.1.constants.t0 is 'fast'"),
    "spread of not a number": (bad({"spread": float("nan")}), "fits.1.spread is nan"),
    "negative spread": (bad({"spread": -0.1}), "fits.1.spread is -0.1"),
    "spread beyond reason": (bad({"spread": 11}), "fits.1.spread is 11"),
    "family": (bad({"family": "matmul"}), "fits.1.family is 'matmul'"),
    "negative rows": (bad({"rows": -1}), "fits.1.rows is -1"),
    "twice": (
        content({}) | {"fits": [fit("gemm bf16 0.1", {}), fit("gemm bf16 0.2", {})]},
        "fits: gemm bf16 stands twice",
    ),
    "schema": (content({}, schema="roofcast.efficiency/2"), "schema is 'roofcast.efficiency/2'"),
    "hash": (
        content({}, provenance={**PROVENANCE, "data": [{"file": "a", "sha256": "abc"}]}),
        "provenance.data.1.sha256 is 'abc'",
    ),
    "date": (content({}, provenance={**PROVENANCE, "fitted": "yesterday"}), "provenance.fitted is 'yesterday'"),
    "list": ([1, 2], "is a list; it must map fields such as schema, accelerator, engine, fits, provenance"),
    "text": ("hello", "is a str; it must map fields"),
    "empty": ("", "is empty; it must map fields"),
    "no YAML": ("schema: [", "not readable as YAML, line"),
    "alias": ("schema: &a x\nengine: *a\n", "has an anchor (&) or an alias (*)"),
    "key given twice": ("schema: x\nschema: y\n", "'schema' is given twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """The message names the file and the field, and the command leaves with 2 and nothing on stdout."""
    document, said = REFUSED[name]
    file = written(tmp_path / "mine.yaml", document)

    with pytest.raises(AcceleratorFileError) as caught:
        read_efficiency(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)
    refused(roofcast(*ON_H200, "--efficiency", str(file)), 2, str(file), said)


def test_every_bad_field_is_named(tmp_path: Path) -> None:
    """Two faults are told at once."""
    file = written(tmp_path / "mine.yaml", content({}, engine="", colour="red"))

    refused(roofcast(*ON_H200, "--efficiency", str(file)), 2, "engine", "colour")


@pytest.mark.parametrize("size", [2_000_000])
def test_a_file_beyond_any_size_is_refused(size: int, tmp_path: Path) -> None:
    """It is not read to its end."""
    file = written(tmp_path / "mine.yaml", "#" * size)

    refused(roofcast(*ON_H200, "--efficiency", str(file)), 2, str(file), "larger than 1 MB")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """Not UTF-8 is said with the place."""
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"schema: \xff\xfe")

    refused(roofcast(*ON_H200, "--efficiency", str(file)), 2, str(file), "not UTF-8")


def test_a_constant_that_its_formula_does_not_know(tmp_path: Path) -> None:
    """Told as the family is asked for, with those that are known."""
    file = written(tmp_path / "mine.yaml", constants(t0=1e-6, wlak=1e-9))

    refused(roofcast(*ON_H200, "--efficiency", str(file)), 2, "gemm has no constant 'wlak'", "walk")


# --- the user's folder


def gemm(t0: float) -> dict[str, dict[str, float]]:
    """Return fits with one launch."""
    return {"gemm any 0.1": {"t0": t0}}


def test_a_users_file_overrides_by_name(home: Path) -> None:
    """What has the name of a built-in file counts instead of it, whole: what it lacks comes from the next."""
    written(home / "efficiency" / "h200-sxm.vllm.yaml", content(gemm(1e-3)))
    made = expected_of("h200-sxm", "vllm")

    assert made.choice("gemm", "bf16").constants.t0 == 1e-3
    assert made.choice("attn_decode", "bf16").file == "h100-sxm.vllm"


def test_a_users_file_of_another_card_adds(home: Path) -> None:
    """A card that nobody measured gets its own constants, and its kin take them."""
    written(home / "efficiency" / "b200.vllm.yaml", content(gemm(1e-3), accelerator="b200"))

    assert expected_of("b200", "vllm").choice("gemm", "bf16").ways == ()
    assert expected_of("b300", "vllm").choice("gemm", "bf16").file == "b200.vllm"
    assert expected_of("h200-sxm", "vllm").choice("gemm", "bf16").file == "h200-sxm.vllm"


@pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"none"}))
def test_what_the_user_measured_counts_for_every_engine(engine: str, home: Path) -> None:
    """`<id>.roofcast.yaml` stands as the engine's own, and for any other engine."""
    written(home / "efficiency" / f"rtx-5090.{OWN}.yaml", content(gemm(1e-3), accelerator="rtx-5090", engine=OWN))
    found = expected_of("rtx-5090", engine).choice("gemm", "bf16")

    assert (found.file, found.ways) == ("rtx-5090.roofcast", ())


def test_what_the_user_measured_counts_before_the_engines_own(home: Path) -> None:
    """Of two files of the same card the user's profile is first; on another card it is not."""
    written(home / "efficiency" / f"h200-sxm.{OWN}.yaml", content(gemm(1e-3), engine=OWN))

    assert expected_of("h200-sxm", "vllm").choice("gemm", "bf16").file == "h200-sxm.roofcast"
    assert expected_of("h100-sxm", "vllm").choice("gemm", "bf16").file == "h100-sxm.vllm"


def test_a_users_file_of_no_card(home: Path) -> None:
    """A file of an accelerator that is not known is passed by."""
    written(home / "efficiency" / "zx-99.vllm.yaml", content(gemm(1e-3), accelerator="zx-99"))

    assert "zx-99.vllm" in efficiency_files()
    assert expected_of("h200-sxm", "vllm").choice("gemm", "bf16").file == "h200-sxm.vllm"


def test_a_bad_file_in_the_folder_is_told_where_it_counts(home: Path) -> None:
    """One line with its path; a card that does not reach it is answered."""
    file = written(home / "efficiency" / "h200-sxm.vllm.yaml", "schema: [")

    refused(roofcast(*ON_H200), 2, str(file), "not readable as YAML")
    assert roofcast("estimate", "llama-3.1-8b", "--gpu", "rtx-4090", "--engine", "llama.cpp").code == 0
    assert roofcast(*ON_H200, "--efficiency", "bound").code == 0


def test_a_folder_that_is_a_file_is_passed_by(home: Path) -> None:
    """Nothing of the user's is there then; the built-in files count."""
    (home / "efficiency").write_text("x")

    assert efficiency_files().keys() == set(FILES)


def test_a_users_constants_show_in_the_answer(home: Path) -> None:
    """Half a second a product is in the times, and where it is from is said."""
    plain = answer(*ON_H200, "--phase", "decode")["result"]
    written(home / "efficiency" / "h200-sxm.vllm.yaml", content(ROUND_FITS | {"gemm any 0.1": {"t0": 0.5}}))
    (phase,) = (answered := answer(*ON_H200, "--phase", "decode")["result"])["phases"]

    assert phase["expected_seconds"] > 129 * 0.25  # half of it is hidden
    assert phase["bound_seconds"] == plain["phases"][0]["bound_seconds"]
    assert {one["constants"]["t0"] for one in answered["efficiency"] if one["family"] == "gemm"} == {0.5}
