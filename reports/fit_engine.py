"""`fit` with an engine: its memory as its log prints it, a log beside it, and what to change."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

from roofcast.reports.document import Table, table
from roofcast.reports.numbers import GIB, NOTHING, count, fixed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roofcast.calculators.engines.terms import Advice, EngineTerm, Group
    from roofcast.calculators.fit import FitResult
    from roofcast.calculators.log_lines import LogAgainst, LogLine

MOST_ADVICE: Final = 8
FLAG_WIDTH: Final = 36  # characters
RULE_WIDTH: Final = 60  # likewise
# terms that are no part of a sum: what there is, and what may be used
STANDING: Final = frozenset({"visible", "budget", "kv", "free"})
LEFT: Final = "left"  # of a device whose cache is not what is left
# a log's terms that are plain numbers, and their decimals
PLAIN: Final[Mapping[str, int]] = {
    "block_size": 0, "blocks": 0, "tokens": 0, "concurrency": 2, "concurrency_tokens": 0, "swa_tokens": 0,
    "mamba_slots": 0, "max_running_requests": 0, "cells": 0, "n_ctx": 0, "estimated_max_model_len": 0, "swa_cells": 0,
}  # fmt: skip


def engine_lines(result: FitResult, inputs: Mapping[str, Any]) -> list[str]:
    """Verdict, engine, and the lines that its log prints."""
    on = result.gpu if result.gpus == 1 else f"{result.gpus} x {result.gpu}"
    cut = ", ".join(f"{name} {inputs[name]}" for name in ("tp", "pp", "ep", "dp") if inputs.get(name, 1) > 1)
    verdict = "fits" if result.fits else f"does not fit: {result.reason}"
    weights = inputs.get("weights") or "as stored"
    lines = [
        f"{result.model} on {on}: {verdict}",
        f"{result.engine} {result.engine_version}{', ' + cut if cut else ''}, weights {weights}, KV cache {inputs['kv']}",
    ]
    if result.kv_tokens is not None:
        span = f" ({count(result.kv_tokens_low)} to {count(result.kv_tokens_high)})"
        exact = result.kv_tokens_low == result.kv_tokens_high
        paged = result.blocks is not None and (result.block_tokens or 1) > 1
        blocks = f" in {count(result.blocks)} blocks of {result.block_tokens}" if paged else ""
        lines.append(f"cache as its log prints it: {count(result.kv_tokens)} tokens{'' if exact else span}{blocks}")
    if result.max_concurrency is not None and result.longest_request:
        lines.append(f"{result.max_concurrency:.2f} requests of {count(result.longest_request)} tokens at once")
    return lines


def engine_tables(result: FitResult) -> list[Table]:
    """Memory term by term, groups of layers where they differ, a log, and what to change."""
    made = _memory(result)
    if len(result.groups) > 1:
        made.append(_groups(result.groups))
    return made


def more_tables(result: FitResult) -> list[Table]:
    """A log beside the prediction, and what to change."""
    return [*([_log(result.log)] if result.log else []), *([_advice(result.advice)] if result.advice else [])]


def log_notes(log: LogAgainst | None) -> list[str]:
    """What a log comes to, in words."""
    if log is None:
        return []
    said = [f"the log shows that the server did not start: {log.failure}"] if log.failure else []
    if log.first_difference:
        cause = f": {log.cause}" if log.cause else ""
        said.append(f"the first term of the log that is not as predicted is {log.first_difference}{cause}")
    elif any(line.agrees for line in log.lines):
        said.append("every term of the log is as predicted")
    else:
        said.append("the log states nothing that is predicted")
    return [*said, *log.notes]


def _memory(result: FitResult) -> list[Table]:
    """Sizes, and below them how each is counted."""
    per = "memory" if result.gpus == 1 else "memory, one GPU"
    left = [term for term in result.terms if term.name == LEFT]
    standing = STANDING - {"kv"} if left else STANDING
    sizes, rules = [], []
    for term in (*(term for term in result.terms if term.name != LEFT), *left):
        if not term.bytes and term.name not in STANDING:
            continue
        sign = "" if term.name == "visible" else "= " if term.name in {*standing, LEFT} else "- "
        name = f"{sign}{_named(term.name)}"
        sizes.append((name, fixed(term.bytes / GIB, 2), _span(term), term.provenance))
        rules += [(name if first else "", text) for first, text in _chunks(term.rule)]
    return [
        table((per, "GiB", "80 % interval", "from"), sizes, left=(0, 3)),
        table((per, "how it is counted"), rules, left=(0, 1)),
    ]


def _chunks(text: str) -> list[tuple[bool, str]]:
    """A text in lines of a column, and which is the first."""
    return [(n == 0, line) for n, line in enumerate(wrap(text, RULE_WIDTH))]


def _span(term: EngineTerm) -> str:
    if term.low == term.high:
        return NOTHING
    return f"{term.low / GIB:.2f} - {term.high / GIB:.2f}"


def _named(name: str) -> str:
    return {"kv": "KV cache", "non_torch": "non-torch", "cuda_graphs": "CUDA graphs"}.get(name, name.replace("_", " "))


def _groups(groups: list[Group]) -> Table:
    rows = [
        (
            group.kind,
            count(group.layers),
            count(group.padding),
            f"{group.page_bytes / 1024:,.0f}",
            count(group.blocks_per_request),
        )
        for group in groups
    ]
    return table(("layers that keep", "layers", "padding", "page KiB", "blocks of the\nlongest request"), rows)


def _log(log: LogAgainst) -> Table:
    rows = [_log_row(line) for line in log.lines]
    header = ("log", "logged", "from the log's\nown terms", "predicted", "80 % interval", "", "line")
    return table(
        header, rows, title=f"{log.engine} {log.version or ''} log against prediction".replace("  ", " "), left=(0, 5)
    )


def _log_row(line: LogLine) -> tuple[str, ...]:
    verdict = {True: "agrees", False: "differs", None: ""}[line.agrees]
    low, high = _sized(line.term, line.low), _sized(line.term, line.high)
    span = NOTHING if line.low is None or low == high else f"{low} - {high}"
    shown = (_sized(line.term, value) for value in (line.logged, line.from_log, line.predicted))
    return (_named(line.term), *shown, span, verdict, count(line.line))


def _sized(term: str, value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.{PLAIN[term]}f}" if term in PLAIN else f"{value / GIB:.2f} GiB"


def _advice(advice: list[Advice]) -> Table:
    rows: list[tuple[str, ...]] = []
    for each in advice[:MOST_ADVICE]:
        first, *more = wrap(each.flag, FLAG_WIDTH)
        fits = "yes" if each.fits else "no"
        rows.append(
            (first, count(each.gpus), fits, count(each.kv_tokens), count(each.max_sequences), count(each.context))
        )
        here = wrap(f"here {each.here}", FLAG_WIDTH - 2) if each.here != each.flag else []
        rows += [(f"  {line}", *[""] * 5) for line in (*more, *here)]
    header = ("what to change", "GPUs", "fits", "KV tokens", "requests", "of tokens")
    return table(header, rows, left=(0, 2))
