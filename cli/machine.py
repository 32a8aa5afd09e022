"""The accelerator that an option names, or this machine's, and what should be said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from roofcast.calculators.answer import Remarks
    from roofcast.hwdb.lookup import Match


MOST_MACHINES = 20  # of one option


def find_machine(name: str | None) -> Match:
    """The accelerator named, or this machine's.

    Raises:
        UnknownAcceleratorError: nothing goes by that name.
        UsageError: none is named and this machine has none.
    """
    from roofcast.hwdb.lookup import find_accelerator

    if name is not None:
        return find_accelerator(name)
    from roofcast.hwdb.local import local_accelerators

    devices = local_accelerators()
    if not devices:
        raise UsageError("--gpu is missing and this machine has no accelerator; `roofcast gpus` lists the names")
    return find_accelerator(devices[0].name, devices[0].memory_bytes)


def find_machines(text: str, option: str) -> list[Match]:
    """The accelerators of a list, each name once.

    Raises:
        UnknownAcceleratorError: nothing goes by one of the names.
        UsageError: no name, or more than anyone compares.
    """
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    if not all(names) or len(names) > MOST_MACHINES:
        raise UsageError(
            f"{option}: it must list 1 to {MOST_MACHINES} names, separated by commas; `roofcast gpus` lists them"
        )
    return [find_machine(name) for name in names]


def machine_remarks(match: Match) -> Remarks:
    """How its name was understood, and what is doubted of it."""
    from roofcast.calculators.answer import remarks

    accelerator = match.accelerator
    recalled = f"{accelerator.id}: its memory is recalled, not read in a source"
    return remarks([None if accelerator.verified("memory") else recalled], [match.doubt], [match.alias_note])
