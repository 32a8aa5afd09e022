"""`profile speculate` of two local checkpoints: rounds of real text, and what keeps them from being written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from jsonschema import Draft202012Validator  # noqa: E402 - after the skip

from roofcast.reports.schema import json_schema  # noqa: E402
from tests.local_checkpoints import WORDS, write_checkpoint, write_tokenizer  # noqa: E402
from tests.running import answer, refused, roofcast  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

ASKED = ("--device", "cpu", "--k", "2,3", "--batch", "1", "--context", "16")
pytestmark = pytest.mark.usefixtures("one_thread", "few_rounds")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    """Give folders of two tiny Llamas, with the same tokenizer."""
    folders = [write_tokenizer(write_checkpoint(tmp_path / name, seed=seed)) for seed, name in enumerate("ab")]
    return str(folders[0]), str(folders[1])


@pytest.fixture
def text(tmp_path: Path) -> str:
    """Give a file of two prompts."""
    path = tmp_path / "prompts.txt"
    path.write_text("w3 w4 w5 w6\n\nw7 w8 w9\n")
    return str(path)


def test_prompts_of_a_file_are_continued(pair: tuple[str, str], text: str) -> None:
    """A row a length, in the numbers that rounds give, and a line that says whether the text is plain decoding's."""
    found = answer("profile", "speculate", *pair, *ASKED, "--text", text, "--tokens", "8")
    rows = found["result"]["speculation"]["texts"]

    Draft202012Validator(json_schema("profile")).validate(found)
    assert [(row["drafted"], row["prompts"], row["new_tokens"]) for row in rows] == [(2, 2, 16), (3, 2, 16)]
    for row in rows:
        assert row["speedup"] == pytest.approx(row["plain_seconds"] / row["speculative_seconds"])
        assert 1 <= row["tokens_per_round"] <= row["drafted"] + 1
        assert row["same_output"] is (not row["differences"])
        assert all(one["tie"] for one in row["differences"])
    assert found["inputs"]["tokens"] == 8


def test_a_draft_that_is_the_target_is_always_right(pair: tuple[str, str]) -> None:
    """Random tokens where no file is given; k + 1 tokens a round."""
    outcome = roofcast("profile", "speculate", pair[0], pair[0], *ASKED, "--tokens", "12")

    assert outcome.code == 0, outcome.err
    assert "real text, k = 2: 3.00 tokens a round" in outcome.out
    assert "real text, k = 3: 4.00 tokens a round" in outcome.out


def test_tokenizers_are_looked_at_before_anything_is_measured(
    pair: tuple[str, str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tokens, or none: one line, and no weight is drawn."""
    monkeypatch.setattr("roofcast.profiler.decoder.Decoder", lambda *_: pytest.fail("weights were drawn"))
    other = str(write_tokenizer(write_checkpoint(tmp_path / "other"), WORDS - 1))
    mute = str(write_checkpoint(tmp_path / "mute"))
    asked = ("profile", "speculate")

    refused(roofcast(*asked, pair[0], other, *ASKED, "--text", text), 3, "its tokens are not those of", "tokenizer")
    refused(roofcast(*asked, mute, pair[1], *ASKED, "--text", text), 3, "mute", "no tokenizer", "random tokens")


def test_without_transformers(pair: tuple[str, str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds are measured, and a warning names the extra; asked for, text is one line."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = answer("profile", "speculate", *pair, *ASKED)

    assert found["result"]["speculation"]["texts"] == []
    assert any("no real text" in line and "roofcast[checkpoint]" in line for line in found["warnings"])
    for option in (("--text", text), ("--tokens", "4")):
        refused(roofcast("profile", "speculate", *pair, *ASKED, *option), 3, " ".join(option), "roofcast[checkpoint]")
