"""Decode over the number of sequences as pictures: time of a step under its limits, and what tokens/s cost in latency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from roofcast.reports.chart import POINT
from roofcast.reports.deployed import on_devices
from roofcast.reports.numbers import context_name, figures
from roofcast.reports.plot_card import NOTE, TEXT, End, Words, card, name_axes, name_ends, say_instead
from roofcast.reports.plot_style import DPI, LIGHT, cut, known, own_style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from roofcast.calculators.sweep import Sweep, SweepPoint

SWEEP_TITLE: Final = "Decode step against sequences at once"
LATENCY_TITLE: Final = "Throughput against latency"
MS: Final = 1e3
LONGEST: Final = 40  # characters of a model's name
APART: Final = 15.0  # points between labels of batches
LETTERS: Final = 40  # of all numbers of the level axis together
MOST_TICKS: Final = 8
#: decades of an axis -> where its ticks stand in each
STEPS: Final = {0.45: (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0), 1.6: (1.0, 2.0, 5.0), 2.8: (1.0, 3.0), math.inf: (1.0,)}
BESIDE: Final = 0.09  # of the axis beyond the last batch
ALONE: Final = 1.6  # of a batch to both sides where there is but one
UNDER: Final = 10.0  # of the least bound that the axis reaches down
#: limit -> colour, by its place in the theme
LIMITS: Final = {"memory": 0, "arithmetic": 1, "links": 3}
EXPECTED: Final = 2
BOUND_NAMES: Final = ("bound", "expected")
RING: Final = 1  # colour of the point within the limit, by its place in the theme
RINGED: Final = "within the limit"
DASHED: Final = (0, (5, 3))
HALF: Final = 0.5  # of the axes' width
ACROSS: Final = ("left", "right")
CORNER: Final = 0.36  # of the axes' height, that a legend takes


@dataclass(frozen=True, slots=True)
class Note:
    """A text near a place of the data.

    Args:
        text: what it says.
        spot: the place, in units of the axes.
        offset: from there. [1/72 inch]
        across, up: which side of the text that is.
        rotation: of the text. [degree]
        weight: normal or bold.
    """

    text: str
    spot: tuple[float, float]
    offset: tuple[float, float]
    across: str = "left"
    up: str = "bottom"
    rotation: float = 0.0
    weight: str = "normal"


def sweep_chart(sweep: Sweep) -> Figure:
    """Time of a decode step over sequences at once: each limit alone, the bound, the expected time with its interval."""
    with own_style():
        figure, axes = card(_sweep_words(sweep), right=70)
        if not sweep.fitting:
            _nothing(axes, sweep)
            return figure
        name_axes(axes, "sequences at once", "decode step [ms]")
        points = sweep.fitting
        lines = _limits(points)
        _frame(axes, sweep, lines)
        ends = [_line(axes, points, name, values) for name, values in lines.items()]
        ends.append(_bound(axes, points))
        ends += _expected(axes, points) if sweep.fitted else []
        _room(axes, sweep)
        _level(axes, sweep)
        name_ends(axes, ends)
    return figure


def latency_chart(sweep: Sweep) -> Figure:
    """Tokens a second of the deployment over the time that each token takes, a point a batch."""
    with own_style():
        figure, axes = card(_latency_words(sweep), left=58)
        if not sweep.fitting:
            _nothing(axes, sweep)
            return figure
        name_axes(axes, "time per output token [ms]", "tokens/s of all sequences")
        _latency_frame(axes, sweep)
        _joined(axes, sweep)
        for name in BOUND_NAMES[: 1 + sweep.fitted]:
            _curve(axes, sweep.fitting, name)
        _batches(axes, sweep)
        _limit(axes, sweep)
        _legend(axes, sweep)
    return figure


def plain_ticks(axis: Axis, least: float, most: float, unit: str = "", ticks: int = MOST_TICKS) -> None:
    """Numbers without exponents on a logarithmic axis, so many at most, as close as its length allows."""
    decades = math.log10(most / least)
    steps = next(steps for most_decades, steps in STEPS.items() if decades < most_decades)
    powers = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    every = [step * 10.0**power for power in powers for step in steps]
    inside = [value for value in every if least <= value * 1.0001 and value <= most * 1.0001]
    axis.set_major_locator(FixedLocator(inside[:: -(-len(inside) // ticks)] or [least, most]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}{unit}"))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())


def _subject(sweep: Sweep) -> str:
    """Model, devices and context."""
    return f"{cut(sweep.model, LONGEST)} on {on_devices(sweep.gpu, sweep.layout)}, {context_name(sweep.context)} tokens each"


def _sweep_words(sweep: Sweep) -> Words:
    if not sweep.fitting:
        return Words(SWEEP_TITLE, _subject(sweep))
    links = ", all exchanges (links)" if "links" in _limits(sweep.fitting) else ""
    band = " Band: 80 % of measured times." if sweep.fitted else ""
    return Words(
        SWEEP_TITLE,
        _subject(sweep),
        f"Thin lines, each by itself: all bytes moved (memory), all FLOP at peak (arithmetic){links}. "
        f"Bound: the longest of these, operation by operation.{band}",
    )


def _latency_words(sweep: Sweep) -> Words:
    if not sweep.fitting:
        return Words(LATENCY_TITLE, _subject(sweep))
    best, within = sweep.within_limit, ""
    if sweep.tpot_limit_seconds is not None:
        most = f"{best.batch:,} at once, {figures(best.rate)} tokens/s" if best else "not even one sequence"
        within = f"; within {figures(sweep.tpot_limit_seconds * MS)} ms: {most}"
    joined = " Dotted: one batch, from its bound to the expected." if sweep.fitted else ""
    return Words(
        LATENCY_TITLE,
        _subject(sweep) + within,
        f"Numbers: sequences at once. Upward all together get more, rightward each waits longer for its next token.{joined}",
    )


def _limits(points: Sequence[SweepPoint]) -> dict[str, list[float]]:
    """Each limit by itself, those of links only where there are any. [ms]"""
    every = {
        "memory": [point.memory_seconds for point in points],
        "arithmetic": [point.compute_seconds for point in points],
        "links": [point.link_seconds for point in points],
    }
    made = {name: [(value or 0.0) * MS for value in values] for name, values in every.items()}
    return {name: values for name, values in made.items() if any(values)}


def _frame(axes: Axes, sweep: Sweep, lines: dict[str, list[float]]) -> None:
    """Both axes, so wide that every line ends inside."""
    points = sweep.fitting
    bounds = [value * MS for point in points if (value := point.bound_seconds)]
    highest = [value * MS for point in points if (value := point.high_seconds or point.expected_seconds)]
    limit = [] if sweep.tpot_limit_seconds is None else [sweep.tpot_limit_seconds * MS]
    least = min([min(bounds) / UNDER, *(values[-1] / 1.6 for values in lines.values() if values[-1]), *limit])
    most = max([*bounds, *highest, *limit]) * 1.7
    first, last = points[0].batch, points[-1].batch
    side = (last / first * 1.12) ** BESIDE if last > first else ALONE
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(first / min(side, 1.12) if last > first else first / ALONE, last * side),
        ylim=(least, most),
    )
    plain_ticks(axes.yaxis, least, most)
    marks = [1 << power for power in range(31) if first <= 1 << power <= last] or [first]
    every = max(-(-len(marks) // MOST_TICKS), -(-len(marks) * len(f"{marks[-1]:,}") // LETTERS))
    axes.xaxis.set_major_locator(FixedLocator(marks[::every]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _line(axes: Axes, points: Sequence[SweepPoint], name: str, values: Sequence[float]) -> End:
    """One limit alone, as a thin line; a point where it would have no length."""
    colour = LIGHT.contexts[LIMITS[name]]
    batches = [point.batch for point in points]
    axes.plot(batches, values, color=colour, linewidth=1.1, marker=_dot(points), markersize=3, label=name, zorder=3)
    return End(values[-1], name, colour)


def _bound(axes: Axes, points: Sequence[SweepPoint]) -> End:
    batches = [point.batch for point in points]
    values = [(point.bound_seconds or 0.0) * MS for point in points]
    axes.plot(
        batches,
        values,
        color=LIGHT.ink,
        linewidth=2.6,
        alpha=0.75,
        marker=_dot(points),
        markersize=5,
        label="bound",
        zorder=2.5,
    )
    return End(values[-1], "bound", LIGHT.ink)


def _dot(points: Sequence[SweepPoint]) -> str:
    return "o" if len(points) == 1 else "None"


def _expected(axes: Axes, points: Sequence[SweepPoint]) -> list[End]:
    """Expected times as points on a line, in the band of their interval."""
    colour = LIGHT.contexts[EXPECTED]
    have = [point for point in points if point.expected_seconds is not None]
    batches = [point.batch for point in have]
    values = [(point.expected_seconds or 0.0) * MS for point in have]
    low, high = (
        [(end or 0.0) * MS for end in ends]
        for ends in zip(*((p.low_seconds, p.high_seconds) for p in have), strict=True)
    )
    axes.fill_between(batches, low, high, color=colour, alpha=0.2, linewidth=0, zorder=1, label="interval")
    axes.plot(batches, values, color=colour, linewidth=1.2, marker="o", markersize=4, label="expected", zorder=4)
    if len(have) == 1:
        axes.plot(batches * 2, [*low, *high], color=colour, linewidth=6, alpha=0.3, zorder=1)
    return [End(values[-1], "expected", colour)]


def _level(axes: Axes, sweep: Sweep) -> None:
    """The limit as a level line, its name above its left end."""
    if sweep.tpot_limit_seconds is None:
        return
    limit = sweep.tpot_limit_seconds * MS
    axes.axhline(limit, color=LIGHT.ink, linewidth=0.9, linestyle=DASHED, zorder=2)
    ends, last = axes.get_xlim(), len(sweep.fitting) == 1
    _write(axes, Note(f"limit {figures(limit)} ms", (ends[last], limit), (-18 if last else 4, 2), across=ACROSS[last]))


def _room(axes: Axes, sweep: Sweep) -> None:
    """The last batch that fits, and that there are no more."""
    most, right = sweep.most_sequences, axes.get_xlim()[1]
    if not 0 < most < right:
        return
    axes.axvspan(most, right, color=LIGHT.faint, alpha=0.18, linewidth=0, zorder=0)
    axes.axvline(most, color=LIGHT.faint, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
    middle = math.sqrt(most * right), axes.get_ylim()[0]
    _write(axes, Note(f"no more than {most:,}", middle, (0, 6), across="center", rotation=90))


def _nothing(axes: Axes, sweep: Sweep) -> None:
    """Says why nothing is drawn: what does not fit has no speed."""
    say_instead(axes, f"No sequence of {context_name(sweep.context)} tokens fits: {sweep.reason or 'there is no room'}")


def _times(points: Sequence[SweepPoint], name: str) -> list[tuple[float, float]]:
    """Time a token [ms] and tokens a second of each point, at the bound or as expected."""
    pairs = (
        (point.bound_seconds, point.tokens_per_second)
        if name == BOUND_NAMES[0]
        else (point.expected_seconds, point.expected_tokens_per_second)
        for point in points
    )
    return [(seconds * MS, rate) for seconds, rate in pairs if seconds is not None and rate is not None]


def _latency_frame(axes: Axes, sweep: Sweep) -> None:
    spots = [spot for name in BOUND_NAMES for spot in _times(sweep.fitting, name)]
    limit = [] if sweep.tpot_limit_seconds is None else [sweep.tpot_limit_seconds * MS]
    across = [*(x for x, _ in spots), *limit]
    left, right = min(across), max(across)
    room = max(1.12, (right / left) ** 0.1)
    xlim, ylim = (left / room, right * room), (min(y for _, y in spots) / 1.6, max(y for _, y in spots) * 2)
    axes.set(xscale="log", yscale="log", xlim=xlim, ylim=ylim)
    plain_ticks(axes.xaxis, *xlim)
    plain_ticks(axes.yaxis, *ylim)


def _curve(axes: Axes, points: Sequence[SweepPoint], name: str) -> None:
    spots = _times(points, name)
    colour, size = (LIGHT.ink, 2.5) if name == BOUND_NAMES[0] else (LIGHT.contexts[EXPECTED], 5.0)
    axes.plot(*zip(*spots, strict=True), color=colour, linewidth=1.2, marker="o", markersize=size, label=name, zorder=3)


def _joined(axes: Axes, sweep: Sweep) -> None:
    """Thin lines from each batch's bound to what is expected of it."""
    pairs = zip(_times(sweep.fitting, BOUND_NAMES[0]), _times(sweep.fitting, BOUND_NAMES[1]), strict=False)
    for one, other in pairs:
        axes.plot(*zip(one, other, strict=True), color=LIGHT.faint, linewidth=0.7, linestyle=(0, (1, 2)), zorder=2)


