"""Greedy speculation with real checkpoints: laws that hold of any draft, a draft made by hand, and what is refused."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from roofcast.calculators.profile_texts import text_row  # noqa: E402 - after the skip
from roofcast.calculators.profiled_texts import Difference, TextRound, Texts  # noqa: E402
from roofcast.calculators.speculative import expected_tokens  # noqa: E402
from roofcast.profiler import checkpoint_rounds as rounds  # noqa: E402
from roofcast.profiler.checkpoint_load import load_checkpoint, silenced  # noqa: E402
from roofcast.profiler.checkpoint_rounds import Text, plainly, ready, speculatively, text_rounds  # noqa: E402
from roofcast.profiler.errors import UnavailableError  # noqa: E402
from roofcast.profiler.runtime import open_runtime  # noqa: E402
from roofcast.profiler.timing import Budget  # noqa: E402
from tests.local_checkpoints import WORDS, change_config, write_checkpoint, write_tokenizer  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

NEW = 22
FEW = Texts(new=NEW, random=2, length=20)
CROPPED = ("llama", "mixtral", "gemma3", "mistral", "deepseek", "gpt2")  # kinds whose caches take tokens back
CPU = open_runtime("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder of a tiny Llama, which no test changes."""
    return write_checkpoint(tmp_path_factory.mktemp("rounds") / "target")


def beside(target: Path, folder: Path, noise: float) -> Path:
    """Write the target with noise in its weights: a draft that often agrees."""
    with silenced(transformers):
        model = transformers.AutoModelForCausalLM.from_pretrained(target)
        torch.manual_seed(7)
        for weights in model.parameters():
            weights.data.add_(noise * weights.data.std() * torch.randn_like(weights))
        model.save_pretrained(folder)
    return folder


def written(folders: tuple[Path, Path], drafted: tuple[int, ...] = (3,), texts: Texts = FEW) -> tuple[TextRound, ...]:
    """Continue texts; all lengths must be done."""
    swept = text_rounds(CPU, folders, drafted, texts, Budget())
    assert (swept.left, swept.why) == ((), "")
    return swept.done


@pytest.mark.parametrize("kind", CROPPED)
def test_a_draft_that_is_the_target_is_always_right(kind: str, tmp_path: Path) -> None:
    """It yields k + 1 tokens every round, acceptance 1 at every position, and the same text."""
    folder = write_checkpoint(tmp_path / kind, kind)
    for one in written((folder, folder), (1, 4)):
        row = text_row(one)

        assert row.tokens_per_round == one.drafted + 1
        assert row.acceptance == pytest.approx(1.0)
        assert row.accepted_by_position == [1.0] * one.drafted
        assert row.same_output
        assert row.new_tokens == 2 * NEW
        assert row.rounds == 2 * -(-NEW // (one.drafted + 1))


@pytest.mark.parametrize("kind", CROPPED)
def test_any_draft_gives_the_text_of_plain_decoding(kind: str, tmp_path: Path) -> None:
    """In fp32, whatever the draft says: also over windows that the text is longer than."""
    folder = write_checkpoint(tmp_path / kind, kind)
    for noise in (0.02, 1.0):
        draft = beside(folder, tmp_path / f"{kind}{noise}", noise)
        for one in written((folder, draft), (1, 3)):
            assert one.differences == ()
            assert one.new_tokens == 2 * NEW
            shares = one.accepted_by_position
            assert list(shares) == sorted(shares, reverse=True)


def test_a_draft_that_often_agrees_is_between(target: Path, tmp_path: Path) -> None:
    """Some rounds accept all, some not; tokens a round are those of the acceptance that the row tells."""
    draft = beside(target, tmp_path / "near", 0.05)
    one = written((target, draft), (3,))[0]
    row = text_row(one)

    assert 0 < min(one.accepted_by_position) < 1
    assert row.acceptance is not None
    assert expected_tokens(row.acceptance, 3) == pytest.approx(row.tokens_per_round)
    assert row.tokens_per_round == pytest.approx(1 + sum(one.accepted_by_position))


@pytest.mark.parametrize("kind", ["llama", "gemma3", "mistral"])
def test_plain_decoding_is_what_transformers_generates(kind: str, tmp_path: Path) -> None:
    """Token by token, with its own cache, which evicts what windows have left behind."""
    loaded = load_checkpoint(CPU, write_checkpoint(tmp_path / kind, kind))
    ids = loaded.draw(1, 20, seed=3)
    with torch.inference_mode(), silenced(transformers):
        made = plainly(Text(loaded, loaded.vocabulary), ids[0], NEW)
        expected = loaded.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW, eos_token_id=None
        )

    assert made == expected[0, 20:].tolist()


