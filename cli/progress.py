"""A progress bar on stderr, and only on a terminal."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from rich.progress import Progress as Bar


class ShardProgress:
    """Counts weight files that are read, or what else there are many of; the bar appears with the first of several."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bar: Bar | None = None

    def at(self, name: str, number: int, total: int | None) -> None:
        """What is under way, the number of it from 0, of how many where that is known; the bar appears with the first."""
        if self._bar is None:
            self.start(total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=name, completed=number, total=total)

    def start(self, total: int | None) -> None:
        """Opens the bar; rich is imported only now, since most models need none."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._bar.add_task(self._name, total=total)
        self._bar.start()

    def advance(self) -> None:
        """One more file is read."""
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])

    def stop(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def shard_progress(name: str) -> AbstractContextManager[ShardProgress | None]:
    """A bar for the headers of one model; None where stderr is no terminal."""
    return progress_of(f"{name}: headers of")


@contextmanager
def progress_of(name: str) -> Iterator[ShardProgress | None]:
    """A bar under that name; None where stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    progress = ShardProgress(name)
    try:
        yield progress
    finally:
        progress.stop()
