"""Fitted efficiencies: how far kernels and hosts stay from the roofline, on one accelerator under one engine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, model_validator

FAMILIES = ("gemm", "moe", "attn_prefill", "attn_decode", "elementwise", "collective", "host", "step")
# constants that are shares of a peak or of a bandwidth; every other one is a time, a count or a ratio of its own
SHARES = frozenset(("ec", "em", "alone_ec", "alone_em"))
_MOST = 1e15


def _finite(table: Mapping[str, float]) -> Mapping[str, float]:
    for name, value in table.items():
        if not math.isfinite(value) or not 0 <= value <= _MOST:
            raise ValueError(f"{name} is {value}; a constant is a number from 0 to {_MOST:g}")
        if name in SHARES and not 0 < value <= 1:
            raise ValueError(f"{name} is {value}; a share of the roof is above 0 and at most 1")
    return MappingProxyType(dict(table))


def _plain(table: Mapping[str, float]) -> dict[str, float]:
    return dict(table)


def _nothing() -> Mapping[str, int]:
    return MappingProxyType({})


Constants = Annotated[Mapping[str, float], AfterValidator(_finite), PlainSerializer(_plain)]
Share = Annotated[float, Field(ge=0, le=10)]
Name = Annotated[str, Field(min_length=1, max_length=80)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Fit(_Frozen):
    """Constants of one family of operations in one format.

    `expected = t0 + max(F / (peak ec), D / (bandwidth em))` a call, and what more the family's formula knows by name.
    """

    family: Literal["gemm", "moe", "attn_prefill", "attn_decode", "elementwise", "collective", "host", "step"]
    format: Name = "any"  # of attention that it multiplies in; of collective the pattern; any where all are alike
    constants: Constants
    spread: Share  # standard deviation of ln(measured / expected), rows kept out of the fit
    rows: Annotated[int, Field(ge=0)] = 0  # measurements that were fitted
    median_error: Share | None = None  # of rows kept out
    p90_error: Share | None = None
    excluded: Mapping[str, int] = Field(default_factory=_nothing)  # rule -> rows
    data: tuple[Name, ...] = ()  # files of the provenance that it is fitted to


class DataFile(_Frozen):
    """A file that constants were fitted to."""

    file: Name
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Provenance(_Frozen):
    """Where constants are from."""

    fitted: Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]  # date
    by: Name  # the program that fitted them
    source: Annotated[str, Field(min_length=1, max_length=400)]  # of the measurements
    data: tuple[DataFile, ...] = ()
    driver: str | None = None
    torch: str | None = None
    clock: str | None = None


class Efficiency(_Frozen):
    """Fitted constants of one accelerator, or of its kin, under one engine. SI units."""

    file_schema: Annotated[Literal["roofcast.efficiency/1"], Field(alias="schema")]
    accelerator: Name  # an id; of a prior the class that it stands for
    engine: Name
    fits: tuple[Fit, ...]
    provenance: Provenance

    @model_validator(mode="after")
    def _once(self) -> Efficiency:
        seen = [(fit.family, fit.format) for fit in self.fits]
        twice = next((key for key in seen if seen.count(key) > 1), None)
        if twice:
            raise ValueError(f"fits: {' '.join(twice)} stands twice")
        return self
