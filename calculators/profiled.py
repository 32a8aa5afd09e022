"""What a profile of a machine holds: measured times, and what was measured; the profiler makes it, reports show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

READ = "read"
COPY = "copy"
EAGER = "eager"
GRAPH = "graph"


@dataclass(frozen=True, slots=True)
class Sample:
    """Repeated times of the same work.

    Args:
        seconds: the median. [s]
        low, high: 10th and 90th percentile. [s]
        spread: standard deviation. [s]
        repeats: how many.
    """

    seconds: float
    low: float
    high: float
    spread: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Machine:
    """The device that was measured, and the software that drove it.

    Args:
        name: as its driver reports it.
        kind: `cuda`, `rocm`, `mps` or `cpu`.
        accelerator: id in the database; None where it is not there.
        memory_bytes: that programs see. [B]
        free_bytes: of these, as the profile began. [B]
        l2_bytes: of the last cache before memory, as far as known. [B]
        sms: multiprocessors; of a CPU threads.
        torch: its version.
        driver, clock: as the driver reports them; None where it does not.
        kernels: `triton` where fused kernels run, else `torch`.
        remarks: what may disturb the measurement, as another program on the device.
    """

    name: str
    kind: str
    accelerator: str | None
    memory_bytes: int
    free_bytes: int
    l2_bytes: int
    sms: int
    torch: str
    driver: str | None = None
    clock: str | None = None
    kernels: str = "torch"
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes moved by one kernel over a buffer.

    Args:
        how: `read` or `copy`.
        size: of the buffer. [B]
        moved: read and written. [B]
        sample: time of one call.
        kernel: that was the fastest of those tried.
    """

    how: str
    size: int
    moved: int
    sample: Sample
    kernel: str = ""

    @property
    def bytes_per_second(self) -> float:
        """Rate: moved / median time. [B/s]"""
        return self.moved / self.sample.seconds


@dataclass(frozen=True, slots=True)
class Product:
    """One matrix product, [m, k] @ [k, n].

    Args:
        format: that it multiplies in.
        m, n, k: sizes.
        sample: time of one call; None where it could not run.
        problem: why not, in one line.
    """

    format: str
    m: int
    n: int
    k: int
    sample: Sample | None
    problem: str | None = None

    @property
    def flops_per_second(self) -> float | None:
        """Rate: 2 m n k / median time. [FLOP/s]"""
        return None if self.sample is None else 2 * self.m * self.n * self.k / self.sample.seconds


@dataclass(frozen=True, slots=True)
class Launch:
    """What starting one empty kernel takes, among many in a row.

    Args:
        how: `eager` or `graph`.
        sample: time of one.
    """

    how: str
    sample: Sample


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """The roofs of a machine as measured.

    Args:
        machine: that was measured.
        bandwidths, products, launches: what was measured, in order.
        unfinished: what the budget, an interrupt or too little memory left out, by label.
        stopped: `the budget is spent` or `interrupted`; empty where all was tried.
    """

    machine: Machine
    bandwidths: tuple[Bandwidth, ...]
    products: tuple[Product, ...]
    launches: tuple[Launch, ...]
    unfinished: tuple[str, ...] = ()
    stopped: str = ""

    @property
    def bandwidth(self) -> float | None:
        """The measured memory roof: the best rate of reading; None where none was measured. [B/s]"""
        return max((one.bytes_per_second for one in self.bandwidths if one.how == READ), default=None)

    @property
    def peaks(self) -> Mapping[str, float]:
        """Format -> the best rate of a product in it. [FLOP/s]"""
        best: dict[str, float] = {}
        for one in self.products:
            rate = one.flops_per_second
            if rate is not None:
                best[one.format] = max(rate, best.get(one.format, 0.0))
        return best

    @property
    def ridges(self) -> Mapping[str, float]:
        """Format -> intensity above which compute is the limit, as measured: peak / bandwidth. [FLOP/B]"""
        roof = self.bandwidth
        return {name: peak / roof for name, peak in self.peaks.items()} if roof else {}


@dataclass(frozen=True, slots=True)
class Part:
    """One term of a step, over all layers that have it.

    Args:
        name: as the terms of `estimate` are named: attn.qkv, attn.decode, ffn.down, elementwise, head ...
        family: of `modelspec.op`.
        calls: kernels that do it in the step.
        sample: time of all of them, one after the other, nothing else between.
    """

    name: str
    family: str
    calls: int
    sample: Sample


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One measured step of a decoder.

    Args:
        phase: `prefill` or `decode`.
        batch: sequences at once.
        context: tokens of a prompt, or in the cache of each sequence with the new one. [token]
        sample: time of the whole step; None where it could not run.
        parts: its terms, each measured alone.
        launched: `graph` or `eager`.
        routing: of experts, `drawn` or `balanced`; empty of a model without.
        problem: why it could not run, in one line.
    """

    phase: str
    batch: int
    context: int
    sample: Sample | None
    parts: tuple[Part, ...] = ()
    launched: str = EAGER
    routing: str = ""
    problem: str | None = None

    @property
    def tokens(self) -> int:
        """Tokens that the step computes. [token]"""
        return self.batch if self.phase == "decode" else self.batch * self.context


@dataclass(frozen=True, slots=True)
class AttentionPoint:
    """One call of attention.

    Args:
        phase: `prefill` or `decode`.
        backend: math, efficient, flash, cudnn; of decode also `split_kv`, the profiler's own.
        format: of queries and cache.
        batch, query_heads, kv_heads, head_dim: its shape.
        length: tokens of the prompt, or of the cache. [token]
        sample: time of one call; None where it could not run.
        extra_bytes: peak of memory beside inputs and outputs; None where it was not measured. [B]
        problem: why it could not run, in one line.
        note: how it was made to run, as with KV heads expanded; empty where as it is.
    """

    phase: str
    backend: str
    format: str
    batch: int
    query_heads: int
    kv_heads: int
    head_dim: int
    length: int
    sample: Sample | None
    extra_bytes: int | None = None
    problem: str | None = None
    note: str = ""

    @property
    def flops(self) -> float:
        """Multiplies and adds of scores and values: 4 B n_q d pairs, n^2/2 pairs a prompt, n a new token. [FLOP]"""
        pairs = self.length**2 / 2 if self.phase == "prefill" else self.length
        return 4.0 * self.batch * self.query_heads * self.head_dim * pairs

    @property
    def cache_bytes(self) -> float:
        """Keys and values: 2 B n n_kv d b. [B]"""
        size = {"fp32": 4, "fp8": 1}.get(self.format, 2)
        return 2.0 * self.batch * self.length * self.kv_heads * self.head_dim * size
