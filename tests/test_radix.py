"""The radix tree: edges part where prompts do, and whole leaves are given up, least recently used first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roofcast.calculators.serving.prefix import BlockCache
from roofcast.calculators.serving.radix import RadixCache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roofcast.calculators.serving.prefix import Lease, Runs


def began(cache: Runs, ids: Sequence[int]) -> Lease:
    """A request of as many tokens comes and stays."""
    return cache.take(cache.match(ids, len(ids)))


def served(cache: Runs, ids: Sequence[int]) -> None:
    """One comes and goes."""
    cache.release(began(cache, ids))


def runs(cache: Runs) -> dict[tuple[object, ...], int]:
    """Ids from the start to the end of each edge, and who refers to it."""
    found, stack = {}, [(cache._root, cache._root.run)]
    while stack:
        node, path = stack.pop()
        for child in node.children.values():
            found[path + child.run] = child.refs
            stack.append((child, path + child.run))
    return found


def test_an_edge_parts_where_prompts_do() -> None:
    """`1 2 3 4`, then `1 2 5`: an edge `1 2` that both refer to, and one for what is each one's own."""
    cache = RadixCache(1, 1)
    first = began(cache, [1, 2, 3, 4])
    assert runs(cache) == {(1, 2, 3, 4): 1}
    began(cache, [1, 2, 5])
    assert runs(cache) == {(1, 2): 2, (1, 2, 3, 4): 1, (1, 2, 5): 1}
    began(cache, [1, 2, 3])  # ends within the first one's own
    assert runs(cache) == {(1, 2): 3, (1, 2, 3): 2, (1, 2, 3, 4): 1, (1, 2, 5): 1}
    cache.release(first)
    assert runs(cache) == {(1, 2): 2, (1, 2, 3): 1, (1, 2, 3, 4): 0, (1, 2, 5): 1}
    assert (cache.held, cache.kept) == (4, 1)


def test_leaves_go_whole_and_parents_become_leaves() -> None:
    """`1 2 3 4`, `1 2 5 6` and `7 8` in this order of use: one token of room more takes two each time."""
    cache = RadixCache(1, 1)
    for ids in ([1, 2, 3, 4], [7, 8], [1, 2, 5, 6]):
        served(cache, ids)
    left = []
    while cache.kept:
        cache.trim(cache.kept - 1)
        left.append(set(runs(cache)))

    assert left == [{(1, 2), (1, 2, 5, 6), (7, 8)}, {(1, 2), (1, 2, 5, 6)}, {(1, 2)}, set()]
    assert cache.evicted == 8


def test_a_part_that_is_not_used_keeps_its_time() -> None:
    """`1 2 3 4` is the oldest; that `1 2` of it is used again does not make `3 4` younger than `7`."""
    cache = RadixCache(1, 1)
    for ids in ([1, 2, 3, 4], [7], [1, 2]):
        served(cache, ids)
    cache.trim(4)

    assert set(runs(cache)) == {(1, 2), (7,)}


def test_what_is_behind_a_reference_goes_and_what_is_before_stays() -> None:
    """A request at `1 2` holds it; what follows is kept by no one, and what it follows by the request."""
    cache = RadixCache(1, 1)
    served(cache, [1])
    lease = began(cache, [1, 2])
    served(cache, [1, 2, 3])
    cache.trim(0)
    assert runs(cache) == {(1,): 1, (1, 2): 1}
    cache.release(lease)
    cache.trim(0)
    assert runs(cache) == {}


@pytest.mark.parametrize("make", [RadixCache, BlockCache])
def test_a_conversation_of_thousands_of_turns(make: type[Runs]) -> None:
    """A path of 5,000 edges is walked, held, let go of and given up without a call for each."""
    cache = make(1, 1)
    turns = tuple(range(5000))
    for end in range(100, 5001, 100):
        served(cache, turns[:end])
    for end in range(4999, 4000, -1):  # each parts the run of the one before
        served(cache, turns[:end])
    assert len(runs(cache)) > 1000
    lease = began(cache, turns)
    assert (lease.hit_tokens, cache.held, cache.kept) == (5000, 5000, 0)
    cache.release(lease)
    cache.trim(0)
    assert (cache.kept, cache.evicted) == (0, 5000)


@pytest.mark.parametrize("make", [RadixCache, BlockCache])
def test_what_is_given_up_is_forgotten(make: type[Runs]) -> None:
    """After 2,000 prompts in room for 40 blocks no more edges are in memory than blocks, and no more wait."""
    cache = make(16, 16)
    for n in range(2000):
        cache.release(cache.take(cache.match((n % 3, n % 7, n, -n), 64)))
        cache.trim(40)
        assert len(runs(cache)) <= cache.kept <= 40
        assert len(cache._queue) == len(runs(cache))


@pytest.mark.parametrize("make", [RadixCache, BlockCache])
def test_a_match_outlives_a_split(make: type[Runs]) -> None:
    """`1 2 3` was found in `1 2 3 4` before `1 2` parted it: taken afterwards, it refers to these three alone."""
    cache = make(1, 1)
    served(cache, [1, 2, 3, 4])
    found = cache.match([1, 2, 3], 3)
    served(cache, [1, 2])
    cache.take(found)
    assert runs(cache) == {(1, 2): 1, (1, 2, 3): 1, (1, 2, 3, 4): 0}
    assert (cache.held, cache.kept) == (3, 1)
