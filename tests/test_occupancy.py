"""Where the KV memory goes, by hand, token by token, and as published."""

from __future__ import annotations

import csv
import os
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from roofcast.calculators.errors import UsageError
from roofcast.calculators.serving.chat_lengths import SHAREGPT, ChatLengths
from roofcast.calculators.serving.contiguous import RESERVATIONS
from roofcast.calculators.serving.occupancy import PAGED, Occupancy, _Queue, _Replay, _room, occupancy

if TYPE_CHECKING:
    from collections.abc import Iterator

OPT_13B_KV = 15_728  # tokens: 12 GiB of 819,200 B. Source: Kwon et al. 2023, arXiv:2309.06180, table 1, 15.7K
AZURE_ROWS = 19_366

# states, to come, never, external. Source: Kwon et al. 2023, arXiv:2309.06180, figure 2 (ShareGPT, OPT-13B)
FIGURE_2 = {
    "max": (0.204, 0.133, 0.573, 0.089),
    "pow2": (0.268, 0.179, 0.136, 0.416),
    "oracle": (0.382, 0.252, 0.0, 0.366),
}


def split(found: Occupancy) -> tuple[float, float, float, float]:
    """The four shares of the memory."""
    return found.states, found.to_come, found.never, found.external


def chats(count: int, seed: int = 0, lengths: ChatLengths = SHAREGPT) -> list[tuple[int, int]]:
    """Prompts and outputs like ShareGPT's."""
    return list(lengths.pairs(count, Random(seed)))  # noqa: S311 - no secret


@pytest.mark.parametrize("kind", FIGURE_2)
def test_figure_2(kind: str) -> None:
    """Token states, reservation, internal and external fragmentation of the three kinds, all within 5 points."""
    found = occupancy(chats(3000), OPT_13B_KV, 2048, kind)
    print(kind, split(found), found.running)

    assert split(found) == pytest.approx(FIGURE_2[kind], abs=0.05)
    assert found.states == pytest.approx({"max": 0.201, "pow2": 0.292, "oracle": 0.387}[kind], abs=0.005)


def test_figure_2_of_blocks() -> None:
    """Published 96.3 % in blocks of 16; what is lost is mostly what the last blocks wait for."""
    found = occupancy(chats(3000), OPT_13B_KV, 2048, PAGED)

    assert 0.95 < found.states == pytest.approx(0.963, abs=0.01)
    assert found.to_come == pytest.approx(7.5 * found.running / OPT_13B_KV, rel=0.1)
    assert found.never < 0.001
    assert found.served == 3000


def test_orca_max_has_seven_requests_and_the_others_some_more() -> None:
    """Published in figure 13: 7.00, 9.81 and 13.62 requests in a batch."""
    running = [occupancy(chats(3000), OPT_13B_KV, 2048, kind).running for kind in ("max", "pow2", "oracle")]

    assert running[0] == 7
    assert running[1:] == pytest.approx([9.81, 13.62], rel=0.06)


@pytest.mark.parametrize("kind", RESERVATIONS)
def test_more_spread_of_outputs(kind: str) -> None:
    """Sigma of 0.7 to 1.0 moves token states by less than 3 points of a hundred."""
    low, high = (
        occupancy(chats(2000, 0, ChatLengths(167, 356, 1.0, sigma)), OPT_13B_KV, 2048, kind) for sigma in (0.7, 1.0)
    )

    assert abs(low.states - high.states) < 0.03


def test_lengths_have_the_means_of_sharegpt() -> None:
    """161 in and 338 out. Source: Kwon et al. 2023, arXiv:2309.06180, section 6.1, figure 11."""
    drawn = chats(20_000)

    assert sum(prompt for prompt, _ in drawn) / len(drawn) == pytest.approx(161, rel=0.02)
    assert sum(output for _, output in drawn) / len(drawn) == pytest.approx(338, rel=0.02)
    assert max(map(sum, drawn)) <= 2048


def test_larger_blocks_hold_less() -> None:
    """From a token a block to 256 the share of token states falls; what waits in last blocks grows."""
    found = [occupancy(chats(1000), OPT_13B_KV, 2048, PAGED, block) for block in (1, 16, 64, 256)]
    states = [one.states for one in found]

    assert states == sorted(states, reverse=True)
    assert found[0].to_come == found[0].never == 0
    assert states[0] > 0.97
    assert states[-1] < 0.85


