"""A measured step held against its work: joined by name, summed by family, with the roof that is near."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.profile_compare import (
    BETWEEN,
    asked_step,
    compare_step,
    measured_least,
    measured_ops,
)
from roofcast.calculators.profile_compared import Compared, Least, StepComparison
from roofcast.calculators.profiled import (
    Bandwidth,
    DeviceProfile,
    Machine,
    Part,
    Product,
    Sample,
    StepProfile,
)
from roofcast.calculators.roofline import Roofs
from roofcast.calculators.step import estimate
from roofcast.modelspec.op import ATTN_DECODE, ELEMENTWISE, GEMM, MOE, Op
from tests.checkpoints import catalogued
from tests.expecting import ROUND_FITS, content, deployed, written

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = Machine("a card", "cuda", "h200-sxm", 2**37, 2**37, 2**25, 132, "2.11")


def sample(seconds: float) -> Sample:
    """Return five times that are alike."""
    return Sample(seconds, seconds, seconds, 0.0, 5)


def device(bandwidth: float, **peaks: float) -> DeviceProfile:
    """A measured device: a read of 1 GB, and products of 2e9 FLOP."""
    products = tuple(Product(name, 1000, 1000, 1000, sample(2e9 / peak)) for name, peak in peaks.items())
    return DeviceProfile(MACHINE, (Bandwidth("read", 10**9, 10**9, sample(1e9 / bandwidth)),), products, ())


ROOFS = Roofs("a card", 1e12, {"bf16": 1e15}, {})
OPS = [
    Op("attn.qkv", GEMM, 2e9, weight_bytes=1e9),  # 1 ms at 1 TB/s
    Op("moe.gate_up", MOE, 4e9, weight_bytes=2e9),
    Op("moe.down", MOE, 2e9, weight_bytes=1e9),
    Op("attn.decode", ATTN_DECODE, 1e9, state_read=4e8, state_written=1e8),
    Op("elementwise", ELEMENTWISE, 0.0, activation_read=3e7, activation_written=1e7),
    Op("head", GEMM, 8e11, weight_bytes=1e8),  # 0.8 ms of arithmetic
]
PARTS = (
    Part("attn.qkv", GEMM, 1, sample(2e-3)),
    Part("moe.experts", MOE, 3, sample(5e-3)),
    Part("attn.decode", ATTN_DECODE, 2, sample(1e-3)),
    Part("elementwise", ELEMENTWISE, 4, sample(1e-4)),
    Part("head", GEMM, 1, sample(1e-3)),
)
STEP = StepProfile("decode", 4, 1024, sample(9.5e-3), PARTS, "graph")


def rows(one: StepComparison) -> dict[str, Compared]:
    """Return rows by name."""
    return {row.name: row for row in one.rows}


def test_parts_and_terms_are_joined_by_name() -> None:
    """Both matrices of experts are one measured part; order is that of the step."""
    found = compare_step(STEP, OPS)

    assert [row.name for row in found.rows] == [
        "attn.qkv",
        "moe.experts",
        "attn.decode",
        "elementwise",
        "head",
        BETWEEN,
    ]
    experts = rows(found)["moe.experts"]
    assert (experts.flops, experts.bytes, experts.seconds, experts.calls) == (6e9, 3e9, 5e-3, 3)
    assert experts.bytes_per_second == pytest.approx(3e9 / 5e-3)
    assert experts.flops_per_second == pytest.approx(6e9 / 5e-3)


def test_what_is_between_kernels_is_the_step_less_its_parts() -> None:
    """9.5 ms, of which 9.1 in parts; negative where parts alone take longer."""
    found = rows(compare_step(STEP, OPS))[BETWEEN]

    assert found.seconds == pytest.approx(0.4e-3)
    assert (found.flops, found.bytes, found.bound) == (0.0, 0.0, None)
    quicker = replace(STEP, sample=sample(9e-3))
    assert rows(compare_step(quicker, OPS))[BETWEEN].seconds == pytest.approx(-0.1e-3)


def test_shares_are_of_each_roof() -> None:
    """The data sheet's 1 TB/s and 1 PFLOP/s, beside 0.8 TB/s and 0.5 PFLOP/s as measured."""
    found = rows(compare_step(STEP, OPS, ROOFS, device=device(8e11, bf16=5e14)))

    assert found["attn.qkv"].bound == pytest.approx(1e-3)
    assert found["attn.qkv"].datasheet_share == pytest.approx(0.5)
    assert found["attn.qkv"].measured_share == pytest.approx(0.625)
    assert found["head"].bound == pytest.approx(0.8e-3)
    assert found["head"].measured_share == pytest.approx(1.6)  # quicker than what was measured: shown, not hidden
    assert found["moe.experts"].datasheet_share == pytest.approx(3e-3 / 5e-3)


def test_element_wise_work_need_not_move_its_inputs_and_outputs() -> None:
    """They may stay on the chip: its bound is that of `estimate`, and its shares are of it."""
    found = rows(compare_step(STEP, OPS, ROOFS))["elementwise"]

    assert found.activation_bytes == 4e7
    assert (found.bytes_per_second, found.datasheet_share, found.bound) == (0.0, 0.0, 0.0)


