"""Numbers as the options of `speculate` take them: shares, percentages, draft lengths and ranges of them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from roofcast.calculators.rejection import Pair

MOST_LENGTHS: Final = 32
DEFAULT_TARGET: Final = (0.4, 0.3, 0.15, 0.1, 0.05)
DEFAULT_DRAFT: Final = (0.2, 0.2, 0.2, 0.2, 0.2)
DEFAULT_LENGTH: Final = 4  # of the check
RANGE: Final = r"\s*(?P<first>[0-9]{1,9})\s*(?:-\s*(?P<last>[0-9]{1,9})\s*)?"
SHOWN: Final = 60  # characters of an argument in a complaint


def numbers(text: str, option: str) -> list[float]:
    """A comma-separated list of numbers, shares among them as percentages.

    Raises:
        UsageError: one of them is none.

    >>> numbers("0.6,80%", "--acceptance")
    [0.6, 0.8]
    """
    return [number_of(part, text, option) for part in text.split(",")]


def number_of(part: str, text: str, option: str) -> float:
    """One number or percentage of a text.

    Raises:
        UsageError: it is none.
    """
    plain = part.strip()
    try:
        value = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in plain or not plain.isascii():
        shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
        raise UsageError(f"{option} {shown}: {plain[:20]!r} is no number; write numbers like 0.6,0.8")
    return value


def whole_numbers(text: str) -> tuple[int, ...]:
    """Draft lengths: a list of numbers and ranges, each once.

    Raises:
        UsageError: no numbers, or too many.

    >>> whole_numbers("4,1-3")
    (4, 1, 2, 3)
    """
    from roofcast.calculators.speculative import check_drafted

    found: dict[int, None] = {}
    for part in text.split(","):
        found_ends = re.fullmatch(RANGE, part)
        if found_ends is None:
            raise UsageError(
                f"--k {text[:SHOWN]}: {part.strip()[:20]!r} is no number of tokens; write them like 4, 1,2,4 or 1-8"
            )
        first, last = int(found_ends["first"]), int(found_ends["last"] or found_ends["first"])
        check_drafted(first)
        check_drafted(last)
        if last < first:
            raise UsageError(f"--k {part.strip()}: the first must not be above the last; write it like 1-8")
        found |= dict.fromkeys(range(first, last + 1))
    if len(found) > MOST_LENGTHS:
        raise UsageError(f"--k has {len(found)} values; at most {MOST_LENGTHS} at once")
    return tuple(found)


def one_length(text: str | None) -> int:
    """The one draft length of the check.

    Raises:
        UsageError: there are several, or it cannot be.
    """
    found = whole_numbers(text) if text is not None else (DEFAULT_LENGTH,)
    if len(found) > 1:
        raise UsageError(f"--k {text}: --check draws rounds of one length")
    return found[0]


def pair_of(target: str | None, draft: str | None) -> Pair:
    """The two distributions of the check.

    Raises:
        UsageError: they are none, or one is missing.
    """
    from roofcast.calculators.rejection import Pair

    if (target is None) != (draft is None):
        raise UsageError("--target-probabilities and --draft-probabilities belong together; give both or neither")
    if target is None or draft is None:
        return Pair(DEFAULT_TARGET, DEFAULT_DRAFT)
    return Pair(tuple(numbers(target, "--target-probabilities")), tuple(numbers(draft, "--draft-probabilities")))
