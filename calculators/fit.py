"""The answer of `fit` with no engine: nominal memory, less a reserve, less the weights, divided by a sequence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.budget import budget_bytes, kv_bytes, kv_tokens, max_sequences
from roofcast.calculators.cache import (
    cache_bytes,
    kv_bytes_per_token,
    residual_bytes,
    state_bytes,
    whole,
    window_bytes,
)
from roofcast.calculators.engines.terms import Advice, EngineTerm, Group  # noqa: TC001 - schemas are made of these
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.flops import attention_share, crossover_tokens, prefill_flops
from roofcast.calculators.log_lines import LogAgainst  # noqa: TC001 - likewise
from roofcast.calculators.remarks import contexts_of, model_remarks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested
    from roofcast.modelspec.spec import ModelSpec

# the most GPUs that are offered to a model without heads, whose channels many numbers divide
MOST_SHARES: Final = 64


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory to fill.

    Args:
        gpu: id of the accelerator.
        count: devices that share every layer (tensor parallel).
        memory: of one, as sold. [B]
        visible: what CUDA sees of it, None where not known. [B]
        reserve: share kept free. [-]
    """

    gpu: str
    count: int
    memory: float
    visible: float | None
    reserve: float


@dataclass(frozen=True, slots=True)
class FitMemory:
    """Memory of one GPU, term by term."""

    total_bytes: float
    """As sold. [B]"""
    budget_bytes: float
    """Total less the reserve. [B]"""
    weight_bytes: float
    """Weights on one GPU. [B]"""
    activation_bytes: float
    """Activations; 0 without an engine. [B]"""
    overhead_bytes: float
    """Context, graphs and communication buffers; 0 without an engine. [B]"""
    kv_bytes: float
    """What is left for the cache; negative where the weights alone do not fit. [B]"""
    visible_bytes: float | None
    """What CUDA sees of the memory, null where not known. [B]"""


