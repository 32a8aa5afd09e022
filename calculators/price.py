"""The answer of `price` for a deployment of one's own: what its tokens cost at each load."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.cost import (
    BOUND,
    EXPECTED,
    HOUR,
    MILLION,
    Load,
    LoadTimes,
    TokenTimes,
    by_basis,
    electricity,
    energy_per_token,
    load_times,
    request_seconds,
    request_times,
    token_costs,
    write_off,
)
from roofcast.calculators.deployment import cache_on_one
from roofcast.calculators.errors import UsageError
from roofcast.calculators.phases import CHUNK, Asked, answer_point, most_sequences
from roofcast.calculators.price_rows import CostRow, Held, Hourly, LengthRow, LoadRow, RateRow, RatioRow, WorkloadRow
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roofcast.calculators.cost import Tariff
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.price_rooms import Server
    from roofcast.calculators.workload import Request, Workload
    from roofcast.hwdb.accelerator import Accelerator

MOST_SEQUENCES: Final = 4096  # a load beyond is not looked at


@dataclass(frozen=True, slots=True)
class Own:
    """A deployment of one's own, and what is asked of it.

    Args:
        ready: the deployment.
        batches: requests at once, rising.
        budget: tokens of a step; None is all prompts at once. [token]
        hourly: what it costs; None without a price.
        server: of an engine whose own rules say what its cache holds; None where all memory beside the weights counts.
    """

    ready: Ready
    batches: tuple[int, ...]
    budget: int | None = None
    hourly: Hourly | None = None
    server: Server | None = None

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.ready.deployment.shards.devices

    @property
    def basis(self) -> str:
        """What costs are compared by: what to expect, or the bound where no constants are asked."""
        return BOUND if self.ready.expectation is None else EXPECTED

    @property
    def bases(self) -> tuple[str, ...]:
        """What ratios are told by."""
        return (BOUND,) if self.basis == BOUND else (BOUND, EXPECTED)

    @property
    def dollars_per_second(self) -> float | None:
        """Of the deployment while it has its load. [USD/s]"""
        return None if self.hourly is None else self.hourly.dollars_per_busy_hour / HOUR

    def at(self, longest: int, batch: int) -> Ready:
        """The deployment as it serves so many requests at once, none of them longer."""
        return self.ready if self.server is None else replace(self.ready, holding=self.server.room(longest, batch))

    def fitting(self, held: int, longest: int) -> int:
        """Sequences of so many tokens that fit at once, 4,096 at most, where the longest of them has so many."""
        return min(most_sequences(self.at(longest, MOST_SEQUENCES), held), MOST_SEQUENCES)


def hourly_cost(tariff: Tariff, accelerator: Accelerator, gpus: int) -> Hourly | None:
    """What a deployment costs an hour: GPUs x (rent, or write-off, and power at TDP); None without a price. [USD/h]

    Raises:
        UsageError: power has a price, and the accelerator's TDP is not known.
    """
    if tariff.gpu_price is None and tariff.gpu_cost is None:
        return None
    if tariff.power_price and accelerator.tdp is None:
        raise UsageError(
            f"--power-price: the TDP of {accelerator.id} is not known; leave it out, or put power in the rent"
        )
    power = electricity(accelerator.tdp or 0.0, tariff.power_price, tariff.pue)
    written = None if tariff.gpu_cost is None else write_off(tariff.gpu_cost, tariff.years)
    each = (tariff.gpu_price or 0.0) + (written or 0.0) + power
    return Hourly(
        kind="rented" if tariff.gpu_price is not None else "owned",
        gpus=gpus,
        dollars_per_gpu_hour=each,
        rent_dollars_per_gpu_hour=tariff.gpu_price,
        write_off_dollars_per_gpu_hour=written,
        power_dollars_per_gpu_hour=power,
        dollars_per_hour=each * gpus,
        utilisation=tariff.utilisation,
        dollars_per_busy_hour=each * gpus / tariff.utilisation,
    )


@dataclass(frozen=True, slots=True)
class Loads:
    """A workload on a deployment, each load reckoned once.

    Args:
        own: the deployment.
        workload: what it serves.
        timed: times of the tokens of each kind by load, as far as they were asked for.
        known: requests a second by load, likewise. [1/s]
    """

    own: Own
    workload: Workload
    timed: dict[int, tuple[LoadTimes, ...]] = field(default_factory=dict)
    known: dict[int, float] = field(default_factory=dict)

    def load(self, request: Request, batch: int) -> Load:
        """So many requests at once, of one kind."""
        return Load(request, batch, self.workload.context, self.workload.held, self.own.budget)

    def times(self, batch: int) -> tuple[LoadTimes, ...]:
        """Times of the tokens of each kind at a load; all fit, or none does."""
        if batch not in self.timed:
            ready = self.own.at(self.workload.longest, batch)
            self.timed[batch] = tuple(load_times(ready, self.load(one, batch)) for one in self.workload.requests)
        return self.timed[batch]

    def rate(self, batch: int) -> float:
        """Requests that so many at once make a second: 1 / their mean time; 0 where they do not fit. [1/s]"""
        if batch not in self.known:
            ready = self.own.at(self.workload.longest, batch)
            times = [request_times(ready, self.load(one, batch)) for one in self.workload.requests]
            fit = all(times)
            self.known[batch] = 1 / self.workload.mean(tuple(one[self.own.basis] for one in times)) if fit else 0.0
        return self.known[batch]

    def ratio(self, batch: int, basis: str) -> float:
        """What an output token costs over an input token, in the mean over all kinds, of a load that fits. [-]"""
        times = [one.times[basis] for one in self.times(batch)]
        return _mean_output(self.workload, times) / _mean_input(self.workload, times)

    def least(self, rate: float) -> int | None:
        """The least load that makes so many a second; None where none that fits does."""
        return least(lambda batch: self.rate(batch) >= rate, self.most)

    @property
    def most(self) -> int:
        """Requests that fit at once, 4,096 at most."""
        return self.own.fitting(self.workload.held, self.workload.longest)


def load_rows(loads: Loads) -> list[LoadRow]:
    """Every kind of a workload at every load."""
    return [
        _load_row(loads, request, batch, made)
        for batch in loads.own.batches
        for request, made in zip(loads.workload.requests, loads.times(batch), strict=True)
    ]


def _load_row(loads: Loads, request: Request, batch: int, made: LoadTimes) -> LoadRow:
    return LoadRow(
        workload=loads.workload.name,
        weight=request.weight / loads.workload.weight,
        prompt=request.prompt,
        output=request.output,
        prefix=request.prefix,
        hit=request.hit,
        batch=batch,
        context=loads.load(request, batch).attended,
        fits=not made.reason,
        reason=made.reason or None,
        costs=[_cost_row(loads.own, basis, times, request) for basis, times in made.times.items()],
    )


def _cost_row(own: Own, basis: str, times: TokenTimes, request: Request) -> CostRow:
    seconds, dollars = request_seconds(times, request), own.dollars_per_second
    costs = None if dollars is None else token_costs(times, request, dollars)
    single, each = own.ready.deployment.accelerator.tdp, own.gpus * MILLION
    tdp = None if single is None else own.gpus * single
    middle = basis in {BOUND, EXPECTED}
    return CostRow(
        basis=basis,
        input_gpu_seconds=times.input * each,
        cached_input_gpu_seconds=times.cached * each,
        output_gpu_seconds=times.output * each,
        output_over_input=times.output / times.input if middle else None,
        cached_over_input=times.cached / times.input if middle else None,
        input_dollars=None if costs is None else costs.input,
        cached_input_dollars=None if costs is None else costs.cached,
        output_dollars=None if costs is None else costs.output,
        blended_dollars=None if costs is None else costs.blended,
        request_dollars=None if costs is None else costs.request,
        requests_per_second=1 / seconds,
        output_tokens_per_second=request.output / seconds,
        input_joules_per_token=None if tdp is None else energy_per_token(times.input, tdp),
        output_joules_per_token=None if tdp is None else energy_per_token(times.output, tdp),
    )


def workload_row(loads: Loads, batch: int) -> WorkloadRow:
    """A workload's kinds together at one load: rate = 1 / mean time of a request, cost = USD/s / rate. [USD]

    A decode step's time is that of the weights, shared, and each sequence's own cache, so that what a kind's tokens take of a
    mixed step is what they take of a step of their kind alone.
    """
    own, workload, rate = loads.own, loads.workload, loads.rate(batch)
    dollars = own.dollars_per_second
    each = dollars / rate if dollars is not None and rate else None
    return WorkloadRow(
        workload=workload.name,
        kinds=len(workload.requests),
        batch=batch,
        fits=bool(rate),
        basis=own.basis,
        output_over_input=loads.ratio(batch, own.basis) if rate else None,
        request_dollars=each,
        blended_dollars=None if each is None else each * MILLION / workload.tokens,
        requests_per_second=rate or None,
        tokens_per_second=workload.tokens * rate if rate else None,
    )


def _mean_output(workload: Workload, times: Sequence[TokenTimes]) -> float:
    """Of all output tokens. [s/token]"""
    outputs = tuple(float(request.output) for request in workload.requests)
    spent = tuple(one.output * count for one, count in zip(times, outputs, strict=True))
    return workload.mean(spent) / workload.mean(outputs)


def _mean_input(workload: Workload, times: Sequence[TokenTimes]) -> float:
    """Of all prompts' tokens that no cache holds. [s/token]"""
    new = tuple(request.prompt - request.found for request in workload.requests)
    spent = tuple(one.input * count for one, count in zip(times, new, strict=True))
    return workload.mean(spent) / workload.mean(new)


