"""Where the labels of a chart go: beside their points, over nothing else. Plain geometry, in points of 1/72 inch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Spot = tuple[float, float]
    Segment = tuple[Spot, Spot]

# what a place costs, in points of distance that it is worth to avoid it
OUTSIDE: Final = 5000.0
ON_LABEL: Final = 1500.0
ON_POINT: Final = 250.0
LEADER_ON_LABEL: Final = 200.0
LEADERS_CROSS: Final = 60.0
ON_LINE: Final = 35.0
LEADER_ON_POINT: Final = 40.0
TURN: Final = 2.0  # for each step away from the direction liked best
# degrees, those liked best first: below right of a slope, above left, right below a flat roof, above it
ANGLES: Final = (-45, -60, -30, -75, 135, -90, 120, 150, 90, -105, 60, 105, 0, 180, -135, 30)
DISTANCES: Final = (6, 12, 20, 30, 42, 56, 72, 90, 110)
SWEEPS: Final = 2  # times that all labels are placed again
HOPELESS: Final = 1000.0  # a label without a better place is left out


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with upright sides."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def middle(self) -> Spot:
        """Its centre."""
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2

    def meets(self, other: Box) -> bool:
        """Whether both share a place.

        >>> Box(0, 0, 2, 2).meets(Box(1, 1, 3, 3)), Box(0, 0, 2, 2).meets(Box(2, 0, 3, 1))
        (True, False)
        """
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def holds(self, other: Box) -> bool:
        """Whether the other lies inside."""
        return (
            self.left <= other.left
            and other.right <= self.right
            and self.bottom <= other.bottom
            and other.top <= self.top
        )

    def crossed_by(self, segment: Segment) -> bool:
        """Whether a straight line passes through, by Liang and Barsky's clipping.

        >>> Box(0, 0, 2, 2).crossed_by(((-1, 1), (3, 1))), Box(0, 0, 2, 2).crossed_by(((-1, 3), (3, 3)))
        (True, False)
        """
        (x, y), (to_x, to_y) = segment
        enter, leave = 0.0, 1.0
        for step, before, behind in (
            (to_x - x, self.left - x, self.right - x),
            (to_y - y, self.bottom - y, self.top - y),
        ):
            if not step:
                if before > 0 or behind < 0:
                    return False
                continue
            first, last = sorted((before / step, behind / step))
            enter, leave = max(enter, first), min(leave, last)
        return enter < leave


@dataclass(frozen=True, slots=True)
class Label:
    """A text that belongs to a place.

    Args:
        text: what it says.
        at: the place.
        width, height: of the text.
    """

    text: str
    at: Spot
    width: float
    height: float


def around(spot: Spot, width: float, height: float) -> Box:
    """The box of a size around a place."""
    x, y = spot
    return Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What labels are placed among.

    Args:
        frame: that all labels stay inside.
        solid: boxes that should stay free, such as points.
        lines: that should not run through a label.
        taken: boxes of texts that stand already.
    """

    frame: Box
    solid: Sequence[Box]
    lines: Sequence[Segment]
    taken: Sequence[Box] = ()


def placed(labels: Sequence[Label], among: Surroundings) -> list[tuple[Label, Box]]:
    """Labels and their boxes, those without a good place left out: the best of several orders in which to place them."""
    orders = (
        sorted(labels, key=lambda label: label.at),
        sorted(labels, key=lambda label: label.at, reverse=True),
        sorted(labels, key=lambda label: (label.at[1], label.at[0])),
        sorted(labels, key=lambda label: (-label.at[1], label.at[0])),
    )
    tried = [Placing(among, order) for order in orders]
    best = min(tried, key=lambda placing: placing.spent)
    for _ in range(SWEEPS):
        best.improve()
    return [(label, box) for label, (box, _) in best.places.items() if box is not None]


class Placing:
    """Places one label after the other, each where it is best beside those before it.

    Args:
        among: what they are placed among.
        labels: in the order in which they are placed.
    """

    def __init__(self, among: Surroundings, labels: Sequence[Label]) -> None:
        self.among = among
        self.places: dict[Label, tuple[Box | None, float]] = {}
        for label in labels:
            self.places[label] = self._best(label)

    @property
    def spent(self) -> float:
        """What all places cost together."""
        return sum(cost for _, cost in self.places.values())

    def improve(self) -> None:
        """Places every label once more, beside all others."""
        for label in list(self.places):
            del self.places[label]
            self.places[label] = self._best(label)

    def _best(self, label: Label) -> tuple[Box | None, float]:
        """The best place that is left and its cost, None where there is no good one."""
        best, least = None, HOPELESS
        stand = [(box, (other.at, box.middle)) for other, (box, _) in self.places.items() if box is not None]
        for box, effort in sorted(_candidates(label), key=lambda candidate: candidate[1]):
            if effort >= least:
                break
            cost = effort + self._cost(label, box, stand, least - effort)
            if cost < least:
                best, least = box, cost
        return best, least

    def _cost(self, label: Label, box: Box, stand: Sequence[tuple[Box, Segment]], enough: float) -> float:
        """What a place covers and what its leader crosses; stops counting at `enough`."""
        if not self.among.frame.holds(box):
            return OUTSIDE
        cost = 0.0
        for price, hit in self._hits(box, (label.at, box.middle), stand):
            cost += price * hit
            if cost >= enough:
                break
        return cost

    def _hits(self, box: Box, leader: Segment, stand: Sequence[tuple[Box, Segment]]) -> Iterator[tuple[float, bool]]:
        for other in [*self.among.taken, *(other for other, _ in stand)]:
            yield ON_LABEL, box.meets(other)
            yield LEADER_ON_LABEL, other.crossed_by(leader)
        for _, line in stand:
            yield LEADERS_CROSS, _cross(leader, line)
            yield LEADER_ON_LABEL, box.crossed_by(line)
        yield ON_LINE, any(box.crossed_by(line) for line in self.among.lines)
        for solid in self.among.solid:
            yield ON_POINT, box.meets(solid)
            yield LEADER_ON_POINT, not solid.holds(around(leader[0], 0, 0)) and solid.crossed_by(leader)


def _candidates(label: Label) -> Iterator[tuple[Box, float]]:
    """Boxes around a place, and how far and how little liked each is."""
    x, y = label.at
    for turn, angle in enumerate(ANGLES):
        towards = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        for distance in DISTANCES:
            middle = (
                x + towards[0] * (distance + label.width / 2),
                y + towards[1] * (distance + label.height / 2),
            )
            yield around(middle, label.width, label.height), distance + turn * TURN


def _cross(one: Segment, other: Segment) -> bool:
    """Whether two straight lines cross.

    >>> _cross(((0, 0), (2, 2)), ((0, 2), (2, 0))), _cross(((0, 0), (1, 0)), ((0, 1), (1, 1)))
    (True, False)
    """
    return _side(one, other[0]) != _side(one, other[1]) and _side(other, one[0]) != _side(other, one[1])


def _side(line: Segment, spot: Spot) -> bool:
    (x, y), (to_x, to_y) = line
    return (to_x - x) * (spot[1] - y) > (to_y - y) * (spot[0] - x)
