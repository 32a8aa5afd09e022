"""The roofline as a picture: roofs, ridges, and a point for every phase, context and batch. All that draws is here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from roofcast.hwdb.units import show_si
from roofcast.modelspec.step import DECODE, MIXED, PREFILL
from roofcast.reports.chart import (
    CROWD,
    FRAME,
    HEIGHT,
    MARK,
    NORMAL,
    POINT,
    SMALL,
    WIDTH,
    Mark,
    contexts_of,
    height_of,
    heights_of,
    joins,
    plane_of,
    roof_lines,
    spot_of,
    wanted_labels,
    width_of,
)
from roofcast.reports.deployed import layout_words, on_devices
from roofcast.reports.labels import Box, Surroundings, around, placed
from roofcast.reports.numbers import context_name, figures
from roofcast.reports.plot_style import DARK, DPI, LIGHT, cut, known, own_style, write_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from roofcast.calculators.roofline_table import RooflineResult
    from roofcast.reports.chart import Plane
    from roofcast.reports.labels import Label, Segment, Spot
    from roofcast.reports.plot_style import Theme

NEVER: Final = 1000  # points and lines that a name rather covers than another name
ROW: Final = 7  # entries of the legend in one row
LONGEST: Final = 68  # characters of a title
SHAPES: Final = {PREFILL: "s", DECODE: "o", MIXED: "D"}


def roofline_chart(result: RooflineResult, *, dark: bool = False) -> Figure:
    """The roofline of Williams, Waterman and Patterson: rate over intensity under the device's roofs."""
    theme = DARK if dark else LIGHT
    marks = [Mark(row, height_of(result, row)) for row in result.rows if row.intensity > 0]
    plane = plane_of(result, marks)
    with own_style():
        figure = Figure((WIDTH, HEIGHT), dpi=DPI, facecolor=theme.ground)
        axes = log_axes(figure, plane, ("FLOP/byte", "FLOP/s of one device"), theme)
        few = len(marks) <= CROWD
        solid = [around(spot_of(plane, mark), MARK + 1, MARK + 1) for mark in marks if few]
        lines = [*roof_lines(result, plane), *(joins(plane, marks) if few else ())]
        named = _roofs(axes, result, plane, (solid, lines), theme)
        named += _bandwidth(axes, result, plane, marks, theme)
        for number, context in enumerate(contexts_of(marks)):
            colour = theme.contexts[number % len(theme.contexts)]
            _series(axes, [mark for mark in marks if mark.row.context == context], colour, theme)
        labels = placed(wanted_labels(plane, marks), Surroundings(FRAME, solid, lines, named))
        _labels(axes, marks, labels, theme)
        _words(figure, result, marks, theme)
        _legend(figure, marks, theme)
    return figure


def log_axes(figure: Figure, plane: Plane, names: tuple[str, str], theme: Theme) -> Axes:
    """Axes of a roofline, both logarithmic, with their names, across and up."""
    page = WIDTH * POINT, HEIGHT * POINT
    axes = figure.add_axes(
        (
            FRAME.left / page[0],
            FRAME.bottom / page[1],
            (FRAME.right - FRAME.left) / page[0],
            (FRAME.top - FRAME.bottom) / page[1],
        ),
        facecolor=theme.ground,
    )
    axes.set(xscale="log", yscale="log", xlim=plane.x, ylim=plane.y)
    axes.set_xlabel(names[0], fontsize=NORMAL, color=theme.ink)
    axes.set_ylabel(names[1], fontsize=NORMAL, color=theme.ink)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show_si(value, "", 3)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_minor_locator(LogLocator(subs=(2.0, 5.0), numticks=40))
        axis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="both", colors=theme.ink, labelsize=NORMAL)
    axes.grid(visible=True, which="major", color=theme.faint, alpha=0.25, linewidth=0.5)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(theme.faint)
    return axes


