"""What providers of models charge: dated rows of prices and rules of their prefix caches. Facts only, no opinions.

Prices are US dollars for a million tokens. Boundaries of tiers are decimal: 200k is 200,000 tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from types import MappingProxyType
from typing import Final

MILLION: Final = 1_000_000  # tokens that a price is for
_DAYS: Final = 7
_WORKING_DAYS: Final = 5  # Monday to Friday
_DAY: Final = 24 * 60  # minutes


class UnknownPriceError(ValueError):
    """Nothing goes by that name, or has no price then; the message gives the nearest."""


def _nothing() -> Mapping[str, float]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Source:
    """Where a row was read.

    Args:
        url: of the page.
        as_of: date, month or quarter at which it was read, as written: 2026-11-15, 2026-08, 2026 Q4.
        second_hand: whether the page only quotes the provider.
    """

    url: str
    as_of: str
    second_hand: bool = False


@dataclass(frozen=True, slots=True)
class CacheRule:
    """How a provider's prefix cache works; a prefix matches from the first token on, or not at all.

    Args:
        minimum: tokens of the shortest prefix that is cached; None where it is not known.
        step: tokens by which a longer one grows; None where it is not known, which is counted as 1.
        automatic: whether prompts are cached without being marked; None where it is not known.
        source: where it was read; None where nothing is known.
        cached_over_input: price of a cached token over that of a read one, for rows that list none. [-]
        write_over_input: likewise of a token that is put there, by lifetime. [-]
        storage: likewise of keeping one for an hour. [USD/(Mtoken h)]
        price_source: where these three were read; None where there are none.
    """

    minimum: int | None = None
    step: int | None = None
    automatic: bool | None = None
    source: Source | None = None
    cached_over_input: float | None = None
    write_over_input: Mapping[str, float] = field(default_factory=_nothing)
    storage: float | None = None
    price_source: Source | None = None
    note: str = ""

    def held(self, prefix: int) -> int:
        """Tokens of a prefix that are cached: none below the minimum, whole steps from 0 on above. [token]

        >>> rule = CacheRule(minimum=1024, step=128)
        >>> [rule.held(prefix) for prefix in (1023, 1024, 1151, 1152)]
        [0, 1024, 1024, 1152]
        """
        return 0 if prefix < (self.minimum or 0) else prefix - prefix % (self.step or 1)


@dataclass(frozen=True, slots=True)
class Peak:
    """Hours at which a model has prices of their own.

    Args:
        spans: from (inclusive) and to (exclusive), UTC.
        working_days: whether Monday to Friday alone.
    """

    spans: tuple[tuple[time, time], ...]
    working_days: bool

    def holds(self, moment: datetime) -> bool:
        """Whether a moment is within them; one without a time zone is UTC's. Holidays are not known.

        A span over midnight is of the day that it ends on from 00:00.

        >>> hours = Peak(((time(1), time(4)), (time(6), time(10))), working_days=True)
        >>> [hours.holds(datetime(2026, 11, 27, hour)) for hour in (1, 4, 9)], hours.holds(datetime(2026, 11, 28, 2))
        ([True, False, True], False)
        """
        there = moment if moment.tzinfo is None else moment.astimezone(UTC)
        if self.working_days and there.weekday() >= _WORKING_DAYS:
            return False
        at = there.time()
        return any(start <= at < end if start < end else at >= start or at < end for start, end in self.spans)


@dataclass(frozen=True, slots=True)
class PriceRow:
    """Prices of one model in one tier, at one kind of hour, as one source had them. [USD/Mtoken]

    Args:
        vendor, model: ids, lower case; `name` is as people write it.
        input, output: of a token that is read and of one that is made.
        cached_input: of a token that a prefix cache holds; None where none is listed.
        cache_write: of a token that is put there, by lifetime ("5m", "1h"); empty where it costs as input does.
        storage: of keeping it for an hour [USD/(Mtoken h)]; None where that costs nothing.
        above, up_to: prompts with more tokens than `above` and at most `up_to`; None without such a boundary.
        peak: whether it is of peak hours (True), of all others (False), or of any (None).
        from_date, to_date: first day, and the day from which on it is not in force; None where not stated.
        unknown_on: day that it is asked of, before it was read and without a stated first day; None where it is known.
        note: what else is to be known, such as where those prices are from that its source does not list.
    """

    vendor: str
    model: str
    name: str
    input: float
    output: float
    source: Source
    cached_input: float | None = None
    cache_write: Mapping[str, float] = field(default_factory=_nothing)
    storage: float | None = None
    above: int | None = None
    up_to: int | None = None
    peak: bool | None = None
    from_date: date | None = None
    to_date: date | None = None
    note: str = ""
    unknown_on: date | None = None

    def takes(self, prompt: int) -> bool:
        """Whether a prompt of so many tokens is of its tier; its upper boundary is.

        >>> row = PriceRow("x", "m", "M", 1, 2, Source("https://x.org", "2026-08"), above=200_000, up_to=400_000)
        >>> [row.takes(prompt) for prompt in (200_000, 200_001, 400_000, 400_001)]
        [False, True, True, False]
        """
        return (self.above is None or prompt > self.above) and (self.up_to is None or prompt <= self.up_to)

    @property
    def output_over_input(self) -> float | None:
        """[-]; None where input is free."""
        return self.output / self.input if self.input else None

    @property
    def cached_over_input(self) -> float | None:
        """[-]; None where no cached input is listed."""
        return None if self.cached_input is None or not self.input else self.cached_input / self.input


@dataclass(frozen=True, slots=True)
class PriceList:
    """What one model costs on one day: the rows in force, and how its prefix cache works.

    Args:
        rows: one a tier and kind of hour, the lowest tier first and off-peak before peak.
        caching: of the provider for this model.
        hours: when peak rows hold; None where there are none.
    """

    vendor: str
    model: str
    name: str
    rows: tuple[PriceRow, ...]
    caching: CacheRule
    hours: Peak | None = None

    def row(self, prompt: int, *, peak: bool = False) -> PriceRow:
        """The row that a prompt of so many tokens is billed by: the whole request is of its tier.

        Raises:
            UnknownPriceError: no row is of such prompts.
        """
        found = next((row for row in self.rows if row.peak in {None, peak} and row.takes(prompt)), None)
        if found is None:
            most = max((row.up_to or 0 for row in self.rows), default=0)
            raise UnknownPriceError(f"{self.model} has no price of a prompt of {prompt:,} tokens; at most {most:,}")
        return found
