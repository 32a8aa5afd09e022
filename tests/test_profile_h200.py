"""Profiles that were measured on one H200, against the constants that the profiler was fitted to on it.

Origin of the files: `roofcast profile compare MODEL --out FILE.json`, 2026-11-30, torch 2.11.0, driver 580.159.04. Neither
model is in the fit, whose decoders are of no published one.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest

from roofcast.hwdb import efficiency_files
from tests.running import answer

FOLDER = Path(__file__).parent / "fixtures" / "profiles"
FILES = ("h200-llama-3.1-8b.json", "h200-qwen2.5-1.5b.json")


def compared(name: str) -> list[dict[str, Any]]:
    """The measured steps with what is expected of them."""
    points: list[dict[str, Any]] = answer("profile", "compare", "--from", str(FOLDER / name))["result"]["points"]
    return points


@pytest.mark.parametrize("name", FILES)
def test_steps_are_expected_within_five_per_cent(name: str) -> None:
    """|expected / measured - 1| is at most 5 % in the median, and never 10 %."""
    steps = [point["step"] for point in compared(name)]
    misses = [abs(step["expected_seconds"] / step["seconds"] - 1) for step in steps]
    assert median(misses) <= 0.05
    assert max(misses) < 0.1


@pytest.mark.parametrize("name", FILES)
def test_no_step_beats_its_bound(name: str) -> None:
    """Neither measured nor expected time is below the data sheet's bound."""
    for step in (point["step"] for point in compared(name)):
        assert step["bound_seconds"] < min(step["seconds"], step["expected_seconds"])


def test_decode_waits_for_memory_and_prefill_for_arithmetic() -> None:
    """By measurement: Llama-3.1-8B reaches over 70 % of the one roof, and less than a third of the other."""
    for point in compared(FILES[0]):
        near, far = ("of_memory", "of_compute") if point["phase"] == "decode" else ("of_compute", "of_memory")
        assert point[near] > 0.7
        assert point[far] < 1 / 3
        assert point["near"] == near.removeprefix("of_")


def test_what_steps_hide_is_no_more_than_calls_have(tmp_path: Path) -> None:
    """With all of t0 hidden, and one row's launch already counted less, no term is expected below its bound."""
    built_in = Path(efficiency_files.BUILT_IN, "h200-sxm.roofcast.yaml").read_text(encoding="utf-8")
    step = "- family: step\n  format: decode\n  constants:\n"
    assert step in built_in
    file = tmp_path / "hidden.yaml"
    file.write_text(built_in.replace(step, f"{step}    gemm: 1.0\n"), encoding="utf-8")
    asked = ("--phase", "decode", "--batch", "1,2", "--context", "128", "--weights", "bf16", "--efficiency", str(file))
    rows = answer("estimate", "smollm2-135m", "--gpu", "h200", "--offline", *asked)["result"]["phases"]
    terms = [term for row in rows for term in row["terms"]]
    assert len(terms) > 10
    assert all(term["expected_seconds"] >= term["bound_seconds"] for term in terms)
