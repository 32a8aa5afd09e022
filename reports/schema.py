"""JSON Schemas of every command's output, made from the result types themselves."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from roofcast.calculators.attention import AttentionResult
from roofcast.calculators.check_rows import CheckResult
from roofcast.calculators.describe import ModelResult
from roofcast.calculators.estimate import EstimateResult
from roofcast.calculators.fit import FitResult
from roofcast.calculators.gpus import GpusResult
from roofcast.calculators.kv import KvResult
from roofcast.calculators.levers import LeversResult
from roofcast.calculators.planning.rows import PlanResult
from roofcast.calculators.price_rows import PriceResult
from roofcast.calculators.profile_rows import ProfileResult
from roofcast.calculators.report import ReportResult
from roofcast.calculators.roofline_table import RooflineResult
from roofcast.calculators.serving.result import SimulateResult
from roofcast.calculators.speculate import SpeculateResult
from roofcast.calculators.validate import ValidateResult

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS: Final[dict[str, type[Any]]] = {
    "kv": KvResult,
    "model": ModelResult,
    "gpus": GpusResult,
    "fit": FitResult,
    "estimate": EstimateResult,
    "roofline": RooflineResult,
    "levers": LeversResult,
    "speculate": SpeculateResult,
    "attention": AttentionResult,
    "price": PriceResult,
    "simulate": SimulateResult,
    "plan": PlanResult,
    "report": ReportResult,
    "validate": ValidateResult,
    "check": CheckResult,
    "profile": ProfileResult,
}


def json_schema(command: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what `roofcast COMMAND --format json` prints."""
    from pydantic import TypeAdapter

    _describe(RESULTS[command])
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


def _describe(result: type[Any]) -> None:
    """Lets pydantic take each field's description from the text below it, in this type and those inside it."""
    result.__pydantic_config__ = {"use_attribute_docstrings": True}
    for hint in get_type_hints(result).values():
        for inner in _types_in(hint):
            if dataclasses.is_dataclass(inner) and isinstance(inner, type):
                _describe(inner)


def _types_in(hint: Any) -> Iterator[Any]:  # noqa: ANN401 - a type, a union, a generic
    """A type and all that it is made of: of `list[Row] | None` the row too."""
    yield hint
    for inner in get_args(hint):
        yield from _types_in(inner)
