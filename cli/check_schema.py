"""The JSON Schema of rule files, for editors: the fields of `check_fields`, and what each quantity takes of them."""

from __future__ import annotations

from typing import Any, Final

from roofcast.calculators.check_quantities import IS, QUANTITIES
from roofcast.cli.check_fields import FIELDS, SHARED, VARIED
from roofcast.cli.check_file import SCHEMA
from roofcast.cli.check_matrix import MOST_RULES, MOST_VALUES
from roofcast.cli.check_values import KINDS, LIMIT_SCHEMAS
from roofcast.cli.engine_flags import OPTIONS

Json = dict[str, Any]
LIMIT: Final[Json] = {"type": ["string", "number"]}


def rule_schema() -> Json:
    """The JSON Schema (draft 2020-12) of a rule file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Capacity rules of `roofcast check`",
        "type": "object",
        "properties": {
            "schema": {"const": SCHEMA, "description": "Version of this format."},
            "defaults": {
                "type": "object",
                "description": "Fields of all rules that take them and do not write them themselves.",
                "properties": {name: _field(name) for name in SHARED},
                "additionalProperties": False,
            },
            "lock": {
                "type": "boolean",
                "description": "Whether revisions of models and facts of accelerators must be those of the baseline.",
            },
            "rules": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_RULES,
                "items": {"$ref": "#/$defs/rule"},
                "description": "One or more; each is passed, failed or undetermined.",
            },
        },
        "required": ["schema", "rules"],
        "additionalProperties": False,
        "$defs": {"rule": _rule()},
    }


def _rule() -> Json:
    """One rule: its fields, and by quantity the limit that makes sense."""
    return {
        "type": "object",
        "properties": {**{name: _field(name) for name in FIELDS}, "matrix": _matrix(), "exclude": _exclude()},
        "required": ["quantity"],
        "additionalProperties": False,
        "dependentRequired": {"exclude": ["matrix"]},
        "not": {"required": ["rate", "concurrency"]},
        "allOf": [_of_quantity(name) for name in QUANTITIES],
    }


def _field(name: str) -> Json:
    """One field, with its description; names of accelerators, models and formats are offered."""
    row = FIELDS[name]
    schema: Json = dict(KINDS[row.kind][1]) or dict(LIMIT)
    offered = OFFERED[row.kind]() if row.kind in OFFERED else OFFERED_FIELDS[name]() if name in OFFERED_FIELDS else None
    if offered:
        schema = {"anyOf": [{"enum": offered}, schema]}
    if row.kind == "flags":
        schema |= {"properties": {flag: _flag(flag) for flag in OPTIONS if flag != "engine_version"}}
        schema["additionalProperties"] = False
    if row.kind == "quantity":
        says = "; ".join(f"{quantity}: {one.says}" for quantity, one in QUANTITIES.items())
        return schema | {"description": f"{row.says} {says}."}
    return schema | {"description": row.says}


def _flag(name: str) -> Json:
    row = OPTIONS[name]
    kind: Json = {"type": "boolean"} if row.kind == "switch" else {"type": ["string", "number"]}
    return kind | {"description": row.help}


def _matrix() -> Json:
    lists = {
        name: {"type": "array", "minItems": 1, "maxItems": MOST_VALUES, "uniqueItems": True, "items": _field(name)}
        for name in VARIED
    }
    return {
        "type": "object",
        "description": "A rule for each combination of these values.",
        "properties": lists,
        "minProperties": 1,
        "additionalProperties": False,
    }


def _exclude() -> Json:
    entry = {"type": "object", "minProperties": 1, "properties": {name: _field(name) for name in VARIED}}
    return {
        "type": "array",
        "description": "Combinations of the matrix that are left out.",
        "items": entry | {"additionalProperties": False},
    }


def _of_quantity(name: str) -> Json:
    """What a rule about a quantity may have: its fields, and its one limit."""
    about = QUANTITIES[name]
    limits = () if about.sign == IS else (about.limit, "allowed_change")
    allowed = {*about.takes, "name", "quantity", "matrix", "exclude", *limits}
    then: Json = {"properties": {field: field in allowed for field in FIELDS if field not in allowed}}
    if "gpu" in about.takes and not about.of_several:
        then["properties"]["gpu"] = {"type": "string"}
    if about.limit is not None:
        then["properties"][about.limit] = LIMIT_SCHEMAS[about.written]
        then["anyOf"] = [{"required": [about.limit]}, {"required": ["allowed_change"]}]
    return {"if": {"properties": {"quantity": {"const": name}}, "required": ["quantity"]}, "then": then}


def _accelerators() -> list[str]:
    from roofcast.hwdb.files import accelerator_files

    return sorted(accelerator_files())


def _models() -> list[str]:
    from roofcast.modelspec.known import known_names

    return sorted(known_names())


def _formats() -> list[str]:
    from roofcast.modelspec.formats import FORMATS

    return list(FORMATS)


#: kind of a field -> names that editors offer beside others that may be
OFFERED: Final = {"gpu": _accelerators, "weights": _formats, "kv": _formats}
OFFERED_FIELDS: Final = {"model": _models}
