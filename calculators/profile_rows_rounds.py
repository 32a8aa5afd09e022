"""Rows of `profile speculate`: rounds as they were timed, beside what `speculate` says, and rounds of real text.

`speculate` counts every weight in the format asked; of fp8 the profiler has embedding, head and routers in 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.calculators.profile_rows_time import TimeRow  # noqa: TC001 - schemas read the types


@dataclass(frozen=True, slots=True)
class RoundCostRow:
    """What a round costs, in decode steps: as measured, by the bound and as expected."""

    measured: float | None
    """By the measured times; null where they were not. [-]"""
    bound: float | None
    """By least times of the data sheet, as `speculate` has it but of fp8; null where the device is not in the database. [-]"""
    expected: float | None
    """By fitted constants; null likewise. [-]"""


@dataclass(frozen=True, slots=True)
class SpedRow:
    """What a round brings at an acceptance."""

    acceptance: float
    """Chance that a drafted token is accepted. [-]"""
    tokens_per_round: float
    """(1 - a^(k+1)) / (1 - a). [token]"""
    measured: float | None
    """Speed-up by the measured cost of a round; null where it was not measured. [-]"""
    bound: float | None
    """By least times, as `speculate` says but of fp8; null where the device is not in the database. [-]"""
    expected: float | None
    """By fitted constants; null likewise. [-]"""


@dataclass(frozen=True, slots=True)
class RoundRow:
    """One round: k drafted tokens, verified in one pass over k + 1 positions."""

    batch: int
    """Sequences."""
    context: int
    """Tokens in the cache of each, with the first that is verified. [token]"""
    drafted: int
    """k. [token]"""
    launched: str
    """graph or eager."""
    decode: TimeRow | None
    """A plain decode step of the target; null where it could not run."""
    draft: TimeRow | None
    """One decode step of the draft; null likewise."""
    drafting: TimeRow | None
    """k of them, each fed what the one before chose; null likewise."""
    verify: TimeRow | None
    """The target's pass over k + 1 positions; null likewise."""
    round: TimeRow | None
    """Drafting, verifying and comparing, as one; null likewise."""
    draft_ratio: float | None
    """A draft step over a decode step. [-]"""
    verify_ratio: float | None
    """Verifying over a decode step. [-]"""
    bound_decode_seconds: float | None
    """Least time of the decode step; null where the device is not in the database. [s]"""
    bound_draft_ratio: float | None
    """Draft step over decode step, by least times; null likewise. [-]"""
    bound_verify_ratio: float | None
    """Verifying over a decode step, by least times; null likewise. [-]"""
    expected_decode_seconds: float | None
    """By fitted constants; null where there are none. [s]"""
    expected_draft_ratio: float | None
    """Draft step over decode step, by them; null likewise. [-]"""
    expected_verify_ratio: float | None
    """Verifying over a decode step, by them; null likewise. [-]"""
    cost: RoundCostRow
    """Of a whole round."""
    speedups: list[SpedRow]
    """A row an acceptance asked for."""
    break_even_acceptance: float | None
    """Acceptance above which the measured round pays; null where none does. [-]"""
    problem: str | None
    """Why it could not run."""


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """Where a text by speculation and plain greedy decoding part."""

    prompt: int
    """Number of the prompt, from 0."""
    position: int
    """New token from which on they differ, from 0. [token]"""
    gap: float
    """Logit of plain decoding's token less that of speculation's there, as plain decoding sees them; 0 is a tie. [-]"""
    scale: float
    """Largest size of a logit there: what the gap is to be held against. [-]"""
    tie: bool
    """Whether the gap is within the rounding of the format that the model computes in."""


@dataclass(frozen=True, slots=True)
class TextRow:
    """Real rounds of local checkpoints, through transformers, at one draft length."""

    drafted: int
    """k. [token]"""
    prompts: int
    """Texts that were continued."""
    new_tokens: int
    """That they got together. [token]"""
    rounds: int
    """That it took."""
    tokens_per_round: float
    """Mean of a round, each text's last whole though the text is cut at --tokens. [token]"""
    acceptance: float | None
    """The a of (1 - a^(k+1)) / (1 - a) tokens a round; null where no a has them. [-]"""
    accepted_by_position: list[float]
    """Share of rounds that accepted each drafted position, and all before it. [-]"""
    plain_seconds: float
    """Plain greedy decoding of the same texts. [s]"""
    speculative_seconds: float
    """With speculation. [s]"""
    speedup: float
    """Plain over speculative. [-]"""
    same_output: bool
    """Whether every text is what plain greedy decoding wrote."""
    differences: list[DifferenceRow]
    """Where they are not: of each text the first place."""


@dataclass(frozen=True, slots=True)
class SpeculationRow:
    """What `profile speculate` measured."""

    target: str
    """Model that is sped up, as asked for."""
    draft: str
    """Model that drafts, as asked for."""
    draft_weights: str
    """Format of the draft's weights."""
    rounds: list[RoundRow]
    """A row a batch, context and k, random weights."""
    texts: list[TextRow]
    """A row a k, of real checkpoints; empty where these are not there."""
    transformers: str | None
    """Its version; null where no text was written."""
