"""A service as it is asked for: a deployment, the memory for its caches, how its steps are put together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.cache import kv_bytes_per_token
from roofcast.calculators.deployment import cache_on_one
from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.beams import WIDEST
from roofcast.calculators.serving.defaults import Scheduling, Server, scheduling_of, server_of
from roofcast.calculators.serving.memory import PAGED, Pool
from roofcast.calculators.serving.policies import POLICIES
from roofcast.calculators.speculative import check_acceptance, check_cost, check_drafted, expected_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.terms import EngineMemory, Served
    from roofcast.calculators.serving.steps import StepTimes

BLOCK: Final = 16  # tokens of a block, where no engine says so [token]
LONG: Final = 1 << 16  # tokens at which a request's growth is taken [token]
RESERVE: Final = 0.1  # share of the memory that is kept free, without an engine [-]
PCIE: Final = 25e9  # to the host's memory, one direction, where it is not given [B/s]
OFF: Final = "off"
MOST_REPLICAS: Final = 4096
MOST_BLOCK: Final = 256  # tokens of a block [token]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is asked beside the deployment; None is as the engine has it.

    Args:
        policy: one of `POLICIES`.
        kv_memory: paged, max, pow2 or oracle.
        block: tokens of a block. [token]
        preemption: recompute or swap.
        host_link: bandwidth to the host's memory, one direction. [B/s]
        prefix_cache: off, blocks or radix.
        prefix_apart: whether the prefix cache has a memory of its own, which never ends.
        order: fifo or prefix.
        routing: round-robin or least-loaded.
        readers, writers: replicas of two pools; 0 where each replica does both.
        kv_link: bandwidth between the pools, of each GPU. [B/s]
        drafted: tokens drafted a step. [token]
        acceptance: of a drafted token. [-]
        draft_cost: of drafting one token, as a share of a step of one sequence. [-]
        samples, beams: sequences of a request.
        sequences, tokens: of a step at most. [-, token]
        reserve: share of the memory that is kept free, without an engine. [-]
        longest: tokens of the longest request, without an engine. [token]
        kv_tokens: that the cache holds, without an engine, as `fit` answers; None is as the memory left is. [token]
    """

    policy: str | None = None
    kv_memory: str = PAGED
    block: int | None = None
    preemption: str = "recompute"
    host_link: float = PCIE
    prefix_cache: str = OFF
    prefix_apart: bool = False
    order: str | None = None
    routing: str = "round-robin"
    readers: int = 0
    writers: int = 0
    kv_link: float | None = None
    drafted: int = 0
    acceptance: float | None = None
    draft_cost: float = 0.0
    samples: int = 1
    beams: int = 1
    sequences: int | None = None
    tokens: int | None = None
    reserve: float = RESERVE
    longest: int | None = None
    kv_tokens: int | None = None

    @property
    def rows(self) -> int:
        """Sequences of a request."""
        return max(self.samples, self.beams)

    @property
    def gain(self) -> float:
        """Tokens that a sequence gains a decode step: (1 - a^(k+1)) / (1 - a). [token]"""
        return expected_tokens(self.acceptance, self.drafted) if self.acceptance is not None and self.drafted else 1.0


DEFAULT: Final = Options()


@dataclass(frozen=True, slots=True)
class Service:
    """What answers requests.

    Args:
        ready: the deployment.
        pool: memory for caches of one replica.
        scheduling: how steps are put together.
        server: what it adds to the steps.
        options: what is asked beside.
        reason: why it does not start, or has no room; empty where it has.
        known: times of steps that were computed, by what they are of, for all loads that the service gets.
        copies: how many of the whole deployment there are.
    """

    ready: Ready
    pool: Pool
    scheduling: Scheduling
    server: Server
    options: Options
    reason: str = ""
    known: dict[Hashable, StepTimes] = field(default_factory=dict, repr=False, compare=False)
    copies: int = 1

    @property
    def replicas(self) -> int:
        """Replicas that do the same, or read prompts."""
        return self.options.readers or self.ready.deployment.shards.dp * self.copies


