"""Counts and caches against the reference implementation: classes whose layers differ, and their kin."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.families import TABLES
from roofcast.modelspec.families_kin import KIN_FAMILIES
from roofcast.modelspec.families_later import LATER_FAMILIES
from roofcast.modelspec.families_recurrent import RECURRENT_FAMILIES
from roofcast.modelspec.spec import ModelSpec, build_spec
from roofcast.modelspec.state import CACHE
from tests.model_configs import FIXTURES, MISSING, changed, is_one_line, outcome

FILES = (
    FIXTURES / "reference_mixed.json",
    FIXTURES / "reference_few.json",
    *sorted(FIXTURES.glob("reference_newest_*.json")),
)
REFERENCE = [json.loads(path.read_text()) for path in FILES]
MODELS: list[dict[str, Any]] = [model for file in REFERENCE for model in file["models"]]
ABSENT = [{**row, "model": file["models"][row["model"]]["config"]} for file in REFERENCE for row in file["absent"]]
NEWEST = [name for name in TABLES if name.startswith("families_newest")]
MEASURED = [index for index, model in enumerate(MODELS) if "held" in model]
BYTES = {"cache": 2, "model": 2, "fp32": 4}  # the reference ran in bf16 and keeps recurrent states in fp32
# classes that the reference does not have, with what their own tests rest on
NOT_THERE = {
    "minimax_m1": "the weights of minimax",
    "minimax_m3": "the weights of minimax_m3_vl_text",
    "minimax_text_01": "the weights of minimax",
    "molmo": "its parameters are not answered",
    "nemotron-nas": "the published count",
    "rwkv5": "the formula of its paper",
    "rwkv6": "the formula of its paper",
}


def named(index: int) -> str:
    """Return the class of a model, for the test's name."""
    return f"{MODELS[index]['config']['model_type']}-{index}"


def held(spec: ModelSpec, tokens: int, *, less: int) -> int:
    """Return the bytes that all layers keep, windows shortened by `less` tokens."""
    total = 0
    for part, count in spec.kept.items():
        shortened = part.cap is not None and part.per == 1 and part.format == CACHE
        kept = replace(part, cap=(part.cap or 0) - less) if shortened else part
        total += count * kept.elements * kept.entries(tokens) * BYTES[kept.format]
    return total


@pytest.mark.parametrize("index", range(len(MODELS)), ids=named)
def test_parameters_are_the_references(index: int) -> None:
    """Random sizes and switches of every class give the reference's parameters to the last one."""
    assert build_spec(MODELS[index]["config"]).parameters == MODELS[index]["parameters"]


@pytest.mark.parametrize("index", MEASURED, ids=named)
def test_state_is_what_the_reference_holds(index: int) -> None:
    """The state is the measured cache at every context, but for windows, of which the reference drops one token."""
    model = MODELS[index]
    spec = build_spec(model["config"])

    for tokens, measured in model["held"].items():
        assert measured in {held(spec, int(tokens), less=1), held(spec, int(tokens), less=0)}


@pytest.mark.parametrize("row", ABSENT, ids=lambda row: f"{row['model']['model_type']}-{row['without']}")
def test_an_absent_key_is_the_classs_default_or_refused(row: dict[str, Any]) -> None:
    """A key left out is never silently another value than the class takes: the count is the reference's, or none."""
    found = outcome(changed(row["model"], **{row["without"]: MISSING}))

    if isinstance(found, ModelError):
        assert is_one_line(str(found))
    else:
        assert found.parameters == row["parameters"]


def test_the_reference_covers_every_class_of_these_tables() -> None:
    """Each row of these tables was checked against the reference, or says on what else it rests."""
    checked = {model["config"]["model_type"] for model in MODELS}
    newest = {row for name in NEWEST for row in getattr(import_module(f"roofcast.modelspec.{name}"), TABLES[name])}

    assert {*RECURRENT_FAMILIES, *KIN_FAMILIES, *LATER_FAMILIES, *newest} <= checked | NOT_THERE.keys()


@pytest.mark.parametrize(
    ("key", "value", "named"), [("n_shared_experts", 2, "has 1 whatever"), ("o_groups", 3, "does not divide")]
)
def test_deepseek_v4_is_not_answered_past_its_class(key: str, value: int, named: str) -> None:
    """Two shared experts, of which its class builds one, and groups that do not share the heads are refused."""
    config = next(model["config"] for model in MODELS if model["config"]["model_type"] == "deepseek_v4")

    assert isinstance(outcome({**config, key: 1}), ModelSpec)
    assert named in str(outcome({**config, key: value}))
