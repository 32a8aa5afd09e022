"""The rows of `estimate` and `roofline`: a phase at a batch and a context, its work, its least time, whether it fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.deployment import cache_on_one
from roofcast.calculators.step import Estimate, estimate
from roofcast.modelspec.step import DECODE, MIXED, PREFILL, chunked_prefill, decode_step, mixed_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.step import Step

DEFAULT_CHUNK = 512  # tokens of a prompt in a mixed step


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a deployment.

    Args:
        phase: prefill, decode or mixed.
        batch: sequences, over all replicas.
        context: of decode, tokens that each attends to; of prefill, its prompt. [token]
        chunk: tokens of a prompt that one step takes; None is all of them, and 512 beside decoding sequences. [token]
        cached: share of the prompt that a prefix cache holds. [-]
    """

    phase: str
    batch: int
    context: int
    chunk: int | None = None
    cached: float = 0.0

    @property
    def hit(self) -> int:
        """Tokens of the prompt that are in the cache: whole ones, and never the last, whose logits are asked. [token]

        >>> Asked("prefill", 1, 4096, cached=0.5).hit
        2048
        """
        return min(int(self.context * self.cached), self.context - 1)


@dataclass(frozen=True, slots=True)
class Point:
    """What a deployment answers.

    Args:
        asked: the question.
        work: terms on one device: of one micro-batch through all stages of a pipeline, and of all chunks.
        passes: times that a stage's work follows another's, in full passes. [-]
        fits: whether weights and cache of all sequences fit at that context.
        reason: why not; empty where they do.
        tokens: that all sequences together gain. [token]
    """

    asked: Asked
    work: Estimate
    passes: float
    fits: bool
    reason: str
    tokens: int

    @property
    def bound(self) -> float | None:
        """Least time, None of what does not fit. [s]"""
        return self.work.bound * self.passes if self.fits else None

    @property
    def full(self) -> float | None:
        """Least time were activations to go through memory; None of what does not fit. [s]"""
        return self.work.full * self.passes if self.fits else None

    @property
    def rate(self) -> float | None:
        """Tokens a second of the whole deployment at the bound: new ones of decode, those of the prompts of prefill."""
        return None if self.bound is None else self.tokens / self.bound


def answer_point(ready: Ready, asked: Asked) -> Point:
    """The least time of what is asked, on all devices.

    Replicas share the batch; a pipeline of p stages cuts its share into m <= p micro-batches, which follow one another:
    a decode step takes one pass of one micro-batch, since each stage works on another meanwhile; a prefill m - 1 stages
    more than a pass.

    Raises:
        MalformedModelError: a batch, context or chunk that cannot be.
    """
    shards = ready.deployment.shards
    here = -(-asked.batch // shards.dp)
    parts = min(here, shards.pp)
    steps = STEPS[asked.phase](asked, -(-here // parts))
    work = Estimate(tuple(term for step in steps for term in estimate(ready, step).terms))
    stage = -(-len(ready.model.spec.layers) // shards.pp) / len(ready.model.spec.layers)
    passes = 1 + (parts - 1) * stage if asked.phase == PREFILL else 1.0
    reason = shortage(ready, asked)
    return Point(asked, work, passes, not reason, reason, _gained(asked))


def _decode(asked: Asked, batch: int) -> Sequence[Step]:
    return (decode_step(batch, asked.context),)


def _prefill(asked: Asked, batch: int) -> Sequence[Step]:
    return chunked_prefill(batch, asked.context, asked.chunk or asked.context, cached=asked.hit)


def _mixed(asked: Asked, batch: int) -> Sequence[Step]:
    return (mixed_step(batch, asked.context, asked.chunk or DEFAULT_CHUNK),)


STEPS: Mapping[str, Callable[[Asked, int], Sequence[Step]]] = {DECODE: _decode, PREFILL: _prefill, MIXED: _mixed}


def _gained(asked: Asked) -> int:
    """Tokens that a step adds, those of a prompt that were cached included."""
    if asked.phase == PREFILL:
        return asked.batch * asked.context
    return asked.batch + (asked.chunk or DEFAULT_CHUNK) * (asked.phase == MIXED)


def shortage(ready: Ready, asked: Asked) -> str:
    """What does not fit on one device at the batch and context asked; empty where all does."""
    cache = cache_on_one(ready, asked.batch, asked.context)
    if ready.weight_bytes + cache <= ready.capacity:
        return ""
    on = " of each GPU" if ready.deployment.shards.devices > 1 else ""
    return (
        f"weights take {ready.weight_bytes / 1e9:.1f} GB and the cache of {asked.batch:,} x {asked.context:,} tokens "
        f"{cache / 1e9:.1f} GB{on}, which has {ready.capacity / 1e9:.1f} GB"
    )


def most_sequences(ready: Ready, context: int) -> int:
    """Sequences that fit beside the weights, on all replicas: dp floor((M - W) / cache of one). [sequence]"""
    each = cache_on_one(ready, 1, context)
    room = ready.capacity - ready.weight_bytes
    return max(0, int(room // each)) * ready.deployment.shards.dp if each else 0


def asked_of(
    phases: Iterable[str], batches: Sequence[int], contexts: Sequence[int], *, chunk: int | None, cached: float
) -> list[Asked]:
    """Every phase at every context and batch."""
    return [Asked(phase, batch, context, chunk, cached) for phase in phases for context in contexts for batch in batches]