def service_of(served: Served, memory: EngineMemory | None, options: Options = DEFAULT) -> tuple[Service, Remarks]:
    """A service, and what is assumed of it.

    Args:
        served: the model on its machine as the engine loads it.
        memory: what the engine makes of the device's memory; None without rules of an engine's memory.
        options: what is asked beside.

    Raises:
        UsageError: what does not go together.
    """
    check_options(served.ready, options)
    scheduling = scheduling_of(served, memory)
    scheduling = replace(
        scheduling,
        policy=options.policy or scheduling.policy,
        sequences=options.sequences or scheduling.sequences,
        tokens=options.tokens or scheduling.tokens,
        order=options.order or scheduling.order,
    )
    if POLICIES[scheduling.policy].mixes and scheduling.tokens < scheduling.sequences:
        scheduling = replace(scheduling, sequences=scheduling.tokens)
    pool = _plain_pool(served.ready, options) if memory is None else _engine_pool(served.ready, memory, options)
    options, left_off = _suited(options, pool, scheduling.sequences)
    reason = memory.reason or "" if memory is not None else ""
    if not reason and pool.blocks < 1:
        reason = "nothing is left for a cache beside the weights"
    ready = served.ready
    server = server_of(ready.deployment.engine) if ready.expectation is not None else Server()
    service = Service(ready, pool, scheduling, server, options, reason)
    return service, (memory.said if memory is not None else Remarks()) + _said(service, memory) + left_off


def _suited(options: Options, pool: Pool, sequences: int) -> tuple[Options, Remarks]:
    """Options that the cache allows.

    Raises:
        UsageError: more sequences of a request than run at once, or beams whose blocks are too long to be counted.
    """
    name = "--samples" if options.samples > 1 else "--beams"
    if options.rows > sequences:
        raise UsageError(f"{name} {options.rows}: a request is as many sequences, and --max-num-seqs is {sequences:,}")
    if options.beams > 1 and pool.block > MOST_BLOCK:
        raise UsageError(
            f"--beams {options.beams}: blocks of {pool.block:,} tokens, as this model's states need, are not shared by beams here"
        )
    if options.prefix_cache == OFF or pool.per:
        return options, Remarks()
    text = "the prefix cache is off: no layer of the model keeps all tokens, so that a prefix is not there for others"
    return replace(options, prefix_cache=OFF), remarks(notes=[text])


def check_options(ready: Ready, options: Options) -> None:
    """Refuses what does not go together.

    Raises:
        UsageError: naming the options.
    """
    if bool(options.readers) != bool(options.writers):
        raise UsageError("--prefill-replicas and --decode-replicas go together: give both, or neither")
    if options.readers and ready.deployment.shards.dp > 1:
        raise UsageError("--dp counts replicas that do both; give --prefill-replicas and --decode-replicas instead")
    if options.samples > 1 and options.beams > 1:
        raise UsageError("--samples and --beams are two ways to more sequences of a request; give one of them")
    if options.kv_memory != PAGED and options.prefix_cache != OFF:
        raise UsageError(
            f"--kv-memory {options.kv_memory}: contiguous memory shares no prefix; leave --prefix-cache off"
        )
    if options.kv_memory != PAGED and options.rows > 1:
        raise UsageError(
            f"--kv-memory {options.kv_memory}: contiguous memory shares no blocks among sequences of a request"
        )
    if max(options.readers, options.writers, ready.deployment.shards.dp) > MOST_REPLICAS:
        raise UsageError(f"more than {MOST_REPLICAS:,} replicas are not simulated: they share nothing; simulate fewer")
    if options.beams > WIDEST:
        raise UsageError(f"--beams {options.beams}: it must be from 1 to {WIDEST}")
    if options.block is not None and not 1 <= options.block <= MOST_BLOCK:
        raise UsageError(f"--block-size {options.block}: it must be from 1 to {MOST_BLOCK}")
    if options.acceptance is not None:
        _check_drafts(options, options.acceptance)


def _check_drafts(options: Options, acceptance: float) -> None:
    """Refuses drafts that cannot be.

    Raises:
        UsageError: naming the option.
    """
    if acceptance >= 1:
        raise UsageError(f"--acceptance {acceptance:g}: it must be below 1, such as 0.8; at 1 a draft never fails")
    check_acceptance(acceptance)
    check_cost(options.draft_cost)
    if not options.drafted:
        raise UsageError("--acceptance is of drafted tokens; give --num-speculative-tokens too")
    check_drafted(options.drafted)


def _plain_pool(ready: Ready, options: Options) -> Pool:
    """Without an engine: nominal memory x (1 - reserve) less the weights, on the fullest device."""
    left = ready.deployment.accelerator.memory * (1 - options.reserve) - ready.weight_bytes

    def sequence(context: int) -> float:
        return cache_on_one(ready, 1, context)

    growth = (sequence(2 * LONG) - sequence(LONG)) / LONG
    if options.kv_tokens is not None:
        left = options.kv_tokens * growth
    longest = options.longest or ready.model.spec.max_context or (int(left / growth) if growth else LONG)
    return _pool(ready, left, growth, sequence, (options.block or BLOCK, max(1, longest)))


