"""The expected time of routed experts: the roofline of grouped matrix products, with what uneven routing costs."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from roofcast.calculators.expected.limits import Limits
    from roofcast.modelspec.shapes import ExpertsShape

LEAST_TILE: Final = 16.0  # rows of the smallest tile that kernels choose, where experts get few
ACTIVATION_BYTES: Final = 2.0  # of an element that is read or written beside the weights


@dataclass(frozen=True, slots=True)
class ExpertsConstants:
    """What `benchmarks/fit_experts.py` fits; the defaults are a perfect kernel and an even router.

    Args:
        t0: least time of a call, launch and sorting of tokens. [s]
        ec, em: shares of peak and of bandwidth that large products reach.
        tile: rows of an expert's last tile that are computed for nothing. [token]
        carry: times that activations of the device's own experts go through memory. [-]
        sort: times that those of all tokens do, wherever their experts are: gathered, summed, set to nought. [-]
        skew: of routing: what more than the mean the fullest of ep devices gets is skew sqrt((ep - 1) / E). [-]
    """

    t0: float = 0.0
    ec: float = 1.0
    em: float = 1.0
    tile: float = 0.0
    carry: float = 0.0
    sort: float = 0.0
    skew: float = 0.0


def experts_seconds(shape: ExpertsShape, limits: Limits, c: ExpertsConstants) -> float:
    """Expected time of one matrix of a layer's routed experts, on the fullest of ep devices. [s]

    t = t0 + max(2 n k (full + spare) / (peak ec), read bytes / (bandwidth em)) + 2 (n + k) (carry full + sort T k) / bandwidth

    T tokens choose k of E: read = E (1 - (1 - k/E)^T) / ep experts on the device, one where it would be less; full =
    T k / ep (1 + skew sqrt((ep - 1) / E)) rows: loads of E / ep experts are summed, so that the fullest of ep sums
    stands out by the root of ep / E. Spare rows of last tiles are read min(tile, 16 + full / read): kernels take small tiles
    where experts get few rows. Read and full are at least what the roofline counts, every addend is at least 0.

    Kernels go over the T k rows of all devices' experts: those that are elsewhere are skipped, but sorted, and summed. Where
    tokens are sent to the devices of their experts, a device has the rows of its own alone.
    Source: fitted to measured fused kernels by benchmarks/fit_experts.py, half of a layer's call to each of its matrices.

    >>> from roofcast.calculators.expected.limits import Limits
    >>> from roofcast.modelspec.shapes import ExpertsShape
    >>> card, c = Limits(1e15, 4e12, 132), ExpertsConstants(t0=2e-5, ec=0.5, em=0.8, tile=64, sort=2)
    >>> experts_seconds(ExpertsShape(1, 8, 128, 1, 1536, 2048, 1536 * 2048 * 2), card, c) * 1e6  # 20 + 50.3 MB at 3.2 TB/s + 0.03
    35.76
    >>> experts_seconds(ExpertsShape(16384, 8, 128, 1, 1536, 2048, 1536 * 2048 * 2), card, c) * 1e6  # 20 + 1752.35 + 469.76
    2242.11
    """
    experts, ep, chosen = shape.experts, shape.ep, shape.tokens * shape.top_k
    unread: float = (1.0 - shape.top_k / experts) ** shape.tokens
    distinct = experts * (1.0 - unread)
    read = max(distinct / ep, min(1.0, distinct))
    full = chosen / ep * (1.0 + c.skew * sqrt((ep - 1.0) / experts))
    spare = read * min(c.tile, LEAST_TILE + full / read) if read else 0.0
    compute = 2.0 * shape.n * shape.k * (full + spare) / (limits.peak * c.ec)
    memory = read * shape.expert_bytes / (limits.bandwidth * c.em)
    here = chosen if shape.present is None else shape.present * shape.top_k
    carried = ACTIVATION_BYTES * (shape.n + shape.k) * (c.carry * full + c.sort * here) / limits.bandwidth
    return c.t0 + max(compute, memory) + carried
