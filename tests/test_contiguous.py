"""Reservations and the buddy allocator that places them."""

from __future__ import annotations

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.contiguous import RESERVATIONS, Arena, make_arena, power_above

OPT_13B_KV = 15_728  # tokens: 12 GiB of 819,200 B. Source: Kwon et al. 2023, arXiv:2309.06180, table 1, 15.7K


@pytest.mark.parametrize(
    ("prompt", "output", "reserved"),
    [
        (161, 338, {"max": 2048, "pow2": 161 + 512, "oracle": 499}),
        (100, 25, {"max": 2048, "pow2": 132, "oracle": 125}),  # the paper's own example: 25 reserve 32
        (100, 32, {"max": 2048, "pow2": 132, "oracle": 132}),
        (100, 1, {"max": 2048, "pow2": 101, "oracle": 101}),
        (1500, 548, {"max": 2048, "pow2": 2048, "oracle": 2048}),  # 1500 + 1024 is more than the server's
        (2000, 500, {"max": 2048, "pow2": 2048, "oracle": 2048}),
    ],
)
def test_reservations(prompt: int, output: int, reserved: dict[str, int]) -> None:
    """All, the next power of two, or what is needed; never more than the longest length."""
    assert {kind: reserve(prompt, output, 2048) for kind, reserve in RESERVATIONS.items()} == reserved


def test_an_output_of_nothing_reserves_a_token() -> None:
    """The least power of two is 1."""
    assert [power_above(count) for count in (0, 1, 2, 1023, 1024, 1025)] == [1, 1, 2, 1024, 1024, 2048]


def test_the_memory_of_opt_13b_has_seven_places() -> None:
    """15,728 / 2048 = 7.7: the paper's figure 13 has 7.00 requests in a batch of Orca (Max)."""
    arena = make_arena("max", OPT_13B_KV, 2048)
    taken = [arena.take(2048) for _ in range(8)]

    assert taken.count(None) == 1
    assert arena.taken == arena.asked == 7 * 2048


def test_places_of_any_length_are_not_rounded_up() -> None:
    """Where all reserve the longest length a memory is a row of places, power of two or not."""
    arena = make_arena("max", 10_000, 3000)

    assert [arena.take(3000) is not None for _ in range(4)] == [True, True, True, False]
    assert (arena.taken, arena.asked) == (9000, 9000)
    assert make_arena("oracle", 10_000, 3000).unit == 1


def test_pieces_are_powers_of_two() -> None:
    """499 tokens take 512, and what is asked for is counted apart."""
    arena = Arena(2048)

    assert [arena.take(499) for _ in range(5)] == [0, 512, 1024, 1536, None]
    assert (arena.taken, arena.asked, arena.pieces) == (2048, 4 * 499, 4)


def test_halves_merge_only_with_their_own() -> None:
    """Two free pieces of 512 beside each other are none of 1024 where they are halves of different ones."""
    arena = Arena(2048)
    pieces = [arena.take(512) for _ in range(4)]
    for piece in pieces[1:3]:  # 512-1535: the upper half of the first 1024 and the lower half of the second
        assert piece is not None
        arena.give(piece)

    assert not arena.fits(1024)
    assert arena.take(1024) is None
    arena.give(0)
    assert arena.fits(1024)
    assert arena.take(1024) == 0


def test_a_size_that_is_no_power_of_two_is_its_binary_digits() -> None:
    """13 = 8 + 4 + 1: the largest piece is 8, and the pieces never merge across."""
    arena = Arena(13)

    assert arena.most == 8
    assert [arena.take(size) for size in (1, 4, 8)] == [12, 8, 0]
    for place in (0, 8, 12):
        arena.give(place)
    assert arena.take(9) is None
    assert arena.take(8) == 0


def test_a_piece_is_given_back_once() -> None:
    """What is not out cannot be given back."""
    arena = Arena(8)
    place = arena.take(3)
    assert place is not None
    arena.give(place)

    with pytest.raises(KeyError):
        arena.give(place)


@pytest.mark.parametrize(("tokens", "unit"), [(0, 1), (100, 101), (100, 0), (-5, 1)])
def test_a_memory_for_nothing(tokens: int, unit: int) -> None:
    """Not one piece fits: a line that says so."""
    with pytest.raises(UsageError, match=rf"{tokens:,} tokens has no room for one piece of {unit}; give more"):
        Arena(tokens, unit)
