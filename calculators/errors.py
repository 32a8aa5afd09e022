"""What a question can be wrong about."""

from __future__ import annotations


class UsageError(ValueError):
    """The question cannot be asked so; the message is one line for its user (exit 2)."""


class UnansweredError(LookupError):
    """The question is sound but cannot be answered from what is known (exit 3)."""
