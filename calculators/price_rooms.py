"""What the cache of an engine holds, of a server that is started for the load that is priced."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.check_memory import served_room
from roofcast.calculators.engines.flags import TAKES
from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from roofcast.calculators.check_memory import Room
    from roofcast.calculators.engines.terms import Served

#: engines whose cache is what is left of a budget; that of others is as large as is asked
POOLED: Final = frozenset(("vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy"))
LONGEST: Final = "max_model_len"
AT_ONCE: Final = "max_num_seqs"
A_STEP: Final = "max_num_batched_tokens"
USUAL_STEP: Final = 8192  # tokens of a step, the larger of vLLM's defaults, which must not be less than the requests


@dataclass(frozen=True, slots=True)
class Server:
    """An engine's server, started anew for each load: for requests that long, and for so many of them.

    Args:
        served: the model as the engine loads it, with the engine's own defaults.
        made: rooms that were asked for.
    """

    served: Served
    made: dict[tuple[int, int | None], Room] = field(default_factory=dict)

    def room(self, longest: int, batch: int) -> Room:
        """What its cache holds: the engine's default of requests at once where that will do, else as many as are asked."""
        usual = self._room(longest, None)
        each = -(-batch // self.served.ready.deployment.shards.dp)
        if usual.most is None or each <= usual.most or AT_ONCE not in self._takes:
            return usual
        try:
            return self._room(longest, each)
        except UsageError:  # more than the engine takes: then it has no room for them
            return usual

    @property
    def _takes(self) -> frozenset[str]:
        return TAKES[self.served.ready.deployment.engine]

    def _room(self, longest: int, each: int | None) -> Room:
        key = longest, each
        if key not in self.made:
            most = self.served.ready.model.spec.max_context
            given: dict[str, Any] = {LONGEST: min(longest, most or longest), AT_ONCE: each}
            if each is not None:
                given[A_STEP] = max(each, USUAL_STEP)
            flags = replace(self.served.flags, **{name: value for name, value in given.items() if name in self._takes})
            self.made[key] = served_room(replace(self.served, flags=flags))
        return self.made[key]
