"""FLOP of a prompt, and where attention takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from roofcast.modelspec.spec import ModelSpec

FARTHEST: Final = 1 << 40  # tokens; attention that has not overtaken the weights by then never matters


def linear_flops_per_token(spec: ModelSpec) -> float:
    """FLOP a token of everything but attention scores: 2 N, N the active parameters without embeddings. [FLOP/token]

    Weights of looped layers count once for every pass, those of blocks that recur once for every layer where they work.
    Layers that attend to images and have none are passed by; keys and values of an encoder's tokens are no token's own.

    Source: Kaplan et al. 2020, arXiv:2001.08361, section 2.1.

    >>> from roofcast.modelspec.spec import build_spec
    >>> linear_flops_per_token(build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}))
    13959176192
    """
    return 2 * (spec.non_embedding_parameters + spec.repeated_parameters + spec.borrowed_parameters - _idle(spec))


def _idle(spec: ModelSpec) -> int:
    """Parameters that no token of the sequence passes. [parameter]"""
    counts = spec.layer_counts.items()
    skipped = sum(n * layer.active_parameters(spec.hidden) for layer, n in counts if layer.skipped)
    once = (n * matrix.elements for layer, n in counts if not layer.skipped for matrix in layer.once(spec.hidden))
    return skipped + sum(once)


def attention_flops(spec: ModelSpec, tokens: float) -> float:
    """FLOP of Q K^T and P V over a causal prompt of n tokens: 2 L n^2 d_attn, d_attn = n_q (d_k + d_v) / 2. [FLOP]

    Causal attention counts half of 4 L n^2 d_attn. A layer with window W touches n W - W^2 / 2 pairs; a recurrence
    costs as much for every token, each kind by its own formula.

    >>> from roofcast.modelspec.spec import build_spec
    >>> attention_flops(build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}),
    ...     4096) / 1e12  # 2 x 32 x 4096^2 x 4096
    4.398046511104
    """
    counts = spec.layer_counts.items()
    return sum(n * layer.passes * mixer.prefill_flops(tokens) for layer, n in counts for mixer in layer.mixers)


def prefill_flops(spec: ModelSpec, tokens: float) -> float:
    """FLOP of a prompt: 2 N n + 2 L n^2 d_attn; the head, which works once a prompt, is left out. [FLOP]

    >>> from roofcast.modelspec.spec import build_spec
    >>> llama = build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336})
    >>> round(prefill_flops(llama, 4096) / 1e12, 1), round(prefill_flops(llama, 131072) / 1e12, 1)
    (61.6, 6333.3)
    """
    return linear_flops_per_token(spec) * tokens + attention_flops(spec, tokens)


def attention_share(spec: ModelSpec, tokens: float) -> float:
    """Share of a prompt's FLOP that is attention scores: 2 L n^2 d_attn / (2 N n + 2 L n^2 d_attn). [-]

    >>> from roofcast.modelspec.spec import build_spec
    >>> round(attention_share(build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}),
    ...     53250), 3)
    0.5
    """
    return attention_flops(spec, tokens) / prefill_flops(spec, tokens)


def crossover_tokens(spec: ModelSpec) -> int | None:
    """The prompt at which attention scores cost as much as all the weights: 2 N n = 2 L n^2 d_attn. [token]

    n = N / (L d_attn); found by bisection, since windows bend the curve. None where it never does: windows or
    recurrences keep it from happening.

    >>> from roofcast.modelspec.spec import build_spec
    >>> crossover_tokens(build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336}))
    53250
    """
    per_token = linear_flops_per_token(spec)
    low, high = 0.0, float(FARTHEST)
    if attention_flops(spec, high) < per_token * high:
        return None
    while high - low > 1 / 8:
        middle = (low + high) / 2
        if attention_flops(spec, middle) < per_token * middle:
            low = middle
        else:
            high = middle
    return round(high)
