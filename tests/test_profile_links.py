"""Steps over several devices are held against the links that the ranks really use, or against none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.profile_exchanges import fabric_between, links_of
from roofcast.calculators.profile_making import machine_row, ranks_row
from roofcast.calculators.profile_work import Against, against_datasheet, compared, counted
from roofcast.calculators.profiled import Machine, Part, StepProfile
from roofcast.calculators.profiled_ranks import RankGroup
from roofcast.cli.deploy import efficiency_of
from roofcast.cli.profiling_compare import Profile, told
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.op import COLLECTIVE
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import catalogued
from tests.expecting import ROUND_FITS, content, deployed, written
from tests.profile_values import H200, LAPTOP, sample

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.profile_rows import ProfileResult

MODEL = "llama-3.1-8b"
NEAR = RankGroup(4, "nccl")
FAR = replace(NEAR, hosts=2)
THROUGH = replace(NEAR, backend="gloo")
PARTS = (Part("tp.all_reduce", COLLECTIVE, 65, sample(4e-4)), Part("tp.logits", COLLECTIVE, 1, sample(2e-5)))
STEP = StepProfile("decode", 16, 1024, sample(5e-3), PARTS, "graph")


def answered(group: RankGroup, machine: Machine = H200) -> tuple[ProfileResult, Remarks]:
    """Answer for a step of four ranks."""
    profile = Profile(machine_row(machine), None, (STEP,), "bf16", tp=group.size, ranks=ranks_row(group))
    return told("decode", profile, catalogued(MODEL), (MODEL, None), efficiency_of("expected"))


def step_of(found: ProfileResult) -> Any:
    """Give the whole step."""
    return found.points[0].step


def exchanges_of(found: ProfileResult) -> dict[str, Any]:
    """Give terms of exchanges by name."""
    return {row.name: row for row in found.points[0].terms if row.family == COLLECTIVE}


def test_one_host_has_the_links_of_the_data_sheet() -> None:
    """Nothing is assumed of them, and the step's bound has the exchanges'."""
    found, said = answered(NEAR)
    alone = compared(STEP, counted(catalogued(MODEL).spec, "bf16", 4), Against(links().roofs))
    own = exchanges_of(found)

    assert not [line for line in said.assumptions if "network" in line]
    assert not [line for line in said.assumptions if line.startswith("exchanges between ranks")]
    assert set(own) == {"tp.all_reduce", "tp.logits"}
    assert own["tp.logits"].bound_seconds == pytest.approx(0.6e-6 + 3 / 4 * 16 * 128_256 * 2 / 450e9)
    assert step_of(found).bound_seconds == pytest.approx(
        (alone.whole.bound or 0.0) + sum(row.bound_seconds for row in own.values())
    )
    assert step_of(found).expected_seconds > step_of(found).bound_seconds


def test_several_hosts_have_a_network() -> None:
    """As of `profile collectives`: 2 of 4 ranks a host, joined at 50 GB/s, which is listed as assumed."""
    (near, _), (found, said) = answered(NEAR), answered(FAR)
    own = exchanges_of(found)["tp.logits"]

    assert said.assumptions == ("h200-sxm: between hosts each device has a network of 50 GB/s (400 Gbit/s) each way",)
    assert own.bound_seconds > 16 * 128_256 * 2 / 4 / 50e9 > 2 * exchanges_of(near)["tp.logits"].bound_seconds
    assert own.of_datasheet == pytest.approx(own.bound_seconds / 2e-5)
    assert step_of(found).bound_seconds > step_of(near).bound_seconds
    assert step_of(found).expected_seconds > step_of(near).expected_seconds


@pytest.mark.parametrize("group", [THROUGH, replace(THROUGH, hosts=2)])
def test_gloo_has_no_links(group: RankGroup) -> None:
    """Exchanges have times alone; the step's bound is without them, which is said, and no time is expected of it."""
    found, said = answered(group)
    alone = compared(STEP, counted(catalogued(MODEL).spec, "bf16", 4), Against(links().roofs))
    step, terms = step_of(found), found.points[0].terms

    for row in exchanges_of(found).values():
        assert row.seconds > 0
        assert (row.bound_seconds, row.expected_seconds, row.of_datasheet, row.of_measured) == (None,) * 4
    family = next(row for row in found.points[0].families if row.name == COLLECTIVE)
    assert (family.bound_seconds, family.expected_seconds, family.of_datasheet) == (None,) * 3
    assert step.bound_seconds == pytest.approx(alone.whole.bound)
    assert step.of_datasheet == pytest.approx(step.bound_seconds / 5e-3)
    assert step.expected_seconds is None
    assert terms[-1].expected_seconds is None  # between kernels
    assert (next(row for row in terms if row.name == "head").expected_seconds or 0.0) > 0
    [note] = [line for line in said.assumptions if line.startswith("exchanges between ranks")]
    assert "gloo takes them through the hosts" in note
    assert said.assumptions == (note,)


