"""Of `price`: the prices of APIs, what a workload costs there, and where an own deployment is cheaper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.reports.document import Table, table
from roofcast.reports.dollars import plain_money
from roofcast.reports.numbers import NOTHING, count, figures, ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofcast.calculators.price_rows import ApiCost, ApiRow, Day, PriceResult

THOUSAND: Final = 1000
PRICES: Final = (
    "model", "vendor", "prompts", "hours", "input", "cached", "output", "out:\nin", "cached:\nin", "write:\nin", "USD/\nMtok-h",
    "least\nprefix", "as of", "source",
)  # fmt: skip
OWN: Final = ("own", "own/\nAPI", "break-even\nrequests/s", "at\nonce", "Mtoken/\nday", "GPU-hour\nat par")
PARTS: Final = {
    "input": "input", "cached_input": "cached", "cache_write": "cache\nwrite", "output": "output", "storage": "storage",
}  # fmt: skip
DAYS: Final = ("model", "input", "cached", "output", "income", "GPUs'\ncost", "margin")


def api_tables(result: PriceResult) -> list[Table]:
    """The tables of APIs, those without rows too."""
    return [_prices(result.apis), *_costs(result.api_costs), _days(result.days)]


def sources(rows: Iterable[ApiRow]) -> dict[tuple[str, str, bool], str]:
    """Every source of prices and the letter that stands for it.

    The letters are a to z, then aa, ab ...
    """
    found = dict.fromkeys((row.source, row.as_of, row.second_hand) for row in rows)
    return {source: _letters(number) for number, source in enumerate(found)}


def _letters(number: int) -> str:
    """The number in letters.

    >>> _letters(0), _letters(25), _letters(26)
    ('a', 'z', 'aa')
    """
    first, last = divmod(number, 26)
    return (_letters(first - 1) if first else "") + chr(ord("a") + last)


def source_notes(result: PriceResult) -> list[str]:
    """A line a source, and a line a row that has more to say."""
    said = [f"{row.model}: {row.note}" for row in result.apis if row.note]
    lines = [
        f"source {letter}: {url}, as of {as_of}{', second hand' if second else ''}"
        for (url, as_of, second), letter in sources(result.apis).items()
    ]
    applied = [f"{cost.model}: {note}" for cost in result.api_costs for note in cost.notes]
    return [*dict.fromkeys((*said, *applied)), *lines]


def _prices(rows: Sequence[ApiRow]) -> Table:
    letters = sources(rows)
    cells = [
        (
            row.model,
            row.vendor,
            tier(row),
            "" if row.hours == "any" else row.hours,
            plain_money(row.input_dollars),
            plain_money(row.cached_input_dollars),
            plain_money(row.output_dollars),
            ratio(row.output_over_input),
            figures(row.cached_over_input),
            " ".join(f"{figure:g}" for figure in dict.fromkeys(row.cache_write_over_input.values())) or NOTHING,
            plain_money(row.storage_dollars),
            count(row.least_prefix_tokens),
            row.as_of,
            letters[row.source, row.as_of, row.second_hand],
        )
        for row in rows
    ]
    return table(PRICES, cells, "prices of APIs, USD a million tokens", left=(0, 1, 2, 3, 12, 13), breaks=(4, 7, 10))


def tier(row: ApiRow) -> str:
    """Prompts that a row is of, in thousands, decimal.

    >>> from types import SimpleNamespace
    >>> tier(SimpleNamespace(above_tokens=200_000, up_to_tokens=None)), tier(SimpleNamespace(above_tokens=None, up_to_tokens=272_000))
    ('>200k', '<=272k')
    """
    parts = []
    if row.above_tokens is not None:
        parts.append(f">{_thousands(row.above_tokens)}")
    if row.up_to_tokens is not None:
        parts.append(f"<={_thousands(row.up_to_tokens)}")
    return " ".join(parts)


def _thousands(tokens: int) -> str:
    return f"{tokens // THOUSAND}k" if tokens % THOUSAND == 0 else f"{tokens:,}"


def _costs(rows: Sequence[ApiCost]) -> list[Table]:
    """What workloads cost, and beside it the own deployment where there is one, else the parts of it."""
    own = any(row.break_even_dollars_per_gpu_hour is not None for row in rows)
    priced = any(row.own_request_dollars is not None for row in rows)
    several = len({row.workload for row in rows}) > 1
    parts = [name for name in PARTS if any(part.term == name for row in rows for part in row.terms)]
    beside = (OWN if priced else OWN[-1:]) if own else tuple(PARTS[name] for name in parts)
    header = (*(("workload",) if several else ()), "model", "USD/1,000\nrequests", *beside)
    cells = [
        (
            *((row.workload,) if several else ()),
            row.model,
            plain_money(row.request_dollars * THOUSAND),
            *(_own_cells(row, priced=priced) if own else _part_cells(row, parts)),
        )
        for row in rows
    ]
    title = "at the providers' rules" + (f", {rows[0].workload}" if rows and not several else "")
    left = (0, 1) if several else (0,)
    return [table(header, cells, title, left=left, breaks=(5,) if several else (4,), keys=len(left))]


def _own_cells(row: ApiCost, *, priced: bool) -> tuple[str, ...]:
    par = plain_money(row.break_even_dollars_per_gpu_hour)
    if not priced:
        return (par,)
    tokens = row.break_even_tokens_per_day
    return (
        plain_money(row.own_request_dollars and row.own_request_dollars * THOUSAND),
        figures(row.own_over_api),
        figures(row.break_even_requests_per_second),
        _batch(row),
        figures(tokens and tokens / 1e6),
        par,
    )


def _part_cells(row: ApiCost, parts: Sequence[str]) -> Iterable[str]:
    """US dollars of a thousand requests, by part."""
    paid = {part.term: part.dollars for part in row.terms}
    return (plain_money(paid[name] * THOUSAND) if name in paid else NOTHING for name in parts)


def _batch(row: ApiCost) -> str:
    if row.reachable is None:
        return NOTHING
    return count(row.break_even_batch) if row.reachable else "too many"


def _days(rows: Sequence[Day]) -> Table:
    cells = [
        (
            f"{row.model}{_priced_at(row)}",
            plain_money(row.input_dollars),
            plain_money(row.cached_input_dollars),
            plain_money(row.output_dollars),
            plain_money(row.income_dollars),
            plain_money(row.cost_dollars),
            NOTHING if row.margin is None else f"{row.margin:.0%}",
        )
        for row in rows
    ]
    title = "a day's tokens at these prices, USD"
    if rows:
        day = rows[0]
        title = (
            f"{figures(day.input_tokens / 1e9)} G tokens in, {day.cached_share:.1%} of them cached, "
            f"{figures(day.output_tokens / 1e9)} G out a day: USD"
        )
    return table(DAYS, cells, title)


def _priced_at(row: Day) -> str:
    """The hours and the tier that a day's tokens are taken to be of."""
    parts = [
        None if row.hours == "any" else row.hours,
        None if row.up_to_tokens is None else f"prompts <={_thousands(row.up_to_tokens)}",
    ]
    said = ", ".join(part for part in parts if part)
    return f" ({said})" if said else ""
