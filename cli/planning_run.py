"""The search of `plan` over a crew of workers, and its answer, whole or as far as it came."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.planning.answer import Found, Writer, numbered
from roofcast.calculators.planning.around import cheaper, doubled, easier, faster, headroom, nearest
from roofcast.calculators.planning.inverse import CONTEXT, GPU, RATE, USERS
from roofcast.calculators.planning.rows import FoundRow, PlanResult, WorkloadRow
from roofcast.cli.crew import crew_of
from roofcast.cli.planning import AskedPlan, Prepared, prepared
from roofcast.cli.planning_bench import work
from roofcast.cli.progress import progress_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from roofcast.calculators.planning.demand import Demand
    from roofcast.calculators.planning.inverse import Answered
    from roofcast.calculators.planning.machines import Machine
    from roofcast.calculators.planning.search import Run, Search
    from roofcast.cli.crew import Crew
    from roofcast.cli.progress import ShardProgress
    from roofcast.reports.document import Document

OUT_OF_TIME: Final = "the time of --budget is over"
INTERRUPTED: Final = "it was interrupted"
LONGEST: Final = 1 << 20  # tokens of a prompt, of a model that states no longest context [token]


class OutOfTimeError(BaseException):  # as KeyboardInterrupt, which nothing that catches errors may keep
    """The budget of time is used up."""


@dataclass(slots=True)
class Sweep:
    """Does tasks by a crew, with a bar, within a budget of time.

    Args:
        crew: who does them.
        bar: of tasks on a terminal.
        until: when the budget is over; infinite without one. [s]
        done: tasks so far.
    """

    crew: Crew
    bar: ShardProgress | None
    until: float
    done: int = 0

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """All outcomes, in order.

        Raises:
            OutOfTimeError: the budget is over.
        """
        found: list[Any] = [None] * len(tasks)
        if not tasks:
            return found
        for number, outcome in self.crew.each(tasks):
            found[number] = outcome
            self.done += 1
            if self.bar is not None:
                self.bar.at("candidates looked at", self.done, None)
            if time.monotonic() > self.until:
                raise OutOfTimeError
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and what it is made of.

    Args:
        ready: the question.
        result: the answer.
        best: the best machine of each; None where there is none.
        stopped: what ended the search early; empty where nothing did.
    """

    ready: Prepared
    result: PlanResult
    best: Sequence[Machine | None]
    stopped: str


def planned(asked: AskedPlan) -> tuple[Document, bool]:
    """The cheapest deployments that meet workloads, and whether the search was interrupted.

    Raises:
        ModelError, UsageError, UnitError, UnknownAcceleratorError: what is wrong with what is asked.
    """
    from roofcast.cli.planning_said import said_of
    from roofcast.reports.plan import plan_document

    answer = answered(asked)
    document = plan_document(answer.result, inputs_of(answer.ready), said_of(answer))
    return document, answer.stopped == INTERRUPTED


def answered(asked: AskedPlan) -> Answer:
    """The same without a document.

    Raises:
        ModelError, UsageError, UnitError, UnknownAcceleratorError: what is wrong with what is asked.
    """
    ready = prepared(asked)
    machines = ready.machines()
    inverse: list[Answered] = []
    found, stopped = _searched(ready, lambda run: ready.searches(machines, run), inverse)
    _refuse_all(found)
    if asked.find is None:
        best = [None if one.search.best is None else one.search.best.machine for one in found]
    else:
        best = [one.candidate.machine for one in inverse[:1]]
    return Answer(ready, _result(ready, found, inverse, partial=bool(stopped)), best, stopped)


def _refuse_all(found: Sequence[Found]) -> None:
    """Refuses a question of which the engine, the device or the model's shape rules everything out.

    Raises:
        UsageError: with the first reason.
    """
    for one in found:
        candidates = one.search.candidates
        if candidates and all(candidate.limit == "refused" for candidate in candidates):
            raise UsageError(candidates[0].reason)


@contextmanager
def _ending(seconds: float | None) -> Iterator[None]:
    """After so many seconds what goes on in here ends, where the system has such a clock; elsewhere after a task."""
    if seconds is None or not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _searched(
    ready: Prepared, searches: Callable[[Run], list[Search]], inverse: list[Answered]
) -> tuple[list[Found], str]:
    """What was found for each workload, and what stopped the search before its end; empty where nothing did."""
    asked = ready.asked
    until = inf if asked.limits.seconds is None else time.monotonic() + asked.limits.seconds
    found: list[Found] = []
    with (
        _ending(asked.limits.seconds),
        progress_of("candidates") as bar,
        crew_of(work, ready.setting, jobs=asked.jobs, dask=asked.dask) as crew,
    ):
        try:
            found = [Found(search) for search in searches(Sweep(crew, bar, until).run)]
            if asked.find is not None:
                inverse += _inverse(ready, found[0].search)
                return found, ""
            for _ in _steps(found, brief=asked.brief):
                pass
        except KeyboardInterrupt:
            return found, INTERRUPTED
        except OutOfTimeError:
            return found, OUT_OF_TIME
    return found, ""


def _steps(found: Sequence[Found], *, brief: bool) -> Iterator[None]:
    """The work, so that what is done stays where it ends early: first every workload's best, then what is around it."""
    for one in found:
        one.search.solve()
        yield
    for one in found:
        one.below = cheaper(one.search)
        yield
        best = one.search.best
        if best is None:
            one.miss = nearest(one.search)
            one.easier = () if brief else easier(one.search)
        elif not brief:
            faster(one.search)
            if one.search.best is not best:  # one of these is as cheap, and plainer
                one.search.solve()
                one.below = cheaper(one.search)
            one.stretched = headroom(one.search)
            one.twice, one.still = doubled(one.search)
        yield


