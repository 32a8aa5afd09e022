"""A workload as `plan` has it: what is sent, at any share of its load and with any chance, and what is promised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from math import ceil, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.arrivals import Arrivals
from roofcast.calculators.serving.lengths import Apart, Fixed
from roofcast.calculators.serving.loads import Sending, default_requests, synthetic, traced
from roofcast.calculators.serving.ranks import quantile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.serving.job import Job, Load
    from roofcast.calculators.serving.lengths import Pairs
    from roofcast.calculators.serving.loads import SharedPrefix
    from roofcast.calculators.serving.result import Goal

LEAST_REQUESTS: Final = 1000  # of an open loop
LEAST_OF_ONE: Final = 600  # of one replica of several
MOST_REQUESTS: Final = 20_000  # that are simulated where none are asked for
LIVES: Final = 10  # times that a request is in the service, in which requests come
USUAL_STEP: Final = 0.03  # of a token, for how long a request is in the service [s]
MARGIN: Final = 1.03  # of the load, at which one of the trials is
TRIALS: Final = 3
COMMON: Final = 95.0  # percentile up to which fewer requests tell enough
ENOUGH: Final = 0.6  # of the requests [-]
PART: Final = 3  # of the requests, that are looked at first
FEWEST: Final = 100  # requests that tell anything
SUREST: Final = 99.9  # percentile beyond which spread is not reckoned


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
    fewest: int = LEAST_REQUESTS

    @property
    def clients(self) -> int | None:
        """Nobody waits."""
        return None

    @property
    def rate(self) -> float | None:
        """Of one rate that; of a schedule its mean up to its last step, and that of the last where it is the only one. [1/s]

        >>> from roofcast.calculators.serving.arrivals import parse_rate
        >>> Rated(None, parse_rate("2@0s,8@60s,2@120s")).rate
        5.0
        """
        stretches = self.arrivals.stretches
        end = stretches[-1].start
        if not end:
            return stretches[0].rate
        spans = zip(stretches, stretches[1:], strict=False)
        return sum(one.rate * (other.start - one.start) for one, other in spans) / end

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
        """1,000, or as many as come in ten times what a request takes at 30 ms a token, or until a schedule's end; 20,000
        at most.
        """
        if self.asked is not None:
            return self.asked
        rate, end = self.rate or 0.0, self.arrivals.stretches[-1].start
        needed = factor * rate * max(end * 1.2, LIVES * output * USUAL_STEP)
        return round(min(MOST_REQUESTS, max(self.fewest, needed)))


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

    def requests(self, factor: float, output: float) -> None:  # noqa: ARG002 - as of others
        """All."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload's requests in numbers.

    Args:
        prompt, output: in the mean. [token]
        new: of a prompt that none has before it, at least, in the mean. [token]
        new_at: such tokens of the prompt at the percentile that is promised. [token]
        context: tokens that a decoded one attends to, in the mean over all that are decoded. [token]
        longest: prompt and output of the longest. [token]
    """

    prompt: float
    output: float
    new: float
    new_at: int
    context: float
    longest: int

    @property
    def steps(self) -> float:
        """Steps of decode that a request takes in the mean: all its tokens but the first, which its prompt gives."""
        return self.output - 1.0


@dataclass(frozen=True, slots=True)
class Trial:
    """A simulation.

    Args:
        factor: of the load. [-]
        seed: of its chance.
        few: requests, where they are fewer than tell enough; None else.
    """

    factor: float
    seed: int
    few: int | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """A workload.

    Args:
        name: as to be shown.
        sends: what is sent.
        goal: what is promised.
        shape: its requests in numbers.
        seed: of its trials' chance, and of those beside.
        job: time in which a job must be done; None where requests come for ever. [s]
    """

    name: str
    sends: Sends
    goal: Goal
    shape: Shape
    seed: int = 0
    job: float | None = None

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Loads that must all keep what is promised: one of 3 % more than is asked, two of other chance.

        Up to a percentile of 95 six tenths of the requests are enough for the first of them.
        """
        if isinstance(self.sends, Recorded):  # there is no chance in it
            return Trial(MARGIN, 0), Trial(1.0, 0)
        first = Trial(MARGIN, self.seed)
        count = self._count(first)
        if count is not None and self.sends.clients is None and self.goal.percentile <= COMMON:
            first = replace(first, few=max(min(count, LEAST_OF_ONE), round(ENOUGH * count)))
        return first, *(Trial(1.0, self.seed + i) for i in range(1, TRIALS))

    @property
    def random(self) -> bool:
        """Whether requests come by chance: of Poisson arrivals, or burstier ones."""
        return self.sends.variance >= 1.0

    @property
    def spread(self) -> float:
        """Standard deviations of what comes at the percentile that is promised: z sqrt(v); 0 below the median."""
        part = min(self.goal.percentile, SUREST) / 100
        return max(0.0, NormalDist().inv_cdf(part)) * sqrt(self.sends.variance) if part < 1 else 0.0

    def load(self, trial: Trial) -> Load:
        """What a trial sends."""
        return self.sends.at(trial.factor, trial.seed, trial.few or self._count(trial))

    def with_prompt(self, tokens: int) -> Demand:
        """The same workload with prompts of so many tokens each.

        Raises:
            UsageError: of a trace, whose prompts are its own.
        """
        sends = self.sends
        if not isinstance(sends, (Rated, Clients)) or not isinstance(sends.lengths, Apart):
            raise UsageError("--find context: prompts of a trace are its own; give --rate or --concurrency, and --output")
        apart = replace(sends.lengths, prompt=Fixed(tokens), text=f"{tokens:,} in, {sends.lengths.output.mean:,.0f} out")
        changed = replace(sends, lengths=apart)
        return replace(self, sends=changed, shape=shape_of(changed.at(1.0, self.seed), self.goal.percentile))

    def one_of(self, replicas: int) -> Demand | None:
        """What comes to one of so many replicas; None where that is no load of the same kind."""
        one = self.sends.one_of(replicas)
        return None if one is None else replace(self, sends=one)

    def few(self, trial: Trial) -> int | None:
        """A third of a trial's requests, where these come at a rate of their own."""
        count = self._count(trial)
        return None if count is None or self.sends.clients is not None or count < PART * FEWEST else count // PART

    def _count(self, trial: Trial) -> int | None:
        return self.sends.requests(trial.factor, self.shape.output)

    def times(self, factor: float) -> Demand:
        """The same workload with so many times its load."""
        return replace(self, sends=Scaled(self.sends, factor))


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


