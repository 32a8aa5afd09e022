"""Measured rounds beside their estimates, which are `speculate`'s own numbers, and how they are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.answer import Remarks
from roofcast.calculators.profile_rounds import Side, estimated, round_row
from roofcast.calculators.profile_work import Against, against_datasheet, compared, counted
from roofcast.calculators.profiled import StepProfile
from roofcast.calculators.roofline import timed
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.ops import step_ops
from roofcast.modelspec.step import DECODE, decode_step
from roofcast.reports.profile import profile_document
from roofcast.reports.text import render_text
from tests.checkpoints import catalogued
from tests.expecting import ROUND_FITS, content, written
from tests.round_values import TEXT, rounds, side, speculated
from tests.running import result

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("context", [1024, 4096])
@pytest.mark.parametrize("models", [("llama-3.1-8b", "llama-3.2-1b"), ("qwen3-30b-a3b", "qwen3-0.6b")])
def test_bounds_are_those_of_speculate(models: tuple[str, str], context: int) -> None:
    """Decode, drafting, verifying and cost of every batch and k: the numbers that `roofcast speculate` prints for an H200."""
    target, draft = map(side, models)
    rate = ("--acceptance", "0.8", "--k", "1,2,4,8", "--batch", "1,16", "--context", str(context))
    formats = ("--weights", "bf16", "--draft-weights", "bf16", "--kv", "bf16")
    said = result("speculate", models[0], "--draft", models[1], "--gpu", "h200-sxm", *formats, *rate, "--offline")[
        "rounds"
    ]

    assert len(said) == 8
    for row in said:
        k = row["drafted"]
        made = round_row(rounds(((row["batch"], k),), context)[0], target, draft, (0.8,))
        decode = made.bound_decode_seconds
        assert decode == pytest.approx(row["decode_seconds"], rel=1e-12)
        assert k * made.bound_draft_ratio * decode == pytest.approx(row["draft_seconds"], rel=1e-12)
        assert made.bound_verify_ratio == pytest.approx(row["verify_ratio"], rel=1e-12)
        assert made.cost.bound == pytest.approx(row["round_cost"], rel=1e-12)
        assert made.speedups[0].bound == pytest.approx(row["speedup"], rel=1e-12)
        assert made.speedups[0].tokens_per_round == pytest.approx(row["tokens_per_round"], rel=1e-12)


def test_what_a_measured_round_comes_to() -> None:
    """By hand: 5 + 4.4 ms over 4 ms is 2.35 decode steps; at a = 0.5 they yield 1.9375 tokens, and pay from a = 0.61 on."""
    row = round_row(rounds(((1, 4),))[0], side("llama-3.1-8b"), side("llama-3.2-1b"), (0.5,))

    assert row.cost.measured == pytest.approx(2.35)
    assert row.draft_ratio == pytest.approx(0.25)
    assert row.verify_ratio == pytest.approx(1.25)
    assert row.speedups[0].measured == pytest.approx(1.9375 / 2.35)
    even = row.break_even_acceptance
    assert even is not None
    assert sum(even**n for n in range(5)) == pytest.approx(2.35)


def test_expected_times_are_never_below_the_bound() -> None:
    """Constants of this profiler on an H200: of each part."""
    bound, expected = estimated(side("llama-3.1-8b"), side("llama-3.2-1b"), 16, 1024, 4)

    assert bound is not None
    assert expected is not None
    assert expected.decode > bound.decode
    assert expected.draft > bound.draft
    assert expected.verify > expected.decode


def test_expected_times_have_the_host_of_each_step(tmp_path: Path) -> None:
    """A step's 100 us and 1 us a sequence, beside the kernels: of a decode step as `compare` has it, of others by hand."""
    file = written(tmp_path / "round.yaml", content(ROUND_FITS))
    target, draft = (
        Side(
            counted(catalogued(name).spec, "bf16"),
            against_datasheet(find_accelerator("h200-sxm").accelerator, catalogued(name), "bf16", file),
        )
        for name in ("llama-3.1-8b", "llama-3.2-1b")
    )
    _, expected = estimated(target, draft, 16, 1024, 4)
    assert expected is not None

    for side_, seconds in ((target, expected.decode), (draft, expected.draft)):
        found = compared(StepProfile("decode", 16, 1024, None), side_.work, side_.against)
        kernels = sum(row.expected or 0.0 for row in found.rows)
        assert seconds == pytest.approx(found.whole.expected, rel=1e-12)
        assert seconds - kernels == pytest.approx(116e-6, rel=1e-9)
    several = step_ops(target.work.program, decode_step(16, 1028, tokens=5), target.work.formats)
    roofs, constants = target.against.roofs, target.against.expectation
    assert roofs is not None
    kernels = sum(timed(op, roofs, constants, DECODE).expected for op in several)
    assert expected.verify - kernels == pytest.approx(116e-6, rel=1e-9)


def test_without_a_data_sheet_measured_numbers_stand_alone() -> None:
    """Of a device that is not in the database nothing is estimated."""
    alone = Side(side("llama-3.1-8b").work, Against())
    row = round_row(rounds(((1, 4),))[0], alone, alone, (0.8,))

    assert (row.bound_decode_seconds, row.expected_verify_ratio, row.cost.bound, row.speedups[0].expected) == (
        None,
    ) * 4
    assert row.speedups[0].measured is not None


def test_text_shows_measured_beside_estimated() -> None:
    """Best lengths, speed-ups, costs, times and real text; what did not run says so."""
    lines = render_text(profile_document(speculated(), {}, Remarks()), width=80).splitlines()
    text = "\n".join(lines)

    assert "draft: llama-3.2-1b in bf16, random weights too; real text through transformers 5.24.0" in text
    assert "2 of 8 texts part from plain decoding, 1 of them at ties of rounding" in text
    assert any(line.split()[:5] == ["1k", "1", "0.3", "none", "0.85"] for line in lines)
    assert any(line.split()[:5] == ["1k", "1", "0.8", "4", "1.43"] for line in lines)
    assert any(line.split() == ["8k", "4,096", "4", *line.split()[3:-3], "did", "not", "run"] for line in lines)
    tables = lines[5 : next(n for n, line in enumerate(lines) if line.startswith("ms is"))]
    assert max(map(len, tables)) <= 80


def test_text_of_ties_alone() -> None:
    """Where every text parts at a tie that is all there is to say."""
    found = speculated()
    assert found.speculation is not None
    tied = replace(found.speculation, texts=[replace(TEXT, differences=TEXT.differences[:1])])
    text = render_text(profile_document(replace(found, speculation=tied), {}, Remarks()))

    assert "1 of 8 texts part from plain decoding, at ties of rounding" in text
    assert "no fault of speculation" in text


def test_records_have_a_row_a_round_and_acceptance() -> None:
    """CSV: rounds once an acceptance, texts behind them."""
    records = list(profile_document(speculated(), {}, Remarks()).records)

    assert [record["table"] for record in records] == ["rounds"] * 10 + ["texts"]
    assert [record["speedup_acceptance"] for record in records[:2]] == [0.3, 0.8]
    assert records[-1]["accepted_4"] == 0.28
    assert records[-1]["differences"] == 2
