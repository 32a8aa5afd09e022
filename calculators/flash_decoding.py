"""Flash-Decoding: thread blocks of a decode step against the SMs of a device, with and without splitting K and V."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators import split_rules as rules
from roofcast.calculators.attention_memory import SINGLE, partial_bytes, split_workspace_bytes
from roofcast.calculators.split_rules import WIDEST, Decode, wave_efficiency

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDED: Final = 32  # elements that a head's width is rounded up to in the workspace
FLASH: Final = "https://github.com/Dao-AILab/flash-attention"
VLLM: Final = "https://github.com/vllm-project/vllm"
ONE_PASS: Final = 8192  # tokens up to which vLLM may take PagedAttention v1
ENOUGH_HEADS: Final = 512  # sequences x heads above which it does
LATENT: Final = (576, 512)  # key and value width of DeepSeek's absorbed MLA, which FlashMLA is made for
FLASH_ROWS: Final = 128  # of Q in a block of FlashAttention-3 and -4
NARROW_ROWS: Final = 192  # of FlashAttention-3 with heads up to 96
NARROW: Final = 96
TRITON_HEADS: Final = 16  # of one group in a program
SPLIT_ROWS: Final = 64  # of Q in a block of FlashAttention-2's split kernel, and of FlashMLA
ANY: Final = (99, 0)
AMPERE: Final = (8, 0)
HALVES: Final = frozenset({"fp16", "bf16"})


def single_partial(decode: Decode, _element: float) -> float:
    """A row's part of one split in fp32: an output and its logsumexp, 4 (d_v + 1). [B]"""
    return partial_bytes(decode.value_width)