def _engine_pool(ready: Ready, memory: EngineMemory, options: Options) -> Pool:
    """As the engine's cache holds it: blocks that it prints, or bytes."""
    block = options.block or memory.block_tokens or 1
    room, uniform = memory.room, not any(part.fixed or part.cap for part, _ in ready.kept)
    growth = memory.token_bytes
    if growth is None:
        growth = (room.sequence_bytes(2 * LONG) - room.sequence_bytes(LONG)) / LONG
    size = memory.kv[0]
    if uniform and memory.tokens and growth:
        size = memory.tokens[0] * growth
    return _pool(ready, size, growth, room.sequence_bytes, (block, memory.longest))


def _pool(ready: Ready, size: float, growth: float, sequence: Callable[[int], float], lengths: tuple[int, int]) -> Pool:
    """Memory of so many bytes, of which a token takes `growth`, and a sequence something beside."""
    block, longest = lengths
    whole = kv_bytes_per_token(ready.model.spec, ready.deployment.kv)
    if growth <= 0:  # states alone: a place each
        each = max(1.0, sequence(1))
        places = int(max(0.0, size) // each)
        return Pool(places * longest, block, places, 0, lambda _: 1, whole, longest)
    each = growth * block
    known: dict[int, int] = {}

    def beside(context: int) -> int:
        found = known.get(context)
        if found is None:
            rest = sequence(context) - growth * ceil(context / block) * block
            found = known[context] = max(0, ceil(rest / each - 1e-6))
        return found

    blocks = int(max(0.0, size) / each + 1e-6)
    plain = not any(part.fixed or part.cap for part, _ in ready.kept)
    return Pool(blocks * block, block, blocks, 1, (lambda _: 0) if plain else beside, whole, longest)


def transfer_seconds(service: Service) -> Callable[[int], float]:
    """From the end of a prompt to its cache's being in the other pool: bytes / link. [s]"""
    link = service.options.kv_link or _fabric_link(service.ready)
    ready = service.ready

    def seconds(tokens: int) -> float:
        return cache_on_one(ready, 1, tokens) / link

    return seconds


def _fabric_link(ready: Ready) -> float:
    """Bandwidth of one device to another server: the outermost level, else 400 Gbit/s. [B/s]"""
    return ready.deployment.network or 50e9


def _said(service: Service, memory: EngineMemory | None) -> Remarks:
    """What is assumed of the service."""
    options, scheduling, engine = service.options, service.scheduling, service.ready.deployment.engine
    swapping = options.preemption == "swap" and options.host_link == PCIE
    split = options.readers and options.kv_link is None and service.ready.deployment.network is None
    return remarks(
        [
            None
            if memory is not None
            else f"no engine's memory rules: a cache has {1 - options.reserve:.0%} of the memory less the weights",
            f"steps are put together as vLLM does: --policy {scheduling.policy}"
            if engine == "none" and not options.policy
            else None,
            "swapping: 25 GB/s to the host's memory; --host-link gives it" if swapping else None,
            "the link between pools is taken as 400 Gbit/s a GPU; --kv-link gives it" if split else None,
            "drafting is taken to cost nothing, as of n-grams; --draft-cost gives it"
            if options.gain > 1 and not options.draft_cost
            else None,
            f"what a server adds is that of vLLM on an H200: {_adds(service.server)}"
            if service.server.latency and engine != "vllm"
            else None,
            "drafted tokens are accepted alike in every request: each step gains the mean"
            if options.gain > 1
            else None,
            "requests of several sequences are admitted where all that they become fits, so that none is set back"
            if options.rows > 1
            else None,
            "with pipeline stages steps follow one another at the slowest stage's pace"
            if service.ready.deployment.shards.pp > 1
            else None,
        ],
        notes=[
            f"a server adds to its engine: {_adds(service.server)}; estimate has the engine alone"
            if service.server.latency and engine == "vllm"
            else None
        ],
    )


def _adds(server: Server) -> str:
    """What a server adds, in words."""
    latency, between, prepare = (1e3 * each for each in (server.latency, server.between, server.prepare))
    return f"{latency:.0f} ms a request, {between:.0f} to {between + prepare:.0f} ms a step that reads prompts"
