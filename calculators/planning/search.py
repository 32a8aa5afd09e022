"""The search: the cheapest candidates first, each looked at closer until it is confirmed, or nothing cheaper is left."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.planning.settling import Range, Settled
from roofcast.calculators.planning.tasks import Judge, Settle, Weigh
from roofcast.calculators.planning.trial import Count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.field import Candidate
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.planning.tasks import Pick, Task
    from roofcast.calculators.planning.trial import Verdict
    from roofcast.calculators.planning.weigh import Weighed

    Run = Callable[[Sequence[Task]], Sequence[Any]]

WEIGHED_AT_ONCE: Final = 24
SETTLED_AT_ONCE: Final = 4
WIDER: Final = 1.1  # of units, from the second time on that trials fail what the first one kept [-]
HOPELESS: Final = frozenset(("memory", "context", "refused"))  # what no simulation can be made of


@dataclass(frozen=True, slots=True)
class Limits:
    """What a deployment may be.

    Args:
        gpus: at most.
        cost: an hour at most. [USD/h]
        kinds: of GPUs whose cheapest deployment is looked for.
    """

    gpus: int = 64
    cost: float = inf
    kinds: int = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a candidate stands.

    Args:
        state: what is known of it.
        rank: of the fewest units that may do. [USD/h]
        likely: of as many as will probably do. [USD/h]
        allowed: whether so few may be had.
    """

    state: tuple[bool, int]
    rank: float
    likely: float
    allowed: bool


def plain(machine: Machine) -> Machine:
    """A machine without its policy, which the closed form does not look at."""
    return replace(machine, policy="", pools=False)


