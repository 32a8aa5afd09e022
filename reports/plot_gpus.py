"""Accelerators beside one another as a picture: what each has, and what a model makes of it, over the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib.lines import Line2D

from roofcast.calculators.compare import EXPECTED
from roofcast.reports.chart import POINT
from roofcast.reports.gpus import gain, quantities_of, value_words
from roofcast.reports.numbers import context_name, ratio
from roofcast.reports.plot_card import NOTE, TEXT, WIDTH, Words, card
from roofcast.reports.plot_style import LIGHT, cut, known, own_style
from roofcast.reports.plot_sweep import plain_ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from roofcast.calculators.compare import Compared, GpuCompared
    from roofcast.reports.gpus import Quantity

SHAPES: Final = ("o", "s", "D", "^", "v")
SLOT: Final = 12.5  # points of one GPU's mark, upright
BETWEEN: Final = 9.0  # points between quantities
FRAME: Final = 128.0  # points of title, legend, axis and caption
LEFT: Final = 92.0  # points of the names
VALUE: Final = 120.0  # points of a value beside its mark
LONGEST: Final = 22  # characters of a name
ROW: Final = 3  # names of the legend in a row
LEGEND_ROW: Final = 14.0  # points
LEAST_SPAN: Final = 1.3  # of the ratios that the axis shows


def gpus_chart(compared: Compared) -> Figure:
    """Every quantity over the first GPU's, better to the right, values beside the marks."""
    rows, quantities = compared.rows, quantities_of(compared)
    legend = -(-len(rows) // ROW) * LEGEND_ROW
    high = len(quantities) * (len(rows) * SLOT + BETWEEN)
    with own_style():
        figure, axes = card(_words(compared), height=(FRAME + legend + high) / POINT, left=LEFT)
        box = axes.get_position()
        axes.set_position((box.x0, box.y0, box.width, box.height - legend / POINT / figure.get_figheight()))
        _frame(axes, compared, quantities)
        for place, quantity in enumerate(quantities):
            _quantity(axes, compared, quantity, place)
        _legend(axes, rows)
    return figure


def base_of(compared: Compared, quantity: Quantity) -> GpuCompared | None:
    """What a quantity is held against: the first GPU that has it."""
    return next((row for row in compared.rows if quantity.of(row)), None)


def names_of(rows: Sequence[GpuCompared]) -> list[str]:
    """Names of all, printable, with how many each is."""
    return [known(cut(f"{row.gpus} x {row.gpu}" if row.gpus > 1 else row.gpu, LONGEST)) for row in rows]


def _words(compared: Compared) -> Words:
    names = names_of(compared.rows)
    first = names[0]
    title = f"{names[1]} against {first}" if len(names) == 2 else f"{len(names) - 1} GPUs against {first}"  # noqa: PLR2004
    times = "Expected times" if compared.basis == EXPECTED else "Least times (bounds)"
    lacking = any(base_of(compared, one) is not compared.rows[0] for one in quantities_of(compared))
    other = " Where the first has none, over the next." if lacking else ""
    return Words(
        title,
        f"{cut(compared.model, 40)}: {compared.batch:,} at once, {context_name(compared.context)} tokens each, "
        f"prompts of {context_name(compared.prompt)}",
        f"{times}. Right is better: times are inverted. Bold: what the device has; below it what mostly follows.{other}",
    )


def _frame(axes: Axes, compared: Compared, quantities: Sequence[Quantity]) -> None:
    """A ratio axis with room for values, and a name a quantity, bold of facts."""
    gains = [
        made
        for quantity in quantities
        if (base := base_of(compared, quantity))
        for row in compared.rows
        if (made := gain(quantity, row, base)) is not None
    ]
    least, most = min([1.0, *gains]), max([LEAST_SPAN, *gains])
    wide = WIDTH * POINT - LEFT - 12
    left = least / (most / least) ** 0.06
    right = left * (most / left) ** (wide / (wide - VALUE))
    axes.set(xscale="log", xlim=(left, right), ylim=(len(quantities), 0))
    plain_ticks(axes.xaxis, left, most * 1.02, "x")
    axes.set_xlabel(f"times as good as {names_of(compared.rows)[0]}", fontsize=TEXT, color=LIGHT.ink, parse_math=False)
    axes.set_yticks([place + 0.5 for place in range(len(quantities))], [one.name(compared) for one in quantities])
    for label, quantity in zip(axes.get_yticklabels(), quantities, strict=True):
        label.set(weight="normal" if quantity.follows else "bold", fontsize=TEXT)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.axvline(1.0, color=LIGHT.ink, linewidth=0.8, zorder=2)


def _quantity(axes: Axes, compared: Compared, quantity: Quantity, place: int) -> None:
    """A mark a GPU, one below the other, each with a line from 1 and its value."""
    rows, base = compared.rows, base_of(compared, quantity)
    if not quantity.follows:
        axes.axhspan(place, place + 1, color=LIGHT.faint, alpha=0.14, linewidth=0, zorder=0)
    step = SLOT / (len(rows) * SLOT + BETWEEN)
    for number, row in enumerate(rows):
        y = place + 0.5 + (number - (len(rows) - 1) / 2) * step
        better = gain(quantity, row, base) if base else None
        colour, shape = _look(number)
        if better is not None:
            axes.plot([1.0, better], [y, y], color=colour, linewidth=1.6, alpha=0.6, zorder=2)
            axes.plot([better], [y], marker=shape, color=colour, markersize=6, linestyle="none", zorder=3)
        said = value_words(quantity, row) + ("" if better in {None, 1.0} else f"  {ratio(better)}x")
        _value(axes, said, (max(better or 1.0, 1.0), y))


def _look(number: int) -> tuple[str, str]:
    """Colour and shape of a GPU by its place."""
    return LIGHT.contexts[number % len(LIGHT.contexts)], SHAPES[number % len(SHAPES)]


def _value(axes: Axes, text: str, spot: tuple[float, float]) -> None:
    axes.annotate(
        known(text), spot, xytext=(7, 0), textcoords="offset points", ha="left", va="center", fontsize=NOTE,
        color=LIGHT.ink, annotation_clip=False, parse_math=False, zorder=4,
    )  # fmt: skip


def _legend(axes: Axes, rows: Sequence[GpuCompared]) -> None:
    """Which shape and colour is which GPU, above the rows."""
    handles = [
        Line2D([], [], marker=shape, color=colour, linestyle="none", markersize=6, label=name)
        for number, name in enumerate(names_of(rows))
        for colour, shape in [_look(number)]
    ]
    down = [handle for column in range(ROW) for handle in handles[column::ROW]]  # legends fill columns
    legend = axes.legend(
        handles=down, loc="lower left", bbox_to_anchor=(-LEFT / (WIDTH * POINT - LEFT - 12), 1.0), ncols=ROW,
        fontsize=TEXT, labelcolor=LIGHT.ink, frameon=False, borderaxespad=0.2, borderpad=0, handletextpad=0.3,
        columnspacing=1.2,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
