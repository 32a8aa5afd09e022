"""What a step costs beside its kernels, and how far whole steps are from the sum of their parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostConstants:
    """Time of the host that no kernel hides.

    Args:
        step: of a step, whatever is in it. [s]
        layer: of each layer in it: of engines that launch every kernel anew. [s]
        sequence: of each sequence in it. [s]
    """

    step: float = 0.0
    layer: float = 0.0
    sequence: float = 0.0

    def seconds(self, layers: float, sequences: float) -> float:
        """step + layer x layers + sequence x sequences. [s]

        >>> round(HostConstants(step=1e-3, sequence=1e-5).seconds(32, 100) * 1e3, 3)
        2.0
        """
        return self.step + self.layer * layers + self.sequence * sequences


@dataclass(frozen=True, slots=True)
class StepConstants:
    """What whole steps show beside the sum of their parts; its spread counts in every interval.

    Args:
        parts: share of the parts' own spreads that is left in a whole step, where many shapes are summed. [-]
    """

    parts: float = 1.0
