"""JSON Schemas of every command's output, made from the result types themselves."""

from __future__ import annotations

from typing import Any, Final

from roofcast.calculators.describe import ModelResult
from roofcast.calculators.fit import FitResult
from roofcast.calculators.gpus import GpusResult
from roofcast.calculators.kv import KvResult

RESULTS: Final[dict[str, type[Any]]] = {
    "kv": KvResult,
    "model": ModelResult,
    "gpus": GpusResult,
    "fit": FitResult,
}


def json_schema(command: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `roofcast COMMAND --format json` prints."""
    from pydantic import TypeAdapter

    result = TypeAdapter(RESULTS[command]).json_schema(mode="serialization")
    definitions = result.pop("$defs", {})
    lines = {"type": "array", "items": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"roofcast {command}",
        "type": "object",
        "properties": {
            "schema": {"const": f"roofcast.{command}/1"},
            "inputs": {"type": "object", "description": "What was asked, defaults filled in."},
            "result": result,
            "assumptions": lines | {"description": "Inputs that had to be guessed; --strict refuses them."},
            "warnings": lines | {"description": "What may lead to a wrong conclusion."},
        },
        "required": ["schema", "inputs", "result", "assumptions", "warnings"],
        "additionalProperties": False,
        "$defs": definitions,
    }
