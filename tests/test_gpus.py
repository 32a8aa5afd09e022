"""The answer of `gpus`: what an accelerator offers, and the FLOP a byte at which compute becomes the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.gpus import gpu_row, gpu_rows
from roofcast.hwdb.lookup import all_accelerators, find_accelerator
from tests.running import answer, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

RIDGES = [
    ("rtx-2080-ti", "fp16", 87),
    ("rtx-2080-ti", "fp16_acc16", 175),
    ("a100-80gb-sxm", "bf16", 153),
    ("a100-40gb-sxm", "bf16", 201),
    ("h100-sxm", "bf16", 295),
    ("h100-pcie", "bf16", 378),
    ("h200-sxm", "bf16", 206),
]
OWN = """\
id: my-card
name: My Card
vendor: nvidia
memory: 10 GB
bandwidth: 500 GB/s
peaks:
  fp16: 100 TFLOP/s
sources:
  - title: my desk
    facts: [memory, bandwidth, peaks]
    access: seen
"""


@pytest.mark.parametrize(("gpu", "number_format", "expected"), RIDGES)
def test_ridge_points(gpu: str, number_format: str, expected: int) -> None:
    """The ridge is dense peak over bandwidth, with both fp16 accumulators apart."""
    [row] = result("gpus", gpu)["gpus"]
    by_hand = row["peak_flops_per_second"][number_format] / row["bandwidth_bytes_per_second"]

    assert round(row["ridge"][number_format]) == expected
    assert row["ridge"][number_format] == pytest.approx(by_hand)


def test_a_row_of_the_h100() -> None:
    """An H100 SXM is 80e9 bytes as sold, 81,559 MiB to its driver and 79.19 GiB to CUDA."""
    row = gpu_row(find_accelerator("h100-sxm").accelerator)

    assert row.id == "h100-sxm"
    assert row.memory_bytes == 80e9
    assert row.driver_bytes == 81_559 * 2**20
    assert row.visible_bytes is not None
    assert round(row.visible_bytes / 2**30, 2) == 79.19
    assert row.bandwidth_bytes_per_second == 3.35e12
    assert row.peak_flops_per_second["bf16"] == 989.4e12
    assert row.sm_count == 132
    assert row.flags["fp8"] is True


def test_every_accelerator_has_a_row() -> None:
    """Without names all 95 and more are listed, once each, and every ridge has its peak."""
    rows = result("gpus")["gpus"]

    assert len(rows) >= 95
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert row["ridge"].keys() == row["peak_flops_per_second"].keys(), row["id"]
        assert row["memory_bytes"] > 1e9
        assert row["bandwidth_bytes_per_second"] > 1e10


def test_rows_are_those_of_the_database() -> None:
    """`gpu_rows` keeps the order it is given."""
    listed = all_accelerators().accelerators[:5]

    assert [row.id for row in gpu_rows(listed).gpus] == [accelerator.id for accelerator in listed]


def test_an_alias_says_what_it_is_taken_for() -> None:
    """`h100` answers for the SXM card, and text says so."""
    outcome = roofcast("gpus", "h100")

    assert outcome.code == 0
    assert "'h100' is taken as h100-sxm" in outcome.out


def test_several_names_in_order() -> None:
    """Names are answered in the order asked."""
    assert [row["id"] for row in result("gpus", "h200-sxm", "a100-80gb-sxm")["gpus"]] == ["h200-sxm", "a100-80gb-sxm"]


def test_one_unknown_name_among_several() -> None:
    """The known ones are printed, the unknown one is one line on stderr, and the code is 2."""
    outcome = roofcast("gpus", "h100-sxm", "no-such-card", "--format", "json")

    assert outcome.code == 2
    assert "no-such-card" in outcome.complaint
    assert [row["id"] for row in outcome.data["result"]["gpus"]] == ["h100-sxm"]


def test_a_users_own_card(home: Path) -> None:
    """A file in $ROOFCAST_HOME/accelerators adds a card, whose ridge is derived like any other."""
    (home / "accelerators").mkdir()
    (home / "accelerators" / "my-card.yaml").write_text(OWN)
    outcome = roofcast("gpus", "my-card", "--format", "json")

    assert outcome.code == 0, outcome.err
    [row] = outcome.data["result"]["gpus"]
    assert row["ridge"] == {"fp16": 200.0}
    assert row["driver_bytes"] is row["visible_bytes"] is None


def test_a_broken_file_of_the_user_is_named(home: Path) -> None:
    """Listing all goes on without the broken file and warns; asking for it by name is malformed input."""
    (home / "accelerators").mkdir()
    (home / "accelerators" / "my-card.yaml").write_text(OWN.replace("10 GB", "10"))
    listed, asked = roofcast("gpus"), roofcast("gpus", "my-card")

    assert listed.code == 0
    assert "my-card" in listed.out
    assert asked.code == 2
    assert "my-card" in asked.complaint


def test_recalled_facts_are_refused_when_strict() -> None:
    """--strict refuses facts that no source was read for, by name, and passes a card without any."""
    recalled = next(a for a in all_accelerators().accelerators if any(not a.verified(f) for f in a.stated_facts()))
    outcome = roofcast("gpus", recalled.id, "--strict")

    assert outcome.code == 3
    assert outcome.out == ""
    assert recalled.id in outcome.complaint
    assert answer("gpus", recalled.id)["result"]["gpus"][0]["unverified"]


def test_no_local_accelerator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--local` on a machine without devices cannot be answered, and says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = roofcast("gpus", "--local")

    assert outcome.code == 3
    assert "no accelerator" in outcome.complaint


def test_local_accelerators_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--local` turns what the driver prints into the card's id."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert [row["id"] for row in result("gpus", "--local")["gpus"]] == ["h100-sxm"]
