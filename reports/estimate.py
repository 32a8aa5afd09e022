"""`estimate` as a document: the verdict, a table a phase, the terms of one row of each, charts of decode over batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.hwdb.units import show_percent, show_si
from roofcast.modelspec.op import COLLECTIVE
from roofcast.modelspec.step import DECODE, MIXED
from roofcast.reports.charts import Chart
from roofcast.reports.data import as_data
from roofcast.reports.deployed import DECIDED, on_devices, phase_title, setup_lines, step_name
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import GIB, NOTHING, context_name, count, figures, millis, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.estimate import EstimateResult
    from roofcast.calculators.estimate_rows import Phase, TermRow
    from roofcast.calculators.sweep import Sweep, SweepPoint

GB: Final = 1e9
MB: Final = 1e6
MOST_SAID: Final = 6  # rows whose steps are told
NO_ROOM: Final = "no room"  # where the least time would stand by what bounds it
OFFERED: Final = {
    "visible": "visible to programs",
    "driver": "as the driver reports it",
    "nominal": "as sold; what programs see is not known",
}
EXPECTED_MEANS: Final = "expect is kernels and host without queueing, by constants fitted to measurements; 80 % of measured times should lie in the interval"
BOUND_ASKED: Final = "times are bounds: the least that peak and bandwidth allow"
APART: Final = {  # how constants differ from what is asked
    "class": "all cards of its class",
    "architecture": "another card of its architecture",
    "memory": "a card of its kind of memory or architecture",
    "hardware": "another kind of card",
    "alike": "an engine alike",
    "other": "another engine",
    "format": "another format",
    "kind": "another kind of attention",
}
HEADING: Final = ("bound\nby", "tokens/s", "FLOP", "weights\nGB", "KV,\nstate\nGB", "FLOP/B")


def estimate_document(
    result: EstimateResult, inputs: Mapping[str, Any], remarks: Remarks, sweep: Sweep | None = None
) -> Document:
    """The page of `estimate`; with decode over batches its charts and their table."""
    phases = list(dict.fromkeys(row.phase for row in result.phases))
    rows = {phase: [row for row in result.phases if row.phase == phase] for phase in phases}
    shown = [row for phase in phases if (row := next((row for row in rows[phase] if row.fits), None))]
    return Document(
        command="estimate",
        inputs=inputs,
        result=result,
        records=[_record(result, row) for row in result.phases],
        lines=tuple(map(plain, _lines(result, inputs))),
        tables=(
            *(_times(phase, rows[phase]) for phase in phases),
            *([sweep_table(sweep)] if sweep else []),
            *(_terms(row) for row in shown),
        ),
        remarks=remarks + _notes(result, inputs) + _drawn(result, sweep),
        charts=sweep_charts(sweep) if sweep else (),
    )


def _drawn(result: EstimateResult, sweep: Sweep | None) -> Remarks:
    """Which context the chart is of, where several are asked."""
    contexts = {row.context for row in result.phases if row.phase == DECODE}
    if sweep is None or len(contexts) == 1:
        return Remarks()
    return Remarks(notes=(f"the chart is of {context_name(sweep.context)}; another one with that --context alone",))


def sweep_charts(sweep: Sweep) -> tuple[Chart, Chart]:
    """Time of a step over batches, and tokens/s against that time."""
    return Chart("sweep", sweep, sweep_says(sweep)), Chart("latency", sweep, latency_says(sweep))


def sweep_says(sweep: Sweep) -> str:
    """The main numbers of the first chart."""
    where = f"{sweep.model} on {on_devices(sweep.gpu, sweep.layout)} at {context_name(sweep.context)}"
    if not sweep.fitting:
        return f"{where}: no sequence fits: {sweep.reason}."
    ends = dict.fromkeys((sweep.fitting[0], sweep.fitting[-1]))
    said = " and ".join(
        f"{millis(point.seconds)} ms for {count(point.batch)}"
        + (f" (bound {millis(point.bound_seconds)}, " if sweep.fitted else " (")
        + f"memory alone {millis(point.memory_seconds)}, arithmetic alone {millis(point.compute_seconds)})"
        for point in ends
    )
    return f"{where}: a decode step takes {said}; {count(sweep.most_sequences)} sequences fit."


def latency_says(sweep: Sweep) -> str:
    """The main numbers of the second chart."""
    where = f"{sweep.model} on {on_devices(sweep.gpu, sweep.layout)} at {context_name(sweep.context)}"
    if not sweep.fitting:
        return f"{where}: no sequence fits: {sweep.reason}."
    ends = list(dict.fromkeys((sweep.fitting[0], sweep.fitting[-1])))
    said = " and ".join(
        f"{figures(one.rate)} tokens/s at {millis(one.seconds)} ms a token with {count(one.batch)}" for one in ends
    )
    limit, best = sweep.tpot_limit_seconds, sweep.within_limit
    if limit is None:
        return f"{where}: {said}."
    within = f"{count(best.batch)} at once, {figures(best.rate)} tokens/s" if best else "not even one sequence"
    return f"{where}: {said}; within {millis(limit)} ms: {within}."


def sweep_table(sweep: Sweep) -> Table:
    """The points of both charts."""
    linked, fitted = any(point.link_seconds for point in sweep.points), sweep.fitted
    header = ("batch", "memory\nms", "arithmetic\nms", *(["links\nms"] if linked else []), "bound\nms")
    header += (*(["expect\nms", "80 %\ninterval"] if fitted else []), "tokens/s")
    rows = [_swept(point, linked=linked, fitted=fitted) for point in sweep.points]
    title = f"decode at {context_name(sweep.context)}: each limit by itself, and the longest of them, operation by operation"
    return table(header, rows, title=title, left=())


def _swept(point: SweepPoint, *, linked: bool, fitted: bool) -> tuple[str, ...]:
    low, high = millis(point.low_seconds), millis(point.high_seconds)
    wide = NOTHING if point.expected_seconds is None else f"{low}-{high}"
    return (
        count(point.batch),
        millis(point.memory_seconds),
        millis(point.compute_seconds),
        *([millis(point.link_seconds)] if linked else []),
        millis(point.bound_seconds),
        *([millis(point.expected_seconds), wide] if fitted else []),
        figures(point.rate),
    )


def _record(result: EstimateResult, row: Phase) -> dict[str, Any]:
    """A row of CSV: all of a phase but its terms."""
    own = {key: value for key, value in as_data(row).items() if key != "terms"}
    return {"model": result.model, "gpu": result.gpu, "gpus": result.layout.gpus, **own}


def _lines(result: EstimateResult, inputs: Mapping[str, Any]) -> list[str]:
    where = " each" if result.layout.gpus > 1 else ""
    return [
        f"{result.model} on {on_devices(result.gpu, result.layout)}: {_verdict(result)}",
        *setup_lines(result.layout, result.weights, inputs),
        (
            f"memory {_size(result.memory_bytes)}{where}, {OFFERED.get(result.memory_from, result.memory_from)}; "
            f"weights {_size(result.weight_bytes)}{where}; {show_si(result.bandwidth_bytes_per_second, 'B/s')}"
        ),
        *_shortage(result),
    ]


def _size(size: float) -> str:
    return f"{size / GIB:.2f} GiB ({size / GB:.2f} GB)"


def _verdict(result: EstimateResult) -> str:
    """How much fits."""
    fitting, rows = sum(row.fits for row in result.phases), len(result.phases)
    if fitting == rows:
        return "fits"
    return f"{fitting} of {rows} rows fit" if fitting else "does not fit"


def _shortage(result: EstimateResult) -> list[str]:
    """Why the smallest row that does not fit does not."""
    over = [row for row in result.phases if not row.fits]
    if not over:
        return []
    row = min(over, key=lambda row: row.batch * row.context)
    return [f"{step_name(row.phase, row.batch, row.context)} does not fit: {row.reason}"]


def _times(phase: str, rows: Sequence[Phase]) -> Table:
    """Times and work of a phase, a row a context and batch."""
    fitted = _fitted(rows)
    name = DECIDED.get(phase, "step")
    lead = ("ctx", "batch", f"{name}\nbound\nms" if fitted else f"{name}\nms")
    heading = (HEADING[0], f"expect\n{HEADING[1]}" if fitted else HEADING[1], *HEADING[2:])
    header = (*lead, *(("expect\nms", "80 %\ninterval") if fitted else ()), *heading)
    words = 3 + 2 * fitted
    cells = [(context_name(row.context), count(row.batch), *_seconds(row, fitted=fitted), *_work(row)) for row in rows]
    return table(header, cells, title=phase_title(phase), left=(words,), breaks=(words + 2,), keys=2)


def _fitted(rows: Sequence[Phase]) -> bool:
    return any(row.expected_seconds is not None for row in rows)


def _seconds(row: Phase, *, fitted: bool) -> tuple[str, ...]:
    """The bound; expected time and interval; what bounds it; tokens a second at the expected time where there is one."""
    by = row.bound_by if row.fits else NO_ROOM
    if not fitted:
        return millis(row.bound_seconds), by, figures(row.tokens_per_second)
    low, high = (millis(value) for value in (row.low_seconds, row.high_seconds))
    wide = NOTHING if row.expected_seconds is None else f"{low}-{high}"
    return millis(row.bound_seconds), millis(row.expected_seconds), wide, by, figures(row.expected_tokens_per_second)


def _work(row: Phase) -> tuple[str, ...]:
    weights, state = figures(row.weight_bytes / GB), figures(row.state_bytes / GB)
    return short(row.flops), weights, state, figures(row.intensity)


def _terms(row: Phase) -> Table:
    """The terms of one row, the same operation in all layers as one, and the host's time below them."""
    linked, fitted = any(term.family == COLLECTIVE for term in row.terms), row.expected_seconds is not None
    header = ["term", "FLOP", "weights\nMB", "KV,\nstate\nMB", *(["sent\nMB"] if linked else [])]
    header += ["FLOP/B", "format", "bound", "by", *(["expect"] if fitted else []), "share"]
    words = 5 + linked
    title = f"terms of {step_name(row.phase, row.batch, row.context)}"
    cells = [_term(term, row, linked=linked) for term in row.terms]
    if row.host_seconds:
        blank = (NOTHING,) * (words + 2)
        share = show_percent(row.host_seconds / _whole(row), 1)
        cells.append(("host", *blank, show_si(row.host_seconds, "s", 3), share))
    return table(header, cells, title=title, left=(0, words, words + 2), breaks=(words,))


