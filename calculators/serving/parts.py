"""A step taken apart: what its tokens, its logits and each sequence's attention take, so that parts can be remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from roofcast.calculators.expected.families import HOST
from roofcast.calculators.expected.host import HostConstants
from roofcast.calculators.parallel import exchange_cost
from roofcast.calculators.roofline import timed
from roofcast.modelspec.ops import (
    cross_op,
    dense_op,
    elementwise_op,
    experts_op,
    gather_op,
    head_op,
    index_op,
    mixer_op,
    step_exchanges,
)
from roofcast.modelspec.step import DECODE, PREFILL, Group, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.deployment import Ready
    from roofcast.modelspec.op import Exchange, Op

LOGITS: Final = "tp.logits"


class Cost(NamedTuple):
    """Kernels of a part of a step.

    Args:
        seconds: their time. [s]
        calls: how many. [-]
    """

    seconds: float
    calls: float


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of steps of one replica of a deployment; their sum is the step's `Estimate`.

    Args:
        ready: the deployment.
    """

    ready: Ready

    def tokens(self, phase: str, tokens: int) -> Cost:
        """All that looks at tokens and not at whose they are: matrices, experts, norms, exchanges of layers."""
        ready = self.ready
        program, formats, shards = ready.program, ready.formats, ready.deployment.shards
        ops = [gather_op(program, tokens, formats), elementwise_op(program, tokens, formats)]
        ops += [dense_op(part, times, tokens) for part, times in program.dense]
        met = tokens * shards.dp if shards.ep > 1 else tokens  # other replicas are taken to be as full
        sent = shards.ep > 1 and shards.dp > 1
        ops += [experts_op(part, times, met, sent=sent) for part, times in program.routed]
        made = self._summed(ops, phase)
        step = Step((Group(phase if phase == DECODE else PREFILL, 1, tokens, 0, positions=0),))
        return self._with_exchanges(made, (e for e in step_exchanges(program, step) if e.name != LOGITS))

    def logits(self, phase: str, positions: int) -> Cost:
        """The head at so many positions, and gathering what devices have of it."""
        program = self.ready.program
        made = self._summed([head_op(program.head, positions)], phase)
        step = Step((Group(DECODE, positions, 1, 0),))
        return self._with_exchanges(made, (e for e in step_exchanges(program, step) if e.name == LOGITS))

    def decoding(self, phase: str, sequences: int, context: int, new: int = 1) -> Cost:
        """Attention of sequences that each add `new` tokens and hold `context` then."""
        return self._mixed(Group(DECODE, sequences, new, context - new, positions=new), phase)

    def chunk(self, phase: str, new: int, before: int) -> Cost:
        """Attention of a piece of a prompt behind tokens that are in the cache."""
        return self._mixed(Group(PREFILL, 1, new, before), phase)

    def crossed(self, phase: str, starts: int) -> Cost:
        """Keys and values of encoders, for so many prompts that begin."""
        step = Step((Group(PREFILL, starts, 1, 0),))
        return self._summed([cross_op(*part, step) for part in self.ready.program.crossed], phase)

    @property
    def has_encoder(self) -> bool:
        """Whether prompts bring an encoder's keys and values."""
        return bool(self.ready.program.crossed)

    def host(self, phase: str) -> HostConstants:
        """The host's constants in steps of a phase; nought at the bound."""
        expectation = self.ready.expectation
        if expectation is None:
            return HostConstants()
        found: HostConstants = expectation.choice(HOST, phase).constants
        return found

    def _mixed(self, group: Group, phase: str) -> Cost:
        program, formats = self.ready.program, self.ready.formats
        ops = [mixer_op(mixing, group, formats, program.shards.tp) for mixing in program.mixers]
        ops += [index_op(mixing, group) for mixing in program.mixers if getattr(mixing.mixer, "index", None)]
        return self._summed(ops, phase)

    def _summed(self, ops: Iterable[Op], phase: str) -> Cost:
        seconds = calls = 0.0
        ready = self.ready
        for op in ops:
            term = timed(op, ready.roofs, ready.expectation, phase)
            seconds += term.expected if ready.expectation is not None else term.bound
            calls += op.calls
        return Cost(seconds, calls)

    def _with_exchanges(self, made: Cost, exchanges: Iterable[Exchange]) -> Cost:
        ready, (seconds, calls) = self.ready, made
        for exchange in exchanges:
            if ready.expectation is None:
                seconds += exchange_cost(exchange, ready.fabric).seconds
            else:
                seconds += ready.expectation.exchanged(exchange, ready.fabric)
            calls += exchange.calls
        return Cost(seconds, calls)
