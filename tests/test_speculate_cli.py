"""`roofcast speculate`: what it answers in each of its ways, and one line for everything it cannot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.checkpoints import LLAMA_3_1_8B, folder_of
from tests.running import answer, refused, result, roofcast

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ("speculate", "llama-3.1-8b", "--gpu", "h100-sxm", "--offline")


def test_four_tokens_at_three_acceptances() -> None:
    """2.3, 3.4 and 4.1 tokens, without a model and without a cost."""
    rows = result("speculate", "--acceptance", "0.6,0.8,0.9", "--k", "4")["formulas"]

    assert [round(row["tokens_per_round"], 1) for row in rows] == [2.3, 3.4, 4.1]
    assert {row["textbook_speedup"] for row in rows} == {None}


def test_defaults_are_three_acceptances_and_eight_lengths() -> None:
    """Nothing need be given."""
    asked = answer("speculate")

    assert asked["inputs"]["acceptance"] == [0.6, 0.8, 0.9]
    assert asked["inputs"]["drafted"] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len(asked["result"]["formulas"]) == 24


def test_a_cost_gives_the_textbooks_speed_up() -> None:
    """2.3056 tokens for 1.2 decode steps; the best k is marked."""
    rows = result("speculate", "--acceptance", "0.6", "--draft-cost", "0.05")["formulas"]

    assert rows[3]["textbook_speedup"] == pytest.approx(2.3056 / 1.2)
    assert [row["drafted"] for row in rows if row["best"]] == [4]


def test_engines_name_the_length_otherwise() -> None:
    """--num-speculative-tokens is --k."""
    assert result("speculate", "--num-speculative-tokens", "3") == result("speculate", "--k", "3")


def test_other_spellings() -> None:
    """Percentages, ranges and the names that engines use say the same."""
    plain = result("speculate", "--acceptance", "0.8", "--draft-cost", "0.05", "--k", "1,2,3")

    assert result("speculate", "--acceptance-rate", "80%", "--draft-cost", "5%", "-k", "1-3") == plain
    assert result("speculate", "--mean-acceptance-length", "2", "-k", "3") == result(
        "speculate", "--tokens-per-round", "2", "--k", "3"
    )


@pytest.mark.parametrize(
    ("name", "method"),
    [("EAGLE-3", "eagle3"), ("eagle2", "eagle"), ("Medusa", "medusa"), ("PLD", "ngram"), ("n-gram", "ngram")],
)
def test_methods_by_their_other_names(name: str, method: str) -> None:
    """As papers, engines and people write them."""
    assert result(*MODEL, "--method", name, "--k", "2", "--batch", "1")["draft"]["method"] == method


def test_measured_tokens_give_the_acceptance() -> None:
    """1.89 tokens of two drafted ones: a = 0.568, and every other length with it."""
    shown = result("speculate", "--tokens-per-round", "1.89", "--k", "2")

    assert shown["measured_acceptance"] == pytest.approx((-1 + (1 + 4 * 0.89) ** 0.5) / 2)
    assert [row["drafted"] for row in shown["formulas"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert shown["formulas"][1]["tokens_per_round"] == pytest.approx(1.89)
    assert "acceptance of 0.568" in roofcast("speculate", "--tokens-per-round", "1.89", "--k", "2").out


def test_all_accepted_is_one() -> None:
    """Five tokens of four drafted ones: every one was kept."""
    shown = result("speculate", "--tokens-per-round", "5", "--k", "4")

    assert shown["measured_acceptance"] == 1
    assert [row["tokens_per_round"] for row in shown["formulas"]] == [2, 3, 4, 5]  # longer ones are not known


def test_by_position() -> None:
    """Shares as vLLM logs them."""
    shown = result("speculate", "--acceptance-by-position", "0.57,0.34,0.21", "--k", "3")

    assert shown["formulas"][0]["tokens_per_round"] == pytest.approx(2.12)
    assert shown["formulas"][0]["acceptance"] is None


def test_a_model_takes_an_eagle3_head_and_says_so() -> None:
    """No draft is named: an assumption, which --strict refuses."""
    asked = answer(*MODEL)

    assert asked["result"]["draft"]["method"] == "eagle3"
    assert any("no draft is named" in line for line in asked["assumptions"])
    refused(roofcast(*MODEL, "--strict"), 3, "no draft is named")


def test_a_draft_that_is_named_assumes_nothing() -> None:
    """A model of its own, or n-grams: --strict has nothing to refuse."""
    for named in (("--draft", "llama-3.2-1b"), ("--method", "ngram"), ("--draft-cost", "0.1"), ("--method", "eagle")):
        assert roofcast(*MODEL, *named, "--strict", "--k", "2", "--batch", "1").code == 0


def test_a_model_with_prediction_layers_uses_them() -> None:
    """DeepSeek-V3's own, without a word."""
    asked = answer(
        "speculate", "deepseek-v3", "--gpu", "h200-sxm", "--tp", "8", "--k", "1", "--batch", "1", "--offline"
    )

    assert asked["result"]["draft"]["method"] == "mtp"
    assert asked["assumptions"] == []


