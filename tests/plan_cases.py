"""Answers of `plan` by hand, for tests of how they look: prices and times are plausible, and claim nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from roofcast.calculators.planning.rows import (
    CLOSED_FORM,
    SIMULATED,
    Doubled,
    FoundRow,
    Headroom,
    PlanDeployment,
    PlanResult,
    PlanRow,
    PricedGpu,
    Relaxed,
    WorkloadRow,
)
from roofcast.calculators.serving.result import Goal

LONG: Final = "organisation/" + "a-very-long-name-" * 6
ODD: Final = "$x_1$ <b>&amp;\u6a21\u578b\x1b[31m\n%s"
CHAT: Final = "chat"
#: GPU -> dollars an hour, who asks them
PRICES: Final = {
    "rtx-4090": (0.35, "vast.ai"),
    "l4": (0.44, "runpod"),
    "a10": (0.55, "runpod"),
    "l40s": (0.79, "runpod"),
    "a100-80gb-sxm": (1.39, "runpod"),
    "h100-sxm": (2.49, "lambda"),
    "h200-sxm": (3.29, "lambda"),
    "mi300x": (1.99, "vast.ai"),
    "b200": (4.99, "lambda"),
}
AS_OF: Final = {"vast.ai": "2026-11-20", "runpod": "2026-11-21", "lambda": "2026-11-18"}
RATE: Final = 4 * 128.0  # output tokens a second of four requests of 128


def deployment(gpu: str, count: int = 1, **more: Any) -> PlanDeployment:
    """Return a deployment whose GPUs share every layer, but for what is said."""
    usual: dict[str, Any] = {
        "tp": count,
        "pp": 1,
        "ep": 1,
        "dp": 1,
        "engine": "vllm",
        "weights": None,
        "kv": "bf16",
        "policy": "chunked",
        "command": f"roofcast simulate llama-3.1-8b --gpu {gpu} --gpus {count} --tp {count} --engine vllm --rate 4",
    }
    return PlanDeployment(gpu=gpu, count=count, **{**usual, **more})


def row(one: PlanDeployment, ttft: float | None, tpot: float | None, **more: Any) -> PlanRow:
    """Return a deployment that meets what is promised, unless a limit is said; its price is the one above."""
    price, source = PRICES.get(one.gpu, (1.0, "runpod"))
    usual: dict[str, Any] = {
        "workload": CHAT,
        "meets_slo": "limit" not in more,
        "basis": SIMULATED,
        "itl_seconds": None if tpot is None else tpot * 3,
        "e2e_seconds": None if ttft is None or tpot is None else ttft + 127 * tpot,
        "tokens_per_second": None if ttft is None else RATE,
        "requests_per_second": None if ttft is None else 4.0,
        "kept_share": 1.0,
        "kv_utilisation": 0.21,
        "price_per_gpu_hour": price,
        "price_source": source,
        "price_as_of": AS_OF[source],
        "cost_per_hour": price * one.count,
        "cost_per_million_tokens": None if ttft is None else price * one.count / (3600 * RATE) * 1e6,
        "limit": None,
        "reason": None,
        "trials": 3,
    }
    return PlanRow(deployment=one, ttft_seconds=ttft, tpot_seconds=tpot, **{**usual, **more})


def workload(name: str = CHAT, **more: Any) -> WorkloadRow:
    """Return a workload of four requests a second that nothing meets, unless a best one is said."""
    usual: dict[str, Any] = {
        "load": "1,000 requests, 4 requests/s, Poisson, 1024 in, 128 out",
        "requests_per_second": 4.0,
        "concurrency": None,
        "prompt_tokens": 1024.0,
        "output_tokens": 128.0,
        "longest_request": 1152,
        "goal": Goal(0.5, 0.05, None, 99.0),
        "best": None,
        "next_cheaper": None,
        "headroom": None,
        "doubled": None,
        "nearest": None,
        "relaxed": [],
        "considered": 5184,
        "refused": 1310,
        "weighed": 962,
        "simulated": 17,
    }
    return WorkloadRow(name=name, **{**usual, **more})


def priced(*gpus: str) -> list[PricedGpu]:
    """Return GPUs at the prices above."""
    found = []
    for gpu in gpus or PRICES:
        price, source = PRICES.get(gpu, (1.0, "runpod"))
        url = f"https://{source}/pricing"
        found.append(PricedGpu(gpu=gpu, price_per_gpu_hour=price, source=source, as_of=AS_OF[source], url=url))
    return found


SLOW: Final = "TTFT at the 99th percentile is 1,310 ms, of 500 ms"
SLOWER: Final = "TPOT at the 99th percentile is 71.2 ms, of 50 ms"
LOST: Final = "4 requests come a second, and 2.9 are answered"
HEADROOM: Final = Headroom(
    load_factor=1.62, requests_per_second=6.48, concurrency=None, limit="tpot", ttft_share=0.83, tpot_share=0.91,
    itl_share=None,
)  # fmt: skip


def usual() -> PlanResult:
    """Return one workload, met by several: two cheaper ones do not."""
    plans = [
        row(deployment("rtx-4090"), 1.31, 0.029, limit="ttft", reason=SLOW, kept_share=0.71),
        row(deployment("l4", kv="fp8", weights="fp8"), None, 0.0712, limit="tpot", reason=SLOWER, basis=CLOSED_FORM),
        row(deployment("l40s"), 0.415, 0.0455, pareto=True),
        row(deployment("rtx-4090", 3, tp=1, dp=3), 0.31, 0.027, pareto=True),
        row(deployment("a10", 2), 0.48, 0.048),
        row(deployment("a100-80gb-sxm"), 0.171, 0.0171, pareto=True),
        row(deployment("mi300x", engine="sglang"), 0.120, 0.0098, pareto=True),
        row(deployment("h100-sxm", weights="fp8"), 0.065, 0.0085, pareto=True),
        row(deployment("h100-sxm", 3, tp=1, prefill_replicas=1, decode_replicas=2, policy="disaggregated"), 0.06, 0.0079),
    ]  # fmt: skip
    best = workload(
        best=2,
        next_cheaper=1,
        headroom=HEADROOM,
        doubled=Doubled(
            still_met=False, limit="tpot", plan=row(deployment("rtx-4090", 3, tp=1, dp=3), 0.4, 0.03), cost_factor=1.33
        ),
    )
    return PlanResult(model="llama-3.1-8b", plans=plans, workloads=[best], find=None, found=[], gpus=priced())


def failing() -> PlanResult:
    """Return one workload that nothing meets."""
    plans = [
        replace(one, meets_slo=False, pareto=False, limit=one.limit or "tpot", reason=one.reason or SLOWER)
        for one in usual().plans[:6]
    ]
    relaxed = [
        Relaxed(option="--ttft", value="1.4s", says="--ttft 1.4s: 1 x rtx-4090, $0.35 an hour"),
        Relaxed(option="--rate", value="2.1", says="--rate 2.1: 1 x l40s, $0.79 an hour"),
    ]
    missed = workload(nearest=2, relaxed=relaxed)
    return replace(usual(), plans=plans, workloads=[missed], unpriced=[f"gpu-{number}" for number in range(31)])


def several() -> PlanResult:
    """Return three workloads, of which two are met."""
    base = usual()
    night = [replace(one, workload="night batch") for one in base.plans[2:5]]
    never = [replace(one, workload=LONG) for one in failing().plans[:3]]
    first, at = base.workloads[0], len(base.plans)
    goal = Goal(None, None, None, 99.0)
    job = workload(
        "night batch", best=at, goal=goal, job_seconds=28800.0, job_cost=6.32, load="20,000 requests at once"
    )
    return replace(
        base,
        plans=[*base.plans, *night, *never],
        workloads=[first, job, workload(LONG, nearest=at + 3, load="4 requests/s, 8192 in, 1024 out")],
    )


def many(number: int = 34) -> PlanResult:
    """Return so many deployments of one workload, whose times fall as their costs rise; the cheapest third fails."""
    gpus, fails = list(PRICES), number // 3
    plans = []
    for place in range(number):
        gpu, times = gpus[place % len(gpus)], 1.4 * 0.93**place
        more = {"limit": "ttft", "reason": SLOW} if place < fails else {"pareto": place % 4 == 0}
        cost = 0.3 * 1.11**place
        plans.append(
            row(
                deployment(gpu, 1 + place % 8, weights=("fp8", "int4", None)[place % 3], kv=("bf16", "fp8")[place % 2]),
                times, times / 13, cost_per_hour=cost, cost_per_million_tokens=cost / (3600 * RATE) * 1e6, **more,
            )
        )  # fmt: skip
    return replace(usual(), plans=plans, workloads=[workload(best=fails, next_cheaper=fails - 1, headroom=HEADROOM)])


def equal() -> PlanResult:
    """Return deployments that cost and take the same."""
    one = row(deployment("l40s"), 0.415, 0.0455)
    plans = [
        replace(one, deployment=deployment("l40s", kv=kv, weights=weights))
        for kv in ("bf16", "fp8")
        for weights in ("fp8", "int4", None)
    ]
    return replace(usual(), plans=plans, workloads=[workload(best=0)])


def found(find: str, values: dict[str, float | None], **more: Any) -> PlanResult:
    """Return what was looked for on each GPU, the best first."""
    ranked = sorted(values.items(), key=lambda pair: (pair[1] or 0.0) * (1 if find == "gpu" else -1))
    rows = [
        FoundRow(
            workload=CHAT,
            deployment=deployment(gpu),
            value=value,
            limit=None if place == 1 else "tpot" if value else "ttft",
            reason=None if value else "one request alone takes 1.40 s to its first token, of 500 ms",
            ttft_seconds=0.41 if value else None,
            tpot_seconds=0.049 if value else None,
            cost_per_hour=PRICES.get(gpu, (1.0, ""))[0],
            best=place == 0,
        )
        for place, (gpu, value) in enumerate(ranked)
    ]
    return replace(usual(), plans=[], workloads=[workload()], find=find, found=rows, gpus=priced(*values), **more)


RATES: Final = {"h100-sxm": 21.4, "mi300x": 17.2, "l40s": 6.48, "rtx-4090": 2.9, "l4": None}
_BASE: Final = usual()
RESULTS: Final = {
    "usual": _BASE,
    "one": replace(_BASE, plans=_BASE.plans[2:3], workloads=[workload(best=0)]),
    "none": replace(_BASE, plans=[], workloads=[workload()]),
    "failing": failing(),
    "partial": replace(_BASE, partial=True),
    "several": several(),
    "many": many(),
    "equal": equal(),
    "one-token": replace(
        _BASE,
        plans=[replace(one, tpot_seconds=None, itl_seconds=None) for one in _BASE.plans],
        workloads=[replace(_BASE.workloads[0], goal=Goal(0.5), output_tokens=1.0)],
    ),
    "gaps": replace(_BASE, workloads=[replace(_BASE.workloads[0], goal=Goal(None, None, 0.15, 99.9))]),
    "no-promise": replace(_BASE, workloads=[replace(_BASE.workloads[0], goal=Goal())]),
    "unpriced": replace(
        _BASE,
        plans=[replace(one, cost_per_hour=None, cost_per_million_tokens=None) for one in _BASE.plans],
    ),
    "long-name": replace(
        _BASE,
        model=LONG,
        plans=[replace(one, deployment=replace(one.deployment, gpu=LONG)) for one in _BASE.plans],
        gpus=priced(LONG),
    ),
    "odd-name": replace(
        _BASE, model=ODD, plans=[replace(one, deployment=replace(one.deployment, gpu=ODD)) for one in _BASE.plans]
    ),
    "rate": found("rate", RATES),
    "users": found("users", {name: value and round(value * 9) for name, value in RATES.items()}),
    "context": found("context", {"h200-sxm": 131072.0, "h100-sxm": 90112.0, "l40s": 16384.0}),
    "gpu": found("gpu", {"l4": 24e9, "a10": 24e9, "l40s": 48e9, "h100-sxm": 80e9}),
    "found-none": found("rate", {"l4": None, "a10": None}),
}
