"""The search: the cheapest candidates first, each looked at closer until it is confirmed, or nothing cheaper is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.planning.field import Candidate
from roofcast.calculators.planning.tasks import Judge, Pick, Settle, Weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.tasks import Task
    from roofcast.calculators.planning.trial import Count, Verdict
    from roofcast.calculators.planning.weigh import Weighed

    Run = Callable[[Sequence[Task]], Sequence[Any]]

WEIGHED_AT_ONCE: Final = 24
SETTLED_AT_ONCE: Final = 4
CLOSE: Final = 6  # cheaper ones that are looked at, until one clearly fails


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
    kinds: int = 5


@dataclass(slots=True)
class Search:
    """The search for one workload.

    Args:
        pick: which one.
        demand: the same.
        candidates: all there are.
        limits: what a deployment may be.
        run: does tasks, and returns their outcomes in order.
        beside: further workloads whose closed form is asked with this one's, and where it is put.
    """

    pick: Pick
    demand: Demand
    candidates: list[Candidate]
    limits: Limits
    run: Run
    beside: Callable[[Sequence[Candidate]], None] | None = field(default=None)

    def solve(self) -> None:
        """Looks until the cheapest deployment of each of the cheapest kinds of GPU is confirmed."""
        while True:
            open_ = self._open()
            if not open_:
                return
            head = open_[:WEIGHED_AT_ONCE]
            if any(one.weighed is None for one in head[:SETTLED_AT_ONCE]):
                self.weigh(one for one in head if one.weighed is None)
            else:
                self._settle(head)

    def _open(self) -> list[Candidate]:
        """Candidates that may still be the cheapest of their kind, and of the cheapest kinds, the cheapest first."""
        best = self.best_of_kind()
        worst = sorted(best.values())[self.limits.kinds - 1] if len(best) >= self.limits.kinds else inf
        ranked = []
        for one in self.candidates:
            if one.settled is not None or one.limit:
                continue
            least = one.least(self.demand)
            rank = one.rank(least)
            if rank < best.get(one.machine.gpu, inf) and rank <= worst and self.allowed(one, least):
                ranked.append((rank, one.machine.plainness, one.machine.gpu, one))
        ranked.sort(key=lambda row: row[:3])
        return [row[-1] for row in ranked]

    def best_of_kind(self) -> dict[str, float]:
        """The rank of the cheapest deployment found, by GPU."""
        best: dict[str, float] = {}
        for one in self.candidates:
            found = one.found
            if found is not None:
                rank = one.rank(found.count)
                best[one.machine.gpu] = min(rank, best.get(one.machine.gpu, inf))
        return best

    def allowed(self, one: Candidate, count: Count) -> bool:
        """Whether so many may be had."""
        gpus = count.total * one.machine.unit
        cost = 0.0 if one.price is None else one.price * gpus
        return gpus <= self.limits.gpus and cost <= self.limits.cost

    def most(self, one: Candidate) -> int:
        """Units at most."""
        units = self.limits.gpus // one.machine.unit
        if one.price and self.limits.cost < inf:
            units = min(units, int(self.limits.cost / (one.price * one.machine.unit) + 1e-9))
        return units

    def weigh(self, some: Iterable[Candidate]) -> None:
        """Asks the closed form of some."""
        every = list(some)
        if self.beside is not None:
            self.beside(every)
            return
        outcomes: Sequence[tuple[Weighed, ...]] = self.run([Weigh(one.machine, (self.pick,)) for one in every])
        for one, (weighed,) in zip(every, outcomes, strict=True):
            one.weighed = weighed

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

    def settle(self, some: Sequence[Candidate]) -> None:
        """Simulates some."""
        tasks = [Settle(one.machine, self.pick, one.least(self.demand), self.most(one)) for one in some]
        for one, settled in zip(some, self.run(tasks), strict=True):
            one.settled = settled

    def judge(self, one: Candidate, count: Count) -> Verdict:
        """Simulates one number of replicas, where it was not."""
        found = self.known(one, count)
        if found is None:
            found = one.judged[count] = self.run([Judge(one.machine, self.pick, count)])[0]
        return found

    @staticmethod
    def known(one: Candidate, count: Count) -> Verdict | None:
        """What is known of a number of replicas."""
        every = list(one.judged.values())
        if one.settled is not None:
            every += [*one.settled.others, *([one.settled.best] if one.settled.best else [])]
        return next((verdict for verdict in every if verdict.count == count), None)

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
