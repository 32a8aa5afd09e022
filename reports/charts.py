"""Every chart, by name: what it is drawn from and by which function. Matplotlib loads when one is drawn, and no earlier."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.figure import Figure

#: a file's ending -> the format of the chart drawn into it
CHARTS: Final[dict[str, str]] = {".png": "png", ".svg": "svg"}


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of chart is drawn.

    Args:
        module: of `roofcast.reports`.
        draw: its function, from a result to a figure.
    """

    module: str
    draw: str


KINDS: Final[Mapping[str, Kind]] = {
    "memory": Kind("plot_memory", "memory_chart"),
    "roofline": Kind("plot", "roofline_chart"),
    "kv": Kind("plot_kv", "kv_chart"),
    "sweep": Kind("plot_sweep", "sweep_chart"),
    "latency": Kind("plot_sweep", "latency_chart"),
    "gpus": Kind("plot_gpus", "gpus_chart"),
    "points": Kind("plot_points", "points_chart"),
    "series": Kind("plot_simulate", "series_chart"),
    "spread": Kind("plot_simulate", "spread_chart"),
    "profile": Kind("plot_profile", "profile_chart"),
    "exchanges": Kind("plot_exchanges", "exchanges_chart"),
    "plan": Kind("plot_plan", "plan_chart"),
}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of a document, not drawn yet.

    Args:
        kind: its row in `KINDS`; the name of its file too.
        result: what its function draws.
        says: what it shows, in a sentence with its main numbers, for those who do not see it.
        file: where it was drawn, as a document beside it would link it; empty where it was not.
    """

    kind: str
    result: Any
    says: str = ""
    file: str = ""


def drawn(chart: Chart) -> Figure:
    """The figure of a chart, in the colours of `plot_style.LIGHT`.

    Raises:
        UsageError: matplotlib does not start, as beside a broken matplotlibrc.
    """
    kind = KINDS[chart.kind]
    with _own_settings():
        try:
            module = import_module(f"roofcast.reports.{kind.module}")
        except (OSError, ValueError) as error:
            raise UsageError(f"the chart cannot be drawn, matplotlib does not start here: {error}") from error
        figure: Figure = getattr(module, kind.draw)(chart.result)
    return figure


def chart_file(chart: Chart, ending: str) -> bytes:
    """A chart as an image file, whose ending is one of `CHARTS`; the same input gives the same bytes of SVG.

    Raises:
        KeyError: another ending.
        UsageError: matplotlib does not start.
    """
    name, figure = CHARTS[ending], drawn(chart)
    with _own_settings():
        from roofcast.reports.plot_style import saved  # noqa: PLC0415 - half a second that only charts take

        return saved(figure, name)


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
