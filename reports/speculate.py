"""`speculate` as a document: the best length, rounds and their cost, formulas, measurements, the acceptance rule."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.answer import Remarks, remarks
from roofcast.calculators.rounds import LONGEST
from roofcast.reports.data import as_data
from roofcast.reports.deployed import BOUNDS_ONLY, on_devices, setup_lines
from roofcast.reports.document import Document, Table, plain, table
from roofcast.reports.numbers import NOTHING, billions, context_name, count, figures, fixed, millis, ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roofcast.calculators.measured_rounds import MeasuredRow
    from roofcast.calculators.rejection import RuleCheck
    from roofcast.calculators.speculate import BestRow, Draft, FormulaRow, RoundRow, SpeculateResult

BEST: Final = "*"
MOST_TOKENS_SHOWN: Final = 20
MEANT: Final = (
    "x is the speed-up over plain decode: tokens a round / (draft + verify, in decode steps); book is the textbook's, tokens a "
    "round / (c k + 1), which verifies for the price of one decode step"
)
STARRED: Final = "* is the best of its batch, of the lengths shown"
LESS: Final = "measured rounds cost more than bounds: tens of per cent in what was published; --measured holds your own against them"
LONGEST_REASON: Final = 150  # characters
INDEPENDENT: Final = "every drafted token is taken to be accepted with the same chance; where later ones are less often, long drafts yield less"


def speculate_document(result: SpeculateResult, inputs: Mapping[str, Any], said: Remarks) -> Document:
    """The page of `speculate`, of whichever part was asked for."""
    lines, tables, notes = _part(result, inputs)
    records = result.rounds or result.measured or result.formulas or [result.rule]
    named = {"model": result.model, "gpu": result.gpu} if result.model else {}
    return Document(
        command="speculate",
        inputs=inputs,
        result=result,
        records=[named | as_data(record) for record in records],
        lines=tuple(map(plain, lines)),
        tables=tuple(tables),
        remarks=remarks(notes=notes) + said,
    )


def _part(result: SpeculateResult, inputs: Mapping[str, Any]) -> tuple[list[str], list[Table], tuple[str, ...]]:
    if result.rule is not None:
        return _rule_lines(result.rule), _rule_tables(result.rule), ()
    if result.measured:
        return _measured_lines(result, inputs), _measured_tables(result), MEASURED_NOTES
    if not result.rounds:
        return _implied(result), [_formula_table(result.formulas, priced=_priced(result))], _formula_notes(result)
    starred = STARRED if len({row.drafted for row in result.rounds}) > 1 else ""
    notes = (MEANT, *filter(None, (starred,)), *_formula_notes(result), *_shortages(result), BOUNDS_ONLY, LESS)
    tables = [_best_table(result), _formula_table(result.formulas, priced=False), _round_table(result.rounds)]
    return [*_lines(result, inputs), *_implied(result)], tables, notes


def _shortages(result: SpeculateResult) -> Iterable[str]:
    """What does not fit, once a batch."""
    reasons = {row.batch: row.reason for row in reversed(result.rounds) if row.reason}
    return (f"batch {count(batch)} does not fit: {reason}" for batch, reason in reversed(reasons.items()))


def _priced(result: SpeculateResult) -> bool:
    return any(row.textbook_speedup is not None for row in result.formulas)


def _formula_notes(result: SpeculateResult) -> tuple[str, ...]:
    return (INDEPENDENT,) if any(row.acceptance is not None for row in result.formulas) else ()


def _implied(result: SpeculateResult) -> list[str]:
    if result.measured_acceptance is None:
        return []
    own = any(row.acceptance is None for row in result.formulas)
    what = "; below each position has its own share" if own else ""
    return [f"the measured tokens a round imply an acceptance of {result.measured_acceptance:.3f}{what}"]


def _lines(result: SpeculateResult, inputs: Mapping[str, Any]) -> list[str]:
    if result.layout is None or result.weights is None or result.draft is None or result.context is None:
        return []
    tree = inputs.get("tree")
    what = f"a tree of {tree:,} positions, k deep" if tree else "k tokens behind one another"
    return [
        f"{result.model} on {on_devices(str(result.gpu), result.layout)}",
        *setup_lines(result.layout, result.weights, inputs),
        f"draft: {_drafted(result.draft, result.layout.gpus)}",
        f"decode at {context_name(result.context)}; a round drafts {what}, then verifies them in one step",
    ]


def _drafted(draft: Draft, gpus: int) -> str:
    if draft.step_bytes is None:
        return f"{draft.name} (c = {draft.cost_ratio:.3g})"
    own = f" of {billions(draft.parameters)} parameters" if draft.parameters else ""
    where = " on each GPU" if gpus > 1 else ""
    return (
        f"{draft.name}{own}; a drafted token reads {draft.step_bytes / 1e9:.3g} GB of weights{where}, c = {draft.cost_ratio:.3g} "
        f"of a decode step's"
    )


def _best_table(result: SpeculateResult) -> Table:
    header = ("batch", "a", "best k", "x", "TPOT\nms", "tokens/s", "book's k", "book's x", "some k pays\nabove a")
    rows = [
        (
            count(row.batch),
            _accepted(row.acceptance),
            _best_length(row),
            ratio(row.speedup),
            millis(row.tpot_seconds),
            figures(row.tokens_per_second),
            _most(row.textbook_drafted) if row.textbook_drafted else "none",
            ratio(row.textbook_speedup),
            _pays_above(row),
        )
        for row in result.best
    ]
    return table(header, rows, title="best draft length")


def _best_length(row: BestRow) -> str:
    if row.speedup is None:
        return NOTHING
    return _most(row.drafted) if row.drafted else "none"


def _most(drafted: int) -> str:
    """A length, and where it is the longest that was looked at, that it may be more."""
    return f"{drafted} or more" if drafted == LONGEST else count(drafted)


def _pays_above(row: BestRow) -> str:
    if row.break_even_acceptance is None:
        return "never" if row.speedup else NOTHING
    return f"{row.break_even_acceptance:.2f}"


def _accepted(acceptance: float | None) -> str:
    return "by position" if acceptance is None else f"{acceptance:.3g}"


def _round_table(rounds: Sequence[RoundRow]) -> Table:
    """A row a batch and length, two columns an acceptance."""
    rates = list(dict.fromkeys(row.acceptance for row in rounds))
    header = ["batch", "k", "verified", "decode\nms", "draft\nms", "verify\nms", "verify\nx", "by", "round\nx"]
    for rate in rates:
        name = "by pos." if rate is None else f"a = {rate:.3g}"
        header += [f"x\n{name}", f"book\n{name}"]
    alike = [list(rows) for _, rows in groupby(_sorted(rounds), key=lambda row: (row.batch, row.drafted))]
    starred = len({row.drafted for row in rounds}) > 1
    fitting = {row.batch for row in rounds if row.fits}
    unfit = {rows[0].batch: _unfit_cells(rows) for rows in alike if rows[0].batch not in fitting}
    cells = [_round_cells(rows, starred=starred) for rows in alike if rows[0].batch in fitting]
    cells += unfit.values()
    breaks = range(9, len(header), 8)
    return table(header, cells, title="rounds", left=(7,), breaks=breaks, keys=2)


def _sorted(rounds: Sequence[RoundRow]) -> list[RoundRow]:
    """By batch and length as they were asked, whatever the acceptance."""
    batches = list(dict.fromkeys(row.batch for row in rounds))
    lengths = list(dict.fromkeys(row.drafted for row in rounds))
    return sorted(rounds, key=lambda row: (batches.index(row.batch), lengths.index(row.drafted)))


def _unfit_cells(rows: Sequence[RoundRow]) -> tuple[str, ...]:
    """One row for a batch that fits with no length."""
    blanks = [NOTHING, *[ratio(None)] * (2 * len(rows))]
    return (count(rows[0].batch), "any", *[NOTHING] * 5, "does not fit", *blanks)


def _round_cells(rows: Sequence[RoundRow], *, starred: bool) -> tuple[str, ...]:
    first = rows[0]
    cells = [
        count(first.batch),
        count(first.drafted),
        count(first.positions),
        millis(first.decode_seconds),
        millis(first.draft_seconds),
        millis(first.verify_seconds),
        ratio(first.verify_ratio),
        first.verify_bound_by or "does not fit",
        ratio(first.round_cost),
    ]
    for row in rows:
        mark = BEST if row.best and starred else ""
        cells += [f"{mark}{ratio(row.speedup)}", ratio(row.textbook_speedup)]
    return tuple(cells)


def _formula_table(rows: Sequence[FormulaRow], *, priced: bool) -> Table:
    """A row a length, a column or two an acceptance."""
    rates = list(dict.fromkeys(row.acceptance for row in rows))
    header = ["k"]
    for rate in rates:
        name = "by position" if rate is None else f"a = {rate:.3g}"
        header += [f"tokens\n{name}", *([f"x\n{name}"] if priced else [])]
    cells = []
    for k in dict.fromkeys(row.drafted for row in rows):
        line = [count(k)]
        for row in (row for row in rows if row.drafted == k):
            speedup = f"{BEST if row.best else ''}{ratio(row.textbook_speedup)}"
            line += [fixed(row.tokens_per_round, 2), *([speedup] if priced else [])]
        cells.append(line)
    title = "tokens a round" + (", and the textbook's speed-up x (* the best k)" if priced else "")
    return table(header, cells, title=title)


MEASURED_NOTES: Final = (
    (
        "cost is what a measured round took, in decode steps: tokens a round / speed-up; the textbook has c k + 1 for it, c by "
        "sizes, and the roofline draft + verify; optimism is what each promises beyond the measured speed-up"
    ),
    (
        "what neither has: host time between steps, launches of small kernels, sampling and comparing, tree bookkeeping, and "
        "kernels that verify several positions less well than one; a round pays them once or k times, so that the best k is "
        "smaller than either says"
    ),
)


def _measured_lines(result: SpeculateResult, inputs: Mapping[str, Any]) -> list[str]:
    whole = next((row for row in result.summary if row.method == "all"), None)
    others = inputs.get("rows_of_something_else")
    several = "s" * (len(result.measured) > 1)
    lines = [
        f"{len(result.measured):,} measurement{several}" + (f"; rows of something else: {others:,}" if others else "")
    ]
    if whole is not None:
        known = [row.textbook_optimism for row in result.measured if row.textbook_optimism is not None]
        lines.append(
            f"{whole.rows} can be held against both: the textbook is {whole.textbook_optimism:.0%} optimistic in the median "
            f"({min(known):.0%} to {max(known):.0%}), the roofline {whole.roofline_optimism:.0%}"
        )
    return lines


def _measured_tables(result: SpeculateResult) -> list[Table]:
    header = (
        "source", "model", "GPU", "batch", "method", "k", "verified", "tokens", "x", "cost", "book\ncost", "book\nx",
        "optimism", "draft", "verify", "roofline\nx", "optimism",
    )  # fmt: skip
    rows = [_measured_cells(row) for row in result.measured]
    tables = [table(header, rows, title="measured rounds", left=(0, 1, 2, 4), breaks=(7,), keys=1)]
    if result.summary:
        head = ("method", "rows", "cost", "textbook's optimism", "roofline's optimism")
        cells = [
            (
                row.method,
                count(row.rows),
                ratio(row.round_cost),
                _percent(row.textbook_optimism),
                _percent(row.roofline_optimism),
            )
            for row in result.summary
        ]
        tables.append(table(head, cells, title="medians"))
    reasons = list(_reasons(result.measured))
    if reasons:
        tables.append(table(("how many", "first", "why a part is missing"), reasons, title="not whole", left=(1, 2)))
    return tables


def _measured_cells(row: MeasuredRow) -> tuple[str, ...]:
    return (
        row.source,
        row.model.rpartition("/")[2],
        row.gpu,
        count(row.batch),
        row.method or NOTHING,
        count(row.drafted),
        count(row.positions),
        fixed(row.tokens_per_round, 2),
        ratio(row.speedup),
        ratio(row.round_cost),
        ratio(row.textbook_round_cost),
        ratio(row.textbook_speedup),
        _percent(row.textbook_optimism),
        ratio(row.draft_cost),
        ratio(row.verify_ratio),
        ratio(row.roofline_speedup),
        _percent(row.roofline_optimism),
    )


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:+.0%}"


def _reasons(rows: Iterable[MeasuredRow]) -> Iterable[tuple[str, str, str]]:
    """Every reason once, with how many rows have it, and the first of them."""
    told: dict[str, list[str]] = {}
    for row in rows:
        if row.reason:
            told.setdefault(row.reason, []).append(row.source)
    return (
        (
            count(len(sources)),
            sources[0],
            reason if len(reason) <= LONGEST_REASON else f"{reason[: LONGEST_REASON - 3]}...",
        )
        for reason, sources in told.items()
    )


def _rule_lines(rule: RuleCheck) -> list[str]:
    verdict = "reproduces" if rule.reproduced else "DOES NOT reproduce"
    tokens = NOTHING if rule.tokens_per_round is None else f"{rule.tokens_per_round:.3f}"
    return [
        f"{rule.draws:,} tokens drawn in rounds of {rule.drafted} drafted ones: the acceptance rule {verdict} the target",
        f"chi-square {rule.chi_square:.2f} of {rule.degrees} degrees of freedom: p = {rule.p_value:.3g}, which under 0.001 fails",
        f"as many tokens straight from the draft, without the rule: p = {rule.without_rule_p_value:.2g}",
        f"acceptance {rule.measured_acceptance:.4f} drawn, {rule.acceptance:.4f} by sum of min(p, q)",
        f"tokens a round {rule.measured_tokens_per_round:.3f} drawn, {tokens} by (1 - a^(k+1)) / (1 - a)",
    ]


def _rule_tables(rule: RuleCheck) -> list[Table]:
    pairs = list(zip(rule.target, rule.drawn, strict=True))
    rows = [(count(number), figures(p), figures(drawn)) for number, (p, drawn) in enumerate(pairs[:MOST_TOKENS_SHOWN])]
    return [table(("token", "target", "drawn"), rows)]
