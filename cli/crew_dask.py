"""The workers of a Dask cluster as a crew."""

from __future__ import annotations

import logging
import sys
import warnings
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from importlib.metadata import version
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, Protocol

from roofcast.calculators.errors import UnansweredError, UsageError
from roofcast.cli.crew import DEATHS, DyingTaskError, answer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from roofcast.cli.crew import Answer

PATIENCE: Final = 5.0  # until a scheduler that does not answer, or has no workers, is given up [s]
LONELY: Final = 30.0  # likewise one whose workers are all gone: what minds them may start others [s]
PIECES: Final = 16  # of the tasks, for each thread of the cluster: a scheduler takes milliseconds over each
MOST: Final = 4  # tasks of a piece: a worker that has begun one ends it, even if nobody waits any more
LOOK: Final = 0.02  # between two looks at what is done [s]


class ClusterError(UnansweredError):
    """A Dask cluster that is not there, not like this installation, or gone (exit 3)."""


class Future(Protocol):
    """What is used of a task's, or a value's, handle of `distributed`."""

    status: str

    def exception(self) -> BaseException | None:
        """What was raised in place of a result."""


class Client(Protocol):
    """What is used of a client of `distributed`, most of which has no types."""

    status: str
    loop: object

    def submit(self, function: Callable[..., Any], *arguments: object, pure: bool) -> Future:
        """Hands a task in."""

    def gather(self, futures: Sequence[Future]) -> list[Any]:
        """Results."""

    def scatter(self, data: Sequence[object], *, broadcast: bool, hash: bool) -> list[Future]:
        """Sends values to workers."""

    def cancel(self, futures: Sequence[Future]) -> None:
        """Takes tasks back."""

    def nthreads(self) -> dict[str, int]:
        """Threads of each worker."""

    def run(self, function: Callable[[], str], *, on_error: str) -> dict[str, str | BaseException]:
        """What each worker says."""

    def wait_for_workers(self, n_workers: int, timeout: float) -> None:
        """Waits for some."""

    def close(self, timeout: float) -> None:
        """Leaves."""


