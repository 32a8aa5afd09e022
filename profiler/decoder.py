"""A decoder built from a model's spec with random weights, and its steps: prefill of prompts, decode over a cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roofcast.modelspec.attention import GroupedAttention
from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
from roofcast.modelspec.latent import LatentAttention
from roofcast.modelspec.op import ELEMENTWISE
from roofcast.profiler.attention_layers import GroupedLayer, LatentLayer
from roofcast.profiler.decoder_sharded import embedded, headed, must_fit, summed
from roofcast.profiler.decoder_step import BALANCED, DRAWN, Buffers, Frame, Stage, Step
from roofcast.profiler.errors import ProfileUsageError
from roofcast.profiler.feed_forward import DenseLayer, ExpertsLayer
from roofcast.profiler.fp8 import has_fp8
from roofcast.profiler.layers import plan_layers
from roofcast.profiler.random_weights import Drawer
from roofcast.profiler.sharding import share_of
from roofcast.profiler.timing import memory_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from roofcast.modelspec.spec import ModelSpec
    from roofcast.profiler.decoder_step import Half
    from roofcast.profiler.kernels import Kernels, Weight
    from roofcast.profiler.runtime import Runtime

T = TypeVar("T")
ACTIVATIONS: Final = "activations"
BESIDE: Final = (
    5  # times the activations that torch's own kernels take with what they keep meanwhile; a host ends who takes more
)
PLAIN: Final = ("bf16", "fp16", "fp32")
ROUTINGS: Final = (DRAWN, BALANCED)
BUILDERS: Final[dict[type, Any]] = {
    GroupedAttention: GroupedLayer,
    LatentAttention: LatentLayer,
    DenseFeedForward: DenseLayer,
    MoeFeedForward: ExpertsLayer,
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What decoder is built of a spec.

    Args:
        weights: format of the layers' matrices: bf16, fp16, fp32, or fp8 with one fp32 scale an output.
        activations: format of all else; that of the weights where these are not fp8.
        routing: `drawn` as the random router sends tokens, or `balanced`, as many to each expert.
        seed: of all random numbers.

    Raises:
        ProfileUsageError: formats that do not go together, an unknown routing.
    """

    weights: str
    activations: str
    routing: str = DRAWN
    seed: int = 0

    def __post_init__(self) -> None:
        if self.activations not in PLAIN:
            raise ProfileUsageError(f"activations in {self.activations}: the profiler has {', '.join(PLAIN)}")
        if self.weights not in {self.activations, "fp8"}:
            known = f"{self.activations} or fp8"
            raise ProfileUsageError(
                f"weights in {self.weights} with activations in {self.activations}: they must be {known}"
            )
        if self.routing not in ROUTINGS:
            raise ProfileUsageError(f"routing {self.routing}: it must be {' or '.join(ROUTINGS)}")


