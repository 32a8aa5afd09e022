"""What a file of prices may hold, for the user's own: the project's are held against it by its tests."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import (  # noqa: TID253 - imported when a file of the user's is read
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from roofcast.hwdb.price_reading import PERIOD, day_of, period_of, span_of

MOST_MODELS: Final = 1000
MOST_PRICE: Final = 100_000.0  # USD/Mtoken; the dearest known is 600
MOST_TOKENS: Final = 1_000_000_000
_ID: Final = r"^[a-z0-9][a-z0-9._-]*$"
_LIFETIME: Final = r"^[1-9][0-9]*[mhd]$"


def _price(value: object) -> float:
    """Take a number, and nothing that only looks like one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(  # noqa: TRY004 - pydantic takes no TypeError
            f"{str(value)[:40]!r} is no number; write US dollars for a million tokens, like 2.5"
        )
    if not math.isfinite(value) or not 0 <= value <= MOST_PRICE:
        raise ValueError(f"{value!r:.40} is no price; write 0 to {MOST_PRICE:,.0f} US dollars for a million tokens")
    return float(value)


def _ratio(value: object) -> float:
    found = _price(value)
    if found > 10:  # noqa: PLR2004 - an hour's cache costs 2 of input
        raise ValueError(f"{found:g} is no ratio to the price of input; write 0 to 10")
    return found


def _unreserved(value: str) -> str:
    if value in {"all", "none"}:
        raise ValueError(f"{value!r} stands for other things where prices are asked for; choose another id")
    return value


def _as_of(value: object) -> object:
    text = value.isoformat() if type(value) is date else value
    if not isinstance(text, str) or not re.fullmatch(PERIOD, text):
        raise ValueError(f"{str(value)[:40]!r} is no date; write 2026-11-15, 2026-11 or 2026 Q4")
    period_of(text)
    return text


def _parsed(read: Any) -> BeforeValidator:  # noqa: ANN401 - a reader of price_reading
    def check(value: object) -> object:
        read(value)
        return value

    return BeforeValidator(check)


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError("the same stands twice")
    return names


