"""Laws of attention's traffic, memory and splits, over sizes, heads and devices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import assume, given
from hypothesis import strategies as st

from roofcast.calculators import attention_io as io
from roofcast.calculators import attention_memory as extra
from roofcast.calculators.flash_decoding import KERNELS, Kernel, split_decode
from roofcast.calculators.sdpa import BACKENDS, Heads, refusal
from roofcast.calculators.split_rules import Decode, fewest_splits, wave_efficiency

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS: Final = st.integers(1, 1 << 20)
WIDTHS: Final = st.integers(1, 1024)
SHARES: Final = st.sampled_from([1.0, 0.5, 0.25, 1 / 128])
MEMORIES: Final = st.integers(1, 1 << 22)
ROUNDING: Final = 1 + 1e-12
SMS: Final = st.integers(1, 304)
kernels = st.sampled_from(KERNELS)


@st.composite
def decodes(draw: st.DrawFn) -> tuple[Kernel, Decode]:
    """Draw a kernel, and a question that it takes."""
    kernel = draw(kernels)
    kv_heads, group = draw(st.sampled_from([1, 2, 8, 32])), draw(st.sampled_from([1, 2, 3, 8, 128]))
    key, value = draw(st.sampled_from([(64, 64), (80, 80), (128, 128), (192, 128), (256, 256), (576, 512)]))
    queries = draw(st.integers(1, 16)) if kernel.queries else 1
    decode = Decode(
        draw(st.integers(1, 256)), kv_heads * group, kv_heads, key, value, draw(TOKENS), queries, draw(st.booleans())
    )
    assume(kernel.takes(decode, "fp16"))
    return kernel, decode


@given(TOKENS, TOKENS, WIDTHS, MEMORIES, SHARES)
def test_more_tokens_never_move_less(one: int, other: int, width: int, memory: int, share: float) -> None:
    """Every count grows with N."""
    assume(memory >= width)
    less, more = sorted((one, other))

    counts: tuple[Callable[[int], float], ...] = (
        lambda n: io.compulsory_accesses(n, width, share),
        lambda n: io.standard_accesses(n, width, share),
        lambda n: io.flash_accesses(n, width, memory, share),
        lambda n: io.algorithm_accesses(n, width, memory, share),
        lambda n: io.tiled_accesses(n, width),
        lambda n: io.product_flops(n, width),
    )
    for count in counts:
        assert count(less) <= count(more) * ROUNDING


@given(TOKENS, WIDTHS, MEMORIES, MEMORIES, SHARES)
def test_more_memory_never_moves_more(tokens: int, width: int, one: int, other: int, share: float) -> None:
    """The theorem's traffic and the loops' fall, or stay, as M grows."""
    less, more = sorted((one, other))
    assume(less >= width)

    assert io.flash_accesses(tokens, width, more, share) <= io.flash_accesses(tokens, width, less, share) * ROUNDING
    assert io.algorithm_accesses(tokens, width, more, share) <= io.algorithm_accesses(tokens, width, less, share)


@given(TOKENS, WIDTHS, MEMORIES, SHARES)
def test_nothing_goes_below_the_floor(tokens: int, width: int, memory: int, share: float) -> None:
    """Q, K, V and O move once at least, whatever the algorithm."""
    assume(memory >= width)
    floor = io.compulsory_accesses(tokens, width, share)

    assert io.standard_accesses(tokens, width, share) > floor
    assert io.flash_accesses(tokens, width, memory, share) >= floor
    assert io.algorithm_accesses(tokens, width, memory, share) >= floor
    assert io.tiled_accesses(tokens, width) >= floor


@given(TOKENS, WIDTHS, MEMORIES, SHARES)
def test_the_theorem_moves_less_than_standard_attention(tokens: int, width: int, memory: int, share: float) -> None:
    """Where d^2 <= 4 M, that is for every head and every device there is: N^2 d^2 / M <= 4 N^2."""
    assume(memory >= width)
    assume(width**2 <= 4 * memory)

    assert io.flash_accesses(tokens, width, memory, share) <= io.standard_accesses(tokens, width, share) * ROUNDING


@given(TOKENS, WIDTHS, MEMORIES)
def test_the_loops_move_no_less_than_the_theorem(tokens: int, width: int, memory: int) -> None:
    """Algorithm 1 is a case of Theorem 2 with a constant of some 12: 3 N d ceil(N / ceil(M / 4 d)) > N^2 d^2 / M."""
    assume(memory >= width)
    assume(tokens >= width)

    assert io.algorithm_accesses(tokens, width, memory) * ROUNDING >= io.flash_accesses(tokens, width, memory)


@given(st.integers(1, 64), st.integers(1, 128), st.integers(1, 1 << 18))
def test_scores_outweigh_statistics(batch: int, heads: int, tokens: int) -> None:
    """A score matrix in fp32 is N times a logsumexp; the math backend keeps two of them."""
    scores = extra.math_score_bytes(batch, heads, tokens)

    assert scores == tokens * extra.logsumexp_bytes(batch, heads, tokens)
    assert extra.math_peak_bytes(batch, heads, tokens) == 2 * scores
    assert extra.efficient_bytes(batch, heads, tokens) >= extra.logsumexp_bytes(batch, heads, tokens)


@given(decodes(), SMS)
def test_splitting_never_empties_a_device(question: tuple[Kernel, Decode], sms: int) -> None:
    """With splits there are as many blocks at least, on as large a share of the SMs."""
    made = split_decode(*question, sms)

    assert made.splits >= 1
    assert made.filled.blocks >= made.without.blocks >= 1
    assert 0 < made.without.busy <= made.filled.busy <= 1
    assert (made.workspace > 0) == (made.splits > 1)


@given(decodes(), SMS, SMS)
def test_more_sms_never_have_a_larger_share_busy(question: tuple[Kernel, Decode], one: int, other: int) -> None:
    """Without a split, the same blocks fill a larger device less."""
    less, more = sorted((one, other))

    assert split_decode(*question, less).without.busy >= split_decode(*question, more).without.busy


@given(st.integers(1, 2000), st.integers(1, 400), st.integers(1, 2048), st.booleans())
def test_a_chosen_split_is_near_the_best_and_never_worse_than_none(
    blocks: int, slots: int, pieces: int, whole: bool
) -> None:
    """The rule's efficiency is 0.85 of any other's at least, one split's included, and splits are no more than pieces."""
    splits = fewest_splits(blocks, slots, pieces, whole=whole)
    reached = wave_efficiency(blocks * splits, slots)

    assert 1 <= splits <= max(1, min(128, slots, pieces))
    if blocks < 0.8 * slots:
        assert reached >= wave_efficiency(blocks, slots)
        eligible = [
            s for s in range(2, min(128, slots, pieces) + 1) if not whole or -(-pieces // s) != -(-pieces // (s - 1))
        ]
        assert all(reached >= 0.85 * wave_efficiency(blocks * s, slots) for s in eligible)


@given(st.integers(1, 10**6), st.integers(1, 1000))
def test_wave_efficiency_is_a_share(blocks: int, slots: int) -> None:
    """Above 0, 1 at most, and 1 where blocks are a multiple of the slots."""
    assert 0 < wave_efficiency(blocks, slots) <= 1
    assert wave_efficiency(blocks * slots, slots) == 1


@given(
    st.sampled_from([16, 64, 104, 128, 192, 256, 576]),
    st.sampled_from(["fp16", "bf16", "fp32"]),
    st.sampled_from([(5, 0), (6, 1), (7, 0), (7, 5), (8, 0), (9, 0), (12, 1)]),
)
def test_a_later_device_takes_what_an_earlier_one_does(
    width: int, number_format: str, capability: tuple[int, int]
) -> None:
    """Up to the newest one, a backend that takes widths in eights takes them on every later one; math always does."""
    heads = Heads(8, 8, width, width)

    for one in BACKENDS:
        if refusal(one, heads, number_format, capability) is None:
            assert refusal(one, heads, number_format, (12, 1)) is None
    assert refusal(BACKENDS[-1], heads, number_format, capability) is None
