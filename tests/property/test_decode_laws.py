"""Laws of one new token: what it costs and what it reads, against the prompt's work and what the sequence keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.modelspec.kinds import KINDS
from tests.property.strategies import (
    ATTENTION_KINDS,
    COMPRESSED,
    FEED_FORWARD_KINDS,
    LATENT,
    TOKENS,
    grouped,
    specs,
)
from tests.property.test_modelspec_laws import held

if TYPE_CHECKING:
    from roofcast.modelspec.attention import Attention, GroupedAttention
    from roofcast.modelspec.compressed import CompressedAttention
    from roofcast.modelspec.latent import LatentAttention
    from roofcast.modelspec.layers import Layer
    from roofcast.modelspec.shared import SharedAttention, SharedFeedForward
    from roofcast.modelspec.spec import ModelSpec

CONTEXTS = st.integers(1, 1 << 16)
ROUNDING = 1e-14  # of a whole prompt's FLOP, of which two are subtracted


def half_pair(attention: Attention) -> float:
    """FLOP of half a pair of a query and a key, which n^2/2 leaves out for every token; 0 where nothing is paired."""
    return (attention.decode_flops(1) - attention.decode_flops(0)) / 2


def short_of(attention: Attention, context: int) -> float:
    """FLOP by which a prompt's last token costs less than one new token at the same context."""
    last = attention.prefill_flops(context) - attention.prefill_flops(context - 1)
    return attention.decode_flops(context) - last


def slack(attention: Attention, context: int) -> float:
    """FLOP that rounding may make of two long prompts."""
    return ROUNDING * attention.prefill_flops(context)


def comparable(attention: Any) -> Any:
    """The kind as the laws of a token hold for it: a latent's heads as wide as in the absorbed form, chunks sliding."""
    if hasattr(attention, "kv_lora_rank"):
        rank = attention.kv_lora_rank
        return replace(attention, qk_nope_head_dim=rank, value_head_dim=rank)
    return replace(attention, chunked=False) if hasattr(attention, "chunked") else attention


def selects(attention: Any) -> bool:
    """Whether a token reads less than is kept: by an index, an earlier one's, or a window that only masks."""
    chosen = (getattr(attention, name, None) for name in ("index", "selected", "masks", "indexed"))
    return any(chosen)


# --- work


@pytest.mark.parametrize("name", KINDS)
def test_a_token_costs_what_the_last_of_a_prompt_does(name: str) -> None:
    """decode(C) = prefill(C) - prefill(C - 1), but for the half pair that n^2/2 leaves out of each token.

    For a latent it holds where heads are as wide as in the absorbed form: d_nope = d_v = d_c.
    """

    @given(ATTENTION_KINDS[name].map(comparable), CONTEXTS)
    def check(attention: Attention, context: int) -> None:
        less, rounding = short_of(attention, context), slack(attention, context)
        assert -rounding <= less <= half_pair(attention) + rounding

    check()


@given(grouped(), st.integers(1, 4), st.integers(1, 512))
def test_a_chunk_costs_most_where_it_is_full(attention: GroupedAttention, chunks: int, chunk: int) -> None:
    """The last token of a full chunk costs what is said, but for the half pair; no other costs more."""
    chunked = replace(attention, window=chunk, chunked=True)
    full, rounding = chunks * chunk, slack(chunked, 4 * 512)

    assert -rounding <= short_of(chunked, full) <= half_pair(chunked) + rounding
    assert min(short_of(chunked, full - at) for at in range(min(chunk, 9))) >= -rounding


@pytest.mark.parametrize("name", KINDS)
def test_a_token_never_costs_less_at_more_context(name: str) -> None:
    """Work and bytes of one new token only grow as the sequence does."""

    @given(ATTENTION_KINDS[name], TOKENS, TOKENS)
    def check(attention: Attention, tokens: int, more: int) -> None:
        assert 0 <= attention.decode_flops(tokens) <= attention.decode_flops(tokens + more)
        assert 0 <= held(attention.reads, tokens) <= held(attention.reads, tokens + more)

    check()


@given(LATENT, CONTEXTS)
def test_the_absorbed_form_does_not_see_the_widths_of_heads(attention: LatentAttention, context: int) -> None:
    """Absorbed, only the latent's widths count: wider key or value heads cost a token no more."""
    wider = replace(attention, qk_nope_head_dim=attention.qk_nope_head_dim + 1, value_head_dim=999)

    assert wider.decode_flops(context) == attention.decode_flops(context)
    assert wider.prefill_flops(context) > attention.prefill_flops(context)


