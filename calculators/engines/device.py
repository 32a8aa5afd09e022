"""What an engine sees of a device's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.terms import GIB, EngineTerm, exact, spread

if TYPE_CHECKING:
    from roofcast.hwdb.accelerator import Accelerator

# What CUDA sees less than nvidia-smi reports, of the parts of which both are known: 0.2 to 0.9 GiB. [B]
KEPT: Final = 0.5 * GIB
KEPT_SIGMA: Final = 0.18 * GIB


def visible_term(accelerator: Accelerator) -> EngineTerm:
    """Memory that programs see: what CUDA reports, else the driver's total less 0.5 GiB, else as sold. [B]

    >>> from roofcast.hwdb.lookup import find_accelerator
    >>> round(visible_term(find_accelerator("h100").accelerator).bytes / GIB, 2)
    79.19
    """
    if accelerator.visible_memory is not None:
        return exact("visible", accelerator.visible_memory, "total memory as CUDA or HIP reports it", "datasheet")
    if accelerator.driver_memory is not None:
        total = accelerator.driver_memory
        rule = f"driver reports {total / GIB:.2f} GiB; CUDA sees some 0.5 GiB less (0.2 to 0.9 where both are known)"
        return spread("visible", total - KEPT, KEPT_SIGMA, rule)
    rule = "as sold: neither driver nor programs were read"
    return EngineTerm(
        "visible", accelerator.memory, accelerator.memory * 0.97, accelerator.memory * 1.02, rule, "assumed"
    )
