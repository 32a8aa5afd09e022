"""From real rounds of speculation to rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.calculators.profile_rows_rounds import DifferenceRow, TextRow
from roofcast.calculators.speculative import acceptance_from_tokens

if TYPE_CHECKING:
    from roofcast.calculators.profiled_texts import TextRound


def text_row(one: TextRound) -> TextRow:
    """Texts of one draft length, as JSON has them.

    >>> from roofcast.calculators.profiled_texts import TextRound
    >>> row = text_row(TextRound(2, 1, 6, (2, 1, 0), 3.0, 2.0))
    >>> row.tokens_per_round, round(row.acceptance, 3), row.speedup, row.same_output
    (2.0, 0.618, 1.5, True)
    """
    return TextRow(
        drafted=one.drafted,
        prompts=one.prompts,
        new_tokens=one.new_tokens,
        rounds=len(one.accepted),
        tokens_per_round=one.tokens_per_round,
        acceptance=acceptance_from_tokens(one.tokens_per_round, one.drafted),
        accepted_by_position=list(one.accepted_by_position),
        plain_seconds=one.plain_seconds,
        speculative_seconds=one.speculative_seconds,
        speedup=one.plain_seconds / one.speculative_seconds,
        same_output=not one.differences,
        differences=[DifferenceRow(row.prompt, row.position, row.gap, row.scale, row.tie) for row in one.differences],
    )
