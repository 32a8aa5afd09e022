"""Reads a saved profile: whatever the file holds, it is one whose numbers somebody can have measured, or one line."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.profile_making import device_of, machine_of
from roofcast.calculators.profile_rows import (
    AttentionRow,
    BandwidthRow,
    LaunchRow,
    MachineRow,
    MeasuredRow,
    PartRow,
    PointRow,
    ProductRow,
    ProfileResult,
    RoofRow,
    ShareRow,
)
from roofcast.calculators.profile_rows_checkpoint import CheckpointPointRow, CheckpointRow
from roofcast.calculators.profile_rows_ranks import CollectivesRow, ExchangeRow, LinkRow, RanksRow
from roofcast.calculators.profile_rows_rounds import DifferenceRow, RoundRow, SpeculationRow, TextRow
from roofcast.calculators.profile_rows_time import TimeRow
from roofcast.calculators.profile_work import WEIGHTS
from roofcast.calculators.profiled import COPY, EAGER, GRAPH, READ
from roofcast.modelspec.errors import MalformedModelError
from roofcast.modelspec.op import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, FAMILIES, POINT_TO_POINT, REDUCE_SCATTER
from roofcast.modelspec.step import DECODE, PREFILL
from roofcast.modelspec.strictjson import quoted, read_object, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Row = tuple[str, Any]  # a place in the file, and the row that stands there

SCHEMA: Final = "roofcast.profile/1"
LARGEST: Final = 64 * 2**20  # [B] of a saved profile

#: least and most of a number: what a device can have, and far beyond
TIME: Final = (1e-9, 1e6)
APART: Final = (-1e6, 1e6)  # of a difference of times, or of a time that may be 0
RATE: Final = (1.0, 1e20)
REACHED: Final = (0.0, 1e20)
AMOUNT: Final = (0.0, 1e30)
COUNT: Final = (1, 10**9)
SHARE: Final = (0.0, 1e30)
ANY: Final = (-1e30, 1e30)
#: field -> its limits, whichever row it is of; `OWN` has those of single rows
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    **dict.fromkeys(("seconds", "low", "high", "value"), TIME),
    **dict.fromkeys(("bound_seconds", "measured_bound_seconds", "expected_seconds"), APART),
    **dict.fromkeys(("bandwidth_bytes_per_second", "datasheet_bytes_per_second"), RATE),
    **dict.fromkeys(("peak_flops_per_second", "datasheet_flops_per_second"), RATE),
    **dict.fromkeys(("bytes_per_second", "flops_per_second", "tokens_per_second"), REACHED),
    **dict.fromkeys(("batch", "context", "prompt", "length", "m", "n", "k", "repeats", "gpus", "tp", "hosts"), COUNT),
    **dict.fromkeys(("query_heads", "kv_heads", "head_dim", "moved_bytes", "size_bytes"), (1, 1e30)),
    **dict.fromkeys(("of_datasheet", "of_measured", "of_compute", "of_memory", "intensity", "ridge"), SHARE),
    **dict.fromkeys(
        ("memory_bytes", "free_bytes", "l2_bytes", "sms", "flops", "bytes", "extra_bytes", "calls"), AMOUNT
    ),
    "spread": (0.0, 1e6),
    **dict.fromkeys(("bound_decode_seconds", "expected_decode_seconds"), APART),
    **dict.fromkeys(("plain_seconds", "speculative_seconds"), TIME),
    **dict.fromkeys(("drafted", "prompts", "new_tokens", "tokens_per_round"), COUNT),
    **dict.fromkeys(("draft_ratio", "verify_ratio", "bound_draft_ratio", "bound_verify_ratio"), SHARE),
    **dict.fromkeys(("expected_draft_ratio", "expected_verify_ratio", "speedup", "scale"), SHARE),
    **dict.fromkeys(("measured", "bound", "expected"), SHARE),
    **dict.fromkeys(("acceptance", "break_even_acceptance"), (0.0, 1.0)),
    "position": (0, 10**9),
}
OWN: Final[Mapping[tuple[type, str], tuple[float, float]]] = {
    (ShareRow, "seconds"): APART,
    (DifferenceRow, "prompt"): (0, 10**9),
    (RanksRow, "size"): COUNT,
    (TextRow, "rounds"): COUNT,
    **dict.fromkeys(
        ((CheckpointPointRow, "steps"), (CheckpointRow, "parameters"), (CheckpointRow, "weight_bytes")), (1, 1e30)
    ),
    (BandwidthRow, "bytes_per_second"): RATE,
    (ProductRow, "flops_per_second"): RATE,
}
MULTIPLIED: Final = (*WEIGHTS, "tf32")
PHASES: Final = (PREFILL, DECODE)
PATTERNS: Final = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, POINT_TO_POINT)
LAUNCHES: Final = (EAGER, GRAPH)
#: row and field -> the words that may stand there
WORDS: Final[Mapping[tuple[type, str], tuple[str, ...]]] = {
    (ProfileResult, "weights"): WEIGHTS,
    (MachineRow, "kind"): ("cuda", "rocm", "mps", "cpu"),
    (BandwidthRow, "how"): (READ, COPY),
    (LaunchRow, "how"): LAUNCHES,
    (RoofRow, "format"): MULTIPLIED,
    (ProductRow, "format"): MULTIPLIED,
    (PointRow, "phase"): PHASES,
    (PointRow, "launched"): LAUNCHES,
    (PointRow, "routing"): ("", "drawn", "balanced"),
    (PartRow, "family"): FAMILIES,
    (ShareRow, "family"): ("", *FAMILIES),
    (RoundRow, "launched"): LAUNCHES,
    (SpeculationRow, "draft_weights"): WEIGHTS,
    (AttentionRow, "phase"): PHASES,
    (AttentionRow, "format"): WEIGHTS,
    (MeasuredRow, "weights"): WEIGHTS,
    (MeasuredRow, "kv"): WEIGHTS,
    (CheckpointPointRow, "phase"): PHASES,
    (CheckpointRow, "dtype"): WEIGHTS,
    (RanksRow, "backend"): ("nccl", "gloo"),
    (CollectivesRow, "number_format"): WEIGHTS,
    **dict.fromkeys(((ExchangeRow, "launched"), (LinkRow, "launched")), LAUNCHES),
    **dict.fromkeys(((ExchangeRow, "pattern"), (LinkRow, "pattern")), PATTERNS),
}


class ProfileFileError(ValueError):
    """A saved profile that cannot be read, or that is not of what it is taken for; the message names the file."""


def read_saved(name: str) -> ProfileResult:
    """A profile as `--format json` wrote it.

    Raises:
        UsageError: the file cannot be read.
        ProfileFileError: it holds no profile, or one that nobody can have measured.
    """
    from pydantic import TypeAdapter, ValidationError

    where = f"--from {name}"
    try:
        found = read_object(_content(name), where)
    except MalformedModelError as error:
        raise ProfileFileError(str(error)) from error
    if found.get("schema") != SCHEMA:
        raise ProfileFileError(
            f"{where}: schema is {short(found.get('schema'))}; it must be {SCHEMA!r}, of a profile with --format json"
        )
    try:
        made = TypeAdapter(ProfileResult).validate_json(json.dumps(found.get("result")), strict=True)
    except RecursionError as error:
        raise ProfileFileError(f"{where}: nested too deeply to be read") from error
    except ValidationError as error:
        first, more = error.errors()[0], error.error_count()
        place = ".".join(map(str, ("result", *first["loc"])))
        raise ProfileFileError(f"{where}: {place}: {first['msg']} ({more} problem{'s' * (more > 1)})") from error
    for place, row in _rows("result", made):
        _refuse_absurd(row, f"{where}: {place}")
    _refuse_rates(made, where)
    _refuse_ranks(made, where)
    return made


def _content(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            found = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL byte
        raise UsageError(f"--from {name}: it cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if len(found) > LARGEST:
        raise ProfileFileError(f"--from {name}: it is larger than {LARGEST >> 20} MiB, more than a profile has")
    return found


def _rows(place: str, value: object) -> Iterator[Row]:
    """Every row of an answer, with its place."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _rows(f"{place}.{number}", one)
    elif is_dataclass(value):
        yield place, value
        for field in fields(value):
            yield from _rows(f"{place}.{field.name}", getattr(value, field.name))


