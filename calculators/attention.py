"""The answer of `attention`: traffic, extra memory, backends and generations, and how decode fills a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.attention_memory import math_peak_bytes
from roofcast.calculators.attention_rows import (
    ELEMENTS,
    DecodeRow,
    Device,
    IoRow,
    Kind,
    MemoryRow,
    decode_question,
    decode_rows,
    io_row,
    memory_row,
)
from roofcast.calculators.deployment import offered_memory
from roofcast.calculators.errors import UnansweredError
from roofcast.calculators.flash_generations import PUBLISHED, GenerationRow, Published, block_memory, generation_rows
from roofcast.calculators.roofline import roofs_of
from roofcast.calculators.sdpa import ELSEWHERE, Heads, SdpaRow, sdpa_rows
from roofcast.modelspec.latent import LatentAttention

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.attention import Attention
    from roofcast.modelspec.model import Model

WITH_PYTORCH: Final = frozenset({"nvidia", *(one.vendor for one in ELSEWHERE)})
USED_FACTS: Final = ("bandwidth", "sm_count")  # of an accelerator, beside the peak of the format


@dataclass(frozen=True, slots=True)
class CheckRow:
    """Three ways to compute the same attention in fp32 on the CPU, against fp64."""

    causal: bool
    """Whether later keys are masked."""
    standard_error: float
    """Most that standard attention is off fp64. [-]"""
    online_error: float
    """Most that online softmax is off fp64. [-]"""
    sdpa_error: float
    """Most that scaled_dot_product_attention is off fp64. [-]"""
    online_against_standard: float
    """Most that online softmax is off standard attention. [-]"""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Online softmax, held against standard attention and against PyTorch's."""

    seed: int
    """Of the random inputs."""
    tokens: int
    """Queries and keys. [token]"""
    heads: int
    """Heads."""
    head_dim: int
    """Width of a head. [element]"""
    block: int
    """Keys that online softmax looks at at once. [token]"""
    standard_score_elements: int
    """Scores of a head that standard attention holds: n x n. [element]"""
    online_score_elements: int
    """Scores of a head that online softmax holds: n x block. [element]"""
    score_ratio: float
    """The first over the second. [-]"""
    rows: list[CheckRow]
    """With and without a causal mask."""
    most_error: float
    """Allowed off fp64. [-]"""
    most_difference: float
    """Allowed between online softmax and standard attention. [-]"""
    agrees: bool
    """Whether every figure is within these."""


@dataclass(frozen=True, slots=True)
class HeadsRow:
    """One kind of attention as it is counted."""

    attention: str
    """Kind of attention."""
    query_heads: int
    """Heads of Q."""
    kv_heads: int
    """Heads of K and V over a prompt; of MLA those that it expands to."""
    key_width: int
    """Width of a key head over a prompt. [element]"""
    value_width: int
    """Width of a value head over a prompt. [element]"""
    decode_kv_heads: int
    """Heads of K and V in decode; of MLA its one latent."""
    decode_key_width: int
    """Width of a key head in decode. [element]"""
    decode_value_width: int
    """Width of a value head in decode. [element]"""
    window: int | None
    """Keys that a query sees at most; null is all. [token]"""


@dataclass(frozen=True, slots=True)
class AttentionResult:
    """The result of `attention`."""

    model: str | None
    """Name as asked for; null where heads are given."""
    gpus: list[str]
    """Ids of the accelerators; empty where none is asked for and the machine has none."""
    capabilities: dict[str, str]
    """Id -> CUDA compute capability, of those that have one."""
    format: str
    """Of Q, K, V and O."""
    heads: list[HeadsRow]
    """Kinds of attention."""
    io: list[IoRow]
    """Traffic over a prompt, a row a device, kind, batch and context."""
    memory: list[MemoryRow]
    """Extra memory, a row a kind, batch and context."""
    backends: list[SdpaRow]
    """PyTorch's, a row a device, kind and backend."""
    generations: list[GenerationRow]
    """FlashAttention's, a row a device and generation."""
    published: list[Published]
    """Published fractions of peak, of all devices."""
    decode: list[DecodeRow]
    """Blocks against SMs, a row a device, kind, batch, context and kernel."""
    check: CheckResult | None
    """What --check found; null without it."""


@dataclass(frozen=True, slots=True)
class AskedAttention:
    """The question.

    Args:
        kinds: of attention.
        accelerators: devices; none leaves the answer without times and backends.
        number_format: of Q, K, V and O.
        batches, contexts: sequences and tokens, each with each.
        queries: new tokens of a sequence in decode.
        shared_memory: M instead of the device's. [B]
        model: its name.
    """

    kinds: Sequence[Kind]
    accelerators: Sequence[Accelerator]
    number_format: str
    batches: Sequence[int]
    contexts: Sequence[int]
    queries: int = 1
    shared_memory: float | None = None
    model: str | None = None

    @property
    def points(self) -> list[tuple[int, int]]:
        """Every batch at every context."""
        return [(batch, tokens) for batch in self.batches for tokens in self.contexts]

    @property
    def prompted(self) -> list[Kind]:
        """Kinds that differ over a prompt, which windows leave alone here: one for all that have the same heads."""
        open_first = sorted(self.kinds, key=lambda kind: kind.window is not None)
        return list({kind.prefill: kind for kind in reversed(open_first)}.values())[::-1]


