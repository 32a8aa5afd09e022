"""What is read from the files of each tool: the arithmetic, and what no file states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roofcast.calculators.measurement import Measurement, MeasurementFileError, Reading, complete
from roofcast.calculators.measurement_file import read_measurements

FOLDER = Path(__file__).parent / "fixtures" / "benchmarks"


def read(name: str) -> Reading:
    """A fixture's reading."""
    return read_measurements((FOLDER / name).read_text(), name)


def changed(name: str, **fields: Any) -> Reading:
    """A fixture of one object with other fields."""
    return read_measurements(json.dumps(json.loads((FOLDER / name).read_text()) | fields), name)


def of(reading: Reading, quantity: str) -> list[Measurement]:
    """Its points of one quantity."""
    return [point for point in reading.points if point.quantity == quantity]


def test_vllm_serve() -> None:
    """Medians in seconds; lengths are tokens over requests that ended; metadata is taken."""
    reading = read("vllm-serve.json")
    first, tpot, rate = reading.points

    assert reading.kind == "vllm bench serve"
    assert reading.remarks == ("vllm-serve.json: 2 requests of 160 failed",)
    assert (first.quantity, first.value, first.spread, first.low) == ("ttft_seconds", 0.12, 0.06, None)
    assert (tpot.quantity, tpot.value, tpot.low, tpot.high) == ("tpot_seconds", 0.014, 0.012, 0.016)
    assert (rate.quantity, rate.value) == ("output_tokens_per_second", 1011.2)
    assert {(point.batch, point.prompt, point.output) for point in reading.points} == {(16, 161792 / 158, 20224 / 158)}
    assert (tpot.engine, tpot.engine_version, tpot.tp, tpot.date) == ("vllm", "0.9.1", 2, "2025-06-11")
    assert tpot.missing == ("gpu",)
    assert complete([tpot], {"gpu": "h100"}).points[0].gpus == 2


def test_vllm_serve_at_a_rate() -> None:
    """Little's law: 4 requests a second that stay 0.1 + 178 x 0.014 = 2.592 s are 10.4 at once."""
    point = read("vllm-serve-old.json").points[0]

    assert point.batch == 10
    assert point.notes == "4 requests a second: batch is their mean number, by Little's law"
    assert point.engine is None  # an OpenAI client may talk to any server


@pytest.mark.parametrize(
    ("fields", "batch", "noted"),
    [
        ({"max_concurrency": None}, 160, "all requests were sent at once: batch is their number"),
        ({"max_concurrency": 500}, 160, None),
        ({"request_rate": None}, 16, None),
    ],
)
def test_vllm_serve_at_once(fields: dict[str, Any], batch: int, noted: str | None) -> None:
    """No more are at once than there are, and all are where nothing limits them."""
    point = changed("vllm-serve.json", **fields).points[0]

    assert (point.batch, point.notes) == (batch, noted)


def test_vllm_serve_without_a_time() -> None:
    """0 is what a client writes for what it did not see: no streaming, or one token."""
    reading = changed("vllm-serve.json", median_ttft_ms=0, mean_ttft_ms=0, median_tpot_ms=0.0, mean_tpot_ms=0.0)

    assert [point.quantity for point in reading.points] == ["output_tokens_per_second"]


def test_vllm_serve_of_which_nothing_ended() -> None:
    """A run in which all requests failed measures nothing."""
    with pytest.raises(MeasurementFileError, match=r"no measurement in it \(no request was completed"):
        changed("vllm-serve.json", completed=0)


def test_sglang_serve() -> None:
    """A run a line; Infinity is no limit of the rate; drafted tokens make a point suspect."""
    reading = read("sglang-serve.jsonl")

    assert reading.kind == "sglang bench_serving"
    assert [point.batch for point in of(reading, "ttft_seconds")] == [1, 8]
    assert [point.suspect for point in of(reading, "tpot_seconds")] == [
        None,
        "tokens were drafted (speculative decoding)",
    ]
    assert [point.id for point in of(reading, "ttft_seconds")] == ["1", "2"]