@dataclass
class Scripted:
    """A draft that says the text that it is given, but for some places of it."""

    says: list[int]
    held: int = 0
    read: list[int] = field(default_factory=list)

    def feed(self, ids: Tensor, keep: int = 0) -> Tensor:
        """Reads tokens and says the one that stands after them."""
        self.read = [*self.read[: self.held], *ids.tolist()]
        self.held = len(self.read)
        logits = torch.zeros(1, WORDS)
        logits[0, self.says[self.held] if self.held < len(self.says) else 0] = 1.0
        assert keep == 1
        return logits

    def drop(self, tokens: int) -> None:
        """Forgets the last tokens."""
        self.held -= tokens


def test_a_draft_made_by_hand_is_accepted_as_far_as_it_agrees(target: Path) -> None:
    """New tokens 0 to 11, the draft wrong at 2 and 3, k = 3.

    Round 1 accepts 0 and 1, and the target says 2; round 2 begins at 3 and accepts nothing; round 3 accepts 4, 5, 6 and the
    target says 7; round 4 accepts 8, 9, 10 and the target says 11.
    """
    loaded = load_checkpoint(CPU, target)
    prompt = loaded.draw(1, 6, seed=1)[0]
    with torch.inference_mode():
        plain = plainly(Text(loaded, WORDS), prompt, 12)
        says = [*prompt.tolist(), *plain]
        for place in (2, 3):
            says[6 + place] = (says[6 + place] + 1) % WORDS
        draft = Scripted(says)
        made, accepted = speculatively(Text(loaded, WORDS), draft, prompt, 3, 12)

    assert accepted == [2, 0, 3, 3]
    assert made == plain
    assert draft.read[: draft.held] == [*prompt.tolist(), *plain][: draft.held]  # nothing that was rejected is left


def test_the_last_round_is_cut_and_counted_whole(target: Path) -> None:
    """5 tokens at k = 3 with the target as draft: two rounds of 4, of which 5 are kept."""
    one = written((target, target), (3,), Texts(new=5, random=1, length=4))[0]

    assert (one.new_tokens, one.accepted, one.tokens_per_round) == (5, (3, 3), 4.0)


def test_prompts_of_one_token_and_of_words(target: Path, tmp_path: Path) -> None:
    """A prompt may have one token; words come through the target's tokenizer, without which they are refused."""
    folder = write_tokenizer(write_checkpoint(tmp_path / "worded"))
    one = written((folder, folder), (2,), Texts(("w5 w6 w7", "w9"), new=6))[0]

    assert (one.prompts, one.new_tokens, one.differences) == (2, 12, ())
    with pytest.raises(UnavailableError, match="no tokenizer, which --text needs"):
        text_rounds(CPU, (target, target), (2,), Texts(("w5",), new=6), Budget())


