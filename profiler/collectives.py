"""Times exchanges between ranks over patterns and sizes; each is checked on every rank, before it is timed and after."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final

from roofcast.calculators.profiled import EAGER, GRAPH, Sample
from roofcast.calculators.profiled_ranks import Exchanged
from roofcast.hwdb.units import show_size
from roofcast.modelspec.op import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, POINT_TO_POINT, REDUCE_SCATTER
from roofcast.profiler.collectives_check import SUM, Numbers, Piece
from roofcast.profiler.errors import (
    AgreedMemoryError,
    LostRankError,
    OutOfMemoryError,
    UnavailableError,
    WrongOutputError,
)
from roofcast.profiler.ranks import LACKING
from roofcast.profiler.runtime import first_line
from roofcast.profiler.sweep import Task, sweep
from roofcast.profiler.timing import agreed, capture, glance, memory_guard, time_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from roofcast.profiler.ranks import Ranks
    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Swept, Watch
    from roofcast.profiler.timing import Budget, Work

ROW: Final = 2e-3  # seconds of exchanges that are timed as one: ranks never begin at quite the same moment
MOST: Final = 32  # exchanges of one repeat
USABLE: Final = 0.9  # share of free memory that buffers may have
WHOLE: Final = "whole"
PART: Final = "part"


@dataclass(frozen=True, slots=True)
class Plan:
    """Exchanges to time.

    Args:
        patterns: of `modelspec.op`.
        payloads: bytes, as of `Exchanged`. [B]
        number: format of the elements: bf16, fp16 or fp32.
    """

    patterns: tuple[str, ...]
    payloads: tuple[int, ...]
    number: str


@dataclass(frozen=True, slots=True)
class Buffers:
    """What a rank puts into an exchange, and what it gets; the same tensor where it is in place."""

    sent: Tensor
    got: Tensor


@dataclass(frozen=True, slots=True)
class Way:
    """How a pattern is exchanged, and what must come of it.

    Args:
        sent: what a rank puts in, `WHOLE` or `PART` of it.
        got: what it gets, likewise; None is in place.
        run: exchanges.
        right: by rank, ranks and elements of the payload: what the result is made of; nothing of a rank that gets none.
        summed: whether numbers are summed.
        passes: payloads on the way one after the other.
        parted: whether the payload is n parts, one a rank.
    """

    sent: str
    got: str | None
    run: Callable[[Ranks, Buffers], None]
    right: Callable[[int, int, int], tuple[Piece, ...]]
    summed: bool = False
    passes: int = 1
    parted: bool = True


def _to_and_fro(ranks: Ranks, x: Buffers) -> None:
    """The first rank sends to the last, which sends its own back when it has it; the others have no part in it."""
    last = ranks.size - 1
    if ranks.leads:
        ranks.send(x.sent, last)
        ranks.receive(x.got, last)
    elif ranks.rank == last:
        ranks.receive(x.got, 0)
        ranks.send(x.sent, 0)
    else:
        x.sent[:1].zero_()  # a graph of nothing is none


def _other_end(rank: int, n: int, whole: int) -> tuple[Piece, ...]:
    ends = {0: n - 1, n - 1: 0}
    return (Piece(ends[rank], 0, whole),) if rank in ends else ()


#: pattern -> how it is exchanged; payloads as nccl-tests and `modelspec.op.Exchange` count them
WAYS: Final[Mapping[str, Way]] = {
    ALL_REDUCE: Way(
        WHOLE,
        None,
        lambda ranks, x: ranks.all_reduce(x.sent),
        lambda _rank, _n, e: (Piece(SUM, 0, e),),
        summed=True,
        parted=False,
    ),
    ALL_GATHER: Way(
        PART,
        WHOLE,
        lambda ranks, x: ranks.all_gather(x.got, x.sent),
        lambda _, n, e: tuple(Piece(one, 0, e // n) for one in range(n)),
    ),
    REDUCE_SCATTER: Way(
        WHOLE,
        PART,
        lambda ranks, x: ranks.reduce_scatter(x.got, x.sent),
        lambda rank, n, e: (Piece(SUM, rank * (e // n), e // n),),
        summed=True,
    ),
    ALL_TO_ALL: Way(
        WHOLE,
        WHOLE,
        lambda ranks, x: ranks.all_to_all(x.got, x.sent),
        lambda rank, n, e: tuple(Piece(one, rank * (e // n), e // n) for one in range(n)),
    ),
    POINT_TO_POINT: Way(WHOLE, WHOLE, _to_and_fro, _other_end, passes=2, parted=False),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One exchange to time.

    Args:
        pattern: of `WAYS`.
        elements: of the payload.
        payload: the same in bytes. [B]
        launched: `eager` or `graph`.
        numbers: that it is checked with.
    """

    pattern: str
    elements: int
    payload: int
    launched: str
    numbers: Numbers

    @property
    def way(self) -> Way:
        """How it is exchanged."""
        return WAYS[self.pattern]

    @property
    def label(self) -> str:
        """It in words."""
        return label_of(self.pattern, self.payload, self.launched)


