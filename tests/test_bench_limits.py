"""What is refused of a measured point, and what is said of rows that are left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofcast.calculators.bench_own import SCHEMA
from roofcast.calculators.measurement import MeasurementFileError, Reading
from roofcast.calculators.measurement_file import read_measurements

FOLDER = Path(__file__).parent / "fixtures" / "benchmarks"
POINT = {"quantity": "decode_seconds", "value": 0.01, "model": "llama-3-8b", "gpu": "h100"}
HEAD = "| model | test | t/s |\n| --- | --- | --- |\n"
GOOD = "| llama 8B F16 | pp512 | 512.00 ± 1.00 |\n"


def own(**changed: Any) -> str:
    """A file of one point with these fields changed."""
    return json.dumps({"schema": SCHEMA, "points": [POINT | changed]})


def text_of(name: str) -> str:
    """A fixture's text."""
    return (FOLDER / name).read_text()


def read(text: str) -> Reading:
    """A file's reading."""
    return read_measurements(text, "f")


def problem(text: str) -> str:
    """The one line that says what is wrong with a file."""
    with pytest.raises(MeasurementFileError) as caught:
        read(text)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("f: ")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"value": 1e-320}, "value is 1e-320; it must be at least 1e-09"),
        ({"value": 0.9e-9}, "value is 9e-10; it must be at least 1e-09"),
        ({"value": 1.1e9}, "value is 1.1e+09; decode_seconds must be from 1e-09 to 1e+09 s"),
        ({"quantity": "output_tokens_per_second", "value": 9e-7}, "value is 9e-07; output_tokens_per_second must be from 1e-06 to 1e+12 token/s"),
        ({"quantity": "output_tokens_per_second", "value": 2e12}, "value is 2e+12; output_tokens_per_second must be from 1e-06 to 1e+12 token/s"),
        ({"high": 2e9}, "high is 2e+09; decode_seconds must be from 1e-09 to 1e+09 s"),
        ({"spread": 2e9}, "spread is 2e+09; it must be at most 1e+09 s"),
        ({"batch": 2 * 10**9}, "batch is 2000000000; it must be at most 1,000,000,000"),
        ({"prompt": 2e12}, "prompt is 2e+12; it must be at most 1e+12"),
        ({"context": 2e12}, "context is 2e+12; it must be at most 1e+12"),
        ({"prompt": 0.5}, "prompt is 0.5; of decode_seconds it must be 1 or more"),
        ({"output": 0}, "output is 0; of decode_seconds it must be 1 or more"),
        ({"output": 0.01}, "output is 0.01; of decode_seconds it must be 1 or more"),
        ({"quantity": "batch_seconds", "prompt": 0}, "prompt is 0; of batch_seconds it must be 1 or more"),
        ({"quantity": "ttft_seconds", "output": 0.5}, "output is 0.5; of ttft_seconds it must be 1 or more"),
        ({"gpus": 8, "tp": 4}, "gpus is 8; it must be tp x pp x dp, which is 4"),
        ({"gpus": 4, "tp": 4, "dp": 2}, "gpus is 4; it must be tp x pp x dp, which is 8"),
    ],
)  # fmt: skip
def test_what_nobody_can_have_measured(changed: dict[str, Any], said: str) -> None:
    """Field, what it is and what it must be."""
    assert problem(own(**changed)) == f"point 1: {said}"


@pytest.mark.parametrize(
    "changed",
    [
        {"value": 1e-9},
        {"value": 1e9},
        {"spread": 1e-17},
        {"output": 1, "prompt": 0, "context": 0.5},
        {"prompt": 0, "cached": 0},
        {"cached": 0},
        {"quantity": "prefill_seconds", "output": 0, "prompt": 1},
        {"gpus": 8},
        {"gpus": 8, "tp": 2, "pp": 2, "dp": 2},
        {"tp": 4},
    ],
)
def test_what_can_be_is_read(changed: dict[str, Any]) -> None:
    """The ends of the limits, and zeros that mean something."""
    point = read(own(**changed)).points[0]

    assert {name: getattr(point, name) for name in changed} == changed


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("vllm-serve.json", {"median_ttft_ms": 1e-300}, "value is 1e-303; ttft_seconds must be from"),
        ("vllm-serve.json", {"median_tpot_ms": 1e13}, "value is 1e+10; tpot_seconds must be from"),
        ("vllm-serve.json", {"output_throughput": 1e-320}, "output_throughput is 1e-320; it must be at least"),
        ("vllm-serve.json", {"output_throughput": 1e14}, "value is 1e+14; output_tokens_per_second must be from"),
        ("vllm-serve.json", {"total_output_tokens": 79}, "output is 0.5; of ttft_seconds it must be 1 or more"),
        ("vllm-serve.json", {"gpus": 8, "tp": 4}, "gpus is 8; it must be tp x pp x dp, which is 4"),
        ("vllm-throughput.json", {"num_requests": 10**12}, "num_requests is 1000000000000; it must be at most"),
        ("vllm-latency.json", {"percentiles": {"50": 1e10}}, "value is 1e+10; batch_seconds must be from"),
        ("genai-perf.json", {"output_sequence_length": {"avg": 0.25}}, "output is 0.25; of ttft_seconds it must be"),
    ],
)
def test_tools_files_are_held_to_the_same(name: str, fields: dict[str, Any], said: str) -> None:
    """Whatever tool wrote it, and whichever unit it is in."""
    assert problem(json.dumps(json.loads(text_of(name)) | fields)).startswith(said)