def test_vllm_latency_and_throughput() -> None:
    """Neither file states a model; one states no lengths, the other the sum of them."""
    latency, throughput = read("vllm-latency.json").points[0], read("vllm-throughput.json").points[0]

    assert (latency.quantity, latency.value, latency.low, latency.high) == ("batch_seconds", 1.22, 1.204, 1.332)
    assert latency.missing == ("model", "gpu", "batch", "prompt", "output")
    assert (throughput.quantity, throughput.value, throughput.batch) == ("total_tokens_per_second", 8000, 1000)
    assert "400 tokens a request" in str(throughput.notes)


@pytest.mark.parametrize("name", ["llama-bench.json", "llama-bench.jsonl", "llama-bench.csv"])
def test_llama_bench(name: str) -> None:
    """The median of repeats, 71.5 ms, where they are listed, else the mean; 1.28 s of 128 tokens are 10 ms a step."""
    reading = read(name)
    prefill, decode = reading.points

    assert reading.remarks == (f"{name}: 1 test ran on the CPU, in part at least, and left out",)
    assert (prefill.quantity, prefill.value) == ("prefill_seconds", 0.072 if name.endswith("csv") else 0.0715)
    assert (prefill.prompt, prefill.cached, prefill.kv) == (512, None, "fp16")
    assert (decode.quantity, decode.value, decode.spread) == ("decode_seconds", 0.01, 0.0001)
    assert (decode.prompt, decode.mean_context, decode.kv) == (4096, 4160, "q8_0")
    assert (decode.model, decode.weights, decode.engine_version) == ("Qwen2.5-7B-Instruct", "q4_k_m", "b5163")
    assert (decode.gpu, decode.gpus, decode.missing) == ("NVIDIA GeForce RTX 4080", 1, ())


def test_llama_bench_table() -> None:
    """Devices and build stand around it; layers split over two; at a depth a prompt has cached tokens before it."""
    reading = read("llama-bench.md")
    prefill, decode, deep, both = reading.points

    assert (prefill.value, prefill.spread) == (0.125, 0.00125)
    assert (decode.value, decode.context) == (0.01, 64)
    assert (deep.value, deep.prompt, deep.cached) == (0.16, 4608, 4096)
    assert (both.quantity, both.value, both.prompt, both.output) == ("batch_seconds", 1.6, 512, 129)
    assert {(point.gpu, point.gpus, point.tp, point.pp) for point in reading.points} == {
        ("NVIDIA GeForce RTX 3090", 2, 1, 2)
    }
    assert {(point.model, point.weights, point.kv) for point in reading.points} == {("llama 8B", "q4_k_m", "q8_0")}
    assert decode.engine_version == "b5163"


def test_llama_bench_table_of_partial_layers() -> None:
    """10 layers on the GPU are noted, since the file does not say how many there are; a CPU's tests are left out."""
    reading = read("llama-bench-old.md")

    assert [point.notes for point in reading.points] == [
        f"{layers} layers on the GPU: all, if the model has no more" for layers in (10, 35)
    ]
    assert reading.points[1].value == 1 / 128
    assert reading.remarks == ("llama-bench-old.md: 1 test ran on the CPU and left out",)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("| llama 8B F16 | xx128 | 5 |", "line 3: test is 'xx128'; it is named like pp512"),
        ("| llama 8B F16 | tg128 | fast |", "line 3: t/s is 'fast'; it must be a number"),
        ("| llama 8B F16 | tg128 | 0.00 ± 0.00 |", "line 3: t/s is '0.00 ± 0.00'; it must be tokens a second"),
    ],
)
def test_llama_bench_table_with_a_wrong_row(row: str, said: str) -> None:
    """The line is named."""
    with pytest.raises(MeasurementFileError) as caught:
        read_measurements(f"| model | test | t/s |\n| --- | --- | --- |\n{row}\n", "f")
    assert str(caught.value).startswith(f"f: {said}")


