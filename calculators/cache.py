"""KV cache: what a sequence keeps, growing with every token or capped by a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.spec import ModelSpec


def kv_bytes_per_token(spec: ModelSpec, kv: Format, tp: int = 1) -> float:
    """KV bytes that every further token adds: the sum over layers without a window of elements x bytes. [B/token]

    GQA and MHA: 2 n_kv d b a layer; MLA: (d_c + d_rope) b a layer. On one of `tp` devices: KV heads split and
    replicate beyond one a device, a latent replicates whole. Window layers are not in it.

    Source: arXiv:2305.13245 (GQA), arXiv:2405.04434 table 1 (MLA).

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> llama = build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336})
    >>> kv_bytes_per_token(llama, FORMATS["bf16"]) / 1024
    128.0
    """
    elements = sum(n * attention.shard(tp) for attention, n in spec.attention_counts.items() if not attention.window)
    return elements * kv.bytes_per_element


def window_bytes(spec: ModelSpec, kv: Format, tp: int = 1) -> float:
    """KV bytes of a sequence's window layers once full: the sum of W x elements x bytes. [B]

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> mistral = build_spec({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "vocab_size": 32000, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    ...     "sliding_window": 4096, "max_position_embeddings": 32768})
    >>> window_bytes(mistral, FORMATS["bf16"]) / 2**20
    512.0
    """
    counts = spec.attention_counts.items()
    elements = sum(n * a.window * a.shard(tp) for a, n in counts if a.window)
    return elements * kv.bytes_per_element


def cache_bytes(spec: ModelSpec, kv: Format, context: int, tp: int = 1) -> float:
    """KV bytes of one sequence at a context: per layer min(T, W) x elements x bytes. [B]

    Args:
        spec: the model.
        kv: format of the cache.
        context: T, tokens held. [token]
        tp: devices that share the heads; the bytes are those on one.

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> opt_13b = build_spec({"model_type": "opt", "hidden_size": 5120, "num_hidden_layers": 40, "vocab_size": 50272,
    ...     "num_attention_heads": 40, "ffn_dim": 20480, "max_position_embeddings": 2048})
    >>> cache_bytes(opt_13b, FORMATS["fp16"], 2048) / 1e9
    1.6777216
    """
    counts = spec.attention_counts.items()
    elements = sum(n * min(context, a.window or context) * a.shard(tp) for a, n in counts)
    return elements * kv.bytes_per_element


def whole(value: float) -> float:
    """An integer where the value is one, so that bytes print without a fraction.

    >>> whole(128.0), whole(0.5)
    (128, 0.5)
    """
    return int(value) if value == int(value) else value
