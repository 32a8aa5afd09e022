"""The expected time of attention: hand-made numbers, and laws that hold whatever its constants are."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.expected.attention import (
    DecodeConstants,
    PrefillConstants,
    decode_seconds,
    prefill_seconds,
    unfilled_share,
)
from roofcast.calculators.expected.limits import Limits
from roofcast.modelspec.shapes import DecodeShape, PrefillShape

CARD = Limits(peak=1e15, bandwidth=4e12, sms=100.0)
EPSILON = 1 - 1e-9  # of rounding
PERFECT = DecodeConstants(0.0, 1.0, 1.0)
PROMPT = PrefillConstants(0.0, 1.0, 1.0)
# as fitted, on an H200
VLLM = DecodeConstants(t0=1.16e-5, ec=0.5, em=0.97, block=4e-6, ramp=1.6e-5, split=1.4e-6, unfilled=0.27)
FLASH = PrefillConstants(t0=1.2e-5, ec=0.7, em=0.54, block=2.6e-6, chain=4.3e-9, tile=128.0)


def decode(sequences: float, context: float, query_heads: float, kv_heads: float, width: float = 128.0) -> DecodeShape:
    """Grouped attention over a cache of 2 bytes an element."""
    pairs = sequences * context * width
    return DecodeShape(sequences, context, query_heads, kv_heads, width, 4 * pairs * kv_heads, 4 * pairs * query_heads)


def prompt(sequences: float, new: float, before: float, query_heads: float, kv_heads: float) -> PrefillShape:
    """Causal attention of a prompt, 128 elements a head, over a cache of 2 bytes an element."""
    pairs = sequences * (new * before + new * (new + 1) / 2) * 128
    state = 4 * sequences * (new + before) * kv_heads * 128
    return PrefillShape(sequences, new, before, query_heads, kv_heads, 128, state, 4 * pairs * query_heads)


counts = st.integers(1, 2048)
lengths = st.integers(1, 131072)
keys = st.integers(1, 64)
groups = st.integers(1, 16)
decodes = st.builds(
    lambda n, s, k, g, width: decode(n, s, k * g, k, width),
    counts,
    lengths,
    keys,
    groups,
    st.sampled_from((64, 128, 256)),
)
prompts = st.builds(
    lambda n, s, b, k, g: prompt(n, s, b, k * g, k), counts, lengths, st.just(0) | lengths, keys, groups
)
limits = st.builds(Limits, st.floats(1e12, 1e17), st.floats(1e10, 1e14), st.floats(1, 300))
shares = st.floats(0.01, 1)
times = st.floats(0, 1e-3)
decode_constants = st.builds(
    DecodeConstants,
    t0=times, ec=shares, em=shares, block=times, ramp=times, split=times, unfilled=st.floats(0, 1),
    widest=st.just(inf) | st.integers(1, 64), alone_t0=times, alone_ec=shares, alone_em=st.just(0.0) | shares,
    alone_block=times, alone_ramp=times, alone_split=times, alone_unfilled=st.floats(0, 1),
    alone_splits=st.just(inf) | st.integers(1, 64),
)  # fmt: skip
prefill_constants = st.builds(
    PrefillConstants,
    t0=times, ec=shares, em=shares, block=times, chain=st.floats(0, 1e-6), tile=st.integers(1, 256),
    packs=st.sampled_from((0.0, 1.0)),
)  # fmt: skip


def bound(shape: DecodeShape | PrefillShape, card: Limits) -> float:
    """The roofline. [s]"""
    return max(shape.flops / card.peak, shape.state_bytes / card.bandwidth)


# --- laws


@given(decodes, limits, decode_constants)
def test_no_constants_of_decode_beat_the_bound(shape: DecodeShape, card: Limits, c: DecodeConstants) -> None:
    """Expected >= bound: every share is at most 1, every addend at least 0."""
    assert decode_seconds(shape, card, c) >= bound(shape, card) * EPSILON


@given(prompts, limits, prefill_constants)
def test_no_constants_of_prefill_beat_the_bound(shape: PrefillShape, card: Limits, c: PrefillConstants) -> None:
    """Expected >= bound: every share is at most 1, every addend at least 0."""
    assert prefill_seconds(shape, card, c) >= bound(shape, card) * EPSILON


@given(decodes, limits, decode_constants, st.floats(1, 10), st.floats(1, 10))
def test_decode_is_never_slower_on_a_better_device(
    shape: DecodeShape, card: Limits, c: DecodeConstants, peak: float, bandwidth: float
) -> None:
    """With the constants held, time does not grow with peak or bandwidth."""
    better = Limits(card.peak * peak, card.bandwidth * bandwidth, card.sms)
    assert decode_seconds(shape, better, c) * EPSILON <= decode_seconds(shape, card, c)


@given(prompts, limits, prefill_constants, st.floats(1, 10), st.floats(1, 10))
def test_prefill_is_never_slower_on_a_better_device(
    shape: PrefillShape, card: Limits, c: PrefillConstants, peak: float, bandwidth: float
) -> None:
    """With the constants held, time does not grow with peak or bandwidth."""
    better = Limits(card.peak * peak, card.bandwidth * bandwidth, card.sms)
    assert prefill_seconds(shape, better, c) * EPSILON <= prefill_seconds(shape, card, c)


@given(counts, lengths, keys, groups, limits, decode_constants, counts, lengths)
def test_more_to_read_is_never_quicker(  # noqa: PLR0913, PLR0917
    n: int, s: int, k: int, g: int, card: Limits, c: DecodeConstants, others: int, longer: int
) -> None:
    """Time of decode does not fall with sequences or context."""
    least = decode_seconds(decode(n, s, k * g, k), card, c) * EPSILON
    assert decode_seconds(decode(n + others, s, k * g, k), card, c) >= least
    assert decode_seconds(decode(n, s + longer, k * g, k), card, c) >= least


@given(counts, lengths, lengths, keys, groups, limits, prefill_constants, counts)
def test_more_to_compute_is_never_quicker(  # noqa: PLR0913, PLR0917
    n: int, s: int, b: int, k: int, g: int, card: Limits, c: PrefillConstants, more: int
) -> None:
    """Time of prefill does not fall with sequences, new tokens or those before."""
    least = prefill_seconds(prompt(n, s, b, k * g, k), card, c) * EPSILON
    assert prefill_seconds(prompt(n + more, s, b, k * g, k), card, c) >= least
    assert prefill_seconds(prompt(n, s + more, b, k * g, k), card, c) >= least
    assert prefill_seconds(prompt(n, s, b + more, k * g, k), card, c) >= least


@given(st.floats(1e-4, 1e4), st.floats(1e-4, 1e4), st.just(inf) | st.integers(1, 64))
def test_idle_time_never_makes_more_blocks_quicker(blocks: float, more: float, splits: float) -> None:
    """b (1 + u(b)) does not fall with b."""
    least = blocks * (1 + unfilled_share(blocks, splits))
    assert (blocks + more) * (1 + unfilled_share(blocks + more, splits)) >= least * EPSILON


# --- numbers by hand


def test_a_perfect_decode_is_its_bytes() -> None:
    """Cache 4 x 1024 x 8 x 128 x 100 B, queries and outputs 4 x 100 x 32 x 128 B, at 4 TB/s."""
    assert decode_seconds(decode(100, 1024, 32, 8), CARD, PERFECT) == pytest.approx((419430400 + 1638400) / 4e12)


def test_many_query_heads_are_bound_by_compute() -> None:
    """4 x 64 x 4096 x 512 x 128 FLOP at a tenth of 1 PFLOP/s are more than their bytes take."""
    shape = decode(64, 4096, 128, 1, 512)
    assert decode_seconds(shape, CARD, replace(PERFECT, ec=0.1)) == pytest.approx(4 * 64 * 4096 * 512 * 128 / 1e14)


@pytest.mark.parametrize(("batch", "waves"), [(100, 1 / 2), (300, 9 / 4)])
def test_blocks_follow_one_another(batch: int, waves: float) -> None:
    """One token each, b = 1 and 3 blocks a multiprocessor: b^2 / (1 + b) times 1 ms, beside which data is nothing."""
    found = decode_seconds(decode(batch, 1, 1, 1), CARD, replace(PERFECT, block=1e-3))
    assert found == pytest.approx(waves * 1e-3, rel=1e-4)


def test_wide_groups_take_two_blocks() -> None:
    """200 query heads of a KV head do not fit the 128 rows of a block: b = 2."""
    found = decode_seconds(decode(100, 1, 200, 1), CARD, replace(PERFECT, block=1e-3))
    assert found == pytest.approx(4 / 3 * 1e-3, rel=1e-3)


def test_the_ramp_is_half_spent_at_50_us() -> None:
    """200 MB at 4 TB/s are 50 us: half of a ramp of 10 us is added."""
    shape = DecodeShape(1, 1000, 0, 1, 128, 2e8, 0.0)
    assert decode_seconds(shape, CARD, replace(PERFECT, ramp=1e-5)) == pytest.approx(55e-6)


def test_splits_are_half_paid_at_256_tokens() -> None:
    """Of 8 us, 4 at 256 tokens, none without context: a recurrent state is not split."""
    shape = DecodeShape(1, 256, 0, 1, 128, 0.0, 0.0)
    c = replace(PERFECT, split=8e-6)
    assert decode_seconds(shape, CARD, c) == pytest.approx(4e-6)
    assert decode_seconds(replace(shape, context=0), CARD, c) == 0.0


def test_idle_multiprocessors_take_their_share() -> None:
    """Three blocks for every two multiprocessors take two waves, 4/3 as long; at half of the loss 7/6."""
    shape = DecodeShape(150, 1000, 1, 1, 0, 4e8, 0.0)
    assert decode_seconds(shape, CARD, replace(PERFECT, unfilled=0.5)) == pytest.approx(100e-6 * 7 / 6)


@pytest.mark.parametrize(
    ("heads", "kv_heads", "own"), [(8, 8, True), (16, 8, False), (32, 1, False), (48, 1, True), (64, 1, True)]
)
def test_kernels_without_groups_have_their_own_constants(heads: int, kv_heads: int, own: bool) -> None:
    """Heads that are no groups, and groups of more than 32, are another kernel's."""
    c = replace(PERFECT, t0=1.0, widest=32.0, alone_t0=2.0, alone_em=1.0)
    assert decode_seconds(decode(1, 16, heads, kv_heads), CARD, c) == pytest.approx(2.0 if own else 1.0, rel=1e-6)


