"""KV memory in one piece a request, reserved when it is admitted: as servers did before paging.

Three of the four kinds of waste come from here: places kept for tokens to come, places kept for tokens that never come,
and what the allocator cannot hand out. Source: Kwon et al. 2023, arXiv:2309.06180, section 3.1 and figure 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roofcast.calculators.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    Reservation = Callable[[int, int, int], int]


def reserve_longest(prompt: int, output: int, longest: int) -> int:  # noqa: ARG001 - one signature for all
    """Every request may become as long as the server allows: r = L. [token]

    Args:
        prompt: of the request, unused. [token]
        output: of the request, unused. [token]
        longest: L, prompt and output of the longest request. [token]

    Source: Kwon et al. 2023, arXiv:2309.06180, section 6.1, Orca (Max).
    """
    return longest


def reserve_power(prompt: int, output: int, longest: int) -> int:
    """Outputs are foreseen up to a factor of two: r = min(p + 2^ceil(log2 o), L). [token]

    Args:
        prompt: p, of the request. [token]
        output: o, of the request. [token]
        longest: L, prompt and output of the longest request. [token]

    Source: Kwon et al. 2023, arXiv:2309.06180, section 6.1, Orca (Pow2), where an output of 25 reserves 32.

    >>> reserve_power(100, 25, 2048), reserve_power(100, 32, 2048), reserve_power(1000, 1030, 2048)
    (132, 132, 2048)
    """
    return min(prompt + power_above(output), longest)


def reserve_exact(prompt: int, output: int, longest: int) -> int:
    """Outputs are known, which no server does: r = min(p + o, L). [token]

    Args:
        prompt: p, of the request. [token]
        output: o, of the request. [token]
        longest: L, prompt and output of the longest request. [token]

    Source: Kwon et al. 2023, arXiv:2309.06180, section 6.1, Orca (Oracle).
    """
    return min(prompt + output, longest)


RESERVATIONS: Final[dict[str, Reservation]] = {"max": reserve_longest, "pow2": reserve_power, "oracle": reserve_exact}


def power_above(count: int) -> int:
    """The least power of two that is not less: 2^ceil(log2 n), 1 for none.

    >>> [power_above(count) for count in (0, 1, 2, 3, 64, 65)]
    [1, 1, 2, 4, 64, 128]
    """
    return 1 << (count - 1).bit_length() if count > 1 else 1


class Arena:
    """Memory that a buddy allocator hands out: each piece is the least power of two that holds what is asked.

    A piece of 2^k begins at a multiple of 2^k, so that the other half of what it was cut from begins at its place XOR
    2^k: a piece that is given back is merged with that half as often as it is free. The size of the memory need not be
    a power of two: it begins as the pieces of its binary digits, the largest first, and no two of these ever merge,
    since the place XOR the size of one never is a whole piece of that size. Taking and giving cost O(log n) steps.

    Args:
        tokens: what the memory holds. [token]
        unit: what pieces are made of, so that they hold 2^k units: 1, or the longest length where all requests
            reserve that, and the memory is a row of places of that length. [token]

    Raises:
        UsageError: less than one unit.

    Source: Knuth, The Art of Computer Programming 1, section 2.5, the buddy system.

    >>> arena = Arena(15_000)
    >>> arena.take(500), arena.taken, arena.asked
    (14336, 512, 500)
    >>> arena.give(14336)
    >>> arena.taken, arena.most
    (0, 8192)
    >>> Arena(15_000, unit=3000).most  # 5 places, of which 4 are one piece
    12000
    """

    __slots__ = ("_free", "_given", "_orders", "asked", "taken", "tokens", "unit")

    def __init__(self, tokens: int, unit: int = 1) -> None:
        if not 1 <= unit <= tokens:
            raise UsageError(f"a memory of {tokens:,} tokens has no room for one piece of {unit:,}; give more memory")
        self.tokens: Final = tokens  # [token]
        self.unit: Final = unit  # [token]
        self.taken = 0  # in pieces as they are handed out [token]
        self.asked = 0  # of these, what was asked for [token]
        units = tokens // unit
        # places of free pieces by the logarithm of their size; dicts for their order, which a set has not
        self._free: list[dict[int, None]] = [{} for _ in range(units.bit_length())]
        self._orders = units  # bit k: there are free pieces of 2^k; at first the binary digits
        self._given: dict[int, tuple[int, int]] = {}  # place -> logarithm of the size, tokens asked
        place = 0
        for order in reversed(range(units.bit_length())):
            if units >> order & 1:
                self._free[order][place] = None
                place += 1 << order

    @property
    def most(self) -> int:
        """The largest piece while all is free: what asks for more can never be served. [token]"""
        return self.unit << (len(self._free) - 1)

    @property
    def pieces(self) -> int:
        """Pieces that are out."""
        return len(self._given)

    def fits(self, tokens: int) -> bool:
        """Whether a piece for so many tokens is free now. [-]"""
        return self._orders >> self._order(tokens) > 0

    def take(self, tokens: int) -> int | None:
        """Take a piece for so many tokens, one at least: its handle, or None where no piece is large enough."""
        order = self._order(tokens)
        enough = self._orders >> order
        if not enough:
            return None
        found = order + (enough & -enough).bit_length() - 1
        pieces = self._free[found]
        place, _ = pieces.popitem()
        if not pieces:
            self._orders ^= 1 << found
        for half in range(order, found):  # what is cut off, the upper halves
            self._free[half][place + (1 << half)] = None
        self._orders |= (1 << found) - (1 << order)
        self._given[place] = order, tokens
        self.taken += self.unit << order
        self.asked += tokens
        return place

    def give(self, handle: int) -> None:
        """Give a piece back.

        Raises:
            KeyError: nothing is out under this handle.
        """
        order, tokens = self._given.pop(handle)
        self.taken -= self.unit << order
        self.asked -= tokens
        place = handle
        while order < len(self._free) and place ^ (1 << order) in self._free[order]:
            pieces = self._free[order]
            del pieces[place ^ (1 << order)]
            if not pieces:
                self._orders ^= 1 << order
            place &= ~(1 << order)
            order += 1
        self._free[order][place] = None
        self._orders |= 1 << order

    def _order(self, tokens: int) -> int:
        """Logarithm of the least piece that holds so many tokens: ceil(log2(ceil(t / unit)))."""
        units = -(-tokens // self.unit)
        return (units - 1).bit_length() if units > 1 else 0


def make_arena(kind: str, tokens: int, longest: int) -> Arena:
    """Memory for one of `RESERVATIONS`: places of the longest length for `max`, else pieces of 2^k tokens.

    Raises:
        UsageError: not even one request of the longest length fits.

    >>> make_arena("max", 15_000, 3000).most, make_arena("oracle", 15_000, 3000).most
    (12000, 8192)
    """
    return Arena(tokens, longest if kind == "max" else 1)
