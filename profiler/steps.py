"""Times whole steps of a decoder, and each of their terms alone; a point that does not fit is a row, where others do."""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.profiled import EAGER, GRAPH, Part, StepProfile
from roofcast.modelspec.step import DECODE
from roofcast.profiler.errors import AgreedMemoryError, LostRankError, OutOfMemoryError
from roofcast.profiler.sweep import Task, sweep
from roofcast.profiler.timing import BURST, REST, capture, check_written, glance, memory_guard, time_calls, time_work

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Swept, Watch
    from roofcast.profiler.timing import Budget

PART_SPAN: Final = 0.1  # seconds that the repeats of one term take together


class Stage(Protocol):
    """One kernel call of a step, or a few that belong together."""

    @property
    def name(self) -> str:
        """The term that it is a part of."""

    @property
    def family(self) -> str:
        """Of `modelspec.op`."""

    @property
    def run(self) -> Callable[[], None]:
        """Does it."""


class Step(Protocol):
    """A step with buffers of its own."""

    @property
    def stages(self) -> Sequence[Stage]:
        """In the order in which they run, those of all layers."""

    @property
    def logits(self) -> Tensor:
        """What it writes in the end, [B, vocab]."""

    def run(self) -> None:
        """Runs all stages."""

    def poison(self) -> None:
        """Fills with NaN what it must write before it reads it."""


class Stepping(Protocol):
    """What makes steps: `decoder.Decoder`."""

    def decode(self, batch: int, context: int) -> Step:
        """One new token a sequence; its cache holds context - 1 before it."""

    def prefill(self, batch: int, prompt: int) -> Step:
        """Prompts from nothing."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Steps to time.

    Args:
        phase: `prefill` or `decode`.
        points: batch and context of each; of prefill the context is its prompt. [token]
        routing: of experts, `drawn` or `balanced`; empty of a model without.
    """

    phase: str
    points: tuple[tuple[int, int], ...]
    routing: str = ""


def profile_steps(
    runtime: Runtime, decoder: Stepping, asked: Asked, budget: Budget, watch: Watch | None = None
) -> Swept[StepProfile]:
    """Times every step that is asked: the whole, in a graph where there is one, and each of its terms alone.

    Raises:
        WrongOutputError: logits were not written, or are no numbers.
    """
    tasks = [
        Task(label_of(asked.phase, *point), partial(_point, runtime, (decoder, budget), asked, point))
        for point in asked.points
    ]
    return sweep(tasks, budget, watch)


def label_of(phase: str, batch: int, context: int) -> str:
    """A step in words.

    >>> label_of("decode", 16, 1024)
    'decode of 16 at 1,024'
    """
    return f"{phase} of {batch:,} at {context:,}"


def _point(runtime: Runtime, made: tuple[Stepping, Budget], asked: Asked, point: tuple[int, int]) -> StepProfile:
    try:
        with memory_guard(runtime):
            return _timed(runtime, made, asked, point)
    except AgreedMemoryError as error:
        problem = str(error)
    except OutOfMemoryError as error:
        if runtime.ranks is not None:  # the others are at an exchange that this one never comes to
            raise LostRankError(f"rank {runtime.ranks.rank}: {error}") from error
        problem = str(error)
    finally:
        gc.collect()  # stages point to the step that has them
        runtime.release()
    return StepProfile(asked.phase, *point, sample=None, routing=asked.routing, problem=problem)


def _timed(runtime: Runtime, made: tuple[Stepping, Budget], asked: Asked, point: tuple[int, int]) -> StepProfile:
    """One point; a budget that ends meanwhile leaves out terms, not the step."""
    decoder, budget = made
    graph, rest = runtime.graphs, 0.0 if asked.phase == DECODE else REST
    with runtime.torch.inference_mode():
        step = decoder.decode(*point) if asked.phase == DECODE else decoder.prefill(*point)
        step.run()  # kernels are compiled and chosen now
        replay = capture(runtime, step.run) if graph else step.run
        step.poison()
        check_written(runtime, step.logits, replay, label_of(asked.phase, *point))
        sample = time_work(runtime, replay, rest=rest)
        names = dict.fromkeys(stage.name for stage in step.stages)
        parts = tuple(_part(runtime, step, name, rest) for name in names if not budget.spent)
    return StepProfile(
        asked.phase, *point, sample=sample, parts=parts, launched=GRAPH if graph else EAGER, routing=asked.routing
    )


def _part(runtime: Runtime, step: Step, name: str, rest: float) -> Part:
    """All stages of one name, one after the other, on what a whole step has left in the buffers."""
    stages = [stage for stage in step.stages if stage.name == name]
    step.run()

    def work() -> None:
        for stage in stages:
            stage.run()

    # after a rest a burst of them, since clocks come up in a while; as few repeats as tell the spread
    times = math.ceil(BURST / glance(runtime, work)) if rest and runtime.on_cuda else 1
    sample = time_calls(runtime, [work] * times, graph=True, span=0.0 if rest else PART_SPAN, rest=rest)
    return Part(name, stages[0].family, len(stages), sample)
