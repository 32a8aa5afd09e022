"""The answer of `validate`: measured points beside their bound and their expected time, and how far these are off."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.calculators.predict import PREDICTORS, Predicted
from roofcast.hwdb.accelerator_class import class_of
from roofcast.modelspec.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.measurement import Measurement

P90: Final = 0.9
TOLERANCE: Final = 1.02  # by which a measured time may be quicker than its bound: a card may boost over its data sheet
REFUSALS: Final = (ModelError, UsageError, UnansweredError)


@dataclass(frozen=True, slots=True)
class PointRow:
    """One measured point."""

    source: str
    """Where it was published: a link, or the file."""
    id: str | None
    """Within its source."""
    quantity: str
    """What was measured."""
    model: str | None
    """As written."""
    gpu: str | None
    """Id of the accelerator; as written where it is not known."""
    gpu_class: str | None
    """What a buyer would call it; null where the accelerator is not known."""
    gpus: int | None
    """All together."""
    engine: str | None
    """That ran it."""
    weights: str | None
    """Format asked for; null is as stored."""
    batch: int | None
    """Sequences at once; of a server its concurrency."""
    prompt: float | None
    """[token]"""
    output: float | None
    """[token]"""
    context: float | None
    """Mean tokens before a decoded one. [token]"""
    measured: float
    """In the quantity's unit: s, of rates token/s."""
    bound: float | None
    """The least time, or the highest rate; null where it cannot be told."""
    expected: float | None
    """Expected; null where it cannot be told."""
    low: float | None
    """Low end of its 80 % interval."""
    high: float | None
    """High end of its 80 % interval."""
    error: float | None
    """expected / measured - 1; bound / measured - 1 where no expected times are asked for. [-]"""
    inside: bool | None
    """Whether the measured value lies in the interval."""
    beaten: bool | None
    """Whether it is better than its bound by more than 2 %."""
    own: bool | None
    """Whether the constants are fitted on that accelerator and engine: such a point, or its like, may have been in the fit."""
    reason: str | None
    """Why it is not answered or not counted; null of the others."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """A group of points."""

    by: str
    """all, or the name of --by."""
    group: str
    """all, or what the points have in common."""
    points: int
    """That are counted."""
    median_error: float
    """Of |error|. [-]"""
    p90_error: float
    """Its 90th percentile. [-]"""
    bias: float
    """Median error with its sign. [-]"""
    inside_interval: float | None
    """Share of the points in their 80 % interval; null where no expected times are asked for. [-]"""
    bound_error: float
    """Median error were the bound taken for the expectation. [-]"""
    beaten: int
    """Points better than their bound by more than 2 %."""


@dataclass(frozen=True, slots=True)
class ValidateResult:
    """The result of `validate`."""

    points: list[PointRow]
    """The worst misses first, then those that are not counted."""
    summary: list[SummaryRow]
    """All points, then a row a group."""
    counted: int
    """Points that have an error, and count."""
    error_of: str
    """expected, or bound where no expected times are asked for."""
    uncounted: dict[str, int]
    """Why points are not counted -> how many."""


def validate_result(
    points: Iterable[Measurement],
    ready_of: Callable[[Measurement], Ready],
    groups: Sequence[str],
    *,
    expected: bool = True,
) -> ValidateResult:
    """Answers `validate`.

    Args:
        points: measured.
        ready_of: the deployment that a point was measured on, with an expectation where expected times are asked for.
        groups: of `GROUPS`, by which points are summed up.
        expected: whether expected times are held against the measured ones; else bounds are.
    """
    rows = [_row(point, ready_of) for point in points]
    counted = [row for row in rows if row.reason is None]
    uncounted: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        if row.reason is not None:
            uncounted[row.reason] += 1
    return ValidateResult(
        points=sorted(rows, key=_worst),
        summary=_summary(counted, groups),
        counted=len(counted),
        error_of="expected" if expected else "bound",
        uncounted=dict(sorted(uncounted.items(), key=lambda pair: (-pair[1], pair[0]))),
    )


def known_groups(text: str) -> list[str]:
    """Names of --by, each once.

    Raises:
        UsageError: one that is not known.

    >>> known_groups("gpu,engine,gpu")
    ['gpu', 'engine']
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = next((name for name in names if name not in GROUPS), None)
    if unknown:
        raise UsageError(f"--by {unknown}: known: {', '.join(GROUPS)}")
    return names


