"""Predicted over measured as a picture: a strip for each accelerator and engine, a mark for each measured point."""

from __future__ import annotations

import io
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from roofcast.reports.document import plain
from roofcast.reports.plot import DPI, LIGHT, own_style, saved_as

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from roofcast.calculators.validate import PointRow, ValidateResult

WIDTH: Final = 9.0  # [inch]
STRIP: Final = 0.24  # [inch] of a group
FRAME: Final = 1.9  # [inch] of title, axis and legend
MOST: Final = 40  # groups; the rest are put together
LEFT: Final = 0.30  # of the width, names
TICKS: Final = (0.25, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 4.0)
LEAST, GREATEST = 0.22, 4.5  # ratios that are drawn; those beyond stand on the edge
JITTER: Final = 0.3  # of a strip, up and down
#: quantity -> name in the legend, shape, colour by its place in the theme
QUANTITIES: Final = {
    "decode_seconds": ("decode step", "o", 0),
    "prefill_seconds": ("prefill", "s", 1),
    "batch_seconds": ("batch", "D", 2),
    "tpot_seconds": ("TPOT", "^", 3),
    "ttft_seconds": ("TTFT", "v", 4),
    "output_tokens_per_second": ("output rate", "P", 5),
    "total_tokens_per_second": ("total rate", "X", 6),
}


def render_points(result: ValidateResult, ending: str) -> bytes:
    """The chart as a file, `png` or `svg`; the same input gives the same bytes of SVG."""
    out = io.BytesIO()
    with own_style():
        points_chart(result).savefig(out, format=ending, dpi=DPI, metadata=saved_as(ending))
    return out.getvalue()


def points_chart(result: ValidateResult) -> Figure:
    """Expected over measured time of every point that is counted, on a logarithmic axis; 1 is right."""
    groups = _groups([row for row in result.points if row.reason is None])
    height = FRAME + STRIP * max(1, len(groups))
    with own_style():
        figure = Figure((WIDTH, height), dpi=DPI, facecolor=LIGHT.ground)
        bottom, top = 1.0 / height, 1 - 0.75 / height
        axes = figure.add_axes((LEFT, bottom, 0.97 - LEFT, top - bottom), facecolor=LIGHT.ground)
        _frame(axes, list(groups))
        for place, rows in enumerate(groups.values()):
            _strip(axes, place, rows)
        _words(figure, result, height)
        _legend(figure, {row.quantity for rows in groups.values() for row in rows})
    return figure


def _groups(rows: Sequence[PointRow]) -> dict[str, list[PointRow]]:
    """Points by accelerator and engine, the most first."""
    parts: defaultdict[str, list[PointRow]] = defaultdict(list)
    for row in rows:
        parts[plain(f"{row.gpu or '?'} {row.engine or ''}".strip())].append(row)
    ranked = sorted(parts.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    made = dict(ranked[:MOST])
    rest = [row for _, some in ranked[MOST:] for row in some]
    return made | ({f"{len(ranked) - MOST} others": rest} if rest else {})


def ratio_of(row: PointRow) -> float:
    """Expected over measured time; of rates the inverse, so that above 1 is always slower than it was."""
    made = (row.expected or row.measured) / row.measured
    return made if row.quantity.endswith("_seconds") else 1 / made


def _frame(axes: Axes, names: Sequence[str]) -> None:
    axes.set(xscale="log", xlim=(LEAST, GREATEST), ylim=(len(names) - 0.5, -0.5))
    axes.xaxis.set_major_locator(FixedLocator(TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(FixedLocator(()))
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.tick_params(colors=LIGHT.ink, labelsize=8, length=0, axis="y")
    axes.tick_params(colors=LIGHT.ink, labelsize=8, axis="x")
    axes.axvspan(0.8, 1.25, color=LIGHT.faint, alpha=0.12, linewidth=0)
    axes.axvspan(1 / 1.1, 1.1, color=LIGHT.faint, alpha=0.16, linewidth=0)
    axes.axvline(1.0, color=LIGHT.ink, linewidth=0.8)
    axes.grid(visible=True, axis="y", color=LIGHT.faint, alpha=0.25, linewidth=0.5)
    axes.set_xlabel("expected / measured time (left: quicker than measured; right: slower)", fontsize=9)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _strip(axes: Axes, place: int, rows: Sequence[PointRow]) -> None:
    """Marks of a group, a little apart in height, and the median as a line."""
    for number, row in enumerate(sorted(rows, key=lambda row: (row.quantity, row.source, row.id or "", row.measured))):
        _, shape, colour = QUANTITIES[row.quantity]
        offset = JITTER * ((number * 0.618) % 1 * 2 - 1)  # the golden ratio spreads them evenly
        ratio = min(GREATEST, max(LEAST, ratio_of(row)))
        axes.plot(
            ratio, place + offset, shape, color=LIGHT.contexts[colour], markersize=3.2, alpha=0.75, markeredgewidth=0,
            clip_on=False,
        )  # fmt: skip
    middle = statistics.median(map(ratio_of, rows))
    axes.plot([middle, middle], [place - 0.42, place + 0.42], color=LIGHT.ink, linewidth=1.6)


def _words(figure: Figure, result: ValidateResult, height: float) -> None:
    whole = result.summary[0] if result.summary else None
    said = (
        f"{whole.points:,} points, median error {whole.median_error:.1%}, 90 % below {whole.p90_error:.0%}, "
        f"{whole.inside_interval:.0%} inside their 80 % interval"
        if whole
        else "no point can be predicted"
    )
    figure.text(0.02, 1 - 0.28 / height, "Expected against measured", fontsize=12, weight="bold", color=LIGHT.ink)
    figure.text(0.02, 1 - 0.52 / height, said, fontsize=9, color=LIGHT.ink)


def _legend(figure: Figure, quantities: set[str]) -> None:
    marks = [
        Line2D([], [], linestyle="", marker=shape, color=LIGHT.contexts[colour], label=name, markersize=5)
        for key, (name, shape, colour) in QUANTITIES.items()
        if key in quantities
    ]
    marks.append(Line2D([], [], color=LIGHT.ink, linewidth=1.6, label="median"))
    figure.legend(handles=marks, loc="lower center", ncols=len(marks), fontsize=8, frameon=False)