def _whole(row: Phase) -> float:
    """What shares are of: all terms and the host; a pipeline's stages work at once, its terms do not. [s]"""
    return sum(term.expected_seconds or 0.0 for term in row.terms) + (row.host_seconds or 0.0) or 1.0


def _term(term: TermRow, row: Phase, *, linked: bool) -> tuple[str, ...]:
    sent, expected = term.family == COLLECTIVE, term.expected_seconds
    share = term.share if expected is None else expected / _whole(row)
    return (
        term.term,
        NOTHING if sent else short(term.flops),
        NOTHING if sent else figures(term.weight_bytes / MB),
        NOTHING if sent else figures(term.state_bytes / MB),
        *([figures(term.exchanged_bytes / MB) if sent else NOTHING] if linked else []),
        figures(term.intensity),
        term.format or NOTHING,
        NOTHING if term.bound_seconds is None else show_si(term.bound_seconds, "s", 3),
        term.bound_by,
        *([] if expected is None else [show_si(expected, "s", 3)]),
        show_percent(share, 1),
    )


def _efficiencies(result: EstimateResult) -> list[str]:
    """Which constants the expected times are made with, and how well they are known."""
    files: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in result.efficiency:
        families = files.setdefault((one.fitted_on, tuple(one.distance)), [])
        families += [] if one.family in families else [one.family]
    said = [
        f"{', '.join(families)} from {name}{f' ({words})' if (words := _apart(ways)) else ''}"
        for (name, ways), families in files.items()
    ]
    return [
        f"{EXPECTED_MEANS}; shares are of all terms and the host",
        f"constants: {'; '.join(said)}; --format json lists them, --efficiency bound leaves them out",
    ]


