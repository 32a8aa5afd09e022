"""Work without time: one operation of a step as FLOP and bytes, and one exchange between devices as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from roofcast.modelspec.shapes import Shape

# families of operations: what a fitted efficiency is keyed by
GEMM: Final = "gemm"
MOE: Final = "moe"
ATTN_PREFILL: Final = "attn_prefill"
ATTN_DECODE: Final = "attn_decode"
ELEMENTWISE: Final = "elementwise"
COLLECTIVE: Final = "collective"
FAMILIES: Final = (GEMM, MOE, ATTN_PREFILL, ATTN_DECODE, ELEMENTWISE, COLLECTIVE)

# patterns of exchange between devices
ALL_REDUCE: Final = "all_reduce"
ALL_GATHER: Final = "all_gather"
REDUCE_SCATTER: Final = "reduce_scatter"
ALL_TO_ALL: Final = "all_to_all"
POINT_TO_POINT: Final = "point_to_point"


@dataclass(frozen=True, slots=True)
class Op:
    """What one device does and moves for one operation of a step, over all layers that do the same.

    Args:
        name: the term it is printed as.
        family: one of `FAMILIES`.
        flops: multiplies and adds. [FLOP]
        weight_bytes: weights read, each once a step. [B]
        state_read, state_written: KV cache and recurrent state. [B]
        activation_read, activation_written: inputs and outputs, were they to go through memory. [B]
        format: the format it multiplies in, whose peak counts.
        by: the function that counted it, as `module:name` within roofcast.
        calls: kernels that do it, one in each layer or several; what each costs beside work and bytes is counted by them.
        shape: what one of them sees; None where FLOP and bytes tell all.
    """

    name: str
    family: str
    flops: float
    weight_bytes: float = 0.0
    state_read: float = 0.0
    state_written: float = 0.0
    activation_read: float = 0.0
    activation_written: float = 0.0
    format: str = "bf16"
    by: str = ""
    calls: float = 1.0
    shape: Shape | None = None

    @property
    def bytes(self) -> float:
        """Bytes that must move whatever the kernels: D = weights + state read + state written. [B]

        Activations are not in it: a step's may stay on the chip from one operation to the next.

        >>> Op("attn.decode", ATTN_DECODE, 1.0, state_read=2.0, state_written=0.5, activation_read=9.0).bytes
        2.5
        """
        return self.weight_bytes + self.state_read + self.state_written

    @property
    def activation_bytes(self) -> float:
        """Bytes of inputs and outputs, each moved once: read + written. [B]"""
        return self.activation_read + self.activation_written


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one device exchanges with others in one place of a step, `times` over.

    Args:
        name: the term it is printed as.
        pattern: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all` or `point_to_point`.
        payload: bytes of the whole tensor that a device ends up with (all_gather), starts from (all_reduce,
            reduce_scatter), or has to send (all_to_all; point_to_point to the next rank). [B]
        ranks: devices that take part.
        stride: devices from one rank to the next, as they are numbered over the domains.
        times: how often in the step.
        by: the function that counted it.
        fan: of all_to_all, ranks that each part is sent to, drawn evenly and with repetition; once to each of them.
        groups: that the ranks' experts stand in, and how many of them a part may be sent to.
    """

    name: str
    pattern: str
    payload: float
    ranks: int
    stride: int
    times: float
    by: str = ""
    fan: int = 1
    groups: tuple[int, int] = (1, 1)
    family: str = COLLECTIVE

    @property
    def calls(self) -> float:
        """How often: each is a kernel."""
        return self.times

    @property
    def format(self) -> str:
        """The pattern: what its constants are told apart by."""
        return self.pattern
