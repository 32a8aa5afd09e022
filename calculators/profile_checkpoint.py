"""From a real checkpoint's times to rows: beside its work, its bound and what is expected of transformers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.expected.expectation import expectation_of, families_by_file, kernels_of, unlike_kinds
from roofcast.calculators.profile_compare import compare_step, measured_ops
from roofcast.calculators.profile_making import measured_rows, share, time_row
from roofcast.calculators.profile_rows_checkpoint import CheckpointPointRow, CheckpointRow
from roofcast.calculators.profile_work import Against, Counted, constants_note, counted
from roofcast.calculators.profiled import StepProfile
from roofcast.calculators.roofline import roofs_of
from roofcast.calculators.weighing import storage_of
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.ops import Formats
from roofcast.modelspec.program import build_program
from roofcast.modelspec.sharding import Shards

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.profile_compared import Compared
    from roofcast.calculators.profile_rows import MachineRow, MeasuredRow
    from roofcast.calculators.profiled_checkpoint import CheckpointFacts, CheckpointPoint
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.model import Model

ENGINE: Final = "transformers"


def work_of(model: Model, facts: CheckpointFacts) -> Counted:
    """The work of a checkpoint as it is loaded: all weights in one format, or as they are stored where they are quantised.

    Raises:
        UndeterminedModelError, UnansweredError: it cannot be told from its config and files.
    """
    if not facts.stored_so:
        return counted(model.spec, facts.dtype)
    program = build_program(model.spec, storage_of(model, None), Shards())
    return Counted(program, Formats(FORMATS[facts.dtype], facts.dtype))


def against_transformers(
    accelerator: Accelerator | None, model: Model, work: Counted, facts: CheckpointFacts
) -> Against:
    """Roofs of the data sheet, and the constants that count for transformers there; nothing of a device that is not known.

    Raises:
        AcceleratorFileError: a file of constants that cannot be read.
    """
    if accelerator is None:
        return Against()
    roofs = roofs_of(accelerator, ENGINE)
    asked = None if facts.stored_so else FORMATS[facts.dtype]
    found = expectation_of(accelerator, ENGINE, roofs)
    return Against(roofs, replace(found, kernels=kernels_of(model, asked), unlike=unlike_kinds(work.program)))


def point_row(point: CheckpointPoint, work: Counted | None, against: Against) -> CheckpointPointRow:
    """A time beside its work and its estimates; bytes and estimates are null where the work is not known."""
    whole = None if work is None else _whole(point, work, against)
    seconds = None if point.sample is None else point.sample.seconds
    rate = whole.bytes / seconds if whole is not None and seconds is not None else None
    bandwidth = None if against.roofs is None else against.roofs.bandwidth
    return CheckpointPointRow(
        phase=point.phase,
        batch=point.batch,
        context=point.context,
        steps=point.steps,
        time=None if point.sample is None else time_row(point.sample),
        again=None if point.again is None else time_row(point.again),
        tokens_per_second=None if seconds is None else point.tokens / seconds,
        flops=None if whole is None else whole.flops,
        bytes=None if whole is None else whole.bytes,
        bytes_per_second=rate,
        of_datasheet=share(rate, bandwidth),
        bound_seconds=None if whole is None else whole.bound,
        expected_seconds=None if whole is None else whole.expected,
        problem=point.problem,
    )


def _step(point: CheckpointPoint) -> StepProfile:
    """A point as a step of the model, of decode the middle one."""
    return StepProfile(point.phase, point.batch, point.middle, point.sample)


def _whole(point: CheckpointPoint, work: Counted, against: Against) -> Compared:
    """The step that the point's time is held against: of decode the middle one."""
    step = _step(point)
    return compare_step(step, measured_ops(work.program, work.formats, step), against.roofs, against.expectation).whole


def constants_remarks(against: Against) -> Remarks:
    """Whose constants expected times are of, and what is assumed where they are of another device or engine."""
    one = against.expectation
    if one is None:
        return Remarks()
    others = families_by_file(choice for choice in one.used if choice.ways)
    return remarks(
        [
            f"{families} of {one.accelerator.id} under {ENGINE} not measured: constants of {name}"
            for name, families in others.items()
        ],
        notes=[constants_note([against])],
    )


def checkpoint_row(
    facts: CheckpointFacts, points: Iterable[CheckpointPoint], work: Counted | None, against: Against
) -> CheckpointRow:
    """A checkpoint and its times, as JSON has them."""
    return CheckpointRow(
        path=facts.path,
        transformers=facts.transformers,
        attention=facts.attention,
        dtype=facts.dtype,
        parameters=facts.parameters,
        weight_bytes=facts.weight_bytes,
        points=[point_row(one, work, against) for one in points],
    )


def checkpoint_measurements(
    facts: CheckpointFacts, points: Iterable[CheckpointPoint], machine: MachineRow
) -> list[MeasuredRow]:
    """The points that ran, as `validate` reads them; none of quantised weights, whose format it has no name for.

    Args:
        facts: what was loaded.
        points: its times.
        machine: that they ran on.
    """
    steps = [] if facts.stored_so else [_step(one) for one in points]
    rows = measured_rows(steps, machine, (facts.path, None), (facts.dtype, facts.dtype))
    return [replace(row, engine=ENGINE, engine_version=facts.transformers) for row in rows]
