"""Rows of the answer of `price`: own costs by load, API prices beside them, where the two meet."""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.calculators.estimate import Layout, Weights  # noqa: TC001 - schemas are made of these


@dataclass(frozen=True, slots=True)
class Hourly:
    """What the deployment costs an hour."""

    kind: str
    """rented or owned."""
    gpus: int
    """GPUs that are paid for."""
    dollars_per_gpu_hour: float
    """Of one GPU: its rent, or its write-off and its power. [USD/h]"""
    rent_dollars_per_gpu_hour: float | None
    """Rent; null of what is owned. [USD/h]"""
    write_off_dollars_per_gpu_hour: float | None
    """Write-off; null of what is rented. [USD/h]"""
    power_dollars_per_gpu_hour: float
    """Electricity at TDP, with the building's share. [USD/h]"""
    dollars_per_hour: float
    """Of the whole deployment. [USD/h]"""
    utilisation: float
    """Share of the hours in which there is the load; all of them are paid. [-]"""
    dollars_per_busy_hour: float
    """The deployment's cost for each hour with the load: dollars_per_hour / utilisation. [USD/h]"""


@dataclass(frozen=True, slots=True)
class CostRow:
    """Costs of one load by one basis: the roofline's bound, what to expect, or an end of its interval."""

    basis: str
    """bound, expected, low or high (time, so costs too)."""
    input_gpu_seconds: float
    """GPU time of a million tokens of prompts that no cache holds. [s/Mtoken]"""
    cached_input_gpu_seconds: float
    """GPU time of a million tokens that a prefix cache holds. [s/Mtoken]"""
    output_gpu_seconds: float
    """GPU time of a million tokens of output. [s/Mtoken]"""
    output_over_input: float | None
    """What an output token costs over an input token; null of an interval's ends, which move together. [-]"""
    cached_over_input: float | None
    """What a cached token costs over another input token; null likewise. [-]"""
    input_dollars: float | None
    """Of a million input tokens; null without a price of the GPU. [USD/Mtoken]"""
    cached_input_dollars: float | None
    """Of a million cached ones; null likewise. [USD/Mtoken]"""
    output_dollars: float | None
    """Of a million output tokens; null likewise. [USD/Mtoken]"""
    blended_dollars: float | None
    """Of a million tokens as a request has them, input and output; null likewise. [USD/Mtoken]"""
    request_dollars: float | None
    """Of one request; null likewise. [USD]"""
    requests_per_second: float
    """Requests that the deployment does at this load. [1/s]"""
    output_tokens_per_second: float
    """Output tokens that it makes meanwhile. [token/s]"""
    input_joules_per_token: float | None
    """Energy at TDP, which is the most; null where TDP is not known. [J/token]"""
    output_joules_per_token: float | None
    """The same of an output token. [J/token]"""


@dataclass(frozen=True, slots=True)
class LoadRow:
    """One kind of request at one load."""

    workload: str
    """What it is of: prompt:output, or the mix that it is a part of."""
    weight: float
    """Share of the workload's requests. [-]"""
    prompt: int
    """Tokens that are read. [token]"""
    output: int
    """Tokens that are made. [token]"""
    prefix: int
    """Of the prompt those that earlier requests had too, from the first on. [token]"""
    hit: float
    """Share of the requests that find them in the cache. [-]"""
    batch: int
    """Requests at once, over all replicas."""
    context: int
    """Tokens that a decoded one attends to. [token]"""
    fits: bool
    """Whether weights and the cache of all requests at their longest fit."""
    reason: str | None
    """Why not; null where they do."""
    costs: list[CostRow]
    """A row a basis; empty of what does not fit."""


@dataclass(frozen=True, slots=True)
class WorkloadRow:
    """A whole workload, all its kinds of request, at one load."""

    workload: str
    """Its name."""
    kinds: int
    """Kinds of request in it."""
    batch: int
    """Requests at once."""
    fits: bool
    """Whether all its kinds fit."""
    basis: str
    """expected, or bound where no constants are asked."""
    output_over_input: float | None
    """Output tokens' mean cost over input tokens'; null of what does not fit. [-]"""
    request_dollars: float | None
    """Of a mean request; null without a price of the GPU. [USD]"""
    blended_dollars: float | None
    """Of a million tokens, input and output; null likewise. [USD/Mtoken]"""
    requests_per_second: float | None
    """That the deployment does. [1/s]"""
    tokens_per_second: float | None
    """Input and output. [token/s]"""


