"""Measured steps beside what they could be; `profile compare --from`: a saved profile in place of measuring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli.profiling import written
from roofcast.cli.session import load
from roofcast.modelspec.errors import ModelError
from roofcast.modelspec.strictjson import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

    from roofcast.calculators.profile_rows import MachineRow, PointRow, ProfileResult
    from roofcast.calculators.profile_rows_ranks import RanksRow
    from roofcast.calculators.profile_work import Against
    from roofcast.calculators.profiled import DeviceProfile, StepProfile
    from roofcast.cli.deploy import Efficiencies
    from roofcast.cli.profiling_steps import Model
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.model import Model as Loaded

MEASURING = frozenset(
    ("batch", "context", "prompt", "routing", "device", "budget", "seed", "tp", "backend", "wait")
)  # no part in a saved profile
ABOVE = 1.3  # times a measured roof, above which it is said


@dataclass(frozen=True, slots=True)
class Profile:
    """What was measured, now or earlier.

    Args:
        machine: on which.
        device: its roofs; None where they were not measured.
        steps: of a model.
        weights: their format.
        left: labels of what was asked and not measured.
        tp: devices that share every layer.
        ranks: that measured; None of one.
    """

    machine: MachineRow
    device: DeviceProfile | None
    steps: tuple[StepProfile, ...]
    weights: str
    left: tuple[str, ...] = ()
    tp: int = 1
    ranks: RanksRow | None = None


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
    from roofcast.calculators.profile_work import activations_of, compared, constants_note, counted

    accelerator = _accelerator(profile.machine.accelerator)
    work = counted(loaded.spec, profile.weights, profile.tp)
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
            profile.steps, profile.machine, named, (profile.weights, activations_of(profile.weights)), profile.tp
        ),
        tp=profile.tp,
        ranks=profile.ranks,
        unfinished=list(profile.left),
    )
    said = remarks(warnings=[above_roofs(rows)], notes=[constants_note([against])])
    return result, _links_remarks(profile, against) + said


def _links_remarks(profile: Profile, against: Against) -> Remarks:
    """What is assumed of the links that ranks exchange over, or why steps are held against none."""
    from roofcast.calculators.profile_exchanges import DIRECT

    ranks, name = profile.ranks, profile.machine.accelerator
    if ranks is None:
        return Remarks()
    if name is None:
        said = "shares of the measured roofs leave exchanges between ranks out: the device is not in the database, which has links"
        return remarks([said])
    if against.fabric is not None:
        return remarks([f"{name}: {line}" for line in against.fabric.assumptions])
    why = (
        f"{ranks.backend} takes them through the hosts"
        if ranks.backend != DIRECT
        else f"the data sheet of {name} tells of no link between the ranks"
    )
    without = "bounds and shares of roofs of a step are without them, and it has no expected time"
    return remarks([f"exchanges between ranks have no least time, since {why}: {without}"])


def above_roofs(rows: Sequence[PointRow]) -> str | None:
    """What to say where families are far above the measured roofs."""
    shares = [one.of_measured for row in rows for one in row.families if one.of_measured is not None]
    above = [share for share in shares if share > ABOVE]
    if not above:
        return None
    return (
        f"{len(above):,} of {len(shares):,} families reach up to {max(above):.0%} of the measured roof: their weights or caches "
        "stay in the last cache, or something else used the machine as its roofs were measured"
    )


def refuse_measuring(asking: typer.Context) -> None:
    """Refuses options of a measurement beside a saved one.

    Raises:
        UsageError: naming the first.
    """
    for parameter in asking.command.params:
        source = asking.get_parameter_source(parameter.name or "")
        if parameter.name in MEASURING and source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"--from is measured already: {parameter.opts[0]} says what to measure; leave one of them out"
            )


def _accelerator(identity: str | None) -> Accelerator | None:
    if identity is None:
        return None
    from roofcast.hwdb.lookup import find_accelerator

    return find_accelerator(identity).accelerator


def _against(profile: Profile, loaded: Loaded, accelerator: Accelerator | None, constants: Efficiencies) -> Against:
    from roofcast.calculators.profile_work import Against, against_datasheet
    from roofcast.calculators.profiled_ranks import RankGroup

    if accelerator is None:
        return Against(device=profile.device)
    ranks = profile.ranks
    group = None if ranks is None else RankGroup(ranks.size, ranks.backend, ranks.hosts)
    sides = against_datasheet(accelerator, loaded, profile.weights, constants.file, group)
    return replace(sides, device=profile.device, expectation=sides.expectation if constants.wanted else None)


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
        ProfileFileError: it cannot be read, holds no step, or is of another model.
    """
    from roofcast.calculators.profile_making import device_of, machine_of, step_of
    from roofcast.cli.deploy import efficiency_of
    from roofcast.cli.profiling_saved import ProfileFileError, read_saved
    from roofcast.reports.profile import profile_document

    read = [saved, efficiency]
    target = written(output[0], output[1], strict=output[2], charts=True, read=read)
    constants = efficiency_of(efficiency)
    found = read_saved(saved)
    steps = tuple(step_of(row) for row in found.points if row.phase in phases)
    if not steps:
        raise ProfileFileError(
            f"--from {saved}: it holds no step of {' or '.join(phases)}; `profile decode` and its kin measure them"
        )
    if found.weights is None:
        raise ProfileFileError(f"--from {saved}: result.weights is null; it must be the format of the model's weights")
    loaded, named = _loaded(saved, found, model)
    _refuse_uneven(saved, found, loaded)
    device = None if found.device is None else device_of(found.device, machine_of(found.machine))
    profile = Profile(found.machine, device, steps, found.weights, tuple(found.unfinished), found.tp, found.ranks)
    result, said = told("compare", profile, loaded, named, constants)
    inputs = {"model": named[0], "from": saved, "phases": list(phases), "efficiency": efficiency}
    target.present(profile_document(result, inputs, said + remarks(warnings=found.machine.remarks), terms=True))