def _inverse(ready: Prepared, search: Search) -> list[Answered]:
    """A question the other way round."""
    from roofcast.calculators.planning.inverse import most_of, smallest

    asked, model = ready.asked, ready.setting.model
    gpus = asked.gpus_there or 1
    if asked.find == GPU:
        kinds = {name: match.accelerator for name, match in ready.setting.matches.items()}
        return smallest(search, gpus, kinds)
    output = round(search.demand.shape.output)
    longest = max(1, (model.spec.max_context or LONGEST) - output)
    return most_of(search, gpus, asked.find or "", longest)


def _looked_for(ready: Prepared, workload: WorkloadRow) -> WorkloadRow:
    """A workload without what is looked for."""
    find, demand = ready.asked.find, ready.setting.demands[0]
    lengths = getattr(demand.sends, "lengths", None)
    load = workload.load if lengths is None or find == GPU else lengths.text
    if find == CONTEXT and lengths is not None:
        load = workload.load.replace(lengths.text, lengths.text.partition(" in, ")[2])
    return replace(
        workload,
        load=load,
        requests_per_second=None if find == RATE else workload.requests_per_second,
        concurrency=None if find == USERS else workload.concurrency,
        best=None,
        next_cheaper=None,
        headroom=None,
        doubled=None,
        nearest=None,
        relaxed=[],
    )


def _found_rows(ready: Prepared, found: Sequence[Found], inverse: Sequence[Answered], writer: Writer) -> list[FoundRow]:
    """Rows of a question the other way round, the best first."""
    rows = []
    for place, one in enumerate(inverse):
        demand = found[0].search.demand
        named = writer.naming.deployment(one.candidate.machine, one.count, _meant(ready, demand, one), 0)
        shown = one.placed.verdict.shown if one.placed is not None and one.placed.verdict is not None else one.most.at
        price, value = one.candidate.price, one.most.value
        rows.append(
            FoundRow(
                workload=demand.name,
                deployment=named,
                value=_whole(ready, value),
                limit=one.most.limit or None,
                reason=one.most.reason or None,
                ttft_seconds=shown.ttft if shown else None,
                tpot_seconds=shown.tpot if shown else None,
                cost_per_hour=None if price is None else price * named.count,
                best=place == 0 and value is not None,
            )
        )
    return rows


def _whole(ready: Prepared, value: float | None) -> float | None:
    """Clients and tokens are whole numbers."""
    return value if value is None or ready.asked.find == "rate" else float(round(value))


def _meant(ready: Prepared, demand: Demand, one: Answered) -> Demand:
    """The workload with what was found, for the command that tries it once more."""
    value = one.most.value
    if value is None or ready.asked.find == "gpu":
        return demand
    return demand.with_prompt(round(value)) if ready.asked.find == "context" else demand.times(value)


def _result(ready: Prepared, found: Sequence[Found], inverse: Sequence[Answered], *, partial: bool) -> PlanResult:
    """The answer."""
    writer = Writer(ready.names(), ready.prices)
    plans, workloads = numbered(writer.rows(one, number) for number, one in enumerate(found))
    found_rows: list[FoundRow] = []
    if ready.asked.find is not None:
        found_rows = _found_rows(ready, found, inverse, writer)
        plans, workloads = [], [_looked_for(ready, one) for one in workloads]
    return PlanResult(
        model=ready.setting.model.name,
        plans=plans,
        workloads=workloads,
        find=ready.asked.find,
        found=found_rows,
        gpus=list(ready.prices.values()),
        unpriced=ready.unpriced,
        partial=partial,
    )


def _asked_load(ready: Prepared) -> dict[str, object]:
    """What is sent and promised; what is looked for is not asked."""
    load, goal = ready.asked.demand.load.inputs, ready.setting.demands[0].goal
    sought = {RATE: "rate", USERS: "concurrency", CONTEXT: "prompt"}.get(ready.asked.find or "")
    promised = {f"{name}_limit_seconds": getattr(goal, f"{name}_seconds") for name in ("ttft", "tpot", "itl")}
    return {**load, **({} if sought is None else {sought: None}), **promised, "percentile": goal.percentile}


def inputs_of(ready: Prepared) -> dict[str, object]:
    """What is asked, as `inputs` repeats it."""
    asked, deployed = ready.asked, ready.asked.deployed
    choices = asked.choices
    return {
        "model": deployed.model,
        "gpus": sorted(ready.setting.matches) if asked.gpus.gpu is not None else None,
        "gpu_price": list(asked.gpus.gpu_price) or None,
        "provider": asked.gpus.provider,
        "max_gpus": ready.limits.gpus,
        "max_cost": None if ready.limits.cost == inf else ready.limits.cost,
        "top": ready.limits.kinds,
        "budget_seconds": asked.limits.seconds,
        "tp": choices.tp,
        "pp": choices.pp,
        "ep": choices.ep,
        "engine": choices.engine,
        "weights": choices.weights,
        "kv": choices.kv,
        "policy": choices.policy,
        "network_bytes_per_second": ready.setting.case.network,
        "engine_flags": ready.setting.case.flags.given,
        "workloads": asked.workloads,
        **({} if asked.workloads else _asked_load(ready)),
        "deadline": asked.demand.deadline,
        "find": asked.find,
        "gpus_there": asked.gpus_there if asked.find is not None else None,
        "efficiency": deployed.efficiency,
        **deployed.lookup.asked,
    }
