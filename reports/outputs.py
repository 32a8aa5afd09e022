"""Every output format, by name: a row here and a function to make one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.reports.data import render_csv, render_json
from roofcast.reports.markdown import render_markdown
from roofcast.reports.text import render_text

if TYPE_CHECKING:
    from collections.abc import Callable

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