class Decoder:
    """A model's decoder on a device, with random weights.

    Args:
        spec: the model.
        runtime: the device.
        kernels: that do its work.
        setup: formats, routing and seed.

    Attributes:
        assumptions: what differs from the model, a line each.
        weight_bytes: of all weights. [B]
        embedding: [vocabulary, h].
        halves: attention and feed-forwards, in order.
        norm: of the final norm, [h].
        head: [vocabulary, h].

    Raises:
        UnbuildableError: a layer of a kind that is not built.
        OutOfMemoryError: the weights do not fit the device's free memory.
        ProfileUsageError: fp8 where the device has none.
    """

    embedding: Tensor
    halves: tuple[Half, ...]
    norm: Tensor
    head: Weight

    def __init__(self, spec: ModelSpec, runtime: Runtime, kernels: Kernels, setup: Setup) -> None:
        plan = plan_layers(spec)
        _refuse_fp8(runtime, setup)
        self.spec, self.runtime, self.kernels, self.setup = spec, runtime, kernels, setup
        self.share = share_of(runtime)
        latent = setup.weights == "fp8" and any(isinstance(one.part, LatentAttention) for one in plan.parts)
        kept = ("matrices that bring latents to heads stay in the format of activations",)
        self.assumptions: tuple[str, ...] = (*plan.assumptions, *(kept if latent else ()))
        self._parts = plan.parts
        counting = self._drawer(counting=True)
        self._draw(counting)
        self.weight_bytes = counting.bytes
        must_fit(runtime, counting.bytes + counting.whole_bytes, "weights")
        with memory_guard(runtime):
            self._draw(self._drawer(counting=False))

    def session(self, batch: int, capacity: int) -> Session:
        """Caches of B sequences of at most `capacity` tokens, empty, and the steps over them.

        Raises:
            OutOfMemoryError: they do not fit.
        """
        return Session(self, batch, capacity)

    def decode(self, batch: int, context: int) -> Step:
        """A step of one new token a sequence, over a cache that holds context - 1 random tokens before it.

        Raises:
            OutOfMemoryError: it does not fit.
        """
        return self.session(batch, context).filled().decode(context - 1)

    def verify(self, batch: int, context: int, drafted: int) -> Step:
        """A step of k + 1 new tokens a sequence, over a cache that holds context - 1 random tokens before them.

        Raises:
            OutOfMemoryError: it does not fit.
        """
        return self.session(batch, context + drafted).filled().verify(drafted + 1, context - 1)

    def prefill(self, batch: int, prompt: int) -> Step:
        """A step of whole prompts, over an empty cache.

        Raises:
            OutOfMemoryError: it does not fit.
        """
        return self.session(batch, prompt).prefill(prompt)

    def _drawer(self, *, counting: bool) -> Drawer:
        setup = self.setup
        return Drawer(self.runtime, setup.weights, setup.activations, setup.seed, counting, self.share)

    def _draw(self, drawer: Drawer) -> None:
        spec = self.spec
        self.embedding = drawer.table(spec.vocab, spec.hidden)
        self.halves = tuple(
            BUILDERS[type(one.part)].draw(drawer, one.layer, one.part, spec.hidden) for one in self._parts
        )
        self.norm = drawer.norm(spec.hidden)
        self.head = drawer.tied(self.embedding) if spec.tied else drawer.head(spec.head_rows or spec.vocab, spec.hidden)


