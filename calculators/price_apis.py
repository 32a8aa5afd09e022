"""Of `price`: rows of API prices, workloads at their rules, and the load at which an own deployment costs the same."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from roofcast.calculators.api_cost import bill, break_even_hits, break_even_requests, mix_cost, write_price
from roofcast.calculators.cost import HOUR
from roofcast.calculators.price_rows import ApiCost, ApiRow, ApiTerm, Day

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.api_cost import RequestCost, Terms
    from roofcast.calculators.price import Loads
    from roofcast.calculators.price_rows import Hourly
    from roofcast.calculators.workload import Workload
    from roofcast.hwdb.prices import PriceList, PriceRow


@dataclass(frozen=True, slots=True)
class _Beside:
    """An own deployment beside an API.

    Args:
        dollars: of its request at the largest load asked that fits. [USD]
        even: requests a second at which both cost the same. [1/s]
        batch: requests at once that make that many.
        reachable: whether it does.
        par: price of a GPU at which both cost the same at the largest load. [USD/h]
    """

    dollars: float | None
    even: float | None
    batch: int | None
    reachable: bool | None
    par: float | None


DAY: Final = 86_400.0  # [s]
HOURS_A_DAY: Final = 24
HOURS: Final = {None: "any", True: "peak", False: "off-peak"}


def api_rows(lists: Iterable[PriceList]) -> list[ApiRow]:
    """A row a model, tier and kind of hour."""
    return [_api_row(prices, row) for prices in lists for row in prices.rows]


def _api_row(prices: PriceList, row: PriceRow) -> ApiRow:
    return ApiRow(
        vendor=row.vendor,
        model=row.model,
        name=row.name,
        above_tokens=row.above,
        up_to_tokens=row.up_to,
        hours=HOURS[row.peak],
        input_dollars=row.input,
        cached_input_dollars=row.cached_input,
        output_dollars=row.output,
        cache_write_dollars=dict(row.cache_write),
        storage_dollars=row.storage,
        output_over_input=row.output_over_input,
        cached_over_input=row.cached_over_input,
        cache_write_over_input={life: price / row.input for life, price in row.cache_write.items() if row.input},
        break_even_hits={life: hits for life in row.cache_write if (hits := break_even_hits(row, life)) is not None},
        break_even_requests_per_hour=break_even_requests(row),
        least_prefix_tokens=prices.caching.minimum,
        from_date=None if row.from_date is None else row.from_date.isoformat(),
        to_date=None if row.to_date is None else row.to_date.isoformat(),
        as_of=row.source.as_of,
        source=row.source.url,
        second_hand=row.source.second_hand,
        note=row.note,
    )


def api_cost(prices: PriceList, workload: Workload, terms: Terms, loads: Loads | None) -> ApiCost:
    """What a mean request of a workload costs at an API, and where an own deployment costs the same. [USD]

    break-even rate = USD an hour / 3600 / the API's USD a request: all hours of the machine are paid, of the API only what is
    asked. It is a mean over all hours, and reachable where the deployment does rate / utilisation at some load that fits.
    price of a GPU hour at par = the API's USD a request x requests an hour at the largest load asked / GPUs
    """
    cost = mix_cost(prices, workload.requests, terms)
    parts = [ApiTerm(part.name, part.tokens, part.price, part.dollars) for part in cost.terms]
    beside = _Beside(None, None, None, None, None) if loads is None else _beside(loads, cost)
    even = beside.even
    return ApiCost(
        workload=workload.name,
        vendor=prices.vendor,
        model=prices.model,
        request_dollars=cost.dollars,
        terms=parts,
        notes=[*cost.notes, *_prefix_notes(prices, workload, terms)],
        own_request_dollars=beside.dollars,
        own_over_api=beside.dollars / cost.dollars if beside.dollars is not None and cost.dollars else None,
        break_even_requests_per_second=even,
        break_even_tokens_per_day=None if even is None else even * workload.tokens * DAY,
        break_even_batch=beside.batch,
        reachable=beside.reachable,
        break_even_dollars_per_gpu_hour=beside.par,
    )


def _prefix_notes(prices: PriceList, workload: Workload, terms: Terms) -> list[str]:
    """From how many hits on writing a prefix pays, and from how many requests an hour on keeping it."""
    shared = [request for request in workload.requests if prices.caching.held(request.prefix)]
    if not shared:
        return []
    row, notes = prices.row(shared[0].prompt, peak=terms.peak), []
    life, hits = write_price(row, terms.lifetime)[0], break_even_hits(row, terms.lifetime)
    if life is not None and hits is not None and hits > 0:
        notes.append(f"a prefix that is written for {life} pays from {ceil(hits)} hit{'s' if hits > 1 else ''} on")
    kept = break_even_requests(row)
    if kept is not None:
        notes.append(f"a prefix that is kept pays from {kept:.3g} requests an hour on")
    return notes


def _beside(loads: Loads, cost: RequestCost) -> _Beside:
    own = loads.own
    most = max((loads.rate(batch) for batch in own.batches), default=0.0)
    dollars, hourly = own.dollars_per_second, own.hourly
    par = cost.dollars * most * HOUR / own.gpus if most else None
    if hourly is None or dollars is None:
        return _Beside(None, None, None, None, par)
    par = None if par is None else par * hourly.utilisation
    each = dollars / most if most else None
    if not cost.dollars:
        return _Beside(each, None, None, None, par)
    even = hourly.dollars_per_hour / HOUR / cost.dollars
    batch = loads.least(even / hourly.utilisation)  # while the load is there
    return _Beside(each, even, batch, batch is not None, par)


@dataclass(frozen=True, slots=True)
class Totals:
    """Tokens of a day.

    Args:
        input, output: of the day. [token]
        cached_share: of the input, what a prefix cache holds. [-]
        gpus: of the machines that served them; None where not given.
    """

    input: float
    output: float
    cached_share: float
    gpus: int | None


def day_row(prices: PriceList, totals: Totals, hourly: Hourly | None, *, peak: bool) -> Day:
    """A day's tokens at a model's lowest tier, all at one kind of hour, and what the machines cost over 24 hours. [USD]"""
    row = next((row for row in prices.rows if (row.peak is True) == peak), prices.rows[0])
    made = bill(row, totals.input, totals.output, totals.cached_share)
    cost = None if hourly is None else hourly.dollars_per_hour * HOURS_A_DAY
    return Day(
        vendor=prices.vendor,
        model=prices.model,
        hours=HOURS[row.peak],
        up_to_tokens=row.up_to,
        input_tokens=totals.input,
        cached_share=totals.cached_share,
        output_tokens=totals.output,
        input_dollars=made.input,
        cached_input_dollars=made.cached_input,
        output_dollars=made.output,
        income_dollars=made.dollars,
        gpus=totals.gpus,
        cost_dollars=cost,
        margin=(made.dollars - cost) / cost if cost else None,
    )
