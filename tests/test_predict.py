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


def test_ttft_under_load_is_simulated(asked: list[Asked], monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean of 0.1 s, and e^(1.2816 x sqrt(1 + 0.3^2)) = 3.811 times as much at the high end; the bound is the prompt's."""
    spread = SimpleNamespace(ttft_seconds=SimpleNamespace(mean=0.1))
    monkeypatch.setattr(predict, "_simulated", lambda *_: spread)
    monkeypatch.setattr(predict, "kinship", lambda: {"server": 0.3})
    made = predicted("ttft_seconds", batch=2, prompt=512, output=100)

    assert numbers(made) == pytest.approx([0.020, 0.1, 0.1 / 3.811, 0.3811], rel=1e-3)
    assert [(one.phase, one.batch) for one in asked] == [("prefill", 1)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [({}, "not stated: output"), ({"output": 100, "cached": 256}, "cached in part")],
)
def test_ttft_under_load_needs_to_know_the_load(asked: list[Asked], fields: dict[str, Any], said: str) -> None:
    """How long others stay, and what prompts share, is not guessed."""
    with pytest.raises(UnansweredError, match=said):
        predicted("ttft_seconds", batch=2, prompt=512, **fields)
    assert asked


def deployed(**fields: Any) -> tuple[Ready, Measurement]:
    """Return a real deployment, and a point that was measured on it."""
    own: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": 1, "tp": 1, "engine": "vllm"} | fields
    point = Measurement("here", "ttft_seconds", 1.0, **own)
    return Setups(Efficiencies(wanted=True, file=None), offline=True).ready(point), point


def test_ttft_under_load_is_as_simulate_answers() -> None:
    """The mean of the same server, clients and lengths, which wait for one another; of one client it is a prefill."""
    from tests.running import result

    made, alone = (
        PREDICTORS["ttft_seconds"](*deployed(batch=batch, prompt=512, output=64)).expected for batch in (32, 1)
    )
    options = ("--engine", "vllm", "--concurrency", "32", "--prompt", "512", "--output", "64")
    own = result("simulate", "llama-3.1-8b", "--gpu", "h100-sxm", *options)

    assert made == pytest.approx(own["ttft_seconds"]["mean"])
    assert (made or 0) > 2 * (alone or 0)


def test_a_server_that_does_not_start_by_default_has_what_is_left() -> None:
    """One L4 has no room for a request of 131,072 tokens, so that a server without flags does not start; the point's did."""
    made = PREDICTORS["ttft_seconds"](*deployed(gpu="l4", batch=4, prompt=512, output=64))

    assert made.expected is not None


def test_requests_that_no_server_takes_are_not_answered() -> None:
    """A prompt beyond the model's own maximum is refused by the server as it is started by default."""
    with pytest.raises(UnansweredError, match="takes no such request"):
        PREDICTORS["ttft_seconds"](*deployed(batch=2, prompt=200_000, output=64))


def test_published_servers_lie_in_their_intervals() -> None:
    """About 80 of 100 points of a time to the first token under load, as the interval promises."""
    from roofcast.calculators.validate import validate_result
    from roofcast.cli.validating import gathered

    points = [one for one in gathered((), {}).points if one.quantity == "ttft_seconds" and (one.batch or 1) > 1]
    setups = Setups(Efficiencies(wanted=True, file=None), offline=True)
    rows = [row for row in validate_result(points, setups.ready, ()).points if row.reason is None]

    assert len(rows) == 20
    assert 0.7 <= sum(bool(row.inside) for row in rows) / len(rows) <= 0.95


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
