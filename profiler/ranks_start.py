"""Brings ranks together: those that torchrun started, or processes that are started here, one for each device."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from roofcast.calculators.profiled_ranks import RankGroup
from roofcast.profiler.errors import LostRankError, ProfileUsageError, UnavailableError
from roofcast.profiler.ranks import GLOO, NCCL, Ranks
from roofcast.profiler.ranks_link import library_of, link_of
from roofcast.profiler.ranks_store import (
    DONE,
    PREFIX,
    Place,
    client,
    hosts,
    open_store,
    own_run,
    roll_call,
    same_work,
    say_end,
)
from roofcast.profiler.ranks_watch import Watcher
from roofcast.profiler.runtime import first_line, open_runtime, visible
from roofcast.profiler.signals import heard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import SpawnProcess
    from types import ModuleType

    from roofcast.profiler.ranks_watch import Loss
    from roofcast.profiler.runtime import Runtime

    #: what every rank runs; only the first one's answer counts
    Job = Callable[[Runtime], object]

UNDETERMINED: Final = 3  # exit code of a rank that lost the others
BACKENDS: Final = (NCCL, GLOO)
LAST: Final = 10.0  # seconds that a rank may take to end when all is done
#: what keeps torch's own lines about exchanges that fail, for which there is one of ours, as torch is loaded
QUIET: Final = {"TORCH_CPP_LOG_LEVEL": "FATAL", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Ranks that are asked for.

    Args:
        size: how many.
        backend: `nccl`, `gloo`, or None for what suits the device.
        wait: time that ranks wait for one another. [s]
        device: as --device names it; None is a GPU each where there are some.
        asked: what they measure, by name, which must be the same for all.
    """

    size: int
    backend: str | None = None
    wait: float = 60.0
    device: str | None = None
    asked: tuple[tuple[str, str], ...] = ()


def open_rank(wanted: Wanted, place: Place | None) -> Runtime:
    """The device of a rank, opened: of several GPUs each takes its own.

    Args:
        wanted: ranks, and the device as --device names it.
        place: among those of its host; None is the first of those that will be started here.

    Raises:
        ProfileUsageError: there are not as many GPUs.
        UnavailableError: as of `open_runtime`.
    """
    quiet()
    asked = wanted.device
    kind, _, number = (asked or "").partition(":")
    if asked is not None and (kind != "cuda" or (number and wanted.backend == GLOO)):
        return open_runtime(asked)
    if number and wanted.size > 1:
        raise ProfileUsageError(
            f"--device {asked}: ranks take one GPU each, in order; CUDA_VISIBLE_DEVICES chooses them "
            "(with --backend gloo they may share one)"
        )
    local, locals_ = (0, wanted.size) if place is None else (place.local, place.locals)
    there = [name for name in visible() if name.startswith("cuda")]
    if asked is None and not there:
        return open_runtime(asked)
    if locals_ > len(there):
        raise ProfileUsageError(
            f"{locals_} ranks need {locals_} GPUs, and torch sees {len(there)} here; --device cpu takes processes on the processor"
        )
    return open_runtime(f"cuda:{local}")


def backend_of(runtime: Runtime, asked: str | None) -> str:
    """What exchanges between ranks: NCCL (on AMD RCCL, under that name) between GPUs, gloo elsewhere.

    Raises:
        ProfileUsageError: one that is not known, or that the device has not.
    """
    if asked is None:
        return NCCL if runtime.on_cuda else GLOO
    if asked not in BACKENDS:
        raise ProfileUsageError(f"--backend {asked}: known: {', '.join(BACKENDS)}")
    if asked == NCCL and not runtime.on_cuda:
        raise ProfileUsageError(f"--backend nccl: it joins GPUs, and {runtime.machine.name} is none; gloo does")
    return asked


