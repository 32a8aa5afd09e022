"""Shapes of one call of an operation: what its kernel sees, where FLOP and bytes alone do not tell its time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GemmShape:
    """[m, k] @ [k, n] with weights of `weight_bytes`.

    Args:
        m: rows, the tokens of a step.
        n, k: outputs and inputs.
        weight_bytes: of the matrix, scales included. [B]
    """

    m: float
    n: float
    k: float
    weight_bytes: float


@dataclass(frozen=True, slots=True)
class DecodeShape:
    """Attention of few new tokens a sequence over a cache, one layer on one device.

    Args:
        sequences: at once.
        context: tokens that each attends to. [token]
        query_heads, kv_heads: on the device.
        head_dim: width of a head's values.
        state_bytes: of the cache, read and written, of all sequences. [B]
        flops: of all sequences. [FLOP]
    """

    sequences: float
    context: float
    query_heads: float
    kv_heads: float
    head_dim: float
    state_bytes: float
    flops: float


@dataclass(frozen=True, slots=True)
class PrefillShape:
    """Causal attention of a prompt's new tokens, one layer on one device.

    Args:
        sequences: at once.
        new, before: tokens that each adds, and has in the cache. [token]
        query_heads, kv_heads: on the device.
        head_dim: width of a head's values.
        state_bytes: of the cache, read and written, of all sequences. [B]
        flops: of all sequences, as causal attention counts them, half of all pairs. [FLOP]
    """

    sequences: float
    new: float
    before: float
    query_heads: float
    kv_heads: float
    head_dim: float
    state_bytes: float
    flops: float


@dataclass(frozen=True, slots=True)
class ExpertsShape:
    """One matrix (gate and up fused, or down) of a layer's routed experts on one device.

    Args:
        tokens: that all devices sharing the experts send. [token]
        top_k: experts of a token.
        experts: of the layer, on all devices.
        ep: devices that share them.
        n, k: outputs and inputs of one expert's matrix on the device.
        expert_bytes: of it, scales included. [B]
        present: of the tokens, those whose rows the device has: all, or of those that are sent to their experts its
            share; None is all. [token]
    """

    tokens: float
    top_k: float
    experts: float
    ep: float
    n: float
    k: float
    expert_bytes: float
    present: float | None = None


Shape = GemmShape | DecodeShape | PrefillShape | ExpertsShape
