"""What `report` says of other deployments: the cheapest ones that would do, on its own accelerator and those beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.cli.errors import exit_code

if TYPE_CHECKING:
    from roofcast.calculators.workload import Request
    from roofcast.cli.planning import AskedPlan
    from roofcast.cli.reporting import Setting
    from roofcast.reports.document import Document

PERCENTILE: Final = 90.0  # of requests that must keep the promise
SHARE: Final = 0.8  # of the requests a second that a deployment does, where no rate is asked [-]
DIGITS: Final = 3  # of that rate
KINDS: Final = 4  # of GPUs whose cheapest deployment is looked for
ALONE: Final = 1  # process: a report is one of many commands that a machine may run


def plan_part(setting: Setting, request: Request) -> Document | None:
    """As `plan`, of one request at the rate asked, or at what the deployment does; None without a rate and a promise.

    What makes a plan impossible leaves the part out, and the report says why.

    Raises:
        KeyboardInterrupt: the search was interrupted.
    """
    rate, note = rate_of(setting, request)
    if rate is None:
        _leave_out(setting, note)
        return None
    try:
        document = _planned(setting, asked_plan(setting, request, rate))
    except Exception as error:
        if exit_code(error) is None:
            raise
        _leave_out(setting, str(error))
        return None
    if document is None:
        _leave_out(setting, "none of these GPUs has a deployment that could be weighed")
        return None
    return replace(document, lines=(note, *document.lines)) if note else document


def rate_of(setting: Setting, request: Request) -> tuple[float | None, str]:
    """The rate of requests, and what is to be said of it. [1/s]

    Without --rate it is 80 % of 1 / request_times: what the deployment does at the verdict's load. There is none without a
    promise, and where nothing fits.
    """
    from roofcast.calculators.cost import Load, request_times
    from roofcast.calculators.report import Limits
    from roofcast.reports.numbers import count, figures

    asked, verdict = setting.asked.requests_per_second(), setting.verdict
    if asked is not None or verdict.limits == Limits():
        return asked, ""
    top = verdict.met or verdict.most
    if top is None:
        return None, "it does not fit here, so there is no load to ask of others; --rate R gives one"
    spent = request_times(setting.ready, Load(request, top.batch, setting.case.context))
    seconds = spent.get(verdict.basis)
    if not seconds:
        return None, f"{count(top.batch)} of these requests at once have no room here; --rate R gives a load"
    rate = float(f"{SHARE / seconds:.{DIGITS}g}")
    most = (
        f"{figures(1 / seconds)} requests/s that this deployment does with {count(top.batch)} at once, prompts and all"
    )
    return rate, f"--rate is not given: {figures(rate)} requests/s are {SHARE:.0%} of the {most}"


def asked_plan(setting: Setting, request: Request, rate: float) -> AskedPlan:
    """The question as `plan` would be asked it: the report's own GPU and those beside it, its engine, flags and formats."""
    from roofcast.cli.loading import AskedLoad
    from roofcast.cli.planning import AskedPlan
    from roofcast.cli.planning_asked import AUTO, STORED, AskedChoices, AskedGpus, AskedLimits
    from roofcast.cli.planning_demands import AskedDemand
    from roofcast.cli.simulating import AskedGoal

    asked, own = setting.asked, setting.case.gpu
    deployed, price = asked.deployed, asked.beside.gpu_price
    gpus = [own, *(other.id for other in setting.others)]
    percentile = None if asked.ttft is None and asked.tpot is None else PERCENTILE
    load = AskedLoad(rate=repr(rate), prompt=str(request.prompt), output=str(request.output))
    return AskedPlan(
        deployed,
        AskedGpus(",".join(gpus), () if price is None else (f"{own}={price}",)),
        AskedChoices(engine=deployed.machine.engine, weights=deployed.weights or STORED, kv=deployed.kv or AUTO),
        AskedLimits(top=KINDS),
        AskedDemand(load, AskedGoal(asked.ttft, asked.tpot, None, percentile)),
        jobs=ALONE,
        brief=True,
        model=setting.setups.model(setting.case),
    )


def _planned(setting: Setting, asked: AskedPlan) -> Document | None:
    """The answer as a part of the report; None where nothing was weighed."""
    from roofcast.cli.planning_run import INTERRUPTED, answered
    from roofcast.cli.planning_said import said_of
    from roofcast.reports.report_plan import plan_part

    answer = answered(asked)
    if answer.stopped == INTERRUPTED:
        raise KeyboardInterrupt
    return plan_part(answer.result, setting.inputs, said_of(answer))


def _leave_out(setting: Setting, why: str) -> None:
    """Notes why the part is not there, if that is not what was asked."""
    if why:
        setting.left_out.append(f"the cheapest deployment was not looked for: {why}")
