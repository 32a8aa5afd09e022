"""What a step of a decoder runs: its stages in order, over buffers and a cache that are made once and stay where they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from roofcast.profiler.kernels import Chosen, Rotation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch
    from torch import Tensor

    from roofcast.profiler.kernels import Kernels
    from roofcast.profiler.runtime import Runtime

THETA: Final = 10_000.0
DRAWN: Final = "drawn"
BALANCED: Final = "balanced"
FIXED: Final = BALANCED  # names of shared tensors that are written once begin so


@dataclass(frozen=True, slots=True)
class Stage:
    """One operation of a step.

    Args:
        name: the term of `estimate` that it is part of.
        family: of `modelspec.op`.
        layer: its number; embedding and head have -1.
        run: launches it.
    """

    name: str
    family: str
    layer: int
    run: Callable[[], None]


@dataclass(slots=True)
class Buffers:
    """Tensors of a session, on the device, or without data where only their size is asked.

    Args:
        runtime: the device.
        counting: whether they are without data.
        bytes: of all that were made. [B]
    """

    runtime: Runtime
    counting: bool = False
    bytes: int = 0
    _shared: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)

    @property
    def device(self) -> torch.device | str:
        """Where they are made."""
        return "meta" if self.counting else self.runtime.device

    def new(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor of its own, zero."""
        made: Tensor = self.runtime.torch.zeros(shape, dtype=dtype, device=self.device)
        self.bytes += made.numel() * made.element_size()
        return made

    @property
    def scratch(self) -> tuple[Tensor, ...]:
        """What layers share and write anew in every step."""
        return tuple(tensor for (name, *_), tensor in self._shared.items() if not name.startswith(FIXED))

    def shared(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A tensor for all that ask by this name and shape: layers, of which one runs at a time."""
        key = (name, shape, dtype)
        if key not in self._shared:
            self._shared[key] = self.new(shape, dtype)
        return self._shared[key]


@dataclass(slots=True)
class Frame:
    """What the halves of layers write their stages for.

    Args:
        runtime: the device.
        kernels: that do the work.
        dtype: of activations.
        routing: of experts, `drawn` or `balanced`.
        batch, new, capacity: sequences, new tokens of each, and places of the cache. [token]
        decoding: whether new tokens attend to what the cache holds of earlier steps.
        buffers: where tensors are made.
        places: [B], tokens of each sequence that the cache holds before the step.
        x, y: [T, h], what a half reads, normed, and what it writes.
    """

    runtime: Runtime
    kernels: Kernels
    dtype: torch.dtype
    routing: str
    batch: int
    new: int
    capacity: int
    decoding: bool
    buffers: Buffers
    places: Tensor
    x: Tensor
    y: Tensor
    _rotations: dict[int, Rotation] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """T, new tokens of all sequences."""
        return self.batch * self.new

    def scratch(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor that lives within one half of a layer."""
        return self.buffers.shared(name, shape, dtype or self.dtype)

    def rotation(self, rotated: int) -> Rotation:
        """Rotary angles of all places: place / theta^(2 i / rotated), i = 0 .. rotated / 2 - 1.

        Source: Su et al. 2021, arXiv:2104.09864, section 3.2.2.
        """
        if rotated not in self._rotations:
            torch = self.runtime.torch
            steps = torch.arange(0, rotated, 2, dtype=torch.float64) / max(rotated, 1)
            angles = torch.arange(self.capacity, dtype=torch.float64)[:, None] * THETA**-steps
            cos, sin = (self.buffers.new(tuple(angles.shape), torch.float32) for _ in range(2))
            cos.copy_(angles.cos().float())
            sin.copy_(angles.sin().float())
            self._rotations[rotated] = Rotation(cos, sin, rotated)
        return self._rotations[rotated]

    def balanced(self, experts: int, top_k: int) -> Chosen:
        """Token t goes to experts (t k + j) mod E, with weights 1/k: as many tokens to each as can be."""
        torch = self.runtime.torch
        chosen = self.scratch(f"balanced {experts}", self.tokens, top_k, dtype=torch.int32)
        chosen.copy_((torch.arange(self.tokens * top_k) % experts).view(self.tokens, top_k))
        weights = self.scratch(f"balanced {experts}", self.tokens, top_k, dtype=torch.float32)
        return Chosen(chosen, weights.fill_(1 / top_k))


class Half(Protocol):
    """Attention or feed-forward of one layer, with the norm before it."""

    @property
    def layer(self) -> int:
        """Its number."""

    @property
    def norm(self) -> Tensor:
        """Weights of the norm before it, [h]."""

    def new_cache(self, buffers: Buffers, batch: int, capacity: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """What it keeps of B sequences of at most `capacity` tokens."""

    def stages(self, frame: Frame, cache: tuple[Tensor, ...]) -> Iterator[Stage]:
        """What it runs, from frame.x to frame.y."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step, ready to run again and again on the same memory.

    Args:
        stages: all that it runs, in order.
        logits: [B, vocabulary], what it writes: those of the last token of each sequence; to verify, of all [B n].
        tokens: [T], int64, what it reads.
        places: [B], int32: tokens of each sequence that the cache holds before it.
        decoding: whether it is a step of decode, of one token a sequence, or of a few that are verified.
        scratch: all else that it writes, but for the caches.
        caches: [.., S, width] each, into which it writes the new tokens of every sequence.
    """

    stages: tuple[Stage, ...]
    logits: Tensor
    tokens: Tensor
    places: Tensor
    decoding: bool
    scratch: tuple[Tensor, ...] = ()
    caches: tuple[Tensor, ...] = ()

    def run(self) -> None:
        """Launches every stage."""
        for stage in self.stages:
            stage.run()

    def poison(self) -> None:
        """Fills with NaN what it must write before it reads it: what a kernel leaves out shows in the logits then."""
        new, first = self.tokens.numel() // self.places.numel(), int(self.places[0])
        for tensor in (self.logits, *self.scratch, *(cache.narrow(-2, first, new) for cache in self.caches)):
            if tensor.is_floating_point():
                tensor.fill_(math.nan)

    def load(self, tokens: Tensor, place: int = 0) -> None:
        """Sets the new tokens, [B, n], and how many tokens each sequence has in the cache before them."""
        self.tokens.copy_(tokens.reshape(-1))
        self.places.fill_(place)
