"""Engines whose cache is a share of what is left once weights and buffers are loaded: TensorRT-LLM, TGI, LMDeploy."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Final, TypeVar

from roofcast.calculators.answer import remarks
from roofcast.calculators.deployment import fullest_stage
from roofcast.calculators.engines import device
from roofcast.calculators.engines.activations import forward_bytes, workspace_bytes
from roofcast.calculators.engines.terms import GIB, EngineMemory, EngineTerm, Group, exact, together
from roofcast.calculators.errors import UsageError
from roofcast.modelspec.cached import entry_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.terms import Served
    from roofcast.calculators.engines.vllm_versions import Version

Row = TypeVar("Row")
Interval = tuple[float, float, float]

# CUDA context and handles of one process, and what NCCL adds where devices exchange; low, middle, high. [GiB]
# Source: start-up logs of one device and of eight (sgl-project/sglang#11716: 2.0 GiB on H200), rounded.
CONTEXT: Final = (0.4, 0.7, 1.0)
NCCL: Final = (0.5, 1.3, 2.2)
ACTIVATION_SPREAD: Final = 0.5  # to each side


def rules_of(table: Sequence[tuple[Version, Row]], version: Version | None) -> Row:
    """The row of the last version that is not later than the one asked; the last row of all without one.

    >>> rules_of([((0,), "old"), ((1, 2), "new")], (1, 1)), rules_of([((0,), "old"), ((1, 2), "new")], None)
    ('old', 'new')
    """
    return next((row for since, row in reversed(table) if version is None or since <= version), table[0][1])


def portion(flag: str, value: float | None, default: float, *, all_of_it: bool = False) -> float:
    """A share of the memory as given, else the default. [-]

    Raises:
        UsageError: it is none.

    >>> portion("--mem-fraction-static", None, 0.88), portion("--mem-fraction-static", 0.8, 0.88)
    (0.88, 0.8)
    """
    if value is None:
        return default
    if not (0 < value < 1 or (all_of_it and value == 1)):
        raise UsageError(
            f"{flag} {value:g}: it is a share of the memory, above 0 and {'at most' if all_of_it else 'below'} 1"
        )
    return value


def assumed(name: str, size: Interval, rule: str) -> EngineTerm:
    """A term of which low, middle and high are assumed. [B]"""
    low, middle, high = size
    return EngineTerm(name, middle, low, high, rule, "assumed")


def context_term(ready: Ready) -> EngineTerm:
    """What the driver and the exchange between devices hold before anything is loaded: context + NCCL. [B]"""
    joined = ready.deployment.shards.joined > 1
    low, middle, high = (GIB * (one + joined * more) for one, more in zip(CONTEXT, NCCL, strict=True))
    parts = "CUDA context 0.7 GiB" + (" + NCCL 1.3 GiB" if joined else "")
    return assumed("context", (low, middle, high), parts)


def weights_term(ready: Ready, given: Mapping[str, float]) -> EngineTerm:
    """Weights on the fullest device. [B]"""
    if "weights" in given:
        return exact("weights", given["weights"], "as the log states it", "measured")
    provenance = ready.model.weight_bytes(ready.deployment.weights).provenance or "config"
    return exact("weights", ready.weight_bytes, "weights of the fullest device", provenance)


def visible_term(ready: Ready, given: Mapping[str, float]) -> EngineTerm:
    """Memory of the device that the engine sees. [B]"""
    if "visible" in given:
        return exact("visible", given["visible"], "as the log states it", "measured")
    return device.visible_term(ready.deployment.accelerator)


def activation_term(ready: Ready, tokens: int, rows: int) -> EngineTerm:
    """Peak of a forward pass of N tokens, experts' results, and logits of R rows in fp32: forward + R V 4. [B]"""
    logits = 4.0 * rows * ready.model.spec.vocab
    size = forward_bytes(ready, tokens) + workspace_bytes(ready, tokens) + logits
    rule = f"{tokens:,} tokens x (3 h + 3 I / tp) x 2 B and logits of {rows:,} x 4 B; +-50 %"
    return assumed("activation", (size * (1 - ACTIVATION_SPREAD), size, size * (1 + ACTIVATION_SPREAD)), rule)


