"""Measured steps beside what they could be; `profile compare --from`: a saved profile in place of measuring."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli.profiling import written
from roofcast.cli.session import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.profile_rows import MachineRow, ProfileResult
    from roofcast.calculators.profile_work import Against
    from roofcast.calculators.profiled import DeviceProfile, StepProfile
    from roofcast.cli.deploy import Efficiencies
    from roofcast.cli.profiling_steps import Model
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.model import Model as Loaded

SCHEMA: Final = "roofcast.profile/1"
LARGEST: Final = 64 * 2**20  # [B] of a saved profile


class ProfileFileError(ValueError):
    """A saved profile that cannot be read; the message names the file."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured, now or earlier.

    Args:
        machine: on which.
        device: its roofs; None where they were not measured.
        steps: of a model.
        weights: their format.
        left: labels of what was asked and not measured.
    """

    machine: MachineRow
    device: DeviceProfile | None
    steps: tuple[StepProfile, ...]
    weights: str
    left: tuple[str, ...] = ()


def told(
    what: str, profile: Profile, loaded: Loaded, named: tuple[str, str | None], constants: Efficiencies
) -> tuple[ProfileResult, Remarks]:
    """The answer, each step beside its bound and its expected time where the device is in the database.

    Args:
        what: the command.
        profile: as measured.
        loaded: the model whose steps they are.
        named: model and revision, as asked for.
        constants: of expected times.
    """
    from roofcast.calculators.profile_making import measured_rows, point_row, roofs_row
    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.profile_work import activations_of, compared, counted

    accelerator = _accelerator(profile.machine.accelerator)
    work = counted(loaded.spec, profile.weights)
    against = _against(profile, loaded, accelerator, constants)
    rows = [point_row(compared(step, work, against)) for step in profile.steps]
    result = ProfileResult(
        what=what,
        machine=profile.machine,
        model=loaded.name,
        weights=profile.weights,
        device=None if profile.device is None else roofs_row(profile.device, accelerator),
        points=rows,
        measurements=measured_rows(
            profile.steps, profile.machine, named, (profile.weights, activations_of(profile.weights))
        ),
        unfinished=list(profile.left),
    )
    return result, _constants_remarks(against)


def _accelerator(identity: str | None) -> Accelerator | None:
    if identity is None:
        return None
    from roofcast.hwdb.lookup import find_accelerator

    return find_accelerator(identity).accelerator


def _against(profile: Profile, loaded: Loaded, accelerator: Accelerator | None, constants: Efficiencies) -> Against:
    from roofcast.calculators.profile_work import Against, against_datasheet

    if accelerator is None:
        return Against(device=profile.device)
    sides = against_datasheet(accelerator, loaded, profile.weights, constants.file)
    return replace(sides, device=profile.device, expectation=sides.expectation if constants.wanted else None)


def _constants_remarks(against: Against) -> Remarks:
    """Whose constants expected times are of."""
    if against.expectation is None:
        return Remarks()
    files: dict[str, list[str]] = {}
    for one in against.expectation.used:
        files.setdefault(one.file, []).append(one.family)
    said = "; ".join(f"{', '.join(dict.fromkeys(families))} from {name}" for name, families in files.items())
    return remarks(notes=[f"expect: by constants of {said}" if said else None])


def answer_saved(
    saved: str, model: Model, phases: Sequence[str], efficiency: str, output: tuple[str | None, str | None, bool]
) -> None:
    """Holds a saved profile against bounds and expected times; needs no torch and no device.

    Args:
        saved: file of `--format json`.
        model: as asked; without a name the one of the file.
        phases: that are shown.
        efficiency: constants of expected times.
        output: --format, --out and --strict.

    Raises:
        ProfileFileError: it cannot be read, or holds no step.
    """
    from roofcast.calculators.profile_making import device_of, machine_of, step_of
    from roofcast.cli.deploy import efficiency_of
    from roofcast.reports.profile import profile_document

    target, constants = written(output[0], output[1], strict=output[2], charts=True), efficiency_of(efficiency)
    found = read_saved(saved)
    steps = tuple(step_of(row) for row in found.points if row.phase in phases)
    if not steps or found.weights is None:
        raise ProfileFileError(
            f"{saved}: it holds no step of {' or '.join(phases)}; `profile decode` and its kin measure them"
        )
    name = model.name or next((row.model for row in found.measurements), found.model or "")
    loaded = load(name, model.lookup)
    device = None if found.device is None else device_of(found.device, machine_of(found.machine))
    profile = Profile(found.machine, device, steps, found.weights, tuple(found.unfinished))
    result, said = told("compare", profile, loaded, (name, model.revision), constants)
    inputs = {"model": name, "from": saved, "phases": list(phases), "efficiency": efficiency}
    target.present(profile_document(result, inputs, said + remarks(warnings=found.machine.remarks), terms=True))


def read_saved(name: str) -> ProfileResult:
    """A profile as `--format json` wrote it.

    Raises:
        ProfileFileError: it is none.
    """
    from pydantic import TypeAdapter, ValidationError

    from roofcast.calculators.profile_rows import ProfileResult

    found = _json(name)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        said = found.get("schema") if isinstance(found, dict) else None
        raise ProfileFileError(
            f"--from {name}: schema is {said!r}; it must be {SCHEMA!r}, of a profile with --format json"
        )
    try:
        made: ProfileResult = TypeAdapter(ProfileResult).validate_python(found.get("result"))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ProfileFileError(
            f"--from {name}: result.{place}: {first['msg']} ({error.error_count()} problems)"
        ) from error
    return made


def _json(name: str) -> Any:  # noqa: ANN401 - whatever the file holds
    path = Path(name)
    try:
        if path.stat().st_size > LARGEST:
            raise ProfileFileError(f"--from {name}: {path.stat().st_size:,} bytes are more than a profile has")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--from {name}: it cannot be read ({error.strerror or error})") from error
    except ValueError as error:
        if isinstance(error, ProfileFileError):
            raise
        raise ProfileFileError(f"--from {name}: it is no JSON ({error})") from error
