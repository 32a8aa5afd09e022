"""What a trace is like: its rate and bursts, its lengths, and what a prefix cache without bounds would find."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from roofcast.calculators.serving.ranks import quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofcast.calculators.serving.job import Job


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Lengths of prompts, or of outputs."""

    mean: float
    """Mean. [token]"""
    median: int
    """Half of them are at most that long. [token]"""
    p99: int
    """99 of 100 are at most that long. [token]"""
    max: int
    """The longest. [token]"""


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Requests of a trace, in numbers."""

    requests: int
    """How many."""
    span_seconds: float
    """From the first to the last. [s]"""
    requests_per_second: float | None
    """Requests over the span; null where all come at once. [1/s]"""
    gap_cv: float | None
    """Standard deviation of the gaps between requests over their mean; 1 of a Poisson process. [-]"""
    prompt: LengthSummary
    """Lengths of prompts."""
    output: LengthSummary
    """Lengths of outputs."""
    prefix_token_share: float | None
    """Share of prompt tokens that an infinite prefix cache holds; null without hashes. [-]"""
    prefix_block_share: float | None
    """The same of blocks. [-]"""


@dataclass(slots=True)
class InfiniteCache:
    """A prefix cache that keeps all that it ever saw.

    Args:
        hash_tokens: tokens of a block. [token]
        blocks: of all prompts so far.
        hit_blocks: leading ones that were known.
        hit_tokens: tokens of these. [token]
    """

    hash_tokens: int
    blocks: int = 0
    hit_blocks: int = 0
    hit_tokens: int = 0
    _known: dict[tuple[int, int], int] = field(default_factory=dict)

    def take(self, job: Job) -> int:
        """Counts a prompt's leading blocks that are known, and keeps all of them; a block is known behind its parents.

        Returns:
            Tokens found: blocks times their size, the last one capped at the prompt's end. [token]

        >>> from roofcast.calculators.serving.job import Job
        >>> cache = InfiniteCache(512)
        >>> cache.take(Job(0.0, 1000, 1, (7, 8))), cache.take(Job(0.0, 1000, 1, (7, 8))), cache.take(Job(0.0, 600, 1, (7, 9)))
        (0, 1000, 512)
        """
        known, node, found = self._known, 0, 0
        for block in job.hashes:
            child = known.get((node, block))
            if child is None:
                break
            node, found = child, found + 1
        for block in job.hashes[found:]:
            child = len(known) + 1
            known[node, block] = child
            node = child
        tokens = min(found * self.hash_tokens, job.prompt)
        self.blocks += -(-job.prompt // self.hash_tokens)
        self.hit_blocks += found
        self.hit_tokens += tokens
        return tokens


def trace_summary(jobs: Iterable[Job], hash_tokens: int | None = None) -> TraceSummary:
    """A trace in numbers, in one pass; 24 bytes a request, and its blocks where it has hashes.

    Args:
        jobs: one or more, in order.
        hash_tokens: tokens of one id of their hashes; None where they have none. [token]

    >>> from roofcast.calculators.serving.job import Job
    >>> found = trace_summary([Job(0.0, 10, 1), Job(1.0, 20, 2), Job(2.0, 60, 6)])
    >>> found.requests_per_second, found.gap_cv, found.prompt
    (1.5, 0.0, LengthSummary(mean=30.0, median=20, p99=60, max=60))
    """
    arrivals, prompts, outputs = array("d"), array("i"), array("i")
    cache = None if hash_tokens is None else InfiniteCache(hash_tokens)
    for job in jobs:
        arrivals.append(job.arrival)
        prompts.append(job.prompt)
        outputs.append(job.output)
        if cache is not None:
            cache.take(job)
    span = arrivals[-1] - arrivals[0]
    return TraceSummary(
        requests=len(arrivals),
        span_seconds=span,
        requests_per_second=len(arrivals) / span if span > 0 else None,
        gap_cv=gap_cv(arrivals),
        prompt=_lengths(prompts),
        output=_lengths(outputs),
        prefix_token_share=None if cache is None else cache.hit_tokens / sum(prompts),
        prefix_block_share=None if cache is None else cache.hit_blocks / cache.blocks,
    )


def gap_cv(arrivals: Sequence[float]) -> float | None:
    """Coefficient of variation of gaps: their standard deviation over their mean; None of less than two gaps. [-]

    >>> gap_cv([0.0, 1.0, 4.0]), gap_cv([0.0, 1.0])
    (0.5, None)
    """
    gaps = len(arrivals) - 1
    if gaps < 2 or arrivals[-1] <= arrivals[0]:  # noqa: PLR2004 - one gap does not vary
        return None
    mean = (arrivals[-1] - arrivals[0]) / gaps
    squares = math.fsum((later - before - mean) ** 2 for before, later in pairwise(arrivals))
    return math.sqrt(squares / gaps) / mean


def _lengths(values: array[int]) -> LengthSummary:
    ordered = sorted(values)
    mean = sum(ordered) / len(ordered)
    return LengthSummary(mean, quantile(ordered, 0.5), quantile(ordered, 0.99), ordered[-1])
