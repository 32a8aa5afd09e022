"""`profile checkpoint`: a real local checkpoint through transformers, timed as a user waits for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli.profiling import (
    bench,
    leave,
    left_line,
    machine_remarks,
    nothing_line,
    seconds_of,
    unsteady_line,
    watching,
    written,
)
from roofcast.cli.profiling_asked import Steps
from roofcast.cli.session import Lookup, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.profile_work import Against, Counted
    from roofcast.calculators.profiled_checkpoint import CheckpointFacts, CheckpointPoint
    from roofcast.cli.profiling import Bench
    from roofcast.modelspec.model import Model
    from roofcast.profiler.checkpoint import Asked as Points

MOST_STEPS: Final = 10_000
PREPARED: Final = 0.7  # share of a step's time below which its length makes the difference


@dataclass(frozen=True, slots=True)
class Asked:
    """What options ask, as they were written.

    Args:
        path: folder of the checkpoint.
        prompt: --prompt.
        batch: --batch.
        context: --context.
        steps: --steps.
        weights: --weights; None is the checkpoint's own.
    """

    path: str
    prompt: str
    batch: str
    context: str
    steps: int
    weights: str | None

    def points(self) -> Points:
        """Prompts and steps, checked before torch is loaded.

        Raises:
            UnitError, UsageError: naming the option.
        """
        from roofcast.calculators.profiled_checkpoint import LOADED
        from roofcast.cli.deploy import one
        from roofcast.profiler.checkpoint import Asked as Points

        if self.weights is not None and self.weights not in LOADED:
            raise UsageError(
                f"--weights {self.weights}: a checkpoint is loaded in {', '.join(LOADED)}, or as it is stored"
            )
        if not 1 <= self.steps <= MOST_STEPS:
            raise UsageError(f"--steps {self.steps:,}: it must be 1 to {MOST_STEPS:,}")
        one(self.context, "--context", 1024)
        both = Steps(("1", self.prompt), (self.batch, self.context))
        return Points(tuple(tokens for _, tokens in both.points("prefill")), both.points("decode"), self.steps)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured: what was loaded, its times, what is left and why."""

    facts: CheckpointFacts | None
    points: tuple[CheckpointPoint, ...]
    left: tuple[str, ...]
    why: str
    longest: int | None = None
    """Tokens that the checkpoint's config allows; None where it tells none."""


@dataclass(frozen=True, slots=True)
class Counting:
    """A checkpoint's work and what it is held against; work is None where it cannot be told, and `problem` says why."""

    work: Counted | None
    against: Against
    problem: str | None = None


def answer_checkpoint(
    asked: Asked, where: tuple[str | None, str | None], output: tuple[str | None, str | None]
) -> None:
    """Measures a checkpoint, and prints its times.

    Args:
        asked: what is measured.
        where: --device and --budget.
        output: --format and --out.
    """
    from roofcast.profiler.checkpoint_files import check_folder
    from roofcast.profiler.checkpoint_load import import_transformers
    from roofcast.reports.profile import profile_document

    target = written(*output, read=[asked.path])
    points, seconds = asked.points(), seconds_of(where[1])
    folder = check_folder(asked.path)
    model, problem = _model(asked.path)
    opened = bench(where[0], seconds)
    import_transformers()
    measured = measure(folder, asked, points, opened)
    leave(measured.why if measured.facts is None else "", nothing=None if measured.facts else "nothing was measured")
    result, said = told(asked, measured, (model, problem), opened)
    inputs = {
        "path": asked.path,
        "prompt": list(points.prompts),
        "batch": list(dict.fromkeys(batch for batch, _ in points.decode)),
        "context": list(dict.fromkeys(context for _, context in points.decode)),
        "steps": points.steps,
        "weights": asked.weights,
        "device": where[0],
        "budget_seconds": seconds,
    }
    target.present(profile_document(result, inputs, _remarks(measured, points) + said + machine_remarks(opened)))
    leave(measured.why, nothing=_nothing(measured))


def _model(path: str) -> tuple[Model | None, str | None]:
    """The checkpoint as roofcast counts it, offline; None where it cannot, and why.

    Raises:
        MalformedModelError: its config or a weight file is broken.
    """
    from roofcast.modelspec.errors import MalformedModelError, ModelError

    try:
        found = load(path, Lookup(None, offline=True))
    except MalformedModelError:
        raise
    except ModelError as error:
        return None, str(error)
    return found, None


