"""Rows of `attention`: one question's traffic and memory, and one kernel's blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators import attention_io as io
from roofcast.calculators import attention_memory as extra
from roofcast.calculators.flash_decoding import KERNELS, Filling, Kernel, split_decode
from roofcast.calculators.roofline import COMPUTE, MEMORY, compute_seconds, memory_seconds
from roofcast.calculators.split_rules import Decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofcast.calculators.sdpa import Heads
    from roofcast.hwdb.accelerator import Accelerator

ELEMENTS: Final[dict[str, float]] = {"fp16": 2.0, "bf16": 2.0, "fp32": 4.0}  # [B]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of attention of a model, or the one asked for.

    Args:
        name: as people say it.
        prefill: heads that a prompt is attended with; of MLA the expanded ones.
        decode: heads that a new token is attended with; of MLA the latent's.
        window: keys that a query sees at most; None is all. [token]
        selected: keys that an index chooses for a query; None is all. [token]
    """

    name: str
    prefill: Heads
    decode: Heads
    window: int | None = None
    selected: int | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """What the formulas need of a device.

    Args:
        id: of the accelerator; None of none.
        memory: M, on-chip memory of a block. [B]
        peak: of the format, or of what is computed instead. [FLOP/s]
        bandwidth: of its memory. [B/s]
    """

    id: str | None
    memory: float | None = None
    peak: float | None = None
    bandwidth: float | None = None


@dataclass(frozen=True, slots=True)
class IoRow:
    """Memory traffic of one layer's attention over a prompt, every query with every key."""

    gpu: str | None
    """Id of the accelerator; null without one."""
    attention: str
    """Kind of attention."""
    batch: int
    """Sequences."""
    context: int
    """N, queries and keys of a sequence. [token]"""
    memory_elements: float | None
    """M, on-chip memory of a block in elements of the format; null where it is not known. [element]"""
    product_flops: float
    """FLOP of Q K^T and P V. [FLOP]"""
    compulsory_bytes: float
    """Q, K, V and O once: the floor. [B]"""
    standard_bytes: float
    """By standard attention. [B]"""
    flash_bytes: float | None
    """By FlashAttention's theorem with a constant of 1, the floor at least; null without M. [B]"""
    algorithm_bytes: float | None
    """By the loops of the FlashAttention paper's algorithm 1; null without M. [B]"""
    tiled_bytes: float
    """Asked for by kernels since FlashAttention-2, before caches. [B]"""
    standard_over_flash: float | None
    """Traffic of standard attention over the theorem's; null without M. [-]"""
    standard_intensity: float
    """FLOP a byte of standard attention. [FLOP/B]"""
    flash_intensity: float | None
    """FLOP a byte of the theorem's traffic; null without M. [FLOP/B]"""
    tiled_intensity: float
    """FLOP a byte that kernels since FlashAttention-2 ask for. [FLOP/B]"""
    ridge: float | None
    """The device's FLOP/byte at which both limits are equal; null without a peak. [FLOP/B]"""
    compute_seconds: float | None
    """Least time of the products; null without a peak. [s]"""
    standard_seconds: float | None
    """Least time of standard attention's traffic; null without a device. [s]"""
    flash_seconds: float | None
    """Least time of the theorem's traffic; null without M or a device. [s]"""
    standard_bound_by: str | None
    """memory or compute, the longer of both; null without a device or a peak."""
    flash_bound_by: str | None
    """Likewise of the theorem's traffic."""


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """What one layer's attention keeps beside its inputs and output."""

    attention: str
    """Kind of attention."""
    batch: int
    """Sequences."""
    context: int
    """N, queries and keys of a sequence. [token]"""
    score_bytes: float
    """One score matrix in the format of the inputs. [B]"""
    math_score_bytes: float
    """The score matrix of PyTorch's math backend, in fp32. [B]"""
    math_peak_bytes: float
    """Its scores and their softmax at once. [B]"""
    logsumexp_bytes: float
    """FlashAttention's logsumexp of every row. [B]"""
    efficient_bytes: float
    """Memory-efficient attention's, where gradients are wanted; without, nothing. [B]"""


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """One kernel's launch for new tokens against a cache."""

    gpu: str
    """Id of the accelerator."""
    attention: str
    """Kind of attention."""
    kernel: str
    """Kind of kernel."""
    batch: int
    """Sequences."""
    context: int
    """Tokens of K and V of a sequence, those that a window leaves. [token]"""
    queries: int
    """New tokens of a sequence."""
    packed: bool
    """Whether query heads of one KV head share a block."""
    rows: int
    """Rows of Q that a block can hold."""
    blocks: int
    """Thread blocks without splitting K and V."""
    busy_share: float
    """Share of the SMs that get one of them. [-]"""
    wave_efficiency: float | None
    """Share of the slots with work over all waves; null where blocks an SM are not known. [-]"""
    splits: int
    """Parts that the kernel splits a sequence's K and V into."""
    split_blocks: int
    """Thread blocks with them."""
    split_busy_share: float
    """Share of the SMs that get one of these. [-]"""
    split_wave_efficiency: float | None
    """Share of the slots with work over all waves with them; null likewise. [-]"""
    workspace_bytes: float
    """Partial results in memory, to be combined. [B]"""
    cache_read_seconds: float
    """Least time of reading K and V once, one layer. [s]"""
    source: str
    """Where the kernel's rule was read."""


