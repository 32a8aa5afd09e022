"""Measured rounds of speculation beside what `speculate` says of them: least times by the data sheet, times by fitted constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.profile_making import measured_rows, time_row
from roofcast.calculators.profile_rows_rounds import RoundCostRow, RoundRow, SpedRow
from roofcast.calculators.profiled import StepProfile
from roofcast.calculators.roofline import timed
from roofcast.calculators.speculative import break_even_acceptance, expected_tokens
from roofcast.modelspec.ops import step_ops
from roofcast.modelspec.step import DECODE, decode_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roofcast.calculators.profile_rows import MachineRow, MeasuredRow
    from roofcast.calculators.profile_rows_time import TimeRow
    from roofcast.calculators.profile_work import Against, Counted
    from roofcast.calculators.profiled import Sample
    from roofcast.calculators.profiled_rounds import RoundProfile
    from roofcast.modelspec.step import Step


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two models: its work, and what this is held against.

    Args:
        work: as the profiler's decoder does it.
        against: roofs and constants; without roofs nothing is estimated.
    """

    work: Counted
    against: Against


@dataclass(frozen=True, slots=True)
class RoundTimes:
    """What the parts of a round take, of one kind of estimate.

    Args:
        decode: a decode step of the target. [s]
        draft: one of the draft. [s]
        verify: the target's step over k + 1 positions. [s]
    """

    decode: float
    draft: float
    verify: float

    def cost(self, drafted: int) -> float:
        """A round in decode steps: (k T_draft + T_verify(k+1)) / T_decode. [-]

        Source: Leviathan et al. 2023, arXiv:2211.17192, section 3.

        >>> RoundTimes(4e-3, 1e-3, 5e-3).cost(4)
        2.25
        """
        return (drafted * self.draft + self.verify) / self.decode


def estimated(
    target: Side, draft: Side, batch: int, context: int, drafted: int
) -> tuple[RoundTimes | None, RoundTimes | None]:
    """Least times, and times by fitted constants; None of what is not known. [s]

    The least are those of `speculate`, but of fp8: embedding, head and routers are in 16 bits here, and in 8 there.

    Args:
        target: the model that is sped up.
        draft: the one that drafts.
        batch: sequences.
        context: tokens of each, with the first that is verified. [token]
        drafted: k. [token]
    """
    one = decode_step(batch, context)
    several = decode_step(batch, context + drafted, tokens=drafted + 1)
    parts = [_step(target, one), _step(draft, one), _step(target, several)]
    return _times([bound for bound, _ in parts]), _times([expected for _, expected in parts])


def _times(parts: Sequence[float | None]) -> RoundTimes | None:
    known = [part for part in parts if part is not None]
    return RoundTimes(*known) if len(known) == len(parts) else None


def _step(side: Side, step: Step) -> tuple[float | None, float | None]:
    """Bound of a step, and its expected time with the host's. [s]"""
    roofs, expectation = side.against.roofs, side.against.expectation
    if roofs is None:
        return None, None
    terms = [timed(op, roofs, expectation, DECODE) for op in step_ops(side.work.program, step, side.work.formats)]
    bound = sum(term.bound for term in terms)
    if expectation is None:
        return bound, None
    kernels, calls = sum(term.expected for term in terms), sum(term.op.calls for term in terms)
    return bound, kernels + expectation.host(DECODE, 1, step.groups[0].sequences, calls, kernels)


def round_row(one: RoundProfile, target: Side, draft: Side, acceptances: Sequence[float]) -> RoundRow:
    """A measured round beside its estimates, and what each makes of the acceptances asked for.

    Args:
        one: as measured.
        target: the model that is sped up.
        draft: the one that drafts.
        acceptances: chances that a drafted token is accepted. [-]
    """
    bound, expected = estimated(target, draft, one.batch, one.context, one.drafted)
    cost = RoundCostRow(one.cost, *(None if times is None else times.cost(one.drafted) for times in (bound, expected)))
    return RoundRow(
        batch=one.batch,
        context=one.context,
        drafted=one.drafted,
        launched=one.launched,
        decode=_time(one.decode),
        draft=_time(one.draft),
        drafting=_time(one.drafting),
        verify=_time(one.verify),
        round=_time(one.round),
        draft_ratio=one.draft_ratio,
        verify_ratio=one.verify_ratio,
        bound_decode_seconds=_of(bound, lambda times: times.decode),
        bound_draft_ratio=_of(bound, lambda times: times.draft / times.decode),
        bound_verify_ratio=_of(bound, lambda times: times.verify / times.decode),
        expected_decode_seconds=_of(expected, lambda times: times.decode),
        expected_draft_ratio=_of(expected, lambda times: times.draft / times.decode),
        expected_verify_ratio=_of(expected, lambda times: times.verify / times.decode),
        cost=cost,
        speedups=[_sped(acceptance, one.drafted, cost) for acceptance in acceptances],
        break_even_acceptance=None if one.cost is None else break_even_acceptance(one.cost, one.drafted),
        problem=one.problem,
    )


def _time(sample: Sample | None) -> TimeRow | None:
    return None if sample is None else time_row(sample)


def _of(times: RoundTimes | None, what: Callable[[RoundTimes], float]) -> float | None:
    return None if times is None else what(times)


def _sped(acceptance: float, drafted: int, cost: RoundCostRow) -> SpedRow:
    """Speed-up over plain decode: E(k) / cost, of each kind of cost."""
    tokens = expected_tokens(acceptance, drafted)
    speeds = (None if value is None else tokens / value for value in (cost.measured, cost.bound, cost.expected))
    return SpedRow(acceptance, tokens, *speeds)


def step_measurements(
    rounds: Iterable[RoundProfile],
    machine: MachineRow,
    named: tuple[str, str | None],
    formats: tuple[str, str],
    *,
    of_draft: bool,
) -> list[MeasuredRow]:
    """The plain decode steps beside rounds, as `validate` reads them: one a batch and context.

    Args:
        rounds: as measured.
        machine: that they ran on.
        named: the model, as asked for, and its revision.
        formats: of its weights and its cache.
        of_draft: whether it is the draft.
    """
    samples = {(one.batch, one.context): one.draft if of_draft else one.decode for one in rounds}
    steps = [StepProfile(DECODE, *point, sample) for point, sample in samples.items() if sample is not None]
    return measured_rows(steps, machine, named, formats)
