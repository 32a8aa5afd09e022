"""`report` as a document: the verdict, then a section a command, each with what it comes to in a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.report import MEETS, MISSES, MOST_AT_ONCE, NO_ROOM, SERVER, TPOT, TTFT, Limits, ReportResult
from roofcast.calculators.report import MEMORY as MEMORY_ENDS
from roofcast.calculators.roofline import COMPUTE, LINK, MEMORY
from roofcast.reports.deployed import on_devices, setup_lines
from roofcast.reports.document import Document, Key, Section, plain
from roofcast.reports.dollars import money
from roofcast.reports.numbers import context_name, count, figures, millis, sequences
from roofcast.reports.report_leads import LEADS, limit_words, output_cost
from roofcast.reports.report_plan import TITLE as PLAN
from roofcast.reports.report_sources import origin_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roofcast.calculators.fit import FitResult
    from roofcast.calculators.report import Timing, Verdict

#: part -> title of its section
TITLES: Final[Mapping[str, str]] = {
    "memory": "What fits",
    "load": "Speed of a batch",
    "service": "A server under load",
    "roofline": "Roofline",
    "cache": "KV cache against context",
    "gpus": "Beside other GPUs",
    "levers": "What would change it",
    "price": "What it costs",
    "plan": PLAN,
    "measured": "How far off predictions are",
    "sources": "Where the numbers are from",
}
BOUND_BY: Final[Mapping[str, str]] = {
    COMPUTE: "arithmetic",
    MEMORY: "memory bandwidth",
    LINK: "the link between GPUs",
}
ENDS: Final[Mapping[str | None, str]] = {
    MEMORY_ENDS: "there is room for no more",
    SERVER: "the server runs no more at once, by its slots or its limit of requests",
}
LIMITS: Final = (
    "held against one prompt alone and against steps that no prompt interrupts; what other prompts and queues add is under "
    "'A server under load'"
)
QUEUES: Final = (
    "times are of steps as they run, without queueing, but for those under 'A server under load', which is simulated"
)


def report_document(
    verdict: Verdict,
    parts: Mapping[str, Document],
    inputs: Mapping[str, Any],
    said: Remarks,
    left_out: Sequence[str] = (),
) -> Document:
    """The page of `report`.

    Args:
        verdict: on the deployment.
        parts: documents of other commands by their names in `TITLES`.
        inputs: what is asked.
        said: assumptions and warnings of all parts.
        left_out: why parts are not there.
    """
    result = _result(verdict, parts)
    sections = tuple(
        Section(name, TITLES[name], _sentence(LEADS[name](part.result, verdict)), _shown(name, part, result))
        for name, part in parts.items()
    )
    together = sum((part.remarks for part in parts.values()), said)
    return Document(
        command="report",
        inputs=inputs,
        result=result,
        records=[_record(result)],
        lines=tuple(map(plain, _lines(result, inputs))),
        remarks=remarks(together.assumptions, together.warnings, [QUEUES, *left_out]),
        sections=sections,
        keys=_keys(result),
    )


def _sentence(text: str) -> str:
    """With a capital and a full stop.

    >>> _sentence("a token takes 128 KiB")
    'A token takes 128 KiB.'
    """
    return f"{plain(text[:1].upper() + text[1:])}."


def _result(verdict: Verdict, parts: Mapping[str, Document]) -> ReportResult:
    """The parts' results under one roof."""
    found = {name: part.result for name, part in parts.items()}
    load = {chart.kind: chart.result for chart in parts["load"].charts}
    cache = {chart.kind: chart.result for chart in parts["cache"].charts}
    return ReportResult(
        verdict=verdict,
        fit=found.get("memory"),
        estimate=found["load"],
        sweep=load.get("sweep"),
        service=found.get("service"),
        roofline=found["roofline"],
        kv=found["cache"],
        curves=cache["kv"],
        gpus=found.get("gpus"),
        levers=found["levers"],
        price=found.get("price"),
        plan=found.get("plan"),
        measured=found.get("measured"),
        accelerator=found["sources"].gpus[0],
    )


def _shown(name: str, part: Document, result: ReportResult) -> Document:
    """A part without the lines that the report's own say, and sources with those that are of no one part.

    Those of a plan are of other deployments, and stay.
    """
    more = origin_tables(result.estimate, result.kv) if name == "sources" else ()
    lines = part.lines if name == "plan" else ()
    return replace(part, lines=lines, tables=(*more, *part.tables))


def _record(result: ReportResult) -> dict[str, Any]:
    """The verdict as a row of CSV."""
    verdict, layout = result.verdict, result.estimate.layout
    loads = {"alone": verdict.alone, "most": verdict.most, "met": verdict.met}
    cells: dict[str, Any] = {
        "model": result.estimate.model,
        "gpu": result.estimate.gpu,
        "gpus": layout.gpus,
        "status": verdict.status,
        "reason": verdict.reason,
        "context": verdict.context,
        "prompt": verdict.prompt,
        "most_sequences": verdict.most_sequences,
        "ttft_seconds": verdict.ttft.seconds,
    }
    for name, load in loads.items():
        cells[f"{name}_batch"] = load.batch if load else None
        cells[f"{name}_tpot_seconds"] = load.tpot.seconds if load else None
        cells[f"{name}_tokens_per_second"] = load.tokens_per_second if load else None
    return cells


