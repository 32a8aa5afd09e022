"""What requests cost at a provider's prices: its tiers, its peak hours, and the rules of its prefix cache."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.hwdb.prices import MILLION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.workload import Request
    from roofcast.hwdb.prices import CacheRule, PriceList, PriceRow

INPUT: Final = "input"
CACHED: Final = "cached_input"
WRITE: Final = "cache_write"
OUTPUT: Final = "output"
STORAGE: Final = "storage"
PARTS: Final = (INPUT, CACHED, WRITE, OUTPUT, STORAGE)  # in the order in which they are shown
LIFETIME: Final = r"[1-9][0-9]{0,5}[mhd]"  # of what is written to a cache
_MINUTES: Final = {"m": 1, "h": 60, "d": 1440}  # of a unit of a lifetime


@dataclass(frozen=True, slots=True)
class Terms:
    """How a provider is used.

    Args:
        lifetime: for which a prefix is written to the cache: 5m, 1h.
        peak: whether at peak hours, of providers that have them.
        kept_hours: for which an explicit cache is kept; None is a cache that costs nothing to keep. [h]
        requests_per_hour: that come meanwhile and share what that costs; None is one request in all. [1/h]
    """

    lifetime: str = "5m"
    peak: bool = False
    kept_hours: float | None = None
    requests_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what a request costs: tokens x price / 1e6.

    Args:
        name: one of PARTS.
        tokens: in the mean of all requests; of storage token-hours. [token]
        price: [USD/Mtoken]; of storage [USD/(Mtoken h)]
        dollars: [USD]
    """

    name: str
    tokens: float
    price: float
    dollars: float


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What a mean request costs, part by part, and how the provider's rules applied.

    Args:
        terms: parts that cost something, or could; in the order of PARTS.
        notes: one line each.
    """

    terms: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    @property
    def dollars(self) -> float:
        """The sum of its parts. [USD]"""
        return sum(part.dollars for part in self.terms)


@dataclass(frozen=True, slots=True)
class Bill:
    """What tokens cost in all, by kind. [USD]"""

    input: float
    cached_input: float
    output: float

    @property
    def dollars(self) -> float:
        """The sum of the three. [USD]"""
        return self.input + self.cached_input + self.output


def request_cost(prices: PriceList, request: Request, terms: Terms) -> RequestCost:
    """Mean cost of a request, where a share of all finds its prefix cached and the rest writes it. [USD]

    P prompt tokens, of which the provider caches C of the prefix (none below its minimum, whole steps above), hit rate h,
    O output tokens: `h C cached + (1 - h) C write + (P - C) input + O output`, and `C storage hours / requests` of a cache
    that is kept. All prices are of the tier of the whole prompt.

    Raises:
        UsageError: the prefix is no part of the prompt.
        UnknownPriceError: no tier is of such prompts.

    >>> from roofcast.calculators.workload import Request
    >>> from roofcast.hwdb.price_files import find_prices
    >>> opus = find_prices(["claude-opus-5"])[0]
    >>> request_cost(opus, Request(10_000, 1_000, prefix=8_000, hit=0.0), Terms()).dollars  # 8k x 6.25 + 2k x 5 + 1k x 25
    0.085
    >>> request_cost(opus, Request(10_000, 1_000, prefix=8_000), Terms()).dollars  # 8k x 0.50 + 2k x 5 + 1k x 25
    0.039
    """
    if not 0 <= request.prefix <= request.prompt:
        raise UsageError(f"a prefix of {request.prefix:,} tokens is no part of a prompt of {request.prompt:,}")
    row = prices.row(request.prompt, peak=terms.peak)
    held, notes = _held(prices.caching, row, request)
    lifetime, write = write_price(row, terms.lifetime)
    missed = (1 - request.hit) * held
    amounts = [
        (INPUT, request.prompt - held, row.input),
        (CACHED, request.hit * held, row.input if row.cached_input is None else row.cached_input),
        (WRITE, missed, write),
        (OUTPUT, request.output, row.output),
        (STORAGE, _token_hours(row, held, terms), row.storage or 0.0),
    ]
    if missed and lifetime not in {None, terms.lifetime}:
        notes.append(f"prefixes are written for {lifetime}; nothing is listed for {terms.lifetime}")
    if row.above is not None:
        notes.append(f"prompts above {row.above:,} tokens cost more, from their first token on")
    return RequestCost(
        tuple(_part(*amount) for amount in amounts if amount[1] or amount[0] in {INPUT, OUTPUT}), (*notes,)
    )


def _part(name: str, tokens: float, price: float) -> Part:
    return Part(name, tokens, price, tokens * price / MILLION)


def _held(rule: CacheRule, row: PriceRow, request: Request) -> tuple[int, list[str]]:
    """Tokens of a request's prefix that the provider caches, and what is to be said of that."""
    if not request.prefix:
        return 0, []
    if row.cached_input is None:
        return 0, ["no price of cached input is listed; prefixes cost what input does"]
    held = rule.held(request.prefix)
    if not held:
        return 0, [f"prefixes of {request.prefix:,} tokens are not cached; the least is {rule.minimum or rule.step:,}"]
    notes = []
    if rule.minimum is None:
        notes.append("the least prefix that is cached is not known, and taken as none")
    if held < request.prefix:
        notes.append(f"of prefixes of {request.prefix:,} tokens {held:,} are cached, in steps of {rule.step}")
    if rule.automatic is False:
        notes.append("prefixes are cached where requests ask for it")
    return held, notes


def _token_hours(row: PriceRow, held: int, terms: Terms) -> float:
    """Token-hours that a request pays of a kept prefix: C hours / (requests an hour x hours), no fewer than one request."""
    if row.storage is None or not terms.kept_hours:
        return 0.0
    sharing = max(1.0, (terms.requests_per_hour or 0.0) * terms.kept_hours)
    return held * terms.kept_hours / sharing