@dataclass(frozen=True, slots=True)
class FitContext:
    """One context."""

    context: int
    """Tokens of a sequence. [token]"""
    kv_bytes_per_sequence: float
    """Cache of one sequence on one GPU. [B]"""
    max_sequences: int
    """Sequences that fit in nominal memory."""
    max_sequences_visible: int | None
    """Sequences that fit in the memory that CUDA sees, null where not known."""
    prefill_flops: float
    """FLOP of the prompt on all GPUs together, head left out. [FLOP]"""
    attention_share: float
    """Share of it that is attention scores. [-]"""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One rule of a gate."""

    rule: str
    """As it was written."""
    passed: bool | None
    """Whether it is met; null where that cannot be told."""
    actual: int | None
    """What there is; null where there is no such number."""
    required: int
    """The least that was asked for."""


@dataclass(frozen=True, slots=True)
class FitResult:
    """The result of `fit`."""

    model: str
    """Name as asked for."""
    gpu: str
    """Id of the accelerator."""
    gpus: int
    """How many, sharing every layer."""
    fits: bool
    """Whether at least one sequence fits at every context asked."""
    reason: str | None
    """Why not, and what would fit; null where it fits."""
    memory: FitMemory
    """Memory of one GPU."""
    kv_bytes_per_token: float
    """Bytes on one GPU that every further token adds. [B/token]"""
    kv_tokens: int | None
    """Tokens that the cache holds in all; null where it does not grow with tokens."""
    kv_tokens_low: int | None
    """The same: without an engine nothing is fitted."""
    kv_tokens_high: int | None
    """The same: without an engine nothing is fitted."""
    blocks: int | None
    """Blocks of the cache; null without an engine."""
    max_concurrency: float | None
    """Full-length requests at once, as an engine prints it; null without an engine."""
    contexts: list[FitContext]
    """One row a context."""
    non_embedding_parameters: int
    """Active parameters without embeddings and head: N of 2 N FLOP a token."""
    crossover_tokens: int | None
    """Prompt at which attention scores cost as much as the weights; null where it never does, as with windows. [token]"""
    requirements: list[Requirement]
    """What --require asked for, and whether it is met."""
    provenance: dict[str, str]
    """Where each number is from."""
    engine: str = "none"
    """The engine whose rules apply."""
    engine_version: str | None = None
    """The version whose rules apply; null without an engine."""
    terms: list[EngineTerm] = field(default_factory=list)
    """From visible memory to the cache, a line each, of one GPU; empty without an engine."""
    block_tokens: int | None = None
    """Tokens of a block; null without blocks. [token]"""
    groups: list[Group] = field(default_factory=list)
    """Layers by what they keep; empty without an engine."""
    longest_request: int | None = None
    """Tokens of the longest request that the server takes; null without an engine. [token]"""
    advice: list[Advice] = field(default_factory=list)
    """What to change where it does not fit or falls short."""
    log: LogAgainst | None = None
    """A start-up log against the prediction; null without one."""


def fit(
    model: Model, machine: Machine, *, weights: Requested | None, kv: Format, contexts: Sequence[int] | None
) -> tuple[FitResult, Remarks]:
    """Answers `fit --engine none`.

    Raises:
        UnansweredError: the weights' bytes are not known, or no layer keeps anything of a sequence.
        UsageError: the devices do not divide the heads.
    """
    spec = model.spec
    refuse_uneven(spec, machine.count)
    if not spec.kept:
        raise UnansweredError(f"{model.name}: no layer keeps anything of a sequence, so any number of them fits")
    weight = model.weight_bytes(weights)
    if weight.value is None:
        raise UnansweredError(weight.warning or f"{model.name}: the bytes of its weights are not known")
    on_one = weight.value / machine.count
    memory = _memory(machine, on_one)
    rows = [_context(model, machine, memory, kv, context) for context in contexts_of(model, contexts)]
    fits = all(row.max_sequences >= 1 for row in rows)
    per_token = kv_bytes_per_token(spec, kv, machine.count)
    once = window_bytes(spec, kv, machine.count) + state_bytes(spec, kv, machine.count)
    once += residual_bytes(spec, kv, kv.residual, machine.count)
    tokens = kv_tokens(memory.kv_bytes, once, per_token)
    result = FitResult(
        model=model.name,
        gpu=machine.gpu,
        gpus=machine.count,
        fits=fits,
        reason=None if fits else _reason(machine, memory, rows, _enough(model, machine, weight.value, kv, rows)),
        memory=memory,
        kv_bytes_per_token=whole(per_token),
        kv_tokens=tokens,
        kv_tokens_low=tokens,
        kv_tokens_high=tokens,
        blocks=None,
        max_concurrency=None,
        contexts=rows,
        non_embedding_parameters=spec.non_embedding_parameters,
        crossover_tokens=crossover_tokens(spec),
        requirements=[],
        provenance={"memory": "datasheet", "weight_bytes": str(weight.provenance), "architecture": model.facts},
    )
    beside = remarks(warnings=[_encoder_left_out(model)])
    return result, model_remarks(model, weights, contexts) + _shard_remarks(model, machine) + beside


def _encoder_left_out(model: Model) -> str | None:
    """The work of an encoder is not in the FLOP of a prompt, which are the decoder's."""
    names = [tower.name for tower in model.spec.towers if tower.name == "encoder"]
    return f"{model.name}: prefill FLOP are the decoder's; those of its encoder are not in them" if names else None


def shares(spec: ModelSpec) -> tuple[int, ...]:
    """Numbers of GPUs that can share every layer's heads, or channels, evenly."""
    mixers = _mixers(spec)
    most = max((mixer.query_heads for mixer in mixers), default=0) or MOST_SHARES
    return tuple(n for n in range(1, most + 1) if all(mixer.splits(n) for mixer in mixers))


def _mixers(spec: ModelSpec) -> tuple[Attention, ...]:
    """Every distinct mixer, the leading one first."""
    every = (mixer for layer in spec.layer_counts for mixer in layer.mixers)
    lead = spec.lead_mixer
    return tuple(dict.fromkeys((*((lead,) if lead else ()), *every)))


