"""A measured step beside its work, its bound and its expected time: term by term, by family, and as a whole."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Final

from roofcast.calculators.profile_compared import Compared, Least, StepComparison, arithmetic_of, bound_of, memory_of
from roofcast.calculators.roofline import timed
from roofcast.modelspec.op import ELEMENTWISE
from roofcast.modelspec.ops import step_ops
from roofcast.modelspec.step import DECODE, decode_step, prefill_step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roofcast.calculators.expected.expectation import Expectation
    from roofcast.calculators.profiled import DeviceProfile, Part, StepProfile
    from roofcast.calculators.roofline import Roofs, Term
    from roofcast.modelspec.op import Op
    from roofcast.modelspec.ops import Formats
    from roofcast.modelspec.program import Program
    from roofcast.modelspec.step import Step

WHOLE: Final = "step"
BETWEEN: Final = "between kernels"  # what a whole step takes beside its parts, each measured alone
#: term of `estimate`, or part that is measured -> row that both are in, where that has another name
ROWS: Final[Mapping[str, str]] = {"moe.gate_up": "moe.experts", "moe.down": "moe.experts"}


@dataclass(frozen=True, slots=True)
class _Sides:
    """What measured parts are held against; None of what is not known."""

    phase: str
    roofs: Roofs | None
    expectation: Expectation | None
    device: DeviceProfile | None
    exchanges: Sequence[Term]
    devices: int

    def links(self, name: str | None = None) -> list[Term]:
        """Exchanges of a name, or all."""
        return [term for term in self.exchanges if name is None or term.op.name == name]

    @property
    def unlinked(self) -> bool:
        """Whether nothing is known of what the devices exchange over: what is least is without it, and no step is expected."""
        return self.devices > 1 and not self.exchanges


@dataclass(frozen=True, slots=True)
class Together:
    """What several devices exchange in a step.

    Args:
        devices: that share every layer.
        exchanges: with their least times over the data sheet's links, and expected ones; none where they go over others.
    """

    devices: int = 1
    exchanges: tuple[Term, ...] = ()


ALONE: Final = Together()


def asked_step(measured: StepProfile) -> Step:
    """The step that was measured, as work is counted of it.

    Raises:
        MalformedModelError: no sequence, or no token.
    """
    make = decode_step if measured.phase == DECODE else prefill_step
    return make(measured.batch, measured.context)


def measured_ops(program: Program, formats: Formats, measured: StepProfile) -> list[Op]:
    """The operations of a measured step, as `estimate` counts them."""
    return step_ops(program, asked_step(measured), formats)


def compare_step(
    measured: StepProfile,
    ops: Sequence[Op],
    roofs: Roofs | None = None,
    expectation: Expectation | None = None,
    device: DeviceProfile | None = None,
    together: Together = ALONE,
) -> StepComparison:
    """Joins the parts of a measured step with its operations, by name.

    Args:
        measured: the step; where it could not run, work and bounds stand alone.
        ops: its operations, of `measured_ops`.
        roofs: of the data sheet; None where the device is not in the database.
        expectation: constants of expected times; counts only beside roofs.
        device: whose measured roofs count beside these.
        together: what its devices exchange, where they are several; links have no measured roof, and count as of the
            data sheet.
    """
    expected = expectation if roofs is not None else None
    sides = _Sides(measured.phase, roofs, expected, device, together.exchanges, together.devices)
    work: defaultdict[str, list[Op]] = defaultdict(list)
    parts: defaultdict[str, list[Part]] = defaultdict(list)
    for op in ops:
        work[_row(op.name)].append(op)
    for part in measured.parts:
        parts[_row(part.name)].append(part)
    links = (term.op.name for term in sides.exchanges)
    rows = tuple(_compared(name, work[name], parts[name], sides) for name in dict.fromkeys((*work, *parts, *links)))
    whole = _whole(measured, ops, rows, sides)
    between = _between(whole, rows)
    return StepComparison(measured, (*rows, *between), _families(rows), whole)


def _row(name: str) -> str:
    return ROWS.get(name, name)


def _compared(name: str, ops: Sequence[Op], parts: Sequence[Part], sides: _Sides) -> Compared:
    """One row of the operations and the measured parts of a name."""
    if not ops:
        return _exchanged(name, parts, sides)
    bound, expected = _estimated(ops, sides)
    return Compared(
        name=name,
        family=ops[0].family,
        calls=sum(part.calls for part in parts),
        flops=sum(op.flops for op in ops),
        bytes=sum(op.bytes for op in ops),
        activation_bytes=sum(op.activation_bytes for op in ops),
        seconds=sum(part.sample.seconds for part in parts) if parts else None,
        bound=bound,
        expected=expected,
        datasheet=datasheet_least(ops, sides.roofs),
        measured=measured_least(ops, sides.device, sides.roofs),
    )


def _exchanged(name: str, parts: Sequence[Part], sides: _Sides) -> Compared:
    """One row of exchanges between devices, which move no weights and no cache; or of a part that no operation has."""
    links = sides.links(name)
    known = sides.roofs is not None and bool(links)
    bound = sum(term.bound for term in links)
    least = Least(0.0, 0.0, bound) if known else None
    return Compared(
        name=name,
        family=links[0].op.family if links else parts[0].family,
        calls=sum(part.calls for part in parts),
        flops=0.0,
        bytes=0.0,
        activation_bytes=0.0,
        seconds=sum(part.sample.seconds for part in parts) if parts else None,
        bound=bound if known else None,
        expected=sum(term.expected for term in links) if known and sides.expectation is not None else None,
        datasheet=least,
        measured=None,
    )


def _estimated(ops: Iterable[Op], sides: _Sides) -> tuple[float | None, float | None]:
    """Bound and expected time of operations. [s]"""
    if sides.roofs is None:
        return None, None
    terms = [timed(op, sides.roofs, sides.expectation, sides.phase) for op in ops]
    expected = sum(term.expected for term in terms) if sides.expectation is not None else None
    return sum(term.bound for term in terms), expected


def datasheet_least(ops: Sequence[Op], roofs: Roofs | None) -> Least | None:
    """Least times of operations under the roofs of a data sheet; None where there are none.

    Args:
        ops: the operations.
        roofs: of the device.
    """
    if roofs is None:
        return None
    return _least(ops, [roofs.peaks.get(op.format) for op in ops], roofs.bandwidth)


def measured_least(ops: Sequence[Op], device: DeviceProfile | None, roofs: Roofs | None = None) -> Least | None:
    """Least times of operations under measured roofs; None where one of them was not measured.

    A format that was not multiplied has no measured peak. None is needed of work without FLOP, and the few FLOP of
    element-wise work count at the best peak that there is.

    Args:
        ops: the operations.
        device: whose roofs were measured.
        roofs: of the data sheet, which know in what format a device computes another that it lacks.
    """
    if device is None or device.bandwidth is None:
        return None
    instead = roofs.instead if roofs is not None else {}
    best = max(device.peaks.values(), default=inf)
    peaks = [
        device.peaks.get(op.format)
        or device.peaks.get(instead.get(op.format, op.format))
        or (best if op.family == ELEMENTWISE or not op.flops else None)
        for op in ops
    ]
    return _least(ops, peaks, device.bandwidth)


def _least(ops: Sequence[Op], peaks: Sequence[float | None], bandwidth: float) -> Least | None:
    """Sum of F / peak, of D / bandwidth, and of the larger of both: [s]."""
    known = [peak for peak in peaks if peak is not None]
    if not ops or len(known) < len(ops):
        return None
    arithmetic = [op.flops / peak for op, peak in zip(ops, known, strict=True)]
    memory = [op.bytes / bandwidth for op in ops]
    return Least(sum(arithmetic), sum(memory), sum(map(max, arithmetic, memory)))


def _whole(measured: StepProfile, ops: Sequence[Op], rows: Sequence[Compared], sides: _Sides) -> Compared:
    """The step: its terms' sums, and in the expected time the host's.

    Where nothing is known of exchanges its least times are without them, and no less true; there is no expected time.
    """
    seconds = None if measured.sample is None else measured.sample.seconds
    bound, kernels = _estimated(ops, sides)
    links = sides.links() if sides.roofs is not None else []
    linked = sum(term.bound for term in links)
    bound = None if bound is None else bound + linked
    kernels = None if kernels is None or sides.unlinked else kernels + sum(term.expected for term in links)
    return Compared(
        name=WHOLE,
        family="",
        calls=sum(row.calls for row in rows),
        flops=sum(op.flops for op in ops),
        bytes=sum(op.bytes for op in ops),
        activation_bytes=sum(op.activation_bytes for op in ops),
        seconds=seconds,
        bound=bound,
        expected=None if kernels is None else kernels + _host(measured, ops, kernels, sides),
        datasheet=_with_links(datasheet_least(ops, sides.roofs), linked),
        measured=_with_links(measured_least(ops, sides.device, sides.roofs), linked),
    )


def _with_links(least: Least | None, linked: float) -> Least | None:
    """The least time with that of exchanges, during which nothing is computed. [s]"""
    return None if least is None else replace(least, bound=least.bound + linked)


def _host(measured: StepProfile, ops: Sequence[Op], kernels: float, sides: _Sides) -> float:
    """Expected time of the host that kernels do not hide. [s]"""
    if sides.expectation is None:
        return 0.0
    calls = sum(op.calls for op in ops) + sum(term.op.calls for term in sides.exchanges)
    return sides.expectation.host(measured.phase, sides.devices, measured.batch, calls, kernels)


def _between(whole: Compared, rows: Sequence[Compared]) -> tuple[Compared, ...]:
    """What the step takes beside its parts, where these were measured; expected is the host's time. [s]"""
    known = [row.seconds for row in rows if row.seconds is not None]
    if whole.seconds is None or not known:
        return ()
    kernels = [row.expected for row in rows if row.expected is not None]
    host = whole.expected - sum(kernels) if whole.expected is not None else None
    return (Compared(BETWEEN, "", 0, 0.0, 0.0, 0.0, whole.seconds - sum(known), None, host, None, None),)


