"""Simulations of a deployment with so many replicas: whether it keeps what is promised, and which limit it hits first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import TYPE_CHECKING, Final

from roofcast.calculators.planning.demand import Trial
from roofcast.calculators.planning.floor import in_ms
from roofcast.calculators.serving.ranks import quantile
from roofcast.calculators.serving.simulate import SHARES, result_of, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.serving.result import Goal, SimulateResult
    from roofcast.calculators.serving.service import Service
    from roofcast.calculators.serving.simulate import Ran

LONGER: Final = 4  # times the requests of a trial whose queue seems to grow
MIDDLE: Final = (0.25, 0.75)  # of a run of a job, between which its rate is taken [-]
PAIR: Final = 2  # replicas up to which all are simulated
WHOLE: Final = 64  # replicas up to which all are simulated in the last of several trials
SURE: Final = 4.0  # standard deviations of chance [-]
LEAST_GAP: Final = 0.01  # of a share, and so much at least [-]


@dataclass(frozen=True, slots=True, order=True)
class Count:
    """How many of a machine there are.

    Args:
        units: of the least that works by itself; 0 of pools.
        readers, writers: replicas of pools; 0 where each does both.
    """

    units: int = 0
    readers: int = 0
    writers: int = 0

    @property
    def total(self) -> int:
        """Units of all kinds."""
        return self.units + self.readers + self.writers


ONE: Final = Count(1)


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a trial.

    Args:
        trial: which load, and which chance.
        keeps: whether what is promised is kept.
        limit: the first limit that is hit; empty where it is kept.
        reason: the same in a sentence.
        ttft, tpot, itl, e2e: at the percentile; None where there is no such time. [s]
        share: of requests that keep TTFT and TPOT. [-]
        tokens, requests: a second that are made and answered. [1/s]
        cache: most that was taken. [-]
        busy: share of the time with steps by pool: of readers, and of writers where there are any. [-]
        able: requests of a job a second that could be done; None of what is no job. [1/s]
    """

    trial: Trial
    keeps: bool
    limit: str
    reason: str
    ttft: float | None
    tpot: float | None
    itl: float | None
    e2e: float | None
    share: float | None
    tokens: float | None
    requests: float | None
    cache: float | None
    busy: tuple[float, ...]
    able: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What trials say of a number of replicas.

    Args:
        count: how many.
        meets: True where all trials keep what is promised, False where none does, None where that is too close to say.
        tried: the trials.
    """

    count: Count
    meets: bool | None
    tried: tuple[Tried, ...]

    @property
    def shown(self) -> Tried:
        """The trial of the load that is asked; of several the worst by its share."""
        whole = [one for one in self.tried if one.trial.few is None or one.trial.longer] or list(self.tried)
        plain = [one for one in whole if one.trial.factor == 1.0] or whole
        failing = [one for one in plain if one.keeps is False]
        return min(failing or plain, key=lambda one: inf if one.share is None else one.share)

    @property
    def failing(self) -> Tried | None:
        """The trial that is shown, or else the first that does not keep what is promised; None where all do."""
        shown = self.shown
        return shown if not shown.keeps else next((one for one in self.tried if not one.keeps), None)


def part_of(service: Service, demand: Demand, count: Count) -> tuple[Service, Demand]:
    """So many replicas and what comes to them; of more than two that share nothing one, and what comes to that.

    The times of requests are spread alike, at a part of the work.
    """
    if count.units > PAIR or (count.units and demand.needed is not None):
        one = demand.one_of(count.units)
        if one is not None:
            return service, one
    return counted(service, count), demand


def counted(service: Service, count: Count) -> Service:
    """A service of so many replicas; times of steps that are known stay known."""
    if count.units:
        return replace(service, copies=count.units)
    return replace(service, options=replace(service.options, readers=count.readers, writers=count.writers))


def tried(service: Service, demand: Demand, trial: Trial, count: Count = ONE) -> Tried:
    """One simulation: percentiles, and the first limit that is hit.

    Args:
        service: of all replicas, or of one of them.
        demand: what comes to it.
        trial: which load, and which chance.
        count: replicas that there are in all; rates are theirs together.
    """
    demand = demand.on(service)
    ran = run(service, demand.load(trial))
    result = result_of(ran, demand.goal)
    limit, reason = first_limit(ran, result, demand.goal)
    longer = _longer(demand, trial, result) if limit == "rate" else None
    if longer is not None:
        return tried(service, demand, longer, count)
    if limit and trial.few is not None:
        reason = f"{reason} (of {result.requests:,} requests)"
    part, tally = demand.goal.percentile / 100, ran.tally
    many = count.units / service.copies if count.units else 1
    if demand.needed is not None:
        part_tpot = _at((value for value in tally.tpot if value >= 0), part)
        return replace(_of_job(result, demand, trial, (limit, reason), many), tpot=part_tpot)
    return Tried(
        trial=trial,
        keeps=not limit,
        limit=limit,
        reason=reason,
        ttft=_at(tally.ttft, part),
        tpot=_at((value for value in tally.tpot if value >= 0), part),
        itl=tally.gaps.quantile(part) if tally.gaps.count else None,
        e2e=_at(tally.e2e, part),
        share=result.kept.share if result.kept else None,
        tokens=None if result.output_tokens_per_second is None else many * result.output_tokens_per_second,
        requests=None if result.requests_per_second is None else many * result.requests_per_second,
        cache=result.cache.peak if result.cache else None,
        busy=tuple(pool.busy for pool in result.pools),
    )


def _longer(demand: Demand, trial: Trial, result: SimulateResult) -> Trial | None:
    """A longer trial, where a queue seems to grow while requests keep what is promised: bursts do that, too.

    Of those that keep it enough do, and with four times the requests the queue would be as many times as long.
    """
    asked = demand.sends.requests(trial.factor, demand.shape.output)
    if trial.longer or asked is None or demand.sends.clients is not None or demand.needed is not None:
        return None
    if result.kept is not None and result.kept.share < demand.goal.percentile / 100:
        return None
    return replace(trial, few=LONGER * (trial.few or asked), longer=True)


def _of_job(result: SimulateResult, demand: Demand, trial: Trial, found: tuple[str, str], many: float) -> Tried:
    """A trial of a backlog: whether requests are done as fast as the job needs, in the middle of the run.

    Rate = output tokens a second between a quarter and three quarters of the time / output tokens of a request; at both ends
    the machine fills and empties, which is no part of a long job. [1/s]
    """
    makespan = result.makespan_seconds or 0.0
    middle = [one for one in result.series if MIDDLE[0] <= one.seconds / makespan <= MIDDLE[1]] if makespan else []
    span = sum(one.length_seconds for one in middle)
    made = sum(one.length_seconds * one.output_tokens_per_second for one in middle)
    tokens = made / span if span else 0.0
    done, needed = tokens / demand.shape.output, (demand.needed or 0.0) * trial.factor
    limit, reason = found
    asked = min(done, demand.needed or 0.0)
    if not limit and done < needed:
        limit, reason = "rate", f"{many * done:.4g} requests/s are done, the job needs {many * needed:.4g}"
    return Tried(
        trial=trial,
        keeps=not limit,
        limit=limit,
        reason=reason,
        ttft=None,
        tpot=None,
        itl=None,
        e2e=None,
        share=None,
        tokens=many * asked * demand.shape.output,
        requests=many * asked,
        able=many * done,
        cache=result.cache.peak if result.cache else None,
        busy=tuple(pool.busy for pool in result.pools),
    )


def first_limit(ran: Ran, result: SimulateResult, goal: Goal) -> tuple[str, str]:
    """Which limit a run hits first as the load rises, and the same in a sentence; empty where all is kept.

    Requests that are too long count first: no load mends them. Then times between tokens: they grow with the requests in
    a step, before these wait. Then a queue that keeps on growing, and at last the time to the first token.
    """
    part, came = goal.percentile / 100 if goal.given else 1.0, result.requests
    lost = result.rejected + result.cut
    if lost > came * (1 - part) + came * SHARES:
        return "context", f"{lost:,} of {came:,} requests are longer than it takes, {result.longest_request:,} tokens"
    for limit, value, most in _times(ran, goal, part):
        if value > most:
            return limit, f"{limit.upper()} of {in_ms(value)} at {goal.percentile:g} of 100, {in_ms(most)} are promised"
    if not result.stable and ran.load.concurrency is None:
        return "rate", "requests come faster than they are answered"
    ttft = _at(ran.tally.ttft, part)
    if goal.ttft_seconds is not None and (ttft is None or ttft > goal.ttft_seconds):
        found = "no request is answered" if ttft is None else f"TTFT of {in_ms(ttft)} at {goal.percentile:g} of 100"
        return "ttft", f"{found}, {in_ms(goal.ttft_seconds)} are promised"
    if result.kept is not None and not result.kept.met:
        return _worse(ran, goal), f"{result.kept.share:.1%} of requests keep all limits, {goal.percentile:g}% must"
    return "", ""


def _times(ran: Ran, goal: Goal, part: float) -> Iterable[tuple[str, float, float]]:
    """Limits of times between tokens: their name, what there is, and what is promised. [s]"""
    tpot = _at((value for value in ran.tally.tpot if value >= 0), part)
    if goal.tpot_seconds is not None and tpot is not None:
        yield "tpot", tpot, goal.tpot_seconds
    if goal.itl_seconds is not None and ran.tally.gaps.count:
        yield "itl", ran.tally.gaps.quantile(part), goal.itl_seconds


def _worse(ran: Ran, goal: Goal) -> str:
    """Of TTFT and TPOT the one that fewer requests keep, where each is kept by enough and both together are not."""
    ttft = sum(1 for value in ran.tally.ttft if value > (goal.ttft_seconds or inf))
    tpot = sum(1 for value in ran.tally.tpot if value > (goal.tpot_seconds or inf))
    return "ttft" if ttft >= tpot else "tpot"


def judged(
    service: Service, demand: Demand, count: Count, trials: Sequence[Trial] | None = None, *, doubtful: bool = True
) -> Verdict:
    """Trials of so many replicas: all keep what is promised, none does, or some.

    Args:
        service: of one unit.
        demand: what comes.
        count: how many.
        trials: the workload's own where none are given.
        doubtful: whether it is likely not kept, so that few requests are looked at first.
    """
    part, whole = part_of(service, demand, count), (counted(service, count), demand)
    done: list[Tried] = []
    every = demand.trials if trials is None else trials
    for number, trial in enumerate(every):
        failed = doubtful if number == 0 else not done[-1].keeps
        # the last of several is of all replicas, as they are; those of a job never wait for one another
        last = number == len(every) - 1 and number > 0 and demand.needed is None and count.total <= WHOLE
        found = hopeless_at(part, trial, count) if failed else None
        if found is None:
            found = tried(*(whole if last else part), trial, count)
        done.append(found)
        if len({one.keeps for one in done}) > 1:
            return Verdict(count, None, tuple(done))
    return Verdict(count, done[0].keeps, tuple(done))


def hopeless_at(part: tuple[Service, Demand], trial: Trial, count: Count) -> Tried | None:
    """A third of a trial's requests, where these are hopeless already; None where the rest must be seen.

    Hopeless: the share that keeps the promise is four standard deviations of chance below what it must be, sigma^2 =
    p (1 - p) / n; the first third has a lighter load than the rest, as the service fills only then.
    """
    service, demand = part
    few, promised = demand.few(trial), demand.goal.percentile / 100
    if few is None or not demand.goal.given:
        return None
    first = tried(service, demand, Trial(trial.factor, trial.seed, few), count)
    gap = SURE * sqrt(promised * (1 - promised) / few) + LEAST_GAP
    return first if first.share is not None and first.share < promised - gap else None


def screened(service: Service, demand: Demand, count: Count, *, doubtful: bool = True) -> Verdict:
    """The first trial alone, with 3 % more load; of a third of its requests where these are hopeless already."""
    return judged(service, demand, count, demand.trials[:1], doubtful=doubtful)


def _at(values: Iterable[float], part: float) -> float | None:
    """The least time that is enough for that share of requests; None of none. [s]"""
    every: Sequence[float] = sorted(values)
    return quantile(every, part) if every else None
