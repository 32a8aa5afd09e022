"""Where ranks meet: their places as torchrun tells them, the store they all reach, and the roll call."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from roofcast.profiler.errors import DifferentWorkError, LostRankError, ProfileUsageError, UnavailableError
from roofcast.profiler.runtime import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

LOOPBACK: Final = "127.0.0.1"
POLL: Final = 0.05  # seconds between two looks at who has come
GRACE: Final = 1.0  # seconds more, in which torch itself says that nothing answers
NAMED: Final = 8  # ranks that an error names one by one
PREFIX: Final = "roofcast"
DONE: Final = ""  # how a rank ends that has nothing to say
STUCK: Final[list[Thread]] = []  # threads that wait in torch without end, and would have it abort as the program ends
MOST_PORT: Final = 65535
MOST_RANKS: Final = 4096
MOST_DIGITS: Final = 9  # of a number that a variable holds
STARTED: Final = ("RANK", "WORLD_SIZE")  # what torchrun, or whoever starts ranks, sets
BESIDE: Final = ("MASTER_PORT", "LOCAL_RANK")  # and what tells that one of these alone is a slip


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's place among all.

    Args:
        rank, size: its number from 0, and how many there are.
        local, locals: the same of its host.
        host, port: where the store is, which rank 0 opens unless `shared`.
        shared: whether another process, torchrun's agent, holds the store.
        attempt: how often torchrun has started them before.
        run: which program of this kind it is, of those that one start of torchrun runs one after the other.
        own: whether the ranks are started here.
    """

    rank: int
    size: int
    local: int = 0
    locals: int = 1
    host: str = LOOPBACK
    port: int = 0
    shared: bool = False
    attempt: int = 0
    run: int = 1
    own: bool = False


def place_of(environ: Mapping[str, str]) -> Place | None:
    """The place that torchrun gives a process; None where nothing started it as a rank.

    Raises:
        ProfileUsageError: variables that cannot be, naming the one.

    >>> place_of({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}).host
    'node0'
    >>> place_of({})
    """
    lacking = [name for name in STARTED if name not in environ]
    if len(lacking) == len(STARTED) or (lacking and not any(name in environ for name in BESIDE)):
        return None
    size = _number(environ, "WORLD_SIZE", 1, MOST_RANKS)
    rank = _number(environ, "RANK", 0, size - 1)
    return Place(
        rank=rank,
        size=size,
        local=_number(environ, "LOCAL_RANK", 0, size - 1) if "LOCAL_RANK" in environ else rank,
        locals=_number(environ, "LOCAL_WORLD_SIZE", 1, size) if "LOCAL_WORLD_SIZE" in environ else size,
        host=environ.get("MASTER_ADDR") or LOOPBACK,
        port=_number(environ, "MASTER_PORT", 1, MOST_PORT),
        shared=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT", 0) if "TORCHELASTIC_RESTART_COUNT" in environ else 0,
    )


def _number(environ: Mapping[str, str], name: str, least: int, most: int | None = None) -> int:
    text = environ.get(name, "").strip()
    span = f"{least:,} to {most:,}" if most is not None else f"{least:,} or more"
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else -1
    if not least <= number <= (number if most is None else most):
        said = f"{name}={text[:40]}" if text else f"{name} is not set"
        raise ProfileUsageError(f"{said}: of ranks that something else started it must be {span}; torchrun sets it")
    return number


def open_store(torch: ModuleType, place: Place, wait: float) -> Any:  # noqa: ANN401 - torch has no types here
    """The store of all ranks: rank 0 opens it unless another process holds it, the others find it.

    Raises:
        UnavailableError: the port is in use, or nothing answers there in time.
    """
    opens = place.rank == 0 and not place.shared
    if not opens:
        _reach(place, wait)
    found: list[Any] = []
    broken: list[BaseException] = []

    def connect() -> None:
        try:
            found.append(client(torch, place, wait, opens=opens))
        except (RuntimeError, OSError, ValueError) as error:  # torch's DistNetworkError is a RuntimeError
            broken.append(error)

    thread = Thread(target=connect, daemon=True)  # torch waits without end for a stranger to answer
    thread.start()
    thread.join(wait + GRACE)
    if broken:
        raise UnavailableError(_unopened(place, broken[0], opens=opens)) from broken[0]
    if not found:
        STUCK.append(thread)
        raise UnavailableError(_silent(place, opens=opens))
    return found[0]


def own_run(torch: ModuleType, store: Any, place: Place) -> tuple[Any, Place]:  # noqa: ANN401 - likewise
    """The part of the store that is this run's own, where torchrun's is shared by programs that run one after the other.

    Raises:
        UnavailableError: another process is the same rank.
    """
    run = int(store.add(f"{PREFIX}/runs/{place.rank}", 1))
    if run == 1:
        return store, place
    if not place.shared:
        raise UnavailableError(f"two processes are rank {place.rank} of {place.size}: each needs a RANK of its own")
    own = replace(place, run=run)
    return _of_run(torch, store, own), own


def _of_run(torch: ModuleType, store: Any, place: Place) -> Any:  # noqa: ANN401 - likewise
    return store if place.run == 1 else torch.distributed.PrefixStore(f"run {place.run}", store)


def _reach(place: Place, wait: float) -> None:
    """Waits until somebody listens where the store is.

    Raises:
        LostRankError: nobody does.
    """
    until = monotonic() + wait
    while True:
        try:
            with socket.create_connection((place.host, place.port), timeout=wait):
                return
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that cannot be one
            if monotonic() > until or isinstance(error, UnicodeError):
                raise LostRankError(
                    f"rank {place.rank} of {place.size} found no rank 0 at {place.host}:{place.port} within {wait:.0f} s "
                    f"({getattr(error, 'strerror', None) or error}): start it, or check MASTER_ADDR and MASTER_PORT"
                ) from error
            sleep(POLL)


