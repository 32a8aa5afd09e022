"""Prefix caches: vLLM's own example, what is given up first, and two traces against a count that knows of no cache."""

from __future__ import annotations

import json
import os
from collections import OrderedDict, deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.prefix import MOST_WAITING, BlockCache, shared_first
from roofcast.calculators.serving.radix import RadixCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.serving.prefix import Lease, Runs

CACHES: Final = [BlockCache, RadixCache]
#: name -> requests, share of tokens and of blocks that an unlimited cache has: README of Mooncake's traces, three digits
TRACES: Final = {"conversation": (12031, 0.374, 0.366), "synthetic": (3993, 0.651, 0.640)}


def served(cache: Runs, ids: Sequence[int], tokens: int) -> int:
    """Let one request come and go; the tokens that it found."""
    found = cache.match(ids, tokens)
    cache.release(cache.take(found))
    return found.hit_tokens


def test_the_example_of_vllm() -> None:
    """Blocks of 4 in a pool of 10: the prompt blocks that are found, held and kept at each time of the example.

    Source: https://docs.vllm.ai/en/v0.9.0/design/v1/prefix_caching.html, section Example.
    """
    cache = BlockCache(4, 4, partial=False)
    first = cache.take(cache.match([0, 1, 2, 3], 15))  # time 1: blocks 0, 1, 2 are full, block 3 is not
    assert (first.covered, cache.held) == (12, 3)
    found = cache.match([0, 1, 20, 21], 14)  # time 4: its third block has 2 of 4 tokens in common
    assert (found.hit_tokens, found.hit_ids, found.revived, found.new) == (8, 2, 0, 1)
    second = cache.take(found)
    cache.release(first)  # time 5: block 2 alone is in the queue
    assert (cache.held, cache.kept) == (3, 1)
    cache.release(second)  # time 6: the queue is 2 - 5 - 1 - 0
    assert (cache.held, cache.kept) == (0, 4)
    found = cache.match([0, 1, 2, 30, 31, 32, 33, 34], 29)  # time 7: 0, 1, 2 are touched, which leaves 5 in the queue
    assert (found.hit_tokens, found.hit_ids, found.revived, found.new) == (12, 3, 3, 4)
    cache.take(found)
    cache.trim(2)  # 10 blocks, less 7 that are held and one of its own: block 5 may stay
    assert (cache.held, cache.kept, cache.evicted) == (7, 1, 0)
    cache.trim(0)
    assert (cache.held, cache.kept, cache.evicted) == (7, 0, 4)


def test_the_tail_of_what_was_released_first_goes_first() -> None:
    """Of 1 2 3 and then 1 2 4, each of one block: 3, then 4, then 2, then 1."""
    cache = BlockCache(16, 16)
    served(cache, [1, 2, 3], 48)
    served(cache, [1, 2, 4], 48)
    found = []
    for room in (4, 3, 2, 1, 0):
        cache.trim(room)
        found.append((cache.match([1, 2, 3], 48).hit_tokens, cache.match([1, 2, 4], 48).hit_tokens, cache.evicted))

    assert found == [(48, 48, 0), (32, 48, 16), (32, 32, 32), (16, 16, 48), (0, 0, 64)]


def test_a_run_is_given_up_from_its_end_by_whole_ids() -> None:
    """Ids of 32 blocks: 10 blocks of room that lack take one id, 33 take two, and of the tail its 10 blocks alone."""
    cache = BlockCache(512, 16)
    served(cache, [1, 2, 3, 4], 3 * 512 + 160)

    def left(room: int) -> tuple[int, int]:
        cache.trim(room)
        return cache.kept, cache.evicted

    assert [left(room) for room in (106, 100, 86, 53, 31)] == [
        (106, 0),
        (96, 160),
        (64, 672),
        (32, 1184),
        (0, 1696),
    ]


def test_use_renews() -> None:
    """Of three prompts the first is asked for again, so that the second goes first."""
    for make in CACHES:
        cache = make(16, 16)
        for ids in ([1], [2], [3], [1]):
            served(cache, ids, 16)
        cache.trim(2)
        assert [cache.match([n], 16).hit_tokens for n in (1, 2, 3)] == [16, 0, 16]


def test_looking_is_not_use() -> None:
    """A match alone keeps nothing."""
    for make in CACHES:
        cache = make(16, 16)
        served(cache, [1], 16)
        served(cache, [2], 16)
        assert cache.match([1], 16).hit_tokens == 16
        cache.trim(1)
        assert [cache.match([n], 16).hit_tokens for n in (1, 2)] == [0, 16]


