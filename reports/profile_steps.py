"""Tables of measured steps: the whole, families and terms, beside the roofs; and which roof each is under."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.hwdb.units import show_percent
from roofcast.modelspec.op import ELEMENTWISE
from roofcast.reports.document import Table, table
from roofcast.reports.numbers import NOTHING, context_name, count, figures, millis
from roofcast.reports.profile_machine import GIGA, between, flop_unit, per_second, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roofcast.calculators.profile_rows import PointRow, ProfileResult, ShareRow

TITLES: Final = {
    "prefill": "prefill: prompts from nothing, time to the last position's logits",
    "decode": "decode: a token of each sequence after a cache, time per output token",
}
SHARES: Final = ("of data\nsheet", "of\nmeasured")
FAILED: Final = "did not run"
MILLI: Final = 1e3
NO_SHARE: Final = 5e-4  # share of a roof below which 0.0 % would stand
CLOSE: Final = 0.3  # share of a roof from which on it is what bounds a step


def verdicts(points: Sequence[PointRow]) -> Iterator[str]:
    """Which roof the steps of each phase are near, by measurement.

    Yields a line a phase.
    """
    for phase in dict.fromkeys(point.phase for point in points):
        near: dict[str, list[PointRow]] = {}
        for point in points:
            if point.phase == phase and point.near is not None:
                near.setdefault(point.near, []).append(point)
        if near:
            said = "; ".join(f"{_bound(roof, some)}{_where(some, near)}, {_reach(some)}" for roof, some in near.items())
            yield f"{phase} by measurement: {said}"


def _bound(roof: str, some: Sequence[PointRow]) -> str:
    """Bound by a roof, or only nearer to it than to the other, where no step comes close to either."""
    reached = max(max(point.of_compute or 0.0, point.of_memory or 0.0) for point in some)
    return f"{roof}-bound" if reached >= CLOSE else f"nearer to the {roof} roof, but far from it"


def _where(some: Sequence[PointRow], near: dict[str, list[PointRow]]) -> str:
    """Which points, where not all are alike."""
    if len(near) == 1:
        return ""
    return " at " + ", ".join(f"{count(point.batch)} x {context_name(point.context)}" for point in some)


def _reach(some: Sequence[PointRow]) -> str:
    """Shares of both roofs, from least to most."""
    compute = _range([point.of_compute for point in some if point.of_compute is not None])
    memory = _range([point.of_memory for point in some if point.of_memory is not None])
    return f"{compute} of the measured peak and {memory} of the measured bandwidth"


def _range(shares: Sequence[float]) -> str:
    if not shares:
        return NOTHING
    low, high = (show_percent(share, 0 if share >= 0.1 else 1) for share in (min(shares), max(shares)))  # noqa: PLR2004
    return high if low == high else f"{low} to {high}"


def step_tables(result: ProfileResult, *, terms: bool) -> Iterator[Table]:
    """A table of steps a phase, then their families, then their terms where they are asked."""
    for phase in dict.fromkeys(point.phase for point in result.points):
        points = [point for point in result.points if point.phase == phase]
        yield _steps(phase, points)
        taken = [point for point in points if point.families and point.time is not None]
        if taken:
            yield _families(phase, taken)
        if terms:
            yield from (_terms(point) for point in taken)


def _steps(phase: str, points: Sequence[PointRow]) -> Table:
    """The whole steps; bound and expected time where the device is in the database."""
    bound = any(point.step is not None and point.step.bound_seconds is not None for point in points)
    expected = any(point.step is not None and point.step.expected_seconds is not None for point in points)
    unit = (
        (GIGA, "GB/s")
        if phase == "decode"
        else flop_unit(point.step.flops_per_second for point in points if point.step)
    )
    name = "prompt" if phase == "prefill" else "ctx"
    header = [name, "batch", "ms", "10-90 %", "tokens/s", unit[1]]
    header += [
        *(SHARES if bound else SHARES[1:]),
        *(["bound\nms"] if bound else []),
        *(["expect\nms"] if expected else []),
    ]
    cells = [_step(point, unit[0], bound=bound, expected=expected) for point in points]
    return table([*header, "near"], cells, title=TITLES[phase], left=(len(header),), breaks=(6,), keys=2)


def _step(point: PointRow, unit: float, *, bound: bool, expected: bool) -> list[str]:
    step, seconds = point.step, None if point.time is None else point.time.seconds
    rate = None
    if step is not None:
        rate = per_second(step.bytes_per_second if point.phase == "decode" else step.flops_per_second, unit)
    return [
        context_name(point.context),
        count(point.batch),
        millis(seconds),
        between(point.time),
        figures(point.tokens_per_second),
        rate or NOTHING,
        *([percent(step.of_datasheet if step else None)] if bound else []),
        percent(step.of_measured if step else None),
        *([millis(step.bound_seconds if step else None)] if bound else []),
        *([millis(step.expected_seconds if step else None)] if expected else []),
        FAILED if point.time is None else point.near or NOTHING,
    ]


def _families(phase: str, points: Sequence[PointRow]) -> Table:
    """Families of operations of every step."""
    sheet = any(row.of_datasheet is not None for point in points for row in point.families)
    name = "prompt" if phase == "prefill" else "ctx"
    unit = flop_unit(row.flops_per_second for point in points for row in point.families)
    header = (name, "batch", "family", "ms", "share", unit[1], "GB/s", *(SHARES if sheet else SHARES[1:]))
    cells = [
        (context_name(point.context), count(point.batch), *_share(row, point, unit[0], sheet=sheet))
        for point in points
        for row in point.families
    ]
    return table(header, cells, title=f"{phase} by family, each timed alone", left=(2,), keys=3)


def _share(row: ShareRow, point: PointRow, unit: float, *, sheet: bool) -> tuple[str, ...]:
    idle = _idle(row)
    return (
        row.name,
        signed(row.seconds),
        _part(row, point),
        per_second(row.flops_per_second if row.flops and row.family != ELEMENTWISE else None, unit),
        per_second(row.bytes_per_second if row.bytes and not idle else None, GIGA),
        *([percent(None if idle else row.of_datasheet)] if sheet else []),
        percent(None if idle else row.of_measured),
    )


def _idle(row: ShareRow) -> bool:
    """Whether a row has next to no weights and cache to move: of element-wise work whose share of every roof rounds to 0."""
    shares = [share for share in (row.of_datasheet, row.of_measured) if share is not None]
    return row.family == ELEMENTWISE and bool(shares) and max(shares) < NO_SHARE


def _part(row: ShareRow, point: PointRow) -> str:
    """Share of the whole step's time."""
    if row.seconds is None or point.time is None:
        return NOTHING
    return show_percent(row.seconds / point.time.seconds, 1)


