"""Gates of `check` for tests: a rule file, its run, and the rows of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonschema import Draft202012Validator

from roofcast.reports.schema import json_schema
from tests.running import roofcast

if TYPE_CHECKING:
    from pathlib import Path

    from tests.running import Outcome

HEAD = "schema: roofcast.check/1\ndefaults: {model: llama-3.1-8b, gpu: h100-sxm}\nrules:\n"


def gate(tmp_path: Path, *rules: str, options: tuple[str, ...] = (), head: str = HEAD) -> Outcome:
    """Run `check` over a file with these rules."""
    path = tmp_path / "rules.yaml"
    path.write_text(head + "".join(f"  - {{{rule}}}\n" for rule in rules), encoding="utf-8")
    return roofcast("check", str(path), *options)


def rows(tmp_path: Path, *rules: str, options: tuple[str, ...] = (), head: str = HEAD) -> list[dict[str, Any]]:
    """Return the rows of the JSON answer, held against its schema."""
    outcome = gate(tmp_path, *rules, options=(*options, "--format", "json"), head=head)
    Draft202012Validator(json_schema("check")).validate(outcome.data)
    made: list[dict[str, Any]] = outcome.data["result"]["rules"]
    return made


def actual(tmp_path: Path, rule: str) -> Any:
    """Return the value that a rule is held against."""
    [row] = rows(tmp_path, rule)
    return row["actual"]
