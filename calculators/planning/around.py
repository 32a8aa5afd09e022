"""What stands around the cheapest deployment: the next cheaper one, faster ones, more load; and the nearest miss."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING, Final

from roofcast.calculators.planning.field import Candidate
from roofcast.calculators.planning.search import HOPELESS, Limits, Search
from roofcast.calculators.planning.tasks import Pick, Stretch, Stretched
from roofcast.calculators.planning.trial import Count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofcast.calculators.planning.trial import Verdict
    from roofcast.calculators.serving.result import Goal

TIMES: Final = ("ttft", "tpot", "itl")
ALL_TIMES: Final = "times"
CLOSE: Final = 6  # cheaper ones that are looked at, until one clearly fails
FASTER: Final = 3  # faster ones that are simulated
DEAREST: Final = 8.0  # times the cheapest, beyond which none is [-]
PARTS: Final = (0.5, 0.2, 0.05)  # of the load, that are tried where the whole is too much [-]
ROOMIER: Final = 8  # times as many GPUs, likewise [-]
BEYOND: Final = (
    1.1,
    1.25,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    30.0,
    100.0,
)  # of a limit, that are tried where it is too short [-]


@dataclass(frozen=True, slots=True)
class Placed:
    """A number of a machine, and what is known of it.

    Args:
        candidate: which machine.
        count: how many.
        verdict: of simulations; None of the closed form.
    """

    candidate: Candidate
    count: Count
    verdict: Verdict | None

    @property
    def rank(self) -> float:
        """By what deployments are in order. [USD/h]"""
        return self.candidate.rank(self.count)

    @property
    def meets(self) -> bool | None:
        """Whether it keeps what is promised; None where that is too close to say."""
        return False if self.verdict is None else self.verdict.meets


def cheaper(search: Search) -> list[Placed]:
    """The next cheaper deployments than the best one, until one clearly fails; none where nothing costs less.

    Of those that cost the same the one that comes closest to its number of replicas is taken. Where one turns out to do,
    it is the best one.
    """
    found: list[Placed] = []
    bound = inf
    for _ in range(CLOSE * 2):
        best = search.best
        if best is None or best.found is None:
            return found
        bound = min(bound, best.rank(best.found.count))
        one = _below(search, bound)
        if one is None:
            return found
        if one.verdict is not None and one.verdict.meets:  # the closed form was wrong: this is the best one
            search.solve()
            found = []
            continue
        found.append(one)
        if one.meets is False:
            return found
        bound = one.rank
    return found


def _below(search: Search, bound: float) -> Placed | None:
    """The dearest that costs less, simulated where it can be."""
    while True:
        every = [
            (rank, not one.limit, _nearness(search, one, units), one, Count(units))
            for one in search.candidates
            if not one.machine.pools and (units := min(one.below(bound), search.most(one))) >= 1
            for rank in (one.rank(Count(units)),)
        ]
        able = [row for row in every if row[3].limit not in HOPELESS] or every
        if not able:
            return None
        _, _, _, one, count = max(able, key=lambda row: (round(row[0], 9), row[1], row[2]))
        if one.weighed is None and not one.floor.limit:
            search.weigh([one])
            continue
        if one.limit in HOPELESS:
            return Placed(one, count, None)
        if one.weighed is None:  # its roofline alone rules it out; it is simulated all the same, where it can be
            search.force(one)
            continue
        return Placed(one, count, search.judge(one, count))


def _nearness(search: Search, one: Candidate, units: int) -> float:
    return units / one.least(search.demand).total


def faster(search: Search) -> None:
    """Simulates a few that cost more than the cheapest and promise shorter times than all that was found."""
    best = search.best
    if best is None or best.found is None:
        return
    base = best.rank(best.found.count)
    kinds = search.best_of_kind()
    layouts = [
        one
        for one in search.candidates
        if one.machine.gpu in kinds
        and one.weighed is None
        and not one.floor.limit
        and one.machine.plainness[:3] == (0, 0, 1)
    ]
    search.weigh(layouts)
    known = [
        (one.rank(v.count), v.shown.ttft or 0.0, v.shown.tpot or 0.0) for one in search.candidates if (v := one.found)
    ]
    open_ = [
        (one.rank(count), one.weighed.ttft, one.weighed.tpot, one)
        for one in search.candidates
        if one.weighed is not None and not one.limit and one.found is None and not one.machine.pools
        for count in (search.least(one),)
        if search.allowed(one, count) and one.rank(count) <= DEAREST * base
    ]
    open_.sort(key=lambda row: (*row[:3], row[3].machine.plainness))
    chosen: list[Candidate] = []
    for rank, ttft, tpot, one in open_:
        if len(chosen) < FASTER and not any(a <= rank and b <= ttft * 1.1 and c <= tpot * 1.1 for a, b, c in known):
            known.append((rank, ttft, tpot))
            chosen.append(one)
    search.settle(chosen, alone=True)


def headroom(search: Search) -> Stretched | None:
    """The highest load that the best deployment keeps, over the load that is asked; None where there is none."""
    best = search.best
    if best is None or best.found is None:
        return None
    found: Stretched = search.run([Stretch(best.machine, search.pick, best.found.count)])[0]
    return found


def again(search: Search, pick: Pick, limits: Limits, candidates: Iterable[Candidate] | None = None) -> Search:
    """A search for the same workload otherwise: what the closed form says stays known where the promise is the same."""
    same = pick.goal is None
    made = [
        Candidate(one.machine, one.price, one.floor, one.weighed if same else None)
        for one in (search.candidates if candidates is None else candidates)
    ]
    demand = search.demand if pick.factor == 1.0 else search.demand.times(pick.factor)
    if pick.goal is not None:
        demand = replace(demand, goal=pick.goal)
    return Search(pick, demand, made, limits, search.run)


def doubled(search: Search) -> tuple[Search, Verdict | None]:
    """The search at twice the load, and what becomes of the best deployment there."""
    best = search.best
    known = [one for one in search.candidates if one.weighed is not None]
    twice = again(search, replace(search.pick, factor=2.0), replace(search.limits, kinds=1), known)
    twice.proving = False
    still = None
    if best is not None and best.found is not None:
        same = twice.candidates[known.index(best)]
        still = twice.judge(same, best.found.count, brief=True)
    twice.solve()
    return twice, still


def nearest(search: Search) -> Placed | None:
    """What comes closest to what is promised where nothing keeps it: by how much its worst limit is exceeded."""
    every = [(miss, one) for one in search.candidates if (miss := missed(search, one)) < inf]
    if not every:
        return next((Placed(one, Count(1), None) for one in search.candidates), None)
    _, one = min(every, key=lambda row: (row[0], row[1].machine.plainness, row[1].machine.gpu))
    known = [verdict for verdict in one.known.values() if not verdict.meets]
    if known:
        last = max(known, key=lambda verdict: verdict.count.total)
        return Placed(one, last.count, last)
    least = one.least(search.demand)
    return Placed(one, least if least.total <= MOST_UNITS else Count(1), None)


MOST_UNITS: Final = 1 << 20


def missed(search: Search, one: Candidate) -> float:
    """By what a candidate misses: time over limit, GPUs over those allowed; infinite where nothing tells. [-]"""
    goal = search.demand.goal
    if one.limit == "ttft":
        ttft = one.weighed.ttft if one.weighed and one.weighed.limit else one.floor.ttft
        return ttft / (goal.ttft_seconds or inf)
    if one.limit == "tpot":
        tpot = one.weighed.tpot if one.weighed and one.weighed.limit else one.floor.tpot
        return tpot / (goal.tpot_seconds or inf)
    if one.limit in HOPELESS:
        return inf if one.limit == "refused" else MEMORY_MISS
    known = [verdict for verdict in one.known.values() if not verdict.meets]
    if known:
        return _over(max(known, key=lambda verdict: verdict.count.total), goal)
    gpus = one.least(search.demand).total * one.machine.unit
    return max(1.0, gpus / search.limits.gpus, one.rank(one.least(search.demand)) / search.limits.cost)


MEMORY_MISS: Final = 1e6  # what does not fit is no near miss [-]


def _over(verdict: Verdict, goal: Goal) -> float:
    shown = verdict.shown
    pairs = ((shown.ttft, goal.ttft_seconds), (shown.tpot, goal.tpot_seconds), (shown.itl, goal.itl_seconds))
    return max((value / limit for value, limit in pairs if value is not None and limit is not None), default=1.0)


@dataclass(frozen=True, slots=True)
class Easier:
    """Something that would make it feasible, and the deployment that does it then.

    Args:
        option: which option of the command; load, or times for all limits of time.
        value: what it would be: seconds, GPUs, dollars an hour, or a share of the load or of the times.
        placed: the cheapest deployment then.
    """

    option: str
    value: float
    placed: Placed


def easier(search: Search) -> list[Easier]:
    """What would make a workload feasible that nothing keeps, one thing at a time."""
    found = [one for name in TIMES if (one := _later(search, name))]
    if not found and (both := _all_later(search)) is not None:
        found.append(both)
    one_kind = replace(search.limits, kinds=1)
    wider = (
        ("--max-gpus", replace(one_kind, gpus=search.limits.gpus * ROOMIER)),
        ("--max-cost", replace(one_kind, cost=inf)),
    )
    for option, limits in wider:
        if option == "--max-cost" and search.limits.cost == inf:
            continue
        placed = _solved(again(search, search.pick, limits))
        if placed is not None:
            gpus = placed.count.total * placed.candidate.machine.unit
            found.append(Easier(option, gpus if option == "--max-gpus" else placed.rank, placed))
    for part in PARTS:
        placed = _solved(again(search, replace(search.pick, factor=part * search.pick.factor), one_kind))
        if placed is not None:
            found.append(Easier("load", part, placed))
            break
    return found


def _solved(search: Search) -> Placed | None:
    """The cheapest deployment of a search; None where there is none."""
    search.proving = False
    search.solve()
    best = search.best
    return None if best is None or best.found is None else Placed(best, best.found.count, best.found)


def _later(search: Search, name: str) -> Easier | None:
    """The least limit of a time that is kept, if all else stays: the first of some beyond it, each to two digits."""
    goal, field = search.demand.goal, f"{name}_seconds"
    asked = getattr(goal, field)
    if asked is None:
        return None
    limits = replace(search.limits, kinds=1)
    for factor in BEYOND:
        limit = up(asked * factor)
        placed = _solved(_refloored(search, replace(goal, **{field: limit}), limits))
        if placed is not None:
            return Easier(f"--{name}", limit, placed)
    return None


def _all_later(search: Search) -> Easier | None:
    """The least factor of all times that are promised at which they are kept, of some beyond 1."""
    goal = search.demand.goal
    names = [name for name in TIMES if getattr(goal, f"{name}_seconds") is not None]
    if len(names) < 2:  # noqa: PLR2004 - of one alone it was asked
        return None
    for factor in BEYOND:
        times = {f"{name}_seconds": up(getattr(goal, f"{name}_seconds") * factor) for name in names}
        placed = _solved(_refloored(search, replace(goal, **times), replace(search.limits, kinds=1)))
        if placed is not None:
            return Easier(ALL_TIMES, factor, placed)
    return None


def _refloored(search: Search, goal: Goal, limits: Limits) -> Search:
    """A search under another promise: what a roofline alone rules out under this one is asked once more."""
    return again(search, replace(search.pick, goal=goal), limits, [_afresh(one) for one in search.candidates])


def _afresh(one: Candidate) -> Candidate:
    limit = "" if one.floor.limit in {"ttft", "tpot"} else one.floor.limit
    return Candidate(one.machine, one.price, replace(one.floor, limit=limit, rate=one.floor.rate or inf))


def up(value: float) -> float:
    """A number to two digits, rounded up.

    >>> up(0.1234), up(2.0)
    (0.13, 2.0)
    """
    if value <= 0:
        return 0.0
    step = 10.0 ** (floor(log10(value)) - 1)
    return round(ceil(value / step - 1e-9) * step, 12)


def front(rows: Sequence[tuple[float, float, float]]) -> list[bool]:
    """Which of rows are not beaten: none is at least as good in all three numbers and better in one.

    >>> front([(1.0, 2.0, 2.0), (2.0, 1.0, 2.0), (2.0, 2.0, 2.0)])
    [True, True, False]
    """
    return [
        not any(other != row and all(a <= b for a, b in zip(other, row, strict=True)) for other in rows) for row in rows
    ]