def test_where_texts_part_the_gap_of_logits_is_told(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of a pass over several rows are made wrong for one token: the first place, its gap, and no tie."""
    loaded = load_checkpoint(CPU, target)
    real = Text.feed

    def wrong(self: Text, ids: Tensor, keep: int = 0) -> Tensor:
        logits = real(self, ids, keep).clone()
        if not keep and ids.shape[0] == 4:
            logits[0, 5] += 100.0
        return logits

    monkeypatch.setattr(Text, "feed", wrong)
    one = written((target, target), (3,), Texts(new=4, random=1, length=10, seed=2))[0]
    with torch.inference_mode():
        prompt = torch.randint(WORDS, (10,), generator=torch.Generator().manual_seed(2))
        logits = loaded.forward(prompt[None])[0][0, -1]

    (found,) = one.differences
    assert (found.prompt, found.position, found.tie) == (0, 0, False)
    assert found.gap == pytest.approx(float(logits.max() - logits[5]), rel=1e-4)
    assert found.scale == pytest.approx(float(logits.abs().max()), rel=1e-4)
    assert not text_row(one).same_output


def test_a_tie_is_within_the_rounding_of_the_format() -> None:
    """Of logits up to 16 a gap of 0.5 is 4 steps of bf16 at most, and 2**-17 of fp32."""
    assert Difference(0, 0, 0.5, 16.0, "bf16").tie
    assert not Difference(0, 0, 0.51, 16.0, "bf16").tie
    assert Difference(0, 0, 2.0**-17, 16.0, "fp32").tie
    assert not Difference(0, 0, 2.0**-16, 16.0, "fp32").tie


@pytest.mark.parametrize("kind", ["mamba", "qwen3_next"])
def test_a_state_that_does_not_forget_is_refused(kind: str, tmp_path: Path) -> None:
    """A recurrent state keeps what was rejected: one line."""
    folder = write_checkpoint(tmp_path / kind, kind)

    with pytest.raises(UnavailableError, match="does not take back rejected tokens"):
        text_rounds(CPU, (folder, folder), (2,), FEW, Budget())


def test_a_cache_that_forgets_wrongly_is_found(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that drops one token too few gives other logits."""
    real = Text.drop
    monkeypatch.setattr(Text, "drop", lambda self, tokens: real(self, tokens - 1))

    with pytest.raises(UnavailableError, match="does not take back rejected tokens"):
        text_rounds(CPU, (target, target), (2,), FEW, Budget())


def test_vocabularies_must_be_the_same(target: Path, tmp_path: Path) -> None:
    """Other sizes are an error that says both; padding of one tokenizer's is cut; other tokens are refused."""
    padded = write_checkpoint(tmp_path / "padded", seed=1, vocab_size=WORDS + 32)
    with pytest.raises(UnavailableError, match=rf"has {WORDS} tokens, .*padded {WORDS + 32}"):
        text_rounds(CPU, (target, padded), (2,), FEW, Budget())

    folder = write_tokenizer(write_checkpoint(tmp_path / "worded"))
    write_tokenizer(padded)
    one = written((folder, padded), (2,))[0]
    assert (one.differences, len(one.notes)) == ((), 1)
    assert f"ids are kept below {WORDS}" in one.notes[0]

    write_tokenizer(padded, words=WORDS - 1)
    with pytest.raises(UnavailableError, match="its tokens are not those of"):
        text_rounds(CPU, (folder, padded), (2,), FEW, Budget())


def test_a_table_of_positions_that_ends_is_one_line(tmp_path: Path) -> None:
    """GPT-2 of 64 positions, a prompt of 60 and 22 new tokens."""
    folder = write_checkpoint(tmp_path / "gpt2", "gpt2")

    with pytest.raises(UnavailableError, match="table of positions has 64 rows"):
        text_rounds(CPU, (folder, folder), (2,), Texts(new=NEW, random=1, length=60), Budget())


def test_a_spent_budget_and_an_interrupt_keep_what_is_done(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time nothing is loaded; Ctrl-C in the second length keeps the first."""
    swept = text_rounds(CPU, (target, target), (1, 2), FEW, Budget(0.0))
    assert (swept.done, swept.left, swept.why) == ((), ("real text, k = 1", "real text, k = 2"), "the budget is spent")

    real = rounds._text_round

    def interrupted(pair: Any, plain: Any, drafted: int, new: int) -> TextRound:
        if drafted > 1:
            raise KeyboardInterrupt
        return real(pair, plain, drafted, new)

    monkeypatch.setattr(rounds, "_text_round", interrupted)
    swept = text_rounds(CPU, (target, target), (1, 2), FEW, Budget())
    assert ([one.drafted for one in swept.done], swept.left, swept.why) == ([1], ("real text, k = 2",), "interrupted")


def test_ready_tells_whether_texts_can_be_written(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of two checkpoints; nothing of what simply is none; a line where transformers is not there."""
    assert ready((str(target), str(target))) is None
    assert ready((str(target), "llama-3.1-8b")) == ""
    (tmp_path / "model.safetensors").touch()
    assert ready((str(tmp_path), str(target))) == ""
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "pip install 'roofcast[checkpoint]'" in (ready((str(target), str(target))) or "")


def test_what_cannot_be_loaded_is_one_line(target: Path, tmp_path: Path) -> None:
    """The draft's folder is named."""
    draft = write_checkpoint(tmp_path / "draft")
    change_config(draft, model_type="newest")

    with pytest.raises(UnavailableError, match=r"draft: transformers .* does not know its architecture"):
        text_rounds(CPU, (target, draft), (2,), FEW, Budget())
