"""What samples and beams of one prompt share, against hand counts, replays and the published savings."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.beams import BeamBlocks, _forebears, _row, beams_saved, samples_saved, take_over
from roofcast.calculators.serving.blocks import BlockPool, BlockTable, blocks_for, blocks_of_samples
from roofcast.calculators.serving.chat_lengths import ALPACA, SHAREGPT

# widths 2 and 6. Source: Kwon et al. 2023, arXiv:2309.06180, section 6.3
PUBLISHED = {
    "alpaca": {"samples": (0.061, 0.098), "beams": (0.376, 0.552)},
    "sharegpt": {"samples": (0.162, 0.305), "beams": (0.443, 0.663)},
}


def test_samples_by_hand() -> None:
    """A prompt of 8 and 2 tokens each, blocks of 4: 2 + 2 of 6 blocks in both steps."""
    assert samples_saved([(8, 2)], 2, 4) == pytest.approx(1 - 4 / 6)


def test_samples_replayed_are_the_closed_form() -> None:
    """Tables that fork and copy hold what the formula says, in every step."""
    lengths = [(1, 40), (16, 33), (17, 5), (90, 70)]
    for count, block in product((1, 2, 5), (1, 3, 16)):
        steps = [(prompt, made) for prompt, output in lengths for made in range(1, output + 1)]
        held = sum(blocks_of_samples(prompt, made, count, block) for prompt, made in steps)
        apart = sum(count * blocks_for(prompt + made, block) for prompt, made in steps)
        assert samples_saved(lengths, count, block) == pytest.approx(1 - held / apart, abs=1e-12)


def test_beams_that_are_never_replaced_are_samples() -> None:
    """Nothing merges: the replay and the table agree with the samples' formula."""
    lengths = [(20, 50), (3, 90)]

    assert beams_saved(lengths, 4, replaced=0.0) == samples_saved(lengths, 4)
    for made in (0, 1, 12, 13, 200):
        assert BeamBlocks(4, 16, 0.0).at(20, made) == blocks_of_samples(20, made, 4, 16)


def test_a_beam_alone_saves_nothing() -> None:
    """A search of width 1 is a sequence."""
    assert beams_saved([(20, 50)], 1) == 0
    assert [BeamBlocks(1).at(20, made) for made in (0, 12, 13)] == [2, 2, 3]


def test_two_beams_that_always_swap_stay_two() -> None:
    """Each is the other's in every step: no block is ever shared behind the prompt."""
    table = BeamBlocks(2, 4, 1.0)

    assert table.at(2, 18) == 2 * 5
    assert beams_saved([(2, 18)], 2, 4, replaced=1.0) == samples_saved([(2, 18)], 2, 4)


def test_take_over_by_hand() -> None:
    """Beams 0, 1, 2 become copies of 1, 1 and 0: 2 is freed, 1 is held twice."""
    pool = BlockPool(9, 4)
    beams = [BlockTable(pool) for _ in range(3)]
    for beam in beams:
        beam.append(6)
    after = take_over(beams, [1, 1, 0])

    assert [beam.blocks for beam in after] == [[2, 3], [2, 3], [0, 1]]
    assert [pool.holders(block) for block in range(6)] == [1, 1, 2, 2, 0, 0]
    assert len({id(beam) for beam in after}) == 3


@pytest.mark.parametrize(("width", "replaced"), [(2, 0.3), (3, 0.25), (4, 0.9)])
def test_forebears_by_counting(width: int, replaced: float) -> None:
    """Chances of m different parents of k beams are those of all n^n ways to draw parents, one by one."""
    for children in range(1, width + 1):
        counted = [0.0] * (width + 1)
        for parents in product(range(width), repeat=children):
            chance = 1.0
            for beam, parent in enumerate(parents):
                chance *= 1 - replaced if parent == beam else replaced / (width - 1)
            counted[len(set(parents))] += chance
        assert _row(width, children, replaced) == pytest.approx(counted, abs=1e-12)


