"""What a fit gives: constants of one family and format on one accelerator and engine, and how well they do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants, and their score.

    Args:
        accelerator, engine: ids, as `h200-sxm` and `vllm`.
        family: gemm, moe, attn_prefill, attn_decode, collective (pattern in `format`).
        format: that the operation multiplies in; of attention that of the cache.
        constants: by name.
        rows: that were fitted.
        spread: standard deviation of ln(measured / expected) over rows kept out of a fit of the other half. [-]
        median_in, median_out: median |expected / measured - 1| of rows fitted, and of the rows kept out (2-fold). [-]
        p90_out: 90th percentile of the latter. [-]
        excluded: rule -> rows that it kept out.
        source: files of the data that were read.
    """

    accelerator: str
    engine: str
    family: str
    format: str
    constants: Mapping[str, float]
    rows: int
    spread: float
    median_in: float
    median_out: float
    p90_out: float
    excluded: Mapping[str, int] = field(default_factory=dict)
    source: tuple[str, ...] = ()
