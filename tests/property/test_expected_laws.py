"""Laws of expected times, over models of every kind, machines, engines and shapes, with the constants that count there."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.errors import UsageError
from roofcast.calculators.expected.families import FAMILIES
from roofcast.calculators.expected.interval import interval
from roofcast.calculators.phases import Asked, Point, answer_point
from roofcast.modelspec.op import COLLECTIVE
from roofcast.modelspec.sharding import Shards
from tests.expecting import known, on_roofs
from tests.property.test_step_laws import MODELS

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready

LESS, MORE = 1 - 1e-9, 1 + 1e-9  # rounding of long sums
# own constants, kin's, a class's, another engine's, other vendors'
MACHINES = (
    ("h200-sxm", "vllm"), ("h200-sxm", "sglang"), ("h100-sxm", "tensorrt-llm"), ("h100-pcie", "vllm"), ("b200", "vllm"),
    ("a100-80gb-sxm", "vllm"), ("a100-80gb-sxm", "gpt-fast"), ("mi300x", "lmdeploy"), ("tpu-v5e", "tgi"),
    ("rtx-4090", "llama.cpp"), ("rtx-4070-ti-super", "ollama"), ("rtx-3090", "exllamav2"), ("rtx-4090", "mlc"),
    ("rtx-2080-ti", "transformers"), ("apple-m4-max", "llama.cpp"), ("strix-halo-395", "llama.cpp"),
)  # fmt: skip
LAYOUTS = (
    Shards(), Shards(tp=2), Shards(tp=8), Shards(pp=2), Shards(tp=2, pp=4), Shards(tp=2, ep=2), Shards(dp=4, ep=4),
    Shards(tp=2, dp=2, ep=4),
)  # fmt: skip
ALONE = (Shards(), Shards(tp=2), Shards(tp=2, ep=2))
PHASES = ("decode", "prefill", "mixed")
POINTS = ((1, 1), (1, 700), (7, 129), (64, 4096), (300, 20_000))

BATCHES, CONTEXTS = st.integers(1, 300), st.integers(1, 20_000)
machines, models, layouts = st.sampled_from(MACHINES), st.sampled_from(MODELS), st.sampled_from(LAYOUTS)
points = st.builds(Asked, st.sampled_from(PHASES), BATCHES, CONTEXTS)


@cache
def possible(name: str, gpu: str, engine: str, shards: Shards) -> Ready | None:
    """A deployment; None where the model cannot be cut so, or the card not compute it."""
    try:
        return known(name, gpu, engine, shards)
    except UsageError:
        return None


def times(point: Point) -> tuple[float, float]:
    """Bound and expected time of what fits. [s]"""
    assert point.bound is not None
    assert point.expected is not None
    return point.bound, point.expected


def hold(point: Point, devices: int) -> None:
    """Hold every law of one point."""
    bound, expected = times(point)
    assert point.kernels is not None
    assert point.interval is not None
    low, high = point.interval

    for term in point.work.terms:
        assert term.expected >= term.bound * LESS, term
    assert bound * LESS <= point.kernels <= expected * MORE
    assert point.kernels + point.host == expected
    assert point.host >= 0
    assert bound <= low <= expected * MORE
    assert expected <= high
    assert 0 <= point.spread < 10
    if devices == 1:
        assert point.kernels == pytest.approx(sum(term.expected for term in point.work.terms), rel=1e-9)
    assert point.rate is not None
    assert point.expected_rate is not None
    assert point.expected_rate <= point.rate * MORE


@pytest.mark.parametrize("name", MODELS)
def test_every_point_keeps_to_the_laws(name: str) -> None:
    """A sweep: every term and point is at least its bound, intervals hold the time, kernels and host are all of it."""
    seen = 0
    for at, (gpu, engine) in enumerate(MACHINES):
        for turn, shards in enumerate(LAYOUTS):
            ready = possible(name, gpu, engine, shards) if (at + turn) % 8 == 0 else None  # an eighth, in turns
            for phase in PHASES if ready else ():
                for batch, context in POINTS:
                    assert ready is not None
                    hold(answer_point(ready, Asked(phase, batch, context)), shards.devices)
                    seen += 1
    assert seen >= 60


@given(models, machines, layouts, points)
def test_drawn_points_keep_to_the_laws(name: str, machine: tuple[str, str], shards: Shards, asked: Asked) -> None:
    """The same of whatever is drawn, a prompt in chunks among it."""
    ready = possible(name, *machine, shards)
    if ready is not None:
        hold(answer_point(ready, asked), shards.devices)
        hold(answer_point(ready, Asked("prefill", min(asked.batch, 4), asked.context, budget=512)), shards.devices)


@given(models, machines, st.sampled_from(ALONE), points, st.floats(1, 20))
def test_better_hardware_is_never_slower(
    name: str, machine: tuple[str, str], shards: Shards, asked: Asked, better: float
) -> None:
    """With the constants held neither bound nor expected time grows with bandwidth, or with the peak of any format."""
    ready = possible(name, *machine, shards)
    if ready is None:
        return
    roofs = ready.roofs
    bound, expected = times(answer_point(ready, asked))
    peaks = [{**roofs.peaks, form: peak * better} for form, peak in roofs.peaks.items()]

    for moved in (replace(roofs, bandwidth=roofs.bandwidth * better), *(replace(roofs, peaks=one) for one in peaks)):
        less, sooner = times(answer_point(on_roofs(ready, moved), asked))
        assert less <= bound * MORE
        assert sooner <= expected * MORE


@given(models, machines, BATCHES, CONTEXTS, st.floats(1, 20))
def test_better_hardware_never_slows_the_decode_of_a_pipeline(
    name: str, machine: tuple[str, str], batch: int, context: int, better: float
) -> None:
    """Turns of the slowest stage shrink too."""
    ready = possible(name, *machine, Shards(pp=2))
    if ready is not None:
        asked, roofs = Asked("decode", batch, context), ready.roofs
        moved = on_roofs(ready, replace(roofs, bandwidth=roofs.bandwidth * better))
        assert times(answer_point(moved, asked))[1] <= times(answer_point(ready, asked))[1] * MORE


@pytest.mark.parametrize("phase", ["prefill", "mixed"])
def test_better_hardware_is_never_slower_through_a_pipeline(phase: str) -> None:
    """The same of a prompt in pieces, and of parts that decode beside one."""
    ready = known("gemma-3-4b-it", "h200-sxm", "vllm", Shards(tp=4, pp=4))
    faster = on_roofs(ready, replace(ready.roofs, bandwidth=ready.roofs.bandwidth * 1.3))

    for batch, context in ((5, 1000), (1, 17)):
        asked = Asked(phase, batch, context)
        assert times(answer_point(faster, asked))[1] <= times(answer_point(ready, asked))[1] * MORE


@given(models, machines, st.sampled_from(ALONE), points, st.tuples(st.integers(0, 300), st.integers(0, 20_000)))
def test_more_is_never_sooner(
    name: str, machine: tuple[str, str], shards: Shards, asked: Asked, more: tuple[int, int]
) -> None:
    """Where the bound says that more sequences, or a longer context, take longer, the expected time does not fall.

    Mixed steps are apart: each further sequence takes a token of the budget from the chunk of a prompt.
    """
    ready = possible(name, *machine, shards)
    if ready is None or asked.phase == "mixed":
        return
    bound, expected = times(answer_point(ready, asked))
    for also in (replace(asked, batch=asked.batch + more[0]), replace(asked, context=asked.context + more[1])):
        least, longer = times(answer_point(ready, also))
        if least >= bound:
            assert longer >= expected * LESS


@given(models, machines, points)
def test_asking_again_gives_the_same(name: str, machine: tuple[str, str], asked: Asked) -> None:
    """Shapes whose times are kept are timed as at first."""
    ready = possible(name, *machine, Shards())
    if ready is not None:
        assert times(answer_point(ready, asked)) == times(answer_point(on_roofs(ready, ready.roofs), asked))


@given(st.floats(1e-6, 1e3), st.floats(0, 1), st.floats(0, 10))
def test_intervals_hold_the_time_they_are_of(expected: float, share: float, spread: float) -> None:
    """Bound <= low <= expected <= high, and both ends part with the spread."""
    bound = expected * share
    low, high = interval(expected, bound, spread)
    wider = interval(expected, bound, spread + 0.1)

    assert bound <= low <= expected <= high
    assert wider[0] <= low
    assert wider[1] > high


def test_the_sweep_meets_every_family() -> None:
    """Products, experts, both kinds of attention, element-wise work and exchanges all occur in it."""
    ready = known("deepseek-v3", "h200-sxm", "vllm", Shards(dp=4, ep=4))
    seen = {term.op.family for term in answer_point(ready, Asked("mixed", 64, 4096)).work.terms}

    assert seen | {"host", "step"} == set(FAMILIES)
    assert COLLECTIVE in seen
