"""Measurements of a calibration: the profiler's own kernels, each alone, over weights and caches that no cache holds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, ELEMENTWISE, GEMM, MOE
from roofcast.modelspec.ops import Formats, decoded, elementwise_op, prefilled
from roofcast.modelspec.program import build_program
from roofcast.modelspec.shapes import DecodeShape, ExpertsShape, GemmShape, PrefillShape
from roofcast.modelspec.sharding import Shards
from roofcast.modelspec.spec import build_spec
from roofcast.modelspec.step import DECODE, PREFILL, Group
from roofcast.modelspec.storage import uniform
from roofcast.profiler.errors import OutOfMemoryError
from roofcast.profiler.fitting import Row
from roofcast.profiler.kernels import Cache, Chosen, Heads, Rotation, Weight
from roofcast.profiler.random_weights import Drawer
from roofcast.profiler.sweep import Task
from roofcast.profiler.timing import BURST, check_written, memory_guard, time_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from roofcast.calculators.expected.limits import Limits
    from roofcast.profiler.calibrate_grid import Grid, Loose, Matrix, Mixture
    from roofcast.profiler.kernels import Kernels
    from roofcast.profiler.runtime import Runtime

    Work = Callable[[], None]

BEYOND: Final = 3  # times the last cache that buffers take together
MOST_COPIES: Final = 256
HIDES: Final = 4.0  # times the reading of weights, that arithmetic takes
SPAN: Final = 1e-3  # seconds that the calls of one graph should take at least, by their bound
MOST_CALLS: Final = 256
PAUSE: Final = 0.03  # seconds that the device rests before a burst of arithmetic, whose power would limit it
LAYERS: Final = 32  # that loose work is counted over, so that what is of no layer does not count
THETA: Final = 10_000.0
SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """A measurement that the device has no memory for, by its label."""

    label: str


@dataclass(frozen=True, slots=True)
class Mixed:
    """One call of a layer's routed experts.

    Args:
        up, down: its matrices.
        beside: bytes of its activation function, which a step counts with element-wise work. [B]
    """

    up: ExpertsShape
    down: ExpertsShape
    beside: float


@dataclass(frozen=True, slots=True)
class Bench:
    """What measurements are made with.

    Args:
        runtime, kernels: the device, and what runs on it.
        weights, activations: formats.
        limits: roofs of the format of the weights.
        span: time that the repeats of one measurement take together. [s]
    """

    runtime: Runtime
    kernels: Kernels
    weights: str
    activations: str
    limits: Limits
    span: float

    def new(self, *shape: int) -> Tensor:
        """A tensor of random activations."""
        torch = self.runtime.torch
        made: Tensor = torch.empty(shape, dtype=self.runtime.dtype(self.activations), device=self.runtime.device)
        return made.normal_()

    def places(self, batch: int, before: int) -> Tensor:
        """Tokens in the cache of each sequence."""
        torch = self.runtime.torch
        made: Tensor = torch.full((batch,), before, dtype=torch.int32, device=self.runtime.device)
        return made

    def matrix(self, *shape: int, plain: bool = False) -> Weight:
        """Random weights."""
        return Drawer(self.runtime, self.weights, self.activations, SEED).matrix(*shape, plain=plain)

    def copies(self, size: float) -> int:
        """How many buffers of a size are more than the last cache holds."""
        return max(1, min(MOST_COPIES, math.ceil(BEYOND * self.runtime.machine.l2_bytes / size)))

    def seconds(self, calls: Sequence[Work], out: Tensor, least: float, what: str, *, busy: bool = False) -> float:
        """Time of one of several calls, run round and round in one graph; all of `out` must be written. [s]

        Args:
            calls: the same work on different buffers.
            out: that they write.
            least: bound of one. [s]
            what: they are.
            busy: whether arithmetic limits them, and so in the long run power: a few bursts after a rest each.
        """
        check_written(self.runtime, out, calls[0], what)
        least_span, span, rest = (BURST, 0.0, PAUSE) if busy else (SPAN, self.span, 0.0)
        count = max(len(calls), min(MOST_CALLS, math.ceil(least_span / max(least, 1e-9))))
        round_ = [calls[number % len(calls)] for number in range(count)] if self.runtime.on_cuda else list(calls)
        return time_calls(self.runtime, round_, graph=True, span=span, rest=rest).seconds


def task(bench: Bench, label: str, measure: Callable[[], Sequence[Row]]) -> Task[Sequence[Row] | Lost]:
    """A measurement that leaves no memory behind, and does without where there is too little."""

    def run() -> Sequence[Row] | Lost:
        try:
            with memory_guard(bench.runtime), bench.runtime.torch.inference_mode():
                return measure()
        except OutOfMemoryError:
            return Lost(label)
        finally:
            bench.runtime.release()

    return Task(label, run)


# --- dense products


def gemm_tasks(bench: Bench, grid: Grid) -> Iterator[Task[Sequence[Row] | Lost]]:
    """Every product, by tokens, so that a budget that ends early leaves all matrices with a few."""
    narrow = bench.weights != bench.activations
    for m in grid.tokens:
        for matrix in grid.matrices[: grid.narrow] if narrow else grid.matrices:
            if m <= grid.fused or not matrix.last:
                label = f"product {m:,} x {matrix.n:,} x {matrix.k:,} {bench.weights}"
                yield task(bench, label, partial(_gemm, bench, matrix, m, label, fused=m <= grid.fused))


def _gemm(bench: Bench, matrix: Matrix, m: int, label: str, *, fused: bool) -> Sequence[Row]:
    shape = gemm_shape(matrix.n, matrix.k, m, bench.weights)
    seconds = _product(bench, matrix.n, matrix.k, m, label, gated=matrix.gated and fused)
    return (Row(GEMM, bench.weights, f"{matrix.n}x{matrix.k}", label, shape, seconds, gemm_least(shape, bench.limits)),)


def gemm_shape(n: int, k: int, m: int, number_format: str) -> GemmShape:
    """A product as `estimate` counts it."""
    return GemmShape(m, n, k, n * k * FORMATS[number_format].bytes_per_element)


def gemm_least(shape: GemmShape, limits: Limits) -> float:
    """max(2 m n k / peak, weights / bandwidth). [s]"""
    return max(2 * shape.m * shape.n * shape.k / limits.peak, shape.weight_bytes / limits.bandwidth)


def _product(bench: Bench, n: int, k: int, m: int, label: str, *, gated: bool) -> float:
    """Time of x data^T, with its activation where it is gated. [s]"""
    first = bench.matrix(n, k)
    shape = gemm_shape(n, k, m, bench.weights)
    copies = [first, *(_cloned(first) for _ in range(_rotated(bench, shape) - 1))]
    x, out = bench.new(m, k), bench.new(m, n // 2 if gated else n)
    run = bench.kernels.gated_linear if gated else bench.kernels.linear
    calls, least = [partial(run, x, one, out) for one in copies], gemm_least(shape, bench.limits)
    return bench.seconds(calls, out, least, label, busy=least > shape.weight_bytes / bench.limits.bandwidth)


def _rotated(bench: Bench, shape: GemmShape) -> int:
    """Matrices to go round: more than the last cache holds, or two where arithmetic hides where they come from."""
    arithmetic = 2 * shape.m * shape.n * shape.k / bench.limits.peak
    hidden = arithmetic > HIDES * shape.weight_bytes / bench.limits.bandwidth
    return 2 if hidden else bench.copies(shape.weight_bytes)


def _cloned(weight: Weight) -> Weight:
    return replace(weight, data=weight.data.clone())


# --- attention


def decode_tasks(bench: Bench, grid: Grid) -> Iterator[Task[Sequence[Row] | Lost]]:
    """Attention of new tokens over caches."""
    for batch in grid.batches:
        for context in grid.contexts:
            for heads in grid.heads:
                label = f"decode attention {heads[0]}/{heads[1]} heads, {batch:,} at {context:,}"
                yield task(bench, label, partial(_decode, bench, heads, batch, context, label))


def prefill_tasks(bench: Bench, grid: Grid) -> Iterator[Task[Sequence[Row] | Lost]]:
    """Attention of prompts."""
    for batch, prompt in grid.prompts:
        for heads in grid.heads:
            label = f"prefill attention {heads[0]}/{heads[1]} heads, {batch:,} of {prompt:,}"
            yield task(bench, label, partial(_prefill, bench, heads, batch, prompt, label))


def heads_of(query: int, kv: int, width: int) -> Heads:
    """Heads of grouped attention without window."""
    return Heads(query, kv, width, width, None, 1 / math.sqrt(width))


def decode_shape(query: int, kv: int, width: int, group: Group, formats: Formats) -> DecodeShape:
    """A call as `estimate` counts it."""
    flops, read, written = decoded(GroupedAttention(query, kv, width, width), group, formats, 1)
    count = group.sequences
    return DecodeShape(count, group.context, query, kv, width, count * (read + written), count * flops)


def prefill_shape(query: int, kv: int, width: int, group: Group, formats: Formats) -> PrefillShape:
    """Likewise of prompts."""
    flops, read, written = prefilled(GroupedAttention(query, kv, width, width), group, formats, 1)
    count = group.sequences
    return PrefillShape(count, group.new, group.before, query, kv, width, count * (read + written), count * flops)


def attention_least(shape: DecodeShape | PrefillShape, limits: Limits) -> float:
    """max(F / peak, cache / bandwidth). [s]"""
    return max(shape.flops / limits.peak, shape.state_bytes / limits.bandwidth)


def formats_of(bench: Bench) -> Formats:
    """What the bench's caches and activations are in."""
    return Formats(FORMATS[bench.activations], bench.activations)


