"""The answer of `plan`: deployments by what they cost, whether each meets what is promised, and why others do not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from roofcast.calculators.serving.result import Goal  # noqa: TC001 - schemas read annotations

#: what a deployment fails by, the first limit that is hit as the load rises -> in words
LIMITS: Final = {
    "memory": "weights and one request do not fit",
    "context": "requests are longer than the model, or the memory, takes",
    "ttft": "time to the first token",
    "tpot": "time per output token",
    "itl": "time between tokens",
    "rate": "requests come faster than they are answered",
    "count": "more GPUs than are allowed",
    "cost": "more than may be spent",
    "refused": "the engine or the device cannot run it",
}
SIMULATED: Final = "simulated"
CLOSED_FORM: Final = "closed form"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDeployment:
    """A deployment, as the options of `simulate` have it."""

    gpu: str
    """Id of the accelerator."""
    count: int
    """GPUs in all: tp x pp x dp; of pools tp x pp x (prefill + decode replicas)."""
    tp: int
    """GPUs that share every layer."""
    pp: int
    """Stages of layers."""
    ep: int
    """GPUs that share the routed experts; 1 is none."""
    dp: int
    """Replicas, each with its own requests; 1 of pools."""
    engine: str
    """Whose rules of memory and scheduling count."""
    weights: str | None
    """Format of the weights; null as stored."""
    kv: str
    """Format of the KV cache."""
    policy: str
    """How steps are put together, one of those of `simulate`."""
    prefill_replicas: int | None = None
    """Replicas that only read prompts, each of tp x pp GPUs; null where each does both."""
    decode_replicas: int | None = None
    """Replicas that only decode; null likewise."""
    max_model_len: int | None = None
    """Tokens of the longest request that the engine is started for; null without such a limit. [token]"""
    command: str = ""
    """The `simulate` command that tries it once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """A deployment under a workload."""

    workload: str
    """Which one."""
    deployment: PlanDeployment
    """What answers."""
    meets_slo: bool | None
    """Whether what is promised is kept; null where that is too close to say: some of the trials keep it, and some do not."""
    basis: str
    """simulated, or closed form: what cannot work however its steps are put together is not simulated."""
    ttft_seconds: float | None
    """Time to the first token at the percentile; null of a deployment that does not run. [s]"""
    tpot_seconds: float | None
    """Time per output token at the percentile; null of outputs of one token too. [s]"""
    itl_seconds: float | None
    """Time between two tokens at the percentile of all gaps; null likewise, and in the closed form. [s]"""
    e2e_seconds: float | None
    """From a request's coming to its last token at the percentile; null likewise. [s]"""
    tokens_per_second: float | None
    """Output tokens of all requests at the load that is asked. [token/s]"""
    requests_per_second: float | None
    """Requests that are answered. [1/s]"""
    kept_share: float | None
    """Share of requests that keep TTFT and TPOT, in the worst trial; null where nothing is promised or simulated. [-]"""
    kv_utilisation: float | None
    """Most of the cache that was taken, of the fullest replica. [-]"""
    price_per_gpu_hour: float | None
    """Rent of a GPU; null where no price is known. [USD/h]"""
    price_source: str | None
    """Who asks it; --gpu-price where it is given; null likewise."""
    price_as_of: str | None
    """Of when; null where it is given."""
    cost_per_hour: float | None
    """Rent of all GPUs: count x price; null likewise. [USD/h]"""
    cost_per_million_tokens: float | None
    """Of output tokens at the load that is asked: cost per hour / (3600 x tokens per second) x 10^6. [USD/Mtoken]"""
    limit: str | None
    """The first limit that is hit, of a deployment that does not meet it: memory, context, ttft, tpot, itl, rate, count,
    cost or refused; null of one that does."""
    reason: str | None
    """The same in a sentence with its numbers; null likewise."""
    trials: int = 0
    """Simulations behind it."""
    pareto: bool = False
    """Whether none that meets what is promised is at least as good in cost, TTFT and TPOT, and better in one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """What the best deployment can take beyond what is asked."""

    load_factor: float | None
    """The highest load that keeps what is promised, over the load that is asked; null where any load does. [-]"""
    requests_per_second: float | None
    """That load of an open loop, or of a trace in the mean; null of clients that wait. [1/s]"""
    concurrency: int | None
    """Likewise of clients that wait for their answers; null of an open loop."""
    limit: str | None
    """The limit that is hit first beyond it; null where none is."""
    ttft_share: float | None
    """TTFT at the percentile over its limit, at the load that is asked; null where none is promised. [-]"""
    tpot_share: float | None
    """TPOT likewise. [-]"""
    itl_share: float | None
    """Time between tokens likewise. [-]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubled:
    """What changes at twice the load."""

    still_met: bool | None
    """Whether the best deployment still keeps what is promised; null where that is too close to say."""
    limit: str | None
    """The limit that it hits there; null where it does not."""
    plan: PlanRow | None
    """The cheapest deployment there; null where there is none."""
    cost_factor: float | None
    """Its cost over that of the best one now; null where either is not known. [-]"""
    reason: str | None = None
    """Why there is none; null where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relaxed:
    """One thing that would make it feasible."""

    option: str
    """Which option of the command."""
    value: str
    """What it would have to be."""
    says: str
    """The same in a sentence: with what it is feasible on which deployment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """A workload, and what became of it."""

    name: str
    """As asked for, or what it is made of."""
    load: str
    """What is sent."""
    requests_per_second: float | None
    """Rate of an open loop, or of a trace in the mean; null of clients that wait. [1/s]"""
    concurrency: int | None
    """Clients that wait for their answers; null of an open loop."""
    prompt_tokens: float
    """Of a prompt in the mean. [token]"""
    output_tokens: float
    """Of an output in the mean. [token]"""
    longest_request: int
    """Prompt and output of the longest request. [token]"""
    goal: Goal
    """What is promised."""
    best: int | None
    """Number of the cheapest plan that meets it in `plans`; null where there is none."""
    next_cheaper: int | None
    """Number of the next cheaper one, which does not; null where nothing is cheaper."""
    headroom: Headroom | None
    """How much more the best one takes; null without one."""
    doubled: Doubled | None
    """What changes at twice the load; null without a best one, and where it is not asked."""
    nearest: int | None
    """Number of the nearest miss in `plans`, where nothing meets it; null else."""
    relaxed: list[Relaxed]
    """What would make it feasible, where nothing meets it."""
    considered: int
    """Deployments without their number of replicas: GPUs x layouts x engines x formats x policies."""
    refused: int
    """Of these the ones that the engine, the device or the model's shape rules out."""
    weighed: int
    """Of these the ones that the closed form was computed of; the rest costs more by its roofline alone."""
    simulated: int
    """Of these the ones that were simulated."""
    job_seconds: float | None = None
    """Of a job with a deadline: that time; null elsewhere. [s]"""
    job_cost: float | None = None
    """Of such a job on the best deployment: cost per hour x time; null likewise. [USD]"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRow:
    """The most of something that a machine does while it keeps what is promised."""

    workload: str
    """Which one, but for what is looked for."""
    deployment: PlanDeployment
    """On what."""
    value: float | None
    """The most: requests a second, clients, or tokens of a prompt; of `gpu` bytes of its memory; null where none will do."""
    limit: str | None
    """What is hit beyond; null where the most that is looked at will do."""
    reason: str | None
    """The same in a sentence."""
    ttft_seconds: float | None
    """At the percentile, with that. [s]"""
    tpot_seconds: float | None
    """Likewise. [s]"""
    cost_per_hour: float | None
    """Rent of all GPUs; null where no price is known. [USD/h]"""
    best: bool = False
    """Whether it is the best of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedGpu:
    """A GPU that was considered."""

    gpu: str
    """Id of the accelerator."""
    price_per_gpu_hour: float | None
    """Rent; null where none is known. [USD/h]"""
    source: str | None
    """Who asks it; --gpu-price where it is given."""
    as_of: str | None
    """Of when; null where it is given."""
    url: str | None = None
    """Where it was read."""
    note: str | None = None
    """What else is to be known of it: second hand, spot, a whole instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The result of `plan`."""

    model: str
    """Name as asked for."""
    plans: list[PlanRow]
    """Deployments, cheapest first within each workload: those that meet it, and cheaper ones that do not."""
    workloads: list[WorkloadRow]
    """What was asked, in its order."""
    find: str | None
    """rate, users, context or gpu, where the most of that is looked for; null else."""
    found: list[FoundRow]
    """What was found of it, the best first; empty where nothing is looked for."""
    gpus: list[PricedGpu]
    """GPUs that were considered, and their prices."""
    unpriced: list[str] = field(default_factory=list)
    """GPUs that were left out, since no price is known."""
    partial: bool = False
    """Whether it was interrupted, or ran out of its budget: what is not looked at may be cheaper."""
