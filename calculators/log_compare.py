"""Sets what a log says of a server's start beside the prediction, and names what differs first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.terms import together
from roofcast.calculators.errors import UsageError
from roofcast.calculators.log_causes import CAUSES, LESS, MORE
from roofcast.calculators.log_lines import LogLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roofcast.calculators.engines.terms import EngineMemory
    from roofcast.calculators.log_terms import Logged, StartLog

CLOSE: Final = 0.02  # of a prediction, beside its interval
ORDER: Final = (
    "visible", "budget", "weights", "activation", "non_torch", "cuda_graphs_estimated", "cuda_graphs", "mamba", "state", "kv",
    "block_size", "blocks", "tokens", "concurrency",
)  # fmt: skip
# what an engine's log calls a term, and the prediction that it is beside, the first that there is
BESIDE: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("vllm", "cuda_graphs_estimated"): ("cuda_graphs_estimated", "cuda_graphs"),
    ("vllm", "cuda_graphs"): ("cuda_graphs_captured",),  # captured when the cache has its size: no term of it
    ("sglang", "mamba"): ("mamba", "states", "state"),
    ("llama.cpp", "model_buffer"): ("model_buffer", "weights"),
    ("llama.cpp", "compute_buffer"): ("compute_buffer", "compute", "activation"),
    ("llama.cpp", "state"): ("state", "states", "recurrent"),
}
NAMED: Final[Mapping[tuple[str, str], str]] = {
    ("llama.cpp", "model_buffer"): "weights",
    ("llama.cpp", "compute_buffer"): "activation",
}
# terms that follow from others: where one of these differs already, it is the cause
FOLLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    "budget": ("visible",),
    "non_kv": ("weights", "activation", "non_torch"),
    "kv": ("visible", "budget", "weights", "activation", "non_torch", "cuda_graphs_estimated", "mamba"),
    "blocks": ("kv", "block_size"),
    "tokens": ("kv", "blocks", "concurrency_tokens"),
    "concurrency": ("kv", "blocks", "concurrency_tokens"),
}
# what an engine's rules take from a log instead of predicting it, and what the log calls it
GIVEN: Final[Mapping[str, Mapping[str, str]]] = {
    "vllm": {
        "visible": "visible",
        "budget": "budget",
        "weights": "weights",
        "activation": "activation",
        "non_torch": "non_torch",
        "cuda_graphs": "cuda_graphs_estimated",
        "kv": "kv",
        "blocks": "blocks",
    },
    "sglang": {"free": "avail_before", "weights": "weights", "kv": "kv"},
    "llama.cpp": {"weights": "model_buffer", "kv": "kv", "compute_buffer": "compute_buffer", "state": "state"},
}
ENGINES: Final[Mapping[str, str]] = {"ollama": "llama.cpp"}  # engines that run another, whose lines their logs have


def given_of(log: StartLog) -> dict[str, float]:
    """What a log states of what its engine's rules would predict, by their names. [B] of sizes"""
    stated = ((name, log.term(logged)) for name, logged in GIVEN[ENGINES.get(log.engine, log.engine)].items())
    return {name: term.value for name, term in stated if term is not None}


def compare(log: StartLog, predicted: EngineMemory) -> tuple[LogLine, ...]:
    """Every term of a log beside its prediction, in the order in which an engine comes to them.

    Agrees: low - s <= logged <= high + s, with s = 0.02 x |predicted| + half a unit of the last digit.

    Raises:
        UsageError: the log is another engine's.
    """
    if log.engine not in {predicted.engine, ENGINES.get(predicted.engine)}:
        raise UsageError(
            f"--log is of {log.engine}, the prediction of {predicted.engine}; --engine {log.engine} fits it"
        )
    known, dialect = _predictions(predicted), ENGINES.get(log.engine, log.engine)
    rows: list[LogLine] = []
    for term in sorted(log.terms, key=_place):
        beside = BESIDE.get((dialect, term.name), (term.name,))
        interval = next((known[name] for name in beside if name in known), None)
        rows.append(_row(dialect, term, interval, rows))
    return tuple(rows)


def first_difference(rows: Iterable[LogLine]) -> LogLine | None:
    """The first row that disagrees, in the order of an engine's own account; None where all agree."""
    wrong = [row for row in rows if row.agrees is False]
    return min(wrong, key=lambda row: _rank(row.term), default=None)


def _rank(name: str) -> int:
    """Place of a term in an engine's account; those that are none of it come last."""
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _place(term: Logged) -> tuple[int, int]:
    # the length that concurrency is counted at says why tokens differ
    return _rank("block_size" if term.name == "concurrency_tokens" else term.name), term.line


def _predictions(predicted: EngineMemory) -> dict[str, tuple[float, float, float]]:
    """All that is predicted, by name, with its interval: terms, the cache, and what is counted of it."""
    known = {term.name: (term.bytes, term.low, term.high) for term in predicted.terms}
    known.setdefault("visible", (predicted.visible,) * 3)
    known.setdefault("budget", (predicted.budget,) * 3)
    known["kv"] = _ascending(predicted.kv)
    used = [term for term in predicted.terms if term.name in FOLLOWS["non_kv"]]
    if len(used) == len(FOLLOWS["non_kv"]):
        size, (below, above) = sum(term.bytes for term in used), together(used)
        known["non_kv"] = (size, size - below, size + above)
    known["concurrency_tokens"] = (float(predicted.longest),) * 3
    if predicted.block_tokens is not None:
        known["block_size"] = (float(predicted.block_tokens),) * 3
    if predicted.tokens is not None:
        known["tokens"] = _ascending(predicted.tokens)
    for name, count in (("blocks", predicted.blocks), ("concurrency", predicted.concurrency)):
        if count is not None:
            known[name] = _in_proportion(float(count), known["kv"])
    return known


def _ascending(interval: tuple[float, float, float]) -> tuple[float, float, float]:
    """A value and its ends, in whichever order: the value, the lower end, the upper.

    >>> _ascending((90.0, 100.0, 120.0)), _ascending((100.0, 90.0, 120.0))
    ((100.0, 90.0, 120.0), (100.0, 90.0, 120.0))
    """
    low, value, high = sorted(map(float, interval))
    return value, low, high


def _in_proportion(count: float, kv: tuple[float, float, float]) -> tuple[float, float, float]:
    """A count with the cache's interval: n x low / kv to n x high / kv.

    >>> _in_proportion(100.0, (50.0, 45.0, 60.0))
    (100.0, 90.0, 120.0)
    """
    size, low, high = kv
    return (count, count * low / size, count * high / size) if size > 0 else (count, count, count)


def _row(engine: str, term: Logged, interval: tuple[float, float, float] | None, before: list[LogLine]) -> LogLine:
    if interval is None:
        return LogLine(term.name, term.value, line=term.line)
    value, low, high = interval
    slack = CLOSE * abs(value) + term.step / 2
    agrees = low - slack <= term.value <= high + slack
    cause = None if agrees else _cause(engine, term.name, MORE if term.value > value else LESS, before)
    return LogLine(term.name, term.value, value, low, high, agrees, cause, term.line)


def _cause(engine: str, name: str, sign: int, before: list[LogLine]) -> str | None:
    """What a difference follows from, if a term before differs too; else what usually causes it."""
    feeds = FOLLOWS.get(name, ())
    first = next((row for row in before if row.agrees is False and row.term in feeds), None)
    if first is not None:
        return f"it follows from {first.term}, which differs (line {first.line:,})"
    return CAUSES.get((engine, NAMED.get((engine, name), name), sign))
