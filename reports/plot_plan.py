"""Deployments as a picture: what each costs against how quick it is, what is promised, and the front of those that keep it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from roofcast.reports.chart import NORMAL, POINT, SMALL, WIDTH, width_of
from roofcast.reports.labels import Box, Surroundings, around, placed
from roofcast.reports.numbers import count, millis
from roofcast.reports.plan_chart import (
    BEST,
    CLOSE,
    FAILS,
    MEETS,
    Font,
    Panel,
    gpus_of,
    lines_of,
    panel_of,
    steps_of,
    wanted,
)
from roofcast.reports.plan_words import promised_words
from roofcast.reports.plot_card import axes_at
from roofcast.reports.plot_style import DPI, FONT, LIGHT, cut, known, own_style, write_at
from roofcast.reports.plot_sweep import plain_ticks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from roofcast.calculators.planning.rows import PlanResult
    from roofcast.reports.labels import Label
    from roofcast.reports.plan_chart import PlanMark

MOST_PANELS: Final = 4
HEIGHT: Final = 6.0  # of a chart of one workload [inch]
ROW: Final = 3.3  # of a row of panels [inch]
EDGE: Final = 10.0  # points between text and the edge
TITLE: Final = 12.0
LINE: Final = 1.45  # of a line over its letters
LEFT, RIGHT, BELOW, ABOVE = 46.0, 14.0, 34.0, 20.0  # points around a panel: numbers, names of axes, its own title
LABELS: Final = {1: 16, 2: 9}  # of a panel at most, by panels in a row
LONGEST: Final = 96  # characters of a line of words
NAME: Final = 24  # characters of a GPU's name in the legend
OTHERS: Final = "others"
PER_ROW: Final = 5  # entries of the legend in a row
MARK: Final = 6.5
RING: Final = 2.1  # of a mark, around the best one
UNITS: Final = 64.0  # of a font in a point
DASHED: Final = (0, (5, 3))
GAP: Final = 4.0  # points over the legend
EMPTY: Final = 60.0  # points in place of axes on which nothing would be drawn
#: state -> shape, and whether it is filled
SHAPES: Final[Mapping[str, tuple[str, bool]]] = {MEETS: ("o", True), CLOSE: ("o", False), FAILS: ("x", False)}
TICKS: Final = 7
FEW: Final = 3  # numbers of an axis at least
#: where numbers stand in each decade of an axis, the fewest first
STEPS: Final = (
    (1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0),
    (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0),
)  # fmt: skip


def plan_chart(result: PlanResult) -> Figure:
    """Cost an hour against a time at its percentile, a panel a workload; of an inverse question what was found."""
    with own_style():
        if result.find is not None:
            from roofcast.reports.plot_found import found_chart  # noqa: PLC0415 - the other kind of chart alone

            return found_chart(result)
        panels = [panel_of(result, workload) for workload in result.workloads]
        able = [panel for panel in panels if panel.marks] or panels[:1]
        shown = able if len(able) <= MOST_PANELS else able[:1]
        more = _left_out(shown, [panel for panel in panels if panel not in able], len(able) - len(shown))
        return _drawn(result, shown, more)


def _drawn(result: PlanResult, panels: Sequence[Panel], more: Sequence[str]) -> Figure:
    across = min(2, len(panels)) or 1
    down = -(-len(panels) // across)
    handles = _handles(panels)
    above, below = _words(result, panels), _captions(panels, more)
    legend = -(-len(handles) // PER_ROW) * NORMAL * LINE + 4
    top = EDGE + TITLE * LINE + len(above[1:]) * NORMAL * LINE + GAP + legend
    bottom = EDGE + len(below) * SMALL * LINE
    height = HEIGHT * POINT if down == 1 and across == 1 else top + bottom + down * ROW * POINT
    if not any(panel.marks for panel in panels):
        height = top + bottom + down * EMPTY
    figure = Figure((WIDTH, height / POINT), dpi=DPI, facecolor=LIGHT.ground)
    _write(figure, above, below)
    _legend(figure, handles, (height - top + legend) / height)
    wide, high = (WIDTH * POINT - EDGE) / across, (height - top - bottom) / down
    colours = _colours(panels)
    for place, panel in enumerate(panels):
        left, upper = place % across * wide, height - top - place // across * high
        over = ABOVE if len(panels) > 1 else 4.0
        frame = Box(left + LEFT, upper - high + BELOW, left + wide - RIGHT, upper - over)
        _panel(figure, panel, frame, colours, LABELS[across])
        if len(panels) > 1:
            name = known(cut(panel.workload.name, 60))
            write_at(figure.axes[-1], name, ((frame.left + frame.right) / 2, upper - 9), LIGHT.ink, NORMAL)
    return figure


def _panel(figure: Figure, panel: Panel, frame: Box, colours: Mapping[str, str], most: int) -> None:
    """Deployments of a workload within a frame, which is in 1/72 inch."""
    page = figure.get_figwidth() * POINT, figure.get_figheight() * POINT
    size = (frame.right - frame.left) / page[0], (frame.top - frame.bottom) / page[1]
    axes = axes_at(figure, (frame.left / page[0], frame.bottom / page[1], *size))
    if not panel.marks:
        axes.set_axis_off()
        write_at(axes, "no deployment has a price and a time", frame.middle, LIGHT.ink, NORMAL)
        return
    at = f"{panel.name}, p{panel.workload.goal.percentile:g} [ms]"
    axes.set_xlabel("rent of all GPUs [USD an hour]", fontsize=NORMAL, color=LIGHT.ink)
    axes.set_ylabel(at, fontsize=NORMAL, color=LIGHT.ink)
    axes.yaxis.set_label_coords((EDGE + NORMAL * LINE - LEFT) / (frame.right - frame.left), 0.5)
    axes.tick_params(labelsize=NORMAL)
    times = panel.y[0] * 1e3, panel.y[1] * 1e3
    axes.set(xscale="log", yscale="log", xlim=panel.x, ylim=times)
    _ticks(axes.xaxis, *panel.x)
    _ticks(axes.yaxis, *times)
    taken = _promise(axes, panel, frame)
    _front(axes, panel)
    for mark in panel.marks:
        _mark(axes, mark, colours[mark.row.deployment.gpu], best=mark.number == panel.workload.best)
    wants = wanted(panel, frame, most, Font(known, _width))
    solid = [around(panel.spot(frame, mark.cost, mark.seconds), *_size(mark, panel)) for mark in panel.marks]
    inside = Box(frame.left + 2, frame.bottom + 2, frame.right - 2, frame.top - 2)
    for label, box in placed(list(wants), Surroundings(inside, solid, lines_of(panel, frame), taken)):
        _label(axes, label, box, (wants[label], colours[wants[label].row.deployment.gpu]))


def _ticks(axis: Axis, least: float, most: float) -> None:
    """Some numbers on a logarithmic axis, however short it is."""
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    every = ([step * 10.0**power for power in powers for step in steps] for steps in STEPS)
    inside = [[value for value in values if least <= value <= most] for values in every]
    plain_ticks(axis, least, most, ticks=TICKS)
    axis.set_major_locator(FixedLocator(next((values for values in inside if len(values) >= FEW), inside[-1])))


def _size(mark: PlanMark, panel: Panel) -> tuple[float, float]:
    """Width and height of a mark, with the ring of the best one. [1/72 inch]"""
    edge = MARK * RING + 2 if mark.number == panel.workload.best else MARK + 1
    return edge, edge


def _promise(axes: Axes, panel: Panel, frame: Box) -> list[Box]:
    """What is promised, as a level line with its words at its left end; gives their box."""
    if panel.promise is None:
        return []
    axes.axhline(panel.promise * 1e3, color=LIGHT.ink, linewidth=1.2, linestyle=DASHED, label="promise")
    text = f"promise: {millis(panel.promise)} ms"
    wide, high = width_of(text, SMALL), SMALL * 1.3
    y = panel.spot(frame, panel.x[0], panel.promise)[1]
    box = around((frame.left + 4 + wide / 2, y + 2 + high / 2), wide, high)
    write_at(axes, text, box.middle, LIGHT.ink, SMALL)
    return [box]


def _front(axes: Axes, panel: Panel) -> None:
    """The front, as steps down to the right."""
    corners = steps_of(panel)
    if corners:
        costs, times = zip(*corners, strict=True)
        axes.plot(
            costs, [seconds * 1e3 for seconds in times], color=LIGHT.faint, linewidth=1.3, label="front", zorder=2
        )


def _mark(axes: Axes, mark: PlanMark, colour: str, *, best: bool) -> None:
    """A deployment; the best one within a ring."""
    spot = [mark.cost], [mark.seconds * 1e3]
    shape, filled = SHAPES[mark.state]
    if best:
        axes.plot(
            *spot, marker="o", markersize=MARK * RING, markerfacecolor="none", markeredgecolor=LIGHT.ink,
            markeredgewidth=1.3, linestyle="none", zorder=5, label="best",
        )  # fmt: skip
    axes.plot(
        *spot, marker=shape, markersize=MARK, markerfacecolor=colour if filled else LIGHT.ground,
        markeredgecolor=LIGHT.ground if filled else colour, markeredgewidth=0.6 if filled else 1.5, linestyle="none",
        zorder=4, label=mark.state,
    )  # fmt: skip


def _width(text: str) -> float:
    """Width of a label as its font has it. [1/72 inch]"""
    font = font_manager.get_font(font_manager.findfont(font_manager.FontProperties(family=FONT, weight=_weight(text))))
    font.set_size(SMALL, POINT)
    font.set_text(text)
    return float(font.get_width_height()[0]) / UNITS


def _weight(text: str) -> str:
    """The best one's label is bold."""
    return "bold" if text.startswith(BEST) else "normal"


