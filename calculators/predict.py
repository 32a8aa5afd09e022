"""What a deployment is expected to show of each quantity that is measured."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot, log
from typing import TYPE_CHECKING, Final

from roofcast.calculators.engines.flags import TAKES, Flags
from roofcast.calculators.engines.registry import engine_memory
from roofcast.calculators.engines.terms import Served
from roofcast.calculators.errors import UnansweredError
from roofcast.calculators.expected.interval import Z80, interval
from roofcast.calculators.phases import Asked, answer_point
from roofcast.calculators.serving.lengths import Apart, Fixed
from roofcast.calculators.serving.loads import Sending, default_requests, synthetic
from roofcast.calculators.serving.service import service_of
from roofcast.calculators.serving.simulate import simulate
from roofcast.calculators.serving.stagger import staggered
from roofcast.hwdb.efficiency_files import SERVER, kinship
from roofcast.modelspec.step import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roofcast.calculators.deployment import Ready
    from roofcast.calculators.measurement import Measurement
    from roofcast.calculators.phases import Point
    from roofcast.calculators.serving.result import SimulateResult
    from roofcast.calculators.serving.service import Service

#: quantities of a prompt alone, which no token is decoded for
PROMPTS: Final = frozenset(("prefill_seconds", "ttft_seconds"))
MOST_REQUESTS: Final = 4096  # that are simulated for a point, or two a client
#: standard deviation of ln(measured / simulated) of the time to the first token of servers: its 80th percentile over 1.2816.
#: Source: the 20 published points with several requests at once, of flags and lengths that their pages do not state
WAITING: Final = 1.0


@dataclass(frozen=True, slots=True)
class Predicted:
    """Bound and expectation of one quantity, in its unit; None where there is none.

    Args:
        bound: the least time, or the highest rate.
        expected, low, high: with the 80 % interval.
        rate: whether more is better.
    """

    bound: float | None
    expected: float | None
    low: float | None
    high: float | None
    rate: bool = False


def decode_seconds(ready: Ready, point: Measurement) -> Predicted:
    """One decode step of the batch at its mean context: t = kernels + host. [s]"""
    return _of(_decode(ready, point))


def prefill_seconds(ready: Ready, point: Measurement) -> Predicted:
    """A batch of prompts, less what of them is cached: t = kernels + host of all its steps. [s]"""
    return _of(_prefill(ready, point, point.batch or 1))


def batch_seconds(ready: Ready, point: Measurement) -> Predicted:
    """Requests sent together: their prefill, and output - 1 steps at the mean context. [s]"""
    first, rest = _of(_prefill(ready, point, point.batch or 1)), _of(_decode(ready, point))
    return _served(_sum((first, 1.0), (rest, (point.output or 1) - 1)))


def tpot_seconds(ready: Ready, point: Measurement) -> Predicted:
    """Time per output token of a server in closed loop: t = decode + B prefill / output. [s]

    While a request decodes its `output` tokens, each of the B places is given to a new request once, whose prompt is
    prefilled in between: B prefills in `output` steps. Alone there are none. The bound is that of decode, since all prompts
    may have come before. The interval is wider by what servers differ from this form.
    """
    decode, batch = _of(_decode(ready, point)), point.batch or 1
    if batch == 1:
        return decode
    between = _sum((decode, 1.0), (_of(_prefill(ready, point, 1)), batch / (point.output or 1)))
    return _served(Predicted(decode.bound, between.expected, between.low, between.high))


def ttft_seconds(ready: Ready, point: Measurement) -> Predicted:
    """Mean time to the first token: of a request alone its prefill, of a server in closed loop as `simulate` has it. [s]

    t = sum of (first token - coming) over all requests / requests; alone t = prefill. The load is 8 requests a client, all
    of the prompt and about the output stated, on an engine that is started without flags. The bound is that of a prefill
    alone, for a prompt may find nobody before it. The interval is as wide as published servers differ from it.

    Raises:
        UnansweredError: others are there too, and how long they stay is not stated, or no request is as short as the engine
            takes.
    """
    alone = _of(_prefill(ready, point, 1))
    if (point.batch or 1) == 1 or alone.expected is None or alone.bound is None:
        return alone
    mean = _simulated(ready, point).ttft_seconds
    if mean is None:
        raise UnansweredError(
            "time to first token under load: the server as it is started by default takes no such request"
        )
    expected = max(mean.mean, alone.bound)
    low, high = interval(expected, alone.bound, hypot(WAITING, kinship()[SERVER]))
    return Predicted(alone.bound, expected, low, high)


def output_tokens_per_second(ready: Ready, point: Measurement) -> Predicted:
    """Output tokens a second of a server in closed loop: B / (decode + B prefill / output). [token/s]

    Raises:
        UnansweredError: how many requests there are at once is not stated.
    """
    if point.batch is None:
        raise UnansweredError("a rate at no stated concurrency: the load decides it, which is simulated")
    batch = point.batch
    spent = _served(
        _sum((_of(_decode(ready, point)), 1.0), (_of(_prefill(ready, point, 1)), batch / (point.output or 1)))
    )
    bound, expected, low, high = (
        seconds and batch / seconds for seconds in (spent.bound, spent.expected, spent.high, spent.low)
    )
    return Predicted(bound, expected, low, high, rate=True)


def total_tokens_per_second(ready: Ready, point: Measurement) -> Predicted:
    """The same, the tokens of the prompts counted too: x (prompt + output) / output. [token/s]"""
    made, factor = output_tokens_per_second(ready, point), 1 + (point.prompt or 0) / (point.output or 1)
    bound, expected, low, high = (
        value and value * factor for value in (made.bound, made.expected, made.low, made.high)
    )
    return Predicted(bound, expected, low, high, rate=True)


#: quantity -> what predicts it
PREDICTORS: Final[Mapping[str, Callable[[Ready, Measurement], Predicted]]] = {
    "decode_seconds": decode_seconds,
    "prefill_seconds": prefill_seconds,
    "batch_seconds": batch_seconds,
    "tpot_seconds": tpot_seconds,
    "ttft_seconds": ttft_seconds,
    "output_tokens_per_second": output_tokens_per_second,
    "total_tokens_per_second": total_tokens_per_second,
}


def _simulated(ready: Ready, point: Measurement) -> SimulateResult:
    """A server under the load of a point.

    Raises:
        UnansweredError: its requests are not stated, or it does not start by its engine's rules.
    """
    if not point.output:
        raise UnansweredError("time to first token under load: how long others stay is not stated: output")
    if point.cached:
        raise UnansweredError(
            "time to first token under load, of prompts that are cached in part: what they share is not stated"
        )
    clients = point.batch or 1
    requests = min(default_requests(clients), max(MOST_REQUESTS, 2 * clients))
    lengths = Apart(Fixed(max(1, round(point.prompt or 1))), staggered(max(1, round(point.output))), "")
    load = synthetic(lengths, Sending(concurrency=clients, requests=requests))
    result, _ = simulate(_service(ready), load)
    return result


def _service(ready: Ready) -> Service:
    """The deployment under its engine's rules of memory, without flags; where it does not start so, with all that is left."""
    served = Served(replace(ready, holding=None), Flags())
    if ready.deployment.engine in TAKES:
        service, _ = service_of(served, engine_memory(ready.deployment.engine, served))
        if not service.reason:
            return service
    return service_of(served, None)[0]


