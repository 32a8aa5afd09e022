"""Reads files of measured points in our own schema, and the points of our own profiles.

A file is JSON or YAML, or CSV with a row of these names:

    schema: roofcast.measurements/1
    defaults:            # what all points share
      source: https://example.org/benchmark
      gpu: rtx-4090
      engine: llama.cpp
    points:
      - {quantity: decode_seconds, value: 0.0182, model: llama-3-8b, weights: fp16, batch: 1, prompt: 0, output: 512}

`FIELDS` says what every name means; a value is in the unit of its quantity, seconds or tokens a second.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.bench_limits import refuse_absurd, refuse_conflicts
from roofcast.calculators.bench_values import in_places, number, positive, shown, whole, word
from roofcast.calculators.cache_format import ENGINES
from roofcast.calculators.measurement import QUANTITIES, Measurement, MeasurementFileError, Reading
from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.formats import find_format
from roofcast.modelspec.nearest import nearest
from roofcast.modelspec.requested import find_requested
from roofcast.modelspec.strictjson import kind_of, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.bench_json import Table

SCHEMA: Final = "roofcast.measurements/1"
PROFILE: Final = "roofcast.profile/"  # with any version: of a profile only its points are read
TOP: Final = ("schema", "title", "defaults", "points")
MOST_POINTS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a point.

    Args:
        kind: of `KINDS`.
        meaning: in one line.
    """

    kind: str
    meaning: str


FIELDS: Final[Mapping[str, Field]] = {
    "source": Field("text", "URL, or whose measurement it is; the file's name where nothing is said"),
    "id": Field("text", "within the source"),
    "date": Field("date", "2025, 2025-04 or 2025-04-24"),
    "quantity": Field("quantity", "what was measured"),
    "value": Field("positive", "in the quantity's unit: seconds, or tokens a second"),
    "low": Field("positive", "least of repeats, or lower end of 80 % of requests"),
    "high": Field("positive", "most of repeats, or upper end"),
    "spread": Field("number", "standard deviation, in the value's unit"),
    "model": Field("text", "catalogue name, repo id or file"),
    "revision": Field("text", "of the repo"),
    "gpu": Field("text", "id, alias or what the driver reports"),
    "gpus": Field("count", "devices, all together"),
    "tp": Field("count", "tensor parallel"),
    "pp": Field("count", "pipeline parallel"),
    "ep": Field("count", "expert parallel"),
    "dp": Field("count", "data parallel"),
    "engine": Field("engine", "as --engine"),
    "engine_version": Field("text", "version, build or commit"),
    "weights": Field("weights", "as --weights; as stored where it is left out"),
    "kv": Field("cache", "as --kv; the engine's default where it is left out"),
    "batch": Field("count", "sequences at once; of a server its concurrency"),
    "prompt": Field("number", "tokens of a prompt, or their mean"),
    "output": Field("number", "tokens that a request gets, or their mean"),
    "context": Field("number", "mean tokens before a decoded one; prompt + output / 2 where it is left out"),
    "cached": Field("number", "tokens of the prompt that were in the cache already"),
    "suspect": Field("text", "why it should not be believed"),
    "notes": Field("text", "what else should be known"),
}
NEEDED: Final = ("quantity", "value", "model", "gpu")
_SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"type": "string", "minLength": 1, "maxLength": 1000},
    "date": {"type": "string", "pattern": r"^\d{4}(-\d{2}(-\d{2})?)?$"},
    "quantity": {"enum": list(QUANTITIES)},
    "engine": {"type": "string", "examples": [*ENGINES[1:]]},
    "weights": {"type": "string", "examples": ["bf16", "fp8", "q4_k_m"]},
    "cache": {"type": "string", "examples": ["bf16", "fp8"]},
    "positive": {"type": "number", "minimum": 1e-9, "maximum": 1e12},
    "number": {"type": "number", "minimum": 0, "maximum": 1e12},
    "count": {"type": "integer", "minimum": 1, "maximum": 10**9},
}
_SPELLINGS: Final[Mapping[str, str]] = {
    "tensorrtllm": "tensorrt-llm", "trtllm": "tensorrt-llm", "llamacpp": "llama.cpp", "hf": "transformers", "gptfast": "gpt-fast",
    "huggingface": "transformers", "hftransformers": "transformers", "exllama2": "exllamav2", "mlcllm": "mlc", "textgenerationinference": "tgi",
}  # fmt: skip


def engine_named(name: str) -> str:
    """An engine as --engine spells it; as written where roofcast does not know it.

    >>> engine_named("TensorRT-LLM"), engine_named("vLLM"), engine_named("TinyChat")
    ('tensorrt-llm', 'vllm', 'TinyChat')
    """
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    known: dict[str, str] = {engine.replace("-", "").replace(".", ""): engine for engine in ENGINES}
    known.update(_SPELLINGS)
    return known.get(plain, name)


