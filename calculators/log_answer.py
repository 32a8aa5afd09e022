"""A start-up log beside the prediction, term by term, and what its own terms come to by the engine's rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.log_compare import compare, first_difference, given_of
from roofcast.calculators.log_lines import LogAgainst, LogLine

if TYPE_CHECKING:
    from roofcast.calculators.engines.terms import EngineMemory, Served
    from roofcast.calculators.log_terms import StartLog

# terms that the budget is spent on, which must all be logged before the cache follows from them
SPENT: Final = ("weights", "activation", "non_torch")


def log_against(log: StartLog, served: Served, predicted: EngineMemory) -> LogAgainst:
    """Sets a log beside the prediction.

    Args:
        log: as read.
        served: model, machine and flags, as the log or the user says them.
        predicted: without the log.

    Raises:
        UsageError: the log is another engine's.
    """
    rows = compare(log, predicted)
    first = first_difference(rows)
    own = own_terms(log, served)
    lines = [
        LogLine(r.term, r.logged, own.get(r.term), r.predicted, r.low, r.high, r.agrees, r.cause, r.line) for r in rows
    ]
    return LogAgainst(
        engine=log.engine,
        version=log.version,
        lines=lines,
        first_difference=first.term if first else None,
        cause=first.cause if first else None,
        failure=log.failure,
        notes=list(log.notes),
    )


def own_terms(log: StartLog, served: Served) -> dict[str, float]:
    """What the engine's rules make of the log's own terms: the cache, its blocks, tokens and concurrency.

    The cache from budget, weights, activations, memory beside PyTorch's and graphs; blocks from the cache as logged, of
    all that its printed digits allow those that give the logged tokens; tokens and concurrency from the blocks.
    """
    given, engine = given_of(log), served.ready.deployment.engine
    blocks = given.pop("blocks", None)
    kv = given.pop("kv", None)
    own: dict[str, float] = {}
    total = log.term("non_kv")
    if total is not None and "budget" in given:
        own["kv"] = given["budget"] - total.value
    elif given.keys() >= set(SPENT):
        own["kv"] = engine_memory(engine, served, given).kv[0]
    if kv is None and blocks is None:
        return own
    counted = blocks if kv is None else _blocks(log, served, kv, blocks)
    at = {"kv": kv or 0.0} | ({} if counted is None else {"blocks": counted})
    memory = engine_memory(engine, served, at)
    return own | _counts(memory, from_kv=_from_kv(engine, served, kv, blocks))


def _counts(memory: EngineMemory, *, from_kv: float | None) -> dict[str, float]:
    made = {
        "block_size": memory.block_tokens,
        "blocks": from_kv if from_kv is not None else memory.blocks,
        "tokens": memory.tokens[0] if memory.tokens else None,
        "concurrency": memory.concurrency,
    }
    return {name: float(value) for name, value in made.items() if value is not None}


def _from_kv(engine: str, served: Served, kv: float | None, logged: float | None) -> float | None:
    """Blocks that the logged cache holds, where the log states blocks too; None else."""
    if kv is None or logged is None:
        return None
    blocks = engine_memory(engine, served, {"kv": kv}).blocks
    return None if blocks is None else float(blocks)


def _blocks(log: StartLog, served: Served, kv: float, logged: float | None) -> float | None:
    """Blocks of the pool: as logged, else those within the rounding of the cache that give the logged tokens."""
    tokens, size = log.term("tokens"), log.term("kv")
    if logged is not None or tokens is None or size is None:
        return logged
    engine, half = served.ready.deployment.engine, size.step / 2
    low, high = (engine_memory(engine, served, {"kv": kv + off}).blocks for off in (-half, half))
    if low is None or high is None:
        return None
    while low < high:  # tokens grow with blocks
        middle = (low + high) // 2
        made = engine_memory(engine, served, {"kv": kv, "blocks": float(middle)}).tokens
        if made is None:
            return None
        low, high = (middle + 1, high) if made[0] < tokens.value else (low, middle)
    return float(low)