def test_best_lengths_are_looked_for_beyond_those_shown() -> None:
    """--k 1 shows one length; the best of 16 is named all the same."""
    best = result(*MODEL, "--k", "1", "--acceptance", "0.8", "--batch", "1")["best"][0]

    assert best["drafted"] == 8
    assert best["speedup"] > 3


def test_the_textbook_does_not_depend_on_the_lengths_asked() -> None:
    """c is one figure, whichever lengths stand in the table."""
    one, many = (result(*MODEL, "--k", lengths, "--batch", "1")["draft"]["cost_ratio"] for lengths in ("4", "1,2,4"))

    assert one == many


def test_text_marks_the_best() -> None:
    """A star a batch and acceptance, and one in the sentence that tells what x, book and the star are."""
    text = roofcast(*MODEL, "--k", "1,2,4", "--batch", "1", "--acceptance", "0.6").out

    assert text.count("*") == 1 + 1
    assert "an EAGLE-3 head of 425M parameters" in text
    assert "book is the textbook's" in text


def test_what_does_not_fit_is_an_answer() -> None:
    """Exit 0, no numbers, and the reason."""
    outcome = roofcast(*MODEL, "--batch", "4096", "--k", "2")

    assert outcome.code == 0
    assert "does not fit" in outcome.out
    assert "batch 4,096 does not fit: the GPU offers" in outcome.out


def test_a_heads_own_config(tmp_path: Path) -> None:
    """draft_vocab_size makes a config an EAGLE-3 head's, whose widths then count."""
    head = LLAMA_3_1_8B | {"num_hidden_layers": 1, "intermediate_size": 8192, "draft_vocab_size": 16000}
    path = folder_of(tmp_path, head)
    draft = result(*MODEL, "--draft", str(path), "--k", "1", "--batch", "1")["draft"]
    counted = 3 * 4096**2 + 3 * 4096**2 + 4 * 4096 * 1024 + 3 * 4096 * 8192 + 16000 * 4096 + 4 * 4096

    assert (draft["method"], draft["vocabulary"], draft["parameters"]) == ("eagle3", 16000, counted)


def test_a_config_as_an_eagle_head(tmp_path: Path) -> None:
    """The same config without that key is a model of one layer, or an EAGLE head where that is asked."""
    path = folder_of(tmp_path, LLAMA_3_1_8B | {"num_hidden_layers": 1})
    as_model, as_head = (
        result(*MODEL, "--draft", str(path), *method, "--k", "1", "--batch", "1")["draft"]["method"]
        for method in ((), ("--method", "eagle"))
    )

    assert (as_model, as_head) == ("draft_model", "eagle")


@pytest.mark.parametrize("rows", ["many", 0, True, 1.5, 128257, 10**400])
def test_a_heads_vocabulary_must_be_a_number(tmp_path: Path, rows: Any) -> None:
    """draft_vocab_size is a number of tokens."""
    path = folder_of(tmp_path, LLAMA_3_1_8B | {"num_hidden_layers": 1, "draft_vocab_size": rows})

    refused(roofcast(*MODEL, "--draft", str(path)), 2, "draft_vocab_size", "a number of tokens")


def test_a_head_with_experts_is_no_eagle_head(tmp_path: Path) -> None:
    """Its experts would be in no count: refused, naming what a head is."""
    moe = LLAMA_3_1_8B | {
        "model_type": "mixtral", "num_hidden_layers": 1, "num_local_experts": 8, "num_experts_per_tok": 2,
    }  # fmt: skip
    path = folder_of(tmp_path, moe)

    refused(roofcast(*MODEL, "--draft", str(path), "--method", "eagle"), 2, "dense feed-forward")


def test_a_whole_model_as_a_head_is_cut_and_said_to_be() -> None:
    """Some published heads state their model's layers; the first is taken, and that is assumed."""
    asked = answer(*MODEL, "--draft", "llama-3.1-8b", "--method", "eagle", "--k", "1", "--batch", "1")

    assert any("32 layers" in line for line in asked["assumptions"])


