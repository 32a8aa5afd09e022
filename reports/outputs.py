"""Every output format, by name: a row here and a function to make one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.reports.data import render_csv, render_json
from roofcast.reports.markdown import render_markdown
from roofcast.reports.text import render_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.reports.document import Document


def _page(document: Document) -> str:
    """A web page; templates and charts load here and no earlier, since every command passes by."""
    from roofcast.reports.page import render_page  # noqa: PLC0415 - a second that pages alone take

    return render_page(document)


OUTPUTS: Final[dict[str, Callable[[Document], str]]] = {
    "text": render_text,
    "json": render_json,
    "csv": render_csv,
    "markdown": render_markdown,
    "html": _page,
}

# a file's ending -> the format written into it
ENDINGS: Final[dict[str, str]] = {
    ".txt": "text",
    ".json": "json",
    ".csv": "csv",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
}


def _junit(document: Document) -> str:
    """JUnit XML; what it needs loads here and no earlier, since every command passes by."""
    from roofcast.reports.junit import render_junit  # noqa: PLC0415 - a fifth of a second that `check` alone takes

    return render_junit(document)


def _annotations(document: Document) -> str:
    """Annotations of GitHub's workflows; likewise."""
    from roofcast.reports.github import render_annotations  # noqa: PLC0415 - likewise

    return render_annotations(document)


# command -> the formats that it alone has, and the endings of their files
OWN_OUTPUTS: Final[Mapping[str, Mapping[str, Callable[[Document], str]]]] = {
    "check": {"junit": _junit, "github": _annotations},
}
OWN_ENDINGS: Final[Mapping[str, Mapping[str, str]]] = {"check": {".xml": "junit"}}


def outputs_of(command: str) -> dict[str, Callable[[Document], str]]:
    """Every format that a command can write.

    >>> list(outputs_of("kv")), list(outputs_of("check"))[-2:]
    (['text', 'json', 'csv', 'markdown', 'html'], ['junit', 'github'])
    """
    return {**OUTPUTS, **OWN_OUTPUTS.get(command, {})}


def endings_of(command: str) -> dict[str, str]:
    """Every ending that names a format of a command."""
    return {**ENDINGS, **OWN_ENDINGS.get(command, {})}


def owner(output: str) -> str | None:
    """The command that alone has a format or an ending; None of what all have, and of what there is not.

    >>> owner("junit"), owner(".xml"), owner("text")
    ('check', 'check', None)
    """
    owned = {name: command for of in (OWN_OUTPUTS, OWN_ENDINGS) for command, names in of.items() for name in names}
    return owned.get(output)
