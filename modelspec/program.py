"""What a model does for every step, prepared once: its matrices, experts and mixers as one device holds them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.loose import IN_EXPERTS, beside, gathered, loose, running, tables
from roofcast.modelspec.matrix import (
    ATTENTION,
    EMBEDDING,
    EXPERTS,
    FEED_FORWARD,
    HEAD,
    OTHER,
    Matrix,
    Placed,
    own_module,
)
from roofcast.modelspec.remembered import remembered
from roofcast.modelspec.sharding import Shards, device_share, is_summed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.ffn import FeedForward, MoeFeedForward
    from roofcast.modelspec.layers import Layer
    from roofcast.modelspec.spec import ModelSpec
    from roofcast.modelspec.storage import Storage

    Fusing = tuple[Matrix, str, Attention | None]  # a matrix, its component, and of whose attention it is

SHARED: Final = "shared_experts"
INDEXER: Final = ".indexer."
# component -> module, by the last part of its name -> the term that matrices are fused into; the last is any other's
TERMS: Final[dict[str, tuple[dict[str, str], str]]] = {
    ATTENTION: (
        {
            **dict.fromkeys(("q_b_proj", "kv_b_proj", "q_gate_proj", "f_b_proj", "g_b_proj", "dt_proj"), "attn.up"),
            **dict.fromkeys(("weights_proj", "wk", "index_qk_proj", "index_q_proj", "index_k_proj"), "attn.index"),
            **dict.fromkeys(("o_proj", "out_proj", "wo_a", "wo_b", "linear_out", "output"), "attn.out"),
        },
        "attn.qkv",
    ),
    FEED_FORWARD: (
        {"down_proj": "ffn.down", **dict.fromkeys(("gate", "proj", "shared_expert_gate"), "moe.router")},
        "ffn.gate_up",
    ),
    EXPERTS: ({"down_proj": "moe.down"}, "moe.gate_up"),
    HEAD: ({}, "head"),
    OTHER: ({}, "other"),
}


@dataclass(frozen=True, slots=True)
class Dense:
    """Matrices of one layer that every token passes, fused.

    Args:
        name: the term.
        format: it multiplies in.
        elements: weights on one device, 2 FLOP a token each. [parameter]
        bytes: of these weights. [B]
        inputs, outputs: elements that a token brings and takes. [element]
        kernels: products that it takes: one for all matrices that read the same inputs.
    """

    name: str
    format: str
    elements: float
    bytes: float
    inputs: float
    outputs: float
    kernels: int = 1


@dataclass(frozen=True, slots=True)
class Routed:
    """Routed experts of one layer, fused likewise.

    Args:
        moe: how tokens are sent.
        name, format: as of `Dense`.
        elements, bytes: of one expert, as one device holds it.
        inputs, outputs: elements of a token in one expert.
        experts: whose experts one device holds, as a share of all. [-]
    """

    moe: MoeFeedForward
    name: str
    format: str
    elements: float
    bytes: float
    inputs: float
    outputs: float
    experts: float


@dataclass(frozen=True, slots=True)
class Mixing:
    """Layers that mix tokens alike.

    Args:
        mixer: their attention or recurrence.
        times: how many, passes of looped ones apart.
        inputs, outputs: elements that a token brings and takes on one device. [element]
    """

    mixer: Attention
    times: float
    inputs: float
    outputs: float


@dataclass(frozen=True, slots=True)
class Program:
    """A model on one device of a deployment: what each step runs.

    Args:
        spec: its architecture.
        shards: over how many devices.
        dense, routed, mixers: what runs, and in how many layers (passes of looped ones apart).
        loose: parameters on one device in no matrix: norms, biases, convolutions; 2 FLOP a token each. [parameter]
        loose_bytes: of these. [B]
        beside: elements of norms, residuals and activation functions that a token reads and writes. [element]
        gathered: bytes of the rows that a token looks up. [B]
        head: whose outputs are logits.
        blocks: places in the layers where the group's devices must sum their parts.
        routed_blocks: those of them that follow routed experts.
        resident: weights on one device, of all its stages together. [B]
        tables: of these the embedding, and tables beside it. [B]
        crossed: what an encoder's tokens pass once a sequence, in how many layers, and how many tokens these are.
    """

    spec: ModelSpec
    shards: Shards
    dense: tuple[tuple[Dense, float], ...]
    routed: tuple[tuple[Routed, float], ...]
    mixers: tuple[Mixing, ...]
    loose: float
    loose_bytes: float
    beside: float
    gathered: float
    head: Dense
    blocks: float
    routed_blocks: float
    resident: float
    tables: float
    crossed: tuple[tuple[Dense, float, int], ...] = ()


@remembered(whole=2, size=32)
def build_program(spec: ModelSpec, storage: Storage, shards: Shards) -> Program:
    """Prepares a model's steps on one of the devices that share it.

    Args:
        spec: its architecture.
        storage: how its weights are stored.
        shards: how it is cut.
    """
    counts: defaultdict[Dense | Routed, float] = defaultdict(float)
    held = 0.0
    crossed: defaultdict[tuple[Dense, int], float] = defaultdict(float)
    for number, layer, alike in _stored_layers(spec, storage):
        for part in _layer_parts(spec, layer, number, storage, shards):
            counts[part] += alike * layer.passes * (not layer.skipped)
            held += alike * _held(part)
        for once in _crossing(layer, number, spec.hidden, storage, shards.tp):
            crossed[once] += alike
            held += alike * once[0].bytes
    for matrix in spec.other_matrices:
        other = _fused("other", [(matrix, OTHER, None)], None, storage, shards.tp)
        counts[other] += 1
        held += other.bytes
    head, rest = _head(spec, storage, shards.tp), loose(spec, storage)
    loose_bytes, looked_up = sum(count * size for count, size in rest), tables(spec, storage, shards.tp)
    return Program(
        spec=spec,
        shards=shards,
        dense=tuple((part, n) for part, n in counts.items() if isinstance(part, Dense) and n),
        routed=tuple((part, n) for part, n in counts.items() if isinstance(part, Routed) and n),
        mixers=_mixers(spec, shards.tp),
        loose=sum(count for count, _ in rest),
        loose_bytes=loose_bytes,
        beside=beside(spec, shards.tp),
        gathered=gathered(spec, storage, shards.tp),
        head=head,
        blocks=_blocks(spec, routed=False),
        routed_blocks=_blocks(spec, routed=True),
        resident=held + loose_bytes + looked_up + head.bytes * (not spec.tied),
        tables=looked_up,
        crossed=tuple((part, n, tokens) for (part, tokens), n in crossed.items() if tokens),
    )


def _layer_parts(
    spec: ModelSpec, layer: Layer, number: int, storage: Storage, shards: Shards
) -> Iterator[Dense | Routed]:
    yield from _dense_parts(spec, layer, number, storage, shards)
    yield from _routed_parts(layer, number, storage, shards)


def _held(part: Dense | Routed) -> float:
    return part.bytes * part.moe.experts * part.experts if isinstance(part, Routed) else part.bytes


def _stored_layers(spec: ModelSpec, storage: Storage) -> Iterator[tuple[int, Layer, float]]:
    """Every layer, or each distinct one with how many are alike, where these are stored alike too."""
    if storage.by_layer:
        yield from ((number, layer, 1.0) for number, layer in enumerate(spec.active_layers))
        return
    layers = spec.active_layers
    yield from ((layers.index(layer), layer, float(n)) for layer, n in spec.layer_counts.items())


def _dense_parts(spec: ModelSpec, layer: Layer, number: int, storage: Storage, shards: Shards) -> Iterator[Dense]:
    """The matrices of a layer that every token passes, fused by term and format."""
    fused: dict[str, list[Fusing]] = defaultdict(list)
    for matrix, component, mixer in _working(spec, layer):
        known, other = TERMS[component]
        last = matrix.name.rpartition(".")[2]
        own = {SHARED: "ffn.shared", INDEXER: "attn.index"}
        name = next((term for part, term in own.items() if part in matrix.name), known.get(last, other))
        fused[name].append((matrix, component, mixer))
    for name, matrices in fused.items():
        for part in _by_format(matrices, number, storage):
            yield _fused(name, part, number, storage, shards.tp)


def _working(spec: ModelSpec, layer: Layer) -> Iterator[Fusing]:
    """Every matrix that all tokens pass, those whose weights count in another layer included."""
    once = layer.once(spec.hidden)
    for mixer in layer.mixers:
        for matrix in (*mixer.matrices(spec.hidden), *_borrowed(mixer, spec.hidden)):
            if matrix not in once:
                yield matrix, ATTENTION, mixer
    for part in layer.feed_forwards:
        for matrix in (*part.matrices(), *_borrowed(part)):
            if IN_EXPERTS not in f".{matrix.name}" and matrix.elements:
                yield own_module(matrix, layer), FEED_FORWARD, None
    yield from ((matrix, OTHER, None) for matrix in layer.other_matrices if matrix.elements)


def _crossing(layer: Layer, number: int, hidden: int, storage: Storage, tp: int) -> Iterator[tuple[Dense, int]]:
    """Keys and values of cross attention, and of how many encoder tokens."""
    once = layer.once(hidden)
    for mixer in layer.mixers if once else ():
        matrices: list[Fusing] = [(matrix, ATTENTION, mixer) for matrix in mixer.matrices(hidden) if matrix in once]
        if matrices:
            yield _fused("cross.kv", matrices, number, storage, tp), getattr(mixer, "encoder_tokens", 0) or 0


def _borrowed(part: Attention | FeedForward, *hidden: int) -> tuple[Matrix, ...]:
    lent = getattr(part, "borrowed", None)
    made: tuple[Matrix, ...] = lent(*hidden) if lent else ()
    return made


def _by_format(matrices: Iterable[Fusing], number: int, storage: Storage) -> list[list[Fusing]]:
    """The matrices apart by the format that they multiply in."""
    groups: defaultdict[str, list[Fusing]] = defaultdict(list)
    for matrix, component, mixer in matrices:
        groups[storage.pieces(Placed(component, number, matrix))[0].format].append((matrix, component, mixer))
    return list(groups.values())


def _fused(
    name: str,
    matrices: list[Fusing],
    number: int | None,
    storage: Storage,
    tp: int,
) -> Dense:
    """One operation of matrices that read the same inputs, those that are as wide counted once."""
    elements = stored = outputs = 0.0
    inputs: dict[int, float] = {}
    form = "bf16"
    for matrix, component, mixer in matrices:
        share = device_share(matrix, mixer, tp)
        pieces = storage.pieces(Placed(component, number, matrix))
        elements += share * matrix.elements
        stored += share * matrix.count * sum(piece.share * piece.bytes for piece in pieces)
        split = is_summed(matrix)
        inputs[matrix.columns] = matrix.columns * (share if split else 1)
        outputs += matrix.rows * matrix.count * (1 if split else share)
        form = pieces[0].format
    return Dense(name, form, elements, stored, sum(inputs.values()), outputs, len(inputs))


def _routed_parts(layer: Layer, number: int, storage: Storage, shards: Shards) -> Iterator[Routed]:
    """The routed experts of a layer, fused by term: biases with their matrices."""
    for part in layer.feed_forwards:
        matrices = [own_module(m, layer) for m in part.matrices() if IN_EXPERTS in f".{m.name}"]
        if not matrices:
            continue
        moe: MoeFeedForward = part  # type: ignore[assignment]  # only a mixture has routed experts
        known, other = TERMS[EXPERTS]
        bias = (moe.expert_parameters - sum(matrix.elements for matrix in matrices)) / moe.experts / len(matrices)
        fused: dict[str, list[Matrix]] = defaultdict(list)
        for matrix in matrices:
            fused[known.get(matrix.name.rpartition(".")[2], other)].append(matrix)
        for name, some in fused.items():
            yield _experts(moe, name, [(matrix, bias) for matrix in some], number, storage, shards)


def _experts(
    moe: MoeFeedForward,
    name: str,
    matrices: list[tuple[Matrix, float]],
    number: int,
    storage: Storage,
    shards: Shards,
) -> Routed:
    elements = stored = outputs = 0.0
    inputs, form, loose = 0.0, "bf16", storage.average(EXPERTS).bytes
    slices = shards.expert_slices
    for matrix, bias in matrices:
        pieces = storage.pieces(Placed(EXPERTS, number, matrix))
        elements += matrix.rows * matrix.columns + bias
        stored += sum(piece.share * piece.bytes for piece in pieces) + bias * loose
        split = is_summed(matrix)  # the width of an expert is cut: inputs of what is summed, outputs of the rest
        inputs = matrix.columns / (slices if split else 1)
        outputs += matrix.rows / (1 if split else slices)
        form = max(pieces, key=lambda piece: piece.share).format
    made = Routed(moe, name, form, elements, stored, inputs, outputs, 1 / shards.ep)
    return replace(made, elements=elements / slices, bytes=stored / slices)


def _head(spec: ModelSpec, storage: Storage, tp: int) -> Dense:
    """The head, which a tied model stores as its embedding."""
    component = EMBEDDING if spec.tied else HEAD
    matrix = Matrix("lm_head", spec.head_rows or spec.vocab, spec.hidden)
    placed = replace(matrix, name="embed_tokens", linear=False) if spec.tied else matrix
    pieces = storage.pieces(Placed(component, None, placed))
    bias = spec.head_bias_parameters * storage.average(HEAD).bytes
    stored = sum(piece.share * piece.bytes for piece in pieces) + bias
    elements = (matrix.elements + spec.head_bias_parameters) / tp
    return Dense("head", pieces[0].format, elements, stored / tp, spec.hidden, matrix.rows / tp)


def _mixers(spec: ModelSpec, tp: int) -> tuple[Mixing, ...]:
    counts: defaultdict[Attention, float] = defaultdict(float)
    for layer, alike in running(spec):
        for mixer in layer.mixers:
            counts[mixer] += alike * layer.passes
    return tuple(Mixing(mixer, times, *_carried(mixer, spec.hidden, tp)) for mixer, times in counts.items())


def _carried(mixer: Attention, hidden: int, tp: int) -> tuple[float, float]:
    """What projections hand to a mixer, and what its output projection takes from it, for one token. [element]"""
    matrices = (*mixer.matrices(hidden), *_borrowed(mixer, hidden))
    made = sum(m.rows * m.count * device_share(m, mixer, tp) for m in matrices if not is_summed(m))
    taken = sum(m.columns * m.count * device_share(m, mixer, tp) for m in matrices if is_summed(m))
    return float(made), float(taken)


def _blocks(spec: ModelSpec, *, routed: bool) -> float:
    """Halves of layers after which devices sum their parts: mixers and dense feed-forwards, or routed ones."""
    total = 0.0
    for layer, alike in running(spec):
        sparse = any(part.expert_parameters for part in layer.feed_forwards)
        feeds = bool(layer.feed_forwards)
        halves = int(feeds and sparse) if routed else bool(layer.mixers) + int(feeds and not sparse)
        total += alike * layer.passes * halves
    return total
