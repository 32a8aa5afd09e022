"""Matrix products in every format that a device multiplies in, and the cost of starting a kernel."""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from roofcast.calculators.profiled import EAGER, GRAPH, Launch, Product
from roofcast.profiler.errors import OutOfMemoryError, UnavailableError, WrongOutputError
from roofcast.profiler.runtime import first_line
from roofcast.profiler.timing import BURST, REST, glance, memory_guard, time_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch
    from torch import Tensor

    from roofcast.profiler.runtime import Runtime

    Multiply = Callable[[], Tensor]

FORMATS: Final = ("fp32", "tf32", "bf16", "fp16", "fp8")
#: m, n, k: squares, and what a model of 4,096 wide multiplies 8,192 tokens with: gate and up, down
SHAPES: Final = ((4096, 4096, 4096), (8192, 8192, 8192), (8192, 28672, 4096), (8192, 4096, 14336))
MIDDLE_SHAPES: Final = ((2048, 2048, 2048), (4096, 4096, 4096), (4096, 14336, 4096))  # of Apple's GPUs
SMALL_SHAPES: Final = ((256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048))  # of a processor
#: format -> compute capability of NVIDIA devices that multiply in it
LEAST: Final[Mapping[str, tuple[int, int]]] = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0), "fp8": (8, 9)}
TOLERANCE: Final = 5e-2  # of a product's error to its size: fp8 multipliers sum in few bits
CHECKED: Final = 64  # rows and columns of a result that are computed again
LAUNCHES: Final = 1000


def shapes(runtime: Runtime) -> tuple[tuple[int, int, int], ...]:
    """Products that are measured on a kind of device."""
    return {"cpu": SMALL_SHAPES, "mps": MIDDLE_SHAPES}.get(runtime.kind, SHAPES)


def product(runtime: Runtime, number_format: str, shape: tuple[int, int, int]) -> Product:
    """Rate of [m, k] @ [k, n]; what cannot run says why.

    Raises:
        WrongOutputError: the result is wrong.
    """
    why = refusal(runtime, number_format)
    if why is not None:
        return Product(number_format, *shape, None, why)
    try:
        with memory_guard(runtime), precision(runtime, number_format), runtime.torch.no_grad():
            ways = _ways(runtime, number_format, shape)
            times = [glance(runtime, multiply) for multiply in ways]
            best = ways[times.index(min(times))]
            calls = [best] * (math.ceil(BURST / min(times)) if runtime.on_cuda else 1)
            return Product(number_format, *shape, time_calls(runtime, calls, rest=REST))
    except OutOfMemoryError as error:
        return Product(number_format, *shape, None, str(error))
    except (RuntimeError, NotImplementedError, UnavailableError) as error:
        return Product(number_format, *shape, None, f"torch cannot: {first_line(error)}")


def refusal(runtime: Runtime, number_format: str) -> str | None:
    """Why a device has no product in a format; None where it does."""
    kind, torch = runtime.kind, runtime.torch
    if number_format == "fp8" and (fp8_type(runtime) is None or kind in {"cpu", "mps"}):
        return (
            "fp8 products need a CUDA or ROCm device with fp8 units"
            if kind in {"cpu", "mps"}
            else "this torch has no fp8"
        )
    if number_format == "tf32" and kind != "cuda":
        return "tf32 is a format of NVIDIA devices"
    if kind != "cuda":
        return None
    least, here = LEAST.get(number_format, (0, 0)), torch.cuda.get_device_capability(runtime.device)
    if here < least:
        return f"{number_format} needs compute capability {least[0]}.{least[1]}, this has {here[0]}.{here[1]}"
    return None


def fp8_type(runtime: Runtime) -> torch.dtype | None:
    """E4M3 as the device has it: MI300's has a bias of its own."""
    own = runtime.kind == "rocm" and "gfx94" in str(
        getattr(runtime.torch.cuda.get_device_properties(runtime.device), "gcnArchName", "")
    )
    found: torch.dtype | None = getattr(runtime.torch, "float8_e4m3fnuz" if own else "float8_e4m3fn", None)
    return found