def _lines(result: ReportResult, inputs: Mapping[str, Any]) -> list[str]:
    estimate, verdict = result.estimate, result.verdict
    where = f"{estimate.model} on {on_devices(estimate.gpu, estimate.layout)}"
    lines = [f"{where}: {verdict_words(verdict, result.fit)}", *setup_lines(estimate.layout, estimate.weights, inputs)]
    if verdict.status == NO_ROOM:
        return [*lines, *_would(result.fit)]
    most = result.kv.models[0].max_context
    if most is not None and max(verdict.context, verdict.prompt) > most:
        what = "" if verdict.context > most else f"; a prompt of {context_name(verdict.prompt)} is"
        lines[0] += f"{what or ','} beyond the {count(most)} tokens of the model itself"
    if result.fit is None:
        lines.append("memory: all that programs see, since no engine's rules are asked for; --engine asks for them")
    held = [] if verdict.limits == Limits() else [f"limits: {LIMITS}"]
    return [*lines, *_speeds(verdict), _first(verdict), *_end(verdict), *held]


def _keys(result: ReportResult) -> tuple[Key, ...]:
    """Sequences, a token's time, tokens a second, the first token's time, and costs where there is a price."""
    verdict = result.verdict
    top = verdict.met or verdict.most
    if top is None:
        return ()
    held = count(verdict.most_sequences)
    alone = f"alone {millis(verdict.alone.tpot.seconds)} ms" if verdict.alone and top.batch > 1 else ""
    cost = output_cost(result.price, verdict) if result.price else None
    keys = [
        Key("at once", count(top.batch), f"{held} of {context_name(verdict.context)} fit"),
        Key("time per output token", *_timed(top.tpot, alone)),
        Key("tokens a second", figures(top.tokens_per_second), f"of {count(top.batch)} at once"),
        Key(f"first token of {context_name(verdict.prompt)}", *_timed(verdict.ttft, "without queueing")),
    ]
    if cost is not None and cost.output_dollars is not None:
        keys.append(
            Key(
                "a million output tokens",
                money(cost.output_dollars),
                f"at {count(top.batch)} at once, all day; prompts apart",
            )
        )
    return tuple(keys)


def _timed(timing: Timing, more: str) -> tuple[str, str]:
    """A time, and its interval with what else is said of it."""
    if timing.low_seconds is None or timing.high_seconds is None:
        said = "at least"
    else:
        said = f"80 %: {millis(timing.low_seconds)} to {millis(timing.high_seconds)}"
    return f"{millis(timing.seconds)} ms", "; ".join(text for text in (said, more) if text)


def verdict_words(verdict: Verdict, fit: FitResult | None = None) -> str:
    """The verdict in a sentence; why it does not fit in the words of `fit`, where they are of the same."""
    context = context_name(verdict.context)
    if verdict.status == NO_ROOM:
        return f"does not fit: {(fit.reason if fit and not fit.fits else None) or verdict.reason}"
    if verdict.status == MEETS:
        kept = verdict.met.batch if verdict.met else min(verdict.most_sequences, MOST_AT_ONCE)
        return f"meets {limit_words(verdict.limits)} with up to {count(kept)} decoding at once, each {context} long"
    if verdict.status == MISSES:
        return f"misses {limit_words(_missed(verdict))}: {' and '.join(_misses(verdict))}"
    return f"fits, {sequences(verdict.most_sequences)} of {context} at once"


def _missed(verdict: Verdict) -> Limits:
    """The limits that are missed."""
    reason, asked = verdict.reason or "", verdict.limits
    return Limits(asked.ttft_seconds if TTFT in reason else None, asked.tpot_seconds if TPOT in reason else None)


def _misses(verdict: Verdict) -> Iterator[str]:
    """What alone takes longer than its limit."""
    reason = verdict.reason or ""
    if TTFT in reason:
        yield f"a prompt of {context_name(verdict.prompt)} alone takes {millis(verdict.ttft.seconds)} ms"
    if TPOT in reason and verdict.alone:
        yield f"a token of one sequence alone takes {millis(verdict.alone.tpot.seconds)} ms"


def _would(fit: FitResult | None) -> list[str]:
    """The first change under which it would run."""
    able = [advice for advice in (fit.advice if fit else []) if advice.fits]
    return [
        f"it would with {one.here}: {count(one.max_sequences)} of {context_name(one.context)} at once"
        for one in able[:1]
    ]


def _speeds(verdict: Verdict) -> list[str]:
    """Decode alone, and of the most that are looked at."""
    alone, top = verdict.alone, verdict.met or verdict.most
    if alone is None or top is None:
        return []
    said = f"decode: a token every {timing_words(alone.tpot)} alone"
    if top.batch > 1:
        said += (
            f", every {timing_words(top.tpot)} with {count(top.batch)} at once, which is "
            f"{figures(top.tokens_per_second)} tokens/s"
        )
    return [f"{said}; {BOUND_BY[top.bound_by]} is the limit"]


def _first(verdict: Verdict) -> str:
    return f"prefill: the first token of a prompt of {context_name(verdict.prompt)} after {timing_words(verdict.ttft)}"


def timing_words(timing: Timing) -> str:
    """A time with its 80 % interval, or that it is a bound."""
    if timing.low_seconds is None or timing.high_seconds is None:
        return f"{millis(timing.seconds)} ms at least"
    return f"{millis(timing.seconds)} ms ({millis(timing.low_seconds)}-{millis(timing.high_seconds)})"


def _end(verdict: Verdict) -> list[str]:
    """What keeps more sequences out."""
    if verdict.ends == TPOT and verdict.met:
        return [f"{count(verdict.most_sequences)} would fit; beyond {count(verdict.met.batch)} TPOT is missed"]
    if verdict.most_sequences > MOST_AT_ONCE:
        return [f"{count(verdict.most_sequences)} would fit; loads beyond {count(MOST_AT_ONCE)} are not looked at"]
    return [ENDS[verdict.ends]] if verdict.ends in ENDS else []
