"""`estimate` with expected times: keys, pages, remarks, `--efficiency`, `--strict` and `--explain`."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.estimate_rows import UsedConstants
from tests.expecting import PERFECT_FITS, ROUND_FITS, content, written
from tests.running import answer, refused, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

ON_H200 = ("llama-3.1-8b", "--gpu", "h200-sxm", "--engine", "vllm")
FEW = (*ON_H200, "--batch", "1,64", "--context", "4k")
TIMES = (
    "expected_seconds", "low_seconds", "high_seconds", "kernel_seconds", "host_seconds", "expected_tokens_per_second",
)  # fmt: skip


def one(*arguments: str) -> Any:
    """Return the one phase that an `estimate` answers with."""
    (phase,) = result("estimate", *arguments)["phases"]
    return phase


# --- JSON


def test_every_row_has_its_expected_time() -> None:
    """Expected is kernels and host; low and high are around it, low not below the bound; tokens a second follow."""
    rows = result("estimate", *FEW)["phases"]

    assert len(rows) == 4
    for row in rows:
        assert row["expected_seconds"] == pytest.approx(row["kernel_seconds"] + row["host_seconds"])
        assert row["bound_seconds"] <= row["low_seconds"] <= row["expected_seconds"] <= row["high_seconds"]
        tokens = row["batch"] * (4096 if row["phase"] == "prefill" else 1)
        assert row["expected_tokens_per_second"] == pytest.approx(tokens / row["expected_seconds"])
        assert row["tokens_per_second"] == pytest.approx(tokens / row["bound_seconds"])


def test_terms_have_theirs() -> None:
    """Each is at least its bound, and on one GPU they sum to the time of kernels; the host is none of them."""
    for row in result("estimate", *FEW)["phases"]:
        assert all(term["expected_seconds"] >= term["bound_seconds"] for term in row["terms"])
        assert sum(term["expected_seconds"] for term in row["terms"]) == pytest.approx(row["kernel_seconds"])
        assert "host" not in {term["term"] for term in row["terms"]}
        assert {term["term"]: term["calls"] for term in row["terms"]}["ffn.down"] == 32


def test_the_constants_are_listed() -> None:
    """A row a family and format, once each, with its file, distance, values, spread and how well it was known."""
    used = result("estimate", *FEW)["efficiency"]
    families = {(one["family"], one["format"]) for one in used}

    assert len(families) == len(used)
    assert {family for family, _ in families} == {
        "gemm", "attn_prefill", "attn_decode", "elementwise", "host", "step",
    }  # fmt: skip
    for row in used:
        assert set(row) == {field.name for field in fields(UsedConstants)}
        assert (row["fitted_on"], row["distance"]) == ("h200-sxm.vllm", [])
        assert row["rows"] > 0
        assert 0 < row["median_error"] < 0.2
    by_family = {row["family"]: row["constants"] for row in used}
    assert 0 < by_family["gemm"]["em"] <= 1


def test_constants_of_a_layout_list_its_exchanges() -> None:
    """Tensor parallel adds its patterns."""
    used = result("estimate", *FEW, "--tp", "2")["efficiency"]

    assert {one["format"] for one in used if one["family"] == "collective"} == {"all_reduce", "all_gather"}


def test_another_card_s_constants_are_told() -> None:
    """Whose they are and how they differ stands at each."""
    used = result("estimate", *FEW[:2], "h100-pcie", *FEW[3:])["efficiency"]

    assert {one["fitted_on"] for one in used} == {"h100-sxm.vllm"}
    assert {tuple(one["distance"]) for one in used} == {("architecture",)}


def test_inputs_and_provenance_say_what_was_asked() -> None:
    """`--efficiency` comes back under inputs; the times are told as fitted where they are."""
    fitted, bound = answer("estimate", *FEW), answer("estimate", *FEW, "--efficiency", "bound")

    assert (fitted["inputs"]["efficiency"], bound["inputs"]["efficiency"]) == ("expected", "bound")
    assert fitted["result"]["provenance"]["efficiency"] == "fitted"
    assert "efficiency" not in bound["result"]["provenance"]


def test_bounds_alone_have_no_expected_time() -> None:
    """`--efficiency bound`: nulls, no constants, and the same bounds."""
    rows = result("estimate", *FEW, "--efficiency", "bound")

    assert rows["efficiency"] == []
    assert {row[key] for row in rows["phases"] for key in TIMES} == {None}
    assert {term["expected_seconds"] for row in rows["phases"] for term in row["terms"]} == {None}
    kept = ("bound_seconds", "full_seconds", "tokens_per_second", "flops", "bytes")
    assert [[row[key] for key in kept] for row in rows["phases"]] == [
        [row[key] for key in kept] for row in result("estimate", *FEW)["phases"]
    ]


def test_what_does_not_fit_has_no_expected_time() -> None:
    """Neither the row nor its terms, while their work stays."""
    row = one(
        "llama-3.1-8b",
        "--gpu",
        "rtx-4090",
        "--engine",
        "llama.cpp",
        "--phase",
        "decode",
        "--batch",
        "64",
        "--context",
        "32k",
    )

    assert not row["fits"]
    assert {row[key] for key in TIMES} == {None}
    assert {term["expected_seconds"] for term in row["terms"]} == {None}
    assert all(term["calls"] > 0 for term in row["terms"])


def test_a_wider_kin_has_a_wider_interval() -> None:
    """An H100 PCIe, whose kin was measured, is known less well than an H200, and a B200 less than that."""

    def width(gpu: str) -> float:
        row = one(
            "llama-3.1-8b", "--gpu", gpu, "--engine", "vllm", "--phase", "decode", "--batch", "64", "--context", "4k"
        )
        ratio: float = row["high_seconds"] / row["expected_seconds"]
        return ratio

    assert 1 < width("h200-sxm") < width("h100-pcie") < width("b200")


def test_commands_beside_keep_to_the_bound() -> None:
    """`roofline` and `levers` say nothing of expected times."""
    for command in ("roofline", "levers"):
        assert "expected" not in roofcast(command, "llama-3.1-8b", "--gpu", "h200-sxm", "--format", "json").out


# --- pages


def test_the_page_shows_bound_expectation_and_interval() -> None:
    """In milliseconds, each as JSON has it; tokens/s are those to expect; the host stands under the terms."""
    asked = (*ON_H200, "--phase", "decode", "--batch", "16", "--context", "4k")
    row, page = one(*asked), roofcast("estimate", *asked).out
    bound, expected, low, high = (f"{row[f'{key}_seconds'] * 1e3:.2f}" for key in ("bound", "expected", "low", "high"))

    assert re.search(
        rf"4k +16 +{bound} +{expected} +{low}-{high} +memory +{row['expected_tokens_per_second']:,.0f}\n", page
    )
    assert re.search(rf"^host +- .* {row['host_seconds'] * 1e6:.0f} us +\d+\.\d%$", page, re.MULTILINE)
    assert "expect is kernels and host without queueing" in page
    assert "elementwise, step, gemm, attn_decode, host from h200-sxm.vllm;" in page.replace("\n", " ")


def test_shares_are_of_all_terms_and_the_host() -> None:
    """They sum to 100 % with the host's row."""
    page = roofcast("estimate", *ON_H200, "--phase", "decode", "--batch", "16", "--context", "4k").out
    shares = {name: float(share) for name, share in re.findall(r"^([\w.]+) .* (\d+\.\d)%$", page, re.MULTILINE)}

    assert sum(shares.values()) == pytest.approx(100, abs=0.5)
    assert 0 < shares["host"] < 20


