"""FlashAttention's generations: which a device has, the on-chip memory of its blocks, and what was published of each."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.hwdb.accelerator import Accelerator

KIB: Final = 1024
GUIDE: Final = (
    "https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/compute-capabilities.html"  # its table 31
)
# compute capability -> shared memory that one thread block can have, opted in. [KiB]
BLOCK_MEMORY: Final[Mapping[tuple[int, int], int]] = MappingProxyType(
    {
        (7, 5): 64,
        (8, 0): 163,
        (8, 6): 99,
        (8, 7): 163,
        (8, 9): 99,
        (9, 0): 227,
        (10, 0): 227,
        (10, 3): 227,
        (11, 0): 227,
        (12, 0): 99,
        (12, 1): 99,
    }
)
README: Final = "https://github.com/Dao-AILab/flash-attention"
TURING: Final = (7, 5)
LAST_OF_FIRST: Final = (9, 0)


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of FlashAttention.

    Args:
        name: as people say it.
        flag: the accelerator's flag that says whether it runs; empty where the compute capability does.
        says: what its README asks for.
        source: of what it says.
    """

    name: str
    flag: str
    says: str
    source: str = README


GENERATIONS: Final[tuple[Generation, ...]] = (
    Generation(
        "FlashAttention-1",
        "",
        "Turing to Hopper, heads up to 128, as a package of its own: 1.x, or flash-attention-turing",
    ),
    Generation("FlashAttention-2", "flash_attention_2", "Ampere, Ada and Hopper, and AMD's MI200 and later"),
    Generation("FlashAttention-3", "flash_attention_3", "H100 and H800, CUDA 12.3 or later"),
    Generation(
        "FlashAttention-4",
        "flash_attention_4",
        "Hopper and Blackwell (H100, B200)",
        f"{README}/blob/main/flash_attn/cute/README.md",
    ),
)


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """One generation on one device."""

    gpu: str
    """Id of the accelerator."""
    generation: str
    """FlashAttention-1 to -4."""
    runs: bool | None
    """Whether it runs; null where that is not known."""
    says: str
    """What its README names."""
    source: str
    """The README."""


def generation_rows(accelerator: Accelerator) -> list[GenerationRow]:
    """Which generations run on a device, oldest first."""
    flags: dict[str, bool | None] = dict(accelerator.flags)
    capability = accelerator.capability
    elsewhere = False if flags["flash_attention_2"] is False else None  # other vendors' first ports are not recorded
    runs = flags | {"": elsewhere if capability is None else _first_runs(capability)}
    return [GenerationRow(accelerator.id, one.name, runs[one.flag], one.says, one.source) for one in GENERATIONS]


def _first_runs(capability: tuple[int, int]) -> bool | None:
    """Whether FlashAttention-1 runs: its README names Turing to Hopper; of later ones nothing is known."""
    return None if capability > LAST_OF_FIRST else capability >= TURING


@dataclass(frozen=True, slots=True)
class Published:
    """A measurement that someone published, of a peak or of a bandwidth."""

    generation: str
    """FlashAttention-1 to -4, Flash-Decoding or FlashMLA."""
    gpu: str
    """Device as published."""
    compute_capability: str
    """Its CUDA compute capability."""
    format: str
    """Number format."""
    low: float
    """Least fraction published. [-]"""
    high: float
    """Most; the same where one is published. [-]"""
    of: str
    """peak: of dense FLOP/s; bandwidth: of memory."""
    conditions: str
    """Of what, and what was published where the fraction is derived."""
    access: str
    """seen: read in it; quoted: quoted by a text that was; derived: published rate over the data sheet's."""
    source: str
    """Where."""


FA2_PAPER: Final = "https://arxiv.org/abs/2307.08691"
FA3_PAPER: Final = "https://arxiv.org/abs/2407.08608"
FA4_PAPER: Final = "https://arxiv.org/abs/2603.05451"
BLOG: Final = "https://pytorch.org/blog/flash-decoding/"
FLASH_MLA: Final = "https://github.com/deepseek-ai/FlashMLA"
FIRST: Final = "FlashAttention-1"
SECOND: Final = "FlashAttention-2"
THIRD: Final = "FlashAttention-3"
FOURTH: Final = "FlashAttention-4"
# maxima, of long sequences; training and prefill shapes but for the last three
PUBLISHED: Final[tuple[Published, ...]] = (
    Published(FIRST, "A100", "8.0", "fp16", 0.25, 0.40, "peak", "by FlashAttention-2's paper", "quoted", FA2_PAPER),
    Published(SECOND, "A100", "8.0", "fp16", 0.50, 0.73, "peak", "forward, up to 230 TFLOP/s", "seen", FA2_PAPER),
    Published(SECOND, "A100", "8.0", "fp16/bf16", 0.72, 0.72, "peak", "GPT training", "seen", FA2_PAPER),
    Published(SECOND, "H100", "9.0", "fp16", 0.35, 0.35, "peak", "by FlashAttention-3's paper", "seen", FA3_PAPER),
    Published(THIRD, "H100", "9.0", "fp16", 0.75, 0.75, "peak", "up to 740 TFLOP/s, first version", "seen", FA3_PAPER),
    Published(THIRD, "H100", "9.0", "bf16", 0.85, 0.85, "peak", "up to 840 TFLOP/s, later version", "seen", FA3_PAPER),
    Published(
        THIRD, "H100", "9.0", "fp8", 0.61, 0.66, "peak", "1.2 (first version), 1.3 PFLOP/s", "derived", FA3_PAPER
    ),
    Published(FOURTH, "B200", "10.0", "bf16", 0.71, 0.71, "peak", "up to 1,613 TFLOP/s", "seen", FA4_PAPER),
    Published(
        "Flash-Decoding",
        "A100",
        "8.0",
        "fp16",
        0.42,
        0.62,
        "bandwidth",
        "of the 80 GB card's",
        "derived",
        BLOG,
    ),
    Published("FlashMLA", "H800", "9.0", "bf16", 0.90, 0.90, "bandwidth", "up to 3,000 GB/s", "derived", FLASH_MLA),
    Published("FlashMLA", "H800", "9.0", "bf16", 0.67, 0.67, "peak", "660 TFLOP/s", "derived", FLASH_MLA),
)


def block_memory(accelerator: Accelerator) -> tuple[float | None, bool]:
    """On-chip memory of one thread block, and whether it is a block's by its vendor's table: else an SM's is taken. [B]

    A block holds the tiles of the algorithm, so M = its memory / bytes of an element: what an SM has, less 1 KiB that
    CUDA reserves a block, where one block has it all. None where neither is known.

    Source: CUDA programming guide, table of compute capabilities; the accelerator's record for an SM.

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> block_memory(find_accelerator("a100").accelerator)  # 163 x 1,024
    (166912, True)
    """
    own = BLOCK_MEMORY.get(accelerator.capability) if accelerator.capability else None
    if own is not None:
        return own * KIB, True
    return accelerator.shared_memory_per_sm, False