def measure(folder: Path, asked: Asked, points: Points, opened: Bench) -> Measured:
    """Loads the checkpoint, then times it.

    Raises:
        UnavailableError, ProfileUsageError, WrongOutputError: what keeps it from being measured.
    """
    from roofcast.profiler.checkpoint import profile_checkpoint
    from roofcast.profiler.checkpoint_load import load_checkpoint
    from roofcast.profiler.sweep import INTERRUPTED

    with watching() as watch:
        if watch is not None:
            watch(f"weights of {folder.name}", 0, 1)
        try:
            loaded = load_checkpoint(opened.runtime, folder, asked.weights)
        except KeyboardInterrupt:
            return Measured(None, (), points.labels, INTERRUPTED)
        swept = profile_checkpoint(loaded, points, opened.budget, watch)
    return Measured(replace(loaded.facts, path=asked.path), swept.done, swept.left, swept.why, loaded.longest)


def counting(model: Model | None, problem: str | None, facts: CheckpointFacts, opened: Bench) -> Counting:
    """The checkpoint's work, and roofs and constants of the device where it is in the database."""
    from roofcast.calculators.errors import UnansweredError
    from roofcast.calculators.profile_checkpoint import against_transformers, work_of
    from roofcast.calculators.profile_work import Against
    from roofcast.modelspec.errors import ModelError

    if model is None:
        return Counting(None, Against(), problem)
    try:
        work = work_of(model, facts)
    except (ModelError, UnansweredError) as error:
        return Counting(None, Against(), str(error))
    return Counting(work, against_transformers(opened.accelerator, model, work, facts))


def told(
    asked: Asked, measured: Measured, model: tuple[Model | None, str | None], opened: Bench
) -> tuple[ProfileResult, Remarks]:
    """The answer, times beside bytes, bound and expected time where these are known."""
    from roofcast.calculators.profile_checkpoint import checkpoint_measurements, checkpoint_row, constants_remarks
    from roofcast.calculators.profile_making import machine_row
    from roofcast.calculators.profile_rows import ProfileResult

    facts = measured.facts
    assert facts is not None  # noqa: S101 - a caller of ours has seen to it
    found = counting(*model, facts, opened)
    machine = machine_row(replace(opened.runtime.machine, kernels="torch"))
    result = ProfileResult(
        what="checkpoint",
        machine=machine,
        model=asked.path,
        weights=facts.dtype,
        checkpoint=checkpoint_row(facts, measured.points, found.work, found.against),
        measurements=checkpoint_measurements(facts, measured.points, machine),
        unfinished=list(measured.left),
    )
    uncounted = None if found.problem is None else f"bytes of a step are not known: {found.problem}"
    assumed = () if model[0] is None else model[0].spec.assumptions
    return result, remarks([f"{asked.path}: {line}" for line in assumed], [uncounted]) + constants_remarks(
        found.against
    )


def _remarks(measured: Measured, points: Points) -> Remarks:
    """What is left, what is to be said of loading it, what did not run, and whether times differ."""
    from roofcast.profiler.steps import label_of

    most = measured.longest
    beyond = most is not None and points.longest > most
    return remarks(
        warnings=[
            left_line(measured.left, measured.why),
            *(f"{facts.path}: {note}" for facts in [measured.facts] if facts is not None for note in facts.notes),
            *(
                f"{label_of(one.phase, one.batch, one.context)} did not run: {one.problem}"
                for one in measured.points
                if one.problem
            ),
            f"{points.longest:,} tokens are beyond the {most:,} that its config allows" if beyond else None,
            unsteady_line(one.sample for one in measured.points if one.sample is not None),
            _prepared(measured.points),
        ]
    )


def _prepared(points: Sequence[CheckpointPoint]) -> str | None:
    """What to say where steps over lengths that were seen are far quicker."""
    found = [
        one.again.seconds / one.sample.seconds for one in points if one.sample is not None and one.again is not None
    ]
    quick = [share for share in found if share < PREPARED]
    if not quick:
        return None
    return (
        f"{len(quick):,} of {len(found):,} decode steps take {min(quick):.0%} of their time where their length was seen before: "
        "the rest is made ready anew for every length, as cuDNN's attention does its plans; a program that calls "
        "torch.backends.cuda.enable_cudnn_sdp(False) does without"
    )


def _nothing(measured: Measured) -> str | None:
    """What to say where nothing ran; None where something did."""
    every = measured.points
    return nothing_line("nothing", (one.sample for one in every), (one.problem for one in every), measured.why)