def _loaded(saved: str, found: ProfileResult, model: Model) -> tuple[Loaded, tuple[str, str | None]]:
    """The model whose steps a saved profile has, and how it is named: as asked, else as the file does.

    Raises:
        ProfileFileError: the profile is of another model, or of weights in another format.
        ModelError: it cannot be read.
    """
    from roofcast.cli.profiling_saved import ProfileFileError

    first = next(iter(found.measurements), None)
    own, revision = (first.model, first.revision) if first is not None else (found.model or "", None)
    if model.weights not in {None, found.weights}:
        raise ProfileFileError(f"--from {saved}: its weights are in {found.weights}, not in {model.weights}")
    if not (model.name or own):
        raise ProfileFileError(f"--from {saved}: it names no model; give MODEL")
    if model.name is None:
        named = own, model.revision or revision
        return load(own, replace(model.lookup, revision=named[1])), named
    loaded = load(model.name, model.lookup)
    if loaded.name not in {own, found.model} and not _alike(loaded, own, found.weights or "", model):
        other = quoted(found.model or own)
        raise ProfileFileError(f"--from {saved}: it is a profile of {other}, not of {model.name}; leave MODEL out")
    return loaded, (model.name, model.revision)


def _refuse_uneven(saved: str, found: ProfileResult, loaded: Loaded) -> None:
    """Refuses a number of devices that cannot share the model.

    Raises:
        ProfileFileError: naming the file.
    """
    from roofcast.calculators.deployment import check_shards
    from roofcast.cli.profiling_saved import ProfileFileError
    from roofcast.modelspec.sharding import Shards

    try:
        check_shards(loaded.spec, Shards(found.tp))
    except UsageError as error:
        said = str(error).replace("--tp must", "it must")  # no option of this command
        raise ProfileFileError(f"--from {saved}: result.tp is {found.tp:,}: {said}") from error


def _alike(loaded: Loaded, own: str, weights: str, model: Model) -> bool:
    """Whether the model that a file names does the same work; one that cannot be read is another."""
    from roofcast.calculators.profile_work import counted

    try:
        other = load(own, replace(model.lookup, revision=None))
    except ModelError:
        return False
    return counted(loaded.spec, weights).program == counted(other.spec, weights).program
