"""What is to be said of a plan: assumptions of what is shown, and how far the search came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.planning.sends import Recorded
from roofcast.calculators.planning.tasks import Pick
from roofcast.calculators.planning.weigh import weigh
from roofcast.calculators.serving.loads import enough
from roofcast.calculators.serving.simulate import step_spread_of
from roofcast.cli.planning_asked import DEFAULT_KV
from roofcast.cli.planning_bench import bench_of

UNNAMED: Final = (
    "no engine is named: each GPU is taken with the constants of its usual engine, vllm on NVIDIA, and others elsewhere, and "
    "nothing of a server is in it; --engine vllm holds all of them alike"
)
WHOLE: Final = 8  # GPUs of a whole machine

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
            said += _certainty(answer, number, step_spread_of(service))
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
                UNNAMED if "none" in ready.asked.choices.engine.lower().split(",") else None,
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


def _certainty(answer: Answer, number: int, spread: float | None) -> Remarks:
    """How well times of the best deployment are known, whether its promise hangs on that, and how it is let."""
    from math import exp

    from roofcast.reports.simulate import EIGHTY, step_words

    if answer.result.find is not None:
        return remarks(notes=[step_words(spread)])
    workload = answer.result.workloads[number]
    row = answer.result.plans[workload.best] if workload.best is not None else None
    head, said = workload.headroom, []
    if head is not None and spread is not None and head.tpot_share is not None:
        slow = head.tpot_share * exp(EIGHTY * spread)
        if slow > 1:
            said.append(
                f"{workload.name}: at the slow end of the 80 % of its steps TPOT would be {slow:.0%} of its limit: measure "
                "before you rent"
            )
    price = answer.ready.prices[row.deployment.gpu] if row is not None else None
    if row is not None and price is not None and "whole" in (price.note or "") and row.deployment.count < WHOLE:
        said.append(f"{workload.name}: {row.deployment.gpu} is not let one by one ({price.note})")
    return remarks(warnings=said, notes=[step_words(spread)])


def _few(demand: Demand) -> str | None:
    """That so few requests are asked to be simulated that the service never fills."""
    rate, asked = demand.sends.rate, demand.sends.requests(1.0, demand.shape.output)
    if rate is None or asked is None or demand.needed is not None or isinstance(demand.sends, Recorded):
        return None
    wanted = enough(rate, demand.shape.output, 1)
    if asked * 2 >= wanted:
        return None
    return f"--requests {asked:,}: they come in {asked / rate:.3g} s, too short a time for the service to fill; {wanted:,} tell enough"
