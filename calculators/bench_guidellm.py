"""Reads guidellm's reports, benchmarks.json.

Fields: guidellm 0.2 and 0.3, src/guidellm/benchmark/benchmark.py (args.strategy, worker, request_loader); 0.4 on,
src/guidellm/benchmark/schemas (config.strategy, config.backend). Time per output token is read from
inter_token_latency_ms: time_per_output_token_ms counts the first token too, or divides by all of them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.bench_values import at, counted, first, in_places, number, positive, whole, word
from roofcast.calculators.measurement import Measurement, MeasurementFileError, Reading
from roofcast.modelspec.strictjson import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KIND: Final = "guidellm"
TIMES: Final = {"ttft_seconds": "time_to_first_token_ms", "tpot_seconds": "inter_token_latency_ms"}
STRATEGY: Final = ("config.strategy", "args.strategy", "scheduler.strategy")
MODELS: Final = (
    "config.backend.model", "benchmarker.backend.model", "worker.backend_model", "worker.model", "args.model", "args.backend_kwargs.model",
)  # fmt: skip
OF_REPORT: Final = ("args.model", "args.backend_kwargs.model", "config.spec.backend.model", "config.backend.model")
_LATEST: Final = 4102444800.0  # [s] 2100-01-01


def is_report(record: Mapping[str, Any]) -> bool:
    """Whether it is a report of guidellm."""
    runs = record.get("benchmarks")
    return isinstance(runs, list) and any(isinstance(at(run, "metrics"), dict) for run in runs)


def read_reports(records: Sequence[Mapping[str, Any]], where: str) -> Reading:
    """Time to the first token, time per output token and output tokens a second of every benchmark; of times the median.

    Raises:
        MeasurementFileError: a field is wrong; it is named.
    """
    points: list[Measurement] = []
    silent: list[int] = []
    lost: dict[int, tuple[int, int]] = {}
    runs = ((record, run) for record in records for run in record["benchmarks"])
    for place, (record, run) in enumerate(runs, 1):
        name = f"{where}: benchmark {place}"
        if not isinstance(run, dict):
            raise MeasurementFileError(f"{name} is {kind_of(run)}; it must be an object")
        made = _points(run, record, name, where)
        points += made
        failed = _total(run, "errored", name)
        if not made:
            silent.append(place)
        if failed:
            lost[place] = failed, _total(run, "successful", name)
    failed, ended = (sum(counts) for counts in zip(*lost.values(), strict=True)) if lost else (0, 0)
    remarks = (
        *in_places(where, "benchmark", silent, "no times nor rates of tokens in it"),
        *in_places(where, "benchmark", list(lost), f"{counted(failed, 'request')} failed, {ended:,} did not"),
    )
    return Reading(KIND, tuple(points), remarks)


def _total(run: Mapping[str, Any], status: str, name: str) -> int:
    found = first(run, f"metrics.request_totals.{status}", f"total_count.{status}", f"request_totals.{status}")
    return whole(found, f"{name}: request_totals.{status}", 0) or 0


def _points(run: Mapping[str, Any], report: Mapping[str, Any], name: str, where: str) -> list[Measurement]:
    batch, how = _at_once(run, name)
    start = number(first(run, "start_time", "scheduler_metrics.start_time"), f"{name}: start_time")
    base = Measurement(
        source=where,
        quantity="",
        value=1.0,
        id=name.rpartition(": ")[2],
        date=datetime.fromtimestamp(start, UTC).date().isoformat() if start and start < _LATEST else None,
        model=word(first(run, *MODELS) or first(report, *OF_REPORT), f"{name}: model"),
        batch=batch,
        prompt=_mean(run, "prompt_token_count", name),
        output=_mean(run, "output_token_count", name),
        notes=how,
    )
    points = [
        replace(base, quantity=quantity, **stated)
        for quantity, key in TIMES.items()
        if (stated := _time(run, key, name)) is not None
    ]
    rate = positive(_stat(run, "output_tokens_per_second", "mean"), f"{name}: output_tokens_per_second")
    return [*points, *([replace(base, quantity="output_tokens_per_second", value=rate)] if rate else [])]


def _stat(run: Mapping[str, Any], metric: str, *path: str) -> Any:  # noqa: ANN401 - a file may hold anything
    return at(run, "metrics", metric, "successful", *path)


def _time(run: Mapping[str, Any], key: str, name: str) -> dict[str, Any] | None:
    """Median, 10th and 90th percentile and standard deviation of a time. [s]"""
    paths = (("median",), ("mean",), ("percentiles", "p10"), ("percentiles", "p90"), ("std_dev",))
    found = [number(_stat(run, key, *path), f"{name}: {key}.{'.'.join(path)}") for path in paths]
    median, mean, low, high, spread = (value / 1000 if value else None for value in found)
    value = median or mean
    if value is None:
        return None
    both = low is not None and high is not None and low <= value <= high
    return {"value": value, "low": low if both else None, "high": high if both else None, "spread": spread}


def _mean(run: Mapping[str, Any], metric: str, name: str) -> float | None:
    """Mean tokens a request, or their sum over their number. [token]"""
    mean = positive(_stat(run, metric, "mean"), f"{name}: {metric}.mean")
    if mean is not None:
        return mean
    total, count = (positive(_stat(run, metric, key), f"{name}: {metric}.{key}") for key in ("total_sum", "count"))
    return total / count if total and count else None


def _at_once(run: Mapping[str, Any], name: str) -> tuple[int | None, str | None]:
    """Requests at once, and how that is known: streams of a closed loop, else the mean that was measured."""
    strategy = first(run, *STRATEGY)
    kind = str(first(strategy, "type_", "kind", "type") or "")
    if kind == "synchronous":
        return 1, None
    streams = at(strategy, "streams")
    if kind == "concurrent" and isinstance(streams, (int, float)):
        return whole(streams, f"{name}: streams"), None
    mean = positive(_stat(run, "request_concurrency", "mean"), f"{name}: request_concurrency.mean")
    if mean is None:
        return None, kind or None
    return max(1, round(mean)), f"{kind or 'load'}: batch is the mean number of requests at once, as measured"