@runtime_checkable
class _Grouped(Protocol):
    """Kinds whose query heads share key and value heads."""

    @property
    def query_heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...


def kind_of(mixer: Attention) -> Kind | None:
    """A layer's attention as heads; None of what has none: recurrences, convolutions, compressed caches, encoders' keys.

    MLA attends to a prompt with its expanded heads and to a cache with one latent for all: d_c + d_rope as key, d_c as
    value.

    >>> kind_of(LatentAttention(128, 512, 1536, 128, 64, 128)).decode
    Heads(query_heads=128, kv_heads=1, key_width=576, value_width=512)
    """
    if isinstance(mixer, LatentAttention):
        expanded = Heads(mixer.query_heads, mixer.query_heads, mixer.head_dim, mixer.value_head_dim)
        latent = Heads(mixer.query_heads, 1, mixer.elements_per_token, mixer.kv_lora_rank)
        return Kind(mixer.label, expanded, latent, mixer.window, _selected(mixer))
    if not isinstance(mixer, _Grouped) or mixer.published_kv_heads == 0 or mixer.kv_heads == 0:
        return None
    value = getattr(mixer, "value_head_dim", mixer.head_dim)
    heads = Heads(mixer.query_heads, mixer.kv_heads, mixer.head_dim, value)
    return Kind(mixer.label, heads, heads, mixer.window, _selected(mixer))


def _selected(mixer: Attention) -> int | None:
    """Keys that an index of its own, or an earlier layer's, chooses for a query."""
    chosen: int | None = getattr(getattr(mixer, "index", None), "selected", None) or getattr(mixer, "selected", None)
    return chosen


def kinds_of(model: Model) -> list[Kind]:
    """A model's kinds of attention, each once, in the order of layers; alike names are told apart by window and heads.

    Raises:
        UnansweredError: no layer attends with heads.
    """
    mixers = dict.fromkeys(mixer for layer in model.spec.layers for mixer in layer.mixers)
    found = list(dict.fromkeys(kind for mixer in mixers if (kind := kind_of(mixer))))
    if not found:
        raise UnansweredError(
            f"{model.name} has no layer that attends with query, key and value heads ({model.spec.attention_label}); "
            "give --heads, --kv-heads and --head-dim instead"
        )
    return [_named(kind, found) for kind in found]


def model_said(model: Model, contexts: Sequence[int]) -> Remarks:
    """What was assumed of a model's heads, and contexts beyond it."""
    most, longest = model.spec.max_context, max(contexts)
    beyond = most is not None and longest > most
    return remarks(
        (f"{model.name}: {line}" for line in model.spec.assumptions),
        [f"{model.name}: context {longest:,} is beyond the {most:,} that its config allows" if beyond else None],
    )


def _named(kind: Kind, among: Sequence[Kind]) -> Kind:
    alike = [other for other in among if other.name == kind.name]
    if len(alike) == 1:
        return kind
    window = f" window {kind.window:,}" if kind.window is not None else ""
    others = [other for other in alike if other.window == kind.window]
    heads = f" {kind.prefill.query_heads}/{kind.prefill.kv_heads}" if len(others) > 1 else ""
    widths = f" x {kind.prefill.key_width}" if len({o.prefill.key_width for o in others}) > 1 else ""
    return replace(kind, name=f"{kind.name}{heads}{widths}{window}")


def attention_result(asked: AskedAttention) -> tuple[AttentionResult, Remarks]:
    """Answers `attention`.

    Raises:
        UsageError: sizes that the formulas do not hold for.
    """
    element = ELEMENTS[asked.number_format]
    devices = [_device(one, asked) for one in asked.accelerators] or [Device(None, asked.shared_memory)]
    points = asked.points
    result = AttentionResult(
        model=asked.model,
        gpus=[one.id for one in asked.accelerators],
        capabilities={one.id: one.compute_capability for one in asked.accelerators if one.compute_capability},
        format=asked.number_format,
        heads=[_heads_row(kind) for kind in asked.kinds],
        io=[io_row(device, kind, b, n, element) for device in devices for kind in asked.prompted for b, n in points],
        memory=[memory_row(kind, b, n, element) for kind in asked.prompted for b, n in points],
        backends=[
            row
            for one in asked.accelerators
            for kind in asked.prompted
            for row in sdpa_rows(one, kind.name, kind.prefill, asked.number_format)
        ],
        generations=[row for one in asked.accelerators for row in generation_rows(one)],
        published=list(PUBLISHED),
        decode=list(_decode(asked)),
        check=None,
    )
    return result, _said(asked)