def _label(axes: Axes, label: Label, box: Box, of: tuple[PlanMark, str]) -> None:
    """A label, and a thin line from its edge to its deployment, which is given with its colour."""
    (mark, colour), (x, y) = of, label.at
    edge = min(max(x, box.left), box.right), min(max(y, box.bottom), box.top)
    axes.annotate(
        "", xy=label.at, xycoords="figure points", xytext=edge, textcoords="figure points", annotation_clip=False, zorder=3,
        arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": colour, "shrinkA": 0, "shrinkB": MARK / 2},
    )  # fmt: skip
    axes.annotate(
        label.text, (0, 0), xytext=box.middle, textcoords="figure points", ha="center", va="center", fontsize=SMALL,
        color=LIGHT.ink, weight=_weight(label.text), annotation_clip=False, parse_math=False,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": LIGHT.ground, "edgecolor": "none", "alpha": 0.8},
        zorder=6 if mark.state == MEETS else 5,
    )  # fmt: skip


def _colours(panels: Sequence[Panel]) -> dict[str, str]:
    """A colour a GPU; of many the last ones share one."""
    gpus, every = gpus_of(panels), LIGHT.contexts
    own = len(gpus) if len(gpus) <= len(every) else len(every) - 1
    return {gpu: every[place] if place < own else LIGHT.faint for place, gpu in enumerate(gpus)}


