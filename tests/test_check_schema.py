"""The JSON Schema of rule files: it takes what `check` reads, and marks in an editor what `check` refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from roofcast.calculators.check_quantities import QUANTITIES
from roofcast.cli.check_fields import FIELDS, SHARED
from roofcast.cli.check_schema import rule_schema
from tests.running import roofcast
from tests.test_check_file import EVERY

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: dict[str, Any] = rule_schema()


def holds(text: str) -> list[str]:
    """Return what the JSON Schema has against a file."""
    found = yaml.safe_load(text)
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(found)]


def test_the_schema_takes_what_is_read() -> None:
    """The file with everything is valid by the schema that `check --schema` prints."""
    printed = roofcast("check", "--schema")

    assert printed.code == 0
    assert json.loads(printed.out) == SCHEMA
    Draft202012Validator.check_schema(SCHEMA)
    assert holds(EVERY) == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("quantity: sequences", "quantity: sequnces"), id="quantity"),
        pytest.param(("context: 4k", "contxt: 4k"), id="field"),
        pytest.param(("at_least: 100", "at_most: 100"), id="side"),
        pytest.param(("at_most: 500ms", "at_most: 500"), id="unit"),
        pytest.param(("engine: vllm", "engine: vlm"), id="engine"),
        pytest.param(("max_model_len", "max_modl_len"), id="flag"),
        pytest.param(("basis: high", "basis: best"), id="basis"),
        pytest.param(("lock: true", "lock: 3"), id="lock"),
        pytest.param(("check/1", "check/2"), id="version"),
        pytest.param(("matrix: {model", "matrix: {modle"), id="matrix"),
        pytest.param(("weight_bytes, at_most", "weight_bytes, gpu: h100, at_most"), id="not-taken"),
        pytest.param(("gpu_price: 2.5", "gpu_price: -2.5"), id="price"),
        pytest.param(("rate: 2.5", "rate: 2.5, concurrency: 4"), id="two-loads"),
        pytest.param(("percentile: 99.5", "percentile: 100"), id="percentile"),
        pytest.param(("ttft: 500ms, tpot", "ttft: 500, tpot"), id="limit-of-requests"),
        pytest.param(("goodput, rate: 2", "goodput, batch: 2"), id="one-step"),
        pytest.param(("defaults: {model", "defaults: {name: a, model"), id="default"),
    ],
)
def test_the_schema_refuses_slips(change: tuple[str, str]) -> None:
    """Editors mark what `check` refuses."""
    assert change[0] in EVERY
    assert holds(EVERY.replace(*change, 1)) != []


@pytest.mark.parametrize("name", ["roofcast", "failing", "undetermined", "malformed"])
def test_the_schema_of_the_sample_repository(repository: Path, name: str) -> None:
    """Its rule files are valid by the schema, but for the malformed one, as `check` says too."""
    path = repository / "tests/fixtures/sample_repository" / f"{name}.yaml"
    good = holds(path.read_text(encoding="utf-8")) == []

    assert good == (name != "malformed")
    assert (roofcast("check", str(path)).code != 2) == good


def test_the_schema_says_what_fields_are() -> None:
    """Every field has a description, and names of accelerators and models are offered."""
    rule = SCHEMA["$defs"]["rule"]["properties"]

    assert all(rule[name]["description"] for name in FIELDS)
    assert "h100-sxm" in rule["gpu"]["anyOf"][0]["enum"]
    assert "llama-3.1-8b" in rule["model"]["anyOf"][0]["enum"]
    assert set(rule["matrix"]["properties"]) == set(SHARED) - {"flags"}


def test_every_field_is_some_quantitys() -> None:
    """No field is read and then counts for nothing, and what a quantity takes there is a field for."""
    every = set().union(*(one.takes for one in QUANTITIES.values()))

    assert every == set(SHARED)
    assert all(set(one.needs) <= one.takes for one in QUANTITIES.values())
