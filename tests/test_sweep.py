"""Decode over batches: each limit by itself, the bound, what is expected; against `estimate`, by hand, and as drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.deployment import Deployment, prepare
from roofcast.calculators.estimate import estimate_result
from roofcast.calculators.expected.expectation import expectation_for
from roofcast.calculators.phases import Asked, most_sequences
from roofcast.calculators.sweep import Sweep, sweep, sweep_batches
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import catalogued
from tests.running import refused, roofcast

if TYPE_CHECKING:
    from pathlib import Path

    from roofcast.calculators.deployment import Ready

ONE = Shards()
# a dense model alone and cut in every way, a mixture of experts, a latent cache, windows, a recurrent state
SETUPS = {
    "dense": ("llama-3.1-8b", "h100-sxm", ONE, 1024),
    "links": ("llama-3.1-70b", "h100-sxm", Shards(4), 8192),
    "stages": ("llama-3.1-70b", "h100-sxm", Shards(2, 2), 8192),
    "replicas": ("llama-3.1-8b", "h100-sxm", Shards(1, 1, 1, 2), 4096),
    "experts": ("qwen3-30b-a3b", "h200-sxm", ONE, 4096),
    "latent": ("deepseek-v3", "h200-sxm", Shards(8), 4096),
    "windows": ("gemma-3-27b-it", "h100-sxm", ONE, 32768),
    "state": ("falcon-mamba-7b", "h100-sxm", ONE, 4096),
}


def ready_of(model: str, gpu: str, shards: Shards = ONE, *, expected: bool = True) -> Ready:
    """Return a model on devices of their own memory, with the project's constants where times are expected."""
    ready = prepare(catalogued(model), Deployment(find_accelerator(gpu).accelerator, FORMATS["bf16"], shards=shards))
    return replace(ready, expectation=expectation_for(ready)) if expected else ready


def swept(name: str, *, expected: bool = True) -> tuple[Ready, Sweep]:
    """Return a set-up and its sweep over all batches that fit, and one that does not."""
    model, gpu, shards, context = SETUPS[name]
    ready = ready_of(model, gpu, shards, expected=expected)
    most = most_sequences(ready, context)
    return ready, sweep(ready, context, [*sweep_batches(most), 2 * most + 2])


def test_llama_8b_by_hand() -> None:
    """Bytes over 3.35 TB/s and FLOP over 989.4 TFLOP/s, counted from the published dimensions.

    A layer has h^2 for queries and outputs each, 2 h 1,024 for keys and values, 3 h 14,336 of feed-forward; the head
    V h; 65 norms h. The input embedding is one row a token. The cache is 2 x 8 x 128 x 2 B a layer and token.
    """
    h, layers, context = 4096, 32, 1024
    matrices = layers * (2 * h * h + 2 * h * 1024 + 3 * h * 14336) + 128256 * h
    [one, ten] = sweep(ready_of("llama-3.1-8b", "h100-sxm"), context, [1, 10]).points
    for point in (one, ten):
        batch = point.batch
        moved = 2 * (matrices + 65 * h + batch * h) + batch * context * layers * 2 * 8 * 128 * 2
        flops = batch * (2 * matrices + layers * 4 * 32 * 128 * context + 2 * 65 * h)

        assert point.memory_seconds == pytest.approx(moved / 3.35e12, rel=1e-12)
        assert point.compute_seconds == pytest.approx(flops / 989.4e12, rel=1e-12)
        assert point.bound_seconds == point.memory_seconds  # every operation waits for memory
        assert point.link_seconds == 0.0
    assert round((one.memory_seconds or 0.0) * 1e3, 2) == 4.52


@pytest.mark.parametrize("name", SETUPS)
def test_a_point_is_what_estimate_answers(name: str) -> None:
    """Bound, expected time, interval and rates are those of the same row of `estimate`, to the last digit."""
    ready, made = swept(name)
    rows, _ = estimate_result(ready, [Asked("decode", point.batch, made.context) for point in made.points])

    for point, row in zip(made.points, rows.phases, strict=True):
        assert point.fits == row.fits
        assert point.bound_seconds == row.bound_seconds
        assert (point.expected_seconds, point.low_seconds, point.high_seconds) == (
            row.expected_seconds,
            row.low_seconds,
            row.high_seconds,
        )
        assert point.tokens_per_second == row.tokens_per_second
        assert point.expected_tokens_per_second == row.expected_tokens_per_second
    assert made.reason == rows.phases[-1].reason


