"""Memory traffic and extra memory of attention: worked by hand, and beside what the FlashAttention paper measured."""

from __future__ import annotations

import pytest

from roofcast.calculators import attention_io as io
from roofcast.calculators import attention_memory as extra
from roofcast.calculators.attention_rows import Device, Kind, io_row
from roofcast.calculators.errors import UsageError
from roofcast.calculators.flash_generations import BLOCK_MEMORY, block_memory
from roofcast.calculators.sdpa import Heads
from roofcast.hwdb.lookup import all_accelerators, find_accelerator

# arXiv:2205.14135, figure 2: GPT-2 medium, forward and backward, on an A100; a later version of the paper's table
TOKENS, WIDTH, HEADS, BATCH = 1024, 64, 16, 64
PUBLISHED_STANDARD, PUBLISHED_FLASH = 40.3e9, 4.4e9  # [B]
A100 = find_accelerator("a100-80gb-sxm").accelerator
PAPER = Kind("MHA", Heads(HEADS, HEADS, WIDTH, WIDTH), Heads(HEADS, HEADS, WIDTH, WIDTH))


def test_standard_attention_of_the_papers_example() -> None:
    """Four passes of the score matrix and one of Q, K, V and O: 64 x 16 heads x (4 x 2^20 + 4 x 2^16) x 2 B."""
    row = io_row(Device("a100"), PAPER, BATCH, TOKENS, 2)

    assert row.standard_bytes == 64 * 16 * (4 * 2**20 + 4 * 2**16) * 2 == 9_126_805_504


def test_the_papers_measurement_is_standard_attention_forward_and_backward() -> None:
    """40.3 GB of both directions are 18.8 passes of an fp16 score matrix, 2.147 GB; forward alone needs four."""
    one_pass = extra.score_bytes(BATCH, HEADS, TOKENS, 2)

    assert one_pass == 2_147_483_648
    assert pytest.approx(18.8, abs=0.05) == PUBLISHED_STANDARD / one_pass
    assert 4 * one_pass < io_row(Device("a100"), PAPER, BATCH, TOKENS, 2).standard_bytes < PUBLISHED_STANDARD


def test_flash_attention_of_the_papers_example_is_at_the_floor() -> None:
    """At 1,024 tokens N^2 d^2 / M, 51,464 elements with the 163 KiB of an A100's block, is below 4 N d, 262,144."""
    memory, of_block = block_memory(A100)
    assert (memory, of_block) == (163 * 1024, True)

    row = io_row(Device("a100", memory), PAPER, BATCH, TOKENS, 2)

    assert pytest.approx(51_464, abs=1) == 2**20 * 2**12 / (163 * 1024 / 2)
    assert row.flash_bytes == row.compulsory_bytes == 64 * 16 * 4 * 2**16 * 2 == 536_870_912
    assert row.flash_bytes < PUBLISHED_FLASH


def test_the_papers_ratio_lies_between_its_loops_and_its_theorem() -> None:
    """It measured 9.2 times less of both directions; forward, Algorithm 1's loops give 4.8 and the floor 17.

    Bc = ceil(83,456 / 256) = 326 rows, so 4 passes: 2 x 2^16 + 4 x (3 x 2^16 + 4 x 2^10) = 933,888 elements a head.
    """
    row = io_row(Device("a100", 163 * 1024), PAPER, BATCH, TOKENS, 2)

    assert row.algorithm_bytes == 64 * 16 * 933_888 * 2
    assert row.standard_bytes / row.algorithm_bytes == pytest.approx(4.77, abs=0.005)
    assert row.standard_over_flash == 17.0
    assert pytest.approx(9.16, abs=0.005) == PUBLISHED_STANDARD / PUBLISHED_FLASH
    assert row.standard_bytes / row.algorithm_bytes < PUBLISHED_STANDARD / PUBLISHED_FLASH < row.standard_over_flash


def test_beyond_its_memory_the_theorem_rules() -> None:
    """At 16,384 tokens of 128 and M of 65,536: 2^28 x 2^14 / 2^16 = 2^26 elements, against 4 x 2^21 of the floor."""
    assert io.flash_accesses(16384, 128, 65536) == 2**26
    assert io.compulsory_accesses(16384, 128) == 2**23


def test_a_memory_beyond_keys_counts_as_keys() -> None:
    """M > N d is N d, where the theorem gives N d and the floor rules: more memory changes nothing."""
    assert io.flash_accesses(64, 64, 1e9) == io.flash_accesses(64, 64, 64 * 64) == 4 * 64 * 64


def test_the_loops_of_a_small_memory_move_more_than_standard_attention() -> None:
    """12 d^2 / M passes 4 where M is below 3 d^2: T4's 32,768 elements against heads of 128, 3 x 16,384."""
    assert io.algorithm_accesses(16384, 128, 32768) > io.standard_accesses(16384, 128)
    assert io.algorithm_accesses(16384, 128, 83456) < io.standard_accesses(16384, 128)