def signed(seconds: float | None) -> str:
    """A time in milliseconds, which may be below 0.

    >>> signed(-0.00012), signed(0.0032), signed(None)
    ('-0.12', '3.20', '-')
    """
    if seconds is None:
        return NOTHING
    return figures(seconds * MILLI) if seconds >= 0 else f"-{figures(-seconds * MILLI)}"


def _terms(point: PointRow) -> Table:
    """The terms of one step, measured beside bound and expected time."""
    sheet = any(row.bound_seconds is not None for row in point.terms)
    expected = any(row.expected_seconds is not None for row in point.terms)
    header = ["term", *(["bound\nms"] if sheet else []), *(["expect\nms"] if expected else []), "measured\nms", "share"]
    unit = flop_unit(row.flops_per_second for row in point.terms)
    header += [unit[1], "GB/s", *(SHARES if sheet else SHARES[1:])]
    cells = []
    for row in point.terms:
        name, seconds, *rest = _share(row, point, unit[0], sheet=sheet)
        bound = [signed(row.bound_seconds)] if sheet else []
        cells.append([name, *bound, *([signed(row.expected_seconds)] if expected else []), seconds, *rest])
    title = f"terms of {point.phase}, {count(point.batch)} x {context_name(point.context)}"
    return table(header, cells, title=title)
