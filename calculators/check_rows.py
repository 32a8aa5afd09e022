"""Rows of the answer of `check`: a rule, what there is, and whether that will do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

PASSED: Final = "passed"
FAILED: Final = "failed"
UNDETERMINED: Final = "undetermined"


@dataclass(frozen=True, slots=True)
class Found:
    """What there is.

    Args:
        value: in the quantity's unit; None where it does not fit.
        reason: why there is no value, or what stands behind a no; empty elsewhere.
        note: what is to be said of the value, whether or not it will do.
        lasting: whether it stays so however many requests come; one that gets worse with each of them meets no limit.
        of: whose value it is, where the rule leaves that open, as of a plan; empty elsewhere.
        gpu: id of the accelerator of that; None likewise.
    """

    value: float | bool | None
    reason: str = ""
    note: str = ""
    lasting: bool = True
    of: str = ""
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class RuleRow:
    """One rule, held against what there is."""

    name: str
    """Its name; of a matrix with the values in brackets."""
    status: str
    """passed, failed or undetermined; what cannot be determined never passes."""
    actual: float | bool | None
    """What there is, in the unit of the quantity; null where that cannot be told."""
    required: float | bool | None
    """The limit that decided: the rule's own, or what its baseline allows; null where there is none to hold against."""
    message: str
    """One sentence: what there is against what is required, or why it cannot be told."""
    quantity: str
    """What the rule is about: sequences, kv_tokens, ttft, ..."""
    unit: str
    """Unit of actual and required: s, B/token, token/s, USD/Mtoken, ...; empty of a plain count or of yes and no."""
    sign: str
    """On which side of `required` it must be: >=, <= or ==."""
    basis: str | None
    """bound, expected, low or high of what has these; null of the rest."""
    baseline: float | bool | None
    """What the baseline file has; null without one."""
    model: str | None
    """As asked for; null where the rule is about no model."""
    gpu: str | None
    """Id of the accelerator; null where the rule is about none."""
    file: str
    """The rule file."""
    line: int
    """Line of the rule in it, from 1; 0 where it has none."""
    code: int
    """Exit code that the rule alone would leave with: 0 passed, 1 failed, 3 undetermined, 2 badly put."""


@dataclass(frozen=True, slots=True)
class Locked:
    """What a number was made from."""

    kind: str
    """model, accelerator, rent, constants or roofcast."""
    name: str
    """Of the model (with @revision where one is asked), of the accelerator, also of a rent, or of the constants."""
    found: str
    """Commit and digest of the config of a model, a rent with its provider and date, version of roofcast, digest of the facts else."""
    locked: str | None
    """What the baseline file has of it; null where it has nothing."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of `check`."""

    rules: list[RuleRow]
    """One row a rule; a matrix has a row for each of its combinations."""
    passed: int
    """Rules that are met."""
    failed: int
    """Rules that are not."""
    undetermined: int
    """Rules that cannot be told."""
    files: list[str]
    """The rule files."""
    baseline: str | None
    """The baseline file; null without one."""
    updated: bool
    """Whether the baseline file was written by this run."""
    locks: list[Locked] = field(default_factory=list)
    """Models, accelerators, rents and constants behind the numbers, beside what the baseline file has of them."""
    facts_version: str = ""
    """Version of roofcast and digest of its accelerators, rents, constants and formulas' release."""
