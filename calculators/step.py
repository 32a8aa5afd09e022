"""One step on a deployment: its terms, and what they sum to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.parallel import exchange_cost
from roofcast.calculators.roofline import LINK, Term, timed
from roofcast.modelspec.op import Op
from roofcast.modelspec.ops import step_exchanges, step_ops

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.step import Step

TIMES: Final = ("bound", "full", "arithmetic", "memory", "moved", "expected")
# what of an operation grows with how often it is done
SCALED: Final = (
    "flops",
    "weight_bytes",
    "state_read",
    "state_written",
    "activation_read",
    "activation_written",
    "calls",
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A step's terms on one device; there is no number outside them.

    Args:
        terms: every operation and exchange.
    """

    terms: tuple[Term, ...]

    @property
    def ops(self) -> list[Op]:
        """The operations, without exchanges."""
        return [term.op for term in self.terms if isinstance(term.op, Op)]

    @property
    def bound(self) -> float:
        """Least time: the sum over terms of the most that compute, memory or a link needs. [s]"""
        return sum(term.bound for term in self.terms)

    @property
    def expected(self) -> float:
        """Expected time of the kernels: the sum over terms; 0 where no constants are asked. [s]"""
        return sum(term.expected for term in self.terms)

    @property
    def calls(self) -> float:
        """Kernels and exchanges of all layers. [-]"""
        return sum(term.op.calls for term in self.terms)

    @property
    def full(self) -> float:
        """Least time were activations to go through memory. [s]"""
        return sum(term.full for term in self.terms)

    @property
    def overlapped(self) -> float:
        """Were operations to overlap without limit: max of all F / P, all D / B and all exchanges, each summed. [s]

        Kernels that fuse attention of prefill and decode, or hide exchanges behind another batch, go below the sum of
        maxima; nothing goes below this.
        """
        links = sum(term.bound for term in self.terms if term.bound_by == LINK)
        return max(sum(term.arithmetic for term in self.terms), sum(term.memory for term in self.terms), links)

    @property
    def flops(self) -> float:
        """[FLOP] on one device."""
        return sum(op.flops for op in self.ops)

    @property
    def weight_bytes(self) -> float:
        """Weights read. [B]"""
        return sum(op.weight_bytes for op in self.ops)

    @property
    def state_bytes(self) -> float:
        """KV cache and recurrent state, read and written. [B]"""
        return sum(op.state_read + op.state_written for op in self.ops)

    @property
    def activation_bytes(self) -> float:
        """Inputs and outputs of every operation, each moved once. [B]"""
        return sum(op.activation_read + op.activation_written for op in self.ops)

    @property
    def bytes(self) -> float:
        """What must move: weights and state. [B]"""
        return self.weight_bytes + self.state_bytes

    @property
    def intensity(self) -> float:
        """FLOP for each byte of weights and state: F / D. [FLOP/B]"""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def full_intensity(self) -> float:
        """FLOP for each byte, activations included: F / (D + activations). [FLOP/B]"""
        size = self.bytes + self.activation_bytes
        return self.flops / size if size else 0.0

    @property
    def bound_by(self) -> str:
        """What bounds the terms that take the most of the time together: compute, memory or link."""
        times: defaultdict[str, float] = defaultdict(float)
        for term in self.terms:
            times[term.bound_by] += term.bound
        return max(times, key=lambda name: times[name])

    def term(self, name: str) -> tuple[Term, ...]:
        """The terms of that name: one for each shape and format of layer that has it."""
        return tuple(term for term in self.terms if term.op.name == name)


def estimate(ready: Ready, step: Step) -> Estimate:
    """The least time of one step: the sum over its operations of max(F / peak, D / bandwidth), and of its exchanges. [s]

    All on one device of the group that works on the step; stages of a pipeline follow one another, so that a step passes
    all of them. Which of compute and memory is the limit is told for each operation, never for the whole.

    Source: Williams, Waterman, Patterson, Roofline, CACM 52(4), 2009.
    """
    phase = step.phase
    terms = [timed(op, ready.roofs, ready.expectation, phase) for op in step_ops(ready.program, step, ready.formats)]
    if ready.deployment.shards.devices > 1:
        terms += _exchanged(ready, step)
    return Estimate(tuple(terms))


def scaled(one: Estimate, times: int) -> Estimate:
    """The same step so many times over."""
    return one if times == 1 else Estimate(tuple(_repeated(term, times) for term in one.terms))


def _repeated(term: Term, times: int) -> Term:
    made = {name: getattr(term, name) * times for name in TIMES}
    if not isinstance(term.op, Op):
        return replace(term, op=replace(term.op, times=term.op.times * times), **made)
    more = {name: getattr(term.op, name) * times for name in SCALED}
    return replace(term, op=replace(term.op, **more), **made)


def _exchanged(ready: Ready, step: Step) -> Iterable[Term]:
    for exchange in step_exchanges(ready.program, step):
        cost = exchange_cost(exchange, ready.fabric)
        expected = ready.expectation.exchanged(exchange, ready.fabric) if ready.expectation is not None else 0.0
        yield Term(exchange, cost.seconds, LINK, cost.seconds, moved=cost.moved, expected=expected)