@pytest.mark.parametrize("name", SETUPS)
def test_the_bound_lies_between_each_limit_and_their_sum(name: str) -> None:
    """A sum of maxima is no less than any of the sums, and no more than all of them together."""
    for point in swept(name)[1].fitting:
        limits = (point.memory_seconds, point.compute_seconds, point.link_seconds)
        known = [limit for limit in limits if limit is not None]

        assert len(known) == 3
        assert point.bound_seconds is not None
        assert max(known) <= point.bound_seconds * (1 + 1e-12)
        assert point.bound_seconds <= sum(known) * (1 + 1e-12)


@pytest.mark.parametrize("name", SETUPS)
def test_expected_lies_in_its_interval_above_the_bound(name: str) -> None:
    """Bound <= low <= expected <= high."""
    for point in swept(name)[1].fitting:
        times = (point.bound_seconds, point.low_seconds, point.expected_seconds, point.high_seconds)
        known = [time for time in times if time is not None]

        assert len(known) == 4
        assert known == sorted(known)


@pytest.mark.parametrize("name", SETUPS)
def test_more_sequences_are_never_faster_each_and_always_more_together(name: str) -> None:
    """Time of a step does not fall with the batch, nor do tokens a second at the bound: those expected may, past a tile."""
    for one, more in pairwise(swept(name)[1].fitting):
        for attribute in ("bound_seconds", "memory_seconds", "compute_seconds", "link_seconds", "expected_seconds"):
            assert getattr(one, attribute) <= getattr(more, attribute) * (1 + 1e-12), attribute
        assert one.tokens_per_second is not None
        assert more.tokens_per_second is not None
        assert one.tokens_per_second <= more.tokens_per_second * (1 + 1e-12)


@pytest.mark.parametrize("name", SETUPS)
def test_links_take_time_where_there_are_several_gpus(name: str) -> None:
    """Exchanges are a limit of their own: between GPUs that share a layer or its stages, and nowhere else."""
    linked = SETUPS[name][2].joined > 1

    assert all(bool(point.link_seconds) == linked for point in swept(name)[1].fitting)


@pytest.mark.parametrize("name", SETUPS)
def test_what_does_not_fit_has_no_times(name: str) -> None:
    """The last batch is twice what fits: every time is null, the reason and the most that fit are told."""
    ready, made = swept(name)
    last = made.points[-1]

    assert [point.fits for point in made.points] == [True] * (len(made.points) - 1) + [False]
    assert made.most_sequences == made.points[-2].batch == most_sequences(ready, made.context)
    assert made.reason
    assert f"{last.batch:,} x {made.context:,} tokens" in made.reason
    assert {getattr(last, name) for name in last.__slots__ if name not in {"batch", "fits"}} == {None}
    assert (last.seconds, last.rate) == (None, None)


def test_bounds_alone_without_constants() -> None:
    """No expected time, no interval, no expected rate; the bound then is the time to judge by."""
    made = swept("dense", expected=False)[1]
    point = made.points[0]

    assert not made.fitted
    assert (point.expected_seconds, point.low_seconds, point.high_seconds) == (None, None, None)
    assert point.expected_tokens_per_second is None
    assert (point.seconds, point.rate) == (point.bound_seconds, point.tokens_per_second)


def test_the_limit_is_met_by_the_most_sequences_that_stay_within() -> None:
    """Judged by the expected time where there is one; by none where even one sequence is too slow, or nobody asks."""
    ready = ready_of("llama-3.1-8b", "h100-sxm")
    times = {p.batch: p.expected_seconds for p in sweep(ready, 4096, [1, 16, 64, 128]).points}
    limit = times[64]
    assert limit is not None

    at = sweep(ready, 4096, [128, 1, 64, 16], limit)
    below = sweep(ready, 4096, [1, 16, 64, 128], limit * 0.999)
    none = sweep(ready, 4096, [1, 16, 64, 128], 1e-3)

    assert at.within_limit is not None
    assert at.within_limit.batch == 64
    assert below.within_limit is not None
    assert below.within_limit.batch == 16
    assert none.within_limit is None
    assert sweep(ready, 4096, [1]).within_limit is None