def _handles(panels: Sequence[Panel]) -> list[Line2D]:
    """Entries of the legend: colours of GPUs, and the shapes that there are."""
    colours = _colours(panels)
    handles = [
        Line2D([], [], color=colour, linewidth=3, label=known(cut(gpu, NAME)))
        for gpu, colour in colours.items()
        if colour != LIGHT.faint
    ]
    if LIGHT.faint in colours.values():
        handles.append(Line2D([], [], color=LIGHT.faint, linewidth=3, label=OTHERS))
    states = {mark.state for panel in panels for mark in panel.marks}
    for state, (shape, filled) in SHAPES.items():
        if state in states:
            inside = LIGHT.ink if filled else LIGHT.ground
            handles.append(
                Line2D(
                    [], [], marker=shape, color=LIGHT.ink, markerfacecolor=inside, markersize=MARK, linestyle="none", label=state,
                )
            )  # fmt: skip
    return handles


def _legend(figure: Figure, handles: Sequence[Line2D], top: float) -> None:
    """Colours and shapes, in rows under the words."""
    columns = min(PER_ROW, len(handles)) or 1
    down = [handle for column in range(columns) for handle in handles[column::columns]]  # legends fill columns
    legend = figure.legend(
        handles=down, loc="upper left", bbox_to_anchor=(EDGE / WIDTH / POINT, top), ncols=columns, fontsize=NORMAL,
        labelcolor=LIGHT.ink, frameon=False, borderaxespad=0, borderpad=0, handlelength=1.2, handletextpad=0.5,
        columnspacing=1.4, labelspacing=0.3,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)


def _words(result: PlanResult, panels: Sequence[Panel]) -> list[str]:
    """Title, and of one workload what is sent and what is promised."""
    names = " and ".join(dict.fromkeys(panel.name for panel in panels if panel.marks)) or "time"
    title = f"{cut(result.model, 40)}: what deployments cost against their {names}"
    if len(panels) != 1:
        return [title]
    [panel] = panels
    promise = promised_words(panel.workload) or "nothing"
    return [title, cut(panel.workload.load, LONGEST), f"promised: {promise}"]


def _captions(panels: Sequence[Panel], more: Sequence[str]) -> list[str]:
    """How to read it, and what is not in it."""
    met = any(mark.state == MEETS for panel in panels for mark in panel.marks)
    marks = " Ring: the cheapest that meets it. Line: none that meets it is cheaper and as quick." if met else ""
    said = [f"Lower left is better.{marks}"] if any(panel.marks for panel in panels) else []
    return [*said, *([" ".join(more)] if more else [])]


def _left_out(panels: Sequence[Panel], empty: Sequence[Panel], further: int) -> list[str]:
    """What is not drawn: deployments, workloads of which none can be, and further workloads."""
    missing, number = sum(panel.left_out for panel in panels), len(empty)
    said = (
        [f"{count(missing)} without a price or a time {'is' if missing == 1 else 'are'} not drawn."] if missing else []
    )
    said += [f"Of {count(number)} more workload{'s' if number > 1 else ''} nothing could be drawn."] if number else []
    return said + ([f"The first workload alone; {count(further)} more have tables."] if further else [])


def _write(figure: Figure, above: Sequence[str], below: Sequence[str]) -> None:
    """Words over the legend, and captions at the foot."""
    high = figure.get_figheight() * POINT
    left, top = EDGE / WIDTH / POINT, high - EDGE
    for number, text in enumerate(above):
        size = NORMAL if number else TITLE
        figure.text(
            left, top / high, known(text), fontsize=size, weight="normal" if number else "bold", color=LIGHT.ink, va="top",
            parse_math=False,
        )  # fmt: skip
        top -= size * LINE
    for number, text in enumerate(reversed(below)):
        at = (EDGE + number * SMALL * LINE) / high
        figure.text(left, at, known(text), fontsize=SMALL, color=LIGHT.ink, va="bottom", parse_math=False)
