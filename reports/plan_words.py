"""What `plan` says in sentences: the cheapest deployment, why nothing cheaper will do, headroom, twice the load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.estimate import Layout
from roofcast.calculators.planning.rows import LIMITS
from roofcast.hwdb.units import show_percent, show_si
from roofcast.reports.deployed import layout_words
from roofcast.reports.document import listed
from roofcast.reports.dollars import money
from roofcast.reports.numbers import NOTHING, count, figures, ratio
from roofcast.reports.simulate import promise_words

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.planning.rows import (
        Doubled,
        FoundRow,
        Headroom,
        PlanDeployment,
        PlanResult,
        PlanRow,
        WorkloadRow,
    )

#: a limit -> its name in a table and in a chart, where that is another
SHORT: Final[Mapping[str, str]] = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL"}
#: what is looked for -> what the best of it is called, and how its value is written
FOUND: Final[Mapping[str, tuple[str, Callable[[float], str]]]] = {
    "rate": ("most requests a second", figures),
    "users": ("most users at once", lambda value: count(round(value))),
    "context": ("longest prompt", lambda value: f"{count(round(value))} tokens"),
    "gpu": ("smallest GPU", lambda value: show_si(value, "B", 3)),
}
SHARES: Final[Mapping[str, str]] = {"TTFT": "ttft_share", "TPOT": "tpot_share", "ITL": "itl_share"}
STILL: Final[Mapping[bool | None, str]] = {
    True: "it still keeps what is promised",
    False: "it no longer keeps what is promised",
    None: "too close to say whether it keeps what is promised",
}
CLOCKS: Final = ((172800.0, "days", 86400.0), (7200.0, "h", 3600.0), (300.0, "min", 60.0), (0.0, "s", 1.0))


def gpus_words(deployment: PlanDeployment) -> str:
    """The devices."""
    return deployment.gpu if deployment.count == 1 else f"{count(deployment.count)} x {deployment.gpu}"


def shape_words(deployment: PlanDeployment) -> str:
    """How devices share the work, in a few letters; empty of one.

    >>> from roofcast.calculators.planning.rows import PlanDeployment
    >>> one = PlanDeployment(
    ...     gpu="l40s", count=4, tp=2, pp=1, ep=1, dp=2, engine="vllm", weights=None, kv="fp8", policy="chunked"
    ... )
    >>> shape_words(one), shape_words(replace(one, count=10, dp=1, prefill_replicas=2, decode_replicas=3))
    ('tp2 dp2', 'tp2 2+3')
    """
    parts = (("tp", deployment.tp), ("pp", deployment.pp), ("ep", deployment.ep), ("dp", deployment.dp))
    words = [f"{name}{number}" for name, number in parts if number > 1]
    if deployment.prefill_replicas is not None and deployment.decode_replicas is not None:
        words.append(f"{deployment.prefill_replicas}+{deployment.decode_replicas}")
    return " ".join(words)


def deployment_words(deployment: PlanDeployment, *, formats: bool = True) -> str:
    """A deployment in words.

    >>> from roofcast.calculators.planning.rows import PlanDeployment
    >>> one = PlanDeployment(
    ...     gpu="l40s", count=4, tp=2, pp=1, ep=1, dp=2, engine="vllm", weights=None, kv="fp8", policy="chunked"
    ... )
    >>> deployment_words(one)
    '4 x l40s, tensor parallel 2, 2 replicas, vllm, weights as stored, KV cache fp8, chunked'
    """
    one = deployment
    shared = layout_words(Layout(one.count, one.tp, one.pp, one.ep, one.dp))
    apart = ""
    if one.prefill_replicas is not None and one.decode_replicas is not None:
        apart = f"{_replicas(one.prefill_replicas)} for prompts and {count(one.decode_replicas)} for decode"
    how = (
        [engine_words(one.engine), f"weights {one.weights or 'as stored'}", f"KV cache {one.kv}", one.policy]
        if formats
        else []
    )
    return ", ".join(part for part in (gpus_words(one), shared, apart, *how) if part)


def engine_words(engine: str) -> str:
    """An engine, or that none is named.

    >>> engine_words("vllm"), engine_words("none")
    ('vllm', 'no engine')
    """
    return "no engine" if engine == "none" else engine


def cost_words(row: PlanRow) -> str:
    """What it costs; empty where no price is known."""
    parts = [] if row.cost_per_hour is None else [f"{money(row.cost_per_hour)} an hour"]
    if row.cost_per_million_tokens is not None:
        parts.append(f"{money(row.cost_per_million_tokens)} a million output tokens")
    return ", ".join(parts)


def limit_name(limit: str | None) -> str:
    """The name of a limit.

    >>> limit_name("ttft"), limit_name("memory"), limit_name(None)
    ('TTFT', 'memory', '-')
    """
    return NOTHING if limit is None else SHORT.get(limit, limit)


def answer_words(result: PlanResult, workload: WorkloadRow) -> str:
    """The cheapest deployment of a workload, or that there is none."""
    far = " so far" if result.partial else ""
    if workload.best is None:
        return f"nothing meets it{far}"
    row = result.plans[workload.best]
    cost = cost_words(row)
    return f"cheapest{far}: {deployment_words(row.deployment)}{': ' if cost else ''}{cost}"


def found_words(result: PlanResult) -> str:
    """The best of what is looked for."""
    name, shown = FOUND.get(result.find or "", (str(result.find), figures))
    best = _best_found(result)
    far = " so far" if result.partial else ""
    if best is None or best.value is None:
        return f"{name}{far}: none will do"
    cost = "" if best.cost_per_hour is None else f": {money(best.cost_per_hour)} an hour"
    return f"{name}{far}: {shown(best.value)} on {deployment_words(best.deployment)}{cost}"


def asked_lines(workload: WorkloadRow) -> list[str]:
    """What is sent, and what is promised."""
    promise = promised_words(workload) or "none, but that requests are answered as fast as they come"
    return [f"load: {workload.load}", f"promise: {promise}"]


def promised_words(workload: WorkloadRow) -> str:
    """What is promised, of a job that it is done in time; empty where nothing is."""
    job = "" if workload.job_seconds is None else f"all of it is done within {span_words(workload.job_seconds)}"
    return "; ".join(filter(None, (job, promise_words(workload.goal))))


def told_lines(result: PlanResult, workload: WorkloadRow) -> list[str]:
    """Everything that is to be said of a workload beside its answer and what was asked."""
    return [
        *([_looked_at(result, workload)] if workload.considered else []),
        *_job_line(workload),
        *_why_lines(result, workload),
        *([_headroom_line(workload.headroom)] if workload.headroom else []),
        *([_doubled_line(workload.doubled, best_of(result, workload))] if workload.doubled else []),
        *_missed_lines(result, workload),
        *_again(result, workload),
    ]


def why_words(row: PlanRow) -> str:
    """Why a deployment will not do."""
    why = row.reason or LIMITS.get(row.limit or "", "") or "too close to say"
    return why.rstrip(".")


def best_of(result: PlanResult, workload: WorkloadRow) -> PlanRow | None:
    """The cheapest plan that meets a workload."""
    return None if workload.best is None else result.plans[workload.best]


def _best_found(result: PlanResult) -> FoundRow | None:
    return next((row for row in result.found if row.best), None) or next(iter(result.found), None)


def _replicas(number: int) -> str:
    return f"{count(number)} replica{'s' if number != 1 else ''}"


def _looked_at(result: PlanResult, workload: WorkloadRow) -> str:
    """How many deployments were considered, and what became of them."""
    gpus = len(result.gpus)
    on = f" on {count(gpus)} GPU type{'s' if gpus != 1 else ''}" if gpus else ""
    rest = workload.considered - workload.refused - workload.weighed
    why = "cost more" if workload.best is not None else "are passed over"
    costly = f"; {count(rest)} {why} by their roofline alone" if rest > 0 else ""
    return (
        f"looked at: {count(workload.considered)} deployments{on}: {count(workload.refused)} ruled out, "
        f"{count(workload.weighed)} weighed by the closed form, {count(workload.simulated)} simulated{costly}"
    )


def _job_line(workload: WorkloadRow) -> list[str]:
    """What a job costs."""
    if workload.job_seconds is None:
        return []
    cost = "" if workload.job_cost is None else f", which cost {money(workload.job_cost)}"
    return [f"job: done within {span_words(workload.job_seconds)}{cost}"] if workload.best is not None else []


def span_words(seconds: float) -> str:
    """A span as people say it.

    >>> span_words(28800), span_words(90), span_words(345600)
    ('8 h', '90 s', '4 days')
    """
    return next(f"{seconds / each:.3g} {unit}" for least, unit, each in CLOCKS if seconds >= least)


def _why_lines(result: PlanResult, workload: WorkloadRow) -> list[str]:
    """Why the next cheaper one will not do."""
    if workload.best is None:
        return []
    if workload.next_cheaper is None:
        cheapest = result.plans[workload.best].cost_per_hour
        than = "" if cheapest is None else f" than {money(cheapest)} an hour"
        if result.partial:
            return [f"why not cheaper: what costs less{than} was not looked at"]
        return [f"why not cheaper: nothing that can run it costs less{than}"]
    return [f"why not cheaper: {_failing_words(result.plans[workload.next_cheaper])}"]


def _failing_words(row: PlanRow) -> str:
    """A deployment that will not do: itself, its cost, and why."""
    cost = "" if row.cost_per_hour is None else f" at {money(row.cost_per_hour)} an hour"
    return f"{deployment_words(row.deployment)}{cost}: {why_words(row)}"


def _headroom_line(headroom: Headroom) -> str:
    """How much more it takes, and how near its limits it is."""
    shares = [
        f"{name} is at {show_percent(share, 0)} of its limit"
        for name, key in SHARES.items()
        if (share := getattr(headroom, key)) is not None
    ]
    said = headroom_words(headroom)
    limit = "" if headroom.limit is None else f"; the first limit beyond is {limit_name(headroom.limit)}"
    return f"headroom: {said}{limit}{'; ' if shares else ''}{', '.join(shares)}"


def headroom_words(headroom: Headroom) -> str:
    """The load that it takes, over the one asked.

    >>> from roofcast.calculators.planning.rows import Headroom
    >>> headroom_words(Headroom(
    ...     load_factor=1.6, requests_per_second=6.4, concurrency=None, limit="tpot", ttft_share=None, tpot_share=0.9,
    ...     itl_share=None,
    ... ))
    'up to 1.60 times the load, 6.40 requests/s'
    """
    if headroom.load_factor is None:
        return "any load that was tried keeps it"
    many = headroom.concurrency
    load = (
        f", {figures(headroom.requests_per_second)} requests/s"
        if headroom.requests_per_second is not None
        else ""
        if many is None
        else f", {count(many)} client{'s' if many != 1 else ''}"
    )
    return f"up to {ratio(headroom.load_factor)} times the load{load}"


def _doubled_line(doubled: Doubled, best: PlanRow | None) -> str:
    """What changes at twice the load."""
    limit = f" (first limit: {limit_name(doubled.limit)})" if doubled.limit is not None else ""
    return f"at twice the load: {STILL[doubled.still_met]}{limit}; {_there(doubled, best)}"


def _there(doubled: Doubled, best: PlanRow | None) -> str:
    """The cheapest deployment at twice the load."""
    if doubled.plan is None:
        return f"nothing keeps it there{'' if doubled.reason is None else f': {doubled.reason}'}"
    if best is not None and _same(doubled.plan.deployment, best.deployment):
        return "the same deployment is the cheapest"
    cost, factor = cost_words(doubled.plan), ratio(doubled.cost_factor)
    times = "" if doubled.cost_factor is None else f", {factor} times the cost"
    said = deployment_words(doubled.plan.deployment)
    return f"cheapest there: {said}{': ' if cost else ''}{cost}{times}"


def _same(one: PlanDeployment, other: PlanDeployment) -> bool:
    """Whether both are alike but for the command that tries them."""
    return replace(one, command="") == replace(other, command="")


def _missed_lines(result: PlanResult, workload: WorkloadRow) -> list[str]:
    """The nearest miss, and what would make it feasible."""
    if workload.best is not None:
        return []
    nearest = workload.nearest
    lines = [] if nearest is None else [f"nearest miss: {_failing_words(result.plans[nearest])}"]
    asked = [f"it would with {one.says.rstrip('.')}" for one in workload.relaxed]
    return [*lines, *asked]


def _again(result: PlanResult, workload: WorkloadRow) -> list[str]:
    """The command that tries the best one once more."""
    best = best_of(result, workload)
    return [f"try it: {best.deployment.command}"] if best and best.deployment.command else []


def heading(result: PlanResult) -> str:
    """The first line: the model, and what it comes to."""
    if result.find is not None:
        return f"{result.model}: {found_words(result)}"
    if len(result.workloads) == 1:
        return f"{result.model}: {answer_words(result, result.workloads[0])}"
    met = sum(workload.best is not None for workload in result.workloads)
    return f"{result.model}: {count(met)} of {count(len(result.workloads))} workloads can be met"


def named(names: list[str], most: int) -> str:
    """Some names, and how many more there are.

    >>> named(["a", "b", "c", "d"], 2), named(["a", "b"], 2)
    ('a, b and 2 more', 'a and b')
    """
    if len(names) <= most:
        return listed(names)
    return f"{', '.join(names[:most])} and {count(len(names) - most)} more"
