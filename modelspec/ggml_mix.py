"""The tensor mix of a named quantisation, as llama.cpp's llama-quantize makes it: `--weights q4_k_m`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.errors import UndeterminedModelError
from roofcast.modelspec.formats import no_such
from roofcast.modelspec.ggml import BY_NAME
from roofcast.modelspec.ggml_names import (
    FUSED_CLASSES,
    LAYER_TOKENS,
    OUTPUT,
    TOKENS,
    WHOLE_LATENT_CLASSES,
    gguf_tensors,
)
from roofcast.modelspec.ggml_rules import (
    FALLBACK,
    GROUPED,
    KIND_OF,
    LAST,
    LOWEST,
    PLAIN,
    VALUES,
    Case,
    type_by_rule,
)
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.matrix import EMBEDDING, inventory
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from roofcast.modelspec.ggml_names import GgufTensor
    from roofcast.modelspec.spec import ModelSpec

WHOLE: Final = ("F32", "F16", "BF16")  # files that are converted and not quantised
FALCON_CLASSES: Final = frozenset(("falcon", "RefinedWeb", "RefinedWebModel"))
# Mixers alternate, but their files state one number of KV heads for all layers, so that of the first is not 0.
UNIFORM_CLASSES: Final = ("qwen3_next", "qwen3_5")
# What llama.cpp calls 70B, by its layers, and whether queries must share KV heads for it.
SEVENTY: Final[dict[str, tuple[int, bool]]] = {
    "llama": (80, True),
    "mistral": (80, True),
    "qwen2": (80, False),
    "nemotron-nas": (80, False),
    "olmo": (80, False),
    "jais2": (68, False),
}
# Beyond matrices a component holds biases and norms: at most so many a row and column. Convolutions, decays and states'
# constants of recurrent kinds are more. What is above that is a matrix that nobody has named.
SMALL: Final = 2
SMALL_RECURRENT: Final = 64
NORMS_A_LAYER: Final = 8
RECURRENT: Final = ("ssm_", "shortconv.")
SPOKEN: Final = ("talker", "token2wav", "speech", "vocoder")  # what a model speaks with
PACKED_EXPERTS: Final = "mxfp4"  # quantisation of a checkpoint whose experts the converter leaves as they are
UNMOVED: Final = ("q8_0", "q6_k", "q4_0", "q4_1", "q5_0", "q5_1", "q3_k_s", "q5_k_s", "mxfp4_moe")
OTHER_NAMES: Final = {"q3_k": "q3_k_m", "q4_k": "q4_k_m", "q5_k": "q5_k_m"}  # llama-quantize's own
SINGLE: Final = frozenset(("bf16",))  # formats of plain checkpoints that llama.cpp spells alike


@dataclass(frozen=True, slots=True)
class Mix:
    """A named quantisation.

    Args:
        name: as `--weights` spells it; llama-quantize takes it in upper case.
        type: of ggml, which tensors have that no rule gives another.
        needs_imatrix: whether llama-quantize refuses to make it without an importance matrix.
        imatrix_matters: whether some types depend on there being one.
    """

    name: str
    type: str
    needs_imatrix: bool = False
    imatrix_matters: bool = False


_TYPES: Final[dict[str, str]] = {
    **{t.lower(): t for t in ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q6_K")},
    **{t.lower(): t for t in ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS")},
    **{t.lower(): t for t in ("TQ1_0", "TQ2_0")},
    "q2_k_s": "Q2_K",
    **dict.fromkeys(("q3_k_s", "q3_k_m", "q3_k_l"), "Q3_K"),
    **dict.fromkeys(("q4_k_s", "q4_k_m"), "Q4_K"),
    **dict.fromkeys(("q5_k_s", "q5_k_m"), "Q5_K"),
    "iq2_s": "IQ2_XS",
    "iq2_m": "IQ2_S",
    "iq3_xs": "IQ3_S",
    "iq3_m": "IQ3_S",
    "mxfp4_moe": "MXFP4",
}
_NEED: Final = LOWEST | {"iq3_xxs", "iq3_xs", "q2_k_s"}
_MATTERS: Final = ("q4_0", "q5_0", "iq4_nl", "iq4_xs")

#: Every mix by its name in lower case.
MIXES: Final[Mapping[str, Mix]] = {
    name: Mix(name, type_, name in _NEED, name in _MATTERS) for name, type_ in sorted(_TYPES.items())
}


@dataclass(frozen=True, slots=True)
class MixBytes:
    """What the tensors of a file take.

    Args:
        components: bytes by component, as `ModelSpec.components` names them. [B]
        elements: parameters by ggml type.
        assumptions: what was taken as given, a line each.
        tensors: bytes an element of the matrices of one name, over all layers. [B]
    """

    components: Mapping[str, int]
    elements: Mapping[str, int]
    assumptions: tuple[str, ...]
    tensors: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes of all tensors; a file has its metadata besides, mostly under 10 MB. [B]"""
        return sum(self.components.values())


