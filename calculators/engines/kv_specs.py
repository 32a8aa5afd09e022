"""What vLLM keeps of a sequence in each layer: pages of keys and values, windows, and pages of recurrent state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.cached import ACTIVATION_BITS, entry_bytes
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.recurrent import GatedDeltaNet
from roofcast.modelspec.ssm import Mamba1, Mamba2, ShortConvolution
from roofcast.modelspec.state import CACHE, FP32, MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.layers import Layer
    from roofcast.modelspec.state import Kept

FULL: Final = "full"
MLA: Final = "mla"
SLIDING: Final = "sliding"
CHUNKED: Final = "chunked"
STATE: Final = "state"
CROSS: Final = "cross"
#: Kinds whose pages hold every token, and which share a group whatever their pages' sizes.
WHOLE: Final = frozenset({FULL, MLA})

# An index key of sparse attention takes 128 bytes in FP8 and a scale in fp32, whatever the cache's format is. The FP8
# cache of MLA beside an index takes 512 bytes, 4 scales in fp32 and a RoPE key of 64 in bf16. Source: vLLM,
# kv_cache_interface.py; vLLM recipes, DeepSeek-V3.2. [B]
INDEX_KEY: Final = 128
SPARSE_LATENT: Final = (576, 656.0)  # elements of the latent with its key, and what they take in fp8
EXPANDED: Final = 256  # width that vLLM before 0.7 pads keys and values of MLA's heads to
PER_HEAD_SCALE: Final = 4.0  # of keys and of values of one head of a token, in formats with a scale a head

# classes whose recurrent state vLLM keeps in the model's format unless a key or flag says another
AS_MODEL: Final = (GatedDeltaNet, Mamba1, Mamba2, ShortConvolution)


@dataclass(frozen=True, slots=True)
class Keeps:
    """What one layer keeps: equal ones are of one type, which vLLM groups.

    Args:
        kind: full, mla, sliding, chunked, state or cross.
        token: bytes of a token on one device; 0 of a state. [B]
        state: bytes of the state of one sequence on one device. [B]
        reach: the window's or chunk's tokens, or those of an encoder. [token]
    """

    kind: str
    token: float = 0.0
    state: float = 0.0
    reach: int | None = None


@dataclass(frozen=True, slots=True)
class CacheFormats:
    """Formats of what layers keep.

    Args:
        kv: of keys and values.
        model: of convolution columns: the format of activations.
        state: of recurrent states where a flag or the config says it; None is as the class does.
        tp: devices that share the heads.
        drafted: tokens drafted a step: convolutions keep so many columns more.
        head_scales: whether each head of a token has a scale in fp32 beside its keys, and one beside its values.
        latent: whether MLA's latent is kept; else keys and values of every head, padded to 256.
    """

    kv: Format
    model: Format
    state: Format | None = None
    tp: int = 1
    drafted: int = 0
    head_scales: bool = False
    latent: bool = True


def layer_keeps(layers: Iterable[Layer], formats: CacheFormats) -> list[Keeps]:
    """What every layer keeps, in order; a layer with two mixers, or an index, is two entries.

    Layers that read an earlier layer's keys and values keep nothing.

    Source: vLLM, v1/kv_cache_interface.py and attention layers' get_kv_cache_spec.

    >>> from roofcast.modelspec.spec import build_spec
    >>> llama = build_spec({"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 2, "vocab_size": 500,
    ...     "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336})
    >>> layer_keeps(llama.layers, CacheFormats(FORMATS["bf16"], FORMATS["bf16"], tp=16))[0].token  # 1 head of 8, twice held
    512.0
    """
    made: dict[Attention, list[Keeps]] = {}
    kept: list[Keeps] = []
    for layer in layers:
        for mixer in layer.mixers * layer.passes:
            if mixer not in made:
                made[mixer] = mixer_keeps(mixer, formats)
            kept += made[mixer]
    return kept


def mixer_keeps(mixer: Attention, formats: CacheFormats) -> list[Keeps]:
    """What one mixer keeps: its keys and values, its index and its state, an entry each."""
    index = getattr(mixer, "index", None)
    parts = [part for part in mixer.state if not (index and part in index.state)]
    keys = [part for part in parts if part.format == CACHE and not part.fixed]
    states = [part for part in parts if part.fixed and part.format != CACHE]
    kept = []
    if hasattr(mixer, "encoder_tokens"):
        crossing = sum(entry_bytes(part, formats.kv, formats.tp) for part in mixer.state)
        tokens = mixer.encoder_tokens or 0
        return [Keeps(CROSS, crossing / tokens, reach=tokens)] if tokens else []
    if keys:
        kept.append(_of_keys(mixer, keys, formats))
    if index:
        kept.append(Keeps(MLA, _index_bytes(index.state)))
    if states:
        kept.append(Keeps(STATE, state=_state_bytes(mixer, states, formats)))
    return kept


def _of_keys(mixer: Attention, keys: list[Kept], formats: CacheFormats) -> Keeps:
    """Keys and values, or the latent: the sum of its parts; a window or a chunk where there is one."""
    token = sum(_key_bytes(part, formats, sparse=bool(getattr(mixer, "index", None))) for part in keys)
    cap = next((part.cap for part in keys), None)
    if isinstance(mixer, LatentAttention) and not formats.latent:
        heads = -(-mixer.query_heads // formats.tp)
        return Keeps(FULL, 2 * heads * EXPANDED * formats.kv.bytes_per_element)
    if isinstance(mixer, LatentAttention):
        return Keeps(SLIDING if cap else MLA, token, reach=cap)
    if cap is None:
        return Keeps(FULL, token)
    return Keeps(CHUNKED if getattr(mixer, "chunked", False) else SLIDING, token, reach=cap)


def _key_bytes(part: Kept, formats: CacheFormats, *, sparse: bool) -> float:
    elements, packed = SPARSE_LATENT
    if sparse and part.elements == elements and formats.kv.bits < ACTIVATION_BITS:
        return packed
    scales = 2 * -(-part.heads // formats.tp) * PER_HEAD_SCALE if formats.head_scales else 0.0
    return entry_bytes(part, formats.kv, formats.tp) + scales


def _index_bytes(parts: Iterable[Kept]) -> float:
    """Keys of an index: a byte an element and a scale for 128 of them. [B]"""
    return sum(part.elements * (1 + 4 / INDEX_KEY) for part in parts)


def _state_bytes(mixer: Attention, parts: Iterable[Kept], formats: CacheFormats) -> float:
    """One state: convolution columns (kernel - 1 + drafted) in the model's format, and the recurrence in its own. [B]

    Source: vLLM, model_executor/layers/mamba/mamba_utils.py.
    """
    kernel = getattr(mixer, "conv_kernel", 0)
    columns = {part for part in parts if part.format == MODEL and kernel and part.width % kernel == 0}
    own = formats.model if isinstance(mixer, AS_MODEL) else FORMATS["fp32"]
    total = 0.0
    for part in parts:
        elements = part.shard(formats.tp)
        if part in columns:
            total += elements * (kernel - 1 + formats.drafted) / kernel * formats.model.bytes_per_element
        else:
            stated = formats.state or (own if part.format == FP32 else formats.model)
            total += elements * stated.bytes_per_element
    return total


def without_windows(kept: Iterable[Keeps]) -> list[Keeps]:
    """The same where windows and chunks save nothing, as without the hybrid manager: they are kept whole."""
    return [replace(one, kind=FULL, reach=None) if one.kind in {SLIDING, CHUNKED} else one for one in kept]


def counted(kept: Iterable[Keeps]) -> Mapping[Keeps, int]:
    """How many layers keep each distinct thing, in order of first appearance."""
    counts: dict[Keeps, int] = {}
    for one in kept:
        counts[one] = counts.get(one, 0) + 1
    return counts
