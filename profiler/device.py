"""The roofs of a machine as measured: memory, matrix products, starting a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.profiled import Bandwidth, DeviceProfile, Launch, Product
from roofcast.profiler.errors import OutOfMemoryError
from roofcast.profiler.kernels_probe_memory import MIB, copy_bandwidth, read_bandwidth, sizes
from roofcast.profiler.kernels_probe_products import FORMATS, launch, launches, product, refusal, shapes
from roofcast.profiler.sweep import Task, sweep
from roofcast.profiler.timing import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Swept, Watch

    Found = Bandwidth | Product | Launch | str  # a label is what did not fit

SLOW: Final = 0.5  # seconds of one product that are too many

#: format -> the rate of its last product [FLOP/s], by which the next is left out if it takes too long
Rates = dict[str, float]


def profile_device(runtime: Runtime, budget: Budget, watch: Watch | None = None) -> DeviceProfile:
    """Measures every roof: reading and copying over sizes, products in every format, starting a kernel.

    Args:
        runtime: the device.
        budget: after which no further measurement starts.
        watch: told before each.

    Raises:
        WrongOutputError: a kernel's result is wrong.
    """
    buffers, rates = sizes(runtime), Rates()
    tasks = [
        *(_memory(runtime, "read", read_bandwidth, size) for size in buffers),
        *(_memory(runtime, "copy", copy_bandwidth, size) for size in buffers),
        *(_product(runtime, name, shape, rates) for name in FORMATS for shape in _tried(runtime, name)),
        *(_launch(runtime, how) for how in launches(runtime)),
    ]
    return _profile(runtime, sweep(tasks, budget, watch))


def quick_roofs(
    runtime: Runtime, formats: Iterable[str], budget: Budget | None = None, watch: Watch | None = None
) -> DeviceProfile:
    """Measures the roofs that a model's steps are held against: reading the largest buffer, the largest products.

    Args:
        runtime: the device.
        formats: that are multiplied in.
        budget: after which no further measurement starts; None is no limit.
        watch: told before each.
    """
    rates = Rates()
    tasks = [
        _memory(runtime, "read", read_bandwidth, sizes(runtime)[-1]),
        *(_product(runtime, name, shape, rates) for name in formats for shape in _tried(runtime, name, first=1)),
    ]
    return _profile(runtime, sweep(tasks, budget or Budget(), watch))


def _tried(runtime: Runtime, number_format: str, first: int = 0) -> tuple[tuple[int, int, int], ...]:
    """Shapes in a format, from a number on; one alone says that a device has no such format."""
    every = shapes(runtime)
    return every[first:] if refusal(runtime, number_format) is None else every[1:2]


def _memory(runtime: Runtime, how: str, measure: Callable[[Runtime, int], Bandwidth], size: int) -> Task[Found]:
    label = f"{how} {size // MIB:,} MiB"

    def run() -> Found:
        try:
            return measure(runtime, size)
        except OutOfMemoryError as error:
            return f"{label}: {error}"
        finally:
            runtime.release()

    return Task(label, run)


def _product(runtime: Runtime, number_format: str, shape: tuple[int, int, int], rates: Rates) -> Task[Found]:
    m, n, k = shape
    label = f"{number_format} product {m:,} x {n:,} x {k:,}"

    def run() -> Found:
        seconds = 2 * m * n * k / rates[number_format] if number_format in rates else 0.0
        if seconds > SLOW:
            return Product(
                number_format, m, n, k, None, f"left out: at the rate of the one before it takes {seconds:.0f} s"
            )
        found = product(runtime, number_format, shape)
        runtime.release()
        if found.flops_per_second is not None:
            rates[number_format] = found.flops_per_second
        return found

    return Task(label, run)


def _launch(runtime: Runtime, how: str) -> Task[Found]:
    return Task(f"launch, {how}", lambda: launch(runtime, how))


def _profile(runtime: Runtime, swept: Swept[Found]) -> DeviceProfile:
    done = swept.done
    return DeviceProfile(
        machine=runtime.machine,
        bandwidths=tuple(one for one in done if isinstance(one, Bandwidth)),
        products=tuple(one for one in done if isinstance(one, Product)),
        launches=tuple(one for one in done if isinstance(one, Launch)),
        unfinished=(*(one for one in done if isinstance(one, str)), *swept.left),
        stopped=swept.why,
    )
