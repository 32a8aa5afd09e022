"""Work without time: operations as FLOP and bytes."""

from __future__ import annotations


def matmul_flops(m: float, n: float, k: float) -> float:
    """FLOP of [m, k] @ [k, n]: 2 m n k, a multiply and an add for every product. [FLOP]

    >>> matmul_flops(1, 4096, 4096)
    33554432
    """
    return 2 * m * n * k


def causal_pairs(tokens: float, window: int | None = None) -> float:
    """Query-key pairs that causal attention touches over a prompt, in the n^2/2 form. [pairs]

    n^2 / 2 up to the window W, then n W - W^2 / 2: each query sees at most W keys.

    >>> causal_pairs(4096)
    8388608.0
    >>> causal_pairs(8192, window=4096)
    25165824.0
    """
    if window is None or tokens <= window:
        return tokens * tokens / 2
    return tokens * window - window * window / 2


def chunked_pairs(tokens: float, chunk: int, window: int | None = None) -> float:
    """Query-key pairs of causal attention inside chunks of C tokens: (n / C) C^2 / 2, in the n^2/2 form. [pairs]

    A window W inside the chunk bounds what each query sees of it.

    >>> chunked_pairs(16384, 8192) / causal_pairs(8192)
    2.0
    """
    whole, rest = divmod(tokens, chunk)
    return whole * causal_pairs(chunk, window) + causal_pairs(rest, window)


def attended(context: float, window: int | None = None) -> float:
    """Keys that one new token touches at a context of C tokens, itself among them: min(C, W). [token]

    >>> attended(100), attended(8192, window=4096)
    (100, 4096)
    """
    return context if window is None else min(context, window)


def least(*limits: int | None) -> int | None:
    """The tightest of several limits, of which None is no limit.

    >>> least(4096, None, 2048), least(None, None)
    (2048, None)
    """
    return min((limit for limit in limits if limit is not None), default=None)
