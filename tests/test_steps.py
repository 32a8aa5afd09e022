"""The quick time of a step against the `Estimate` that it stands for, and runs of steps against their sum."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.serving.defaults import Server
from roofcast.calculators.serving.steps import StepTimes, _reaching, knots
from roofcast.calculators.step import estimate
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.step import DECODE, MIXED, PREFILL, decode_step, mixed_step, prefill_step
from tests.expecting import known
from tests.serving_cases import drawn

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.step import Step

OFF: Final = 0.002  # what lines between contexts may be off by
TILES: Final = 0.005  # and those between tiles, where experts have a few hundred tokens
WHOLE: Final = 1e-9  # what is computed and not drawn as a line

#: dense with GQA, over one device and eight; latent attention and experts; windows of two kinds; states without a cache
SERVED: Final = {
    "dense": ("llama-3.1-8b", Shards()),
    "dense over 8": ("llama-3.1-70b", Shards(8)),
    "latent, experts": ("deepseek-v3", Shards(8)),
    "experts over 8": ("qwen3-30b-a3b", Shards(8, ep=8)),
    "windows, experts": ("gpt-oss-20b", Shards()),
    "windows": ("gemma-3-27b-it", Shards()),
    "some layers linear": ("qwen3-next-80b-a3b", Shards(8)),
    "states alone": ("falcon-mamba-7b", Shards()),
}


@cache
def ready_of(case: str, *, bound: bool) -> Ready:
    """Return a case with constants, or without."""
    name, shards = SERVED[case]
    ready = known(name, "h200-sxm", "vllm", shards)
    return replace(ready, expectation=None) if bound else ready


def seconds_of(ready: Ready, step: Step, phase: str, sequences: int) -> float:
    """Return what a step takes by its terms and the host. [s]"""
    made = estimate(ready, step)
    if ready.expectation is None:
        return made.bound
    devices = ready.deployment.shards.devices
    return made.expected + ready.expectation.host(phase, devices, sequences, made.calls, made.expected)


@pytest.mark.parametrize("case", SERVED)
@pytest.mark.parametrize("bound", [False, True])
def test_a_decode_step_is_the_estimate_s(case: str, *, bound: bool) -> None:
    """At any batch and context, within 0.2 %."""
    ready, random = ready_of(case, bound=bound), drawn(1)
    times = StepTimes(ready)
    for _ in range(25):
        batch, context = random.choice([1, 2, 5, 16, 37, 64, 200, 256, 300]), random.randint(2, 40000)
        point = answer_point(ready, Asked(DECODE, batch, context))
        expected = point.bound if ready.expectation is None else point.expected
        assert times.decode(batch, context) == pytest.approx(expected, rel=OFF)


@pytest.mark.parametrize("case", SERVED)
def test_where_a_context_is_a_knot_nothing_is_off(case: str) -> None:
    """A line's ends are computed."""
    ready = ready_of(case, bound=False)
    times = StepTimes(ready)
    for context in (16, 18, knots()[40], knots()[60]):
        expected = answer_point(ready, Asked(DECODE, 37, context)).expected
        assert times.decode(37, context) == pytest.approx(expected, rel=WHOLE)


@pytest.mark.parametrize("case", SERVED)
@pytest.mark.parametrize("bound", [False, True])
def test_a_mixed_step_is_the_estimate_s(case: str, *, bound: bool) -> None:
    """A piece of a prompt, its beginning or its end, beside sequences that decode."""
    ready, random = ready_of(case, bound=bound), drawn(2)
    times = StepTimes(ready)
    for _ in range(20):
        batch, context = random.choice([1, 5, 37, 64, 256]), random.randint(2, 20000)
        new, before = random.randint(1, 8000), random.choice([0, 0, random.randint(1, 20000)])
        last = random.random() < 0.5
        step = mixed_step(batch, context, new, cached=before, last=last)
        expected = seconds_of(ready, step, MIXED, batch + 1)
        found = times.mixed(batch, batch * (context - 1.0), [(new, before, last)])
        assert found == pytest.approx(expected, rel=TILES if "experts" in case else OFF)


@pytest.mark.parametrize("case", SERVED)
@pytest.mark.parametrize("bound", [False, True])
def test_a_prompt_alone_is_the_estimate_s(case: str, *, bound: bool) -> None:
    """Whole, in pieces, and behind a prefix."""
    ready, random = ready_of(case, bound=bound), drawn(3)
    times = StepTimes(ready)
    for _ in range(20):
        new, before = random.randint(1, 9000), random.choice([0, 0, random.randint(1, 20000)])
        last = random.random() < 0.5
        expected = seconds_of(ready, prefill_step(1, before + new, cached=before, last=last), PREFILL, 1)
        found = times.mixed(0, 0.0, [(new, before, last)])
        assert found == pytest.approx(expected, rel=TILES if "experts" in case else OFF)


@pytest.mark.parametrize("pp", [2, 4])
def test_stages_decode_parts_of_a_batch_in_turn(pp: int) -> None:
    """A pipeline's decode step is that of `estimate --pp`, apart from the head of the last stage: within 4 %."""
    ready = known("llama-3.1-70b", "h200-sxm", "vllm", Shards(2, pp=pp))
    times = StepTimes(ready)
    for batch, context in ((1, 1000), (16, 4000), (64, 2000)):
        expected = answer_point(ready, Asked(DECODE, batch, context)).expected
        assert times.decode(batch, context) == pytest.approx(expected, rel=0.04)


