"""The answer of `report`: the verdict on a deployment, and the answers of the other commands that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.compare import Compared  # noqa: TC001 - schemas read annotations, here and below
from roofcast.calculators.estimate import EstimateResult  # noqa: TC001
from roofcast.calculators.fit import FitResult  # noqa: TC001
from roofcast.calculators.gpus import Gpu  # noqa: TC001
from roofcast.calculators.kv import KvResult  # noqa: TC001
from roofcast.calculators.kv_curves import KvCurves  # noqa: TC001
from roofcast.calculators.levers import LeversResult  # noqa: TC001
from roofcast.calculators.phases import Asked, answer_point, most_sequences
from roofcast.calculators.planning.rows import PlanResult  # noqa: TC001
from roofcast.calculators.price_rows import PriceResult  # noqa: TC001
from roofcast.calculators.report_service import ServiceResult  # noqa: TC001
from roofcast.calculators.roofline_table import RooflineResult  # noqa: TC001
from roofcast.calculators.sweep import Sweep  # noqa: TC001
from roofcast.calculators.validate import ValidateResult  # noqa: TC001
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.phases import Point

FITS, NO_ROOM, MEETS, MISSES = "fits", "does not fit", "meets", "misses"
MEMORY, SERVER, TPOT, TTFT = "memory", "server", "tpot", "ttft"  # what ends a load
MOST_AT_ONCE: Final = 4096  # sequences; more at once are not looked at


@dataclass(frozen=True, slots=True)
class Limits:
    """What a service has promised; a limit that is null is not asked."""

    ttft_seconds: float | None = None
    """Time to the first token at most. [s]"""
    tpot_seconds: float | None = None
    """Time per output token at most. [s]"""


@dataclass(frozen=True, slots=True)
class Timing:
    """A time by the bound, and as it is to be expected."""

    bound_seconds: float | None
    """Least time; null of what does not fit. [s]"""
    expected_seconds: float | None
    """To expect; null without constants. [s]"""
    low_seconds: float | None
    """Low end of the 80 % interval; null likewise. [s]"""
    high_seconds: float | None
    """High end of the 80 % interval; null likewise. [s]"""

    @property
    def seconds(self) -> float | None:
        """The expected time where there is one, else the bound. [s]"""
        return self.bound_seconds if self.expected_seconds is None else self.expected_seconds


@dataclass(frozen=True, slots=True)
class Load:
    """Decode of so many sequences at once."""

    batch: int
    """Sequences at once, over all replicas."""
    tpot: Timing
    """Time per output token."""
    tokens_per_second: float | None
    """Of the whole deployment, at the expected time where there is one, else at the bound. [token/s]"""
    bound_by: str
    """compute, memory or link: what the terms that take most of the time wait for."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a deployment does, before any table."""

    status: str
    """fits, does not fit; with limits: meets, misses."""
    reason: str | None
    """Why it does not fit, or which limits it misses, ttft, tpot or both; null where neither."""
    basis: str
    """expected or bound: what limits are held against."""
    context: int
    """Tokens that each sequence attends to in decode. [token]"""
    prompt: int
    """Tokens of a prompt. [token]"""
    most_sequences: int
    """Sequences of that context that fit at once."""
    ttft: Timing
    """Time to the first token of a prompt that is alone, without queueing."""
    alone: Load | None
    """Decode of one sequence; null where none fits."""
    most: Load | None
    """Decode of all that fit, 4,096 at most; null likewise."""
    met: Load | None
    """Decode of the most that meet the limit of TPOT; null without that limit, or where one alone misses it."""
    limits: Limits
    """What is promised."""
    ends: str | None
    """What keeps more sequences out: memory, server (the requests that it runs at once, whatever fits) or tpot; null where
    none fits, and where more than the 4,096 do that are looked at."""
    server_requests: int | None = None
    """Requests that the server runs at once by its own limit, over all replicas; null where nothing but memory bounds them."""


