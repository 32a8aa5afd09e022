"""What is sent to a deployment of a plan, at any share of its load and with any chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.serving.arrivals import Arrivals
from roofcast.calculators.serving.loads import (
    MOST_REQUESTS,
    OPEN_REQUESTS,
    Sending,
    default_requests,
    enough,
    synthetic,
    traced,
)

if TYPE_CHECKING:
    from roofcast.calculators.serving.job import Job, Load
    from roofcast.calculators.serving.lengths import Apart, Pairs
    from roofcast.calculators.serving.loads import SharedPrefix
    from roofcast.calculators.serving.service import Service

LEAST_OF_ONE: Final = 600  # of one replica of several
FEWEST: Final = 100  # of a schedule
BEYOND: Final = 1.2  # of a schedule, in which requests come [-]
FULL: Final = 1.25  # of the requests that run at once, that are there in a backlog [-]
MOST_AT_ONCE: Final = 2048  # requests that are there in a backlog, of each replica
ROUNDS: Final = 3  # requests of a backlog for each that is there at once


class Sends(Protocol):
    """What is sent."""

    @property
    def clients(self) -> int | None:
        """That wait for their answers; None of an open loop."""

    @property
    def rate(self) -> float | None:
        """Requests a second in the mean; None of a closed loop. [1/s]"""

    @property
    def variance(self) -> float:
        """Of requests that come in a time, over their mean: 1 of Poisson arrivals; 0 where it is not known. [-]"""

    def at(self, factor: float, seed: int, requests: int | None = None) -> Load:
        """The load, times a factor, with a chance of its own."""

    def requests(self, factor: float, output: float) -> int | None:
        """Requests that tell enough; None of all that a trace has."""

    def one_of(self, replicas: int) -> Sends | None:
        """What comes to one of so many replicas that take turns; None where that is no load of the same kind."""


@dataclass(frozen=True, slots=True)
class Rated:
    """Requests at a rate, whoever waits.

    Args:
        lengths: of prompts and outputs.
        arrivals: when they come.
        shared: what prompts share.
        asked: how many are asked to be simulated.
        fewest: that are simulated where none are asked for.
    """

    lengths: Apart | Pairs
    arrivals: Arrivals
    shared: SharedPrefix | None = None
    asked: int | None = None
    fewest: int = OPEN_REQUESTS

    @property
    def clients(self) -> int | None:
        """Nobody waits."""
        return None

    @property
    def rate(self) -> float | None:
        """Of one rate that; of a schedule its mean until a fifth of its time after its last step. [1/s]

        >>> from roofcast.calculators.serving.arrivals import parse_rate
        >>> Rated(None, parse_rate("2@0s,8@60s,2@120s")).rate
        4.5
        """
        stretches = self.arrivals.stretches
        end = stretches[-1].start
        if not end:
            return stretches[0].rate
        before = sum(one.rate * (other.start - one.start) for one, other in pairwise(stretches))
        return (before + stretches[-1].rate * end * (BEYOND - 1)) / (end * BEYOND)

    @property
    def variance(self) -> float:
        """Of gamma gaps 1 / shape: their coefficient of variation squared, as renewal processes have it. [-]"""
        return 1.0 / self.arrivals.shape

    def at(self, factor: float, seed: int, requests: int | None = None) -> Load:
        """Every rate times the factor; the lengths are the same at each."""
        stretches = tuple(replace(one, rate=one.rate * factor) for one in self.arrivals.stretches)
        arrivals = Arrivals(stretches, self.arrivals.shape)
        return synthetic(self.lengths, Sending(arrivals, None, requests or self.asked, seed), self.shared)

    def one_of(self, replicas: int) -> Sends | None:
        """Gaps of one are sums of as many gaps: of gamma ones with that many times the shape, at that part of the rate.

        So that the times of requests are those of all replicas together, exactly, where these share nothing.
        """
        stretches = tuple(replace(one, rate=one.rate / replicas) for one in self.arrivals.stretches)
        asked = None if self.asked is None else max(1, self.asked // replicas)
        arrivals = Arrivals(stretches, self.arrivals.shape * replicas)
        return replace(self, arrivals=arrivals, asked=asked, fewest=LEAST_OF_ONE)

    def requests(self, factor: float, output: float) -> int:
        """As `simulate` has them; of a schedule those that come until a fifth of its time after its last step."""
        if self.asked is not None:
            return self.asked
        rate, end = factor * (self.rate or 0.0), self.arrivals.stretches[-1].start
        if end:
            return min(MOST_REQUESTS, max(FEWEST, round(rate * end * BEYOND)))
        return enough(rate, output, self.fewest)


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients that each send a request as soon as their last one is answered.

    Args:
        lengths: of prompts and outputs.
        count: of them.
        shared: what prompts share.
        asked: requests that are asked to be simulated.
    """

    lengths: Apart | Pairs
    count: int
    shared: SharedPrefix | None = None
    asked: int | None = None

    @property
    def clients(self) -> int | None:
        """How many."""
        return self.count

    @property
    def rate(self) -> float | None:
        """As fast as they are answered."""
        return None

    @property
    def variance(self) -> float:
        """It is not known."""
        return 0.0

    def at(self, factor: float, seed: int, requests: int | None = None) -> Load:
        """So many times as many clients, one at least."""
        sending = Sending(None, self._clients(factor), requests or self.asked, seed)
        return synthetic(self.lengths, sending, self.shared)

    def one_of(self, replicas: int) -> Sends | None:  # noqa: ARG002 - as of others
        """Clients do not stay with a replica."""
        return None

    def requests(self, factor: float, output: float) -> int:  # noqa: ARG002 - as of others
        """As `simulate` has them, 20,000 at most."""
        clients = self._clients(factor)
        return self.asked or max(clients, min(MOST_REQUESTS, default_requests(clients)))

    def _clients(self, factor: float) -> int:
        return max(1, round(self.count * factor))


