"""What a profile holds of several devices that work together: who they are, and what they exchanged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofcast.calculators.profiled import Sample


@dataclass(frozen=True, slots=True)
class RankGroup:
    """Ranks of one measurement: a process and a device each.

    Args:
        size: how many.
        backend: of torch.distributed that exchanges, `nccl` or `gloo`.
        hosts: that they are on.
        library: name and version of what moves the data, as `NCCL 2.27.3`; empty where it does not tell.
        link: how their devices are linked, as the driver tells; empty where it does not.
    """

    size: int
    backend: str
    hosts: int = 1
    library: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One exchange between ranks, repeated.

    Args:
        pattern: of `modelspec.op`: all_reduce, all_gather, reduce_scatter, all_to_all, point_to_point.
        payload: bytes of the tensor that a rank ends up with (all_gather), starts from (all_reduce, reduce_scatter),
            or has to send (all_to_all, point_to_point). [B]
        launched: `eager` or `graph`.
        sample: time of one, that of the slowest rank; None where it could not run.
        checked: ranks that got a result, every element of which was right.
        problem: why it could not run, in one line.
    """

    pattern: str
    payload: int
    launched: str
    sample: Sample | None
    checked: int = 0
    problem: str | None = None
