"""What a change may need beside itself: a request as long as was asked, or as the cache holds, a share that is free."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.advice_case import Change, Part
from roofcast.calculators.engines.flags import option
from roofcast.calculators.engines.leftover import Blocks
from roofcast.calculators.engines.llama_cpp_cache import PAD, padded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.engines.advice_case import Case, Trial

    Repair = Callable[[Case], Change | None]

LEAST_LENGTH: Final = 1024  # nobody serves shorter requests [token]
SHARES_TRIED: Final = range(99, 49, -1)  # hundredths of the memory

# engine -> flag of roofcast, and how the engine spells it, of its longest request
LENGTHS: Final[Mapping[str, tuple[str, str]]] = {
    "vllm": ("max_model_len", "--max-model-len {}"),
    "sglang": ("max_model_len", "--context-length {}"),
    "tensorrt-llm": ("max_model_len", "--max_seq_len {}"),
    "tgi": ("max_model_len", "--max-total-tokens {}"),
    "lmdeploy": ("session_len", "--session-len {}"),
    "llama.cpp": ("n_ctx", "--ctx-size {}"),
    "ollama": ("n_ctx", "OLLAMA_CONTEXT_LENGTH={}"),
}
REQUESTS: Final[Mapping[str, tuple[str, str]]] = {
    "vllm": ("max_num_seqs", "--max-num-seqs {}"),
    "tensorrt-llm": ("max_num_seqs", "--max_batch_size {}"),
    "llama.cpp": ("parallel", "--parallel {}"),
    "ollama": ("parallel", "OLLAMA_NUM_PARALLEL={}"),
}


def repaired(trial: Trial) -> Trial:
    """A trial with what it needs beside: its engine's repairs, one after the other."""
    for repair in REPAIRS[trial.case.engine]:
        change = repair(trial.case)
        after = None if change is None else trial.then(change)
        if after is not None:
            shorter = repair in SHORTENING
            trial = replace(after, is_shorter=trial.is_shorter or shorter)
    return trial


def longer(case: Case) -> Change | None:
    """Requests as long as was asked, where a flag, and not the model, makes them shorter."""
    wanted, trained = case.wanted.longest, case.served.ready.model.spec.max_context
    name, _ = LENGTHS[case.engine]
    bound = getattr(case.flags, name) or trained
    if wanted <= case.memory.longest or (trained is not None and wanted > trained):
        return None
    return None if bound is not None and bound >= wanted else _set(case, LENGTHS, wanted)


