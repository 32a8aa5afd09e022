"""The quickest of several ways to do the same, found by timing each at first use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roofcast.profiler.timing import time_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from torch import Tensor

    from roofcast.profiler.runtime import Runtime

C = TypeVar("C")
CACHES: Final = 3  # times the last cache that copies of small tensors fill, so that none is read from it
MOST_COPIES: Final = 96
SPAN: Final = 0.01  # seconds that a candidate is timed


class Tuner:
    """Choices made so far, by shape.

    Args:
        runtime: the device.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._chosen: dict[Hashable, Any] = {}

    def choose(
        self,
        key: Hashable,
        ways: Sequence[C],
        run: Callable[[C, tuple[Tensor, ...]], None],
        weights: tuple[Tensor, ...],
    ) -> C:
        """The way that takes least at a key.

        Args:
            key: of the shape.
            ways: candidates; the first is taken where nothing can be timed, as while a graph is recorded.
            run: does it one way, on copies of the weights.
            weights: what is read; copies of it are visited in turn.
        """
        if key in self._chosen:
            found: C = self._chosen[key]
            return found
        if self._runtime.torch.cuda.is_current_stream_capturing():
            return ways[0]
        copies = self._copies(weights)
        times = [self._timed(way, run, copies) for way in ways]
        best = ways[min(range(len(ways)), key=times.__getitem__)]
        self._chosen[key] = best
        return best

    def _copies(self, weights: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        size = sum(one.numel() * one.itemsize for one in weights)
        wanted = min(MOST_COPIES, math.ceil(CACHES * self._runtime.machine.l2_bytes / size)) if size else 1
        room = self._runtime.free_bytes() // 2 // max(size, 1)
        return [weights, *(tuple(one.clone() for one in weights) for _ in range(min(wanted - 1, room)))]

    def _timed(self, way: C, run: Callable[[C, tuple[Tensor, ...]], None], copies: list[tuple[Tensor, ...]]) -> float:
        """Time of one call; infinite of a way that the device has not the registers or the memory for. [s]"""
        try:
            calls = [lambda copy=copy: run(way, copy) for copy in copies]
            return time_calls(self._runtime, calls, graph=True, span=SPAN).seconds
        except Exception as error:
            if not _too_large(error):
                raise
            return math.inf


def _too_large(error: Exception) -> bool:
    """Whether a kernel asks for more than the device has: Triton says so as it compiles, torch where memory is short."""
    return type(error).__name__ in {
        "OutOfResources",
        "OutOfMemoryError",
        "PTXASError",
        "CompilationError",
        "UnavailableError",
    }
