"""A small chart that reads without its page: title, what it is of, axes, caption; two side by side, or one on a telephone."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from matplotlib.figure import Figure

from roofcast.reports.chart import POINT, width_of
from roofcast.reports.plot_style import DPI, LIGHT, known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

WIDTH: Final = 4.8  # [inch]
HEIGHT: Final = 3.8  # [inch]
TITLE: Final = 11.0  # points
TEXT: Final = 9.0
NOTE: Final = 8.0  # the smallest text
LINE: Final = 1.3  # of a line over its letters
EDGE: Final = 6.0  # points between text and the edge
BELOW: Final = 36.0  # points of the numbers and the name of the axis
MOST_LINES: Final = 3  # of a title
NARROW: Final = 44  # characters of a line between the axes


@dataclass(frozen=True, slots=True)
class Words:
    """What stands above and below the axes.

    Args:
        title: what the chart says, or is of.
        subtitle: of which model, device and load.
        caption: how to read it.
    """

    title: str
    subtitle: str = ""
    caption: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """The name of a line, right of where it ends.

    Args:
        y: where it ends, in the units of its axis.
        text: its name.
        colour: its own.
    """

    y: float
    text: str
    colour: str


def card(words: Words, *, height: float = HEIGHT, left: float = 52.0, right: float = 12.0) -> tuple[Figure, Axes]:
    """A figure with its texts, and the axes between them.

    Args:
        words: title, subtitle and caption, broken into lines here; names from outside are made printable.
        height: of the whole. [inch]
        left: room for the numbers of the upright axis. [1/72 inch]
        right: room for names of lines. [1/72 inch]
    """
    figure = Figure((WIDTH, height), dpi=DPI, facecolor=LIGHT.ground)
    page = WIDTH * POINT, height * POINT
    top = page[1] - EDGE
    for text, size, weight in ((words.title, TITLE, "bold"), (words.subtitle, TEXT, "normal")):
        top = _lines(figure, broken(text, size), (top, size, weight))
    caption = broken(words.caption, NOTE)
    bottom = EDGE + len(caption) * NOTE * LINE
    _lines(figure, caption, (bottom, NOTE, "normal"))
    low, high = bottom + BELOW, top - EDGE
    width, height = page
    box = left / width, low / height, (width - left - right) / width, (high - low) / height
    return figure, axes_at(figure, box)


def axes_at(figure: Figure, box: tuple[float, float, float, float]) -> Axes:
    """Axes as all cards have them, in a place of the page: left, bottom, width and height in shares of it."""
    axes = figure.add_axes(box, facecolor=LIGHT.ground)
    axes.tick_params(which="both", colors=LIGHT.ink, labelsize=TEXT)
    axes.grid(visible=True, which="major", color=LIGHT.faint, alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in {"left", "bottom"})
        spine.set_color(LIGHT.faint)
    return axes


def say_instead(axes: Axes, text: str) -> None:
    """Writes why nothing is drawn where it would be."""
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.text(
        0.0, 0.9, "\n".join(wrap(known(text), NARROW)), transform=axes.transAxes, va="top", fontsize=TEXT,
        color=LIGHT.ink, parse_math=False,
    )  # fmt: skip


def broken(text: str, size: float) -> list[str]:
    """A text in lines as wide as a card; the last of too many ends in dots.

    >>> [len(line) < 60 for line in broken("KV cache of a sequence against its context, and the weights", TITLE)]
    [True, True]
    """
    room = int((WIDTH * POINT - 2 * EDGE) / width_of("x", size))
    lines = wrap(known(text), room)
    return lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], lines[MOST_LINES - 1][: room - 3] + "..."]


def _lines(figure: Figure, lines: Sequence[str], style: tuple[float, float, str]) -> float:
    """Writes lines from a height down; returns where the next begins. [1/72 inch]"""
    top, size, weight = style
    for line in lines:
        figure.text(
            EDGE / WIDTH / POINT,
            top / figure.get_figheight() / POINT,
            line,
            fontsize=size,
            weight=weight,
            color=LIGHT.ink,
            va="top",
            parse_math=False,
        )
        top -= size * LINE
    return top


def name_axes(axes: Axes, across: str, up: str) -> None:
    """Names of both axes, with their units."""
    axes.set_xlabel(across, fontsize=TEXT, color=LIGHT.ink)
    axes.set_ylabel(up, fontsize=TEXT, color=LIGHT.ink)


def name_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Names of lines at their right ends, moved apart where they would cover one another; call it when limits are set."""
    point = POINT / DPI
    right, within = axes.bbox.x1 * point + 4, (axes.bbox.y0 * point, axes.bbox.y1 * point)
    wanted = [axes.transData.transform((1.0, end.y))[1] * point for end in ends]
    for end, height in zip(ends, spread(wanted, TEXT * 1.15, within), strict=True):
        axes.annotate(
            known(end.text),
            (0, 0),
            xytext=(right, height),
            textcoords="figure points",
            va="center",
            ha="left",
            fontsize=TEXT,
            color=end.colour,
            annotation_clip=False,
            parse_math=False,
        )


def spread(wanted: Sequence[float], step: float, ends: tuple[float, float]) -> list[float]:
    """Heights at least a step apart, as wanted where they may be, between both ends where there is room.

    >>> spread([5, 5, 1], 2, (0, 20)), spread([9, 9, 9], 2, (0, 10))
    ([5, 7, 1], [6, 8, 10])
    """
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    heights = [wanted[place] for place in order]
    heights[0:1] = [max(ends[0], height) for height in heights[0:1]]
    for place in range(1, len(heights)):
        heights[place] = max(heights[place], heights[place - 1] + step)
    heights[-1:] = [min(ends[1], height) for height in heights[-1:]]
    for place in range(len(heights) - 2, -1, -1):
        heights[place] = min(heights[place], heights[place + 1] - step)
    found = dict(zip(order, heights, strict=True))
    return [found[place] for place in range(len(wanted))]
