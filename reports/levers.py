"""`levers` as a document: a row a technique, and what each of them bounds, costs or forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.hwdb.units import show_percent
from roofcast.reports.data import as_data
from roofcast.reports.deployed import BOUNDS_ONLY, on_devices, setup_lines
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import context_name, count, figures, millis, ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.levers import LeverRow, LeversResult

HEADING: Final = (
    "lever",
    "change",
    "TTFT\nms",
    "x",
    "TPOT\nms",
    "x",
    "tokens/s",
    "most\nseq.",
    "x",
    "tokens/s\nat most",
)


def levers_document(result: LeversResult, inputs: Mapping[str, Any], remarks: Remarks) -> Document:
    """The page of `levers`."""
    return Document(
        command="levers",
        inputs=inputs,
        result=result,
        records=[{"model": result.model, "gpu": result.gpu, **as_data(row)} for row in result.rows],
        lines=tuple(map(plain, _lines(result, inputs))),
        tables=(_table(result),),
        remarks=_notes(result) + remarks,
    )


def _lines(result: LeversResult, inputs: Mapping[str, Any]) -> list[str]:
    base = result.rows[0] if result.rows else None
    verdict = "" if base is None or base.fits else f": does not fit: {base.reason}"
    return [
        f"{result.model} on {on_devices(result.gpu, result.layout)}{verdict}",
        *setup_lines(result.layout, result.weights, inputs),
        (
            f"decode of {count(result.batch)} at {context_name(result.context)}; "
            f"a prompt of {context_name(result.prompt)}; each row changes one thing of the base"
        ),
    ]


def _table(result: LeversResult) -> Table:
    rows = [_row(row) for row in result.rows]
    return table(HEADING, rows, left=(0, 1), breaks=(7,), keys=2)


def _row(row: LeverRow) -> tuple[str, ...]:
    return (
        row.lever,
        row.change,
        millis(row.ttft_seconds),
        ratio(row.ttft_ratio),
        millis(row.tpot_seconds),
        ratio(row.tpot_ratio),
        figures(row.tokens_per_second),
        count(row.max_sequences),
        ratio(row.sequences_ratio),
        figures(row.max_tokens_per_second),
    )


def _notes(result: LeversResult) -> Remarks:
    """What each lever says, and why some cannot be."""
    reasons = [f"{row.change}: {row.reason}" for row in result.rows[1:] if row.reason]
    said = [f"{row.change}: {row.says}" for row in result.rows if row.says]
    meant = "x is over the base: of times less is better, of sequences more"
    kept = result.usable_share
    held = (
        None if kept == 1 else f"weights and cache may take {show_percent(kept)} of the memory, here and on other GPUs"
    )
    return remarks(notes=(meant, held, *said, *reasons, BOUNDS_ONLY))
