"""Every output format, by name: a row here and a function to make one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.reports.data import render_csv, render_json
from roofcast.reports.markdown import render_markdown
from roofcast.reports.text import render_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.roofline_table import RooflineResult
    from roofcast.reports.document import Document

OUTPUTS: Final[dict[str, Callable[[Document], str]]] = {
    "text": render_text,
    "json": render_json,
    "csv": render_csv,
    "markdown": render_markdown,
}

# a file's ending -> the format written into it
ENDINGS: Final[dict[str, str]] = {
    ".txt": "text",
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".markdown": "markdown",
}

# a file's ending -> the format of the chart drawn into it
CHARTS: Final[dict[str, str]] = {".png": "png", ".svg": "svg"}


def render_chart(result: RooflineResult, ending: str) -> bytes:
    """The roofline as an image file with that ending, one of `CHARTS`; matplotlib loads here and no earlier.

    Raises:
        KeyError: another ending.
    """
    from roofcast.reports import plot  # noqa: PLC0415 - half a second that only charts take

    return plot.render_chart(result, CHARTS[ending])