@dataclass(slots=True)
class Search:
    """The search for one workload.

    Args:
        pick: which one.
        demand: the same.
        candidates: all there are.
        limits: what a deployment may be.
        run: does tasks, and returns their outcomes in order.
        peers: searches of other workloads whose closed form is asked with this one's; itself among them.
        standings: where candidates stand, by their identity.
        proving: whether all that may be cheaper than the best is simulated, and the best with all its trials.
    """

    pick: Pick
    demand: Demand
    candidates: list[Candidate]
    limits: Limits
    run: Run
    peers: list[Search] = field(default_factory=list)
    proving: bool = True
    standings: dict[int, Standing] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.peers = self.peers or [self]

    def solve(self) -> None:
        """Looks until the cheapest deployment of each of the cheapest kinds of GPU is found, and the cheapest confirmed."""
        while True:
            open_ = self._open()
            if not open_:
                if self._confirmed():
                    return
                continue
            head = open_[:WEIGHED_AT_ONCE]
            if any(one.weighed is None for one in head[:SETTLED_AT_ONCE]):
                self.weigh(one for one in head if one.weighed is None)
            else:
                self._settle(head)

    def _confirmed(self) -> bool:
        """Whether all trials of the cheapest one keep what is promised, or there is none; where not, the search goes on."""
        best = self.best
        if best is None or best.found is None or not self.proving:
            return True
        count = best.found.count
        if count in best.judged:
            return True
        if self.judge(best, count).meets:
            return True
        best.failed += 1  # the more often, the wider the next step: chance is not chased one by one
        best.tried = max(best.tried, count.total, ceil(count.total * WIDER ** (best.failed - 1)) - 1)
        return False

    def _worst(self, best: Mapping[str, float]) -> float:
        """The rank of the last kind that is looked for; infinite as long as fewer are found."""
        return sorted(best.values())[self.limits.kinds - 1] if len(best) >= self.limits.kinds else inf

    def _open(self) -> list[Candidate]:
        """Candidates that may still be the cheapest of all, or are likely to be that of their kind; likely ones first.

        The cheapest of all is proved: nothing that the closed form leaves open costs less. Those of further kinds are the
        cheapest of what is likely.
        """
        best = self.best_of_kind()
        worst, lowest, ranked = self._worst(best), min(best.values(), default=inf), []
        for one in self.candidates:
            if one.limit:
                continue
            standing = self.standing(one)
            of_kind = best.get(one.machine.gpu, inf)
            if standing.rank >= of_kind or standing.rank > worst or not standing.allowed:
                continue
            cheapest = self.proving and standing.rank < lowest
            if cheapest or (standing.likely < of_kind and standing.likely <= worst):
                ranked.append((standing.likely, one.machine.plainness, one.machine.gpu, one))
        ranked.sort(key=lambda row: row[:3])
        return [row[-1] for row in ranked]

    def standing(self, one: Candidate) -> Standing:
        """Where a candidate stands by what is known of it; reckoned once for each state."""
        state = one.weighed is not None, one.tried
        found = self.standings.get(id(one))
        if found is None or found.state != state:
            least = self.least(one)
            rank = one.rank(least)
            likely = rank
            if one.weighed is not None:
                likely = max(rank, one.rank(Count(max(least.total, one.likely(self.demand)))))
            found = self.standings[id(one)] = Standing(state, rank, likely, self.allowed(one, least))
        return found

    def least(self, one: Candidate) -> Count:
        """Fewest units of a candidate that are not known to fail."""
        least = one.least(self.demand)
        if one.tried < least.total:
            return least
        more = one.tried + 1 - least.total
        return replace(least, writers=least.writers + more) if one.machine.pools else Count(least.units + more)

    def best_of_kind(self) -> dict[str, float]:
        """The rank of the cheapest deployment found, by GPU."""
        best: dict[str, float] = {}
        for one in self.candidates:
            found = one.found if one.settled is not None or one.judged else None
            if found is not None:
                rank = one.rank(found.count)
                best[one.machine.gpu] = min(rank, best.get(one.machine.gpu, inf))
        return best

    def allowed(self, one: Candidate, count: Count) -> bool:
        """Whether so many may be had."""
        return count.total <= self.most(one)

    def most(self, one: Candidate) -> int:
        """Units at most."""
        units = self.limits.gpus // one.machine.unit
        if one.price and self.limits.cost < inf:
            units = min(units, int(self.limits.cost / (one.price * one.machine.unit) + 1e-9))
        return units

    def weigh(self, some: Iterable[Candidate]) -> None:
        """Asks the closed form of some; those that differ by policy alone have one, and other workloads are asked with it."""
        machines = list(dict.fromkeys(plain(one.machine) for one in some))
        waiting = [search.waiting() for search in self.peers]
        picks = [
            tuple(peer.pick for peer, found in zip(self.peers, waiting, strict=True) if machine in found)
            for machine in machines
        ]
        outcomes: Sequence[tuple[Weighed, ...]] = self.run(list(map(Weigh, machines, picks)))
        for machine, asked, weighed in zip(machines, picks, outcomes, strict=True):
            answers = dict(zip(asked, weighed, strict=True))
            for peer, found in zip(self.peers, waiting, strict=True):
                for one in found.get(machine, ()):
                    one.weighed = answers[peer.pick]

    def waiting(self) -> dict[Machine, list[Candidate]]:
        """Candidates whose closed form was not asked and may be, by their machine without its policy."""
        found: dict[Machine, list[Candidate]] = {}
        for one in self.candidates:
            if one.weighed is None and not one.floor.limit:
                found.setdefault(plain(one.machine), []).append(one)
        return found

    def _settle(self, head: Sequence[Candidate]) -> None:
        """Simulates the first of each of a few kinds."""
        chosen: dict[str, Candidate] = {}
        for one in head:
            if one.weighed is None:
                break
            chosen.setdefault(one.machine.gpu, one)
            if len(chosen) == SETTLED_AT_ONCE:
                break
        self.settle(list(chosen.values()))

    def force(self, one: Candidate) -> None:
        """Asks the closed form of one that its roofline rules out, so that it can be simulated, or why it cannot."""
        ((weighed,),) = self.run([Weigh(plain(one.machine), (self.pick,))])
        one.weighed = weighed
        if weighed.limit in HOPELESS:
            one.floor = replace(one.floor, limit=weighed.limit, reason=weighed.reason)

    def settle(self, some: Sequence[Candidate], *, alone: bool = False) -> None:
        """Simulates some, up to what is the cheapest of their kind by now, or each by itself."""
        best = {} if alone else self.best_of_kind()
        worst, tasks, tops = inf if alone else self._worst(best), [], []
        for one in some:
            rank = best.get(one.machine.gpu, inf)
            top = self.most(one) if rank == inf == worst else min(self.most(one), self._within(one, rank, worst))
            least = self.least(one)
            units = Range(least.total, one.likely(self.demand), max(least.total, top))
            tasks.append(Settle(one.machine, self.pick, units, (least.readers, least.writers)))
            tops.append(units.most)
        for one, settled, top in zip(some, self.run(tasks), tops, strict=True):
            others = one.settled.others if one.settled else ()
            one.settled = Settled(
                settled.best or (one.settled.best if one.settled else None), (*others, *settled.others)
            )
            one.tried = max(one.tried, top if settled.best is None else settled.best.count.total - 1)

    @staticmethod
    def _within(one: Candidate, rank: float, worst: float) -> int:
        """Most units that are cheaper than the cheapest of the kind, and no dearer than the last kind that counts."""
        below = one.below(rank) if rank < inf else 1 << 30
        return min(below, one.below(worst * (1 + 1e-9)) if worst < inf else 1 << 30)

    def judge(self, one: Candidate, count: Count, *, brief: bool = False) -> Verdict:
        """All trials of one number of replicas, or the first, where they were not made."""
        found = one.judged.get(count)
        if found is None:
            doubtful = one.found is None or count < one.found.count
            found = one.judged[count] = self.run([Judge(one.machine, self.pick, count, brief, doubtful)])[0]
        return found

    @property
    def best(self) -> Candidate | None:
        """The cheapest that meets what is promised; the plainest of several."""
        every = [one for one in self.candidates if one.found is not None]
        return min(every, key=self.order, default=None)

    @staticmethod
    def order(one: Candidate) -> tuple[Any, ...]:
        """By what those that meet it are in order."""
        found = one.found
        assert found is not None  # noqa: S101 - whoever asks has looked
        return one.rank(found.count), one.machine.plainness, one.machine.gpu
