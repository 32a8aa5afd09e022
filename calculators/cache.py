"""KV cache: what a sequence keeps, growing with every token, capped by a window, or fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.modelspec.cached import entry_bytes, part_bytes, residual

if TYPE_CHECKING:
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.state import Kept


def residual_bytes(spec: ModelSpec, kv: Format, context: int, tp: int = 1) -> float:
    """What the last R tokens, which a format keeps in 16 bits, take more than the rest: sum of R x elements x (2 - b). [B]

    0 of all formats but KIVI's.
    """
    return sum(n * residual(part, kv, context, tp) for part, n in spec.kept.items())


def kv_bytes_per_token(spec: ModelSpec, kv: Format, tp: int = 1) -> float:
    """KV bytes that every further token adds: the sum over layers that grow of elements x bytes. [B/token]

    GQA and MHA: n_kv (d_k + d_v) b a layer; MLA: (d_c + d_rope) b; an index d_index b more; where one entry stands
    for r tokens, 1/r of it. On one of `tp` devices: KV heads split and replicate beyond one a device, a latent
    replicates whole. Layers with a window and fixed states are not in it.

    Source: arXiv:2305.13245 (GQA), arXiv:2405.04434 table 1 (MLA).

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> llama = build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "vocab_size": 128256,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336})
    >>> kv_bytes_per_token(llama, FORMATS["bf16"]) / 1024
    128.0
    """
    return sum(n * entry_bytes(part, kv, tp) / part.per for part, n in spec.kept.items() if part.grows)


def window_bytes(spec: ModelSpec, kv: Format, tp: int = 1) -> float:
    """KV bytes of a sequence's window and chunked layers once full: the sum of W x elements x bytes. [B]

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> mistral = build_spec({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "vocab_size": 32000, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    ...     "sliding_window": 4096, "max_position_embeddings": 32768})
    >>> window_bytes(mistral, FORMATS["bf16"]) / 2**20
    512.0
    """
    capped = ((part, part.cap, n) for part, n in spec.kept.items() if part.cap is not None)
    return sum(n * part.entries(cap) * entry_bytes(part, kv, tp) for part, cap, n in capped)


def state_bytes(spec: ModelSpec, kv: Format, tp: int = 1) -> float:
    """Bytes of a sequence that no further token changes: the sum over layers of fixed elements x bytes. [B]

    Recurrent states in fp32 where the model keeps them so, convolution columns in the activations' format (the
    cache's where it has 16 bits or more, else bf16), keys and values of an encoder's tokens in the cache's.

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> delta = build_spec({"model_type": "qwen3_next", "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 500,
    ...     "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "head_dim": 16,
    ...     "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    ...     "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2,
    ...     "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32})
    >>> state_bytes(delta, FORMATS["bf16"])  # 3 x ((2 x 2 x 8 + 4 x 8) x 4 x 2 + 4 x 8 x 8 x 4)
    4608.0
    """
    return sum(n * entry_bytes(part, kv, tp) for part, n in spec.kept.items() if part.fixed)


def cache_bytes(spec: ModelSpec, kv: Format, context: int, tp: int = 1) -> float:
    """Bytes that one sequence keeps at a context, at least: per layer min(T, W) x elements x bytes, and fixed states. [B]

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
    return kept_bytes(tuple(spec.kept.items()), kv, context, tp)


def kept_bytes(kept: tuple[tuple[Kept, int], ...], kv: Format, context: int, tp: int = 1) -> float:
    """As `cache_bytes`, of parts and how many layers keep each. [B]"""
    return sum(n * part_bytes(part, kv, context, tp) for part, n in kept)


def whole(value: float) -> float:
    """An integer where the value is one, so that bytes print without a fraction.

    >>> whole(128.0), whole(0.5)
    (128, 0.5)
    """
    return int(value) if value == int(value) else value