def measurements_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a file of measured points."""
    properties = {name: {"description": field.meaning, **_SCHEMAS[field.kind]} for name, field in FIELDS.items()}
    point = {"type": "object", "properties": properties, "additionalProperties": False}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "measured points",
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA},
            "title": {"type": "string"},
            "defaults": {"description": "fields that all points share", **point},
            "points": {"type": "array", "minItems": 1, "items": point},
        },
        "required": ["schema", "points"],
        "additionalProperties": False,
    }


def read_own(found: Mapping[str, Any], where: str) -> Reading:
    """Points of a file in our own schema.

    Args:
        found: what the file holds.
        where: its name, as messages name it.

    Raises:
        MeasurementFileError: the file, the point and the key that is wrong.

    >>> point = {"quantity": "decode_seconds", "value": 0.01, "model": "m", "gpu": "h100"}
    >>> read_own({"schema": SCHEMA, "points": [point]}, "f").points[0].source
    'f'
    """
    for key in found:
        _refuse_unknown(key, TOP, where)
    if found["schema"] != SCHEMA:
        raise MeasurementFileError(f"{where}: schema is {shown(found['schema'])}; this version reads {SCHEMA}")
    defaults = found.get("defaults")
    if not isinstance(defaults, (dict, type(None))):
        raise MeasurementFileError(f"{where}: defaults is {kind_of(defaults)}; it must be an object of fields")
    return Reading("roofcast measurements", _points(found.get("points"), defaults or {}, where))


def read_profile(found: Mapping[str, Any], where: str) -> Reading:
    """Points that a profile of ours holds, beside whatever else it does: `points`, or `measurements` of its result.

    Raises:
        MeasurementFileError: as of `read_own`.
    """
    result = found.get("result")
    measured = result.get("measurements") if isinstance(result, dict) else None
    points = found.get("points", measured)
    if points == []:
        raise MeasurementFileError(
            f"{where}: a profile without steps of a model; `profile decode` and `prefill` have them"
        )
    return Reading("roofcast profile", _points(points, {}, where))


def read_own_rows(table: Table, where: str) -> Reading:
    """Points of CSV. Of a row with fewer cells than names the rest is not stated, which is said.

    Raises:
        MeasurementFileError: as of `read_own`.
    """
    said = "fewer cells than the first row has names: the rest is taken as not stated; was it cut short?"
    return Reading("roofcast measurements", _points(table.rows, {}, where), in_places(where, "row", table.short, said))


def _points(rows: object, defaults: Mapping[str, Any], where: str) -> tuple[Measurement, ...]:
    if not isinstance(rows, list) or not rows:
        raise MeasurementFileError(f"{where}: points is {_kind(rows)}; it must be a list of at least one point")
    if len(rows) > MOST_POINTS:
        raise MeasurementFileError(f"{where}: has {len(rows):,} points; at most {MOST_POINTS:,} at once")
    shared = _checked(defaults, f"{where}: defaults")
    return tuple(_point(row, shared, f"{where}: point {place}", where) for place, row in enumerate(rows, 1))


def _kind(value: object) -> str:
    return "missing" if value is None else "empty" if value == [] else kind_of(value)


def _point(row: object, shared: Mapping[str, Any], where: str, file: str) -> Measurement:
    if not isinstance(row, dict):
        raise MeasurementFileError(f"{where} is {kind_of(row)}; it must be an object of fields")
    named = {"source": file, **shared, **_checked(row, where)}
    absent = next((key for key in NEEDED if key not in named), None)
    if absent:
        raise MeasurementFileError(f"{where}: {absent} is missing; every point needs {', '.join(NEEDED)}")
    point = Measurement(**named)
    refuse_absurd(point, where)
    refuse_conflicts(point, where)
    return point


def _checked(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Fields that are stated, each read as its kind."""
    for key in row:
        _refuse_unknown(key, FIELDS, where)
    read = {key: READERS[FIELDS[key].kind](value, f"{where}: {key}") for key, value in row.items() if value is not None}
    for key, value in read.items():
        if value is None:
            raise MeasurementFileError(f"{where}: {key} is {shown(row[key])}; it must be above 0")
    return read


def _refuse_unknown(key: object, known: Mapping[str, Any] | tuple[str, ...], where: str) -> None:
    if key not in known:
        near = nearest(str(key).lower(), known, 1)
        hint = f"nearest: {near[0]}" if near else f"known: {', '.join(known)}"
        raise MeasurementFileError(f"{where}: {quoted(str(key))} is no field; {hint}")


def _text(value: object, where: str) -> str | None:
    return word(value, where)


def _date(value: object, where: str) -> str | None:
    text = value.isoformat()[:10] if isinstance(value, date) else word(value, where)
    digits = (text or "").split("-")
    if not (len(digits) <= 3 and all(part.isascii() and part.isdigit() for part in digits)):  # noqa: PLR2004
        raise MeasurementFileError(f"{where} is {shown(value)}; write it like 2025, 2025-04 or 2025-04-24")
    try:
        date.fromisoformat("-".join([*digits, "01", "01"][:3]))
    except ValueError as error:
        raise MeasurementFileError(f"{where} is {shown(value)}; write it like 2025, 2025-04 or 2025-04-24") from error
    return text


def _quantity(value: object, where: str) -> str | None:
    name = word(value, where)
    if name not in QUANTITIES:
        near = nearest(str(name).lower(), QUANTITIES, 1)
        hint = f"nearest: {near[0]}; " if near else ""
        raise MeasurementFileError(f"{where} is {shown(name)}; {hint}known: {', '.join(QUANTITIES)}")
    return name


def _engine(value: object, where: str) -> str | None:
    return engine_named(word(value, where) or "")


def _weights(value: object, where: str) -> str | None:
    return _format(value, where, find_requested)


def _cache(value: object, where: str) -> str | None:
    return _format(value, where, find_format)


def _format(value: object, where: str, find: Callable[[str], object]) -> str | None:
    name = word(value, where) or ""
    try:
        find(name)
    except MalformedModelError as error:
        raise MeasurementFileError(f"{where}: {error}") from error
    return name


READERS: Final[Mapping[str, Callable[[object, str], Any]]] = {
    "text": _text,
    "date": _date,
    "quantity": _quantity,
    "engine": _engine,
    "weights": _weights,
    "cache": _cache,
    "positive": positive,
    "number": number,
    "count": whole,
}