def test_terms_and_the_step_are_held_against_the_same_roofs() -> None:
    """Least times of the terms sum to that of the step."""
    found = compare_step(STEP, OPS, ROOFS)

    terms = [row.datasheet.bound for row in found.rows if row.datasheet]
    assert found.whole.datasheet is not None
    assert sum(terms) == pytest.approx(found.whole.datasheet.bound)


def test_the_near_roof_is_told_by_measurement() -> None:
    """The head is near the peak, the rest near the bandwidth, and so is the step."""
    found = compare_step(STEP, OPS, device=device(1e12, bf16=1e15))

    assert rows(found)["head"].bound_by == "compute"
    assert rows(found)["attn.decode"].bound_by == "memory"
    assert found.whole.bound_by == "memory"
    assert found.whole.memory_share == pytest.approx(4.6e9 / 1e12 / 9.5e-3)  # weights and state alone
    assert found.whole.compute_share == pytest.approx(8.09e11 / 1e15 / 9.5e-3)


def test_without_roofs_work_and_rates_stand_alone() -> None:
    """A device that is not in the database, before its roofs are measured."""
    found = compare_step(STEP, OPS)

    row = rows(found)["attn.qkv"]
    assert row.bytes_per_second == pytest.approx(5e11)
    assert (row.bound, row.expected, row.datasheet_share, row.measured_share, row.bound_by) == (None,) * 5
    assert found.whole.bound is None


def test_a_format_that_was_not_multiplied_has_no_measured_roof() -> None:
    """Nor has a step with it; element-wise work needs no peak."""
    measured = device(1e12, fp32=1e13)

    found = compare_step(STEP, OPS, device=measured)

    assert rows(found)["attn.qkv"].measured is None
    assert rows(found)["elementwise"].measured == Least(0.0, 0.0, 0.0)
    assert found.whole.measured is None
    assert measured_least([], measured) is None
    turing = Roofs("a card", 1e12, {"bf16": 1e14}, {"bf16": "fp32"})
    assert measured_least(OPS[:1], measured, turing) == Least(2e-4, 1e-3, 1e-3)
    assert measured_least(OPS, None) is None


def test_families_sum_their_rows() -> None:
    """The family that takes longest stands first."""
    found = compare_step(STEP, OPS, ROOFS)

    assert [one.name for one in found.families] == [MOE, GEMM, ATTN_DECODE, ELEMENTWISE]
    gemm = next(one for one in found.families if one.name == GEMM)
    assert (gemm.seconds, gemm.bound, gemm.flops) == pytest.approx((3e-3, 1.8e-3, 8.02e11))
    assert gemm.datasheet_share == pytest.approx(0.6)


def test_a_step_that_could_not_run_has_work_and_bound_alone() -> None:
    """Out of memory: no time, no rate, and nothing between kernels."""
    lost = StepProfile("decode", 4, 1024, None, problem="out of memory")

    found = compare_step(lost, OPS, ROOFS)

    assert BETWEEN not in rows(found)
    assert found.whole.seconds is None
    assert found.whole.bytes_per_second is None
    assert found.whole.datasheet_share is None
    assert found.whole.bound == pytest.approx(5.3e-3)
    assert all(one.seconds is None for one in found.families)


def test_a_part_without_a_term_and_a_term_without_a_part_are_rows() -> None:
    """Neither is dropped; a family of which one row was not measured has no time."""
    step = replace(STEP, parts=(*PARTS[1:], Part("sampling", ELEMENTWISE, 1, sample(1e-5))))

    found = compare_step(step, OPS, ROOFS)

    assert rows(found)["sampling"].seconds == 1e-5
    assert rows(found)["sampling"].flops == 0
    assert rows(found)["attn.qkv"].seconds is None
    assert next(one for one in found.families if one.name == GEMM).seconds is None


@pytest.mark.parametrize(("phase", "batch", "context"), [("decode", 4, 1024), ("prefill", 2, 512)])
def test_bound_and_expected_time_are_those_of_estimate(phase: str, batch: int, context: int, tmp_path: Path) -> None:
    """Of a whole model: every term's, and the step's with the time of its host."""
    file = written(tmp_path / "round.yaml", content(ROUND_FITS))
    ready = deployed(catalogued("llama-3.1-8b"), "h200-sxm", file=file)
    step = StepProfile(phase, batch, context, sample(1.0))
    point = answer_point(ready, Asked(phase, batch, context))

    found = compare_step(step, measured_ops(ready.program, ready.formats, step), ready.roofs, ready.expectation)

    terms = estimate(ready, asked_step(step)).terms
    assert {row.name for row in found.rows} == {term.op.name for term in terms}
    assert found.whole.bound == pytest.approx(point.bound)
    assert found.whole.expected == pytest.approx(point.expected)
    assert sum(row.expected or 0.0 for row in found.rows) == pytest.approx(point.kernels)