class Session:
    """Caches of some sequences, and steps over them.

    Args:
        decoder: whose.
        batch: sequences.
        capacity: tokens of each at most. [token]

    Raises:
        OutOfMemoryError: the caches do not fit.
    """

    def __init__(self, decoder: Decoder, batch: int, capacity: int) -> None:
        self.decoder, self.batch, self.capacity = decoder, batch, capacity
        self.caches = self._made("caches", self._caches)

    def filled(self) -> Session:
        """The same, its caches full of random numbers."""
        runtime = self.decoder.runtime
        numbers = runtime.torch.Generator(device=runtime.device).manual_seed(self.decoder.setup.seed)
        for tensor in (one for cache in self.caches for one in cache):
            tensor.normal_(generator=numbers)
        return self

    def prefill(self, prompt: int) -> Step:
        """Prompts from nothing, of random tokens until others are loaded.

        Raises:
            OutOfMemoryError: its buffers do not fit.
        """
        if not 0 < prompt <= self.capacity:
            raise ProfileUsageError(f"a prompt of {prompt}: the cache has {self.capacity} places")
        return self._made(ACTIVATIONS, lambda buffers: self._step(buffers, prompt, decoding=False))

    def decode(self, before: int = 0) -> Step:
        """One new token a sequence, after so many in the cache.

        Raises:
            OutOfMemoryError: its buffers do not fit.
        """
        if not 0 <= before < self.capacity:
            raise ProfileUsageError(f"a token after {before} others: the cache has {self.capacity} places")
        return self.verify(1, before)

    def verify(self, new: int, before: int = 0) -> Step:
        """So many new tokens a sequence in one pass, after so many in the cache: logits of each, [B n, vocabulary].

        Raises:
            OutOfMemoryError: its buffers do not fit.
        """
        if not (new > 0 and 0 <= before <= self.capacity - new):
            raise ProfileUsageError(f"{new} tokens after {before} others: the cache has {self.capacity} places")
        step = self._made(ACTIVATIONS, lambda buffers: self._step(buffers, new, decoding=True))
        step.places.fill_(before)
        return step

    def _made(self, what: str, make: Callable[[Buffers], T]) -> T:
        """What is made of buffers that fit, which a first time without data tells."""
        runtime = self.decoder.runtime
        counting = Buffers(runtime, counting=True)
        make(counting)
        must_fit(runtime, counting.bytes * (1 if runtime.on_cuda or what != ACTIVATIONS else BESIDE), what)
        with memory_guard(runtime):
            return make(Buffers(runtime))

    def _caches(self, buffers: Buffers) -> tuple[tuple[Tensor, ...], ...]:
        dtype = self.decoder.runtime.dtype(self.decoder.setup.activations)
        return tuple(half.new_cache(buffers, self.batch, self.capacity, dtype) for half in self.decoder.halves)

    def _step(self, buffers: Buffers, new: int, *, decoding: bool) -> Step:
        decoder, torch = self.decoder, self.decoder.runtime.torch
        dtype, tokens = decoder.runtime.dtype(decoder.setup.activations), buffers.new((self.batch * new,), torch.int64)
        wide = (self.batch * new, decoder.spec.hidden)
        frame = Frame(
            runtime=decoder.runtime,
            kernels=decoder.kernels,
            dtype=dtype,
            routing=decoder.setup.routing,
            batch=self.batch,
            new=new,
            capacity=self.capacity,
            decoding=decoding,
            buffers=buffers,
            places=buffers.new((self.batch,), torch.int32),
            x=buffers.new(wide, dtype),
            y=buffers.new(wide, dtype),
        )
        if not buffers.counting:
            numbers = torch.Generator().manual_seed(decoder.setup.seed)
            tokens.copy_(torch.randint(decoder.spec.vocab, tokens.shape, generator=numbers))
        rows, width = self.batch * (new if decoding else 1), decoder.head.data.shape[0] * decoder.share.of
        logits = buffers.new((rows, width), dtype)
        stages = tuple(self._stages(frame, tokens, logits))
        kept = tuple(one for cache in self.caches for one in cache) if not buffers.counting else ()
        return Step(stages, logits, tokens, frame.places, decoding, (*buffers.scratch, frame.x, frame.y), kept)

    def _stages(self, frame: Frame, tokens: Tensor, logits: Tensor) -> Iterator[Stage]:
        """Embedding, halves with their norms, the final norm and the head: of a prompt at its last position, else at all."""
        decoder, kernels = self.decoder, frame.kernels
        residual = frame.scratch("residual", *frame.x.shape)
        yield from embedded(frame, decoder.embedding, tokens, residual)
        norm = partial(kernels.norm, residual)
        for half, cache in zip(
            decoder.halves, self.caches if not frame.buffers.counting else self._counted(), strict=True
        ):
            yield Stage("elementwise", ELEMENTWISE, half.layer, partial(norm, half.norm, frame.x))
            yield from half.stages(frame, cache)
            yield from summed(frame, frame.y, half.layer)
            norm = partial(kernels.add_norm, frame.y, residual)
        last = frame.x if frame.decoding else frame.x[: frame.batch]
        if frame.new > 1 and not frame.decoding:  # of prompts only the last rows pass the final norm and the head
            rows = frame.scratch("last residual", *last.shape)
            added = frame.scratch("last added", *last.shape)
            yield Stage("elementwise", ELEMENTWISE, -1, partial(_last_rows, frame, residual, rows, added))
            norm = partial(kernels.add_norm, added, rows)
        yield Stage("elementwise", ELEMENTWISE, -1, partial(norm, decoder.norm, last))
        yield from headed(frame, decoder.head, last, logits)

    def _counted(self) -> tuple[tuple[Tensor, ...], ...]:
        return tuple(tuple(one.to("meta") for one in cache) for cache in self.caches)


def _last_rows(frame: Frame, residual: Tensor, rows: Tensor, added: Tensor) -> None:
    """Copies the last token's residual of every sequence, and what is to be added to it."""
    shape = (frame.batch, frame.new, -1)
    rows.copy_(residual.view(shape)[:, -1])
    added.copy_(frame.y.view(shape)[:, -1])


def _refuse_fp8(runtime: Runtime, setup: Setup) -> None:
    """Refuses FP8 weights where the device, or torch on it, cannot multiply them.

    Raises:
        ProfileUsageError: it cannot.
    """
    if setup.weights != "fp8":
        return
    if not has_fp8(runtime):
        raise ProfileUsageError(f"fp8 weights: {runtime.machine.name} does not multiply fp8; it has {', '.join(PLAIN)}")
    if runtime.on_cuda and setup.activations != "bf16":
        raise ProfileUsageError(f"fp8 weights with activations in {setup.activations}: activations must be bf16")
