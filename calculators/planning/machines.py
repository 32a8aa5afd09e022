"""What may answer a workload: GPUs, layouts, engines, formats and policies, without the number of replicas."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final

from roofcast.calculators.deployment import check_shards
from roofcast.calculators.errors import UsageError
from roofcast.modelspec.sharding import Shards

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.modelspec.spec import ModelSpec

HOST: Final = 8  # accelerators of one host, where no link joins more
WIDEST: Final = 8  # GPUs that share a layer, where nothing else is asked
STAGES: Final = (1, 2, 4)
WIDE: Final = (2, 4, 8)  # replicas that share their experts
#: policies of a plan beside those of `simulate`
COLOCATED: Final = "colocated"
DISAGGREGATED: Final = "disaggregated"


@dataclass(frozen=True, slots=True)
class Machine:
    """A deployment without its number of replicas.

    Args:
        gpu: id of the accelerator.
        shards: how one model is cut; its dp are replicas that share their experts.
        engine: that serves it.
        weights: format; None is as stored.
        kv: format of the cache; None is the engine's.
        policy: one of `simulate`; empty is the engine's own.
        pools: whether prompts are read by other replicas than those that decode.
    """

    gpu: str
    shards: Shards
    engine: str
    weights: str | None = None
    kv: str | None = None
    policy: str = ""
    pools: bool = False

    @property
    def unit(self) -> int:
        """GPUs of the least of it."""
        return self.shards.devices

    @property
    def plainness(self) -> tuple[int, int, int, int]:
        """Of those that cost the same the plainer comes first: formats as stored, fewer stages, fewer GPUs to a layer."""
        formats = (self.weights is not None) + (self.kv is not None)
        return formats, self.pools + bool(self.policy), self.shards.pp, self.shards.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What is looked at; an empty choice is what is usual.

    Args:
        tp, pp, ep: sizes that were asked for.
        engines: that serve.
        weights, kv: formats; None is as stored, and the engine's.
        policies: of `simulate`, colocated or disaggregated.
        most: GPUs of a deployment.
    """

    tp: tuple[int, ...] = ()
    pp: tuple[int, ...] = ()
    ep: tuple[int, ...] = ()
    engines: tuple[str, ...] = ("none",)
    weights: tuple[str | None, ...] = (None,)
    kv: tuple[str | None, ...] = (None,)
    policies: tuple[str, ...] = (COLOCATED,)
    most: int = 64


def machines_of(spec: ModelSpec, accelerators: Sequence[Accelerator], choices: Choices) -> list[Machine]:
    """All candidates: accelerators x layouts x engines x formats x policies.

    Raises:
        UsageError: sizes that were asked for and that do not divide the model on any accelerator.
    """
    cuts = Cuts(spec)
    every = [
        Machine(one.id, shards, engine, weights, kv, policy if policy in STEPS else "", policy == DISAGGREGATED)
        for one in accelerators
        for shards in layouts(cuts, one, choices)
        for engine, weights, kv, policy in product(choices.engines, choices.weights, choices.kv, choices.policies)
        if policy != DISAGGREGATED or shards.dp == 1
    ]
    if not every:
        raise cuts.wrong or UsageError(f"--max-gpus {choices.most}: no layout has so few GPUs")
    return every


#: policies that say how steps are put together, of `simulate`
STEPS: Final = frozenset(("static", "continuous", "prefill-first", "decode-first", "chunked"))


class Cuts:
    """Layouts that a model can be cut into, each tried once."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.wrong: UsageError | None = None
        self._known: dict[Shards, bool] = {}

    def fit(self, shards: Shards) -> bool:
        """Whether heads, layers and experts divide."""
        found = self._known.get(shards)
        if found is None:
            try:
                check_shards(self.spec, shards)
                found = True
            except UsageError as error:
                self.wrong, found = error, False
            self._known[shards] = found
        return found


def layouts(cuts: Cuts, accelerator: Accelerator, choices: Choices) -> Iterator[Shards]:
    """Layouts on one kind of accelerator.

    A layer is shared within what a scale-up link, or a host, joins: 1, 2, 4, 8. Where it is shared as far as that goes,
    or not at all over links that are slow, layers may also follow one another in 2 or 4 stages. Experts are whole on a GPU, or
    cut like all else; and replicas that a link joins may share them.
    """
    link = accelerator.scale_up
    joined = min(WIDEST, link.max_domain) if link is not None and link.max_domain > HOST // 2 else HOST
    usual = [size for size in (1, 2, 4, 8) if size <= joined]
    widest = max((size for size in usual if cuts.fit(Shards(size))), default=1)
    plain_link = link is None or link.max_domain < HOST // 2
    seen = set()
    for tp in choices.tp or usual:
        deep = tp == widest or (tp == 1 and plain_link)
        for pp in choices.pp or (STAGES if deep else STAGES[:1]):
            for ep, dp in _experts(cuts.spec, tp, joined, choices):
                shards = Shards(tp, pp, ep, dp)
                if shards not in seen and cuts.fit(shards) and shards.devices <= choices.most:
                    seen.add(shards)
                    yield shards


def _experts(spec: ModelSpec, tp: int, joined: int, choices: Choices) -> list[tuple[int, int]]:
    """Ways to share experts: over how many GPUs, of how many replicas."""
    if not spec.experts:
        return [(ep, 1) for ep in choices.ep or (1,)]
    wide = [(tp * dp, dp) for dp in WIDE if tp * dp <= joined]
    every = [(1, 1), *([(tp, 1)] if tp > 1 else []), *wide]
    if not choices.ep:
        return every
    return [(ep, max(1, ep // tp)) for ep in choices.ep if ep % tp == 0 or ep <= tp]