def label_of(pattern: str, payload: int, launched: str) -> str:
    """An exchange in words.

    >>> label_of("all_reduce", 65536, "graph")
    'all_reduce of 64 KiB, graph'
    """
    return f"{pattern} of {show_size(payload)}, {launched}"


def rounded(payload: int, ranks: int, width: int) -> int:
    """A payload that is as many whole elements for every rank: the next multiple of n b bytes. [B]

    >>> rounded(1024, 3, 2), rounded(1024, 4, 2), rounded(1, 8, 4)
    (1026, 1024, 32)
    """
    whole = ranks * width
    return -(-payload // whole) * whole


def payload_of(runtime: Runtime, plan: Plan, pattern: str, asked: int) -> int:
    """The payload that is exchanged in place of the one asked: whole elements, of each rank where it is in parts. [B]"""
    parts = _ranks(runtime).size if WAYS[pattern].parted else 1
    return rounded(asked, parts, runtime.dtype(plan.number).itemsize)


def profile_exchanges(runtime: Runtime, plan: Plan, budget: Budget, watch: Watch | None = None) -> Swept[Exchanged]:
    """Times every exchange that is asked, eager and where it can be in a graph; small ones of all patterns first.

    One pair of buffers is used again and again, since in a model what is exchanged was just written and is read at once:
    what fits the last cache is there.

    Raises:
        WrongOutputError: a result is not right on some rank, on all ranks alike.
    """
    ranks = _ranks(runtime)
    width = runtime.dtype(plan.number).itemsize
    numbers = {summed: Numbers(runtime, plan.number, ranks.size, summed) for summed in (False, True)}
    launches = (EAGER, GRAPH) if runtime.graphs else (EAGER,)
    points = dict.fromkeys(
        (pattern, payload_of(runtime, plan, pattern, asked)) for asked in plan.payloads for pattern in plan.patterns
    )
    every = [
        Asked(pattern, payload // width, payload, launched, numbers[WAYS[pattern].summed])
        for pattern, payload in points
        for launched in launches
    ]
    with runtime.torch.inference_mode():
        return sweep([Task(one.label, partial(_point, runtime, one)) for one in every], budget, watch)


def _ranks(runtime: Runtime) -> Ranks:
    if runtime.ranks is None:
        raise UnavailableError("exchanges need ranks, and this device works alone")
    return runtime.ranks


def _point(runtime: Runtime, asked: Asked) -> Exchanged:
    """One exchange; what keeps it from running keeps it on all ranks, and is a part of the answer."""
    try:
        buffers = _buffers(runtime, asked)
        with memory_guard(runtime):
            return _timed(runtime, asked, buffers)
    except AgreedMemoryError as error:
        problem = str(error)
    except OutOfMemoryError as error:  # the others are at an exchange that this one never comes to
        raise LostRankError(f"rank {_ranks(runtime).rank}: {error}") from error
    except (NotImplementedError, AttributeError, RuntimeError) as error:
        if not lacking(error):
            raise
        problem = f"not in torch {runtime.torch.__version__} with {_ranks(runtime).backend} ({first_line(error)})"
    return Exchanged(asked.pattern, asked.payload, asked.launched, None, problem=problem)


def lacking(error: Exception) -> bool:
    """Whether an error says that there is no such exchange, which all ranks meet alike.

    >>> lacking(RuntimeError("ProcessGroupGloo does not support reduce_scatter")), lacking(RuntimeError("Broken pipe"))
    (True, False)
    """
    absent = isinstance(error, NotImplementedError) or "torch.distributed' has no" in str(error)
    return absent or any(words in str(error).lower() for words in LACKING)


def _buffers(runtime: Runtime, asked: Asked) -> Buffers:
    """Tensors of this rank, where those of all fit.

    Raises:
        AgreedMemoryError: on some rank they do not.
    """
    ranks, way = _ranks(runtime), asked.way
    runtime.release()
    lengths = {WHOLE: asked.elements, PART: asked.elements // ranks.size}
    kept = [lengths[one] for one in (way.sent, way.got) if one is not None]
    aside = 0 if ranks.capturable else asked.payload  # what gloo copies
    need = sum(kept) * (asked.payload // asked.elements) + aside
    alike = 1 if ranks.capturable else ranks.place.locals  # ranks that have this memory
    free = int(runtime.free_bytes() * USABLE / alike)
    made, problem = None, None
    if need > free:
        problem = f"its buffers need {need / 2**30:.2f} GiB and {free / 2**30:.2f} GiB are free"
    else:
        try:
            with memory_guard(runtime):
                dtype = runtime.dtype(asked.numbers.number)
                tensors = [runtime.torch.empty(one, dtype=dtype, device=runtime.device) for one in kept]
                asked.numbers.table(SUM if way.summed else ranks.rank)
                made = Buffers(tensors[0], tensors[-1])
        except OutOfMemoryError as error:
            problem = str(error)
    refused = [(rank, one) for rank, one in enumerate(ranks.gather(problem)) if one is not None]
    if refused or made is None:
        rank, why = refused[0]
        raise AgreedMemoryError(f"rank {rank}: {why}")
    return made


def _timed(runtime: Runtime, asked: Asked, buffers: Buffers) -> Exchanged:
    """Checks, times, and checks once more; of a graph one with a single exchange is checked too."""
    ranks, way = _ranks(runtime), asked.way
    once = partial(way.run, ranks, buffers)
    seconds = _checked(runtime, asked, buffers, once)
    replayed = asked.launched == GRAPH
    final: Work = capture(runtime, once) if replayed else once
    if replayed:
        _checked(runtime, asked, buffers, final)
    if way.got is None:
        buffers.sent.zero_()  # sums of anything else, in place again and again, would pass the largest number
    calls = [once] * _count(runtime, seconds, once)
    sample = time_calls(runtime, calls, graph=replayed)
    _checked(runtime, asked, buffers, final)
    right = sum(bool(way.right(rank, ranks.size, asked.elements)) for rank in range(ranks.size))
    return Exchanged(asked.pattern, asked.payload, asked.launched, _share(sample, way.passes), right)


def _count(runtime: Runtime, first: float, once: Work) -> int:
    """Exchanges that one repeat has, by the time of the first: of short ones many. Alike on all ranks."""
    seconds = agreed(runtime, first)
    if seconds < MOST * ROW:
        seconds = glance(runtime, once)
    return max(1, min(MOST, math.ceil(ROW / max(seconds, 1e-7))))


def _share(sample: Sample, passes: int) -> Sample:
    """Times of one of several passes that were timed together."""
    return Sample(
        sample.seconds / passes, sample.low / passes, sample.high / passes, sample.spread / passes, sample.repeats
    )


def _checked(runtime: Runtime, asked: Asked, buffers: Buffers, work: Work) -> float:
    """Puts in numbers, fills what is to be written with NaN, exchanges, and looks at every element; the time of it. [s]

    Raises:
        WrongOutputError: some rank has a wrong one; on all ranks alike.
    """
    ranks, numbers = _ranks(runtime), asked.numbers
    if buffers.got is not buffers.sent:
        buffers.got.fill_(math.nan)
    numbers.fill(buffers.sent, ranks.rank)
    runtime.synchronize()
    start = perf_counter()
    work()
    runtime.synchronize()
    seconds = perf_counter() - start
    pieces = asked.way.right(ranks.rank, ranks.size, asked.elements)
    found = ranks.gather([numbers.wrong(buffers.got, pieces), sum(piece.count for piece in pieces)])
    for rank, (bad, whole) in enumerate(found):
        if bad:
            raise WrongOutputError(
                f"{asked.label}: {bad:,} of {whole:,} elements are wrong on rank {rank} of {ranks.size}; "
                "its time means nothing"
            )
    return seconds
