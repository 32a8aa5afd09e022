"""llama.cpp: no profile and no pages; weights, cache and compute buffer are allocated whole at start, or it fails."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.engines.device import visible_term
from roofcast.calculators.engines.llama_cpp_buffers import (
    OVERHEAD,
    Held,
    compute_term,
    devices_of,
    held_weights,
    layer_split,
    weight_term,
)
from roofcast.calculators.engines.llama_cpp_cache import (
    FULL,
    MIB,
    PAD,
    PLAIN,
    SLIDING,
    Buffer,
    Rows,
    Slots,
    State,
    row_bytes,
    rows_of,
    share_out,
    state_parts,
    states_of,
    window_cells,
)
from roofcast.calculators.engines.llama_cpp_setup import setup_of, trained_context
from roofcast.calculators.engines.terms import GIB, EngineMemory, EngineTerm, Group, exact, together
from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.engines.llama_cpp_setup import Setup
    from roofcast.calculators.engines.terms import Served

LEAST_FITTED: Final = 4096  # --fit-ctx
MARGIN: Final = GIB  # --fit-target, left free
GIVEN: Final = ("visible", "weights", "kv", "compute_buffer", "state")


@dataclass(frozen=True, slots=True)
class Part:
    """What one GPU has of a model: its share of the layers, whether the head, and what these layers keep."""

    share: float
    last: bool
    rows: Counter[Rows]
    states: Counter[State]


@dataclass(frozen=True, slots=True)
class SlotRoom:
    """Slots and their cells, as requests find them.

    Args:
        shared: cells and slots.
        longest: request that a slot takes; 0 where the server does not start. [token]
        growing: bytes of a token and the tokens kept at most, None for all, of each buffer.
        state: of one sequence, whatever its length. [B]
    """

    shared: Slots
    longest: int
    growing: tuple[tuple[float, int | None], ...]
    state: float

    @property
    def most(self) -> int:
        """Requests at once, whatever fits: the slots."""
        return self.shared.slots

    def sequences(self, context: int) -> int:
        """Requests of so many tokens at once: slots, or as many as share the cells of one buffer."""
        if context > self.longest:
            return 0
        shared = self.shared
        return shared.slots if shared.streams > 1 else min(shared.slots, shared.cells // max(context, 1))

    def sequence_bytes(self, context: int) -> float:
        """What one of them fills on one device. [B]"""
        tokens = ((size, context if cap is None else min(context, cap)) for size, cap in self.growing)
        return self.state + sum(size * n for size, n in tokens)


@dataclass(frozen=True, slots=True)
class Server:
    """A model on llama.cpp, ready to be asked about any context."""

    ready: Ready
    setup: Setup
    held: Held
    parts: tuple[Part, ...]
    given: Mapping[str, float]

    @property
    def visible(self) -> float:
        """Memory of one device. [B]"""
        return self.given.get("visible", visible_term(self.ready.deployment.accelerator).bytes)

    def buffers(self, part: Part, n_ctx: int) -> tuple[Buffer, ...]:
        """Buffers of one GPU's layers, in the order of llama.cpp's lines."""
        shared = _shared(self.setup, n_ctx)
        return buffers_of(self.setup, part.rows, shared)

    def terms(self, part: Part, n_ctx: int) -> tuple[EngineTerm, ...]:
        """Weights, state, compute buffer, overhead and cache of one GPU."""
        setup, shared = self.setup, _shared(self.setup, n_ctx)
        buffers = self.buffers(part, n_ctx)
        shifted, summed = state_parts(part.states, setup.slots)
        state_rule = f"F32, {setup.slots} sequences: R {shifted / MIB:.2f} MiB and S {summed / MIB:.2f} MiB"
        made = (
            weight_term(self.held, part.share, last=part.last),
            exact("state", shifted + summed, state_rule, "config"),
            compute_term(self.ready, shared.cells, setup.ubatch),
            EngineTerm(
                "overhead", *OVERHEAD, "CUDA context, kernels and pools; no line of the log has them", "assumed"
            ),
            exact("kv", sum(buffer.bytes for buffer in buffers), _cache_rule(buffers), "config"),
        )
        return tuple(self._measured(term) for term in made)

    def need(self, n_ctx: int, pick: Callable[[EngineTerm], float]) -> float:
        """What the fullest GPU takes at a context, each term as picked. [B]"""
        return max(sum(map(pick, self.terms(part, n_ctx))) for part in self.parts)

    def fullest(self, n_ctx: int) -> Part:
        """The GPU that takes most."""
        return max(self.parts, key=lambda part: sum(term.bytes for term in self.terms(part, n_ctx)))

    def most(self, limit: int, spare: float, pick: Callable[[EngineTerm], float]) -> int:
        """The longest context up to a limit, in steps of 256, that leaves so much free; 0 where none does. [token]"""
        if self.need(limit, pick) + spare <= self.visible:
            return limit
        low, high = 0, limit // PAD
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.need(middle * PAD, pick) + spare <= self.visible
            low, high = (middle, high) if fits else (low, middle)
        return low * PAD

    def _measured(self, term: EngineTerm) -> EngineTerm:
        if term.name not in self.given:
            return term
        return exact(term.name, self.given[term.name], "as the log states it", "measured")


def answer(served: Served, given: Mapping[str, float]) -> EngineMemory:
    """What llama-server allocates: model, cache, states and compute buffer, and what is left of the device.

    Args:
        served: the model on its machine, and flags.
        given: bytes that a log states, which replace what is predicted: visible, weights, kv, compute_buffer, state.

    Raises:
        UsageError: a format that the cache cannot have, a version that is no build, or a cut that there is none of.
    """
    return memory_of(served.ready, setup_of(served.ready, served.flags), given)


def memory_of(ready: Ready, setup: Setup, given: Mapping[str, float]) -> EngineMemory:
    """The answer for a server that is started so."""
    strange = next((name for name in given if name not in GIVEN), None)
    if strange is not None:
        raise UsageError(f"a log of {setup.engine} states no {strange}; it states {', '.join(GIVEN)}")
    held = held_weights(ready)
    server = Server(ready, setup, held, _parts(ready, setup), given)
    contexts = _contexts(server)
    n_ctx = contexts[0]
    part = server.fullest(n_ctx)
    terms = server.terms(part, n_ctx)
    left = server.visible - sum(term.bytes for term in terms)
    low, high = together(terms)
    reason = None if left >= 0 else _reason(server, n_ctx, terms)
    shared = _shared(setup, n_ctx)
    longest = min(shared.context, ready.model.spec.max_context or shared.context)
    buffers = server.buffers(part, n_ctx)
    seen = visible_term(ready.deployment.accelerator)
    if "visible" in given:
        seen = exact("visible", server.visible, "as the log states it", "measured")
    rest = EngineTerm("left", left, left - high, left + low, "visible less all other lines", "fitted")
    sizes = [_size(server, part, context) for context in contexts]
    return EngineMemory(
        engine=setup.engine,
        version=setup.version,
        visible=server.visible,
        budget=server.visible,
        terms=(seen, *terms[:-1], rest, replace(terms[-1], low=sizes[1], high=sizes[2])),
        kv=(sizes[0], sizes[1], sizes[2]),
        block_tokens=None,
        groups=_groups(buffers, part.states),
        blocks=None,
        tokens=_tokens(setup, contexts),
        concurrency=None,
        longest=longest,
        room=_room(part, setup, shared, buffers, longest if reason is None else 0),
        said=setup.said + _split_said(server, contexts),
        reason=reason,
    )


def _parts(ready: Ready, setup: Setup) -> tuple[Part, ...]:
    """The model's layers over its GPUs."""
    spec = ready.model.spec
    split = layer_split(len(spec.layers), devices_of(ready.deployment.shards))
    layers = [[spec.layers[n] for n in numbers] for numbers in split]
    return tuple(
        Part(len(own) / len(spec.layers), n == len(split) - 1, rows_of(own, setup.graph), states_of(own))
        for n, own in enumerate(layers)
    )


