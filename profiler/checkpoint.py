"""Times a real checkpoint as a user waits for it: until the first token of a prompt, and from token to token after that."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import partial
from statistics import median, pstdev
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.profiled import Sample
from roofcast.calculators.profiled_checkpoint import CheckpointPoint
from roofcast.modelspec.step import DECODE, PREFILL
from roofcast.profiler.checkpoint_faults import wider_formats
from roofcast.profiler.checkpoint_load import import_transformers, silenced
from roofcast.profiler.errors import OutOfMemoryError, WrongOutputError
from roofcast.profiler.runtime import first_line
from roofcast.profiler.steps import label_of
from roofcast.profiler.sweep import Task, sweep
from roofcast.profiler.timing import FEW, LONG, TENTH, memory_guard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from roofcast.profiler.checkpoint_load import Loaded
    from roofcast.profiler.sweep import Swept, Watch
    from roofcast.profiler.timing import Budget

WARM: Final = 3  # prompts or steps that are not counted
MOST: Final = 20  # repeats of a prompt
SPAN: Final = 1.0  # seconds that they take together, where they are many


@dataclass(frozen=True, slots=True)
class Asked:
    """What is timed.

    Args:
        prompts: tokens of each, one sequence at once. [token]
        decode: batches, and tokens of each sequence as the first timed step is done. [token]
        steps: of decode at each of these.
    """

    prompts: tuple[int, ...]
    decode: tuple[tuple[int, int], ...]
    steps: int

    @property
    def points(self) -> tuple[tuple[str, int, int], ...]:
        """Phase, batch and context of each, prompts first."""
        return (*((PREFILL, 1, tokens) for tokens in self.prompts), *((DECODE, *point) for point in self.decode))

    @property
    def labels(self) -> tuple[str, ...]:
        """Each in words."""
        return tuple(label_of(*point) for point in self.points)

    @property
    def longest(self) -> int:
        """Tokens that a sequence has at most. [token]"""
        return max((*self.prompts, *(context + self.steps - 1 for _, context in self.decode)))


def profile_checkpoint(
    loaded: Loaded, asked: Asked, budget: Budget, watch: Watch | None = None
) -> Swept[CheckpointPoint]:
    """Times prompts, then steps of decode; what does not run is a row with its problem.

    Raises:
        WrongOutputError: logits are no numbers.
    """
    tasks = [
        Task(label, partial(_point, loaded, point, asked.steps))
        for label, point in zip(asked.labels, asked.points, strict=True)
    ]
    return sweep(tasks, budget, watch)


def _point(loaded: Loaded, point: tuple[str, int, int], steps: int) -> CheckpointPoint:
    runtime, (phase, batch, context) = loaded.runtime, point
    count = steps if phase == DECODE else 1
    problem = loaded.beyond(context + count - 1)
    if problem is not None:
        return CheckpointPoint(*point, steps=count, problem=problem)
    try:
        with silenced(import_transformers()), memory_guard(runtime), runtime.torch.inference_mode():
            if phase != DECODE:
                return CheckpointPoint(*point, sample=_prompted(loaded, context), steps=count)
            sample, again = _decoded(loaded, batch, context, steps)
            return CheckpointPoint(*point, sample=sample, again=again, steps=count)
    except OutOfMemoryError as error:
        problem = str(error)
    except WrongOutputError:
        raise
    except Exception as error:  # transformers raises what it likes, of one length or batch too  # noqa: BLE001
        problem = f"transformers could not run it ({first_line(error)})"
    finally:
        gc.collect()
        runtime.release()
    return CheckpointPoint(*point, steps=count, problem=problem)


def _prompted(loaded: Loaded, tokens: int) -> Sample:
    """From ids on the device until the host has the first token: a cache from nothing, logits of the last position."""
    ids = loaded.draw(1, tokens)
    _check_numbers(loaded, loaded.forward(ids, keep=1)[0], label_of(PREFILL, 1, tokens))

    def once() -> float:
        loaded.runtime.synchronize()
        start = perf_counter()
        loaded.forward(ids, keep=1)[0].argmax(-1).tolist()
        return perf_counter() - start

    first = once()
    for _ in range(WARM - 2 if first < LONG else 0):
        once()
    repeats = FEW if first >= LONG else max(FEW, min(MOST, round(SPAN / first)))
    return sample_of([once() for _ in range(repeats)])


def _decoded(loaded: Loaded, batch: int, context: int, steps: int) -> tuple[Sample, Sample | None]:
    """Steps one after the other, each timed until the host has its tokens: as many in the cache as the context begins with.

    Of the context's tokens all but the last few are a prompt of random ones; steps that warm up bring it to the context
    less one, so that the first timed step has the context with its own token. Then the cache is taken back and the steps
    run once more: what a library prepares for each new length is there by then.
    """
    warm = min(WARM, context - 1)
    ids, cache = loaded.draw(batch, context), None
    if context - 1 - warm:
        _, cache = loaded.forward(ids[:, : context - 1 - warm], keep=1)
    for place in range(context - 1 - warm, context - 1):
        logits, cache = loaded.forward(ids[:, place : place + 1], cache, keep=1)
        logits.argmax(-1).tolist()
    times, logits, cache = _stepped(loaded, ids[:, -1:], cache, steps)
    _check_numbers(loaded, logits, label_of(DECODE, batch, context))
    try:
        cache.crop(-steps)
        again, _, _ = _stepped(loaded, ids[:, -1:], cache, steps)
    except Exception:  # caches that cannot forget have no such method, or raise what they like  # noqa: BLE001
        return sample_of(times), None
    return sample_of(times), sample_of(again)


def _stepped(loaded: Loaded, new: Tensor, cache: object, steps: int) -> tuple[list[float], Tensor, Any]:
    """Steps, each fed what the one before chose: their times [s], the last logits, and the cache."""
    times: list[float] = []
    for _ in range(steps):
        loaded.runtime.synchronize()
        start = perf_counter()
        logits, cache = loaded.forward(new, cache, keep=1)
        new = logits.argmax(-1)
        new.tolist()
        times.append(perf_counter() - start)
    return times, logits, cache


def sample_of(times: Sequence[float]) -> Sample:
    """Median, 10th and 90th percentile and deviation of times. [s]

    >>> one = sample_of([3.0, 1.0, 2.0, 5.0, 4.0])
    >>> one.seconds, one.low, one.high, one.repeats
    (3.0, 1.0, 5.0, 5)
    """
    ordered = sorted(times)
    last = len(ordered) - 1
    tenth = round(TENTH * last)
    return Sample(median(ordered), ordered[tenth], ordered[last - tenth], pstdev(ordered), len(ordered))


def _check_numbers(loaded: Loaded, logits: Tensor, what: str) -> None:
    """Refuses logits that are no numbers.

    Raises:
        WrongOutputError: some are.
    """
    if bool(logits.isfinite().all()):
        return
    wider = wider_formats(loaded.facts)
    means = "its time means nothing"
    more = f"; {means} (--weights {wider} may help)" if wider else f", as its weights may be; {means}"
    raise WrongOutputError(f"{what}: some logits are no numbers{more}")