def test_two_beams_merge_by_hand() -> None:
    """Two stay apart with (1 - r)^2 + r^2: A(d) = 1 + (1 - 2 r (1 - r))^d."""
    means = list(_forebears(2, 0.05))

    assert means[:100] == pytest.approx([1 + 0.905**step for step in range(100)])
    assert means[-1] == 1


@pytest.mark.parametrize(
    ("width", "block", "replaced", "prompt", "made"),
    [(2, 16, 0.05, 20, 150), (6, 16, 0.05, 5, 150), (3, 1, 0.1, 3, 40), (6, 4, 0.3, 8, 60)],
)
def test_the_table_is_the_mean_of_replays(width: int, block: int, replaced: float, prompt: int, made: int) -> None:
    """Blocks summed over the steps of 400 searches are those of the table, within 1 %."""
    table = BeamBlocks(width, block, replaced)
    held = sum(table.at(prompt, step) for step in range(1, made + 1))
    apart = sum(width * blocks_for(prompt + step, block) for step in range(1, made + 1))

    assert 1 - beams_saved([(prompt, made)] * 400, width, block, replaced, 3) == pytest.approx(held / apart, rel=0.01)


def test_a_long_search_needs_no_long_table() -> None:
    """Far behind the table's last step each 16 tokens add one block, as one beam's would."""
    table = BeamBlocks(4, 16, 0.2)

    assert table.at(100, 160_000) - table.at(100, 80_000) == pytest.approx(5000)


def test_further_beams_take_less_the_longer_the_output() -> None:
    """All of a first block; then less and less. Samples always take all, and a beam alone has no further one."""
    shares = [BeamBlocks(4).sharing_of(output) for output in (1, 16, 64, 256, 1024)]

    assert shares[:2] == [1, 1]
    assert shares == sorted(shares, reverse=True)
    assert BeamBlocks(4).sharing == shares[3] < 0.5
    assert BeamBlocks(4, 16, 0.0).sharing == 1
    assert BeamBlocks(1).sharing == 0


@pytest.mark.parametrize(("name", "lengths"), [("alpaca", ALPACA), ("sharegpt", SHAREGPT)])
def test_published_savings(name: str, lengths: Any) -> None:
    """Savings of samples and of beams, with one chance for both data sets: how far each is from the published."""
    drawn = list(lengths.pairs(1500 if name == "alpaca" else 150, Random(1)))  # noqa: S311 - no secret
    found = {
        "samples": tuple(samples_saved(drawn, width) for width in (2, 6)),
        "beams": tuple(beams_saved(drawn, width) for width in (2, 6)),
    }
    print(name, found)
    for way, within in (("samples", 0.15), ("beams", 0.16)):
        assert found[way] == pytest.approx(PUBLISHED[name][way], rel=within)
    if name == "alpaca":  # what roofcast claims for it
        assert found["samples"] == pytest.approx((0.061, 0.101), abs=0.004)
        assert found["beams"] == pytest.approx((0.372, 0.538), abs=0.012)


def test_the_same_seed_gives_the_same() -> None:
    """And another one another."""
    lengths = [(30, 80)] * 5

    assert beams_saved(lengths, 4, seed=5) == beams_saved(lengths, 4, seed=5) != beams_saved(lengths, 4, seed=6)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: samples_saved([(8, 8)], 0), "0 sequences of a prompt: give 1 or more"),
        (lambda: samples_saved([], 2), "no request holds a block"),
        (lambda: beams_saved([(8, 8)], 0), "0 beams: a search has 1 to 32"),
        (lambda: beams_saved([(8, 8)], 33), "33 beams"),
        (lambda: beams_saved([(8, 8)], 2, replaced=1.5), "chance of 1.5: give 0 to 1"),
        (lambda: beams_saved([(8, 8)], 2, replaced=float("nan")), "chance of nan"),
        (lambda: BeamBlocks(2, 300), "blocks of 300 tokens"),
    ],
)
def test_searches_that_are_none(call: Any, said: str) -> None:
    """One line that names what is wrong."""
    with pytest.raises(UsageError, match=said):
        call()