def test_grouped_queries_read_keys_and_values_once_a_kv_head() -> None:
    """With 8 of 32 heads K and V weigh a quarter: 2 N d (1 + 1/4) a query head; the score matrix is as large."""
    heads = Heads(32, 8, 128, 128)
    row = io_row(Device("a100"), Kind("GQA", heads, heads), 1, 4096, 2)

    assert row.compulsory_bytes == 2 * (2 * 32 + 2 * 8) * 4096 * 128
    assert row.standard_bytes == row.compulsory_bytes + 4 * 2 * 32 * 4096**2


def test_keys_and_values_of_different_width() -> None:
    """FLOP are 2 N^2 (d_k + d_v) and the floor 2 N (d_k + d_v): MLA's expanded heads of 192 and 128."""
    heads = Heads(128, 128, 192, 128)
    row = io_row(Device("h100"), Kind("MLA", heads, heads), 1, 4096, 2)

    assert row.product_flops == 128 * 2 * 4096**2 * 320
    assert row.compulsory_bytes == 128 * 2 * 4096 * 320 * 2


def test_standard_attention_waits_for_memory_and_flash_for_arithmetic() -> None:
    """16,384 tokens of 32/8 heads on an A100: 4 N^2 d = 4.4 TFLOP take 14.1 ms, 69.1 GB 33.9 ms, 3.4 GB 1.65 ms."""
    heads = Heads(32, 8, 128, 128)
    device = Device("a100", 163 * 1024, A100.peak("fp16"), A100.bandwidth)
    row = io_row(device, Kind("GQA", heads, heads), 1, 16384, 2)

    assert row.product_flops == 32 * 4 * 16384**2 * 128
    assert (row.standard_bound_by, row.flash_bound_by) == ("memory", "compute")
    assert row.compute_seconds == pytest.approx(32 * 4 * 2**28 * 128 / 312e12)
    assert row.standard_seconds == pytest.approx(0.0339, abs=5e-5)
    assert row.flash_seconds == pytest.approx(0.00165, abs=5e-6)
    assert row.ridge == pytest.approx(312e12 / 2039e9)


def test_what_kernels_ask_for_is_128_flop_a_byte_at_most() -> None:
    """2 Br / b with 128 rows of Q and two bytes, below the 153 of an A100: a cache must serve some of it."""
    row = io_row(Device("a100"), PAPER, 1, 2**20, 2)

    assert 127.9 < row.tiled_intensity < 128


def test_without_a_memory_there_is_no_theorem() -> None:
    """A device whose on-chip memory is not known has every column that does not need it."""
    row = io_row(Device("x", None, 1e14, 1e12), PAPER, 1, 1024, 2)

    assert (row.flash_bytes, row.algorithm_bytes, row.standard_over_flash, row.flash_bound_by) == (None,) * 4
    assert row.standard_seconds == row.standard_bytes / 1e12


@pytest.mark.parametrize(("tokens", "width"), [(0, 64), (-1, 64), (64, 0)])
def test_nothing_is_no_attention(tokens: int, width: int) -> None:
    """N and d are 1 or more."""
    with pytest.raises(UsageError, match="1 or more"):
        io.standard_accesses(tokens, width)


def test_a_memory_below_a_head_is_refused() -> None:
    """The theorem holds from M = d on."""
    with pytest.raises(UsageError, match="M = d"):
        io.flash_accesses(1024, 128, 127)
    assert io.flash_accesses(1024, 128, 128) == 1024**2 * 128


def test_the_score_matrix_of_twelve_heads() -> None:
    """12 heads, 16,384 tokens, fp16: 12 x 2^28 x 2 B = 6 GiB, twice that in fp32, and as much again for the softmax."""
    assert extra.score_bytes(1, 12, 16384, 2) == 6 * 2**30
    assert extra.math_score_bytes(1, 12, 16384) == 12 * 2**30
    assert extra.math_peak_bytes(1, 12, 16384) == 24 * 2**30


def test_flash_attention_keeps_a_number_a_row() -> None:
    """12 x 16,384 x 4 B = 768 KiB; memory-efficient attention rounds rows up to 32."""
    assert extra.logsumexp_bytes(1, 12, 16384) == 768 * 2**10
    assert extra.efficient_bytes(1, 12, 16384) == 768 * 2**10
    assert extra.efficient_bytes(1, 1, 1) == 32 * 4


def test_a_block_has_what_an_sm_has_less_a_kibibyte() -> None:
    """From compute capability 8.0 on CUDA reserves 1 KiB a block; the table of blocks and the records of SMs agree."""
    cards = [card for card in all_accelerators().accelerators if card.capability in BLOCK_MEMORY]

    assert len(cards) > 40
    for card in cards:
        reserved = 0 if card.capability == (7, 5) else 1024
        assert block_memory(card) == ((card.shared_memory_per_sm or 0) - reserved, True), card.id


def test_other_vendors_memory_is_a_compute_units() -> None:
    """Where no table says what a block may have, an SM's is taken, and said to be."""
    assert block_memory(find_accelerator("mi300x").accelerator) == (64 * 1024, False)
    assert block_memory(find_accelerator("tpu-v6e").accelerator) == (None, False)
