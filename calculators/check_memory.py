"""Memory as rules of `check` ask for it: the answers of `fit`, for any context, from one budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofcast.calculators.budget import max_sequences
from roofcast.calculators.cache import cache_bytes
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.fit import fit

if TYPE_CHECKING:
    from collections.abc import Callable

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.engines.terms import EngineMemory, Served
    from roofcast.calculators.fit import Machine
    from roofcast.modelspec.formats import Format
    from roofcast.modelspec.model import Model
    from roofcast.modelspec.requested import Requested


@dataclass(frozen=True, slots=True)
class Room:
    """What is left for a cache.

    Args:
        sequences: of a context, how many fit at once.
        tokens: that the cache holds in all; None where there is no such number. [token]
        left: whether anything is left for one, be it less than the longest request takes.
        reason: why there is no room, or the server does not start; empty where there is.
        said: what was assumed.
        longest: the longest request that the server takes; None without an engine. [token]
        most: requests that a replica runs at once, whatever fits; None where no flag bounds them.
    """

    sequences: Callable[[int], int]
    tokens: int | None
    left: bool
    reason: str
    said: Remarks
    longest: int | None = None
    most: int | None = None

    def why(self, context: int) -> str:
        """Why none of a context fits, where that is no matter of its cache alone; empty where it is."""
        if not self.reason and self.longest is not None and context > self.longest:
            return f"the longest request of this server has {self.longest:,} tokens"
        return self.reason


def plain_room(model: Model, machine: Machine, weights: Requested | None, kv: Format) -> Room:
    """The room of `fit --engine none`.

    Raises:
        UnansweredError, UsageError: as `fit`.
    """
    result, said = fit(model, machine, weights=weights, kv=kv, contexts=(1,))
    memory = result.memory

    def sequences(context: int) -> int:
        return max_sequences(memory.kv_bytes, cache_bytes(model.spec, kv, context, machine.count))

    reason = (result.reason or "").partition(";")[0] if memory.kv_bytes <= 0 else ""
    return Room(sequences, result.kv_tokens, memory.kv_bytes > 0, reason, said)


def served_room(served: Served) -> Room:
    """The room of a serving engine; sequences are of all replicas, tokens of one, as each prints them.

    Raises:
        UnansweredError, UsageError: as `fit`.
    """
    deployment = served.ready.deployment
    memory = engine_memory(deployment.engine, served)

    def sequences(context: int) -> int:
        return deployment.shards.dp * memory.sequences(context)

    tokens = memory.tokens[0] if memory.tokens else None
    most: int | None = memory.most if memory.most is not None else getattr(memory.room, "most", None)
    return Room(sequences, tokens, _leaves_room(memory), memory.reason or "", memory.said, memory.longest, most)


def _leaves_room(memory: EngineMemory) -> bool:
    """Whether a server starts, or would for shorter requests: its cache, with what is left beside it, is not empty."""
    if memory.starts:
        return True
    rest = {term.name: term.bytes for term in memory.terms if term.name in {"kv", "left"}}
    short = "left" in rest or memory.tokens is None or memory.tokens[0] < memory.longest
    return short and sum(rest.values()) > 0
