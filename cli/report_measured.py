"""What `report` says of measurements: points of files, or published ones of the accelerator, held against predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks
from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from roofcast.calculators.check_quantities import Case
    from roofcast.cli.report_asked import AskedReport
    from roofcast.cli.reporting import Setting
    from roofcast.cli.validating import Gathered
    from roofcast.reports.document import Document

GROUPS: Final = ("quantity", "engine")  # of measured points
WORST: Final = 5  # misses that are listed


def gathered_for(asked: AskedReport, case: Case) -> Gathered:
    """Measured points: of the files given, with what they do not state as the deployment has it, else published ones.

    Raises:
        typer.Exit: a file that cannot be read, which is complained of.
    """
    import typer

    from roofcast.cli.validating import Gathered, Unstated, gathered

    files = asked.beside.measured
    if not files:
        try:
            return gathered((), {"gpu": case.gpu})
        except UsageError:  # no published figure is of that accelerator
            return Gathered((), Remarks(), 0)
    shards = asked.deployed.machine.shards()
    shared = {"gpus": shards.devices, "tp": shards.tp, "pp": shards.pp, "ep": shards.ep, "dp": shards.dp}
    engine = case.engine if case.engine != "none" else None
    own = {"model": asked.deployed.model, "gpu": case.gpu, "engine": engine, "weights": case.weights, "kv": case.kv}
    found = gathered(files, {}, Unstated(own, shared))
    if found.code:
        raise typer.Exit(found.code)
    return found


def measured_part(setting: Setting) -> Document | None:
    """As `validate`, of the measured points; None where there is none."""
    from roofcast.calculators.validate import validate_result
    from roofcast.cli.validating import Setups
    from roofcast.reports.validate import validate_document

    asked, found = setting.asked, setting.measured
    if not found.points:
        return None
    efficiencies = setting.setups.efficiencies
    setups = Setups(efficiencies, asked.deployed.lookup.offline)
    result = validate_result(found.points, setups.ready, GROUPS, expected=efficiencies.wanted)
    said = found.remarks + setups.said if asked.beside.measured else Remarks()
    return validate_document(result, setting.inputs, said, WORST)