def naive(lengths: list[tuple[int, int]], memory: int, longest: int, block: int) -> tuple[list[int], int, int]:
    """Replay blocks token by token with nothing but lists: sums over measured steps, their number, those set back."""
    total = memory // block
    waiting = [[prompt, min(prompt + output, longest)] for prompt, output in lengths if prompt < longest]
    waiting = [one for one in waiting if -(-one[1] // block) <= total]
    running: list[list[int]] = []
    sums, steps, served, back, warm = [0, 0, 0], 0, 0, 0, 0

    def used() -> int:
        return sum(-(-held // block) for held, _ in running)

    while waiting or running:
        served += sum(held == end for held, end in running)
        running = [one for one in running if one[0] != one[1]]
        before, place = back, 0
        while place < len(running):
            while place < len(running) and running[place][0] % block == 0 and used() == total:
                waiting.insert(0, running.pop())
                back += 1
            if place < len(running):
                running[place][0] += 1
            place += 1
        while back == before and waiting:
            spare = int(0.01 * total) if running else 0
            if used() + -(-(waiting[0][0] + 1) // block) > total - spare:
                break
            running.append(waiting.pop(0))
            running[-1][0] += 1
        warm = warm or 2 * len(running)
        if served >= warm and waiting:
            steps += 1
            for held, end in running:
                top = -(-held // block) * block
                sums = [sums[0] + held, sums[1] + min(top, end) - held, sums[2] + max(top - end, 0)]
    return sums, steps, back


@pytest.mark.parametrize(
    ("block", "memory", "seed"), [(1, 300, 0), (4, 400, 1), (16, 1000, 2), (16, 2005, 3), (64, 900, 4)]
)
def test_blocks_token_by_token(block: int, memory: int, seed: int) -> None:
    """The replay that looks only at who needs a block is the one that looks at every token."""
    lengths = chats(150, seed, ChatLengths(60, 90, 1.0, 0.8))
    found = occupancy(lengths, memory, 250, PAGED, block)
    sums, steps, back = naive(lengths, memory, 250, block)

    assert (found.steps, found.preempted) == (steps, back)
    assert (found.states, found.to_come, found.never) == pytest.approx(tuple(total / steps / memory for total in sums))
    assert back > 0


def test_a_full_pool_sets_back_who_came_last() -> None:
    """Two of 4 + 6 in 4 blocks of 4: one runs out behind 8 tokens, waits for the other, and is served too."""
    found = occupancy([(4, 6)] * 12, 16, 100, PAGED, 4)

    assert found.served == 12
    assert found.preempted > 0
    assert found.running < 2


def test_requests_that_are_too_long() -> None:
    """A prompt of the longest length is refused, and what memory can never hold; an output is cut."""
    lengths = [(50, 14)] * 20 + [(64, 1), (63, 9)] + [(50, 14)] * 20
    found = occupancy(lengths, 200, 64, "max")
    assert (found.served, found.refused, found.cut) == (41, 1, 1)

    small = occupancy([(10, 10), (40, 24), (10, 10)] * 20, 60, 64, "oracle")  # pieces of 32 at most
    assert (small.served, small.refused, small.cut) == (40, 20, 0)
    paged = occupancy([(10, 10), (40, 24), (10, 10)] * 20, 60, 64, PAGED, 4)
    assert (paged.served, paged.refused) == (40, 20)


def test_no_one_is_passed_over() -> None:
    """Beside 40 of 64 tokens the next 40 do not fit: the 8 behind them wait too, although there is room."""
    found = occupancy([(4, 4), (20, 20)] * 40, 64, 64, "oracle")

    assert found.running == 1  # more, were the short ones let past


def test_lengths_are_read_as_they_are_needed() -> None:
    """No more requests are read than were served, run, and one that waits."""
    read = 0

    def endless() -> Iterator[tuple[int, int]]:
        nonlocal read
        while True:
            read += 1
            yield 10, 5

    queue, room, replay = _Queue(endless(), 16), _room(PAGED, 64, 16, 4), _Replay()
    for _ in range(50):
        replay.step(queue, room)
        assert read <= replay.served + len(replay.running) + 1 + replay.preempted


def test_a_bad_length_is_named() -> None:
    """By the request's place."""
    with pytest.raises(UsageError, match=r"request 3 has 10 \+ 0 tokens; give 1 or more of each"):
        occupancy([(10, 5), (10, 5), (10, 0)], 64, 16, PAGED)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("block",), "no KV memory 'block'; known: paged, max, pow2, oracle"),
        ((PAGED, 0), "blocks of 0 tokens"),
        ((PAGED, 257), "blocks of 257 tokens: a block holds 1 to 256"),
        ((PAGED, 128), "100 tokens has no room for one block of 128"),
        (("max",), "100 tokens has no room for one piece of 2,048"),
        (
            ("oracle",),
            r"3 requests do not keep a KV memory of 100 tokens full \(0 are refused\); give some times as many",
        ),
    ],
)
def test_memories_that_are_none(call: Any, said: str) -> None:
    """One line that names what is wrong."""
    with pytest.raises(UsageError, match=said):
        occupancy([(10, 10)] * 3, 100, 2048, *call)


def azure() -> list[tuple[int, int]]:
    """Lengths of the Azure conversation trace; skip where it is not there."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    path = Path(os.environ.get("ROOFCAST_SHARED") or beside) / "traces" / "AzureLLMInferenceTrace_conv_20k.csv"
    if not path.is_file():
        pytest.skip(f"no folder of traces: {AZURE_ROWS} requests not replayed")
    with path.open(newline="") as lines:
        return [(int(prompt), int(output)) for _, prompt, output in islice(csv.reader(lines), 1, None)]


def test_azure_conversations() -> None:
    """Longer prompts and shorter outputs: less is kept in vain, and 15 % of the requests are over 2,048."""
    lengths = azure()
    found = {kind: occupancy(lengths, OPT_13B_KV, 2048, kind) for kind in (*RESERVATIONS, PAGED)}
    for kind, one in found.items():
        print(kind, *(f"{share:.1%}" for share in split(one)), f"{one.running:.1f} running")

    assert len(lengths) == AZURE_ROWS
    assert sum(prompt + output > 2048 for prompt, output in lengths) == 2838
    assert {(one.refused, one.cut, one.served) for one in found.values()} == {(2703, 135, AZURE_ROWS - 2703)}
    states = [one.states for one in found.values()]
    assert states == pytest.approx([0.488, 0.572, 0.584, 0.958], abs=0.005)
