"""What the commands of `profile` share: a device, a budget, a bar, and what becomes of a measurement cut short."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import typer

from roofcast.cli.errors import INTERRUPTED, UNDETERMINED, complain
from roofcast.cli.progress import progress_of
from roofcast.cli.session import Output, chart_ending, check_output, show
from roofcast.hwdb.units import UnitError, parse_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from roofcast.calculators.answer import Remarks
    from roofcast.calculators.profiled import Sample
    from roofcast.hwdb.accelerator import Accelerator
    from roofcast.profiler.runtime import Runtime
    from roofcast.profiler.sweep import Watch
    from roofcast.profiler.timing import Budget
    from roofcast.reports.document import Document

MOST_LEFT: Final = 6  # labels of what was not measured, in a warning
STEADY: Final = 1.25  # between the 90th and the 10th percentile of the times of the same work
PROCESSOR: Final = 120.0  # seconds that measuring on a processor takes at most, unless it is given more


@dataclass(frozen=True, slots=True)
class Bench:
    """An open device and the time that measuring on it may take."""

    runtime: Runtime
    budget: Budget
    limited: bool = False
    """Whether the budget is what a processor is given where none is asked for."""

    @property
    def accelerator(self) -> Accelerator | None:
        """The device in the database; None where it is not there."""
        from roofcast.hwdb.lookup import find_accelerator

        name = self.runtime.machine.accelerator
        return None if name is None else find_accelerator(name).accelerator


@dataclass(frozen=True, slots=True)
class Written:
    """Where the answer goes, checked before anything is measured."""

    output: Output
    chart: str | None

    def present(self, document: Document) -> None:
        """Prints it, and draws its chart where one is asked."""
        show(document, self.output, self.chart)


def written(
    format_name: str | None, out: str | None, *, strict: bool = False, charts: bool = False, read: Sequence[str] = ()
) -> Written:
    """Where the answer is to go; never over a file that is read.

    Raises:
        UsageError: it cannot be written there.
    """
    ending = chart_ending(out, format_name) if charts else None
    output = Output(format_name, out, strict)
    check_output(output, read, chart=ending is not None)
    return Written(output, ending)


def seconds_of(budget: str | None) -> float | None:
    """What `--budget` says; None is no limit. [s]

    Raises:
        UnitError: naming the option.

    >>> seconds_of("2m"), seconds_of("90"), seconds_of(None)
    (120.0, 90.0, None)
    """
    try:
        return None if budget is None else parse_duration(budget)
    except UnitError as error:
        raise UnitError(f"--budget {budget}: {error}") from error


def bench(device: str | None, seconds: float | None) -> Bench:
    """Opens the device; the budget begins.

    Raises:
        UnavailableError, ProfileUsageError: what is wrong with it.
    """
    from roofcast.profiler.runtime import open_runtime

    return bench_of(open_runtime(device), seconds)


def bench_of(runtime: Runtime, seconds: float | None) -> Bench:
    """An open device; the budget begins."""
    from roofcast.profiler.timing import Budget

    limited = seconds is None and runtime.kind == "cpu"
    return Bench(runtime, Budget(PROCESSOR if limited else seconds), limited=limited)


@contextmanager
def watching(runtime: Runtime | None = None) -> Iterator[Watch | None]:
    """A bar on stderr with what is being measured; None where stderr is no terminal, and of a rank that does not answer."""
    if runtime is not None and runtime.ranks is not None and not runtime.ranks.leads:
        yield None
        return
    with progress_of("starting") as bar:
        yield None if bar is None else bar.at


def machine_remarks(opened: Bench) -> Remarks:
    """What may disturb the measurement, and what follows of a device that is not in the database."""
    from roofcast.calculators.answer import remarks

    machine = opened.runtime.machine
    unknown = f"{machine.name} is not in the database: what is measured stands alone (README.md tells how to add it)"
    minutes = f"on a processor measuring ends after {PROCESSOR / 60:.0f} minutes where --budget does not say otherwise"
    notes = [
        unknown if machine.accelerator is None else None,
        minutes if opened.limited and opened.budget.used >= PROCESSOR else None,
    ]
    return remarks(warnings=machine.remarks, notes=notes)


def left_line(left: Sequence[str], why: str) -> str | None:
    """What was not measured, in one line; None where all was.

    >>> left_line(["decode of 64 at 8,192"], "interrupted")
    'interrupted: not measured: decode of 64 at 8,192'
    """
    if not left:
        return None
    more = f", and {len(left) - MOST_LEFT} more" if len(left) > MOST_LEFT else ""
    return f"{why}{': ' if why else ''}not measured: {', '.join(left[:MOST_LEFT])}{more}"


def unsteady_line(samples: Iterable[Sample]) -> str | None:
    """What to say where times of the same work differ by much; None where they do not."""
    ran = list(samples)
    apart = sum(sample.high > STEADY * sample.low for sample in ran)
    if not apart:
        return None
    return (
        f"{apart:,} of {len(ran):,} times differ by more than {STEADY - 1:.0%} from the 10th to the 90th percentile: something "
        "else may use the machine, or its clock changes"
    )


def nothing_line(what: str, samples: Iterable[Sample | None], problems: Iterable[str | None], why: str) -> str | None:
    """What to say where nothing ran; None where something did.

    Args:
        what: would have been measured.
        samples: of each; None of one that did not run.
        problems: why these did not.
        why: as of `sweep`.

    >>> nothing_line("no step", [None, None], [None, "no room"], "")
    'no step could be measured: no room'
    """
    if any(sample is not None for sample in samples):
        return None
    return f"{what} could be measured: {next(filter(None, problems), None) or why}"


def leave(why: str, *, nothing: str | None = None, lost: bool = False) -> None:
    """Leaves with the code of a measurement that ended so: 130 interrupted, 3 where nothing could be measured.

    Args:
        why: as of `sweep`; empty where all ran.
        nothing: what to say where nothing could be measured; None where something was.
        lost: whether it ended as a rank was lost, which `why` says: exit 3, whatever was measured before.
    """
    from roofcast.profiler.sweep import INTERRUPTED as STOPPED

    if why == STOPPED:
        raise typer.Exit(INTERRUPTED)
    nothing = why if lost else nothing
    if nothing is not None:
        complain(nothing)
        raise typer.Exit(UNDETERMINED)
