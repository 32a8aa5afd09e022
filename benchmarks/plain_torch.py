"""What plain torch reaches on a CUDA device, as JSON: the mark that `roofcast profile device` is held against.

    python benchmarks/plain_torch.py

Reads with torch.sum over 4 GiB and copies them, multiplies squares of 8,192 in bf16, fp16 and fp8; random data, CUDA
events, medians. Uses nothing of roofcast. Each figure keeps the device busy for a second, and changes no setting of it.
"""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

SIDE = 8192
SIZE = 4 * 2**30  # [B]
SECONDS = 1.0
WARM = 5


def seconds(work: Callable[[], object]) -> float:
    """Median time of one run. [s]"""
    for _ in range(WARM):
        work()
    once = clocked(work, 3)
    return median(clocked(work, max(10, int(SECONDS / median(once)))))


def clocked(work: Callable[[], object], repeats: int) -> list[float]:
    """Times between events around each of several runs, back to back. [s]"""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return [marks[i].elapsed_time(marks[i + 1]) / 1e3 for i in range(repeats)]


def memory() -> dict[str, float]:
    """Rates of reading and copying 4 GiB. [B/s]"""
    x = torch.randn(SIZE // 4, device="cuda")
    y = torch.empty_like(x)
    return {
        "read_bytes_per_second": SIZE / seconds(lambda: torch.sum(x)),
        "copy_bytes_per_second": 2 * SIZE / seconds(lambda: y.copy_(x)),
    }


def products() -> dict[str, Any]:
    """Rates of 8,192 x 8,192 x 8,192 by format, weights as torch's linear layers store them; None where it fails. [FLOP/s]"""
    found: dict[str, Any] = {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        x, weight = (torch.randn(SIDE, SIDE, device="cuda", dtype=dtype) for _ in range(2))
        found[name] = 2 * SIDE**3 / seconds(lambda: torch.mm(x, weight.t()))  # noqa: B023 - run here
    try:
        found["fp8"] = 2 * SIDE**3 / seconds(fp8())
    except (RuntimeError, AttributeError) as error:
        found |= {"fp8": None, "fp8_problem": str(error).splitlines()[0]}
    return found


def fp8() -> Callable[[], object]:
    """A product of E4M3 with one scale a tensor."""
    x, weight = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(
        x, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def main() -> None:
    """Prints the rates."""
    with torch.inference_mode():
        answer = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            **memory(),
            "flops_per_second": products(),
        }
    print(json.dumps(answer, indent=2))


if __name__ == "__main__":
    main()