def more_requests(case: Case) -> Change | None:
    """As many requests at once as were asked for, where they would fit and a flag allows fewer."""
    dp, room = case.served.ready.deployment.shards.dp, case.memory.room
    least = -(-case.wanted.most // dp)
    most = case.memory.most
    if isinstance(room, Blocks):
        most, room = room.most, replace(room, most=None)
    if most is None or most >= least or not case.memory.starts:
        return None
    fits = all(room.sequences(context) * dp >= count for context, count in case.wanted.needs)
    return _set(case, REQUESTS, least) if fits else None


def free_share(case: Case) -> Change | None:
    """The largest share of the memory that is free when vLLM starts, in two decimals, where more was asked for."""
    if not _asks_too_much(case):
        return None
    now = case.memory.budget / case.memory.visible
    for hundredths in SHARES_TRIED:
        share = hundredths / 100
        other = case.of(case.but(gpu_memory_utilization=share)) if share < now else None
        if other is not None and (other.memory.starts or not _asks_too_much(other)):
            text = f"--gpu-memory-utilization {share:g}"
            return Change(other.served, (Part("gpu_memory_utilization", text, text),))
    return None


def _asks_too_much(case: Case) -> bool:
    """Whether a server with room for a request does not start all the same: its share of the memory is not free."""
    if case.memory.starts or case.memory.kv[0] <= 0 or case.flags.kv_cache_memory_bytes is not None:
        return False
    fits = _holds(case)
    if not fits:
        return False
    other = case.of(case.but(max_model_len=fits))
    return other is not None and not other.memory.starts


def shorter(case: Case) -> Change | None:
    """The longest request that the cache holds, where one of the longest length is what keeps the server from starting."""
    if case.memory.starts:
        return None
    fits = _holds(case)
    if fits < max(LEAST_LENGTH, case.wanted.longest) or fits >= _length(case):
        return None
    change = _set(case, LENGTHS, fits)
    other = case.of(change.served)
    return change if other is not None and other.memory.starts else None


def _holds(case: Case) -> int:
    """The longest request that the cache holds. [token]"""
    layout = getattr(case.memory.room, "layout", None)
    if layout is None:
        return case.memory.longest
    return int(layout.longest_request(case.memory.blocks or 0, case.memory.longest))


def _length(case: Case) -> int:
    """The longest request that the server is started for. [token]"""
    return (
        getattr(case.flags, LENGTHS[case.engine][0]) or case.served.ready.model.spec.max_context or case.memory.longest
    )


def more_cells(case: Case) -> Change | None:
    """Slots and cells of llama.cpp's cache for what was asked, where there are fewer."""
    shared, wanted = getattr(case.memory.room, "shared", None), case.wanted
    trained = case.served.ready.model.spec.max_context
    if shared is None or not wanted.needs or (trained is not None and wanted.longest > trained):
        return None
    slots, one_buffer = max(shared.slots, wanted.most), shared.streams == 1 and shared.context == shared.cells
    together = max(least * padded(context) for context, least in wanted.needs)
    enough = shared.cells >= together if one_buffer else shared.context >= wanted.longest
    if slots == shared.slots and enough:
        return None
    whole = one_buffer and slots == shared.slots
    each = padded(wanted.longest)
    cells = each if case.engine == "ollama" else max(each, together) if whole else slots * each
    change = _set(case, LENGTHS, cells)
    if slots == shared.slots:
        return change
    more = _set(replace(case, served=change.served), REQUESTS, slots)
    return Change(more.served, (*change.parts, *more.parts))


def fewer_cells(case: Case) -> Change | None:
    """The largest context, a multiple of 256, that llama.cpp can allocate, where that which it has does not fit."""
    if case.memory.starts:
        return None
    name, _ = LENGTHS[case.engine]
    low, high = 0, (getattr(case.flags, name) or case.memory.longest) // PAD + 1
    while high - low > 1:
        middle = (low + high) // 2
        other = case.of(case.but(**{name: middle * PAD}))
        low, high = (middle, high) if other is not None and other.memory.starts else (low, middle)
    cells = low * PAD
    return _set(case, LENGTHS, cells) if cells >= max(LEAST_LENGTH, case.wanted.longest) else None


def fewer_slots(case: Case) -> Change | None:
    """As many slots as were asked for, where the server does not start with more."""
    name, _ = REQUESTS[case.engine]
    slots = getattr(case.flags, name)
    if case.memory.starts or slots is None or slots <= case.wanted.most:
        return None
    return _set(case, REQUESTS, case.wanted.most)


def _set(case: Case, table: Mapping[str, tuple[str, str]], value: int) -> Change:
    """A flag of a table with a value."""
    name, text = table[case.engine]
    return Change(case.but(**{name: value}), (Part(name, text.format(value), f"{option(name)} {value}"),))


# engine -> repairs, in this order
REPAIRS: Final[Mapping[str, tuple[Repair, ...]]] = {
    "vllm": (longer, free_share, shorter, more_requests),
    "sglang": (longer, shorter),
    "tensorrt-llm": (longer, shorter, more_requests),
    "tgi": (longer, shorter),
    "lmdeploy": (longer, shorter),
    "llama.cpp": (more_cells, fewer_slots, fewer_cells),
    "ollama": (more_cells, fewer_slots, fewer_cells),
}
SHORTENING: Final[tuple[Repair, ...]] = (shorter, fewer_cells)
