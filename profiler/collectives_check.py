"""Numbers that show whether an exchange is right: whole, exact in the format, other ones on every rank and at every place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from roofcast.profiler.runtime import Runtime

#: format -> whole numbers up to which every one is exact: 2^(bits of its significand)
EXACT: Final = {"bf16": 2**8, "fp16": 2**11, "fp32": 2**24}
MOVED: Final = 251  # the largest number that is only moved: prime, and exact in every format
#: elements after which numbers repeat: a prime, so that no part of a tensor begins where another does
PERIOD: Final = 1_048_573
SUM: Final = -1  # in place of a rank: the sum over all
PRIME: Final = 2**31 - 1
VARIED: Final = 2  # different numbers that a rank needs, so that they vary


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a result, as it must be.

    Args:
        origin: rank whose numbers they are, or `SUM`.
        start: element of that rank's tensor that the piece begins with.
        count: elements.
    """

    origin: int
    start: int
    count: int


@dataclass(slots=True)
class Numbers:
    """What each rank puts in, known to all.

    Of n ranks the numbers of a sum are 1 to EXACT / n, so that no partial sum is rounded, in whatever order; each is above
    0, so that the sum of all is that of no fewer. Where EXACT / n is below 2 that would be 1 everywhere: there a rank has 1
    at half of the places and 0 at the others, drawn, and of more than EXACT ranks no two of a group have it at the same
    place, with as many groups as there are exact numbers. So sums differ between places; a rank that is left out shows at
    a half of its places, or at a part of them, so that of a few elements alone it may not.

    Args:
        runtime: the device.
        number: their format.
        size: ranks.
        summed: whether they are summed.
        period: elements after which they repeat.
    """

    runtime: Runtime
    number: str
    size: int
    summed: bool
    period: int = PERIOD
    _tables: dict[int, Tensor] = field(default_factory=dict)

    def fill(self, x: Tensor, rank: int) -> None:
        """Writes a rank's numbers into its tensor."""
        for place, part in self._parts([Piece(rank, 0, x.numel())]):
            x.view(-1)[place : place + part.numel()].copy_(part)

    def wrong(self, x: Tensor, pieces: Iterable[Piece]) -> int:
        """Elements of a result that are not as its pieces say; what is left unwritten is not. [element]"""
        bad = self.runtime.torch.zeros((), dtype=self.runtime.torch.int64, device=self.runtime.device)
        for place, part in self._parts(pieces):
            bad += (x.view(-1)[place : place + part.numel()] != part).sum()
        return int(bad)

    def _parts(self, pieces: Iterable[Piece]) -> Iterator[tuple[int, Tensor]]:
        """Places of a tensor, and what belongs there."""
        place = 0
        for piece in pieces:
            table, at, left = self.table(piece.origin), piece.start % self.period, piece.count
            while left:
                part = table[at : at + min(left, self.period - at)]
                yield place, part
                place, left, at = place + part.numel(), left - part.numel(), 0

    def table(self, origin: int) -> Tensor:
        """The numbers of a rank, or their sum over all, of one period."""
        found = self._tables.get(origin)
        if found is None:
            if origin == SUM:
                made = self._drawn(0)
                for rank in range(1, self.size):
                    made += self._drawn(rank)
            else:
                made = self._drawn(origin)
            found = self._tables[origin] = made.to(self.runtime.dtype(self.number))
        return found

    def _drawn(self, rank: int) -> Tensor:
        """Whole numbers of a rank: mixed from place and rank, the same wherever they are made."""
        torch = self.runtime.torch
        place = torch.arange(self.period, dtype=torch.int64, device=self.runtime.device)
        most = min(MOVED, EXACT[self.number] // self.size) if self.summed else MOVED
        if most < VARIED:  # at half of the places one of a group has a 1
            group = -(-self.size // EXACT[self.number])
            return (self._mixed(place, rank // group) % (2 * group) == rank % group).to(torch.int64)
        return 1 + self._mixed(place, rank) % most

    @staticmethod
    def _mixed(place: Tensor, stream: int) -> Tensor:
        """Numbers below `PRIME` as good as random, of a place and a rank or a group of them."""
        mixed = (place * 1_000_003 + (stream + 1) * 7_919_111) % PRIME * 48_271 % PRIME
        drawn: Tensor = (mixed ^ (mixed >> 11)) % PRIME * 69_621 % PRIME
        return drawn