Price = Annotated[float, BeforeValidator(_price)]
Ratio = Annotated[float, BeforeValidator(_ratio)]
Lifetime = Annotated[str, Field(pattern=_LIFETIME)]
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS, strict=True)]
Identity = Annotated[str, Field(pattern=_ID, max_length=80), AfterValidator(_unreserved)]
Name = Annotated[str, Field(min_length=1, max_length=80)]
Note = Annotated[str, Field(max_length=400)]
Day = Annotated[Any, _parsed(day_of)]
Span = Annotated[str, _parsed(span_of)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class SourceEntry(_Frozen):
    """Where rows were read."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+\.[^\s]+$", max_length=400)]
    as_of: Annotated[str, BeforeValidator(_as_of)]
    second_hand: Annotated[bool, Field(strict=True)] = False


class Caching(_Frozen):
    """How prefixes are cached."""

    source: Name | None = None
    minimum: Tokens | None = None
    step: Annotated[int, Field(ge=1, le=MOST_TOKENS, strict=True)] | None = None
    automatic: Annotated[bool, Field(strict=True)] | None = None
    cached_over_input: Ratio | None = None
    write_over_input: Mapping[Lifetime, Ratio] = Field(default_factory=dict)
    storage: Price | None = None
    price_source: Name | None = None
    note: Note = ""


class Hours(_Frozen):
    """When peak rows hold, UTC."""

    spans: Annotated[tuple[Span, ...], Field(min_length=1, max_length=24)]
    working_days: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _apart(self) -> Hours:
        minutes: set[int] = set()
        for start, end in map(span_of, self.spans):
            first, last = start.hour * 60 + start.minute, end.hour * 60 + end.minute
            covered = {minute % 1440 for minute in range(first, last if last > first else last + 1440)}
            if covered & minutes:
                raise ValueError("spans overlap")
            minutes |= covered
        return self


class Row(_Frozen):
    """One row of prices."""

    source: Name
    input: Price
    output: Price
    cached_input: Price | None = None
    cache_write: Mapping[Lifetime, Price] = Field(default_factory=dict)
    storage: Price | None = None
    above: Tokens | None = None
    up_to: Tokens | None = None
    peak: Annotated[bool, Field(strict=True)] | None = None
    from_date: Day = None
    to_date: Day = None
    note: Note = ""

    @model_validator(mode="after")
    def _ordered(self) -> Row:
        start, end = day_of(self.from_date), day_of(self.to_date)
        if start and end and start >= end:
            raise ValueError(f"from_date {start} is not before to_date {end}")
        if self.up_to is not None and self.up_to <= (self.above or 0):
            raise ValueError(f"up_to {self.up_to:,} is not more than above {self.above or 0:,}")
        return self

    def holds(self, on: date) -> bool:
        """Whether it is in force on a day."""
        start, end = day_of(self.from_date), day_of(self.to_date)
        return (start is None or start <= on) and (end is None or on < end)


class Model(_Frozen):
    """One model of a vendor."""

    id: Identity
    name: Name
    prices: Annotated[tuple[Row, ...], Field(min_length=1, max_length=200)]
    aliases: Annotated[tuple[Name, ...], Field(max_length=20), AfterValidator(_unique)] = ()
    usual: Annotated[bool, Field(strict=True)] = False
    caching: Caching | None = None
    hours: Hours | None = None
    ended: Day = None

    @model_validator(mode="after")
    def _whole(self) -> Model:
        for source in dict.fromkeys(row.source for row in self.prices):
            reading = [row for row in self.prices if row.source == source]
            for on in _days(reading):
                _refuse_gaps(self.id, [row for row in reading if row.holds(on)])
        if self.hours is None and any(row.peak is not None for row in self.prices):
            raise ValueError(f"{self.id} has rows of peak hours; say when in hours")
        return self


def _days(rows: list[Row]) -> list[date]:
    """Days on which what is in force may change, and one before them all."""
    turns = {day for row in rows for day in (day_of(row.from_date), day_of(row.to_date)) if day}
    return [min(turns) - timedelta(days=1), *sorted(turns)] if turns else [date(2000, 1, 1)]


def _refuse_gaps(model: str, rows: list[Row]) -> None:
    """Refuse rows in force together whose tiers overlap or leave a hole, in peak hours or outside them."""
    kinds = {row.peak for row in rows}
    if kinds not in (set(), {None}, {True, False}):
        raise ValueError(f"{model}: rows of peak hours need rows of all others beside them")
    for kind in kinds:
        reached: int | None = 0
        for row in sorted((row for row in rows if row.peak is kind), key=lambda row: row.above or 0):
            if reached is None or (row.above or 0) < reached:
                raise ValueError(f"{model}: tiers overlap above {row.above or 0:,} tokens; each starts where one ends")
            if (row.above or 0) > reached:
                raise ValueError(f"{model}: no tier is of {reached + 1:,} to {row.above:,} tokens")
            reached = row.up_to


class PriceFile(_Frozen):
    """A file of one vendor's prices."""

    file_schema: Annotated[Literal["roofcast.prices/1"], Field(alias="schema")]
    vendor: Identity
    name: Name
    sources: Annotated[Mapping[Name, SourceEntry], Field(min_length=1, max_length=100)]
    models: Annotated[tuple[Model, ...], Field(min_length=1, max_length=MOST_MODELS)]
    caching: Caching | None = None
    notes: Annotated[tuple[Note, ...], Field(max_length=50)] = ()

    @model_validator(mode="after")
    def _known(self) -> PriceFile:
        rules = [self.caching, *(model.caching for model in self.models)]
        cited = [row.source for model in self.models for row in model.prices]
        both = (source for rule in rules if rule is not None for source in (rule.source, rule.price_source))
        cited += [source for source in both if source is not None]
        missing = sorted(set(cited) - self.sources.keys())
        if missing:
            raise ValueError(f"source {missing[0]!r} is not among sources: {', '.join(self.sources)}")
        if len({(entry.url, entry.as_of) for entry in self.sources.values()}) < len(self.sources):
            raise ValueError("sources: the same address and date stand twice; name them once")
        _unique_ids(self.models)
        return self


def _unique_ids(models: tuple[Model, ...]) -> None:
    seen: set[str] = set()
    for model in models:
        if model.id in seen:
            raise ValueError(f"models: {model.id} stands twice; give one all its rows")
        seen.add(model.id)