@dataclass(frozen=True, slots=True)
class ReportResult:
    """The result of `report`; parts that do not apply are null."""

    verdict: Verdict
    """The verdict."""
    fit: FitResult | None
    """As `roofcast fit`; null of layouts whose memory needs an engine's rules, where none is named."""
    estimate: EstimateResult
    """As `roofcast estimate`: the prompt, and decode at the loads that are shown."""
    sweep: Sweep | None
    """Decode from one sequence to all that fit; null where none fits."""
    service: ServiceResult | None
    """A server under load, simulated; null where it has no room for any request."""
    roofline: RooflineResult
    """As `roofcast roofline`."""
    kv: KvResult
    """As `roofcast kv`: the model, and others beside it."""
    curves: KvCurves
    """The cache of one sequence against its context, of the same models."""
    gpus: Compared | None
    """The accelerator beside others; null without any."""
    levers: LeversResult
    """As `roofcast levers`: bounds, in as much of the memory as the verdict takes."""
    price: PriceResult | None
    """As `roofcast price`; null where nothing fits."""
    plan: PlanResult | None
    """As `roofcast plan`, briefly, on this accelerator and those beside it; null without a rate and a promise."""
    measured: ValidateResult | None
    """As `roofcast validate`: of the files that are given, else published figures of the accelerator; null where there is none."""
    accelerator: Gpu
    """As `roofcast gpus`: the accelerator's facts and their sources."""


def verdict_of(ready: Ready, context: int, prompt: int, limits: Limits) -> Verdict:
    """The verdict: what fits, how fast, and how many at once keep what is promised.

    A limit is held against the expected time where constants are prepared, else against the bound. The most sequences
    that meet a limit L of TPOT is the largest B <= most_sequences with TPOT(B) <= L; TPOT grows with B.

    Raises:
        MalformedModelError: a context or prompt that cannot be.
    """
    most = most_sequences(ready, context)
    first = answer_point(ready, Asked(PREFILL, 1, prompt))
    ttft = timing_of(first)
    basis = "bound" if ready.expectation is None else "expected"
    top = min(most, MOST_AT_ONCE)
    server = None if ready.holding is None else ready.holding.most
    at_once = None if server is None else server * ready.deployment.shards.dp
    if not top:
        why = answer_point(ready, Asked(DECODE, 1, context)).reason
        return Verdict(NO_ROOM, why, basis, context, prompt, most, ttft, None, None, None, limits, None, at_once)
    alone, whole = load_of(ready, 1, context), load_of(ready, top, context)
    met = None if limits.tpot_seconds is None else _most_within(ready, context, top, limits.tpot_seconds)
    missed = _missed(limits, ttft, met)
    promised = limits != Limits()
    status = MISSES if missed else MEETS if promised else FITS
    ends = TPOT if met is not None and met.batch < top else _ends(most, at_once)
    return Verdict(status, missed, basis, context, prompt, most, ttft, alone, whole, met, limits, ends, at_once)


def _ends(most: int, at_once: int | None) -> str | None:
    """What keeps more sequences out than the most: memory, or the server's own limit; None of more than are looked at."""
    if most > MOST_AT_ONCE:
        return None
    return SERVER if at_once is not None and most >= at_once else MEMORY


def _missed(limits: Limits, ttft: Timing, met: Load | None) -> str | None:
    """Which limits are missed by one sequence alone; None where none is."""
    late = limits.ttft_seconds is not None and (ttft.seconds is None or ttft.seconds > limits.ttft_seconds)
    missed = {TTFT: late, TPOT: limits.tpot_seconds is not None and met is None}
    return " and ".join(name for name, is_missed in missed.items() if is_missed) or None


def timing_of(point: Point) -> Timing:
    """The times of a point."""
    low, high = point.interval or (None, None)
    return Timing(point.bound, point.expected, low, high)


def load_of(ready: Ready, batch: int, context: int) -> Load:
    """Decode of a batch."""
    point = answer_point(ready, Asked(DECODE, batch, context))
    rate = point.rate if point.expected_rate is None else point.expected_rate
    return Load(batch, timing_of(point), rate, point.work.bound_by)


def _most_within(ready: Ready, context: int, most: int, limit: float) -> Load | None:
    """The most sequences whose step stays within a limit, found by halving; None where one alone does not. [s]"""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        seconds = load_of(ready, middle, context).tpot.seconds
        if seconds is not None and seconds <= limit:
            low = middle
        else:
            high = middle - 1
    return load_of(ready, low, context) if low else None
