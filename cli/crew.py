"""A crew that does the tasks of a sweep: this process, one process a core, or a Dask cluster; with the same outcomes."""

from __future__ import annotations

import copyreg
import os
import pickle
import signal
import sys
from collections import Counter, deque
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Thread, active_count
from traceback import format_exc
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from roofcast.calculators.errors import UnansweredError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future, ProcessPoolExecutor

Setting = TypeVar("Setting")
Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def _unchanged(items: dict[object, object]) -> MappingProxyType[object, object]:
    """A mapping that nobody changes: settings hold such, and pickle does not know them by itself."""
    return MappingProxyType(items)


copyreg.pickle(MappingProxyType, lambda proxy: (_unchanged, (dict(proxy),)))

DEATHS: Final = 3  # of workers by the same task, until it is given up
AHEAD: Final = 2  # tasks that are handed out for each worker: one that it does, and the next
MOST_ON_WINDOWS: Final = 61  # processes that one call there can wait for


class DyingTaskError(UnansweredError):
    """A task whose worker ended every time that it was tried (exit 3)."""


class Crew(Protocol):
    """Who does the tasks of a sweep."""

    @property
    def size(self) -> int:
        """Tasks that are done at once, 1 or more."""

    def each(self, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Does every task; yields its number from 0 and its outcome, as they are done.

        A crew of several may still be at what it had begun where the iterator is left early.

        Raises:
            Exception: what a task raises, as it raised it.
            UnansweredError: a task ended its worker three times, or the cluster is gone.
        """


@contextmanager
def crew_of(
    work: Callable[[Setting, Task], Outcome], setting: Setting, *, jobs: int | None = None, dask: str | None = None
) -> Iterator[Crew]:
    """A crew whose members all have the setting, and get tasks; when it is left, nothing of it goes on.

    Processes start with the first `each` of several tasks. They are forked where this process has one thread: so a
    progress bar, which has a thread of its own, is better drawn from the first outcome on; behind one they start anew.

    Args:
        work: a function of a module, of the setting and one task; it depends on nothing else.
        setting: what all tasks share; each member gets it once.
        jobs: processes; 1 is this one alone, None one for each core that this process may use.
        dask: address of the scheduler of a Dask cluster, whose workers do the tasks instead.

    Raises:
        UsageError: fewer than one job, jobs of a cluster, or Dask is not installed.
        UnansweredError: no such cluster, or one that is not like this installation.
    """
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: 1 is this process alone, more are worker processes")
    if jobs is not None and dask is not None:
        raise UsageError(f"--jobs {jobs}: the workers of --dask {dask} are as many as they are; give one of the two")
    if dask is not None:
        from roofcast.cli.crew_dask import cluster_of

        with cluster_of(work, setting, dask) as cluster:
            yield cluster
        return
    several = cores() if jobs is None else jobs
    if several == 1:
        yield Alone(work, setting)
        return
    processes = Processes(work, setting, several)
    try:
        yield processes
    finally:
        processes.stop()


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --- what a member does


@dataclass(frozen=True, slots=True)
class Raised:
    """An error on its way to another process: errors with an __init__ of their own are not pickled well.

    Args:
        kind: its class.
        values: what it is made of anew, its text included.
        state: its attributes, notes included.
    """

    kind: type[Exception]
    values: tuple[object, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: Exception) -> Raised:
        """Packs an error; one that Python makes knows best what it is made of, a file's name for instance."""
        ours = isinstance(type(error).__init__, FunctionType)
        made_of: Any = error.__reduce__()[1]
        return cls(type(error), error.args if ours else made_of, dict(vars(error)))

    def error(self) -> Exception:
        """The error as it was raised: same class, same text."""
        if isinstance(self.kind.__init__, FunctionType):  # which takes other arguments than its text
            made: Exception = self.kind.__new__(self.kind, *self.values)
            made.args = self.values
        else:
            made = self.kind(*self.values)
        made.__dict__.update(self.state)
        return made


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a task: its outcome, or what it raised."""

    outcome: Any = None
    raised: Raised | None = None

    def opened(self) -> Any:  # noqa: ANN401 - whatever the work returns
        """The outcome; raises what the task raised."""
        if self.raised is not None:
            raise self.raised.error()
        return self.outcome


def answer(work: Callable[[Any, Any], Any], setting: object, task: object) -> Answer:
    """Does a task; what it raises is a part of the answer, so that it arrives as it is."""
    try:
        return Answer(work(setting, task))
    except Exception as error:  # noqa: BLE001 - raised again where the answer is opened
        error.add_note(f"In a worker:\n{format_exc()}")
        raised = Raised.of(error)
    try:
        pickle.loads(pickle.dumps(raised)).error()  # noqa: S301 - made one line above
    except Exception:  # noqa: BLE001 - of a class or with values that stay in this process
        told = (f"{raised.kind.__name__}: {' '.join(str(v) for v in raised.values)}",)
        return Answer(raised=Raised(RuntimeError, told, {"__notes__": raised.state["__notes__"]}))
    return Answer(raised=raised)


# --- this process alone


@dataclass(frozen=True, slots=True)
class Alone:
    """A crew of this process alone."""

    work: Callable[[Any, Any], Any]
    setting: object

    @property
    def size(self) -> int:
        """One."""
        return 1

    def each(self, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """One task after the other."""
        for number, task in enumerate(tasks):
            yield number, self.work(self.setting, task)


# --- processes of this machine

_PART: ContextVar[tuple[Callable[[Any, Any], Any], object]] = ContextVar("part")  # of a worker: its work and setting


def _begin(work: Callable[[Any, Any], Any], setting: object) -> None:
    """A worker starts: Ctrl-C is its parent's, and it ends when its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _PART.set((work, setting))
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _do(task: object) -> Answer:
    return answer(*_PART.get(), task)


def _may_fork() -> bool:
    """Whether this process can be copied: on Linux, while no other thread may hold a lock that the copy would wait for.

    Threads are counted as the system does it, since not all of them are Python's.
    """
    if sys.platform != "linux":
        return False
    with suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - there is nothing but to count them
    return active_count() == 1


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits: what starts in here never sees it."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class _Round:
    """How far the tasks of one `each` are, by their numbers."""

    waiting: deque[int]
    handed_out: dict[Future[Answer], int] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    deaths: Counter[int] = field(default_factory=Counter)

    def next(self, room: int) -> int | None:
        """The next to be handed out; one that may end its worker again is tried with none beside it, to be sure of it."""
        if not self.waiting or self.lost or len(self.handed_out) >= room:
            return None
        last_try = any(self.deaths[n] == DEATHS - 1 for n in (self.waiting[0], *self.handed_out.values()))
        return None if last_try and self.handed_out else self.waiting.popleft()

    def redo(self) -> None:
        """Puts back what was lost with a worker.

        Raises:
            DyingTaskError: one was lost too often.
        """
        self.deaths.update(self.lost)
        for number in self.lost:
            if self.deaths[number] >= DEATHS:
                raise DyingTaskError(
                    f"a worker process ended {DEATHS} times at the same task, as one does that runs out of memory; "
                    "--jobs 1 does it in one process"
                )
        self.waiting.extendleft(reversed(self.lost))
        self.lost.clear()


class Processes:
    """Worker processes, which `concurrent.futures` minds."""

    def __init__(self, work: Callable[[Any, Any], Any], setting: object, jobs: int) -> None:
        self._part = (work, setting)
        self._jobs = min(jobs, MOST_ON_WINDOWS) if sys.platform == "win32" else jobs
        self._pool: ProcessPoolExecutor | None = None
        self._workers = 0
        self._others: set[object] = set()  # children of this process that are none of the crew

    @property
    def size(self) -> int:
        """The most processes at once."""
        return self._jobs

    def each(self, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """As many at once as there are processes; a worker that ends loses nothing, its tasks are done again."""
        from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, wait

        if len(tasks) == 1 and self._pool is None:
            yield 0, answer(*self._part, tasks[0]).opened()
            return
        self._staff(len(tasks))
        at = _Round(deque(range(len(tasks))))
        while at.waiting or at.handed_out or at.lost:
            self._hand_out(tasks, at)
            for future in wait(at.handed_out, return_when=FIRST_COMPLETED).done:
                number = at.handed_out.pop(future)
                if isinstance(future.exception(), BrokenExecutor):
                    at.lost.append(number)
                else:
                    yield number, future.result().opened()
            if at.lost and not at.handed_out:
                at.redo()
                self._start(self._workers)

    def stop(self) -> None:
        """Ends the workers, whatever they are at."""
        from multiprocessing import active_children

        pool, self._pool = self._pool, None
        if pool is None:
            return
        with _uninterrupted():
            for child in active_children():
                if child not in self._others:
                    child.kill()
            pool.shutdown()

    def _staff(self, tasks: int) -> None:
        """Starts no more workers than there are tasks; all of them where that turns out to be too few."""
        if self._pool is None:
            self._start(min(self._jobs, tasks))
        elif self._workers < min(self._jobs, tasks):
            self._start(self._jobs)

    def _start(self, workers: int) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import active_children, get_context

        self.stop()
        self._others = set(active_children())
        self._workers = workers
        self._pool = ProcessPoolExecutor(
            workers, get_context("fork" if _may_fork() else "spawn"), initializer=_begin, initargs=self._part
        )

    def _hand_out(self, tasks: Sequence[Any], at: _Round) -> None:
        from concurrent.futures import BrokenExecutor

        if self._pool is None:
            raise RuntimeError("tasks for a crew that was left")
        while (number := at.next(AHEAD * self._workers)) is not None:
            try:
                with _uninterrupted():  # the pool starts processes and a thread when it is given work
                    at.handed_out[self._pool.submit(_do, tasks[number])] = number
            except BrokenExecutor:
                at.lost.append(number)
