"""Times work on a device: warmed up, repeated, by the device's own events or by a clock, in a graph where there is one."""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, pstdev
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roofcast.calculators.profiled import Sample
from roofcast.profiler.errors import OutOfMemoryError, WrongOutputError
from roofcast.profiler.runtime import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from roofcast.profiler.ranks import Ranks
    from roofcast.profiler.runtime import Runtime

    Work = Callable[[], object]

T = TypeVar("T")
WARM: Final = 3  # runs that are not counted
LEAST: Final = 5  # repeats
FEW: Final = 3  # of work that takes long
LONG: Final = 0.5  # seconds of one run that are long
MOST: Final = 1000
REST: Final = (
    0.1  # seconds that a device idles before work whose power it limits, as before a prompt that nothing precedes
)
BURST: Final = 0.01  # seconds of such work after each rest: shorter bursts run before clocks are up
RESTED: Final = 10  # repeats at most, where the device rests before each
SPAN: Final = 0.25  # seconds that the repeats of one sample take together
TENTH: Final = 0.1
#: what torch says where memory is short and its error has no class: of a CPU, of MPS, of a library on a GPU
SHORT: Final = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed", "invalid buffer size")


@dataclass(slots=True)
class Budget:
    """Time that a profile may take.

    Args:
        seconds: in all; None is no limit. [s]
        ranks: that measure together: the first one's clock counts.
    """

    seconds: float | None = None
    ranks: Ranks | None = None
    _start: float = 0.0

    def __post_init__(self) -> None:
        self._start = monotonic()

    @property
    def spent(self) -> bool:
        """Whether it is over."""
        over = self.seconds is not None and monotonic() - self._start >= self.seconds
        return self.ranks.decide(over) if self.ranks is not None else over

    @property
    def used(self) -> float:
        """Time since it was made. [s]"""
        return monotonic() - self._start


def time_calls(
    runtime: Runtime, calls: Sequence[Work], *, graph: bool = False, span: float = SPAN, rest: float = 0.0
) -> Sample:
    """The time of one call, of several that rotate over buffers, so that no cache holds what the next one reads.

    The calls are run one after the other; one repeat is all of them, its time divided by their number.

    Args:
        runtime: the device.
        calls: the same work on different buffers; together these should be larger than the last cache.
        graph: whether to record them in a CUDA graph and time its replays; ignored where there is none.
        span: time that the repeats should take together. [s]
        rest: as of `time_work`. [s]

    Raises:
        OutOfMemoryError: the device has not enough memory.
    """
    whole = time_work(runtime, lambda: [call() for call in calls], graph=graph, span=span, rest=rest)
    n = len(calls)
    return Sample(whole.seconds / n, whole.low / n, whole.high / n, whole.spread / n, whole.repeats)


def time_work(runtime: Runtime, work: Work, *, graph: bool = False, span: float = SPAN, rest: float = 0.0) -> Sample:
    """The time of one run of `work`: median, 10th and 90th percentile and deviation of repeats.

    Args:
        runtime: the device.
        work: what is timed.
        graph: as of `time_calls`.
        span: time that the repeats should take together. [s]
        rest: time that the device idles before each repeat, as before a request that nothing is queued before. Matrix
            products that follow one another without pause are slowed by the limit of the device's power. [s]

    Raises:
        OutOfMemoryError: the device has not enough memory.
    """
    with memory_guard(runtime):
        first = agreed(runtime, _by_clock(runtime, work))
        for _ in range(WARM - 1 if first < LONG else 0):
            work()
        replay = capture(runtime, work) if graph and runtime.graphs else work
        once = agreed(runtime, _clocked(runtime, replay, 1)[0])
        repeats = _repeats(once, span, rest)
        times = sorted(_clocked(runtime, replay, repeats, rest))
    last = len(times) - 1
    tenth = round(TENTH * last)
    return _slowest(runtime, Sample(median(times), times[tenth], times[last - tenth], pstdev(times), repeats))


def agreed(runtime: Runtime, value: T) -> T:
    """The first rank's value on all that measure together, so that all go on alike; of a device alone its own."""
    return value if runtime.ranks is None else runtime.ranks.decide(value)


def _slowest(runtime: Runtime, own: Sample) -> Sample:
    """Of all ranks' times those of the slowest: what they do together is done when it is."""
    if runtime.ranks is None:
        return own
    every = runtime.ranks.gather([own.seconds, own.low, own.high, own.spread])
    seconds, low, high, spread = max(every)
    return Sample(seconds, low, high, spread, own.repeats)


