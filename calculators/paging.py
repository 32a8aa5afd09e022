"""What a paging engine must reserve for a sequence: whole pages of tokens, and a page for each recurrent state.

The rules are those of vLLM V1, windows as with `--disable-hybrid-kv-cache-manager`: pages of 16 tokens, layers with a
window held like all others, and pages grown until one holds the state of a recurrent layer. With its hybrid cache
manager a window layer takes no more than window - 1 + batched tokens, which depends on the engine's options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.cache import residual_bytes
from roofcast.modelspec.cached import entry_bytes
from roofcast.modelspec.state import CACHE

if TYPE_CHECKING:
    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.spec import ModelSpec

PAGE: Final = 16  # [token]


@dataclass(frozen=True, slots=True)
class Held:
    """What one mixer holds of a sequence, as an engine that pages sees it.

    Args:
        token: of keys and values, a token: windows and compression change only what is kept ideally. [B]
        state: of what does not grow with tokens: recurrences, convolutions, tokens that wait. [B]
        capped: tokens at most and bytes of each, of windows that are part of the kind and not of a layer.
        encoder_tokens: whose keys and values they are, where they are an encoder's and not the sequence's. [token]
    """

    token: float
    state: float
    capped: tuple[tuple[int, float], ...] = ()
    encoder_tokens: int | None = None

    @property
    def recurrent(self) -> bool:
        """Whether it is state alone, which takes a page of its own."""
        return self.state > 0 and not self.token and not self.capped


def page_tokens(spec: ModelSpec, kv: Format, tp: int = 1) -> int | None:
    """Tokens of one page: B = 16 x ceil(s / (16 a)), which is 16 without recurrent layers. [token]

    s: bytes of the largest fixed state that a layer keeps, with as many convolution columns as its kernel has (vLLM
    keeps one less, whose page may be 16 tokens smaller); a: bytes of a token in the layer that keeps most. None where
    no layer keeps keys and values.

    Source: vLLM V1, alignment of the attention block to the Mamba page in hybrid models.

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> delta = build_spec({"model_type": "qwen3_next", "hidden_size": 2048, "num_hidden_layers": 4,
    ...     "vocab_size": 500, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    ...     "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    ...     "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2,
    ...     "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "intermediate_size": 96})
    >>> page_tokens(delta, FORMATS["fp8"])  # s = 32 x 128 x 128 x 4 + 8192 x 4 x 2, a = 2 x 2 x 256
    2112
    """
    return _page([held for held, _ in _layers(spec, kv, tp)])


def reserved_bytes(spec: ModelSpec, kv: Format, context: int, tp: int = 1) -> float:
    """Bytes that a paging engine sets aside for one sequence: the sum over layers of ceil(T / B) x B x a. [B]

    Every layer with keys and values holds whole pages of B tokens (`page_tokens`) for all T tokens, behind a window
    too; every recurrent layer takes one page, its state padded to B a, or its state alone where no layer keeps keys
    and values. An encoder's keys and values take whole pages of its tokens. The window inside compressed attention is
    the kind's own and takes whole pages of no more than its tokens. Never less than `cache_bytes`.

    This is an engine that frees nothing behind a window: vLLM V1 with `--disable-hybrid-kv-cache-manager`. With its
    hybrid cache manager a window layer takes window - 1 + batched tokens, which depends on the engine's options, and
    groups of layers are padded to one size; that padding is not counted here.

    Args:
        spec: the model.
        kv: format of the cache.
        context: T, tokens held. [token]
        tp: devices that share the heads; the bytes are those on one.

    Source: vLLM V1, KV-cache interface and block pool.

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> mistral = build_spec({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "vocab_size": 32000, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    ...     "sliding_window": 4096, "max_position_embeddings": 32768})
    >>> reserved_bytes(mistral, FORMATS["bf16"], 32765) / 2**30  # 2048 pages; ideally the window's 0.5 GiB
    4.0
    """
    layers = _layers(spec, kv, tp)
    page = _page([held for held, _ in layers])
    widest = _widest([held for held, _ in layers])
    total = residual_bytes(spec, kv, _pages(context, page) or context, tp)
    for held, count in layers:
        tokens = context if held.encoder_tokens is None else held.encoder_tokens
        pages = _pages(tokens, page) * held.token
        pages += sum(_pages(min(tokens, cap), page) * size for cap, size in held.capped)
        state = page * widest if page and held.recurrent else held.state
        total += count * (pages + state)
    return total


def _pages(tokens: int, page: int | None) -> int:
    """Tokens of the whole pages that hold so many."""
    return -(-tokens // page) * page if page else 0


def _page(layers: list[Held]) -> int | None:
    widest = _widest(layers)
    if not widest:
        return None
    largest = max((held.state for held in layers if held.recurrent), default=0.0)
    return PAGE * max(1, int(-(-largest // (PAGE * widest))))


def _widest(layers: list[Held]) -> float:
    """Bytes of a token in the layer that keeps most; 0 where none keeps keys and values."""
    return max((held.token + sum(size for _, size in held.capped) for held in layers), default=0.0)


def _layers(spec: ModelSpec, kv: Format, tp: int) -> list[tuple[Held, int]]:
    """What every mixer holds, and how many there are that hold the same."""
    counts = spec.layer_counts.items()
    return [(_held(mixer, kv, tp), count * layer.passes) for layer, count in counts for mixer in layer.mixers]


def _held(mixer: Attention, kv: Format, tp: int) -> Held:
    """Keys and values are what is in the cache's format or grows; all else is state, at its cap where it has one."""
    parts = mixer.state
    if hasattr(mixer, "encoder_tokens"):  # cross attention
        tokens = mixer.encoder_tokens or 0
        return Held(sum(entry_bytes(part, kv, tp) for part in parts) / max(tokens, 1), 0.0, encoder_tokens=tokens)
    own_window = hasattr(mixer, "ratio")  # compressed attention: engines free behind its window, or do not have it
    keys = [part for part in parts if part.format == CACHE or part.grows]
    capped = tuple((part.cap, entry_bytes(part, kv, tp)) for part in keys if own_window and part.cap)
    token = sum(entry_bytes(part, kv, tp) / part.per for part in keys if not (own_window and part.cap))
    states = (part for part in parts if part not in keys)
    return Held(token, sum(part.entries(part.cap or 0) * entry_bytes(part, kv, tp) for part in states), capped)
