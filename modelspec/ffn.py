"""Feed-forward kinds: dense and mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from roofcast.modelspec.matrix import EACH, Matrix


class FeedForward(Protocol):
    """What the rest of roofcast asks of a feed-forward kind."""

    @property
    def label(self) -> str:
        """Kind and width, as people say it."""

    @property
    def parameters(self) -> int:
        """All parameters of one layer. [parameter]"""

    @property
    def active_parameters(self) -> int:
        """Those that work on one token. [parameter]"""

    @property
    def expert_parameters(self) -> int:
        """Those of routed experts. [parameter]"""

    def matrices(self) -> tuple[Matrix, ...]:
        """Weights that are matrices, by their module in the layer; biases are none."""


@dataclass(frozen=True, slots=True)
class DenseFeedForward:
    """Two linear layers, or three where a gate multiplies (SwiGLU, GeGLU).

    Args:
        hidden, intermediate: widths.
        gated: whether there is a gate projection.
        bias: whether the projections have biases.
    """

    hidden: int
    intermediate: int
    gated: bool = True
    bias: bool = False

    @property
    def label(self) -> str:
        """Dense, with its width."""
        return f"dense {self.intermediate}"

    @property
    def parameters(self) -> int:
        """h i (3 gated, else 2), and the biases. [parameter]

        >>> DenseFeedForward(4096, 14336).parameters
        176160768
        """
        inputs = 1 + self.gated  # up, and gate
        weights = (inputs + 1) * self.hidden * self.intermediate
        return weights + (inputs * self.intermediate + self.hidden) * self.bias

    def matrices(self, parent: str = "mlp", count: int = 1) -> tuple[Matrix, ...]:
        """Gate, up and down, or up and down alone.

        >>> [(m.name, m.rows, m.columns) for m in DenseFeedForward(4096, 14336).matrices()][2]
        ('mlp.down_proj', 4096, 14336)
        """
        up = Matrix(f"{parent}.up_proj", self.intermediate, self.hidden, count)
        gate = (Matrix(f"{parent}.gate_proj", self.intermediate, self.hidden, count),) if self.gated else ()
        return (*gate, up, Matrix(f"{parent}.down_proj", self.hidden, self.intermediate, count))

    @property
    def active_parameters(self) -> int:
        """All of them: a dense layer works on every token."""
        return self.parameters

    @property
    def expert_parameters(self) -> int:
        """None is routed."""
        return 0


@dataclass(frozen=True, slots=True)
class MoeFeedForward:
    """A router that sends each token to k of E experts, and experts that all tokens share.

    Args:
        expert: one routed expert.
        experts, top_k: how many there are, and how many work on a token.
        shared: the shared expert, all of them as one; None without.
        shared_gate: whether a learned gate of width h scales the shared expert.
        router_bias: entries of a learned bias on the router.
        outer: width of the residual stream where the experts work in a narrower one, between two projections.
        idle: experts of the router that pass a token on unchanged (identity experts).
        router_parameters: of a router that is not one matrix; None is E h.
        narrow_bias: whether the two projections around a narrower width have biases.
        groups: that the experts stand in, and how many of them a token may choose from.
    """

    expert: DenseFeedForward
    experts: int
    top_k: int
    shared: DenseFeedForward | None = None
    shared_gate: bool = False
    router_bias: int = 0
    outer: int | None = None
    idle: int = 0
    router_parameters: int | None = None
    narrow_bias: bool = False
    groups: tuple[int, int] = (1, 1)

    @property
    def label(self) -> str:
        """MoE, as k of E experts with their width."""
        shared = f" + shared {self.shared.intermediate}" if self.shared else ""
        return f"MoE {self.top_k} of {self.experts + self.idle} x {self.expert.intermediate}{shared}"

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts. [parameter]

        >>> MoeFeedForward(DenseFeedForward(7168, 2048), 256, 8).expert_parameters
        11274289152
        """
        return self.experts * self.expert.parameters

    @property
    def parameters(self) -> int:
        """Experts, shared expert, its gate, the router (E h) and projections into a narrower width (2 h l). [parameter]"""
        always = self.shared.parameters if self.shared else 0
        hidden = self.outer or self.expert.hidden
        narrow = 2 * hidden * self.expert.hidden * (self.outer is not None)
        narrow += (hidden + self.expert.hidden) * self.narrow_bias
        matrix = (self.experts + self.idle) * hidden
        router = (matrix if self.router_parameters is None else self.router_parameters) + self.router_bias
        return self.expert_parameters + always + hidden * self.shared_gate + narrow + router

    def matrices(self) -> tuple[Matrix, ...]:
        """The router, routed experts, shared ones with their gate, and projections into a narrower width.

        >>> [m.name for m in MoeFeedForward(DenseFeedForward(7168, 2048), 256, 8).matrices()]
        ['mlp.gate', 'mlp.experts.*.gate_proj', 'mlp.experts.*.up_proj', 'mlp.experts.*.down_proj']
        """
        hidden, every = self.outer or self.expert.hidden, self.experts + self.idle
        made = [Matrix("mlp.gate", every * (self.router_parameters is None), hidden, linear=False)]
        made += self.expert.matrices(f"mlp.experts.{EACH}", self.experts)
        made += self.shared.matrices("mlp.shared_experts") if self.shared else ()
        made.append(Matrix("mlp.shared_expert_gate", int(self.shared_gate), hidden, linear=False))
        if self.outer:
            narrow = self.expert.hidden
            made.append(
                Matrix("mlp.fc1_latent_proj", narrow, hidden, linear=False)
            )  # published ones are left as they are
            made.append(Matrix("mlp.fc2_latent_proj", hidden, narrow, linear=False))
        return tuple(matrix for matrix in made if matrix.elements)

    @property
    def active_parameters(self) -> int:
        """Parameters that work on one token: of routed ones k experts count, or their mean beside identity experts.

        P - (E - k E / (E + idle)) expert parameters. [parameter]
        """
        working = self.top_k * self.experts / (self.experts + self.idle)
        return self.parameters - round((self.experts - working) * self.expert.parameters)

    def distinct_experts(self, tokens: float) -> float:
        """Experts that T tokens read at least once, each token choosing k of E alike: E (1 - (1 - k/E)^T). [expert]

        A batch reads these experts' weights once. Real routers are uneven, so that they read fewer.

        >>> moe = MoeFeedForward(DenseFeedForward(7168, 2048), 256, 8)
        >>> moe.distinct_experts(1), round(moe.distinct_experts(64), 1)
        (8.0, 222.4)
        """
        every = self.experts + self.idle
        unread: float = (1 - self.top_k / every) ** tokens
        return self.experts * (1 - unread)
