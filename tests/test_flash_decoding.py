"""Blocks of decode kernels against SMs: as their sources' rules have it, by hand."""

from __future__ import annotations

import pytest

from roofcast.calculators.attention_rows import cache_read_seconds
from roofcast.calculators.flash_decoding import KERNELS, Kernel, decode_blocks, split_decode
from roofcast.calculators.split_rules import Decode, fewest_splits, wave_efficiency

BY_NAME = {kernel.name: kernel for kernel in KERNELS}
A100_SMS, H100_SMS = 108, 132
FA2, FA2_WINDOW, FA3 = (BY_NAME[f"FlashAttention-{n}"] for n in ("2", "2, window or ALiBi", "3"))
# the shape of https://pytorch.org/blog/flash-decoding/: 16 query heads, 2 KV heads of 128, on an A100;
# (sequences, tokens) -> splits by FlashAttention-2's rule, evaluated by hand for the two that have the arithmetic below
BLOG = {
    (256, 256): 1, (128, 512): 1, (64, 1024): 3, (32, 2048): 3, (16, 4096): 6, (8, 8192): 13, (4, 16384): 26,
    (2, 32768): 52, (1, 65536): 103, (1, 131072): 94,
}  # fmt: skip
# and its measured times of a kernel without splits (FlashAttention 2.0.9) and with them. [us]
MEASURED = {(256, 256): (390.5, 63.4), (8, 8192): (529.2, 56.4), (1, 65536): (2300.6, 64.4)}


def asked(batch: int, context: int, heads: int = 16, kv_heads: int = 2, width: int = 128, queries: int = 1) -> Decode:
    """A question with keys as wide as values."""
    return Decode(batch, heads, kv_heads, width, width, context, queries)


def test_the_rules_own_example() -> None:
    """48 blocks on 108 SMs: 2 splits are 96 / 108 = 0.89 of a wave, 3 are 144 / 108 in two = 0.67, so 2."""
    assert wave_efficiency(96, 108) == pytest.approx(0.889, abs=0.001)
    assert wave_efficiency(144, 108) == pytest.approx(0.667, abs=0.001)
    assert fewest_splits(48, 108, 64) == 2


@pytest.mark.parametrize(("batch", "context"), BLOG)
def test_splits_of_the_flash_decoding_blog(batch: int, context: int) -> None:
    """FlashAttention-2 on an A100, 216 slots: 2 blocks a sequence, as the 8 query heads of a KV head share one.

    One sequence of 65,536: 512 pieces. 86 splits, 172 / 216 = 0.796, are below 0.85 of the best, 103 with
    206 / 216 = 0.954; between them no number shortens the longest split, ceil(512 / s).
    Eight of 8,192: 64 pieces, 16 blocks. 11 splits, 0.815, are below 0.85 x 0.963 = 0.819; 13 have 208 / 216 = 0.963.
    """
    made = split_decode(FA2, asked(batch, context), A100_SMS)

    assert made.without.blocks == 2 * batch
    assert made.splits == BLOG[batch, context]
    assert made.filled.blocks == 2 * batch * made.splits


def test_where_splitting_helped_most_the_device_was_emptiest() -> None:
    """The blog's speed-ups, 6, 9 and 36 times, grow as fewer SMs have work without a split."""
    rows = [
        (
            split_decode(FA2, asked(*shape), A100_SMS).without.busy,
            MEASURED[shape][0] / MEASURED[shape][1],
        )
        for shape in MEASURED
    ]

    assert [busy for busy, _ in rows] == [1.0, pytest.approx(16 / 108), pytest.approx(2 / 108)]
    assert [gain for _, gain in rows] == sorted(gain for _, gain in rows)


def test_splits_end_where_blocks_fill_four_fifths() -> None:
    """0.8 x 216 = 172.8 blocks are enough: 173 do not split, 172 may."""
    assert fewest_splits(173, 216, 512) == 1
    assert fewest_splits(100, 216, 512) == 2


