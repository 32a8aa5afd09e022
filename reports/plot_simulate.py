"""A simulated service as pictures: what happened over time, and which share of the requests had which time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from roofcast.calculators.serving.result import QUANTILES
from roofcast.hwdb.units import show_si
from roofcast.reports.chart import POINT
from roofcast.reports.numbers import figures
from roofcast.reports.plot_card import NOTE, TEXT, End, Words, axes_at, card, name_ends, say_instead
from roofcast.reports.plot_style import LIGHT, cut, own_style
from roofcast.reports.plot_sweep import plain_ticks
from roofcast.reports.simulate import kept_words, nothing_words, promise_words, subject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from roofcast.calculators.serving.result import SimulateResult, Spread

SERIES_TITLE: Final = "Requests, tokens and memory over time"
SPREAD_TITLE: Final = "How long requests took"
LONGEST: Final = 48  # characters of a model's name and its devices
MOST_LOAD: Final = 76  # of a load
MS: Final = 1e3
IN_SECONDS: Final = 20.0  # from which on an axis is in seconds
HUNDRED: Final = 100.0  # %
SERIES_HEIGHT: Final = 6.0  # [inch]
PANEL: Final = 1.5  # of a panel of times, its axis included [inch]
WORDS: Final = 0.95  # title, subtitle and caption [inch]
BETWEEN: Final = 19.0  # points between panels, where each one's name stands
UNDER: Final = 46.0  # points under a panel with an axis of its own
ABOVE: Final = 12.0  # points over the first panel, where each has its name
BESIDE: Final = 74.0  # points for names of percentiles
DASHED: Final = (0, (5, 3))
DOTTED: Final = (0, (1, 2))
WIDE: Final = 6.0  # times the least that the most must be for a logarithmic axis
SHARE, PROMISE = 0, 1  # colours of requests and of what is promised, by their places in the theme
TICKS: Final = 5
HALF: Final = 0.5
#: percentile -> field of a spread
NAMED: Final[Mapping[str, float]] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity over time.

    Args:
        name: as it stands above its axes.
        field: of a stretch.
        colour: by its place in the theme.
        scale: that its values are multiplied by.
        unit: behind its numbers.
    """

    name: str
    field: str
    colour: int
    scale: float = 1.0
    unit: str = ""


PANELS: Final = (
    Panel("requests that run", "running", 0),
    Panel("requests that wait", "waiting", 1),
    Panel("prompt tokens/s", "prompt_tokens_per_second", 4),
    Panel("output tokens/s", "output_tokens_per_second", 2),
    Panel("KV memory taken", "kv_utilisation", 3, HUNDRED, "%"),
)
#: seconds from which on -> unit of an axis of time, and its seconds
CLOCKS: Final = ((7200.0, "h", 3600.0), (300.0, "min", 60.0), (0.0, "s", 1.0))
#: time -> field of the result, and of the promise
QUANTITIES: Final[Mapping[str, str]] = {"TTFT": "ttft_seconds", "TPOT": "tpot_seconds", "ITL": "itl_seconds"}
MEANT: Final[Mapping[str, str]] = {
    "TTFT": "time to first token",
    "TPOT": "time per output token, mean of a request",
    "ITL": "time between two tokens",
}


def series_chart(result: SimulateResult) -> Figure:
    """Five quantities over one axis of time, each with an axis of its own: means of stretches."""
    with own_style():
        if not result.series:
            return _empty(SERIES_TITLE, result)
        end = result.series[-1].seconds + result.series[-1].length_seconds
        words = Words(SERIES_TITLE, _under(result), _stretches(result))
        figure, every = _panels(words, len(PANELS), SERIES_HEIGHT, (12.0, BETWEEN, ABOVE))
        unit, seconds = next((unit, each) for least, unit, each in CLOCKS if end >= least)
        for axes, panel in zip(every, PANELS, strict=True):
            _over_time(axes, result, panel, (end, seconds))
            axes.tick_params(labelbottom=axes is every[-1])
        every[-1].set_xlabel(f"time [{unit}]", fontsize=TEXT, color=LIGHT.ink)
    return figure