def _worst(row: PointRow) -> tuple[bool, float]:
    return row.reason is not None, -abs(row.error or 0.0)


def _row(point: Measurement, ready_of: Callable[[Measurement], Ready]) -> PointRow:
    """A point beside its prediction, or why there is none."""
    ready, found, reason = None, Predicted(None, None, None, None), point.suspect and f"suspect: {point.suspect}"
    try:
        if point.missing:
            raise UnansweredError(f"not stated: {', '.join(point.missing)}")
        ready = ready_of(point)
        found = PREDICTORS[point.quantity](ready, point)
    except REFUSALS as error:
        reason = reason or str(error)
    if found.bound is None and reason is None:
        reason = "does not fit the memory"
    compared = found.bound if found.expected is None else found.expected
    return PointRow(
        source=point.source,
        id=point.id,
        quantity=point.quantity,
        model=point.model,
        gpu=ready.deployment.accelerator.id if ready else point.gpu,
        gpu_class=class_of(ready.deployment.accelerator) if ready else None,
        gpus=point.gpus,
        engine=point.engine,
        weights=point.weights,
        batch=point.batch,
        prompt=point.prompt,
        output=point.output,
        context=point.mean_context,
        measured=point.value,
        bound=found.bound,
        expected=found.expected,
        low=found.low,
        high=found.high,
        error=compared / point.value - 1 if compared else None,
        inside=None if found.low is None or found.high is None else found.low <= point.value <= found.high,
        beaten=_beaten(point, found),
        own=_own(ready) if ready and ready.expectation else None,
        reason=reason,
    )


def _beaten(point: Measurement, found: Predicted) -> bool | None:
    if found.bound is None:
        return None
    ratio = point.value / found.bound
    return (ratio if found.rate else 1 / ratio) > TOLERANCE


def _own(ready: Ready) -> bool:
    """Whether the constants of matrices are of this accelerator and engine, if of another format."""
    used = ready.expectation.used if ready.expectation else []
    return all(set(one.ways) <= {"format"} for one in used if one.family in {"gemm", "moe"})


#: name of --by -> what it puts together
GROUPS: Final[Mapping[str, Callable[[PointRow], str]]] = {
    "quantity": lambda row: row.quantity,
    "gpu": lambda row: row.gpu or "?",
    "engine": lambda row: row.engine or "none",
    "class": lambda row: row.gpu_class or "?",
    "constants": lambda row: {None: "none", True: "of GPU and engine", False: "of others"}[row.own],
    "source": lambda row: row.source,
    "model": lambda row: row.model or "?",
}


def _summary(rows: Sequence[PointRow], groups: Iterable[str]) -> list[SummaryRow]:
    if not rows:
        return []
    made = [group_of("all", "all", rows)]
    for name in groups:
        parts: defaultdict[str, list[PointRow]] = defaultdict(list)
        for row in rows:
            parts[GROUPS[name](row)].append(row)
        made += [
            group_of(name, part, some)
            for part, some in sorted(parts.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        ]
    return made


def group_of(by: str, name: str, rows: Sequence[PointRow]) -> SummaryRow:
    """Median and 90th percentile of |error|, error = expected / measured - 1, and how many lie in their interval. [-]"""
    errors = sorted(abs(row.error or 0.0) for row in rows)
    known = [row.inside for row in rows if row.inside is not None]
    return SummaryRow(
        by=by,
        group=name,
        points=len(rows),
        median_error=statistics.median(errors),
        p90_error=errors[min(len(errors) - 1, int(P90 * len(errors)))],
        bias=statistics.median(row.error or 0.0 for row in rows),
        inside_interval=sum(known) / len(known) if known else None,
        bound_error=statistics.median(abs((row.bound or 0.0) / row.measured - 1) for row in rows),
        beaten=sum(bool(row.beaten) for row in rows),
    )
