"""The answer of `price`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.estimate import constants_remarks, layout_of, provenance_of, ready_remarks, weights_of
from roofcast.calculators.phases import Asked, check_steps
from roofcast.calculators.price import Loads, held_row, length_rows, load_rows, rate_row, ratio_row, workload_row
from roofcast.calculators.price_apis import api_cost, api_rows, day_row
from roofcast.calculators.price_rows import PriceResult
from roofcast.calculators.remarks import contexts_of
from roofcast.modelspec.step import PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from roofcast.calculators.api_cost import Terms
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.price import Own
    from roofcast.calculators.price_apis import Totals
    from roofcast.calculators.price_rows import ApiCost, Day, Hourly
    from roofcast.calculators.workload import Workload
    from roofcast.hwdb.prices import PriceList

SHORTEST: Final = 1024  # context that longer ones are compared with. [token]


@dataclass(frozen=True, slots=True)
class Question:
    """What `price` is asked.

    Args:
        own: a deployment of one's own; None without.
        hourly: what machines cost; None without a price.
        workloads: what is served.
        lists: prices of APIs.
        terms: at which an API is asked.
        moment: at which an API is asked, UTC; None where `terms` say whether it is a peak hour.
        costed: whether the workloads are priced at the APIs.
        totals: tokens of a day; None without.
        ratio: of output over input that a load is looked for at; None without. [-]
        rate: requests that come a second; None without. [1/s]
    """

    own: Own | None
    hourly: Hourly | None
    workloads: tuple[Workload, ...]
    lists: tuple[PriceList, ...]
    terms: Terms
    moment: datetime | None = None
    costed: bool = True
    totals: Totals | None = None
    ratio: float | None = None
    rate: float | None = None


def price_result(question: Question) -> tuple[PriceResult, Remarks]:
    """Answers `price`.

    Raises:
        UsageError, MalformedModelError: a load that cannot be.
    """
    own, asked = question.own, question.workloads
    ready = None if own is None else own.ready
    loads = [Loads(own, workload) for workload in asked] if own else []
    if own:
        check_steps(_steps_of(own, asked))
    result = PriceResult(
        model=None if ready is None else ready.model.name,
        gpu=None if ready is None else ready.deployment.accelerator.id,
        layout=None if ready is None else layout_of(ready),
        weights=None if ready is None else weights_of(ready),
        hourly=question.hourly,
        loads=[row for one in loads for row in load_rows(one)],
        workloads=[workload_row(one, batch) for one in loads for batch in one.own.batches],
        lengths=length_rows(own, lengths_of(own.ready)) if own else [],
        ratios=[ratio_row(one, question.ratio, basis) for one in loads for basis in one.own.bases]
        if question.ratio
        else [],
        rates=[rate_row(one, question.rate) for one in loads] if question.rate else [],
        held=held_row(own, asked[0].held) if own else None,
        apis=api_rows(question.lists),
        api_costs=_api_costs(question, loads),
        days=_days(question),
        provenance=_provenance(question),
    )
    return result, _remarks(ready, asked) + _of_dates(question.lists)


def lengths_of(ready: Ready) -> list[int]:
    """Contexts whose cost is compared: 1,024, then those that commands take by default."""
    usual = contexts_of(ready.model, None)
    return sorted({min(SHORTEST, max(usual)), *usual})


def _api_costs(question: Question, loads: Sequence[Loads]) -> list[ApiCost]:
    """Each workload at each API, the cheapest first."""
    if not question.costed:
        return []
    beside: Sequence[Loads | None] = loads or [None] * len(question.workloads)
    made: list[ApiCost] = []
    for workload, one in zip(question.workloads, beside, strict=True):
        costs = (api_cost(prices, workload, _terms(question, prices), one) for prices in question.lists)
        made += sorted(costs, key=lambda cost: cost.request_dollars)
    return made


def _steps_of(own: Own, workloads: Sequence[Workload]) -> list[Asked]:
    """Prompts, for what they are cut into."""
    return [Asked(PREFILL, 1, one.prompt, own.budget) for workload in workloads for one in workload.requests]


def _days(question: Question) -> list[Day]:
    totals = question.totals
    if totals is None:
        return []
    return [day_row(one, totals, question.hourly, peak=_terms(question, one).peak) for one in question.lists]


def _terms(question: Question, prices: PriceList) -> Terms:
    """The terms at a provider: whether a moment is one of its peak hours."""
    if question.moment is None:
        return question.terms
    return replace(question.terms, peak=prices.hours is not None and prices.hours.holds(question.moment))


def _provenance(question: Question) -> dict[str, str]:
    found = {} if question.own is None else provenance_of(question.own.ready)
    priced = {} if question.hourly is None else {"gpu_price": "config", "power": "datasheet"}
    return {**found, **priced, **({"api_prices": "cited"} if question.lists else {})}


def _of_dates(lists: Sequence[PriceList]) -> Remarks:
    """Which prices are asked of a day at which no one had read them."""
    return remarks(
        f"{prices.model}: prices of {row.unknown_on} are taken as those read later ({row.source.as_of})"
        for prices in lists
        for row in prices.rows
        if row.unknown_on is not None
    )


def _remarks(ready: Ready | None, workloads: Sequence[Workload]) -> Remarks:
    if ready is None:
        return Remarks()
    accelerator = ready.deployment.accelerator
    contexts = [workload.held for workload in workloads]
    read = accelerator.tdp is None or accelerator.verified("tdp")
    recalled = None if read else f"{accelerator.id}: its TDP is recalled, not read in a source"
    return ready_remarks(ready, contexts) + constants_remarks(ready) + remarks([recalled])
