"""A server that is tried: what is wanted of it, what it gives, and the flags that lead from one to another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.deployment import prepare
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.terms import Advice
from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.modelspec.errors import ModelError

if TYPE_CHECKING:
    from roofcast.calculators.engines.flags import Flags
    from roofcast.calculators.engines.terms import EngineMemory, Served
    from roofcast.modelspec.sharding import Shards

#: Engines whose cache is what is left of the memory, so that a logged cache says how far a prediction is off.
ANCHORED: Final = frozenset({"vllm", "sglang"})
REFUSED: Final = (UsageError, UnansweredError, ModelError)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a server is held against.

    Args:
        needs: contexts that were asked for and how many requests of each; none is one of the longest that it takes.
        context: whose requests are counted; None is the longest. [token]
        tokens: of cache. [token]
    """

    needs: tuple[tuple[int, int], ...] = ()
    context: int | None = None
    tokens: int = 0

    @property
    def longest(self) -> int:
        """The longest context that was asked for; 0 where none was. [token]"""
        return max((context for context, _ in self.needs), default=0)

    @property
    def most(self) -> int:
        """The most requests at once that were asked for, of any context."""
        return max((least for _, least in self.needs), default=1)


@dataclass(frozen=True, slots=True)
class Part:
    """One flag of a change.

    Args:
        key: what it sets; of two parts that set the same, the later counts.
        flag, here: as the engine spells it, and as roofcast does.
        is_file: whether it is another file, and no flag.
    """

    key: str
    flag: str
    here: str
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A server with a flag more, or with several that go together."""

    served: Served
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A server and what it is held against.

    Args:
        served: model, machine and flags.
        memory: what the engine makes of it.
        wanted: of it.
        whole: the longest request that the server was to take at first. [token]
        off: how much more cache a log states than was predicted. [B]
    """

    served: Served
    memory: EngineMemory
    wanted: Wanted
    whole: int
    off: float = 0.0

    @property
    def engine(self) -> str:
        """Whose rules apply."""
        return self.served.ready.deployment.engine

    @property
    def flags(self) -> Flags:
        """What it is started with."""
        return self.served.flags

    @property
    def gpus(self) -> int:
        """Devices that it takes."""
        return self.served.ready.deployment.shards.devices

    @property
    def counted(self) -> int:
        """Context whose requests are counted. [token]"""
        return self.wanted.context or self.memory.longest

    @property
    def tokens(self) -> int:
        """Tokens of cache; 0 where the engine prints none. [token]"""
        return self.memory.tokens[0] if self.memory.tokens else 0

    @property
    def fits(self) -> bool:
        """Whether it starts, with one request at least of every context asked."""
        contexts = [context for context, _ in self.wanted.needs] or [self.memory.longest]
        return self.memory.starts and all(self.sequences(context) >= 1 for context in contexts)

    @property
    def meets(self) -> bool:
        """Whether it gives all that is wanted."""
        enough = all(self.sequences(context) >= least for context, least in self.wanted.needs)
        return self.fits and enough and self.tokens >= self.wanted.tokens

    def sequences(self, context: int) -> int:
        """Requests of so many tokens at once, of all replicas."""
        return self.memory.sequences(context) * self.served.ready.deployment.shards.dp

    def term(self, name: str) -> float:
        """A line of its memory; 0 where it has none. [B]"""
        return next((term.bytes for term in self.memory.terms if term.name == name), 0.0)

    def but(self, **flags: Any) -> Served:  # noqa: ANN401 - as many types as flags
        """The server with other flags."""
        return replace(self.served, flags=replace(self.flags, **flags))

    def of(self, served: Served) -> Case | None:
        """Another server held against the same; None where the engine refuses it."""
        try:
            memory = anchored(served, self.off) if self.off else engine_memory(self.engine, served)
        except REFUSED:
            return None
        return replace(self, served=served, memory=memory)


def anchored(served: Served, off: float) -> EngineMemory:
    """An engine's answer with its cache as far off the prediction as a log has it. [B]"""
    engine = served.ready.deployment.engine
    return engine_memory(engine, served, {"kv": _cache(engine_memory(engine, served)) + off})


def first_case(served: Served, memory: EngineMemory, wanted: Wanted, kv: float | None) -> Case:
    """The server as it is; with a logged cache as that has it."""
    engine = served.ready.deployment.engine
    whole = _whole(served, memory)
    if kv is None or engine not in ANCHORED:
        return Case(served, memory, wanted, whole)
    return Case(served, engine_memory(engine, served, {"kv": kv}), wanted, whole, kv - _cache(memory))


def _whole(served: Served, memory: EngineMemory) -> int:
    """The longest request as flags and model have it, and not as a pool or a server that fits itself cuts it. [token]"""
    flags, fits_itself = served.flags, served.ready.deployment.engine != "ollama" and served.flags.n_ctx is None
    stated = flags.max_model_len or flags.session_len
    return stated or (served.ready.model.spec.max_context if fits_itself else None) or memory.longest


def _cache(memory: EngineMemory) -> float:
    """The cache that is left, even if it is too small to start with. [B]"""
    return next((term.bytes for term in memory.terms if term.name == "kv"), memory.kv[0])


@dataclass(frozen=True, slots=True)
class Trial:
    """A case, and the parts that lead to it.

    Args:
        case: the server.
        parts: of the change, in the order in which they were made.
        cost: what it costs beside memory: 0 nothing that is read in an answer, 1 a narrower cache, 2 narrower weights.
        is_shorter: whether its longest request was made shorter.
    """

    case: Case
    parts: tuple[Part, ...] = ()
    cost: int = 0
    is_shorter: bool = False

    @property
    def is_file(self) -> bool:
        """Whether it takes another file."""
        return any(part.is_file for part in self.parts)

    @property
    def is_cut(self) -> bool:
        """Whether its longest request is shorter than at first, where nobody asked for a length."""
        return self.case.memory.longest < self.case.whole and not self.case.wanted.needs

    @property
    def sequences(self) -> int:
        """Requests of the context that is counted."""
        return self.case.sequences(self.case.counted)

    @property
    def value(self) -> tuple[bool, bool, int, int, int]:
        """The more the better: whether it is enough, whole, how long its requests are, how many, and tokens."""
        return self.case.meets, not self.is_cut, self.case.counted, self.sequences, self.case.tokens

    def then(self, change: Change, cost: int = 0) -> Trial | None:
        """With one change more; None where the engine refuses it."""
        case = self.case.of(change.served)
        if case is None:
            return None
        keys = {part.key for part in change.parts}
        parts = (*(part for part in self.parts if part.key not in keys), *change.parts)
        return replace(self, case=case, parts=parts, cost=max(self.cost, cost))

    def shown(self) -> Advice:
        """The row of an answer."""
        files = [part.flag for part in self.parts if part.is_file]
        flags = " ".join(part.flag for part in self.parts if not part.is_file)
        case = self.case
        return Advice(
            flag=", ".join([*files, *([flags] if flags else [])]),
            here=" ".join(part.here for part in self.parts),
            gpus=case.gpus,
            fits=case.fits,
            kv_tokens=case.memory.tokens[0] if case.memory.tokens else None,
            max_sequences=self.sequences,
            context=case.counted,
            meets=case.meets,
        )


def recut(served: Served, shards: Shards) -> Served | None:
    """The model over other devices; None where they do not divide it."""
    try:
        ready = prepare(served.ready.model, replace(served.ready.deployment, shards=shards))
    except REFUSED:
        return None
    return replace(served, ready=ready)