def test_heads_that_do_not_divide_stay_on_one_gpu() -> None:
    """Qwen2.5 0.5B's 14 heads over 4 GPUs: each group's first has it whole, which is assumed."""
    asked = answer(
        "speculate", "qwen2.5-72b", "--gpu", "h100-sxm", "--tp", "4", "--draft", "qwen2.5-0.5b", "--k", "1", "--batch", "1",
        "--offline",
    )  # fmt: skip

    assert any("cannot be split over 4 GPUs" in line for line in asked["assumptions"])


def test_the_rule_is_checked() -> None:
    """Seeded, repeatable, and with exit 0 where the rule holds."""
    shown = result("speculate", "--check", "--draws", "20000", "--seed", "5", "--k", "3")["rule"]

    assert shown["reproduced"]
    assert (shown["draws"], shown["seed"], shown["drafted"]) == (20000, 5, 3)
    assert sum(shown["drawn"]) == pytest.approx(1)


def test_a_failed_check_is_a_failed_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1 with the statistic, and the answer printed all the same."""
    monkeypatch.setattr("roofcast.calculators.rejection.residual", lambda target, _: tuple(target))
    outcome = roofcast("speculate", "--check", "--draws", "50000")

    assert outcome.code == 1
    assert "chi-square" in outcome.complaint
    assert "DOES NOT reproduce" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--acceptance", "1"), 2, ("acceptance 1", "[0, 1)")),
        (("--acceptance", "-0.2"), 2, ("acceptance -0.2",)),
        (("--acceptance", "80x"), 2, ("'80x' is no number",)),
        (("--acceptance", "8_0%"), 2, ("is no number",)),
        (("--acceptance", ""), 2, ("is no number",)),
        (("--acceptance", ",".join(["0.5"] * 21)), 2, ("at most 20",)),
        (("--k", "0"), 2, ("k 0", "1 to 256")),
        (("--k", "-4"), 2, ("'-4' is no number of tokens",)),
        (("--k", "2.5"), 2, ("'2.5' is no number of tokens", "1-8")),
        (("--k", "four"), 2, ("'four' is no number",)),
        (("--k", "8-1"), 2, ("8-1", "above the last")),
        (("--k", "1-2-3"), 2, ("no number",)),
        (("--k", "1-999"), 2, ("k 999",)),
        (("--k", "1e400"), 2, ("no number",)),
        (("--k", ",".join(map(str, range(1, 35)))), 2, ("at most 32",)),
        (("--draft-cost", "-1"), 2, ("draft cost -1",)),
        (("--draft-cost", "nan"), 2, ("'nan' is no number",)),
        (("--draft-cost", "cheap"), 2, ("--draft-cost cheap",)),
        (("--tokens-per-round", "0.5", "--k", "4"), 2, ("yield 1 to 5",)),
        (("--tokens-per-round", "6", "--k", "4"), 2, ("yield 1 to 5",)),
        (("--tokens-per-round", "nan", "--k", "4"), 2, ("yield 1 to 5",)),
        (("--tokens-per-round", "2"), 2, ("needs --k",)),
        (("--tokens-per-round", "2", "--k", "2,4"), 2, ("needs --k, the one number",)),
        (("--tokens-per-round", "2", "--k", "4", "--acceptance", "0.5"), 2, ("say the same thing",)),
        (("--acceptance-by-position", "0.5,0.6"), 2, ("cannot grow",)),
        (("--acceptance-by-position", "1.5"), 2, ("0 to 1",)),
        (("--gpu", "h100"), 2, ("--gpu", "MODEL")),
        (("--draft", "llama-3.2-1b"), 2, ("--draft", "MODEL")),
        (("--batch", "4"), 2, ("--batch", "MODEL")),
        (("--seed", "4"), 2, ("--seed", "--check")),
        (("--target-probabilities", "0.5,0.5"), 2, ("--check",)),
        (("--check", "--acceptance", "0.5"), 2, ("--acceptance has no part in --check",)),
        (("--check", "llama-3.1-8b"), 2, ("MODEL has no part in --check",)),
        (("--check", "--k", "2,3"), 2, ("one length",)),
        (("--check", "--draws", "3"), 2, ("draws",)),
        (("--check", "--draws", "-3"), 2, ("draws",)),
        (("--check", "--target-probabilities", "0.5,0.6,-0.1", "--draft-probabilities", "0.3,0.3,0.4"), 2, ("-0.1",)),
        (
            ("--check", "--target-probabilities", "0.5,0.5", "--draft-probabilities", "0.3,0.3,0.4"),
            2,
            ("one vocabulary",),
        ),
        (("--check", "--target-probabilities", "0.5,0.4", "--draft-probabilities", "0.5,0.5"), 2, ("sum to 0.9",)),
        (("--check", "--target-probabilities", "0.5,0.5"), 2, ("belong together",)),
        (("--measured", "x.json", "--k", "4"), 2, ("--k has no part in --measured",)),
        (("--measured", "x.json", "llama-3.1-8b"), 2, ("MODEL has no part in --measured",)),
        (("--explain", "nonsense"), 2, ("nothing to explain",)),
        (("--format", "yaml"), 2, ("--format yaml",)),
    ],
)
def test_questions_that_cannot_be_asked(arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    """One line that names what is wrong and what would be right."""
    refused(roofcast("speculate", *arguments), code, *words)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--draft", "qwen2.5-0.5b"), 2, ("151,936", "128,256", "same family")),
        (("--draft", "no-such-model"), 3, ("no-such-model",)),
        (("--method", "hydra"), 2, ("draft_model, mtp, eagle, eagle3, medusa, ngram",)),
        (("--method", "mtp"), 3, ("no multi-token-prediction",)),
        (("--method", "draft_model"), 2, ("needs --draft",)),
        (("--method", "medusa", "--draft", "llama-3.2-1b"), 2, ("leave --draft out",)),
        (("--method", "eagle", "--draft", "llama-3.2-1b"), 2, ("trained for it",)),
        (("--draft-cost", "0.1", "--draft", "llama-3.2-1b"), 2, ("leave --draft out",)),
        (("--draft-tp", "2"), 2, ("--draft-tp", "--draft")),
        (("--draft-tp", "0", "--draft", "llama-3.2-1b"), 2, ("--draft-tp 0",)),
        (("--draft-weights", "q4_k_m"), 2, ("--draft-weights", "one format")),
        (("--draft-weights", "fp7"), 2, ("fp7",)),
        (("--tree", "2", "--k", "4"), 2, ("depth 4",)),
        (("--topk", "4"), 2, ("give --tree",)),
        (("--tree", "60", "--topk", "61", "--k", "5"), 2, ("1 to 60",)),
        (("--tree", "60", "--topk", "1", "--k", "5"), 2, ("5 at most",)),
        (("--method", "ngram", "--draft-weights", "fp8"), 2, ("no weights",)),
        (("--method", "eagle", "--draft", "qwen3-30b-a3b"), 2, ("trained for it",)),
        (("--draft-tp", "4", "--draft", "llama-3.2-1b"), 2, ("--draft-tp 4", "1 GPUs")),
        (("--batch", ",".join(map(str, range(1, 201))), "--k", "1-16"), 2, ("rows", "2,000")),
        (("--context", "4k,8k"), 2, ("one number",)),
        (("--context", "0"), 2, ("--context",)),
        (("--batch", "0"), 2, ("--batch",)),
        (("--gpus", "3", "--tp", "2"), 2, ("--gpus 3",)),
    ],
)
def test_drafts_that_cannot_be(arguments: tuple[str, ...], code: int, words: tuple[str, ...]) -> None:
    """Likewise of a model."""
    refused(roofcast(*MODEL, *arguments), code, *words)


def test_a_model_needs_a_gpu() -> None:
    """No accelerator here and none named."""
    refused(roofcast("speculate", "llama-3.1-8b", "--offline"), 2, "--gpu is missing")


def test_out_of_a_draft_is_refused(tmp_path: Path) -> None:
    """--out must not replace what is read as the draft."""
    path = f"{folder_of(tmp_path, LLAMA_3_1_8B)}/config.json"

    refused(roofcast(*MODEL, "--draft", path, "--out", path, "--format", "json"), 2, "--out")


def test_files_by_their_ending(tmp_path: Path) -> None:
    """CSV has a row a round, with model and GPU."""
    path = tmp_path / "rounds.csv"

    assert roofcast(*MODEL, "--k", "1,2", "--batch", "1", "--acceptance", "0.5,0.6", "--out", str(path)).code == 0
    lines = path.read_text().splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("model,gpu,batch,acceptance,drafted")


def test_inputs_say_how_it_was_asked() -> None:
    """A second run can be made from them."""
    asked = json.loads(roofcast(*MODEL, "--draft-cost", "0.1", "--k", "3", "--batch", "2", "--format", "json").out)[
        "inputs"
    ]

    assert (asked["draft_cost"], asked["drafted"], asked["batches"], asked["context"]) == (0.1, [3], [2], 4096)
