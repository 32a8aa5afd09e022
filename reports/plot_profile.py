"""The roofline with measured points: steps of prefill and decode, their families, under the data sheet's roof and the measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roofcast.hwdb.units import show_si
from roofcast.modelspec.op import ATTN_DECODE, ATTN_PREFILL, GEMM, MOE
from roofcast.modelspec.step import DECODE, PREFILL
from roofcast.reports.chart import FRAME, HEIGHT, MARK, NORMAL, POINT, SMALL, WIDTH, Plane, width_of
from roofcast.reports.document import plain
from roofcast.reports.labels import Label, Surroundings, around, placed
from roofcast.reports.numbers import context_name
from roofcast.reports.plot import log_axes
from roofcast.reports.plot_style import DPI, LIGHT, own_style, write_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from roofcast.calculators.profile_rows import ProfileResult
    from roofcast.reports.labels import Box, Segment

#: phase -> shape, place of its colour in the theme
PHASES: Final = {PREFILL: ("s", 1), DECODE: ("o", 0)}
#: family -> shape; element-wise work has hardly any FLOP
FAMILIES: Final = {
    GEMM: ("matrices", "^"),
    MOE: ("experts", "P"),
    ATTN_PREFILL: ("attention", "D"),
    ATTN_DECODE: ("attention", "D"),
}
PART: Final = 3.6  # size of a family's point
LONGEST: Final = 70  # characters of a title
DASHED: Final = (0, (5, 3))
ROWS: Final = 4  # of text beside a roof, in which its name may stand


@dataclass(frozen=True, slots=True)
class Roof:
    """A pair of a slope and a flat roof.

    Args:
        name: of the flat roof.
        bandwidth: of the slope. [B/s]
        peak: of the flat roof. [FLOP/s]
        measured: whether both are, or the data sheet's.
    """

    name: str
    bandwidth: float
    peak: float
    measured: bool

    @property
    def ridge(self) -> float:
        """Where both meet: peak / bandwidth. [FLOP/B]"""
        return self.peak / self.bandwidth


@dataclass(frozen=True, slots=True)
class Dot:
    """A measured point.

    Args:
        phase: prefill or decode.
        family: of a part of a step; empty of a whole one.
        label: of a whole step.
        intensity: [FLOP/B]
        rate: reached. [FLOP/s]
    """

    phase: str
    family: str
    label: str
    intensity: float
    rate: float


def profile_chart(result: ProfileResult) -> Figure:
    """Rate over intensity, both logarithmic: roofs as lines, steps as points with labels, families smaller."""
    roofs, dots = roofs_of(result), dots_of(result)
    plane = plane_of(roofs, dots)
    with own_style():
        figure = Figure((WIDTH, HEIGHT), dpi=DPI, facecolor=LIGHT.ground)
        axes = log_axes(figure, plane, ("FLOP/byte of weights and cache", "FLOP/s"), LIGHT)
        solid = [around(plane.spot(dot.intensity, dot.rate), MARK + 1, MARK + 1) for dot in dots]
        named: list[Box] = []
        for number, roof in enumerate(roofs):
            first = all(other.measured is not roof.measured for other in roofs[:number])
            named += _roof(axes, roof, plane, [*solid, *named], slope=first)
        for dot in sorted(dots, key=lambda dot: not dot.family):
            _dot(axes, dot)
        _labels(axes, dots, roofs, plane, named)
        _words(figure, result)
        _legend(figure, roofs, dots)
    return figure


def roofs_of(result: ProfileResult) -> list[Roof]:
    """Roofs of every format that was multiplied in: the data sheet's, and as measured."""
    device = result.device
    if device is None:
        return []
    made = []
    for row in device.roofs:
        if device.datasheet_bytes_per_second and row.datasheet_flops_per_second:
            made.append(
                Roof(row.format, device.datasheet_bytes_per_second, row.datasheet_flops_per_second, measured=False)
            )
        if device.bandwidth_bytes_per_second:
            made.append(Roof(row.format, device.bandwidth_bytes_per_second, row.peak_flops_per_second, measured=True))
    return made


def dots_of(result: ProfileResult) -> list[Dot]:
    """Steps that ran, and their families that have FLOP and bytes."""
    made = []
    for point in result.points:
        step = point.step
        if step is None or not step.flops_per_second or not step.bytes:
            continue
        label = f"{context_name(point.context)} b{point.batch:,}"
        made.append(Dot(point.phase, "", label, step.flops / step.bytes, step.flops_per_second))
        made += [
            Dot(point.phase, row.name, "", row.flops / row.bytes, row.flops_per_second)
            for row in point.families
            if row.name in FAMILIES and row.flops and row.bytes and row.flops_per_second
        ]
    return made


