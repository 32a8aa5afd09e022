"""What every answer carries beside its numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Remarks:
    """What was assumed, what the reader should know, and how to read the numbers.

    Args:
        assumptions: inputs that had to be guessed; `--strict` refuses them.
        warnings: what may make the reader draw a wrong conclusion.
        notes: how the numbers are meant; text and Markdown print them.
    """

    assumptions: tuple[str, ...] = field(default=())
    warnings: tuple[str, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    def __add__(self, other: Remarks) -> Remarks:
        """Both, each line once."""
        return Remarks(
            _once((*self.assumptions, *other.assumptions)),
            _once((*self.warnings, *other.warnings)),
            _once((*self.notes, *other.notes)),
        )


def remarks(
    assumptions: Iterable[str | None] = (), warnings: Iterable[str | None] = (), notes: Iterable[str | None] = ()
) -> Remarks:
    """Remarks of the lines that there are.

    >>> remarks(["a", None, "a"]).assumptions
    ('a',)
    """
    return Remarks(_once(assumptions), _once(warnings), _once(notes))


def _once(lines: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line for line in lines if line))