def test_cards_that_nothing_links_have_no_bound_of_exchanges() -> None:
    """L40S beyond the eight of a host's PCIe are on one host by another way, of which nothing is known."""
    known = find_accelerator("l40s").accelerator
    many = RankGroup(16, "nccl")

    assert fabric_between(known, many) is None
    assert against_datasheet(known, catalogued(MODEL), "bf16", None, many).fabric is None
    _, said = answered(many, replace(H200, accelerator="l40s"))
    assert any("the data sheet of l40s tells of no link between the ranks" in line for line in said.assumptions)
    eight = answered(RankGroup(8, "nccl"), replace(H200, accelerator="l40s"))[1]
    assert [line for line in eight.assumptions if "PCIe" in line] == [
        "l40s: 8 share a host's PCIe at 31.5 GB/s each way",
    ]


def test_a_device_that_is_not_in_the_database_has_no_bound() -> None:
    """Shares of measured roofs are without exchanges there too, which is said."""
    found, said = answered(THROUGH, LAPTOP)

    assert (step_of(found).bound_seconds, step_of(found).expected_seconds) == (None, None)
    assert any("the device is not in the database" in line for line in said.assumptions)


def links() -> Against:
    """Give the data sheet of an H200 alone."""
    return against_datasheet(find_accelerator("h200-sxm").accelerator, catalogued(MODEL), "bf16", None)


@pytest.mark.parametrize("group", [NEAR, FAR, THROUGH])
def test_steps_and_collectives_have_the_same_links(group: RankGroup) -> None:
    """One rule for both."""
    known = find_accelerator("h200-sxm").accelerator

    assert against_datasheet(known, catalogued(MODEL), "bf16", None, group).fabric == links_of(known, group).fabric


@pytest.mark.parametrize("tp", [2, 8])
@pytest.mark.parametrize(
    ("phase", "batch", "context"), [("decode", 16, 1024), ("prefill", 2, 2048), ("prefill", 1, 128)]
)
def test_what_is_expected_is_what_estimate_expects(
    phase: str, batch: int, context: int, tp: int, tmp_path: Path
) -> None:
    """With exchanges and the host of so many devices, whose launches a short prompt waits for; of the data sheet likewise."""
    file = written(tmp_path / "round.yaml", content(FITS))
    ready = deployed(catalogued(MODEL), "h200-sxm", shards=Shards(tp), file=file)
    point = answer_point(ready, Asked(phase, batch, context))
    assert ready.expectation is not None
    assert point.bound is not None
    fabric = fabric_between(find_accelerator("h200-sxm").accelerator, RankGroup(tp, "nccl"))
    measured = StepProfile(phase, batch, context, sample(0.1))
    work = counted(catalogued(MODEL).spec, "bf16", tp)

    found = compared(measured, work, Against(ready.roofs, ready.expectation, fabric=fabric)).whole

    assert found.bound == pytest.approx(point.bound, rel=1e-12)
    assert found.expected == pytest.approx(point.expected, rel=1e-12)
    assert found.datasheet_share == pytest.approx(point.bound / 0.1, rel=1e-12)


#: the host's time of further devices, in prompts too
FITS = {**ROUND_FITS, "host prefill 0.4": {"step": 200e-6, "launch": 30e-6, "device": 7e-6}}


def test_terms_of_an_expected_step_by_hand(tmp_path: Path) -> None:
    """Four devices: kernels, exchanges of 3 us and half the rate, and 100 + 3 x 10 + 16 us of the host."""
    file = written(tmp_path / "round.yaml", content(FITS))
    against = against_datasheet(find_accelerator("h200-sxm").accelerator, catalogued(MODEL), "bf16", file, NEAR)
    work = counted(catalogued(MODEL).spec, "bf16", 4)
    found = compared(STEP, work, against)
    own = {row.name: row.expected or 0.0 for row in found.rows}

    assert own["tp.logits"] > 3e-6
    kernels = sum(value for name, value in own.items() if name != "between kernels")
    assert found.whole.expected == pytest.approx(kernels + 146e-6, rel=1e-12)
    assert own["between kernels"] == pytest.approx(146e-6, rel=1e-9)