def _apart(ways: tuple[str, ...]) -> str:
    return ", ".join(APART[way] for way in ways)


def _pieces(result: EstimateResult) -> str | None:
    """How many steps prompts take where they take several."""
    cut = [row for row in result.phases if row.steps > 1]
    if not cut:
        return None
    said = ", ".join(f"{row.steps:,} ({count(row.batch)} at {context_name(row.context)})" for row in cut[:MOST_SAID])
    return f"prompts are cut: steps of prefill are {said}{', ...' if len(cut) > MOST_SAID else ''}; each reads the weights anew"


def _mixed(result: EstimateResult, inputs: Mapping[str, Any]) -> str | None:
    """What a mixed step takes, and what its tokens are."""
    if not any(row.phase == MIXED for row in result.phases):
        return None
    tokens = inputs.get("max_num_batched_tokens")
    return (
        f"a mixed step takes {tokens:,} tokens (--max-num-batched-tokens): one of each sequence, the rest of a prompt; "
        "its tokens/s are of both"
    )


def _notes(result: EstimateResult, inputs: Mapping[str, Any]) -> Remarks:
    fitted = _fitted(result.phases)
    several = result.layout.gpus > 1
    return remarks(
        notes=(
            *(_efficiencies(result) if fitted else [BOUND_ASKED]),
            (
                f"FLOP, GB and MB are of all steps of a row{', on one GPU' if several else ''}: weights and KV cache or state, each "
                "moved once a step; FLOP/B divides the first by them"
            ),
            _pieces(result),
            _mixed(result, inputs),
            "tokens/s of prefill count the cached tokens of the prompts too" if inputs.get("prefix_hit") else None,
        )
    )
