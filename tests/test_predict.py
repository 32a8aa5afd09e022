"""What is expected of each quantity, by hand: a decode step of 8 ms (7 to 10, bound 4), a prompt of 40 ms (30 to 60, bound 20)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators import predict
from roofcast.calculators.errors import UnansweredError
from roofcast.calculators.measurement import QUANTITIES, Measurement
from roofcast.calculators.predict import PREDICTORS, Predicted
from roofcast.cli.deploy import Efficiencies
from roofcast.cli.validating import Setups

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Asked

#: phase -> bound, expected, interval [s]
KNOWN: dict[str, tuple[float, float | None, tuple[float, float] | None]] = {
    "decode": (0.004, 0.008, (0.007, 0.010)),
    "prefill": (0.020, 0.040, (0.030, 0.060)),
}


@pytest.fixture(name="asked")
def asked_fixture(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Steps take what `KNOWN` says; what was asked is listed."""
    asked: list[Asked] = []

    def answered(_: Ready, one: Asked) -> Any:
        asked.append(one)
        bound, expected, interval = KNOWN[one.phase]
        return SimpleNamespace(bound=bound, expected=expected, interval=interval)

    monkeypatch.setattr(predict, "answer_point", answered)
    monkeypatch.setattr(predict, "kinship", lambda: {"server": 0.0})
    return asked


def predicted(quantity: str, **fields: Any) -> Predicted:
    """The prediction of a quantity on a deployment that `answered` does not look at."""
    return PREDICTORS[quantity](SimpleNamespace(), Measurement("here", quantity, 1.0, **fields))  # type: ignore[arg-type]


def numbers(made: Predicted) -> list[float | None]:
    """Bound, expected, low and high."""
    return [made.bound, made.expected, made.low, made.high]


def test_every_quantity_has_its_prediction() -> None:
    """What a file may hold can be predicted, and nothing else."""
    assert PREDICTORS.keys() == QUANTITIES.keys()


def test_decode_is_a_step_of_the_batch_at_its_mean_context(asked: list[Asked]) -> None:
    """Prompt + output / 2 tokens stand before the mean decoded one."""
    made = predicted("decode_seconds", batch=16, prompt=1000, output=128)

    assert numbers(made) == [0.004, 0.008, 0.007, 0.010]
    assert [(one.phase, one.batch, one.context) for one in asked] == [("decode", 16, 1064)]


def test_a_stated_context_counts(asked: list[Asked]) -> None:
    """Before what prompt and output make."""
    predicted("decode_seconds", batch=1, context=77.4, prompt=1000, output=128)

    assert [one.context for one in asked] == [77]


def test_prefill_leaves_out_what_is_cached(asked: list[Asked]) -> None:
    """256 of 1,024 tokens are a quarter."""
    made = predicted("prefill_seconds", batch=4, prompt=1024, cached=256)

    assert numbers(made) == [0.020, 0.040, 0.030, 0.060]
    assert [(one.phase, one.batch, one.context, one.cached) for one in asked] == [("prefill", 4, 1024, 0.25)]


def test_batch_is_a_prefill_and_a_step_for_each_further_token(asked: list[Asked]) -> None:
    """40 ms + 99 x 8 ms, at most 60 ms + 99 x 10 ms; the low end lies as far below as the high one above, as a ratio."""
    made = predicted("batch_seconds", batch=8, prompt=512, output=100)

    assert numbers(made) == pytest.approx([0.020 + 99 * 0.004, 0.832, 0.832**2 / 1.05, 1.05])
    assert [(one.phase, one.batch) for one in asked] == [("prefill", 8), ("decode", 8)]


def test_batch_of_one_token_is_a_prefill(asked: list[Asked]) -> None:
    """The first token needs no step of its own."""
    made = predicted("batch_seconds", batch=8, prompt=512, output=1)

    assert numbers(made) == pytest.approx([0.020, 0.040, 0.040**2 / 0.060, 0.060])
    assert asked


def test_tpot_has_the_prefills_of_others(asked: list[Asked]) -> None:
    """16 at once, 100 tokens each: 8 ms + 16/100 x 40 ms = 14.4 ms; the bound is that of the step alone."""
    made = predicted("tpot_seconds", batch=16, prompt=512, output=100)

    assert numbers(made) == pytest.approx([0.004, 0.0144, 0.0144**2 / 0.0196, 0.0196])
    assert [(one.phase, one.batch) for one in asked] == [("decode", 16), ("prefill", 1)]