def _decode(bench: Bench, heads: tuple[int, int, int], batch: int, context: int, label: str) -> Sequence[Row]:
    query, kv, width = heads
    shape = decode_shape(*heads, Group(DECODE, batch, 1, context - 1), formats_of(bench))
    least = attention_least(shape, bench.limits)
    queries, out = bench.new(batch, query, 1, width), bench.new(batch, query * width)
    places = bench.places(batch, context - 1)
    caches = _caches(bench, (batch, kv, context, width), shape.state_bytes)
    attend = partial(bench.kernels.decode_attention, queries, places, heads_of(*heads))
    seconds = bench.seconds([partial(attend, cache, out) for cache in caches], out, least, label)
    return (Row(ATTN_DECODE, bench.activations, f"{query}/{kv}x{width}", label, shape, seconds, least),)


def _prefill(bench: Bench, heads: tuple[int, int, int], batch: int, prompt: int, label: str) -> Sequence[Row]:
    query, kv, width = heads
    shape = prefill_shape(*heads, Group(PREFILL, batch, prompt, 0), formats_of(bench))
    least = attention_least(shape, bench.limits)
    queries, out = bench.new(batch, query, prompt, width), bench.new(batch * prompt, query * width)
    [cache] = _caches(bench, (batch, kv, prompt, width), math.inf)
    work = partial(bench.kernels.prefill_attention, queries, heads_of(*heads), cache, out)
    seconds = bench.seconds([work], out, least, label, busy=True)
    return (Row(ATTN_PREFILL, bench.activations, f"{query}/{kv}x{width}", label, shape, seconds, least),)


