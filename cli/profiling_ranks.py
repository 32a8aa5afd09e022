"""What commands of `profile` share that measure on several devices at once: how many ranks, and who answers."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import typer

from roofcast.calculators.errors import UsageError
from roofcast.cli.errors import UNDETERMINED
from roofcast.cli.profiling import Bench, bench_of
from roofcast.hwdb.units import UnitError, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from roofcast.profiler.ranks_start import Wanted
    from roofcast.profiler.ranks_store import Place
    from roofcast.profiler.runtime import Runtime

    #: what every rank measures, each on its own bench
    Job = Callable[[Bench], object]

MOST: Final = 1024
LONGEST: Final = 3600.0  # seconds that ranks wait for one another
ALONE: Final = 1
TP: Final = "--tp"
WAIT: Final = 60.0  # seconds that ranks wait for one another where no option says how long


@dataclass(frozen=True, slots=True)
class RanksAsked:
    """Ranks as options ask for them.

    Args:
        size: --tp or --ranks; None is not given.
        backend: --backend.
        wait: --wait; None is not given.
        option: which of the two.
    """

    size: int | None
    backend: str | None
    wait: str | None
    option: str = TP

    def settled(self, device: str | None, usual: int = ALONE) -> Team:
        """How many there are, and this one's place among them; before torch is loaded.

        Args:
            device: --device.
            usual: how many where neither an option nor torchrun says.

        Raises:
            UsageError: numbers that cannot be, or that torchrun's are not.
        """
        from roofcast.profiler.ranks_start import BACKENDS, Wanted
        from roofcast.profiler.ranks_store import place_of

        if self.size is not None and not 1 <= self.size <= MOST:
            raise UsageError(f"{self.option} {self.size:,}: it must be 1 to {MOST:,}")
        if self.backend is not None and self.backend not in BACKENDS:
            raise UsageError(f"--backend {self.backend}: known: {', '.join(BACKENDS)}")
        place = place_of(os.environ)
        if place is not None and self.size not in {None, place.size}:
            raise UsageError(
                f"{self.option} {self.size}: torchrun has started {place.size} ranks; it must be as many, or left out"
            )
        self._refuse_idle(place)
        size = place.size if place is not None else self.size or usual
        return Team(Wanted(size, self.backend, self._seconds(), device), place)

    def _refuse_idle(self, place: Place | None) -> None:
        """Refuses what only several devices have, of one.

        Raises:
            UsageError: naming the option.
        """
        if self.option != TP or place is not None or self.size is not None:
            return
        for option, value in (("--backend", self.backend), ("--wait", self.wait)):
            if value is not None:
                raise UsageError(f"{option} {value}: it is of several devices; add --tp N, or leave it out")

    def _seconds(self) -> float:
        if self.wait is None:
            return WAIT
        try:
            seconds = parse_duration(self.wait)
        except UnitError as error:
            raise UnitError(f"--wait {self.wait}: {error}") from error
        if not 0 < seconds <= LONGEST:
            raise UsageError(f"--wait {self.wait}: it must be above 0 and at most {LONGEST:.0f}s")
        return seconds


@dataclass(frozen=True, slots=True)
class Team:
    """Ranks that measure, of which this process is one.

    Args:
        wanted: how many, and how they exchange.
        place: of this one among torchrun's; None where nothing started it.
    """

    wanted: Wanted
    place: Place | None

    @property
    def size(self) -> int:
        """How many."""
        return self.wanted.size

    @property
    def leads(self) -> bool:
        """Whether this process answers."""
        return self.place is None or self.place.rank == 0

    def bench(self, seconds: float | None) -> Bench:
        """Opens this rank's device; the budget begins.

        Raises:
            UnavailableError, ProfileUsageError: what is wrong with it.
        """
        from roofcast.profiler.ranks_start import open_rank
        from roofcast.profiler.runtime import open_runtime

        alone = self.size == ALONE
        return bench_of(open_runtime(self.wanted.device) if alone else open_rank(self.wanted, self.place), seconds)

    @contextmanager
    def ranked(self, opened: Bench, job: Job, asked: Mapping[str, object]) -> Iterator[Bench]:
        """Makes this process one of the others, which run the job; as it is where there are none.

        Args:
            opened: its device.
            job: a function of a module, with arguments that can be sent to another process.
            asked: what it measures, by name: alike on all ranks.

        Raises:
            UnavailableError: they do not come together.
        """
        from importlib.metadata import version

        from roofcast.profiler.errors import DifferentWorkError
        from roofcast.profiler.ranks_start import together
        from roofcast.profiler.signals import heard

        if self.size == ALONE:
            yield opened
            return
        import roofcast.cli.crew  # noqa: F401 - has pickle know the mappings that nobody changes

        work = partial(follow, job, opened.budget.seconds)
        named = {**asked, "--backend": self.wanted.backend or "none", "roofcast": version("roofcast")}
        wanted = replace(self.wanted, asked=tuple((name, str(value)) for name, value in named.items()))
        try:
            with heard(signal.SIGTERM, _interrupt), together(opened.runtime, self.place, wanted, work) as runtime:
                opened.budget.ranks = runtime.ranks
                yield replace(opened, runtime=runtime)
        except DifferentWorkError as error:
            if self.leads:
                raise
            raise typer.Exit(UNDETERMINED) from error  # the first rank says it


def _interrupt(number: int, _: object) -> None:
    """Takes SIGTERM as Ctrl-C, as torchrun sends it to the ranks that are left: what is measured is kept, and no rank stays."""
    signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
    raise KeyboardInterrupt


def follow(job: Job, seconds: float | None, runtime: Runtime) -> None:
    """What a rank does that was started here."""
    from roofcast.profiler.timing import Budget

    job(Bench(runtime, Budget(seconds, runtime.ranks)))
