"""The expected time of a dense matrix product: the roofline of one kernel, with what keeps kernels from it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from roofcast.calculators.expected.limits import Limits
    from roofcast.modelspec.shapes import GemmShape

SUSTAINED: Final = 5e-4  # seconds of compute at which half of the droop is there
ACTIVATION_BYTES: Final = 2.0  # of an element that is read or written beside the weights
# rows and columns of a kernel's output tile, and their product over its speed beside the largest's: small ones reread
TILES: Final = (
    (128, 256, 128 * 256 / 1.0),
    (128, 128, 128 * 128 / 0.9),
    (64, 128, 64 * 128 / 0.7),
    (64, 64, 64 * 64 / 0.5),
)


@dataclass(frozen=True, slots=True)
class GemmConstants:
    """What `benchmarks/fit_gemm.py` fits; the defaults are a perfect kernel.

    Args:
        t0: least time of a call, launch and drain. [s]
        ec, em: shares of peak and of bandwidth that large products reach.
        walk: time that a tile takes for one step along k, whatever else runs: latency, no throughput. [s]
        split: longest k that one tile walks alone; past it kernels share k among tiles.
        fill: length of k that costs as much as filling and emptying a tile's pipeline.
        droop: of clocks under a long product: share of its time that is added.
        wave: exponent of the loss to tiles that stand out of the matrix or leave multiprocessors idle; 1 is all of it.
        passes: bytes an activation that its own quantisation moves before the product. [B]
        row: time of that quantisation a token. [s]
        single: share of t0 and of the walk that a product of one row does not take: its kernels stream weights past the
            tensor cores, and may start before the one before them ends. [-]
    """

    t0: float = 0.0
    ec: float = 1.0
    em: float = 1.0
    walk: float = 0.0
    split: float = inf
    fill: float = 0.0
    droop: float = 0.0
    wave: float = 0.0
    passes: float = 0.0
    row: float = 0.0
    single: float = 0.0


def waste(m: float, n: float, sms: float) -> float:
    """Work of the tiles' waves over that of the matrix: min over TILES of ceil(tiles / sms) sms tile / (speed m n). [-]

    At least 1. Source: NVIDIA, Matrix Multiplication Background User's Guide, tile and wave quantization.

    >>> waste(1024, 3456, 108)  # 8 x 27 tiles of 128 x 128 are just two waves, at 0.9 of the largest tile's speed
    1.1111
    """
    least = inf
    for rows, columns, area in TILES:
        waves = -(-(-(-m // rows) * -(-n // columns)) // sms)
        least = min(least, waves * area)
    return least * sms / (m * n)


def begun(m: float, c: GemmConstants) -> float:
    """Share of t0 and of the walk that a product of m rows takes: 1, of one row alone 1 - single. [-]

    >>> begun(1, GemmConstants(single=0.75)), begun(2, GemmConstants(single=0.75))
    (0.25, 1.0)
    """
    return 1.0 if m > 1.0 else 1.0 - min(1.0, c.single)


def gemm_seconds(shape: GemmShape, limits: Limits, c: GemmConstants) -> float:
    """Expected time of [m, k] @ [k, n]. [s]

    t = (t0 + walk min(k, split)) (1 - single, where m is 1) + (C^4 + M^4)^(1/4) + m (row + passes k / bandwidth)
    C = c (1 + droop c / (c + 0.5 ms)), c = 2 m n (k + fill) / (peak ec) waste^wave
    M = (weights + 2 m (k + n)) / (bandwidth em)

    Compute and reading overlap, less so where they take equally long: the fourth power stands for that. Every factor
    is at least 1 and every addend at least 0, so t is never below max(2 m n k / peak, weights / bandwidth).
    Source: fitted to measured kernels by benchmarks/fit_gemm.py, which says what each constant gains.

    >>> from roofcast.calculators.expected.limits import Limits
    >>> from roofcast.modelspec.shapes import GemmShape
    >>> card, c = Limits(1e15, 4e12, 132), GemmConstants(t0=3e-6, ec=0.8, em=0.8, walk=5e-10, split=4096)
    >>> gemm_seconds(GemmShape(1, 8192, 8192, 2**27), card, c) * 1e6  # 3 + 134.25 MB at 3.2 TB/s + 4096 x 0.5 ns
    47.00
    >>> gemm_seconds(GemmShape(8192, 8192, 8192, 2**27), card, c) * 1e6  # 3 + 2 x 8192^3 FLOP at 0.8 PFLOP/s + 2.05
    1379.46
    """
    m, n, k, bandwidth = shape.m, shape.n, shape.k, limits.bandwidth
    compute = 2.0 * m * n * (k + c.fill) / (limits.peak * c.ec)
    if c.wave and compute:
        compute *= waste(m, n, limits.sms) ** c.wave
    compute *= 1.0 + c.droop * compute / (compute + SUSTAINED)
    memory = (shape.weight_bytes + ACTIVATION_BYTES * m * (k + n)) / (bandwidth * c.em)
    more, less = (compute, memory) if compute > memory else (memory, compute)
    square = (less / more) ** 2 if more else 0.0
    both = more * sqrt(sqrt(1.0 + square * square))
    start = begun(m, c)
    return start * c.t0 + both + start * c.walk * min(k, c.split) + m * (c.row + c.passes * k / bandwidth)
