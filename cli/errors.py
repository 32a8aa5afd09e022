"""From what went wrong to one line on stderr and an exit code.

0 ok    1 a gate failed    2 bad usage or malformed input    3 undetermined    130 interrupted
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

OK: Final = 0
GATE_FAILED: Final = 1
BAD_INPUT: Final = 2
UNDETERMINED: Final = 3
INTERRUPTED: Final = 130
LONGEST: Final = 4000  # characters of a message: an argument may be any length


class StrictError(LookupError):
    """`--strict` refuses what had to be assumed."""


class GateError(Exception):
    """A requirement that was asked for is not met."""


def exit_code(error: BaseException) -> int | None:
    """The exit code of an error that a user can act on; None for a fault of our own.

    Malformed input and bad usage are ValueErrors, everything absent or undetermined a LookupError or OSError;
    both only of our own classes, so that a stray KeyError is not taken for an answer.
    """
    if isinstance(error, GateError):
        return GATE_FAILED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    module = type(error).__module__
    if not module.startswith("roofcast."):
        return None
    if type(error).__name__ in _BAD_NAMES or isinstance(error, ValueError):
        return BAD_INPUT
    return UNDETERMINED


# a GPU's name is a part of the question, and so is a bad format; a model's name is looked up elsewhere
_BAD_NAMES: Final = frozenset({"UnknownAcceleratorError", "NoPeakError"})


def show_traceback() -> None:
    """Prints where the error at hand came from, where `--debug` asks for it."""
    if "--debug" in sys.argv and sys.stderr is not None:
        import traceback

        traceback.print_exc()


def complain(message: str) -> None:
    """Prints one line on stderr, whatever the message holds; a closed stderr is nobody's loss."""
    if sys.stderr is None:
        return
    line = " ".join(message.split())
    cut = line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
    shown = "".join(c if c.isprintable() else "?" for c in cut).replace("##[", "# #[")  # no command to a CI's runner
    with suppress(OSError):  # a full or broken stderr must not change the exit code
        print(f"roofcast: {shown}", file=sys.stderr, flush=True)  # noqa: T201 - the one place that complains
