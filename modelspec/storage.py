"""What each matrix takes as it is stored, and the format it multiplies in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.matrix import Placed
    from roofcast.modelspec.quantization import Packing


@dataclass(frozen=True, slots=True)
class Piece:
    """A share of a matrix's copies that is stored alike.

    Args:
        share: of its copies. [-]
        bytes: of one copy, scales included. [B]
        format: that it multiplies in.
    """

    share: float
    bytes: float
    format: str


@dataclass(frozen=True, slots=True)
class Average:
    """How a component is stored on average: bytes an element, scales included, and the format it multiplies in. [B]"""

    bytes: float
    format: str


@dataclass(frozen=True, slots=True)
class Storage:
    """How a model's weights are stored.

    Args:
        components: component -> its average; those that lack are as `plain`.
        plain: of what no component tells, and of what a packing leaves out.
        packing: of checkpoints whose config tells how each matrix is stored; None else.
        modules: module in a layer -> its average, where it is known more closely than its component's.
    """

    components: Mapping[str, Average]
    plain: Average
    packing: Packing | None = None
    modules: Mapping[str, Average] = field(default_factory=dict)

    @property
    def by_layer(self) -> bool:
        """Whether layers that are alike may be stored differently."""
        return self.packing is not None

    def pieces(self, placed: Placed) -> tuple[Piece, ...]:
        """One matrix: its packing's shares, or its component's average.

        >>> from roofcast.modelspec.matrix import Matrix, Placed
        >>> plain = Storage({}, Average(2.0, "bf16"))
        >>> plain.pieces(Placed("attention", 0, Matrix("self_attn.q_proj", 4096, 4096)))[0].bytes
        33554432.0
        """
        matrix = placed.matrix
        elements = matrix.rows * matrix.columns
        if self.packing is None:
            stored = self.modules.get(matrix.name) or self.average(placed.component)
            return (Piece(1.0, elements * stored.bytes, stored.format),)
        plain = Piece(1.0, elements * self.plain.bytes, self.plain.format)
        return tuple(
            Piece(share, float(sum(scheme.sizes(matrix.rows, matrix.columns))), scheme.compute)
            if scheme
            else Piece(share, plain.bytes, plain.format)
            for share, scheme in self.packing.shares(placed)
        )

    def average(self, component: str) -> Average:
        """What an element of a component takes where it is not a matrix's, or no packing tells."""
        return self.components.get(component, self.plain)


def uniform(stored: Format) -> Storage:
    """Every parameter in one format."""
    return Storage({}, Average(stored.bytes_per_element, stored.compute))
