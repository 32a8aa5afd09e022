"""The operations of one step on one device: FLOP and bytes of every term, and what devices exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.modelspec.cached import entry_bytes, part_bytes, residual
from roofcast.modelspec.op import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    ATTN_DECODE,
    ATTN_PREFILL,
    ELEMENTWISE,
    GEMM,
    MOE,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Exchange,
    Op,
)
from roofcast.modelspec.shapes import DecodeShape, ExpertsShape, GemmShape, PrefillShape
from roofcast.modelspec.state import CACHE
from roofcast.modelspec.step import DECODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.indexer import Indexer
    from roofcast.modelspec.program import Dense, Mixing, Program, Routed
    from roofcast.modelspec.state import Kept
    from roofcast.modelspec.step import Group, Step

HERE: Final = "roofcast.modelspec.ops"
ACTIVATION: Final = 2  # [B] of an element between operations: engines keep 16 bits
FP8_SCALE: Final = 4  # [B] beside the key of an index
LOOSE_KERNELS: Final = (
    2  # fused ones in each half of a layer: norm with residual, and positions or the activation function
)


@dataclass(frozen=True, slots=True)
class Formats:
    """What a step's state is kept in and its attention multiplies in.

    Args:
        kv: of the cache.
        activations: bf16 or fp16.
    """

    kv: Format
    activations: str

    @property
    def attention(self) -> str:
        """FP8 over an FP8 cache, else that of activations: narrower integers are widened as they are read."""
        return self.kv.compute if self.kv.compute == "fp8" else self.activations


def step_ops(program: Program, step: Step, formats: Formats) -> list[Op]:
    """Every operation of a step on one device, each over all layers that do the same; the work is their sum. [FLOP]

    F = sum over operations of F_op: 2 T P of matrices, T tokens at once, and attention's own for each group of sequences.
    """
    tokens = step.tokens
    ops = [gather_op(program, tokens, formats)]
    ops += [dense_op(part, times, tokens) for part, times in program.dense]
    met, sent = (step.met if program.shards.ep > 1 else tokens), program.shards.ep > 1 and program.shards.dp > 1
    ops += [experts_op(part, times, met, sent=sent) for part, times in program.routed]
    ops += [cross_op(*part, step) for part in program.crossed if _starts(step)]
    for group in step.groups:
        ops += [mixer_op(mixing, group, formats, program.shards.tp) for mixing in program.mixers]
        ops += [index_op(mixing, group) for mixing in program.mixers if getattr(mixing.mixer, "index", None)]
    ops.append(elementwise_op(program, tokens, formats))
    if step.positions:
        ops.append(head_op(program.head, step.positions))
    return ops


def gather_op(program: Program, tokens: int, formats: Formats) -> Op:
    """The input embedding, a gather: min(T, V) x h b bytes of rows, and no FLOP; the table itself is not read. [B]"""
    size = min(tokens, program.spec.vocab) * program.gathered
    return Op(
        "embedding",
        ELEMENTWISE,
        0.0,
        weight_bytes=size,
        activation_written=tokens * program.spec.hidden * ACTIVATION,
        format=formats.activations,
        by=f"{HERE}.gather_op",
    )


def dense_op(part: Dense, times: float, tokens: int) -> Op:
    """Matrices that every token passes: 2 T P FLOP; weights of P x b bytes are read once for all T tokens. [FLOP]

    >>> from roofcast.modelspec.program import Dense
    >>> op = dense_op(Dense("ffn.down", "bf16", 14336 * 4096, 2 * 14336 * 4096, 14336, 4096), 32, 16)  # Llama 3.1 8B
    >>> op.flops / 1e9, op.bytes / 1e9, op.flops / op.bytes
    (60.129542144, 3.758096384, 16.0)

    P counts the weights on this device, in all layers that are alike; T n_in + T n_out activations go in and out.
    """
    return Op(
        part.name,
        GEMM,
        2 * tokens * times * part.elements,
        weight_bytes=times * part.bytes,
        activation_read=times * tokens * part.inputs * ACTIVATION,
        activation_written=times * tokens * part.outputs * ACTIVATION,
        format=part.format,
        by=f"{HERE}.dense_op",
        calls=times * part.kernels,
        shape=gemm_shape(part, tokens),
    )


def gemm_shape(part: Dense, tokens: int) -> GemmShape:
    """What one kernel of fused matrices sees, were those of several kernels alike: n = P / inputs, k = inputs / kernels."""
    count = part.kernels
    return GemmShape(tokens, part.elements / part.inputs, part.inputs / count, part.bytes / count)


def cross_op(part: Dense, times: float, tokens: int, step: Step) -> Op:
    """Keys and values of an encoder's E tokens, made once, as a prompt starts: 2 E P FLOP, P x b bytes of weights. [FLOP]

    Steps that start no prompt have none: decode reads what is kept.
    """
    made = dense_op(part, times, tokens * _starts(step))
    return replace(made, by=f"{HERE}.cross_op")


def _starts(step: Step) -> int:
    """Sequences whose prompt starts in the step."""
    return sum(group.sequences for group in step.groups if group.phase != DECODE and not group.before)


def head_op(part: Dense, positions: int) -> Op:
    """The head, at the n positions whose logits are asked: 2 n x V h FLOP, and V h b bytes. [FLOP]

    In prefill that is the last position of each prompt, in decode every new token.
    """
    return replace(dense_op(part, 1.0, positions), by=f"{HERE}.head_op")


def experts_op(part: Routed, times: float, tokens: int, *, sent: bool = False) -> Op:
    """Routed experts: 2 T k P_e FLOP, and E (1 - (1 - k/E)^T) P_e b bytes: the distinct experts that T tokens read. [FLOP]

    T are the tokens of all replicas that share the experts; a device of `ep` does 1/ep of both, were they routed evenly.
    Beside identity experts, k E / (E + idle) of a token's choices do work. `sent`: whether a device has the rows of its own
    experts alone, since tokens are sent to these.
    """
    moe = part.moe
    chosen = tokens * moe.top_k * moe.experts / (moe.experts + moe.idle) * part.experts * times
    return Op(
        part.name,
        MOE,
        2 * chosen * part.elements,
        weight_bytes=times * moe.distinct_experts(tokens) * part.experts * part.bytes,
        activation_read=chosen * part.inputs * ACTIVATION,
        activation_written=chosen * part.outputs * ACTIVATION,
        format=part.format,
        by=f"{HERE}.experts_op",
        calls=times,
        shape=ExpertsShape(
            tokens=tokens,
            top_k=moe.top_k * moe.experts / (moe.experts + moe.idle),
            experts=moe.experts,
            ep=1 / part.experts,
            n=part.elements / part.inputs,
            k=part.inputs,
            expert_bytes=part.bytes,
            present=tokens * part.experts if sent else None,
        ),
    )


def mixer_op(mixing: Mixing, group: Group, formats: Formats, tp: int) -> Op:
    """Attention, or a recurrence, over one group's sequences, as its heads are split: F / tp. [FLOP]"""
    mixer, make = mixing.mixer, decoded if group.phase == DECODE else prefilled
    flops, read, written = make(mixer, group, formats, tp)
    scale = mixing.times * group.sequences
    carried = scale * group.new * ACTIVATION
    return Op(
        "attn.decode" if group.phase == DECODE else "attn.prefill",
        ATTN_DECODE if group.phase == DECODE else ATTN_PREFILL,
        scale * flops,
        state_read=scale * read,
        state_written=scale * written,
        activation_read=carried * mixing.inputs,
        activation_written=carried * mixing.outputs,
        format=formats.attention if mixer.published_kv_heads else formats.activations,
        by=f"{HERE}.{make.__name__}",
        calls=mixing.times,
        shape=attention_shape(mixing, group, (flops, read + written), tp),
    )


