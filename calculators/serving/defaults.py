"""How each engine puts steps together where no flag says it: its policy, its limits, and what its server adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.leftover import rules_of as rules_since
from roofcast.calculators.engines.sglang_defaults import Start, sizes_of
from roofcast.calculators.engines.tensorrt_llm import DEFAULTS as TENSORRT
from roofcast.calculators.engines.vllm_start import LARGE_STEP, SMALL_TOKENS, V0_UNCHUNKED, is_large
from roofcast.calculators.engines.vllm_start import start as vllm_start
from roofcast.calculators.engines.vllm_versions import parse_version
from roofcast.calculators.engines.vllm_versions import rules_of as vllm_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.engines.terms import EngineMemory, Served

#: SGLang counts 0.7 of the tokens that running requests may still make, and down to 0.14 of that after 600 steps without
#: a setback. Source: sgl-project/sglang, managers/scheduler.py and schedule_policy.py, SGLANG_INIT_NEW_TOKEN_RATIO
NEW_TOKEN_RATIO: Final = 0.7 * 0.14
CLIP: Final = 4096  # of the request that is admitted: SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION [token]
MOST_RUNNING: Final = (2048, 4096)  # SGLang: max_running_requests is tokens / context x 512 within these
TGI_REQUESTS: Final = 128  # --max-concurrent-requests of the router, which refuses more
TGI_PREFILL: Final = 4096  # --max-batch-prefill-tokens [token]
LMDEPLOY: Final = 8192  # max_prefill_token_num [token]
#: since -> LMDeploy's max_batch_size by what a device's name has in it; of all others it is 128.
#: Source: InternLM/lmdeploy, lmdeploy/utils.py, get_max_batch_size, and its guide to the benchmark, which names both
LMDEPLOY_ROWS: Final = (
    ((0,), {"a100": 256, "a800": 256, "h100": 512, "h800": 512, "h200": 512}),
    ((0, 10), {"a100": 512, "a800": 512, "h100": 1024, "h800": 1024, "h200": 1280}),
)
LMDEPLOY_OTHERS: Final = 128
LLAMA_BATCH: Final = 2048  # --batch-size of llama-server [token]
SMALL_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class Reserve:
    """Of tokens that requests may yet make, what must be free where one more is admitted.

    Args:
        running: share of those of requests that run. [-]
        own: share of those of the one that is admitted. [-]
        clip: of its own, no more than so many; None is all. [token]
    """

    running: float = 0.0
    own: float = 0.0
    clip: int | None = None


NOTHING: Final = Reserve()
ALL: Final = Reserve(1.0, 1.0)


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How steps are put together.

    Args:
        policy: one of `POLICIES`.
        sequences: requests at once.
        tokens: of a step. [token]
        reserve: of tokens to come, what must be free where a request is admitted.
        order: fifo or prefix, who is next.
    """

    policy: str
    sequences: int
    tokens: int
    reserve: Reserve = NOTHING
    order: str = "fifo"


@dataclass(frozen=True, slots=True)
class Server:
    """What a server adds to its engine's steps.

    Args:
        latency: from the client to the scheduler and from the sampler to the client. [s]
        prepare: of a step that reads prompts, the host's work before it, which the step before may hide. [s]
        between: of such a step, the host's work that nothing hides, beside what an engine in one process has. [s]
    """

    latency: float = 0.0
    prepare: float = 0.0
    between: float = 0.0


def _vllm(served: Served, memory: EngineMemory) -> Scheduling:  # noqa: ARG001 - one signature for all
    """V1 decodes first and cuts prompts to what is left, V0 where requests may be longer than 32,768; else it reads first."""
    rules, _, _ = vllm_rules(served.flags.engine_version)
    started = vllm_start(served, rules)
    pieces = rules.engine == "V1" or started.longest > V0_UNCHUNKED
    return Scheduling("chunked" if pieces else "prefill-first", started.rows, started.tokens)


