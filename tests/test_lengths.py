"""Distributions of lengths: what their texts mean, what is drawn of them, and which texts are none."""

from __future__ import annotations

import math
from random import Random
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.lengths import Apart, Fixed, LogNormal, Uniform, pairs_of, parse_lengths
from roofcast.calculators.serving.trace_rows import MOST_TOKENS

DRAWS = 20_000


def chance(seed: int) -> Random:
    """Chance that can be repeated."""
    return Random(seed)  # noqa: S311 - no secret


def drawn(text: str, seed: int = 1, count: int = DRAWS) -> list[int]:
    """Lengths of a text."""
    lengths, random = parse_lengths(text), chance(seed)
    return [lengths.draw(random) for _ in range(count)]


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("1024", Fixed(1024)),
        ("4k", Fixed(4096)),
        (" 7 ", Fixed(7)),
        ("uniform:100-2000", Uniform(100, 2000)),
        ("uniform:1k-2k", Uniform(1024, 2048)),
        ("Uniform: 5 - 5", Uniform(5, 5)),
        ("lognormal:161:0.8", LogNormal(161, 0.8)),
        ("lognormal:1.5k:0", LogNormal(1536, 0)),
        ("lognormal:161.5:2", LogNormal(161.5, 2)),
    ],
)
def test_texts(text: str, lengths: object) -> None:
    """Numbers are tokens, with k for 1024, in every kind."""
    assert parse_lengths(text) == lengths


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no number of tokens"),
        ("0", "is no number of tokens"),
        ("-5", "is no number of tokens"),
        ("many", "'many' is no number of tokens; write lengths like 1024, uniform:100-2000 or lognormal:161:0.8"),
        ("2000m", "a request has at most 1,073,741,824 tokens"),
        ("zipf:5", "'zipf' is no kind of lengths"),
        ("uniform:100", "it has no end; write it like uniform:100-2000"),
        ("uniform:0-5", "'0' is no number of tokens"),
        ("uniform:5-", "'' is no number of tokens"),
        ("uniform:9-5", "it ends below its beginning"),
        ("lognormal:161", "it has no sigma; write it like lognormal:161:0.8"),
        ("lognormal:0.5:1", "the mean must be from 1 to"),
        ("lognormal:1e12:1", "the mean must be from 1 to"),
        ("lognormal:161:-1", "sigma, the standard deviation of the logarithm, must be a number from 0 to 5"),
        ("lognormal:161:nan", "must be a number from 0 to 5"),
        ("lognormal:161:6", "must be a number from 0 to 5"),
        ("lognormal:161:0.8:2", "must be a number from 0 to 5"),
        ("lognormal:inf:1", "'inf' is no number of tokens"),
    ],
)
def test_no_texts(text: str, said: str) -> None:
    """What is no distribution is refused with what would be one."""
    with pytest.raises(UsageError) as caught:
        parse_lengths(text)

    assert said in str(caught.value)


def test_long_texts_are_cut() -> None:
    """A complaint does not repeat a text of any length."""
    with pytest.raises(UsageError) as caught:
        parse_lengths("9x" * 10_000)

    assert len(str(caught.value)) < 400


def test_a_fixed_length_is_always_the_same() -> None:
    """One number, drawn as often as you like."""
    assert set(drawn("1k", count=50)) == {1024}
    assert Fixed(1024).mean == 1024


def test_uniform_has_both_ends() -> None:
    """Each of 3 to 6 comes about as often; the mean is 4.5."""
    found = drawn("uniform:3-6")

    counts = [found.count(each) for each in (3, 4, 5, 6)]
    assert sum(counts) == DRAWS
    assert all(abs(count - DRAWS / 4) < 5 * math.sqrt(DRAWS * 3 / 16) for count in counts)
    assert Uniform(3, 6).mean == 4.5


def test_lognormal_has_its_mean_and_sigma() -> None:
    """Mean 161 and sigma 0.8: mu = ln 161 - 0.32 = 4.7614, and the median e^mu = 116.9."""
    found = drawn("lognormal:161:0.8")

    logarithms = [math.log(each) for each in found]
    spread = 161 * math.sqrt(math.expm1(0.64))  # of the distribution itself
    assert LogNormal(161, 0.8).mu == pytest.approx(5.0814 - 0.32, abs=1e-4)
    assert fmean(found) == pytest.approx(161, abs=5 * spread / math.sqrt(DRAWS))
    assert fmean(logarithms) == pytest.approx(4.7614, abs=5 * 0.8 / math.sqrt(DRAWS))
    assert pstdev(logarithms) == pytest.approx(0.8, abs=0.02)
    assert sorted(found)[DRAWS // 2] == pytest.approx(116.9, abs=3)


@given(st.integers(1, MOST_TOKENS), st.floats(0, 5), st.integers())
def test_lengths_are_lengths(mean: int, sigma: float, seed: int) -> None:
    """Whatever is drawn is a whole number of tokens that a request can have."""
    found = LogNormal(mean, sigma).draw(chance(seed))

    assert isinstance(found, int)
    assert 1 <= found <= MOST_TOKENS


@given(st.integers(1, 10_000), st.integers(0, 10_000), st.integers())
def test_uniform_keeps_its_range(least: int, width: int, seed: int) -> None:
    """Nothing is drawn below the first or above the last."""
    random = chance(seed)

    assert all(least <= Uniform(least, least + width).draw(random) <= least + width for _ in range(20))


@pytest.mark.parametrize("text", ["uniform:1-1000", "lognormal:500:1"])
def test_the_same_seed_draws_the_same(text: str) -> None:
    """Same seed, same lengths; another seed, others."""
    assert drawn(text, 3, 20) == drawn(text, 3, 20)
    assert drawn(text, 3, 20) != drawn(text, 4, 20)


def test_pairs_stay_together() -> None:
    """A prompt of a trace is drawn with its own output; each as often as the others."""
    jobs = [Job(0.0, 10, 1), Job(1.0, 20, 2), Job(2.0, 30, 3)]
    pairs, random = pairs_of(jobs, "x.csv"), chance(5)

    found = [pairs.pair(random) for _ in range(3000)]

    assert set(found) == {(10, 1), (20, 2), (30, 3)}
    assert all(abs(found.count(pair) - 1000) < 5 * math.sqrt(3000 * 2 / 9) for pair in set(found))


def test_prompts_and_outputs_apart() -> None:
    """Without a trace each is drawn by itself."""
    assert Apart(Fixed(5), Fixed(6), "").pair(chance(0)) == (5, 6)