@dataclass(frozen=True, slots=True)
class LengthRow:
    """What length costs: a prompt by itself, and tokens after it with as many sequences as fit."""

    context: int
    """Tokens. [token]"""
    input_gpu_seconds: float
    """GPU time of a million tokens of such prompts. [s/Mtoken]"""
    input_ratio: float
    """Over that of the shortest prompt. [-]"""
    batch: int
    """Sequences that decode: the largest load asked, or as many as fit."""
    output_gpu_seconds: float
    """GPU time of a million output tokens at that context. [s/Mtoken]"""
    output_ratio: float
    """Over that at the shortest context. [-]"""
    output_over_input: float
    """[-]"""


@dataclass(frozen=True, slots=True)
class RatioRow:
    """From which load on output costs at most so many times what input does."""

    workload: str
    """The kind of request."""
    basis: str
    """bound or expected."""
    ratio: float
    """As asked. [-]"""
    batch: int | None
    """From so many at once on, up to the largest that fit; null where the largest does not come down to it."""
    reached: float | None
    """The ratio at that load; where none comes down to it, at the largest that fits; null where none fits. [-]"""
    largest: int
    """The largest load that fits."""


@dataclass(frozen=True, slots=True)
class RateRow:
    """What a request costs where so many come a second."""

    workload: str
    """Its name."""
    requests_per_second: float
    """As asked. [1/s]"""
    batch: int | None
    """Requests at once that make that many a second, queues left out; null where no load that fits does."""
    reachable: bool
    """Whether the deployment does that many."""
    capacity_requests_per_second: float
    """What it does with as many at once as fit (4,096 at most). [1/s]"""
    largest: int
    """As many as fit."""
    request_dollars: float | None
    """Of a request: the hour over its requests; null without a price, or where it is not reachable. [USD]"""
    blended_dollars: float | None
    """Of a million tokens, input and output; null likewise. [USD/Mtoken]"""


@dataclass(frozen=True, slots=True)
class Held:
    """What it costs to keep tokens in the cache, beside what APIs take for storage."""

    bytes_per_token: float
    """On all GPUs, at `context`, window and state included. [B/token]"""
    tokens: int
    """That fit beside the weights. [token]"""
    context: int
    """Of the sequences that they are of. [token]"""
    dollars: float | None
    """Of a million tokens for an hour: the deployment's cost / tokens that fit; null without a price. [USD/(Mtoken h)]"""


@dataclass(frozen=True, slots=True)
class ApiRow:
    """Prices of an API's model in one tier, as one source had them."""

    vendor: str
    """Who sells it."""
    model: str
    """Its id."""
    name: str
    """As the source writes it."""
    above_tokens: int | None
    """For prompts with more tokens than this (decimal: 200k is 200,000); null without."""
    up_to_tokens: int | None
    """For prompts with at most so many; null without."""
    hours: str
    """any, peak or off-peak."""
    input_dollars: float
    """[USD/Mtoken]"""
    cached_input_dollars: float | None
    """[USD/Mtoken]; null where none is listed."""
    output_dollars: float
    """[USD/Mtoken]"""
    cache_write_dollars: dict[str, float]
    """By lifetime; empty where writing costs as input does. [USD/Mtoken]"""
    storage_dollars: float | None
    """Of a cached prefix. [USD/(Mtoken h)]; null where none is listed."""
    output_over_input: float | None
    """[-]"""
    cached_over_input: float | None
    """[-]"""
    cache_write_over_input: dict[str, float]
    """By lifetime. [-]"""
    break_even_hits: dict[str, float]
    """Hits after one write, by lifetime, from which on a cached prefix costs less than none; empty where writing costs as
    input does. [-]"""
    break_even_requests_per_hour: float | None
    """Requests an hour from which on a kept prefix pays for its storage; null without storage. [1/h]"""
    least_prefix_tokens: int | None
    """Of a prefix that is cached; null where it is not known. [token]"""
    from_date: str | None
    """First day; null where not stated."""
    to_date: str | None
    """Day from which on it is not in force; null where not stated."""
    as_of: str
    """When the source had it."""
    source: str
    """Its address."""
    second_hand: bool
    """Whether the source only quotes the provider."""
    note: str
    """What else is to be known."""


