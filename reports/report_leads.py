"""What each section of a report comes to, in a sentence."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from roofcast.calculators.report import NO_ROOM
from roofcast.hwdb.units import show_si
from roofcast.modelspec.step import DECODE, PREFILL
from roofcast.reports.dollars import money
from roofcast.reports.kv import sized
from roofcast.reports.numbers import GIB, KIB, context_name, count, figures, fixed, millis, ratio, sequences
from roofcast.reports.report_plan import plan_lead
from roofcast.reports.validate import headline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from roofcast.calculators.compare import Compared
    from roofcast.calculators.estimate import EstimateResult
    from roofcast.calculators.fit import FitResult
    from roofcast.calculators.gpus import GpusResult
    from roofcast.calculators.kv import KvResult
    from roofcast.calculators.levers import LeversResult
    from roofcast.calculators.planning.rows import PlanResult
    from roofcast.calculators.price_rows import CostRow, PriceResult
    from roofcast.calculators.report import Limits, Verdict
    from roofcast.calculators.report_service import ServiceResult
    from roofcast.calculators.roofline_table import RooflineResult
    from roofcast.calculators.validate import ValidateResult


FORMATS: Final = frozenset(("kv", "weights"))  # levers that keep model and machine


def memory_lead(result: FitResult, verdict: Verdict) -> str:
    """Weights, what is left for the cache, and what that is worth."""
    memory = result.memory
    each = " of each GPU" if result.gpus > 1 else ""
    said = f"weights take {_gib(memory.weight_bytes)} of the {_gib(memory.total_bytes)}{each}"
    if verdict.status == NO_ROOM:
        alone = f"weights alone take {_gib(memory.weight_bytes)}, and there are {_gib(memory.total_bytes)}{each}"
        return f"{alone if memory.weight_bytes > memory.total_bytes else said}: {result.reason or verdict.reason}"
    bounded = verdict.server_requests is not None and verdict.most_sequences >= verdict.server_requests
    more = ", as many as the server runs at once" if bounded else ""
    return (
        f"{said}, and {_gib(memory.kv_bytes)} are left for the cache: room for "
        f"{sequences(verdict.most_sequences)} of {context_name(verdict.context)}{more}"
    )


def load_lead(_result: EstimateResult, verdict: Verdict) -> str:
    """What sequences at once gain, and what each of them pays for it."""
    alone, top = verdict.alone, verdict.met or verdict.most
    if alone is None or top is None or not alone.tpot.seconds or not top.tpot.seconds:
        return "nothing runs where nothing fits"
    if top.batch == 1:
        return f"one sequence gets a token every {millis(alone.tpot.seconds)} ms, and no second one fits"
    slower = top.tpot.seconds / alone.tpot.seconds
    return (
        f"{count(top.batch)} at once make {ratio(top.batch / slower)} times the tokens of one, not {count(top.batch)} times: "
        f"they share the reading of the weights and not that of their caches, so a token takes {ratio(slower)} times as long"
    )


def service_lead(result: ServiceResult, verdict: Verdict) -> str:
    """How many requests a second keep the limits, or what the heaviest load makes of times."""
    top, limits = result.loads[-1], verdict.limits
    of = f"requests of {count(result.prompt)} tokens in and {count(result.output)} out"
    if result.most_requests_per_second is not None:
        met = next(load for load in result.loads if load.rate == result.most_requests_per_second)
        return (
            f"up to {figures(result.most_requests_per_second)} {of} may come a second, by chance, so that "
            f"{result.percentile:g} of 100 keep {limit_words(limits)}; they make {figures(met.output_tokens_per_second)} tokens/s"
        )
    if top.ttft_seconds is None:
        return f"{of} are longer than the server takes"
    many = "one client" if top.clients == 1 else f"{count(top.clients)} clients"
    missed = (
        f"no rate of {of} keeps {limit_words(limits)} for {result.percentile:g} of 100; "
        if top.share is not None
        else ""
    )
    each = "" if top.tpot_seconds is None else f", and a token every {millis(top.tpot_seconds.p50)} ms"
    return (
        f"{missed}{many} that send {'them' if missed else of} without pause get the first token after "
        f"{millis(top.ttft_seconds.p50)} ms in the median, 90 of 100 within {millis(top.ttft_seconds.p90)} ms{each}"
    )


def limit_words(limits: Limits) -> str:
    """The limits that are asked.

    >>> from roofcast.calculators.report import Limits
    >>> limit_words(Limits(0.5, 0.05))
    'TTFT <= 500 ms and TPOT <= 50 ms'
    """
    asked = {"TTFT": limits.ttft_seconds, "TPOT": limits.tpot_seconds}
    return " and ".join(f"{name} <= {show_si(value, 's', 4)}" for name, value in asked.items() if value is not None)


def roofline_lead(result: RooflineResult, verdict: Verdict) -> str:
    """Work a byte of decode and of prefill against the ridge."""
    used = [roof for roof in result.roofs if roof.used]
    ridge = min(roof.ridge for roof in used or result.roofs)
    decode = [row for row in result.rows if row.phase == DECODE]
    most = max((row for row in decode if row.fits), key=lambda row: row.batch, default=decode[0])
    prefill = next(row for row in result.rows if row.phase == PREFILL)
    sides = {True: "above it, arithmetic is the limit", False: "below it, memory bandwidth is the limit"}
    return (
        f"the ridge is at {figures(ridge)} FLOP/byte; decode of {count(most.batch)} at once does {figures(most.intensity)}, "
        f"{sides[most.intensity > ridge]}; a prompt of {context_name(verdict.prompt)} does {figures(prefill.intensity)}, "
        f"{sides[prefill.intensity > ridge]}"
    )


def cache_lead(result: KvResult, _verdict: Verdict) -> str:
    """What a token takes, and where the cache of one sequence outweighs the weights."""
    own = result.models[0]
    if not own.kv_bytes_per_token:
        return f"the cache of {own.model} does not grow with context: a sequence takes {sized(own.state_bytes + own.window_bytes)}"
    said = f"a token of {own.model} takes {fixed(own.kv_bytes_per_token / KIB, 1)} KiB"
    if own.weight_bytes is None:
        return said
    beyond = (own.weight_bytes - own.state_bytes - own.window_bytes) / own.kv_bytes_per_token
    return f"{said}; {count(ceil(beyond))} tokens, of one sequence or of many, take as much as the weights"


def gpus_lead(result: Compared, _verdict: Verdict) -> str:
    """The fastest of those beside it."""
    own, *others = result.rows
    able = [row for row in others if row.tokens_per_second]
    if not able or not own.tokens_per_second:
        can = [row.gpu for row in able]
        return f"of the others {', '.join(can)} can serve it" if can else "none of the others can serve that load"
    best = max(able, key=lambda row: row.tokens_per_second or 0.0)
    rate, bandwidth = (
        (best.tokens_per_second or 0.0) / own.tokens_per_second,
        best.bandwidth_bytes_per_second / own.bandwidth_bytes_per_second,
    )
    return (
        f"with {count(result.batch)} at once {best.gpu} makes {ratio(rate)} times the tokens of {own.gpu}; "
        f"its bandwidth is {ratio(bandwidth)} times as high"
    )


def levers_lead(result: LeversResult, verdict: Verdict) -> str:
    """The formats that gain most, for the same model on the same machine."""
    base, *every = result.rows
    rows = [row for row in every if row.lever in FORMATS and row.fits]
    if not base.fits:
        return f"it would run with {', '.join(row.change for row in rows)}" if rows else "no format alone makes it run"
    faster = max(rows, key=lambda row: row.tokens_per_second or 0.0, default=None)
    more = max(rows, key=lambda row: row.max_sequences or 0, default=None)
    if faster is None or more is None or not base.tokens_per_second or not base.max_sequences:
        return "no other format applies"
    bounded = verdict.most_sequences == verdict.server_requests
    alone = ", in memory alone: the server runs no more by itself" if bounded else ""
    if verdict.status == NO_ROOM:
        return f"memory alone would hold {sequences(base.max_sequences)}; what keeps them out is said above"
    rate, held = (
        (faster.tokens_per_second or 0.0) / base.tokens_per_second,
        (more.max_sequences or 0) / base.max_sequences,
    )
    return (
        f"of formats alone, decode of {count(result.batch)} at once gains most from {faster.change}: {ratio(rate)} times the "
        f"tokens/s; {more.change} makes room for {ratio(held)} times as many sequences{alone} (bounds)"
    )


def price_lead(result: PriceResult, verdict: Verdict) -> str:
    """What a million output tokens cost at the verdict's load."""
    top, cost = verdict.met or verdict.most, output_cost(result, verdict)
    if top is None or cost is None:
        return "no load that fits has a cost"
    at = f"{count(top.batch)} at once"
    if cost.output_dollars is None:
        return (
            f"with {at} a million output tokens take {figures(cost.output_gpu_seconds)} GPU-seconds, "
            f"{ratio(cost.output_over_input)} times as much as input; --gpu-price 2.50 makes dollars of it"
        )
    return (
        f"with {at} a million output tokens cost {money(cost.output_dollars)}, {ratio(cost.output_over_input)} times as much as "
        f"input, while the machine is that busy"
    )


