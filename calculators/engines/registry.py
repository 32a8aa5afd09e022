"""Every engine whose memory is modelled: where its answer is found."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.engines.terms import EngineMemory, Served

    Answer = Callable[[Served, Mapping[str, float]], EngineMemory]

# engine -> its module, imported when it is asked
MODULES: Final[Mapping[str, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llama.cpp": "llama_cpp",
    "ollama": "ollama",
    "tensorrt-llm": "tensorrt_llm",
    "tgi": "tgi",
    "lmdeploy": "lmdeploy",
}
NOTHING: Final[Mapping[str, float]] = MappingProxyType({})


def engine_memory(engine: str, served: Served, given: Mapping[str, float] = NOTHING) -> EngineMemory:
    """What an engine makes of a device's memory.

    Args:
        engine: one of `MODULES`.
        served: model, machine and flags.
        given: bytes that a log states, by the term's name; they replace what is predicted.

    Raises:
        UsageError: flags that the engine refuses.
    """
    answer: Answer = import_module(f"roofcast.calculators.engines.{MODULES[engine]}").answer
    return _ordered(answer(served, given))


def _ordered(memory: EngineMemory) -> EngineMemory:
    """The answer with its intervals in order: whole slots and blocks may turn the ends of one around."""
    kv, tokens = memory.kv, memory.tokens
    terms = tuple(replace(t, low=min(t.bytes, t.low, t.high), high=max(t.bytes, t.low, t.high)) for t in memory.terms)
    counted = None if tokens is None else (tokens[0], min(tokens), max(tokens))
    return replace(memory, terms=terms, kv=(kv[0], min(kv), max(kv)), tokens=counted)