def find_mix(name: str) -> Mix:
    """The mix of that name, in whatever case.

    Raises:
        UnknownFormatError: where the table has none.

    >>> find_mix("Q4_K_M").type
    'Q4_K'
    """
    key = _key(name)
    if key in MIXES:
        return MIXES[key]
    raise no_such(name, MIXES)


def _key(name: str) -> str:
    key = name.strip().lower()
    return OTHER_NAMES.get(key, key)


def mix_of(name: str) -> Mix | None:
    """The mix that a user means by a format of weights; None where the name is a single format's, or nothing's.

    q4_0, q8_0, q6_k and their like name a block layout and a file whose head is in another: a user who names one for
    weights means the file. bf16 means every tensor in bf16, as published checkpoints have it.

    >>> mix_of("q4_0").type, mix_of("bf16"), mix_of("fp8")
    ('Q4_0', None, None)
    """
    key = _key(name)
    return None if key in SINGLE else MIXES.get(key)


def mix_bytes(spec: ModelSpec, name: str, *, imatrix: bool | None = None) -> MixBytes:
    """Bytes of every component in the file that llama-quantize makes of a model under that name.

    sum over tensors of elements / block x bytes a block; norms, biases, routers and convolutions are F32, towers a
    file of their own in 16 bit. Factors of a scaled RoPE (under 1 kB) and padding between tensors are not in it.

    Args:
        spec: the model; how its own file is quantised does not matter.
        name: of the mix, in whatever case.
        imatrix: whether an importance matrix is at hand; None is where llama-quantize demands one, and of the iq4
            types, which are published with one.

    Raises:
        UnknownFormatError: no such mix.
        UndeterminedModelError: layers whose tensors in a GGUF file are not known, rows that llama-quantize refuses.

    Source: llama.cpp, src/llama-quant.cpp, 2026.
    """
    mix = find_mix(name)
    tensors = gguf_tensors(spec, inventory(spec))
    components: Counter[str] = Counter(dict.fromkeys(spec.components, 0))
    elements: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for tensor, kind in _typed(spec, mix, tensors, imatrix=_by_default(mix) if imatrix is None else imatrix):
        components[tensor.component] += BY_NAME[kind].size(tensor.elements)
        elements[kind] += tensor.elements
        named[tensor.name] += BY_NAME[kind].size(tensor.elements)
    counts = Counter[str]()
    for tensor in tensors:
        counts[tensor.name] += tensor.elements
    for component, count, kind in _rest(spec, mix, tensors):
        components[component] += BY_NAME[kind].size(count)
        elements[kind] += count
    unused = sum(tensor.elements for tensor in tensors if not tensor.used)
    each = {name: size / counts[name] for name, size in named.items()}
    return MixBytes(dict(components), dict(elements), tuple(_assumptions(spec, mix, imatrix, unused)), each)


def _by_default(mix: Mix) -> bool:
    return mix.needs_imatrix or mix.name.startswith("iq")


def _typed(
    spec: ModelSpec, mix: Mix, tensors: tuple[GgufTensor, ...], *, imatrix: bool
) -> Iterator[tuple[GgufTensor, str]]:
    """Every tensor with its type; which it is among those of its kind decides it, so order matters."""
    kinds = Counter(KIND_OF.get(tensor.name, "") for tensor in tensors)
    tied = not any(tensor.name == OUTPUT for tensor in tensors)
    experts = max((part.experts for part in spec.experts), default=0)
    by_layer = experts > 1 and mix.name not in LOWEST
    group, seventy, layers = _group(spec), _is_seventy(spec), len(spec.active_layers)
    seen: Counter[str] = Counter()
    for tensor in tensors:
        kind = "output" if tied and tensor.name in (TOKENS, LAYER_TOKENS) else KIND_OF.get(tensor.name, "")
        case = Case(
            index=tensor.layer or 0 if by_layer and kind != VALUES else seen[kind],
            count=kinds[kind] if kind == VALUES else layers,
            group=group,
            experts=experts,
            falcon=spec.model_type in FALCON_CLASSES,
            uneven=bool(tensor.columns % BY_NAME[mix.type].block),
            stacked=tensor.count > 1,
            imatrix=imatrix,
        )
        seen[kind] += 1
        yield tensor, _type(mix, tensor, kind, case, seventy=seventy, packed=spec.quantization == PACKED_EXPERTS)


