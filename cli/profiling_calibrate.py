"""`profile calibrate`: constants of this machine, fitted and written where every estimate finds them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import remarks
from roofcast.calculators.errors import UsageError
from roofcast.cli.profiling import bench, leave, left_line, seconds_of, watching, written
from roofcast.cli.session import Output, check_output

if TYPE_CHECKING:
    from roofcast.calculators.profile_rows import CalibrationRow
    from roofcast.hwdb.efficiency import Efficiency
    from roofcast.profiler.calibrate import Calibration

ENDINGS: Final = (".yaml", ".yml")
ELSEWHERE: Final = "--out FILE writes elsewhere"


def answer_calibrate(device: str | None, budget: str | None, format_name: str | None, out: str | None) -> None:
    """Measures, fits, writes the file and prints how well the constants do.

    Args:
        device: --device.
        budget: --budget.
        format_name: --format of what is printed.
        out: --out; None is the user's folder.
    """
    from roofcast.calculators.profile_making import machine_row
    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.profiler.calibrate import calibrate, need_scipy
    from roofcast.profiler.kernel_choice import choose_kernels
    from roofcast.reports.profile import profile_document

    target, seconds = written(format_name, None), seconds_of(budget)
    _check_file(out)
    opened = bench(device, seconds)
    need_scipy()
    with watching() as watch:
        found = calibrate(opened.runtime, choose_kernels(opened.runtime), opened.budget, watch)
    row, failed = _written(found, out)
    result = ProfileResult("calibrate", machine_row(found.machine), calibration=row, unfinished=list(found.unfinished))
    said = remarks(
        warnings=[left_line(found.unfinished, found.why), found.problem, *found.remarks],
        notes=[_how_to_use(row), _replaced(row)],
    )
    target.present(profile_document(result, {"device": device, "budget_seconds": seconds, "out": out}, said))
    if failed is not None:
        raise failed
    leave(found.why, nothing=None if row.file else f"no constants are written: {found.problem or found.why}")


def _check_file(out: str | None) -> None:
    """Refuses a file that cannot be written, or that no `--efficiency` would read, before any work is done.

    Raises:
        UsageError: naming the option, or the user's folder where none is given.
    """
    if out is None:
        from roofcast.hwdb.efficiency_files import user_folder

        _check_folder(user_folder())
        return
    if Path(out).suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {out}: constants are YAML; name it like my-gpu.roofcast.yaml")
    check_output(Output("text", out, strict=False))


def _check_folder(folder: Path) -> None:
    """Refuses a folder that is not there and cannot be made, or in which no file can be made; makes it.

    Raises:
        UsageError: naming it.
    """
    _make(folder)
    try:
        with TemporaryFile(dir=folder, prefix=".roofcast-"):
            pass
    except OSError as error:
        raise UsageError(f"{folder}: no file can be written there ({error.strerror or error}); {ELSEWHERE}") from error


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be made ({error.strerror or error}); {ELSEWHERE}") from error


def _written(found: Calibration, out: str | None) -> tuple[CalibrationRow, UsageError | None]:
    """Writes the file where there is one to write, and tells of it, and why it could not be written."""
    from roofcast.calculators.profile_rows import CalibrationRow, FittedRow

    fitted = [
        FittedRow(
            family=one.family,
            format=one.format,
            rows=len(one.rows),
            median_error=one.median_error,
            p90_error=one.p90_error,
            spread=one.spread,
            constants=dict(one.constants),
        )
        for one in found.fitted
    ]
    if found.efficiency is None:
        return CalibrationRow(None, replaced=False, fitted=fitted), None
    path = _place(found.efficiency, out)
    replaced = path.exists()
    try:
        _write(path, found.efficiency)
    except UsageError as error:
        return CalibrationRow(None, replaced=False, fitted=fitted), error
    return CalibrationRow(str(path), replaced=replaced, fitted=fitted), None


def _place(efficiency: Efficiency, out: str | None) -> Path:
    """The file that is asked, else the one of the user's folder that is taken without being asked."""
    from roofcast.hwdb.efficiency_files import user_folder

    return Path(out) if out is not None else user_folder() / f"{efficiency.accelerator}.{efficiency.engine}.yaml"


def _write(path: Path, efficiency: Efficiency) -> None:
    from roofcast.cli.writing import write_file
    from roofcast.hwdb.efficiency_text import efficiency_text

    _make(path.parent)
    write_file(path, efficiency_text(efficiency))


def _how_to_use(row: CalibrationRow) -> str | None:
    """What takes the constants now."""
    if row.file is None:
        return None
    from roofcast.hwdb.efficiency_files import user_folder

    path = Path(row.file)
    if path.parent == user_folder():
        return "estimate, validate and their kin take these constants for this device from now on"
    return f"--efficiency {row.file} takes these constants; in {user_folder()} they are taken without being asked"


def _replaced(row: CalibrationRow) -> str | None:
    return f"{row.file} was there before: it is replaced" if row.replaced else None