def spread_chart(result: SimulateResult) -> Figure:
    """Share of the requests that took at most so long: TTFT, TPOT and, where it is promised, ITL, each over its own axis."""
    with own_style():
        shown = {name: spread for name in QUANTITIES if (spread := _shown(result, name)) is not None}
        if not shown:
            return _empty(SPREAD_TITLE, result)
        words = Words(SPREAD_TITLE, _under(result), _promised(result))
        figure, every = _panels(words, len(shown), WORDS + PANEL * len(shown), (BESIDE, UNDER, 2.0))
        for axes, (name, spread) in zip(every, shown.items(), strict=True):
            limit = _promise(result, name)
            unit = _shares(axes, name, spread, limit)
            if limit is not None and result.kept is not None:
                _limit(axes, limit, unit, result.kept.goal.percentile)
    return figure


def _empty(title: str, result: SimulateResult) -> Figure:
    """Says why there is nothing to draw."""
    figure, axes = card(Words(title, _under(result)))
    say_instead(axes, nothing_words(result))
    return figure


def _panels(words: Words, number: int, height: float, room: tuple[float, float, float]) -> tuple[Figure, list[Axes]]:
    """A card with several axes, one below another.

    Args:
        words: above and below them.
        number: of axes.
        height: of the whole. [inch]
        room: right of them, between them, and above the first. [1/72 inch]
    """
    figure, whole = card(words, height=height, right=room[0])
    box = whole.get_position()
    whole.remove()
    top, gap = box.y1 - room[2] / POINT / height, room[1] / POINT / height
    each = (top - box.y0 - gap * (number - 1)) / number
    boxes = ((box.x0, top - each - (each + gap) * place, box.width, each) for place in range(number))
    return figure, [axes_at(figure, each_box) for each_box in boxes]


def _under(result: SimulateResult) -> str:
    """Of what, and which load."""
    return f"{cut(subject(result), LONGEST)}, {result.policy}: {cut(result.load, MOST_LOAD)}"


def _stretches(result: SimulateResult) -> str:
    """How long stretches are."""
    each = f" of {figures(result.series[0].length_seconds)} s" if len(result.series) > 1 else ""
    growing = "" if result.stable else " The queue keeps on growing: more come than are answered."
    return f"Means of stretches{each}; all replicas together. Each panel has its own scale from 0.{growing}"


