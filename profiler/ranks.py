"""Ranks that measure together: what they exchange on their devices, and what they agree on beside."""

from __future__ import annotations

import json
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from time import sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roofcast.profiler.errors import LostRankError
from roofcast.profiler.ranks_store import PREFIX, end_of
from roofcast.profiler.runtime import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from types import ModuleType

    from torch import Tensor

    from roofcast.calculators.profiled_ranks import RankGroup
    from roofcast.profiler.ranks_store import Place
    from roofcast.profiler.ranks_watch import Watcher

T = TypeVar("T")
SOON: Final = 1e-4  # seconds between the first looks at what another rank says
SELDOM: Final = 0.02  # seconds between later ones
NCCL: Final = "nccl"
GLOO: Final = "gloo"
#: what newer torch calls an exchange, before the name that older ones know
GATHER: Final = ("all_gather_single", "all_gather_into_tensor")
SCATTER: Final = ("reduce_scatter_single", "reduce_scatter_tensor")
#: what torch says of an exchange that its library has not, or not of this format: no rank is lost by that
LACKING: Final = ("not support", "unsupported", "not implemented", "invalid scalar type", "no backend type")


class _Kept:
    """Around an exchange: a class, since a generator takes longer than what it launches may.

    Raises:
        LostRankError: a rank is lost.
    """

    __slots__ = ("_ranks",)

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def __enter__(self) -> None:
        self._ranks.refuse_lost()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._ranks.refuse_lost()
            return
        loss = self._ranks.lost_by(error)
        if loss is not None:
            raise loss from error


