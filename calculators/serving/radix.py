"""A radix tree of prompts whose leaves are given up least recently used first, as SGLang's RadixAttention has it."""

from __future__ import annotations

from roofcast.calculators.serving.prefix import Runs


class RadixCache(Runs):
    """Whole leaves are given up, the one first that was used longest ago; a node without children left is a leaf.

    An edge holds the ids that no prompt parts and is split where two part; with `hash_tokens` and `block_tokens` of 1
    ids are tokens and pages hold one each. What a request refers to, and all before it, stays. The leaf is given up
    whole, however little room is asked for, as SGLang does (`srt/mem_cache/radix_cache.py`, `evict`): so this cache may
    give up more than blocks one by one, and never gives up less. Use is what a request does that runs, when it comes and
    when it goes; a part that is split off and not used keeps its time, where SGLang's gets the time of the split.

    Source: Zheng et al. 2024, SGLang, arXiv:2312.07104, section 3.

    >>> cache = RadixCache(hash_tokens=1, block_tokens=1)
    >>> cache.release(cache.take(cache.match([1, 2, 3, 4, 5], 5)))
    >>> cache.release(cache.take(cache.match([1, 2, 6, 7], 4)))  # leaves 3 4 5, used first, and 6 7 under 1 2
    >>> cache.kept
    7
    >>> cache.trim(6)
    >>> cache.kept, cache.match([1, 2, 3], 3).hit_tokens, cache.match([1, 2, 6, 7, 8], 5).hit_tokens
    (4, 2, 4)
    """

    _whole = True
