"""Memory as a plain budget, with no engine: what is kept free, what the weights leave, how many sequences fit in it."""

from __future__ import annotations

import math


def budget_bytes(memory: float, reserve: float) -> float:
    """Memory that may be used on one GPU: M (1 - r). [B]

    Args:
        memory: M, as sold. [B]
        reserve: r, the share kept free. [-]

    >>> budget_bytes(80e9, 0.1) / 1e9
    72.0
    """
    return memory * (1 - reserve)


def kv_bytes(budget: float, weights: float) -> float:
    """What the weights leave for the cache on one GPU: budget - weights. Below zero they alone do not fit. [B]

    >>> round(kv_bytes(72e9, 16060522496) / 1e9, 1)
    55.9
    """
    return budget - weights


def max_sequences(room: float, each: float) -> int:
    """Sequences that fit: floor(room / each), the cache that there is over that of one. [sequence]

    >>> max_sequences(55.9e9, 536870912)  # Llama 3.1 8B at 4,096 tokens on an H100
    104
    """
    return max(0, math.floor(room / each))


def kv_tokens(room: float, once: float, per_token: float) -> int | None:
    """Tokens of cache in all: floor((room - once) / bytes a token). [token]

    With window layers and fixed states they are those of one sequence, whose full windows and states are taken off
    `once`; where no layer grows with tokens there is no such number.

    >>> kv_tokens(55939477504, 0, 131072)
    426784
    """
    return max(0, math.floor((room - once) / per_token)) if per_token else None