@dataclass(frozen=True, slots=True)
class ApiTerm:
    """A part of what a request costs."""

    term: str
    """input, cached_input, cache_write, output or storage."""
    tokens: float
    """In the mean of all requests. [token]"""
    dollars_per_million: float
    """[USD/Mtoken]"""
    dollars: float
    """[USD]"""


@dataclass(frozen=True, slots=True)
class ApiCost:
    """What a workload costs at an API, and the load from which on the own deployment is cheaper."""

    workload: str
    """Its name."""
    vendor: str
    """Who sells it."""
    model: str
    """Its id."""
    request_dollars: float
    """Of a mean request, by the provider's rules. [USD]"""
    terms: list[ApiTerm]
    """Its parts."""
    notes: list[str]
    """How the rules applied: tiers, prefixes that are too short, ..."""
    own_request_dollars: float | None
    """Of the own deployment at the largest load asked that fits; null without. [USD]"""
    own_over_api: float | None
    """[-]; null likewise."""
    break_even_requests_per_second: float | None
    """Load at which the deployment's hour costs what the API takes; null without a price. [1/s]"""
    break_even_tokens_per_day: float | None
    """The same, input and output. [token/day]"""
    break_even_batch: int | None
    """Requests at once that make that many a second; null where it does not do that many."""
    reachable: bool | None
    """Whether the deployment does that many at any load that fits; null without a price."""
    break_even_dollars_per_gpu_hour: float | None
    """Price of a GPU at which both cost the same at the largest load asked; null without a deployment. [USD/h]"""


@dataclass(frozen=True, slots=True)
class Day:
    """A day's tokens at an API's prices, beside what the machines cost."""

    vendor: str
    """Whose prices."""
    model: str
    """Its id."""
    hours: str
    """At which all tokens are priced: any, peak or off-peak."""
    up_to_tokens: int | None
    """All prompts are taken as of its lowest tier, at most so many tokens; null without tiers."""
    input_tokens: float
    """Of the day, cached ones included. [token]"""
    cached_share: float
    """Of them those that a cache holds. [-]"""
    output_tokens: float
    """[token]"""
    input_dollars: float
    """Of those that no cache holds. [USD]"""
    cached_input_dollars: float
    """[USD]"""
    output_dollars: float
    """[USD]"""
    income_dollars: float
    """All three. [USD]"""
    gpus: int | None
    """Machines' GPUs; null where not given."""
    cost_dollars: float | None
    """Of the GPUs over 24 hours; null without a price. [USD]"""
    margin: float | None
    """(income - cost) / cost. [-]"""


@dataclass(frozen=True, slots=True)
class PriceResult:
    """The result of `price`."""

    model: str | None
    """Name as asked for; null where API prices alone are."""
    gpu: str | None
    """Id of the accelerator."""
    layout: Layout | None
    """How the devices share the model."""
    weights: Weights | None
    """How they are stored and multiplied."""
    hourly: Hourly | None
    """What the deployment costs; null without a price of the GPU."""
    loads: list[LoadRow]
    """A row a kind of request and load."""
    workloads: list[WorkloadRow]
    """A row a workload and load."""
    lengths: list[LengthRow]
    """A row a context."""
    ratios: list[RatioRow]
    """Which load makes the ratio that was asked for."""
    rates: list[RateRow]
    """What a request costs at the rate that was asked for."""
    held: Held | None
    """What keeping tokens costs."""
    apis: list[ApiRow]
    """A row an API's model and tier."""
    api_costs: list[ApiCost]
    """A row a workload and an API's model."""
    days: list[Day]
    """A row an API's model, where a day's tokens are given."""
    provenance: dict[str, str]
    """Where each number is from."""
