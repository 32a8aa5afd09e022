"""When and how an answer was made."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError
from roofcast.reports.document import Made

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

EPOCH: Final = "SOURCE_DATE_EPOCH"


def made_by(arguments: Sequence[str]) -> Made:
    """How a document came to be: the command with its arguments, the release, the day.

    Raises:
        UsageError: SOURCE_DATE_EPOCH is no time.
    """
    import shlex  # noqa: PLC0415 - other formats do without
    from importlib.metadata import version  # noqa: PLC0415 - likewise

    return Made(shlex.join(("roofcast", *arguments)), version("roofcast"), f"{moment():%Y-%m-%d}")


def moment() -> datetime:
    """Now, or when SOURCE_DATE_EPOCH says, in UTC, so that a file can be made again.

    Raises:
        UsageError: the variable is no whole number of seconds since 1970, or one past the year 9999.
    """
    from datetime import UTC, datetime  # noqa: PLC0415 - other formats do without

    asked = os.environ.get(EPOCH)
    try:
        return datetime.fromtimestamp(_seconds(asked), UTC) if asked else datetime.now(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"{EPOCH}={asked}: it must be whole seconds since 1970, such as 1735689600") from error


def _seconds(text: str) -> int:
    """A whole number written in digits alone; `int` takes blanks, signs and underscores too."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