def _contexts(server: Server) -> tuple[int, int, int]:
    """Tokens of all slots: as given, or the trained context reduced until 1 GiB stays free, and its interval."""
    if server.setup.n_ctx is not None:
        return (server.setup.n_ctx,) * 3
    trained = trained_context(server.ready)
    least = min(LEAST_FITTED, trained)
    middle = server.most(trained, MARGIN, lambda term: term.bytes)
    low = server.most(trained, MARGIN, lambda term: term.high)
    high = server.most(trained, MARGIN, lambda term: term.low)
    return max(middle, least), max(low, least), max(high, least)


def _split_said(server: Server, contexts: tuple[int, int, int]) -> Remarks:
    setup, cut = server.setup, server.ready.deployment.shards
    beside = server.held.left_out
    reduced = setup.n_ctx is None and contexts[0] < trained_context(server.ready)
    how = (
        f"reduced from {trained_context(server.ready):,} to {contexts[0]:,} until 1 GiB stays free"
        if reduced
        else "as trained"
    )
    return remarks(
        [
            f"--n-ctx is not given: {how}, as --fit does" if setup.n_ctx is None else None,
            f"--tp {cut.tp}: layers are spread over {cut.tp * cut.pp} GPUs, as --split-mode layer does"
            if cut.tp > 1
            else None,
            f"towers and draft layers, {beside / GIB:.2f} GiB, are not loaded with the text model"
            if beside > 0
            else None,
        ]
    )