def test_a_kernel_that_does_not_split_leaves_most_of_a_device_idle() -> None:
    """One block on 100 multiprocessors takes 100 times as long as on all of them."""
    c = replace(PERFECT, alone_em=1.0, alone_unfilled=1.0, alone_splits=1.0)
    shape = decode(1, 65536, 1, 1)
    assert decode_seconds(shape, CARD, c) == pytest.approx(100 * decode_seconds(shape, CARD, PERFECT))


def test_the_diagonal_is_computed_whole() -> None:
    """Half a tile of 128 keys more for every row: 2 x 4096 x 127 x 32 x 128 FLOP beside 2 x 4096 x 4097 x 32 x 128."""
    c = replace(PROMPT, tile=128.0)
    extra = prefill_seconds(prompt(1, 4096, 0, 32, 8), CARD, c) - prefill_seconds(
        prompt(1, 4096, 0, 32, 8), CARD, PROMPT
    )
    assert extra == pytest.approx(2 * 4096 * 127 * 32 * 128 / 1e15)


@pytest.mark.parametrize(("packs", "blocks"), [(1.0, 8), (0.0, 32)])
def test_short_prompts_pack_their_heads(packs: float, blocks: int) -> None:
    """16 tokens of four heads share a block of 128 rows, or each head has its own."""
    found = prefill_seconds(prompt(1, 16, 0, 32, 8), CARD, replace(PROMPT, block=1.0, packs=packs))
    assert found == pytest.approx(blocks / 100, rel=1e-3)


