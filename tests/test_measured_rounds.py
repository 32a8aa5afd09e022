"""Measured rounds beside the textbook and the roofline: by hand, from files of people's own naming, and as published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.measured_rounds import CONTEXT, Measured, MeasuredRow, measured_row, summaries
from roofcast.calculators.rounds_file import read_rounds
from tests.checkpoints import LLAMA_3_1_8B, catalogued, folder_of
from tests.running import answer, refused, result, roofcast

if TYPE_CHECKING:
    from roofcast.modelspec.model import Model

# published: Spec-Bench, Leaderboard.md (greedy, batch 1, FP16, transformers): model, GPU, method, tokens a round, speed-up
SPEC_BENCH = (
    ("vicuna-7b", "RTX 3090", "EAGLE2", 4.36, 2.25), ("vicuna-7b", "RTX 3090", "EAGLE", 3.57, 2.16),
    ("vicuna-7b", "RTX 3090", "SpS", 2.29, 1.83), ("vicuna-7b", "RTX 3090", "PLD", 1.74, 1.55),
    ("vicuna-7b", "RTX 3090", "Medusa", 2.32, 1.44), ("vicuna-7b", "A100 80GB", "EAGLE", 3.61, 2.29),
    ("vicuna-7b", "A100 80GB", "Medusa", 2.32, 1.78), ("vicuna-7b", "A100 80GB", "PLD", 1.73, 1.59),
    ("vicuna-7b", "A100 80GB", "SpS", 2.28, 1.49), ("vicuna-13b", "A100 80GB", "EAGLE", 3.64, 2.34),
    ("vicuna-13b", "A100 80GB", "SpS", 2.18, 1.49), ("vicuna-33b", "A100 80GB", "EAGLE", 3.39, 2.47),
    ("vicuna-33b", "A100 80GB", "Medusa", 2.33, 1.79), ("vicuna-33b", "A100 80GB", "SpS", 2.01, 1.61),
)  # fmt: skip
ROW: dict[str, Any] = {
    "id": "a", "model": "llama-3.1-8b", "gpu": "H100 SXM", "weight_quant": "BF16", "gamma": 2, "accepted_per_step": 1.89,
    "speedup": 1.364, "method": "EAGLE",
}  # fmt: skip


def find(name: str) -> Model:
    """A model of the catalogue."""
    return catalogued(name)


def published() -> list[MeasuredRow]:
    """Spec-Bench's rows, held against both."""
    return [
        measured_row(
            Measured(
                "s", model, gpu, weights="fp16", method=method, draft="vicuna-68m", tokens=tokens, speedup=speedup
            ),
            find,
        )
        for model, gpu, method, tokens, speedup in SPEC_BENCH
    ]


def written(folder: Path, rows: Any, name: str = "rows.json") -> Path:
    """A file of measurements."""
    path = folder / name
    path.write_text(rows if isinstance(rows, str) else json.dumps(rows), encoding="utf-8")
    return path


def test_a_measured_round_by_hand() -> None:
    """vLLM, EAGLE, k = 2: 1.89 tokens at 1.364 x are 1.386 decode steps; two draft steps of 0.104 make 1.207 by size."""
    row = measured_row(
        Measured(
            "a", "llama-3.1-8b", "H100 SXM", weights="bf16", method="EAGLE", drafted=2, tokens=1.89, speedup=1.364
        ),
        find,
    )
    head = (
        2 * 4096**2 + 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 4096 + 128256 * 4096
    )  # EAGLE's, and the target's
    ratio = (head + 4096) / (32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 128256 * 4096 + 66 * 4096)

    assert row.round_cost == pytest.approx(1.89 / 1.364)
    assert row.cost_ratio == pytest.approx(ratio, rel=1e-5)
    assert row.textbook_round_cost == pytest.approx(1 + 2 * ratio)
    assert row.textbook_optimism == pytest.approx(1.89 / 1.364 / (1 + 2 * ratio) - 1)
    assert row.positions == 3
    assert row.verify_ratio == pytest.approx(1.0, abs=1e-3)
    assert row.roofline_optimism == pytest.approx(row.textbook_optimism, abs=0.005)
    assert row.unexplained == pytest.approx(1.89 / 1.364 - 1 - (row.draft_cost or 0), abs=1e-3)
    assert row.reason is None


def test_the_textbook_is_ten_to_fifty_percent_optimistic() -> None:
    """Of every published row, and in the median by a quarter: no measured speed-up reaches what either formula promises."""
    rows = published()
    known = [row.textbook_optimism for row in rows if row.textbook_optimism is not None]
    whole = next(one for one in summaries(rows) if one.method == "all")

    assert len(known) == len(SPEC_BENCH)
    assert min(known) > 0.08
    assert max(known) < 0.50
    assert 0.2 < whole.textbook_optimism < 0.3
    assert all((row.roofline_optimism or 0) > 0 for row in rows)