def client(torch: ModuleType, place: Place, wait: float, *, opens: bool = False) -> Any:  # noqa: ANN401 - likewise
    """A connection of its own to the store, or with `opens` the store itself."""
    distributed = torch.distributed
    store = distributed.TCPStore(
        place.host,
        place.port,
        None,
        opens,
        timeout=timedelta(seconds=wait),
        wait_for_workers=False,
    )
    store = store if place.attempt == 0 else distributed.PrefixStore(f"attempt {place.attempt}", store)
    return _of_run(torch, store, place)


def _unopened(place: Place, error: BaseException, *, opens: bool) -> str:
    where = f"{place.host}:{place.port}"
    text = str(error)
    if opens and ("EADDRINUSE" in text or "address already in use" in text.lower()):
        return (
            f"MASTER_PORT {place.port} is in use on {place.host}: give another (torchrun --master-port), "
            "or end the program that has it"
        )
    if opens:
        return f"rank 0 cannot open {where} for the other ranks ({first_line(error)}); MASTER_ADDR must be its own host"
    return (
        f"rank {place.rank} of {place.size} cannot join rank 0 at {where} ({first_line(error)}): check MASTER_ADDR and "
        "MASTER_PORT, and whether another program has that port"
    )


def _silent(place: Place, *, opens: bool) -> str:
    """Why torch did not come back in time."""
    where = f"{place.host}:{place.port}"
    if opens:
        return f"rank 0 cannot open {where} for the other ranks: MASTER_ADDR must be its own host"
    return f"{where} is no meeting place of ranks: another program answers there; give another MASTER_PORT"


def roll_call(store: Any, place: Place, wait: float, look: Callable[[], None]) -> None:  # noqa: ANN401 - likewise
    """Waits until every rank has come.

    Args:
        store: of all.
        place: of this one.
        wait: at most. [s]
        look: raises where one is known never to come.

    Raises:
        LostRankError: some have not come, naming them.
    """
    until = monotonic() + wait
    try:
        store.set(f"{PREFIX}/here/{place.rank}", os.uname().nodename if hasattr(os, "uname") else "")
        missing = list(range(place.size))
        while missing := [rank for rank in missing if not store.check([f"{PREFIX}/here/{rank}"])]:
            look()
            if monotonic() > until:
                raise LostRankError(missing_line(missing, place.size, wait, started=place.own))
            sleep(POLL)
    except (RuntimeError, OSError) as error:
        raise LostRankError(f"rank 0 of {place.size} ended before all had come ({first_line(error)})") from error


def same_work(store: Any, place: Place, asked: Mapping[str, str]) -> None:  # noqa: ANN401 - likewise
    """Refuses ranks that were asked for other work than the first, which would wait for one another without end.

    Args:
        store: of all, which have come.
        place: of this one.
        asked: what it is asked for, by name.

    Raises:
        DifferentWorkError: on every rank alike, naming the first that differs, and in what.
        LostRankError: one has gone.
    """
    try:
        store.set(f"{PREFIX}/asked/{place.rank}", json.dumps(dict(asked)))
        every = [json.loads(bytes(store.get(f"{PREFIX}/asked/{rank}"))) for rank in range(place.size)]
        store.set(f"{PREFIX}/read/{place.rank}", "")
        if place.rank == 0 and any(other != every[0] for other in every):
            store.wait([f"{PREFIX}/read/{rank}" for rank in range(place.size)])  # it goes last, and the store with it
    except (RuntimeError, OSError) as error:
        raise LostRankError(f"a rank of {place.size} ended before all had come ({first_line(error)})") from error
    for rank, other in enumerate(every):
        for name in dict.fromkeys((*every[0], *other)):
            if other.get(name) != every[0].get(name):
                theirs, ours = (str(one.get(name))[:80] for one in (other, every[0]))
                raise DifferentWorkError(
                    f"rank {rank} was asked for {name} {theirs}, and rank 0 for {ours}: start all ranks with the same options"
                )


def missing_line(missing: list[int], size: int, wait: float, *, started: bool = False) -> str:
    """Which ranks have not come; `started`: whether this program starts them.

    >>> missing_line([1, 3], 4, 60.0)
    'ranks 1, 3 of 4 did not come within 60 s: start as many processes as WORLD_SIZE says, or give --wait more'
    """
    shown = ", ".join(map(str, missing[:NAMED])) + (f" and {len(missing) - NAMED} more" if len(missing) > NAMED else "")
    ranks = f"rank{'s' * (len(missing) > 1)} {shown} of {size}"
    more = "give --wait more" if started else "start as many processes as WORLD_SIZE says, or give --wait more"
    return f"{ranks} did not come within {wait:.0f} s: {more}"


def say_end(store: Any, rank: int, line: str = DONE) -> None:  # noqa: ANN401 - likewise
    """Tells the others how a rank ended."""
    store.set(f"{PREFIX}/end/{rank}", json.dumps(line))


def end_of(store: Any, rank: int) -> str | None:  # noqa: ANN401 - likewise
    """How a rank ended, `DONE` where it has nothing to say; None where it has not."""
    key = f"{PREFIX}/end/{rank}"
    if not store.check([key]):
        return None
    line: str = json.loads(bytes(store.get(key)))
    return line


def hosts(store: Any, size: int) -> int:  # noqa: ANN401 - likewise
    """Hosts that the ranks are on, by their names."""
    return len({bytes(store.get(f"{PREFIX}/here/{rank}")) for rank in range(size)})
