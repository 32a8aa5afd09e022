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
    from collections.abc import Mapping
    from pathlib import Path

LARGEST: Final = 16_000_000  # bytes of a file
MOST_ROWS: Final = 2000  # of speculation
FASTEST: Final = 1000.0  # speed-up, and its inverse; beyond is a slip
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
    if len(kept) > MOST_ROWS:
        raise UsageError(f"--measured {path}: it has {len(kept):,} rows of speculation; at most {MOST_ROWS:,} at once")
    return [_measured(row, f"--measured {path}: row {number}") for number, row in kept], len(rows) - len(kept)


def _rows(path: Path) -> list[Mapping[str, Any]]:
    text = _text_of(path)
    rows = _json_rows(text, path) if text.lstrip()[:1] in {"[", "{"} else _csv_rows(text, path)
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"--measured {path}: it must be a JSON list of objects, or CSV with a row of names")
    return rows


def _text_of(path: Path) -> str:
    """A file's text; of what has no end, as a device, no more than is allowed."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UsageError(f"--measured {path}: it has more than {LARGEST // 1_000_000} MB")
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"--measured {path}: it cannot be read ({reason})") from error
    if "\0" in text:
        raise UsageError(f"--measured {path}: it cannot be read (it is no text)")
    return text


def _json_rows(text: str, path: Path) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--measured {path}: it is no JSON ({str(error)[:80]})") from error
    rows = found.get("rows", [found]) if isinstance(found, dict) else found
    return rows if isinstance(rows, list) else []


def _csv_rows(text: str, path: Path) -> list[Any]:
    rows: list[Any] = []
    try:
        for row in csv.DictReader(text.splitlines()):
            if None in row:
                raise UsageError(
                    f"--measured {path}: row {len(rows) + 1} has more cells than the header has names; quote cells with commas"
                )
            rows.append({name: value for name, value in row.items() if value not in {None, ""}})
    except csv.Error as error:
        raise UsageError(f"--measured {path}: it is no CSV ({error})") from error
    return rows


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
    _check_speedup(numbers["speedup"], where)
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
    drafted, tree = counts["drafted"], counts["tree"]
    if tree is not None and drafted is None:
        raise UsageError(f"{where}: a tree of {tree} positions needs k, its depth")
    most = (drafted or MOST_DRAFTED) + 1
    if tokens is not None and not 1 <= tokens <= most:
        said = "" if drafted is None else f" of {drafted} drafted"
        raise UsageError(f"{where}: {tokens:g} tokens a round{said}; with the model's own it is 1 to {most}")
    if tree is not None and drafted is not None and tree < drafted:
        raise UsageError(f"{where}: a tree of {tree} positions is less than its depth, {drafted}")


def _check_speedup(speedup: float | None, where: str) -> None:
    if speedup is not None and not 1 / FASTEST <= speedup <= FASTEST:
        raise UsageError(
            f"{where}: speedup is {speedup:g}; over plain decode it must be {1 / FASTEST:g} to {FASTEST:,.0f}"
        )