def _families(rows: Sequence[Compared]) -> tuple[Compared, ...]:
    """Rows of a family summed, the largest measured time first, then the largest bound."""
    groups: defaultdict[str, list[Compared]] = defaultdict(list)
    for row in rows:
        groups[row.family].append(row)
    made = [_summed(family, some) for family, some in groups.items()]
    return tuple(sorted(made, key=lambda one: (-(one.seconds or 0.0), -(one.bound or 0.0))))


def _summed(family: str, rows: Sequence[Compared]) -> Compared:
    return Compared(
        name=family,
        family=family,
        calls=sum(row.calls for row in rows),
        flops=sum(row.flops for row in rows),
        bytes=sum(row.bytes for row in rows),
        activation_bytes=sum(row.activation_bytes for row in rows),
        seconds=_total(row.seconds for row in rows),
        bound=_total(row.bound for row in rows),
        expected=_total(row.expected for row in rows),
        datasheet=_joined(row.datasheet for row in rows),
        measured=_joined(row.measured for row in rows),
    )


def _total(values: Iterable[float | None]) -> float | None:
    """The sum; None where one is not known, for the rest would pass for the whole."""
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if len(known) == len(every) else None


def _joined(values: Iterable[Least | None]) -> Least | None:
    every = list(values)
    known = [value for value in every if value is not None]
    if not known or len(known) < len(every):
        return None
    return Least(sum(map(arithmetic_of, known)), sum(map(memory_of, known)), sum(map(bound_of, known)))
