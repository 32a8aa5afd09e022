"""`roofcast validate` as people run it: files of every kind, groups, gates, formats and faults."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from roofcast.calculators.bench_json import LARGEST
from roofcast.cli import progress, validating
from tests.running import Outcome, refused, result, roofcast

FILES = Path(__file__).parent / "fixtures" / "benchmarks"
OWN = str(FILES / "own.csv")
SERVE = str(FILES / "vllm-serve.json")
UNSTATED = str(FILES / "vllm-latency.json")
MACHINE = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vllm", "--offline")
LENGTHS = ("--prompt", "512", "--output", "128", "--batch", "4")
#: keys that other programs rely on
POINT = {"source", "quantity", "measured", "bound", "expected", "low", "high", "error", "reason"}
SUMMARY = {"by", "group", "points", "median_error", "p90_error", "inside_interval"}


def validated(*arguments: str) -> Outcome:
    """Run `roofcast validate`, offline."""
    return roofcast("validate", *arguments, "--offline")


def own(folder: Path, **changed: Any) -> str:
    """A file of one point, changed."""
    point = {
        "source": "https://example.org/a", "quantity": "decode_seconds", "value": 0.01, "model": "llama-3.1-8b", "gpu": "h100-sxm", "tp": 1,
        "engine": "vllm", "batch": 1, "prompt": 512, "output": 128,
    } | changed  # fmt: skip
    path = folder / f"own-{len(list(folder.iterdir()))}.json"
    points = [{key: value for key, value in point.items() if value is not None}]
    path.write_text(json.dumps({"schema": "roofcast.measurements/1", "points": points}))
    return str(path)


# --- files


@pytest.mark.parametrize("name", sorted(path.name for path in FILES.iterdir() if path.name != "README.md"))
def test_every_kind_of_file_is_answered(name: str) -> None:
    """With what the command line states, each file has a point that can be predicted."""
    found = result("validate", str(FILES / name), *MACHINE, *LENGTHS)

    assert found["counted"] >= 1
    assert found["counted"] + sum(found["uncounted"].values()) == len(found["points"])


def test_several_files_are_one_answer() -> None:
    """Their points stand together, each with its source."""
    found = result("validate", OWN, SERVE, *MACHINE)

    assert {row["source"].rpartition("/")[2] for row in found["points"]} == {"bench", "vllm-serve.json"}
    assert found["summary"][0]["points"] == found["counted"] == 5


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` is read like a file."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(Path(OWN).read_bytes())))

    assert result("validate", "-", "--offline")["counted"] == 2


def test_published_figures_are_the_default() -> None:
    """A few hundred points with links; most in their interval, and none quicker than its bound by more than 2 %."""
    found = result("validate", "--offline")
    whole = found["summary"][0]

    assert whole["points"] > 300
    assert whole["beaten"] == 0
    assert whole["median_error"] < 0.08
    assert whole["median_error"] < whole["bound_error"] / 4
    assert all(row["source"].startswith("https://") for row in found["points"])


@pytest.mark.parametrize(
    ("content", "word"),
    [(None, "cannot be read"), ("folder", "it is a folder"), ("", "empty"), ("{", "JSON"), ("hello", "not recognised"), ("[]", "not recognised")],
)  # fmt: skip
def test_files_that_cannot_be_read(content: str | None, word: str, tmp_path: Path) -> None:
    """One line that names the file, and exit code 2."""
    path = tmp_path / "mine"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content)

    refused(validated(str(path)), 2, str(path), word)


def test_a_file_of_another_size(tmp_path: Path) -> None:
    """More than 256 MB is refused, as it is read."""
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)

    refused(validated(str(path)), 2, "larger than 256 MB")


def test_good_files_are_answered_beside_bad_ones() -> None:
    """The bad one is named on stderr, and its code is returned."""
    outcome = validated(OWN, str(FILES / "README.md"), "--format", "json")

    assert outcome.code == 2
    assert outcome.data["result"]["counted"] == 2
    assert "README.md: not recognised" in outcome.complaint


# --- points that cannot be predicted


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model": "nosuch"}, "nosuch"),
        ({"gpu": "h1000"}, "h1000"),
        ({"tp": 3}, "3"),
        ({"batch": None}, "not stated: batch"),
        ({"batch": 10**6}, "does not fit the memory"),
        ({"quantity": "ttft_seconds", "batch": 8, "output": None}, "under load"),
    ],
)
def test_a_point_that_cannot_be_predicted_has_its_reason(changed: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """The others are answered, and the code is 0."""
    lost, good = own(tmp_path, **changed), own(tmp_path)
    outcome = validated(lost, good, "--format", "json")
    first, last = outcome.data["result"]["points"]

    assert outcome.code == 0
    assert first["reason"] is None
    assert reason in last["reason"]
    assert (last["expected"], last["error"]) == (None, None)
    assert reason in validated(lost, good).out


def test_an_accelerator_that_is_not_there() -> None:
    """It is refused before any file is read."""
    outcome = validated(OWN, "--gpu", "h1000")

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.complaint.startswith("no accelerator 'h1000'")


@pytest.mark.parametrize(("arguments", "code"), [(("--model", "nosuch"), 3), (("--tp", "3"), 2)])
def test_no_point_at_all(arguments: tuple[str, ...], code: int) -> None:
    """Undetermined, or usage where nothing else is wrong: that stands on stderr, the page is still printed."""
    outcome = validated(OWN, *arguments)

    assert outcome.code == code
    assert outcome.complaint.startswith("no point can be predicted: ")
    assert arguments[1] in outcome.complaint
    assert outcome.out.startswith("no point can be predicted\n")


def test_what_a_file_does_not_state_can_be_given() -> None:
    """A latency benchmark holds no lengths."""
    assert validated(UNSTATED, *MACHINE).code == 3
    [row] = result("validate", UNSTATED, *MACHINE, *LENGTHS)["points"]

    assert (row["batch"], row["prompt"], row["output"]) == (4, 512, 128)


def test_an_engine_that_is_not_known_is_assumed(tmp_path: Path) -> None:
    """It is said, and --strict refuses it."""
    path = own(tmp_path, engine="my-engine")
    outcome = validated(path, "--format", "json")

    assert [line for line in outcome.data["assumptions"] if "my-engine" in line]
    refused(validated(path, "--strict"), 3, "my-engine")


def test_how_names_are_understood_is_said(tmp_path: Path) -> None:
    """`h100` is the SXM card."""
    assert "'h100' is taken as h100-sxm" in validated(own(tmp_path, gpu="h100")).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("--engine", "nosuch"), ("--weights", "fp7"), ("--kv", "fp7"), ("--tp", "0"), ("--gpus", "-1"), ("--batch", "0"), ("--prompt", "0"),
        ("--output", "-5"), ("--worst", "-1"), ("--by", "colour"), ("--efficiency", "nosuch"), ("--require", "nonsense"), ("--require", "median<=15"),
        ("--format", "xml"), ("--out", "x.pdf"), ("--format", "csv", "--out", "x.png"),
    ],
)  # fmt: skip
def test_bad_options(arguments: tuple[str, ...]) -> None:
    """One line that names the option, exit code 2, nothing on stdout."""
    refused(validated(OWN, *arguments), 2, arguments[1].lstrip("-"))


# --- what is shown


def test_text_fits_a_terminal() -> None:
    """Tables of usual names take 80 columns; links and sentences below may be longer."""
    lines = validated(OWN, SERVE).out.splitlines()
    tables = lines[2 : next(n for n, line in enumerate(lines) if line.split() == ["source"])]

    assert max(map(len, tables)) <= 82
    assert "[1]  https://example.org/bench" in lines


def test_every_link_stands_once() -> None:
    """Rows name their source by its number."""
    out = validated(OWN).out

    assert out.count("https://example.org/bench") == 1
    assert out.count("[1]") == 3


@pytest.mark.parametrize(("worst", "listed", "title"), [(0, 0, None), (1, 1, "the worst miss"), (2, 2, "every point, the worst first"), (1000, 2, "every point, the worst first")])  # fmt: skip
def test_as_many_misses_as_asked(worst: int, listed: int, title: str | None) -> None:
    """None, some, or all there are."""
    out = validated(OWN, "--worst", str(worst)).out

    assert out.count("[1]") == (listed + 1 if listed else 0)
    assert title is None or title in out


def test_groups_of_one_are_left_out_of_the_page() -> None:
    """They would say what the first line says; JSON has them."""
    page, data = validated(OWN).out, result("validate", OWN, "--offline")

    assert "NVIDIA data centre" not in page
    assert "NVIDIA data centre" in {row["group"] for row in data["summary"]}


def test_groups_are_those_asked() -> None:
    """And all points before them."""
    found = result("validate", OWN, "--by", "quantity,source", "--offline")

    assert list(dict.fromkeys(row["by"] for row in found["summary"])) == ["all", "quantity", "source"]


def test_bounds_alone() -> None:
    """Errors are the bound's, which is never too slow; nothing is expected."""
    found = result("validate", OWN, SERVE, "--efficiency", "bound", *MACHINE)
    page = validated(OWN, "--efficiency", "bound").out

    assert found["error_of"] == "bound"
    assert found["counted"] == 5
    assert {row["expected"] for row in found["points"]} == {None}
    assert all((row["error"] > 0) is ("per_second" in row["quantity"]) for row in found["points"] if row["error"])
    assert "bound against measured" in page
    assert "expect" not in page


