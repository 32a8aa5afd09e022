"""What `profile speculate` is asked: two models, the rounds and the texts."""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.calculators.errors import UsageError
from roofcast.cli.profiling_asked import MOST_POINTS, Steps
from roofcast.cli.profiling_steps import Model
from roofcast.cli.speculation_numbers import numbers, whole_numbers

ROUTING = "drawn"
MOST_NEW = 100_000  # tokens of a text


@dataclass(frozen=True, slots=True)
class Asked:
    """What options ask, as they were written.

    Args:
        names: of target and draft.
        points: --k, --batch, --context and --acceptance.
        weights: --weights and --draft-weights.
        text: --text and --tokens.
        seed: of the random weights.
    """

    names: tuple[str, str]
    points: tuple[str, str, str, str]
    weights: tuple[str | None, str | None]
    text: tuple[str | None, int | None]
    seed: int

    def models(self, revision: str | None, *, offline: bool) -> tuple[Model, Model]:
        """Target and draft; a revision is the target's.

        Raises:
            UsageError: what cannot be of one of them.
        """
        target, draft = (
            Model(name, weights, ROUTING, self.seed, revised, offline)
            for name, weights, revised in zip(self.names, self.weights, (revision, None), strict=True)
        )
        target.check()
        try:
            draft.check()
        except UsageError as error:
            raise UsageError(of_draft(error)) from error
        return target, draft

    def plan(self) -> Plan:
        """The rounds.

        Raises:
            UnitError, UsageError: naming the option.
        """
        from roofcast.calculators.speculative import check_acceptance

        k, batch, context, acceptance = self.points
        pairs, rates = (
            Steps(None, (batch, context)).points("decode"),
            dict.fromkeys(numbers(acceptance, "--acceptance")),
        )
        try:
            drafted = whole_numbers(k)
            for rate in rates:
                check_acceptance(rate)
        except UsageError as error:
            raise UsageError(f"--{str(error).removeprefix('--')}") from error
        if len(drafted) * len(pairs) > MOST_POINTS:
            many = len(drafted) * len(pairs)
            raise UsageError(f"--k, --batch and --context make {many:,} rounds; at most {MOST_POINTS} at once")
        return Plan(tuple((*pair, length) for pair in pairs for length in drafted), tuple(rates))

    def check_text(self) -> None:
        """Refuses texts that cannot be.

        Raises:
            UsageError: naming the option.
        """
        text, new = self.text
        if new is None:
            return
        if not 0 <= new <= MOST_NEW:
            raise UsageError(f"--tokens {new:,}: new tokens of each prompt are 0, which writes none, to {MOST_NEW:,}")
        if text is not None and not new:
            raise UsageError("--text says what is continued, --tokens 0 that nothing is; leave one of them out")


@dataclass(frozen=True, slots=True)
class Plan:
    """Rounds to time, and the acceptances that they are held against.

    Args:
        points: batch, context and k, all k of a batch and context after one another.
        acceptances: chances that a drafted token is accepted. [-]
    """

    points: tuple[tuple[int, int, int], ...]
    acceptances: tuple[float, ...]

    @property
    def drafted(self) -> tuple[int, ...]:
        """Every k. [token]"""
        return tuple(dict.fromkeys(drafted for _, _, drafted in self.points))

    @property
    def longest(self) -> int:
        """Tokens that a cache of any round holds at most. [token]"""
        return max(context + drafted for _, context, drafted in self.points)


def of_draft(error: Exception) -> str:
    """A complaint about an option of the target, of the draft's."""
    return str(error).replace("--weights", "--draft-weights", 1)
