"""Prefix caches: prompt tokens whose keys and values are still in memory, by the ids of their blocks.

An engine knows a block of a prompt by a hash that covers the block's tokens and its parent's hash (vLLM: design document
"Automatic Prefix Caching", `v1/core/kv_cache_utils.py`), so that two prompts have a block in common where all ids up to
it are equal: the hash is the path from the start. So the blocks are held as a tree of paths, whose nodes are runs of ids
that no prompt parts; work is done by runs, not by ids.

What no request refers to stays and can be found until its room is asked for. It waits in a queue (vLLM:
`v1/core/block_pool.py`), what was released first at its head; of one request the blocks that it alone had, its last one
first. Who refers to a block refers to all before it and lets go of them later, so that no block is given up before
those that follow it: none is ever kept that a match cannot reach.

A prompt is known from when its request is admitted, where vLLM knows of each chunk as it is scheduled; what a request
writes is not known, since traces have no ids of it. How much of a prompt must be computed in any case, its last token at
least, is the caller's affair.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import compress, count, islice
from math import gcd
from operator import ne
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roofcast.calculators.serving.job import Job

#: Waiting requests among which SGLang looks for the longest match; with more it takes the first
#: (`managers/schedule_policy.py`, `_determine_active_policy`).
MOST_WAITING: Final = 128


class Node:
    """A run of ids that are held together, at its place in the tree.

    Args:
        run: the ids.
        start: tokens before it. [token]
        end: tokens up to its end; less than its ids could have where a prompt ended in the last of them. [token]
        blocks: of the pool that it takes. [block]
        parent: what goes before; None of the root.
        refs: requests that refer to it, no more than to its parent.
    """

    __slots__ = ("blocks", "children", "end", "parent", "refs", "run", "start")

    def __init__(
        self, run: tuple[object, ...], start: int, end: int, blocks: int, parent: Node | None, refs: int
    ) -> None:
        self.run = run
        self.start = start
        self.end = end
        self.blocks = blocks
        self.parent = parent
        self.refs = refs
        self.children: dict[object, Node] = {}


class Match(NamedTuple):
    """What a cache knows of a prompt."""

    hit_tokens: int
    """Tokens of the prompt that were found. [token]"""
    hit_ids: int
    """Leading ids that were found, one found in part among them."""
    revived: int
    """Pool blocks of what was found that no one refers to: kept now, held after `take`."""
    new: int
    """Pool blocks that the rest of the ids takes."""
    covered: int
    """Tokens of the prompt that are in blocks of the cache after `take`; the rest is the request's own. [token]"""
    keys: tuple[object, ...]
    """What it was asked for: ids, joined where they are shorter than a block."""
    node: Node
    """The last one that has something in common with the prompt."""
    inside: int
    """Keys of that node that are in common."""
    version: int
    """The cache's when it was asked."""


class Lease:
    """A request's reference to all blocks of its prompt that the cache has; it ends with `release`.

    Args:
        node: where its path ends; None once it is released.
        hit_tokens: tokens of the prompt that were there before. [token]
        hit_ids: leading ids of which they are.
        covered: tokens of the prompt in blocks of the cache. [token]
    """

    __slots__ = ("covered", "hit_ids", "hit_tokens", "node")

    def __init__(self, node: Node, hit_tokens: int, hit_ids: int, covered: int) -> None:
        self.node: Node | None = node
        self.hit_tokens = hit_tokens
        self.hit_ids = hit_ids
        self.covered = covered


class PrefixCache(Protocol):
    """A cache within a pool that others have a part of as well: it does not know how large it may be.

    After `take`, whose blocks are never given up, the caller trims: what is kept, what is held and what is the caller's
    own are the pool.
    """

    held: int
    """Pool blocks that running requests refer to."""
    kept: int
    """Pool blocks that no one refers to: they make room when asked."""
    evicted: int
    """Tokens given up so far. [token]"""

    def match(self, ids: Sequence[int], tokens: int) -> Match:
        """What is known of a prompt of so many tokens; it touches nothing."""

    def take(self, match: Match) -> Lease:
        """Refers to what was found and adds the rest, which is known from now on."""

    def release(self, lease: Lease) -> None:
        """The request is gone: its blocks are kept, those that no other refers to."""

    def trim(self, room: int) -> None:
        """Gives up what was released first, until no more than `room` blocks are kept."""