@contextmanager
def together(runtime: Runtime, place: Place | None, wanted: Wanted, job: Job) -> Iterator[Runtime]:
    """Makes this process a rank: of those that torchrun started, or the first of those that are started here.

    Args:
        runtime: its device, opened.
        place: among torchrun's ranks; None where nothing started this process.
        wanted: how many, and how they exchange.
        job: what the ranks that are started here run.

    Raises:
        UnavailableError: they cannot come together.
        LostRankError: one is lost on the way.
    """
    quiet()
    backend = backend_of(runtime, wanted.backend)
    _must_have(runtime.torch, backend)
    opening = place or Place(0, wanted.size, 0, wanted.size, own=True)
    store = open_store(runtime.torch, opening, wanted.wait)
    store, settled = own_run(runtime.torch, store, place or replace(opening, port=store.port))
    workers = () if place else _start(settled, wanted, runtime, job)
    patience = 0.0
    try:
        with _joined(runtime, settled, wanted, store, workers) as joined:
            patience = LAST / 2
            yield joined
    finally:
        _end(workers, patience)


def quiet() -> None:
    """Has torch say nothing of exchanges that fail; before it is loaded."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def _must_have(torch: ModuleType, backend: str) -> None:
    """Refuses a torch without the library.

    Raises:
        UnavailableError: it has none.
    """
    distributed = torch.distributed
    if not distributed.is_available():
        raise UnavailableError(f"torch {torch.__version__} is built without torch.distributed: ranks cannot exchange")
    if not getattr(distributed, f"is_{backend}_available")():
        raise UnavailableError(f"torch {torch.__version__} is built without {backend}: ranks cannot exchange by it")


def _start(place: Place, wanted: Wanted, runtime: Runtime, job: Job) -> tuple[SpawnProcess, ...]:
    """Starts the other ranks, each in a process of its own.

    Raises:
        UnavailableError: the system starts no more.
    """
    context = multiprocessing.get_context("spawn")
    wanted = replace(wanted, device=wanted.device or runtime.device.type)
    workers = []
    try:
        for rank in range(1, place.size):
            own = replace(place, rank=rank, local=rank)
            workers.append(context.Process(target=follow, args=(own, wanted, job), daemon=True, name=f"rank {rank}"))
            with heard(signal.SIGINT, signal.SIG_IGN):  # from its first moment: the first rank decides
                workers[-1].start()
    except OSError as error:
        _end(tuple(workers[:-1]))
        raise UnavailableError(f"rank {len(workers)} of {place.size} could not be started ({error})") from error
    return tuple(workers)


def follow(place: Place, wanted: Wanted, job: Job) -> None:
    """The life of a rank that was started here: it joins, runs the job, and leaves the answer to the first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first rank decides
    quiet()
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - until the end
    store = None
    try:
        runtime = open_rank(wanted, place)
        store, place = own_run(runtime.torch, open_store(runtime.torch, place, wanted.wait), place)
        with _joined(runtime, place, wanted, store, ()) as joined:
            job(joined)
    except (UnavailableError, ProfileUsageError, ArithmeticError) as error:
        _leave(store, place.rank, str(error))
    except Exception as error:  # noqa: BLE001 - a fault of ours: the first rank says whose
        _leave(store, place.rank, f"{type(error).__name__}: {first_line(error)}")


def _leave(store: Any, rank: int, line: str) -> None:  # noqa: ANN401 - torch has no types here
    """Says why, and goes: whatever hangs in an exchange would keep the process."""
    with suppress(Exception):
        say_end(store, rank, f"rank {rank}: {line}")
    os._exit(UNDETERMINED)


