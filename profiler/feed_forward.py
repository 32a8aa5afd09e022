"""Feed-forwards of a decoder, with weights: dense, gated or not, and routed experts with those that all tokens share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from roofcast.modelspec.op import ELEMENTWISE, GEMM, MOE
from roofcast.profiler.decoder_step import BALANCED, Stage
from roofcast.profiler.kernels import Chosen, Weight
from roofcast.profiler.random_weights import Cut
from roofcast.profiler.sharding import Share, wide

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import Tensor

    from roofcast.modelspec.ffn import DenseFeedForward, MoeFeedForward
    from roofcast.profiler.decoder_step import Buffers, Frame
    from roofcast.profiler.random_weights import Drawer


def cuts(share: Share, inner: int, *, gated: bool) -> tuple[Cut, Cut]:
    """What a rank keeps of a feed-forward's matrices: rows of gate and of up, and the columns that take them.

    Raises:
        ProfileUsageError: ranks do not divide the width.

    >>> cuts(Share(1, 2), 8, gated=True)
    (Cut(rows=((4, 8), (12, 16)), columns=()), Cut(rows=(), columns=((4, 8),)))
    """
    own = share.even(inner, "elements of a feed-forward's width")
    return Cut(rows=(own, wide(own, 1, inner)) if gated else (own,)), Cut(columns=(own,))


@dataclass(frozen=True, slots=True)
class Dense:
    """Products of a dense feed-forward.

    Args:
        into: [2 f, h] with a gate, else [f, h].
        down: [h, f].
        gated: whether there is one.
    """

    into: Weight
    down: Weight
    gated: bool

    @classmethod
    def draw(cls, drawer: Drawer, part: DenseFeedForward) -> Dense:
        """Draws its weights."""
        up, down = cuts(drawer.share, part.intermediate, gated=part.gated)
        into = drawer.matrix(part.intermediate * (1 + part.gated), part.hidden, bias=part.bias, cut=up)
        return cls(into, drawer.matrix(part.hidden, part.intermediate, bias=part.bias, cut=down), part.gated)

    def stages(self, frame: Frame, layer: int, out: Tensor, names: tuple[str, str]) -> Iterator[Stage]:
        """Two products, the first with the activation."""
        kernels = frame.kernels
        inner = frame.scratch("inner", frame.tokens, self.down.data.shape[1])
        into = kernels.gated_linear if self.gated else kernels.activated_linear
        yield Stage(names[0], GEMM, layer, partial(into, frame.x, self.into, inner))
        yield Stage(names[1], GEMM, layer, partial(kernels.linear, inner, self.down, out))


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """A dense feed-forward.

    Args:
        layer: its number.
        norm: weights of the norm before it, [h].
        dense: its products.
    """

    layer: int
    norm: Tensor
    dense: Dense

    @classmethod
    def draw(cls, drawer: Drawer, layer: int, part: DenseFeedForward, hidden: int) -> DenseLayer:
        """Draws its weights."""
        return cls(layer, drawer.norm(hidden), Dense.draw(drawer, part))

    def new_cache(self, buffers: Buffers, batch: int, capacity: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """It keeps nothing."""
        del buffers, batch, capacity, dtype
        return ()

    def stages(self, frame: Frame, cache: tuple[Tensor, ...]) -> Iterator[Stage]:
        """Its two products."""
        del cache
        yield from self.dense.stages(frame, self.layer, frame.y, ("ffn.gate_up", "ffn.down"))


@dataclass(frozen=True, slots=True)
class ExpertsLayer:
    """A mixture of experts.

    Args:
        layer: its number.
        norm: weights of the norm before it, [h].
        top_k: experts that work on a token.
        router: [E, h].
        gate_up: [E, 2 f, h].
        down: [E, h, f].
        shared: what works on every token; None without.
        shared_gate: [1, h], scales that; None without.
    """

    layer: int
    norm: Tensor
    top_k: int
    router: Weight
    gate_up: Weight
    down: Weight
    shared: Dense | None
    shared_gate: Weight | None

    @classmethod
    def draw(cls, drawer: Drawer, layer: int, part: MoeFeedForward, hidden: int) -> ExpertsLayer:
        """Draws its weights; the router's stay in the format of activations."""
        count, inner = part.experts, part.expert.intermediate
        up, down = cuts(drawer.share, inner, gated=True)
        return cls(
            layer=layer,
            norm=drawer.norm(hidden),
            top_k=part.top_k,
            router=drawer.matrix(count, hidden, plain=True),
            gate_up=drawer.matrix(count, 2 * inner, hidden, cut=up),
            down=drawer.matrix(count, hidden, inner, cut=down),
            shared=Dense.draw(drawer, part.shared) if part.shared else None,
            shared_gate=drawer.matrix(1, hidden, plain=True) if part.shared and part.shared_gate else None,
        )

    def new_cache(self, buffers: Buffers, batch: int, capacity: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """It keeps nothing."""
        del buffers, batch, capacity, dtype
        return ()

    def stages(self, frame: Frame, cache: tuple[Tensor, ...]) -> Iterator[Stage]:
        """Router, routed experts, shared ones."""
        del cache
        kernels, torch = frame.kernels, frame.runtime.torch
        experts = frame.scratch("chosen", frame.tokens, self.top_k, dtype=torch.int32)
        weights = frame.scratch("chosen", frame.tokens, self.top_k, dtype=torch.float32)
        chosen = Chosen(experts, weights)
        yield Stage("moe.router", GEMM, self.layer, partial(kernels.route, frame.x, self.router, chosen))
        if frame.routing == BALANCED:  # the router runs all the same
            chosen = frame.balanced(self.router.data.shape[0], self.top_k)
        run = partial(kernels.experts, frame.x, chosen, self.gate_up, self.down, frame.y)
        yield Stage("moe.experts", MOE, self.layer, run)
        if self.shared is not None:
            yield from self._shared(frame, self.shared)

    def _shared(self, frame: Frame, shared: Dense) -> Iterator[Stage]:
        """Shared experts, scaled where they have a gate, on top of the routed ones."""
        torch, kernels, gate = frame.runtime.torch, frame.kernels, self.shared_gate
        out = frame.scratch("shared", frame.tokens, frame.y.shape[1])
        yield from shared.stages(frame, self.layer, out, ("ffn.shared", "ffn.shared"))
        if gate is None:
            yield Stage("elementwise", ELEMENTWISE, self.layer, partial(torch.add, frame.y, out, out=frame.y))
            return
        scale = frame.scratch("shared gate", frame.tokens, 1)
        yield Stage("moe.router", GEMM, self.layer, partial(kernels.linear, frame.x, gate, scale))

        def add() -> None:
            torch.sigmoid(scale, out=scale)
            frame.y.addcmul_(out, scale)

        yield Stage("elementwise", ELEMENTWISE, self.layer, add)