def rounded_partial(decode: Decode, _element: float) -> float:
    """The same of FlashAttention-2, which rounds a head's width up to 32. [B]"""
    return partial_bytes(-(-decode.value_width // ROUNDED) * ROUNDED)


def paged_partial(decode: Decode, element: float) -> float:
    """PagedAttention's: an output in the format of the inputs, a sum and a maximum in fp32, b d_v + 8. [B]

    Source: vllm-project/vllm, csrc/attention/paged_attention_v2.cu: tmp_out, exp_sums and max_logits.
    """
    return element * decode.value_width + 2 * SINGLE


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kind of decode kernel: what its blocks hold and how it splits.

    Args:
        name: as people say it.
        rows: rows of Q that one block can hold, by the question; a row is one query head of one new token.
        packed: whether query heads of one KV head share a block.
        split: its rule: question, blocks without a split and SMs -> splits.
        least, most: compute capabilities of NVIDIA's devices.
        slots: blocks of an SM that run at once, where the rule counts on it; None is not known.
        vendors: whose devices it is for.
        widest: key head that it takes. [element]
        queries: whether a sequence may have several new tokens.
        applies: whether it is the one for a question, where kernels of one engine take turns.
        formats: of Q, K and V that it takes.
        persistent: whether it launches as many blocks as run at once, of which those count that get any tokens.
        partial: bytes of a split's part of one row: question and bytes of an element. [B]
        source: where its rule was read.
    """

    name: str
    rows: Callable[[Decode], int]
    packed: Callable[[Decode], bool]
    split: Callable[[Decode, int, int], int]
    least: tuple[int, int]
    source: str
    most: tuple[int, int] = ANY
    slots: int | None = None
    vendors: frozenset[str] = frozenset({"nvidia"})
    widest: int = WIDEST
    queries: bool = True
    applies: Callable[[Decode], bool] = lambda _: True
    formats: frozenset[str] = HALVES
    persistent: bool = False
    partial: Callable[[Decode, float], float] = single_partial

    def takes(self, decode: Decode, number_format: str) -> bool:
        """Whether it can be asked this."""
        fits = decode.key_width <= self.widest and (self.queries or decode.queries == 1)
        return fits and number_format in self.formats and self.applies(decode)

    def runs_on(self, vendor: str | None, capability: tuple[int, int] | None, number_format: str) -> bool:
        """Whether a device can run it in a format, by its vendor and compute capability: bf16 needs 8.0."""
        if vendor not in self.vendors:
            return False
        if capability is not None and number_format == "bf16" and capability < AMPERE:
            return False
        return vendor != "nvidia" if capability is None else self.least <= capability <= self.most


def _swapped(decode: Decode) -> bool:
    """FlashAttention-2 swaps new tokens for query heads where there is one token, no window, no ALiBi, d in eights."""
    return decode.queries == 1 and not decode.windowed and decode.group > 1 and decode.key_width % 8 == 0


def _whole_groups(decode: Decode) -> bool:
    """FlashAttention-4 packs groups that divide its rows."""
    return decode.group > 1 and FLASH_ROWS % decode.group == 0


def _one_pass(decode: Decode) -> bool:
    """When vLLM takes PagedAttention v1: short, and one partition or many heads."""
    many = decode.batch * decode.query_heads > ENOUGH_HEADS
    return decode.context <= ONE_PASS and (decode.context <= rules.PARTITION or many)


def _latent(decode: Decode) -> bool:
    """Whether it is absorbed MLA: one KV head as wide as DeepSeek's latent."""
    return decode.kv_heads == 1 and (decode.key_width, decode.value_width) == LATENT


# a row a kind, in the order of tables
KERNELS: Final[tuple[Kernel, ...]] = (
    Kernel(
        "FlashAttention-1",
        rows=lambda decode: decode.queries,  # a block takes all of a head's
        packed=lambda _: False,
        split=rules.one,
        least=(7, 5),
        most=(9, 0),
        widest=128,
        source="https://arxiv.org/abs/2307.08691, section 3.2",
    ),
    Kernel(
        "FlashAttention-2",
        rows=lambda _: SPLIT_ROWS,
        packed=_swapped,
        split=rules.flash_2,
        least=(8, 0),
        slots=2,
        partial=rounded_partial,
        source=f"{FLASH}/blob/main/csrc/flash_attn/flash_api.cpp",
    ),
    Kernel(
        "FlashAttention-2, window or ALiBi",
        rows=lambda _: SPLIT_ROWS,
        packed=lambda _: False,
        split=rules.flash_2,
        least=(8, 0),
        slots=2,
        applies=_swapped,  # else the row above is the same
        partial=rounded_partial,
        source=f"{FLASH}/blob/main/csrc/flash_attn/flash_api.cpp",
    ),
    Kernel(
        "FlashAttention-3",
        rows=lambda decode: NARROW_ROWS if decode.key_width <= NARROW else FLASH_ROWS,
        packed=lambda decode: decode.group > 1,
        split=rules.flash_3,
        least=(9, 0),
        most=(9, 0),
        slots=1,
        source=f"{FLASH}/blob/main/hopper/heuristics.h",
    ),
    Kernel(
        "FlashAttention-4",  # refuses splits on 9.0
        rows=lambda _: FLASH_ROWS,
        packed=lambda decode: decode.group > 1,
        split=rules.one,
        least=(9, 0),
        most=(9, 0),
        slots=1,
        widest=128,
        source=f"{FLASH}/blob/main/flash_attn/cute/interface.py",
    ),
    Kernel(
        "FlashAttention-4, splits asked",
        rows=lambda _: FLASH_ROWS,
        packed=_whole_groups,
        split=rules.flash_4,
        least=(10, 0),
        most=(11, 0),
        slots=1,
        widest=128,
        source=f"{FLASH}/blob/main/flash_attn/cute/interface.py",
    ),
    Kernel(
        "PagedAttention v1",
        rows=lambda _: 1,
        packed=lambda _: False,
        split=rules.one,
        least=(7, 0),
        queries=False,
        applies=_one_pass,
        formats=HALVES | {"fp32"},
        source=f"{VLLM}/blob/main/csrc/attention/paged_attention_v1.cu",
    ),
    Kernel(
        "PagedAttention v2",
        rows=lambda _: 1,
        packed=lambda _: False,
        split=rules.partitions,
        least=(7, 0),
        queries=False,
        applies=lambda decode: not _one_pass(decode),
        formats=HALVES | {"fp32"},
        partial=paged_partial,
        source=f"{VLLM}/blob/main/csrc/attention/paged_attention_v2.cu",
    ),
    Kernel(
        "FlashMLA",
        rows=lambda _: SPLIT_ROWS,
        packed=lambda _: True,
        split=rules.even_parts,
        least=(9, 0),
        most=(9, 0),
        slots=1,
        widest=LATENT[0],
        applies=_latent,
        persistent=True,
        source="https://github.com/deepseek-ai/FlashMLA",
    ),
    Kernel(
        "Triton, SGLang",
        rows=lambda decode: min(TRITON_HEADS, decode.group),
        packed=lambda decode: decode.group > 1,
        split=rules.growing,
        least=(8, 0),
        vendors=frozenset({"nvidia", "amd"}),
        widest=LATENT[0],
        queries=False,
        formats=HALVES | {"fp32"},
        source="https://github.com/sgl-project/sglang: triton_ops/decode_attention.py",
    ),
    Kernel(
        "Triton MLA, vLLM",
        rows=lambda decode: min(TRITON_HEADS, decode.group),
        packed=lambda decode: decode.group > 1,
        split=rules.four,
        least=(8, 0),
        vendors=frozenset({"nvidia", "amd"}),
        widest=LATENT[0],
        queries=False,
        applies=_latent,
        formats=HALVES | {"fp32"},
        source=f"{VLLM}/blob/main/vllm/v1/attention/ops/triton_decode_attention.py",
    ),
)


def decode_blocks(kernel: Kernel, decode: Decode) -> int:
    """Thread blocks without a split: batch x KV heads x ceil(group x new tokens / rows) where heads are packed. [-]

    Where they are not: batch x query heads x ceil(new tokens / rows), and a KV head is read by every query head's block.

    Args:
        kernel: its rows, and whether it packs.
        decode: sequences, heads and new tokens.

    Source: https://pytorch.org/blog/flash-decoding/; csrc/flash_attn/flash_api.cpp and the kernels' own grids.

    >>> ask = Decode(1, 16, 2, 128, 128, 65536)
    >>> [decode_blocks(kernel, ask) for kernel in KERNELS[1:3]]  # 1 x 2 x ceil(8 / 64), 1 x 16 x ceil(1 / 64)
    [2, 16]
    """
    rows = kernel.rows(decode)
    if kernel.packed(decode):
        return decode.batch * decode.kv_heads * -(-decode.group * decode.queries // rows)
    return decode.batch * decode.query_heads * -(-decode.queries // rows)


@dataclass(frozen=True, slots=True)
class Filling:
    """How a launch fills a device.

    Args:
        blocks: thread blocks.
        busy: share of the SMs that get one.
        efficiency: share of the slots with work over all waves; None where blocks of an SM are not known.
    """

    blocks: int
    busy: float
    efficiency: float | None


def busy_share(blocks: int, sms: int) -> float:
    """Share of the SMs that get a block: min(1, blocks / SMs). [-]

    Args:
        blocks: thread blocks of the launch.
        sms: SMs of the device.

    Source: https://pytorch.org/blog/flash-decoding/, which puts it so for a batch below the SMs.

    >>> round(busy_share(2, 108), 4), busy_share(206, 108)
    (0.0185, 1.0)
    """
    return min(1.0, blocks / sms)


@dataclass(frozen=True, slots=True)
class Split:
    """One kernel on one device, with and without splitting K and V.

    Args:
        without: as if it did not split.
        splits: of a sequence's K and V.
        filled: with them.
        workspace: bytes of partial results. [B]
    """

    without: Filling
    splits: int
    filled: Filling
    workspace: float


def split_decode(kernel: Kernel, decode: Decode, sms: int, element: float = 2.0) -> Split:
    """A kernel's launch on a device: blocks x splits against the SMs; of a persistent one the blocks that get tokens."""
    blocks = decode_blocks(kernel, decode)
    splits = kernel.split(decode, blocks, sms)
    each = blocks // decode.batch
    launched = rules.latent_parts(decode, each, sms).used * each if kernel.persistent else blocks * splits
    return Split(
        without=_filling(kernel, blocks, sms),
        splits=splits,
        filled=_filling(kernel, launched, sms),
        workspace=split_workspace_bytes(decode.rows, kernel.partial(decode, element), splits),
    )


def _filling(kernel: Kernel, blocks: int, sms: int) -> Filling:
    efficiency = None if kernel.slots is None else wave_efficiency(blocks, kernel.slots * sms)
    return Filling(blocks, busy_share(blocks, sms), efficiency)
