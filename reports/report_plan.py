"""The section of `report` on what else would serve the load, and what that costs: the cheapest deployments of `plan`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.reports.document import Section, plain
from roofcast.reports.plan import plan_document
from roofcast.reports.plan_tables import plan_table
from roofcast.reports.plan_words import answer_words, told_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.planning.rows import PlanResult
    from roofcast.reports.document import Document

KEY: Final = "plan"
TITLE: Final = "The cheapest that would do"
MOST: Final = 8  # deployments of a workload in the table


def plan_section(result: PlanResult, inputs: Mapping[str, Any], said: Remarks) -> Section | None:
    """A short `plan`: a table of some deployments, the chart, why nothing cheaper will do; None where nothing was weighed."""
    part = plan_part(result, inputs, said)
    return None if part is None else Section(KEY, TITLE, f"{plan_lead(result)}.", part)


def plan_part(result: PlanResult, inputs: Mapping[str, Any], said: Remarks) -> Document | None:
    """The document of that section."""
    if not result.plans or not result.workloads:
        return None
    whole = plan_document(result, inputs, said)
    told = [line for workload in result.workloads for line in told_lines(result, workload)]
    return replace(
        whole,
        lines=tuple(map(plain, told)),
        tables=tuple(plan_table(result, workload, MOST) for workload in result.workloads),
        sections=(),
        keys=(),
    )


def plan_lead(result: PlanResult) -> str:
    """What it comes to, of each workload: what is asked, and the cheapest deployment that does it."""
    said = [f"{workload.load}: {answer_words(result, workload)}" for workload in result.workloads]
    text = plain("; ".join(said))
    return text[:1].upper() + text[1:]