def test_the_page_of_bounds_alone() -> None:
    """No column is left empty: the table is that of the bound, and a line says so."""
    page = roofcast("estimate", *FEW, "--efficiency", "bound").out

    assert "expect" not in page
    assert "interval" not in page
    assert "host" not in page
    assert "times are bounds: the least that peak and bandwidth allow" in page


def test_kin_are_told_in_words() -> None:
    """The page says from which card and engine constants are, and how these are kin."""
    page = " ".join(roofcast("estimate", "llama-3.1-8b", "--gpu", "b200", "--engine", "tgi").out.split())

    assert re.search(r"from h200-sxm\.sglang \(a card of its kind of memory or architecture, an engine alike\)", page)
    assert "of b200 under tgi not measured: constants of h200-sxm.sglang, with a wider interval" in page


def test_csv_has_a_column_each() -> None:
    """The same values as JSON, in a row a phase."""
    asked = (*FEW, "--phase", "decode")
    rows = list(csv.DictReader(io.StringIO(roofcast("estimate", *asked, "--format", "csv").out)))

    assert len(rows) == 2
    for row, phase in zip(rows, result("estimate", *asked)["phases"], strict=True):
        assert {key: float(row[key]) for key in TIMES} == {key: phase[key] for key in TIMES}


def test_csv_of_bounds_leaves_them_empty() -> None:
    """The columns stay."""
    (row,) = csv.DictReader(
        io.StringIO(
            roofcast(
                "estimate",
                *ON_H200,
                "--phase",
                "decode",
                "--batch",
                "1",
                "--context",
                "1k",
                "--efficiency",
                "bound",
                "--format",
                "csv",
            ).out
        )
    )

    assert {row[key] for key in TIMES} == {""}


