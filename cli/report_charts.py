"""Charts of `report` as files in a folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roofcast.calculators.errors import UsageError
from roofcast.cli.session import refuse_assumed
from roofcast.cli.writing import check_target, under, write_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.cli.session import Output
    from roofcast.reports.charts import Chart
    from roofcast.reports.document import Document


def check_folder(folder: str, out: str | None, read: Sequence[str]) -> Path:
    """The folder of charts, before any work is done.

    Args:
        folder: as asked for.
        out: file of the report itself; None for none.
        read: files and folders that are read, which must stay as they are.

    Raises:
        UsageError: it is none and cannot become one, or a chart cannot be written there.
    """
    from roofcast.reports.charts import CHARTS, KINDS

    try:
        place = Path(folder).resolve()
        usable = bool(folder.strip()) and (place.is_dir() or (place.parent.is_dir() and not place.exists()))
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageError(f"--charts {folder}: {getattr(error, 'strerror', None) or error}") from error
    if not usable or (Path(folder).is_symlink() and not place.exists()):
        raise UsageError(f"--charts {folder!r}: it must name a folder, or one to make in a folder that exists")
    for target in (place / f"{kind}{ending}" for kind in KINDS for ending in CHARTS):
        if target.is_symlink():
            raise UsageError(f"--charts {folder}: {target.name} there is a link; remove it, or name another folder")
        if out is not None and Path(out).resolve() == target:
            raise UsageError(f"--out {out}: a chart of --charts {folder} has that name; name another file")
        if target.exists():
            under("--charts", lambda target=target: check_target(target, str(target), read))  # type: ignore[misc]
    return place


def write_charts(document: Document, place: Path, output: Output) -> Document:
    """Draws every chart of a report, as PNG and SVG; gives the document with their places, relative to its own.

    Raises:
        StrictError: something was assumed.
        UsageError: the folder cannot be made or written.
    """
    from roofcast.reports.charts import CHARTS, chart_file

    refuse_assumed(document, output)
    charts = [chart for section in document.sections for chart in section.document.charts]
    drawn = {f"{chart.kind}{ending}": chart_file(chart, ending) for chart in charts for ending in CHARTS}
    try:
        place.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"--charts {place}: it cannot be made ({error.strerror})") from error
    for name, content in drawn.items():
        under("--charts", lambda name=name, content=content: write_file(place / name, content))  # type: ignore[misc]
    beside = Path(output.out).resolve().parent if output.out else Path.cwd()
    return _linked(document, Path(os.path.relpath(place, beside)).as_posix())


def _linked(document: Document, folder: str) -> Document:
    """The document whose charts say where they were drawn."""

    def placed(chart: Chart) -> Chart:
        return replace(chart, file=f"{folder}/{chart.kind}.png")

    return replace(
        document,
        sections=tuple(
            replace(one, document=replace(one.document, charts=tuple(map(placed, one.document.charts))))
            for one in document.sections
        ),
    )
