"""`simulate` as a document: what was sent, whether the promise is kept, times, rates, what pools and memory did."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.serving.policies import POLICIES
from roofcast.hwdb.units import show_percent, show_si
from roofcast.reports.charts import Chart
from roofcast.reports.data import as_data, render_csv
from roofcast.reports.deployed import layout_words, on_devices
from roofcast.reports.document import Document, Key, Table, listed, plain, table
from roofcast.reports.numbers import NOTHING, count, figures, millis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.serving.result import Cache, Goal, Kept, Pool, Prefix, SimulateResult, Spread
    from roofcast.calculators.serving.trace_summary import TraceSummary

#: of times that are spread -> field of the result
TIMES: Final[Mapping[str, str]] = {
    "TTFT": "ttft_seconds",
    "TPOT": "tpot_seconds",
    "ITL": "itl_seconds",
    "end to end": "e2e_seconds",
    "queue": "queue_seconds",
}
#: of rates -> field of the result
RATES: Final[Mapping[str, str]] = {
    "requests": "requests_per_second",
    "goodput": "goodput_requests_per_second",
    "prompt tokens": "prompt_tokens_per_second",
    "output tokens": "output_tokens_per_second",
}
#: how a promise names its times -> field of the promise, and what its percentile counts
PROMISED: Final[Mapping[str, str]] = {"TTFT": "ttft_seconds", "TPOT": "tpot_seconds", "ITL": "itl_seconds"}
SHOWN: Final = ("mean", "p50", "p90", "p95", "p99", "max")
#: kind of memory -> how it is handed out
MEMORY: Final[Mapping[str, str]] = {
    "max": "reserved in one piece up to the longest request",
    "pow2": "reserved in one piece up to the next power of two",
    "oracle": "reserved in one piece of just the length that each request will have",
}
PREFIXES: Final[Mapping[str, str]] = {"blocks": "of hashed blocks", "radix": "in a radix tree"}
OUT_OF_CSV: Final = frozenset(("series", "provenance", "pools", "quantiles"))
EIGHTY: Final = (
    1.2816  # standard deviations to both sides that hold 80 of 100; Source: quantile of the normal distribution
)


def simulate_document(result: SimulateResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `simulate`."""
    return Document(
        command="simulate",
        inputs=inputs,
        result=result,
        records=[simulate_record(result)],
        lines=tuple(map(plain, _lines(result, inputs))),
        tables=tuple(one for one in (_times(result), _rates(result), _pools(result)) if one.rows),
        remarks=_notes(result) + remarks,
        charts=simulate_charts(result),
        keys=_keys(result),
    )


def simulate_charts(result: SimulateResult) -> tuple[Chart, Chart]:
    """What happened over time, and how times are spread over requests."""
    return Chart("series", result, series_says(result)), Chart("spread", result, spread_says(result))


def simulate_record(result: SimulateResult) -> dict[str, Any]:
    """A row of CSV: all but the time series, each pool by its name."""
    data = _without(as_data(result))
    return {**data, "pools": {pool.name: as_data(pool) for pool in result.pools}}


def series_csv(result: SimulateResult) -> str:
    """The time series, a row a stretch."""
    return render_csv(Document("simulate", {}, result, result.series))


def series_says(result: SimulateResult) -> str:
    """The main numbers of the first chart."""
    if not result.series:
        return f"{subject(result)}: {nothing_words(result)}."
    most = max(result.series, key=lambda moment: moment.waiting)
    return (
        f"{subject(result)}: {count(result.completed)} requests are answered in {_clock(result.makespan_seconds)}, with at most "
        f"{count(result.peak_running)} at once in a step of a replica; most wait at {_clock(most.seconds)}, "
        f"{figures(most.waiting)} in the mean of that stretch."
    )


def spread_says(result: SimulateResult) -> str:
    """The main numbers of the second chart."""
    said = [
        f"{name} {millis(spread.p50)} ms at the median, {millis(spread.p90)} at 90 and {millis(spread.p99)} at 99 of 100"
        for name in ("TTFT", "TPOT")
        if (spread := getattr(result, TIMES[name])) is not None
    ]
    if not said:
        return f"{subject(result)}: {nothing_words(result)}."
    kept = f"; {kept_words(result.kept)}" if result.kept else ""
    return f"{subject(result)}: {'; '.join(said)}{kept}."