def token_bytes(ready: Ready) -> float:
    """Cache of one token on the fullest device, windows counted whole: sum of elements x bytes / per. [B/token]"""
    kv, shards = ready.deployment.kv, ready.deployment.shards
    each = sum(n * entry_bytes(part, kv, shards.tp) / part.per for part, n in ready.kept if not part.fixed)
    return each * fullest_stage(ready.model.spec, shards)


def fixed_bytes(ready: Ready) -> float:
    """What one sequence keeps whatever its length, on the fullest device: recurrent states, an encoder's keys. [B]"""
    kv, shards = ready.deployment.kv, ready.deployment.shards
    each = sum(n * entry_bytes(part, kv, shards.tp) for part, n in ready.kept if part.fixed)
    return each * fullest_stage(ready.model.spec, shards)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A cache in blocks of tokens that any request may take.

    Args:
        blocks: of the pool.
        tokens: of a block. [token]
        each: bytes of a token. [B/token]
        fixed: what a sequence keeps whatever its length. [B]
        most: requests at once that the engine allows; None is any number.
    """

    blocks: int
    tokens: int
    each: float
    fixed: float = 0.0
    most: int | None = None

    def sequences(self, context: int) -> int:
        """Requests of so many tokens at once: floor(pool / (ceil(T / b) b + state)), at most as many as allowed.

        >>> Blocks(100, 64, 1024.0).sequences(65), Blocks(100, 64, 1024.0, most=8).sequences(65)
        (50, 8)
        """
        each = self.sequence_bytes(context)
        fits = int(self.blocks * self.tokens * self.each // each) if each else 0
        return fits if self.most is None else min(fits, self.most)

    def sequence_bytes(self, context: int) -> float:
        """What one of them takes on one device: whole blocks, and its state. [B]"""
        return -(-context // self.tokens) * self.tokens * self.each + self.fixed


@dataclass(frozen=True, slots=True)
class Leftover:
    """How an engine takes its cache from what is left.

    Args:
        engine, version: whose rules.
        share: of the rest that the cache takes. [-]
        outside: memory that the engine leaves to others. [B]
        before: what is taken before the cache: context, weights, activations.
        block: tokens of a block. [token]
        each: bytes of a token. [B/token]
        said: assumptions of the engine's own.
        rounds_up: whether a started block counts.
        asked: length of the longest request that was asked for; None without. [token]
        most: requests at once; None is any number.
    """

    engine: str
    version: str
    share: float
    outside: float
    before: tuple[EngineTerm, ...]
    block: int
    each: float
    said: Remarks
    rounds_up: bool = False
    asked: int | None = None
    most: int | None = None


def cache_of(served: Served, given: Mapping[str, float], plan: Leftover) -> EngineMemory:
    """The engine's memory: kv = share x (visible - outside - what is taken before), in whole blocks.

    Raises:
        UsageError: the model keeps nothing of a token.
    """
    if not plan.each:
        text = "is not modelled for a model that keeps states and no tokens; vllm, sglang and llama.cpp are"
        raise UsageError(f"--engine {plan.engine} {text}")
    visible = visible_term(served.ready, given)
    kv = _kv_term(plan, visible, given)
    counts = [_blocks(plan, size) for size in (kv.low, kv.bytes, kv.high)]
    longest = plan.asked or served.ready.model.spec.max_context or counts[1] * plan.block
    reason = _reason(plan, visible, kv, counts[1])
    low, blocks, high = (0, 0, 0) if reason else counts
    budget = exact(
        "budget",
        visible.bytes - plan.outside,
        f"visible - {plan.outside / GIB:.2f} GiB left to others" if plan.outside else "all that it sees",
        "config",
    )
    fixed = fixed_bytes(served.ready)
    return EngineMemory(
        engine=plan.engine,
        version=plan.version,
        visible=visible.bytes,
        budget=budget.bytes,
        terms=(visible, budget, *plan.before, kv),
        kv=(0.0, 0.0, 0.0) if reason else (kv.bytes, kv.low, kv.high),
        block_tokens=plan.block,
        groups=_groups(served.ready, plan, longest),
        blocks=blocks,
        tokens=(blocks * plan.block, low * plan.block, high * plan.block),
        concurrency=None,
        longest=min(longest, counts[1] * plan.block or longest),
        room=Blocks(blocks, plan.block, plan.each, fixed, plan.most),
        said=plan.said + _states_said(served.ready, fixed),
        reason=reason,
        token_bytes=plan.each,
    )


def _blocks(plan: Leftover, size: float) -> int:
    """Blocks of a cache of so many bytes; where a started one counts, of its whole tokens."""
    tokens = int(size // plan.each)
    return -(-tokens // plan.block) if plan.rounds_up else tokens // plan.block


def _kv_term(plan: Leftover, visible: EngineTerm, given: Mapping[str, float]) -> EngineTerm:
    """The cache: stated by a log, or a share of the free memory that a log states, or of what is left. [B]"""
    if "kv" in given:
        return exact("kv", given["kv"], "as the log states it", "measured")
    if "free" in given:
        return exact(
            "kv", plan.share * given["free"], f"{plan.share:g} x {given['free'] / GIB:.2f} GiB free", "measured"
        )
    lost, gained = together((visible,))
    less, more = together(plan.before)
    rest = visible.bytes - plan.outside - sum(term.bytes for term in plan.before)
    low, middle, high = (
        plan.share * max(0.0, size) for size in (rest - hypot(lost, more), rest, rest + hypot(gained, less))
    )
    rule = f"{plan.share:g} x {max(0.0, rest) / GIB:.2f} GiB left"
    return EngineTerm("kv", middle, low, high, rule, "assumed")


def _reason(plan: Leftover, visible: EngineTerm, kv: EngineTerm, blocks: int) -> str | None:
    """Why the server does not serve what is asked; None where it does."""
    taken = sum(term.bytes for term in plan.before)
    if not blocks:
        return nothing_left(plan.before, visible.bytes - plan.outside, taken)
    room = blocks * plan.block
    if plan.asked is None or plan.asked <= room:
        return None
    return too_long(plan.asked, plan.asked * plan.each, kv.bytes, room)


def nothing_left(before: tuple[EngineTerm, ...], budget: float, taken: float) -> str:
    """No cache: what takes the memory, and what would help."""
    parts = " + ".join(f"{term.name} {term.bytes / GIB:.2f}" for term in before)
    return (
        f"no memory is left for the cache: {parts} = {taken / GIB:.2f} GiB of {budget / GIB:.2f} GiB a device; "
        "more devices (--tp), a narrower --weights or a larger device would do"
    )


def too_long(asked: int, needed: float, kv: float, room: int) -> str:
    """A request as long as asked does not fit: what it needs, and what fits."""
    return (
        f"one request of {asked:,} tokens needs {needed / GIB:.2f} GiB of cache and there are {kv / GIB:.2f} GiB: "
        f"at most {room:,} tokens"
    )


def _groups(ready: Ready, plan: Leftover, longest: int) -> tuple[Group, ...]:
    """All layers that keep something share the blocks."""
    layers = sum(1 for layer in ready.model.spec.active_layers if any(not part.fixed for part in layer.state))
    if not layers:
        return ()
    page = plan.block * plan.each / layers
    return (Group("full", layers, 0, page, -(-longest // plan.block)),)


def _states_said(ready: Ready, fixed: float) -> Remarks:
    """What these engines' rules leave open of windows and recurrent states."""
    windows = any(part.cap is not None for part, _ in ready.kept)
    return remarks(
        [
            "window layers are taken to keep every token, as the engine's one pool does" if windows else None,
            "recurrent states are taken from the same pool, a state a request" if fixed else None,
        ]
    )
