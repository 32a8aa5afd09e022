"""What is to be said of a plan: assumptions of what is shown, and how far the search came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.calculators.answer import Remarks, remarks
from roofcast.cli.planning_bench import bench_for

if TYPE_CHECKING:
    from roofcast.calculators.planning.field import Candidate
    from roofcast.calculators.planning.rows import PlanResult
    from roofcast.cli.planning import Prepared


def said_of(ready: Prepared, result: PlanResult, best: list[tuple[int, Candidate]], stopped: str) -> Remarks:
    """Assumptions of the best deployments and of the search.

    Args:
        ready: the question.
        result: its answer.
        best: the best machine of each workload that has one.
        stopped: what ended the search early; empty where nothing did.
    """
    from roofcast.calculators.estimate import constants_remarks, ready_remarks

    bench, said = bench_for(ready.setting), Remarks()
    for number, one in best:
        service, of_service = bench.told(one.machine, number)
        said += of_service + ready_remarks(service.ready, ()) + constants_remarks(service.ready)
    shown = {row.deployment.weights for row in result.plans if row.meets_slo} - {None}
    quantised = sorted(map(str, shown))
    longest = {row.deployment.max_model_len for row in result.plans} - {None}
    setting = ready.setting
    return (
        said
        + ready.setups.said
        + remarks(
            [
                f"the model answers as well with weights in {' or '.join(quantised)}; --weights stored leaves others out"
                if quantised
                else None,
                "GPUs are rented one by one; a provider may let whole machines of 8 alone",
                f"engines are started for the longest request of the workload, --max-model-len {max(longest):,}"
                if longest and not setting.case.flags.max_model_len
                else None,
            ],
            warnings=[
                f"{stopped}: what was not looked at may be cheaper" if stopped else None,
                "nothing is promised: it is enough that requests are answered as fast as they come; give --ttft or --tpot"
                if any(not demand.goal.given for demand in setting.demands)
                else None,
            ],
        )
    )