def subject(result: SimulateResult) -> str:
    """Model and devices; of pools all of their devices."""
    gpus = sum(pool.gpus for pool in result.pools)
    where = f"{gpus} x {result.gpu}" if gpus > 1 else on_devices(result.gpu, result.layout)
    return f"{result.model} on {where}"


def promise_words(goal: Goal) -> str:
    """What is promised; empty where nothing is.

    >>> from roofcast.calculators.serving.result import Goal
    >>> promise_words(Goal(0.5, 0.05, None, 90.0))
    'TTFT at most 500 ms and TPOT at most 50.0 ms for 90 of 100 requests'
    """
    parts = [
        f"{name} at most {millis(limit)} ms"
        for name, key in PROMISED.items()
        if (limit := getattr(goal, key)) is not None
    ]
    if not parts:
        return ""
    of = "gaps" if goal.ttft_seconds is None and goal.tpot_seconds is None else "requests"
    return f"{listed(parts)} for {goal.percentile:g} of 100 {of}"


def _without(data: dict[str, Any]) -> dict[str, Any]:
    """A record without what makes no column."""
    kept = {key: value for key, value in data.items() if key not in OUT_OF_CSV}
    return {key: _without(value) if isinstance(value, dict) else value for key, value in kept.items()}


def _lines(result: SimulateResult, inputs: Mapping[str, Any]) -> list[str]:
    kv, weights = inputs.get("kv"), inputs.get("weights") or "as stored"
    layout = layout_words(result.layout) if result.layout.gpus > 1 else ""
    policy = f": {POLICIES[result.policy].says}" if result.policy in POLICIES else ""
    return [
        f"{subject(result)}: {_verdict(result)}",
        *([layout] if layout else []),
        f"weights {weights}, KV cache {kv}, engine {result.engine}",
        f"load: {result.load}",
        *([_trace_line(result.trace)] if result.trace else []),
        *([] if result.fits else [f"does not fit: {result.reason}"]),
        (
            f"policy {result.policy}{policy}; at most {count(result.max_num_seqs)} requests and "
            f"{count(result.max_num_batched_tokens)} tokens a step"
        ),
        *_apart(result.pools),
        *([_fate(result)] if result.fits else []),
        *([f"promise: {_promise_line(result.kept, stable=result.stable)}"] if result.kept else []),
        *([_cache_line(result.cache)] if result.cache else []),
        *([_prefix_line(result.prefix)] if result.prefix else []),
        *_preempted(result),
    ]


def _trace_line(trace: TraceSummary) -> str:
    """A trace in numbers: its rate, bursts and lengths, and what its prompts share."""
    rate = "" if trace.requests_per_second is None else f", {figures(trace.requests_per_second)} a second"
    bursts = "" if trace.gap_cv is None else f", gaps that vary by {figures(trace.gap_cv)} of their mean"
    said = (
        f"trace: {count(trace.requests)} requests in {_clock(trace.span_seconds)}{rate}{bursts}; in the mean "
        f"{count(round(trace.prompt.mean))} tokens in and {count(round(trace.output.mean))} out"
    )
    if trace.prefix_token_share is None or trace.prefix_block_share is None:
        return said
    tokens, blocks = show_percent(trace.prefix_token_share, 1), show_percent(trace.prefix_block_share, 1)
    return f"{said}; a prefix cache without end finds {tokens} of prompt tokens, {blocks} of blocks"


def _apart(pools: Sequence[Pool]) -> list[str]:
    """That prompts are read elsewhere than they are decoded, where they are."""
    if len(pools) < 2:  # noqa: PLR2004
        return []
    reading, writing = (f"{count(pool.replicas)} replica{'s' if pool.replicas > 1 else ''}" for pool in pools[:2])
    return [f"prefill and decode apart: {reading} for prompts, whose caches go over a link to {writing} for decode"]