@pytest.mark.parametrize(
    ("fields", "shares", "suspect"),
    [
        ({"split_mode": "row"}, (2, 2, 1), None),
        ({"split_mode": "layer"}, (2, 1, 2), None),
        ({"split_mode": "none"}, (1, 1, 1), None),
        ({"gpu_info": "NVIDIA A, NVIDIA B"}, (2, 1, 2), "it ran over GPUs of different kinds"),
    ],
)
def test_llama_bench_on_two(fields: dict[str, Any], shares: tuple[int, ...], suspect: str | None) -> None:
    """Rows are tensor parallel, layers a pipeline."""
    test = json.loads((FOLDER / "llama-bench.json").read_text())[0] | {"gpu_info": "NVIDIA A, NVIDIA A"} | fields
    point = read_measurements(json.dumps([test]), "f").points[0]

    assert (point.gpus, point.tp, point.pp) == shares
    assert point.suspect == suspect


def test_genai_perf() -> None:
    """Medians in the unit that stands beside them; its backend says nothing of a server that is not Triton's."""
    reading = read("genai-perf.json")
    first, tpot, rate = reading.points

    assert reading.kind == "genai-perf"
    assert (first.value, tpot.value, rate.value) == (0.08, 0.012, 320)
    assert (tpot.batch, tpot.prompt, tpot.output, tpot.engine) == (4, 550.2, 128, None)
    assert tpot.model == "meta/llama-3.1-8b-instruct"


def test_genai_perf_nested() -> None:
    """The later shape of its settings; 40,000,000 ns and 9,000 us are means, where there is no median."""
    first, tpot, _ = read("genai-perf-nested.json").points

    assert (first.value, tpot.value) == (0.04, 0.009)
    assert (tpot.model, tpot.engine, tpot.batch) == ("small_model", "vllm", 2)


def test_aiperf() -> None:
    """Concurrency by its command line; GPUs that it watched need not all have served."""
    reading = read("aiperf.json")
    first = reading.points[0]

    assert reading.kind == "aiperf"
    assert reading.remarks == ("aiperf.json: the run was cancelled before its end",)
    assert (first.value, first.low, first.high, first.batch) == (0.787, 0.4, 3.7, 100)
    assert (first.gpu, first.gpus, first.notes) == ("NVIDIA RTX 6000 Ada Generation", None, "2 GPUs were watched")
    assert first.date == "2025-10-17"


def test_aiperf_at_a_rate() -> None:
    """Little's law: 13 requests a second that stay 6.55 s are 85 at once."""
    point = changed("aiperf.json", input_config={"loadgen": {"request_rate": 13.0}}).points[0]

    assert point.batch == 85


def test_guidellm() -> None:
    """Inter-token latency is the time per output token; streams are requests at once, else their mean as measured."""
    reading = read("guidellm.json")

    assert reading.remarks == ("guidellm.json: benchmark 1: 3 requests failed, 500 did not",)
    assert [(point.value, point.batch) for point in of(reading, "tpot_seconds")] == [(0.018, 32), (0.0155, 18)]
    assert [(point.low, point.high) for point in of(reading, "ttft_seconds")] == [(0.1, 0.18), (None, None)]
    assert [point.value for point in of(reading, "output_tokens_per_second")] == [1700, 880]
    assert {(point.prompt, point.output, point.model) for point in reading.points} == {
        (400, 300, "meta-llama/Llama-3.3-70B-Instruct")
    }


def test_guidellm_old() -> None:
    """One request after the other; the model is its worker's."""
    first, tpot, _ = read("guidellm-old.json").points

    assert (first.value, tpot.value, tpot.batch) == (0.022, 0.01, 1)
    assert tpot.model == "neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w4a16"
    assert tpot.date == "2025-04-24"


def test_records_of_something_else_are_counted() -> None:
    """A list with other records in it is read, and says so."""
    tests = json.loads((FOLDER / "llama-bench.json").read_text())
    reading = read_measurements(json.dumps([*tests[:1], {"a": 1}, 7]), "f")

    assert reading.remarks == ("f: 2 of 3 records are of something else",)
