"""Which kernels a decoder runs on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roofcast.profiler.kernels import Kernels
    from roofcast.profiler.runtime import Runtime


def choose_kernels(runtime: Runtime) -> Kernels:
    """Fused kernels in Triton where they can be compiled for the device, else plain torch."""
    if runtime.triton:
        from roofcast.profiler.triton_kernels import TritonKernels  # noqa: PLC0415 - needs triton

        fused: Kernels = TritonKernels(runtime)
        return fused
    from roofcast.profiler.torch_kernels import TorchKernels  # noqa: PLC0415 - only one of the two is loaded

    return TorchKernels(runtime)
