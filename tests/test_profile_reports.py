"""What `profile` prints and draws, of made-up profiles with fixed numbers: text, CSV, JSON, charts, saved profiles."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator

from roofcast.calculators.answer import Remarks
from roofcast.calculators.profile_making import device_of, machine_of, machine_row, point_row, roofs_row, step_of
from roofcast.calculators.profile_work import Against, activations_of, compared, counted, stated_weights
from roofcast.calculators.profiled import StepProfile
from roofcast.reports.data import render_csv, render_json
from roofcast.reports.markdown import render_markdown
from roofcast.reports.plot_profile import dots_of, profile_chart, roofs_of
from roofcast.reports.plot_style import saved
from roofcast.reports.profile import profile_document
from roofcast.reports.profile_steps import verdicts
from roofcast.reports.schema import json_schema
from roofcast.reports.text import render_text
from tests.checkpoints import catalogued
from tests.profile_values import (
    H200,
    LAPTOP,
    attention_result,
    both_result,
    calibration_result,
    device,
    device_result,
    failed,
    saved_result,
    step,
    steps_result,
)
from tests.running import refused, roofcast

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.profile_rows import ProfileResult

SAVED = Path(__file__).parent / "fixtures" / "profiles" / "made-up.json"
EVERY: dict[str, Callable[[], ProfileResult]] = {
    "device": device_result,
    "device of a CPU": lambda: device_result(LAPTOP),
    "compare": both_result,
    "compare on a CPU": lambda: both_result(LAPTOP),
    "attention": attention_result,
    "calibrate": calibration_result,
    "a step that failed": lambda: steps_result("decode", [failed("decode", 64, 131072)]),
}


def text_of(result: ProfileResult, *, terms: bool = False) -> str:
    """Its text."""
    return render_text(profile_document(result, {}, Remarks(), terms=terms))


def table_of(text: str, title: str) -> list[list[str]]:
    """Cells of the rows of a table, by its title."""
    lines = text.partition(f"\n{title}")[2].split("\n\n")[0].splitlines()
    rule = next(number for number, line in enumerate(lines) if line.startswith("─"))
    return [line.split() for line in lines[rule + 1 :]]


@pytest.mark.parametrize("name", EVERY)
def test_every_format_has_all_answers(name: str) -> None:
    """JSON validates, text and Markdown and CSV are made of every answer, whatever is not known."""
    document = profile_document(EVERY[name](), {}, Remarks(), terms=True)

    Draft202012Validator(json_schema("profile")).validate(json.loads(render_json(document)))
    assert render_markdown(document)
    assert "None" not in render_text(document)
    assert "nan" not in render_csv(document)


def test_roofs_stand_beside_the_data_sheet() -> None:
    """4.4 of 4.8 TB/s, 780 of 989 TFLOP/s, ridges of both; a product that did not run has its reason."""
    text = text_of(device_result())

    assert "measured roofs: read 4.4 TB/s (92% of the data sheet's), bf16 780 TFLOP/s (79% of the data sheet's)" in text
    assert table_of(text, "roofs as measured") == [["bf16", "780", "177", "989", "79%", "206"]]
    assert ["4", "GiB", "0.976", "4,400", "92%", "2.20", "3,900", "81%"] in table_of(text, "memory\n")
    assert "no fp8 product in this build of torch" in text
    assert "graph       1.3 us" in text


def test_a_device_that_is_not_in_the_database_has_no_data_sheet() -> None:
    """Its tables leave the columns out."""
    text = text_of(device_result(LAPTOP))

    assert "data sheet" not in text
    assert table_of(text, "roofs as measured") == [["bf16", "780", "177"]]
    assert "8 threads" in text


def test_decode_is_memory_bound_by_measurement() -> None:
    """The verdict is of the shares of both roofs."""
    said = list(verdicts(both_result().points))

    assert said[0].startswith("prefill by measurement: memory-bound at 1 x 128, ")
    assert "compute-bound at 1 x 2k, 1 x 8k, " in said[0]
    assert said[1].startswith("decode by measurement: memory-bound, ")


def test_a_step_far_from_both_roofs_is_not_bound_by_one() -> None:
    """Where the host takes the time, neither compute nor memory is the limit."""
    slow = step("decode", 1, 1024)
    assert slow.sample is not None
    slow = replace(slow, sample=replace(slow.sample, seconds=100 * slow.sample.seconds))
    [said] = verdicts(steps_result("decode", [slow]).points)

    assert "nearer to the memory roof, but far from it" in said


def test_steps_families_and_terms() -> None:
    """A row a step; families share the step's time; terms only where they are asked."""
    result = steps_result("decode", [step("decode", 16, 1024)], expected=False)
    short, long = text_of(result), text_of(result, terms=True)

    [row] = table_of(short, "decode: a token")
    assert (row[0], row[1], row[-1]) == ("1k", "16", "memory")
    assert [cells[2] for cells in table_of(short, "decode by family")] == ["gemm", "attn_decode", "elementwise"]
    assert "terms of decode" not in short
    terms = table_of(long, "terms of decode, 16 x 1k")
    assert [cells[0] for cells in terms][-2:] == ["head", "between"]
    assert sum(float(cells[3 if cells[0] != "between" else 4].rstrip("%")) for cells in terms) == pytest.approx(
        100, abs=0.5
    )