def test_summaries_are_medians_by_method() -> None:
    """Four EAGLE rows cost 1.37 to 1.65 decode steps a round."""
    eagle = next(one for one in summaries(published()) if one.method == "EAGLE")

    assert eagle.rows == 4
    assert eagle.round_cost == pytest.approx((3.61 / 2.29 + 3.64 / 2.34) / 2)


def test_what_a_harness_fixes_is_said() -> None:
    """EAGLE-2 in Spec-Bench verifies 60 positions of a tree; the row says where that is from."""
    row = published()[0]

    assert (row.drafted, row.positions) == (6, 60)
    assert "Spec-Bench" in (row.shape_from or "")


def test_a_length_that_is_measured_counts() -> None:
    """Its own k goes before the harness's."""
    row = measured_row(
        Measured("a", "vicuna-7b", "A100 80GB", method="EAGLE", drafted=3, tokens=2.0, speedup=1.5), find
    )

    assert (row.drafted, row.positions, row.shape_from) == (3, 4, None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"method": "Hydra"}, "what Hydra runs is not known"),
        ({"method": "mtp"}, "no multi-token-prediction"),
        ({"method": "mtp", "drafted": None}, "how many tokens"),
        ({"method": "SpS"}, "which model drafted"),
        ({"gpu": "abacus"}, "no accelerator 'abacus'"),
        ({"tokens": None}, "no tokens a round"),
        ({"speedup": None}, "no speed-up"),
        ({"weights": "fp7"}, "no format 'fp7'"),
        ({"model": "llama-3.1-405b"}, "the GPU offers"),
    ],
)
def test_what_cannot_be_held_against_says_why(changes: dict[str, Any], words: str) -> None:
    """Nothing is guessed: a part is null, with its reason, and the rest of the row stands."""
    whole: dict[str, Any] = {
        "source": "a", "model": "llama-3.1-8b", "gpu": "H100 SXM", "method": "EAGLE", "drafted": 2, "tokens": 1.89,
        "speedup": 1.364,
    }  # fmt: skip
    row = measured_row(Measured(**{**whole, **changes}), find)

    assert words in (row.reason or "")
    assert row.roofline_optimism is None


def test_names_that_people_give(tmp_path: Path) -> None:
    """gamma, accepted_per_step, weight_quant, n_gpus: each is found under its usual names; rows of other things are counted."""
    rows, others = read_rounds(written(tmp_path, [ROW, {"model": "m", "gpu": "g", "value": 3}]))

    assert others == 1
    assert rows == [
        Measured("a", "llama-3.1-8b", "H100 SXM", weights="BF16", method="EAGLE", drafted=2, tokens=1.89, speedup=1.364)
    ]


def test_csv_says_the_same(tmp_path: Path) -> None:
    """A header and a row, empty cells left out."""
    text = "source,model,gpu,method,k,tokens_per_round,speedup,tree\na,llama-3.1-8b,H100 SXM,EAGLE,2,1.89,1.364,\n"
    rows, _ = read_rounds(written(tmp_path, text, "rows.csv"))

    assert rows == [Measured("a", "llama-3.1-8b", "H100 SXM", method="EAGLE", drafted=2, tokens=1.89, speedup=1.364)]