def _refuse_absurd(row: Any, where: str) -> None:  # noqa: ANN401 - a row of any kind
    """Refuses numbers that are none or that nobody can have measured, and words that are not known.

    Raises:
        ProfileFileError: naming the field.
    """
    kind = type(row)
    for field in fields(kind):
        value = getattr(row, field.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            least, most = OWN.get((kind, field.name), LIMITS.get(field.name, ANY))
            if not least <= value <= most:  # of NaN too
                raise ProfileFileError(f"{where}.{field.name} is {short(value)}; it must be {least:g} to {most:g}")
        known = WORDS.get((kind, field.name))
        if known is not None and value is not None and value not in known:
            said = ", ".join(word or "nothing" for word in known)
            raise ProfileFileError(f"{where}.{field.name} is {quoted(value)}; known: {said}")
    if kind is TimeRow and not row.low <= row.seconds <= row.high:
        raise ProfileFileError(f"{where}.seconds is {row.seconds:g}; it must lie between low and high")


def _refuse_rates(made: ProfileResult, where: str) -> None:
    """Refuses roofs that no device has, as they follow of sizes and times: these count, not the rates beside them.

    Raises:
        ProfileFileError: naming the row.
    """
    if made.device is None:
        return
    device, (least, most) = device_of(made.device, machine_of(made.machine)), RATE
    rates: dict[str, list[float | None]] = {
        "bandwidths": [one.bytes_per_second for one in device.bandwidths],
        "products": [one.flops_per_second for one in device.products],
    }
    for name, some in rates.items():
        for number, rate in enumerate(some):
            if rate is not None and not least <= rate <= most:
                raise ProfileFileError(
                    f"{where}: result.device.{name}.{number}: its size and time make {rate:g} a second; "
                    f"it must be {least:g} to {most:g}"
                )


def _refuse_ranks(made: ProfileResult, where: str) -> None:
    """Refuses devices, ranks and hosts of which nobody can have measured so many together.

    Raises:
        ProfileFileError: naming the field.
    """
    ranks, tp = made.ranks, made.tp
    if ranks is not None and ranks.hosts > ranks.size:
        raise ProfileFileError(
            f"{where}: result.ranks.hosts is {ranks.hosts:,}; it must be 1 to {ranks.size:,}, the ranks"
        )
    if made.what == "collectives" and not made.points:  # ranks that share no model
        if tp != 1 or ranks is None:
            wrong = (
                "result.ranks is null; it must tell who exchanged" if tp == 1 else f"result.tp is {tp:,}; it must be 1"
            )
            raise ProfileFileError(f"{where}: {wrong}, of collectives")
    elif (ranks is None) != (tp == 1):
        said = "null" if ranks is None else "not null"
        raise ProfileFileError(
            f"{where}: result.ranks is {said}, and result.tp {tp:,}; ranks are null of one device, and of no more"
        )
    elif ranks is not None and ranks.size != tp:
        raise ProfileFileError(f"{where}: result.ranks.size is {ranks.size:,}; it must be {tp:,}, as result.tp is")
    for number, row in enumerate(made.measurements):
        for name, value in (("tp", row.tp), ("gpus", row.gpus)):
            if value != tp:
                place = f"result.measurements.{number}.{name}"
                raise ProfileFileError(f"{where}: {place} is {value:,}; it must be {tp:,}, as result.tp is")
