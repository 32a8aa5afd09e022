"""Laws of prefix caches: they answer like models that know of no tree, and their blocks are counted once each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofcast.calculators.serving.job import Job
from roofcast.calculators.serving.prefix import BlockCache, Lease, Runs, shared_first
from roofcast.calculators.serving.radix import RadixCache

if TYPE_CHECKING:
    from collections.abc import Iterator

Prompt = tuple[tuple[int, ...], int]
Keys = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of an id and of a pool block, and whether the last block counts."""

    hash_tokens: int
    block_tokens: int
    partial: bool

    @property
    def key_ids(self) -> int:
        """Least number of ids that end where a block does."""
        return next(n for n in range(1, self.block_tokens + 1) if n * self.hash_tokens % self.block_tokens == 0)

    def keys(self, prompt: Prompt) -> list[tuple[tuple[int, ...], int]]:
        """Ids of each key and its tokens, token by token."""
        ids, tokens = prompt
        size = self.key_ids * self.hash_tokens
        found = []
        for at in range(0, len(ids), self.key_ids):
            part = ids[at : at + self.key_ids]
            first = at * self.hash_tokens
            have = sum(first <= token < first + len(part) * self.hash_tokens for token in range(tokens))
            if have == size or (have and self.partial):
                found.append((part[: -(-have // self.hash_tokens)], have))
        return found

    def blocks(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.block_tokens)


@dataclass
class Held:
    """One key at its place."""

    tokens: int
    refs: int = 0


@dataclass
class Model:
    """A block of tokens for each path of keys, in a flat table by the whole path; a list for a queue."""

    sizes: Sizes
    known: dict[Keys, Held] = field(default_factory=dict)
    queue: list[Keys] = field(default_factory=list)
    evicted: int = 0

    def paths(self, prompt: Prompt) -> list[tuple[Keys, int]]:
        """Each key with all before it, and the tokens that the prompt has of it."""
        keys = self.sizes.keys(prompt)
        return [(tuple(ids for ids, _ in keys[: at + 1]), tokens) for at, (_, tokens) in enumerate(keys)]

    def match(self, prompt: Prompt) -> tuple[int, int, int, int]:
        """Tokens and ids found, blocks revived and new."""
        hit, ids, revived, new, reached = 0, 0, 0, 0, True
        for path, tokens in self.paths(prompt):
            held = self.known.get(path) if reached else None
            blocks = self.sizes.blocks(tokens)
            if held is None:
                new += blocks
                reached = False
                continue
            hit += min(tokens, held.tokens)
            ids += len(path[-1])
            new += max(blocks - self.sizes.blocks(held.tokens), 0)
            revived += self.sizes.blocks(held.tokens) * (held.refs == 0)
            reached = held.tokens >= tokens
        return hit, ids, revived, new

    def take(self, prompt: Prompt) -> None:
        """Every key has one reference more, and at least the prompt's tokens."""
        for path, tokens in self.paths(prompt):
            held = self.known.setdefault(path, Held(tokens))
            held.tokens = max(held.tokens, tokens)
            held.refs += 1
            if path in self.queue:
                self.queue.remove(path)

    def release(self, prompt: Prompt) -> None:
        """The last key first."""
        for path, _ in reversed(self.paths(prompt)):
            self.known[path].refs -= 1
            if not self.known[path].refs:
                self.queue.append(path)

    def trim(self, room: int) -> None:
        """Key by key from the head of the queue."""
        while self.kept > room:
            self.forget(self.queue[0])

    def forget(self, path: Keys) -> None:
        """One key."""
        assert not self.known[path].refs
        self.queue.remove(path)
        self.evicted += self.known.pop(path).tokens

    def count(self, *, held: bool) -> int:
        """Blocks that are referred to, or not."""
        return sum(self.sizes.blocks(one.tokens) for one in self.known.values() if (one.refs > 0) is held)

    @property
    def kept(self) -> int:
        """Blocks that are not referred to."""
        return self.count(held=False)


@dataclass
class LeafModel(Model):
    """The same with whole leaves: what ends where a prompt ended or parted from others goes from there back to the last such place."""

    ends: dict[Keys, int] = field(default_factory=dict)  # place -> when it was last used
    clock: int = 0

    def take(self, prompt: Prompt) -> None:
        """Notes where the prompt leaves what was known, and where it ends."""
        paths = [path for path, _ in self.paths(prompt)]
        common = [path for path in paths if path in self.known]
        super().take(prompt)
        for path in (common[-1:], paths[-1:]):
            if path:
                self.ends.setdefault(path[0], 0)

    def release(self, prompt: Prompt) -> None:
        """It was used until now."""
        super().release(prompt)
        self.clock += 1
        for path, _ in self.paths(prompt):
            if path in self.ends:
                self.ends[path] = self.clock

    def used(self, path: Keys) -> int:
        """When something was last used: it, or what was behind it."""
        return self.ends[path]

    def trim(self, room: int) -> None:
        """The leaf that was used longest ago, looked for among all."""
        while self.kept > room:
            leaves = [
                path
                for path in self.ends
                if not self.known[path].refs
                and not any(len(p) > len(path) and p[: len(path)] == path for p in self.known)
            ]
            path = min(leaves, key=self.used)
            del self.ends[path]
            while path and path not in self.ends:
                self.forget(path)
                path = path[:-1]


CACHES: Final = {"blocks": (BlockCache, Model), "radix": (RadixCache, LeafModel)}
SIZES: Final = st.builds(Sizes, st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([1, 2, 3, 4]), st.booleans())
IDS: Final = st.lists(st.integers(0, 2), max_size=7).map(tuple)


@st.composite
def prompts(draw: st.DrawFn, sizes: Sizes) -> Prompt:
    """Draw ids and a number of tokens that may end in any of them, or behind the last."""
    ids = draw(IDS)
    return ids, draw(st.integers(1, max(1, len(ids) * sizes.hash_tokens + 3)))


@dataclass
class Pair:
    """A cache and its model, and the requests that run."""

    cache: Runs
    model: Model
    running: list[tuple[Prompt, Lease]] = field(default_factory=list)

    def check(self, probes: list[Prompt]) -> None:
        """Everything that can be asked is alike, and adds up."""
        cache, model = self.cache, self.model
        assert (cache.held, cache.kept, cache.evicted) == (model.count(held=True), model.kept, model.evicted)
        for ids, tokens in probes:
            found = cache.match(ids, tokens)
            assert (found.hit_tokens, found.hit_ids, found.revived, found.new) == model.match((ids, tokens))
            assert found.hit_tokens <= found.covered <= tokens

    def take(self, prompt: Prompt) -> None:
        """A request begins to run."""
        held, kept = self.cache.held, self.cache.kept
        found = self.cache.match(*prompt)
        lease = self.cache.take(found)
        assert (lease.hit_tokens, lease.hit_ids, lease.covered) == (found.hit_tokens, found.hit_ids, found.covered)
        assert self.cache.held == held + found.revived + found.new
        assert self.cache.kept == kept - found.revived
        self.model.take(prompt)
        self.running.append((prompt, lease))

    def release(self, at: int) -> None:
        """One of the requests is done."""
        prompt, lease = self.running.pop(at)
        held = self.cache.held + self.cache.kept
        self.cache.release(lease)
        assert self.cache.held + self.cache.kept == held
        self.model.release(prompt)

    def trim(self, room: int) -> None:
        """Room is asked for."""
        self.cache.trim(room)
        assert 0 <= self.cache.kept <= room or not room
        self.model.trim(room)


def nodes(cache: Runs) -> Iterator[tuple[int, int, int]]:
    """References, blocks and keys of every node that can be reached."""
    stack = list(cache._root.children.values())
    while stack:
        node = stack.pop()
        yield node.refs, -(-node.end // cache._block) - node.start // cache._block, len(node.run)
        stack += node.children.values()


@pytest.mark.parametrize("kind", CACHES)
@given(data=st.data(), sizes=SIZES)
def test_caches_answer_as_their_models(kind: str, data: st.DataObject, sizes: Sizes) -> None:
    """Whatever comes, goes and is asked for in whatever order, hits, evictions and blocks are those of the model."""
    make, model = CACHES[kind]
    pair = Pair(make(sizes.hash_tokens, sizes.block_tokens, partial=sizes.partial), model(sizes))
    probes = data.draw(st.lists(prompts(sizes), min_size=2, max_size=5))
    for step in data.draw(st.lists(st.sampled_from(["take", "take", "release", "trim"]), max_size=25)):
        if step == "take":
            pair.take(data.draw(st.sampled_from(probes) | prompts(sizes)))
        elif step == "release" and pair.running:
            pair.release(data.draw(st.integers(0, len(pair.running) - 1)))
        elif step == "trim":
            pair.trim(data.draw(st.integers(0, pair.cache.kept + 1)))
        pair.check(probes)
        found = list(nodes(pair.cache))
        assert sum(blocks for refs, blocks, _ in found if refs) == pair.cache.held
        assert sum(blocks for refs, blocks, _ in found if not refs) == pair.cache.kept
        assert sum(not refs for refs, _, _ in found) == len(pair.cache._queue)
        assert all(0 < keys <= blocks for _, blocks, keys in found)
    while pair.running:
        pair.release(0)
    assert pair.cache.held == 0
    pair.check(probes)
    pair.trim(0)
    assert pair.cache.kept == 0
    assert not list(nodes(pair.cache))


@pytest.mark.parametrize("kind", CACHES)
@given(data=st.data(), sizes=SIZES)
def test_a_match_may_be_taken_late(kind: str, data: st.DataObject, sizes: Sizes) -> None:
    """What others took, released and trimmed since is looked up again: the answer is that of a match made now."""
    make, _ = CACHES[kind]
    late, now = (make(sizes.hash_tokens, sizes.block_tokens, partial=sizes.partial) for _ in range(2))
    asked = data.draw(prompts(sizes))
    others = data.draw(st.lists(st.tuples(prompts(sizes), st.none() | st.integers(0, 6)), min_size=1, max_size=6))
    first = late.match(*asked)
    for prompt, room in others:
        for cache in (late, now):
            cache.release(cache.take(cache.match(*prompt)))
            if room is not None:
                cache.trim(room)
        if data.draw(st.booleans()):
            first = late.match(*asked)

    leases = late.take(first), now.take(now.match(*asked))

    assert [getattr(leases[0], name) for name in ("hit_tokens", "hit_ids", "covered")] == [
        getattr(leases[1], name) for name in ("hit_tokens", "hit_ids", "covered")
    ]
    assert (late.held, late.kept, late.evicted) == (now.held, now.kept, now.evicted)


def replay(cache: Runs, asked: list[Prompt], room: int, lag: int) -> list[int]:
    """Tokens found of each request; each is released when `lag` others came after it."""
    running: deque[Lease] = deque()
    hits = []
    for ids, tokens in asked:
        found = cache.match(ids, tokens)
        hits.append(found.hit_tokens)
        running.append(cache.take(found))
        cache.trim(max(room - cache.held, 0))
        assert cache.kept + cache.held <= max(room, cache.held)
        if len(running) > lag:
            cache.release(running.popleft())
    return hits


@given(st.data(), SIZES, st.integers(0, 3))
def test_more_memory_finds_no_less_by_blocks(data: st.DataObject, sizes: Sizes, lag: int) -> None:
    """The order in which blocks are given up does not hang on the room: a larger cache has all that a smaller one has."""
    asked = data.draw(st.lists(prompts(sizes), max_size=20))
    rooms = sorted(data.draw(st.tuples(st.integers(0, 40), st.integers(0, 40))))
    small, large = (
        replay(BlockCache(sizes.hash_tokens, sizes.block_tokens, partial=sizes.partial), asked, room, lag)
        for room in rooms
    )

    assert all(less <= more for less, more in zip(small, large, strict=True))


@given(st.data(), SIZES)
def test_both_caches_find_the_same_when_nothing_is_given_up(data: st.DataObject, sizes: Sizes) -> None:
    """Without an end of memory a path is known from the first prompt that had it."""
    asked = data.draw(st.lists(prompts(sizes), max_size=20))
    blocks, radix = (
        replay(make(sizes.hash_tokens, sizes.block_tokens, partial=sizes.partial), asked, 10**6, 0)
        for make, _ in CACHES.values()
    )

    assert blocks == radix


@given(st.data(), SIZES, st.integers(1, 6))
def test_shared_first_is_the_longest_of_the_first(data: st.DataObject, sizes: Sizes, most: int) -> None:
    """No other of the first that wait has more tokens in the cache, and none before it as many."""
    cache = BlockCache(sizes.hash_tokens, sizes.block_tokens, partial=sizes.partial)
    replay(cache, data.draw(st.lists(prompts(sizes), max_size=6)), 10**6, 0)
    waiting = [Job(0.0, tokens, 1, ids) for ids, tokens in data.draw(st.lists(prompts(sizes), min_size=1, max_size=9))]

    at = shared_first(waiting, cache, most)

    hits = [cache.match(job.hashes, job.prompt).hit_tokens for job in waiting[:most]]
    assert at == hits.index(max(hits))
