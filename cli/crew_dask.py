"""The workers of a Dask cluster as a crew."""

from __future__ import annotations

import logging
import sys
import warnings
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from importlib.metadata import version
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli.crew import DEATHS, DyingTaskError, answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client, Future, as_completed

    from roofcast.cli.crew import Answer

PATIENCE: Final = 5.0  # until a scheduler that does not answer, or has no workers, is given up [s]
LONELY: Final = 30.0  # likewise one whose workers are all gone: what minds them may start others [s]
LOOK: Final = 0.02  # between two looks at what is done [s]


class ClusterError(UnansweredError):
    """A Dask cluster that is not there, not like this installation, or gone (exit 3)."""


@contextmanager
def cluster_of(work: Callable[[Any, Any], Any], setting: object, address: str) -> Iterator[Cluster]:
    """A crew of all workers of the cluster; its tasks are taken back when it is left.

    Args:
        work: a function of a module that the workers have.
        setting: what each worker gets once.
        address: of the scheduler, tcp://127.0.0.1:8786.

    Raises:
        UsageError: Dask is not installed, or that is no address.
        ClusterError: no scheduler there, no workers, or workers with another version.
    """
    try:
        import distributed  # noqa: F401 - whether it is there
    except ImportError as error:
        raise UsageError("--dask needs Dask, which is not installed: pip install 'roofcast[distributed]'") from error
    with _silent(), _client(address) as client:
        yield Cluster(client, address, work, setting)


class Cluster:
    """The workers of one scheduler."""

    def __init__(self, client: Client, address: str, work: Callable[[Any, Any], Any], setting: object) -> None:
        self._client = client
        self._address = address
        self._part = (work, setting)
        with self._reached():
            self._size = _alike(client, address)
            self._shipped = self._ship()

    @property
    def size(self) -> int:
        """Threads of all workers, as the scheduler reported them at first."""
        return self._size

    def each(self, tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """All tasks are the scheduler's at once; it has those done again whose worker ends."""
        left = list(range(len(tasks)))
        for attempt in range(DEATHS):
            if attempt:  # the setting went with the last worker that had it
                with self._reached():
                    self._shipped = self._ship()
            lost: list[int] = []
            yield from self._attempt(tasks, left, lost)
            if not lost:
                return
            left = lost
        raise DyingTaskError(f"all workers of the Dask cluster at {self._address} ended {DEATHS} times at the same tasks")

    def _attempt(self, tasks: Sequence[Any], left: Sequence[int], lost: list[int]) -> Iterator[tuple[int, Any]]:
        """Does those tasks; adds to `lost` what was neither done nor refused."""
        numbers: dict[Future, int] = {}
        try:
            with self._reached():
                for n in left:
                    numbers[self._client.submit(_do, self._shipped, tasks[n], pure=False)] = n
            for batch in self._batches(list(numbers)):
                done = [f for f in batch if f.status == "finished"]
                lost.extend(numbers[f] for f in batch if f.status not in {"finished", "error"})
                for future in batch:
                    if future.status == "error":
                        raise self._failure(future)
                with self._reached():
                    answers: list[Answer] = self._client.gather(done)
                for future, got in zip(done, answers, strict=True):
                    yield numbers.pop(future), got.opened()
        finally:
            with suppress(Exception, CancelledError):  # with the scheduler, all of them are gone
                self._client.cancel(list(numbers))

    def _batches(self, futures: list[Future]) -> Iterator[list[Future]]:
        """What is done since the last look.

        Raises:
            ClusterError: the scheduler is gone, or all workers are and no others come.
        """
        from distributed import as_completed

        coming: as_completed = as_completed(futures)
        since = monotonic()
        while not coming.is_empty():
            self._check()
            if coming.has_ready():
                yield coming.next_batch(block=False)
                since = monotonic()
            elif monotonic() - since < LONELY:
                sleep(LOOK)
            else:
                with self._reached():
                    alone = not self._client.nthreads()
                if alone:
                    raise ClusterError(f"the Dask cluster at {self._address} has no workers any more: start some")
                since = monotonic()

    def _ship(self) -> Future:
        """Sends the setting to every worker; tasks only name it."""
        return self._client.scatter([self._part], broadcast=True, hash=False)[0]

    def _failure(self, future: Future) -> BaseException:
        """Why the scheduler gave a task up."""
        from distributed import KilledWorker

        with self._reached():
            error = future.exception()
        if isinstance(error, KilledWorker):
            return DyingTaskError(
                f"every worker of the Dask cluster at {self._address} that tried one of the tasks ended at it, as one "
                "does that runs out of memory"
            )
        return ClusterError(f"a worker of the Dask cluster at {self._address} cannot do its task: {_told(error)}")

    def _check(self) -> None:
        if self._client.status != "running":
            raise ClusterError(f"the Dask scheduler at {self._address} went away while its workers were at work")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Where the scheduler is asked: it may be gone."""
        from distributed.client import ClosedClientError

        try:
            yield
        except (OSError, CancelledError, ClosedClientError) as error:
            raise ClusterError(
                f"the Dask scheduler at {self._address} went away while its workers were at work"
            ) from error


def _do(part: tuple[Callable[[Any, Any], Any], object], task: object) -> Answer:
    return answer(*part, task)


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing of what Dask logs is for the user of a command: errors are told in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # versions of packages that no task uses
            yield
    finally:
        logging.disable(before)


@contextmanager
def _client(address: str) -> Iterator[Client]:
    """The scheduler at that address."""
    from distributed import Client

    try:
        client = Client(address, timeout=PATIENCE, set_as_default=False, name="roofcast")
    except ValueError as error:
        raise UsageError(f"--dask {address}: {_told(error)}; an address is tcp://HOST:PORT") from error
    except (OSError, RuntimeError, TypeError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: `dask scheduler` starts one, and prints its address"
        ) from error
    try:
        yield client
    finally:
        with suppress(Exception, CancelledError):
            client.close(timeout=1)


def _alike(client: Client, address: str) -> int:
    """Threads of all workers, which must have this version of roofcast: one that computes otherwise answers otherwise.

    Python's minor version counts too: since 3.12 its sum() of floats rounds otherwise.
    """
    from distributed import TimeoutError as TooLate

    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except (TooLate, TimeoutError) as error:
        raise ClusterError(
            f"the Dask scheduler at {address} has no workers: `dask worker {address}` starts some"
        ) from error
    ours = _versions()
    for worker, theirs in client.run(_versions, on_error="return").items():
        if isinstance(theirs, BaseException):
            raise ClusterError(f"the Dask worker at {worker} cannot run {ours}: {_told(theirs)}") from theirs
        if theirs != ours:
            raise ClusterError(f"the Dask worker at {worker} has {theirs}, here it is {ours}: they may not answer alike")
    return max(1, sum(client.nthreads().values()))


def _versions() -> str:
    return f"roofcast {version('roofcast')} on Python {sys.version_info.major}.{sys.version_info.minor}"


def _told(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"
