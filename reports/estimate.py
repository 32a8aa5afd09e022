"""`estimate` as a document: the verdict, a table a phase, the terms of one row of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.hwdb.units import show_percent, show_si
from roofcast.modelspec.op import COLLECTIVE
from roofcast.modelspec.step import MIXED
from roofcast.reports.data import as_data
from roofcast.reports.deployed import BOUNDS_ONLY, DECIDED, on_devices, phase_title, setup_lines, step_name
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import GIB, NOTHING, context_name, count, figures, millis, short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roofcast.calculators.estimate import EstimateResult, Phase, TermRow

GB: Final = 1e9
MB: Final = 1e6
MOST_SAID: Final = 6  # rows whose steps are told
NO_ROOM: Final = "no room"  # where the least time would stand by what bounds it
OFFERED: Final = {
    "visible": "visible to programs",
    "driver": "as the driver reports it",
    "nominal": "as sold; what programs see is not known",
}
HEADING: Final = ("bound\nby", "tokens/s", "FLOP", "weights\nGB", "KV,\nstate\nGB", "FLOP/B")


def estimate_document(result: EstimateResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `estimate`."""
    phases = list(dict.fromkeys(row.phase for row in result.phases))
    rows = {phase: [row for row in result.phases if row.phase == phase] for phase in phases}
    shown = [row for phase in phases if (row := next((row for row in rows[phase] if row.fits), None))]
    return Document(
        command="estimate",
        inputs=inputs,
        result=result,
        records=[_record(result, row) for row in result.phases],
        lines=tuple(map(plain, _lines(result, inputs))),
        tables=(*(_times(phase, rows[phase]) for phase in phases), *(_terms(row) for row in shown)),
        remarks=remarks + _notes(result, inputs),
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
    fitted = any(row.expected_seconds is not None for row in rows)
    name = DECIDED.get(phase, "step")
    header = ("ctx", "batch", f"{name}\nms", *(["expect\nms"] if fitted else []), *HEADING)
    cells = [
        (
            context_name(row.context),
            count(row.batch),
            millis(row.bound_seconds),
            *([millis(row.expected_seconds)] if fitted else []),
            row.bound_by if row.fits else NO_ROOM,
            figures(row.tokens_per_second),
            short(row.flops),
            figures(row.weight_bytes / GB),
            figures(row.state_bytes / GB),
            figures(row.intensity),
        )
        for row in rows
    ]
    words = 3 + fitted
    return table(header, cells, title=phase_title(phase), left=(words,), breaks=(words + 2,), keys=2)


def _terms(row: Phase) -> Table:
    """The terms of one row, the same operation in all layers as one."""
    linked = any(term.family == COLLECTIVE for term in row.terms)
    header = ["term", "FLOP", "weights\nMB", "KV,\nstate\nMB", *(["sent\nMB"] if linked else [])]
    header += ["FLOP/B", "format", "bound", "by", "share"]
    words = 5 + linked
    title = f"terms of {step_name(row.phase, row.batch, row.context)}"
    cells = [_term(term, linked=linked) for term in row.terms]
    return table(header, cells, title=title, left=(0, words, words + 2), breaks=(words,))


def _term(term: TermRow, *, linked: bool) -> tuple[str, ...]:
    sent = term.family == COLLECTIVE
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
        show_percent(term.share, 1),
    )


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
    fitted = any(row.expected_seconds is not None for row in result.phases)
    several = result.layout.gpus > 1
    return remarks(
        notes=(
            None if fitted else BOUNDS_ONLY,
            (
                f"FLOP, GB and MB are of all steps of a row{', on one GPU' if several else ''}: weights and KV cache or state, each "
                "moved once a step; FLOP/B divides the first by them"
            ),
            _pieces(result),
            _mixed(result, inputs),
            "tokens/s of prefill count the cached tokens of the prompts too" if inputs.get("prefix_hit") else None,
        )
    )
