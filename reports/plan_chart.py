"""What the chart of `plan` shows, before it is drawn: where deployments and labels are on the page, and the front."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from roofcast.reports.chart import SMALL
from roofcast.reports.labels import Box, Label
from roofcast.reports.plan_words import gpus_words, limit_name, shape_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roofcast.calculators.planning.rows import PlanDeployment, PlanResult, PlanRow, WorkloadRow
    from roofcast.reports.labels import Segment, Spot

MEETS, CLOSE, FAILS = "meets what is promised", "too close to say", "does not, and its limit"
STATES: Final = {True: MEETS, None: CLOSE, False: FAILS}
#: time -> field of a row, and of what is promised
TIMES: Final = {"TPOT": "tpot_seconds", "TTFT": "ttft_seconds", "ITL": "itl_seconds"}
BEST: Final = "best: "
NEAR: Final = 7.0  # points; deployments that are nearer share a label
LONGEST: Final = 34  # characters of a label
ROOM: Final = 0.16  # of an axis in logarithms, left free at both ends
LEAST: Final = math.log(2.0)  # that an axis spans in logarithms
LETTER: Final = 1.3  # of a label's height over its letters
BESIDE: Final = 3.0  # points left and right of a label's letters


@dataclass(frozen=True, slots=True)
class PlanMark:
    """A deployment in the chart.

    Args:
        number: of its row among all plans.
        row: itself.
        cost: of all its GPUs. [USD/h]
        seconds: the time that is drawn. [s]
    """

    number: int
    row: PlanRow
    cost: float
    seconds: float

    @property
    def state(self) -> str:
        """Whether it meets what is promised."""
        return STATES[self.row.meets_slo]


@dataclass(frozen=True, slots=True)
class Panel:
    """The chart of a workload: cost to the right, a time upward, logarithms of both.

    Args:
        workload: which one.
        name: of the time.
        marks: deployments that have a cost and a time.
        left_out: how many have not.
        promise: the most that the time may be; None where nothing is promised of it. [s]
        x: least and most cost of the axis. [USD/h]
        y: least and most time of the axis. [s]
    """

    workload: WorkloadRow
    name: str
    marks: tuple[PlanMark, ...]
    left_out: int
    promise: float | None
    x: tuple[float, float]
    y: tuple[float, float]

    def spot(self, frame: Box, cost: float, seconds: float) -> Spot:
        """Where a place of the axes is on the page, which are within a frame. [1/72 inch]"""
        across = math.log(cost / self.x[0]) / math.log(self.x[1] / self.x[0])
        up = math.log(seconds / self.y[0]) / math.log(self.y[1] / self.y[0])
        return frame.left + across * (frame.right - frame.left), frame.bottom + up * (frame.top - frame.bottom)


@dataclass(frozen=True, slots=True)
class Font:
    """What labels are written in.

    Args:
        shown: what it makes of a name.
        width: of a label. [1/72 inch]
    """

    shown: Callable[[str], str]
    width: Callable[[str], float]


def panel_of(result: PlanResult, workload: WorkloadRow) -> Panel:
    """What is drawn of a workload."""
    name = time_of(result, workload)
    rows = [(number, row) for number, row in enumerate(result.plans) if row.workload == workload.name]
    marks = tuple(
        PlanMark(number, row, row.cost_per_hour, seconds)
        for number, row in rows
        if row.cost_per_hour and (seconds := getattr(row, TIMES[name]))
    )
    promise: float | None = getattr(workload.goal, TIMES[name])
    costs, times = [mark.cost for mark in marks], [mark.seconds for mark in marks]
    times += [] if promise is None else [promise]
    return Panel(workload, name, marks, len(rows) - len(marks), promise, span(costs), span(times))


def time_of(result: PlanResult, workload: WorkloadRow) -> str:
    """The time that is drawn: TPOT where that is promised, else what is; without any promise TPOT where there is one."""
    rows = [row for row in result.plans if row.workload == workload.name]
    able = [name for name, key in TIMES.items() if any(getattr(row, key) for row in rows)]
    promised = [name for name in able if getattr(workload.goal, TIMES[name]) is not None]
    return next(iter([*promised, *able]), "TTFT")


def span(values: Sequence[float]) -> tuple[float, float]:
    """The ends of a logarithmic axis, with room for labels beyond the least and the most.

    >>> [round(end, 3) for end in span([1.0, 10.0])]
    [0.692, 14.454]
    """
    if not values:
        return 1.0, 10.0
    low, high = math.log(min(values)), math.log(max(values))
    more = max(0.0, LEAST - (high - low)) / 2
    room = ROOM * max(high - low, LEAST)
    return math.exp(low - more - room), math.exp(high + more + room)


def front_of(marks: Sequence[PlanMark]) -> list[PlanMark]:
    """Deployments that meet what is promised, of which none is cheaper and as quick, the cheapest first."""
    front: list[PlanMark] = []
    for mark in sorted((mark for mark in marks if mark.state == MEETS), key=lambda mark: (mark.cost, mark.seconds)):
        if not front or mark.seconds < front[-1].seconds:
            front.append(mark)
    return front


def steps_of(panel: Panel) -> list[tuple[float, float]]:
    """Corners of the front, level from each to the cost of the next, and on to the edge. [USD/h, s]"""
    corners: list[tuple[float, float]] = []
    for mark in front_of(panel.marks):
        corners += [(mark.cost, corners[-1][1])] if corners else []
        corners.append((mark.cost, mark.seconds))
    return [*corners, (panel.x[1], corners[-1][1])] if corners else []


def ranked(panel: Panel) -> list[PlanMark]:
    """Deployments by how much they matter: the best, the one that is next cheaper, the nearest miss, the front, others."""
    workload, front = panel.workload, {mark.number for mark in front_of(panel.marks)}
    first = [workload.best, workload.next_cheaper, workload.nearest]
    return sorted(
        panel.marks,
        key=lambda mark: (
            first.index(mark.number) if mark.number in first else len(first),
            mark.number not in front,
            mark.state == FAILS,
            mark.number,
        ),
    )


def wanted(panel: Panel, frame: Box, most: int, font: Font) -> dict[Label, PlanMark]:
    """Labels of those that matter most, so many at most; those at one place share one.

    Args:
        panel: what is drawn.
        frame: where.
        most: labels.
        font: that they are written in.
    """
    groups: list[list[PlanMark]] = []
    for mark in ranked(panel):
        spot = panel.spot(frame, mark.cost, mark.seconds)
        near = next((group for group in groups if _near(panel, frame, group[0], (mark.state, spot))), None)
        if near is None:
            groups.append([mark])
        else:
            near.append(mark)
    names = names_of(panel)
    labels: dict[Label, PlanMark] = {}
    for group in groups[:most]:
        text = font.shown(_text(group, panel.workload, names[group[0].number]))
        spot = panel.spot(frame, group[0].cost, group[0].seconds)
        labels[Label(text, spot, font.width(text) + BESIDE, SMALL * LETTER)] = group[0]
    return labels


def _near(panel: Panel, frame: Box, first: PlanMark, other: tuple[str, Spot]) -> bool:
    """Whether another deployment stands where the first of a group does, and does as well."""
    state, spot = other
    return first.state == state and math.dist(panel.spot(frame, first.cost, first.seconds), spot) < NEAR


def names_of(panel: Panel) -> dict[int, str]:
    """Names of deployments by their numbers: with weights where these differ, with the cache where one is else as another."""
    differ = len({mark.row.deployment.weights for mark in panel.marks}) > 1
    names = {mark.number: short_name(mark.row.deployment, weights=differ) for mark in panel.marks}
    caches: dict[str, set[str]] = {}
    for mark in panel.marks:
        caches.setdefault(names[mark.number], set()).add(mark.row.deployment.kv)
    return {
        mark.number: f"{name} KV {mark.row.deployment.kv}" if len(caches[name]) > 1 else name
        for mark in panel.marks
        for name in [names[mark.number]]
    }


def _text(group: Sequence[PlanMark], workload: WorkloadRow, name: str) -> str:
    """Name of a deployment, how many others stand there, and by what it fails."""
    first = group[0]
    name = name if len(name) <= LONGEST else f"{name[: LONGEST - 12]}...{name[-9:]}"
    best = BEST if first.number == workload.best else ""
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    limit = f": {limit_name(first.row.limit)}" if first.row.limit and first.state != MEETS else ""
    return f"{best}{name}{more}{limit}"


def short_name(deployment: PlanDeployment, *, weights: bool) -> str:
    """Devices, how they share the work, and the weights' format.

    >>> from roofcast.calculators.planning.rows import PlanDeployment
    >>> one = PlanDeployment(
    ...     gpu="l40s", count=4, tp=2, pp=1, ep=1, dp=2, engine="vllm", weights="fp8", kv="fp8", policy="chunked"
    ... )
    >>> short_name(one, weights=True)
    '4 x l40s tp2 dp2 fp8'
    """
    parts = (gpus_words(deployment), shape_words(deployment), (deployment.weights or "") if weights else "")
    return " ".join(part for part in parts if part)


def lines_of(panel: Panel, frame: Box) -> list[Segment]:
    """The front and the promise, for labels to stay clear of."""
    spots = [panel.spot(frame, *corner) for corner in steps_of(panel)]
    promise = panel.promise
    level = (
        [] if promise is None else [(panel.spot(frame, panel.x[0], promise), panel.spot(frame, panel.x[1], promise))]
    )
    return [*pairwise(spots), *level]


def gpus_of(panels: Sequence[Panel]) -> list[str]:
    """GPUs in the order of colours: those of the best and the front first."""
    order = [mark for panel in panels for mark in ranked(panel)]
    return list(dict.fromkeys(mark.row.deployment.gpu for mark in order))
