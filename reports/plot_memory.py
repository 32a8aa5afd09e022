"""Memory of one device as a picture: a bar a context, of what takes it when as many sequences run as fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from matplotlib.colors import to_rgba
from matplotlib.legend_handler import HandlerTuple
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from roofcast.reports.chart import POINT, width_of
from roofcast.reports.fit import cache_of, engine_of, verdict_of
from roofcast.reports.numbers import GIB, context_name, figures, sequences
from roofcast.reports.plot_card import (
    BELOW,
    EDGE,
    LINE,
    NOTE,
    TEXT,
    TITLE,
    WIDTH,
    Words,
    broken,
    card,
)
from roofcast.reports.plot_style import LIGHT, cut, known, own_style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from roofcast.calculators.fit import FitContext, FitResult

MOST_BARS: Final = 12
BAR: Final = 30.0  # points a bar, gap included
THICK: Final = 0.62  # of that
CELL: Final = 3.0  # points of one sequence from which on they are drawn apart
TINT: Final = 0.4  # of a part's colour in its bar
SLACK: Final = 1e-6  # of the memory that rounding may take
MIDDLE: Final = 0.5  # of the axis; lines right of it are named to their left
COLUMNS: Final = 3  # of the legend, at most
ENTRY: Final = NOTE * 1.7  # of one of its rows
KEY: Final = 26.0  # points of an entry beside its name
LETTER: Final = 0.57  # width of a letter of it in heights, at most
LONGEST: Final = 40  # characters of a name
ROWS: Final = 2  # of names of lines


@dataclass(frozen=True, slots=True)
class Part:
    """What takes a part of a bar.

    Args:
        kind: a row of `LOOKS`.
        size: of it. [B]
    """

    kind: str
    size: float


@dataclass(frozen=True, slots=True)
class Look:
    """How a part is drawn.

    Args:
        name: in the legend.
        colour: its own.
        hatch: told apart without colour.
        same: whether it is the same in every bar, so that the legend tells its size.
    """

    name: str
    colour: str
    hatch: str = ""
    same: bool = True


LOOKS: Final = {
    "weights": Look("weights", LIGHT.contexts[0]),
    "activation": Look("activations", LIGHT.contexts[4], "----"),
    "overhead": Look("engine", LIGHT.contexts[3], "xxxx"),
    "kv": Look("KV cache in use", LIGHT.contexts[2], same=False),
    "left": Look("cache left over", LIGHT.ground, same=False),
    "missing": Look("a sequence: no room", LIGHT.contexts[1], "////", same=False),
    "reserve": Look("reserve", LIGHT.faint, "\\\\\\\\"),
    "free": Look("not used", LIGHT.faint, "\\\\\\\\"),
}


def memory_chart(result: FitResult) -> Figure:
    """One device's memory, a bar a context: weights, activations, engine, the cache of the most sequences, what is left."""
    rows = _shown(result)
    bars = [parts_of(result, row) for row in rows]
    words = _words(result, len(rows))
    names = [_bar_name(row) for row in rows]
    left = 10 + max(width_of(line, TEXT) for name in names for line in name.split("\n"))
    with own_style():
        entries = _entries(bars)
        columns = _columns(list(entries))
        above = -(-len(entries) // columns) * ENTRY + ROWS * NOTE * LINE + 4
        figure, axes = card(words, height=_height(words, above + BAR * len(rows)), left=left, right=20.0)
        box = axes.get_position()
        axes.set_position((box.x0, box.y0, box.width, box.height - above / figure.get_figheight() / POINT))
        _legend(figure, entries, columns, box.y1)
        _scale(axes, result, bars, names)
        for place, (row, parts) in enumerate(zip(rows, bars, strict=True)):
            _bar(axes, place, parts, row)
        _lines(axes, result)
    return figure


def _shown(result: FitResult) -> list[FitContext]:
    """Contexts that have a bar: all, or the first and the last of many."""
    if len(result.contexts) <= MOST_BARS:
        return list(result.contexts)
    return [*result.contexts[: MOST_BARS - 1], result.contexts[-1]]


def parts_of(result: FitResult, row: FitContext) -> list[Part]:
    """What takes the memory of one device with as many sequences of a context as fit; together all of it where one does. [B]

    Where none does, what it would take: the parts run past the memory.
    """
    memory, cache = result.memory, cache_of(result)
    weights, activation = Part("weights", memory.weight_bytes), Part("activation", memory.activation_bytes)
    engine = Part("overhead", engine_of(result))
    fixed = [weights, activation, engine]
    if row.max_sequences == 0 and row.kv_bytes_per_sequence > cache:
        return _there([*fixed, Part("missing", row.kv_bytes_per_sequence)], memory.total_bytes)
    rest = Part("free" if result.engine != "none" else "reserve", memory.total_bytes - cache - _sum(fixed))
    used = min(cache, row.max_sequences * row.kv_bytes_per_sequence)
    held = [Part("kv", used), Part("left", cache - used)]
    if budget_ends(result) < _sum(fixed) + cache - SLACK * memory.total_bytes:  # it is of weights and cache alone
        return _there([weights, activation, *held, engine, rest], memory.total_bytes)
    return _there([*fixed, *held, rest], memory.total_bytes)


def _there(parts: Sequence[Part], memory: float) -> list[Part]:
    """Parts that take something."""
    return [part for part in parts if part.size > SLACK * memory]


def _sum(parts: Sequence[Part]) -> float:
    return sum(part.size for part in parts)


def budget_ends(result: FitResult) -> float:
    """What weights, activations and cache may take together. [B]"""
    return min(result.memory.budget_bytes, result.memory.total_bytes)


def _bar_name(row: FitContext) -> str:
    """How many sequences of which context."""
    return f"{sequences(row.max_sequences)}\nof {context_name(row.context)}"


def _words(result: FitResult, shown: int) -> Words:
    """Verdict, whose memory, and how to read it."""
    on = result.gpu if result.gpus == 1 else f"{result.gpus} x {result.gpu}"
    engine = "no engine" if result.engine == "none" else f"{result.engine} {result.engine_version or ''}".strip()
    caption = (
        "A bar: one GPU's memory while as many sequences of that length run as fit. They share the weights; each has a "
        "cache of its own, parted by strokes where there is room."
    )
    if shown < len(result.contexts):
        caption += f" {len(result.contexts) - shown} more contexts have no bar."
    verdict = "fits" if result.fits else "does not fit"
    title = f"{cut(known(result.model), LONGEST)} {verdict} on {on}"
    return Words(title, f"{verdict_of(result)}; {engine}", caption)


def _height(words: Words, middle: float) -> float:
    """Of a card with so much between its texts. [inch]"""
    texts = ((words.title, TITLE), (words.subtitle, TEXT), (words.caption, NOTE))
    return (sum(len(broken(text, size)) * size * LINE for text, size in texts) + 3 * EDGE + BELOW + middle) / POINT


def _scale(axes: Axes, result: FitResult, bars: Sequence[Sequence[Part]], names: Sequence[str]) -> None:
    """GiB to the right, a bar a context downward."""
    most = max(result.memory.total_bytes, *(_sum(parts) for parts in bars))
    axes.set(xlim=(0, most / GIB * 1.02), ylim=(len(bars) - 0.5, -0.5))
    axes.set_yticks(range(len(names)), list(names), fontsize=TEXT, color=LIGHT.ink, linespacing=1.05)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlabel("memory of one GPU [GiB]", fontsize=TEXT, color=LIGHT.ink)


def _bar(axes: Axes, place: int, parts: Sequence[Part], row: FitContext) -> None:
    """Parts beside one another, with their sizes where these have room."""
    points = axes.get_position().width * WIDTH * POINT / axes.get_xlim()[1]  # of a GiB
    start = 0.0
    for part in parts:
        size, look = part.size / GIB, LOOKS[part.kind]
        for fill, edge, hatch in _layers(look):
            axes.barh(place, size, THICK, start, facecolor=fill, edgecolor=edge, hatch=hatch, linewidth=0.8, zorder=2)
        each = row.kv_bytes_per_sequence / GIB
        if part.kind == "kv" and each * points >= CELL:
            ends = [start + each * number for number in range(1, row.max_sequences)]
            axes.vlines(ends, place - THICK / 2, place + THICK / 2, color=look.colour, linewidth=0.8, zorder=3)
        text = figures(size)
        if width_of(text, NOTE) + 2 <= size * points:
            _size(axes, text, (start + size / 2, place))
        start += size


def _size(axes: Axes, text: str, at: tuple[float, float]) -> None:
    """A size in its part."""
    box = {"boxstyle": "square,pad=0.1", "facecolor": LIGHT.ground, "edgecolor": "none", "alpha": 0.7}
    axes.text(*at, text, fontsize=NOTE, color=LIGHT.ink, ha="center", va="center", bbox=box, zorder=4)


def _layers(look: Look) -> list[tuple[tuple[float, float, float, float] | str, str, str]]:
    """Fill, edge and hatch of a part: a tint, and its hatch over that, since SVG would tint both; nothing of what is left."""
    if look.colour == LIGHT.ground:
        return [(look.colour, LIGHT.faint, "")]
    tint = (to_rgba(look.colour, TINT), look.colour, "")
    return [tint, ("none", look.colour, look.hatch)] if look.hatch else [tint]


def _entries(bars: Sequence[Sequence[Part]]) -> dict[str, tuple[Patch, ...]]:
    """The parts that there are, by name, with sizes where these are the same in every bar."""
    sizes = {part.kind: part.size for parts in bars for part in parts}
    return {
        f"{look.name} {figures(sizes[kind] / GIB)} GiB" if look.same else look.name: tuple(
            Patch(facecolor=fill, edgecolor=edge, hatch=hatch, linewidth=0.8) for fill, edge, hatch in _layers(look)
        )
        for kind, look in LOOKS.items()
        if kind in sizes
    }


def _columns(names: Sequence[str]) -> int:
    """Columns of the legend, as many as there is room for."""
    for columns in range(COLUMNS, 1, -1):
        each = -(-len(names) // columns)
        wide = sum(max(map(len, names[start : start + each])) for start in range(0, len(names), each))
        if wide * NOTE * LETTER + columns * KEY <= WIDTH * POINT - 2 * EDGE:
            return columns
    return 1


def _legend(figure: Figure, entries: Mapping[str, tuple[Patch, ...]], columns: int, top: float) -> None:
    """Names of the parts, below the texts."""
    figure.legend(
        cast("list[Artist]", list(entries.values())),  # tuples, drawn one over the other
        list(entries),
        handler_map={tuple: HandlerTuple(1)},
        loc="upper left",
        bbox_to_anchor=(EDGE / WIDTH / POINT, top),
        ncols=columns,
        fontsize=NOTE,
        labelcolor=LIGHT.ink,
        frameon=False,
        borderaxespad=0,
        borderpad=0,
        handlelength=1.6,
        handletextpad=0.6,
        columnspacing=1.0,
    )


def _lines(axes: Axes, result: FitResult) -> None:
    """The whole memory, and below it the budget, named above the bars."""
    memory = result.memory
    sold = "memory as sold" if result.engine == "none" else "memory"
    lines: list[tuple[float, str, str]] = [(memory.total_bytes, sold, "-")]
    if budget_ends(result) < memory.total_bytes * (1 - SLACK):
        lines.append((budget_ends(result), "budget", "--"))
    for number, (size, name, style) in enumerate(lines):
        axes.axvline(size / GIB, color=LIGHT.ink, linewidth=1.3, linestyle=style, zorder=3)
        right = size / GIB > axes.get_xlim()[1] * MIDDLE
        axes.annotate(
            f"{name} {figures(size / GIB)} GiB",
            (size / GIB, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(2 if right else -2, 2 + (len(lines) - 1 - number) * NOTE * LINE),
            textcoords="offset points",
            ha="right" if right else "left",
            va="bottom",
            fontsize=NOTE,
            color=LIGHT.ink,
            annotation_clip=False,
        )
