"""The cache of one sequence against its context as a picture: a line a model, and its weights as a dashed one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from roofcast.calculators.errors import UsageError
from roofcast.reports.chart import POINT, width_of
from roofcast.reports.kv import MIB, MOST_CURVES, many_models
from roofcast.reports.numbers import GIB, context_name, figures
from roofcast.reports.plot_card import HEIGHT, NOTE, TEXT, WIDTH, Words, card, name_axes, spread
from roofcast.reports.plot_style import DPI, LIGHT, cut, known, own_style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from roofcast.calculators.kv_curves import KvCurve, KvCurves

SHAPES: Final = "osD^vPX"  # of the models, beside their colours
MARK: Final = 5.0  # size of one
LONGEST: Final = 19  # characters of a name
DASHED: Final = (0, (4, 2.5))
DOTTED: Final = (0, (1, 1.5))
TICKS: Final = 6  # contexts that are named, at most
FEW_DECADES: Final = 100.0  # between both ends, below which powers of ten are too few
TALL: Final = 5  # models from which on the card is taller
TALLER: Final = 0.35  # [inch] a model then
STEP: Final = NOTE * 1.15  # of a line of small text
APART: Final = 8.0  # points between marks of weights


def kv_chart(curves: KvCurves) -> Figure:
    """KV cache of one sequence over its context, both logarithmic, one line a model; dashed lines are weights.

    Raises:
        UsageError: more models than colours, or none that keeps anything of a sequence.
    """
    drawn = [curve for curve in curves.curves if curve.keeps]
    if len(drawn) > MOST_CURVES:
        raise UsageError(many_models(len(drawn)))
    if not drawn:
        raise UsageError("no layer of these models keeps anything of a sequence: there is no curve to draw")
    unit, size = ("GiB", GIB) if _greatest(drawn, curves.whole_memory) >= GIB else ("MiB", MIB)
    names = [_name(curve, unit, size) for curve in drawn]
    with own_style():
        height = HEIGHT + TALLER * max(0, len(drawn) - TALL + 1)
        ends = _least(drawn) / size / 1.6, _greatest(drawn, curves.whole_memory) / size * 2.2
        left = 28 + width_of(max(map(_tick, ends), key=len), TEXT - 0.7)
        figure, axes = card(_words(curves, drawn), height=height, left=left, right=_room(names))
        _scale(axes, drawn, ends, unit)
        for number, curve in enumerate(drawn):
            _line(axes, curve, number, size)
        _levels(axes, curves, drawn, (unit, size))
        _rings(axes, drawn, size)
        _names(axes, drawn, names, size)
    return figure


def _greatest(drawn: Sequence[KvCurve], memory: float | None) -> float:
    """The highest place of the chart. [B]"""
    return max(memory or 0.0, *(size for c in drawn for size in (c.weight_bytes or 0.0, *c.cache_bytes)))


def _least(drawn: Sequence[KvCurve]) -> float:
    """The lowest place of a line. [B]"""
    return min(size for curve in drawn for size in (*curve.cache_bytes, curve.weight_bytes) if size)


def _tick(level: float) -> str:
    """The power of ten at or below a level, as the axis has it.

    >>> _tick(16_000), _tick(0.0625)
    ('10,000', '0.01')
    """
    return f"{10.0 ** math.floor(math.log10(level)):,.6g}"


def _words(curves: KvCurves, drawn: Sequence[KvCurve]) -> Words:
    """Title, formats and how to read it."""
    formats = " and ".join(dict.fromkeys(curve.kv_format for curve in drawn))
    beside = f"; memory of {curves.gpus} x {curves.gpu}" if curves.gpus > 1 else f"; memory of one {curves.gpu}"
    said = ["Both axes logarithmic; each line ends at its model's longest context."]
    if any(curve.weight_bytes for curve in drawn):
        said.append("Dashed: weights, which all sequences share.")
    if any(curve.equal_context for curve in drawn):
        said.append("Ring: one sequence's cache is as large as the weights.")
    return Words(
        "KV cache of one sequence against its context",
        f"cache in {formats}{beside if curves.gpu else ''}",
        " ".join(said),
    )


def _scale(axes: Axes, drawn: Sequence[KvCurve], ends: tuple[float, float], unit: str) -> None:
    """Logarithmic axes that show all lines, contexts in powers of two or four."""
    first, last = min(curve.contexts[0] for curve in drawn), max(curve.contexts[-1] for curve in drawn)
    axes.set(xscale="log", yscale="log", xlim=(first, last * 1.06), ylim=ends)
    octaves = range(math.ceil(math.log2(first)), math.floor(math.log2(last)) + 1)
    every = 1 + (len(octaves) - 1) // TICKS
    axes.xaxis.set_major_locator(FixedLocator(sorted(1 << octave for octave in octaves[::-every])))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: context_name(round(value))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if ends[1] < FEW_DECADES * ends[0] else (1,), numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5), numticks=40))
    axes.yaxis.set_minor_formatter(NullFormatter())
    name_axes(axes, "context [tokens]", f"cache of one sequence [{unit}]")


def _line(axes: Axes, curve: KvCurve, number: int, unit: float) -> None:
    """A model's cache, with its mark at the end."""
    colour = LIGHT.contexts[number]
    points = [(context, size / unit) for context, size in zip(curve.contexts, curve.cache_bytes, strict=True) if size]
    axes.plot(
        *zip(*points, strict=True),
        color=colour,
        linewidth=1.8,
        marker=SHAPES[number],
        markersize=MARK,
        markevery=[len(points) - 1],
        clip_on=False,
        zorder=3,
        label=known(curve.model),
    )