def _verdict(result: SimulateResult) -> str:
    """What it comes to, in some words."""
    if not result.fits:
        return "does not fit"
    if result.most_requests_per_second is not None:
        return f"{figures(result.most_requests_per_second)} requests a second keep the promise"
    if result.kept is not None:
        return "keeps its promise" if result.kept.met else "does not keep its promise"
    if result.makespan_seconds is None:
        return nothing_words(result)
    return f"{count(result.completed)} requests in {_clock(result.makespan_seconds)}"


def nothing_words(result: SimulateResult) -> str:
    """Why there are no times."""
    return "no request was answered" if result.fits else f"does not fit: {result.reason}"


def _fate(result: SimulateResult) -> str:
    """What became of the requests."""
    parts = [f"{count(result.completed)} answered"]
    if result.makespan_seconds is not None:
        parts[0] += f" in {_clock(result.makespan_seconds)}"
    if result.rejected:
        parts.append(
            f"{count(result.rejected)} refused, which are longer than the {count(result.longest_request)} tokens or the memory of the server"
        )
    if result.cut:
        parts.append(f"{count(result.cut)} of them up to the server's longest length and no further")
    sent = f"{count(result.requests)} request{'s' if result.requests != 1 else ''}"
    return f"{sent}: {', '.join(parts)}"


def _promise_line(kept: Kept, *, stable: bool) -> str:
    """The promise, and what became of it."""
    behind = not kept.met and kept.share >= kept.goal.percentile / 100 and kept.goal.ttft_seconds is not None
    why = ", but requests come faster than they are answered" if behind and not stable else ""
    return f"{promise_words(kept.goal)}: {'kept' if kept.met else 'not kept'}; {kept_words(kept)}{why}"


def kept_words(kept: Kept) -> str:
    """How many keep it.

    >>> from roofcast.calculators.serving.result import Goal, Kept
    >>> kept_words(Kept(Goal(0.5), False, 0.8125))
    '81.2% of requests keep TTFT'
    """
    goal = kept.goal
    names = [name for name in ("TTFT", "TPOT") if getattr(goal, PROMISED[name]) is not None]
    if not names:
        return "at that percentile" if kept.met else "longer at that percentile"
    return f"{show_percent(kept.share, 1)} of requests keep {' and '.join(names)}"


def _cache_line(cache: Cache) -> str:
    """How memory was handed out, and how full it was."""
    taken = f"in the mean {show_percent(cache.reserved, 1)} taken, at most {show_percent(cache.peak, 1)}"
    if cache.tokens is None:
        return f"KV memory of a replica: {count(cache.places)} places for windows and states, one a request; {taken}"
    kind = f"in blocks of {count(cache.block_tokens)}" if cache.block_tokens else MEMORY.get(cache.kind, cache.kind)
    states = ""
    if cache.states is not None and cache.allocated_states is not None:
        held = show_percent(cache.allocated_states, 1)
        states = f"; {show_percent(cache.states, 1)} hold tokens' states ({held} of what is taken)"
    return f"KV memory of a replica: {count(cache.tokens)} tokens {kind}; {taken}{states}"


def _prefix_line(prefix: Prefix) -> str:
    gone = f"; {count(prefix.evicted_tokens)} tokens made room for others" if prefix.evicted_tokens else ""
    return (
        f"prefix cache {PREFIXES.get(prefix.kind, prefix.kind)}: {count(prefix.hit_tokens)} prompt tokens found, "
        f"{show_percent(prefix.hit_rate, 1)} of all ({show_percent(prefix.block_hit_rate, 1)} of blocks){gone}"
    )


def _preempted(result: SimulateResult) -> list[str]:
    """What want of memory cost."""
    if not result.preemptions:
        return []
    times = "once" if result.preemptions == 1 else f"{count(result.preemptions)} times"
    costs = []
    if result.recomputed_tokens:
        costs.append(f"{count(result.recomputed_tokens)} tokens were computed again")
    if result.swapped_bytes:
        costs.append(f"{show_si(result.swapped_bytes, 'B', 3)} went to the host's memory and back")
    return [f"memory ran out {times}, and a request was set back{': ' if costs else ''}{', '.join(costs)}"]


