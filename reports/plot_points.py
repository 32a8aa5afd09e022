"""Predicted over measured as a picture: a strip for each accelerator and engine, a mark for each measured point."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from roofcast.reports.document import plain
from roofcast.reports.plot_style import DPI, LIGHT, own_style

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.axes import Axes

    from roofcast.calculators.validate import PointRow, ValidateResult

WIDTH: Final = 9.0  # [inch]
STRIP: Final = 0.24  # [inch] of a group
LEAST_STRIPS: Final = 0.6  # [inch] of all groups
FRAME: Final = 1.9  # [inch] of title, axis and legend
MOST: Final = 24  # groups; the rest are put together
FEW: Final = 3  # points of a group from which on its median is drawn, and points that stand alone where groups are many
BARS: Final = 40  # points at most whose intervals are drawn
LEFT: Final = 0.30  # of the width, names
LONGEST: Final = 38  # characters of one
TICKS: Final = (0.25, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 4.0)
LEAST, GREATEST = 0.22, 4.5  # ratios that are drawn; those beyond stand on the edge
ROW: Final = 8  # entries of the legend in one row
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


def points_chart(result: ValidateResult) -> Figure:
    """Expected over measured time of every point that is counted, on a logarithmic axis; 1 is right."""
    groups = _groups([row for row in result.points if row.reason is None])
    height = FRAME + max(LEAST_STRIPS, STRIP * len(groups))
    with own_style():
        figure = Figure((WIDTH, height), dpi=DPI, facecolor=LIGHT.ground)
        bottom, top = 1.0 / height, 1 - 0.75 / height
        axes = figure.add_axes((LEFT, bottom, 0.97 - LEFT, top - bottom), facecolor=LIGHT.ground)
        _frame(axes, list(groups), result.error_of)
        for place, rows in enumerate(groups.values()):
            _strip(axes, place, rows, bars=result.counted <= BARS)
        _words(figure, result, height)
        _legend(figure, groups.values())
    return figure


def _groups(rows: Sequence[PointRow]) -> dict[str, list[PointRow]]:
    """Points by accelerator and engine, the most first; beyond `MOST` groups, and of these those of few points, as one."""
    parts: defaultdict[str, list[PointRow]] = defaultdict(list)
    for row in rows:
        parts[plain(f"{row.gpu or '?'} {row.engine or ''}".strip())].append(row)
    ranked = sorted(parts.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    shown = [pair for pair in ranked[:MOST] if len(ranked) <= MOST or len(pair[1]) >= FEW]
    rest = [row for _, some in ranked[len(shown) :] for row in some]
    made = {f"{name}  {len(some):,}": some for name, some in shown}
    return made | ({f"{len(ranked) - len(shown)} others  {len(rest):,}": rest} if rest else {})


def ratio_of(row: PointRow, value: float | None = None) -> float:
    """What is held against the measured time, over it; of rates the inverse: above 1 is always slower than it was.

    Args:
        row: of a point.
        value: another one of its quantity, such as an end of its interval.
    """
    made = 1 + (row.error or 0.0) if value is None else value / row.measured
    return made if row.quantity.endswith("_seconds") else 1 / made


def short(name: str) -> str:
    """A name that fits beside its strip; its end, which says how many points there are, stays."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 9]}...{name[-6:]}"


