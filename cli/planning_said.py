"""What is to be said of a plan: assumptions of what is shown, and how far the search came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.planning.sends import Recorded
from roofcast.calculators.planning.tasks import Pick
from roofcast.calculators.planning.weigh import weigh
from roofcast.calculators.serving.loads import enough
from roofcast.cli.planning_asked import DEFAULT_KV
from roofcast.cli.planning_bench import bench_of

if TYPE_CHECKING:
    from roofcast.calculators.planning.demand import Demand
    from roofcast.cli.planning_run import Answer


def said_of(answer: Answer) -> Remarks:
    """Assumptions of the best deployment of each workload, and of the search."""
    from roofcast.calculators.estimate import constants_remarks, ready_remarks

    ready, result = answer.ready, answer.result
    bench, said = bench_of(ready.setting), Remarks()  # a new one: whoever did the work, the same is said
    for number, machine in enumerate(answer.best):
        if machine is not None:
            service, of_service = bench.told(machine, Pick(number))
            weigh(service, bench.demand(Pick(number)))  # constants are known once they were used
            said += of_service + ready_remarks(service.ready, ()) + constants_remarks(service.ready)
    rows = [row.deployment for row in result.plans if row.meets_slo] + [row.deployment for row in result.found]
    kv = [part.strip() for part in (ready.asked.choices.kv or DEFAULT_KV).lower().split(",")]
    changed = [f"weights in {name}" for name in sorted({row.weights for row in rows if row.weights is not None})]
    changed += [f"a cache in {name}" for name in sorted({row.kv for row in rows}) if name in kv]
    longest = {row.max_model_len for row in rows if row.max_model_len is not None}
    setting = ready.setting
    return (
        said
        + ready.setups.said
        + remarks(
            [
                f"the model answers as well with {' or '.join(changed)}; --weights stored --kv auto leaves that out"
                if changed
                else None,
                "GPUs are rented one by one; a provider may let whole machines of 8 alone",
                f"engines are started for the longest request of the workload, --max-model-len {max(longest):,}"
                if longest and not setting.case.flags.max_model_len
                else None,
            ],
            warnings=[
                *(few for demand in setting.demands if (few := _few(demand))),
                "nothing is promised: it is enough that requests are answered as fast as they come; give --ttft or --tpot"
                if any(not demand.goal.given and demand.needed is None for demand in setting.demands)
                else None,
            ],
        )
    )


def _few(demand: Demand) -> str | None:
    """That so few requests are asked to be simulated that the service never fills."""
    rate, asked = demand.sends.rate, demand.sends.requests(1.0, demand.shape.output)
    if rate is None or asked is None or demand.needed is not None or isinstance(demand.sends, Recorded):
        return None
    wanted = enough(rate, demand.shape.output, 1)
    if asked * 2 >= wanted:
        return None
    return f"--requests {asked:,}: they come in {asked / rate:.3g} s, too short a time for the service to fill; {wanted:,} tell enough"
