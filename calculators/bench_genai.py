"""Reads what genai-perf and its successor aiperf export.

Fields: genai-perf, profile_export_genai_perf.json (docs/files.md; input_config flat, later nested); aiperf,
profile_export_aiperf.json (docs/tutorials/working-with-profile-exports.md). Inter-token latency of both is
(request latency - TTFT) / (output tokens - 1), as a time per output token.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.bench_own import engine_named
from roofcast.calculators.bench_values import (
    at,
    day,
    first,
    in_places,
    number,
    numbered,
    positive,
    seconds,
    whole,
    word,
)
from roofcast.calculators.cache_format import ENGINES
from roofcast.calculators.measurement import Measurement, Reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GENAI: Final = "genai-perf"
AIPERF: Final = "aiperf"
TIMES: Final = {"ttft_seconds": "time_to_first_token", "tpot_seconds": "inter_token_latency"}
CONCURRENCY: Final = (
    "concurrency",
    "perf_analyzer.stimulus.concurrency",
    "loadgen.concurrency",
    "load_generator.concurrency",
)
MODELS: Final = ("model_names", "endpoint.model_names", "models", "model")
_CONCURRENCY_SAID: Final = r"--concurrency[ =]+(\d{1,7})(?!\d)"


def is_export(record: Mapping[str, Any]) -> bool:
    """Whether it is an export of either."""
    return any(isinstance(at(record, key, "unit"), str) for key in ("request_throughput", "request_latency"))


def read_export(records: Sequence[Mapping[str, Any]], where: str) -> Reading:
    """Time to the first token, time per output token and output tokens a second; of times the median, else the mean.

    Raises:
        MeasurementFileError: a field is wrong; it is named.
    """
    newer = any(
        "aiperf_version" in record or isinstance(at(record, "input_config", "loadgen"), dict) for record in records
    )
    points: list[Measurement] = []
    silent: list[int] = []
    cancelled: list[int] = []
    for place, record in numbered(records):
        made = _points(record, where)
        points += made
        if not made:
            silent.append(place)
        if record.get("was_cancelled") is True:
            cancelled.append(place)
    remarks = (
        *in_places(where, "export", silent, "states no times of tokens; was it run without --streaming?"),
        *in_places(where, "export", cancelled, "the run was cancelled before its end"),
    )
    return Reading(AIPERF if newer else GENAI, tuple(points), remarks)


def _points(record: Mapping[str, Any], where: str) -> list[Measurement]:
    base = _base(record, where)
    points = []
    for quantity, key in TIMES.items():
        found = record.get(key)
        value, mean, low, high, spread = (
            seconds(found, stat, f"{where}: {key}") for stat in ("p50", "avg", "p10", "p90", "std")
        )
        value = value or mean
        if value is not None:
            both = low is not None and high is not None and low <= value <= high
            points.append(
                replace(base, quantity=quantity, value=value, low=low if both else None, high=high if both else None, spread=spread)
            )  # fmt: skip
    rate = positive(at(record, "output_token_throughput", "avg"), f"{where}: output_token_throughput: avg")
    return [*points, *([replace(base, quantity="output_tokens_per_second", value=rate)] if rate else [])]


def _base(record: Mapping[str, Any], where: str) -> Measurement:
    """What all points of an export share."""
    config = record.get("input_config")
    models = first(config, *MODELS)
    model = models[0] if isinstance(models, list) and models else models
    if isinstance(model, dict):
        model = model.get("name")
    gpus = _gpus(record)
    batch, how = _at_once(record, config, where)
    return Measurement(
        source=where,
        quantity="",
        value=1.0,
        date=day(record.get("start_time")),
        model=word(model if isinstance(model, str) else None, f"{where}: model"),
        gpu=word(gpus[0], f"{where}: gpu_name") if gpus and len(set(gpus)) == 1 else None,
        engine=_engine(config),
        batch=batch,
        prompt=positive(at(record, "input_sequence_length", "avg"), f"{where}: input_sequence_length: avg"),
        output=positive(at(record, "output_sequence_length", "avg"), f"{where}: output_sequence_length: avg"),
        notes="; ".join(filter(None, (how, f"{len(gpus)} GPUs were watched" if len(gpus) > 1 else ""))) or None,
    )


def _at_once(record: Mapping[str, Any], config: object, where: str) -> tuple[int | None, str]:
    """Requests at once, and how that is known: the concurrency asked, else by Little's law, arrivals times stay."""
    said = re.search(_CONCURRENCY_SAID, str(at(config, "cli_command") or record.get("cli_command") or ""))
    asked = first(config, *CONCURRENCY) or (said[1] if said else None)
    if isinstance(asked, (int, str)) and asked != "":
        return whole(asked, f"{where}: concurrency"), ""
    rate = number(at(record, "request_throughput", "avg"), f"{where}: request_throughput: avg")
    stay = seconds(record.get("request_latency"), "avg", f"{where}: request_latency")
    if not rate or stay is None:
        return None, ""
    return max(1, round(rate * stay)), f"{rate:.3g} requests a second: batch is their mean number, by Little's law"


def _engine(config: object) -> str | None:
    """The engine that Triton ran; of other servers the backend is a default that says nothing."""
    if first(config, "service_kind", "endpoint.service_kind") != "triton":
        return None
    engine = engine_named(str(first(config, "backend", "endpoint.backend") or ""))
    return engine if engine in ENGINES and engine != "none" else None


def _gpus(record: Mapping[str, Any]) -> list[str]:
    """GPUs that aiperf watched."""
    endpoints = at(record, "telemetry_data", "endpoints")
    watched = [at(one, "gpus") for one in endpoints.values()] if isinstance(endpoints, dict) else []
    names = [at(gpu, "gpu_name") for gpus in watched if isinstance(gpus, dict) for gpu in gpus.values()]
    return [name for name in names if isinstance(name, str)]
