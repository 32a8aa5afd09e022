"""What an engine sees of a device's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.terms import GIB, EngineTerm, exact, spread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.hwdb.accelerator import Accelerator

# What CUDA sees less than nvidia-smi reports, of the parts of which both are known: 0.2 to 0.9 GiB. [B]
KEPT: Final = 0.5 * GIB
KEPT_SIGMA: Final = 0.18 * GIB
# vendor -> what programs can have of the memory as sold, and why. Instinct and Radeon parts of which both are known see as
# many GiB as the data sheet has GB; Metal lets a program have three quarters (recommendedMaxWorkingSetSize, 73,728 MB of
# 96 GB: https://github.com/ggml-org/llama.cpp/issues/3213).
AS_SOLD: Final[Mapping[str, tuple[float, str]]] = {
    "amd": (GIB / 1e9, "as sold, whose GB are GiB on parts that were read"),
    "apple": (0.75 * GIB / 1e9, "three quarters of the memory, which Metal lets a program have; GB as sold are GiB"),
}


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
    share, rule = AS_SOLD.get(accelerator.vendor or "", (1.0, "as sold: neither driver nor programs were read"))
    size = accelerator.memory * share
    return EngineTerm("visible", size, size * 0.97, size * 1.02, rule, "assumed")