def _roofs(
    axes: Axes, result: RooflineResult, plane: Plane, near: tuple[list[Box], list[Segment]], theme: Theme
) -> list[Box]:
    """Draws the slope, the flat roofs and the ridges; gives the boxes of their names."""
    bandwidth = result.bandwidth_bytes_per_second
    heights = heights_of(result)
    top = max(height.ridge for height in heights)
    reached = max((height.ridge for height in heights if height.used), default=top)
    for end, colour, width in ((top, theme.faint, 0.9), (reached, theme.ink, 1.6)):
        axes.plot([plane.x[0], end], [plane.x[0] * bandwidth, end * bandwidth], color=colour, linewidth=width, zorder=2)
    named: list[Box] = []
    for height in heights:
        peak, ridge, ink = height.peak, height.ridge, theme.ink if height.used else theme.faint
        line = "-" if height.used else (0, (6, 3))
        axes.plot([ridge, plane.x[1]], [peak, peak], color=ink, linewidth=1.4, linestyle=line, zorder=2)
        axes.plot([ridge, ridge], [plane.y[0], peak], color=theme.faint, linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
        axes.plot([ridge], [peak], marker="|", markersize=9, color=ink, zorder=3)
        text = f"{height.name} {show_si(peak, 'FLOP/s', 3)}"
        left = plane.spot(top, peak)[0] + 4
        box = _beside(text, (left, plane.spot(ridge, peak)[1]), near, named)
        write_at(axes, text, box.middle, ink, NORMAL)
        named.append(box)
    for height in reversed(heights):
        at = plane.spot(height.ridge, height.peak)[0]
        named.append(_ridge(axes, f"ridge {figures(height.ridge)} FLOP/B", at, named, theme))
    return named


def _beside(text: str, start: Spot, near: tuple[list[Box], list[Segment]], named: Sequence[Box]) -> Box:
    """The freest place along a flat roof, above it or else below, from the right end on."""
    (left, y), wide, high = start, width_of(text, NORMAL), NORMAL * 1.15
    steps = range(max(1, int((FRAME.right - 3 - wide - left) // 12) + 1))
    boxes = [
        around((FRAME.right - 3 - wide / 2 - 12 * step, middle), wide, high)
        for middle in (y + 3 + high / 2, y - 3 - high / 2)
        for step in steps
    ]

    def crowd(box: Box) -> int:
        wider = around(box.middle, wide + 12, high + 5)
        points, lines = sum(map(wider.meets, near[0])), sum(map(wider.crossed_by, near[1]))
        return NEVER * sum(map(box.meets, named)) + points + lines

    return min(boxes, key=crowd)


def _ridge(axes: Axes, text: str, x: float, named: Sequence[Box], theme: Theme) -> Box:
    """The name of a ridge, upright at the foot of its line: left of it, or right, or higher up."""
    long, high = width_of(text, SMALL), SMALL * 1.2
    boxes = [
        around((x + side * (2 + high / 2), FRAME.bottom + 4 + long / 2 + up * (long + 6)), high, long)
        for up in range(3)
        for side in (-1, 1)
    ]
    box = next((box for box in boxes if not any(box.meets(other) for other in named)), boxes[0])
    write_at(axes, text, box.middle, theme.ink, SMALL, rotation=90)
    return box


def _bandwidth(axes: Axes, result: RooflineResult, plane: Plane, marks: Sequence[Mark], theme: Theme) -> list[Box]:
    """Writes the bandwidth along the slope, where there is room between the points; gives boxes that cover it."""
    rate = result.bandwidth_bytes_per_second
    text = show_si(rate, "B/s")
    ridge = min(roof.ridge for roof in result.roofs)
    (left, bottom), (right, top) = plane.spot(plane.x[0], plane.x[0] * rate), plane.spot(ridge, ridge * rate)
    angle = math.atan2(top - bottom, right - left)
    long = width_of(text, NORMAL)
    shares = [share / 20 for share in range(2, 19)]
    spots = [(left + (right - left) * share, bottom + (top - bottom) * share) for share in shares]
    taken = [spot_of(plane, mark) for mark in marks]
    away = [min((math.dist(spot, point) for point in taken), default=0.0) for spot in spots]
    x, y = next((spot for spot, room in zip(spots, away, strict=True) if room > long), spots[away.index(max(away))])
    middle = x - math.sin(angle) * NORMAL, y + math.cos(angle) * NORMAL
    write_at(axes, text, middle, theme.ink, NORMAL, rotation=math.degrees(angle))
    steps = [step * long / 5 for step in range(-2, 3)]
    return [
        around((middle[0] + step * math.cos(angle), middle[1] + step * math.sin(angle)), long / 4, NORMAL * 1.2)
        for step in steps
    ]


def _series(axes: Axes, marks: Sequence[Mark], colour: str, theme: Theme) -> None:
    """The points of one context: a shape for each phase, joined in the order of batches, hollow where they do not fit."""
    for phase in dict.fromkeys(mark.row.phase for mark in marks):
        line = sorted((mark for mark in marks if mark.row.phase == phase), key=lambda mark: mark.row.batch)
        spots = [(mark.row.intensity, mark.rate) for mark in line]
        axes.plot(*zip(*spots, strict=True), color=colour, linewidth=0.8, alpha=0.7, zorder=3)
        for mark, (x, y) in zip(line, spots, strict=True):
            axes.plot(
                [x],
                [y],
                marker=SHAPES[phase],
                markersize=MARK,
                markerfacecolor=colour if mark.row.fits else theme.ground,
                markeredgecolor=theme.ground if mark.row.fits else colour,
                markeredgewidth=0.6 if mark.row.fits else 1.2,
                linestyle="none",
                zorder=4,
            )


def _labels(axes: Axes, marks: Sequence[Mark], labels: Sequence[tuple[Label, Box]], theme: Theme) -> None:
    """Context and batch beside the points, those near one another together."""
    colours = {
        context_name(context): theme.contexts[number % len(theme.contexts)]
        for number, context in enumerate(contexts_of(marks))
    }
    for label, box in labels:
        colour = colours[label.text.split(" ")[0]]
        axes.annotate(
            label.text,
            xy=label.at,
            xycoords="figure points",
            xytext=box.middle,
            textcoords="figure points",
            ha="center",
            va="center",
            fontsize=SMALL,
            color=theme.ink,
            arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": colour, "shrinkA": 0, "shrinkB": MARK / 2},
            bbox={"boxstyle": "square,pad=0.1", "facecolor": theme.ground, "edgecolor": "none", "alpha": 0.8},
            zorder=5,
        )


def _words(figure: Figure, result: RooflineResult, marks: Sequence[Mark], theme: Theme) -> None:
    """Title and caption."""
    left = FRAME.left / WIDTH / POINT
    devices = f" on {on_devices(result.gpu, result.layout)}"
    title = cut(known(result.model), LONGEST - len(devices)) + devices
    used = [height for height in heights_of(result) if height.used]
    formats = ", ".join(height.name for height in used)
    facts = [f"arithmetic in {formats}", f"memory {show_si(result.bandwidth_bytes_per_second, 'B/s')}"]
    facts += [layout_words(result.layout)] if result.layout.gpus > 1 else []
    figure.text(left, 0.952, title, fontsize=12, weight="bold", color=theme.ink, va="center", parse_math=False)
    figure.text(left, 0.912, "; ".join(facts), fontsize=NORMAL, color=theme.ink, va="center", parse_math=False)
    roof = "roof" if len(used) == 1 else "lowest roof"
    hollow = f" Hollow: does not fit, drawn on the {roof}." if any(not mark.row.fits for mark in marks) else ""
    dashed = " Dashed: the device's other formats." if len(used) < len(heights_of(result)) else ""
    caption = (
        f"FLOP/byte counts weights and KV cache alone, each moved once. Labels: context and batch (b).{dashed}\n"
        f"A step's least time sums each operation's own limit: it may stay below a roof, or between two.{hollow}"
    )
    figure.text(left, 0.048, caption, fontsize=SMALL, color=theme.ink, va="center", parse_math=False, linespacing=1.4)


def _legend(figure: Figure, marks: Sequence[Mark], theme: Theme) -> None:
    """Shapes of phases and colours of contexts, in a row under the title."""
    handles = [
        _shape(phase, SHAPES[phase], theme.ink, theme) for phase in dict.fromkeys(mark.row.phase for mark in marks)
    ]
    if any(not mark.row.fits for mark in marks):
        handles.append(_shape("does not fit", SHAPES[DECODE], theme.ground, theme))
    for number, context in enumerate(contexts_of(marks)):
        colour = theme.contexts[number % len(theme.contexts)]
        name = context_name(context)
        handles.append(Line2D([], [], color=colour, linewidth=3, label=name if number else f"context {name}"))
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(FRAME.left / WIDTH / POINT, 0.888),
        ncols=len(handles) if len(handles) <= ROW else -(-len(handles) // 2),
        fontsize=NORMAL,
        labelcolor=theme.ink,
        frameon=False,
        borderaxespad=0,
        borderpad=0,
        handlelength=1.2,
        handletextpad=0.5,
        columnspacing=1.6,
    )


def _shape(label: str, marker: str, inside: str, theme: Theme) -> Line2D:
    """An entry of the legend: a shape, and what it means."""
    return Line2D(
        [],
        [],
        label=label,
        marker=marker,
        color=theme.ink,
        markerfacecolor=inside,
        markersize=MARK,
        markeredgewidth=1.2,
        linestyle="none",
    )