@given(grouped().map(lambda layer: replace(layer, index=None)), CONTEXTS)
def test_queries_that_share_keys_are_the_intensity(attention: GroupedAttention, context: int) -> None:
    """FLOP an element read are 2 n_q / n_kv at every context, whatever the window, whoever keeps the keys."""
    flops, elements = attention.decode_flops(context), held(attention.reads, context)

    assert flops * attention.kv_heads == 2 * elements * attention.query_heads


# --- reads


@pytest.mark.parametrize("name", KINDS)
def test_no_more_is_read_than_is_kept(name: str) -> None:
    """A kind that stores reads at most what it keeps, in each format; and all of it where nothing selects."""

    @given(ATTENTION_KINDS[name], TOKENS)
    def check(attention: Any, tokens: int) -> None:
        stored = replace(attention, stores=True) if hasattr(attention, "stores") else attention
        for kind in ("cache", "model", "fp32"):
            reads, keeps = ([part for part in parts if part.format == kind] for parts in (stored.reads, stored.state))
            assert held(reads, tokens) <= held(keeps, tokens)
        if not selects(stored):
            assert held(stored.reads, tokens) == held(stored.state, tokens)

    check()


@given(grouped() | LATENT, st.booleans())
def test_whoever_keeps_them_the_same_is_read(attention: Any, stores: bool) -> None:
    """A layer that reads an earlier layer's keys reads as much as with its own."""
    other = replace(attention, stores=stores)

    assert other.reads == attention.reads
    assert other.decode_flops(999) == attention.decode_flops(999)


@given(grouped() | LATENT, TOKENS)
def test_keys_are_read_up_to_the_nearest_limit(attention: Any, tokens: int) -> None:
    """Of a window and what an index selects the less bounds the keys and values; the index's keys are read whole."""
    keys, *index = attention.reads
    limits = [attention.window, getattr(attention, "selected", None)]
    limits += [attention.index.selected] if attention.index else []

    assert keys.entries(tokens) == min([tokens, *(limit for limit in limits if limit is not None)])
    assert [part.entries(tokens) for part in index] == [tokens // attention.index.pool for _ in index]
    assert len(index) == (attention.index is not None)


@given(COMPRESSED, TOKENS)
def test_compressed_entries_are_read_as_far_as_they_are_selected(attention: CompressedAttention, tokens: int) -> None:
    """Widths of what is read are those of what is kept; without an index every entry is read, with one at most k."""
    by_per = [sum(part.width for part in parts if part.per > 1) for parts in (attention.reads, attention.state)]
    entries = [part.entries(tokens) for part in attention.reads if part.per > 1]

    assert by_per[0] == by_per[1]
    if attention.indexed:
        assert entries == [min(tokens // attention.ratio, attention.index_selected), tokens // attention.ratio]
    else:
        assert entries == [tokens // attention.ratio for part in attention.state if part.per > 1]


# --- weights that recur


@given(ATTENTION_KINDS["shared_block"], FEED_FORWARD_KINDS["shared"])
def test_a_shared_block_works_in_full_wherever_it_counts(
    attention: SharedAttention, feeding: SharedFeedForward
) -> None:
    """What a layer holds and what it borrows are the matrices of a layer that holds them all; an owner borrows none."""
    first = (replace(attention, owned=True), replace(feeding, owned=True))

    assert sorted(attention.matrices(64) + attention.borrowed(64), key=repr) == sorted(first[0].matrices(64), key=repr)
    assert sorted(feeding.matrices() + feeding.borrowed(), key=repr) == sorted(first[1].matrices(), key=repr)
    assert first[0].borrowed(64) == first[1].borrowed() == ()


@given(specs())
def test_borrowed_weights_add_work_and_no_parameters(spec: ModelSpec) -> None:
    """Were every block a layer's own, the matrices of all layers would be more by what is borrowed, once a pass."""
    owner = replace(spec, layers=tuple(map(owning, spec.layers)), draft=tuple(map(owning, spec.draft)))
    more = (matrices_of(owning(layer), spec.hidden) - matrices_of(layer, spec.hidden) for layer in spec.active_layers)

    assert owner.borrowed_parameters == 0
    assert spec.borrowed_parameters == sum(n * layer.passes for n, layer in zip(more, spec.active_layers, strict=True))


def owning(layer: Layer) -> Layer:
    """Return the layer with all weights its own."""

    def own(part: Any) -> Any:
        return replace(part, owned=True) if hasattr(part, "owned") else part

    return replace(layer, mixers=tuple(map(own, layer.mixers)), feed_forwards=tuple(map(own, layer.feed_forwards)))


def matrices_of(layer: Layer, hidden: int) -> int:
    """Return the elements of all matrices that count in a layer."""
    mixing = [matrix for mixer in layer.mixers for matrix in mixer.matrices(hidden)]
    return sum(matrix.elements for matrix in mixing + [m for part in layer.feed_forwards for m in part.matrices()])
