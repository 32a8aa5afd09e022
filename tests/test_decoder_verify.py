"""A pass that verifies several new tokens says at every position what a prompt or single steps say there."""

from __future__ import annotations

from typing import Any

import pytest

from roofcast.profiler.errors import ProfileUsageError

torch = pytest.importorskip("torch")

from tests.reference_decoder import logits  # noqa: E402 - needs torch
from tests.tiny_decoders import BUILT, VOCAB, tiny  # noqa: E402

TOKENS = 11
TIGHT = 1e-5  # of fp32


def prompt(batch: int = 2, tokens: int = TOKENS) -> Any:
    """Random tokens, [B, n]."""
    return torch.randint(VOCAB, (batch, tokens), generator=torch.Generator().manual_seed(1))


def off(found: Any, expected: Any) -> float:
    """Error against what is expected, as a share of it."""
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def prefilled(decoder: Any, tokens: Any) -> Any:
    """Logits after the last of these tokens."""
    step = decoder.prefill(*tokens.shape)
    step.load(tokens)
    step.run()
    return step.logits


def started(decoder: Any, tokens: Any, before: int) -> Any:
    """A session that holds the first tokens of all."""
    session = decoder.session(tokens.shape[0], tokens.shape[1] + 2)
    if before:
        step = session.prefill(before)
        step.load(tokens[:, :before])
        step.run()
    return session


def verified(session: Any, tokens: Any, before: int) -> Any:
    """Logits of every token behind the first ones, in one pass whose buffers were NaN, [B, n, vocabulary]."""
    step = session.verify(tokens.shape[1] - before, before)
    step.load(tokens[:, before:], before)
    step.poison()
    step.run()
    return step.logits.view(tokens.shape[0], -1, step.logits.shape[-1])


@pytest.mark.parametrize("before", [0, 1, 6, 9])
@pytest.mark.parametrize("name", BUILT)
def test_every_position_is_as_a_prompt_that_ends_there(name: str, before: int) -> None:
    """Whatever attends and feeds forward, and however many tokens are before."""
    decoder, tokens = tiny(BUILT[name]), prompt()
    found = verified(started(decoder, tokens, before), tokens, before)

    assert found.shape == (2, TOKENS - before, VOCAB)
    for place in range(before, TOKENS):
        assert off(found[:, place - before], prefilled(decoder, tokens[:, : place + 1])) < TIGHT


@pytest.mark.parametrize("name", BUILT)
def test_every_position_is_as_a_step_of_decode(name: str) -> None:
    """One pass over four tokens and four steps of one each write the same logits, and the same cache."""
    decoder, tokens, before = tiny(BUILT[name]), prompt(), 7
    session, other = (started(decoder, tokens, before) for _ in range(2))
    found, step = verified(session, tokens, before), other.decode(before)
    for place in range(before, TOKENS):
        step.load(tokens[:, place : place + 1], place)
        step.run()
        assert off(found[:, place - before], step.logits) < TIGHT
    for one, another in zip(session.caches, other.caches, strict=True):
        assert all(off(*both) < TIGHT for both in zip(one, another, strict=True))


@pytest.mark.parametrize("name", ["GQA", "a window", "chunks", "MLA with a query latent", "MoE"])
def test_the_ways_of_cuda_are_right_too(name: str) -> None:
    """What runs on CUDA alone, as far as torch's CPU follows."""
    decoder, tokens = tiny(BUILT[name], as_cuda=True), prompt()
    found = verified(started(decoder, tokens, 6), tokens, 6)

    assert off(found[:, -1], logits(decoder, tokens)) < TIGHT


def test_tokens_beyond_what_is_verified_change_nothing() -> None:
    """A place is never attended to before it is written, whatever an earlier step left there."""
    decoder, tokens = tiny(BUILT["a window and all"]), prompt()
    session = started(decoder, tokens, 6)
    for cache in session.caches:
        for one in cache:
            one[..., 6:, :] = 1e3
    found = verified(session, tokens[:, :9], 6)

    assert off(found[:, -1], prefilled(decoder, tokens[:, :9])) < TIGHT


def test_the_decoder_verifies_behind_random_tokens() -> None:
    """As `speculate` counts it: k + 1 tokens behind context - 1."""
    step = tiny(BUILT["GQA"]).verify(3, 9, 4)
    step.poison()
    step.run()

    assert step.places.tolist() == [8, 8, 8]
    assert step.logits.shape == (15, VOCAB)
    assert torch.isfinite(step.logits).all()


@pytest.mark.parametrize(("new", "before"), [(0, 0), (3, 8), (11, 0), (1, -1)])
def test_tokens_that_have_no_place_are_refused(new: int, before: int) -> None:
    """A cache of ten places holds no eleventh token."""
    with pytest.raises(ProfileUsageError, match="10 places"):
        tiny(BUILT["GQA"]).session(1, 10).verify(new, before)
