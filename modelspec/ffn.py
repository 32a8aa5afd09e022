"""Feed-forward kinds: dense and mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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
    """

    expert: DenseFeedForward
    experts: int
    top_k: int
    shared: DenseFeedForward | None = None
    shared_gate: bool = False
    router_bias: int = 0

    @property
    def label(self) -> str:
        """MoE, as k of E experts with their width."""
        shared = f" + shared {self.shared.intermediate}" if self.shared else ""
        return f"MoE {self.top_k} of {self.experts} x {self.expert.intermediate}{shared}"

    @property
    def expert_parameters(self) -> int:
        """Parameters of all routed experts. [parameter]

        >>> MoeFeedForward(DenseFeedForward(7168, 2048), 256, 8).expert_parameters
        11274289152
        """
        return self.experts * self.expert.parameters

    @property
    def parameters(self) -> int:
        """Experts, shared expert, its gate and the router (E h). [parameter]"""
        always = self.shared.parameters if self.shared else 0
        gate = self.expert.hidden * self.shared_gate
        return self.expert_parameters + always + gate + self.experts * self.expert.hidden + self.router_bias

    @property
    def active_parameters(self) -> int:
        """Parameters that work on one token: routed ones count k/E. [parameter]"""
        return self.parameters - (self.experts - self.top_k) * self.expert.parameters