def test_batches_are_answered_once_each_in_order() -> None:
    """However they are asked for."""
    made = sweep(ready_of("gpt2", "h100-sxm"), 512, [8, 1, 8, 4])

    assert [point.batch for point in made.points] == [1, 4, 8]


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 8, 9, 100, 1 << 30])
def test_batches_double_up_to_the_most(most: int) -> None:
    """Each is twice the one before but the last, which is the most itself; one where nothing fits."""
    got = sweep_batches(most)

    assert got[0] == 1
    assert got[-1] == max(1, most)
    assert all(more == 2 * one for one, more in pairwise(got[:-1]))
    assert got[-1] <= 2 * (got[-2] if len(got) > 1 else 1)
    assert len(set(got)) == len(got)


def drawn(tmp_path: Path, *arguments: str) -> tuple[str, str]:
    """Return the text and the SVG of an `estimate` that draws."""
    file = tmp_path / "x.svg"
    outcome = roofcast("estimate", *arguments, "--out", str(file))
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out, file.read_text(encoding="utf-8")


def batches_of(text: str) -> list[int]:
    """Return the batches of the table that a chart is drawn from."""
    table = text.partition("each limit by itself")[2].partition("\n\n")[0]
    firsts = [row.split()[0].replace(",", "") for row in table.splitlines() if row.strip()]
    return [int(first) for first in firsts if first.isdigit()]


def test_estimate_draws_decode_up_to_the_most_that_fit(tmp_path: Path) -> None:
    """At the first context; the chart's numbers stand in a table of the text."""
    text, svg = drawn(tmp_path, "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "4k,8k")

    assert batches_of(text) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert "decode at 4k: each limit by itself" in text
    assert "llama-3.1-8b on h100-sxm, 4k tokens each" in svg
    assert "no more than 128" in svg


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("--batch", "1,5,40"), [1, 5, 40]),
        (("--batch", "6"), [1, 2, 4, 6]),
        (("--batch", "100,200"), [100, 200]),
        (("--phase", "decode", "--max-num-batched-tokens", "100"), [1, 2, 4, 8, 16, 32, 64, 100]),
    ],
)
def test_estimate_draws_the_batches_that_are_asked(asked: tuple[str, ...], expected: list[int], tmp_path: Path) -> None:
    """Those asked; up to the one that is; never more than a step takes."""
    assert batches_of(drawn(tmp_path, "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "4k", *asked)[0]) == expected


def test_nothing_more_is_reckoned_without_a_picture(tmp_path: Path) -> None:
    """Text and JSON are those of ever, text in a file of any name too."""
    file = tmp_path / "x.html"
    assert roofcast("estimate", "gpt2", "--gpu", "h100-sxm", "--format", "text", "--out", str(file)).code == 0
    assert "each limit by itself" not in file.read_text(encoding="utf-8")
    assert "each limit by itself" not in roofcast("estimate", "gpt2", "--gpu", "h100-sxm").out
    assert (
        "points" not in json.loads(roofcast("estimate", "gpt2", "--gpu", "h100-sxm", "--format", "json").out)["result"]
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--phase", "prefill", "--out", "x.png"), ("the chart is of decode", "--phase prefill")),
        (("--phase", "mixed", "--out", "x.svg"), ("the chart is of decode",)),
        (("--format", "json", "--out", "x.png"), ("--format json", "a file that ends in .png is a chart")),
        (("--out", "x.gif"), ("'.gif' names no format", ".png, .svg")),
        (("--out", "nowhere/x.png"), ("a folder that exists",)),
    ],
)
def test_what_estimate_refuses_to_draw(
    arguments: tuple[str, ...], said: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line that says what would be right, and no file."""
    monkeypatch.chdir(tmp_path)

    refused(roofcast("estimate", "gpt2", "--gpu", "h100-sxm", *arguments), 2, *said)
    assert list(tmp_path.iterdir()) == []


def test_strict_draws_nothing_that_is_assumed(tmp_path: Path) -> None:
    """The engine is not named, so that its constants are assumed; bounds are drawn."""
    file = tmp_path / "x.png"
    common = ("estimate", "llama-3.1-8b", "--gpu", "h100-sxm", "--context", "4k", "--strict", "--out", str(file))

    refused(roofcast(*common), 3, "--strict refuses", "no engine is named")
    assert not file.exists()
    assert roofcast(*common, "--efficiency", "bound").code == 0
    assert file.exists()
