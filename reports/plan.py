"""`plan` as a document: the cheapest deployment, why nothing cheaper will do, headroom, and all that were tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.planning.rows import CLOSED_FORM
from roofcast.reports.charts import Chart
from roofcast.reports.data import as_data
from roofcast.reports.document import Document, Key, Section, plain
from roofcast.reports.dollars import money
from roofcast.reports.numbers import count, figures, millis, ratio
from roofcast.reports.plan_tables import found_table, found_why, plan_table, price_notes, workloads_table
from roofcast.reports.plan_words import (
    FOUND,
    answer_words,
    asked_lines,
    gpus_words,
    heading,
    headroom_words,
    told_lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from roofcast.calculators.planning.rows import PlanDeployment, PlanResult, PlanRow, WorkloadRow
    from roofcast.reports.document import Table

PARTIAL: Final = (
    "it was interrupted, or its budget was spent: what was not looked at may be cheaper, and these are the best so far"
)
FRONT: Final = "*: none that meets it is as good in cost, TTFT and TPOT, and better in one of them"
ABOUT: Final = "~: of the closed form; what cannot work by it is not simulated"
LIKELY: Final = "likely: kept in one trial with 3 % more load; what is marked best has all its trials"
CLOSE: Final = "close: some of the trials keep what is promised, and some do not"
#: letters of a layout -> whether a deployment has them, and what they mean
SHAPES: Final[Mapping[str, tuple[Callable[[PlanDeployment], bool], str]]] = {
    "tp": (lambda one: one.tp > 1, "GPUs that share every layer"),
    "pp": (lambda one: one.pp > 1, "stages of layers"),
    "ep": (lambda one: one.ep > 1, "GPUs that share routed experts"),
    "dp": (lambda one: one.dp > 1, "replicas"),
    "1+2": (lambda one: one.prefill_replicas is not None, "one replica for prompts and two for decode"),
}


def plan_document(result: PlanResult, inputs: Mapping[str, Any], said: Remarks) -> Document:
    """The page of `plan`; several workloads have a section each."""
    apart = len(result.workloads) > 1 and result.find is None
    return Document(
        command="plan",
        inputs=inputs,
        result=result,
        records=plan_records(result),
        lines=tuple(map(plain, _lines(result))),
        tables=tuple(one for one in _tables(result, apart=apart) if one.rows),
        remarks=plan_notes(result) + said,
        charts=(plan_chart(result),),
        sections=tuple(_sections(result, inputs)) if apart else (),
        keys=_keys(result),
    )


def plan_chart(result: PlanResult) -> Chart:
    """Cost against time of all deployments, or what was found on each."""
    return Chart("plan", result, plan_says(result))


def plan_records(result: PlanResult) -> list[dict[str, Any]]:
    """Rows for CSV: what was found where something is looked for, else a row a deployment and workload."""
    return [{"model": result.model, **as_data(row)} for row in (result.found if result.find else result.plans)]


def plan_says(result: PlanResult) -> str:
    """The main numbers of the chart."""
    if result.find is not None:
        return f"{heading(result)}."
    said = [_says(result, workload) for workload in result.workloads]
    return f"{result.model}: {'; '.join(said)}."


def _says(result: PlanResult, workload: WorkloadRow) -> str:
    """A workload in a sentence."""
    name = f"{workload.name}: " if len(result.workloads) > 1 else ""
    rows = [row for row in result.plans if row.workload == workload.name]
    met = sum(row.meets_slo is True for row in rows)
    return f"{name}{answer_words(result, workload)}; {count(met)} of {count(len(rows))} deployments shown meet it"


def plan_notes(result: PlanResult) -> Remarks:
    """How tables are to be read, where prices are from, and that a search was broken off."""
    return remarks(
        warnings=[PARTIAL if result.partial else None],
        notes=[
            FRONT if any(row.pareto for row in result.plans) else None,
            _shapes(result),
            LIKELY if any(row.meets_slo and row.trials == 1 for row in result.plans) else None,
            CLOSE if any(row.meets_slo is None for row in result.plans) else None,
            ABOUT if any(row.basis == CLOSED_FORM and row.tpot_seconds is not None for row in result.plans) else None,
            *found_why(result),
            *price_notes(result),
        ],
    )


def _shapes(result: PlanResult) -> str | None:
    """What letters of layouts mean, those that there are."""
    every = [*(row.deployment for row in result.plans), *(row.deployment for row in result.found)]
    said = [f"{name}: {words}" for name, (has, words) in SHAPES.items() if any(map(has, every))]
    return ", ".join(said) or None


def _lines(result: PlanResult) -> list[str]:
    if len(result.workloads) == 1:
        [workload] = result.workloads
        return [heading(result), *asked_lines(workload), *told_lines(result, workload)]
    asked = [(one, line) for one in result.workloads for line in asked_lines(one)] if result.find else []
    return [heading(result), *(f"{one.name}: {line}" for one, line in asked)]


def _tables(result: PlanResult, *, apart: bool) -> list[Table]:
    if apart:
        return [workloads_table(result)]
    found = [found_table(result)] if result.found else []
    return [*found, *(plan_table(result, workload) for workload in result.workloads)]


def _sections(result: PlanResult, inputs: Mapping[str, Any]) -> Iterator[Section]:
    """A section a workload, with its table and all that is to be said of it."""
    for number, workload in enumerate(result.workloads, 1):
        lead = plain(f"{answer_words(result, workload)}; {'; '.join(asked_lines(workload))}")
        table = plan_table(result, workload)
        part = Document(
            command="plan",
            inputs=inputs,
            result=workload,
            records=[],
            lines=tuple(map(plain, told_lines(result, workload))),
            tables=(table,) if table.rows else (),
        )
        yield Section(f"workload-{number}", plain(workload.name), lead, part)


def _keys(result: PlanResult) -> tuple[Key, ...]:
    """The numbers that matter most; of several workloads the cost of each."""
    if result.find is not None:
        return _found_keys(result)
    bests = [(one, result.plans[one.best]) for one in result.workloads if one.best is not None]
    if len(result.workloads) == 1:
        return tuple(key for best in bests for key in _own_keys(*best))
    return tuple(Key(one.name, f"{money(row.cost_per_hour)} an hour", gpus_words(row.deployment)) for one, row in bests)


def _found_keys(result: PlanResult) -> tuple[Key, ...]:
    best = next((row for row in result.found if row.best and row.value is not None), None)
    if best is None or best.value is None:
        return ()
    name, shown = FOUND.get(result.find or "", (str(result.find), figures))
    return (Key(name, shown(best.value), gpus_words(best.deployment)),)


def _own_keys(workload: WorkloadRow, row: PlanRow) -> tuple[Key, ...]:
    """Cost, times and headroom of the best deployment."""
    keys = [Key("an hour", money(row.cost_per_hour), gpus_words(row.deployment))]
    if row.cost_per_million_tokens is not None:
        keys.append(Key("a million output tokens", money(row.cost_per_million_tokens), "at the load that is asked"))
    of = f"for {workload.goal.percentile:g} of 100 requests"
    times = {"TTFT": row.ttft_seconds, "TPOT": row.tpot_seconds}
    keys += [Key(name, f"{millis(seconds)} ms", of) for name, seconds in times.items() if seconds is not None]
    if workload.headroom and workload.headroom.load_factor is not None:
        said = headroom_words(workload.headroom)
        keys.append(Key("headroom", f"{ratio(workload.headroom.load_factor)} x", said))
    return tuple(keys)