def io_row(device: Device, kind: Kind, batch: int, tokens: int, element: float) -> IoRow:
    """Traffic of one kind of attention on a device, all heads and sequences of one layer."""
    heads, size = kind.prefill, batch * kind.prefill.query_heads * element
    width, share = heads.width, heads.share
    memory = None if device.memory is None else device.memory / element
    standard = size * io.standard_accesses(tokens, width, share)
    flash = None if memory is None else size * io.flash_accesses(tokens, width, memory, share)
    tiled = size * io.tiled_accesses(tokens, width)
    flops = batch * heads.query_heads * io.product_flops(tokens, width)
    times = _Times(device, flops)
    return IoRow(
        gpu=device.id,
        attention=kind.name,
        batch=batch,
        context=tokens,
        memory_elements=memory,
        product_flops=flops,
        compulsory_bytes=size * io.compulsory_accesses(tokens, width, share),
        standard_bytes=standard,
        flash_bytes=flash,
        algorithm_bytes=None if memory is None else size * io.algorithm_accesses(tokens, width, memory, share),
        tiled_bytes=tiled,
        standard_over_flash=standard_over_flash(standard, flash),
        standard_intensity=standard_intensity(flops, standard),
        flash_intensity=None if flash is None else flash_intensity(flops, flash),
        tiled_intensity=tiled_intensity(flops, tiled),
        ridge=times.ridge,
        compute_seconds=times.compute,
        standard_seconds=times.moving(standard),
        flash_seconds=times.moving(flash),
        standard_bound_by=times.bound_by(standard),
        flash_bound_by=times.bound_by(flash),
    )


def standard_over_flash(standard: float, flash: float | None) -> float | None:
    """How much less FlashAttention moves: D_standard / D_flash, by the theorem with a constant of 1. [-]

    Args:
        standard: bytes of standard attention. [B]
        flash: bytes of the theorem, the floor at least. [B]

    >>> standard_over_flash(40.3e9, 4.4e9)  # what arXiv:2205.14135, figure 2, measured, forward and backward
    9.2
    """
    return None if flash is None else standard / flash


def standard_intensity(flops: float, size: float) -> float:
    """FLOP a byte of standard attention: 4 N^2 d / (4 N d + 4 N^2) b, near d / b where N is long. [FLOP/B]

    Args:
        flops: of both products. [FLOP]
        size: bytes moved. [B]

    >>> standard_intensity(4 * 2**28 * 128, 2 * (4 * 2**21 + 4 * 2**28))  # N 16,384, d 128, 2 B
    63.5
    """
    return flops / size


def flash_intensity(flops: float, size: float) -> float:
    """FLOP a byte of the theorem's traffic: 4 M / d b, or N / b where the floor rules (n_kv = n_q). [FLOP/B]

    Args:
        flops: of both products. [FLOP]
        size: bytes moved. [B]

    >>> flash_intensity(4 * 2**28 * 128, 2 * 2**26)  # M 65,536: 4 x 65,536 / 128 / 2
    1024.0
    """
    return flops / size


def tiled_intensity(flops: float, size: float) -> float:
    """FLOP a byte that kernels since FlashAttention-2 ask for: 2 N / (1 + N / Br) b, near 2 Br / b at long N. [FLOP/B]

    Args:
        flops: of both products. [FLOP]
        size: bytes asked for. [B]

    >>> tiled_intensity(4 * 2**28 * 128, 2 * 2 * 2**21 * 129)  # N 16,384, d 128, Br 128, 2 B
    127.0
    """
    return flops / size


