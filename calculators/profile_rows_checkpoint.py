"""Rows of `profile checkpoint`: a real local checkpoint through transformers."""

from __future__ import annotations

from dataclasses import dataclass

from roofcast.calculators.profile_rows_time import TimeRow  # noqa: TC001 - schemas read the types


@dataclass(frozen=True, slots=True)
class CheckpointPointRow:
    """TTFT of a prompt, or a step of decode."""

    phase: str
    """prefill or decode."""
    batch: int
    """Sequences at once."""
    context: int
    """Tokens of the prompt; of decode in the cache of each sequence at the first timed step, the new one with them. [token]"""
    steps: int
    """Steps of decode that were timed, each with a token more; of a prompt 1."""
    time: TimeRow | None
    """Until the first token is chosen, or of one step; null where it could not run."""
    again: TimeRow | None
    """Of decode, the same steps once more, over lengths that were seen; null where they could not be. [s]"""
    tokens_per_second: float | None
    """Of the prompt, or new ones. [token/s]"""
    flops: float | None
    """That it takes, of decode the middle step; null where the config does not tell. [FLOP]"""
    bytes: float | None
    """Weights and cache that it must move, of decode the middle step; null likewise. [B]"""
    bytes_per_second: float | None
    """That over the median time. [B/s]"""
    of_datasheet: float | None
    """Share of the data sheet's bandwidth; null where the device is not in the database. [-]"""
    bound_seconds: float | None
    """Least time by the data sheet; null likewise. [s]"""
    expected_seconds: float | None
    """By constants fitted to transformers; null likewise. [s]"""
    problem: str | None
    """Why it could not run."""


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """What `profile checkpoint` measured."""

    path: str
    """Folder of the checkpoint."""
    transformers: str
    """Its version."""
    attention: str
    """Implementation that transformers chose: sdpa, eager, flash_attention_2 ..."""
    dtype: str
    """Format that it computes in."""
    parameters: int
    """That were loaded. [parameter]"""
    weight_bytes: int
    """Of these in memory. [B]"""
    points: list[CheckpointPointRow]
    """Prompts, then steps of decode."""
