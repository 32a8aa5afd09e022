"""A file of requests: opened afresh at every reading, or kept where it can be read only once."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TextIO

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roofcast.calculators.serving.job import Job
    from roofcast.calculators.serving.lengths import Pairs

STDIN: Final = "-"
LARGEST: Final = 1_000_000_000  # characters that are kept of what can be read only once


@dataclass(slots=True)
class Source:
    """A trace's file. `look` comes first.

    Args:
        option: which names it.
        path: as given; `-` is standard input.
        asked: tokens of one id of its hashes; None is as its format has it. [token]
        hash_tokens: the same once it is known; None where it has no hashes. [token]
        left_out: requests of the last reading that failed where they were recorded.
    """

    option: str
    path: str
    asked: int | None = None
    hash_tokens: int | None = field(default=None, init=False)
    left_out: int = field(default=0, init=False)
    _kept: list[str] | None = field(default=None, init=False)
    _state: tuple[int, ...] | None = field(default=None, init=False)
    _pairs: Pairs | None = field(default=None, init=False)

    @property
    def called(self) -> str:
        """How complaints begin."""
        return f"{self.option} {self.path}"

    @property
    def name(self) -> str:
        """As to be shown: a file without its folder, a pipe with it."""
        if self.path == STDIN:
            return "standard input"
        return self.path if self._kept is not None else Path(self.path).name

    def look(self) -> None:
        """Opens it and reads its first request.

        Raises:
            UsageError: it cannot be read, is no trace, or its first row is wrong.
        """
        if self._state is None and self._kept is None:
            with self._open() as file:
                if self.path == STDIN or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    self._kept = _all_lines(file, self.called)
                else:
                    self._state = _state(file)
        next(self.jobs())

    def jobs(self) -> Iterator[Job]:
        """Its requests, from the first on.

        Raises:
            UsageError: it cannot be read any more, is another one now, or has a row that cannot be.
        """
        from roofcast.calculators.serving.trace import trace_lines

        if self._kept is not None:
            yield from self._read(self._kept)
            return
        with self._open() as file:
            if _state(file) != self._state:
                self._refuse_changed()
            yield from self._read(trace_lines(file, self.called))
            if _state(file) != self._state:
                self._refuse_changed()

    def pairs(self) -> Pairs:
        """Lengths of all its requests, read once."""
        from roofcast.calculators.serving.lengths import pairs_of

        if self._pairs is None:
            self._pairs = pairs_of(self.jobs(), f"lengths of {self.name}")
        return self._pairs

    def _read(self, lines: Iterable[str]) -> Iterator[Job]:
        """The requests of lines."""
        from roofcast.calculators.serving.trace import read_trace

        trace = read_trace(lines, self.called, self.asked)
        self.hash_tokens = trace.hash_tokens
        try:
            yield from trace
        finally:
            self.left_out = trace.left_out

    def _refuse_changed(self) -> NoReturn:
        raise UsageError(f"{self.called}: it changed while it was read; simulate a file that nothing writes to")

    @contextmanager
    def _open(self) -> Iterator[TextIO]:
        """The file as text.

        Raises:
            UsageError: it cannot be opened, or read on.
        """
        try:
            with _stdin(self.called) if self.path == STDIN else _file(self.path, self.called) as file:
                yield file
        except OSError as error:
            raise UsageError(f"{self.called}: it cannot be read ({error.strerror or error})") from error
        except UsageError:
            raise
        except ValueError as error:  # a name with a NUL byte
            raise UsageError(f"{self.option} {self.path!r}: it cannot be read ({error})") from error


@contextmanager
def _stdin(called: str) -> Iterator[TextIO]:
    """Standard input, which is left open."""
    if sys.stdin is None:
        raise UsageError(f"{called}: standard input is closed")
    file = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="replace", newline="\n")
    try:
        yield file
    finally:
        file.detach()


def _file(path: str, called: str) -> TextIO:
    """A file that is opened."""
    if Path(path).is_dir():
        raise UsageError(f"{called}: it is a folder; name a file in it")
    return Path(path).open(encoding="utf-8-sig", errors="replace", newline="\n")


def _state(file: TextIO) -> tuple[int, ...]:
    """What tells a file from another one, and from itself once it is written to."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _all_lines(file: TextIO, called: str) -> list[str]:
    """All lines, which are kept.

    Raises:
        UsageError: they are too many.
    """
    from roofcast.calculators.serving.trace import trace_lines

    kept, size = [], 0
    for line in trace_lines(file, called):
        size += len(line)
        if size > LARGEST:
            raise UsageError(f"{called}: it has more than {LARGEST // 1_000_000:,} MB; give it as a file")
        kept.append(line)
    return kept
