"""A request while it is served, and what is remembered of those that are done."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from math import exp, log
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.serving.ranks import quantile
from roofcast.calculators.serving.result import QUANTILES, Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.serving.job import Job

BINS: Final = 200.0  # of a histogram, in which a time grows by e: half a percent each
SHARES: Final = (0.5, 0.9, 0.95, 0.99)


class Live:
    """A request in the service; it is changed by the replica that has it.

    Args:
        job: as it came.
        output: tokens that it will get: as asked, or up to the server's longest length. [token]
        order: of its coming.
    """

    __slots__ = (
        "blocks", "computed", "context", "finish", "first", "hit", "job", "joined", "last", "lease", "made", "order",
        "output", "queued", "since", "swapped", "todo", "token",
    )  # fmt: skip

    def __init__(self, job: Job, output: int, order: int) -> None:
        self.job = job
        self.output = output
        self.order = order
        self.made = 0  # tokens made so far, of a decoding one as it joined [token]
        self.todo = job.prompt  # tokens that are to be in the cache before it decodes [token]
        self.computed = 0  # of these, those that are [token]
        self.last = job.prompt + output - 1  # tokens that it will hold in the end where it is [token]
        self.context = 0  # tokens in the cache as it joined those that decode [token]
        self.joined = -1  # decode steps that had been done then; -1 of one that does not decode
        self.finish = -1  # decode steps after which it is done; -1 of one that does not decode
        self.first = -1.0  # when its first token came [s]
        self.token = -1.0  # when its last one came, before it joined those that decode [s]
        self.since = job.arrival  # when it began to wait [s]
        self.queued = -1.0  # when a step first took it [s]
        self.swapped = False  # whether its cache is in the host's memory
        self.blocks: Any = None  # what the memory remembers of it
        self.lease: Any = None  # what the prefix cache does
        self.hit: tuple[int, int] | None = None  # tokens and ids of its prompt that were found


class Histogram:
    """Times by how often, in bins of half a percent: memory does not grow with their number."""

    __slots__ = ("bins", "count", "most", "total")

    def __init__(self) -> None:
        self.bins: dict[int, float] = {}
        self.count = self.total = self.most = 0.0

    def add(self, seconds: float, times: float) -> None:
        """So many of a time above 0."""
        key = int(log(seconds) * BINS)
        self.bins[key] = self.bins.get(key, 0.0) + times
        self.count += times
        self.total += seconds * times
        self.most = max(self.most, seconds)

    def quantile(self, share: float) -> float:
        """The least time that so large a share of all takes at most, half a percent off at most. [s]"""
        least, seen = share * self.count, 0.0
        for key in sorted(self.bins):
            seen += self.bins[key]
            if seen >= least:
                return min(self.most, exp((key + (0.5 if key >= 0 else -0.5)) / BINS))
        return self.most

    def spread(self) -> Spread | None:
        """How they are spread; None of none."""
        if not self.count:
            return None
        p50, p90, p95, p99 = map(self.quantile, SHARES)
        every = [self.quantile(share) for share in QUANTILES]
        return Spread(self.total / self.count, p50, p90, p95, p99, self.most, every)


def spread(values: Sequence[float]) -> Spread | None:
    """How times are spread; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p95, p99 = (quantile(ordered, share) for share in SHARES)
    every = [quantile(ordered, share) for share in QUANTILES]
    return Spread(sum(ordered) / len(ordered), p50, p90, p95, p99, ordered[-1], every)


@dataclass(slots=True)
class Tally:
    """What is remembered of all requests: five numbers of each that is done, and sums.

    Args:
        ttft, tpot, e2e, queue: of each done request; tpot below 0 of one with a single token. [s]
        gaps: times between tokens.
        came, rejected, cut, done: requests.
        prompt_tokens, output_tokens: of done ones. [token]
        asked_tokens, asked_ids, hit_tokens, hit_ids: of prompts that were looked up in a prefix cache.
        preemptions, recomputed, swapped: setbacks, tokens computed again, bytes moved. [-, token, B]
        warm: requests, the first to come, whose times are not noted.
        first, latest, last: when the first and the latest came and the last was done. [s]
    """

    ttft: array[float] = field(default_factory=lambda: array("d"))
    tpot: array[float] = field(default_factory=lambda: array("d"))
    e2e: array[float] = field(default_factory=lambda: array("d"))
    queue: array[float] = field(default_factory=lambda: array("d"))
    gaps: Histogram = field(default_factory=Histogram)
    came: int = 0
    rejected: int = 0
    cut: int = 0
    done: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    asked_tokens: int = 0
    asked_ids: int = 0
    hit_tokens: int = 0
    hit_ids: int = 0
    preemptions: int = 0
    recomputed: int = 0
    swapped: float = 0.0
    warm: int = 0
    first: float = -1.0
    latest: float = 0.0
    last: float = 0.0

    def finish(self, live: Live, now: float) -> None:
        """Notes the times of a request that is done, as its client sees them, waiting included. [s]

        TTFT = first token - arrival; TPOT = (last token - first token) / (n - 1), of n = 2 tokens or more;
        end to end = last token - arrival; queue = first step that takes it - arrival. Percentiles are nearest ranks: the
        least of the times that so large a share of the requests takes at most. ITL = a token - the one before it, of all
        requests together, in bins of half a percent.
        """
        job = live.job
        if live.order > self.warm:
            self.ttft.append(live.first - job.arrival)
            self.tpot.append((now - live.first) / (live.output - 1) if live.output > 1 else -1.0)
            self.e2e.append(now - job.arrival)
            self.queue.append(live.queued - job.arrival)
        self.done += 1
        self.prompt_tokens += job.prompt
        self.output_tokens += live.output
        self.last = max(self.last, now)