def write_price(row: PriceRow, lifetime: str) -> tuple[str | None, float]:
    """The lifetime that is written for, and its price; input's where writing has none. [USD/Mtoken]

    Where the lifetime asked is not listed it is the shortest that lasts as long, else the longest.

    >>> from roofcast.hwdb.price_files import find_prices
    >>> row = find_prices(["claude-opus-5"])[0].rows[0]
    >>> write_price(row, "1h"), write_price(row, "30m")  # 2 x 5
    (('1h', 10.0), ('1h', 10.0))
    """
    if not row.cache_write:
        return None, row.input
    asked, listed = _minutes(lifetime), sorted(row.cache_write, key=_minutes)
    found = next((name for name in listed if _minutes(name) >= asked), listed[-1])
    return found, row.cache_write[found]


def _minutes(lifetime: str) -> int:
    if not re.fullmatch(LIFETIME, lifetime, re.ASCII):
        raise UsageError(f"{lifetime[:40]!r} is no lifetime of a cache; write it as 5m or 1h")
    return int(lifetime[:-1]) * _MINUTES[lifetime[-1]]


def break_even_hits(row: PriceRow, lifetime: str) -> float | None:
    """Hits after one write from which on a cached prefix costs less than none: (write - input) / (input - cached). [-]

    None where no hit ever pays: no cached input is listed, or it costs no less.

    >>> from roofcast.hwdb.price_files import find_prices
    >>> row = find_prices(["claude-opus-5"])[0].rows[0]
    >>> break_even_hits(row, "5m"), break_even_hits(row, "1h")  # 1.25 / 4.5 and 5 / 4.5: the first hit, and the second
    (0.27778, 1.11111)
    """
    if row.cached_input is None or row.cached_input >= row.input:
        return None
    return (write_price(row, lifetime)[1] - row.input) / (row.input - row.cached_input)


def break_even_requests(row: PriceRow) -> float | None:
    """Requests an hour from which on a kept prefix pays for its storage: storage / (input - cached). [1/h]

    None where storage costs nothing, or no hit ever pays.

    >>> from roofcast.hwdb.price_files import find_prices
    >>> break_even_requests(find_prices(["gemini-2.5-pro"])[0].rows[0])  # 4.50 / (1.25 - 0.125)
    4.0
    """
    if row.storage is None or row.cached_input is None or row.cached_input >= row.input:
        return None
    return row.storage / (row.input - row.cached_input)


def mix_cost(prices: PriceList, requests: Sequence[Request], terms: Terms) -> RequestCost:
    """Mean cost of a request of a mix: every part is `sum w x / sum w` over its kinds.

    Each kind has a prefix of its own, and of all requests an hour those of its weight.

    Raises:
        UsageError: there is no request in it.

    >>> from roofcast.calculators.workload import Request
    >>> from roofcast.hwdb.price_files import find_prices
    >>> flash = find_prices(["gpt-4.1"])[0]  # 2 and 8
    >>> mix_cost(flash, (Request(1000, 100, weight=3), Request(100, 1000)), Terms()).dollars  # (3 x 0.0028 + 0.0082) / 4
    0.00415
    """
    whole = sum(request.weight for request in requests)
    if not whole > 0:
        raise UsageError("a mix needs requests of some weight")
    shares = [request.weight / whole for request in requests]
    costs = [
        request_cost(prices, request, _of_share(terms, share)) for request, share in zip(requests, shares, strict=True)
    ]
    parts = (_mean(_named(name, shares, costs)) for name in PARTS)
    notes = dict.fromkeys(note for cost in costs for note in cost.notes)
    return RequestCost(tuple(part for part in parts if part is not None), tuple(notes))


def _named(name: str, shares: Sequence[float], costs: Sequence[RequestCost]) -> list[tuple[float, Part]]:
    pairs = zip(shares, costs, strict=True)
    return [(share, part) for share, cost in pairs for part in cost.terms if part.name == name]


def _mean(found: Sequence[tuple[float, Part]]) -> Part | None:
    """The mean of one part over the kinds that have it; its price is what a token of it costs on average."""
    if not found:
        return None
    tokens = sum(share * part.tokens for share, part in found)
    dollars = sum(share * part.dollars for share, part in found)
    first = found[0][1]
    return Part(first.name, tokens, dollars / tokens * MILLION if tokens else first.price, dollars)


def _of_share(terms: Terms, share: float) -> Terms:
    rate = terms.requests_per_hour
    return terms if rate is None else replace(terms, requests_per_hour=rate * share)


def bill(row: PriceRow, input_tokens: float, output_tokens: float, cached_share: float) -> Bill:
    """What tokens cost in all: (1 - c) I input + c I cached + O output, a share c of the input found in a cache. [USD]

    Where no price of cached input is listed, it is input's. The example is a day of one provider, 608e9 tokens read, 56.3 %
    of them cached, and 168e9 made, at the prices of DeepSeek-R1.

    >>> from datetime import date
    >>> from roofcast.hwdb.price_files import find_prices
    >>> row = find_prices(["deepseek-reasoner"], on=date(2025, 2, 28))[0].rows[0]  # 0.55, 0.14 and 2.19
    >>> day = bill(row, 608e9, 168e9, 0.563)
    >>> round(day.input), round(day.cached_input), round(day.output), round(day.dollars)
    (146133, 47923, 367920, 561975)
    """
    cached = row.input if row.cached_input is None else row.cached_input
    return Bill(
        input=input_tokens * (1 - cached_share) * row.input / MILLION,
        cached_input=input_tokens * cached_share * cached / MILLION,
        output=output_tokens * row.output / MILLION,
    )