def _type(mix: Mix, tensor: GgufTensor, kind: str, case: Case, *, seventy: bool, packed: bool) -> str:
    """Type of one tensor, after the one that its row demands."""
    if packed and tensor.count > 1:
        return "MXFP4"
    plain = PLAIN.get(tensor.name)
    if plain or mix.type in WHOLE:
        return mix.type if plain in (None, "F16") and mix.type in WHOLE else str(plain)
    chosen = type_by_rule(mix.name, mix.type, kind, case)
    if seventy and kind == VALUES and mix.name not in LOWEST and not case.eight:
        chosen = GROUPED.get(chosen, chosen)
    if tensor.columns % BY_NAME[chosen].block == 0:
        return chosen
    if chosen not in FALLBACK:
        msg = f"llama-quantize makes no {mix.name} of {tensor.name}: its rows of {tensor.columns} are no whole blocks "
        raise UndeterminedModelError(f"{msg}of {chosen}, {BY_NAME[chosen].block} elements each; name another mix")
    other = FALLBACK[chosen]
    return LAST if tensor.columns % BY_NAME[other].block else other


def _group(spec: ModelSpec) -> int:
    """Query heads that share a KV head as the file states it for its first layer; 0 where that has none.

    MLA whose latent folds into queries is stated as one KV head.
    """
    mixers = spec.layers[0].mixers if spec.layers else ()
    mixer = next((mixer for mixer in mixers if mixer.published_kv_heads), None)
    if mixer is None and spec.model_type.startswith(UNIFORM_CLASSES):
        mixer = spec.lead_mixer
    if mixer is None or not mixer.published_kv_heads:
        return 0
    folds = isinstance(mixer, LatentAttention) and spec.model_type not in WHOLE_LATENT_CLASSES
    return mixer.query_heads // (1 if folds else mixer.published_kv_heads)


def _is_seventy(spec: ModelSpec) -> bool:
    layers, shares = SEVENTY.get(spec.model_type, (0, False))
    return len(spec.layers) == layers > 0 and (not shares or _group(spec) != 1)


def _rest(spec: ModelSpec, mix: Mix, tensors: Iterable[GgufTensor]) -> Iterator[tuple[str, int, str]]:
    """What is in no tensor of two dimensions, by component: in F32, and towers in 16 bit, in a file of their own.

    Raises:
        UndeterminedModelError: where it is too much for biases and norms.
    """
    beside = {tower.component for tower in spec.towers}
    room: Counter[str] = Counter()
    named: Counter[str] = Counter()
    for tensor in tensors:
        small = SMALL_RECURRENT if tensor.name.startswith(RECURRENT) else SMALL
        room[tensor.component] += small * tensor.count * (tensor.rows + tensor.columns)
        named[tensor.component] += tensor.elements * tensor.used
    room["feed_forward"] += sum(part.router_parameters or 0 for part in spec.experts)
    room["norms"] = room["head"] = spec.parameters
    room[EMBEDDING] += spec.position_parameters
    room["other"] = NORMS_A_LAYER * spec.hidden * len(spec.active_layers)
    for component, count in spec.components.items():
        left = count - named[component]
        if component in beside:
            kept = not any(word in component for word in SPOKEN)
            yield from ((component, left, mix.type if mix.type in WHOLE else "F16"),) if kept else ()
            continue
        if left > room[component]:
            msg = f"{left:,} parameters of {component} of model_type {quoted(spec.model_type)} are in no tensor that "
            raise UndeterminedModelError(
                f"{msg}is known of its GGUF file, so neither is its file; --weights fp8 or bf16 counts every parameter in that format"
            )
        yield component, left, "F32"


def _assumptions(spec: ModelSpec, mix: Mix, imatrix: bool | None, unused: int) -> Iterator[str]:
    quantised = mix.type not in WHOLE
    if quantised:
        yield f"tensor types are those that llama-quantize gives {mix.name.upper()}; other recipes use the name too"
    if mix.imatrix_matters and imatrix is None:
        made, other = ("with", "without") if _by_default(mix) else ("without", "with")
        yield f"made {made} an importance matrix: {other} one the first eighth of ffn_down has another type"
    if quantised and spec.model_type in FUSED_CLASSES and mix.name not in UNMOVED:
        yield "attn_qkv has the type of today's llama.cpp: in files made before 2026 it may have another, by some 3 % of all"
    if spec.quantization == PACKED_EXPERTS:
        yield "its experts stay MXFP4 as its checkpoint has them, which is how llama.cpp's converter writes them"
    if unused:
        yield f"{unused:,} parameters that its layers do not read are in the file all the same: keys and values, padding"
    spoken = [tower for tower in spec.towers if any(word in tower.name for word in SPOKEN)]
    seen = [tower for tower in spec.towers if tower not in spoken]
    if seen and quantised:
        size = 2 * sum(tower.parameters for tower in seen) / 1e9
        yield f"{size:.2f} GB of it are {', '.join(tower.name for tower in seen)} in F16, in a file of its own (mmproj)"
    if spoken:
        yield f"{', '.join(tower.name for tower in spoken)}: llama.cpp's files leave it out, and so do these bytes"