def test_markdown_has_the_same_columns() -> None:
    """A table of the phase and one of its terms."""
    page = roofcast("estimate", *FEW, "--format", "markdown").out

    assert "| ctx | batch | TPOT bound ms | expect ms | 80 % interval | bound by | expect tokens/s |" in page
    assert "| bound | by | expect | share |" in page
    assert "| host | - |" in page


# --- --strict


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "h200-sxm"), "no engine is named"),
        (("--gpu", "h200-sxm", "--engine", "none"), "no engine is named"),
        (("--gpu", "h200-sxm", "--engine", "tgi"), "of h200-sxm under tgi not measured: constants of h200-sxm.sglang"),
        (
            ("--gpu", "h100-pcie", "--engine", "vllm"),
            "of h100-pcie under vllm not measured: constants of h100-sxm.vllm",
        ),
        (("--gpu", "rtx-5090", "--engine", "vllm"), "of rtx-5090 under vllm not measured: constants of"),
        (("--gpu", "rtx-4060-ti-16gb", "--engine", "llama.cpp"), "not measured: constants of gddr.llama.cpp"),
    ],
)
def test_strict_refuses_constants_of_others(arguments: tuple[str, ...], said: str) -> None:
    """In one line, with exit 3, what is assumed; without --strict the same is a note."""
    asked = ("estimate", "qwen2.5-1.5b", "--batch", "1", "--context", "1k", *arguments)

    refused(roofcast(*asked, "--strict"), 3, "--strict refuses what is assumed", said)
    assert any(said in line for line in answer(*asked)["assumptions"])
    assert said not in roofcast(*asked, "--strict", "--efficiency", "bound").err


@pytest.mark.parametrize(("gpu", "engine"), [("h200-sxm", "vllm"), ("rtx-4090", "llama.cpp")])
def test_strict_takes_what_was_measured(gpu: str, engine: str) -> None:
    """Own constants."""
    done = roofcast(
        "estimate", "qwen2.5-1.5b", "--gpu", gpu, "--engine", engine, "--batch", "1", "--context", "1k", "--strict"
    )

    assert done.code == 0, done.err


# --- --efficiency FILE


