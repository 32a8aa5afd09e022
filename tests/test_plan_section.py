"""The section of `report` on plans."""

from __future__ import annotations

from dataclasses import replace

from roofcast.calculators.answer import Remarks
from roofcast.calculators.serving.result import Goal
from roofcast.reports.report_plan import plan_section
from tests.plan_cases import RESULTS, deployment, many, row, workload
from tests.test_plan_report import BASE, one, text_of


def test_the_section_of_a_report_is_short() -> None:
    """A table of at most eight with the best, the chart, and why nothing cheaper will do; none without plans."""
    section = plan_section(many(), {}, Remarks(("an assumption",)))

    assert section is not None
    assert section.lead.startswith("1,000 requests, 4 requests/s, Poisson, 1024 in, 128 out: cheapest: 4 x a10, ")
    [table] = section.document.tables
    assert len(table.rows) == 8
    assert "best" in {cells[3] for cells in table.rows}
    assert [line for line in section.document.lines if line.startswith("why not cheaper: ")]
    assert section.document.remarks.assumptions == ("an assumption",)
    assert [chart.kind for chart in section.document.charts] == ["plan"]
    assert plan_section(RESULTS["none"], {}, Remarks()) is None


def test_without_a_promise_there_is_none() -> None:
    """Nothing is invented."""
    assert "promise: none, but that" in text_of(one(goal=Goal()))


def test_a_row_without_a_reason_has_its_limit() -> None:
    """In words."""
    bare = row(deployment("l4"), 1.0, 0.02, limit="rate")
    result = replace(BASE, plans=[bare, BASE.plans[2]], workloads=[workload(best=1, next_cheaper=0)])

    assert "at $0.44 an hour: requests come faster than they are answered\n" in text_of(result)