def _over_time(axes: Axes, result: SimulateResult, panel: Panel, time: tuple[float, float]) -> None:
    """One quantity, as steps; its name and most above it.

    Args:
        axes: its own.
        result: whose series it is.
        panel: which quantity.
        time: the end, and the unit of the axis. [s]
    """
    end, unit = time
    starts = [moment.seconds / unit for moment in result.series]
    values = [getattr(moment, panel.field) * panel.scale for moment in result.series]
    colour, most = LIGHT.contexts[panel.colour], max(values)
    across, up = [*starts, end / unit], [*values, values[-1]]
    axes.fill_between(across, up, step="post", color=colour, alpha=0.25, linewidth=0)
    axes.plot(across, up, color=colour, linewidth=1.1, drawstyle="steps-post", label=panel.name)
    axes.set(xlim=(starts[0], across[-1] if across[-1] > starts[0] else starts[0] + 1), ylim=(0, (most or 1.0) * 1.08))
    axes.yaxis.set_major_locator(MaxNLocator(2, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}{panel.unit}"))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    _name(axes, f"{panel.name}, up to {figures(most)}{panel.unit}")


def _name(axes: Axes, text: str) -> None:
    """A panel's name, above its upper left corner."""
    axes.annotate(
        text, (0, 1), xycoords="axes fraction", xytext=(0, 3), textcoords="offset points", ha="left", va="bottom",
        fontsize=TEXT, color=LIGHT.ink, annotation_clip=False, parse_math=False,
    )  # fmt: skip


def _shown(result: SimulateResult, name: str) -> Spread | None:
    """The spread of a time that is shown; None of one that there is not, or that nobody asked for."""
    spread: Spread | None = getattr(result, QUANTITIES[name])
    if spread is None or not spread.quantiles:
        return None
    return spread if name != "ITL" or _promise(result, name) is not None else None


def _promise(result: SimulateResult, name: str) -> float | None:
    """What is promised of a time; None where nothing is. [s]"""
    limit: float | None = getattr(result.kept.goal, QUANTITIES[name]) if result.kept else None
    return limit


def _promised(result: SimulateResult) -> str:
    """How to read it, and what became of the promise."""
    if result.kept is None:
        return "Height: share of the requests that took at most that long."
    kept = "kept" if result.kept.met else "not kept"
    return (
        f"Height: share that took at most that long. Promise (dashed): {promise_words(result.kept.goal)}: {kept}; "
        f"{kept_words(result.kept)}."
    )


def _shares(axes: Axes, name: str, spread: Spread, limit: float | None) -> float:
    """Share of the requests over a time, with three percentiles beside it; the axis reaches to what is promised.

    Returns:
        The unit of the axis. [s]
    """
    colour, every = LIGHT.contexts[SHARE], [*spread.quantiles, *([] if limit is None else [limit])]
    unit, seconds = ("s", 1.0) if max(every) >= IN_SECONDS else ("ms", 1 / MS)
    _time_axis(axes, [value / seconds for value in every])
    times = [value / seconds for value in spread.quantiles]
    axes.plot(times, [share * HUNDRED for share in QUANTILES], color=colour, linewidth=1.6, label=name, zorder=3)
    axes.set_ylim(0, 102)
    axes.yaxis.set_major_locator(FixedLocator((0, 50, 100)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
    axes.set_xlabel(f"{MEANT[name]} [{unit}]", fontsize=TEXT, color=LIGHT.ink)
    ends, right = [], axes.get_xlim()[1]
    for label, share in NAMED.items():
        value, height = getattr(spread, label), share * HUNDRED
        axes.plot([value / seconds, right], [height] * 2, color=LIGHT.faint, linewidth=0.8, linestyle=DOTTED)
        axes.plot([value / seconds], [height], color=colour, marker="o", markersize=3.5, zorder=4, label=label)
        ends.append(End(height, f"{label} {show_si(value, 's', 3)}", LIGHT.ink))
    name_ends(axes, ends)
    return seconds


def _time_axis(axes: Axes, times: Sequence[float]) -> None:
    """An axis from the least to the most, logarithmic where they are far apart."""
    least, most = min(times), max(times)
    if least > 0 and most > least * WIDE:
        ends = least / (most / least) ** 0.03, most * (most / least) ** 0.03
        axes.set(xscale="log", xlim=ends)
        plain_ticks(axes.xaxis, *ends, ticks=TICKS)
        return
    room = max((most - least) * 0.05, most * 0.02) or 1.0
    axes.set_xlim(max(0.0, least - room), most + room)
    axes.xaxis.set_major_locator(MaxNLocator(TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _limit(axes: Axes, limit: float, unit: float, percentile: float) -> None:
    """What is promised: an upright line at the time, a level one at the share of requests, its words at its foot."""
    colour, spot = LIGHT.contexts[PROMISE], limit / unit
    axes.axvline(spot, color=colour, linewidth=1.2, linestyle=DASHED, zorder=2, label="promise")
    axes.axhline(percentile, color=colour, linewidth=0.9, linestyle=DASHED, zorder=2, label="percentile")
    across = axes.transAxes.inverted().transform(axes.transData.transform((spot, 0.0)))[0]
    side = across > HALF
    axes.annotate(
        f"promise {show_si(limit, 's', 3)}", (spot, 0), xytext=(-3 if side else 3, 3), textcoords="offset points",
        ha="right" if side else "left", va="bottom", fontsize=NOTE, color=LIGHT.ink, annotation_clip=False,
        parse_math=False, zorder=5,
    )  # fmt: skip