def refuse_uneven(spec: ModelSpec, count: int) -> None:
    """Raises where a number of GPUs cannot share some layer's heads."""
    whole_ones = shares(spec)
    if count in whole_ones:
        return
    possible = ", ".join(map(str, whole_ones))
    mixers = _mixers(spec)
    first = next((mixer for mixer in mixers if not mixer.splits(count)), mixers[0] if mixers else None)
    raise UsageError(f"{count} GPUs cannot share {_heads(first)} evenly; --tp must be one of {possible}")


def _heads(mixer: Attention | None) -> str:
    """What devices share of a mixer, as an error names it."""
    if mixer is None:
        return "its layers"
    if mixer.published_kv_heads:
        return f"{mixer.query_heads}/{mixer.published_kv_heads} query/KV heads"
    return f"{mixer.query_heads} {mixer.label} heads" if mixer.query_heads else f"{mixer.label} channels"


def _memory(machine: Machine, weights: float) -> FitMemory:
    budget = budget_bytes(machine.memory, machine.reserve)
    return FitMemory(
        total_bytes=whole(machine.memory),
        budget_bytes=whole(budget),
        weight_bytes=whole(weights),
        activation_bytes=0,
        overhead_bytes=0,
        kv_bytes=whole(kv_bytes(budget, weights)),
        visible_bytes=machine.visible,
    )


def _context(model: Model, machine: Machine, memory: FitMemory, kv: Format, context: int) -> FitContext:
    spec = model.spec
    each = cache_bytes(spec, kv, context, machine.count)
    visible = None
    if machine.visible is not None:
        room = kv_bytes(budget_bytes(machine.visible, machine.reserve), memory.weight_bytes)
        visible = max_sequences(room, each)
    return FitContext(
        context=context,
        kv_bytes_per_sequence=whole(each),
        max_sequences=max_sequences(memory.kv_bytes, each),
        max_sequences_visible=visible,
        prefill_flops=whole(prefill_flops(spec, context)),
        attention_share=attention_share(spec, context),
    )


def _reason(machine: Machine, memory: FitMemory, rows: Sequence[FitContext], enough: int | None) -> str:
    """The first limit hit, and what would do."""
    longest = max(row.context for row in rows)
    would = f"; {longest:,} tokens would fit on {enough} GPUs" if enough else ""
    on = " of each GPU" if machine.count > 1 else ""
    if memory.kv_bytes <= 0:
        weights, budget = memory.weight_bytes / 1e9, memory.budget_bytes / 1e9
        return f"the weights take {weights:.1f} GB{on}, the budget is {budget:.1f} GB{would}"
    short = next(row for row in rows if row.max_sequences < 1)
    good = [row.context for row in rows if row.max_sequences >= 1]
    most = f"; {max(good):,} tokens fit" if good else ""
    return (
        f"the cache of {short.context:,} tokens takes {short.kv_bytes_per_sequence / 1e9:.1f} GB{on}, "
        f"{memory.kv_bytes / 1e9:.1f} GB are left beside the weights{most}{would}"
    )


def _enough(model: Model, machine: Machine, weights: float, kv: Format, rows: Sequence[FitContext]) -> int | None:
    """The smallest number of GPUs, sharing every layer, on which every context fits; None where no number does."""
    budget = budget_bytes(machine.memory, machine.reserve)
    longest = max(row.context for row in rows)
    counts = (n for n in shares(model.spec) if n > machine.count)
    return next((n for n in counts if weights / n + cache_bytes(model.spec, kv, longest, n) <= budget), None)


def _shard_remarks(model: Model, machine: Machine) -> Remarks:
    """What sharing over several devices takes for granted."""
    if machine.count == 1:
        return Remarks()
    spec = model.spec
    growing = {part: n for part, n in spec.kept.items() if not part.fixed} or dict(spec.kept)
    held = sum(n * part.shard(machine.count) for part, n in growing.items()) * machine.count
    copies = held / sum(n * part.elements for part, n in growing.items())
    said = [f"weights split evenly over {machine.count} GPUs: norms and small tensors that replicate are not added"]
    if copies > 1:
        kinds = dict.fromkeys(layer.label for layer in spec.layer_counts if not growing.keys().isdisjoint(layer.state))
        said.append(f"{'+'.join(kinds)} does not split over {machine.count} GPUs: the cache is held {copies:.3g} times")
    return remarks(warnings=said)