def check_alone(check: CheckResult) -> AttentionResult:
    """The answer where nothing but a check is asked."""
    return AttentionResult(
        model=None,
        gpus=[],
        capabilities={},
        format="fp32",
        heads=[],
        io=[],
        memory=[],
        backends=[],
        generations=[],
        published=[],
        decode=[],
        check=check,
    )


def _decode(asked: AskedAttention) -> Iterator[DecodeRow]:
    """A row a kernel of every question; those that a window makes one stand once."""
    for one in asked.accelerators:
        for kind in asked.kinds:
            asks = (decode_question(kind, batch, context, asked.queries) for batch, context in asked.points)
            for question in dict.fromkeys(asks):
                yield from decode_rows(one, kind, question, asked.number_format)


def _device(accelerator: Accelerator, asked: AskedAttention) -> Device:
    memory = asked.shared_memory if asked.shared_memory is not None else block_memory(accelerator)[0]
    peak = roofs_of(accelerator).peaks.get(asked.number_format)
    return Device(accelerator.id, memory, peak, accelerator.bandwidth)


def _heads_row(kind: Kind) -> HeadsRow:
    first, new = kind.prefill, kind.decode
    return HeadsRow(
        kind.name,
        first.query_heads,
        first.kv_heads,
        first.key_width,
        first.value_width,
        new.kv_heads,
        new.key_width,
        new.value_width,
        kind.window,
    )


def _said(asked: AskedAttention) -> Remarks:
    """What is assumed and doubted of devices and windows."""
    lines = [_of_device(one, asked) for one in asked.accelerators]
    return sum(lines, remarks(warnings=_windows(asked), notes=_no_device(asked)))


def _of_device(accelerator: Accelerator, asked: AskedAttention) -> Remarks:
    gpu, wanted = accelerator.id, asked.number_format
    roofs = roofs_of(accelerator)
    used = roofs.instead.get(wanted, wanted)
    memory, of_block = block_memory(accelerator)
    own = asked.shared_memory is None
    facts = (*USED_FACTS, f"peaks.{used}", *(["shared_memory_per_sm"] if own and not of_block else []))
    stated = accelerator.stated_facts()
    recalled = [fact for fact in facts if fact in stated and not accelerator.verified(fact)]
    return remarks(
        [f"{gpu}: {', '.join(recalled)} recalled or derived, not read in a source" if recalled else None],
        notes=[
            f"{gpu}: {wanted} is computed in {used}" if wanted in roofs.instead else None,
            f"{gpu}: it states no peak to compute {wanted} with" if wanted not in roofs.peaks else None,
            f"{gpu}: its on-chip memory is not known; --shared-memory SIZE gives M" if own and memory is None else None,
            f"{gpu}: M is the memory of an SM or its like; what one block may have of it is not in the table"
            if own and memory is not None and not of_block
            else None,
            f"{gpu}: its compute capability is not known, so neither are the backends and kernels that it runs"
            if accelerator.vendor == "nvidia" and accelerator.capability is None
            else None,
            *_beyond(accelerator, asked),
            None if accelerator.vendor in WITH_PYTORCH else f"{gpu}: PyTorch's backends are not for it",
            f"{gpu}: how many SMs it has is not known, so blocks are not held against them"
            if accelerator.sm_count is None
            else None,
        ],
    )


def _beyond(accelerator: Accelerator, asked: AskedAttention) -> Iterator[str]:
    """What PyTorch's math backend needs at once beyond a device's memory: the first batch and context of each kind."""
    offered, _ = offered_memory(accelerator)
    for kind in asked.prompted:
        for batch, tokens in asked.points:
            peak = math_peak_bytes(batch, kind.prefill.query_heads, tokens)
            if peak > offered:
                yield (
                    f"{accelerator.id}: the math backend's {peak / 1e9:,.1f} GB at {batch:,} x {tokens:,} tokens ({kind.name}) "
                    f"do not fit the {offered / 1e9:,.1f} GB that it offers"
                )
                break


def _no_device(asked: AskedAttention) -> Iterable[str | None]:
    if not asked.accelerators:
        yield "without a GPU there are no times, backends and blocks; --gpu NAME gives them"
        if asked.shared_memory is None:
            yield "FlashAttention's traffic needs M, on-chip memory: --gpu NAME or --shared-memory SIZE gives it"


def _windows(asked: AskedAttention) -> list[str]:
    """Where a prompt is longer than a window: its traffic is counted as if there were none."""
    longest = max(asked.contexts)
    narrow = [kind for kind in asked.kinds if kind.window is not None and kind.window < longest]
    chosen = {kind.name: kind.selected for kind in asked.kinds if kind.selected and kind.selected < longest}
    lines = [
        f"{name}: an index chooses {count:,} keys for a query; traffic, memory and blocks are of attention to all of them"
        for name, count in chosen.items()
    ]
    return lines + [
        f"{kind.name}: a query sees {kind.window:,} tokens at most; decode counts them, traffic and memory of a prompt "
        "are of full attention"
        for kind in narrow
    ]