def shape_of(load: Load, percentile: float) -> Shape:
    """A load's requests in numbers.

    Of a prompt's tokens those that ids cover may be found in a cache. A request with prompt P and output N decodes N - 1
    tokens that attend to P + 1 ... P + N - 1 before them, P + N / 2 in the mean.

    Args:
        load: of which.
        percentile: of the promise.

    Raises:
        UsageError: there is no request in it.

    >>> from roofcast.calculators.serving.job import Job, Load
    >>> shape_of(Load("", lambda: iter([Job(0, 100, 11), Job(1, 300, 31)])), 99)
    Shape(prompt=200.0, output=21.0, new=200.0, new_at=300, context=262.5, longest=331)
    """
    jobs: list[Job] = list(islice(load.jobs(), MOST_REQUESTS))
    if not jobs:
        raise UsageError(f"{load.name}: there are no requests")
    ids = load.hash_tokens or 0
    news = [max(1, job.prompt - ids * len(job.hashes)) for job in jobs]
    steps = sum(job.output - 1 for job in jobs)
    attended = sum((job.output - 1) * (job.prompt + job.output / 2) for job in jobs)
    return Shape(
        prompt=_mean(job.prompt for job in jobs),
        output=_mean(job.output for job in jobs),
        new=_mean(news),
        new_at=ceil(quantile(sorted(news), percentile / 100)),
        context=attended / steps if steps else _mean(job.prompt for job in jobs),
        longest=max(job.prompt + job.output for job in jobs),
    )


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)