def test_constants_of_a_file(tmp_path: Path) -> None:
    """A user's file counts before all others."""
    path = tmp_path / "mine.yaml"
    fits = "\n".join(
        f"  - {{family: {name}, constants: {{t0: 1.0, ec: 0.5, em: 0.5}}, spread: 0.1}}"
        for name in ("gemm", "attn_decode", "attn_prefill", "elementwise")
    )
    path.write_text(
        f"schema: roofcast.efficiency/1\naccelerator: h100-sxm\nengine: vllm\nfits:\n{fits}\n"
        "provenance: {fitted: '2026-01-01', by: me, source: a guess}\n"
    )
    slow = result("validate", OWN, "--efficiency", str(path), "--offline")["points"]

    assert all(row["expected"] > 1 for row in slow if row["quantity"] == "tpot_seconds")


def test_csv_has_a_row_a_point() -> None:
    """With its link and its numbers, in SI units."""
    rows = list(csv.DictReader(io.StringIO(validated(OWN, "--format", "csv").out)))

    assert [row["source"] for row in rows] == ["https://example.org/bench"] * 2
    assert {float(row["measured"]) for row in rows} == {0.0125, 1180.0}
    assert rows[0].keys() >= POINT


def test_markdown_has_the_links() -> None:
    """A table a block, and the sources."""
    out = validated(OWN, "--format", "markdown").out

    assert "https://example.org/bench" in out
    assert out.count("|---") >= 3