def test_a_server_is_less_certain_than_its_steps(asked: list[Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    """ln(19.6 / 14.4) / 1.2816 = 0.24057 and 0.3 beside it are 0.38454: 14.4 ms x e^(1.2816 x 0.38454) = 23.57 ms."""
    monkeypatch.setattr(predict, "kinship", lambda: {"server": 0.3})
    made = predicted("tpot_seconds", batch=16, prompt=512, output=100)

    assert made.high == pytest.approx(0.02357, rel=1e-3)
    assert made.low == pytest.approx(0.0144**2 / 0.02357, rel=1e-3)
    assert asked


def test_tpot_alone_is_the_step(asked: list[Asked]) -> None:
    """One request has no others."""
    assert numbers(predicted("tpot_seconds", batch=1, prompt=512, output=100)) == [0.004, 0.008, 0.007, 0.010]
    assert len(asked) == 1


def test_ttft_alone_is_the_prefill(asked: list[Asked]) -> None:
    """Nothing waits."""
    assert numbers(predicted("ttft_seconds", batch=1, prompt=512)) == [0.020, 0.040, 0.030, 0.060]
    assert len(asked) == 1


def test_ttft_under_load_is_not_estimated(asked: list[Asked]) -> None:
    """How long prompts wait is simulated."""
    with pytest.raises(UnansweredError, match="under load"):
        predicted("ttft_seconds", batch=2, prompt=512)
    assert not asked


def test_output_rate_is_requests_over_their_time_a_token(asked: list[Asked]) -> None:
    """16 / (8 ms + 16/100 x 40 ms) = 1,111.1 token/s; the slow end of the time is the low end of the rate."""
    made = predicted("output_tokens_per_second", batch=16, prompt=512, output=100)

    assert numbers(made) == pytest.approx([16 / 0.0072, 1111.111, 16 / 0.0196, 16 * 0.0196 / 0.0144**2])
    assert made.rate
    assert asked


def test_total_rate_counts_prompts_too(asked: list[Asked]) -> None:
    """512 + 100 tokens where output counts 100: 6.12 times as many."""
    fields: dict[str, Any] = {"batch": 16, "prompt": 512, "output": 100}
    output, total = (predicted(f"{name}_tokens_per_second", **fields) for name in ("output", "total"))

    assert numbers(total) == pytest.approx([6.12 * x for x in numbers(output) if x])
    assert total.rate
    assert asked


@pytest.mark.parametrize("name", ["output_tokens_per_second", "total_tokens_per_second"])
def test_a_rate_needs_a_concurrency(name: str, asked: list[Asked]) -> None:
    """An open load decides it, not the machine."""
    with pytest.raises(UnansweredError, match="concurrency"):
        predicted(name, prompt=512, output=100)
    assert not asked


@pytest.mark.parametrize("quantity", sorted(QUANTITIES))
def test_bounds_stand_without_expectations(quantity: str, asked: list[Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no constants are asked for, every quantity has its bound and nothing else."""
    for phase, known in KNOWN.items():
        monkeypatch.setitem(KNOWN, phase, (known[0], None, None))
    made = predicted(quantity, batch=1, prompt=512, output=100)

    assert made.bound is not None
    assert numbers(made)[1:] == [None, None, None]
    assert asked


@pytest.mark.parametrize("quantity", sorted(QUANTITIES))
def test_expected_is_between_bound_and_the_end_of_its_interval(quantity: str) -> None:
    """On a real deployment: bound <= low <= expected <= high of times, the other way round of rates."""
    point = Measurement(
        "here", quantity, 1.0, model="llama-3.1-8b", gpu="h100-sxm", gpus=1, tp=1, engine="vllm", batch=1, prompt=512, output=64
    )  # fmt: skip
    made = PREDICTORS[quantity](Setups(Efficiencies(wanted=True, file=None), offline=True).ready(point), point)
    order = [made.bound, made.low, made.expected, made.high]
    if made.rate:
        order = [made.low, made.expected, made.high, made.bound]

    assert None not in order
    assert order == sorted(order)  # type: ignore[type-var]
