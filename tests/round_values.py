"""Rounds of speculation with made-up, fixed numbers, on an H200."""

from __future__ import annotations

from roofcast.calculators.profile_making import machine_row
from roofcast.calculators.profile_rounds import Side, round_row
from roofcast.calculators.profile_rows import ProfileResult
from roofcast.calculators.profile_rows_rounds import DifferenceRow, SpeculationRow, TextRow
from roofcast.calculators.profile_work import against_datasheet, counted
from roofcast.calculators.profiled_rounds import RoundProfile
from roofcast.hwdb.lookup import find_accelerator
from tests.checkpoints import catalogued
from tests.profile_values import H200, sample


def side(name: str, weights: str = "bf16") -> Side:
    """A model on an H200."""
    model = catalogued(name)
    known = find_accelerator("h200-sxm").accelerator
    return Side(counted(model.spec, weights), against_datasheet(known, model, weights, None))


def rounds(points: tuple[tuple[int, int], ...], context: int = 1024) -> list[RoundProfile]:
    """Rounds of Llama 8B and 1B whose decode step takes 4 ms: a draft step 1 ms, verifying 5 ms, the whole 5 + 1.1 k ms."""
    return [
        RoundProfile(
            batch,
            context,
            k,
            sample(4e-3),
            sample(1e-3),
            sample(k * 1e-3),
            sample(5e-3),
            sample(5e-3 + 1.1e-3 * k),
            "graph",
        )
        for batch, k in points
    ]


TEXT = TextRow(
    drafted=4,
    prompts=8,
    new_tokens=512,
    rounds=160,
    tokens_per_round=3.2,
    acceptance=0.771,
    accepted_by_position=[0.8, 0.62, 0.5, 0.28],
    plain_seconds=10.2,
    speculative_seconds=5.1,
    speedup=2.0,
    same_output=False,
    differences=[DifferenceRow(3, 17, 0.0, 22.5, tie=True), DifferenceRow(5, 60, 0.3, 20.0, tie=False)],
)


def speculated(*, texts: bool = True) -> ProfileResult:
    """The answer of an H200."""
    failed = RoundProfile(4096, 8192, 4, problem="caches of 512.0 GiB do not fit 90.0 GiB that are free on NVIDIA H200")
    sides = side("llama-3.1-8b"), side("llama-3.2-1b")
    some = [*rounds(((1, 1), (1, 4), (16, 1), (16, 4))), failed]
    row = SpeculationRow(
        target="llama-3.1-8b",
        draft="llama-3.2-1b",
        draft_weights="bf16",
        rounds=[round_row(one, *sides, (0.3, 0.8)) for one in some],
        texts=[TEXT] * texts,
        transformers="5.24.0" if texts else None,
    )
    return ProfileResult("speculate", machine_row(H200), "llama-3.1-8b", "bf16", speculation=row)
