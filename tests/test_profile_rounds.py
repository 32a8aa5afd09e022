"""Rounds of two decoders on the CPU: what is drafted, accepted and timed; no time is asserted."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from roofcast.profiler.decoder import Decoder, Session, Setup  # noqa: E402
from roofcast.profiler.errors import OutOfMemoryError, WrongOutputError  # noqa: E402
from roofcast.profiler.speculative import Pair, Round, profile_rounds  # noqa: E402
from roofcast.profiler.timing import Budget  # noqa: E402
from tests.tiny_decoders import BUILT, VOCAB, cpu, spec_of, tiny  # noqa: E402

ROOM = 12  # places of a cache, whose random tokens are those of any other so long
pytestmark = pytest.mark.usefixtures("one_thread", "few_rounds")


def seeded(name: str, seed: int) -> Decoder:
    """A small decoder with weights of a seed."""
    return tiny(BUILT[name], Setup("fp32", "fp32", seed=seed))


def opened(pair: Pair, context: int, drafted: int, batch: int = 3) -> Round:
    """A round over caches of random tokens."""
    sessions = pair.target.session(batch, ROOM).filled(), pair.draft.session(batch, ROOM).filled()
    return Round(pair, sessions, context, drafted)


def greedy(decoder: Decoder, first: Any, context: int, count: int) -> Any:
    """Tokens that single decode steps choose, one after the other, over the same random cache, [B, count]."""
    step = decoder.session(first.shape[0], ROOM).filled().decode(context - 1)
    chosen = [first]
    for place in range(context - 1, context - 1 + count):
        step.load(chosen[-1], place)
        step.run()
        chosen.append(step.logits.argmax(-1))
    return torch.stack(chosen[1:], 1)


@pytest.mark.parametrize("name", ["GQA", "a window", "chunks", "MLA with a query latent", "MoE", "tied"])
def test_a_draft_that_is_the_target_is_always_accepted(name: str) -> None:
    """All k tokens, and what follows is the target's next: what k + 1 plain steps choose."""
    decoder = seeded(name, 0)
    made = opened(Pair(decoder, seeded(name, 0)), 6, 4)
    for _ in range(2):  # a round runs again on the same memory
        made.run()
        plain = greedy(decoder, made.tokens[:, 0].clone(), 6, 5)

        assert made.accepted.tolist() == [4, 4, 4]
        assert torch.equal(made.tokens[:, 1:], plain[:, :4])
        assert torch.equal(made.following, plain[:, 4])


@pytest.mark.parametrize("wrong", [1, 2, 4])
def test_tokens_behind_a_wrong_one_do_not_count(wrong: int) -> None:
    """The first drafted token that the target does not choose ends it; the target's own stands in its place."""
    decoder = seeded("GQA", 0)
    made = opened(Pair(decoder, seeded("GQA", 0)), 6, 4)
    made.draft()
    right = made.tokens[1, wrong].clone()
    made.tokens[1, wrong] = (right + 1) % VOCAB
    for place in range(wrong, 5):  # each token behind it is what the target chooses there
        made.verifying.run()
        if place > wrong:
            made.tokens[1, place] = made.verifying.logits.view(3, 5, -1)[1, place - 1].argmax()
    made.verifying.run()
    made.compare()

    assert made.accepted.tolist() == [4, wrong - 1, 4]
    assert made.following[1] == right


def test_another_draft_is_fed_its_own_tokens() -> None:
    """It drafts what single steps of it choose, and as many are accepted as the target would choose too."""
    target, draft = seeded("GQA", 0), seeded("MHA", 5)
    made = opened(Pair(target, draft), 6, 3)
    made.run()
    drafted, own = greedy(draft, made.tokens[:, 0].clone(), 6, 3), greedy(target, made.tokens[:, 0].clone(), 6, 4)

    assert torch.equal(made.tokens[:, 1:], drafted)
    for row in range(3):
        agreed = [bool(one) for one in drafted[row] == own[row, :3]]
        count = agreed.index(False) if False in agreed else 3
        assert made.accepted[row] == count
        assert made.following[row] == own[row, count]


@pytest.mark.parametrize("sizes", [(VOCAB, 7), (7, VOCAB)], ids=["fewer of the draft", "fewer of the target"])
def test_vocabularies_may_differ(sizes: tuple[int, int]) -> None:
    """Ids stay below what both have rows for."""
    target, draft = (tiny(spec_of(*BUILT["GQA"].layers, vocab=size)) for size in sizes)
    pair = Pair(target, draft)
    made = opened(pair, 6, 4)
    made.run()

    assert (pair.tokens, pair.clamped) == (7, True)
    assert int(made.tokens.max()) < 7
    assert int(made.following.max()) < 7
    assert not Pair(target, target).clamped


def test_rounds_are_timed() -> None:
    """Every part has a time; decode and draft are those of their batch and context, whatever k."""
    pair = Pair(seeded("GQA", 0), seeded("MQA", 1))
    swept = profile_rounds(cpu(), pair, ((2, 8, 1), (2, 8, 3), (1, 5, 3)), Budget())

    assert [(one.batch, one.context, one.drafted) for one in swept.done] == [(2, 8, 1), (2, 8, 3), (1, 5, 3)]
    first, second, third = swept.done
    assert first.decode is second.decode
    assert first.draft is second.draft
    assert third.decode is not first.decode
    for one in swept.done:
        assert None not in {one.drafting, one.verify, one.round, one.draft_ratio, one.verify_ratio, one.cost}
        assert one.launched == "eager"


def test_a_round_that_does_not_fit_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches of both models count; other points run."""
    whole = Session.filled

    def narrow(session: Session) -> Session:
        if session.batch > 2:
            raise OutOfMemoryError("caches of 9 GiB do not fit")
        return whole(session)

    monkeypatch.setattr(Session, "filled", narrow)
    pair = Pair(seeded("GQA", 0), seeded("MQA", 1))
    swept = profile_rounds(cpu(), pair, ((1, 8, 2), (4, 8, 2), (2, 8, 2)), Budget())

    assert [one.problem for one in swept.done] == [None, "caches of 9 GiB do not fit", None]
    assert swept.done[1].cost is None


@pytest.mark.parametrize("lacking", ["decode_attention", "linear"])
def test_a_pass_that_leaves_logits_unwritten_ends_it(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time of it would mean nothing: here of the passes over several tokens of a sequence alone."""
    target, draft = seeded("GQA", 0), seeded("MQA", 1)
    full = getattr(target.kernels, lacking)

    def partly(x: Any, *rest: Any) -> None:
        if x.shape[2 if x.dim() > 2 else 0] in {1, 2}:  # a token, or one of two sequences
            full(x, *rest)

    monkeypatch.setattr(target.kernels, lacking, partly)
    with pytest.raises(WrongOutputError, match="verifying in a round of 3 drafted"):
        profile_rounds(cpu(), Pair(target, draft), ((2, 8, 3),), Budget())


def test_tokens_that_are_not_counted_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As do logits that are not written."""
    monkeypatch.setattr(Round, "compare", lambda _: None)
    with pytest.raises(WrongOutputError, match="were not counted"):
        profile_rounds(cpu(), Pair(seeded("GQA", 0), seeded("MQA", 1)), ((2, 8, 3),), Budget())