@pytest.mark.parametrize(
    ("new", "before", "keys_read"), [(4096, 0, 4096), (4096, 100_000, 104_096), (16, 100_000, 8016)]
)
def test_the_last_blocks_read_the_longest_row(new: int, before: int, keys_read: int) -> None:
    """Keys in the cache are split over multiprocessors where blocks are fewer: 8 of 100 read 8 % of them each."""
    found = prefill_seconds(prompt(1, new, before, 32, 8), CARD, replace(PROMPT, chain=1.0))
    assert found == pytest.approx(keys_read, rel=1e-3)


def test_a_window_bounds_the_longest_row() -> None:
    """Where a token sees 1,024 keys in the mean, no block reads more than twice as many."""
    whole = prompt(1, 65536, 0, 32, 8)
    seen = replace(whole, flops=4 * 65536 * 1024 * 32 * 128)
    assert prefill_seconds(seen, CARD, replace(PROMPT, chain=1.0)) == pytest.approx(2048, rel=1e-3)


# --- what other shapes than the fitted ones give


def test_absorbed_latent_attention_is_near_its_roofs() -> None:
    """128 query heads of one latent of 512 + 64: at most 2.5 times the bound at a real size, and no less than it."""
    tokens = 64 * 8192
    shape = DecodeShape(64, 8192, 128, 1, 512, tokens * 576 * 2, tokens * 2 * 128 * (576 + 512))
    least = bound(shape, Limits(989.4e12, 4.8e12, 132))
    assert least < decode_seconds(shape, Limits(989.4e12, 4.8e12, 132), VLLM) < 2.5 * least


def test_a_recurrent_state_costs_its_bytes_and_a_launch() -> None:
    """No context: neither splits nor a division by heads that are none."""
    shape = DecodeShape(1, 0, 0, 0, 64, 4e6, 1e6)
    assert 12e-6 < decode_seconds(shape, CARD, VLLM) < 14e-6


def test_a_prompt_of_a_recurrent_layer_has_a_time() -> None:
    """Work that grows with tokens, no KV heads."""
    shape = PrefillShape(1, 4096, 0, 0, 0, 64, 4e6, 1e9)
    assert 12e-6 < prefill_seconds(shape, CARD, FLASH) < 1e-4


def test_a_chunk_behind_100k_tokens_is_near_its_work() -> None:
    """2,048 tokens behind 100,000: between 1 / 0.7 and twice the bound."""
    shape = prompt(1, 2048, 100_000, 32, 8)
    assert 1.4 < prefill_seconds(shape, CARD, FLASH) / bound(shape, CARD) < 2
