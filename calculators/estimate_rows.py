"""Rows of the answer of `estimate`: a phase, a term of it, and the constants that expected times are made with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TermRow:
    """One term: the same operation in all layers that do it."""

    term: str
    """Its name; --explain prints its formula."""
    family: str
    """gemm, moe, attn_prefill, attn_decode, elementwise or collective."""
    flops: float
    """On one GPU. [FLOP]"""
    bytes: float
    """Weights and state moved on one GPU. [B]"""
    exchanged_bytes: float
    """What one GPU sends over the link that takes the longest; 0 but of exchanges. [B]"""
    weight_bytes: float
    """Weights read. [B]"""
    state_bytes: float
    """KV cache and recurrent state, read and written. [B]"""
    activation_bytes: float
    """Inputs and outputs, each moved once. [B]"""
    intensity: float | None
    """FLOP a byte of weights and state; null without such bytes. [FLOP/B]"""
    format: str | None
    """The format it is computed in; null of a collective."""
    bound_seconds: float | None
    """Least time; null of what does not fit. [s]"""
    bound_by: str
    """compute, memory or link."""
    expected_seconds: float | None
    """Expected time of its kernels; null of what does not fit, and with --efficiency bound. [s]"""
    calls: float
    """Kernels or exchanges that do it. [-]"""
    share: float
    """Of the step's least time. [-]"""
    counted_by: str
    """The function that counted its work."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase at a batch and a context."""

    phase: str
    """prefill, decode or mixed."""
    batch: int
    """Sequences, over all replicas."""
    context: int
    """Tokens that each attends to; of prefill its prompt. [token]"""
    fits: bool
    """Whether weights and the cache of all sequences fit at that context, in the memory that the device offers."""
    reason: str | None
    """Why not; null where they do."""
    flops: float
    """On one GPU. [FLOP]"""
    bytes: float
    """Weights and KV cache or state that move on one GPU; activations are apart. [B]"""
    weight_bytes: float
    """Weights read. [B]"""
    state_bytes: float
    """KV cache and recurrent state, read and written. [B]"""
    activation_bytes: float
    """Inputs and outputs of every operation, each moved once. [B]"""
    intensity: float
    """FLOP a byte of weights and state. [FLOP/B]"""
    full_intensity: float
    """FLOP a byte, activations included. [FLOP/B]"""
    bound_seconds: float | None
    """Least time, weights and state moved once: the bound; null of what does not fit. [s]"""
    full_seconds: float | None
    """The same were activations to go through memory too; null of what does not fit. [s]"""
    overlapped_seconds: float | None
    """Were operations to overlap without limit: the most of all arithmetic, all memory traffic and all links; null of what
    does not fit. [s]"""
    expected_seconds: float | None
    """Expected time of kernels and host together, without queueing: TTFT of prefill, TPOT of decode; null of what does not
    fit, and with --efficiency bound. [s]"""
    low_seconds: float | None
    """Low end of its 80 % interval, never below the bound; null likewise. [s]"""
    high_seconds: float | None
    """High end of its 80 % interval; null likewise. [s]"""
    kernel_seconds: float | None
    """Of the expected time, that of kernels and exchanges; null likewise. [s]"""
    host_seconds: float | None
    """Of the expected time, that of the host which no kernel hides; null likewise. [s]"""
    bound_by: str
    """What bounds the terms that take most of the time: compute, memory or link."""
    tokens_per_second: float | None
    """Of the whole deployment at the bound: of prefill those of the prompts, cached ones too, of a mixed step prompt and
    decode; null of what does not fit. [token/s]"""
    expected_tokens_per_second: float | None
    """The same at the expected time; null likewise. [token/s]"""
    steps: int
    """Steps that it takes, one after the other: pieces of a prompt. The row's numbers are of all of them."""
    terms: list[TermRow]
    """The steps' terms; their least times sum to bound_seconds, but for a pipeline, whose stages work at once."""


@dataclass(frozen=True, slots=True)
class UsedConstants:
    """Fitted constants that expected times are made with."""

    family: str
    """gemm, moe, attn_prefill, attn_decode, elementwise, collective; host and step are of whole steps."""
    format: str
    """That the operations multiply in; of collective the pattern, of host and step the phase."""
    fitted_on: str
    """Accelerator and engine whose measurements they are fitted to."""
    distance: list[str]
    """How that differs from what is asked: architecture, memory, hardware (the machine), alike, other (the engine), format;
    empty where it is the same."""
    constants: dict[str, float]
    """By name, SI units; --explain gives the family's formula."""
    spread: float
    """Standard deviation of ln(measured / expected), widened where they are another's. [-]"""
    rows: int
    """Measurements that they are fitted to."""
    median_error: float | None
    """Of measurements kept out of the fit, |expected / measured - 1|; null where it was not taken. [-]"""