def _caches(bench: Bench, shape: tuple[int, int, int, int], size: float) -> list[Cache]:
    first = Cache(bench.new(*shape), bench.new(*shape))
    return [first, *(Cache(first.keys.clone(), first.values.clone()) for _ in range(bench.copies(size) - 1))]


# --- element-wise work


def loose_tasks(bench: Bench, grid: Grid) -> Iterator[Task[Sequence[Row] | Lost]]:
    """All that a layer runs beside products and attention."""
    for tokens in grid.loose:
        for sizes in grid.layers:
            label = f"element-wise work of {tokens:,} tokens, width {sizes.hidden:,}"
            yield task(bench, label, partial(_loose, bench, sizes, tokens, label, fused=tokens <= grid.fused))


def _loose(bench: Bench, sizes: Loose, tokens: int, label: str, *, fused: bool) -> Sequence[Row]:
    """Two norms with their residual, and the rotation of a layer; its activation too, where that is no part of a product."""
    storage = uniform(FORMATS[bench.activations])
    program = build_program(build_spec(loose_config(sizes)), storage, Shards())
    op = elementwise_op(program, tokens, formats_of(bench))
    x, residual, out = (bench.new(tokens, sizes.hidden) for _ in range(3))
    norm = partial(bench.kernels.add_norm, x, residual.zero_(), bench.new(sizes.hidden), out)
    store = _store(bench, sizes, tokens, fused=fused)

    def layer() -> None:
        norm()
        store()
        norm()

    least = (op.activation_read + op.activation_written) / LAYERS / bench.limits.bandwidth
    seconds = bench.seconds([layer], out, least, label)
    if not fused:
        wide = 2 * sizes.inner, sizes.hidden, tokens, label
        seconds += max(0.0, _product(bench, *wide, gated=True) - _product(bench, *wide, gated=False))
    return (Row(ELEMENTWISE, "any", f"{sizes.hidden}", label, op, LAYERS * seconds),)


def loose_config(sizes: Loose) -> dict[str, Any]:
    """A model of many such layers."""
    return {
        "model_type": "llama",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": sizes.query,
        "num_key_value_heads": sizes.kv,
        "head_dim": sizes.width,
        "intermediate_size": sizes.inner,
        "vocab_size": 1024,
    }