def _frame(axes: Axes, names: Sequence[str], of: str) -> None:
    axes.set(xscale="log", xlim=(LEAST, GREATEST), ylim=(max(1, len(names)) - 0.5, -0.5))
    axes.xaxis.set_major_locator(FixedLocator(TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(FixedLocator(()))
    axes.set_yticks(range(len(names)), [short(name) for name in names], fontsize=8, parse_math=False)
    axes.tick_params(colors=LIGHT.ink, labelsize=8, length=0, pad=9, axis="y")
    axes.tick_params(colors=LIGHT.ink, labelsize=8, axis="x")
    axes.axvspan(0.8, 1.25, color=LIGHT.faint, alpha=0.12, linewidth=0)
    axes.axvspan(1 / 1.1, 1.1, color=LIGHT.faint, alpha=0.16, linewidth=0)
    axes.axvline(1.0, color=LIGHT.ink, linewidth=0.8)
    axes.grid(visible=True, axis="y", color=LIGHT.faint, alpha=0.25, linewidth=0.5)
    axes.set_xlabel(f"{of} / measured time (left: quicker than measured; right: slower)", fontsize=9)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _strip(axes: Axes, place: int, rows: Sequence[PointRow], *, bars: bool) -> None:
    """Marks of a group, a little apart in height, their intervals where `bars`, and the median of several as a line."""
    for number, row in enumerate(sorted(rows, key=lambda row: (row.quantity, row.source, row.id or "", row.measured))):
        _, shape, colour = QUANTITIES[row.quantity]
        offset = JITTER * ((number * 0.618) % 1 * 2 - 1)  # the golden ratio spreads them evenly
        ink, height = LIGHT.contexts[colour], place + offset
        if bars and row.low is not None and row.high is not None:
            ends = [within(ratio_of(row, end)) for end in (row.low, row.high)]
            axes.plot(ends, [height, height], color=ink, linewidth=1.0, alpha=0.5)
        axes.plot(
            within(ratio_of(row)), height, shape, color=ink, markersize=5.0 if bars else 3.6, alpha=0.8, markeredgewidth=0,
            clip_on=False,
        )  # fmt: skip
    if len(rows) >= FEW:
        middle = within(statistics.median(map(ratio_of, rows)))
        axes.plot([middle, middle], [place - 0.42, place + 0.42], color=LIGHT.ink, linewidth=1.6)


def within(ratio: float) -> float:
    """A ratio, at most at the edge."""
    return min(GREATEST, max(LEAST, ratio))


def _words(figure: Figure, result: ValidateResult, height: float) -> None:
    whole = result.summary[0] if result.summary else None
    said = "no point can be predicted"
    if whole:
        inside = whole.inside_interval
        said = (
            f"{whole.points:,} point{'s' if whole.points > 1 else ''}, median error {whole.median_error:.1%}, 90 % below "
            f"{whole.p90_error:.0%}" + ("" if inside is None else f", {inside:.0%} inside their 80 % interval")
        )
    beyond = sum(within(ratio) != ratio for ratio in map(ratio_of, (r for r in result.points if r.reason is None)))
    said += f"; {beyond:,} stand on the edge, being farther off" if beyond else ""
    title = f"{result.error_of.capitalize()} against measured"
    figure.text(0.02, 1 - 0.28 / height, title, fontsize=12, weight="bold", color=LIGHT.ink)
    figure.text(0.02, 1 - 0.52 / height, said, fontsize=9, color=LIGHT.ink)


def _legend(figure: Figure, groups: Collection[Sequence[PointRow]]) -> None:
    """The marks that there are, the median where one is drawn, and what the bands are, in one row or two."""
    quantities = {row.quantity for rows in groups for row in rows}
    marks = [
        Line2D([], [], linestyle="", marker=shape, color=LIGHT.contexts[colour], label=name, markersize=5)
        for key, (name, shape, colour) in QUANTITIES.items()
        if key in quantities
    ]
    if any(len(rows) >= FEW for rows in groups):
        marks.append(Line2D([], [], color=LIGHT.ink, linewidth=1.6, label="median"))
    bands = [
        Patch(color=LIGHT.faint, alpha=alpha, linewidth=0, label=name)
        for name, alpha in (("within 10 %", 0.28), ("within 25 %", 0.12))
    ]
    handles = [*marks, *bands]
    figure.legend(handles=handles, loc="lower center", ncols=min(ROW, len(handles)), fontsize=8, frameon=False)