@contextmanager
def precision(runtime: Runtime, number_format: str) -> Iterator[None]:
    """Whether torch rounds fp32 factors to TF32, set for products in either, and put back: of torch, not of the device."""
    if runtime.kind != "cuda" or number_format not in {"fp32", "tf32"}:
        yield
        return
    torch = runtime.torch
    rounded, matmul = number_format == "tf32", torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # from torch 2.9 on
        before = matmul.fp32_precision
        matmul.fp32_precision = "tf32" if rounded else "ieee"
        try:
            yield
        finally:
            matmul.fp32_precision = before
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if rounded else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _ways(runtime: Runtime, number_format: str, shape: tuple[int, int, int]) -> list[Multiply]:
    """Calls that multiply, each checked against fp32: with the second factor stored by rows, or by columns as weights are."""
    m, n, k = shape
    torch = runtime.torch
    if number_format == "fp8":
        return _fp8_ways(runtime, shape)
    dtype = runtime.dtype("fp32" if number_format == "tf32" else number_format)
    x, weight = (_drawn(runtime, rows, k, dtype) for rows in (m, n))
    out = torch.empty((m, n), dtype=dtype, device=runtime.device)
    factors = [weight.t()]
    if runtime.kind != "cpu" or number_format == "fp32":  # ten times slower on a processor without units for halves
        factors.append(weight.t().contiguous())
    ways: list[Multiply] = [partial(torch.mm, x, factor, out=out) for factor in factors]
    for multiply in ways:
        out.fill_(float("nan"))
        _check(runtime, multiply(), (x, weight), f"{number_format} product {m}x{n}x{k}")
    return ways


def _fp8_ways(runtime: Runtime, shape: tuple[int, int, int]) -> list[Multiply]:
    """FP8 with one scale a tensor, and with one a row and column, of those that the device takes."""
    m, n, k = shape
    torch = runtime.torch
    x, weight = (_drawn(runtime, rows, k, torch.bfloat16).to(fp8_type(runtime)) for rows in (m, n))
    one = torch.ones((), device=runtime.device)
    rows, columns = (torch.ones(count, device=runtime.device) for count in (m, n))

    def multiply(left: Tensor, right: Tensor, *, fast: bool) -> Multiply:
        def call() -> Tensor:
            made: Tensor = torch._scaled_mm(  # noqa: SLF001 - torch's only name for it
                x, weight.t(), scale_a=left, scale_b=right, out_dtype=torch.bfloat16, use_fast_accum=fast
            )
            return made

        return call

    tried = [
        *(multiply(one, one, fast=fast) for fast in (True, False)),
        multiply(rows[:, None], columns[None, :], fast=True),
    ]
    ways, refused = [], ""
    for call in tried:
        try:
            _check(runtime, call(), (x, weight), f"fp8 product {m}x{n}x{k}")
        except (RuntimeError, ValueError) as error:
            refused = refused or first_line(error)
            continue
        ways.append(call)
    if not ways:
        raise UnavailableError(refused)
    return ways


def _drawn(runtime: Runtime, rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Standard normal numbers: what a device draws of power, and so its clock, depends on its data. [rows, columns]"""
    made: Tensor = runtime.torch.randn((rows, columns), device=runtime.device, dtype=dtype)
    return made


def _check(runtime: Runtime, out: Tensor, factors: tuple[Tensor, Tensor], what: str) -> None:
    """Sees that all of a product are numbers, and its first rows and columns those of fp32.

    Raises:
        WrongOutputError: they are not.
    """
    bad = int((~runtime.torch.isfinite(out)).sum())
    if bad:
        raise WrongOutputError(f"{what}: {bad:,} of {out.numel():,} outputs were not written or are no numbers")
    left, right = (factor[:CHECKED].float() for factor in factors)
    wanted = left @ right.t()
    error = float((out[:CHECKED, :CHECKED].float() - wanted).norm() / wanted.norm())
    if error > TOLERANCE:
        raise WrongOutputError(f"{what}: off by {error:.1%} of what fp32 gives; its time means nothing")


def launch(runtime: Runtime, how: str) -> Launch:
    """Time of one kernel that adds to one element, among 1,000 in a row: started one by one, or in a graph. [s]"""
    x = runtime.torch.zeros(1, device=runtime.device)
    return Launch(how, time_calls(runtime, [lambda: x.add_(1.0)] * LAUNCHES, graph=how == GRAPH))


def launches(runtime: Runtime) -> tuple[str, ...]:
    """Ways of starting kernels that a device has."""
    return (EAGER, GRAPH) if runtime.on_cuda else (EAGER,)
