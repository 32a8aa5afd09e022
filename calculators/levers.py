"""The answer of `levers`: what each technique changes, every row the same estimate with one thing changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.estimate import Layout, layout_of, ready_remarks
from roofcast.calculators.phases import Asked, answer_point, most_sequences
from roofcast.calculators.variants import LEVERS, Base, Change
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.hwdb.accelerator import Accelerator

MOST_SEQUENCES: Final = 4096  # a batch beyond is not looked at


@dataclass(frozen=True, slots=True)
class LeverRow:
    """One technique."""

    lever: str
    """Kind of change: base, kv, weights, batch, tp, attention, window, prefix or gpu."""
    change: str
    """What is changed."""
    fits: bool
    """Whether weights and the cache of the batch fit."""
    reason: str | None
    """Why it cannot be or does not fit; null where it does."""
    weight_bytes: float | None
    """Weights on one GPU. [B]"""
    kv_bytes_per_sequence: float | None
    """Cache of one sequence at the context, on one GPU. [B]"""
    ttft_seconds: float | None
    """Least time of the prompt, one sequence; null of what does not fit. [s]"""
    tpot_seconds: float | None
    """Least time of a decode step at batch and context; null of what does not fit. [s]"""
    tokens_per_second: float | None
    """Of the batch at the bound; null of what does not fit. [token/s]"""
    max_sequences: int | None
    """Sequences that fit at the context."""
    max_tokens_per_second: float | None
    """Of as many sequences as fit, 4,096 at most; null where none does. [token/s]"""
    ttft_ratio: float | None
    """TTFT over the base's. [-]"""
    tpot_ratio: float | None
    """TPOT over the base's. [-]"""
    sequences_ratio: float | None
    """Sequences that fit over the base's. [-]"""
    says: str
    """What it bounds, costs or forgets."""


@dataclass(frozen=True, slots=True)
class LeversResult:
    """The result of `levers`."""

    model: str
    """Name as asked for."""
    gpu: str
    """Id of the accelerator."""
    layout: Layout
    """How the devices share the model."""
    batch: int
    """Sequences that decode."""
    context: int
    """Tokens that each attends to. [token]"""
    prompt: int
    """Tokens of the prompt. [token]"""
    rows: list[LeverRow]
    """The base first, then a row a technique."""
