"""How steps are put together: small classes over one loop, which say what goes into the next step."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.serving.live import Live
    from roofcast.calculators.serving.replica import Replica


class Policy(Protocol):
    """What goes into a step."""

    mixes: ClassVar[bool]
    """Whether those that decode take part in a step that reads prompts."""
    deaf: ClassVar[bool]
    """Whether who comes changes nothing until those that run are done."""
    says: ClassVar[str]
    """What it is, in a line."""

    def chunks(self, replica: Replica) -> list[tuple[Live, int]]:
        """Requests and tokens of their prompts that the next step reads; none for a step of decode alone."""


class Chunked:
    """All that decode, and what they leave of the step's tokens goes to prompts, in pieces: no token waits for a prompt.

    Source: Agrawal et al. 2024, arXiv:2403.02310 (Sarathi-Serve), algorithm 3; vLLM V1's scheduler.
    """

    mixes: ClassVar[bool] = True
    deaf: ClassVar[bool] = False
    says: ClassVar[str] = "decode first, prompts in pieces in what is left of a step's tokens"

    def chunks(self, replica: Replica) -> list[tuple[Live, int]]:
        """Pieces of prompts, up to the budget less a token for each sequence that decodes."""
        if not replica.waiting and not replica.partial:
            return []
        budget = replica.limits.tokens - replica.decoding
        return _pieces(replica, budget)


class Continuous:
    """Requests join and leave at every step: whole prompts beside all that decode.

    Source: Yu et al. 2022, Orca, OSDI, section 3.1 (iteration-level scheduling) and 3.2 (selective batching).
    """

    mixes: ClassVar[bool] = True
    deaf: ClassVar[bool] = False
    says: ClassVar[str] = "whole prompts join those that decode at every step"

    def chunks(self, replica: Replica) -> list[tuple[Live, int]]:
        """Whole prompts up to the budget; one at least where there is room for it."""
        return _whole(replica, replica.limits.tokens - replica.decoding)


class PrefillFirst:
    """Prompts go before decode, in steps of their own: those that decode wait for them.

    Source: vLLM V0's scheduler; SGLang's, without mixed chunks, whose longer prompts go in pieces.
    """

    mixes: ClassVar[bool] = False
    deaf: ClassVar[bool] = False
    says: ClassVar[str] = "prompts before decode, in steps of their own"

    def chunks(self, replica: Replica) -> list[tuple[Live, int]]:
        """Prompts up to the budget, a longer one in pieces."""
        if not replica.waiting and not replica.partial:
            return []
        return _pieces(replica, replica.limits.tokens)


class DecodeFirst:
    """A batch is read, and decodes until all of it is done before the next is read; who is done leaves at once.

    Source: request-level batching, Agrawal et al. 2024, arXiv:2403.02310, section 2.5 (decode-prioritising).
    """

    mixes: ClassVar[bool] = False
    deaf: ClassVar[bool] = True
    says: ClassVar[str] = "a batch decodes to its end before the next one is read"

    def chunks(self, replica: Replica) -> list[tuple[Live, int]]:
        """Prompts, while none decodes or the batch is still being read."""
        if replica.count and not replica.partial:
            return []
        return _whole(replica, replica.limits.tokens)


class Static:
    """A batch is one tensor: prompts are padded to the longest, and all decode until the longest output is done.

    Source: request-level scheduling as in FasterTransformer, Yu et al. 2022, Orca, OSDI, section 3.1: requests that end
    early are computed on, and are answered with the batch.
    """

    mixes: ClassVar[bool] = False
    deaf: ClassVar[bool] = True
    says: ClassVar[str] = "a padded batch is computed to its longest output"

    def chunks(self, replica: Replica) -> list[tuple[Live, int]]:
        """A batch of padded prompts, where none decodes."""
        if replica.count:
            replica.pad()
            return []
        made: list[Live] = []
        while (live := replica.admit()) is not None:
            made.append(live)
        if replica.decoding:  # those that were read elsewhere, or before
            replica.pad()
        longest = max((live.todo for live in made), default=0)
        return [(live, longest) for live in made]


def _pieces(replica: Replica, budget: int) -> list[tuple[Live, int]]:
    """Prompts in the order in which they were admitted, then those that wait, as the budget lasts."""
    made: list[tuple[Live, int]] = []
    for live in replica.partial:
        new = min(live.todo - live.computed, budget)
        if new <= 0:
            return made
        made.append((live, new))
        budget -= new
    while budget > 0:
        decoding = replica.decoding
        more = replica.admit()
        if replica.policy.mixes:  # those whose cache came back decode in this step too
            budget -= replica.decoding - decoding
        if more is None or budget <= 0:
            break
        new = min(more.todo - more.computed, budget)
        made.append((more, new))
        budget -= new
    return made


def _whole(replica: Replica, budget: int) -> list[tuple[Live, int]]:
    """Whole prompts that wait, as the budget lasts; one that is longer than all of it goes alone."""
    made: list[tuple[Live, int]] = []
    for live in replica.partial:
        made.append((live, live.todo - live.computed))
        budget -= live.todo - live.computed
    while replica.waiting and (not made or replica.waiting[replica.turn].todo <= budget):
        more = replica.admit()
        if more is None:
            break
        made.append((more, more.todo - more.computed))
        budget -= more.todo - more.computed
    return made


POLICIES: Final[Mapping[str, type[Policy]]] = {
    "static": Static,
    "chunked": Chunked,
    "continuous": Continuous,
    "prefill-first": PrefillFirst,
    "decode-first": DecodeFirst,
}
