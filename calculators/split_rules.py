"""How decode kernels split K and V over blocks: a function a rule, as their sources have it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Final

ENOUGH: Final = 0.8  # of the slots filled without a split: none then
NEAR_BEST: Final = 0.85  # of the best efficiency, which the fewest splits must reach
MOST_SPLITS: Final = 128
SHORTEST: Final = 4  # blocks of K and V that FlashAttention-3 and -4 do not split
PARTITION: Final = 512  # tokens of a split of PagedAttention v2
LATENT_ROWS: Final = 64  # rows of K and V that FlashMLA takes at once
LATENT_OVERHEAD: Final = 5  # of these, what a sequence costs a part beside its own
GROWTH: Final = 64  # tokens at which SGLang's number of splits begins to grow
SGLANG_MOST: Final = 8  # --triton-attention-num-kv-splits
VLLM_SPLITS: Final = 4  # of TRITON_MLA, whatever the context
WIDEST: Final = 256  # head that FlashAttention-2 and -3 take
# width of a head at most -> tokens of K and V that one step of a block takes
TILES_2: Final = ((64, 256), (128, 128), (WIDEST, 64))
TILES_3: Final = ((64, 192), (96, 144), (128, 176), (192, 128), (WIDEST, 80))
WIDE_VALUES_3: Final = (192, 128, 112)  # keys up to, beside values above: so many tokens
TILE_4: Final = 128


@dataclass(frozen=True, slots=True)
class Decode:
    """What a decode kernel is asked: every sequence's new tokens against its cached ones, all of one length.

    Args:
        batch: sequences.
        query_heads, kv_heads: of Q, and of K and V.
        key_width, value_width: of a key and of a value head. [element]
        context: tokens of K and V. [token]
        queries: new tokens of a sequence.
        windowed: whether a sliding window masks older tokens.
    """

    batch: int
    query_heads: int
    kv_heads: int
    key_width: int
    value_width: int
    context: int
    queries: int = 1
    windowed: bool = False

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.query_heads // self.kv_heads

    @property
    def rows(self) -> int:
        """Rows of Q over all sequences and heads."""
        return self.batch * self.query_heads * self.queries


def fewest_splits(blocks: int, slots: int, pieces: int, *, whole: bool = True) -> int:
    """The fewest splits whose wave efficiency is 85 % of the best: waves = blocks x s / slots, over their ceiling. [-]

    One where blocks fill 0.8 of the slots. At most 128, the slots, and the pieces that K and V have.

    Args:
        blocks: thread blocks without a split.
        slots: blocks that run at once.
        pieces: tiles of K and V, which splits are made of.
        whole: leave out splits that would not shorten the longest one (FlashAttention-2).

    Source: Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp, num_splits_heuristic (the same in
    pytorch/pytorch); hopper/heuristics.h without `whole`.

    >>> fewest_splits(48, 108, 64)  # its comment's example: 96 / 108 = 0.89 with 2, 144 / 108 over 2 waves = 0.67 with 3
    2
    >>> fewest_splits(2, 216, 512), fewest_splits(16, 216, 64)  # 206 / 216 and 208 / 216 are the best
    (103, 13)
    """
    if blocks >= ENOUGH * slots:
        return 1
    most = min(MOST_SPLITS, slots, pieces)
    eligible = [s for s in range(1, most + 1) if s == 1 or not whole or -(-pieces // s) != -(-pieces // (s - 1))]
    reached = {s: wave_efficiency(blocks * s, slots) for s in eligible}
    best = max(reached.values())
    return next(s for s in eligible if reached[s] >= NEAR_BEST * best)


def wave_efficiency(blocks: int, slots: int) -> float:
    """Share of the slots that have work over all waves: w / ceil(w) with w = blocks / slots. [-]

    Were all blocks alike. A last wave that is nearly empty costs as much as a full one.

    Args:
        blocks: thread blocks of the launch.
        slots: blocks that run at once.

    Source: Dao-AILab/flash-attention, csrc/flash_attn/flash_api.cpp, num_splits_heuristic.

    >>> round(wave_efficiency(96, 108), 2), round(wave_efficiency(144, 108), 2)
    (0.89, 0.67)
    """
    waves = blocks / slots
    return waves / ceil(waves)


def one(_decode: Decode, _blocks: int, _sms: int) -> int:
    """No split."""
    return 1


def flash_2(decode: Decode, blocks: int, sms: int) -> int:
    """FlashAttention-2's: two blocks of 128 threads an SM, tiles of 256, 128 or 64 tokens by the width of a head.

    Source: csrc/flash_attn/flash_api.cpp, set_params_splitkv.
    """
    return fewest_splits(blocks, 2 * sms, _pieces(decode, TILES_2))


def flash_3(decode: Decode, blocks: int, sms: int) -> int:
    """FlashAttention-3's for a contiguous cache, one block an SM; its rule for K and V beyond the L2 is not in it.

    That rule needs more blocks of queries than twice the SMs, which decode has not.

    Source: hopper/heuristics.h, num_splits_heuristic; hopper/tile_size.h.
    """
    keys, values, tile = WIDE_VALUES_3
    wide = TILES_3[2][0] < decode.key_width <= keys and decode.value_width > values
    pieces = -(-decode.context // tile) if wide else _pieces(decode, TILES_3)
    return fewest_splits(blocks, sms, pieces, whole=False) if pieces > SHORTEST else 1


def flash_4(decode: Decode, blocks: int, sms: int) -> int:
    """FlashAttention-4's, where the caller asks for it to choose: floor(SMs / blocks), none up to 4 tiles of 128 tokens.

    Blocks are counted by KV heads there, also where a group is not packed and its query heads have one each.

    Source: flash_attn/cute/interface.py; its num_splits is 1 unless a caller passes less, and on 9.0 no other is taken.
    """
    pieces = -(-decode.context // TILE_4)
    counted = min(blocks, decode.batch * decode.kv_heads * -(-decode.queries * decode.group // TILE_4))
    return max(min(sms // counted, MOST_SPLITS, pieces), 1) if pieces > SHORTEST else 1


def partitions(decode: Decode, _blocks: int, _sms: int) -> int:
    """PagedAttention v2's: ceil(context / 512), whatever the SMs.

    Source: vllm-project/vllm, csrc/attention/paged_attention_v2.cu.
    """
    return -(-decode.context // PARTITION)


@dataclass(frozen=True, slots=True)
class Parts:
    """How FlashMLA deals sequences to parts of a device.

    Args:
        used: parts that get any tokens.
        splits: most parts that one sequence is dealt to.
    """

    used: int
    splits: int


def latent_parts(decode: Decode, each: int, sms: int) -> Parts:
    """FlashMLA's deal: every part takes ceil(sum of (tokens / 64 + 5) / parts) pieces, 5 of them for each sequence it meets.

    Parts are SMs / KV heads / ceil(rows / 64), filled one after the other; a part that ends within a sequence leaves the
    rest to the next.

    Args:
        decode: sequences, all of one length.
        each: thread blocks of a part, one for 64 rows of Q.
        sms: of the device.

    Source: deepseek-ai/FlashMLA, get_mla_metadata: block_size_n 64, fixed_overhead_num_blocks 5.

    >>> latent_parts(Decode(1, 128, 1, 576, 512, 4096), 2, 132)  # 69 / 66 parts, 2 + 5: two pieces each, 32 parts
    Parts(used=32, splits=32)
    >>> latent_parts(Decode(64, 128, 1, 576, 512, 4096), 2, 132)  # 64 x 69 / 66, 67 + 5: one sequence each
    Parts(used=64, splits=1)
    """
    parts, pieces = max(sms // each, 1), -(-decode.context // LATENT_ROWS)
    payload = -(-decode.batch * (pieces + LATENT_OVERHEAD) // parts) + LATENT_OVERHEAD
    used, left, splits, sequence, rest = 0, 0, [0] * decode.batch, 0, pieces
    while sequence < decode.batch:
        if left <= LATENT_OVERHEAD:
            used, left = used + 1, payload
        splits[sequence] += 1
        taken = min(rest, left - LATENT_OVERHEAD)
        rest, left = rest - taken, left - taken - LATENT_OVERHEAD
        if not rest:
            sequence, rest = sequence + 1, pieces
    return Parts(used, max(splits))


def even_parts(decode: Decode, blocks: int, sms: int) -> int:
    """Parts that FlashMLA deals a sequence to, at most: see `latent_parts`."""
    return latent_parts(decode, blocks // decode.batch, sms).splits


def growing(decode: Decode, blocks: int, sms: int) -> int:
    """SGLang's Triton kernel: ceil(SMs x max(log2(context / 64), 1) / blocks), 8 at most, lengths all alike.

    Source: sgl-project/sglang, triton_backend.py, get_num_kv_splits_triton.
    """
    room = int(sms * max(log2(decode.context / GROWTH), 1.0))
    most = min(-(-room // blocks), SGLANG_MOST)
    return -(-decode.context // -(-decode.context // most))


def four(_decode: Decode, _blocks: int, _sms: int) -> int:
    """vLLM's TRITON_MLA: 4, whatever the context.

    Source: vllm-project/vllm, vllm/v1/attention/ops/triton_decode_attention.py and its backend.
    """
    return VLLM_SPLITS


def _pieces(decode: Decode, tiles: tuple[tuple[int, int], ...]) -> int:
    """Tiles of K and V at a width of heads."""
    return -(-decode.context // next(tile for widest, tile in tiles if decode.key_width <= widest))