def _decode(ready: Ready, point: Measurement) -> Point:
    return answer_point(ready, Asked(DECODE, point.batch or 1, max(1, round(point.mean_context or 1))))


def _prefill(ready: Ready, point: Measurement, batch: int) -> Point:
    prompt = max(1, round(point.prompt or 1))
    return answer_point(ready, Asked(PREFILL, batch, prompt, cached=(point.cached or 0.0) / prompt))


def _of(point: Point) -> Predicted:
    low, high = point.interval or (None, None)
    return Predicted(point.bound, point.expected, low, high)


def _sum(*parts: tuple[Predicted, float]) -> Predicted:
    """Times added, each so many times over; their ends too, since one cause moves them."""
    made: dict[str, float | None] = {}
    for name in ("bound", "expected", "low", "high"):
        values = [(getattr(part, name), times) for part, times in parts]
        made[name] = None if any(value is None for value, _ in values) else sum(v * times for v, times in values)
    return Predicted(**made)  # type: ignore[arg-type]  # its fields by name


def _served(made: Predicted) -> Predicted:
    """The same with the interval of a run of many requests: sigma^2 + (that of servers about the closed form)^2."""
    if made.expected is None or made.high is None or made.bound is None:
        return made
    spread = hypot(log(made.high / made.expected) / Z80, kinship()[SERVER])
    low, high = interval(made.expected, made.bound, spread)
    return replace(made, low=low, high=high)
