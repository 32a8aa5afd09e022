"""All candidates of a plan: what each costs at least, as far as it is known, and what was found of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.planning.trial import Count
from roofcast.calculators.planning.weigh import SLACK, Weighed

if TYPE_CHECKING:
    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.floor import Floor
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.planning.settling import Settled
    from roofcast.calculators.planning.trial import Verdict

UNPRICED: Final = 1e9  # rank of a deployment without a price: after all others, by its GPUs
ROUNDING: Final = 1e-9
OF_JOBS: Final = 0.97  # likewise of jobs, to which nothing comes by chance [-]
USUAL: Final = 0.82  # of what the closed form says simulations find [-]


@dataclass(slots=True)
class Candidate:
    """A machine under one workload.

    Args:
        machine: which.
        price: rent of one of its GPUs; None where none is known. [USD/h]
        floor: what its roofline says.
        weighed: what the closed form says; None as long as it was not asked.
        settled: what simulations say; None likewise.
        judged: verdicts of single numbers of replicas, of all trials.
        tried: units up to which none will do.
        looked: whether it was simulated for a question the other way round.
        failed: times that further trials did not keep what the first one kept.
    """

    machine: Machine
    price: float | None
    floor: Floor
    weighed: Weighed | None = None
    settled: Settled | None = None
    judged: dict[Count, Verdict] = field(default_factory=dict)
    tried: int = 0
    failed: int = 0
    looked: bool = False

    @property
    def limit(self) -> str:
        """Why no number of it will do, as far as is known; empty where one may."""
        return self.floor.limit or (self.weighed.limit if self.weighed else "")

    @property
    def reason(self) -> str:
        """The same in a sentence."""
        return self.floor.reason if self.floor.limit else self.weighed.reason if self.weighed else ""

    @property
    def known(self) -> dict[Count, Verdict]:
        """What is known of numbers of replicas: of all trials where these were asked."""
        every: list[Verdict] = []
        if self.settled is not None:
            every = [*self.settled.others, *([self.settled.best] if self.settled.best else [])]
        return {**{one.count: one for one in every}, **self.judged}

    @property
    def found(self) -> Verdict | None:
        """The least number that will do, as far as is known."""
        every = (one for one in self.known.values() if one.meets)
        return min(every, key=lambda one: one.count.total, default=None)

    def rank(self, count: Count) -> float:
        """By what deployments are in order: their cost, or after all these their GPUs. [USD/h]"""
        gpus = count.total * self.machine.unit
        return UNPRICED + gpus if self.price is None else self.price * gpus

    def below(self, rank: float) -> int:
        """Most units that come before a rank.

        >>> from roofcast.calculators.planning.floor import Floor
        >>> from roofcast.calculators.planning.machines import Machine
        >>> from roofcast.modelspec.sharding import Shards
        >>> one = Candidate(Machine("l4", Shards(tp=2), "none"), 0.5, Floor(1.0, 0.0, 0.0))
        >>> one.below(3.0), one.below(3.1)
        (2, 3)
        """
        if self.price is None:
            return max(0, ceil((rank - UNPRICED) / self.machine.unit - ROUNDING) - 1)
        return max(0, ceil(rank / (self.price * self.machine.unit) - ROUNDING) - 1)

    def least(self, demand: Demand) -> Count:
        """Fewest that may do, by what is known: rate / the most that one does."""
        rate, clients = demand.sends.rate, demand.sends.clients
        if self.machine.pools:
            return self._pools(rate or 0.0)
        if clients is not None:
            most = self.weighed.clients * SLACK if self.weighed else inf
            return Count(max(1, ceil(clients / most - ROUNDING)) if most else 1)
        return Count(_units(rate or 0.0, self._rate))

    def likely(self, demand: Demand) -> int:
        """Units that will probably do: simulations find 18 % less than the closed form in the mean."""
        rate = demand.sends.rate
        if rate is None or self.weighed is None:
            return self.least(demand).total
        return _units(rate, self.weighed.rate * (USUAL if demand.needed is None else OF_JOBS))

    @property
    def _rate(self) -> float:
        return self.floor.rate if self.weighed is None else self.weighed.rate * SLACK

    def _pools(self, rate: float) -> Count:
        if self.weighed is None:
            units = max(2, _units(rate, self.floor.rate))
            return Count(0, 1, units - 1)
        return Count(0, _units(rate, self.weighed.readers), _units(rate, self.weighed.writers * SLACK))


def _units(rate: float, each: float) -> int:
    """Fewest that come to a rate; one at least."""
    if each <= 0:
        return 1 << 30
    return max(1, ceil(rate / each - ROUNDING))
