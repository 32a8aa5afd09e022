"""Every output format, by name: a row here and a function to make one."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.reports.data import render_csv, render_json
from roofcast.reports.markdown import render_markdown
from roofcast.reports.text import render_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.calculators.roofline_table import RooflineResult
    from roofcast.calculators.validate import ValidateResult
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

# a file's ending -> the format of the chart drawn into it
CHARTS: Final[dict[str, str]] = {".png": "png", ".svg": "svg"}


def outputs_of(command: str) -> dict[str, Callable[[Document], str]]:
    """Every format that a command can write.

    >>> list(outputs_of("kv")), list(outputs_of("check"))[-2:]
    (['text', 'json', 'csv', 'markdown'], ['junit', 'github'])
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


def render_chart(result: RooflineResult | ValidateResult | ProfileResult, ending: str) -> bytes:
    """The roofline, with measured steps or without, or measured points beside what is expected, as an image file.

    The ending is one of `CHARTS`.

    Matplotlib loads here and no earlier.

    Raises:
        KeyError: another ending.
        UsageError: matplotlib does not start, as beside a broken matplotlibrc.
    """
    with _own_settings():
        try:
            from roofcast.reports import plot  # noqa: PLC0415 - half a second that only charts take
        except (OSError, ValueError) as error:
            raise UsageError(f"the chart cannot be drawn, matplotlib does not start here: {error}") from error
        from roofcast.calculators.profile_rows import ProfileResult  # noqa: PLC0415 - likewise
        from roofcast.calculators.validate import ValidateResult  # noqa: PLC0415 - likewise

        if isinstance(result, ProfileResult):
            from roofcast.reports import plot_profile  # noqa: PLC0415 - likewise

            return plot_profile.render_profile(result, CHARTS[ending])
        if isinstance(result, ValidateResult):
            from roofcast.reports import plot_points  # noqa: PLC0415 - likewise

            return plot_points.render_points(result, CHARTS[ending])
        return plot.render_chart(result, CHARTS[ending])


@contextmanager
def _own_settings() -> Iterator[None]:
    """Keeps from a chart what a user set up for other programs: a matplotlibrc, a backend, remarks on its cache."""
    import logging  # noqa: PLC0415 - only charts need it
    from importlib.util import find_spec  # noqa: PLC0415

    spec = find_spec("matplotlib")
    places = spec.submodule_search_locations if spec else None
    own = {"MATPLOTLIBRC": f"{places[0]}/mpl-data/matplotlibrc"} if places else {}
    before = {name: os.environ.get(name) for name in ("MATPLOTLIBRC", "MPLBACKEND")}
    logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
    os.environ.pop("MPLBACKEND", None)
    os.environ.update(own)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
