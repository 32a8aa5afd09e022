"""Reads what vLLM's benchmarks save, and SGLang's, whose fields are the same.

Fields: vLLM, vllm/benchmarks/serve.py, latency.py and throughput.py (0.6 to 0.15; before that benchmarks/benchmark_serving.py);
SGLang, python/sglang/bench_serving.py. A file has one run, or one a line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.bench_limits import refuse_conflicts
from roofcast.calculators.bench_own import engine_named
from roofcast.calculators.bench_values import (
    at,
    counted,
    day,
    first,
    in_places,
    number,
    numbered,
    positive,
    whole,
    word,
)
from roofcast.calculators.cache_format import ENGINES
from roofcast.calculators.measurement import Measurement, Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SERVE: Final = "vllm bench serve"
SGLANG: Final = "sglang bench_serving"
LATENCY: Final = "vllm bench latency"
THROUGHPUT: Final = "vllm bench throughput"
TIMES: Final = {"ttft_seconds": "ttft", "tpot_seconds": "tpot"}
BACKENDS: Final[Mapping[str, str]] = {
    "sglang-native": "sglang",
    "sglang-oai": "sglang",
    "vllm-chat": "vllm",
    "trt": "tensorrt-llm",
}
# what people add with --metadata KEY=VALUE
METADATA: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu": ("gpu", "gpu_name", "accelerator"),
    "engine_version": ("engine_version", "vllm_version", "version"),
    "revision": ("revision",),
}
SHARES: Final[Mapping[str, tuple[str, ...]]] = {
    "gpus": ("gpus", "num_gpus", "gpu_count"),
    "tp": ("tp", "tp_size", "tensor_parallel_size"),
    "pp": ("pp", "pp_size", "pipeline_parallel_size"),
    "dp": ("dp", "dp_size", "data_parallel_size"),
}


def is_serve(record: Mapping[str, Any]) -> bool:
    """Whether it is a run of a serving benchmark."""
    return {"completed", "total_input_tokens"} <= record.keys() and any(key.endswith("_ttft_ms") for key in record)


def is_latency(record: Mapping[str, Any]) -> bool:
    """Whether it is a run of `vllm bench latency`."""
    return {"avg_latency", "latencies", "percentiles"} <= record.keys()


def is_throughput(record: Mapping[str, Any]) -> bool:
    """Whether it is a run of `vllm bench throughput`."""
    return {"elapsed_time", "num_requests", "tokens_per_second"} <= record.keys()


def read_serve(records: Sequence[Mapping[str, Any]], where: str) -> Reading:
    """Time to the first token, time per output token and output tokens a second of every run; of times the median.

    Raises:
        MeasurementFileError: a field is wrong; it is named.
    """
    points: list[Measurement] = []
    idle: list[int] = []
    silent: list[int] = []
    lost: dict[int, tuple[int, int]] = {}
    for place, record in numbered(records):
        run = _run(where, place)
        done = whole(record["completed"], f"{run}: completed", 0)
        if not done:
            idle.append(place)
            continue
        failed = whole(record.get("failed"), f"{run}: failed", 0) or 0
        if failed:
            lost[place] = failed, done + failed
        made = _serve_points(record, run, done)
        points += made
        if not made:
            silent.append(place)
    failed, asked = (sum(counts) for counts in zip(*lost.values(), strict=True)) if lost else (0, 0)
    remarks = (
        *in_places(where, "run", idle, "no request was completed"),
        *in_places(where, "run", silent, "no times nor rates of tokens in it"),
        *in_places(where, "run", list(lost), f"{counted(failed, 'request')} of {asked:,} failed"),
    )
    of_sglang = bool(points) and all(point.engine == "sglang" for point in points)
    return Reading(SGLANG if of_sglang else SERVE, tuple(points), remarks)


def _run(where: str, place: int) -> str:
    """The place of a run, as messages name it."""
    return f"{where}: run {place}" if place else where


def _serve_points(record: Mapping[str, Any], run: str, done: int) -> list[Measurement]:
    base = _serve_base(record, run, done)
    points = [
        replace(base, quantity=quantity, value=value, low=low, high=high, spread=spread)
        for quantity, name in TIMES.items()
        for value, low, high, spread in (_time(record, name, run),)
        if value
    ]
    rate = positive(record.get("output_throughput"), f"{run}: output_throughput")
    return [*points, *([replace(base, quantity="output_tokens_per_second", value=rate)] if rate else [])]


def _serve_base(record: Mapping[str, Any], run: str, done: int) -> Measurement:
    """What all points of a run share."""
    tokens = {
        name: (number(record.get(f"total_{name}_tokens"), f"{run}: total_{name}_tokens") or 0) / done for name in ("input", "output")
    }  # fmt: skip
    backend = word(first(record, "backend", "endpoint_type"), f"{run}: backend")
    engine = engine_named(BACKENDS.get(backend or "", backend or ""))
    at_once, how = _at_once(record, run, tokens["output"])
    accepted = number(first(record, "spec_decode_acceptance_length", "accept_length"), f"{run}: acceptance length")
    named: dict[str, Any] = {name: word(first(record, *keys), f"{run}: {name}") for name, keys in METADATA.items()}
    named |= {name: whole(first(record, *keys), f"{run}: {name}") for name, keys in SHARES.items()}
    point = Measurement(
        source=run.partition(": run ")[0],
        quantity="",
        value=1.0,
        id=run.rpartition(": run ")[2] if ": run " in run else None,
        date=day(record.get("date")),
        model=word(first(record, "model_id", "model"), f"{run}: model_id"),
        engine=engine if engine in ENGINES and engine != "none" else None,
        batch=at_once,
        prompt=tokens["input"] or None,
        output=tokens["output"] or None,
        suspect="tokens were drafted (speculative decoding)" if (accepted or 0) > 1 else None,
        notes=how,
        **named,
    )
    refuse_conflicts(point, run)  # shares are people's own words
    return point


def _time(
    record: Mapping[str, Any], name: str, run: str
) -> tuple[float | None, float | None, float | None, float | None]:
    """Median, 10th and 90th percentile and standard deviation of a time, of those that there are. [s]"""
    found = (_milliseconds(record, f"{stat}_{name}_ms", run) for stat in ("median", "mean", "p10", "p90", "std"))
    median, mean, low, high, spread = found
    value = median or mean
    both = value and low and high and low <= value <= high
    return value, low if both else None, high if both else None, spread


def _milliseconds(record: Mapping[str, Any], key: str, run: str) -> float | None:
    value = number(record.get(key), f"{run}: {key}")  # a deviation may be tiny
    return value / 1000 if value else None


def _at_once(record: Mapping[str, Any], run: str, output: float) -> tuple[int | None, str | None]:
    """Requests at once, and how they are known: the limit of a closed loop, all of a burst, else by Little's law.

    L = arrivals a second times seconds that a request stays: TTFT + (output - 1) TPOT.
    """
    most = whole(record.get("max_concurrency"), f"{run}: max_concurrency")
    prompts = whole(record.get("num_prompts"), f"{run}: num_prompts") or whole(record["completed"], f"{run}: completed")
    asked = record.get("request_rate")
    if asked is None or asked in ("inf", "Infinity", float("inf")):
        if most is not None:
            return min(most, prompts or most), None
        return prompts, "all requests were sent at once: batch is their number"
    rate = number(asked, f"{run}: request_rate")
    served = positive(record.get("request_throughput"), f"{run}: request_throughput")
    stay = [_milliseconds(record, f"mean_{name}_ms", run) for name in TIMES.values()]
    if not served or stay[0] is None:
        return most, f"{rate:g} requests a second"
    mean = served * (stay[0] + max(output - 1, 0) * (stay[1] or 0))
    return max(
        1, min(round(mean), most or round(mean))
    ), f"{rate:g} requests a second: batch is their mean number, by Little's law"


def read_latency(records: Sequence[Mapping[str, Any]], where: str) -> Reading:
    """Seconds of a whole batch: median of its repeats. The file states neither model nor lengths.

    Raises:
        MeasurementFileError: a field is wrong; it is named.
    """
    made = {place: _latency(record, _run(where, place), where) for place, record in numbered(records)}
    silent = [place for place, point in made.items() if point is None]
    return Reading(
        LATENCY,
        tuple(point for point in made.values() if point is not None),
        in_places(where, "run", silent, "avg_latency is 0; it must be above 0"),
    )


def _latency(record: Mapping[str, Any], run: str, where: str) -> Measurement | None:
    median, low, high = (
        positive(at(record, "percentiles", str(percent)), f"{run}: percentiles.{percent}") for percent in (50, 10, 90)
    )
    value = median or positive(record["avg_latency"], f"{run}: avg_latency")
    if value is None:
        return None
    return Measurement(
        source=where,
        quantity="batch_seconds",
        value=value,
        low=low,
        high=high,
        spread=number(record.get("std_latency"), f"{run}: std_latency"),
        engine="vllm",
    )


def read_throughput(records: Sequence[Mapping[str, Any]], where: str) -> Reading:
    """Tokens a second, prompts' too, with all requests sent at once. The file states no model, and no lengths but their sum.

    Raises:
        MeasurementFileError: a field is wrong; it is named.
    """
    points: list[Measurement] = []
    silent: list[int] = []
    for place, record in numbered(records):
        run = _run(where, place)
        rate = positive(record["tokens_per_second"], f"{run}: tokens_per_second")
        requests = whole(record["num_requests"], f"{run}: num_requests", 0)
        tokens = number(record.get("total_num_tokens"), f"{run}: total_num_tokens")
        if not rate or not requests:
            silent.append(place)
            continue
        mean = f", {tokens / requests:,.0f} tokens a request, prompt and output together" if tokens else ""
        points.append(
            Measurement(
                source=where,
                quantity="total_tokens_per_second",
                value=rate,
                engine="vllm",
                batch=requests,
                notes=f"all requests were sent at once: batch is their number{mean}",
            )
        )
    said = "tokens_per_second or num_requests is 0: nothing was measured"
    return Reading(THROUGHPUT, tuple(points), in_places(where, "run", silent, said))
