"""What a file of rents may hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import (  # noqa: TID253 - imported when a command reads rents
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from roofcast.hwdb.price_models import Identity, Name, Note, SourceEntry
from roofcast.hwdb.rents import KINDS

MOST_RENT: Final = 100.0  # USD for one GPU and hour; the dearest known is below 20
MOST_ROWS: Final = 500


def _rent(value: object) -> float:
    """Take a number above 0, and nothing that only looks like one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(  # noqa: TRY004 - pydantic takes no TypeError
            f"{str(value)[:40]!r} is no number; write US dollars for one GPU and hour, like 2.5"
        )
    if not math.isfinite(value) or not 0 < value <= MOST_RENT:
        raise ValueError(f"{value!r:.40} is no rent; write US dollars for one GPU and hour, up to {MOST_RENT:g}")
    return float(value)


def _listed(value: str) -> str:
    if value not in KINDS:
        raise ValueError(f"{value[:40]!r} is no kind of rent; write one of {', '.join(KINDS)}")
    return value


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class RentRow(_Frozen):
    """What one GPU costs."""

    gpu: Identity
    kind: Annotated[str, AfterValidator(_listed)]
    price: Annotated[float, BeforeValidator(_rent)]
    source: Name
    note: Note | None = None


class RentFile(_Frozen):
    """A file of what one provider asks."""

    file_schema: Annotated[Literal["roofcast.rents/1"], Field(alias="schema")]
    provider: Identity
    name: Name
    sources: Annotated[Mapping[Name, SourceEntry], Field(min_length=1, max_length=100)]
    rents: Annotated[tuple[RentRow, ...], Field(min_length=1, max_length=MOST_ROWS)]

    @model_validator(mode="after")
    def _known(self) -> RentFile:
        missing = sorted({row.source for row in self.rents} - self.sources.keys())
        if missing:
            raise ValueError(f"source {missing[0]!r} is not among sources: {', '.join(self.sources)}")
        seen: set[tuple[str, str, str]] = set()
        for row in self.rents:
            key = row.gpu, row.kind, row.source
            if key in seen:
                raise ValueError(f"rents: {row.gpu} stands twice as {row.kind} of {row.source}; keep one")
            seen.add(key)
        return self