def attention_shape(mixing: Mixing, group: Group, work: tuple[float, float], tp: int) -> DecodeShape | PrefillShape:
    """What one layer's kernel sees of a group of sequences, on one of `tp` devices.

    Args:
        mixing: the layers.
        group: the sequences.
        work: FLOP and bytes of one sequence, as `decoded` and `prefilled` count them.
        tp: devices that share the heads.
    """
    mixer, count = mixing.mixer, group.sequences
    keys = max((part.heads for part in mixer.state if not part.fixed), default=mixer.query_heads)
    heads = max(1.0, mixer.query_heads / tp), -(-keys // tp)
    width, flops, moved = _head_width(mixer), count * work[0], count * work[1]
    if group.phase == DECODE:
        return DecodeShape(count, group.context, *heads, width, moved, flops)
    return PrefillShape(count, group.new, group.before, *heads, width, moved, flops)


def _head_width(mixer: Attention) -> int:
    """Width of what a head reads as values: a latent's, a head's. [element]"""
    names = ("kv_lora_rank", "value_head_dim", "head_dim")
    return next((size for name in names if (size := getattr(mixer, name, None))), 1)


def decoded(mixer: Attention, group: Group, formats: Formats, tp: int) -> tuple[float, float, float]:
    """Attention in decode, one sequence: FLOP, and bytes of the cache that are read and written. [FLOP]

    GQA: 2 T n_q (d_k + d_v) at a context of T tokens, or of as many as a window or an index lets it see, and
    T x n_kv (d_k + d_v) b bytes: n_q / n_kv FLOP a byte in 16 bits. MLA is absorbed: 2 T n (2 d_c + d_rope) over
    T (d_c + d_rope) b. The new token's own entry is written and not read, so that reads and writes are together the cache
    at the context. A recurrence reads its state and writes it back.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.2 (absorption); Ainslie et al., arXiv:2305.13245 (GQA).

    >>> from roofcast.modelspec.attention import GroupedAttention
    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.step import Group
    >>> llama, one = GroupedAttention(32, 8, 128, 128), Group("decode", 1, 1, 4095)
    >>> flops, read, written = decoded(llama, one, Formats(FORMATS["bf16"], "bf16"), 1)
    >>> flops, read + written, written
    (67108864.0, 16777216.0, 4096.0)
    """
    new, context = group.new, group.context
    seen = context - (new - 1) / 2
    index: Indexer | None = getattr(mixer, "index", None)
    flops = new * (mixer.decode_flops(seen) - (index.decode_flops(seen) if index else 0.0))
    written = sum(_added(part, formats, tp, new) for part in mixer.state)
    touched = sum(part_bytes(part, formats.kv, context, tp) for part in _read(mixer))
    fixed = sum(entry_bytes(part, formats.kv, tp) for part in mixer.state if part.fixed and part.format != CACHE)
    return flops / tp, max(0.0, touched - written + fixed), written


def index_op(mixing: Mixing, group: Group) -> Op:
    """Scoring tokens for a sparse index: 2 n_i d_i FLOP a query and token, d_i + 4 bytes a token read. [FLOP]

    On every device whole: its keys and projections are not split. Keys count as the kernels of DeepSeek-V3.2 read and
    multiply them, FP8 with an fp32 scale, the least that any does; in the cache they count in its format.

    Source: DeepSeek-V3.2, arXiv:2512.02556, section 2.1; deepseek-ai/DeepGEMM, fp8_mqa_logits.
    """
    index: Indexer = mixing.mixer.index  # type: ignore[attr-defined]  # asked of those that have one
    scale = mixing.times * group.sequences
    if group.phase == DECODE:
        flops, seen = group.new * index.decode_flops(group.context - (group.new - 1) / 2), group.context
    else:
        flops, seen = index.prefill_flops(group.context) - index.prefill_flops(group.before), group.before
    read = sum(part.entries(seen) * (part.elements + FP8_SCALE) for part in index.reads)
    decode = group.phase == DECODE
    return Op(
        "index.decode" if decode else "index.prefill",
        ATTN_DECODE if decode else ATTN_PREFILL,
        scale * flops,
        state_read=scale * read,
        format="fp8",
        by=f"{HERE}.index_op",
        calls=mixing.times,
    )


def _read(mixer: Attention) -> list[Kept]:
    """What a step reads of a sequence's state, an index's keys apart."""
    parts = list(mixer.reads)
    index: Indexer | None = getattr(mixer, "index", None)
    for part in index.reads if index else ():
        parts.remove(part)
    return parts


def _added(part: Kept, formats: Formats, tp: int, new: int) -> float:
    """Bytes that new tokens write: their entries; a recurrent state whole; an encoder's keys and values never. [B]"""
    if part.fixed:
        return entry_bytes(part, formats.kv, tp) * (part.format != CACHE)
    return min(new, part.cap or new) / part.per * entry_bytes(part, formats.kv, tp) + residual(
        part, formats.kv, new, tp
    )


def prefilled(mixer: Attention, group: Group, formats: Formats, tp: int) -> tuple[float, float, float]:
    """Attention in prefill, one sequence: FLOP, bytes read of what was there before, bytes written. [FLOP]

    Causal: half of all pairs, n^2 n_q (d_k + d_v) of a prompt of n tokens; behind P tokens that are there already it is
    the whole less these, (P + n)^2 - P^2. MLA is expanded, n^2 x n_q (d_nope + d_rope + d_v), what is cached of it too,
    or absorbed where that is less. What is there is read once, what is new is written.

    >>> from roofcast.modelspec.attention import GroupedAttention
    >>> from roofcast.modelspec.formats import FORMATS
    >>> from roofcast.modelspec.step import Group
    >>> llama, second = GroupedAttention(32, 8, 128, 128), Group("prefill", 1, 2048, 2048)
    >>> prefilled(llama, second, Formats(FORMATS["bf16"], "bf16"), 1)  # (4096^2 - 2048^2) x 32 x 256
    (103079215104.0, 8388608.0, 8388608.0)
    """
    index: Indexer | None = getattr(mixer, "index", None)
    prefix = mixer.prefix_flops(group.before, group.new) if group.before and hasattr(mixer, "prefix_flops") else 0.0
    scored = index.prefill_flops(group.context) - index.prefill_flops(group.before) if index else 0.0
    flops = (mixer.prefill_flops(group.context) - mixer.prefill_flops(group.before) + prefix - scored) / tp
    written = sum(
        entry_bytes(part, formats.kv, tp) if part.fixed else _added(part, formats, tp, group.new)
        for part in mixer.state
    )
    read = sum(part_bytes(part, formats.kv, group.before, tp) for part in _read(mixer)) if group.before else 0.0
    return flops, read, written


def elementwise_op(program: Program, tokens: int, formats: Formats) -> Op:
    """Norms, residuals, biases, convolutions and activation functions: 2 T P FLOP, as 2 N counts them. [FLOP]"""
    moved = tokens * program.beside * ACTIVATION
    return Op(
        "elementwise",
        ELEMENTWISE,
        2 * tokens * program.loose,
        weight_bytes=program.loose_bytes,
        activation_read=moved / 2,
        activation_written=moved / 2,
        format=formats.activations,
        by=f"{HERE}.elementwise_op",
        calls=LOOSE_KERNELS * max(0.0, program.blocks + program.routed_blocks),
    )


def step_exchanges(program: Program, step: Step) -> list[Exchange]:
    """What devices exchange in a step: sums over a tensor-parallel group, tokens to experts, stages to the next one."""
    return [exchange for exchange in _exchanges(program, step) if exchange.ranks > 1 and exchange.times > 0]


def _exchanges(program: Program, step: Step) -> Iterator[Exchange]:
    shards, spec = program.shards, program.spec
    tokens = step.tokens * spec.hidden * ACTIVATION
    by = f"{HERE}.step_exchanges"
    spread = shards.ep > 1 and shards.dp > 1
    blocks = program.blocks + (0 if spread else program.routed_blocks)
    yield Exchange("tp.all_reduce", ALL_REDUCE, tokens, shards.tp, 1, blocks + 1, by)  # and of the split embedding
    logits = step.positions * (spec.head_rows or spec.vocab) * ACTIVATION
    yield Exchange("tp.logits", ALL_GATHER, logits, shards.tp, 1, float(step.positions > 0), by)
    if spread and program.routed_blocks:
        yield from _dispatched(program, tokens, by)
    yield Exchange("pp.send", POINT_TO_POINT, tokens / shards.tp, shards.pp, shards.tp * shards.dp, 1.0, by)


def _dispatched(program: Program, tokens: float, by: str) -> Iterator[Exchange]:
    """Tokens to the devices of their experts and back, each device its share of a replica's tokens.

    A token goes once to each domain, and there once to each device, that has any of its k experts; routed evenly, among
    the groups of experts that it may choose from.
    """
    shards, times = program.shards, program.routed_blocks
    widest = max((part.moe for part, _ in program.routed), key=lambda moe: moe.top_k)
    to = widest.top_k, widest.groups
    sent, stride = tokens / shards.tp, shards.expert_slices
    narrow = (
        0.5 if any(part.format == "fp8" for part, _ in program.routed) else 1.0
    )  # tokens go in FP8, come in 16 bits
    shared = any(part.moe.shared for part, _ in program.routed)  # their width is cut over the group: parts to be summed
    yield Exchange("tp.reduce_scatter", REDUCE_SCATTER, tokens, shards.tp, 1, times * shared, by)
    yield Exchange("ep.dispatch", ALL_TO_ALL, sent * narrow, shards.ep, stride, times, by, *to)
    yield Exchange("ep.combine", ALL_TO_ALL, sent, shards.ep, stride, times, by, *to)
    yield Exchange("tp.all_gather", ALL_GATHER, tokens, shards.tp, 1, times, by)