def test_blocks_of_running_requests_stay() -> None:
    """No room at all leaves what two requests share until the second is gone."""
    for make in CACHES:
        cache = make(16, 16)
        first, second = (cache.take(cache.match([1, 2, n], 48)) for n in (3, 4))
        cache.release(first)
        cache.trim(0)
        assert (cache.held, cache.kept, cache.evicted) == (3, 0, 16)
        assert [cache.match([1, 2, n], 48).hit_tokens for n in (3, 4)] == [32, 48]
        cache.release(second)
        cache.trim(0)
        assert (cache.held, cache.kept, cache.evicted) == (0, 0, 64)


def test_the_last_block_counts_where_it_is_asked_to() -> None:
    """700 tokens are an id of 512 and one of 188: 12 blocks of 16, known by its id; vLLM hashes full blocks alone."""
    ids = [1, 2]
    known, full = BlockCache(512, 16), BlockCache(512, 16, partial=False)

    assert [(cache.match(ids, 700).covered, cache.match(ids, 700).new) for cache in (known, full)] == [
        (700, 44),
        (512, 32),
    ]
    assert [served(cache, ids, 700) for cache in (known, full)] == [0, 0]
    assert [served(cache, ids, 700) for cache in (known, full)] == [700, 512]


def test_a_last_block_that_others_have_more_of_grows() -> None:
    """188 tokens of an id are found by a prompt that has all 512, which adds 32 - 12 blocks; the third finds them."""
    for make in CACHES:
        cache = make(512, 16)
        served(cache, [1, 2], 700)
        found = cache.match([1, 2, 3], 1500)
        assert (found.hit_tokens, found.hit_ids, found.revived, found.new) == (700, 2, 44, 20 + 30)
        cache.take(found)
        assert (cache.held, cache.kept) == (32 + 32 + 30, 0)
        assert cache.match([1, 2, 3], 1500).hit_tokens == 1500
        assert cache.match([1, 2], 600).hit_tokens == 600


def test_ids_shorter_than_a_block_are_joined() -> None:
    """Ids of 16 in blocks of 64, four in each: 6 ids take 2 blocks, and the second is another one from its second id on."""
    cache = BlockCache(16, 64)
    cache.take(cache.match([1, 2, 3, 4, 5, 6], 96))
    assert cache.held == 2
    found = cache.match([1, 2, 3, 4, 5, 7], 96)
    assert (found.hit_tokens, found.hit_ids, found.revived, found.new) == (64, 4, 0, 1)


def test_a_prompt_may_go_on_behind_its_ids() -> None:
    """Two ids of 16 of a prompt of 1,000 are all that the cache has to do with; ids behind a prompt's end are nothing."""
    for make in CACHES:
        cache = make(16, 16)
        lease = cache.take(cache.match([1, 2], 1000))
        assert (lease.covered, cache.held) == (32, 2)
        assert cache.match([1, 2], 1000).hit_tokens == 32
        assert cache.match([1, 2, 3, 4], 40) == cache.match([1, 2, 3], 40)
        assert cache.match([], 40).hit_tokens == cache.match([], 40).new == 0
        cache.release(cache.take(cache.match([], 40)))
        assert (cache.held, cache.kept) == (2, 0)


def test_a_lease_ends_once() -> None:
    """What is released twice is our own mistake, and said to be."""
    cache = BlockCache(16, 16)
    lease = cache.take(cache.match([1], 16))
    cache.release(lease)
    with pytest.raises(ValueError, match="released before"):
        cache.release(lease)


def test_the_longest_match_goes_first() -> None:
    """Of four that wait the third has 32 tokens in the cache and the fourth as many: the third, or one of the first two."""
    cache = BlockCache(16, 16)
    served(cache, [1, 2, 3], 48)
    waiting = [Job(0.0, 500, 1), Job(1.0, 48, 1, (1, 5, 6)), Job(2.0, 48, 1, (1, 2, 6)), Job(3.0, 48, 1, (1, 2, 7))]

    assert [shared_first(waiting, cache, most) for most in (1, 2, 3, 4, 128)] == [0, 1, 2, 2, 2]
    assert shared_first(waiting[:1], cache) == 0