@dataclass(frozen=True, slots=True)
class _Times:
    """Least times of some arithmetic on a device, and of bytes beside it."""

    device: Device
    flops: float

    @property
    def ridge(self) -> float | None:
        peak, bandwidth = self.device.peak, self.device.bandwidth
        return None if peak is None or bandwidth is None else peak / bandwidth

    @property
    def compute(self) -> float | None:
        return None if self.device.peak is None else compute_seconds(self.flops, self.device.peak)

    def moving(self, size: float | None) -> float | None:
        bandwidth = self.device.bandwidth
        return None if size is None or bandwidth is None else memory_seconds(size, bandwidth)

    def bound_by(self, size: float | None) -> str | None:
        moving, compute = self.moving(size), self.compute
        if moving is None or compute is None:
            return None
        return MEMORY if moving >= compute else COMPUTE


def memory_row(kind: Kind, batch: int, tokens: int, element: float) -> MemoryRow:
    """Extra memory of one kind of attention."""
    asked = (batch, kind.prefill.query_heads, tokens)
    return MemoryRow(
        attention=kind.name,
        batch=batch,
        context=tokens,
        score_bytes=extra.score_bytes(*asked, element),
        math_score_bytes=extra.math_score_bytes(*asked),
        math_peak_bytes=extra.math_peak_bytes(*asked),
        logsumexp_bytes=extra.logsumexp_bytes(*asked),
        efficient_bytes=extra.efficient_bytes(*asked),
    )


def decode_question(kind: Kind, batch: int, context: int, queries: int) -> Decode:
    """What a kernel is asked: a kind's heads, and the tokens that its window leaves."""
    heads = kind.decode
    return Decode(
        batch=batch,
        query_heads=heads.query_heads,
        kv_heads=heads.kv_heads,
        key_width=heads.key_width,
        value_width=heads.value_width,
        context=context if kind.window is None else min(context, kind.window),
        queries=queries,
        windowed=kind.window is not None,
    )


def decode_rows(accelerator: Accelerator, kind: Kind, decode: Decode, number_format: str) -> Iterator[DecodeRow]:
    """Every kind of kernel that the device, the question and the format allow; none where its SMs are not known."""
    sms = accelerator.sm_count
    if sms is None:
        return
    for kernel in KERNELS:
        runs = kernel.runs_on(accelerator.vendor, accelerator.capability, number_format)
        if runs and kernel.takes(decode, number_format):
            yield _decode_row(accelerator, kind, kernel, decode, ELEMENTS[number_format])


def cache_read_seconds(decode: Decode, element: float, bandwidth: float) -> float:
    """Least time of reading K and V once: batch x n_kv x T (d_k + d_v) b over the bandwidth; of MLA the latent once. [s]

    Whatever the blocks. A kernel that does not pack a group reads them once for each of its query heads, which caches
    serve in part.

    Args:
        decode: sequences, heads and tokens.
        element: b. [B]
        bandwidth: of memory. [B/s]

    >>> ask = Decode(1, 32, 8, 128, 128, 131072)  # Llama 3.1 8B, one layer: 8 x 131,072 x 256 x 2 B
    >>> round(cache_read_seconds(ask, 2.0, 3.35e12) * 1e6)
    160
    """
    latent = decode.kv_heads == 1 and decode.key_width > decode.value_width  # its values are a part of its keys
    width = decode.key_width + (0 if latent else decode.value_width)
    return decode.batch * decode.kv_heads * float(decode.context) * width * element / bandwidth


def _decode_row(accelerator: Accelerator, kind: Kind, kernel: Kernel, decode: Decode, element: float) -> DecodeRow:
    made = split_decode(kernel, decode, accelerator.sm_count or 1, element)
    without: Filling = made.without
    return DecodeRow(
        gpu=accelerator.id,
        attention=kind.name,
        kernel=kernel.name,
        batch=decode.batch,
        context=decode.context,
        queries=decode.queries,
        packed=kernel.packed(decode),
        rows=kernel.rows(decode),
        blocks=without.blocks,
        busy_share=without.busy,
        wave_efficiency=without.efficiency,
        splits=made.splits,
        split_blocks=made.filled.blocks,
        split_busy_share=made.filled.busy,
        split_wave_efficiency=made.filled.efficiency,
        workspace_bytes=made.workspace,
        cache_read_seconds=cache_read_seconds(decode, element, accelerator.bandwidth),
        source=kernel.source,
    )