class LostError(ClusterError):
    """What a cluster had went with one of its workers."""


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
        """The scheduler gets all at once, in pieces; it has those done again whose worker ends."""
        left = list(range(len(tasks)))
        for attempt in range(DEATHS):
            if attempt:  # the setting went with the last worker that had it; another may be starting
                with self._reached():
                    self._client.wait_for_workers(1, timeout=LONELY)
                self._shipped = self._ship()
            lost: list[int] = []
            yield from self._attempt(tasks, left, lost)
            if not lost:
                return
            left = lost
        raise DyingTaskError(
            f"all workers of the Dask cluster at {self._address} ended {DEATHS} times at the same tasks"
        )

    def _attempt(self, tasks: Sequence[Any], left: Sequence[int], lost: list[int]) -> Iterator[tuple[int, Any]]:
        """Does those tasks; adds to `lost` what was neither done nor refused."""
        several = min(MOST, max(1, len(left) // (self._size * PIECES)))
        numbers: dict[Future, Sequence[int]] = {}
        try:
            with self._reached():
                for start in range(0, len(left), several):
                    some = left[start : start + several]
                    numbers[self._client.submit(_do, self._shipped, [tasks[n] for n in some], pure=False)] = some
            for batch in self._batches(list(numbers)):
                done = [f for f in batch if f.status == "finished"]
                for future in batch:
                    if future.status == "error":
                        raise self._failure(future)
                    if future.status != "finished":
                        lost.extend(numbers[future])
                for future, got in self._gathered(done):
                    if got is None:
                        lost.extend(numbers[future])
                        continue
                    yield from zip(numbers.pop(future), (a.opened() for a in got), strict=True)
        finally:
            with suppress(Exception, CancelledError):  # with the scheduler, all of them are gone
                self._client.cancel(list(numbers))

    def _gathered(self, done: Sequence[Future]) -> Iterator[tuple[Future, list[Answer] | None]]:
        """Answers that workers keep; None where they went with their worker, and cannot be made anew without us."""
        try:
            with self._reached():
                answers: list[list[Answer]] = self._client.gather(done)
        except LostError:
            for future in done:
                yield future, None
        else:
            yield from zip(done, answers, strict=True)

    def _batches(self, futures: list[Future]) -> Iterator[list[Future]]:
        """What is done since the last look.

        Raises:
            ClusterError: the scheduler is gone, or all workers are and no others come.
        """
        from distributed import as_completed

        watch: Callable[..., Any] = as_completed
        coming = watch(futures, loop=self._client.loop)
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
        with self._reached():
            try:
                return self._client.scatter([self._part], broadcast=True, hash=False)[0]
            except (OSError, CancelledError):
                raise
            except Exception as error:
                raise ClusterError(
                    f"the workers of the Dask cluster at {self._address} cannot take the tasks: {_told(error)}"
                ) from error

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

    def _check(self, cause: BaseException | None = None) -> None:
        if self._client.status != "running":
            raise ClusterError(
                f"the Dask scheduler at {self._address} went away while its workers were at work"
            ) from cause

    @contextmanager
    def _reached(self) -> Iterator[None]:
        """Where the scheduler is asked.

        Raises:
            ClusterError: it is gone.
            LostError: it is not, but what it was asked for is.
        """
        try:
            yield
        except ClusterError:
            raise
        except Exception as error:
            self._check(error)
            if isinstance(error, (OSError, CancelledError)):
                raise LostError(f"the Dask scheduler at {self._address} could not say: {_told(error)}") from error
            raise


def _do(part: tuple[Callable[[Any, Any], Any], object], tasks: Sequence[object]) -> list[Answer]:
    return [answer(*part, task) for task in tasks]


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
    from distributed.comm.addressing import get_address_host_port, parse_address
    from distributed.comm.registry import get_backend

    try:
        get_backend(parse_address(address)[0])
        get_address_host_port(address)
    except (ValueError, NotImplementedError) as error:
        raise UsageError(f"--dask {address}: {error}; an address is tcp://HOST:PORT") from error
    try:
        client = _connected(address)
    except (RuntimeError, TypeError) as error:  # certificates, of tls://
        raise ClusterError(f"--dask {address}: {str(error).partition('.')[0]}") from error
    except OSError as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address}: `dask scheduler` starts one, and prints its address"
        ) from error
    try:
        yield client
    finally:
        with suppress(Exception, CancelledError):
            client.close(timeout=1)


def _connected(address: str) -> Client:
    """A client of that scheduler; in a thread, since what answers and is no scheduler would keep it for ever."""
    import distributed

    class OneClient(distributed.Client):
        def __del__(self) -> None:
            """It is closed by hand; one that never started would complain on stderr."""

    make: Callable[..., Any] = OneClient
    got: list[Client] = []
    failed: list[Exception] = []

    def connect() -> None:
        try:
            got.append(make(address, timeout=PATIENCE, set_as_default=False, name="roofcast"))
        except Exception as error:  # noqa: BLE001 - raised again beside the thread
            failed.append(error)

    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(PATIENCE + 1)
    if failed:
        raise failed[0]
    if not got:
        raise TimeoutError
    return got[0]


def _alike(client: Client, address: str) -> int:
    """Threads of all workers, which must have this version of roofcast: one that computes otherwise answers otherwise.

    Python's minor version counts too: since 3.12 its sum() of floats rounds otherwise.
    """
    try:
        client.wait_for_workers(1, timeout=PATIENCE)
    except TimeoutError as error:
        raise ClusterError(
            f"the Dask scheduler at {address} has no workers: `dask worker {address}` starts some"
        ) from error
    ours = _versions()
    for worker, theirs in client.run(_versions, on_error="return").items():
        if isinstance(theirs, BaseException):
            raise ClusterError(f"the Dask worker at {worker} cannot run {ours}: {_told(theirs)}") from theirs
        if theirs != ours:
            raise ClusterError(
                f"the Dask worker at {worker} has {theirs}, here it is {ours}: they may not answer alike"
            )
    return max(1, sum(client.nthreads().values()))


def _versions() -> str:
    return f"roofcast {version('roofcast')} on Python {sys.version_info.major}.{sys.version_info.minor}"


def _told(error: BaseException | None) -> str:
    return str(error) if type(error) is Exception else f"{type(error).__name__}: {error}"
