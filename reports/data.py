"""JSON and CSV for programs: SI numbers, the unit in the key."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from roofcast.reports.document import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.reports.document import Document


def render_json(document: Document) -> str:
    """The JSON contract: schema, inputs, result, assumptions, warnings."""
    return json.dumps(envelope(document), indent=2, allow_nan=False, ensure_ascii=True) + "\n"


def envelope(document: Document) -> dict[str, Any]:
    """The object that JSON prints."""
    return {
        "schema": f"roofcast.{document.command}/1",
        "inputs": dict(document.inputs),
        "result": as_data(document.result),
        "assumptions": list(document.remarks.assumptions),
        "warnings": list(document.remarks.warnings),
    }


def as_data(value: Any) -> Any:  # noqa: ANN401 - any value of a result
    """A result as dictionaries and lists. Like dataclasses.asdict, without copying what is plain already."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: as_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: as_data(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_data(entry) for entry in value]
    return value


def render_csv(document: Document) -> str:
    """The records with one column for every key that any of them has, in the order of first appearance."""
    import csv  # noqa: PLC0415 - text and JSON do without
    import io  # noqa: PLC0415

    rows = [flatten(as_data(record)) for record in document.records]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def flatten(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A record in one level: keys joined with a dot, lists as JSON.

    >>> flatten({"model": "m", "cache_bytes": {"4096": 1}, "notes": ["a"]})
    {'model': 'm', 'cache_bytes.4096': 1, 'notes': '["a"]'}
    """
    flat: dict[str, Any] = {}
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat |= flatten(value, f"{name}.")
        else:
            text = plain(value) if isinstance(value, str) else value
            flat[name] = json.dumps(value) if isinstance(value, (list, bool)) else text
    return flat
