"""What drafts tokens beside a model: the programs of draft heads, and how each kind of head is made."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.errors import UnknownArchitectureError
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.matrix import DRAFT
from roofcast.modelspec.program import Dense, Mixing, Program, build_program
from roofcast.modelspec.spec import ModelSpec, build_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.modelspec.program import Routed
    from roofcast.modelspec.sharding import Shards
    from roofcast.modelspec.state import Kept
    from roofcast.modelspec.storage import Storage

Part = TypeVar("Part", "Dense", "Routed")
HEAD_DIM: Final = 128  # of a head's attention where the target keeps no keys a head
KV_HEADS: Final = 8  # likewise. Source: heads published for DeepSeek-V3, 56 query and 8 KV heads at h = 7168
# of a head's feed-forward, in widths of a token's experts. Source: heads published for mixtures: 2 (Qwen3-30B-A3B,
# Qwen3-235B-A22B), 1.5 (gpt-oss-120b), 2.2 (DeepSeek-V3), 1 (Kimi K2)
AS_WIDE: Final = 2
EAGLE3_VOCABULARY: Final = 32_000  # rows of the head of published EAGLE-3 drafts


@dataclass(frozen=True, slots=True)
class Head:
    """A draft head on one device.

    Args:
        first: what the first step of a round runs.
        later: what every other step runs.
        parameters: of its own, on all devices together; what it shares with the target is not in it. [parameter]
        bytes: of these, on one device. [B]
        kept: what its layers keep of a sequence, and how many keep each.
    """

    first: Program
    later: Program
    parameters: float
    bytes: float
    kept: tuple[tuple[Kept, int], ...] = ()


def mtp_head(spec: ModelSpec, storage: Storage, shards: Shards) -> Head:
    """The model's own multi-token prediction, one module a step: what joins it, 2 h^2, its layers, and the model's head.

    The projection takes a token's embedding and the hidden state before it; embedding and head are the decoder's. Steps
    beyond the last module run it again.

    Source: DeepSeek-V3, arXiv:2412.19437, section 2.2; vLLM 0.11, model_executor/models/deepseek_mtp.py.

    Raises:
        UnknownArchitectureError: the model has none, or what is in it is not known.
    """
    if not spec.mtp_layers:
        raise UnknownArchitectureError(
            "its config names no multi-token-prediction layers, whatever its files hold; name another --method"
        )
    drafting, plain = replace(spec, drafting=True), replace(spec, drafting=False)
    whole, without = build_program(drafting, storage, shards), build_program(plain, storage, shards)
    layers = sum(layer.parameters(spec.hidden) for layer in spec.draft)
    modules = max(1, (spec.draft_parameters - layers) // (2 * spec.hidden**2))
    join = _projection("draft.join", 2 * spec.hidden, spec.hidden, storage)
    program = replace(
        whole,
        dense=(*_apart(whole.dense, without.dense, modules), (join, 1.0)),
        routed=_apart(whole.routed, without.routed, modules),
        mixers=_mixing_apart(whole.mixers, without.mixers, modules),
        loose=(whole.loose - without.loose) / modules,
        loose_bytes=(whole.loose_bytes - without.loose_bytes) / modules,
        beside=(whole.beside - without.beside) / modules,
        blocks=(whole.blocks - without.blocks) / modules,
        routed_blocks=(whole.routed_blocks - without.routed_blocks) / modules,
        crossed=(),
    )
    kept = Counter(drafting.kept)
    kept.subtract(plain.kept)
    size = whole.resident - without.resident + modules * join.bytes
    return Head(program, program, float(spec.draft_parameters), size, tuple((k, n) for k, n in kept.items() if n))


def like(target: ModelSpec) -> tuple[ModelSpec, tuple[str, ...]]:
    """One decoder layer of a target's widths, as heads are trained for it, and what had to be taken as given.

    Query and KV heads are the target's, the feed-forward as wide as its own. Where it keeps a latent or none, h / 128
    query heads over 8 KV heads; of a mixture, twice as wide as the experts of one token.
    """
    heads, of_width = _heads(target)
    wide, of_experts = _width(target)
    raw = {
        "model_type": "llama",
        "hidden_size": target.hidden,
        "num_hidden_layers": 1,
        "vocab_size": target.vocab,
        "intermediate_size": wide,
        "tie_word_embeddings": False,
        "num_attention_heads": heads.query_heads,
        "num_key_value_heads": heads.kv_heads,
        "head_dim": heads.head_dim,
    }
    taken = {
        f"{heads.query_heads} query and {heads.kv_heads} KV heads": of_width,
        f"a feed-forward of width {wide:,}, twice that of a token's experts,": of_experts,
    }
    said = "{} taken for the draft head, whose config.json --draft names"
    return build_spec(raw), tuple(said.format(what) for what, assumed in taken.items() if assumed)


def _heads(target: ModelSpec) -> tuple[GroupedAttention, bool]:
    """Attention of a head, and whether it had to be taken from the target's width alone."""
    own = next((m for layer in target.layers for m in layer.mixers if isinstance(m, GroupedAttention)), None)
    if own is not None:
        return own, False
    queries = max(1, target.hidden // HEAD_DIM)
    shared = next(n for n in (KV_HEADS, 4, 2, 1) if queries % n == 0)
    return GroupedAttention(queries, shared, HEAD_DIM, HEAD_DIM), True


def eagle_head(target: Program, layer: ModelSpec, storage: Storage, shards: Shards) -> Head:
    """EAGLE's head: a projection of a token's embedding and its hidden state, 2 h^2, one decoder layer, the target's head.

    The layer has one norm, before its feed-forward. EAGLE-2 is the same head with a tree.

    Source: Li et al. 2024, arXiv:2401.15077, section 4.1; SafeAILab/EAGLE, eagle/model/cnets1.py.
    """
    base = build_program(layer, storage, shards)
    join = _projection("draft.join", 2 * layer.hidden, layer.hidden, storage)
    own = _with(base, storage, norms=1, parts=(join,))
    program = replace(
        own, head=target.head, spec=replace(layer, vocab=target.spec.vocab, head_rows=target.spec.head_rows)
    )
    return _head(program, program, _own_parameters(layer, norms=1) + join.elements, [*_parts(own)])


def eagle3_head(layer: ModelSpec, storage: Storage, shards: Shards, vocabulary: int) -> Head:
    """EAGLE-3's head: hidden states of three layers projected, 3 h^2, once a round; attention over 2 h; a head of its own.

    Queries, keys and values take a token's embedding beside the projected state. The head has a vocabulary of its own,
    32,000 tokens where nothing says otherwise.

    Source: Li et al. 2025, arXiv:2503.01840, section 3; vLLM 0.11, model_executor/models/llama_eagle3.py.
    """
    base = build_program(replace(layer, head_rows=vocabulary), storage, shards)
    hidden = layer.hidden
    fuse = _projection("draft.fuse", 3 * hidden, hidden, storage)
    rows = next(part.outputs for part, _ in base.dense if part.name == "attn.qkv")
    wide = Dense("attn.qkv", fuse.format, rows * hidden, rows * hidden * storage.plain.bytes, float(hidden), 0.0)
    later = _with(base, storage, norms=4, parts=(wide,))
    first = replace(later, dense=(*later.dense, (fuse, 1.0)))
    whole = _own_parameters(layer, norms=4) + _rows(layer) * hidden + fuse.elements + vocabulary * hidden
    return _head(first, later, whole, [*_parts(first), base.head])


def medusa_heads(target: Program, heads: int, storage: Storage) -> Head:
    """Medusa's heads, each for one position ahead: a residual block, h^2 + h, and a head of its own, V h; all in one pass.

    Source: Cai et al. 2024, arXiv:2401.10774, section 2.1.1; FasterDecoding/Medusa, medusa/model/medusa_model.py.

    Args:
        target: whose last hidden state they take.
        heads: how many.
        storage: how they are stored.
    """
    hidden, vocab = target.spec.hidden, target.spec.vocab
    block = _projection("draft.block", hidden, hidden, storage)
    block = replace(block, elements=block.elements + hidden, bytes=block.bytes + hidden * storage.plain.bytes)
    tp, rows = target.shards.tp, heads * vocab
    size = rows * hidden * storage.plain.bytes / tp
    logits = Dense("head", storage.plain.format, rows * hidden / tp, size, float(hidden), rows / tp)
    program = replace(
        target,
        spec=replace(target.spec, head_rows=rows),
        dense=((block, float(heads)),),
        routed=(),
        mixers=(),
        loose=0.0,
        loose_bytes=0.0,
        beside=2.0 * hidden * heads,
        gathered=0.0,
        head=logits,
        blocks=-1.0,  # no part of its widths is summed, and no embedding looked up
        routed_blocks=0.0,
        crossed=(),
    )
    whole = heads * (hidden**2 + hidden + vocab * hidden)
    return Head(program, program, float(whole), heads * block.bytes + logits.bytes)


def _projection(name: str, columns: int, rows: int, storage: Storage) -> Dense:
    """A matrix that every device of a group holds whole."""
    stored = storage.average(DRAFT)
    elements = float(rows * columns)
    return Dense(name, stored.format, elements, elements * stored.bytes, float(columns), float(rows))


def _with(base: Program, storage: Storage, *, norms: int, parts: tuple[Dense, ...]) -> Program:
    """The program of a layer with further matrices, and so many norms in all."""
    loose = float(norms * base.spec.hidden)
    dense = (*base.dense, *((part, 1.0) for part in parts))
    return replace(base, dense=dense, loose=loose, loose_bytes=loose * storage.plain.bytes)


def _parts(program: Program) -> Iterable[Dense]:
    return (part for part, _ in program.dense)


def _head(first: Program, later: Program, parameters: float, own: Iterable[Dense]) -> Head:
    size = sum(part.bytes for part in own) + first.loose_bytes
    return Head(first, later, parameters, size, tuple(later.spec.kept.items()))


def _own_parameters(layer: ModelSpec, norms: int) -> float:
    """Of the decoder layer, with so many norms in all. [parameter]"""
    parts = layer.components
    return float(parts["attention"] + parts["feed_forward"] + norms * layer.hidden)


def _rows(layer: ModelSpec) -> int:
    """Outputs of queries, keys and values."""
    matrices = (matrix for mixer in layer.layers[0].mixers for matrix in mixer.matrices(layer.hidden))
    return sum(matrix.rows for matrix in matrices if matrix.name.endswith(("q_proj", "k_proj", "v_proj")))


def _width(target: ModelSpec) -> tuple[int, bool]:
    """Width of a head's feed-forward, and whether it had to be taken from experts: twice those of one token."""
    parts = [part for layer in target.layers for part in layer.feed_forwards]
    routed = [_working_width(part) for part in parts if isinstance(part, MoeFeedForward)]
    if routed:
        return AS_WIDE * max(routed), True
    dense = [part.intermediate for part in parts if isinstance(part, DenseFeedForward)]
    if not dense:
        raise UnknownArchitectureError("its feed-forwards tell no width for a draft head; name one with --draft")
    return max(dense), False


def _working_width(part: MoeFeedForward) -> int:
    """Width of the experts that work on a token, the shared one among them."""
    return part.top_k * part.expert.intermediate + (part.shared.intermediate if part.shared else 0)


def _apart(
    whole: Iterable[tuple[Part, float]], without: Iterable[tuple[Part, float]], modules: int
) -> tuple[tuple[Part, float], ...]:
    """What is in one program beyond another, for one of so many modules."""
    before = dict(without)
    more = ((part, times - before.get(part, 0.0)) for part, times in whole)
    return tuple((part, times / modules) for part, times in more if times > 0)


def _mixing_apart(whole: Iterable[Mixing], without: Iterable[Mixing], modules: int) -> tuple[Mixing, ...]:
    counts = {one.mixer: one.times for one in without}
    more = ((one, one.times - counts.get(one.mixer, 0.0)) for one in whole)
    return tuple(replace(one, times=times / modules) for one, times in more if times > 0)