def _batches(axes: Axes, sweep: Sweep) -> None:
    """Batches beside their points: the one within the limit, then from the last down those that cover no other."""
    taken: list[tuple[float, float]] = []
    best = sweep.within_limit
    for point in dict.fromkeys([*([best] if best else []), *reversed(sweep.fitting)]):
        spot = (point.seconds or 0.0) * MS, point.rate or 0.0
        x, y = axes.transData.transform(spot) * POINT / DPI
        if any(math.hypot(x - left, y - bottom) < APART for left, bottom in taken):
            continue
        taken.append((x, y))
        bold = "bold" if point is best else "normal"
        _write(axes, Note(f"{point.batch:,}", spot, (5, -4), up="top", weight=bold))


def _limit(axes: Axes, sweep: Sweep) -> None:
    """The limit as an upright line; the point of the most sequences that stay within it has a ring."""
    if sweep.tpot_limit_seconds is None:
        return
    limit, best = sweep.tpot_limit_seconds * MS, sweep.within_limit
    axes.axvline(limit, color=LIGHT.ink, linewidth=0.9, linestyle=DASHED, zorder=2)
    said = f"limit {figures(limit)} ms"
    left = axes.transAxes.inverted().transform(axes.transData.transform((limit, 1.0)))[0] < HALF
    _write(axes, Note(said, (limit, axes.get_ylim()[1]), (3 if left else -3, -3), across=ACROSS[not left], up="top"))
    if best is not None:
        axes.plot(
            [(best.seconds or 0.0) * MS], [best.rate or 0.0], marker="o", markersize=11, markerfacecolor="none",
            markeredgewidth=1.8, markeredgecolor=LIGHT.contexts[RING], linestyle="none", label=RINGED, zorder=5,
        )  # fmt: skip


