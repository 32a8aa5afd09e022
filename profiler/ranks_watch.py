"""Sees that all ranks are there while they work: each beats in the store, and says there how it ended."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from roofcast.profiler.ranks_store import PREFIX, end_of, say_end

if TYPE_CHECKING:
    from collections.abc import Callable

BEAT: Final = 0.5  # seconds between beats
SILENT: Final = 10.0  # seconds without a beat after which a rank is lost


@dataclass(frozen=True, slots=True)
class Loss:
    """Why the ranks cannot go on.

    Args:
        ranks: that are lost; empty where the first has ended well, and others have no more to do.
        line: what to say; empty likewise.
    """

    ranks: tuple[int, ...]
    line: str


@dataclass(slots=True)
class Watcher:
    """Beats for a rank, and listens to the others', in a thread of its own.

    Args:
        connect: opens a connection to the store that nobody else uses.
        rank, size: whose, of how many.
        told: called once, in that thread, with what was lost.
        dead: tells why a rank that was started here has ended; None where it has not.
    """

    connect: Callable[[], Any]
    rank: int
    size: int
    told: Callable[[Loss], None]
    dead: Callable[[int], str | None] = lambda _: None
    loss: Loss | None = None
    _over: Event = field(default_factory=Event)
    _thread: Thread | None = None
    _seen: dict[int, tuple[bytes, float]] = field(default_factory=dict)

    def start(self) -> None:
        """Begins to beat, connected: a first rank that ends at once is seen, and not looked for."""
        store: Any = None
        with suppress(Exception):  # whatever torch raises, there is no store
            store = self.connect()
        self._thread = Thread(target=self._run, args=(store,), name="roofcast ranks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it, without a word."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(2 * BEAT)

    def _run(self, store: Any) -> None:  # noqa: ANN401 - torch has no types here
        number = 0
        if store is None:
            self._lose(Loss((0,), f"rank 0 of {self.size} ended"))
            return
        while not self._over.wait(BEAT if number else 0.0):
            number += 1
            try:
                store.set(f"{PREFIX}/beat/{self.rank}", str(number))
                found = self._look(store)
            except Exception:  # noqa: BLE001 - whatever torch raises, the process that holds it has ended
                found = None if self._over.is_set() else Loss((0,), f"rank 0 of {self.size} ended")
            if found is not None:
                if not found.line:  # the first has ended well: so does this one
                    with suppress(Exception):
                        say_end(store, self.rank)
                self._lose(found)
                return

    def _lose(self, loss: Loss) -> None:
        if not self._over.is_set():
            self.loss = loss
            self.told(loss)

    def _look(self, store: Any) -> Loss | None:  # noqa: ANN401 - torch has no types here
        """What became of the others; None where all work."""
        for rank in range(self.size):
            if rank == self.rank:
                continue
            line = end_of(store, rank)
            if line is not None:
                if line or rank == 0:
                    return Loss((rank,) if line else (), line)
                continue
            reason = self.dead(rank)
            if reason is None and self._silent(store, rank):
                reason = f"does not answer for {SILENT:.0f} s"
            if reason is not None:
                return Loss((rank,), f"rank {rank} of {self.size} {reason}")
        return None

    def _silent(self, store: Any, rank: int) -> bool:  # noqa: ANN401 - likewise
        key, now = f"{PREFIX}/beat/{rank}", monotonic()
        beat = bytes(store.get(key)) if store.check([key]) else b""
        last, since = self._seen.setdefault(rank, (beat, now))
        if beat != last:
            self._seen[rank] = (beat, now)
            return False
        return now - since > SILENT