def test_a_rate_that_is_next_to_nothing() -> None:
    """512 tokens at 1e-320 a second would take for ever."""
    assert problem(f"{HEAD}| llama 8B F16 | pp512 | {1e-320} |\n").startswith("line 3: t/s is ")


def test_a_tiny_deviation_is_one() -> None:
    """Of repeats that are all the same: a residue of arithmetic."""
    point = read(json.dumps(json.loads(text_of("vllm-serve.json")) | {"std_ttft_ms": 1e-14})).points[0]

    assert point.spread == pytest.approx(1e-17)


@pytest.mark.parametrize(
    ("row", "line"),
    [
        ("| llama 8B F16 | tg128 | 100.00 ± 1.00 | 7 |", 4),
        ("| llama 8B F16 | tg128 |", 4),
        ("| llama 8B F16 | tg128 | 10", 4),
        ("| llama 8B F1", 4),
        ("> | llama 8B F16 | tg128", 4),
        ("| " + "x" * 5000 + " | tg128 | 7 |", 4),
    ],
)
def test_a_torn_row_of_markdown_is_said(row: str, line: int) -> None:
    """A cell too many or too few, or cut short; the others are read."""
    reading = read(f"{HEAD}{GOOD}{row}\n{GOOD}")

    assert [point.value for point in reading.points] == [1, 1]
    assert reading.remarks == (f"f: line {line}: cells are not those of the table's head, or cut short, and left out",)


def test_torn_rows_of_markdown_are_one_remark() -> None:
    """With a count and the first of them; another table is none of them, nor are dashes."""
    other = "\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    reading = read(f"{HEAD}{GOOD}{'| llama 8B |' + chr(10):s}{'| llama | 7 |' + chr(10):s}{other}")

    assert reading.remarks == (
        "f: 2 lines (4, 5): cells are not those of the table's head, or cut short, and left out",
    )


def test_a_table_without_its_last_edges_is_read() -> None:
    """Markdown does not need them."""
    assert read("| model | test | t/s\n| --- | --- | ---\n| llama 8B F16 | pp512 | 512.00").remarks == ()


@pytest.mark.parametrize(("cut", "points"), [(300, 1), (3, 2), (450, 1)])
def test_a_cut_csv_of_llama_bench_is_said(cut: int, points: int) -> None:
    """A row that is cut short is left out, its test on the CPU too."""
    reading = read(text_of("llama-bench.csv").rstrip()[:-cut])

    assert len(reading.points) == points
    assert any("cut short, or without n_prompt, n_gen or avg_ns, and left out" in line for line in reading.remarks)


def test_csv_of_ours_with_short_rows_is_said() -> None:
    """The rest may be missing by intent."""
    reading = read("quantity,value,model,gpu,tp\ndecode_seconds,1,m,h100,2\ndecode_seconds,1,m,h100\n")

    assert [point.tp for point in reading.points] == [2, None]
    assert reading.remarks == (
        "f: row 2: fewer cells than the first row has names: the rest is taken as not stated; was it cut short?",
    )


def test_an_open_quote_takes_no_rows_in() -> None:
    """Rows after it would be lost in a cell; at the end it is where a file was cut."""
    head, row = "quantity,value,model,gpu,notes\n", "decode_seconds,1,m,h100,"

    assert problem(f'{head}{row}"a\n{row}b\n') == "line 2 has a quote that is not closed"
    reading = read(f'{head}{row}b\n{row}"a')
    assert [point.notes for point in reading.points] == ["b", "a"]
    assert len(reading.remarks) == 1
    assert [point.notes for point in read(f'{head}{row}"a"\n{row}"a ""b"""').points] == ["a", 'a "b"']


