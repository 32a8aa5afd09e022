"""Reads measurements of speculation from a file: JSON objects or CSV rows, under the names that people give the fields."""

from __future__ import annotations

import csv
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.measured_rounds import Measured
from roofcast.calculators.rounds import MOST_TREE
from roofcast.calculators.speculative import MOST_DRAFTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

LARGEST: Final = 64_000_000  # bytes of a file
# field -> what files call it, the first that is there
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "source": ("source", "id", "source_url"),
    "model": ("model_id", "model"),
    "gpu": ("gpu",),
    "gpus": ("gpus", "n_gpus", "tp"),
    "weights": ("weights", "weight_quant"),
    "batch": ("batch",),
    "context": ("context", "input_len"),
    "method": ("method",),
    "draft": ("draft", "draft_model"),
    "drafted": ("drafted", "k", "gamma", "num_speculative_tokens"),
    "tree": ("tree",),
    "tokens": ("tokens_per_round", "accepted_per_step", "mean_acceptance_length"),
    "speedup": ("speedup",),
}
COUNTS: Final = {"gpus": 1024, "batch": 1 << 20, "context": 1 << 30, "drafted": MOST_DRAFTED, "tree": MOST_TREE}
OF_SPECULATION: Final = (
    "drafted",
    "tokens",
)  # a row without both, and that no field calls speculative, is of something else
IN_NOTES: Final = r"(?i)\b(eagle-?[123]?|medusa|hydra|mtp\d*|draft)(?=\W|$)"
DRAFT_IN_NOTES: Final = r"(?i)draft(?: model)?\s*=\s*([\w./-]+)"
MTP_LENGTH: Final = r"(?i)\bmtp(\d{1,2})\b"  # MTP3: three tokens drafted


def read_rounds(path: Path) -> tuple[list[Measured], int]:
    """The measurements of speculation that a file holds, and how many of its rows are of something else.

    A row has a model and a GPU by name and, as far as they were measured, tokens a round and the speed-up over plain
    decode; how was drafted, how many tokens, and lengths may be left out.

    Raises:
        UsageError: it cannot be read, is neither JSON nor CSV, or a row is wrong; the row is named.
    """
    rows = _rows(path)
    kept = [(number, row) for number, row in enumerate(rows, 1) if _speculates(row)]
    if not kept:
        raise UsageError(f"--measured {path}: none of its {len(rows):,} rows states tokens_per_round or drafted")
    return [_measured(row, f"--measured {path}: row {number}") for number, row in kept], len(rows) - len(kept)


def _rows(path: Path) -> list[Mapping[str, Any]]:
    try:
        if path.stat().st_size > LARGEST:
            raise UsageError(f"--measured {path}: it has more than {LARGEST // 1_000_000} MB")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"--measured {path}: it cannot be read ({reason})") from error
    rows = _json_rows(text, path) if text.lstrip()[:1] in {"[", "{"} else _csv_rows(text)
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"--measured {path}: it must be a JSON list of objects, or CSV with a row of names")
    return rows


def _json_rows(text: str, path: Path) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--measured {path}: it is no JSON ({str(error)[:80]})") from error
    rows = found.get("rows", [found]) if isinstance(found, dict) else found
    return rows if isinstance(rows, list) else []


def _csv_rows(text: str) -> list[Any]:
    return [{name: value for name, value in row.items() if value not in {None, ""}} for row in _lines(text)]


def _lines(text: str) -> Iterator[dict[str, Any]]:
    try:
        yield from csv.DictReader(text.splitlines())
    except csv.Error as error:
        raise UsageError(f"--measured: it is no CSV ({error})") from error


def _speculates(row: Mapping[str, Any]) -> bool:
    return row.get("regime") == "speculative" or any(_found(row, field) is not None for field in OF_SPECULATION)


def _found(row: Mapping[str, Any], field: str) -> Any:  # noqa: ANN401 - a file may hold anything
    return next((row[name] for name in NAMES[field] if row.get(name) is not None), None)


def _measured(row: Mapping[str, Any], where: str) -> Measured:
    notes = str(row.get("notes") or "")
    texts = {name: _text(row, name, where) for name in ("source", "model", "gpu", "weights", "method", "draft")}
    missing = next((name for name in ("model", "gpu") if not texts[name]), None)
    if missing:
        raise UsageError(f"{where} names no {missing}; every row needs a model and a gpu")
    counts = {name: _count(row, name, most, where) for name, most in COUNTS.items()}
    numbers = {name: _number(row, name, where) for name in ("tokens", "speedup")}
    _check_tokens(numbers["tokens"], counts, where)
    told, drafter = re.search(IN_NOTES, notes), re.search(DRAFT_IN_NOTES, notes)
    length = re.search(MTP_LENGTH, texts["method"] or notes)
    return Measured(
        source=texts["source"] or where.rpartition(": ")[2],
        model=str(texts["model"]),
        gpu=str(texts["gpu"]),
        gpus=counts["gpus"] or 1,
        weights=texts["weights"],
        batch=counts["batch"] or 1,
        context=counts["context"],
        method=texts["method"] or (told[1] if told else ""),
        draft=texts["draft"] or (drafter[1] if drafter else ""),
        drafted=counts["drafted"] or (int(length[1]) if length and int(length[1]) else None),
        tree=counts["tree"],
        **numbers,
    )


def _text(row: Mapping[str, Any], field: str, where: str) -> str | None:
    found = _found(row, field)
    if found is None:
        return None
    if not isinstance(found, str) or not found.strip():
        raise UsageError(f"{where}: {field} is {str(found)[:60]!r}; it must be a name")
    return found.strip()


def _count(row: Mapping[str, Any], field: str, most: int, where: str) -> int | None:
    value = _number(row, field, where)
    if value is None or (field == "context" and value == 0):
        return None
    if value != int(value) or not 1 <= value <= most:
        raise UsageError(f"{where}: {field} is {value:g}; it must be a whole number from 1 to {most:,}")
    return int(value)


def _number(row: Mapping[str, Any], field: str, where: str) -> float | None:
    found = _found(row, field)
    if found is None:
        return None
    try:
        value = float(found) if not isinstance(found, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise UsageError(f"{where}: {field} is {str(found)[:60]!r}; it must be a number, 0 or more")
    return value


def _check_tokens(tokens: float | None, counts: Mapping[str, int | None], where: str) -> None:
    drafted = counts["drafted"]
    if tokens is not None and (tokens < 1 or (drafted is not None and tokens > drafted + 1)):
        most = "" if drafted is None else f" and, of {drafted} drafted, at most {drafted + 1}"
        raise UsageError(f"{where}: {tokens:g} tokens a round; with the target's own it is 1 or more{most}")
    tree = counts["tree"]
    if tree is not None and drafted is not None and tree < drafted:
        raise UsageError(f"{where}: a tree of {tree} positions is less than its depth, {drafted}")
