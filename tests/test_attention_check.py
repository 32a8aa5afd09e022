"""`attention --check`: standard attention, online softmax and PyTorch's own agree to rounding, on the CPU."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.running import refused, result, roofcast

if TYPE_CHECKING:
    from roofcast.calculators.attention import CheckResult

has_torch = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not has_torch, reason="torch is an extra, roofcast[profile], and not installed")


def check(**sizes: int) -> CheckResult:
    """Run the check of the profiler."""
    from roofcast.profiler.attention import check as run

    return run(**{"seed": 0, **sizes})


@needs_torch
def test_the_three_agree_at_2048_tokens() -> None:
    """Each within 2e-6 of fp64, online softmax within 1e-5 of standard attention, with a causal mask and without."""
    got = check()

    assert (got.tokens, got.block, [row.causal for row in got.rows]) == (2048, 128, [False, True])
    for row in got.rows:
        assert 0 < row.standard_error <= 2e-6
        assert 0 < row.online_error <= 2e-6
        assert 0 < row.sdpa_error <= 2e-6
        assert 0 < row.online_against_standard <= 1e-5
    assert got.agrees


@needs_torch
def test_online_softmax_holds_a_sixteenth_of_the_scores() -> None:
    """2,048 x 2,048 scores against 2,048 x 128."""
    got = check()

    assert got.standard_score_elements == 2048 * 2048 == 4_194_304
    assert got.online_score_elements == 2048 * 128 == 262_144
    assert got.score_ratio == 16


@needs_torch
@pytest.mark.parametrize("causal", [False, True])
def test_online_softmax_makes_no_larger_scores(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every score matrix that it makes is n x block at most; standard attention's is n x n."""
    import torch

    from roofcast.profiler import attention

    made: list[tuple[int, ...]] = []
    real = attention._scores

    def counted(*arguments: Any, **options: Any) -> Any:
        scores = real(*arguments, **options)
        made.append(tuple(scores.shape))
        return scores

    monkeypatch.setattr(attention, "_scores", counted)
    q, k, v = (torch.randn(2, 300, 16, generator=torch.Generator().manual_seed(n)) for n in range(3))
    attention.online(q, k, v, causal=causal)

    assert made == [(2, 300, 128), (2, 300, 128), (2, 300, 44)]
    made.clear()
    attention.standard(q, k, v, causal=causal)
    assert made == [(2, 300, 300)]


@needs_torch
def test_online_softmax_stands_large_scores() -> None:
    """Scores of hundreds overflow exp in fp32; a running maximum keeps weights at 1 or below."""
    import torch

    from roofcast.profiler import attention

    q, k, v = (50 * torch.randn(1, 256, 64, generator=torch.Generator().manual_seed(n)) for n in range(3))
    got = attention.online(q, k, v, causal=True)

    assert bool(torch.isfinite(got).all())
    assert torch.allclose(got, attention.standard(q, k, v, causal=True), rtol=1e-4, atol=1e-3)


@needs_torch
def test_a_row_by_hand() -> None:
    """Two keys with scores 0 and ln 3 / sqrt(1): weights 1/4 and 3/4, so values 4 and 8 give 7."""
    import torch

    from roofcast.profiler import attention

    query, key = torch.tensor([[[1.0]]]), torch.tensor([[[0.0], [torch.log(torch.tensor(3.0))]]])
    value = torch.tensor([[[4.0], [8.0]]])

    for attend in (attention.standard, lambda *qkv: attention.online(*qkv, block=1), attention.sdpa):
        assert float(attend(query, key, value)) == pytest.approx(7.0)


@needs_torch
def test_the_same_seed_gives_the_same_figures() -> None:
    """Inputs come of the seed."""
    small: dict[str, int] = {"tokens": 256, "heads": 1, "width": 32}

    assert check(**small).rows[0].standard_error == check(**small).rows[0].standard_error
    assert check(**small, seed=1).rows != check(**small).rows


@needs_torch
def test_a_wrong_online_softmax_does_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that forgets to rescale what it summed is told."""
    from roofcast.profiler import attention

    def forgetful(query: Any, key: Any, value: Any, *, block: int, **_: bool) -> Any:
        parts = [attention.standard(query, key[:, n : n + block], value[:, n : n + block]) for n in (0, block)]
        return sum(parts) / 2

    monkeypatch.setattr(attention, "online", forgetful)

    assert not check(tokens=256, heads=1).agrees


@needs_torch
def test_the_command() -> None:
    """It needs no GPU, prints the verdict and leaves with 0; JSON has the figures."""
    outcome = roofcast("attention", "--check")
    found = result("attention", "--check", "--seed", "3")

    assert outcome.code == 0, outcome.err
    assert "agree to rounding" in outcome.out
    assert "16x fewer" in outcome.out
    assert (found["check"]["seed"], found["check"]["agrees"], found["io"]) == (3, True, [])


@needs_torch
def test_a_check_beside_an_answer() -> None:
    """With a GPU or a model both are printed."""
    found = result("attention", "--gpu", "a100-80gb-sxm", "--context", "1k", "--check")

    assert found["check"]["agrees"] is True
    assert len(found["io"]) == 1


@needs_torch
def test_the_schema_holds_of_a_check() -> None:
    """What --check prints is what `roofcast schema attention` publishes."""
    from jsonschema import Draft202012Validator

    data = roofcast("attention", "--check", "--format", "json").data

    Draft202012Validator(roofcast("schema", "attention").data).validate(data)


@needs_torch
def test_disagreement_fails_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is printed, and the exit code is 1."""
    from roofcast.profiler import attention

    good = check(tokens=256, heads=1)
    monkeypatch.setattr(attention, "check", lambda _: replace(good, agrees=False))
    outcome = roofcast("attention", "--check")

    assert outcome.code == 1
    assert "DO NOT AGREE" in outcome.out
    assert "agree" in outcome.complaint


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 3, one line that names the extra; the rest of the command works."""
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed

    refused(roofcast("attention", "--check"), 3, "torch", "[profile]")
    assert roofcast("attention", "--gpu", "a100-80gb-sxm").code == 0
