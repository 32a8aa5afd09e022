"""What SGLang takes where a flag is not given: the static share of the memory, chunks and captured batches, by version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.leftover import Interval, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.engines.vllm_versions import Version

MIB: Final = float(1 << 20)
# device below so many MiB -> tokens of a chunk, and largest captured batch below 4 devices and from 4 on.
# Source: sgl-project/sglang, python/sglang/srt/server_args.py, _handle_gpu_memory_settings (pull request 10975)
SIZES: Final = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 2048, 24, 80),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
    (float("inf"), 16384, 512, 512),
)
LARGE: Final = 60 * 1024  # a device above it keeps LEAST_OF_LARGE free [MiB]
LEAST_OF_LARGE: Final = 10 * 1024
MANY_GRAPHS: Final = 300  # captured batch above which replicas' attention takes half as much again
# parallel size from -> share, until 0.4.6
SHARES: Final = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
# device below so many MiB -> GiB kept free, and for each device of the model, until 0.5.3
RESERVES: Final = ((35 * 1024, 2.8, 0.1), (90 * 1024, 9.5, 0.5), (160 * 1024, 12.0, 0.5), (float("inf"), 32.0, 0.0))
TOWER: Final = 24 * 1024**2 * 12  # parameters of ViT-L/14, the tower that costs 5 %


@dataclass(frozen=True, slots=True)
class Start:
    """What decides SGLang's defaults.

    Args:
        memory: of the device as nvidia-smi reports it. [B]
        devices: of one model, tensor and pipeline parallel.
        replicas: of attention under --enable-dp-attention; 1 without.
        chunk: --chunked-prefill-size; None is by the device. [token]
        drafts: whether tokens are drafted.
        latent: whether attention is MLA.
        tower: parameters of a vision tower; 0 without. [parameter]
    """

    memory: float
    devices: int
    replicas: int = 1
    chunk: int | None = None
    drafts: bool = False
    latent: bool = False
    tower: int = 0


@dataclass(frozen=True, slots=True)
class Rules:
    """What changed from one version to another.

    Args:
        share: the static share of the memory, mem_fraction_static. [-]
        windows: whether window layers have a pool of their own.
        slots: slots of recurrent states that a running request takes.
        spread: of the memory kept free, to each side. [-]
        what: how the share is found, in words.
    """

    share: Callable[[Start], float]
    windows: bool
    slots: int
    spread: float
    what: str


def sizes_of(start: Start) -> tuple[int, int]:
    """Tokens of a chunk of a prompt, and the largest batch that is captured.

    >>> sizes_of(Start(81559 * MIB, 1)), sizes_of(Start(24564 * MIB, 4))
    ((8192, 256), (2048, 80))
    """
    mib = start.memory / MIB
    _, chunk, few, many = next(row for row in SIZES if mib < row[0])
    return start.chunk or chunk, few if start.devices < 4 else many  # noqa: PLR2004 - four devices, as the source has it


def _share_by_devices(start: Start) -> float:
    """Until 0.4.6: by the devices alone."""
    return next(share for least, share in SHARES if start.devices >= least)


def _share_by_table(start: Start) -> float:
    """0.4.7 to 0.5.3: what is kept free, by the device and how many there are. [-]"""
    mib = start.memory / MIB
    _, base, each = next(row for row in RESERVES if mib < row[0])
    kept = (base + each * start.devices + 2 * start.drafts + 4 * (start.replicas > 1)) * 1024
    return _without(start, kept)


def _share_by_sizes(start: Start) -> float:
    """From 0.5.4: 512 + 1.5 chunk + 2 graphs + 128 devices MiB are kept free, 10 GiB at least on large devices. [-]"""
    return _without(start, _kept(start))


def _share_by_pieces(start: Start) -> float:
    """The newest: as from 0.5.4, and 8 MiB for each captured size of a chunk's graphs. [-]

    >>> _share_by_pieces(Start(183359 * MIB, 1))  # 512 + 24,576 + 1,024 + 128 + 74 x 8 of 183,359 MiB, a B200
    0.854
    """
    chunk, _ = sizes_of(start)
    return _without(start, _kept(start, 8.0 * pieces(2048 if start.latent else chunk)))


def _kept(start: Start, more: float = 0.0) -> float:
    """Memory kept free for activations and graphs. [MiB]"""
    chunk, graphs = sizes_of(start)
    kept = 512 + 1.5 * max(chunk, 2048) + 2.0 * graphs + 128.0 * start.devices + more
    if start.replicas > 1:
        kept += graphs * start.replicas * (4.5 if graphs > MANY_GRAPHS else 3.0)
    if start.memory / MIB > LARGE:
        kept = max(kept, LEAST_OF_LARGE)
    return kept + 2 * 1024 * start.drafts


def pieces(chunk: int) -> int:
    """Sizes of a chunk that graphs are captured for: 4 to 32 by 4, to 256 by 16, to 512 by 32, to 1024 by 64 and on.

    >>> pieces(16384), pieces(2048)
    (74, 42)
    """
    steps = (range(4, 33, 4), range(48, 257, 16), range(288, 513, 32), range(576, 1025, 64), range(1280, 4097, 256))
    return sum(size <= chunk for step in steps for size in step) + len(range(4608, chunk + 1, 512))


def _without(start: Start, kept: float) -> float:
    """Share that is left when so many MiB are kept free, less what a vision tower costs: 5 %, more the larger it is. [-]"""
    mib = start.memory / MIB
    share = max(0.0, round((mib - kept) / mib, 3))
    if not start.tower:
        return share
    return share * 0.95 * max(0.8, min(1.05, 1.0 - 0.1 * (start.tower / TOWER - 1.0)))


# since -> rules. Sources: python/sglang/srt/server_args.py of these versions; sgl-project/sglang#6563 (pool of windows),
# #15337 and #38846 (3 and 5 slots a request)
RULES: Final[tuple[tuple[Version, Rules], ...]] = (
    ((0,), Rules(_share_by_devices, windows=False, slots=3, spread=0.0, what="by the number of devices")),
    ((0, 4, 7), Rules(_share_by_table, windows=False, slots=3, spread=0.0, what="by device and number of devices")),
    ((0, 5, 4), Rules(_share_by_sizes, windows=True, slots=3, spread=0.05, what="by chunk and captured batch")),
    ((0, 5, 10), Rules(_share_by_pieces, windows=True, slots=5, spread=0.1, what="by chunk and captured sizes")),
)


def static_share(start: Start, version: Version | None) -> Interval:
    """mem_fraction_static where it is not given, with how far the memory kept free may be off. [-]

    >>> static_share(Start(81559 * MIB, 8), (0, 5, 3))[1]  # (9.5 + 8 / 2) GiB of 79.65 are kept free
    0.831
    """
    rules = rules_of(RULES, version)
    share = rules.share(start)
    off = (1 - share) * (rules.spread + 0.15 * bool(start.tower))
    return share - off, share, share + off