def rate_row(loads: Loads, rate: float) -> RateRow:
    """What a request costs where so many come a second: USD an hour / (3600 x rate). [USD]

    All of the hour is paid, however little of it the requests take.
    """
    own, workload, most = loads.own, loads.workload, loads.most
    batch = loads.least(rate)
    each = None if own.hourly is None or batch is None else own.hourly.dollars_per_hour / HOUR / rate
    return RateRow(
        workload=workload.name,
        requests_per_second=rate,
        batch=batch,
        reachable=batch is not None,
        capacity_requests_per_second=loads.rate(most) if most else 0.0,
        largest=most,
        request_dollars=each,
        blended_dollars=None if each is None else each / workload.tokens * MILLION,
    )


def ratio_row(loads: Loads, ratio: float, basis: str) -> RatioRow:
    """The least load at which output costs at most so many times what input does: output / input <= ratio. [-]

    The ratio falls with the load, since sequences share the weights that a step reads, down to what their own caches take;
    where prompts are so short that they too are bound by memory, it stays about the same until they are not.
    """
    largest, name = loads.most, loads.workload.name
    if not largest:
        return RatioRow(name, basis, ratio, None, None, 0)
    batch = least(lambda count: loads.ratio(count, basis) <= ratio, largest)
    return RatioRow(name, basis, ratio, batch, loads.ratio(batch or largest, basis), largest)


