"""The closed form: the most that a replica can do, by the times of its steps, and what no number of replicas mends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, inf, log, sqrt
from typing import TYPE_CHECKING, Final

from roofcast.calculators.planning.floor import HALF, in_ms
from roofcast.calculators.serving.simulate import times_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.serving.service import Service
    from roofcast.calculators.serving.steps import StepTimes

EXACT: Final = 1.06  # between numbers of sequences of which one keeps a promise and one does not
MOST_SURE: Final = 99.9  # percentile beyond which no more is asked of the closed form
SLACK: Final = 1.06  # by which simulations may do better than the closed form [-]
COMMON: Final = 75.0  # percentile below which many requests may be slower than the mean
LOOSER: Final = 1.08  # by which more comes then, where prompts vary [-]
PART: Final = 0.6  # of a spread that is counted [-]
NOTHING: Final = 1e-12
MOST_UNITS: Final = 1 << 20  # that take turns


@dataclass(frozen=True, slots=True)
class Weighed:
    """What the closed form says of a unit, the least number of GPUs that works by itself, under a workload.

    Args:
        rate: requests a second at most. [1/s]
        clients: that wait for their answers, at most, where more would break a promise.
        ttft, tpot: at least, however little there is to do. [s]
        limit: why none of any number will do; empty where one may.
        reason: the same in a sentence.
        readers, writers: requests a second of a replica that only reads prompts, and of one that only decodes. [1/s]
        sequences: at once, at that rate, of a replica. [-]
    """

    rate: float = 0.0
    clients: float = 0.0
    ttft: float = inf
    tpot: float = inf
    limit: str = ""
    reason: str = ""
    readers: float = 0.0
    writers: float = 0.0
    sequences: float = 0.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica, and what comes to it.

    Args:
        service: of which it is one.
        demand: what comes.
        times: of its steps.
        reading: prompts a second of a replica that does nothing else. [1/s]
        alone: reading a mean prompt when nothing else is to do. [s]
        full: what a prompt adds to a step that has as many as it takes. [s]
        made: steps that were asked for, by their sequences: in the mean, and what each prompt adds to one.
    """

    service: Service
    demand: Demand
    times: StepTimes
    reading: float
    alone: float
    full: float
    made: dict[int, tuple[float, float]] = field(default_factory=dict)

    def step(self, sequences: int) -> float:
        """A step in which so many decode and prompts are read as fast as they come, in the mean. [s]

        A request decodes s steps and has P new tokens, so that beside B tokens that are decoded x = B P / s of prompts are
        read a step: of x < P one prompt in x / P of all steps, else x / P prompts in each; or as many together as a step
        takes, where that is quicker.
        """
        return self._known(sequences)[0]

    def seen(self, sequences: int) -> float:
        """TPOT at the percentile that is promised: step + 0.6 z sqrt(B v) (d / s) / (1 - rho). [s]

        While a request is there B others come in the mean (Little), each of whose prompts adds d to one of its s steps; how
        many come varies with B v, v = 1 of Poisson arrivals, and z is the normal distribution's quantile. What they add
        keeps the request for longer, so that more come: rho = rate x d. Of that spread six tenths are counted, so that
        simulations seldom do better.
        """
        step, added = self._known(sequences)
        steps = self.demand.shape.steps
        used = sequences * added / (steps * step)
        return step + PART * self.demand.spread * sqrt(sequences) * added / steps / max(1e-3, 1.0 - used)

    def _known(self, sequences: int) -> tuple[float, float]:
        found = self.made.get(sequences)
        if found is None:
            found = self.made[sequences] = self._step(sequences)
        return found

    def _step(self, sequences: int) -> tuple[float, float]:
        shape, tokens = self.demand.shape, self.service.scheduling.tokens
        plain = self.times.decode(sequences, shape.context + 1.0)
        each, beside = max(1, round(shape.new)), sequences * shape.new / shape.steps
        room = max(1, tokens - sequences)
        piece = min(each, room)
        count = min(max(1, round(beside / piece)), max(1, room // piece))
        read = self.times.mixed(sequences, sequences * shape.context, [(piece, 0, True)] * count, plain)
        added = min(self.full, max(0.0, read - plain) / (piece * count) * shape.new)
        return plain + sequences / shape.steps * added, added

    def first(self, rate: float) -> float:
        """TTFT at the percentile of requests that come so fast: latency + reading + waiting for others' prompts. [s]

        Prompts queue for the machine, rho = rate x S, S of a prompt among as many as a step takes: of an M/D/1 queue
        P(W > t) = rho exp(-2 (1 - rho) t / (rho S)) about. Source: Tijms, A First Course in Stochastic Models, 2003, 9.2.
        Where requests come more evenly, with v < 1 of Poisson arrivals' variance, waits are v times as long (Kingman).
        """
        each = 1.0 / self.reading
        alone = self.service.server.latency + self.alone
        used = rate * each
        tail = 1.0 - min(self.demand.goal.percentile, MOST_SURE) / 100
        variance = min(1.0, self.demand.sends.variance)
        if used <= tail or not variance:
            return alone
        return inf if used >= 1 else alone + variance * used * each / (2 * (1 - used)) * log(used / tail)

    def decoding(self, sequences: int) -> float:
        """A step in which so many decode and nothing else is done. [s]"""
        return self.times.decode(sequences, self.demand.shape.context + 1.0)

    def rate(self, sequences: int, step: Callable[[int], float]) -> float:
        """Requests that so many at once come to: B / (s step(B)). [1/s]"""
        return sequences / (self.demand.shape.steps * step(sequences))

    @property
    def room(self) -> int:
        """Sequences at once, by memory and by the scheduler; one at least."""
        service, shape = self.service, self.demand.shape
        pool = service.pool
        fit = pool.blocks * pool.block / max(1.0, shape.context) if pool.per else pool.blocks
        return max(1, min(int(fit * SLACK), service.scheduling.sequences))


def replica_of(service: Service, demand: Demand) -> Replica:
    """A replica; it reads k prompts at once, the best of 1 and as many as a step takes: k / time of k together. [1/s]"""
    shape, times, server = demand.shape, times_of(service), service.server
    new = max(1, round(shape.new))
    together = max(1, service.scheduling.tokens // new)
    alone = times.mixed(0, 0.0, [(new, 0, True)], inf)
    all_ = alone if together == 1 else times.mixed(0, 0.0, [(new, 0, True)] * together, inf)
    best = max(1 / (alone - server.between), together / (all_ - server.between))
    return Replica(service, demand, times, best, alone, _full(times, new, service.scheduling.tokens) * shape.new / new)


def _full(times: StepTimes, new: int, tokens: int) -> float:
    """What each of as many prompts as a step takes adds to it. [s]"""
    piece = min(new, max(1, tokens - 1))
    count = max(1, (tokens - 1) // piece)
    plain = times.decode(1, 2.0)
    return max(0.0, times.mixed(1, 1.0, [(piece, 0, True)] * count, plain) - plain) / count * new / piece


def weigh(service: Service, demand: Demand) -> Weighed:
    """The most that a unit does of a workload, and what it takes however little there is to do.

        rate = max over B of B / (s step(B)), B by memory, by the scheduler, and by step(B) <= TPOT
        TTFT >= latency + reading the prompt at the percentile alone;  TPOT >= a step of one sequence

    Steps are the quickest that the simulator can put together, so that what is pruned by it cannot work: a rate may be
    6 % too low, which whoever compares must allow for (`SLACK`). [1/s, s]

    Args:
        service: of one unit.
        demand: what comes.
    """
    goal, shape = demand.goal, demand.shape
    if service.reason:
        return Weighed(limit="memory", reason=service.reason)
    if shape.longest > service.pool.longest and _refused(service, demand):
        reason = f"requests of {shape.longest:,} tokens come, and {service.pool.longest:,} is the longest that it takes"
        return Weighed(limit="context", reason=reason)
    replica = replica_of(service, demand)
    ttft = service.server.latency + replica.times.mixed(0, 0.0, [(shape.new_at, 0, True)], inf)
    tpot = replica.decoding(1) if shape.steps > NOTHING else 0.0
    if goal.ttft_seconds is not None and ttft > goal.ttft_seconds:
        return Weighed(
            ttft=ttft, tpot=tpot, limit="ttft", reason=f"a prompt of {shape.new_at:,} tokens alone takes {in_ms(ttft)}"
        )
    if _bounded(demand) and tpot > (goal.tpot_seconds or 0.0):
        return Weighed(ttft=ttft, tpot=tpot, limit="tpot", reason=f"a step of one request alone takes {in_ms(tpot)}")
    return replace(_rates(*_one_of(replica, demand)), ttft=ttft, tpot=tpot)


def _one_of(replica: Replica, demand: Demand) -> tuple[Replica, Demand]:
    """A replica among as many as will do by themselves, and what comes to it: by turns, and so more evenly than by chance.

    Of v of Poisson arrivals' variance v / n is left to each of n. With n = rate / what one does alone they are enough, as
    each of them does no less than it would alone; so none of fewer does more than one of these.
    """
    rate, alone = demand.sends.rate, _rates(replica, demand).rate
    if rate is None:
        return replica, demand
    shards = replica.service.ready.deployment.shards
    units = min(MOST_UNITS, ceil(rate / alone)) if alone else MOST_UNITS
    one = demand.one_of(max(1, units) * shards.dp)
    return (replica, demand) if one is None else (replace(replica, demand=one), one)


def _rates(replica: Replica, demand: Demand) -> Weighed:
    """Requests a second of a unit, and of pools' replicas. [1/s]"""
    reading, many = _reading(replica, demand), replica.service.ready.deployment.shards.dp
    if demand.shape.steps <= NOTHING:
        return Weighed(rate=many * reading, clients=inf, readers=reading, writers=inf)
    most = _most(replica, demand, replica.step)
    apart = _most(replica, demand, replica.decoding)
    return Weighed(
        rate=many * replica.rate(most, replica.step) * (LOOSER if demand.goal.percentile < COMMON else 1.0),
        clients=many * most if most < replica.room else inf,
        readers=reading,
        writers=replica.rate(apart, replica.decoding),
        sequences=most,
    )


def _reading(replica: Replica, demand: Demand) -> float:
    """Prompts a second that a replica reads, and keeps TTFT: halved between none and all, to 3 %. [1/s]"""
    most, limit = replica.reading, demand.goal.ttft_seconds
    if limit is None or replica.first(most * (1 - 1e-6)) <= limit:
        return most
    low, high = 0.0, most
    while high - low > most / 32:
        middle = (low + high) / 2
        low, high = (middle, high) if replica.first(middle) <= limit else (low, middle)
    return high


def _bounded(demand: Demand) -> bool:
    """Whether the mean of steps must keep TPOT: it is promised to half of the requests at least."""
    return demand.goal.tpot_seconds is not None and demand.goal.percentile >= HALF


def _refused(service: Service, demand: Demand) -> bool:
    """Whether more requests are too long than may break the promise; all must be answered where nothing is promised."""
    load = demand.load(demand.trials[-1])
    jobs = list(load.jobs())
    long = sum(1 for job in jobs if job.prompt >= service.pool.longest)
    return long > len(jobs) * (1 - demand.goal.percentile / 100 if demand.goal.given else 0)


def _most(replica: Replica, demand: Demand, step: Callable[[int], float]) -> int:
    """The most sequences at once that fit, keep TPOT and, by how fast they come then, TTFT: to 6 %."""
    room, goal = replica.room, demand.goal
    tpot = goal.tpot_seconds if _bounded(demand) else None
    mixed = step == replica.step

    def keeps(sequences: int) -> bool:
        if tpot is not None and (replica.seen(sequences) if mixed else step(sequences)) > tpot:
            return False
        return (
            not mixed or goal.ttft_seconds is None or replica.first(replica.rate(sequences, step)) <= goal.ttft_seconds
        )

    if room == 1 or keeps(room):
        return room
    low, high = 1, room
    while high > low + 1 and high > low * EXACT:
        middle = min(high - 1, max(low + 1, round(sqrt(low * high))))
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low