def test_a_mean_context_stands_for_all() -> None:
    """Attention is linear in the tokens that are held, so that 100 and 1,900 take as long as 1,000 twice."""
    times = StepTimes(ready_of("dense", bound=True))
    ready = ready_of("dense", bound=True)
    apart = [decode_step(1, context) for context in (100, 1900)]
    attention = [sum(t.bound for t in estimate(ready, step).term("attn")) for step in apart]
    whole = sum(t.bound for t in estimate(ready, decode_step(2, 1000)).term("attn"))

    assert sum(attention) == pytest.approx(whole)
    assert times.mixed(2, 1998.0, [(64, 0, True)]) > times.mixed(2, 998.0, [(64, 0, True)])


def test_pieces_of_one_step_share_a_launch() -> None:
    """Two prompts in a step take what one of both lengths does, and the attention of each: less than two steps."""
    times = StepTimes(ready_of("dense", bound=False))
    both = times.mixed(0, 0.0, [(500, 0, True), (500, 0, True)])

    assert both < 2 * times.mixed(0, 0.0, [(500, 0, True)])
    assert both < times.mixed(0, 0.0, [(1000, 0, True)])  # 2 x 500^2 pairs of tokens, not 1,000^2
    assert both > times.mixed(0, 0.0, [(1000, 0, True)]) * 0.8


# --- what a server adds, and drafts


def test_a_server_prepares_prompts_while_the_step_before_runs() -> None:
    """Of 6 ms a step of 4 ms hides 4; 1.5 ms are never hidden; decode steps have neither."""
    ready = ready_of("dense", bound=False)
    plain, served = StepTimes(ready), StepTimes(ready, server=Server(prepare=6e-3, between=1.5e-3))
    prompt = [(1000, 0, True)]

    def added(hidden: float) -> float:
        return served.mixed(0, 0.0, prompt, hidden) - plain.mixed(0, 0.0, prompt, hidden)

    assert [added(hidden) for hidden in (0.0, 4e-3, 6e-3, 1.0)] == pytest.approx([7.5e-3, 3.5e-3, 1.5e-3, 1.5e-3])
    assert served.decode(16, 1000) == plain.decode(16, 1000)


def test_drafted_tokens_are_verified_in_the_step() -> None:
    """Three drafted tokens make a decode step of four tokens a sequence, and drafting stands beside it."""
    ready = ready_of("dense", bound=False)
    drafting = StepTimes(ready, drafted=3, beside=1e-3)
    expected = answer_point(ready, Asked(DECODE, 16, 4000, drafted=3)).expected

    assert expected is not None
    assert drafting.decode(16, 4003) == pytest.approx(expected + 1e-3, rel=OFF)


# --- runs


@pytest.mark.parametrize("case", ["dense", "windows, experts", "states alone", "latent, experts"])
@pytest.mark.parametrize("gain", [1.0, 2.5])
def test_a_run_is_the_sum_of_its_steps(case: str, gain: float) -> None:
    """Across knots and the ends of windows."""
    times, random = StepTimes(ready_of(case, bound=False)), drawn(4)
    for _ in range(12):
        batch, held, steps = random.choice([1, 3, 64, 200]), random.randint(3, 3000), random.randint(1, 700)
        done, seconds = times.run(batch, float(batch * held), steps, inf, gain)
        assert done == steps
        assert seconds == pytest.approx(sum(times.decode(batch, held + 1 + at * gain) for at in range(steps)))


@pytest.mark.parametrize("case", ["dense", "windows, experts", "states alone"])
def test_a_run_ends_with_the_first_step_that_reaches_the_limit(case: str) -> None:
    """One step fewer does not reach it."""
    times, random = StepTimes(ready_of(case, bound=False)), drawn(5)
    for _ in range(40):
        batch, held = random.choice([1, 64, 256]), float(random.randint(2, 5000))
        limit = random.uniform(0.0, 3.0)
        done, seconds = times.run(batch, batch * held, 1000, limit)
        less = sum(times.decode(batch, held + 1 + at) for at in range(done - 1))
        assert seconds >= limit or done == 1000
        assert less < limit or done == 1
        assert times.run(batch, batch * held, done, inf)[1] == pytest.approx(seconds)


def test_a_run_without_time_takes_one_step() -> None:
    """A step that has begun is taken to its end."""
    times = StepTimes(ready_of("dense", bound=False))

    done, seconds = times.run(16, 16_000.0, 10, 0.0)

    assert done == 1
    assert seconds == pytest.approx(times.decode(16, 1001))


@given(
    st.floats(1e-4, 10.0),
    st.one_of(st.just(0.0), st.floats(1e-22, 1e-2), st.floats(-1e-8, -1e-12)),
    st.floats(1e-6, 1e3),
    st.integers(1, 3000),
)
@example(0.01, 1e-19, 1.0, 1000)
@example(4.224956592896351, 2.220446049250313e-16, 5.0, 3)
def test_the_first_step_that_reaches_a_limit_is_found(start: float, rise: float, limit: float, most: int) -> None:
    """Of steps whose time rises, stays or falls by next to nothing, against counting them."""

    def after(steps: int) -> float:
        return steps * start + rise * (steps * (steps - 1) / 2)

    counted = next((steps for steps in range(1, most) if after(steps) >= limit), most)
    found = _reaching(start, rise, limit, most)

    assert found == counted or abs(after(min(found, counted)) / limit - 1) < 1e-8  # a tie by rounding


def test_a_first_step_that_reaches_the_limit_is_all() -> None:
    """And no more steps are taken than there are."""
    assert _reaching(2.0, 0.5, 1.0, 9) == 1
    assert _reaching(1.0, 0.5, 100.0, 9) == 9
