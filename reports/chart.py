"""What a roofline chart shows, before it is drawn: where points, roofs and labels are on the page."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Final

from roofcast.reports.labels import Box, Label
from roofcast.reports.numbers import context_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.roofline_table import RooflineResult, RooflineRow
    from roofcast.reports.labels import Segment, Spot

WIDTH: Final = 9.0  # inches
HEIGHT: Final = 6.0
POINT: Final = 72.0  # points an inch
FRAME: Final = Box(0.085 * WIDTH * POINT, 0.165 * HEIGHT * POINT, 0.975 * WIDTH * POINT, 0.83 * HEIGHT * POINT)
SMALL: Final = 7.5  # points; the smallest text
NORMAL: Final = 8.5
LETTER: Final = 0.62  # width of a letter in heights, on average
MARK: Final = 6.0  # size of a point
NEAR: Final = 16.0  # points of one line that are nearer share a label
MOST_LABELS: Final = 28  # beyond, only both ends of a line have one
MOST_CONTEXTS: Final = 7  # colours that any eye tells apart
MOST_ENDS: Final = 60  # beyond, not all of these
CROWD: Final = 150  # points; among more, labels stay clear of roofs and of one another alone


@dataclass(frozen=True, slots=True)
class Plane:
    """Both axes: intensity to the right, rate upward, logarithms of both.

    Args:
        x: least and most intensity. [FLOP/B]
        y: least and most rate. [FLOP/s]
    """

    x: tuple[float, float]
    y: tuple[float, float]

    def spot(self, intensity: float, rate: float) -> Spot:
        """Where a point is on the page, from the lower left. [1/72 inch]"""
        across = math.log(intensity / self.x[0]) / math.log(self.x[1] / self.x[0])
        up = math.log(rate / self.y[0]) / math.log(self.y[1] / self.y[0])
        return FRAME.left + across * (FRAME.right - FRAME.left), FRAME.bottom + up * (FRAME.top - FRAME.bottom)


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of the chart.

    Args:
        row: what it stands for.
        rate: its height. [FLOP/s]
    """

    row: RooflineRow
    rate: float


def height_of(result: RooflineResult, row: RooflineRow) -> float:
    """Rate at the bound; of what does not fit, the lowest roof at its intensity."""
    if row.flops_per_second is not None:
        return row.flops_per_second
    lowest = min(roof.peak_flops_per_second for roof in result.roofs if roof.used)
    return min(lowest, row.intensity * result.bandwidth_bytes_per_second)


def contexts_of(marks: Sequence[Mark]) -> list[int]:
    """Contexts in order: the place of one decides its colour."""
    return sorted({mark.row.context for mark in marks})


def plane_of(result: RooflineResult, marks: Sequence[Mark]) -> Plane:
    """Axes that show all points and all ridges, with room for labels."""
    ridges = [roof.ridge for roof in result.roofs]
    intensities = [mark.row.intensity for mark in marks]
    least = min([*intensities, min(ridges) / 30]) / 2
    most = max([*intensities, max(ridges) * 8]) * 2.5
    peaks = [roof.peak_flops_per_second for roof in result.roofs]
    lowest = min([least * result.bandwidth_bytes_per_second, *(mark.rate for mark in marks)]) / 1.6
    return Plane((least, most), (lowest, max(peaks) * 5))


@dataclass(frozen=True, slots=True)
class Height:
    """A flat roof.

    Args:
        peak: its height. [FLOP/s]
        ridge: where it begins. [FLOP/B]
        name: of the formats that have it.
        used: whether the model multiplies in any of them.
    """

    peak: float
    ridge: float
    name: str
    used: bool


def heights_of(result: RooflineResult) -> list[Height]:
    """Every flat roof, the highest first; formats of the same height share one."""
    roofs = sorted(result.roofs, key=lambda roof: -roof.peak_flops_per_second)
    heights = []
    for peak, same in groupby(roofs, key=lambda roof: roof.peak_flops_per_second):
        together = list(same)
        names = dict.fromkeys(
            roof.format if roof.format == roof.computed_in else f"{roof.format} as {roof.computed_in}"
            for roof in together
        )
        used = any(roof.used for roof in together)
        heights.append(Height(peak, together[0].ridge, ", ".join(names), used))
    return heights


def roof_lines(result: RooflineResult, plane: Plane) -> list[Segment]:
    """Slope, roofs and ridges, for labels to stay clear of."""
    bandwidth = result.bandwidth_bytes_per_second
    heights = heights_of(result)
    top = max(height.ridge for height in heights)
    lines = [(plane.spot(plane.x[0], plane.x[0] * bandwidth), plane.spot(top, top * bandwidth))]
    for height in heights:
        corner = plane.spot(height.ridge, height.peak)
        lines.append((corner, plane.spot(plane.x[1], height.peak)))
        lines.append((plane.spot(height.ridge, plane.y[0]), corner))
    return lines


def joins(plane: Plane, marks: Sequence[Mark]) -> list[Segment]:
    """The thin lines from batch to batch."""
    return [(spot_of(plane, one), spot_of(plane, next_)) for line in in_lines(marks) for one, next_ in pairwise(line)]


def in_lines(marks: Sequence[Mark]) -> list[list[Mark]]:
    """Points of the same phase and context, in the order of batches."""
    lines: dict[tuple[str, int], list[Mark]] = {}
    for mark in sorted(marks, key=lambda mark: mark.row.batch):
        lines.setdefault((mark.row.phase, mark.row.context), []).append(mark)
    return list(lines.values())


def wanted_labels(plane: Plane, marks: Sequence[Mark]) -> list[Label]:
    """The labels of all lines; where they are many, of both ends of each."""
    grouped = [_near(plane, line) for line in in_lines(marks)]
    if sum(map(len, grouped)) > MOST_LABELS:
        grouped = [[groups[0], groups[-1]] if len(groups) > 1 else groups for groups in grouped]
    labels = [_label(plane, group) for groups in grouped for group in groups]
    return labels[:: -(-len(labels) // MOST_ENDS)] if len(labels) > MOST_ENDS else labels


def spot_of(plane: Plane, mark: Mark) -> Spot:
    """Where a point is on the page. [1/72 inch]"""
    return plane.spot(mark.row.intensity, mark.rate)


def _near(plane: Plane, line: Sequence[Mark]) -> list[list[Mark]]:
    """Points of one line, those near one another together."""
    groups: list[list[Mark]] = []
    for mark in line:
        spot = spot_of(plane, mark)
        first = groups[-1][0] if groups else None
        if first and first.row.fits == mark.row.fits and math.dist(spot, spot_of(plane, first)) < NEAR:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    return groups


def _label(plane: Plane, group: Sequence[Mark]) -> Label:
    middle = group[len(group) // 2]
    batches = [mark.row.batch for mark in group]
    said = f"{batches[0]:,}-{batches[-1]:,}" if len(batches) > 2 else ", ".join(f"{batch:,}" for batch in batches)  # noqa: PLR2004
    text = f"{context_name(middle.row.context)} b{said}"
    return Label(text, spot_of(plane, middle), width_of(text, SMALL) + 2, SMALL * 1.25)


def width_of(text: str, size: float) -> float:
    """About how wide a text is. [1/72 inch]"""
    return len(text) * size * LETTER
