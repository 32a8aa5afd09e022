"""Rows of a file of prices, from what its YAML holds to the values that the rest works with."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass, replace
from datetime import date, time, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from roofcast.hwdb.prices import CacheRule, Peak, PriceList, PriceRow, Source

if TYPE_CHECKING:
    from collections.abc import Mapping

#: a date, a month or a quarter
PERIOD: Final = r"\d{4}(?:-\d{2}(?:-\d{2})?| Q[1-4])"
_SPAN: Final = r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)"
_FIRST, _LAST = 2000, 2100  # years
_PRICES: Final = frozenset({"input", "output", "cached_input", "storage"})
_OF_RULE: Final = frozenset({"source", "price_source", "write_over_input"})  # of a rule, by names of sources


def day_of(value: object) -> date | None:
    """A day from a file; None where none is given.

    Raises:
        ValueError: it is no date.

    >>> day_of("2026-07-30")
    datetime.date(2026, 7, 30)
    """
    if value is None or type(value) is date:
        return _sane(value)
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d{2}-\d{2}", value):
        return _sane(date.fromisoformat(value))
    raise ValueError(f"{str(value)[:40]!r} is no date; write it as 2026-07-30")


def _sane(day: date | None) -> date | None:
    if day is not None and not _FIRST <= day.year <= _LAST:
        raise ValueError(f"{day} is no date of a price; write a year from {_FIRST} to {_LAST}")
    return day


def period_of(as_of: str) -> tuple[date, date]:
    """First and last day of a date, a month or a quarter.

    Raises:
        ValueError: it is none of these.

    >>> [str(day) for day in period_of("2026 Q4")], [str(day) for day in period_of("2026-02")]
    (['2026-10-01', '2026-12-31'], ['2026-02-01', '2026-02-28'])
    """
    if "Q" in as_of:
        year, last = int(as_of[:4]), 3 * int(as_of[-1])
        first = last - 2
    elif as_of.count("-") == 1:
        year, last = (int(part) for part in as_of.split("-"))
        first = last
    else:
        only = date.fromisoformat(as_of)
        _sane(only)
        return only, only
    start = date(year, first, 1)
    _sane(start)
    return start, date(year, last, monthrange(year, last)[1])


def span_of(value: object) -> tuple[time, time]:
    """A span of a day, `01:00-04:00`.

    Raises:
        ValueError: it is none.

    >>> span_of("06:00-10:00")
    (datetime.time(6, 0), datetime.time(10, 0))
    """
    match = re.fullmatch(_SPAN, value) if isinstance(value, str) else None
    if match is None or (match[1], match[2]) == (match[3], match[4]):
        raise ValueError(f"{str(value)[:40]!r} is no span of a day; write it as 01:00-04:00, UTC")
    first, first_minute, last, last_minute = (int(part) for part in match.groups())
    return time(first, first_minute), time(last, last_minute)


@dataclass(frozen=True, slots=True)
class Offer:
    """One model of a file: all its rows, of any date.

    Args:
        vendor_name: of the vendor, as people write it.
        aliases: other names that it goes by.
        usual: whether it is among the few that stand for the vendor.
        caching: rule of the prefix cache; None where nothing is said of it.
        own_caching: whether the rule is of the model itself, and not of the vendor.
        ended: day from which on it is not sold any more; None where that is not known.
    """

    vendor: str
    vendor_name: str
    model: str
    name: str
    rows: tuple[PriceRow, ...]
    aliases: tuple[str, ...]
    usual: bool
    caching: CacheRule | None
    own_caching: bool
    hours: Peak | None
    ended: date | None = None

    def on(self, day: date) -> PriceList | None:
        """What it costs on a day, by what was read last by then; None where that had no price any more."""
        if self.ended is not None and day >= self.ended:
            return None
        reading, *older = self._readings(day)
        rows = sorted((row for row in reading if _holds(row, day)), key=_tier)
        if not rows:
            return None
        rule = self.caching or CacheRule()
        filled = tuple(_dated(_filled(_completed(row, older, day), rule), day) for row in rows)
        hours = self.hours if any(row.peak is not None for row in rows) else None
        return PriceList(self.vendor, self.model, self.name, filled, rule, hours)

    def last(self) -> PriceList | None:
        """What it cost when it was sold for the last time, with a note; None of what is still sold."""
        ends = [self.ended] if self.ended is not None else [row.to_date for row in self.rows]
        end = max((day for day in ends if day is not None), default=None)
        found = None if end is None else self.on(end - timedelta(days=1))
        if found is None:
            return None
        said = f"not sold any more since {end}"
        rows = tuple(replace(row, note="; ".join(filter(None, (said, row.note)))) for row in found.rows)
        return replace(found, rows=rows)

    def turn(self, day: date) -> str:
        """When a price was or will be in force, for what is said of a day on which none is."""
        if self.ended is not None and self.ended <= day:
            return f"its last ended on {self.ended}"
        reading = self._readings(day)[0]
        end = max(row.to_date or date.max for row in reading)
        if end <= day:
            return f"its last ended on {end}"
        starts = [row.from_date for row in reading if row.from_date is not None]
        return f"its first is of {min(starts)}" if starts else f"its first was read later, {reading[0].source.as_of}"

    @property
    def newest(self) -> date:
        """The first day of the time at which its newest row was read."""
        return max(period_of(row.source.as_of)[0] for row in self.rows)

    def _readings(self, day: date) -> list[list[PriceRow]]:
        """Rows by their source: of those read by a day the newest first; of one date that is first which is in the file.

        Where none was read by then: one whose rows state dates that the day is within, the provider's own before others';
        else the oldest of all alone.
        """
        readings: dict[Source, list[PriceRow]] = {}
        for row in self.rows:
            readings.setdefault(row.source, []).append(row)
        ordered = sorted(readings, key=lambda source: period_of(source.as_of)[::-1], reverse=True)
        known = [source for source in ordered if period_of(source.as_of)[0] <= day]
        stated = [source for source in ordered if any(_states(row, day) for row in readings[source])]
        stated.sort(key=lambda source: source.second_hand)
        return [readings[source] for source in known or stated[:1] or ordered[-1:]]


def _holds(row: PriceRow, on: date) -> bool:
    return (row.from_date is None or row.from_date <= on) and (row.to_date is None or on < row.to_date)


def _states(row: PriceRow, day: date) -> bool:
    """Whether a row says of itself that it holds on a day."""
    return _holds(row, day) and (row.from_date is not None or row.to_date is not None)


def _dated(row: PriceRow, day: date) -> PriceRow:
    """A row with a mark where it was read after the day, and does not state that it was in force by then."""
    if period_of(row.source.as_of)[0] <= day or (row.from_date is not None and row.from_date <= day):
        return row
    return replace(row, unknown_on=day)


def _tier(row: PriceRow) -> tuple[int, bool]:
    return row.above or 0, row.peak is True


def _completed(row: PriceRow, older: list[list[PriceRow]], day: date) -> PriceRow:
    """A row with what it does not list and an older source does, as long as that has the same input and output."""
    for rows in older:
        for other in rows:
            if _holds(other, day) and _base(other) == _base(row):
                row = _taken(row, other.cached_input, other.cache_write, other.storage, _cited(other.source))
    return row


def _base(row: PriceRow) -> tuple[float, float, int | None, int | None, bool | None]:
    return row.input, row.output, row.above, row.up_to, row.peak


def _filled(row: PriceRow, rule: CacheRule) -> PriceRow:
    """A row with what the provider's rule says of caches, where it lists nothing itself."""
    cached = None if rule.cached_over_input is None else _times(row.input, rule.cached_over_input)
    write = {name: _times(row.input, ratio) for name, ratio in rule.write_over_input.items()}
    by = "by the provider's rule" if rule.price_source is None else f"by the rule of {_cited(rule.price_source)}"
    return _taken(row, cached, write, rule.storage, by)