def plane_of(roofs: Sequence[Roof], dots: Sequence[Dot]) -> Plane:
    """Axes that show all points and ridges, with room for labels."""
    ridges = [roof.ridge for roof in roofs]
    across = [*(dot.intensity for dot in dots), *ridges] or [1.0]
    up = [*(dot.rate for dot in dots), *(roof.peak for roof in roofs)] or [1.0]
    least = min([*across, *(ridge / 100 for ridge in ridges)]) / 2.5
    most = max([*across, *(ridge * 8 for ridge in ridges)]) * 2.5
    return Plane((least, most), (min(up) / 3, max(up) * 4))


def _corners(roof: Roof, plane: Plane) -> tuple[list[float], list[float]]:
    """Left end, ridge and right end of a roof."""
    left = max(plane.x[0], plane.y[0] / roof.bandwidth)
    return [left, roof.ridge, plane.x[1]], [left * roof.bandwidth, roof.peak, roof.peak]


def _roof(axes: Axes, roof: Roof, plane: Plane, solid: Sequence[Box], *, slope: bool) -> list[Box]:
    """Draws a roof and its names: the data sheet's above, the measured below, clear of points; gives the names' boxes.

    Args:
        axes: to draw into.
        roof: the roof.
        plane: of the axes.
        solid: boxes of points and of other names.
        slope: whether its bandwidth is written too, which roofs of several formats share.
    """
    ink = LIGHT.ink if roof.measured else LIGHT.faint
    x, y = _corners(roof, plane)
    axes.plot(x, y, color=ink, linewidth=1.5, linestyle="-" if roof.measured else DASHED, zorder=2)
    side = -1 if roof.measured else 1
    spots = [plane.spot(*corner) for corner in zip(x, y, strict=True)]
    flat = f"{roof.name} {show_si(roof.peak, 'FLOP/s', 3)}"
    named = [_along(axes, flat, (spots[2], spots[1]), side, (ink, solid))]
    if slope:
        named.append(_along(axes, show_si(roof.bandwidth, "B/s", 3), (spots[0], spots[1]), side, (ink, solid)))
    return named


