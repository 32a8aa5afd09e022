"""Start-up logs of vLLM as published, and models put on machines as it would load them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.deployment import Deployment
from roofcast.calculators.engines.flags import Flags
from roofcast.calculators.engines.serving import serve
from roofcast.calculators.engines.terms import GIB
from roofcast.calculators.engines.vllm import answer
from roofcast.hwdb.lookup import find_accelerator
from roofcast.modelspec.formats import FORMATS
from roofcast.modelspec.sharding import Shards
from tests.checkpoints import catalogued

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.engines.terms import EngineMemory, EngineTerm, Served

SIZES: Final = ("visible", "budget", "weights", "activation", "non_torch", "kv")
FIXTURE: Final = Path(__file__).parent / "fixtures" / "engine_memory.json"

model_of = cache(catalogued)


@dataclass(frozen=True)
class Asked:
    """A model on a machine, and vLLM's flags."""

    model: str
    gpu: str = "h100-sxm"
    cache: str = "bf16"
    cut: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)

    def served(self) -> Served:
        """Return it as vLLM loads it."""
        shards, accelerator = Shards(**self.cut), find_accelerator(self.gpu).accelerator
        deployment = Deployment(accelerator, FORMATS[self.cache], None, shards, "vllm")
        return serve(model_of(self.model), deployment, Flags(**self.flags))[0]


def asked(model: str, gpu: str = "h100-sxm", cache: str = "bf16", cut: Any = None, **flags: Any) -> Served:
    """Return a model of the catalogue as vLLM loads it on GPUs."""
    return Asked(model, gpu, cache, cut or {}, flags).served()


def memory(served: Served, **given: float) -> EngineMemory:
    """Return what vLLM makes of it; what a log states is given in GiB, blocks as a count."""
    return answer(served, {name: value if name == "blocks" else value * GIB for name, value in given.items()})


def term(memory: EngineMemory, name: str) -> EngineTerm:
    """Return a line of the answer."""
    return next(term for term in memory.terms if term.name == name)


def gib(memory: EngineMemory, name: str) -> float:
    """Return a line's size in GiB."""
    return term(memory, name).bytes / GIB


@dataclass(frozen=True)
class Record:
    """What a log says.

    Args:
        id, source: of the log.
        version: of vLLM; None where it is not stated.
        model: of the catalogue, with the same sizes.
        gpu: None where it is not stated.
        cut, cache, flags: as the server was started.
        logged: sizes in GiB, and counts.
        note: what was inferred.
        unmatched: why vLLM's rules do not give what it says; None where they do.
    """

    id: str
    source: str
    version: str | None
    model: str
    gpu: str | None
    cut: Mapping[str, int]
    cache: str
    flags: Mapping[str, Any]
    logged: Mapping[str, float]
    note: str | None = None
    unmatched: str | None = None

    def served(self) -> Served:
        """Return the server that wrote it."""
        flags = {"engine_version": self.version, **self.flags}
        return Asked(self.model, self.gpu or "h100-sxm", self.cache, self.cut, flags).served()

    @property
    def given(self) -> dict[str, float]:
        """Return its sizes but for the cache. [GiB]"""
        return {name: self.logged[name] for name in SIZES[:-1] if name in self.logged}


RECORDS: Final = tuple(Record(**row) for row in json.loads(FIXTURE.read_text(encoding="utf-8")))
MATCHED: Final = tuple(record for record in RECORDS if record.unmatched is None)
H100: Final = tuple(r for r in MATCHED if r.version == "0.19.0" and r.gpu == "h100-sxm" and "kimi" not in r.id)


def having(*names: str) -> list[Record]:
    """Return the records that match and carry all of these."""
    return [record for record in MATCHED if set(names) <= record.logged.keys()]
