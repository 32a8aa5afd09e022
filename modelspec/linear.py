"""One matrix in the place of attention or of a feed-forward, as a search over architectures leaves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from roofcast.modelspec.matrix import Matrix
from roofcast.modelspec.state import Keyless

if TYPE_CHECKING:
    from roofcast.modelspec.config import Config
    from roofcast.modelspec.plan import Slot
    from roofcast.modelspec.state import Kept


@dataclass(frozen=True, slots=True)
class LinearMap(Keyless):
    """One matrix in the place of attention: it mixes no tokens and keeps nothing of them."""

    label: ClassVar[str] = "linear map"
    query_heads: ClassVar[int] = 0

    @property
    def state(self) -> tuple[Kept, ...]:
        """Nothing."""
        return ()

    def parameters(self, hidden: int) -> int:
        """One matrix: h^2. [parameter]

        >>> LinearMap().parameters(8192)
        67108864
        """
        return hidden * hidden

    def matrices(self, hidden: int) -> tuple[Matrix, ...]:
        """The one."""
        return (Matrix("self_attn.linear_attn", hidden, hidden),)

    def prefill_flops(self, tokens: float) -> float:
        """None beyond its projection's. [FLOP]"""
        return 0.0 * tokens

    def splits(self, tp: int) -> bool:
        """Whether `tp` devices can share it: any number."""
        return tp > 0


def read_map(config: Config, slot: Slot, role: str) -> LinearMap:
    """It has no sizes of its own."""
    del config, slot, role
    return LinearMap()


@dataclass(frozen=True, slots=True)
class LinearFeedForward:
    """One matrix in the place of a feed-forward."""

    hidden: int

    label: ClassVar[str] = "linear map"
    expert_parameters: ClassVar[int] = 0

    @property
    def parameters(self) -> int:
        """One matrix: h^2. [parameter]"""
        return self.hidden * self.hidden

    def matrices(self) -> tuple[Matrix, ...]:
        """The one."""
        return (Matrix("mlp.linear_mlp", self.hidden, self.hidden),)

    @property
    def active_parameters(self) -> int:
        """All of them."""
        return self.parameters
