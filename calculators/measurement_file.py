"""Reads files of measurements: which tool's a file is tells what it holds, not how it is called.

text = decode(path.read_bytes(), path.name)
reading = read_measurements(text, path.name)
done = complete(reading.points, {"gpu": "h100-sxm", "tp": 2})
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators import bench_genai, bench_guidellm, bench_llama, bench_llama_table, bench_own, bench_vllm
from roofcast.calculators.bench_json import LARGEST, csv_rows, decode, json_values, yaml_fields
from roofcast.calculators.bench_limits import refuse_absurd, slow_tokens
from roofcast.calculators.measurement import Completed, Measurement, MeasurementFileError, Reading, complete
from roofcast.modelspec.strictjson import plain, short

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Record = Mapping[str, Any]

__all__ = [
    "KINDS", "LARGEST", "PUBLISHED", "Completed", "Measurement", "MeasurementFileError", "Reading", "complete", "decode", "read_measurements",
]  # fmt: skip

PUBLISHED: Final = "published.json"  # beside this file: the figures that roofcast ships
KINDS: Final = (
    "roofcast measurements (JSON, YAML, CSV)",
    "vllm bench serve, latency and throughput, sglang bench_serving (JSON)",
    "llama-bench (JSON, JSONL, CSV, Markdown)",
    "genai-perf and aiperf (JSON)",
    "guidellm (JSON)",
    "roofcast profiles",
)
_SCHEMA_LINE: Final = r"(?m)^\s{0,8}[\"']?schema[\"']?\s*:\s*[\"']?roofcast\."
OWN_COLUMNS: Final = frozenset(("quantity", "value"))
LLAMA_COLUMNS: Final = frozenset(("n_prompt", "n_gen"))
_LFS: Final = "version https://git-lfs.github.com/spec/"
_SCHEMA_AT_START: Final = r"(?m)^[\"']?schema[\"']?[ \t]{0,8}:[ \t]{0,8}[\"']?roofcast\."
_SEVERAL: Final = "{:,} documents of roofcast in one file; write one a file, or one list of points"
_HTML: Final = r"\s*<(!doctype|html|\?xml)"
_SQL: Final = r"(?m)^(CREATE TABLE|INSERT INTO)\b"


@dataclass(frozen=True, slots=True)
class Source:
    """A tool's JSON.

    Args:
        is_one: whether a record is of that tool.
        read: reads all of them.
    """

    is_one: Callable[[Record], bool]
    read: Callable[[Sequence[Record], str], Reading]


#: Tools whose records have no schema that names them; the first that knows the record reads it.
SOURCES: Final = (
    Source(bench_llama.is_test, bench_llama.read_tests),
    Source(bench_guidellm.is_report, bench_guidellm.read_reports),
    Source(bench_vllm.is_serve, bench_vllm.read_serve),
    Source(bench_genai.is_export, bench_genai.read_export),
    Source(bench_vllm.is_latency, bench_vllm.read_latency),
    Source(bench_vllm.is_throughput, bench_vllm.read_throughput),
)


def read_measurements(text: str, name: str) -> Reading:
    """Measured points of a file, by what it holds.

    Args:
        text: of the file; `decode` makes it of bytes.
        name: of the file: the source of its points, and what messages begin with.

    Raises:
        MeasurementFileError: it is of no kind that can be read, broken, or holds no point.

    >>> read_measurements("hello", "notes.txt")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    roofcast.calculators.measurement.MeasurementFileError: notes.txt: not recognised; it must be of: roofcast ...
    """
    where = plain(name)
    reading = _read(text, where)
    if not reading.points:
        why = f" ({reading.remarks[0].removeprefix(where + ': ')})" if reading.remarks else ""
        raise MeasurementFileError(f"{where}: {reading.kind} with no measurement in it{why}")
    for point in reading.points:
        refuse_absurd(point, where if point.id is None else f"{where}: {point.id}")
    return replace(reading, remarks=(*reading.remarks, *slow_tokens(reading.points, where)))


def _read(text: str, where: str) -> Reading:
    start = text.lstrip()[:1]
    if start in {"{", "["}:
        return _read_json(json_values(text, where), where)
    if bench_llama_table.is_table(text):
        return bench_llama_table.read_table(text, where)
    names = _columns(text, ",")
    if names >= OWN_COLUMNS:
        return bench_own.read_own_rows(csv_rows(text, where), where)
    if names >= LLAMA_COLUMNS:
        return bench_llama.read_rows(csv_rows(text, where), where)
    if re.search(_SCHEMA_LINE, text[:100_000]):
        if (count := len(re.findall(_SCHEMA_AT_START, text))) > 1:
            raise MeasurementFileError(f"{where}: {_SEVERAL.format(count)}")
        return _by_schema(yaml_fields(text, where), where)
    raise MeasurementFileError(f"{where}: {_not_recognised(text)}; it must be of: {'; '.join(KINDS)}")


def _columns(text: str, between: str) -> set[str]:
    """Names that the first line has, were it CSV with this between cells."""
    return {cell.strip().strip('"') for cell in text.lstrip().partition("\n")[0][:10_000].split(between)}


def _not_recognised(text: str) -> str:
    if not text.strip():
        return "empty"
    if text.lstrip().startswith(_LFS):
        return "a pointer of Git LFS in place of the file (git lfs pull fetches it)"
    for between, name in ((";", "semicolons"), ("\t", "tabs")):
        if any(wanted <= _columns(text, between) for wanted in (OWN_COLUMNS, LLAMA_COLUMNS)):
            return f"CSV with {name} between cells; write commas"
    if re.match(_HTML, text, re.IGNORECASE):
        return "an HTML page"
    return "SQL, which llama-bench -o json is without" if re.search(_SQL, text[:100_000]) else "not recognised"


def _read_json(values: list[Any], where: str) -> Reading:
    """Records of JSON: a list of them, one, or one after the other."""
    listed = values[0] if len(values) == 1 and isinstance(values[0], list) else values
    records = [value for value in listed if isinstance(value, dict)]
    ours = records if len(records) == 1 and "schema" in records[0] else [one for one in records if _is_ours(one)]
    if len(ours) > 1:
        raise MeasurementFileError(f"{where}: {_SEVERAL.format(len(ours))}")  # fmt: skip
    if ours:
        return _with_lost(_by_schema(ours[0], where), len(listed) - 1, len(listed), where)
    for source in SOURCES:
        found = [record for record in records if source.is_one(record)]
        if found:
            return _with_lost(source.read(found, where), len(listed) - len(found), len(listed), where)
    raise MeasurementFileError(f"{where}: not recognised; it must be of: {'; '.join(KINDS)}")


def _is_ours(record: Record) -> bool:
    return str(record.get("schema")).startswith("roofcast.")


def _with_lost(reading: Reading, other: int, listed: int, where: str) -> Reading:
    """With a remark of records that were not read."""
    lost = (f"{where}: {other:,} of {listed:,} records are of something else",) if other else ()
    return replace(reading, remarks=(*reading.remarks, *lost))


def _by_schema(found: Mapping[str, Any], where: str) -> Reading:
    schema = found["schema"] if isinstance(found.get("schema"), str) else ""
    if schema.startswith(bench_own.PROFILE):
        return bench_own.read_profile(found, where)
    if schema.partition("/")[0] == bench_own.SCHEMA.partition("/")[0]:
        return bench_own.read_own(found, where)
    raise MeasurementFileError(
        f"{where}: schema is {short(found.get('schema'))}; measured points have {bench_own.SCHEMA}"
    )