def test_names_from_files_cannot_forge_lines(tmp_path: Path) -> None:
    """Line breaks and escapes of a model's name and a source stay on their line."""
    path = own(tmp_path, model="evil\n\x1b[31mname", source="https://example.org/\x1b[2J\nroofcast: ok")
    outcome = validated(path, own(tmp_path))

    assert "\x1b" not in outcome.out
    assert "\nroofcast: ok" not in outcome.out


def test_json_is_the_published_schema() -> None:
    """The keys that programs rely on, and all that `roofcast schema validate` says."""
    validator = Draft202012Validator(roofcast("schema", "validate").data)
    for arguments in ((OWN, *MACHINE), (OWN, "--efficiency", "bound", "--offline"), (UNSTATED, *MACHINE)):
        data = roofcast("validate", *arguments, "--format", "json").data
        validator.validate(data)
        assert all(row.keys() >= POINT for row in data["result"]["points"])
        assert all(row.keys() >= SUMMARY for row in data["result"]["summary"])
    assert not validator.is_valid(data | {"result": {}})


@pytest.mark.parametrize("ending", ["json", "csv", "md", "txt", "svg", "png"])
def test_out(ending: str, tmp_path: Path) -> None:
    """A file of its kind; beside a chart the page is printed."""
    path = tmp_path / f"x.{ending}"
    outcome = validated(OWN, "--out", str(path))

    assert outcome.code == 0
    assert path.stat().st_size > 100
    assert bool(outcome.out) is (ending in {"svg", "png"})


def test_the_files_that_are_read_are_not_written() -> None:
    """--out must not name one of them."""
    before = Path(OWN).read_bytes()
    refused(validated(OWN, "--out", OWN, "--format", "csv"), 2, "read as a part of")

    assert Path(OWN).read_bytes() == before


# --- gates


@pytest.mark.parametrize(
    ("rules", "code"),
    [(("points>=2",), 0), (("points>=3",), 1), (("points>=1", "median<=0.1%"), 1), (("beaten<=0", "p90<=1000%"), 0)],
)
def test_gates(rules: tuple[str, ...], code: int) -> None:
    """Met, or exit code 1 after the page."""
    outcome = validated(OWN, *(word for rule in rules for word in ("--require", rule)))

    assert outcome.code == code
    assert outcome.out
    assert ("is not met" in outcome.err) is bool(code)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((UNSTATED, *MACHINE, "--require", "points>=1"), 3),
        ((OWN, "--efficiency", "bound", "--require", "inside>=10%"), 3),
        ((OWN, str(FILES / "README.md"), "--require", "points>=3"), 2),
    ],
)
def test_gates_that_cannot_be_judged(arguments: tuple[str, ...], code: int) -> None:
    """Undetermined; a bad file counts before a gate that fails."""
    assert validated(*arguments).code == code


def test_explain_needs_no_file() -> None:
    """The formula of a term, as in every command."""
    assert "bandwidth" in roofcast("validate", "--explain", "bound").out


# --- progress


def test_many_points_are_counted_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar on stderr from some fifty points on, and there alone."""
    drawn: list[int] = []
    monkeypatch.setattr(progress.ShardProgress, "start", lambda _, total: drawn.append(total))
    monkeypatch.setattr(progress.ShardProgress, "advance", lambda _: drawn.append(1))
    points: Any = range(validating.MANY)
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: False))
    assert list(validating.progressing(points)) == list(points)
    assert drawn == []

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    assert list(validating.progressing(points)) == list(points)
    assert drawn == [validating.MANY, *[1] * validating.MANY]


def test_published_points_are_chosen_and_not_renamed() -> None:
    """Without a file, --gpu and --engine say which of the published points count; no other one is called that."""
    rows = result("validate", "--gpu", "H100", "--engine", "vllm")["points"]

    assert rows
    assert {(row["gpu"], row["engine"]) for row in rows} == {("h100-sxm", "vllm")}
    refused(roofcast("validate", "--gpu", "l4"), 2, "no published figure is of --gpu l4", "FILE")