def _levels(axes: Axes, curves: KvCurves, drawn: Sequence[KvCurve], unit: tuple[str, float]) -> None:
    """Weights as dashed lines with their model's mark, memory as a solid one, and what weights leave of it as a dotted one."""
    left = axes.get_position().x0 * WIDTH * POINT
    for number, curve in enumerate(drawn):
        if curve.weight_bytes:
            level = curve.weight_bytes / unit[1]
            axes.axhline(level, color=LIGHT.contexts[number], linewidth=1.1, linestyle=DASHED, zorder=2)
            _mark(axes, (left + APART * (number + 1), _height(axes, level)), number)
    if not curves.whole_memory:
        return
    memory, weights = curves.whole_memory / unit[1], (drawn[0].weight_bytes or 0.0) / unit[1]
    _level(axes, memory, f"memory {figures(memory)} {unit[0]}", "-")
    if len(drawn) == 1 and 0 < weights < memory:
        _level(axes, memory - weights, f"left beside the weights {figures(memory - weights)} {unit[0]}", DOTTED)


def _level(axes: Axes, level: float, text: str, line: str | tuple[float, tuple[float, ...]]) -> None:
    """A line of memory, named above where it is solid, else below, so that two near one another do not meet."""
    axes.axhline(level, color=LIGHT.ink, linewidth=1.1, linestyle=line, zorder=2)
    beside = STEP * (0.65 if line == "-" else -0.7)
    _write(axes, text, (axes.get_position().x0 * WIDTH * POINT + 2 * APART + 2, _height(axes, level) + beside))


def _rings(axes: Axes, drawn: Sequence[KvCurve], unit: float) -> None:
    """Where one sequence keeps as much as the weights take, with the context beside it where no other ring is near."""
    rings = [(c.equal_context, c.weight_bytes / unit) for c in drawn if c.equal_context and c.weight_bytes]
    heights = [_height(axes, level) for _, level in rings]
    for at, height in zip(rings, heights, strict=True):
        axes.plot(*at, "o", markersize=9, markerfacecolor="none", markeredgecolor=LIGHT.ink, zorder=4)
        if sum(abs(height - other) < 2 * STEP for other in heights) == 1:
            _name_ring(axes, at)


def _name_ring(axes: Axes, at: tuple[int, float]) -> None:
    """The context of a ring, left above it."""
    axes.annotate(
        f"at {at[0]:,}",
        at,
        xytext=(-6, 5),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=NOTE,
        color=LIGHT.ink,
        bbox={"boxstyle": "square,pad=0.1", "facecolor": LIGHT.ground, "edgecolor": "none"},
        zorder=6,
    )


def _names(axes: Axes, drawn: Sequence[KvCurve], names: Sequence[str], unit: float) -> None:
    """Names in a few lines right of the axes, as near as may be to where their lines end."""
    low, high = _ends(axes)
    lines = max(name.count("\n") + 1 for name in names)
    wanted = [_height(axes, curve.cache_bytes[-1] / unit) for curve in drawn]
    heights = spread(wanted, (lines + 0.4) * STEP, (low + lines * STEP / 2, high - lines * STEP / 2))
    right = axes.get_position().x1 * WIDTH * POINT
    for number, (name, height) in enumerate(zip(names, heights, strict=True)):
        _mark(axes, (right + 9, height + (lines - 1) * STEP / 2), number)
        _write(axes, name, (right + 16, height))


def _name(curve: KvCurve, unit: str, size: float) -> str:
    """What stands at the end of a line: name, kind, how much it is there, and the weights."""
    kind = cut(known(curve.attention), LONGEST - 6)
    lines = [cut(known(curve.model), LONGEST), f"{kind} {figures(curve.cache_bytes[-1] / size)} {unit}"]
    lines += [f"weights {figures(curve.weight_bytes / size)} {unit}"] if curve.weight_bytes else []
    return "\n".join(lines)


def _room(names: Sequence[str]) -> float:
    """Room right of the axes for the longest of some lines. [1/72 inch]"""
    return 25 + max(width_of(line, NOTE) for name in names for line in name.split("\n"))


def _height(axes: Axes, level: float) -> float:
    """Where a level is on the page. [1/72 inch]"""
    return float(axes.transData.transform((1.0, level))[1]) * POINT / DPI


def _ends(axes: Axes) -> tuple[float, float]:
    """Lower and upper end of the axes. [1/72 inch]"""
    box, high = axes.get_position(), _page(axes)[1]
    return box.y0 * high, box.y1 * high


def _page(axes: Axes) -> tuple[float, float]:
    """Width and height of the whole. [1/72 inch]"""
    box = axes.figure.bbox
    return box.width * POINT / DPI, box.height * POINT / DPI


def _mark(axes: Axes, spot: tuple[float, float], number: int) -> None:
    """A model's mark at a place on the page, outside the axes too."""
    page = _page(axes)
    axes.plot(
        [spot[0] / page[0]],
        [spot[1] / page[1]],
        SHAPES[number],
        color=LIGHT.contexts[number],
        markersize=MARK,
        transform=axes.figure.transFigure,
        clip_on=False,
        zorder=5,
    )


def _write(axes: Axes, text: str, spot: tuple[float, float]) -> None:
    """A small text that begins at a place on the page."""
    axes.annotate(
        text,
        (0, 0),
        xytext=spot,
        textcoords="figure points",
        va="center",
        ha="left",
        fontsize=NOTE,
        color=LIGHT.ink,
        linespacing=1.1,
        bbox={"boxstyle": "square,pad=0.05", "facecolor": LIGHT.ground, "edgecolor": "none", "alpha": 0.8},
        zorder=6,
        annotation_clip=False,
        parse_math=False,
    )
