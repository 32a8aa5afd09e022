"""Bytes of weight files by component, told by the names of their tensors: safetensors of all families, and GGUF."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.matrix import ATTENTION, DRAFT, EMBEDDING, EXPERTS, FEED_FORWARD, HEAD, SCALES
from roofcast.modelspec.stored import causal_mask, of_quantiser

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from roofcast.modelspec.weights import Tensor, WeightFiles

NORMS: Final = "norms"
ENCODER: Final = "encoder"
VISION: Final = "vision"
AUDIO: Final = "audio"
OTHER: Final = "other"
_PROJECTOR: Final = "projector"  # of images or of sound: the tower beside it tells
_SPEECH: Final = "speech"  # what a model speaks with
_BESIDE: Final = frozenset({ENCODER, VISION, AUDIO, _PROJECTOR, _SPEECH})  # their layers have numbers of their own
#: In the order in which they are shown.
COMPONENTS: Final = (
    EMBEDDING,
    ATTENTION,
    FEED_FORWARD,
    EXPERTS,
    NORMS,
    HEAD,
    SCALES,
    DRAFT,
    ENCODER,
    VISION,
    AUDIO,
    OTHER,
)

_TOWERS: Final = {"vision": VISION, "video": VISION, "audio": AUDIO}  # a word in the name of a tower -> its component
_TOLERANCE: Final = 1e-3
_TRIFLE: Final = 1e-5
_WHOLE: Final = 1_000  # numbers from here on are shown without decimals
_LONGEST: Final = 1_000  # characters of a name; published ones have fewer than two hundred
_UNITS: Final = ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))

# A name as the rows below see it: its first number between dots, that of a layer, is N, and later ones are #.
_NUMBER: Final = r"\b\d+\b"
_LAYER: Final = r"(?:^|\.)(?:layers|layer|h|blocks|block|blk|decoder_layer)\.(?P<layer>\d{1,6})\."
# where in a name a row looks for a part
_START: Final = r"^"
_BEFORE: Final = r"^(?:(?!N\.)[^.]+\.)*?"  # modules outside the layers
_LAYER_PART: Final = r"(?:^|\.)N\."  # a layer's own modules
_INSIDE: Final = r"(?:^|\.)N\.(?:[^.]+\.)*?"  # those and modules in them
_NO_NORM: Final = _INSIDE + r"(?!\w*norm|ln_|\w+_ln\b)"
_ANYWHERE: Final = r"(?:^|\.)"

# Where, whole parts of names there, component. Ordered: the first row that finds one of its parts in a name decides.
# Names are those of published checkpoints and of llama.cpp's table of tensors.
_ROWS: Final[tuple[tuple[str, str, str], ...]] = (
    (_ANYWHERE, r"mtp\w* nextn\w*", DRAFT),
    (_ANYWHERE, r"inv_freq position_ids masked_bias num_batches_tracked", OTHER),
    (_ANYWHERE, r"rope\.freqs rope_freqs rope_factors_\w+ attn_rot_embd", OTHER),
    # beside the decoder
    (_BEFORE, r"talker\w* token2wav\w* code2wav\w* tts\w* code_predictor\w* vocoder\w*", _SPEECH),
    (_BEFORE, r"audio\w* \w+_audio speech\w* sound\w* apm whisper\w* conformer a", AUDIO),
    (_START, r"mm\.a", AUDIO),
    (_BEFORE, r"vision\w* visual\w* view_sep\w+ \w+_vision vit vpm v image\w* \w+_image img\w* video\w*", VISION),
    (_BEFORE, r"siglip\w* sam\w* vqmodel generation_\w+ patch_merge\w* patch_embed\w* vision2seq resampler", VISION),
    (_BEFORE, r"mm \w*mm_projector\w* mlp1 mlp_AR aligner connector merger abstractor perceiver\w*", VISION),
    (_BEFORE, r"language_projection", VISION),
    (_BEFORE, r"multi_?modal_projector projector qformer query_tokens adapter", _PROJECTOR),
    (_START, r"(?:model\.)?encoder\.(?!embed_tokens)\w+ enc", ENCODER),
    # in a layer: residual streams, then a mixer that is attention, a state space or a feed-forward
    (_ANYWHERE, r"relative_attention_bias (?:cross_)?attn_rel_b (?:attn|ffn)_hc hc_\w+", OTHER),
    (_LAYER_PART, r"mixer\.experts", EXPERTS),
    (_LAYER_PART, r"mixer\.(?:gate|(?:up|down)_proj|shared_experts|fc\d_latent_proj)", FEED_FORWARD),
    (_LAYER_PART, r"attn_(?:[qk]|q_a|kv_a|sub)_norm ssm_\w*norm time_mix_ln", ATTENTION),
    (_LAYER_PART, r"ffn_sub_norm", FEED_FORWARD),
    (_NO_NORM, r"\w*attn\w* \w*[aA]ttention\w* att mixer mamba temporal_block mlstm_layer time_mix\w*", ATTENTION),
    (_NO_NORM, r"conv conv1d shortconv short_conv ssm\w* A_log D dt_bias dt_proj x_proj indexer compressor", ATTENTION),
    (_NO_NORM, r"[qkvo]_proj Wqkv qkv_proj in_proj out_proj", ATTENTION),
    (_INSIDE, r"\w*shared?_\w*experts?\w* \w*shared_mlp \w+_shexp", FEED_FORWARD),
    (_INSIDE, r"\w*experts expert_\d+ switch_mlp \w+_(?:ch)?exps", EXPERTS),
    (_INSIDE, r"\w*moe\.(?:gate|up|down|gate_up)_proj \w*moe\.(?:in|out)put_linear moe\.linear(?:_v|_1)?", EXPERTS),
    (_NO_NORM, r"\w*mlp\w* ffn\w* feed_?forward\w* \w*moe\w* DenseReluDense channel_mix\w* ff_\w+", FEED_FORWARD),
    (_NO_NORM, r"fc\d fc_in fc_out intermediate output (?:gate|up|down|gate_up)_proj", FEED_FORWARD),
    (_NO_NORM, r"router gate exp_probs_b vis_(?:gate|up|down)", FEED_FORWARD),
    (_INSIDE, r"\w*norm\w* ln\w* \w+_ln", NORMS),
    # around the layers
    (_BEFORE, r"(?:\w*norm\w*|ln\w*|\w+_ln)\.(?:weight|bias|scale)", NORMS),
    (_BEFORE, r"embed embed_in embed_tokens\w* (?:\w+_)?embeddings? in_out_embed shared wte", EMBEDDING),
    (_BEFORE, r"wpe embed_positions token_embd position_embd token_types per_layer_token_embd", EMBEDDING),
    (_BEFORE, r"lm_heads? output output_layer embed_out head word_embeddings_for_head ff_out proj_out", HEAD),
    (_BEFORE, r"cls score \w*classifier", HEAD),
)


@dataclass(frozen=True, slots=True)
class Stored:
    """What the files hold of one component.

    Args:
        component: one of `COMPONENTS`.
        bytes: of its tensors. [B]
        elements: dtype -> elements as stored, the most bytes first.
        tensors: how many.
    """

    component: str
    bytes: int
    elements: Mapping[str, int]
    tensors: int


def stored_components(files: WeightFiles, layers: int) -> tuple[Stored, ...]:
    """Bytes of the weight files by component, in the order of `COMPONENTS`; none of files whose names are not known.

    sum over components of bytes = bytes of all tensors [B].

    What a quantiser adds beside its weights (scales, zero points, orders) is `scales` but in multi-token prediction,
    which a server that does not use it leaves out whole. Shared experts and routers are `feed_forward`, and norms inside
    of attention `attention`, as `ModelSpec.components` has it.

    Args:
        files: what the weight files hold.
        layers: of the decoder; layers beyond them are of multi-token prediction.

    >>> from roofcast.modelspec.weights import Tensor, collect
    >>> tensors = (Tensor("model.layers.0.mlp.up_proj.weight", "F8_E4M3", (256, 128)),
    ...            Tensor("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", (2, 1)))
    >>> [(part.component, part.bytes) for part in stored_components(collect({"a.safetensors": tensors}, "x"), 1)]
    [('feed_forward', 32768), ('scales', 8)]
    """
    names = {tensor.name for tensor in files.tensors}
    known: dict[str, str] = {}
    told = [_component(tensor, layers, names, known) for tensor in files.tensors]
    sound_alone = AUDIO in told and VISION not in told
    whole = {_PROJECTOR: AUDIO if sound_alone else VISION, _SPEECH: OTHER}
    parts: dict[str, list[Tensor]] = {}
    for component, tensor in zip(told, files.tensors, strict=True):
        parts.setdefault(whole.get(component, component), []).append(tensor)
    return tuple(_stored(name, parts[name]) for name in COMPONENTS if name in parts)


def as_stored(counted: Mapping[str, float]) -> dict[str, float]:
    """What a spec counts by component, under the names that stored tensors are told by: one for all of a tower.

    >>> as_stored({"norms": 5, "vision": 300, "vision_projector": 20, "talker": 7})
    {'norms': 5, 'vision': 320, 'other': 7}
    """
    sums: dict[str, float] = {}
    for name, value in counted.items():
        tower = next((tower for word, tower in _TOWERS.items() if word in name), OTHER)
        component = name if name in COMPONENTS else tower
        sums[component] = sums.get(component, 0) + value
    return sums


def component_differences(
    stored: Mapping[str, float], implied: Mapping[str, float], dtypes: Mapping[str, Iterable[str]] | None = None
) -> tuple[str, ...]:
    """One line for each component whose bytes in the files are not those that the config implies, to 0.1 %.

    Differences of less than a hundred thousandth of all bytes are not told: a few norms by another name.

    Args:
        stored: component -> bytes in the files; one that is not there has none. [B]
        implied: component -> bytes as the config has it, likewise. [B]
        dtypes: component -> dtypes of its tensors, where they are known.

    >>> component_differences({"experts": 3 * 2**30, "norms": 5}, {"experts": 2**30, "norms": 5}, {"experts": ["BF16"]})
    ('experts: the files hold 3 GiB (BF16), the config implies 1 GiB',)
    """
    known = dtypes or {}
    least = _TRIFLE * sum(stored.values())
    pairs = ((name, stored.get(name, 0), implied.get(name, 0)) for name in dict.fromkeys((*stored, *implied)))
    return tuple(
        f"{name.replace('_', '-')}: the files hold {_size(held)}{_of(known.get(name, ()))}, "
        f"the config implies {_size(said)}"
        for name, held, said in pairs
        if abs(held - said) > max(_TOLERANCE * max(held, said), least)
    )


def _size(size: float) -> str:
    unit, name = next(((u, n) for u, n in _UNITS if size >= u), (1, "B"))
    if not size:
        return "nothing"
    return f"{size / unit:,.0f} {name}" if size / unit >= _WHOLE else f"{size / unit:.4g} {name}"


def _of(dtypes: Iterable[str]) -> str:
    names = ", ".join(dtypes)
    return f" ({names})" if names else ""


def _stored(component: str, tensors: list[Tensor]) -> Stored:
    elements: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for tensor in tensors:
        elements[tensor.dtype] += tensor.elements
        size[tensor.dtype] += tensor.bytes
    return Stored(component, size.total(), {dtype: elements[dtype] for dtype, _ in size.most_common()}, len(tensors))


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The rows as expressions, compiled when the first tensor is met."""
    return tuple(
        (re.compile(rf"{where}(?:{'|'.join(parts.split())})(?:\.|$)"), component) for where, parts, component in _ROWS
    )


def _component(tensor: Tensor, layers: int, names: AbstractSet[str], known: dict[str, str]) -> str:
    """The component of a tensor; `known` keeps what names that differ in numbers alone have in common."""
    shape = re.sub(_NUMBER, "#", tensor.name).replace("#", "N", 1)
    component = known.get(shape)
    if component is None:
        rows = _patterns() if len(shape) <= _LONGEST else ()
        component = known[shape] = next((name for row, name in rows if row.search(shape)), OTHER)
    if component not in _BESIDE and (found := re.search(_LAYER, tensor.name)) and int(found["layer"]) >= layers:
        component = DRAFT
    if component != DRAFT and of_quantiser(tensor, names):
        return SCALES
    return OTHER if causal_mask(tensor) else component