@dataclass(slots=True)
class Ranks:
    """One rank's view of all: every method is called by all of them, in the same order.

    Tensors are on the rank's device; what gloo cannot take there goes through the host. On NCCL exchanges are launched
    as kernels are, and a graph can record them.

    Args:
        torch: the module.
        place: of this rank.
        backend: `nccl` or `gloo`.
        group: what to say of all.
        store: where they agree, of this thread alone.
        watcher: that knows who is lost.
    """

    torch: ModuleType
    place: Place
    backend: str
    group: RankGroup
    store: Any
    watcher: Watcher
    _count: int = 0
    _sign: Any = field(default=None)

    @property
    def rank(self) -> int:
        """Its number, from 0."""
        return self.place.rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self.place.size

    @property
    def leads(self) -> bool:
        """Whether it is the one that answers."""
        return self.place.rank == 0

    @property
    def capturable(self) -> bool:
        """Whether a graph can record exchanges."""
        return self.backend == NCCL

    def decide(self, value: T) -> T:
        """The first rank's value, on every rank; of what JSON can hold.

        Raises:
            LostRankError: a rank is lost.
        """
        self._count += 1
        key = f"{PREFIX}/decided/{self._count}"
        with self._kept():
            if self.leads:
                self.store.set(key, json.dumps(value))
                return value
            made: T = json.loads(self._read(key, 0))
        return made

    def gather(self, value: T) -> list[T]:
        """Every rank's value, on every rank, by their number; of what JSON can hold.

        Raises:
            LostRankError: a rank is lost.
        """
        self._count += 1
        keys = [f"{PREFIX}/gathered/{self._count}/{rank}" for rank in range(self.size)]
        with self._kept():
            self.store.set(keys[self.rank], json.dumps(value))
            return [json.loads(self._read(key, rank)) for rank, key in enumerate(keys)]

    def _read(self, key: str, rank: int) -> bytes:
        """What a rank puts into the store, as soon as it does: one that beats may take its time, a lost one ends it at once."""
        pause = SOON
        while not self.store.check([key]):
            self.refuse_lost()
            line = end_of(self.store, rank) if pause >= SELDOM else None
            if line is not None and not self.store.check([key]):
                raise LostRankError(line or f"rank {rank} of {self.size} ended before the others")
            sleep(pause)
            pause = min(2 * pause, SELDOM)
        return bytes(self.store.get(key))

    def align(self) -> None:
        """Brings the ranks' devices to the same moment: an exchange of one number, which ends on all when the last has come.

        Raises:
            LostRankError: a rank is lost.
        """
        if self._sign is None:
            device = f"cuda:{self.torch.cuda.current_device()}" if self.capturable else "cpu"
            self._sign = self.torch.zeros(1, device=device)
        self.all_reduce(self._sign)

    def all_reduce(self, x: Tensor) -> None:
        """Sums x over ranks, in place."""
        with self._kept(), self._staged(x) as (sent,):
            self.torch.distributed.all_reduce(sent)

    def all_gather(self, out: Tensor, x: Tensor) -> None:
        """Puts every rank's x after one another: out[r] = x of rank r; out is [size, *x]."""
        with self._kept(), self._staged(out, x) as (whole, part):
            self._named(GATHER)(whole.view(-1), part.reshape(-1))

    def reduce_scatter(self, out: Tensor, x: Tensor) -> None:
        """Sums x over ranks, and leaves each with its part: out = sum x[rank]; x is [size, *out]."""
        with self._kept(), self._staged(out, x) as (part, whole):
            self._named(SCATTER)(part.view(-1), whole.reshape(-1))

    def all_to_all(self, out: Tensor, x: Tensor) -> None:
        """Part r of x to rank r: out[r] = x[rank] of rank r; both are [size, ...]."""
        with self._kept(), self._staged(out, x) as (got, sent):
            self.torch.distributed.all_to_all_single(got.view(-1), sent.reshape(-1))

    def send(self, x: Tensor, to: int) -> None:
        """Sends x to one rank, which receives it."""
        with self._kept(), self._staged(x) as (sent,):
            self.torch.distributed.send(sent, to)

    def receive(self, x: Tensor, sender: int) -> None:
        """Fills x with what one rank sends."""
        with self._kept(), self._staged(x) as (got,):
            self.torch.distributed.recv(got, sender)

    def _named(self, names: tuple[str, str]) -> Any:  # noqa: ANN401 - torch has no types here
        module = self.torch.distributed
        return getattr(module, names[0], None) or getattr(module, names[1])

    def _staged(self, *tensors: Tensor) -> AbstractContextManager[tuple[Tensor, ...]]:
        """The tensors as the backend takes them: as they are, or copies on the host, which are brought back."""
        direct = self.capturable or tensors[0].device.type == "cpu"
        return nullcontext(tensors) if direct else self._copied(*tensors)

    @contextmanager
    def _copied(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        copies = tuple(one.cpu() for one in tensors)
        yield copies
        for one, copy in zip(tensors, copies, strict=True):
            one.copy_(copy)

    def _kept(self) -> _Kept:
        """Turns what torch raises where a rank is gone into one error."""
        return _Kept(self)

    def lost_by(self, error: BaseException | None) -> LostRankError | None:
        """The loss that torch's error comes of; None where it is another's."""
        return self._lost(error) if isinstance(error, RuntimeError) and self._broken(error) else None

    def _broken(self, error: RuntimeError) -> bool:
        """Whether an error is of an exchange or of the store: torch's own classes, or gloo's text."""
        module = self.torch.distributed
        kinds = tuple(filter(None, (getattr(module, name, None) for name in ("DistError", "DistBackendError"))))
        words = ("gloo", "connection", "timed out", "timeout", "socket", "store")
        said = str(error).lower()
        if any(word in said for word in LACKING):
            return False
        return isinstance(error, kinds) or any(word in said for word in words)

    def refuse_lost(self) -> None:
        """Refuses to go on without one.

        Raises:
            LostRankError: a rank is lost.
        """
        loss = self.watcher.loss
        if loss is not None:
            raise LostRankError(loss.line or "rank 0 has ended")

    def _lost(self, error: RuntimeError) -> LostRankError:
        """Who is lost, as the watcher soon knows; else what torch says."""
        for _ in range(60):
            if self.watcher.loss is not None:
                break
            sleep(0.1)
        loss = self.watcher.loss
        said = loss.line if loss is not None else f"an exchange between {self.size} ranks failed ({first_line(error)})"
        return LostRankError(said or "rank 0 has ended")