def test_a_file_of_constants(tmp_path: Path) -> None:
    """Its constants count, are listed as its own, and nothing is assumed of the card."""
    file = written(tmp_path / "mine.yaml", content(ROUND_FITS, accelerator="b200", engine="vllm"))
    asked = ("llama-3.1-8b", "--gpu", "b200", "--engine", "vllm", "--batch", "16", "--context", "4k")
    got = result("estimate", *asked, "--efficiency", str(file), "--strict")

    assert {one["fitted_on"] for one in got["efficiency"]} == {"b200.vllm"}
    assert {tuple(one["distance"]) for one in got["efficiency"]} == {()}
    assert got["phases"][1]["host_seconds"] == pytest.approx(116e-6)  # 100 us a step, 1 a sequence


def test_a_file_of_a_perfect_card(tmp_path: Path) -> None:
    """Without losses and spread the expected time is the bound and what activations take, known to the end."""
    file = written(tmp_path / "perfect.yaml", content(PERFECT_FITS))
    row = one(*ON_H200, "--phase", "decode", "--batch", "1", "--context", "4k", "--efficiency", str(file))

    assert row["bound_seconds"] <= row["expected_seconds"] < row["bound_seconds"] * 1.01
    assert row["low_seconds"] == pytest.approx(row["high_seconds"])
    assert row["host_seconds"] == 0


@pytest.mark.parametrize("name", ["expcted", "none", "", "no/such/file.yaml"])
def test_an_unknown_name_is_refused(name: str) -> None:
    """With those that are known."""
    refused(roofcast("estimate", *ON_H200, "--efficiency", name), 2, f"--efficiency {name}", "expected, bound or an")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """Nor does it look into one."""
    refused(roofcast("estimate", *ON_H200, "--efficiency", str(tmp_path)), 2, str(tmp_path), "is a folder")


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n"])
def test_an_empty_file_is_refused(text: str, tmp_path: Path) -> None:
    """With the fields that it should have."""
    file = written(tmp_path / "empty.yaml", text)

    refused(roofcast("estimate", *ON_H200, "--efficiency", str(file)), 2, str(file), "is empty", "schema")


# --- --explain


@pytest.mark.parametrize(
    ("term", "formula"),
    [
        ("expected_seconds", "calls x (the family's formula"),
        ("kernel_seconds", "calls x (the family's formula"),
        ("host_seconds", "step + device x (devices - 1) + sequence x sequences + max(0, launch x calls - kernels)"),
        ("interval", "high = expected exp(1.28 sigma)"),
        ("low_seconds", "never below the bound"),
        ("high_seconds", "high = expected exp(1.28 sigma)"),
        ("spread", "sigma^2 = parts^2 sum over families"),
        ("gemm", "t = (t0 + walk min(k, split)) (1 - single, where m is 1) + (C^4 + M^4)^(1/4)"),
        ("moe", "2 n k (full + "),
        ("attn_decode", "split s^2 / (s^2 + 256^2)"),
        ("attn_prefill", "D / (bandwidth em) + block b + chain s"),
        ("collective", "hops + x / em + own s / (n B) + sqrt(ramp x)"),
    ],
)
def test_new_terms_are_explained(term: str, formula: str) -> None:
    """The formula is printed, without a model or a card."""
    done = roofcast("estimate", "--explain", term)

    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{term}: ")
    assert formula in done.out


@pytest.mark.parametrize("heading", ["expect ms", "80 % interval", "host", "expect"])
def test_headings_are_explained(heading: str) -> None:
    """What a table prints over its columns leads to the term."""
    done = roofcast("estimate", "--explain", heading)

    assert (done.code, done.err) == (0, "")


def test_every_way_that_constants_may_differ_in_has_its_words() -> None:
    """What a choice may be told apart by is printed in words: none is missing."""
    from roofcast.hwdb.efficiency_files import SERVER, kinship
    from roofcast.reports.estimate import APART

    assert APART.keys() == kinship().keys() - {SERVER}
