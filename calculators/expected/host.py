"""What a step costs beside its kernels, and how far whole steps are from the sum of their parts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostConstants:
    """Time of the host that no kernel hides.

    Args:
        step: of a step, whatever is in it. [s]
        launch: of a kernel that is launched while others run: it shows where kernels are quicker than that. [s]
        device: of each further device that works on it. [s]
        sequence: of each sequence in it. [s]
    """

    step: float = 0.0
    launch: float = 0.0
    device: float = 0.0
    sequence: float = 0.0

    def seconds(self, devices: float, sequences: float, calls: float, kernels: float) -> float:
        """step + device x (devices - 1) + sequence x sequences + max(0, launch x calls - kernels). [s]

        >>> one = HostConstants(step=1e-3, launch=2e-5, device=1e-4, sequence=1e-5)
        >>> round(one.seconds(8, 100, 250, 3e-3) * 1e3, 3)  # 1 + 0.7 + 1, and 5 of launching behind 3 of kernels
        4.7
        """
        behind = max(0.0, self.launch * calls - kernels)
        return self.step + self.device * (devices - 1) + self.sequence * sequences + behind


@dataclass(frozen=True, slots=True)
class StepConstants:
    """How kernels in a whole step differ from kernels alone; the spread of whole steps counts in every interval.

    Args:
        gemm, moe, attn_decode, attn_prefill: share of a family's least time of a call that a step of many does not show:
            launches that a graph hides, products with quantisation fused into the operation before. [-]
        sustained: share by which clocks lengthen kernels that follow one another without pause. [-]
        parts: share of the parts' own spreads that is left in a whole step, where many shapes are summed. [-]
        batch: what the spread grows by with the logarithm of the sequences, where one alone was measured. [-]
    """

    gemm: float = 0.0
    moe: float = 0.0
    attn_decode: float = 0.0
    attn_prefill: float = 0.0
    sustained: float = 0.0
    parts: float = 1.0
    batch: float = 0.0

    def hidden(self, family: str) -> float:
        """Of a family, the share of t0 that a step does not show, at most all of it. [-]"""
        return min(1.0, getattr(self, family, 0.0))