def test_csv_with_two_columns_of_a_name_is_refused() -> None:
    """As JSON and YAML with two keys are."""
    text = "quantity,value,model,gpu,value\ndecode_seconds,1,m,h100,2\n"

    assert problem(text) == "the column 'value' occurs twice; it must occur once"


def test_what_stands_beside_our_own_document_is_counted() -> None:
    """A number, a word, a list and an object."""
    reading = read(json.dumps([json.loads(own()), 1, "x", [1], {"a": 1}]))

    assert len(reading.points) == 1
    assert reading.remarks == ("f: 4 of 5 records are of something else",)


def test_runs_of_vllm_that_measured_nothing_are_counted() -> None:
    """Throughput and latency of 0, and a serving run without any figure."""
    good = json.loads(text_of("vllm-throughput.json"))
    reading = read(json.dumps([good, good | {"tokens_per_second": 0}, good | {"num_requests": 0}]))
    assert len(reading.points) == 1
    assert reading.remarks == ("f: 2 runs (2, 3): tokens_per_second or num_requests is 0: nothing was measured",)

    late = json.loads(text_of("vllm-latency.json"))
    reading = read(json.dumps([late, late | {"avg_latency": 0, "percentiles": {}}]))
    assert len(reading.points) == 1
    assert reading.remarks == ("f: run 2: avg_latency is 0; it must be above 0",)

    serve = json.loads(text_of("vllm-serve.json")) | {"failed": 0}
    mute = serve | {key: 0 for key in serve if key.endswith(("tft_ms", "tpot_ms", "throughput"))}
    assert read(json.dumps([serve, mute])).remarks == ("f: run 2: no times nor rates of tokens in it",)


@pytest.mark.parametrize("empty", [{}, {"metrics": {}}])
def test_a_benchmark_of_guidellm_with_nothing_in_it_is_said(empty: dict[str, Any]) -> None:
    """Beside good ones."""
    report = json.loads(text_of("guidellm.json"))
    report["benchmarks"].append(empty)
    place = len(report["benchmarks"])

    assert f"f: benchmark {place}: no times nor rates of tokens in it" in read(json.dumps(report)).remarks


def test_failures_of_thousands_of_runs_are_one_remark() -> None:
    """2 of 160 each."""
    run = text_of("vllm-serve.json").replace("\n", "")

    reading = read("\n".join([run] * 3000))

    assert len(reading.points) == 9000
    assert reading.remarks == ("f: 3,000 runs (1, 2, 3 ...): 6,000 requests of 480,000 failed",)


@pytest.mark.parametrize("name", ["aiperf.json", "guidellm.json"])
def test_remarks_do_not_grow_with_the_records(name: str) -> None:
    """As many for fifty as for one."""
    once = text_of(name)

    assert len(read(once * 50).remarks) == len(read(once).remarks) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quantity;value;model;gpu\ndecode_seconds;0,01;m;h100\n", "CSV with semicolons between cells; write commas; it must be of: "),
        ("quantity\tvalue\tmodel\tgpu\ndecode_seconds\t1\tm\th100\n", "CSV with tabs between cells; write commas; it must be of: "),
        ("n_prompt;n_gen;avg_ns\n512;0;7\n", "CSV with semicolons between cells; write commas; it must be of: "),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n", "a pointer of Git LFS in place of the file (git lfs pull fetches it); "),
        (own() + own(), "2 documents of roofcast in one file; write one a file, or one list of points"),
        (f"[{own()}, {own()}]", "2 documents of roofcast in one file; write one a file, or one list of points"),
        (f"schema: {SCHEMA}\npoints: []\n---\nschema: {SCHEMA}\npoints: []\n", "2 documents of roofcast in one file; write one a file, or one list of points"),
    ],
)  # fmt: skip
def test_files_that_are_nearly_right_are_named(text: str, said: str) -> None:
    """What it is, not only that it is not known."""
    assert problem(text).startswith(said)


@pytest.mark.parametrize(
    ("quantity", "value", "remarks"),
    [
        ("decode_seconds", 14, ("f: 1 point has more than 10 s a token (14 s at most); is that ms?",)),
        ("tpot_seconds", 10.5, ("f: 1 point has more than 10 s a token (10.5 s at most); is that ms?",)),
        ("tpot_seconds", 10, ()),
        ("batch_seconds", 14, ()),
    ],
)
def test_seconds_that_look_like_milliseconds_are_said(quantity: str, value: float, remarks: tuple[str, ...]) -> None:
    """Nobody waits ten seconds for a token."""
    assert read(own(quantity=quantity, value=value, prompt=1, output=1)).remarks == remarks
