"""A workload as `plan` has it: what is sent, at any share of its load and with any chance, and what is promised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from math import ceil, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.planning.sends import (
    LEAST_OF_ONE,
    Backlog,
    Clients,
    Rated,
    Recorded,
    Scaled,
)
from roofcast.calculators.serving.lengths import Apart, Fixed
from roofcast.calculators.serving.loads import MOST_REQUESTS
from roofcast.calculators.serving.ranks import quantile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.planning.sends import Sends
    from roofcast.calculators.serving.job import Job, Load
    from roofcast.calculators.serving.result import Goal
    from roofcast.calculators.serving.service import Service

MARGIN: Final = 1.03  # of the load, at which one of the trials is
TRIALS: Final = 3
COMMON: Final = 95.0  # percentile up to which fewer requests tell enough
ENOUGH: Final = 0.6  # of the requests [-]
PART: Final = 3  # of the requests, that are looked at first
FEWEST: Final = 100  # requests that tell anything
SUREST: Final = 99.9  # percentile beyond which spread is not reckoned


@dataclass(frozen=True, slots=True)
class Shape:
    """A workload's requests in numbers.

    Args:
        prompt, output: in the mean. [token]
        new: of a prompt that none has before it, at least, in the mean. [token]
        new_at: such tokens of the prompt at the percentile that is promised. [token]
        context: tokens that a decoded one attends to, in the mean over all that are decoded. [token]
        longest: prompt and output of the longest. [token]
        prompt_at: all tokens of the prompt at that percentile. [token]
    """

    prompt: float
    output: float
    new: float
    new_at: int
    context: float
    longest: int
    prompt_at: int = 0

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
        few: requests, where they are fewer than tell enough, or more; None else.
        longer: whether it was made once before, with fewer requests.
    """

    factor: float
    seed: int
    few: int | None = None
    longer: bool = False


@dataclass(frozen=True, slots=True)
class Demand:
    """A workload.

    Args:
        name: by which it is called.
        says: what is sent, in words.
        sends: what is sent.
        goal: what is promised.
        shape: its requests in numbers.
        seed: of its trials' chance, and of those beside.
        job: time in which a job must be done; None where requests come for ever. [s]
    """

    name: str
    says: str
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
        if isinstance(self.sends, Backlog):  # and little in that
            return Trial(MARGIN, self.seed), Trial(1.0, self.seed + 1)
        first = Trial(MARGIN, self.seed)
        count = self._count(first)
        if count is not None and self.sends.clients is None and self.goal.percentile <= COMMON:
            first = replace(first, few=max(min(count, LEAST_OF_ONE), round(ENOUGH * count)))
        return first, *(Trial(1.0, self.seed + i) for i in range(1, TRIALS))

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
            raise UsageError(
                "--find context: prompts of a trace are its own; give --rate or --concurrency, and --output"
            )
        apart = replace(
            sends.lengths, prompt=Fixed(tokens), text=f"{tokens:,} in, {sends.lengths.output.mean:,.0f} out"
        )
        changed = replace(sends, lengths=apart)
        return replace(self, sends=changed, shape=shape_of(changed.at(1.0, self.seed), self.goal.percentile))

    def on(self, service: Service) -> Demand:
        """The same, as it is sent to a service: a backlog keeps it full."""
        if not isinstance(self.sends, Backlog):
            return self
        return replace(self, sends=self.sends.on(service, self.shape.context))

    @property
    def needed(self) -> float | None:
        """Requests a second that a job must be done at; None of what is no job. [1/s]"""
        return self.sends.needed if isinstance(self.sends, Backlog) else None

    def one_of(self, replicas: int) -> Demand | None:
        """What comes to one of so many replicas; None where that is no load of the same kind."""
        one = self.sends.one_of(replicas)
        return None if one is None else replace(self, sends=one)

    def few(self, trial: Trial) -> int | None:
        """A third of a trial's requests, where these come at a rate of their own."""
        count = self._count(trial)
        if isinstance(self.sends, Backlog):
            return None
        return None if count is None or self.sends.clients is not None or count < PART * FEWEST else count // PART

    def _count(self, trial: Trial) -> int | None:
        return self.sends.requests(trial.factor, self.shape.output)

    def times(self, factor: float) -> Demand:
        """The same workload with so many times its load."""
        if isinstance(self.sends, Backlog):
            return replace(self, sends=replace(self.sends, needed=self.sends.needed * factor))
        return replace(self, sends=Scaled(self.sends, factor))


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
    Shape(prompt=200.0, output=21.0, new=200.0, new_at=300, context=263.0, longest=331, prompt_at=300)
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
        prompt_at=ceil(quantile(sorted(job.prompt for job in jobs), percentile / 100)),
    )


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)
