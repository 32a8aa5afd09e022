"""Capacity rules of a gate, such as `sequences>=100@4k`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.calculators.fit import Requirement
from roofcast.hwdb.units import UnitError, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.fit import FitResult

_RULE: Final = r"\s*(?P<what>[a-z_]+)\s*>=\s*(?P<least>[0-9][0-9kKmM]*)\s*(?:@\s*(?P<context>\S+))?\s*"
QUANTITIES: Final = ("sequences", "kv_tokens")


@dataclass(frozen=True, slots=True)
class Rule:
    """At least so many of a quantity.

    Args:
        text: as it was written.
        what: `sequences`, at a context, or `kv_tokens`.
        least: the number required.
        context: tokens of each sequence; None for `kv_tokens`.
    """

    text: str
    what: str
    least: int
    context: int | None


def parse_rule(text: str) -> Rule:
    """Reads a rule.

    Raises:
        UsageError: it is none.

    >>> parse_rule("sequences>=100@4k")
    Rule(text='sequences>=100@4k', what='sequences', least=100, context=4096)
    """
    match = re.fullmatch(_RULE, text)
    example = "write it like 'sequences>=100@4k' or 'kv_tokens>=400k'"
    if match is None or match["what"] not in QUANTITIES:
        raise UsageError(f"--require {text!r} is no rule; {example}")
    if (match["what"] == "sequences") != (match["context"] is not None):
        raise UsageError(f"--require {text!r}: sequences need a context and kv_tokens none; {example}")
    try:
        context = parse_tokens(match["context"]) if match["context"] else None
        return Rule(text.strip(), match["what"], parse_tokens(match["least"]), context)
    except UnitError as error:
        raise UsageError(f"--require {text!r}: {error}") from error


def check_rules(rules: Sequence[Rule], result: FitResult) -> list[Requirement]:
    """Holds an answer against every rule."""
    at = {row.context: row.max_sequences for row in result.contexts}
    checked = []
    for rule in rules:
        actual = at[rule.context] if rule.context is not None else result.kv_tokens
        passed = None if actual is None else actual >= rule.least
        checked.append(Requirement(rule.text, passed, actual, rule.least))
    return checked