def test_the_longest_match_is_not_looked_for_among_all() -> None:
    """The 128th is found, the 129th is not."""
    cache = BlockCache(16, 16)
    served(cache, [1], 16)
    stranger, known = Job(0.0, 16, 1, (2,)), Job(0.0, 16, 1, (1,))

    assert shared_first([stranger] * (MOST_WAITING - 1) + [known], cache) == MOST_WAITING - 1
    assert shared_first([stranger] * MOST_WAITING + [known], cache) == 0


Trace = list[tuple[tuple[int, ...], int]]


@pytest.fixture(name="traces", scope="module")
def traces_fixture() -> dict[str, Trace]:
    """Read ids and tokens of each prompt; skip where the traces are not there, with the number of their requests."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("ROOFCAST_SHARED") or beside) / "traces"
    found = {}
    for name, (count, *_) in TRACES.items():
        path = folder / f"mooncake_fast25_{name}_trace.jsonl"
        if not path.is_file():
            pytest.skip(f"no folder of traces: {sum(n for n, *_ in TRACES.values())} requests not replayed")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert len(rows) == count
        found[name] = [(tuple(row["hash_ids"]), row["input_length"]) for row in rows]
    return found


def replay(cache: Runs, trace: Trace, room: int, lag: int) -> tuple[float, float]:
    """Share of tokens and of ids found; each request is released when `lag` others came after it."""
    running: deque[Lease] = deque()
    tokens = ids = 0
    for hashes, prompt in trace:
        lease = cache.take(cache.match(hashes, prompt))
        tokens += lease.hit_tokens
        ids += lease.hit_ids
        running.append(lease)
        cache.trim(max(room - cache.held, 0))
        assert cache.held + cache.kept <= max(room, cache.held)
        if len(running) > lag:
            cache.release(running.popleft())
    return tokens / sum(prompt for _, prompt in trace), ids / sum(len(hashes) for hashes, _ in trace)


def counted(trace: Trace, room: int | None = None) -> tuple[float, float]:
    """The same by a table of chained ids: those of the last requests in the order of their use, in `room` ids at most."""
    table: OrderedDict[tuple[int, int], int] = (
        OrderedDict()
    )  # a number for the chain before, the id -> this chain's number
    number = tokens = ids = 0
    for hashes, prompt in trace:
        chain, links, left = -1, [], True
        for at, one in enumerate(hashes):
            link = chain, one
            links.append(link)
            left = left and link in table
            if left:
                tokens += min(512, prompt - at * 512)
                ids += 1
            number += 1
            chain = table.setdefault(link, number)
        for link in reversed(links):
            table.move_to_end(link)
        while room is not None and len(table) > room:
            table.popitem(last=False)
    return tokens / sum(prompt for _, prompt in trace), ids / sum(len(hashes) for hashes, _ in trace)


@pytest.mark.parametrize("make", CACHES)
@pytest.mark.parametrize("name", TRACES)
def test_an_unlimited_cache_on_the_traces(traces: dict[str, Trace], name: str, make: type[Runs]) -> None:
    """As published and as counted by hand: 37.4 and 65.1 % of tokens, 36.6 and 64.0 % of blocks, whenever they end."""
    trace = traces[name]
    expected = counted(trace)
    assert [round(share, 3) for share in expected] == list(TRACES[name][1:])
    for lag in (0, 8):
        cache = make(512, 16)
        assert replay(cache, trace, 10**9, lag) == expected
        distinct = {(at, one): prompt - at * 512 for ids, prompt in trace for at, one in enumerate(ids)}
        assert cache.held + cache.kept == sum(-(-min(512, left) // 16) for left in distinct.values())
        assert cache.evicted == 0


@pytest.mark.parametrize("make", CACHES)
@pytest.mark.parametrize("name", TRACES)
def test_less_memory_finds_less_on_the_traces(traces: dict[str, Trace], name: str, make: type[Runs]) -> None:
    """Tokens found fall with the room; for whole leaves that is no law, but so on these traces."""
    rooms = [10**9, 300_000, 100_000, 30_000]
    for lag in (0, 8):
        shares = [replay(make(512, 16), traces[name], room, lag)[0] for room in rooms]
        assert shares == sorted(shares, reverse=True)
        assert shares[-1] < shares[0] / 2


@pytest.mark.parametrize("name", TRACES)
def test_blocks_are_given_up_least_recently_used_first(traces: dict[str, Trace], name: str) -> None:
    """With ids of one block each, capacity is a number of ids, and hits are those of the table in its order of use."""
    for room in (10_000, 2_000):
        running = counted(traces[name], room)
        assert replay(BlockCache(512, 512), traces[name], room, 0) == running
