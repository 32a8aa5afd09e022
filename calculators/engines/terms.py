"""What every engine's answer is made of: terms with their rule and spread, and the cache's room."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import hypot
from typing import TYPE_CHECKING, Final, Protocol

from roofcast.calculators.answer import Remarks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.flags import Flags

GIB: Final = float(1 << 30)
Z80: Final = 1.2816  # standard deviations to each side of 80 % of a normal distribution


@dataclass(frozen=True, slots=True)
class Served:
    """A model, ready on a machine, and what the engine is started with."""

    ready: Ready
    flags: Flags


@dataclass(frozen=True, slots=True)
class EngineTerm:
    """One line of an engine's memory, of one device."""

    name: str
    """What it is: visible, budget, weights, activation, non_torch, cuda_graphs, kv ..."""
    bytes: float
    """Its size. [B]"""
    low: float
    """Lower end of its 80 % interval; the size itself where nothing is fitted. [B]"""
    high: float
    """Upper end. [B]"""
    rule: str
    """How it is computed, with the numbers."""
    provenance: str
    """header, config, datasheet, measured, fitted or assumed."""


def exact(name: str, size: float, rule: str, provenance: str) -> EngineTerm:
    """A term without spread."""
    return EngineTerm(name, size, size, size, rule, provenance)


def spread(name: str, size: float, sigma: float, rule: str) -> EngineTerm:
    """A fitted term with a standard deviation: size +- 1.2816 sigma, not below zero. [B]

    >>> term = spread("non_torch", 0.25 * GIB, 0.1 * GIB, "measured on an H100")
    >>> round(term.low / GIB, 3), round(term.high / GIB, 3)
    (0.122, 0.378)
    """
    return EngineTerm(name, size, max(0.0, size - Z80 * sigma), size + Z80 * sigma, rule, "fitted")


def together(terms: Iterable[EngineTerm]) -> tuple[float, float]:
    """How far the sum of independent terms may lie below and above it: root of the sum of squares. [B]"""
    every = tuple(terms)
    return hypot(*(t.bytes - t.low for t in every)), hypot(*(t.high - t.bytes for t in every))


class Room(Protocol):
    """A cache of a certain size, as an engine hands it to requests."""

    def sequences(self, context: int) -> int:
        """Requests of so many tokens that fit at once."""

    def sequence_bytes(self, context: int) -> float:
        """What one of them takes on one device. [B]"""


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share blocks (vLLM), or a buffer of the cache (SGLang, llama.cpp)."""

    kind: str
    """full, mla, sliding, chunked, state, cross ..."""
    layers: int
    """Layers in it."""
    padding: int
    """Slots of it that no layer uses, but which take memory all the same."""
    page_bytes: float
    """One block of one layer; of a buffer, a token of one layer. [B]"""
    blocks_per_request: int | None
    """Blocks that a request of the longest length takes; null where there are no blocks."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One change, and what it gives."""

    flag: str
    """As the engine spells it."""
    here: str
    """As roofcast spells it."""
    gpus: int
    """Devices that it takes."""
    fits: bool
    """Whether the server starts, with at least one request at every context asked."""
    kv_tokens: int | None
    """Tokens of cache then; null where the engine prints none."""
    max_sequences: int
    """Requests of the context that falls short, or of the longest one, at once."""
    context: int
    """That context. [token]"""
    meets: bool
    """Whether that is all that was asked for."""


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """An engine's answer, of one device.

    Args:
        engine, version: whose rules these are.
        visible: memory that the engine sees. [B]
        budget: what it lets itself use. [B]
        terms: from the budget to the cache, a line each; the cache is the last, named kv.
        kv: the cache, with its interval. [B]
        block_tokens: of a block; None without blocks. [token]
        groups: layers by what they keep.
        blocks: of the pool; None without.
        tokens: as this version prints them, with their interval; None where it prints none. [token]
        concurrency: requests of the longest length at once, as printed; None where it prints none.
        longest: the longest request that the server takes. [token]
        room: the cache as requests find it.
        said: what was assumed, and what should be known.
        reason: why the server does not start; None where it does.
        most: requests that run at once, whatever fits; None where no flag bounds them, or the room does so itself.
        token_bytes: what every further token of a request takes; None is as the model's layers keep it. [B/token]
    """

    engine: str
    version: str
    visible: float
    budget: float
    terms: tuple[EngineTerm, ...]
    kv: tuple[float, float, float]
    block_tokens: int | None
    groups: tuple[Group, ...]
    blocks: int | None
    tokens: tuple[int, int, int] | None
    concurrency: float | None
    longest: int
    room: Room
    said: Remarks = field(default_factory=Remarks)
    reason: str | None = None
    token_bytes: float | None = None
    most: int | None = None

    @property
    def starts(self) -> bool:
        """Whether the server starts."""
        return self.reason is None

    def sequences(self, context: int) -> int:
        """Requests of so many tokens at once, of one replica; 0 of longer ones than it takes, and where it does not start."""
        if not self.starts or context > self.longest:
            return 0
        fitting = self.room.sequences(context)
        return min(fitting, self.most or fitting)