def test_splits_are_no_more_than_pieces() -> None:
    """A cache of one tile cannot be split."""
    assert fewest_splits(1, 216, 1) == 1
    assert split_decode(FA2, asked(1, 128), A100_SMS).splits == 1


def test_splits_that_shorten_nothing_are_left_out() -> None:
    """8 pieces in 5, 6 or 7 leave one with 2 as 4 do: FlashAttention-2 takes 4 of 7 slots, FlashAttention-3 6 (0.857)."""
    assert {-(-8 // s) for s in (4, 5, 6, 7)} == {2}
    assert fewest_splits(1, 7, 8) == 4
    assert fewest_splits(1, 7, 8, whole=False) == 6


@pytest.mark.parametrize(
    ("kernel", "decode", "blocks"),
    [
        pytest.param("FlashAttention-1", asked(4, 4096, 32, 8), 4 * 32, id="a block a head"),
        pytest.param("FlashAttention-2", asked(4, 4096, 32, 8), 4 * 8, id="a block a KV head"),
        pytest.param("FlashAttention-2, window or ALiBi", asked(4, 4096, 32, 8), 4 * 32, id="not packed"),
        pytest.param("FlashAttention-2", asked(4, 4096, 32, 8, queries=4), 4 * 32, id="several tokens are not packed"),
        pytest.param("FlashAttention-2", asked(4, 4096, 128, 1), 4 * 2, id="128 rows are two blocks of 64"),
        pytest.param("FlashAttention-2", asked(1, 4096, 8, 8), 8, id="nothing to pack"),
        pytest.param("FlashAttention-3", asked(4, 4096, 32, 8, queries=4), 4 * 8, id="packed with 16 rows of 128"),
        pytest.param("FlashAttention-4, splits asked", asked(1, 4096, 32, 8), 8, id="fourth"),
        pytest.param("FlashAttention-4, splits asked", asked(1, 4096, 24, 8), 24, id="a group of 3 divides no 128"),
        pytest.param("PagedAttention v2", asked(4, 4096, 32, 8), 4 * 32, id="a query head a block"),
        pytest.param("Triton, SGLang", asked(4, 4096, 32, 8), 4 * 8, id="16 heads of a group"),
        pytest.param("Triton, SGLang", Decode(1, 128, 1, 576, 512, 4096), 8, id="128 heads in 16s"),
        pytest.param("FlashMLA", Decode(1, 128, 1, 576, 512, 4096), 2, id="128 rows in 64s"),
    ],
)
def test_blocks_without_a_split(kernel: str, decode: Decode, blocks: int) -> None:
    """batch x KV heads x ceil(rows of a group / rows of a block) where packed, else batch x query heads."""
    assert decode_blocks(BY_NAME[kernel], decode) == blocks


def test_a_windows_keys_are_not_packed() -> None:
    """FlashAttention-2 swaps heads for tokens only without a window."""
    windowed = Decode(1, 32, 8, 128, 128, 4096, windowed=True)

    assert decode_blocks(FA2, windowed) == 32
    assert not FA2_WINDOW.takes(windowed, "fp16")


@pytest.mark.parametrize(
    ("kernel", "decode", "sms", "splits"),
    [
        pytest.param("FlashAttention-1", asked(1, 131072), 108, 1, id="none"),
        pytest.param("PagedAttention v2", asked(1, 131072), 108, 256, id="every 512 tokens"),
        pytest.param("PagedAttention v2", asked(1, 8193), 108, 17, id="and the rest"),
        pytest.param("FlashAttention-3", asked(1, 704), 132, 1, id="4 tiles of 176 are not split"),
        pytest.param("FlashAttention-3", asked(1, 705), 132, 5, id="5 are"),  # 10 / 132 with 5 is the most there is
        # 8 blocks: 33 splits are 264 / 132, two full waves; 15 have 120 / 132 = 0.909 of it, 14 112 / 132 = 0.848
        pytest.param("FlashAttention-3", asked(1, 16384, 32, 8), 132, 15, id="15 x 8 of 132"),
        pytest.param("FlashAttention-4, splits asked", asked(1, 16384, 32, 8), 148, 18, id="148 // 8"),
        pytest.param("FlashAttention-4, splits asked", asked(1, 512, 32, 8), 148, 1, id="4 tiles of 128 are not split"),
        # 108 x log2(16,384 / 64) = 864; / 8 blocks = 108, 8 at most
        pytest.param("Triton, SGLang", asked(1, 16384, 32, 8), 108, 8, id="8 at most"),
        # 108 x log2(16) = 432; / 256 blocks = 2 splits
        pytest.param("Triton, SGLang", asked(32, 1024, 32, 8), 108, 2, id="fewer of many sequences"),
        pytest.param("Triton MLA, vLLM", Decode(1, 128, 1, 576, 512, 4096), 132, 4, id="always 4"),
        # 66 parts; (1024 + 5) / 66 = 16 + 5 pieces: 1024 / 16 parts
        pytest.param("FlashMLA", Decode(1, 128, 1, 576, 512, 65536), 132, 64, id="16 pieces a part"),
        pytest.param("FlashMLA", Decode(1, 128, 1, 576, 512, 640), 132, 10, id="10 pieces of 64"),
        # 64 x 69 / 66 = 67 + 5: a part takes a sequence of 69 and has not enough left for another
        pytest.param("FlashMLA", Decode(64, 128, 1, 576, 512, 4096), 132, 1, id="a sequence a part"),
    ],
)
def test_splits(kernel: str, decode: Decode, sms: int, splits: int) -> None:
    """Each rule, by hand."""
    assert split_decode(BY_NAME[kernel], decode, sms).splits == splits


@pytest.mark.parametrize(
    ("batch", "context", "blocks"), [(1, 640, 20), (1, 8192, 86), (8, 1024, 96), (64, 8192, 128), (128, 8192, 132)]
)
def test_flash_mla_keeps_parts_busy(batch: int, context: int, blocks: int) -> None:
    """132 SMs / 2 row blocks = 66 parts, which get ceil(batch x (pieces + 5) / 66) + 5 pieces; not all get any.

    One of 8,192 tokens: 133 / 66 = 3 + 5 pieces, three of 128 a part, 43 parts of two blocks.
    """
    made = split_decode(BY_NAME["FlashMLA"], Decode(batch, 128, 1, 576, 512, context), H100_SMS)

    assert made.filled.blocks == blocks


def test_workspace() -> None:
    """16 rows x 103 splits x (128 + 1) x 4 B; nothing without a split; FlashAttention-2 rounds widths up to 32.

    PagedAttention writes outputs in the inputs' format, with a sum and a maximum: 16 x 128 x (2 x 128 + 8).
    """
    assert split_decode(FA2, asked(1, 65536), A100_SMS).workspace == 16 * 103 * 129 * 4
    assert split_decode(FA2, asked(256, 256), A100_SMS).workspace == 0
    narrow = split_decode(FA2, asked(1, 65536, width=80), A100_SMS)
    assert narrow.workspace == 16 * narrow.splits * (96 + 1) * 4
    third = split_decode(FA3, asked(1, 65536, width=80), H100_SMS)
    assert third.workspace == 16 * third.splits * (80 + 1) * 4
    assert split_decode(BY_NAME["PagedAttention v2"], asked(1, 65536), A100_SMS).workspace == 16 * 128 * 264


def test_flash_4_on_hopper_and_blackwell() -> None:
    """9.0 takes no splits and packs any group; 10.0 counts blocks by KV heads where it does not pack: 148 / 4, 32 pieces."""
    hopper, blackwell = BY_NAME["FlashAttention-4"], BY_NAME["FlashAttention-4, splits asked"]
    sevens = asked(1, 4096, 28, 4)

    assert (decode_blocks(hopper, sevens), split_decode(hopper, sevens, H100_SMS).splits) == (4, 1)
    assert (decode_blocks(blackwell, sevens), split_decode(blackwell, sevens, 148).splits) == (28, 32)
    assert hopper.runs_on("nvidia", (9, 0), "bf16")
    assert not blackwell.runs_on("nvidia", (9, 0), "bf16")


@pytest.mark.parametrize(("context", "splits"), [(512, 5), (1024, 9), (4096, 15)])
def test_flash_3_beside_wide_values(context: int, splits: int) -> None:
    """Keys and values of 192: tiles of 112 tokens; 8 blocks of 132 SMs."""
    assert split_decode(FA3, asked(1, context, 40, 8, 192), H100_SMS).splits == splits


def test_which_paged_attention() -> None:
    """vLLM takes v1 up to 8,192 tokens where there is one partition or more than 512 heads in all."""
    first, second = BY_NAME["PagedAttention v1"], BY_NAME["PagedAttention v2"]

    for decode, is_first in (
        (asked(1, 512), True), (asked(1, 513), False), (asked(33, 8192), True), (asked(32, 8192), False),
        (asked(33, 8193), False),
    ):  # fmt: skip
        assert (first.takes(decode, "fp16"), second.takes(decode, "fp16")) == (is_first, not is_first)


@pytest.mark.parametrize(
    ("capability", "names"),
    [
        ((7, 5), {"FlashAttention-1", "PagedAttention v2"}),
        (
            (8, 0),
            {
                "FlashAttention-1",
                "FlashAttention-2",
                "FlashAttention-2, window or ALiBi",
                "PagedAttention v2",
                "Triton, SGLang",
            },
        ),
        ((12, 0), {"FlashAttention-2", "FlashAttention-2, window or ALiBi", "PagedAttention v2", "Triton, SGLang"}),
    ],
)
def test_which_kernels_a_device_runs(capability: tuple[int, int], names: set[str]) -> None:
    """Turing has no FlashAttention-2, Hopper alone the third."""
    decode = asked(1, 16384)

    def run(kernel: Kernel) -> bool:
        return kernel.takes(decode, "fp16") and kernel.runs_on("nvidia", capability, "fp16")

    assert {kernel.name for kernel in KERNELS if run(kernel)} == names


def test_flash_mla_is_for_the_latent_alone() -> None:
    """It takes one KV head of 576 and 512, which FlashAttention-2 and -3 do not."""
    latent = Decode(1, 128, 1, 576, 512, 4096)

    assert {kernel.name for kernel in KERNELS if kernel.takes(latent, "bf16")} == {
        "FlashMLA", "Triton, SGLang", "Triton MLA, vLLM"
    }  # fmt: skip
    assert not BY_NAME["FlashMLA"].takes(asked(1, 4096), "bf16")


def test_a_device_of_unknown_capability_runs_none_of_nvidias() -> None:
    """An NVIDIA device without a compute capability is not guessed; AMD's has none."""
    assert not FA3.runs_on("nvidia", None, "fp16")
    assert BY_NAME["Triton, SGLang"].runs_on("amd", None, "fp16")
    assert not FA2.runs_on("amd", None, "fp16")


def test_kernels_take_formats() -> None:
    """FlashAttention takes 16 bits alone; bf16 needs compute capability 8.0; PagedAttention and Triton take fp32 too."""
    decode = asked(1, 16384)

    assert {kernel.name for kernel in KERNELS if kernel.takes(decode, "fp32")} == {
        "PagedAttention v2",
        "Triton, SGLang",
    }
    assert BY_NAME["PagedAttention v2"].runs_on("nvidia", (7, 5), "fp16")
    assert not BY_NAME["PagedAttention v2"].runs_on("nvidia", (7, 5), "bf16")


def test_the_cache_is_read_in_so_long() -> None:
    """One layer of Llama 3.1 8B at 128k: 8 x 131,072 x 256 x 2 B over 3.35 TB/s; of a latent, 576 elements and no values."""
    assert cache_read_seconds(asked(1, 131072, 32, 8), 2, 3.35e12) == pytest.approx(8 * 131072 * 256 * 2 / 3.35e12)
    assert cache_read_seconds(Decode(2, 128, 1, 576, 512, 4096), 2, 4.8e12) == pytest.approx(
        2 * 4096 * 576 * 2 / 4.8e12
    )
