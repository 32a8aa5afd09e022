"""Questions the other way round: the most that a given number of GPUs takes, the longest context, the smallest GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import offered_memory
from roofcast.calculators.planning.around import Placed
from roofcast.calculators.planning.search import HOPELESS
from roofcast.calculators.planning.tasks import LOAD, PROMPT, Most, Mosted
from roofcast.calculators.planning.trial import Count
from roofcast.calculators.planning.weigh import SLACK

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.planning.field import Candidate
    from roofcast.calculators.planning.search import Search
    from roofcast.hwdb.accelerator import Accelerator

    _Row = tuple[float, tuple[int, ...], int, Candidate, Count]

RATE: Final = "rate"
USERS: Final = "users"
CONTEXT: Final = "context"
GPU: Final = "gpu"
FINDS: Final = (RATE, USERS, CONTEXT, GPU)
AT_ONCE: Final = 4
SMOOTHER: Final = 1.5  # likewise of several that take turns, to each of which requests come more evenly [-]
USUAL: Final = 0.8  # of what the closed form says [-]
MOST_CLIENTS: Final = 1 << 14
MOST_FACTOR: Final = 1e9


@dataclass(frozen=True, slots=True)
class Answered:
    """What was found on a machine.

    Args:
        candidate: which.
        count: how many.
        most: what was found; of the smallest GPU its memory.
        placed: simulations of the smallest GPU; None of the others.
    """

    candidate: Candidate
    count: Count
    most: Mosted
    placed: Placed | None = None

    @property
    def value(self) -> float:
        """By what machines are in order; 0 where nothing will do."""
        return self.most.value or 0.0


def counts(search: Search, gpus: int) -> list[tuple[Candidate, Count]]:
    """Candidates that come to just so many GPUs, and how many of each; pools shared as their closed form asks."""
    found = []
    for one in search.candidates:
        units, left = divmod(gpus, one.machine.unit)
        if left or units < 1 or one.limit in HOPELESS:
            continue
        if not one.machine.pools:
            found.append((one, Count(units)))
        elif units > 1 and one.weighed is not None and one.weighed.readers and one.weighed.writers:
            share = one.weighed.writers / (one.weighed.readers + one.weighed.writers)
            readers = min(units - 1, max(1, round(units * share)))
            found.append((one, Count(0, readers, units - readers)))
    return found


def most_of(search: Search, gpus: int, what: str, longest: int) -> list[Answered]:
    """The most that so many GPUs do, on the best machine of each kind: those first that the closed form says most of.

    A machine is not simulated where what the closed form says of it, with its slack, is less than what was found.

    Args:
        search: whose workload is of one request a second, or of one client.
        gpus: that there are.
        what: rate, users or context.
        longest: tokens of a prompt at most.
    """
    search.weigh([one for one, _ in counts(search, gpus)])
    open_: list[_Row] = sorted(
        ((_bound(one, count, what, longest), one.machine.plainness, number, one, count)
         for number, (one, count) in enumerate(counts(search, gpus)) if not one.limit or what == CONTEXT),
        key=lambda row: (-row[0], row[1], row[2]),
    )  # fmt: skip
    done: list[Answered] = []
    while open_:
        best: dict[str, float] = {}
        for answer in done:
            gpu = answer.candidate.machine.gpu
            best[gpu] = max(answer.value, best.get(gpu, 0.0))
        left = [row for row in open_ if row[0] > best.get(row[3].machine.gpu, 0.0)]
        some, open_ = _first_of_kinds(left)
        tasks = [
            replace(_task(search, one, count, what, bound, longest), above=best.get(one.machine.gpu, 0.0))
            for bound, _, _, one, count in some
        ]
        found: Sequence[Mosted] = search.run(tasks)
        for _, _, _, one, _ in some:
            one.looked = True
        done += [Answered(one, count, most) for (_, _, _, one, count), most in zip(some, found, strict=True)]
    return _best_of_kinds(done)


def _first_of_kinds(left: Sequence[_Row]) -> tuple[list[_Row], list[_Row]]:
    """The first of each of a few kinds, so that others need only be held against it; and the rest."""
    chosen: dict[str, _Row] = {}
    for row in left:
        if len(chosen) < AT_ONCE:
            chosen.setdefault(row[3].machine.gpu, row)
    taken = {id(row) for row in chosen.values()}
    return list(chosen.values()), [row for row in left if id(row) not in taken]


def _bound(one: Candidate, count: Count, what: str, longest: int) -> float:
    """No more than that will do, by the closed form. [1/s, -, token]"""
    if what == CONTEXT or one.weighed is None:
        return float(longest)
    if one.machine.pools:
        return min(one.weighed.readers * count.readers, one.weighed.writers * count.writers * SLACK)
    if what == USERS:
        return one.weighed.clients * count.units * SLACK
    return one.weighed.rate * count.units * (SLACK if count.units == 1 else SMOOTHER)


def _task(search: Search, one: Candidate, count: Count, what: str, bound: float, longest: int) -> Most:
    if what == CONTEXT:
        return Most(one.machine, search.pick, count, PROMPT, min(4096.0, longest), float(longest))
    top = MOST_CLIENTS if what == USERS else MOST_FACTOR
    start = 16.0 if bound == inf else max(1e-3, bound * USUAL)
    return Most(one.machine, search.pick, count, LOAD, max(1.0, round(start)) if what == USERS else start, float(top))


def _best_of_kinds(done: Sequence[Answered]) -> list[Answered]:
    """The best of each GPU, the best first."""
    best: dict[str, Answered] = {}
    for one in sorted(done, key=lambda one: (-one.value, one.candidate.machine.plainness)):
        best.setdefault(one.candidate.machine.gpu, one)
    return list(best.values())


def smallest(search: Search, gpus: int, accelerators: Mapping[str, Accelerator], more: int = 2) -> list[Answered]:
    """The GPUs with the least memory, so many of which meet a workload; and those that are smaller and do not.

    Args:
        search: for the workload.
        gpus: that there are.
        accelerators: by id.
        more: smaller ones that are shown.
    """
    kinds = sorted(accelerators.values(), key=lambda one: (offered_memory(one)[0], one.bandwidth, one.id))
    failed: list[Answered] = []
    for kind in kinds:
        memory = offered_memory(kind)[0]
        best, miss = _first_that_meets(search, gpus, kind.id)
        if best is not None:
            return [Answered(best.candidate, best.count, Mosted(memory, "", "", None), best), *failed[::-1][:more]]
        if miss is not None:
            failed.append(miss)
    return failed[::-1][: more + 1]


def _first_that_meets(search: Search, gpus: int, gpu: str) -> tuple[Placed | None, Answered | None]:
    """The plainest machine of a kind that meets a workload; else the last one and why it does not."""
    mine = [(one, count) for one, count in counts(search, gpus) if one.machine.gpu == gpu]
    search.weigh([one for one, _ in mine if one.weighed is None and not one.floor.limit])
    mine.sort(key=lambda row: row[0].machine.plainness)
    last: Answered | None = None
    for one, count in mine:
        if not one.limit and one.least(search.demand).total <= count.total:
            verdict = search.judge(one, count)
            placed = Placed(one, count, verdict)
            if verdict.meets:
                return placed, None
            failing = verdict.failing
            why = (failing.limit, failing.reason) if failing else ("", "")
            last = Answered(one, count, Mosted(None, *why, verdict.shown), placed)
    if last is None and mine:
        one, count = mine[-1]
        why = (one.limit, one.reason) if one.limit else ("rate", "the closed form says that it does not keep up")
        last = Answered(one, count, Mosted(None, *why, None))
    return None, last