def _sglang(served: Served, memory: EngineMemory) -> Scheduling:
    """Prompts in chunks before decode; of what is to come a share must be free."""
    flags, deployment = served.flags, served.ready.deployment
    accelerator, shards = deployment.accelerator, deployment.shards
    start = Start(
        float(accelerator.driver_memory or accelerator.memory), shards.tp * shards.pp, chunk=flags.chunked_prefill_size
    )
    chunk, _ = sizes_of(start)
    tokens = memory.tokens[0] if memory.tokens else 0
    least, most = MOST_RUNNING
    rows = min(most, max(least, tokens * 512 // max(1, memory.longest)))
    return Scheduling(
        "prefill-first", flags.max_running_requests or memory.most or rows, chunk, Reserve(NEW_TOKEN_RATIO, 1.0, CLIP)
    )


def _tensorrt(served: Served, memory: EngineMemory) -> Scheduling:  # noqa: ARG001
    """Whole prompts beside decode; a request is admitted where all that it may become fits (GUARANTEED_NO_EVICT)."""
    flags = served.flags
    own = rules_since(TENSORRT, parse_version(flags.engine_version) if flags.engine_version else None)
    return Scheduling("continuous", flags.max_num_seqs or own.requests, flags.max_num_batched_tokens or own.step, ALL)


def _tgi(served: Served, memory: EngineMemory) -> Scheduling:  # noqa: ARG001
    """Prompts before decode; prompt and all of the output are budgeted."""
    return Scheduling("prefill-first", TGI_REQUESTS, served.flags.max_batch_prefill_tokens or TGI_PREFILL, ALL)


def _lmdeploy(served: Served, memory: EngineMemory) -> Scheduling:  # noqa: ARG001
    """TurboMind reads prompts beside decode, in pieces."""
    name, version = served.ready.deployment.accelerator.id, served.flags.engine_version
    table = rules_since(LMDEPLOY_ROWS, parse_version(version) if version else None)
    rows = next((rows for part, rows in table.items() if part in name), LMDEPLOY_OTHERS)
    return Scheduling("chunked", rows, served.flags.max_num_batched_tokens or LMDEPLOY)


def _llama(served: Served, memory: EngineMemory) -> Scheduling:
    """Slots that decode come first in a batch, prompts fill it."""
    slots = served.flags.parallel or memory.most or getattr(memory.room, "most", None) or 1
    return Scheduling("chunked", slots, LLAMA_BATCH)


#: engine -> how it puts steps together. Sources: the engines' own documents and sources, named beside each
ENGINES: Final[Mapping[str, Callable[[Served, EngineMemory], Scheduling]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt,
    "tgi": _tgi,
    "lmdeploy": _lmdeploy,
    "llama.cpp": _llama,
    "ollama": _llama,
}
#: engine without rules of memory -> its policy and requests at once: libraries that compute a batch as one tensor
LIBRARIES: Final[Mapping[str, tuple[str, int]]] = {
    "transformers": ("static", 16),
    "gpt-fast": ("static", 1),
    "exllamav2": ("continuous", 16),
    "mlc": ("continuous", 80),
}
#: what a server adds: fitted by benchmarks/fit_server.py to vLLM 0.24's on one H200; other servers are taken to be alike
SERVER: Final = Server(latency=8e-3, prepare=6e-3, between=2e-3)


def scheduling_of(served: Served, memory: EngineMemory | None) -> Scheduling:
    """How the engine of a deployment puts steps together; without one, as vLLM V1 does on that device."""
    engine = served.ready.deployment.engine
    if memory is not None and engine in ENGINES:
        return ENGINES[engine](served, memory)
    accelerator = served.ready.deployment.accelerator
    tokens, rows = LARGE_STEP if is_large(accelerator) else (SMALL_TOKENS, SMALL_ROWS)
    policy, most = LIBRARIES.get(engine, ("chunked", rows))
    return Scheduling(policy, most, tokens)


def server_of(engine: str) -> Server:
    """What a server adds; nothing where no engine is named, or a library without a server."""
    return SERVER if engine in ENGINES else Server()
