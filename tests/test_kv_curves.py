"""Curves of cache against context: hand-checked numbers, where they begin and end, and that lines between are faithful."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from roofcast.calculators.cache import cache_bytes
from roofcast.calculators.kv_curves import KvCurve, KvCurves, curve_contexts, kv_curve
from roofcast.modelspec.formats import FORMATS
from tests.checkpoints import MISTRAL_7B_V0_1, TINY, TINY_KV, TINY_PARAMETERS, catalogued, loaded

BF16 = FORMATS["bf16"]
# bytes a token by hand: layers x 2 x KV heads x width x 2; of MLA layers x (512 + 64) x 2
GROWTH = {"llama-3.1-8b": 131_072, "llama-2-7b": 524_288, "deepseek-v3": 70_272}
MANY = (
    "llama-3.1-8b", "gemma-3-27b-it", "deepseek-v3.2", "deepseek-v4-pro", "falcon-mamba-7b", "gpt-oss-20b",
    "falcon-h1-7b", "exaone-4.0-32b", "gpt2", "granite-4.0-h-small", "recurrentgemma-2b",
)  # fmt: skip


def curve(name: str, kv: str = "bf16") -> KvCurve:
    """Return the curve of a model of the catalogue, its weights as stored."""
    return kv_curve(catalogued(name), weights=None, kv=FORMATS[kv])


@pytest.mark.parametrize("name", GROWTH)
def test_a_cache_grows_by_its_bytes_a_token(name: str) -> None:
    """Every point is context x bytes a token."""
    made = curve(name)

    assert made.cache_bytes == [context * GROWTH[name] for context in made.contexts]


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [("llama-3.1-8b", 1024, 131072), ("llama-2-7b", 1024, 4096), ("gpt2", 256, 1024), ("deepseek-v3", 1024, 163840)],
)
def test_a_curve_ends_at_the_longest_context(name: str, first: int, last: int) -> None:
    """It begins at 1,024, or two octaves below the maximum of a small model."""
    made = curve(name)

    assert (made.contexts[0], made.contexts[-1], made.max_context) == (first, last, last)


def test_a_model_without_a_maximum_ends_at_128k() -> None:
    """A recurrent model that states none keeps as much anywhere."""
    made = curve("falcon-mamba-7b")

    assert made.max_context is None
    assert made.contexts[-1] == 131072
    assert len(set(made.cache_bytes)) == 1


def test_a_window_bends_a_curve() -> None:
    """Mistral 7B v0.1 keeps 4,096 tokens of 128 KiB in every layer, and no more."""
    made = kv_curve(loaded(MISTRAL_7B_V0_1 | {"sliding_window": 3000}), weights=None, kv=BF16)
    sizes = dict(zip(made.contexts, made.cache_bytes, strict=True))

    assert sizes[2048] == 2048 * 131072
    assert {sizes[context] for context in made.contexts if context >= 3000} == {3000 * 131072}
    assert 3000 in sizes


def test_mixed_windows_bend_and_go_on() -> None:
    """Of gemma-3-27b 52 of 62 layers stop at 1,024 tokens: 416 MiB and 80 KiB for every token."""
    made = curve("gemma-3-27b-it")

    assert made.cache_bytes == [416 * 2**20 + context * 80 * 1024 for context in made.contexts]


def test_the_weights_are_reached_where_the_cache_is_as_large() -> None:
    """llama-3.1-8b has 16,060,522,496 bytes: 122,532.06 tokens of 131,072."""
    made = curve("llama-3.1-8b")

    assert made.weight_bytes == 16_060_522_496
    assert made.equal_context == 122_533 == -(-16_060_522_496 // 131_072)


def test_an_equal_context_is_the_least() -> None:
    """A tiny model has 74,560 x 2 B of weights and 256 B a token: 582.5 tokens."""
    made = kv_curve(loaded(TINY | {"max_position_embeddings": 600}), weights=None, kv=BF16)

    assert TINY_KV * 583 >= 2 * TINY_PARAMETERS > TINY_KV * 582
    assert made.equal_context == 583


def test_a_cache_that_is_larger_from_the_first_is_nowhere_equal() -> None:
    """Its curve begins above the weights, at 1,024 tokens."""
    made = kv_curve(loaded(TINY | {"max_position_embeddings": 4096}), weights=None, kv=BF16)

    assert made.cache_bytes[0] == 1024 * TINY_KV > 2 * TINY_PARAMETERS
    assert made.equal_context is None


@pytest.mark.parametrize("name", ["llama-2-7b", "deepseek-v3", "falcon-mamba-7b"])
def test_no_equal_context_beyond_the_curve(name: str) -> None:
    """Where no sequence of the model keeps as much as its weights, there is none."""
    made = curve(name)

    assert made.equal_context is None
    assert made.cache_bytes[-1] < (made.weight_bytes or 0)


def test_a_narrow_cache_is_smaller() -> None:
    """FP8 halves every point and says so."""
    wide, narrow = curve("llama-3.1-8b"), curve("llama-3.1-8b", "fp8")

    assert narrow.kv_format == "fp8"
    assert [2 * size for size in narrow.cache_bytes] == wide.cache_bytes


@pytest.mark.parametrize("name", MANY)
def test_straight_lines_between_points_are_faithful(name: str) -> None:
    """On logarithmic axes no context between two points is more than 2 % off the line, and none shrinks."""
    model = catalogued(name)
    made = kv_curve(model, weights=None, kv=BF16)

    for (low, small), (high, large) in pairwise(zip(made.contexts, made.cache_bytes, strict=True)):
        assert small <= large
        for middle in {round(low * (high / low) ** (n / 5)) for n in range(1, 5)}:
            line = small * (large / small) ** (math.log(middle / low) / math.log(high / low))
            assert cache_bytes(model.spec, BF16, middle) == pytest.approx(line, rel=0.02), (low, middle, high)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 100, 1000, 4095, 4096, 4097, 10**7])
def test_contexts_rise_and_end_at_the_maximum(most: int) -> None:
    """Whatever the maximum, contexts are whole, rise, and end there."""
    contexts = curve_contexts(loaded(TINY | {"max_position_embeddings": most}).spec, BF16)

    assert contexts == sorted(set(contexts))
    assert contexts[0] >= 1
    assert contexts[-1] == most


def test_memory_is_of_all_devices() -> None:
    """Memory of one, times how many there are; none where none is asked about."""
    assert KvCurves([], 80e9, "h100-sxm", 4).whole_memory == 320e9
    assert KvCurves([]).whole_memory is None


def test_weights_may_be_asked_for_in_another_format() -> None:
    """FP8 weights are a byte a parameter."""
    from roofcast.modelspec.requested import find_requested

    made = kv_curve(catalogued("llama-3.1-8b"), weights=find_requested("fp8"), kv=BF16)

    assert made.weight_bytes == 8_030_261_248
