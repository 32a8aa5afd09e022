"""Slips in rules of `check` about plans, and what editors know of them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.check_plan import named_gpus
from roofcast.calculators.check_quantities import QUANTITIES, Case
from roofcast.calculators.errors import UnansweredError
from roofcast.cli.checking import Setups
from roofcast.cli.checking_plan import asked_plan
from roofcast.cli.deploy import efficiency_of
from tests.running import refused, roofcast
from tests.test_check_file import wrong
from tests.test_check_plan import HEAD, told
from tests.test_check_schema import holds

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        (", rate: 10", "rate: is missing; cheapest_cost is of a load"),
        (", percentile: 90", "percentile: is missing; cheapest_cost needs it"),
        (", ttft: 500ms, tpot: 50ms", "ttft: is missing"),
        ("prompt: 512, ", "prompt: is missing; cheapest_cost needs it"),
    ],
)
def test_what_a_plan_needs(tmp_path: Path, gone: str, said: str) -> None:
    """A load, a promise, and of how many requests."""
    assert gone in HEAD
    found = wrong(tmp_path, f"{HEAD.replace(gone, '')}  - {{quantity: cheapest_cost, at_most: 4}}\n")

    assert len(found) == 1
    assert said in found[0]


def test_more_gpus_than_anyone_has(tmp_path: Path) -> None:
    """What only the plan refuses is badly put, in the words of rules."""
    [row] = told(tmp_path, "quantity: cheapest_cost, gpu: l40s, max_gpus: 100000, at_most: 9")

    assert row["code"] == 2
    assert row["message"] == "max_gpus 100,000: it must be at most 65,536"


def test_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    """With its place, and without an answer."""
    path = tmp_path / "r.yaml"
    path.write_text(f"{HEAD}  - {{name: a, quantity: gpus_needed, gpu: [l4, l40s], at_most: 4}}\n")

    refused(roofcast("check", str(path)), 2, f"{path}:4: rule 'a': gpu: gpus_needed is of one kind of GPU")


@pytest.mark.parametrize(
    ("fields", "good"),
    [
        ("quantity: cheapest_cost, gpu: [l40s, h100-sxm], max_gpus: 8, at_most: 2.5", True),
        ("quantity: cheapest_cost, gpu: all, at_most: 2", True),
        ("quantity: cheapest_cost, gpu: l40s, gpu_price: 0.7, rate: 3, allowed_change: 2%", True),
        ("quantity: gpus_needed, gpu: l40s, at_most: 4", True),
        ("quantity: gpus_needed, gpu: [l40s, l4], at_most: 4", False),
        ("quantity: kv_tokens, gpu: [l40s, l4], at_least: 4", False),
        ("quantity: cheapest_cost, at_most: cheap", False),
        ("quantity: cheapest_cost, at_least: 2", False),
        ("quantity: gpus_needed, gpu: l40s, gpu_price: 2, at_most: 4", False),
        ("quantity: cheapest_cost, gpus: 2, at_most: 4", False),
    ],
)
def test_editors_know_plans(fields: str, good: bool) -> None:
    """The JSON Schema takes what `check` reads, and marks what it refuses."""
    assert (holds(f"{HEAD}  - {{{fields}}}\n") == []) == good


def test_names_of_several() -> None:
    """Names stand between commas; all of them have none."""
    assert [named_gpus(text) for text in ("", "all", "l4", "l4,NVIDIA L40S")] == [
        (),
        (),
        ("l4",),
        ("l4", "NVIDIA L40S"),
    ]
    assert [name for name, one in QUANTITIES.items() if one.planned] == ["cheapest_cost", "gpus_needed"]
    assert [name for name, one in QUANTITIES.items() if one.of_several] == ["cheapest_cost"]


def test_constants_are_missed_before_a_search() -> None:
    """Expected times without constants are refused at once."""
    case = Case(model="llama-3.1-8b", rate=1.0, ttft=1.0, percentile=99.0)
    with pytest.raises(UnansweredError, match="has bounds alone"):
        asked_plan(Setups(efficiency_of("bound"), offline=True), case)


def test_rules_without_a_plan_load_none_of_it(tmp_path: Path) -> None:
    """The search is imported by the first rule that needs it."""
    path = tmp_path / "r.yaml"
    path.write_text(f"{HEAD}  - {{quantity: kv_tokens, gpu: l4, at_least: 4}}\n")
    code = (
        "import sys\nfrom roofcast.cli.app import main\n"
        f"sys.argv = ['roofcast', 'check', {str(path)!r}]\n"
        "try:\n    main()\nfinally:\n    print([name for name in sys.modules if 'planning' in name], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], check=False, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr
    assert done.stderr.strip().endswith("[]")