@dataclass(frozen=True, slots=True)
class Recorded:
    """Requests of a trace, at their own times.

    Args:
        name: of the trace.
        jobs: its requests.
        hash_tokens: of one id of its hashes; None where it has none. [token]
        scale: times as fast.
    """

    name: str
    jobs: tuple[Job, ...]
    hash_tokens: int | None
    scale: float = 1.0

    @property
    def clients(self) -> int | None:
        """Nobody waits."""
        return None

    @property
    def rate(self) -> float | None:
        """Requests over the time in which they come. [1/s]"""
        span = (self.jobs[-1].arrival - self.jobs[0].arrival) / self.scale
        return (len(self.jobs) - 1) / span if span else None

    @property
    def variance(self) -> float:
        """It is not known."""
        return 0.0

    def at(self, factor: float, seed: int, requests: int | None = None) -> Load:
        """The same requests, so many times as fast."""
        sending = Sending(None, None, requests, seed)
        return traced(self.name, lambda: iter(self.jobs), sending, self.hash_tokens, self.scale * factor)

    def one_of(self, replicas: int) -> Sends | None:  # noqa: ARG002 - as of others
        """A trace is what it is."""
        return None

    def requests(self, factor: float, output: float) -> None:
        """All."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """What is sent, so many times of it.

    Args:
        sends: what.
        factor: how many times. [-]
    """

    sends: Sends
    factor: float

    @property
    def clients(self) -> int | None:
        """So many times as many."""
        clients = self.sends.clients
        return None if clients is None else max(1, round(clients * self.factor))

    @property
    def rate(self) -> float | None:
        """So many times as fast. [1/s]"""
        rate = self.sends.rate
        return None if rate is None else rate * self.factor

    @property
    def variance(self) -> float:
        """As of what is sent."""
        return self.sends.variance

    def at(self, factor: float, seed: int, requests: int | None = None) -> Load:
        """Both factors."""
        return self.sends.at(self.factor * factor, seed, requests)

    def one_of(self, replicas: int) -> Sends | None:
        """As of what is sent."""
        one = self.sends.one_of(replicas)
        return None if one is None else Scaled(one, self.factor)

    def requests(self, factor: float, output: float) -> int | None:
        """Both factors."""
        return self.sends.requests(self.factor * factor, output)


@dataclass(frozen=True, slots=True)
class Backlog:
    """A job: requests that are all there from the first, and a rate at which they must be done.

    Args:
        lengths: of prompts and outputs.
        needed: requests a second. [1/s]
        shared: what prompts share.
        asked: requests that are asked to be simulated.
        there: of them at once, as many as the machine is full with.
    """

    lengths: Apart | Pairs
    needed: float
    shared: SharedPrefix | None = None
    asked: int | None = None
    there: int = 64

    @property
    def clients(self) -> int | None:
        """Nobody waits for answers of its own."""
        return None

    @property
    def rate(self) -> float | None:
        """At which they must be done. [1/s]"""
        return self.needed

    @property
    def variance(self) -> float:
        """Nothing comes by chance."""
        return 0.0

    def on(self, service: Service, context: float) -> Backlog:
        """A backlog that keeps a service full: a quarter more than run at once by memory and scheduler, of each replica."""
        pool = service.pool
        fit = pool.blocks * pool.block / max(1.0, context) if pool.per else pool.blocks
        each = min(MOST_AT_ONCE, service.scheduling.sequences, max(1, int(fit)))
        replicas = service.options.writers or service.replicas
        return replace(self, there=max(1, ceil(FULL * each * replicas)))

    def at(self, factor: float, seed: int, requests: int | None = None) -> Load:  # noqa: ARG002 - a backlog is one
        """Requests behind one another, so that the machine is never idle."""
        return synthetic(self.lengths, Sending(None, self.there, requests or self.asked, seed), self.shared)

    def one_of(self, replicas: int) -> Backlog:
        """Each replica has its part of the job."""
        return replace(self, needed=self.needed / replicas)

    def requests(self, factor: float, output: float) -> int:  # noqa: ARG002 - as of others
        """Three for each that is there at once."""
        return self.asked or max(LEAST_OF_ONE, ROUNDS * self.there)
