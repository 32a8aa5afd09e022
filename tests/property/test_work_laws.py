"""Laws of weights and work: of attention kinds and their pairs, feed-forward kinds, and number formats."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.cross import CrossAttention
from roofcast.modelspec.ffn import FeedForward, MoeFeedForward
from roofcast.modelspec.formats import FORMATS, Format
from roofcast.modelspec.linear import LinearMap
from roofcast.modelspec.shared import SharedFeedForward
from roofcast.modelspec.work import causal_pairs, chunked_pairs, matmul_flops
from tests.property.strategies import ATTENTION, FEED_FORWARD, SIZES, TOKENS, WINDOWS, full, grouped, moe

if TYPE_CHECKING:
    from roofcast.modelspec.attention import Attention, GroupedAttention

HIDDEN = st.integers(1, 1024)


# --- weights and work of a kind


@given(grouped())
def test_the_label_follows_the_heads(attention: GroupedAttention) -> None:
    """MHA is as many KV heads as query heads, MQA a single one for several, GQA what lies between."""
    is_mha, is_mqa = attention.kv_heads == attention.query_heads, attention.kv_heads == 1

    assert attention.label == ("MHA" if is_mha else "MQA" if is_mqa else "GQA")


@given(ATTENTION, HIDDEN, st.integers(1, 1024))
def test_weights_grow_with_the_stream(attention: Attention, hidden: int, more: int) -> None:
    """Every kind projects from and to the residual stream: wider is more, each unit of width at least as the first."""
    step = attention.parameters(hidden + 1) - attention.parameters(hidden)

    assert step > 0
    assert attention.parameters(hidden + more) - attention.parameters(hidden) >= step * more


@given(ATTENTION, TOKENS, st.integers(1, 1 << 20))
def test_prefill_grows_with_tokens(attention: Attention, tokens: int, more: int) -> None:
    """A longer prompt is more work, but where no tokens are mixed at all; none is none."""
    idle = attention.prefill_flops(1) == 0

    assert attention.prefill_flops(0) == 0
    assert not idle or isinstance(attention, CrossAttention | LinearMap)
    assert idle or attention.prefill_flops(tokens) < attention.prefill_flops(tokens + more)


@given(grouped().map(full), TOKENS, st.integers(1, 1 << 20), st.booleans())
def test_a_window_never_does_more_than_full_attention(
    attention: GroupedAttention, tokens: int, window: int, chunked: bool
) -> None:
    """A window or a chunk works no more than all of the context; one that is not reached changes nothing."""
    sliding = replace(attention, window=window, chunked=chunked)

    assert sliding.prefill_flops(tokens) <= attention.prefill_flops(tokens)
    assert (sliding.prefill_flops(tokens) == attention.prefill_flops(tokens)) == (tokens <= window)


# --- work


@given(TOKENS, WINDOWS)
def test_pairs_are_at_most_half_the_square(tokens: int, window: int | None) -> None:
    """Causal attention touches n^2/2 pairs at most, and n W at most."""
    pairs = causal_pairs(tokens, window)

    assert 0 <= pairs <= tokens * tokens / 2
    assert window is None or pairs <= tokens * window


@given(st.integers(1, 1 << 17))
def test_pairs_are_continuous_at_the_window(window: int) -> None:
    """Both branches meet at W, with the same slope on either side."""
    at, step = causal_pairs(window, window), 2**-8

    assert at == window * window / 2
    assert causal_pairs(window + step, window) - at == window * step
    assert at - causal_pairs(window - step, window) == window * step - step * step / 2


@given(TOKENS, st.integers(1, 1 << 17), st.integers(0, 1 << 17))
def test_a_wider_window_has_no_fewer_pairs(tokens: int, window: int, more: int) -> None:
    """Pairs never fall with the window."""
    assert causal_pairs(tokens, window) <= causal_pairs(tokens, window + more)


@given(SIZES, SIZES, SIZES)
def test_a_product_costs_the_same_however_it_is_turned(m: int, n: int, k: int) -> None:
    """2 m n k does not know which dimension is which, and is linear in each."""
    assert matmul_flops(m, n, k) == matmul_flops(n, m, k) == matmul_flops(k, n, m)
    assert matmul_flops(2 * m, n, k) == 2 * matmul_flops(m, n, k)
    assert matmul_flops(1, 1, 1) == 2


@given(TOKENS, st.integers(1, 1 << 17))
def test_a_chunk_has_no_more_pairs_than_a_window(tokens: int, chunk: int) -> None:
    """Chunks start afresh: they touch at most the pairs of a window of that width, and as many up to the first."""
    assert chunked_pairs(tokens, chunk) <= causal_pairs(tokens, chunk)
    assert tokens > chunk or chunked_pairs(tokens, chunk) == causal_pairs(tokens)


# --- feed-forward


@given(FEED_FORWARD)
def test_no_more_works_than_is_held(ffn: FeedForward) -> None:
    """Active parameters are at most all, and all of them in a dense layer; only what another layer owns may be none."""
    assert 0 <= ffn.active_parameters <= ffn.parameters
    assert ffn.active_parameters > 0 or (isinstance(ffn, SharedFeedForward) and not ffn.owned)
    assert 0 <= ffn.expert_parameters <= ffn.parameters
    if not isinstance(ffn, MoeFeedForward):
        assert ffn.active_parameters == ffn.parameters


@given(moe())
def test_a_mixture_that_chooses_all_experts_is_dense(ffn: MoeFeedForward) -> None:
    """With k = E everything works; each expert fewer works an expert less."""
    plain = replace(ffn, idle=0)

    assert replace(plain, top_k=ffn.experts).active_parameters == plain.parameters
    assert plain.parameters - plain.active_parameters == (ffn.experts - ffn.top_k) * ffn.expert.parameters


@given(moe(), st.integers(1, 64))
def test_an_expert_more_is_its_weights_and_a_row_of_the_router(ffn: MoeFeedForward, more: int) -> None:
    """Experts add their own parameters and h router weights each; active ones grow by the router alone."""
    plain = replace(ffn, idle=0, router_parameters=None)
    wider, row = replace(plain, experts=ffn.experts + more), plain.outer or plain.expert.hidden

    assert wider.parameters - plain.parameters == more * (ffn.expert.parameters + row)
    assert wider.active_parameters - plain.active_parameters == more * row


@given(moe(), st.integers(1, 1 << 16), st.integers(1, 1 << 16))
def test_distinct_experts_rise_with_tokens_from_k_to_all(ffn: MoeFeedForward, tokens: int, more: int) -> None:
    """T tokens read at least k experts, or the mean of k beside identity experts, more with more tokens, at most E."""
    least = ffn.top_k * ffn.experts / (ffn.experts + ffn.idle)
    read = ffn.distinct_experts(tokens)

    assert ffn.distinct_experts(0) == 0
    assert ffn.distinct_experts(1) == pytest.approx(least)
    assert least <= read * (1 + 1e-12)
    assert read <= ffn.distinct_experts(tokens + more) <= ffn.experts


@given(moe(), st.integers(1, 40))
def test_distinct_experts_rise_strictly_while_some_are_unread(ffn: MoeFeedForward, tokens: int) -> None:
    """A token more reads new experts as long as a visible share of them is unread."""
    now, then = ffn.distinct_experts(tokens), ffn.distinct_experts(tokens + 1)

    assert now < then or ffn.experts - now <= ffn.experts * 1e-9


# --- formats


@pytest.mark.parametrize("row", FORMATS.values(), ids=FORMATS)
def test_bytes_are_at_least_the_bits(row: Format) -> None:
    """Scales only add, and never as much as another bit an element and a half."""
    assert row.bits / 8 <= row.bytes_per_element < (row.bits + 1.5) / 8


@given(st.floats(0.5, 64), st.floats(0, 256), st.integers(1, 512), st.floats(0.5, 64))
def test_bytes_grow_with_bits(bits: float, scale_bits: float, block: int, more: float) -> None:
    """More bits, more scale bits or smaller blocks are never fewer bytes."""
    row = Format("x", bits, scale_bits, block)

    assert row.bytes_per_element < replace(row, bits=bits + more).bytes_per_element
    assert row.bytes_per_element <= replace(row, scale_bits=scale_bits + more).bytes_per_element
    assert row.bytes_per_element >= replace(row, block=block + 1).bytes_per_element
    assert replace(row, scale_bits=0).bytes_per_element * 8 == pytest.approx(bits)


def test_fewer_bits_in_the_table_are_fewer_bytes() -> None:
    """No format of fewer bits takes more bytes than one of more, scales included."""
    rows = list(FORMATS.values())
    wrong = [
        (a.name, b.name) for a in rows for b in rows if a.bits < b.bits and a.bytes_per_element > b.bytes_per_element
    ]

    assert wrong == []
