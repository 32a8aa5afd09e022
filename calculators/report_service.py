"""The section of `report` on a server under load: how long requests take that come by chance, or from clients that wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.serving.arrivals import at_rate
from roofcast.calculators.serving.highest import highest
from roofcast.calculators.serving.lengths import Apart, Fixed
from roofcast.calculators.serving.loads import Sending, synthetic
from roofcast.calculators.serving.result import Goal, SimulateResult, Spread
from roofcast.calculators.serving.simulate import simulate
from roofcast.calculators.serving.stagger import staggered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.report import Limits
    from roofcast.calculators.serving.service import Service
    from roofcast.calculators.workload import Request

PERCENTILE: Final = 90.0  # of requests that must keep limits
REQUESTS: Final = 600  # at a rate: enough for a 90th percentile, in a tenth of a second
EXACT: Final = 0.05  # of the highest rate: so few requests tell it no better [-]
START: Final = 4  # times as many a second as a client alone sends, where the search for the highest rate begins
SHARES: Final = (0.5, 1.0, 1.5)  # of the highest rate, at which times are shown


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """What requests saw under one load."""

    rate: float | None
    """Requests a second that came by chance (Poisson); null of clients. [1/s]"""
    clients: int | None
    """Clients that each sent a request when their last one was answered; null of a rate."""
    requests: int
    """That were sent."""
    requests_per_second: float | None
    """That were answered, over the makespan. [1/s]"""
    output_tokens_per_second: float | None
    """Tokens made, over the makespan. [token/s]"""
    ttft_seconds: Spread | None
    """Time to the first token, waiting included. [s]"""
    tpot_seconds: Spread | None
    """Time per output token after the first, each request's mean; null of outputs of one token. [s]"""
    share: float | None
    """Share of the requests that keep the limits; null without any. [-]"""
    stable: bool
    """Whether the queue did not keep on growing."""


@dataclass(frozen=True, slots=True)
class ServiceResult:
    """A server under load, simulated."""

    prompt: int
    """Tokens of every prompt. [token]"""
    output: int
    """Tokens that every request gets, of clients 3 % more or less. [token]"""
    policy: str
    """How steps are put together."""
    percentile: float
    """Of 100 requests those that must keep the limits."""
    most_requests_per_second: float | None
    """The most that may come so that enough keep the limits; null without limits, or where no rate keeps them. [1/s]"""
    loads: list[ServiceLoad]
    """From light to heavy."""


def service_result(
    service: Service, request: Request, limits: Limits, clients: Sequence[int]
) -> tuple[ServiceResult, SimulateResult]:
    """A server under load, and the answer of `simulate` to what is drawn of it.

    With limits requests come by chance, at the highest rate of which 90 of 100 keep them, half of that, and half as much
    again; without, and where no rate keeps them, from clients in closed loop.

    Args:
        service: that has room.
        request: that is sent again and again.
        limits: what is promised.
        clients: loads in closed loop, from light to heavy.
    """
    goal = Goal(limits.ttft_seconds, limits.tpot_seconds, None, PERCENTILE)
    text = f"{request.prompt} in, {request.output} out"

    def answered(sending: Sending) -> SimulateResult:
        output = Fixed(request.output) if sending.concurrency is None else staggered(request.output)
        return simulate(service, synthetic(Apart(Fixed(request.prompt), output, text), sending), goal)[0]

    tried: dict[float, SimulateResult] = {}

    def at(rate: float) -> SimulateResult:
        if rate not in tried:
            tried[rate] = answered(Sending(at_rate(rate), requests=REQUESTS))
        return tried[rate]

    def keeps(rate: float) -> bool:
        return at(rate).keeps

    alone = answered(Sending(concurrency=1))
    most = None
    if goal.given and alone.keeps and alone.requests_per_second:  # whoever comes is quickest where nobody else is
        most = highest(keeps, alone.requests_per_second * START, EXACT).rate
    found: list[tuple[float | None, int | None, SimulateResult]]
    if most is None:
        found = [(None, one, alone if one == 1 else answered(Sending(concurrency=one))) for one in clients]
        drawn = found[-1][2]
    else:
        found = [(most * share, None, at(most * share)) for share in SHARES]
        drawn = at(most)
    loads = [_load(*one) for one in found]
    return ServiceResult(request.prompt, request.output, drawn.policy, PERCENTILE, most, loads), drawn


def _load(rate: float | None, clients: int | None, result: SimulateResult) -> ServiceLoad:
    return ServiceLoad(
        rate=rate,
        clients=clients,
        requests=result.requests,
        requests_per_second=result.requests_per_second,
        output_tokens_per_second=result.output_tokens_per_second,
        ttft_seconds=result.ttft_seconds,
        tpot_seconds=result.tpot_seconds,
        share=result.kept.share if result.kept else None,
        stable=result.stable,
    )
