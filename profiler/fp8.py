"""FP8, float8_e4m3fn: which devices multiply it, and how rows of numbers are brought into it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from roofcast.profiler.runtime import Runtime

MOST: Final = 448.0  # the largest number of float8_e4m3fn
LEAST: Final = 1e-12  # of a row's largest element: a row of zeros has a scale too
FIRST: Final = (8, 9)  # compute capability
MULTIPLE: Final = 16  # that sizes of a scaled product must be of


def has_fp8(runtime: Runtime) -> bool:
    """Whether the device multiplies float8_e4m3fn: NVIDIA's from Ada and Hopper on, AMD's from gfx950 on."""
    if runtime.kind == "cuda":
        return bool(runtime.torch.cuda.get_device_capability(runtime.device) >= FIRST)
    if runtime.kind != "rocm":
        return False
    name = str(runtime.torch.cuda.get_device_properties(runtime.device).gcnArchName)
    return name.startswith(("gfx95", "gfx12"))


def narrowed(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows in FP8 and the scale of each, [rows, 1] fp32: the largest element of a row becomes the largest of FP8."""
    size = x.abs().amax(-1, keepdim=True).float().clamp(min=LEAST) / MOST
    return (x.float() / size).to(dtype), size


def widened(data: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """The numbers that FP8 rows [..., outputs, inputs] and their scales [..., outputs] stand for."""
    return (data.float() * scale[..., None]).to(dtype)