def _legend(axes: Axes, sweep: Sweep) -> None:
    """Names of the curves, on the lower right, or on the upper left where points stand there."""
    handles = [line for line in axes.lines if line.get_label() in {*BOUND_NAMES, RINGED}]
    place = axes.transData + axes.transAxes.inverted()
    spots = [place.transform(spot) for name in BOUND_NAMES for spot in _times(sweep.fitting, name)]
    below, above = sum(x > HALF and y < CORNER for x, y in spots), sum(x < HALF and y > 1 - CORNER for x, y in spots)
    taken = below > above
    axes.legend(
        handles=handles, loc="upper left" if taken else "lower right", bbox_to_anchor=(0, 0.93) if taken else (1, 0),
        fontsize=TEXT, labelcolor=LIGHT.ink, facecolor=LIGHT.ground, edgecolor="none", framealpha=0.9,
    )  # fmt: skip


def _write(axes: Axes, note: Note) -> None:
    """A text near a place of the data."""
    axes.annotate(
        "\n".join(map(known, note.text.split("\n"))), note.spot, xytext=note.offset, textcoords="offset points", ha=note.across, va=note.up,
        fontsize=NOTE, color=LIGHT.ink, rotation=note.rotation, weight=note.weight, annotation_clip=False,
        parse_math=False, zorder=6,
    )  # fmt: skip
