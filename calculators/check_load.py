"""Rules of `check` about a load of requests: percentiles of its times, and how many a second keep what is promised."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.check_rows import Found
from roofcast.calculators.errors import UnansweredError
from roofcast.calculators.serving.highest import highest
from roofcast.calculators.serving.live import Tally
from roofcast.calculators.serving.ranks import quantile
from roofcast.calculators.serving.result import Goal
from roofcast.calculators.serving.simulate import NO_GOAL, keeping, result_of, run, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.check_quantities import Case, Setups
    from roofcast.calculators.serving.job import Load
    from roofcast.calculators.serving.service import Service

HUNDRED: Final = 100.0  # a percentile is of
GROWING: Final = (
    "more requests come than are answered: the queue keeps growing, and this is of the first {came:,} requests alone"
)

#: times that a queue that keeps growing leaves as they are: steps have as many requests as there is room for
STEADY: Final = frozenset(("tpot", "itl"))


@dataclass(frozen=True, slots=True)
class Loaded:
    """A service after a load.

    Args:
        reason: why it does not run; empty where it does.
        tally: what is remembered of requests.
        makespan: from the first arrival to the last answer. [s]
        stable: whether requests were answered about as fast as they came.
    """

    reason: str
    tally: Tally
    makespan: float = 0.0
    stable: bool = True

    @property
    def growing(self) -> str:
        """What is to be said of a queue that keeps growing; empty of one that does not."""
        return "" if self.stable else GROWING.format(came=self.tally.came)


def loaded(service: Service, load: Load) -> Loaded:
    """Sends a load to a service.

    Raises:
        UsageError: a trace with a bad row.
    """
    if service.reason:
        return Loaded(service.reason, Tally())
    ran = run(service, load)
    return Loaded("", ran.tally, ran.makespan, result_of(ran, NO_GOAL).stable)


def time_at(of: Loaded, name: str, percentile: float) -> float | None:
    """The least time that is enough for so many of 100 requests; None where that many were not answered. [s]

    Requests that are longer than the server takes are refused, and count as ones that take for ever: of n answered and r
    refused ones it is the ceil(percentile (n + r) / 100)-th of all in order (nearest rank). Times between tokens are
    percentiles of gaps, of all requests together.

    Args:
        of: the service after its load.
        name: ttft, tpot, e2e, or itl. TPOT is of requests of two tokens or more.
        percentile: above 0 and below 100.

    Raises:
        UnansweredError: no request has such a time.

    >>> from array import array
    >>> tally = Tally(ttft=array("d", [0.1, 0.2, 0.3, 0.4]), tpot=array("d", [-1.0] * 4), done=4)
    >>> time_at(Loaded("", tally), "ttft", 50), time_at(Loaded("", tally), "ttft", 99)
    (0.2, 0.4)
    >>> tally.rejected = 1
    >>> time_at(Loaded("", tally), "ttft", 80), time_at(Loaded("", tally), "ttft", 99)
    (0.4, None)
    """
    tally = of.tally
    if not tally.done:
        return None
    found = [] if name == "itl" else [value for value in getattr(tally, name) if value >= 0]
    if not found and not (name == "itl" and tally.gaps.count):
        raise UnansweredError(f"requests of one token have no {name}; give an output of two or more")
    if name == "itl":
        return tally.gaps.quantile(percentile / HUNDRED)
    value = quantile([*sorted(found), *[inf] * tally.rejected], percentile / HUNDRED)
    return None if value == inf else value


def good_rate(of: Loaded, ttft: float | None, tpot: float | None) -> float:
    """Requests a second that keep both limits, over the makespan; those of one token keep any TPOT. [1/s]

    >>> from array import array
    >>> tally = Tally(ttft=array("d", [0.1, 0.2, 0.9, 0.4]), tpot=array("d", [0.01, 0.09, 0.01, -1.0]))
    >>> good_rate(Loaded("", tally, 2.0), 0.5, 0.05), good_rate(Loaded("", tally, 2.0), None, None)
    (1.0, 2.0)
    """
    return keeping(of.tally, Goal(ttft, tpot)) / of.makespan if of.makespan else 0.0


def most_requests(service: Service, load: Callable[[float], Load], goal: Goal) -> Found:
    """The most requests a second of which so many keep what is promised, without a queue that grows; 1 % off at most. [1/s]

    Args:
        service: what answers.
        load: what is sent at a rate. [1/s]
        goal: what is promised, and of how many.

    Raises:
        UnansweredError: any rate keeps it, of so few requests.
    """
    if service.reason:
        return Found(None, f"does not fit: {service.reason}")

    def keeps(rate: float) -> bool:
        return simulate(service, load(rate), goal)[0].keeps

    found = highest(keeps)
    if found.rate is None:
        return Found(0, "a request that is alone, or as good as that, does not keep the limits")
    if found.beyond is None:
        raise UnansweredError("any rate keeps the limits, of so few requests; requests: 10000 sends more")
    return Found(found.rate)


def itl(case: Case, setups: Setups) -> Found:
    """Time between two tokens of a request, at a percentile of all gaps, as `simulate` answers. [s]"""
    return percentile_of(case, setups, "itl")


def e2e(case: Case, setups: Setups) -> Found:
    """Time from a request's coming to its last token, as `simulate` answers. [s]"""
    return percentile_of(case, setups, "e2e")


def goodput(case: Case, setups: Setups) -> Found:
    """Requests a second that are answered within limits of TTFT and TPOT, as `simulate` answers. [1/s]"""
    done = setups.loaded(case)
    if done.reason:
        return Found(None, f"does not fit: {done.reason}")
    # a queue that keeps growing breaks any limit of TTFT in the end, while steps stay as long as they are
    return Found(good_rate(done, case.ttft, case.tpot), note=done.growing, lasting=done.stable or case.ttft is None)


def requests_per_second(case: Case, setups: Setups) -> Found:
    """The most requests a second of which enough keep their limits, as `simulate --rate max` answers. [1/s]"""
    return setups.most_requests(case)


def percentile_of(case: Case, setups: Setups, name: str) -> Found:
    """A percentile of a time under a load. [s]"""
    done, percentile = setups.loaded(case), case.percentile or 100.0
    if done.reason:
        return Found(None, f"does not fit: {done.reason}")
    value = time_at(done, name, percentile)
    if value is None:
        refused = f"{done.tally.rejected:,} of {done.tally.came:,} requests are refused, longer than the server takes"
        return Found(None, f"fewer than {percentile:g} of 100 are answered: {refused}")
    return Found(value, note=done.growing, lasting=done.stable or name in STEADY)