def _shared(setup: Setup, n_ctx: int) -> Slots:
    return share_out(n_ctx, setup.slots, unified=setup.unified, divided=setup.divided)


def buffers_of(setup: Setup, rows: Counter[Rows], shared: Slots) -> tuple[Buffer, ...]:
    """Buffers of layers with these rows: those that see all, those with a window, and keys of an index."""
    saves = setup.window_batch is not None
    grouped: dict[str, list[tuple[Rows, int]]] = {}
    for row, layers in rows.items():
        grouped.setdefault(FULL if row.kind == SLIDING and not saves else row.kind, []).append((row, layers))
    return tuple(
        _buffer(setup, kind, grouped[kind], shared) for kind in sorted(grouped, key=(FULL, SLIDING, "index").index)
    )


def _buffer(setup: Setup, kind: str, rows: list[tuple[Rows, int]], shared: Slots) -> Buffer:
    slides = kind == SLIDING
    plain = slides and setup.plain_windows
    key, value = (PLAIN, PLAIN) if plain else (setup.key_type, setup.value_type)
    window = max((row.window or 0 for row, _ in rows), default=0) if slides else None
    small = window is not None and not setup.swa_full and setup.window_batch is not None
    return Buffer(
        kind=kind,
        cells=window_cells(window or 0, shared, setup.window_batch or 0) if small else shared.cells,
        streams=shared.streams,
        layers=sum(layers for _, layers in rows),
        keys=sum(layers * row_bytes(key, row.keys) for row, layers in rows),
        values=sum(layers * row_bytes(value, row.values) for row, layers in rows),
        key_type=key,
        value_type=value,
        window=window,
    )


def _size(server: Server, part: Part, n_ctx: int) -> float:
    return server.given.get("kv", sum(buffer.bytes for buffer in server.buffers(part, n_ctx)))


def _tokens(setup: Setup, contexts: tuple[int, int, int]) -> tuple[int, int, int]:
    cells = [shared.streams * shared.cells for shared in (_shared(setup, n) for n in contexts)]
    return cells[0], cells[1], cells[2]


def _cache_rule(buffers: tuple[Buffer, ...]) -> str:
    """Each buffer's arithmetic, in the words of its line."""
    each = (
        f"{part.kind}: {part.streams} x {part.cells:,} cells x {part.keys + part.values:,} B over {part.layers} layers, "
        f"K {part.key_type}, V {part.value_type}"
        for part in buffers
    )
    return "; ".join(each) or "no layer keeps keys and values"


def _groups(buffers: tuple[Buffer, ...], states: Counter[State]) -> tuple[Group, ...]:
    kept = tuple(Group(part.kind, part.layers, 0, (part.keys + part.values) / part.layers, None) for part in buffers)
    layers = sum(states.values())
    return (*kept, Group("state", layers, 0, sum(state_parts(states, 1)) / layers, None)) if layers else kept


def _room(part: Part, setup: Setup, shared: Slots, buffers: tuple[Buffer, ...], longest: int) -> SlotRoom:
    growing = tuple((float(one.keys + one.values), None if setup.swa_full else one.window) for one in buffers)
    return SlotRoom(shared, longest, growing, sum(state_parts(part.states, 1)))


def _reason(server: Server, n_ctx: int, terms: tuple[EngineTerm, ...]) -> str:
    """Why the server does not start, and which context would fit."""
    needed = " + ".join(f"{term.name} {term.bytes / GIB:.2f}" for term in terms if term.bytes)
    most = server.most(n_ctx, 0.0, lambda term: term.bytes) if "kv" not in server.given else 0
    fits = f"--n-ctx {most} would fit" if most else "no context would fit: fewer bits a weight, or more GPUs"
    return f"{needed} GiB is more than the {server.visible / GIB:.2f} GiB of the device; {fits}"
