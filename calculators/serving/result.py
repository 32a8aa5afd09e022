"""The answer of `simulate`: how long requests waited, what the machine did meanwhile, and how full its cache was."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from roofcast.calculators.estimate import Layout  # noqa: TC001 - schemas read annotations
from roofcast.calculators.serving.trace_summary import TraceSummary  # noqa: TC001 - likewise

#: shares of requests at which `Spread.quantiles` are taken; closer at both ends
QUANTILES: Final = (
    0.0, 0.01, 0.02, 0.05, *(step / 20 for step in range(2, 19)), 0.95, 0.98, 0.99, 0.995, 0.999, 1.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Spread:
    """How a time is spread over requests."""

    mean: float
    """Mean. [s]"""
    p50: float
    """Median: half of them take at most that. [s]"""
    p90: float
    """90 of 100 take at most that. [s]"""
    p95: float
    """95 of 100. [s]"""
    p99: float
    """99 of 100. [s]"""
    max: float
    """The longest. [s]"""
    quantiles: list[float] = field(default_factory=list)
    """The least time that is enough for 0, 1, 2, 5, 10, 15 ... 90, 95, 98, 99, 99.5, 99.9 and 100 of 100 (`QUANTILES`). [s]"""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is promised; null is no promise."""

    ttft_seconds: float | None = None
    """Time to the first token at most. [s]"""
    tpot_seconds: float | None = None
    """Mean time per output token of a request at most. [s]"""
    itl_seconds: float | None = None
    """Time between two tokens at most, at the percentile of all gaps. [s]"""
    percentile: float = 99.0
    """Of requests, and of gaps, that must keep it."""

    @property
    def given(self) -> bool:
        """Whether anything is promised."""
        return (self.ttft_seconds, self.tpot_seconds, self.itl_seconds) != (None, None, None)


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of the promise."""

    goal: Goal
    """The promise."""
    met: bool
    """Whether it is kept at its percentile."""
    share: float
    """Share of the requests that keep its TTFT and TPOT. [-]"""


@dataclass(frozen=True, slots=True)
class Cache:
    """The memory for KV caches of one replica, over the time that it had work."""

    kind: str
    """paged, max, pow2 or oracle."""
    tokens: int | None
    """Tokens that it holds; null where layers keep windows or states alone, and a request has one place. [token]"""
    block_tokens: int | None
    """Of a block; null of contiguous reservations. [token]"""
    states: float | None
    """Share of it that holds tokens' states, in the mean; null where requests or their samples share blocks. [-]"""
    reserved: float
    """Share of it that is taken by running requests, in the mean. [-]"""
    peak: float
    """Most that was taken. [-]"""
    allocated_states: float | None
    """Of what is taken the share that holds tokens' states; null where nothing ever was, or blocks are shared. [-]"""
    places: int | None = None
    """Those places; null where it holds tokens."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """Prompt tokens that were in the cache already."""

    kind: str
    """blocks or radix."""
    hit_tokens: int
    """Tokens found. [token]"""
    hit_rate: float
    """Of all prompt tokens. [-]"""
    block_hit_rate: float
    """Of all blocks of prompts those that were found. [-]"""
    evicted_tokens: int
    """Tokens that made room for others. [token]"""


@dataclass(frozen=True, slots=True)
class Pool:
    """Replicas that do the same."""

    name: str
    """serving, prefill or decode."""
    replicas: int
    """How many."""
    gpus: int
    """Of all of them."""
    busy: float
    """Share of the makespan in which they work, in the mean. [-]"""
    running: float
    """Requests of a step, in the mean over the time in which they work. [-]"""
    steps: int
    """Steps of all of them."""
    preemptions: int
    """Requests that were set back for want of memory."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A stretch of the time series, all replicas together."""

    seconds: float
    """When it begins. [s]"""
    running: float
    """Requests in steps, in the mean. [-]"""
    waiting: float
    """Requests that wait, in the mean. [-]"""
    kv_utilisation: float
    """Share of the cache's memory that is taken, in the mean. [-]"""
    prompt_tokens_per_second: float
    """Prompt tokens that were computed. [token/s]"""
    output_tokens_per_second: float
    """Tokens that were made. [token/s]"""
    length_seconds: float
    """How long it is. [s]"""