class Runs:
    """The tree of paths and the queue of what no one refers to; its subclasses say how much of a run goes at once.

    Args:
        hash_tokens: tokens of an id. [token]
        block_tokens: tokens of a pool block. Where ids do not end with blocks, as many are joined as do; an engine finds
            whole blocks only. [token]
        partial: whether the last id of a prompt is known too where the prompt ends within it, with all of its tokens, as
            statistics of traces count. An engine finds the full blocks among them, less than a block fewer; without it
            none of that id is found.
    """

    _whole: ClassVar[bool]  # whether all of a run is given up at once, or its last ids

    def __init__(self, hash_tokens: int, block_tokens: int, *, partial: bool = True) -> None:
        self.held = 0
        self.kept = 0
        self.evicted = 0
        self._block = block_tokens
        self._joined = block_tokens // gcd(hash_tokens, block_tokens)
        self._id = hash_tokens
        self._key = hash_tokens * self._joined
        self._partial = partial
        self._root = Node((), 0, 0, 0, None, 0)
        self._queue: OrderedDict[Node, None] = OrderedDict()
        self._version = 0

    def match(self, ids: Sequence[int], tokens: int) -> Match:
        """The longest path that the prompt's ids have in common with the tree; ids behind its last token are not read."""
        covered = min(tokens, len(ids) * self._id)
        if not self._partial:
            covered -= covered % self._key
        known, joined = -(-covered // self._id), self._joined
        keys: tuple[object, ...] = tuple(ids if known == len(ids) else ids[:known])
        if joined > 1:
            keys = tuple(keys[at : at + joined] for at in range(0, known, joined))
        return self._find(keys, covered)

    def _find(self, keys: tuple[object, ...], covered: int) -> Match:
        """The match of a prompt's keys, which cover so many of its tokens."""
        node, at, inside = self._root, 0, 0
        first = -1  # token from which on no one refers to what was found
        wanted = len(keys)
        while at < wanted and (child := node.children.get(keys[at])) is not None:
            node = child
            if first < 0 and not node.refs:
                first = node.start
            inside = len(node.run)
            if keys[at : at + inside] != node.run:
                inside = next(compress(count(), map(ne, node.run, keys[at:])), min(inside, wanted - at))
                at += inside
                break
            at += inside
        end = node.end if inside == len(node.run) else node.start + inside * self._key
        blocks = -(-end // self._block)
        return Match(
            min(end, covered),
            min(at * self._joined, -(-covered // self._id)),
            blocks - first // self._block if first >= 0 else 0,
            max(-(-covered // self._block) - blocks, 0),
            covered,
            keys,
            node,
            inside,
            self._version,
        )

    def take(self, match: Match) -> Lease:
        """Refers to the path, split where the prompt leaves it, and adds the rest as one run.

        A match that is out of date, since others took or trimmed, is looked up again.
        """
        if match.version != self._version:
            match = self._find(match.keys, match.covered)
        node, keys, covered = match.node, match.keys, match.covered
        if match.inside < len(node.run):
            node = self._split(node, match.inside)
        at = node.start // self._key + len(node.run)
        whole = at * self._key
        if node.end < whole and node.end < covered:
            self._grow(node, min(whole, covered))
        self._hold(node)
        if at < len(keys):
            blocks = -(-covered // self._block) - whole // self._block
            rest = Node(keys[at:], whole, covered, blocks, node, 1)
            node.children[keys[at]] = node = rest
            self.held += blocks
            self._version += 1
        return Lease(node, match.hit_tokens, match.hit_ids, covered)

    def release(self, lease: Lease) -> None:
        """Takes the reference from the path, the end first; what no one else refers to queues in that order.

        Raises:
            ValueError: the lease was released before.
        """
        node = lease.node
        if node is None:
            raise ValueError("the lease was released before")
        lease.node = None
        blocks = 0
        while (parent := node.parent) is not None:
            node.refs -= 1
            if not node.refs:
                self._queue[node] = None
                blocks += node.blocks
            node = parent
        self.held -= blocks
        self.kept += blocks

    def trim(self, room: int) -> None:
        """Gives up from the head of the queue until no more than `room` blocks are kept. [block]"""
        queue = self._queue
        while self.kept > room and queue:
            node = next(iter(queue))
            stay = node.blocks - (self.kept - room)  # blocks, of whole keys from the start on
            left = 0 if self._whole or stay <= 0 else stay * self._block // self._key
            end = node.start + left * self._key
            self.evicted += node.end - end
            if left:
                self.kept -= node.blocks
                self._end(node, end)
                self.kept += node.blocks
                node.run = node.run[:left]
            else:
                self.kept -= node.blocks
                del queue[node]
                if node.parent is not None:
                    del node.parent.children[node.run[0]]
            self._version += 1

    def _split(self, node: Node, inside: int) -> Node:
        """Cuts a run in two and returns the first, a new node; requests that end in the second still do."""
        parent = node.parent
        if parent is None:  # the root has no run
            return node
        cut = node.start + inside * self._key
        blocks = (cut - node.start) // self._block
        upper = Node(node.run[:inside], node.start, cut, blocks, parent, node.refs)
        parent.children[node.run[0]] = upper
        node.run, node.start, node.parent = node.run[inside:], cut, upper
        node.blocks -= blocks
        upper.children[node.run[0]] = node
        self._version += 1
        return upper

    def _grow(self, node: Node, end: int) -> None:
        """Tokens are added to the last id of a run, which a shorter prompt had in part."""
        before = node.blocks
        self._end(node, end)
        if node.refs:
            self.held += node.blocks - before
        else:
            self.kept += node.blocks - before
        self._version += 1

    def _end(self, node: Node, end: int) -> None:
        """A run ends elsewhere; its last block is rounded up, its start is that of a block. [block]"""
        node.end = end
        node.blocks = -(-end // self._block) - node.start // self._block

    def _hold(self, node: Node) -> None:
        """One more refers to a path."""
        blocks = 0
        while (parent := node.parent) is not None:
            if not node.refs:
                self._queue.pop(node, None)
                blocks += node.blocks
            node.refs += 1
            node = parent
        self.held += blocks
        self.kept -= blocks


class BlockCache(Runs):
    """Blocks by hash chains, as vLLM has them: given up one after the other, a request's last one first.

    >>> cache = BlockCache(hash_tokens=512, block_tokens=16)
    >>> first = cache.take(cache.match([7, 8, 9], 1200))  # 32 + 32 blocks, and 11 for the 176 tokens that are left
    >>> cache.held
    75
    >>> cache.release(first)
    >>> again = cache.match([7, 8, 5], 1200)
    >>> again.hit_tokens, again.hit_ids, again.revived, again.new
    (1024, 2, 64, 11)
    >>> cache.trim(60)
    >>> cache.kept, cache.evicted, cache.match([7, 8, 5], 1200).hit_tokens
    (32, 688, 512)
    """

    _whole = False


def shared_first(waiting: Iterable[Job], cache: PrefixCache, most: int = MOST_WAITING) -> int:
    """Index of the request that has the most tokens in the cache, the first of equals, among the first `most`."""
    best, most_tokens = 0, 0
    for index, job in enumerate(islice(waiting, most)):
        if job.prompt > most_tokens and job.hashes:
            hit = cache.match(job.hashes, job.prompt).hit_tokens
            if hit > most_tokens:
                best, most_tokens = index, hit
    return best
