"""A start-up log beside the prediction, term by term, and what its own terms come to by the engine's rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.deployment import prepare
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.log_compare import compare, first_difference, given_of
from roofcast.calculators.log_lines import LogAgainst

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roofcast.calculators.engines.flags import Flags
    from roofcast.calculators.engines.terms import EngineMemory, Served
    from roofcast.calculators.log_lines import LogLine
    from roofcast.calculators.log_terms import StartLog

# terms that the budget is spent on, which must all be logged before the cache follows from them
SPENT: Final = ("weights", "activation", "non_torch")
MODES: Final = ("align", "none", "all")  # ways of keeping states that are tried likewise
ROUNDED: Final = 1.001  # of half a unit of the last digit
OLDER: Final = ("0.20.0", "0.7.3")  # versions whose tokens lines are tried on a log that states none


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
    lines = [_line(row, own.get(row.term)) for row in rows]
    return LogAgainst(
        engine=log.engine,
        version=log.version,
        lines=lines,
        first_difference=first.term if first else None,
        cause=first.cause if first else None,
        failure=log.failure,
        notes=list(log.notes),
    )


def _line(row: LogLine, own: Own | None) -> LogLine:
    value, low, high = own or (None, None, None)
    return replace(row, from_log=value, from_log_low=low, from_log_high=high)


Own = tuple[float, float, float]  # a value, and the least and most that the printed digits allow


def own_terms(log: StartLog, served: Served) -> dict[str, Own]:
    """What the engine's rules make of the log's own terms: the cache, its blocks, tokens and concurrency.

    The cache from budget, weights, activations, memory beside PyTorch's and graphs; blocks from the cache as logged, as
    its printed digits allow them; tokens and concurrency from the blocks as logged, else from those that the digits
    allow and that give the logged tokens. Of a server with stages the log prints the first one's cache; blocks are of
    the fullest.
    """
    given, engine = given_of(log), served.ready.deployment.engine
    blocks, kv = given.pop("blocks", None), given.pop("kv", None)
    own: dict[str, Own | None] = {}
    derived = _derived(log, served, given)
    staged = served.ready.deployment.shards.pp > 1
    if derived is not None and not staged:
        own["kv"] = derived
    size = log.term("kv")
    held = derived if staged and derived is not None else _printed(kv, size.step if size else 0.0)
    if held is not None:
        own["blocks"] = _near(blocks, _blocks_of(engine, served, held))
    counted = blocks if blocks is not None else _counted(log, served, held)
    known = {name: value for name, value in own.items() if value is not None}
    if counted is None:
        return known
    memory = engine_memory(engine, served, {"kv": held[0] if held else 0.0, "blocks": counted})
    made = {
        "block_size": memory.block_tokens,
        "tokens": memory.tokens[0] if memory.tokens else None,
        "concurrency": memory.concurrency,
    }
    return known | {name: (float(n), float(n), float(n)) for name, n in made.items() if n is not None}


def _printed(value: float | None, step: float) -> Own | None:
    """A logged value and what its digits allow."""
    return None if value is None else (value, value - step / 2, value + step / 2)


def _derived(log: StartLog, served: Served, given: Mapping[str, float]) -> Own | None:
    """The cache from what the log says is taken off the budget; None where it does not say all of it."""
    total = log.term("non_kv")
    if total is not None and "budget" in given:
        return _printed(given["budget"] - total.value, 2 * total.step)
    if not given.keys() >= set(SPENT):
        return None
    taken = {"cuda_graphs": 0.0} | dict(given)  # a log without an estimate of graphs is of a server that takes none off
    step = max((term.step for term in log.terms if term.name in SPENT), default=0.0)
    return _printed(engine_memory(served.ready.deployment.engine, served, taken).kv[0], 4 * step)


def _blocks_of(engine: str, served: Served, kv: Own) -> Own | None:
    """Blocks of a cache, and of the least and most that it may be."""
    counts = [engine_memory(engine, served, {"kv": size}).blocks for size in kv]
    if any(count is None for count in counts):
        return None
    value, low, high = (float(count or 0) for count in counts)
    return value, low, high


def _near(logged: float | None, allowed: Own | None) -> Own | None:
    """Of what is allowed, the one nearest to what is logged."""
    if allowed is None or logged is None:
        return allowed
    _, low, high = allowed
    return min(max(logged, low), high), low, high


def _counted(log: StartLog, served: Served, kv: Own | None) -> float | None:
    """Of the blocks that the logged cache allows, the fewest that give the logged tokens."""
    tokens, engine = log.term("tokens"), served.ready.deployment.engine
    if tokens is None or kv is None or (allowed := _blocks_of(engine, served, kv)) is None:
        return None
    low, high = int(allowed[1]), int(allowed[2])
    while low < high:  # tokens grow with blocks
        middle = (low + high) // 2
        made = engine_memory(engine, served, {"kv": kv[0], "blocks": float(middle)}).tokens
        if made is None:
            return None
        low, high = (middle + 1, high) if made[0] < tokens.value else (low, middle)
    return float(low)


def as_logged(log: StartLog, served: Served) -> tuple[Served, Remarks]:
    """The question with what the log's tokens and concurrency tell of what neither user nor log says.

    Two meanings of vLLM's tokens line are known, blocks over groups and concurrency times the longest request; a hybrid's
    states take more blocks with prefix caching (align); and a drafting model may keep nothing of its own in the cache. Where
    the rules that would be taken do not give the logged numbers and others do, those count.
    """
    flags = served.flags
    if log.engine != "vllm" or log.term("tokens") is None:
        return served, Remarks()
    versions = (None, *OLDER) if flags.engine_version is None else (flags.engine_version,)
    open_mode = any(part.fixed for part in served.ready.model.spec.kept) and flags.mamba_cache_mode is None
    modes = (None, *MODES) if open_mode else (flags.mamba_cache_mode,)
    for base, drafts in ((served, None), *_undrafted(served)):
        for mode, version in product(modes, versions):
            other = replace(base, flags=replace(flags, engine_version=version, mamba_cache_mode=mode))
            if _gives(log, other):
                return other, remarks(notes=[*_told(flags, version, mode), drafts])
    return served, Remarks()


def _undrafted(served: Served) -> Iterator[tuple[Served, str]]:
    """The same without draft layers in the cache, where tokens are drafted."""
    model = served.ready.model
    if model.spec.drafting:
        plain = replace(model, spec=replace(model.spec, drafting=False))
        ready = prepare(plain, served.ready.deployment)
        yield replace(served, ready=ready), "the log's tokens are those of a cache without layers of the draft"


def _gives(log: StartLog, served: Served) -> bool:
    """Whether the log's own terms give its tokens and, where it states one, its concurrency."""
    own = own_terms(log, served)
    for name in ("tokens", "concurrency"):
        term = log.term(name)
        if term is not None and (name not in own or abs(own[name][0] - term.value) > term.step / 2 * ROUNDED):
            return False
    return True


def _told(flags: Flags, version: str | None, mode: str | None) -> list[str | None]:
    """What was found out, in words."""
    caching = {"align": "with prefix caching", "none": "without prefix caching", "all": "of every block"}
    return [
        f"the log states no version; its tokens line is as vLLM {version} counts"
        if version != flags.engine_version
        else None,
        f"the log's tokens are those of --mamba-cache-mode {mode}, {caching[mode]}"
        if mode not in {None, flags.mamba_cache_mode}
        else None,
    ]
