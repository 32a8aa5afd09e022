"""What went on over time, in a bounded number of stretches that grow longer as time goes on."""

from __future__ import annotations

from typing import Final

from roofcast.calculators.serving.result import Moment

MOST: Final = 400  # stretches
FIRST: Final = 0.05  # their length at first [s]
RUNNING, WAITING, TAKEN, READ, MADE = range(5)
FIELDS: Final = 5
ONE_WAITS: Final = (0.0, 1.0, 0.0)


class Series:
    """Sums over stretches of time of one length; where they grow too many, two become one.

    Args:
        capacity: of the memory whose share is taken, of all replicas together.
    """

    __slots__ = ("_capacity", "_rows", "width")

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        self._rows: list[list[float]] = []
        self.width = FIRST

    def add(self, start: float, end: float, levels: tuple[float, float, float], read: float, made: float) -> None:
        """A time in which so many requests ran, waited, and so much memory was taken, and tokens were read and made."""
        seconds = end - start
        if seconds <= 0:
            return
        first, last = int(start / self.width), int(end / self.width)
        rows = self._rows
        if last >= len(rows):
            self._reach(end)
            rows, first, last = self._rows, int(start / self.width), int(end / self.width)
        if first == last:
            row = rows[first]
            row[RUNNING] += levels[0] * seconds
            row[WAITING] += levels[1] * seconds
            row[TAKEN] += levels[2] * seconds
            row[READ] += read
            row[MADE] += made
            return
        for index in range(first, last + 1):
            begin, until = max(start, index * self.width), min(end, (index + 1) * self.width)
            if until > begin:
                share = (until - begin) / seconds
                _add(rows[index], until - begin, levels, (read * share, made * share))

    def _reach(self, end: float) -> None:
        """Stretches up to a time, of twice the length where they would be too many."""
        while int(end / self.width) >= MOST:
            self._halve()
        self._rows += [[0.0] * FIELDS for _ in range(int(end / self.width) + 1 - len(self._rows))]

    def wait(self, start: float, end: float) -> None:
        """A request waited from one time to another."""
        self.add(start, end, ONE_WAITS, 0.0, 0.0)

    def _halve(self) -> None:
        rows = self._rows
        if len(rows) % 2:
            rows.append([0.0] * FIELDS)
        self._rows = [
            [a + b for a, b in zip(one, two, strict=True)] for one, two in zip(rows[::2], rows[1::2], strict=True)
        ]
        self.width *= 2

    def within(self, start: float, end: float) -> float:
        """Requests that run and wait, in the mean over the stretches that a time touches. [-]"""
        rows = self._rows[int(start / self.width) : int(end / self.width) + 1]
        return sum(row[RUNNING] + row[WAITING] for row in rows) / (len(rows) * self.width) if rows else 0.0

    def moments(self, makespan: float) -> list[Moment]:
        """Means of all stretches; the last one ends with the makespan."""
        made = []
        for index, row in enumerate(self._rows):
            start = index * self.width
            length = min(self.width, makespan - start)
            if length <= 0:
                break
            made.append(
                Moment(
                    seconds=start,
                    running=row[RUNNING] / length,
                    waiting=row[WAITING] / length,
                    kv_utilisation=row[TAKEN] / length / self._capacity if self._capacity else 0.0,
                    prompt_tokens_per_second=row[READ] / length,
                    output_tokens_per_second=row[MADE] / length,
                    length_seconds=length,
                )
            )
        return made


def _add(row: list[float], seconds: float, levels: tuple[float, float, float], tokens: tuple[float, float]) -> None:
    """What goes into one stretch."""
    for place, level in zip((RUNNING, WAITING, TAKEN), levels, strict=True):
        row[place] += level * seconds
    row[READ] += tokens[0]
    row[MADE] += tokens[1]