def test_a_step_that_did_not_run_is_a_row() -> None:
    """Beside those that did."""
    rows = table_of(text_of(steps_result("decode", [failed("decode", 64, 131072)], expected=False)), "decode: a token")

    assert rows[0][:3] == ["128k", "64", "-"]
    assert rows[0][-3:] == ["did", "not", "run"]


def test_attention_says_what_is_not_available() -> None:
    """Backends that ran stand in the tables, the others below with why."""
    text = text_of(attention_result())

    assert [cells[2] for cells in table_of(text, "causal attention")] == ["flash", "cudnn"]
    assert "89%" in table_of(text, "decode over the cache")[0]
    assert table_of(text, "not available")[0][:3] == ["prefill", "math", "all"]


def test_calibration_shows_residuals_and_the_file() -> None:
    """Errors by family and format; a host's are not known."""
    text = text_of(calibration_result())

    assert "constants written to h200-sxm.roofcast.yaml" in text
    assert table_of(text, "fitted constants") == [
        ["gemm", "bf16", "63", "2.1%", "6.4%", "0.031"],
        ["host", "decode", "12", "-", "-", "0.050"],
    ]


def test_csv_has_steps_and_terms() -> None:
    """The whole step first, then its terms, told apart by their name."""
    result = steps_result("decode", [step("decode", 16, 1024)], expected=False)
    rows = list(csv.DictReader(io.StringIO(render_csv(profile_document(result, {}, Remarks())))))

    assert [row["name"] for row in rows][:2] == ["step", "embedding"]
    assert {row["batch"] for row in rows} == {"16"}
    assert rows[0]["near"] == "memory"


def test_the_work_of_fp8_keeps_head_and_embedding_in_16_bits() -> None:
    """As the profiler's decoder does; the matrices of layers are half as many bytes."""
    spec = catalogued("llama-3.1-8b").spec
    sizes = {}
    for weights in ("bf16", "fp8"):
        asked = StepProfile("decode", 1, 1024, None)
        sizes[weights] = {row.name: row.bytes for row in compared(asked, counted(spec, weights), Against()).rows}

    assert activations_of("fp8") == "bf16"
    assert sizes["fp8"]["head"] == sizes["bf16"]["head"]
    assert sizes["fp8"]["attn.decode"] == sizes["bf16"]["attn.decode"]
    assert 2 * sizes["fp8"]["ffn.down"] == sizes["bf16"]["ffn.down"]


@pytest.mark.parametrize(
    ("name", "weights"), [("llama-3.1-8b", "bf16"), ("qwen3-32b-fp8", "fp8"), ("gpt-oss-20b", "bf16")]
)
def test_weights_are_as_stored_where_the_profiler_has_that(name: str, weights: str) -> None:
    """Else bf16, which is said."""
    found, said = stated_weights(catalogued(name))

    assert found == weights
    assert (said is None) == (name != "gpt-oss-20b")