def least(holds: Callable[[int], bool], most: int) -> int | None:
    """The least number from 1 to `most` of which something holds that holds of all larger ones; None of none.

    >>> least(lambda number: number >= 5, 100), least(lambda number: False, 100)
    (5, None)
    """
    if most < 1 or not holds(most):
        return None
    low, high = 0, most  # holds of high, not of low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def length_rows(own: Own, contexts: Sequence[int]) -> list[LengthRow]:
    """What length costs, GPUs x time / tokens: prompts, as many as a step of 8,192 tokens holds, and decode of as many sequences as fit. [s]

    Decode is of the largest load asked at most.
    A prompt's price a token grows with its length by the attention of each token to all before it; that of output also by the
    sequences that do not fit any more.
    """
    rows: list[LengthRow] = []
    for context in contexts:
        batch = min(max(own.batches), own.fitting(context, context))
        if batch:
            rows.append(_length_row(own, context, batch, rows[0] if rows else None))
    return rows


def _length_row(own: Own, context: int, batch: int, first: LengthRow | None) -> LengthRow:
    prompts, each = min(max(1, CHUNK // context), batch), own.gpus * MILLION
    read = _time(own, Asked(PREFILL, prompts, context, own.budget)) / (prompts * context) * each
    made = _time(own, Asked(DECODE, batch, context)) / batch * each
    return LengthRow(
        context=context,
        input_gpu_seconds=read,
        input_ratio=read / first.input_gpu_seconds if first else 1.0,
        batch=batch,
        output_gpu_seconds=made,
        output_ratio=made / first.output_gpu_seconds if first else 1.0,
        output_over_input=made / read,
    )


def _time(own: Own, asked: Asked) -> float:
    """Time of what is known to fit. [s]"""
    return by_basis(answer_point(own.ready, asked))[own.basis]


def held_row(own: Own, context: int) -> Held | None:
    """What keeping a million tokens in the cache costs an hour: USD an hour x 1e6 / (sequences x context). [USD/h]

    Sequences are those that fit beside the weights.

    None where not one sequence of that context fits.
    """
    ready = own.ready
    sequences = own.fitting(context, context) if own.server else most_sequences(ready, context)
    if not sequences:
        return None
    shards = ready.deployment.shards
    each = cache_on_one(ready, 1, context) * shards.devices / shards.dp
    holding = own.at(context, 1).holding
    pool = None if holding is None else holding.tokens
    tokens = sequences * context if pool is None else pool * shards.dp
    dollars = None if own.hourly is None else own.hourly.dollars_per_hour / tokens * MILLION
    return Held(each / context, tokens, context, dollars)