@dataclass(frozen=True, slots=True)
class SimulateResult:
    """The result of `simulate`."""

    model: str
    """Name as asked for."""
    gpu: str
    """Id of the accelerator."""
    layout: Layout
    """How the devices share the model, of a pool's replicas."""
    engine: str
    """Whose scheduling it is."""
    policy: str
    """How steps are put together."""
    max_num_seqs: int
    """Requests of a step at most."""
    max_num_batched_tokens: int
    """Tokens of a step at most."""
    load: str
    """What was sent."""
    fits: bool
    """Whether the weights, and a cache, fit."""
    reason: str | None
    """Why not; null where they do."""
    requests: int
    """Requests that came."""
    completed: int
    """Requests that were answered to the end."""
    rejected: int
    """Requests that are longer than the server takes, and were refused."""
    cut: int
    """Requests that were answered up to the server's longest length and no further."""
    makespan_seconds: float | None
    """From the first arrival to the last answer. [s]"""
    ttft_seconds: Spread | None
    """Time to the first token, waiting included. [s]"""
    tpot_seconds: Spread | None
    """Time per output token after the first, each request's mean; of those of two tokens or more. [s]"""
    itl_seconds: Spread | None
    """Time between two tokens, over all gaps. [s]"""
    e2e_seconds: Spread | None
    """From arrival to the last token. [s]"""
    queue_seconds: Spread | None
    """From arrival to the first step that takes the request. [s]"""
    requests_per_second: float | None
    """Completed over the makespan. [1/s]"""
    prompt_tokens_per_second: float | None
    """Prompt tokens of completed requests over the makespan. [token/s]"""
    output_tokens_per_second: float | None
    """Tokens made over the makespan. [token/s]"""
    goodput_requests_per_second: float | None
    """Completed requests that keep the promise over the makespan; all of them where nothing is promised. [1/s]"""
    kept: Kept | None
    """What became of the promise; null without one."""
    kv_utilisation: float | None
    """Share of the cache's memory taken by running requests, in the mean over the time with work. [-]"""
    cache: Cache | None
    """The same apart."""
    prefix_hit_rate: float | None
    """Prompt tokens found in the cache over all; null without a prefix cache. [-]"""
    prefix: Prefix | None
    """The same apart."""
    preemptions: int
    """Requests that were set back for want of memory."""
    recomputed_tokens: int
    """Tokens that were computed once more for that. [token]"""
    swapped_bytes: float
    """Bytes that went to the host's memory and back for that, each way counted. [B]"""
    pools: list[Pool]
    """Replicas by what they do."""
    peak_running: int
    """Most requests in a step of one replica."""
    peak_waiting: int
    """Most requests that waited at once, of all replicas."""
    stable: bool
    """Whether requests were answered about as fast as they came: the queue did not keep on growing."""
    step_spread: float | None
    """Standard deviation of ln(measured / expected) of a step; null of bounds. [-]"""
    series: list[Moment]
    """The time series, of at most some hundred stretches."""
    provenance: dict[str, str]
    """Where each number is from."""
    longest_request: int = 0
    """Tokens of the longest request that the server takes. [token]"""
    trace: TraceSummary | None = None
    """A trace's requests in numbers; null of a load that is made up, of a rate that is searched, and of more than
    a hundred thousand requests."""
    most_requests_per_second: float | None = None
    """Of `--rate max`: the most requests a second that keep the promise, and at which all else is; null elsewhere, and where
    no rate keeps it. [1/s]"""

    @property
    def keeps(self) -> bool:
        """Whether enough requests keep what is promised, without a queue that keeps growing; false of no promise."""
        return self.kept is not None and self.kept.met and self.stable
