"""Of `plan`: the most of something that each machine does, as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from matplotlib.ticker import FuncFormatter, MaxNLocator

from roofcast.reports.chart import POINT, width_of
from roofcast.reports.numbers import count, figures
from roofcast.reports.plan_chart import short_name
from roofcast.reports.plan_tables import VALUES
from roofcast.reports.plan_words import limit_name
from roofcast.reports.plot_card import NOTE, TEXT, WIDTH, Words, card, say_instead
from roofcast.reports.plot_style import LIGHT, cut, known
from roofcast.reports.simulate import promise_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from roofcast.calculators.planning.rows import FoundRow, PlanResult

MOST: Final = 20  # bars
SLOT: Final = 15.0  # points of a bar
FRAME: Final = 126.0  # points of words and axis
LEFT: Final = 122.0  # points of names
RIGHT: Final = 12.0  # points right of the axes
GAP: Final = 4.0  # points between a bar and its value
LEAST: Final = 4  # bars that there is room for
TICKS: Final = 4
LONGEST: Final = 22  # characters of a name
GIGA: Final = {"gpu": 1e9}  # what a value is divided by
#: what is looked for -> title
TITLES: Final = {
    "rate": "Most requests a second, on each machine",
    "users": "Most users at once, on each machine",
    "context": "Longest prompt, on each machine",
    "gpu": "GPUs that will do, by their memory",
}
#: what is looked for -> name of the axis
AXES: Final = {
    "rate": "requests a second",
    "users": "users at once",
    "context": "tokens of a prompt",
    "gpu": "memory [GB]",
}


def found_chart(result: PlanResult) -> Figure:
    """A bar a machine, the best first, with its value and the limit that is hit beyond it."""
    rows = result.found[:MOST]
    figure, axes = card(_words(result), height=(FRAME + SLOT * max(LEAST, len(rows))) / POINT, left=LEFT, right=RIGHT)
    if not any(row.value for row in rows):
        say_instead(axes, "none will do: not one request keeps what is promised" if rows else "nothing was looked at")
        return figure
    _bars(axes, rows, result.find or "")
    return figure


def _words(result: PlanResult) -> Words:
    title = TITLES.get(result.find or "", f"{result.find} on each machine")
    goals = list(dict.fromkeys(promise_words(workload.goal) for workload in result.workloads))
    kept = f"{cut(result.model, 40)}, {goals[0] or 'nothing promised'}" if len(goals) == 1 else cut(result.model, 60)
    more = len(result.found) - MOST
    said = ["In brackets: the limit that is hit first beyond it."] if any(row.limit for row in result.found) else []
    said += [f"{count(more)} more have rows in the table."] if more > 0 else []
    return Words(title, kept, " ".join(said))


def _bars(axes: Axes, rows: Sequence[FoundRow], find: str) -> None:
    """Bars from zero, the best in colour."""
    values = [(row.value or 0.0) / GIGA.get(find, 1.0) for row in rows]
    texts = [_beside(row, find) for row in rows]
    colours = [LIGHT.contexts[0] if row.best else LIGHT.faint for row in rows]
    axes.barh(range(len(rows)), values, height=0.66, color=colours, alpha=0.8, zorder=2)
    axes.set(xlim=(0, _right(values, texts)), ylim=(max(LEAST, len(rows)) - 0.4, -0.6))
    differ = len({row.deployment.weights for row in rows}) > 1
    names = [known(cut(short_name(row.deployment, weights=differ), LONGEST)) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=NOTE, parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_xlabel(AXES.get(find, find), fontsize=TEXT, color=LIGHT.ink)
    for place, (text, value) in enumerate(zip(texts, values, strict=True)):
        axes.annotate(
            text, (value, place), xytext=(GAP, 0), textcoords="offset points", ha="left", va="center", fontsize=NOTE,
            color=LIGHT.ink, annotation_clip=False, parse_math=False, zorder=4,
        )  # fmt: skip


def _beside(row: FoundRow, find: str) -> str:
    """What stands beside a bar: its value, and what is hit beyond it."""
    _, shown = VALUES.get(find, (find, figures))
    limit = f" ({limit_name(row.limit)})" if row.limit else ""
    return known(f"{'none' if row.value is None else shown(row.value)}{limit}")


def _right(values: Sequence[float], texts: Sequence[str]) -> float:
    """The end of the axis that leaves room for the text beside every bar."""
    wide = WIDTH * POINT - LEFT - RIGHT
    return max(
        value * wide / max(1.0, wide - GAP - width_of(text, NOTE)) for value, text in zip(values, texts, strict=True)
    )