def output_cost(result: PriceResult, verdict: Verdict) -> CostRow | None:
    """The costs at the verdict's load, by what its limits are held against; None where that has none."""
    top = verdict.met or verdict.most
    row = next((row for row in result.loads if top and row.batch == top.batch and row.costs), None)
    return None if row is None else next((cost for cost in row.costs if cost.basis == verdict.basis), row.costs[0])


def cheapest_lead(result: PlanResult, _verdict: Verdict) -> str:
    """The cheapest deployment that does the load, or that none does."""
    return plan_lead(result)


def measured_lead(result: ValidateResult, _verdict: Verdict) -> str:
    """All points in one sentence."""
    return headline(result)


def sources_lead(result: GpusResult, _verdict: Verdict) -> str:
    """How many sources the accelerator's facts have, and what was not read in any."""
    gpu = result.gpus[0]
    said = f"facts of {gpu.name} are from {count(len(gpu.sources))} source{'s' if len(gpu.sources) > 1 else ''}"
    doubted = f"; not verified: {', '.join(gpu.unverified)}" if gpu.unverified else ""
    return f"{said}{doubted}"


def _gib(size: float) -> str:
    return f"{fixed(size / GIB, 1)} GiB"


#: part -> what it comes to
LEADS: Final[Mapping[str, Callable[[Any, Verdict], str]]] = {
    "memory": memory_lead,
    "load": load_lead,
    "service": service_lead,
    "roofline": roofline_lead,
    "cache": cache_lead,
    "gpus": gpus_lead,
    "levers": levers_lead,
    "price": price_lead,
    "plan": cheapest_lead,
    "measured": measured_lead,
    "sources": sources_lead,
}