def _store(bench: Bench, sizes: Loose, tokens: int, *, fused: bool) -> Work:
    """Rotation and store: of as many sequences in decode, of one prompt where tokens are many."""
    torch, device = bench.runtime.torch, bench.runtime.device
    batch, new = (tokens, 1) if fused else (1, tokens)
    angles = torch.rand(new, sizes.width // 2, device=device)
    rotation = Rotation(angles.cos(), angles.sin(), sizes.width // 2 * 2)
    qkv = bench.new(tokens, (sizes.query + 2 * sizes.kv) * sizes.width)
    cache = Cache(*(bench.new(batch, sizes.kv, new, sizes.width) for _ in range(2)))
    queries = bench.new(batch, sizes.query, new, sizes.width)
    heads = heads_of(sizes.query, sizes.kv, sizes.width)
    return partial(bench.kernels.rotate_store, qkv, bench.places(batch, 0), rotation, heads, cache, queries)


# --- routed experts


def experts_tasks(bench: Bench, grid: Grid) -> Iterator[Task[Sequence[Row] | Lost]]:
    """Layers of routed experts."""
    for tokens in grid.routed:
        for mixture in grid.mixtures:
            label = f"{mixture.top_k} of {mixture.experts} experts, {tokens:,} tokens"
            yield task(bench, label, partial(_experts, bench, mixture, tokens, label))


def experts_shape(mixture: Mixture, tokens: int, number_format: str) -> Mixed:
    """A call as `estimate` counts it."""
    size = FORMATS[number_format].bytes_per_element

    def matrix(n: int, k: int) -> ExpertsShape:
        return ExpertsShape(tokens, mixture.top_k, mixture.experts, 1, n, k, n * k * size)

    up, down = matrix(2 * mixture.inner, mixture.hidden), matrix(mixture.hidden, mixture.inner)
    return Mixed(up, down, beside=3.0 * 2 * tokens * mixture.top_k * mixture.inner)


def experts_least(shape: Mixed, limits: Limits) -> float:
    """Both matrices, each the larger of arithmetic and of reading the experts that are met. [s]"""
    total = 0.0
    for one in (shape.up, shape.down):
        met = one.experts * (1 - (1 - one.top_k / one.experts) ** one.tokens)
        flops = 2 * one.n * one.k * one.tokens * one.top_k
        total += max(flops / limits.peak, met * one.expert_bytes / limits.bandwidth)
    return total


def _experts(bench: Bench, mixture: Mixture, tokens: int, label: str) -> Sequence[Row]:
    """Experts of tokens that are sent at random, and what sending takes beside the router's product."""
    shape = experts_shape(mixture, tokens, bench.weights)
    gate_up = bench.matrix(mixture.experts, 2 * mixture.inner, mixture.hidden)
    down = bench.matrix(mixture.experts, mixture.hidden, mixture.inner)
    x, out = bench.new(tokens, mixture.hidden), bench.new(tokens, mixture.hidden)
    least = experts_least(shape, bench.limits)
    sent = [_sent(bench, mixture, tokens) for _ in range(8)]
    calls = [partial(bench.kernels.experts, x, one, gate_up, down, out) for one in sent]
    seconds = bench.seconds(calls, out, least, label) + _routing(bench, mixture, x, sent[0], label)
    group = f"{mixture.experts}x{mixture.hidden}x{mixture.inner}"
    # loads are drawn, so that few experts more or less are met than in the mean
    return (Row(MOE, bench.weights, group, label, shape, seconds, 0.8 * least),)


def _sent(bench: Bench, mixture: Mixture, tokens: int) -> Chosen:
    torch = bench.runtime.torch
    drawn = torch.rand(tokens, mixture.experts, device=bench.runtime.device)
    weights, experts = drawn.topk(mixture.top_k, dim=1)
    return Chosen(experts.to(torch.int32), (weights / weights.sum(1, keepdim=True)).float())


def _routing(bench: Bench, mixture: Mixture, x: Tensor, chosen: Chosen, label: str) -> float:
    """What choosing experts takes beside its product. [s]"""
    router = bench.matrix(mixture.experts, mixture.hidden, plain=True)
    scores = bench.new(x.shape[0], mixture.experts)
    into = Chosen(chosen.experts.clone(), chosen.weights.clone())
    whole = bench.seconds([partial(bench.kernels.route, x, router, into)], into.weights, 0.0, label)
    return max(0.0, whole - bench.seconds([partial(bench.kernels.linear, x, router, scores)], scores, 0.0, label))
