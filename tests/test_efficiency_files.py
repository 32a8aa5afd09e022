"""Efficiency files: the project's own hold what formulas take, and a user's are read, counted and refused by name."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pydantic import ValidationError

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
    EfficiencyFileError,
    efficiency_files,
    hardware,
    kind_of,
    memory_kind,
    read_efficiency,
)
from roofcast.hwdb.files import accelerator_files
from roofcast.hwdb.lookup import all_accelerators, find_accelerator
from roofcast.modelspec.op import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER
from tests.expecting import PROVENANCE, content, fit, written
from tests.running import refused, roofcast

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
    """A file is named by its accelerator, an id or a class, and an engine that --engine takes or the profiler; it says both itself."""
    made = own_file(name)

    assert name == f"{made.accelerator}.{made.engine}"
    assert made.accelerator in accelerator_files() or made.accelerator in CLASSES
    assert made.engine in {*ENGINES, OWN} - {"none"}


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


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(f".{OWN}")])
def test_constants_of_the_profiler_have_their_provenance(name: str) -> None:
    """Date, program, machine, driver, torch and clocks; how many rows, and how far those kept out are off."""
    made = own_file(name)
    told = made.provenance

    assert told.by == "roofcast profile calibrate"
    assert len(told.source) > 30
    assert told.driver
    assert told.torch
    assert told.clock
    for one in made.fits:
        assert one.rows >= 6
        assert one.median_error is not None
        assert one.p90_error is not None
        assert one.median_error <= one.p90_error


@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(f".{OWN}")])
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
    "share of next to nothing": (constants(alone_ec=1e-7), "alone_ec is 1e-07; a share of the roof is from 1e-06 to 1"),
    "factor beyond reason": (constants(parts=10.1), "fits.1.constants: parts is 10.1; it is a number from 0 to 10"),
    "exponent beyond reason": (constants(wave=1e3), "wave is 1000.0; it is a number from 0 to 10"),
    "time beyond reason": (constants(t0=1e7), "t0 is 10000000.0; it is a number from 0 to 1e+06"),
    "truth": (constants(t0=True), "fits.1.constants.t0 is True; it should be a number; write it as 3.0e-6"),
    "text of a number": (constants(t0="0.5"), "fits.1.constants.t0 is '0.5'; it should be a number"),
    "spread of truth": (bad({"spread": True}), "fits.1.spread is True; it should be a number"),
    "error of text": (bad({"median_error": "0.1"}), "fits.1.median_error is '0.1'; it should be a number"),
    "rows of truth": (bad({"rows": True}), "fits.1.rows is True; it should be a valid integer"),
    "no fits": (content({}), "fits is []; it should have at least 1 item"),
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
    "sexagesimal": (
        "fits: [{constants: {t0: 1:30:00}}]\n",
        "line 1: 1:30:00 is no plain number; write it as 90 or 3.0e-6",
    ),
    "sexagesimal and a fraction": ("a:\n- spread: 1:30.5\n", "line 2: 1:30.5 is no plain number"),
    "octal": ("constants: {split: 010}\n", "line 1: 010 is no plain number"),
    "hexadecimal": ("rows: 0x10\n", "line 1: 0x10 is no plain number"),
    "underscores": ("rows: 1_000\n", "line 1: 1_000 is no plain number"),
    "alias": ("schema: &a x\nengine: *a\n", "has an anchor (&) or an alias (*)"),
    "key given twice": ("schema: x\nschema: y\n", "'schema' is given twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """The message names the file and the field, and the command leaves with 2 and nothing on stdout."""
    document, said = REFUSED[name]
    file = written(tmp_path / "mine.yaml", document)

    with pytest.raises(EfficiencyFileError) as caught:
        read_efficiency(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)
    refused(roofcast(*ON_H200, "--efficiency", str(file)), 2, str(file), said)


@pytest.mark.parametrize(
    ("number", "right"),
    [("3e-6", "3.0e-6"), ("2.5e30", "2.5e+30"), ("3E6", "3.0e+6"), ("yes", "3.0e-6"), ("'0.1'", "3.0e-6")],
)
def test_numbers_that_yaml_reads_as_text(number: str, right: str, tmp_path: Path) -> None:
    """YAML 1.1 wants a point and a sign: how to write it is told, and that is read."""
    text = yaml.safe_dump(constants(t0="NUMBER"))
    said = f"it should be a number; write it as {right}"
    refused(
        roofcast(*ON_H200, "--efficiency", str(written(tmp_path / "bad.yaml", text.replace("NUMBER", number)))), 2, said
    )

    if "e" in right and float(right) < 1:
        made = read_efficiency(written(tmp_path / "good.yaml", text.replace("NUMBER", right)))
        assert made.fits[0].constants["t0"] == float(right)


@pytest.mark.parametrize("number", ["0", "1", "0.5", ".5", "5.", "1.0e-6", "1.0e-06", "+1.5E+2", "90"])
def test_plain_numbers_are_read(number: str, tmp_path: Path) -> None:
    """Whole ones too, and as yaml.dump writes them."""
    text = yaml.safe_dump(constants(t0="NUMBER")).replace("NUMBER", number)

    assert read_efficiency(written(tmp_path / "mine.yaml", text)).fits[0].constants["t0"] == float(number)


def test_dumped_constants_are_read_as_they_were(tmp_path: Path) -> None:
    """What yaml.dump writes of any float, as the fits do, is a number to the reader."""
    values = {f"c{i}": 10.0**i for i in range(-17, 7)} | {f"d{i}": 1.25 * 10.0**-i for i in range(17)}
    made = read_efficiency(written(tmp_path / "mine.yaml", constants(**values)))

    assert dict(made.fits[0].constants) == values


@pytest.mark.parametrize(("count", "said"), [(200, None), (201, "fits"), (10_000, "fits")])
def test_no_more_fits_than_anyone_makes(count: int, said: str | None) -> None:
    """200 are read, one more is refused before any two are compared."""
    fits = [fit(f"gemm f{number} 0.1", {}) for number in range(count)]
    if said is None:
        assert len(Efficiency.model_validate(content({}) | {"fits": fits}).fits) == count
    else:
        with pytest.raises(ValidationError, match="at most 200 items"):
            Efficiency.model_validate(content({}) | {"fits": fits})


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


@pytest.mark.parametrize(
    ("name", "known"), [("gemm bf16 0.1", "walk"), ("moe fp8 0.1", "skew"), ("collective all_to_all 0.1", "shot")]
)
def test_a_constant_that_its_formula_does_not_know(name: str, known: str, home: Path, tmp_path: Path) -> None:
    """Told with those that are known, whatever the question: a dense model on one card has no experts, no exchange."""
    family, document = name.split(maxsplit=1)[0], content({"gemm any 0.1": {}, name: {"wlak": 1e-9}})
    for file, asked in (
        (tmp_path / "mine.yaml", ("--efficiency", str(tmp_path / "mine.yaml"))),
        (home / "efficiency" / "h200-sxm.vllm.yaml", ("--engine", "vllm")),
    ):
        written(file, document)
        refused(roofcast(*ON_H200, *asked), 2, str(file), f"{family} has no constant 'wlak'", known)
