"""Fitted efficiencies: how far kernels and hosts stay from the roofline, on one accelerator under one engine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

Family = Literal["gemm", "moe", "attn_prefill", "attn_decode", "elementwise", "collective", "host", "step"]
FAMILIES: tuple[str, ...] = get_args(Family)
# constants that are shares of a peak or of a bandwidth; every other one is a time, a count or a ratio of its own
SHARES = frozenset(("ec", "em", "alone_ec", "alone_em"))
LEAST_SHARE: Final = 1e-6
# factors and exponents that take the place of a 1 or of nothing: beyond 10 a formula says nothing, or overflows
FACTORS: Final = frozenset(
    ("parts", "batch", "single", "sustained", "gemm", "moe", "attn_decode", "attn_prefill", "wave", "droop", "unfilled", "alone_unfilled")
)  # fmt: skip
MOST_FACTOR: Final = 10.0
MOST: Final = 1e6  # of every other constant: seconds, counts, and ratios
MOST_FITS: Final = 200


def _number(value: object) -> object:
    """Refuses what is no number as it stands: pydantic would make one of `true` and of text."""
    if type(value) is bool or not isinstance(value, int | float):
        raise PydanticCustomError("no_number", "be a number; write it as {right}", {"right": _right(value)})
    return value


def _right(value: object) -> str:
    """A number as YAML 1.1 takes it: with a point, and a sign after e.

    >>> _right("3e-6"), _right("2.5E30"), _right("3.0e-6"), _right("fast")
    ('3.0e-6', '2.5e+30', '3.0e-6', '3.0e-6')
    """
    found = re.fullmatch(r"([-+]?\d+)(?:\.(\d*))?[eE]([-+]?)(\d+)", value) if isinstance(value, str) else None
    return f"{found[1]}.{found[2] or 0}e{found[3] or '+'}{found[4]}" if found else "3.0e-6"


def _bounded(table: Mapping[str, float]) -> Mapping[str, float]:
    for name, value in table.items():
        if name in SHARES and not LEAST_SHARE <= value <= 1:
            raise ValueError(f"{name} is {value}; a share of the roof is from {LEAST_SHARE:g} to 1")
        most = MOST_FACTOR if name in FACTORS else MOST
        if not 0 <= value <= most:  # false of what is not a number
            raise ValueError(f"{name} is {value}; it is a number from 0 to {most:g}")
    return MappingProxyType(dict(table))


def _plain(table: Mapping[str, float]) -> dict[str, float]:
    return dict(table)


def _nothing() -> Mapping[str, int]:
    return MappingProxyType({})


Number = Annotated[float, BeforeValidator(_number)]
Constants = Annotated[Mapping[str, Number], AfterValidator(_bounded), PlainSerializer(_plain)]
Share = Annotated[Number, Field(ge=0, le=10)]
Count = Annotated[int, Field(ge=0, strict=True)]
Name = Annotated[str, Field(min_length=1, max_length=80)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Fit(_Frozen):
    """Constants of one family of operations in one format.

    `expected = t0 + max(F / (peak ec), D / (bandwidth em))` a call, and what more the family's formula knows by name.
    """

    family: Family
    format: Name = "any"  # of attention that it multiplies in; of collective the pattern; any where all are alike
    constants: Constants
    spread: Share  # standard deviation of ln(measured / expected), rows kept out of the fit
    rows: Count = 0  # measurements that were fitted
    median_error: Share | None = None  # of rows kept out
    p90_error: Share | None = None
    excluded: Mapping[str, Count] = Field(default_factory=_nothing)  # rule -> rows
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
    fits: Annotated[tuple[Fit, ...], Field(min_length=1, max_length=MOST_FITS)]
    provenance: Provenance

    @model_validator(mode="after")
    def _once(self) -> Efficiency:
        [(key, times)] = Counter((fit.family, fit.format) for fit in self.fits).most_common(1)
        if times > 1:
            raise ValueError(f"fits: {' '.join(key)} stands twice")
        return self
