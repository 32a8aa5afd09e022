"""Where ranks meet: their places as torchrun tells them, the store they all reach, and the roll call."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from roofcast.profiler.errors import LostRankError, ProfileUsageError, UnavailableError
from roofcast.profiler.runtime import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

LOOPBACK: Final = "127.0.0.1"
POLL: Final = 0.05  # seconds between two looks at who has come
GRACE: Final = 1.0  # seconds more, in which torch itself says that nothing answers
NAMED: Final = 8  # ranks that an error names one by one
PREFIX: Final = "roofcast"
MOST_PORT: Final = 65535
STARTED: Final = ("RANK", "WORLD_SIZE")  # what torchrun, or whoever starts ranks, sets


@dataclass(frozen=True, slots=True)
class Place:
    """A rank's place among all.

    Args:
        rank, size: its number from 0, and how many there are.
        local, locals: the same of its host.
        host, port: where the store is, which rank 0 opens unless `shared`.
        shared: whether another process, torchrun's agent, holds the store.
        attempt: how often torchrun has started them before.
    """

    rank: int
    size: int
    local: int = 0
    locals: int = 1
    host: str = LOOPBACK
    port: int = 0
    shared: bool = False
    attempt: int = 0


def place_of(environ: Mapping[str, str]) -> Place | None:
    """The place that torchrun gives a process; None where nothing started it as a rank.

    Raises:
        ProfileUsageError: variables that cannot be, naming the one.

    >>> place_of({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}).host
    'node0'
    >>> place_of({})
    """
    if any(name not in environ for name in STARTED):
        return None
    size = _number(environ, "WORLD_SIZE", 1)
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
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= (most if most is not None else int(text)):
        said = f"{name}={text}" if text else f"{name} is not set"
        raise ProfileUsageError(f"{said}: of ranks that something else started it must be {span}; torchrun sets it")
    return int(text)


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
        raise UnavailableError(
            f"{place.host}:{place.port} is no meeting place of ranks: another program answers there; give another MASTER_PORT"
        )
    return found[0]


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
        except OSError as error:
            if monotonic() > until:
                raise LostRankError(
                    f"rank {place.rank} of {place.size} found no rank 0 at {place.host}:{place.port} within {wait:.0f} s "
                    f"({error.strerror or error}): start it, or check MASTER_ADDR and MASTER_PORT"
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
    return store if place.attempt == 0 else distributed.PrefixStore(f"attempt {place.attempt}", store)


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
    return f"rank {place.rank} of {place.size} cannot join rank 0 at {where} ({first_line(error)})"


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
                raise LostRankError(missing_line(missing, place.size, wait))
            sleep(POLL)
    except (RuntimeError, OSError) as error:
        raise LostRankError(f"rank 0 of {place.size} ended before all had come ({first_line(error)})") from error


def missing_line(missing: list[int], size: int, wait: float) -> str:
    """Which ranks have not come.

    >>> missing_line([1, 3], 4, 60.0)
    'ranks 1, 3 of 4 did not come within 60 s: start as many processes as WORLD_SIZE says, or give --wait more'
    """
    shown = ", ".join(map(str, missing[:NAMED])) + (f" and {len(missing) - NAMED} more" if len(missing) > NAMED else "")
    ranks = f"rank{'s' * (len(missing) > 1)} {shown} of {size}"
    return f"{ranks} did not come within {wait:.0f} s: start as many processes as WORLD_SIZE says, or give --wait more"


def hosts(store: Any, size: int) -> int:  # noqa: ANN401 - likewise
    """Hosts that the ranks are on, by their names."""
    return len({bytes(store.get(f"{PREFIX}/here/{rank}")) for rank in range(size)})