def _times(result: SimulateResult) -> Table:
    """How times are spread over requests."""
    header = ("time", *(f"{name}\nms" for name in SHOWN))
    rows = [(name, *_spread(spread)) for name, key in TIMES.items() if (spread := getattr(result, key)) is not None]
    return table(header, rows, title=f"times of {count(result.completed)} requests")


def _spread(spread: Spread) -> tuple[str, ...]:
    return tuple(millis(getattr(spread, name)) for name in SHOWN)


def _rates(result: SimulateResult) -> Table:
    """Rates, of all and of one device."""
    gpus = sum(pool.gpus for pool in result.pools) or 1
    several = gpus > 1
    header = ("rate", "a second", *(["a second\nand GPU"] if several else []))
    rows = [
        (name, figures(rate), *([figures(rate / gpus)] if several else []))
        for name, key in RATES.items()
        if (rate := getattr(result, key)) is not None and (key != "goodput_requests_per_second" or result.kept)
    ]
    return table(header, rows, title="rates over the makespan")


def _pools(result: SimulateResult) -> Table:
    """What each pool of replicas did."""
    header = ("pool", "replicas", "GPUs", "busy", "requests\na step", "steps", "set\nback")
    rows = [_pool(pool) for pool in result.pools] if result.makespan_seconds is not None else []
    return table(header, rows, title="replicas")


def _pool(pool: Pool) -> tuple[str, ...]:
    return (
        pool.name,
        count(pool.replicas),
        count(pool.gpus),
        show_percent(pool.busy, 1),
        figures(pool.running),
        count(pool.steps),
        count(pool.preemptions),
    )


def _keys(result: SimulateResult) -> tuple[Key, ...]:
    """The numbers that matter most."""
    keys = [
        Key(name, f"{millis(spread.p50)} ms", f"half of the requests; 99 of 100 within {millis(spread.p99)} ms")
        for name in ("TTFT", "TPOT")
        if (spread := getattr(result, TIMES[name])) is not None
    ]
    if result.requests_per_second is not None:
        good = result.goodput_requests_per_second
        note = "all that were answered" if result.kept is None else f"{figures(good)} that keep the promise"
        keys.append(Key("requests a second", figures(result.requests_per_second), note))
    if result.output_tokens_per_second is not None:
        keys.append(Key("output tokens a second", figures(result.output_tokens_per_second)))
    return tuple(keys)


def _clock(seconds: float | None) -> str:
    """A span or a time of a simulation.

    >>> _clock(0.5), _clock(52.13), _clock(5400), _clock(108000), _clock(None)
    ('0.5 s', '52.1 s', '90.0 min', '30.0 h', '-')
    """
    if seconds is None:
        return NOTHING
    for least, unit in ((7200.0, "h"), (300.0, "min")):
        if seconds >= least:
            return f"{figures(seconds / {'h': 3600.0, 'min': 60.0}[unit])} {unit}"
    return f"{figures(seconds)} s"


HOW: Final = (
    "TTFT counts from when a request is sent; TPOT is a request's mean after its first token, ITL each gap by itself; busy is "
    "time with steps, however few requests are in them"
)


def _notes(result: SimulateResult) -> Remarks:
    """How the numbers are meant, and what may mislead."""
    if result.makespan_seconds is None:
        return Remarks()
    growing = (
        "requests came faster than they were answered, up to the last: with more of them times are longer, or, where few were "
        "sent, --requests shows that they are not"
    )
    return remarks(
        warnings=[None if result.stable else growing],
        notes=[
            HOW,
            step_words(result.step_spread),
        ],
    )


def step_words(spread: float | None) -> str:
    """How well a step's time is known.

    >>> step_words(0.05)
    'steps take the time to expect; 80 of 100 measured ones are within -6% to +7% of it'
    """
    if spread is None:
        return "steps take their bounds, the least that peak and bandwidth allow"
    low, high = (math.exp(sign * EIGHTY * spread) - 1 for sign in (-1, 1))
    return f"steps take the time to expect; 80 of 100 measured ones are within {low:+.0%} to {high:+.0%} of it"