@contextmanager
def _joined(
    runtime: Runtime,
    place: Place,
    wanted: Wanted,
    store: Any,  # noqa: ANN401 - torch has no types here
    workers: tuple[SpawnProcess, ...],
) -> Iterator[Runtime]:
    """A rank among all: after the roll call, with a group that exchanges and a watcher that sees whether all are there."""
    torch, backend = runtime.torch, backend_of(runtime, wanted.backend)
    roll_call(store, place, wanted.wait, partial(_refuse_dead, workers, place.size))
    same_work(store, place, dict(wanted.asked))
    if runtime.kind == "cpu":
        torch.set_num_threads(
            max(
                1,
                (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
                // place.locals,
            )
        )
    group = RankGroup(
        place.size, backend, hosts(store, place.size), library_of(torch, backend), link_of(runtime, place)
    )
    watcher = Watcher(
        connect=partial(client, torch, place, wanted.wait),
        rank=place.rank,
        size=place.size,
        told=partial(_told, runtime, place, backend, workers),
        dead=lambda rank: _how(workers[rank - 1]) if workers and rank else None,
    )
    _init(runtime, place, backend, store, wanted.wait)
    watcher.start()
    line = DONE
    try:
        yield replace(runtime, ranks=Ranks(torch, place, backend, group, store, watcher))
    except LostRankError as error:
        line = "" if watcher.loss is not None else str(error)
        raise
    except Exception as error:
        line = f"rank {place.rank}: {first_line(error)}"
        raise
    finally:
        _part(torch, place, store, watcher, line)


def _init(runtime: Runtime, place: Place, backend: str, store: Any, wait: float) -> None:  # noqa: ANN401 - likewise
    """Makes the group.

    Raises:
        LostRankError: it does not come about.
    """
    distributed = runtime.torch.distributed
    own = {"device_id": runtime.device} if backend == NCCL else {}
    try:
        distributed.init_process_group(
            backend,
            store=distributed.PrefixStore(f"{PREFIX} group", store),
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=wait),
            **own,
        )
    except (RuntimeError, ValueError) as error:
        raise LostRankError(f"{place.size} ranks cannot be joined by {backend} ({first_line(error)})") from error


def _part(torch: ModuleType, place: Place, store: Any, watcher: Watcher, line: str) -> None:  # noqa: ANN401 - likewise
    """Leaves the group; the first rank, which holds the store, after the others."""
    with suppress(RuntimeError, OSError):
        say_end(store, place.rank, line)
    if watcher.loss is None and not line:
        until = monotonic() + LAST
        others = [f"{PREFIX}/end/{rank}" for rank in range(1, place.size)]
        with suppress(RuntimeError, OSError):
            while place.rank == 0 and others and not store.check(others) and monotonic() < until:
                sleep(0.02)
    watcher.stop()
    with suppress(RuntimeError, ValueError, AssertionError):
        torch.distributed.destroy_process_group()


def _told(runtime: Runtime, place: Place, backend: str, workers: tuple[SpawnProcess, ...], loss: Loss) -> None:
    """What a rank does that has lost others, in the watcher's thread: the first wakes up and tells, the others go."""
    if place.rank:
        if loss.line and min(set(range(place.size)) - set(loss.ranks)) == place.rank:
            print(f"roofcast: {loss.line}", file=sys.stderr, flush=True)  # noqa: T201 - no other is left to say it
        os._exit(UNDETERMINED if loss.line else 0)
    for rank in loss.ranks:
        if rank and workers:
            workers[rank - 1].kill()  # one that no longer answers keeps its connections, and so the exchange
    if backend == NCCL:
        with suppress(Exception):
            runtime.torch.distributed.distributed_c10d._abort_process_group()  # noqa: SLF001 - kernels that wait end


def _refuse_dead(workers: tuple[SpawnProcess, ...], size: int) -> None:
    """Refuses to wait for a process that has ended.

    Raises:
        LostRankError: one has.
    """
    for number, worker in enumerate(workers, 1):
        how = _how(worker)
        if how is not None:
            raise LostRankError(f"rank {number} of {size} {how} before it had come")


def _how(worker: SpawnProcess) -> str | None:
    """How a process ended; None where it has not, or has ended well."""
    code = worker.exitcode
    if not code:
        return None
    if code > 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}" + (", as where memory is short" if name == "SIGKILL" else "")


def _end(workers: tuple[SpawnProcess, ...], patience: float = 0.0) -> None:
    """Sees that none is left: those that do not end by themselves in time, of all together, are ended."""
    until = monotonic() + patience
    for worker in workers:
        worker.join(max(0.0, until - monotonic()))
    for worker in workers:
        if worker.is_alive():
            worker.kill()
            worker.join(LAST)
