"""Rows of the answer of `plan`, from what was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.cost import HOUR, MILLION
from roofcast.calculators.planning.around import ALL_TIMES, TIMES, Easier, Placed, front, up
from roofcast.calculators.planning.rows import (
    CLOSED_FORM,
    SIMULATED,
    Doubled,
    Headroom,
    PlanRow,
    PricedGpu,
    Relaxed,
    WorkloadRow,
)

CLOSE: Final = 3  # of them that are shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.planning.rows import PlanDeployment
    from roofcast.calculators.planning.search import Limits, Search
    from roofcast.calculators.planning.tasks import Stretched
    from roofcast.calculators.planning.trial import Count, Tried, Verdict


class Naming(Protocol):
    """How deployments are called."""

    def deployment(self, machine: Machine, count: Count, demand: Demand, number: int) -> PlanDeployment:
        """A number of a machine, as options have it."""


@dataclass(slots=True)
class Found:
    """What was found for a workload, as far as the search came.

    Args:
        search: for it.
        below: the next cheaper ones.
        stretched: the highest load of the best one; None as long as it was not asked.
        twice: the search at twice the load, and what becomes of the best one there.
        miss: the nearest miss, where nothing keeps what is promised.
        easier: what would make it feasible.
    """

    search: Search
    below: Sequence[Placed] = ()
    stretched: Stretched | None = None
    twice: Search | None = None
    still: Verdict | None = None
    miss: Placed | None = None
    easier: Sequence[Easier] = ()


@dataclass(frozen=True, slots=True)
class Writer:
    """Makes rows.

    Args:
        naming: how deployments are called.
        prices: of GPUs.
    """

    naming: Naming
    prices: Mapping[str, PricedGpu]

    def row(self, placed: Placed, demand: Demand, number: int, limits: Limits | None = None) -> PlanRow:
        """A deployment under a workload."""
        one, verdict = placed.candidate, placed.verdict
        deployment = self.naming.deployment(one.machine, placed.count, demand, number)
        price = self.prices[one.machine.gpu]
        cost = None if one.price is None else one.price * deployment.count
        shown = verdict.shown if verdict is not None else None
        limit, reason = _beyond(placed, limits, deployment.count, cost) or _why(placed)
        # one trial has a little more load than is asked
        part = 1.0 if shown is None or demand.needed is not None else 1.0 / shown.trial.factor
        tokens = shown.tokens * part if shown and shown.tokens is not None else None
        return PlanRow(
            workload=demand.name,
            deployment=deployment,
            meets_slo=placed.meets,
            basis=CLOSED_FORM if verdict is None else SIMULATED,
            ttft_seconds=shown.ttft if shown else None,
            tpot_seconds=shown.tpot if shown else None,
            itl_seconds=shown.itl if shown else None,
            e2e_seconds=shown.e2e if shown else None,
            tokens_per_second=tokens,
            requests_per_second=shown.requests * part if shown and shown.requests is not None else None,
            kept_share=_least_share(verdict),
            kv_utilisation=shown.cache if shown else None,
            price_per_gpu_hour=price.price_per_gpu_hour,
            price_source=price.source,
            price_as_of=price.as_of,
            cost_per_hour=cost,
            cost_per_million_tokens=cost / (HOUR * tokens) * MILLION if cost is not None and tokens else None,
            limit=limit or None,
            reason=reason or None,
            trials=len(verdict.tried) if verdict else 0,
        )

    def rows(self, found: Found, number: int) -> tuple[list[PlanRow], WorkloadRow]:
        """All rows of a workload, cheapest first, and what became of it; numbers of rows count from 0 here."""
        search = found.search
        demand = search.demand
        placed = _shown(found)
        rows = [self.row(one, demand, number, search.limits) for one in placed]
        rows = _with_front(rows)
        best = search.best
        at = {(id(one.candidate), one.count): place for place, one in enumerate(placed)}
        best_at = None if best is None or best.found is None else at[id(best), best.found.count]
        below = found.below[-1] if found.below and found.below[-1].meets is False else None
        miss = found.miss
        workload = WorkloadRow(
            name=demand.name,
            load=demand.says,
            requests_per_second=demand.sends.rate,
            concurrency=demand.sends.clients,
            prompt_tokens=demand.shape.prompt,
            output_tokens=demand.shape.output,
            longest_request=demand.shape.longest,
            goal=demand.goal,
            best=best_at,
            next_cheaper=None if below is None else at[id(below.candidate), below.count],
            headroom=None if best_at is None else self._headroom(found, rows[best_at]),
            doubled=None if best_at is None else self._doubled(found, rows[best_at], number),
            nearest=None if miss is None or best_at is not None else at[id(miss.candidate), miss.count],
            relaxed=[] if best_at is not None else [self._relaxed(one, demand, number) for one in found.easier],
            considered=len(search.candidates),
            refused=sum(1 for one in search.candidates if one.limit == "refused"),
            weighed=sum(1 for one in search.candidates if one.weighed is not None and one.limit != "refused"),
            simulated=sum(1 for one in search.candidates if one.known or one.looked),
            job_seconds=demand.job,
            job_cost=_job_cost(demand, rows, best_at),
        )
        return rows, workload

    def _headroom(self, found: Found, best: PlanRow) -> Headroom | None:
        if found.stretched is None:
            return None
        demand, factor = found.search.demand, found.stretched.factor
        rate, clients = demand.sends.rate, demand.sends.clients
        goal = demand.goal
        return Headroom(
            load_factor=factor,
            requests_per_second=None if rate is None or factor is None else rate * factor,
            concurrency=None if clients is None or factor is None else round(clients * factor),
            limit=found.stretched.limit or None,
            ttft_share=_share(best.ttft_seconds, goal.ttft_seconds),
            tpot_share=_share(best.tpot_seconds, goal.tpot_seconds),
            itl_share=_share(best.itl_seconds, goal.itl_seconds),
        )

    def _doubled(self, found: Found, best: PlanRow, number: int) -> Doubled | None:
        twice, still = found.twice, found.still
        if twice is None:
            return None
        one = twice.best
        row = None
        if one is not None and one.found is not None:
            row = self.row(Placed(one, one.found.count, one.found), twice.demand, number)
        factor = None
        if row is not None and row.cost_per_hour is not None and best.cost_per_hour:
            factor = row.cost_per_hour / best.cost_per_hour
        failing = still.failing if still is not None else None
        return Doubled(
            still_met=still.meets if still is not None else None,
            limit=failing.limit if failing else None,
            plan=row,
            cost_factor=factor,
            reason=None if row is not None else f"nothing of at most {twice.limits.gpus:,} GPUs keeps it",
        )

    def _relaxed(self, easier: Easier, demand: Demand, number: int) -> Relaxed:
        row = self.row(easier.placed, demand, number)
        on = f"{row.deployment.count} x {row.deployment.gpu}"
        cost = "" if row.cost_per_hour is None else f", ${row.cost_per_hour:,.2f} an hour"
        option, value = _worded(easier, demand)
        return Relaxed(option=option, value=value, says=f"{option} {value}: {on}{cost}")


def _worded(easier: Easier, demand: Demand) -> tuple[str, str]:
    """An option and its value, as a command takes them."""
    return WORDED.get(easier.option, _limit_words)(easier, demand)


def _load_words(easier: Easier, demand: Demand) -> tuple[str, str]:
    rate, clients = demand.sends.rate, demand.sends.clients
    if demand.job is not None:
        return "--deadline", f"{demand.job / easier.value / HOUR:.3g}h"
    if clients is not None:
        return "--concurrency", f"{max(1, round(clients * easier.value))}"
    return "--rate", f"{(rate or 0.0) * easier.value:.3g}"


def _times_words(easier: Easier, demand: Demand) -> tuple[str, str]:
    limits = ((name, getattr(demand.goal, f"{name}_seconds")) for name in TIMES)
    first, *more = [(name, up(limit * easier.value)) for name, limit in limits if limit is not None]
    said = " ".join(f"--{name} {_milli(limit)}" for name, limit in more)
    return f"--{first[0]}", f"{_milli(first[1])} {said}"


def _limit_words(easier: Easier, demand: Demand) -> tuple[str, str]:  # noqa: ARG001 - one signature for all
    return easier.option, _milli(easier.value)


#: what would make it feasible -> how a command takes it; a time elsewhere
WORDED: Final[Mapping[str, Callable[[Easier, Demand], tuple[str, str]]]] = {
    "load": _load_words,
    ALL_TIMES: _times_words,
    "--max-gpus": lambda easier, _: (easier.option, f"{easier.value:.0f}"),
    "--max-cost": lambda easier, _: (easier.option, f"{easier.value:.2f}"),
}


def _milli(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}ms"


def _shown(found: Found) -> list[Placed]:
    """Deployments that are shown: the cheapest of each kind, others that none beats, and what does not do; in order."""
    search = found.search
    every = [Placed(one, one.found.count, one.found) for one in search.candidates if one.found is not None]
    kinds: dict[str, Placed] = {}
    for one in sorted(every, key=lambda one: (one.rank, one.candidate.machine.plainness)):
        kinds.setdefault(one.candidate.machine.gpu, one)
    times = [(one.rank, *_two(one.verdict)) for one in every]
    unbeaten = [one for one, good in zip(every, front(times), strict=True) if good]
    best = search.best
    chosen = {(id(one.candidate), one.count): one for one in [*kinds.values(), *unbeaten]}
    if best is not None and best.found is not None:
        chosen.setdefault((id(best), best.found.count), Placed(best, best.found.count, best.found))
    for one in [*_close(search), *found.below, *([found.miss] if found.miss is not None and best is None else [])]:
        chosen.setdefault((id(one.candidate), one.count), one)
    return sorted(chosen.values(), key=lambda one: (one.rank, one.meets is not True, one.candidate.machine.plainness))


def _close(search: Search) -> list[Placed]:
    """Cheaper ones than the best that keep what is promised in some trials and in others not."""
    best = search.best
    bound = inf if best is None or best.found is None else best.rank(best.found.count)
    found = [
        Placed(one, count, verdict)
        for one in search.candidates
        for count, verdict in one.judged.items()
        if verdict.meets is None and one.rank(count) < bound
    ]
    return sorted(found, key=lambda one: -one.rank)[:CLOSE]


def _two(verdict: Verdict | None) -> tuple[float, float]:
    """TTFT and TPOT; none of them is 0. [s]"""
    shown = verdict.shown if verdict is not None else None
    return (inf, inf) if shown is None else (shown.ttft or 0.0, shown.tpot or 0.0)


def _with_front(rows: list[PlanRow]) -> list[PlanRow]:
    """Rows with those marked that none beats of the ones that meet what is promised."""
    able = [row for row in rows if row.meets_slo]
    marks = front([(row.cost_per_hour or 0.0, row.ttft_seconds or 0.0, row.tpot_seconds or 0.0) for row in able])
    good = {id(row) for row, mark in zip(able, marks, strict=True) if mark}
    return [replace(row, pareto=id(row) in good) for row in rows]


def _beyond(placed: Placed, limits: Limits | None, gpus: int, cost: float | None) -> tuple[str, str] | None:
    """Why a deployment may not be had, where that is so: it takes too many GPUs, or too much money."""
    if limits is None or placed.verdict is not None or placed.candidate.limit:
        return None
    if gpus > limits.gpus:
        return "count", f"it takes {gpus:,} GPUs at least, --max-gpus is {limits.gpus:,}"
    if cost is not None and cost > limits.cost:
        return "cost", f"it takes {gpus:,} GPUs at least, ${cost:,.2f} an hour, --max-cost is ${limits.cost:,.2f}"
    return None


def _why(placed: Placed) -> tuple[str, str]:
    """Why a deployment does not do; empty of one that does."""
    if placed.meets:
        return "", ""
    failing: Tried | None = placed.verdict.failing if placed.verdict is not None else None
    if failing is not None:
        return failing.limit, failing.reason
    if placed.candidate.limit:
        return placed.candidate.limit, placed.candidate.reason
    return "count", "by the closed form so few do not keep up with what comes"


def _least_share(verdict: Verdict | None) -> float | None:
    shares = [one.share for one in verdict.tried if one.share is not None] if verdict is not None else []
    return min(shares, default=None)


def _share(value: float | None, limit: float | None) -> float | None:
    return None if value is None or limit is None else value / limit


def _job_cost(demand: Demand, rows: Sequence[PlanRow], best: int | None) -> float | None:
    """Cost of a job on the best deployment: rent of its time. [USD]"""
    if demand.job is None or best is None:
        return None
    cost = rows[best].cost_per_hour
    return None if cost is None else cost * demand.job / HOUR


def numbered(rows: Iterable[tuple[list[PlanRow], WorkloadRow]]) -> tuple[list[PlanRow], list[WorkloadRow]]:
    """Rows of all workloads in one list, and numbers of rows that count from its beginning."""
    plans: list[PlanRow] = []
    workloads: list[WorkloadRow] = []
    for some, workload in rows:
        shift = len(plans)
        plans += some
        workloads.append(
            replace(
                workload,
                best=_moved(workload.best, shift),
                next_cheaper=_moved(workload.next_cheaper, shift),
                nearest=_moved(workload.nearest, shift),
            )
        )
    return plans, workloads


def _moved(at: int | None, shift: int) -> int | None:
    return None if at is None else at + shift