def test_rows_give_back_what_they_were_made_of() -> None:
    """Roofs and steps pass through JSON's rows unchanged."""
    found, measured = device(), step("decode", 16, 1024)
    row = point_row(compared(measured, counted(catalogued("llama-3.1-8b").spec, "bf16"), Against(device=found)))

    assert machine_of(machine_row(H200)) == H200
    assert device_of(roofs_row(found, None), H200) == found
    assert step_of(row) == measured


def test_the_chart_has_roofs_steps_and_families() -> None:
    """A line a roof, a filled point a step, a hollow one a family that has FLOP, a label a step."""
    result = both_result()
    figure = profile_chart(result)
    [axes], [legend] = figure.axes, figure.legends
    steps = [dot for dot in dots_of(result) if not dot.family]

    assert [roof.measured for roof in roofs_of(result)] == [False, True]
    assert [round(roof.ridge) for roof in roofs_of(result)] == [206, 177]
    assert len(axes.lines) == 2 + len(dots_of(result))
    assert len(steps) == len(result.points) == 7
    texts = [text.get_text() for text in axes.texts]
    assert {dot.label for dot in steps} <= set(texts)
    assert {"4.8 TB/s", "4.4 TB/s", "bf16 989 TFLOP/s", "bf16 780 TFLOP/s"} <= set(texts)
    assert [text.get_text() for text in legend.texts] == [
        "prefill", "decode", "matrices", "attention", "roof as measured", "data sheet",
    ]  # fmt: skip


def test_points_stand_at_or_below_their_roof() -> None:
    """A step of the synthetic profile, slower than the data sheet allows, is below that roof."""
    result = both_result()
    sheet = roofs_of(result)[0]

    assert all(dot.rate <= min(sheet.peak, dot.intensity * sheet.bandwidth) for dot in dots_of(result))


@pytest.mark.parametrize(
    "result", [both_result(LAPTOP), steps_result("decode", [failed("decode", 1, 128)]), device_result()]
)
def test_charts_of_little(result: ProfileResult) -> None:
    """No data sheet, no step: still a picture, without a warning of matplotlib; the same input gives the same bytes."""
    drawn = saved(profile_chart(result), "svg")

    assert drawn == saved(profile_chart(result), "svg")
    assert saved(profile_chart(result), "png").startswith(b"\x89PNG")


def test_the_saved_profile_is_up_to_date(*, update_golden: bool) -> None:
    """The fixture is what the made-up profile is written as today."""
    document = profile_document(saved_result(), {"model": "llama-3.1-8b"}, Remarks())
    if update_golden:
        SAVED.write_text(render_json(document), encoding="utf-8")

    assert SAVED.read_text(encoding="utf-8") == render_json(document)


@pytest.mark.parametrize("command", ["device", "attention", "calibrate", "decode"])
def test_measuring_without_torch(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names the extra, whichever command."""
    monkeypatch.setitem(sys.modules, "torch", None)
    model = ["llama-3.1-8b", "--offline"] if command == "decode" else []

    refused(roofcast("profile", command, *model), 3, "needs torch", "roofcast[profile]")


def test_element_wise_work_that_moves_next_to_nothing_has_no_rate() -> None:
    """No share of 0.0 %, but a dash; whatever moves more keeps its share."""
    slow = step("decode", 16, 1024)
    parts = tuple(
        replace(part, sample=replace(part.sample, seconds=1.0)) if part.name == "elementwise" else part
        for part in slow.parts
    )
    text = text_of(steps_result("decode", [replace(slow, parts=parts)], expected=False), terms=True)
    rows = {cells[0]: cells for cells in table_of(text, "terms of decode")}

    assert rows["elementwise"][4:] == ["-", "-", "-", "-"]
    assert "-" not in rows["ffn.down"]
    assert rows["embedding"][-1].endswith("%")


def test_notes_are_not_overlong() -> None:
    """Each says one thing: a pipe has them on one line."""
    lines = text_of(both_result()).splitlines()

    assert max(map(len, lines)) <= 240