def _taken(
    row: PriceRow, cached: float | None, write: Mapping[str, float], storage: float | None, source: str
) -> PriceRow:
    """A row with those prices that it does not list itself, and a note of where they are from."""
    given: dict[str, Any] = {
        "cached_input": cached if row.cached_input is None else None,
        "cache_write": _frozen(write) if write and not row.cache_write else None,
        "storage": storage if row.storage is None else None,
    }
    found = {name: value for name, value in given.items() if value is not None}
    if not found:
        return row
    said = f"{', '.join(name.replace('_', ' ') for name in found)}: {source}"
    return replace(row, note="; ".join(filter(None, (row.note, said))), **found)


def _cited(source: Source) -> str:
    return f"{source.url}, as of {source.as_of}"


def _times(price: float, ratio: float) -> float:
    """A price to a ratio of it, as people write it: 1.5 x 0.1 is 0.15."""
    return round(price * ratio, 12)


def offers(fields: Mapping[str, Any]) -> tuple[Offer, ...]:
    """The models of a file whose fields are sound."""
    sources = {name: _source(entry) for name, entry in fields["sources"].items()}
    return tuple(_offer(fields, model, sources) for model in fields["models"])


def _source(entry: Mapping[str, Any]) -> Source:
    return Source(entry["url"], str(entry["as_of"]), entry.get("second_hand", False))


def _rule(found: Mapping[str, Any] | None, sources: Mapping[str, Source]) -> CacheRule | None:
    if found is None:
        return None
    given = {name: value for name, value in found.items() if name not in _OF_RULE}
    source, prices = (sources[found[name]] if found.get(name) else None for name in ("source", "price_source"))
    write = _frozen(found.get("write_over_input"))
    return CacheRule(source=source, price_source=prices, write_over_input=write, **given)


def _merged(common: Mapping[str, Any] | None, own: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A model's rule over its vendor's: what it does not say itself is as the vendor has it, but for the note."""
    if own is None or common is None:
        return common if own is None else own
    return {name: value for name, value in common.items() if name != "note"} | dict(own)


def _frozen(found: Mapping[str, float] | None) -> Mapping[str, float]:
    return MappingProxyType({name: float(value) for name, value in (found or {}).items()})


def _offer(fields: Mapping[str, Any], model: Mapping[str, Any], sources: Mapping[str, Source]) -> Offer:
    hours, vendor = model.get("hours"), fields["vendor"]
    return Offer(
        vendor=vendor,
        vendor_name=fields["name"],
        model=model["id"],
        name=model["name"],
        rows=tuple(_row(vendor, model, row, sources) for row in model["prices"]),
        aliases=tuple(model.get("aliases", ())),
        usual=model.get("usual", False),
        caching=_rule(_merged(fields.get("caching"), model.get("caching")), sources),
        own_caching="caching" in model,
        hours=Peak(tuple(map(span_of, hours["spans"])), hours.get("working_days", False)) if hours else None,
        ended=day_of(model.get("ended")),
    )


def _row(vendor: str, model: Mapping[str, Any], row: Mapping[str, Any], sources: Mapping[str, Source]) -> PriceRow:
    given: dict[str, Any] = {name: float(value) if name in _PRICES else value for name, value in row.items()}
    given["source"] = sources[row["source"]]
    given["cache_write"] = _frozen(row.get("cache_write"))
    given["from_date"], given["to_date"] = day_of(row.get("from_date")), day_of(row.get("to_date"))
    return PriceRow(vendor, model["id"], model["name"], **given)