def test_notes_tell_what_no_field_does(tmp_path: Path) -> None:
    """A method, a draft and a length that stand in words alone."""
    base = {"model": "m", "gpu": "g", "regime": "speculative"}
    rows, _ = read_rounds(
        written(
            tmp_path,
            [
                {**base, "notes": "EAGLE-1"},
                {**base, "notes": "greedy; SpS draft = Vicuna-68M"},
                {**base, "notes": "MTP3, real"},
            ],
        )
    )

    assert [(row.method, row.draft, row.drafted) for row in rows] == [
        ("EAGLE-1", "", None),
        ("draft", "Vicuna-68M", None),
        ("MTP3", "", 3),
    ]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", "JSON list of objects, or CSV"),
        ("[1, 2]", "JSON list of objects, or CSV"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ([{"model": "m", "gpu": "g"}], "none of its 1 rows"),
        ([{**ROW, "accepted_per_step": 0.5}], "row 1: 0.5 tokens a round"),
        ([{**ROW, "accepted_per_step": 4}], "4 tokens a round of 2 drafted; with the model's own it is 1 to 3"),
        ([{**ROW, "speedup": "fast"}], "row 1: speedup is 'fast'"),
        ([{**ROW, "speedup": -1}], "0 or more"),
        ([{**ROW, "speedup": True}], "it must be a number"),
        ([{**ROW, "gamma": 1.5}], "whole number"),
        ([{**ROW, "gamma": 0}], "1 to 256"),
        ([{**ROW, "model": 7}], "model is '7'; it must be a name"),
        ([{**ROW, "gpu": None}], "names no gpu"),
        ([ROW, {**ROW, "tree": 1}], "row 2: a tree of 1 positions is less than its depth"),
        ([{**ROW, "gamma": None, "tree": 60}], "a tree of 60 positions needs k"),
        ([{**ROW, "speedup": 5e-324}], "it must be 0.001 to 1,000"),
        ([{**ROW, "speedup": 0}], "it must be 0.001 to 1,000"),
        ([{**ROW, "gamma": None, "accepted_per_step": 1e308}], "1 to 257"),
        ("model,gpu,k,speedup\nllama-3.1-8b,h100-sxm,4,2,5\n", "row 1 has more cells than the header"),
        ("model,gpu,k\nllama-3.1-8b,h100-sxm,4\0\n", "it is no text"),
        ([ROW] * 2001, "at most 2,000"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, rows: Any, words: str) -> None:
    """The row is named, and what is wrong with it."""
    path = written(tmp_path, rows)

    with pytest.raises(UsageError) as error:
        read_rounds(path)
    assert words in str(error.value)
    refused(roofcast("speculate", "--measured", str(path)), 2, words)


@pytest.mark.parametrize("name", ["absent.json", ""])
def test_files_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    """No such file, a folder: one line."""
    refused(roofcast("speculate", "--measured", str(tmp_path / name)), 2, "it cannot be read")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    """A file of bytes is no table."""
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00\x81")

    refused(roofcast("speculate", "--measured", str(tmp_path / "x.json")), 2, "it is no text")


def test_the_command_shows_both(tmp_path: Path) -> None:
    """`--measured` answers with rows and medians, and counts what it left out."""
    path = written(tmp_path, [ROW, {"model": "m"}])
    shown = result("speculate", "--measured", str(path), "--offline")
    text = roofcast("speculate", "--measured", str(path), "--offline").out

    assert shown["measured"][0]["round_cost"] == pytest.approx(1.89 / 1.364)
    assert [one["method"] for one in shown["summary"]] == ["EAGLE", "all"]
    assert "1 measurement; rows of something else: 1" in text
    assert "the textbook is 15% optimistic" in text


def test_lengths_are_assumed_where_none_are_stated() -> None:
    """A context of 1,024 tokens where a measurement says none; at batch 1 it hardly counts."""
    one, other = (
        measured_row(
            Measured("a", "vicuna-7b", "A100 80GB", method="EAGLE", tokens=3.6, speedup=2.3, context=context), find
        )
        for context in (None, CONTEXT)
    )

    assert one == other


SHARED = Path(__file__).resolve().parents[2] / "shared" / "truth" / "speed.json"


@pytest.mark.skipif(not SHARED.is_file(), reason="1 file of measurements is not here")
def test_a_file_of_many_measurements() -> None:
    """Every row of speculation is answered or says why not, and none is quicker than either formula."""
    shown = result("speculate", "--measured", str(SHARED), "--offline")
    rows = shown["measured"]
    known = [row for row in rows if row["textbook_optimism"] is not None]

    assert len(known) >= 20
    assert all(row["textbook_optimism"] > 0 and row["roofline_optimism"] > 0 for row in known)
    assert all(row["reason"] for row in rows if row["textbook_optimism"] is None)


def test_endless_files_are_not_read_to_their_end() -> None:
    """A device that never ends is refused."""
    refused(roofcast("speculate", "--measured", "/dev/zero"), 2, "more than 16 MB")
    refused(roofcast("speculate", "--log", "/dev/zero"), 2, "no text")


def test_models_that_rows_name_are_not_overwritten(tmp_path: Path) -> None:
    """--out must not replace a config that a row names as its model or draft."""
    folder = Path(folder_of(tmp_path, LLAMA_3_1_8B))
    path = written(tmp_path, [{**ROW, "model": str(folder)}])
    config = folder / "config.json"
    before = config.read_text()

    refused(roofcast("speculate", "--measured", str(path), "--offline", "--out", str(config)), 2, "--out")
    assert config.read_text() == before


def test_names_of_any_length(tmp_path: Path) -> None:
    """A name too long for a file is no model; the other rows are answered."""
    path = written(tmp_path, [{**ROW, "model": "m" * 300}, ROW])
    rows = result("speculate", "--measured", str(path), "--offline")["measured"]

    assert rows[0]["reason"]
    assert rows[1]["reason"] is None


def test_what_rows_leave_out_is_listed(tmp_path: Path) -> None:
    """Draft lengths by method and contexts are assumptions, which --strict refuses."""
    path = written(tmp_path, [{**ROW, "gamma": None}, {**ROW, "input_len": 512}])
    said = answer("speculate", "--measured", str(path), "--offline")["assumptions"]

    assert any(line.startswith("EAGLE: k and positions") and "mc_sim_7b_63" in line for line in said)
    assert "1 rows state no context: 1,024 tokens are taken" in said
    refused(roofcast("speculate", "--measured", str(path), "--offline", "--strict"), 3, "mc_sim_7b_63")