def _along(axes: Axes, text: str, line: Segment, side: int, look: tuple[str, Sequence[Box]]) -> Box:
    """Writes a text along a line, above or below it, as near to it and to its start as points leave room.

    Args:
        axes: to draw into.
        text: what to write.
        line: from where to where. [1/72 inch]
        side: 1 above, -1 below.
        look: colour, and boxes of points.
    """
    (x, y), (end, top) = line
    long, wide = math.dist(*line) or 1.0, width_of(text, NORMAL)
    across, up = (end - x) / long, (top - y) / long
    angle = math.atan2(up * math.copysign(1, across), abs(across))
    least = wide / 2 + 12
    steps = [least + 8 * step for step in range(max(1, int((long - 2 * least) // 8)))]
    aways = [side * (3 + NORMAL * (0.6 + 1.2 * row)) for row in range(ROWS)]
    spots = [
        (x + at * across - away * math.sin(angle), y + at * up + away * math.cos(angle))
        for away in aways
        for at in steps
    ]
    boxes = [around(spot, wide * math.cos(angle), wide * abs(math.sin(angle)) + NORMAL * 1.3) for spot in spots]
    box = next((box for box in boxes if not any(map(box.meets, look[1]))), boxes[0])
    write_at(axes, text, box.middle, look[0], NORMAL, rotation=math.degrees(angle))
    return box


def _dot(axes: Axes, dot: Dot) -> None:
    shape, number = PHASES[dot.phase]
    colour = LIGHT.contexts[number]
    axes.plot(
        [dot.intensity],
        [dot.rate],
        marker=FAMILIES[dot.family][1] if dot.family else shape,
        markersize=PART if dot.family else MARK,
        markerfacecolor=LIGHT.ground if dot.family else colour,
        markeredgecolor=colour if dot.family else LIGHT.ground,
        markeredgewidth=0.8 if dot.family else 0.6,
        linestyle="none",
        zorder=3 if dot.family else 4,
    )


def _labels(axes: Axes, dots: Sequence[Dot], roofs: Sequence[Roof], plane: Plane, named: Sequence[Box]) -> None:
    """Context and batch beside each whole step."""
    steps = [dot for dot in dots if not dot.family]
    spots = [plane.spot(dot.intensity, dot.rate) for dot in steps]
    wanted = [
        Label(dot.label, spot, width_of(dot.label, SMALL) + 2, SMALL * 1.25)
        for dot, spot in zip(steps, spots, strict=True)
    ]
    solid = [around(plane.spot(dot.intensity, dot.rate), MARK + 1, MARK + 1) for dot in dots]
    for label, box in placed(wanted, Surroundings(FRAME, solid, _lines(roofs, plane), list(named))):
        dot = steps[spots.index(label.at)]
        axes.annotate(
            label.text,
            xy=label.at,
            xycoords="figure points",
            xytext=box.middle,
            textcoords="figure points",
            ha="center",
            va="center",
            fontsize=SMALL,
            color=LIGHT.ink,
            parse_math=False,
            arrowprops={
                "arrowstyle": "-",
                "linewidth": 0.6,
                "color": LIGHT.contexts[PHASES[dot.phase][1]],
                "shrinkA": 0,
                "shrinkB": MARK / 2,
            },
            bbox={"boxstyle": "square,pad=0.1", "facecolor": LIGHT.ground, "edgecolor": "none", "alpha": 0.8},
            zorder=5,
        )


def _lines(roofs: Sequence[Roof], plane: Plane) -> list[Segment]:
    """Slopes and flat roofs, for labels to stay clear of."""
    made: list[Segment] = []
    for roof in roofs:
        spots = [plane.spot(*corner) for corner in zip(*_corners(roof, plane), strict=True)]
        made += [(spots[0], spots[1]), (spots[1], spots[2])]
    return made


def _words(figure: Figure, result: ProfileResult) -> None:
    left = FRAME.left / WIDTH / POINT
    title = plain(f"{result.model} in {result.weights} on {_devices(result)}, measured")
    title = title if len(title) <= LONGEST else f"{title[: LONGEST - 3]}..."
    driver = f", driver {result.machine.driver}" if result.machine.driver else ""
    facts = plain(f"torch {result.machine.torch}{driver}, kernels of {result.machine.kernels}, random weights")
    shared = ", of one device" if result.tp > 1 else ""
    caption = (
        f"FLOP/byte counts weights and KV cache alone, each moved once{shared}. Labels: tokens of the prompt or cache, and batch (b).\n"
        "Whole steps are filled; small and hollow are families of operations, timed alone."
    )
    figure.text(left, 0.952, title, fontsize=12, weight="bold", color=LIGHT.ink, va="center", parse_math=False)
    figure.text(left, 0.912, facts, fontsize=NORMAL, color=LIGHT.ink, va="center", parse_math=False)
    figure.text(left, 0.048, caption, fontsize=SMALL, color=LIGHT.ink, va="center", parse_math=False, linespacing=1.4)


def _devices(result: ProfileResult) -> str:
    return f"{result.tp} x {result.machine.name}" if result.tp > 1 else result.machine.name


def _legend(figure: Figure, roofs: Sequence[Roof], dots: Sequence[Dot]) -> None:
    """What lines, shapes and colours mean, as far as they are there."""
    phases = dict.fromkeys(dot.phase for dot in dots)
    handles = [_entry(phase, PHASES[phase][0], LIGHT.contexts[PHASES[phase][1]], MARK) for phase in phases]
    families = dict.fromkeys(FAMILIES[dot.family] for dot in dots if dot.family)
    handles += [_entry(name, shape, LIGHT.ground, PART) for name, shape in families]
    for measured, name in ((True, "roof as measured"), (False, "data sheet")):
        if any(roof.measured is measured for roof in roofs):
            ink = LIGHT.ink if measured else LIGHT.faint
            handles.append(Line2D([], [], color=ink, linewidth=1.5, linestyle="-" if measured else DASHED, label=name))
    if not handles:
        return
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(FRAME.left / WIDTH / POINT, 0.888),
        ncols=len(handles),
        fontsize=NORMAL,
        labelcolor=LIGHT.ink,
        frameon=False,
        borderaxespad=0,
        borderpad=0,
        handletextpad=0.5,
        columnspacing=1.6,
    )


def _entry(label: str, marker: str, inside: str, size: float) -> Line2D:
    edge = LIGHT.ink if inside == LIGHT.ground else inside
    return Line2D(
        [], [], label=label, marker=marker, color=edge, markerfacecolor=inside, markersize=size, linestyle="none"
    )
