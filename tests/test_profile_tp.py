"""`profile decode --tp`: the terms of several devices, beside what `estimate --tp` says; no time is asserted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.profile_work import against_datasheet, compared, counted
from roofcast.calculators.profiled import Part, StepProfile
from roofcast.calculators.profiled_ranks import RankGroup
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.op import COLLECTIVE
from tests.checkpoints import TINY, catalogued, folder_of
from tests.profile_values import sample
from tests.running import answer, refused, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "llama-3.1-8b"


@pytest.mark.parametrize(("phase", "batch", "context"), [("decode", 16, 1024), ("prefill", 1, 2048)])
@pytest.mark.parametrize("tp", [2, 8])
def test_bounds_are_those_of_estimate(phase: str, batch: int, context: int, tp: int) -> None:
    """A step over several devices has the least time that `estimate --tp` prints, exchanges among its terms."""
    model = catalogued(MODEL)
    against = against_datasheet(find_accelerator("h200-sxm").accelerator, model, "bf16", None, RankGroup(tp, "nccl"))
    made = compared(StepProfile(phase, batch, context, None), counted(model.spec, "bf16", tp), against)

    length = ("--context", str(context)) if phase == "decode" else ("--prompt", str(context))
    options = (
        "--gpu",
        "h200-sxm",
        "--tp",
        str(tp),
        "--phase",
        phase,
        "--batch",
        str(batch),
        *length,
        "--weights",
        "bf16",
    )
    said = result("estimate", MODEL, *options)["phases"][0]

    assert made.whole.bound == pytest.approx(said["bound_seconds"], rel=1e-9)
    own = {row.name: row.bound for row in made.rows if row.family == COLLECTIVE}
    terms = {row["term"]: row["bound_seconds"] for row in said["terms"] if row["family"] == COLLECTIVE}
    assert set(own) == {"tp.all_reduce", "tp.logits"}
    assert own == pytest.approx(terms)


def test_a_measured_exchange_stands_beside_its_link() -> None:
    """Half of the data sheet's rate is a share of a half; no weights and no cache move in it."""
    model, tp = catalogued(MODEL), 2
    against = against_datasheet(find_accelerator("h200-sxm").accelerator, model, "bf16", None, RankGroup(tp, "nccl"))
    work = counted(model.spec, "bf16", tp)
    least = next(
        row.bound
        for row in compared(StepProfile("decode", 1, 1024, None), work, against).rows
        if row.name == "tp.logits"
    )
    assert least is not None
    step = StepProfile(
        "decode", 1, 1024, sample(5e-3), (Part("tp.logits", COLLECTIVE, 1, replace(sample(2 * least), low=least)),)
    )
    row = next(row for row in compared(step, work, against).rows if row.name == "tp.logits")

    assert row.datasheet_share == pytest.approx(0.5)
    assert (row.flops, row.bytes, row.measured) == (0.0, 0.0, None)


def test_without_a_data_sheet_exchanges_are_times_alone() -> None:
    """A machine that is not in the database has no least time of an exchange."""
    work = counted(catalogued(MODEL).spec, "bf16", 2)
    step = StepProfile("decode", 1, 1024, sample(5e-3), (Part("tp.all_reduce", COLLECTIVE, 65, sample(1e-3)),))
    from roofcast.calculators.profile_work import Against

    row = next(row for row in compared(step, work, Against()).rows if row.name == "tp.all_reduce")

    assert row.seconds == pytest.approx(1e-3)
    assert (row.bound, row.datasheet_share) == (None, None)


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """Give the folder of a Llama of two layers and 64 elements."""
    pytest.importorskip("torch")
    return str(folder_of(tmp_path / "tiny", TINY))


def run(tiny: str, *arguments: str) -> Any:
    """Measure two ranks of the processor, within seconds."""
    common = (tiny, "--device", "cpu", "--weights", "fp32", "--tp", "2", "--budget", "60s")
    return answer("profile", *arguments[:1], *common, *arguments[1:])


def test_two_ranks_measure_a_step(tiny: str, tmp_path: Path) -> None:
    """The terms of one device, halved, and what the two exchange; a saved profile is compared as of two."""
    found = run(tiny, "decode", "--batch", "2", "--context", "32")["result"]

    assert (found["tp"], found["ranks"]["size"], found["ranks"]["backend"]) == (2, 2, "gloo")
    names = {row["name"]: row for row in found["points"][0]["terms"]}
    assert {"tp.all_reduce", "tp.logits", "attn.qkv", "head"} <= set(names)
    assert names["tp.all_reduce"]["seconds"] > 0
    # 4 of 8 heads of 16 and 1 of 2 KV heads: (64 + 2 x 16) x 64 fp32 weights of two layers, halved
    assert names["attn.qkv"]["bytes"] == 2 * (64 + 2 * 32) * 64 * 4 / 2
    calls = {part["name"]: part["calls"] for part in found["points"][0]["parts"]}
    assert (calls["tp.all_reduce"], calls["tp.logits"]) == (5, 1)  # two halves of two layers, and the embedding
    row = found["measurements"][0]
    assert (row["gpus"], row["tp"]) == (2, 2)

    path = tmp_path / "saved.json"
    path.write_text(json.dumps({"schema": "roofcast.profile/1", "result": found}))
    again = result("profile", "compare", "--from", str(path))
    assert again["points"] == found["points"]
    assert (again["tp"], again["ranks"]) == (found["tp"], found["ranks"])


def test_two_ranks_measure_a_prompt(tiny: str) -> None:
    """Text names the ranks, and the family of exchanges."""
    common = ("--device", "cpu", "--weights", "fp32", "--tp", "2", "--budget", "60s")
    outcome = roofcast("profile", "prefill", tiny, *common, "--prompt", "16")

    assert outcome.code == 0, outcome.err
    assert "2 ranks on 1 host, gloo of torch" in outcome.out
    assert "collective" in outcome.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--tp", "3"), ("--tp must be one of 1, 2, 4",)),
        (("--tp", "0"), ("--tp 0", "1 to")),
        (("--tp", "2", "--backend", "mpi"), ("--backend mpi", "nccl, gloo")),
        (("--tp", "2", "--backend", "nccl"), ("--backend nccl", "gloo does")),
        (("--tp", "2", "--wait", "soon"), ("--wait soon",)),
        (("--tp", "2", "--wait", "2h"), ("--wait 2h", "at most 3600s")),
    ],
)
def test_bad_options_are_one_line(tiny: str, options: tuple[str, ...], words: tuple[str, ...]) -> None:
    """Usage errors, before any rank is started."""
    refused(roofcast("profile", "decode", tiny, "--device", "cpu", *options), 2, *words)
