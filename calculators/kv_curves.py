"""The cache of one sequence against its context, with the weights that it stands beside: curves of `kv`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.cache import cache_bytes, whole

if TYPE_CHECKING:
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested
    from roofcast.modelspec.spec import ModelSpec

FIRST: Final = 1024  # tokens where curves begin
OCTAVES: Final = 2  # at least, of a model whose maximum is near that
UNBOUNDED: Final = 131072  # tokens where the curve of a model ends that states no maximum


@dataclass(frozen=True, slots=True)
class KvCurve:
    """One model's cache of one sequence, at contexts between which it is straight or nearly so on logarithmic axes."""

    model: str
    """Name as asked for."""
    attention: str
    """Kinds of attention, joined with + where layers differ."""
    kv_format: str
    """Format of the cache."""
    contexts: list[int]
    """From 1,024 or less to the maximum: powers of two, and where a window is full. [token]"""
    cache_bytes: list[float]
    """What one sequence keeps at each, on all devices together. [B]"""
    weight_bytes: float | None
    """Weights, which all sequences share; null where not known. [B]"""
    max_context: int | None
    """Tokens that the config allows; null where it states none, and the curve ends at 131,072."""
    equal_context: int | None = None
    """Least context whose cache takes as much as the weights; null where the curve does not cross them. [token]"""

    @property
    def keeps(self) -> bool:
        """Whether a sequence keeps anything, so that there is a line to draw."""
        return any(self.cache_bytes)


@dataclass(frozen=True, slots=True)
class KvCurves:
    """Curves of one chart, and the memory that they are held against."""

    curves: list[KvCurve]
    """One a model, in the order asked."""
    memory_bytes: float | None = None
    """Memory of one device; null where none is asked about. [B]"""
    gpu: str | None = None
    """Id of the accelerator."""
    gpus: int = 1
    """How many share the weights and each sequence's cache."""

    @property
    def whole_memory(self) -> float | None:
        """Memory of all the devices together: gpus x memory of one. [B]

        >>> KvCurves([], 80e9, "h100-sxm", 8).whole_memory / 1e9
        640.0
        """
        return None if self.memory_bytes is None else self.gpus * self.memory_bytes


def kv_curve(model: Model, *, weights: Requested | None, kv: Format) -> KvCurve:
    """The curve of one model: C(T) = sum over layers of min(T, W) x elements x bytes, and fixed states. [B]

    Args:
        model: resolved.
        weights: format to count the weights in; None is as stored.
        kv: format of the cache.
    """
    spec, held = model.spec, model.weight_bytes(weights).value
    contexts = curve_contexts(spec, kv)
    return KvCurve(
        model=model.name,
        attention=spec.attention_label,
        kv_format=kv.name,
        contexts=contexts,
        cache_bytes=[whole(cache_bytes(spec, kv, context)) for context in contexts],
        weight_bytes=None if held is None else whole(held),
        max_context=spec.max_context,
        equal_context=None if held is None else _first_as_large(spec, kv, contexts, held),
    )


def curve_contexts(spec: ModelSpec, kv: Format) -> list[int]:
    """Contexts of a curve: powers of two from 1,024 to the maximum, and every window and residual that ends between.

    Between two of them C(T) = a T + b. A straight line on logarithmic axes is at most 1.5 % above that: at
    T = sqrt(2) T_0 with b = sqrt(2) a T_0 by most, sqrt((1 + r) (2 + r)) / (2 r) with r = sqrt(2).
    A model of less than 4,096 tokens begins two octaves below its maximum.

    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.spec import build_spec
    >>> curve_contexts(build_spec({"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32,
    ...     "vocab_size": 32000, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    ...     "sliding_window": 3000, "max_position_embeddings": 9000}), FORMATS["bf16"])
    [1024, 2048, 3000, 4096, 8192, 9000]
    """
    last = spec.max_context or UNBOUNDED
    first = min(FIRST, max(1, 1 << max(0, last.bit_length() - 1 - OCTAVES)))
    octaves = (first << n for n in range((last // first).bit_length()))
    kinks = {part.cap for part in spec.kept if part.cap is not None} | {kv.residual}
    return sorted({context for context in (*octaves, *kinks, last) if first <= context <= last})


def _first_as_large(spec: ModelSpec, kv: Format, contexts: list[int], size: float) -> int | None:
    """The context of a curve's span where the cache comes to be as large as a size, by halving: it never shrinks. [token]"""
    low, high = contexts[0], contexts[-1]
    if not cache_bytes(spec, kv, low) < size <= cache_bytes(spec, kv, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if cache_bytes(spec, kv, middle) >= size else (middle, high)
    return high