def _repeats(once: float, span: float, rest: float) -> int:
    """How often work of one such run is repeated: for a span, not more than ten times where it rests between."""
    most = RESTED if rest else MOST
    return max(LEAST if once < LONG else FEW, min(most, math.ceil(span / max(once, 1e-7))))


def glance(runtime: Runtime, work: Work) -> float:
    """A rough time of one run, to choose the fastest of several: the median of three after a first, which is enough where it is long. [s]

    Raises:
        OutOfMemoryError: the device has not enough memory.
    """
    with memory_guard(runtime):
        first = agreed(runtime, _by_clock(runtime, work))
        return first if first >= LONG else agreed(runtime, median(_clocked(runtime, work, 3)))


def capture(runtime: Runtime, work: Work) -> Work:
    """Records work, which has run before, in a graph; what replays it."""
    torch = runtime.torch
    stream = torch.cuda.Stream(runtime.device)
    stream.wait_stream(torch.cuda.current_stream(runtime.device))
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream(runtime.device).wait_stream(stream)
    recorded = torch.cuda.CUDAGraph()
    mode = "global" if runtime.ranks is None else "thread_local"  # NCCL's own thread looks at events meanwhile
    with torch.cuda.graph(recorded, capture_error_mode=mode):
        work()
    replay: Work = recorded.replay
    replay()
    runtime.synchronize()
    return replay


def _clocked(runtime: Runtime, work: Work, repeats: int, rest: float = 0.0) -> list[float]:
    """Times of runs, back to back or after a rest: between events of the device, else by the host's clock. [s]"""
    if not runtime.on_cuda:
        return [_by_clock(runtime, work) for _ in range(repeats)]
    event = runtime.torch.cuda.Event
    if rest:
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(repeats)]
        for first, second in pairs:
            runtime.synchronize()
            sleep(rest)
            _align(runtime)
            first.record()
            work()
            second.record()
    else:
        marks = [event(enable_timing=True) for _ in range(repeats + 1)]
        _align(runtime)
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        pairs = list(pairwise(marks))
    runtime.synchronize()
    return [first.elapsed_time(second) / 1e3 for first, second in pairs]


def _align(runtime: Runtime) -> None:
    """Has ranks begin at the same moment: a time would else hold the others' delay."""
    if runtime.ranks is not None:
        runtime.ranks.align()


def _by_clock(runtime: Runtime, work: Work) -> float:
    _align(runtime)
    if runtime.ranks is not None:
        runtime.synchronize()
    start = perf_counter()
    work()
    runtime.synchronize()
    return perf_counter() - start


def memory_errors(runtime: Runtime) -> tuple[type[BaseException], ...]:
    """What torch raises where a CUDA device's memory is short; elsewhere it has no class of its own: `memory_guard`."""
    found: Any = getattr(runtime.torch, "OutOfMemoryError", None)
    return (found, MemoryError) if found is not None else (MemoryError,)


@contextmanager
def memory_guard(runtime: Runtime) -> Iterator[None]:
    """Turns whatever torch raises where memory is short into one error; all else passes.

    Raises:
        OutOfMemoryError: the device has not enough memory.
    """
    try:
        yield
    except memory_errors(runtime) as error:
        raise out_of_memory(runtime, error) from error
    except RuntimeError as error:
        if not any(words in str(error).lower() for words in SHORT):
            raise
        raise out_of_memory(runtime, error) from error


def out_of_memory(runtime: Runtime, error: BaseException) -> OutOfMemoryError:
    """The error of a point that does not fit, in one line."""
    asked = re.search(r"allocate ([0-9.]+) ?([KMGT]iB|bytes)", str(error))
    if asked is None:
        return OutOfMemoryError(f"out of memory on {runtime.machine.name} ({first_line(error)})")
    size = f"{int(asked[1]) / 2**30:.2f} GiB" if asked[2] == "bytes" else f"{asked[1]} {asked[2]}"
    return OutOfMemoryError(f"out of memory on {runtime.machine.name}: another {size} were asked of it")


def check_written(runtime: Runtime, out: Tensor, work: Work, what: str) -> None:
    """Fills the output with NaN, runs, and sees that every element was written and is a number.

    Raises:
        WrongOutputError: one was not.
    """
    out.fill_(math.nan)
    work()
    runtime.synchronize()
    good = runtime.torch.isfinite(out)
    if not bool(good.all()):
        bad = int((~good).sum())
        raise WrongOutputError(
            f"{what}: {bad:,} of {good.numel():,} outputs were not written or are no numbers; its time means nothing"
        )
